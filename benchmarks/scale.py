"""`python -m benchmarks.scale`: how time and memory of training grow with clients, nodes and `--cohort-size`, on one machine.

Synthetic graphs (`mosaic`) and a process for each measurement, so that its peak memory is its own:

- clients: 100 nodes each, so that 10,000 clients have a million nodes;
- nodes: a fixed number of clients, cut by METIS;
- cohorts: many clients, the cohort size from ten to all of them;
- limit: many clients under a hard limit of memory (RLIMIT_DATA, which counts what no file backs), with clients' states
  offloaded to disk as by default, and with everything in memory; and the latter without a limit.

With `--device cuda` the first two, and the peak of the device's memory:

    python -m benchmarks.scale --device cuda --parts clients --clients 100,1000,10000,100000 --cohort-size 0 --methods fedavg

A round is down, local training, up, aggregation and an evaluation of all clients. Seconds are the median over the rounds after
the first, on an accelerator after the second, which is captured; exponents are slopes in log-log coordinates, over all sizes
and over the largest decade. A measurement during which other processes used the cores is repeated, and the one with least
other load counts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

PARTS = ("clients", "nodes", "cohorts", "limit")
NODES_A_CLIENT = 100  # of mosaic's natural clients
HIDDEN = 64
SECONDS = 2.0  # of rounds at least, so that short ones are many
TRIES, BUSY = 2, 0.1  # cores that others may use beyond those we leave them, while we measure
MB, GB = 1e6, 1e9


@dataclass(frozen=True)
class Point:
    """One measurement: `cohort_size` 0 is all clients at once, `limit` a hard limit in bytes (0: none)."""

    part: str
    method: str
    nodes: int
    clients: int
    cohort_size: int
    partition: str = "natural"
    offloads: bool = True
    limit: int = 0
    device: str = "cpu"


@dataclass
class Measured:
    """Seconds and bytes; `others` is the number of cores that other processes used meanwhile.

    Anonymous memory (what no file backs) is `start` before the graph is made, `prepared` at most before the first round, and
    `anonymous` at most in all; `resident` is the peak with pages of files. `on_device` is the most that the allocator of an
    accelerator held, with the memory of CUDA graphs.
    """

    point: Point
    prepare: float = math.nan
    first_round: float = math.nan
    round: float = math.nan
    rounds: int = 0
    start: int = 0
    prepared: int = 0
    anonymous: int = 0
    resident: int = 0
    offloaded: int = 0
    on_device: int = 0
    others: float = 0.0
    failed: str = ""


# -- in the measured process ----------------------------------------------------------------------------------------------


def status(name: str) -> int:
    """A number of /proc/self/status, in bytes."""
    text = Path("/proc/self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith(name)).split()[1]) * 1024


@contextmanager
def watched(name: str, every: float = 0.005) -> Iterator[Callable[[], int]]:
    """Poll a number of /proc/self/status inside the `with` block; yields a function that returns its maximum so far."""
    peak, done = [status(name)], threading.Event()

    def watch() -> None:
        while not done.wait(every):
            peak[0] = max(peak[0], status(name))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: peak[0]
    finally:
        done.set()
        thread.join()


def busy_seconds() -> tuple[float, float]:
    """Seconds that all cores were busy since the machine started, and those of this process."""
    user, nice, system, _, _, irq, soft, stolen = map(int, Path("/proc/stat").read_text().split()[1:9])
    ticks = user + nice + system + irq + soft + stolen
    return ticks / os.sysconf("SC_CLK_TCK"), time.process_time()


def train(point: Point, rounds: int) -> Measured:
    """Train in this process, and measure it."""
    if point.limit:
        resource.setrlimit(resource.RLIMIT_DATA, (point.limit, point.limit))
    import torch

    from fedquilt.devices import offload
    from fedquilt.devices.allocator import keep_freed_memory
    from fedquilt.runs.config import RunConfig
    from fedquilt.runs.resolve import ResolvedRun

    keep_freed_memory()
    if not point.offloads:
        offload.THRESHOLD_BYTES = 2**62
    values: dict[str, Any] = {
        "dataset": f"mosaic:nodes={point.nodes}",
        "partition": point.partition,
        "method": point.method,
        "settings": {"hidden": HIDDEN},
        "device": point.device,
        "rounds": 1_000_000,  # the last round has no aggregation, so it is not among those that are measured
    }
    if point.partition != "natural":
        values["clients"] = point.clients
    if point.cohort_size:
        values["cohort_size"] = point.cohort_size
    out = Measured(point, start=status("RssAnon"))
    with watched("RssAnon") as anonymous:
        before, began = busy_seconds(), time.perf_counter()
        try:
            training = ResolvedRun(RunConfig.build(values)).training(0)
            out.prepare, out.prepared = time.perf_counter() - began, anonymous()
            seconds: list[float] = []
            while len(seconds) < rounds or sum(seconds) < SECONDS:
                started = time.perf_counter()
                training.advance(1)
                seconds.append(time.perf_counter() - started)
            out.first_round, out.rounds = seconds[0], len(seconds)
            # On an accelerator the second round is captured, later ones are replayed.
            out.round = median(seconds[1 if point.device == "cpu" else 2 :])
        except (MemoryError, RuntimeError) as error:
            out.failed = str(error).splitlines()[0]
        all_, own = (after - earlier for after, earlier in zip(busy_seconds(), before, strict=True))
        out.others = (all_ - own) / (time.perf_counter() - began)
        out.anonymous = anonymous()
    out.resident = status("VmHWM")
    out.on_device = torch.cuda.max_memory_reserved() if point.device != "cpu" else 0
    out.offloaded = sum(map(len, offload._mappings.values()))
    return out


# -- all measurements ----------------------------------------------------------------------------------------------------


def measure_in_process(point: Point, rounds: int, threads: int) -> Measured:
    """Measure in a separate process; repeated where other processes use the cores, and the one with least load counts."""
    command = [sys.executable, "-m", "benchmarks.scale", "--rounds", str(rounds), "--point", json.dumps(asdict(point))]
    tries: list[Measured] = []
    spare = (os.cpu_count() or 1) - threads
    while not tries or (len(tries) < TRIES and tries[-1].others > spare + BUSY):
        done = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": str(threads)}
        )
        if done.returncode:
            raise SystemExit(f"{point} ended with status {done.returncode}: {done.stderr.strip()}")
        tries.append(read(json.loads(done.stdout)))
    return min(tries, key=lambda one: one.others)


def read(values: dict[str, Any]) -> Measured:
    return Measured(**values | {"point": Point(**values["point"])})


def points(chosen: argparse.Namespace) -> Iterator[Point]:
    """All that is measured; on an accelerator without the parts that are about a host's memory."""
    for point in points_of_a_host(chosen):
        if chosen.device == "cpu" or point.part in ("clients", "nodes"):
            yield replace(point, device=chosen.device)


