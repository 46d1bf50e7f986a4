"""Weights of edges: what is refused, what is cleaned, what is said, and that they go wherever their edges go."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

from fedquilt.cohort.client import clients_of
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError
from fedquilt.graphs.check import describe_graph
from fedquilt.graphs.edge_weights import one_way_edges, weight_array, weights_in_words
from fedquilt.graphs.fingerprint import fingerprints
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import read_npz, write_npz
from fedquilt.graphs.tables import read_tables
from fedquilt.graphs.union import disjoint_union
from fedquilt.partition.partition import Partition
from fedquilt.scenarios.edge_noise import with_edge_noise
from support.graphs import tiny

WEIGHTS = [2.0, 0.5, 4.0]


def tables(folder: Path, edges: str) -> Path:
    (folder / "nodes.csv").write_text("id,label,age\nann,0,1\nbob,1,2\neve,0,3\n")
    (folder / "edges.csv").write_text(edges)
    return folder


def data(**edges: torch.Tensor) -> Data:
    both = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    return Data(x=torch.eye(3), y=torch.tensor([0, 1, 0]), edge_index=both, **edges)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ([1, 2], "shape 2 but 3 edges"),
        ([[1, 2]] * 3, "shape 3 x 2 but 3 edges"),
        ([1, 0, 1], "an edge of weight 0; weights are positive numbers"),
        ([1, -2, 1], "an edge of weight -2; weights are positive"),
        ([1, np.nan, 1], "an edge of weight nan; weights are positive"),
        ([1, np.inf, 1], "an edge of weight inf; weights are positive"),
        ([1, 1e16, 1], "beyond 1e-15 to 1e\\+15; multiply all by one number"),
        ([1, 1e-60, 1], "beyond 1e-15 to 1e\\+15; multiply all by one number"),
        (["a", "b", "c"], "edge weights of type"),
        ([True, True, True], "edge weights of type bool"),
    ],
)
def test_what_is_no_weight_is_refused_in_a_sentence(weights: list, said: str) -> None:
    with pytest.raises(FedquiltError, match=said):
        tiny(edge_weights=weights)


def test_a_graph_built_by_hand_is_checked_too() -> None:
    graph = Graph(
        "odd", np.array([[0], [1]]), np.eye(2, dtype=np.float32), np.array([0, 1]), 2, edge_weights=np.zeros(1)
    )
    with pytest.raises(FedquiltError, match="odd has an edge of weight 0"):
        graph.validate()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 9)), max_size=30))
def test_the_largest_weight_of_an_edge_counts_in_whatever_direction_and_order(rows: list[tuple[int, int, int]]) -> None:
    wanted: dict[tuple[int, int], int] = {}
    for u, v, weight in rows:
        if u != v:
            pair = min(u, v), max(u, v)
            wanted[pair] = max(weight, wanted.get(pair, 0))
    table = np.array(rows, dtype=int).reshape(-1, 3).T
    graph = tiny(edges=table[:2], edge_weights=table[2], x=np.eye(6), y=np.arange(6) % 2)
    assert graph.edge_weights is not None
    assert dict(zip(map(tuple, graph.edges.T.tolist()), graph.edge_weights.tolist(), strict=True)) == wanted


def test_differing_weights_of_an_edge_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    tiny(edges=[[0, 1, 2, 1], [1, 0, 1, 2]], edge_weights=[1, 3, 2, 2])
    assert "tiny: 1 edge is named more than once with different weights; the largest is used" in caplog.text
    caplog.clear()
    tiny(edges=[[0, 1], [1, 0]], edge_weights=[3, 3])
    assert not caplog.text


def test_weights_go_where_their_edges_go(tmp_path: Path) -> None:
    graph = tiny(edge_weights=WEIGHTS)
    write_npz(graph, tmp_path / "g.npz")
    read = read_npz(tmp_path / "g.npz")
    assert read.edge_weights is not None
    assert read.edge_weights.tolist() == WEIGHTS
    assert fingerprints(read) == fingerprints(graph)
    again = Graph.from_data(graph.to_data())
    assert again.edge_weights is not None
    assert again.edge_weights.tolist() == WEIGHTS
    part = graph.subgraph(np.array([1, 2, 3]))
    assert part.edge_weights is not None
    assert part.edge_weights.tolist() == [0.5, 4.0]
    joined = disjoint_union("both", [graph, tiny()])
    assert joined.edge_weights is not None
    assert joined.edge_weights.tolist() == [*WEIGHTS, 1, 1, 1]
    assert disjoint_union("neither", [tiny(), tiny()]).edge_weights is None


def test_a_partition_gives_each_client_its_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 30, (2, 200))
    weights = rng.random(200) + 0.1
    graph = Graph.from_arrays("big", edges, np.eye(30), np.arange(30) % 3, edge_weights=weights)
    assert graph.edge_weights is not None
    known = dict(zip(map(tuple, graph.edges.T.tolist()), graph.edge_weights.tolist(), strict=True))
    cut = Partition([np.arange(0, 18), np.arange(10, 30)], "random", 0, "big", 30, "")  # they overlap
    for client, nodes in zip(clients_of(graph, cut, np.zeros(30, dtype=np.int8)), cut.nodes, strict=True):
        own = client.graph
        assert own.edge_weights is not None
        assert own.edge_weights.size
        for (u, v), weight in zip(own.edges.T, own.edge_weights, strict=True):
            assert known[int(nodes[u]), int(nodes[v])] == weight
        assert client.edge_weights is not None
        assert client.edge_weights.mean() == pytest.approx(1.0, abs=1e-6)
        assert np.allclose(client.edge_weights * client.mean_weight, own.edge_weights)


def test_edge_noise_moves_edges_with_their_weights() -> None:
    rng = np.random.default_rng(0)
    graph = Graph.from_arrays(
        "g", rng.integers(0, 40, (2, 90)), np.eye(40), np.arange(40) % 3, edge_weights=np.arange(1, 91)
    )
    assert graph.edge_weights is not None
    noisy = with_edge_noise(graph, 0.5, np.random.default_rng(1))
    assert noisy.edge_weights is not None
    assert sorted(noisy.edge_weights) == sorted(graph.edge_weights)
    before, after = (
        dict(zip(map(tuple, g.edges.T.tolist()), g.edge_weights.tolist(), strict=True))  # type: ignore[union-attr]
        for g in (graph, noisy)
    )
    kept = before.keys() & after.keys()
    assert 20 < len(kept) < 70
    assert all(before[pair] == after[pair] for pair in kept)


def test_an_unweighted_graph_keeps_its_fingerprint_and_weights_change_it() -> None:
    plain, weighted = fingerprints(tiny()), fingerprints(tiny(edge_weights=WEIGHTS))
    assert plain["edges"] == "eb1a315f2b0d3191e6dd79a7e5f1aa04"
    assert [name for name in plain if plain[name] != weighted[name]] == ["edges"]
    assert plain.keys() == weighted.keys()
    assert weighted != fingerprints(tiny(edge_weights=[2.0, 0.5, 3.0]))
    turned = tiny(edges=np.array([[3, 2, 1], [2, 1, 0]]), edge_weights=WEIGHTS[::-1])
    assert fingerprints(turned) == weighted


def test_a_table_has_them_in_its_column_weight(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    graph = read_tables(tables(tmp_path, "source,since,target,Weight\nann,2001,bob,2\nbob,2002,eve,0.5\n"))
    assert graph.edge_weights is not None
    assert graph.edge_weights.tolist() == [2, 0.5]
    assert f"{tmp_path / 'edges.csv'}: not used of its edges: the columns 'since'." in caplog.text
    assert ("edge weights", "0.5 to 2, mean 1.25") in describe_graph(graph).rows()
    assert weights_in_words(None) == "none"


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "", "heavy", "1e30"])
def test_a_table_is_refused_with_the_line_of_a_wrong_weight(tmp_path: Path, weight: str) -> None:
    with pytest.raises(FedquiltError, match=r"edges.csv, line 3: "):
        read_tables(tables(tmp_path, f"source,target,weight\nann,bob,1\nbob,eve,{weight}\n"))


def test_the_file_of_the_edges_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_tables(tables(tmp_path, "source,target,weight\nann,bob,1\nann,bob,2\nann,eve,3\nann,eve,4\n"))
    assert f"{tmp_path / 'edges.csv'}: 2 edges are named more than once with different weights" in caplog.text


def test_parquet_alike(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    tables(tmp_path, "")
    (tmp_path / "edges.csv").unlink()
    table = pyarrow.table({"source": ["ann", "bob"], "target": ["bob", "eve"], "weight": [3, 0.25]})
    parquet.write_table(table, tmp_path / "edges.parquet")
    graph = read_tables(tmp_path)
    assert graph.edge_weights is not None
    assert graph.edge_weights.tolist() == [3, 0.25]


def test_pyg_weights_and_attributes(caplog: pytest.LogCaptureFixture) -> None:
    w = torch.tensor([2.0, 2.0, 5.0, 5.0])
    for edges in ({"edge_weight": w}, {"edge_attr": w}, {"edge_attr": w.unsqueeze(1)}):
        graph = Graph.from_data(data(**edges))
        assert graph.edge_weights is not None
        assert graph.edge_weights.tolist() == [2, 5]
    assert not caplog.text
    assert Graph.from_data(data(edge_attr=torch.ones(4, 3))).edge_weights is None
    assert "graph: not used of its edges: the attributes 'edge_attr'." in caplog.text
    caplog.clear()
    graph = Graph.from_data(data(edge_weight=w, edge_attr=torch.ones(4), edge_type=torch.arange(4)))
    assert graph.edge_weights is not None
    assert "'edge_attr'" in caplog.text
    assert "'edge_type'" in caplog.text
    with pytest.raises(FedquiltError, match="graph has an edge of weight 0"):
        Graph.from_data(data(edge_attr=torch.arange(4.0)))


def test_direction_is_said_to_be_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedquilt")
    Graph.from_data(data())
    tables(tmp_path, "source,target\nann,bob\nbob,eve\n")
    read_tables(tmp_path)  # the usual way to write an undirected graph
    assert not caplog.text
    read_tables(tables(tmp_path, "source,target\nbob,ann\nbob,eve\n"))
    said = "edges are given in one direction only; direction is not used, every edge joins its two nodes both ways"
    assert said in caplog.text
    assert {record.levelname for record in caplog.records} == {"INFO"}
    caplog.clear()
    read_tables(tables(tmp_path, "source,target\nbob,ann\nann,bob\nbob,eve\n"))
    one_way = data()
    one_way.edge_index = one_way.edge_index[:, :3]
    Graph.from_data(one_way)
    assert [record.getMessage().count("1 of 2 edges are given in one direction only") for record in caplog.records] == [
        1,
        1,
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30))
def test_one_way_edges_are_counted(pairs: list[tuple[int, int]]) -> None:
    there = {pair for pair in pairs if pair[0] != pair[1]}
    joined = {(min(pair), max(pair)) for pair in there}
    one_way = {pair for pair in joined if not {pair, pair[::-1]} <= there}
    assert one_way_edges(np.array(pairs).T) == (len(one_way), len(joined))


def test_hetero_data_is_refused_with_a_hint_that_works() -> None:
    hetero = HeteroData()
    hetero["paper"].x, hetero["paper"].y = torch.rand(4, 3), torch.tensor([0, 1, 0, 1])
    hetero["author"].x = torch.rand(2, 5)
    hetero["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1], [1, 2]])
    hetero["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [3, 2]])
    with pytest.raises(FedquiltError, match=r"A HeteroData has several kinds .* data.to_homogeneous\(\)"):
        load_graph(hetero)  # type: ignore[arg-type]
    # The two ways that the sentence names:
    part = Data(x=hetero["paper"].x, y=hetero["paper"].y, edge_index=hetero["paper", "cites", "paper"].edge_index)
    assert load_graph(part)[0].nodes == 4
    hetero["paper"].x = torch.nn.functional.pad(hetero["paper"].x, (0, 2))
    hetero["author"].y = torch.full((2,), -1)
    graph = load_graph(hetero.to_homogeneous())[0]
    assert (graph.nodes, graph.features, graph.edges.shape[1]) == (6, 5, 4)
    assert sorted(graph.y.tolist()) == [-1, -1, 0, 0, 1, 1]


def test_an_npz_file_has_them_beside_its_edges(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain = {"edge_index": [[0, 1], [1, 2]], "y": [0, 1, 0], "x": np.eye(3)}
    for more in ({"edge_weight": [2, 5]}, {"edge_attr": [2.0, 5.0]}, {"edge_attr": [[2.0], [5.0]]}):
        np.savez(tmp_path / "g.npz", **plain, **more)  # type: ignore[arg-type]
        weights = read_npz(tmp_path / "g.npz").edge_weights
        assert weights is not None
        assert weights.tolist() == [2, 5]
    assert not caplog.text
    np.savez(tmp_path / "g.npz", **plain, edge_attr=np.ones((2, 4)))  # type: ignore[arg-type]
    assert read_npz(tmp_path / "g.npz").edge_weights is None
    assert "g.npz: not used of its edges: the array 'edge_attr'." in caplog.text
    np.savez(tmp_path / "g.npz", **plain, edge_weight=[1, 2, 3])  # type: ignore[arg-type]
    with pytest.raises(FedquiltError, match=r"g.npz has edge weights of shape 3 but 2 edges"):
        read_npz(tmp_path / "g.npz")


def test_weights_of_one_column_are_a_list() -> None:
    assert weight_array(np.array([[2], [3]]), 2, "here").tolist() == [2, 3]
