"""`fedquilt rehearse`: what is refused before anything starts. Real rehearsals are in tests/federation/test_end_to_end.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedquilt.graphs import Graph, write_npz
from fedquilt.sites.config import read_site
from small_runs import own_graph

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedquilt[flower]'")


@pytest.fixture
def sites(here: Path) -> str:
    """Three sites: a, b, c."""
    for name in "abc":
        site(here, name, own_graph())
    return "a/site.yaml,b/site.yaml,c/site.yaml"


def site(here: Path, name: str, graph: Graph, **more: object) -> None:
    (here / name).mkdir()
    write_npz(graph, here / name / "graph.npz")
    values = {"name": name, "graph": "graph.npz", "state": "state", **more}
    (here / name / "site.yaml").write_text(yaml.safe_dump(values))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--method fedpup", "There is no method 'fedpup'; did you mean 'fedpub'?"),
        ("--set hiden=8", "There is no setting of quilt 'hiden'; did you mean 'hidden'?"),
        ("--metric f1", "There is no metric 'f1'"),
        ("--metric auc", "auc needs two classes and the sites have 3"),
        ("--rounds 0", "'rounds' is not possible"),
        ("--min-sites 4", "min-sites is 4 and there are 3 sites"),
        ("--method local --aggregation median", "does not average"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    refused: Callable, sites: str, options: str, says: str
) -> None:
    assert says in refused(f"rehearse --sites {sites} {options}")


def test_sites_that_do_not_fit_are_refused(refused: Callable, here: Path, sites: str) -> None:
    assert "nowhere.yaml cannot be read" in refused("rehearse --sites nowhere.yaml,a/site.yaml")
    assert "No file is called as in 'x*/site.yaml'" in refused("rehearse --sites x*/site.yaml")
    assert "Two sites are called 'a'" in refused("rehearse --sites a/site.yaml,a/site.yaml")
    assert "Two sites are called 'a'" in refused("rehearse --sites */site.yaml,a/site.yaml")
    site(here, "d", own_graph(classes=4))
    assert "site 'd' has 4; all sites need the same" in refused(f"rehearse --sites {sites},d/site.yaml")
    site(here, "e", own_graph(), permits=["train_nodes"])
    said = refused(f"rehearse --sites {sites},e/site.yaml --method fedavg")
    assert "Site 'e' does not permit 'model.*' to leave, which fedavg sends" in said


def test_copies_keep_their_state_in_the_rehearsal(here: Path, sites: str) -> None:
    from fedquilt.federation.preparing import prepared

    copies, order = prepared([Path(one) for one in sites.split(",")], {"method": "fedavg"}, here / "out")
    assert order["out"] == str(here / "out" / "run")
    assert order["sites"] == 3
    for copy, name in zip(copies, "abc", strict=True):
        read = read_site(copy)
        assert Path(read.graph) == here / name / "graph.npz"
        assert Path(read.state) == here / "out" / "sites" / name / "state"
    assert np.all([not (here / name / "state").exists() for name in "abc"])
