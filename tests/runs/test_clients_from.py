"""Clients from files: which files a pattern means, what clients are called, and one sentence for what is wrong."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from fedquilt.errors import FedquiltError
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.split import TRAIN
from fedquilt.runs.clients_from import client_names, client_paths, join_clients, load_clients
from support.hospitals import CLASSES, COLUMNS, write_hospital, write_hospital_site, write_hospitals
from support.small_runs import own_graph


def test_a_pattern_names_folders_and_clients_are_called_like_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    graph, _ = load_clients(["hospital-*/"])
    assert (graph.name, graph.client_names) == ("hospital", ("hospital-a", "hospital-b", "hospital-c"))
    assert (graph.class_names, graph.feature_names) == (CLASSES, COLUMNS)
    assert graph.nodes == 120
    assert client_paths(["hospital-a", "hospital-[bc]"]) == client_paths(["hospital-*"])
    assert load_clients(["hospital-c", "hospital-a", "hospital-b/"])[0].owner.tolist() == graph.owner.tolist()


def test_names_of_files_and_sites(tmp_path: Path) -> None:
    for place in ("north/graph.npz", "south/graph.npz", "x/one.npz", "y/one.npz", "y/two.npz"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        write_npz(own_graph(30), tmp_path / place)
    assert client_names(client_paths([f"{tmp_path}/*th/graph.npz"])) == ["north", "south"]
    assert client_names(client_paths([f"{tmp_path}/[xy]/*.npz"])) == ["x/one", "y/one", "y/two"]
    folder = write_hospital(tmp_path / "data", CLASSES)
    site = write_hospital_site(tmp_path / "site", folder, name="St. Anna")
    for path in (site, site.parent):  # the file, or the folder that holds it
        assert load_clients([str(path), str(folder)])[0].client_names == ("St. Anna", "data")


def test_the_split_and_the_copies_of_a_site_yaml(tmp_path: Path) -> None:
    folder = write_hospital(tmp_path / "data", CLASSES)
    plain = write_hospital_site(tmp_path / "a", folder, name="a")
    half = write_hospital_site(tmp_path / "b", folder, name="b", split="50/25/25")
    (own, other) = load_clients([str(plain), str(half)])[0].targets()
    assert own.masks is None
    assert other.masks["train"].sum() == 20
    marked = write_hospital_site(tmp_path / "c", folder, name="c", keep_copies="neighbours")
    assert load_clients([str(marked), str(plain)])[0].copies is not None
    assert load_clients([str(marked), str(plain)], "never")[0].copies is None


def test_one_client_is_enough_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_hospital(tmp_path / "only", CLASSES)
    with caplog.at_level(logging.WARNING, "fedquilt"):
        assert load_clients([str(folder)])[0].clients == 1
    assert "one client only" in caplog.text


def test_what_a_site_yaml_says_and_a_run_does_not_follow(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_hospital(tmp_path / "data", CLASSES)
    site = write_hospital_site(tmp_path, folder, dp={"clip": 1.0, "noise": 1.0}, settings={"lr": 0.1})
    with caplog.at_level(logging.WARNING, "fedquilt"):
        load_clients([str(site)])
    assert "says dp and settings, which is not simulated here; see fedquilt rehearse" in caplog.text


def test_what_is_wrong_names_the_pattern_or_the_client(tmp_path: Path) -> None:
    write_hospitals(tmp_path)
    with pytest.raises(FedquiltError, match=r"Nothing matches '.*clinic-\*', which should name the graphs"):
        load_clients([f"{tmp_path}/clinic-*"])
    with pytest.raises(FedquiltError, match="hospital-b is listed twice among the clients; list each client once"):
        load_clients([f"{tmp_path}/hospital-*", f"{tmp_path}/hospital-b"])
    with pytest.raises(FedquiltError, match="Client 'hospital-z': There is no file or folder"):
        load_clients([f"{tmp_path}/hospital-*", f"{tmp_path}/hospital-z"])
    sites = [write_hospital_site(tmp_path / name, tmp_path / "hospital-a", name="same") for name in ("s1", "s2")]
    with pytest.raises(FedquiltError, match="Two clients are called 'same'"):
        load_clients([str(site) for site in sites])
    (sites[0]).write_text("name: s\ngraph: g\nspilt: given\n")
    with pytest.raises(FedquiltError, match="there is no field 'spilt'; did you mean 'split'"):
        load_clients([str(sites[0])])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"bmi": None}, "Client 'hospital-b' lacks the column 'bmi' of client 'hospital-a'; give all clients the same"),
        ({"label": [""] * 40}, "Client 'hospital-b': .*label"),
        ({"lab": ["1.5"] * 39 + ["2026-01-05"]}, "Client 'hospital-b'"),
    ],
)
def test_a_broken_client_is_named(changes: dict[str, list[str] | None], says: str, tmp_path: Path) -> None:
    write_hospitals(tmp_path)
    write_hospital(tmp_path / "hospital-b", CLASSES, **changes)
    with pytest.raises(FedquiltError, match=says):
        load_clients([f"{tmp_path}/hospital-*"])


def test_objects_and_paths_are_joined_in_their_order(tmp_path: Path) -> None:
    write_npz(own_graph(30), tmp_path / "g.npz")
    found = join_clients([own_graph(20), tmp_path / "g.npz"])
    assert (found.client_names, found.owner.tolist()) == (None, [0] * 20 + [1] * 30)
    named = join_clients({"south": own_graph(20), "north": tmp_path / "g.npz"})
    assert named.client_names == ("south", "north")
    assert np.bincount(named.owner).tolist() == [20, 30]
    with pytest.raises(FedquiltError, match="no client in an empty list"):
        join_clients([])
    with pytest.raises(FedquiltError, match="Client '1': A int is not a graph"):
        join_clients([own_graph(20), 7])


def test_an_objects_split_is_kept() -> None:
    found = join_clients([own_graph(30, masks=True), own_graph(30)])
    assert [own.masks is None for own in found.targets()] == [False, True]
    assert TRAIN == 0
