"""`fedquilt show`, also of run folders to which findings are added by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedquilt.graphs.graph import Graph
from fedquilt.partition import source
from fedquilt.partition.make import make_partition
from fedquilt.partition.partition import Partition
from fedquilt.reports import figures, findings
from fedquilt.reports.figures import client_bars
from fedquilt.reports.run_figures import client_order
from fedquilt.runs.folder import RunFolder

SMALL = "--rounds 3 --set hidden=8 --device cpu -q"
TINY = "--clients 4 --rounds 2 --set hidden=8 --device cpu -q"
M, C, D = 4, 3, 6


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


def found(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "coefficients": rng.standard_normal((M, 5)),
        "structural_cluster": np.array([0, 1, 0, 1]),
        "class_means": rng.standard_normal((M, C, D)),
        "class_counts": rng.integers(0, 9, (M, C)),
    }


@pytest.fixture
def make(call: Callable) -> Callable[..., Path]:
    """A small run of `method` that found `found()`, or what it is told."""

    def make(name: str, line: str = "", method: str = "fedavg", arrays: dict[str, np.ndarray] | None = None) -> Path:
        called = call(f"run -m {method} {TINY} {line} --out {name}")
        assert called.status == 0, called.err
        arrays = found() if arrays is None else arrays
        if arrays:
            for seed in RunFolder.open(Path(name)).seeds():
                RunFolder.open(Path(name)).seed(seed).save_arrays("findings", arrays)
        return Path(name)

    return make


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What each figure was asked to draw."""
    asked: dict[str, Any] = {}

    def watch(module: Any, name: str) -> None:
        whole = getattr(module, name)

        def watched(*what: Any, **names: Any) -> Any:
            asked[name] = what
            return whole(*what, **names)

        monkeypatch.setattr(module, name, watched)

    for module, name in [
        (findings, "filters_figure"),
        (findings, "class_means_figure"),
        (findings, "factors_figure"),
        (figures, "similarity_rounds_figure"),
    ]:
        watch(module, name)
    return asked


def test_show_draws_what_a_run_found(call: Callable, make: Callable, watched: dict[str, Any]) -> None:
    make("out")
    called = call("show out")
    assert called.status == 0, called.err
    for name in ("filters", "class-means"):
        path = Path("out") / "figures" / f"{name}.png"
        assert str(path) in called.out
        assert path.read_bytes().startswith(b"\x89PNG")
    ((column,), heading) = watched["filters_figure"]
    assert heading == "FedAvg, seed 0"
    assert column[0] == ""
    assert "pip install" not in called.out


def test_show_draws_a_matrix_a_factor(call: Callable, make: Callable, watched: dict[str, Any]) -> None:
    make("out", arrays={})
    rng = np.random.default_rng(0)
    factors = {name: rng.random((3, M, M)) for name in ("-1", "0", "1")}
    place = RunFolder.open(Path("out")).seed(0)
    place.save_arrays("similarity", factors)
    called = call("show out")
    assert called.status == 0, called.err
    assert "similarity.png" in called.out
    matrices, heading, groups = watched["factors_figure"]
    order = findings_order(place.load_arrays("split-and-partition"))
    np.testing.assert_array_equal(matrices, factors["-1"][:, order][:, :, order])
    assert heading == "FedAvg, seed 0"
    assert len(groups) == M
    grown = watched["similarity_rounds_figure"][0]
    assert sorted(grown) == [0, 1]
    np.testing.assert_allclose(grown[1], factors["1"].mean(0)[order][:, order])


def findings_order(cut: Any) -> np.ndarray:
    order, _ = client_order({"dataset": "patchwork", "partition": "disjoint"}, cut)
    assert order is not None
    return order


def test_without_scikit_learn_one_sentence_says_so(
    call: Callable, make: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("out")
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    called = call("show out")
    assert called.status == 0, called.err
    sentence = "out/figures/class-means.png shows principal components; for t-SNE: pip install 'fedquilt[figures]'."
    assert called.out.count(sentence) == 1


def test_two_runs_are_drawn_beside_each_other(call: Callable, make: Callable, watched: dict[str, Any]) -> None:
    make("one")
    make("two", "--set lr=0.5 --rounds 3 --seeds 3,0", arrays=found(1))
    called = call("show one --against two")
    assert called.status == 0, called.err
    names = ["lr=0.01, rounds=2", "lr=0.5, rounds=3"]  # the same seed of both, though it is the second one's second
    for figure in ("filters_figure", "class_means_figure"):
        columns, heading = watched[figure]
        assert [name for name, _ in columns] == names
        assert heading == "FedAvg, seed 0"
        np.testing.assert_array_equal(columns[1][1]["class_means"], found(1)["class_means"])
    assert not (Path("two") / "figures").exists()


def test_what_one_of_two_runs_lacks_is_drawn_of_the_first_alone(
    call: Callable, make: Callable, watched: dict[str, Any]
) -> None:
    make("one")
    make("two", arrays={"coefficients": np.ones((M, 2))})
    assert call("show one --against two").status == 0
    columns, _ = watched["filters_figure"]
    assert [name for name, _ in columns] == ["one", "two"]  # nothing else tells them apart
    assert len(watched["class_means_figure"][0]) == 1


def test_what_cannot_be_drawn_beside_it_is_one_sentence(make: Callable, refused: Callable, here: Path) -> None:
    make("one")
    make("local", method="local")
    make("nothing", arrays={})
    make("wide", arrays={"class_means": np.ones((M, C, 9)), "class_counts": np.ones((M, C))})
    (here / "empty").mkdir()
    for against, says in {
        "nowhere": "There is no run folder at nowhere.",
        "empty": "empty is not a run folder: it has no config.json.",
        "local": "one is a run of fedavg and local one of local; --against takes a run of the same method.",
        "nothing": "The run in nothing has no findings to draw: its method has none, or no seed is done.",
        "wide": "The class means of the two runs do not compare: 3 classes in 6 dimensions, and 3 classes in 9 dimensions.",
    }.items():
        assert refused(f"show one --against {against}") == says
    assert "The run in nothing has no findings" in refused("show nothing --against one")
    (here / "both").mkdir()
    (here / "one").rename(here / "both" / "one")
    assert refused("show both --against local") == "both holds several runs; --against goes with one of them."


def test_a_run_without_findings_gets_none_of_these(call: Callable, make: Callable) -> None:
    make("out", arrays={})
    called = call("show out")
    assert called.status == 0, called.err
    assert "filters" not in called.out
    assert "class-means" not in called.out
