"""`fedquilt study graphs`: which cells it runs, and what it says where a graph cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.studies import catalogue_files, workers
from support.tiny_studies import Inline, no_network, write_study

GONE = "roman-empire,questions"


@pytest.fixture
def two_studies(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalogue of two studies, one of them on a graph that is not here too, and workers in this process."""
    monkeypatch.setattr(workers, "WorkerProcess", Inline)
    no_network(monkeypatch)
    axes = {"method": ["local"], "dataset": ["communities-3", "roman-empire"]}
    one = write_study(here, "one", seeds=1, axes=axes, columns=["dataset"], options={"rounds": 1, "clients": 2})
    two = write_study(here, "two", seeds=1, axes={"method": ["fedavg"], "clients": [2, 3]})
    monkeypatch.setattr(catalogue_files, "study_names", lambda: [one, two])
    return here


def test_every_study_on_the_graph_is_run_once(two_studies: Path, call: Callable) -> None:
    called = call("study graphs communities-3,COMMUNITIES-3:seed=0 --device cpu --into kept")
    assert called.status == 0, called.err
    assert "one.yaml: 1 cells" in called.out
    assert "two.yaml: 2 cells" in called.out
    assert called.err.count("cells done") >= 2
    again = call("study graphs communities-3 --device cpu --into kept")
    assert "1 of 1 cells done" in again.err
    assert "2 of 2 cells done" in again.err
    assert "in 0" not in again.err  # nothing was run


def test_a_graph_that_appears_is_run(two_studies: Path, call: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("study graphs roman-empire --count").out == f"{two_studies / 'one.yaml'}: 1 cells\n"
    ring = np.stack([np.arange(40), (np.arange(40) + 1) % 40])
    graph = Graph.from_arrays("roman-empire", ring, np.eye(40, 6), np.arange(40) % 3)
    write_npz(graph, two_studies / "graphs" / "roman-empire.npz")
    called = call("study graphs roman-empire,questions --device cpu --data graphs")
    assert called.status == 0, called.err
    assert "The graph questions is not in graphs and cannot be downloaded." in called.err
    assert "1 of 1 cells done" in called.err


def test_without_a_network_it_is_one_sentence(two_studies: Path, refused: Callable) -> None:
    says = f"The graph roman-empire is not in {two_studies / 'graphs'} and cannot be downloaded (nor questions)."
    assert refused(f"study graphs {GONE} --data {two_studies / 'graphs'}") == says
    assert refused("study graphs romanempire").startswith("There is no dataset 'romanempire'")