def points_of_a_host(chosen: argparse.Namespace) -> Iterator[Point]:
    many = chosen.cohort_clients
    for method in chosen.methods:
        for clients in chosen.clients:
            yield Point("clients", method, clients * NODES_A_CLIENT, clients, chosen.cohort_size)
        for nodes in chosen.nodes:
            yield Point("nodes", method, nodes, chosen.node_clients, chosen.cohort_size, "disjoint")
        for size in chosen.cohort_sizes:
            yield Point("cohorts", method, many * NODES_A_CLIENT, many, size)
        for offloads in (True, False):
            limit = int(chosen.limit * 2**30)
            yield Point(
                "limit", method, many * NODES_A_CLIENT, many, chosen.cohort_size, offloads=offloads, limit=limit
            )
        yield Point("limit", method, many * NODES_A_CLIENT, many, chosen.cohort_size, offloads=False)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """b of the least-squares fit value = a size^b."""
    import numpy as np

    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-9)), 1)[0])


@dataclass
class Fit:
    """Exponents over all sizes and over the largest decade, of the `part`'s own size."""

    part: str
    method: str
    what: str
    overall: float
    largest_decade: float


WHAT: dict[str, Callable[[Measured], float]] = {
    "prepare": lambda one: one.prepare,
    "round": lambda one: one.round,
    "anonymous": lambda one: one.anonymous,
    "above start": lambda one: one.anonymous - one.start,
    "on device": lambda one: one.on_device,
}


