"""What docs/data.md says is so: its tables, and the examples in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedquilt.datasets.catalogue import datasets
from fedquilt.datasets.check import check_graph
from fedquilt.datasets.load import load_graph
from fedquilt.graphs.mapped_features import is_mapped
from fedquilt.graphs.npz import read_npz, write_npz
from fedquilt.graphs.split import format_split
from fedquilt.partition.kind import KINDS
from fedquilt.partition.storage import load
from support.command_line import Call
from support.hospitals import write_hospitals
from support.messy_tables import write_messy

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


def block(start: str) -> str:
    """The indented example that begins with a given line."""
    lines = PAGE[PAGE.index(f"    {start}") :].splitlines()
    taken = []
    for line in lines:
        if line and not line.startswith("    "):
            break
        taken.append(line[4:])
    return "\n".join(taken).strip() + "\n"


def test_the_catalogue_table_is_the_catalogue() -> None:
    for dataset in datasets():
        protocol = dataset.protocol
        row = (
            f"| `{dataset.name}` | {dataset.description} | {dataset.nodes:,} | {dataset.edges:,} "
            f"| {dataset.features:,} | {dataset.classes} | {protocol.metric} "
            f"| {'yes' if protocol.largest_component else 'no'} | {format_split(protocol.split)} "
            f"| {protocol.rounds} x {protocol.epochs} | {dataset.origin} |"
        )
        assert row in PAGE


def test_the_tables_of_partition_kinds_are_the_declarations() -> None:
    rows = []
    for name, kind in sorted(KINDS.all().items()):
        rows.append(f"| `{name}` | {kind.description} | {kind.clients} | {'yes' if kind.seeded else 'no'} |")
        rows += [f"| `{name}` | `{option.name}` | {option.help} |" for option in kind.options]
    listed = PAGE[PAGE.index("## Partitions") : PAGE.index("## Where named graphs")]
    assert sorted(rows) == sorted(line for line in listed.splitlines() if line.startswith("| `"))


def test_the_examples_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "nodes.csv").write_text(block("id,label,age"))
    (tmp_path / "mine" / "edges.csv").write_text(block("source,target"))
    exec(block("import numpy as np"), {})
    table, file = load_graph("mine/")[0], load_graph("mine.npz")[0]
    assert np.array_equal(table.x, file.x)
    assert np.array_equal(table.edges, file.edges)
    assert table.y.tolist() == file.y.tolist() == [0, 1, -1]
    exec(block("from numpy.lib.format import open_memmap"), {})
    large = load_graph("large.npz")[0]
    assert is_mapped(large.x)
    assert large.x.tolist() == [[1, 1]] * 3
    names = {"data": file.to_data()}
    exec(block("from fedquilt.datasets import load_graph"), names)
    assert names["graph"].nodes == 3
    exec(block("from fedquilt.datasets import check_graph"), {})
    assert "nodes 3" in capsys.readouterr().out
    assert check_graph("mine/").split == (1, 1, 1)
    exec(block("from fedquilt.partition import make_partition, save"), {"graph": load_graph("patchwork")[0]})
    assert load(tmp_path / "communities.npz").sizes.min() >= 20


def test_the_examples_of_several_graphs_work(here: Path, call: Call) -> None:
    write_hospitals(here)
    write_npz(load_graph("hospital-a/")[0], here / "nodes.npz")
    (here / "north").mkdir()
    (here / "nodes.npz").rename(here / "north" / "nodes.npz")
    (here / "hospital-a").rename(here / "south")
    for line in block("fedquilt run --method fedavg --clients-from").splitlines():
        done = call(line.removeprefix("fedquilt ").replace("'", "").replace("--rounds 10", "--rounds 1") + " --quiet")
        assert done.status == 0, done.err
    (here / "south").rename(here / "hospital-a")
    names: dict[str, Any] = {}
    exec(block("import fedquilt").replace("rounds=10", "rounds=1"), names)
    assert names["run"].client_names() == ["hospital-a", "hospital-b"]
    assert [run.client_names() for run in names["runs"]] == [["north", "south"]] * 2


def test_the_examples_of_messy_tables_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, start in (("patients", "patient;diagnosis"), ("contacts", "from;to")):
        Path(f"{name}.csv").write_text(block(start))
    called = call(block("fedquilt graph import patients.csv").removeprefix("fedquilt "))
    lines = [line.strip() for line in called.out.splitlines()]
    assert [" ".join(line.split()) for line in lines if not line.startswith(("┏", "┡", "└"))] == [
        " ".join(line.split())
        for line in block("Columns of patients").splitlines()
        if not line.startswith(("┏", "┡", "└"))
    ]
    Path("new.csv").write_text("patient,town,smoker,age\nq1,Bonn,yes,\n")
    names: dict[str, Any] = {}
    exec(block("from pathlib import Path"), names)
    assert names["clients"] is None
    assert names["new"].x.tolist()[0] == pytest.approx([143 / 3, 1, 1, 0, 0])
    assert read_npz("mine.npz").encoding == names["graph"].encoding


def test_graph_yaml_is_as_documented(tmp_path: Path) -> None:
    from fedquilt.graphs.tables import TableOptions, read_table_options

    (tmp_path / "graph.yaml").write_text(block("id: patient"))
    assert read_table_options(tmp_path).values == {"ward": None, "town": ("Rome", "Oslo")}
    table = PAGE[PAGE.index("| key | what | default |") : PAGE.index("A key that is none is refused")]
    listed = {key for line in table.strip().splitlines()[2:] for key in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert listed == set(TableOptions.model_fields)


def test_the_problems_are_those_of_the_messy_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable
) -> None:
    monkeypatch.chdir(tmp_path)
    write_messy(tmp_path / "clinic", wrong=True)
    assert call("graph check clinic").err == block("fedquilt: clinic has 6 problems")


def test_the_example_of_weights_works(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(block("id,label,age"))
    (tmp_path / "edges.csv").write_text(block("source,target,weight"))
    weights = load_graph(tmp_path)[0].edge_weights
    assert weights is not None
    assert weights.tolist() == [2.5, 0.5]


def test_every_key_is_one_that_is_read() -> None:
    from fedquilt.graphs.npz import KEYS

    table = PAGE[PAGE.index("| key | what |\n") : PAGE.index("Other keys are ignored")]
    listed = {key for line in table.strip().splitlines()[2:] for key in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert listed == set(KEYS)
