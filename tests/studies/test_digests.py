"""Hashes of graphs, files and options, which keep their values between versions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.protocol import Protocol
from fedquilt.studies import digests
from fedquilt.studies.digests import file_digest, graph_digest, json_digest, protocol_text, why_no_graph
from support.small_runs import own_graph
from support.tiny_studies import no_network

# What the first version hashed: the text of the protocol when it was written.
CORA = (
    "(Protocol(metric='accuracy', largest_component=True, normalise_features=False, split=(0.2, 0.4, 0.4), rounds=100, "
    "epochs=1), 7)"
)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    """Forget what was read, as a new process would."""
    digests._digest_or_error.cache_clear()
    digests.file_digest.cache_clear()


def test_the_text_of_a_protocol_is_that_of_the_first_version() -> None:
    assert protocol_text(Protocol(largest_component=True), 7) == CORA


def test_the_text_does_not_depend_on_the_name_of_the_class_and_on_later_fields_with_their_default() -> None:
    @dataclass(frozen=True)
    class Renamed(Protocol):
        later: str = "as before"
        more: tuple[int, ...] = field(default=())

    assert protocol_text(Renamed(largest_component=True), 7) == CORA
    assert protocol_text(Renamed(largest_component=True, later="other"), 7) == CORA.replace(
        "epochs=1)", "epochs=1, later='other')"
    )


def test_the_digest_of_a_graph_is_that_of_the_first_version(elsewhere: Path) -> None:
    edges, y = np.array([[0, 1, 2, 3], [1, 2, 3, 0]]), np.array([0, 1, 1, -1])
    write_npz(Graph(name="ring", x=np.eye(4, dtype=np.float32), edges=edges, y=y, classes=2), elsewhere / "ring.npz")
    assert graph_digest("ring.npz", None) == "3c140d2f6ee5f37bc2e5beecba5e9b3e"


def test_graphs_without_edges_have_a_digest(elsewhere: Path) -> None:
    write_npz(replace(own_graph(), edges=np.zeros((2, 0), dtype=np.int64)), elsewhere / "none.npz")
    assert len(graph_digest("none.npz", None)) == 32


def test_weights_of_edges_count(elsewhere: Path) -> None:
    edges = own_graph().edges.shape[1]
    found = set()
    for weights in (None, np.ones(edges, np.float32), np.arange(1, edges + 1, dtype=np.float32)):
        digests._digest_or_error.cache_clear()
        write_npz(replace(own_graph(), edge_weights=weights), elsewhere / "mine.npz")
        found.add(graph_digest("mine.npz", None))
    assert len(found) == 3


def test_what_sites_call_themselves_and_how_they_prepare_features_counts(elsewhere: Path) -> None:
    write_npz(own_graph(), elsewhere / "mine.npz")
    found = set()
    for site in ("name: anna", "name: berta", "name: berta\nprepare: none", "name: berta\nprepare: rows"):
        digests._digest_or_error.cache_clear()
        (elsewhere / "site.yaml").write_text(f"{site}\ngraph: mine.npz\nstate: state\n")
        found.add(graph_digest("@clients", None, ["site.yaml"]))
    assert len(found) == 4


def test_a_graph_is_read_once(elsewhere: Path) -> None:
    write_npz(own_graph(), elsewhere / "mine.npz")
    before = graph_digest("mine.npz", None)
    write_npz(replace(own_graph(), classes=9), elsewhere / "mine.npz")
    assert graph_digest("mine.npz", None) == before
    digests._digest_or_error.cache_clear()
    assert graph_digest("mine.npz", None) != before


def test_a_graph_that_is_not_available_is_told_apart_from_one_that_is(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_network(monkeypatch)
    assert why_no_graph("communities-3", None) is None
    assert "cora" in (why_no_graph("cora", str(elsewhere)) or "")
    with pytest.raises(FedquiltError, match="cora"):
        graph_digest("cora", str(elsewhere))


def test_files_and_values_have_digests_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"1")
    assert file_digest(str(tmp_path / "a")) == file_digest(str(tmp_path / "b")) != ""
    assert file_digest(str(tmp_path / "nothing")) == ""
    assert json_digest({"a": 1, "b": [2]}) == json_digest({"b": [2], "a": 1}) != json_digest({"a": 1, "b": [3]})