def size_of(point: Point) -> int:
    """The size that a part varies."""
    sizes = {"clients": point.clients, "nodes": point.nodes, "cohorts": point.cohort_size or point.clients}
    return sizes[point.part]


def series(rows: Sequence[Measured], part: str, method: str) -> list[Measured]:
    return sorted((r for r in rows if (r.point.part, r.point.method) == (part, method)), key=lambda r: size_of(r.point))


def fits(rows: Sequence[Measured], methods: Sequence[str]) -> list[Fit]:
    out = []
    for part in ("clients", "nodes"):
        for method in methods:
            line = series(rows, part, method)
            sizes = [size_of(row.point) for row in line]
            decade = [row for row in line if size_of(row.point) * 10 >= max(sizes)]
            if len(decade) < 2:
                continue
            for what, value in WHAT.items():
                last = exponent([size_of(row.point) for row in decade], list(map(value, decade)))
                out.append(Fit(part, method, what, exponent(sizes, list(map(value, line))), last))
    return out


# -- FED-PUB's averages of many clients ----------------------------------------------------------------------------------


def thin(clients: int, cohort_size: int, after: Sequence[int]) -> None:
    """How far FED-PUB's thin averages are from exact ones, after so many rounds, at the worst client.

    Weights sum to one for each client: the sum of absolute differences. The average of the first layer: relative to its length.
    """
    import torch

    from fedquilt.devices.allocator import keep_freed_memory
    from fedquilt.messages.message import Factored
    from fedquilt.methods.base import EMBEDDING
    from fedquilt.nn.kernel_average import factor, shares
    from fedquilt.runs.config import RunConfig
    from fedquilt.runs.resolve import ResolvedRun

    keep_freed_memory()
    values = {"dataset": f"mosaic:nodes={clients * NODES_A_CLIENT}", "partition": "natural", "method": "fedpub"}
    settings = {"settings": {"hidden": HIDDEN}, "device": "cpu", "rounds": 1_000_000, "cohort_size": cohort_size}
    training = ResolvedRun(RunConfig.build(values | settings)).training(0)
    line(f"fedpub, {clients:,} clients", ("round", "columns", "largest E", "weights", "average"))
    for rounds in after:
        training.advance(rounds - training.progress.next_round)
        sent, unit = training.down["model.conv1.weight"], training.server[EMBEDDING]
        if not isinstance(sent, Factored):
            raise SystemExit("So few clients are averaged exactly; give more.")
        tau = training.method.settings.tau
        columns, rest = factor(unit, tau)
        left, right, own = (t.double() for t in shares(unit, unit, tau, torch.arange(clients)))
        weights = average = 0.0
        for some in torch.arange(clients).split(500):
            first, last = int(some[0]), int(some[-1]) + 1
            exact = torch.softmax(tau * (unit[some].double() @ unit.double().T), dim=1)
            made = left[some] @ right
            made[some - first, some] += own[some]
            weights = max(weights, float((made - exact).abs().sum(1).max()))
            wanted = exact.float() @ sent.stack.flatten(1)
            gap = (sent.rows(first, last).flatten(1) - wanted).norm(dim=1) / wanted.norm(dim=1)
            average = max(average, float(gap.max()))
        errors = (f"{float(rest.max()):.2g}", f"{weights:.2g}", f"{average:.2g}")
        line("", (str(rounds), str(columns.shape[1]), *errors))


# -- what is shown -------------------------------------------------------------------------------------------------------

