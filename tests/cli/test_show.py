from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedquilt.cli.pictures import arrange
from fedquilt.graphs.graph import Graph
from fedquilt.partition import source
from fedquilt.partition.make import make_partition
from fedquilt.partition.partition import Partition
from fedquilt.reports import figures
from fedquilt.reports.figures import client_bars

SMALL = "--rounds 3 --set hidden=8 --device cpu -q"


def test_show_draws_the_figures_of_a_run(call: Callable, here: Path) -> None:
    assert call(f"run -m fedpub --clients 10 {SMALL} --out out").status == 0
    called = call("show out")
    assert called.status == 0, called.err
    assert "fedpub: patchwork" in called.out
    for name in ("convergence", "clients", "similarity", "similarity-rounds"):
        path = Path("out") / "figures" / f"{name}.png"
        assert str(path) in called.out
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_method_without_similarity_gets_no_heatmap(call: Callable, here: Path) -> None:
    assert call(f"run -m local --clients 3 {SMALL} --out out").status == 0
    assert "similarity" not in call("show out").out
    assert not (here / "out" / "figures" / "similarity.png").exists()


def test_where_seeds_have_other_clients_the_first_seeds_are_drawn(
    call: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(graph: Graph, kind: str, clients: int | None, seed: int, **options: Any) -> Partition:
        return make_partition(graph, "random", 9 - seed, seed)

    drawn: list[tuple[Any, str]] = []

    def watched(values: Any, *rest: Any, title: str, **options: Any) -> None:
        drawn.append((values, title))
        client_bars(values, *rest, title=title, **options)

    monkeypatch.setattr(source, "make_partition", found)
    monkeypatch.setattr(figures, "client_bars", watched)
    assert call(f"run -m fedpub -p louvain-50 --seeds 2,0,1 {SMALL} --out out").status == 0
    called = call("show out")
    assert called.status == 0, called.err
    for name in ("convergence", "clients", "similarity", "similarity-rounds"):
        assert f"out/figures/{name}.png" in called.out
    (((tests,), title),) = drawn
    assert len(tests) == 7
    assert title == "Seed 2; each seed has clients of its own"
    drawn.clear()
    assert call(f"run -m fedpub --clients 4 --seeds 2,0 {SMALL} --out same").status == 0
    assert call("show same").status == 0
    assert [(len(values), title) for values, title in drawn] == [(2, "")]


def test_nothing_to_show_is_one_sentence(refused: Callable, here: Path) -> None:
    assert refused("show nothing") == "There is no run folder at nothing."
    (here / "file").write_text("")
    assert "no run folder" in refused("show file")


def test_clients_of_one_family_stand_together() -> None:
    # Nodes 0-559 are of family 0, 560-979 of family 1, the rest of family 2.
    cut = {"nodes": np.array([1200, 1201, 0, 600, 601, 5, 1]), "sizes": np.array([2, 1, 3, 1])}
    order, groups = arrange({"dataset": "patchwork", "partition": "disjoint"}, cut)
    assert order is not None
    assert order.tolist() == [1, 3, 2, 0]
    assert groups == [0, 0, 1, 2]
    ten = {"nodes": np.arange(10), "sizes": np.ones(10, dtype=int)}
    assert arrange({"dataset": "cora", "partition": "overlapping"}, ten) == (None, [0] * 5 + [1] * 5)
    assert arrange({"dataset": "cora", "partition": "disjoint"}, ten) == (None, None)


def test_of_overlapping_clients_some_of_whom_were_held_out_each_stays_with_its_part() -> None:
    cut = {
        "nodes": np.arange(6),
        "sizes": np.ones(6, dtype=int),
        "numbers": np.array([0, 3, 4, 5, 6, 9, 1, 2, 7, 8]),  # the last four were held out
    }
    assert arrange({"dataset": "cora", "partition": "overlapping"}, cut) == (None, [0, 0, 0, 1, 1, 1])


def test_the_demo_compares_four_methods_and_never_overwrites(call: Callable, here: Path) -> None:
    called = call("demo --rounds 2 --seeds 0 -q")
    assert called.status == 0, called.err
    assert all(method in called.out for method in ("majority", "local", "fedavg", "fedpub", "Next:"))
    for name in ("convergence.png", "similarity.png", "comparison.md"):
        assert (here / "demo" / name).is_file()
    before = {path: path.read_bytes() for path in (here / "demo").rglob("*") if path.is_file()}
    assert "demo-2/similarity.png" in call("demo --rounds 2 -q").out
    assert {path: path.read_bytes() for path in before} == before


def test_the_demo_refuses_what_it_cannot_use(refused: Callable) -> None:
    assert "whole numbers" in refused("demo --seeds x")


def test_figures_in_other_formats(call: Callable, here: Path) -> None:
    assert call(f"run -m local {SMALL} --out out").status == 0
    assert call("show out --format pdf,svg").status == 0
    assert Path("out/figures/convergence.pdf").read_bytes().startswith(b"%PDF")
    assert "<svg" in Path("out/figures/convergence.svg").read_text()
    assert not list(Path("out/figures").glob("*.png"))


def test_an_unknown_format_is_refused_before_anything_is_drawn(call: Callable, here: Path) -> None:
    assert call(f"run -m local {SMALL} --out out").status == 0
    called = call("show out --format png,pgf")
    assert called.status == 2
    assert "There is no format 'pgf'" in called.err
    assert not Path("out/figures").exists()
