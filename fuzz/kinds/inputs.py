"""Give commands files that nobody should write: each is used, or refused with a sentence; nothing hangs or fills memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from fuzz.attempts import Attempt
from fuzz.csv_files import odd_csv
from fuzz.judge import FINE, Failed, leftovers
from fuzz.materials import SMALL, TINY, arrays, write_graph, write_tables
from fuzz.npz_files import odd_npz
from fuzz.odd_values import LONE_SURROGATE, odd_number, odd_text
from fuzz.yaml_files import odd_file

ABOUT = "odd npz, csv, YAML, JSON and options through graph check, run, tune, study, site check and partition"
OUT = "new"
NO_UTF8 = "\udcff"  # what Python makes of a byte in an argument that is not UTF-8


def prepare(folder: Path) -> dict[str, Path]:
    """Good files, which are changed in copies."""
    return {"graph": write_graph(folder / "graph.npz"), "tables": write_tables(folder / "tables")}


def attempt(case: Attempt) -> None:
    """Write an odd file, give it to a command."""
    sort = case.rng.choice(sorted(_SORTS))
    before = set(case.folder.iterdir())
    arguments, written = _SORTS[sort](case)
    for path, data in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    before |= set(case.folder.iterdir())
    ended = case.run(*arguments)
    if (case.folder / "pwned").exists() or Path("pwned").exists():
        raise Failed("code ran", f"{case.notes} ran code")
    left = leftovers(case.folder)
    if left:
        raise Failed("leftover", f"left behind: {', '.join(left[:5])}")
    if ended.status != FINE:
        new = sorted(path.name for path in set(case.folder.iterdir()) - before)
        if new and arguments[0] not in ("study", "tune"):  # which keep what is done until they go on
            raise Failed("half-written", f"refused, and wrote {', '.join(new)}: {ended.err.strip()}")


def _graph(case: Attempt) -> Any:
    data, what = odd_npz(arrays(), case.rng)
    case.note(f"graph.npz: {what}")
    return _graph_command(case, "graph.npz"), {case.folder / "graph.npz": data}


def _tables(case: Attempt) -> Any:
    good = {name: (case.material["tables"] / name).read_text() for name in ("nodes.csv", "edges.csv")}
    chosen = case.rng.choice(sorted(good))
    data, what = odd_csv(good[chosen], case.rng)
    case.note(f"{chosen}: {what}")
    files = {case.folder / "tables" / name: text.encode() for name, text in good.items()}
    files[case.folder / "tables" / chosen] = data
    if case.rng.random() < 0.2:
        files[case.folder / "tables" / "classes.txt"] = case.rng.choice(
            (b"", b"c0\nc0\nc1\n", b"c0\n", b"\xff\xfe", b"c0\x00\nc1\nc2\n", b"\x1b[2J\nc0\nc1\nc2\n", b"x" * 300_000)
        )
    return _graph_command(case, "tables"), files


def _graph_command(case: Attempt, path: str) -> tuple[str, ...]:
    site = case.folder / "site.yaml"
    site.write_text(f"name: st-anna\ngraph: {path}\nstate: state\n")
    return case.rng.choice(
        (
            ("graph", "check", path),
            ("run", "-m", "fedavg", "-d", f"./{path}", *SMALL, "-q", "--out", OUT),
            ("site", "check", "site.yaml"),
            ("partition", f"./{path}", "--kind", "disjoint", "--clients", "2", "--out", "cut.npz"),
        )
    )


def _config(case: Attempt) -> Any:
    good = {
        "method": "fedavg",
        "dataset": str(case.material["graph"]),
        "clients": 3,
        "rounds": 2,
        "seeds": [0],
        "split": "20/40/40",
        "participation": 1.0,
        "device": "cpu",
        "settings": {"hidden": 4, "lr": 0.01},
    }
    data, what = odd_file(good, case.rng)
    case.note(f"config: {what}: {data[:300]!r}")
    name = case.rng.choice(("c.yaml", "c.json"))
    # What a file leaves out is said on the command line, so that nothing large is trained.
    said = ("-d", str(case.material["graph"]), "--rounds", "2", "--device", "cpu")
    command = case.rng.choice((("run", "--out", OUT), ("run", "--out", OUT), ("tune", "--trials", "1", "--into", OUT)))
    return (*command, "--config", name, *said, "-q"), {case.folder / name: data}


def _space(case: Attempt) -> Any:
    data, what = odd_file({"hidden": [4, 8], "lr": {"low": 0.001, "high": 0.1, "log": True}}, case.rng)
    case.note(f"space: {what}: {data[:300]!r}")
    said = ("-d", str(case.material["graph"]), *TINY, "--trials", "1")
    return ("tune", "-m", "fedavg", *said, "--space", "s.yaml", "--into", OUT, "-q"), {case.folder / "s.yaml": data}


def _study(case: Attempt) -> Any:
    good = {
        "title": "Tiny, Table 1: two methods",
        "claim": "Nobody claims anything.",
        "seeds": 1,
        "options": {"dataset": str(case.material["graph"]), "rounds": 1, "epochs": 1, "settings": {"hidden": 4}},
        "axes": {"method": [{"label": "Local", "method": "local"}], "clients": [3]},
        "rows": ["method"],
        "columns": ["clients"],
    }
    data, what = odd_file(good, case.rng)
    case.note(f"study: {what}: {data[:400]!r}")
    files = {case.folder / "tiny.yaml": data}
    if case.rng.random() < 0.3:
        table, odd = odd_csv("method,clients,value,mean,std,note\nLocal,3,test,60.0,1.0,\n", case.rng)
        case.note(f"published: {odd}")
        files = {case.folder / "tiny.yaml": yaml.safe_dump(good).encode(), case.folder / "tiny.csv": table}
    command = case.rng.choice((("show",), ("run", "--device", "cpu", "-q"), ("run", "--device", "cpu", "-q")))
    return ("study", command[0], "tiny.yaml", *command[1:], "--into", OUT), files


def _site(case: Attempt) -> Any:
    good = {
        "name": "st-anna",
        "graph": str(case.material["graph"]),
        "state": "state",
        "split": "40/30/30",
        "permits": ["model", "train_nodes"],
        "dp": {"clip": 1.0, "noise": 4.0, "delta": 1e-5, "epsilon": 50},
        "device": "cpu",
    }
    data, what = odd_file(good, case.rng)
    case.note(f"site.yaml: {what}: {data[:400]!r}")
    command = case.rng.choice((("site", "check", "site.yaml"), ("predict", "site.yaml", "--out", "p.csv")))
    return command, {case.folder / "site.yaml": data}


def _partition(case: Attempt) -> Any:
    case_arrays = _partition_arrays(case)
    data, what = odd_npz(case_arrays, case.rng)
    case.note(f"cut.npz: {what}")
    said = ("-d", str(case.material["graph"]), "-p", "./cut.npz", *SMALL[2:], "-q", "--out", OUT)
    return ("run", "-m", "fedavg", *said), {case.folder / "cut.npz": data}


def _partition_arrays(case: Attempt) -> dict[str, Any]:
    """The arrays of a good partition, as the package writes them."""
    import numpy as np

    cut = case.material["graph"].parent / "cut.npz"
    if not cut.exists():
        case.run("partition", str(case.material["graph"]), "--kind", "disjoint", "--clients", "3", "--out", str(cut))
    with np.load(cut, allow_pickle=False) as file:
        return {name: file[name] for name in file.files} | {"x": file[file.files[0]]}


def _option(case: Attempt) -> Any:
    """An odd value on the command line. NUL cannot be there, and of surrogates only those that stand for bytes."""
    rng = case.rng
    value = odd_text(rng) if rng.random() < 0.6 else str(odd_number(rng))
    value = value.replace("\x00", "").replace(LONE_SURROGATE, NO_UTF8)
    graph = str(case.material["graph"])
    said = ("-q", "--device", "cpu")
    option = rng.choice(
        [
            *(
                "-d",
                "-m",
                "-p",
                "-c",
                "--split",
                "--rounds",
                "--seeds",
                "--set",
                "--data",
                "--config",
                "--out",
                "--sizes",
            ),
            *("--participation", "--epochs", "--dp-clip", "--aggregation", "--keep-copies", "--log", "--patience"),
        ]
    )
    if option in ("--rounds", "--epochs", "--patience") and value.isdigit() and int(value) > 3:
        option = "--dp-epsilon"  # a long training is what was asked for
    value = f"{rng.choice(('hidden', 'lr', 'x'))}={value}" if option == "--set" else value
    first = ("run", "-m", "fedavg", "-d", graph, *TINY, *said)
    if rng.random() < 0.3:
        command = rng.choice(
            (("graph", "check"), ("show",), ("resume",), ("site", "check"), ("report",), ("study", "show"))
        )
        return (*command, value), {}
    out = () if option == "--out" else ("--out", OUT)
    return (*first, *out, option, value), {}


_SORTS: dict[str, Callable[[Attempt], Any]] = {
    "graph": _graph,
    "graph again": _graph,
    "tables": _tables,
    "config": _config,
    "space": _space,
    "study": _study,
    "site": _site,
    "partition": _partition,
    "option": _option,
}
