"""Adding a kind of partition is one decorated function in one new file. This one cuts a graph into two halves.

Nothing else is edited: runs, the command line, `partition_kinds()` and error texts know it by its name, and its options are
validated by what it declares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fedquilt
from fedquilt.bench.cases import parse_case
from fedquilt.cli import main
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.kind import KINDS, Drawn, Option, partition_kinds, register_kind
from fedquilt.partition.make import make_partition
from fedquilt.partition.storage import load
from support.partitions import random_graph


@pytest.fixture
def tiny() -> Iterator[None]:
    """The kind, known for the time of a test."""

    @register_kind(
        "tiny",
        "two halves",
        options=[Option("first", int, "nodes of the first client")],
        clients="found",
        seeded=False,
    )
    def tiny(graph: Graph, clients: int | None, seed: int, first: int | None = None) -> Drawn:
        middle = first or graph.nodes // 2
        return [np.arange(middle), np.arange(middle, graph.nodes)], {"first": middle}

    yield
    KINDS.remove("tiny")


pytestmark = pytest.mark.usefixtures("tiny")


def test_a_run_uses_it_by_name_and_counts_its_clients(tmp_path: Path) -> None:
    run = fedquilt.run("fedavg", "communities-3", partition="tiny", rounds=2, out=tmp_path / "run")
    assert run.result["clients"] == 2
    assert json.loads((tmp_path / "run" / "config.json").read_text())["partition"] == "tiny"


def test_it_is_listed_and_offered_where_a_name_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert partition_kinds()["tiny"] == "two halves"
    assert main(["partition", "patchwork", "--kind", "tinny"]) == 2
    assert "There is no partition 'tinny'; did you mean 'tiny'?" in capsys.readouterr().err
    with pytest.raises(FedquiltError, match=r"choose one of: .*, tiny"):
        fedquilt.run("fedavg", partition="xxxxxxxx")
    assert parse_case("patchwork/tiny/2").partition == "tiny"


def test_the_command_cuts_and_saves_by_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partition", "patchwork", "--kind", "tiny", "--out", str(tmp_path / "cut.npz")]) == 0
    assert "tiny, 2 clients" in capsys.readouterr().out
    assert load(tmp_path / "cut.npz").sizes.tolist() == [700, 700]


def test_its_option_is_validated() -> None:
    graph = random_graph(10)
    assert make_partition(graph, "tiny", first=3).sizes.tolist() == [3, 7]
    with pytest.raises(FedquiltError, match="'tiny' takes a first of 1 or more, not 0; give nodes of the first client"):
        make_partition(graph, "tiny", first=0)
    with pytest.raises(FedquiltError, match="'tiny' takes no 'sizes'"):
        fedquilt.run("fedavg", partition="tiny", sizes=[1, 2])


def test_a_new_file_in_the_folder_of_kinds_is_in_the_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Help lists the files of `fedquilt/partition/kinds`, as importing them would be slow."""
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["partition", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "disjoint, imbalanced, label-skew, louvain, louvain-50, natural, overlapping, random, size-skew" in text