HEAD = (
    "nodes",
    "clients",
    "cohort",
    "prepare s",
    "first s",
    "round s",
    "before MB",
    "anon MB",
    "res MB",
    "disk MB",
    "device MB",
    "others",
)


def line(name: str, columns: Sequence[str]) -> None:
    print(f"{name:30}" + "".join(f"{column:>12}" for column in columns), flush=True)


def show(row: Measured) -> None:
    point = row.point
    name = f"{point.part}, {point.method}" + ("" if point.offloads else ", no offload")
    name += f", {point.limit / 2**30:g} GiB" if point.limit else ""
    sizes = (f"{n:,}" for n in (point.nodes, point.clients, point.cohort_size or point.clients))
    seconds = (f"{s:.3g}" for s in (row.prepare, row.first_round, row.round))
    memory = (f"{b / MB:,.0f}" for b in (row.prepared, row.anonymous, row.resident, row.offloaded, row.on_device))
    line(name, (*sizes, *seconds, *memory, f"{row.others:.2f}"))
    if row.failed:
        print(f"    did not finish: {row.failed}")


PANELS = (
    ("clients", "round", "Time against clients", "Clients, 100 nodes each", "Seconds a round"),
    ("nodes", "round", "Time against nodes", "Nodes, in {} clients", "Seconds a round"),
    ("cohorts", "round", "Time against cohort size", "Cohort size, {} clients", "Seconds a round"),
    ("clients", "anonymous", "Memory against clients", "Clients, 100 nodes each", "Peak memory (GB)"),
    ("nodes", "anonymous", "Memory against nodes", "Nodes, in {} clients", "Peak memory (GB)"),
    ("cohorts", "anonymous", "Memory against cohort size", "Cohort size, {} clients", "Peak memory (GB)"),
)


def figure(rows: Sequence[Measured], path: Path) -> None:
    """Time above, memory below; against clients, nodes and cohort size. Slopes are those of the largest decade."""
    from fedquilt.methods.base import find_method
    from fedquilt.reports import style

    methods = list(dict.fromkeys(row.point.method for row in rows))
    slopes = {(fit.part, fit.method, fit.what): fit.largest_decade for fit in fits(rows, methods)}
    marks, open_mark = ("o", "s", "^", "D", "v", "P", "X"), {"markerfacecolor": "white"}
    with style.styled():
        drawn = style.new_figure(9.2, 5.2)
        for axes, (part, what, title, x, y) in zip(drawn.subplots(2, 3).flat, PANELS, strict=True):
            value, scale, alone = WHAT[what], 1.0 if what == "round" else GB, False
            for place, method in enumerate(methods):
                points_ = series(rows, part, method)
                if not points_:
                    continue
                sizes, values = [size_of(r.point) for r in points_], [value(r) / scale for r in points_]
                slope = slopes.get((part, method, what))
                name = find_method(method).title + ("" if slope is None else f", slope {slope:.2f}")
                look = {"color": style.colour(place), "linestyle": style.DASHES[place % len(style.DASHES)]}
                axes.plot(sizes, values, marker=marks[place % len(marks)], markersize=5, label=name, **look)
                in_memory = next((r for r in rows if unbounded(r, method)), None)
                if (part, what) == ("clients", "anonymous") and in_memory:
                    at = [in_memory.point.clients], [value(in_memory) / scale]
                    axes.plot(*at, marks[place % len(marks)], color=style.colour(place), markersize=6, **open_mark)
                    alone = True
            if alone:
                axes.plot([], [], "o", color=style.GREY, markersize=6, label="open: all in memory", **open_mark)
            axes.set(xscale="log", yscale="log", title=title, ylabel=y)
            axes.set_xlabel(x.format(f"{next((r.point.clients for r in rows if r.point.part == part), 0):,}"))
            plain_ticks(axes)
            axes.grid()
            axes.legend(fontsize=7, handlelength=2.6)
        style.save_figure(drawn, path)


def unbounded(row: Measured, method: str) -> bool:
    """Whether this is the method's measurement with everything in memory and no limit."""
    point = row.point
    return (point.part, point.method, point.offloads, point.limit) == ("limit", method, False, 0)


