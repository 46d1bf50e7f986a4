"""The further graphs, and the study of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.further_graphs import every_graph, near_one_node, part_of, sentences, undirected

from benchmarks import further_graphs
from fedquilt.studies.spec import find_study

STUDY = Path(further_graphs.__file__).with_suffix(".yaml")


def test_a_pair_is_an_edge_once_and_no_loop() -> None:
    links = sp.coo_matrix(([1, 1, 1, 1], ([0, 1, 2, 2], [1, 0, 2, 0])), shape=(3, 3))
    assert sorted(map(tuple, undirected(links).T.tolist())) == [(0, 1), (0, 2)]


def test_a_word_says_its_class_in_less_than_half_of_all_cases() -> None:
    edges, x, y = sentences(np.random.default_rng(0))
    assert x.shape == (5000, 100)
    assert edges.shape[1] > 6600
    assert (y[edges[0]] == y[edges[1]]).mean() < 0.2
    again = sentences(np.random.default_rng(0))
    assert (again[1] != x).nnz == 0


@pytest.mark.usefixtures("data_folder")
def test_parts_have_the_edges_among_their_nodes() -> None:
    for edges, x, y in (part_of("chameleon", 250, 1), near_one_node("credit-137k", 300)):
        assert x.shape[0] == len(y) == len(set(range(len(y))) | set(edges.ravel().tolist()))
        assert (edges[0] < edges[1]).all()
    assert part_of("chameleon", 250, 1)[1].getnnz(axis=0).all()


@pytest.mark.usefixtures("data_folder")
def test_the_study_has_every_graph() -> None:
    study = find_study(str(STUDY))
    assert [level.options["dataset"] for level in study.axes["dataset"]] == [f"{name}.npz" for name in every_graph()]
