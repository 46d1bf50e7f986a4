"""A run on clients' own graphs gives the numbers of the same sites over Flower's messages: splits, order, classes and all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedquilt
from fedquilt.datasets.load import load_graph
from fedquilt.graphs.npz import write_npz
from support.flower_doubles import MemoryGrid, loaded_sites
from support.hospitals import CLASSES, WARDS, write_hospital, write_hospital_site, write_hospitals

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedquilt[flower]'")

from fedquilt.federation.coordinator.config import FederationConfig
from fedquilt.federation.coordinator.coordinator import Coordinator

ROUNDS, SETTINGS = 3, {"hidden": 8}


def over_flower(sites: list[Path], out: Path, method: str, seed: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of the rounds of a federation of these sites, and their names in order."""
    config = FederationConfig(
        out=str(out),
        sites=len(sites),
        method=method,
        settings=SETTINGS,
        rounds=ROUNDS,
        seed=seed,
        timeout=5.0,
        wait=5.0,
    )
    with loaded_sites():
        coordinator = Coordinator(config, MemoryGrid(sites), lambda text: None)
        coordinator.run()
    assert coordinator.incidents.all == []
    return coordinator.folder.seed(seed).records(), coordinator.roster.names


def assert_same(mine: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    assert len(mine) == len(theirs) == ROUNDS
    for one, other in zip(mine, theirs, strict=True):
        for key in ("val", "test", "train_loss", "val_loss"):
            assert one[key] == pytest.approx(other[key], rel=1e-5, abs=1e-5), (one["round"], key)
        for part in ("val", "test"):
            assert one["clients"][part] == pytest.approx(other["clients"][part], abs=1e-5)
        assert (one["bytes_up"], one["bytes_down"]) == (other["bytes_up"], other["bytes_down"])


@pytest.mark.parametrize("method", ["quilt"])
def test_tables_npz_and_splits_of_a_site_yaml(method: str, tmp_path: Path) -> None:
    """Three kinds of sites: a drawn split, one that site.yaml asks for, and one that came with the graph."""
    named = {"zeta": CLASSES, "alpha": CLASSES[::-1], "mid": CLASSES}
    folders = [write_hospital(tmp_path / "data" / name, CLASSES, seed=seed) for seed, name in enumerate(named)]
    for folder in folders[1:]:  # as all sites of a federation need their columns
        write_hospital(folder, CLASSES, seed=2)
    given = ["train", "val", "test", ""] * 10
    write_hospital(folders[2], CLASSES, seed=3, split=given)
    write_npz(load_graph(folders[1])[0], tmp_path / "alpha.npz")
    sites = [
        write_hospital_site(tmp_path / "s0", folders[0], name="zeta"),
        write_hospital_site(tmp_path / "s1", tmp_path / "alpha.npz", name="alpha", split="40/30/30"),
        write_hospital_site(tmp_path / "s2", folders[2], name="mid", keep_copies="neighbours"),
    ]
    theirs, names = over_flower(sites, tmp_path / "federation", method, seed=7)
    mine = fedquilt.run(
        method, clients_from=[str(tmp_path / "s*/site.yaml")], rounds=ROUNDS, seeds=[7], settings=SETTINGS, device="cpu"
    )
    assert names == mine.client_names() == ["alpha", "mid", "zeta"]
    assert_same(mine.records[7], theirs)
    # A split of the run itself takes the place of the sites' own, and so gives other numbers.
    other = fedquilt.run(method, sites, rounds=ROUNDS, seeds=[7], settings=SETTINGS, device="cpu", split="50/25/25")
    assert other.records[7][-1]["val_loss"] != pytest.approx(theirs[-1]["val_loss"], rel=1e-3)


def test_classes_that_differ_are_the_union_that_sites_write_down(tmp_path: Path) -> None:
    folders = write_hospitals(tmp_path / "data")
    mine = fedquilt.run("fedavg", folders, rounds=ROUNDS, seeds=[1], settings=SETTINGS, device="cpu")
    assert mine.facts[1]["class_names"] == list(CLASSES)
    write_hospital(folders[1], WARDS["hospital-b"], seed=5)  # over Flower the columns are not brought into order
    mine = fedquilt.run("fedavg", folders, rounds=ROUNDS, seeds=[1], settings=SETTINGS, device="cpu")
    sites = [write_hospital_site(tmp_path / folder.name, folder, classes=list(CLASSES)) for folder in folders]
    theirs, names = over_flower(sites, tmp_path / "federation", "fedavg", seed=1)
    assert names == mine.client_names() == list(WARDS)
    assert_same(mine.records[1], theirs)
