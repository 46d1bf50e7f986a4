"""`fedquilt rehearse`: what is refused before anything starts. Real rehearsals are in tests/federation/test_end_to_end.py."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from support.small_runs import own_graph


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
        ("--metric f2", "There is no metric 'f2'"),
        ("--rounds 0", "--rounds is 0; it has to be at least 1."),
        ("--epochs 0", "--epochs is 0; it has to be at least 1."),
        ("--seed -1", "--seed is -1; it has to be at least 0."),
        ("--timeout inf", "--timeout is inf; say how many seconds"),
        ("--timeout nan", "--timeout is nan; say how many seconds"),
        ("--timeout 0", "--timeout is 0; say how many seconds"),
        ("--min-sites 4", "min-sites is 4 and there are 3 sites"),
        ("--method local --aggregation median", "does not average"),
        ("--method fedpub --secure-aggregation", "does not work with fedpub: its server compares"),
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
    assert "--sites has an empty name in it" in refused(f"rehearse --sites {sites},")
    assert "--sites has an empty name in it" in refused("rehearse --sites=")
    assert "a is a folder; name its site.yaml, such as a/site.yaml." in refused("rehearse --sites a,b/site.yaml")
    assert "a is a folder; name its site.yaml" in refused("rehearse --sites *")
    site(here, "d", own_graph(classes=4))
    assert "site 'd' has 4; all sites need the same" in refused(f"rehearse --sites {sites},d/site.yaml")
    site(here, "e", own_graph(), permits=["train_nodes"])
    said = refused(f"rehearse --sites {sites},e/site.yaml --method fedavg")
    assert "Site 'e' does not permit 'model.conv1.weight'" in said
    assert "or ask that site to write 'permits: [train_nodes, weights]' in its site.yaml" in said


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"split": "given"}, "split"),
        ({"split": "99/0.5/0.5"}, "too few to split"),
        ({"dp": {"clip": 1.0, "noise": 0.1, "epsilon": 0.5}}, "more than the budget of 0.5"),
        ({"permits": ["modle"]}, "did you mean 'model'?"),
    ],
)
def test_sites_that_are_not_ready_are_refused(
    refused: Callable, here: Path, sites: str, more: dict[str, object], says: str
) -> None:
    site(here, "d", own_graph(), **more)
    said = refused(f"rehearse --sites {sites},d/site.yaml --method fedavg")
    assert said.startswith("Site 'd' is not ready: ")
    assert says in said


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_split_that_leaves_nothing_is_refused(refused: Callable, here: Path, sites: str, part: str) -> None:
    graph = own_graph(masks=True)
    assert graph.masks is not None
    site(here, "d", replace(graph, masks={**graph.masks, part: np.zeros(90, bool)}))
    said = refused(f"rehearse --sites {sites},d/site.yaml --method fedavg")
    assert said.startswith("Site 'd' is not ready: ")
    assert f"without a labelled {part} node" in said


def test_a_site_that_keeps_its_state_elsewhere_is_tried_as_its_copy(here: Path, sites: str) -> None:
    site(here, "d", own_graph(), state="/proc/nobody-writes-here")
    with prepared_in(here / "out", f"{sites},d/site.yaml") as (copies, _):
        assert len(copies) == 4


@pytest.mark.parametrize("out", ["file", "file/x", "/proc/x", "a", "lock-only-in-name"])
def test_folders_that_cannot_be_used_are_refused(refused: Callable, here: Path, sites: str, out: str) -> None:
    (here / "file").write_text("mine")
    (here / "lock-only-in-name" / "sites" / "a").mkdir(parents=True)
    says = {
        "file": "file cannot be made: ",
        "file/x": "file is a file; choose another --out.",
        "/proc/x": "/proc/x cannot be written to (",
        "a": "a has something else in it ('graph.npz'); choose another --out.",
        "lock-only-in-name": "has something else in it ('sites'); choose another --out.",
    }
    assert says[out] in refused(f"rehearse --sites {sites} --out {out}")


def test_a_folder_without_permission_is_refused(
    refused: Callable, here: Path, sites: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, dir: Path) -> None:
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr("fedquilt.common.writable.tempfile.TemporaryFile", denied)
    said = refused(f"rehearse --sites {sites} --out out")
    assert said == f"{here / 'out'} cannot be written to (Permission denied); choose another --out."


def prepared_in(out: Path, sites: str, **order: object) -> AbstractContextManager[tuple[list[Path], dict]]:
    from fedquilt.federation.local.prepare import prepared

    return prepared([Path(one) for one in sites.split(",")], {"method": "fedavg", **order}, out)


def test_one_rehearsal_at_a_time_in_a_folder(refused: Callable, here: Path, sites: str) -> None:
    with prepared_in(here / "out", sites):
        copy = here / "out" / "sites" / "a" / "site.yaml"
        before = copy.stat().st_mtime_ns
        said = refused(f"rehearse --sites {sites} --method fedavg --out out")
        assert f"{here / 'out'} is being written by process {os.getpid()}" in said
        assert copy.stat().st_mtime_ns == before


@pytest.fixture
def stopped(here: Path, sites: str) -> Path:
    """A rehearsal that was stopped in a round, as far as its folder tells."""
    from fedquilt.federation.coordinator.config import FederationConfig

    out = here / "out"
    with prepared_in(out, sites, rounds=3, settings={"hidden": 8}) as (_, order):
        kept = {"order": FederationConfig.read(order).model_dump(), "federation": {"sites": list("abc")}}
        (out / "run").mkdir()
        (out / "run" / "config.json").write_text(json.dumps(kept))
        (out / "private").mkdir()
    return out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--method fedpub --rounds 3 --set hidden=8", 'another method ("fedavg")'),
        ("--method fedavg --rounds 4 --set hidden=8", "another rounds (3)"),
        ("--method fedavg --rounds 3 --set hidden=16", 'another settings ({"hidden": 8})'),
    ],
)
def test_what_was_stopped_is_not_gone_on_with_as_something_else(
    refused: Callable, stopped: Path, sites: str, options: str, says: str
) -> None:
    said = refused(f"rehearse --sites {sites} --out out {options}")
    assert f"{stopped} holds a rehearsal with {says}; choose another --out, or ask for the same." in said