def plain_ticks(axes: Any) -> None:
    """Label ticks as 1, 10, 1,000 instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_ylim()
    few = high / low < 100
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if few else (1,)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_formatter(NullFormatter())


@dataclass
class Result:
    about: dict[str, Any]
    rows: list[Measured] = field(default_factory=list)
    fits: list[Fit] = field(default_factory=list)


def write(result: Result, path: Path | None) -> None:
    if path is not None:
        path.write_text(json.dumps(asdict(result), indent=1) + "\n")


def numbers(text: str) -> list[int]:
    return [0 if piece == "all" else int(piece) for piece in text.split(",") if piece]


def words(text: str) -> list[str]:
    return text.split(",")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    many = [10, 100, 1_000, 10_000]
    parser.add_argument("--clients", type=numbers, default=many, help="such as 10,1000")
    parser.add_argument("--nodes", type=numbers, default=[10_000, 100_000, 1_000_000], help="such as 10000,100000")
    parser.add_argument("--node-clients", type=int, default=100, help="clients of the curve against nodes")
    parser.add_argument("--methods", type=words, default=["fedavg", "fedpub", "quilt"])
    parser.add_argument("--cohort-size", type=int, default=50, help="0: all clients at once")
    parser.add_argument("--cohort-sizes", type=numbers, default=[10, 50, 250, 0], help="such as 10,50,all")
    parser.add_argument("--cohort-clients", type=int, default=10_000, help="clients of the cohorts and the limit part")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where it trains")
    parser.add_argument("--limit", type=float, default=2.0, help="the hard limit, in GiB")
    parser.add_argument("--rounds", type=int, default=3, help="rounds at least, the first included")
    parser.add_argument("--threads", type=int, default=1, help="OMP_NUM_THREADS of each process")
    parser.add_argument("--parts", type=words, default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--out", type=Path, help="all that was measured, as JSON")
    parser.add_argument("--figure", type=Path, help="a picture: .svg, .pdf or .png")
    parser.add_argument(
        "--read",
        type=Path,
        nargs="+",
        help="show and draw what --out wrote, without measuring; of two of a kind the last",
    )
    parser.add_argument("--thin", type=int, help="only: how exact FED-PUB's averages of so many clients are")
    parser.add_argument("--point", type=lambda text: Point(**json.loads(text)), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rounds < 2:
        parser.error("--rounds must be at least 2: the first is not counted.")
    return chosen


def main() -> None:
    chosen = parsed()
    if chosen.point is not None:
        print(json.dumps(asdict(train(chosen.point, chosen.rounds))))
        return
    if chosen.thin:
        thin(chosen.thin, chosen.cohort_size, (1, 5, 20))
        return
    import torch

    from fedquilt.bench.machine import about

    line("", HEAD)
    if chosen.read:
        files = [json.loads(path.read_text()) for path in chosen.read]
        rows = {row.point: row for file in files for row in map(read, file["rows"])}
        result = Result(files[-1]["about"], list(rows.values()))
        for row in result.rows:
            show(row)
    else:
        result = Result(about(torch.device(chosen.device), chosen.threads))
        for point in points(chosen):
            if point.part in chosen.parts:
                result.rows.append(measure_in_process(point, chosen.rounds, chosen.threads))
                show(result.rows[-1])
                write(result, chosen.out)
    result.fits = fits(result.rows, list(dict.fromkeys(row.point.method for row in result.rows)))
    line("\nexponents: largest decade", ("(overall)", *WHAT))
    for part, method in dict.fromkeys((fit.part, fit.method) for fit in result.fits):
        found = [f for f in result.fits if (f.part, f.method) == (part, method)]
        line(f"{part}, {method}", ("", *(f"{f.largest_decade:.2f} ({f.overall:.2f})" for f in found)))
    write(result, chosen.out)
    if chosen.figure:
        figure(result.rows, chosen.figure)


if __name__ == "__main__":
    main()
