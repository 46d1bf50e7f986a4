from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.make import make_partition
from fedquilt.partition.partition import Partition
from fedquilt.partition.storage import check_fits, load, save
from support.partitions import graphs, random_graph, same


@pytest.fixture
def graph() -> Graph:
    return random_graph(40)


@pytest.fixture
def file(graph: Graph, tmp_path: Path) -> Path:
    save(make_partition(graph, "disjoint", 4, 3), tmp_path / "cut.npz")
    return tmp_path / "cut.npz"


def rewrite(path: Path, header: dict[str, object] | None = None, **arrays: np.ndarray) -> None:
    """Change parts of a saved partition, as someone who tampers would."""
    with np.load(path, allow_pickle=False) as archive:
        content = dict(archive) | arrays
    changed = json.loads(content["header"].tobytes()) | (header or {})
    content["header"] = np.frombuffer(json.dumps(changed).encode(), dtype=np.uint8)
    np.savez(path, **content)


def content(path: Path, key: str) -> np.ndarray:
    with np.load(path, allow_pickle=False) as archive:
        return archive[key]


@given(graphs(least=10), st.sampled_from(["disjoint", "overlapping", "random"]))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, graph: Graph, kind: str) -> None:
    path = tmp_path_factory.mktemp("saved") / "deep" / "partition"
    partition = make_partition(graph, kind, 5, 11)
    save(partition, path)
    loaded = load(path)
    assert same(loaded.nodes, partition.nodes)
    for name in ("kind", "seed", "graph", "total", "fingerprint", "settings"):
        assert getattr(loaded, name) == getattr(partition, name)
    check_fits(loaded, graph)


def test_save_replaces_and_leaves_nothing_behind(file: Path, graph: Graph) -> None:
    save(make_partition(graph, "random", 2, 0), str(file))
    assert load(str(file)).kind == "random"
    assert os.listdir(file.parent) == [file.name]


def test_a_write_that_fails_keeps_the_old_file(file: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FedquiltError, match="No space left"):
        save(make_partition(graph, "random", 2, 0), file)
    assert load(file).kind == "disjoint"
    assert os.listdir(file.parent) == [file.name]


def test_unwritable_place(graph: Graph, file: Path) -> None:
    with pytest.raises(FedquiltError, match="choose another place"):
        save(make_partition(graph, "random", 2, 0), file / "inside-a-file.npz")


def test_save_refuses_what_load_would(graph: Graph, tmp_path: Path) -> None:
    partition = make_partition(graph, "random", 2, 0)
    with pytest.raises(FedquiltError, match="client 1 holds no node"):
        save(replace(partition, nodes=[partition.nodes[0], np.zeros(0, np.int64)]), tmp_path / "cut.npz")
    with pytest.raises(FedquiltError, match="settings cannot be saved"):
        save(replace(partition, settings={"bad": np.zeros(1)}), tmp_path / "cut.npz")
    assert not list(tmp_path.iterdir())


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="no partition file"):
        load(tmp_path / "none.npz")
    with pytest.raises(FedquiltError, match="no partition file"):
        load(tmp_path)


def test_truncated_anywhere(file: Path) -> None:
    whole = file.read_bytes()
    for length in (*range(0, 40), *range(40, len(whole), 37), len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(FedquiltError, match="not a partition of fedquilt, or it is damaged"):
            load(file)


def test_flipped_bytes_never_pass_unseen(file: Path) -> None:
    whole, before = file.read_bytes(), load(file)
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            after = load(file)
        except FedquiltError:
            continue
        # Some bytes of a zip file mean nothing (dates, attributes).
        assert same(after.nodes, before.nodes)
        assert replace(after, nodes=[]).__dict__ == replace(before, nodes=[]).__dict__


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "foreign.npz"
    for write in (
        lambda: path.write_text("hello"),
        lambda: path.write_bytes(b""),
        lambda: np.savez(path, x=np.zeros(3)),
        lambda: np.save(path.open("wb"), np.zeros(3)),
        lambda: np.savez(path, header=np.array([{}], dtype=object), nodes=np.zeros(1, int), offsets=np.zeros(1, int)),
        lambda: np.savez(
            path, header=np.frombuffer(b"[1]", np.uint8), nodes=np.zeros(1, int), offsets=np.zeros(1, int)
        ),
        lambda: np.savez(
            path, header=np.frombuffer(b"\xff{", np.uint8), nodes=np.zeros(1, int), offsets=np.zeros(1, int)
        ),
    ):
        write()
        with pytest.raises(FedquiltError, match="not a partition of fedquilt"):
            load(path)


def test_a_later_version_is_named(file: Path) -> None:
    rewrite(file, {"version": 2})
    with pytest.raises(FedquiltError, match="version 2"):
        load(file)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", "3"),
        ("seed", True),
        ("total", 40.0),
        ("kind", None),
        ("graph", 1),
        ("fingerprint", []),
        ("settings", "x"),
    ],
)
def test_wrong_header(file: Path, name: str, value: object) -> None:
    rewrite(file, {name: value})
    with pytest.raises(FedquiltError, match=f"its '{name}' is missing or wrong"):
        load(file)


def test_tampered_nodes(file: Path) -> None:
    nodes, offsets = content(file, "nodes"), content(file, "offsets")

    def changed(place: int, value: int) -> np.ndarray:
        copy = nodes.copy()
        copy[place] = value
        return copy

    swapped = nodes.copy()
    swapped[[offsets[1], offsets[1] + 1]] = swapped[[offsets[1] + 1, offsets[1]]]
    empty = offsets.copy()
    empty[2] = empty[1]
    back = offsets.copy()
    back[1] = back[2] + 1
    cases: list[tuple[dict[str, np.ndarray], str]] = [
        ({"nodes": changed(0, -1)}, "client 0 holds node -1"),
        (
            {"nodes": changed(int(offsets[4]) - 1, 40)},
            "client 3 holds node 40, but the graph has nodes 0 to 39",
        ),
        ({"nodes": changed(1, int(nodes[0]))}, "client 0's nodes are not sorted and distinct"),
        ({"nodes": swapped}, "client 1's nodes are not sorted and distinct"),
        ({"nodes": nodes[:-1]}, "offsets do not match"),
        ({"nodes": nodes.astype(float)}, "nodes are not a list"),
        ({"nodes": nodes.reshape(2, -1)}, "nodes are not a list"),
        ({"offsets": offsets.astype(np.int32)}, "offsets are not a list"),
        ({"offsets": empty}, "client 1 holds no node"),
        ({"offsets": back}, "offsets do not match"),
        ({"offsets": offsets[1:]}, "offsets do not match"),
        ({"offsets": offsets[:1]}, "no client"),
    ]
    for arrays, message in cases:
        rewrite(file, **({"nodes": nodes, "offsets": offsets} | arrays))
        with pytest.raises(FedquiltError, match=message):
            load(file)


def test_check_fits_names_both_graphs(graph: Graph) -> None:
    partition: Partition = make_partition(graph, "random", 3, 0)
    check_fits(partition, graph)
    with pytest.raises(FedquiltError, match="graph 'toy' with 40 nodes, but graph 'larger' has 41"):
        check_fits(partition, random_graph(41, name="larger"))
    with pytest.raises(FedquiltError, match="graph 'toy', whose edges are not those of graph 'other'"):
        check_fits(partition, random_graph(40, seed=1, name="other"))
