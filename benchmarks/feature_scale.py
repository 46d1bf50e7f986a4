"""`python -m benchmarks.feature_scale`: raw features against features prepared by own and by shared statistics.

Three hospital tables in raw units (`benchmarks/raw_tables.py`), cut by METIS, by Louvain and by hospital, for several methods
and seeds. For each run: validation and test accuracy of the best validation round, and the share of test nodes to which a model
gives a probability of exactly one. `--out` has a JSON line a run; a run that is there is not made again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.raw_tables import TABLES, raw_table
from fedquilt.graphs.graph import Graph

if TYPE_CHECKING:
    from fedquilt.runs.finished import Run

METHODS = ("majority", "local", "fedavg", "fedper", "fedpub", "fedssa", "fedsheafhn", "fediih", "fedhero", "quilt")
# How a table is cut: METIS and Louvain find clients by edges; natural is the hospital of each patient.
CUTS = {
    "ward": (("disjoint", 3), ("disjoint", 10), ("louvain", 5)),
    "shift": (("natural", None), ("disjoint", 5)),
    "units": (("natural", None), ("disjoint", 10)),
}
WAYS = {
    "raw": {"prepare": "none"},
    "own": {"prepare": "standard"},
    "shared": {"prepare": "standard", "prepare_statistics": "shared"},
}


@dataclass(frozen=True)
class Case:
    """One run: a table, how it is cut, a method, a way to prepare, a seed."""

    table: str
    cut: str
    clients: int | None
    method: str
    way: str
    seed: int


def cases(seeds: Sequence[int], methods: Sequence[str], tables: Sequence[str]) -> list[Case]:
    """All runs."""
    return [
        Case(table, cut, clients, method, way, seed)
        for seed in seeds
        for table in tables
        for cut, clients in CUTS[table]
        for way in WAYS
        for method in methods
        if method != "majority" or way == "raw"
    ]


def measured(case: Case, rounds: int | None = None) -> dict[str, Any]:
    """Train one run; where it fails, what it says."""
    import torch

    from fedquilt import run
    from fedquilt.errors import FedquiltError
    from fedquilt.partition.make import make_partition
    from fedquilt.partition.storage import save

    torch.set_num_threads(1)
    began = time.perf_counter()
    graph, hospital = raw_table(case.table, case.seed)
    options: dict[str, Any] = {"partition": case.cut, "clients": case.clients, "rounds": rounds, "seeds": [case.seed]}
    ways: dict[str, Any] = dict(WAYS[case.way])
    with tempfile.TemporaryDirectory() as folder:
        if case.cut == "natural":
            options |= {"partition": str(Path(folder) / "hospitals.npz"), "clients": None}
            save(make_partition(graph, "natural", None, case.seed, labels=hospital), options["partition"])
        try:
            done = run(case.method, graph, device="cpu", **options, **ways)
            sure = share_of_ones(done, graph, options | {"method": case.method})
        except FedquiltError as error:
            return asdict(case) | {"failed": str(error)}
    (found,) = done.result["seeds"]
    kept = {name: found[name] for name in ("val", "test", "best_round")}
    return asdict(case) | kept | {"exactly_one": sure, "seconds": round(time.perf_counter() - began, 1)}


def share_of_ones(done: Run, graph: Graph, options: Mapping[str, Any]) -> float:
    """The share of test nodes with a probability of exactly one, from the exported models on the clients' raw features."""
    import torch

    from fedquilt.export.sources import personal_of_run
    from fedquilt.graphs.protocol import Protocol
    from fedquilt.graphs.split import TEST
    from fedquilt.runs.config import GIVEN, RunConfig
    from fedquilt.runs.resolve import ResolvedRun

    resolved = ResolvedRun(RunConfig.build({**options, "dataset": GIVEN}), (graph, Protocol()))
    ones = [
        torch.softmax(personal_of_run(done, client.id).logits(client.graph), 1).max(1).values[client.split == TEST] == 1
        for client in resolved.raw_clients(resolved.config.seeds[0])
    ]
    return float(torch.cat(ones).float().mean())


def table(lines: Sequence[Mapping[str, Any]], by_cut: bool = True) -> str:
    """A Markdown table: mean test accuracy over seeds (and cuts, unless `by_cut`), validation in brackets, for each way."""
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for line in lines:
        cut = f"{line['cut']} {line['clients'] or ''}".strip() if by_cut else "all"
        found.setdefault((line["table"], cut, line["method"], line["way"]), []).append(line)
    rows = [f"| table | cut | method | {' | '.join(WAYS)} |", "|---|---|---|" + "---|" * len(WAYS)]
    order = {name: place for place, name in enumerate((*TABLES, *METHODS))}
    for name, cut, method in sorted({key[:3] for key in found}, key=lambda key: (order[key[0]], key[1], order[key[2]])):
        cells = [_cell(found.get((name, cut, method, way), [])) for way in WAYS]
        rows.append(f"| {name} | {cut} | {method} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(lines: Sequence[Mapping[str, Any]]) -> str:
    done = [line for line in lines if "failed" not in line]
    failed = f"{len(lines) - len(done)} of {len(lines)} failed" if len(done) < len(lines) else ""
    if not done:
        return failed
    test, val = (statistics.fmean(line[part] for line in done) for part in ("test", "val"))
    return f"{test:.2f} ({val:.2f})" + (f", {failed}" if failed else "")


def main(arguments: Sequence[str] | None = None) -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("feature-scale.jsonl"))
    asked = parser.parse_args(arguments)
    lines = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    done = {tuple(line[name.name] for name in fields(Case)) for line in lines}
    todo = [case for case in cases(asked.seeds, asked.methods, asked.tables) if astuple(case) not in done]
    with ProcessPoolExecutor(asked.processes) as pool, asked.out.open("a") as file:
        for number, line in enumerate(as_completed([pool.submit(measured, case, asked.rounds) for case in todo])):
            lines.append(line.result())
            file.write(json.dumps(lines[-1]) + "\n")
            file.flush()
            print(f"{number + 1}/{len(todo)}", lines[-1], flush=True)
    print(table(lines), table(lines, by_cut=False), sep="\n\n")


if __name__ == "__main__":
    main()
