"""The docs' own site.yaml files in a federation: what they say is permitted leaves, and nothing else does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedquilt[flower]'")

from fedquilt.errors import FedquiltError
from fedquilt.federation.site.check import check_site
from fedquilt.federation.site.examples import write_sites
from fedquilt.federation.site.ledger import Ledger
from fedquilt.federation.site.state import run_folders
from fedquilt.federation.site.status import site_status
from fedquilt.methods.base import federated_methods
from support.federations import ragged_clients
from support.flower_doubles import MemoryGrid, federation

DOCS = Path(__file__).parents[2] / "docs"
SIZES = (40, 30, 50)
LAYERS = {"model.conv1.weight", "model.conv1.bias", "model.conv2.weight", "model.conv2.bias"}


def documented_site() -> dict[str, Any]:
    """The fields of docs/sites.md's site.yaml but those that name places, classes, and keys of other sites."""
    text = (DOCS / "sites.md").read_text()
    values = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    own = ("name", "graph", "state", "secure_peers", "classes")
    return {name: value for name, value in values.items() if name not in own}


def documented_permits() -> list[list[str]]:
    """Every list of permits that the docs show."""
    text = " ".join("".join((DOCS / name).read_text() for name in ("sites.md", "federation.md", "privacy.md")).split())
    return [[word.strip() for word in found.split(",")] for found in re.findall(r"permits: \[([^\]]+)\]", text)]


def left(folder: Path) -> set[str]:
    """The names of all that left a site."""
    runs = run_folders(folder / "state")
    return {line["name"] for run in runs for line in Ledger(run).lines()}


def test_the_documented_site_trains_fedper(tmp_path: Path) -> None:
    """It was accepted once, and then every round failed at the site and was paid for."""
    pytest.importorskip("dp_accounting")
    clients = ragged_clients(SIZES)
    paths = write_sites(tmp_path, clients, **documented_site())
    for path in paths:
        assert "fedper" in check_site(path).permitted
        check_site(path, "fedper")
    there = federation(tmp_path, clients, MemoryGrid(paths), method="fedper", rounds=3, secure_aggregation=True)
    there.run()
    assert there.incidents.all == []
    assert [record["participants"] for record in there.folder.seed(3).records()] == ["all"] * 3
    for path in paths:
        assert left(path.parent) == {*LAYERS, "train_nodes"}  # with dp, no figures
        status = site_status(path)
        assert (status.rounds, status.protected_uploads, status.incident_count) == (3, 3, 0)


@pytest.mark.parametrize("permits", documented_permits(), ids=",".join)
def test_every_documented_list_of_permits_is_one_and_lets_its_methods_train(tmp_path: Path, permits: list[str]) -> None:
    clients = ragged_clients((14, 18))
    paths = write_sites(tmp_path, clients, permits=permits)
    ready = check_site(paths[0])  # refuses a permit that stands for nothing
    trains = [line.method for line in ready.methods if line.uploads and not line.refused]
    assert trains
    method = trains[-1]
    there = federation(tmp_path, clients, MemoryGrid(paths), method=method, rounds=2)
    there.run()
    assert there.incidents.all == []
    names = next(set(line.names) for line in ready.methods if line.method == method)
    assert left(paths[0].parent) == names | ({"figures"} if "figures" in permits else set())


@pytest.mark.parametrize("method", federated_methods())
def test_a_site_that_says_nothing_sends_weights_and_counts_only(tmp_path: Path, method: str) -> None:
    """And what the check says is what happens in a round: a method is either trained, or refused before anything leaves."""
    clients = ragged_clients((14, 18))
    paths = write_sites(tmp_path, clients)
    ready = check_site(paths[0])
    (line,) = (line for line in ready.methods if line.method == method)
    there = federation(tmp_path, clients, MemoryGrid(paths), method=method, rounds=2)
    if line.refused:
        with pytest.raises(FedquiltError) as error:
            there.run()
        assert f"'{line.needs}' in its site.yaml" in str(error.value)
        assert left(paths[0].parent) == set()
        return
    there.run()
    kinds = {spec.kind for spec, names in line.uploads if set(names) & left(paths[0].parent)}
    assert left(paths[0].parent) == set(line.names)
    assert kinds <= {"weights", "counts"}


@pytest.mark.long
def test_rehearse_with_the_documented_sites(tmp_path: Path) -> None:
    """Real processes, the docs' own site.yaml, FedPer; then FedSSA at sites that say nothing about permits."""
    pytest.importorskip("dp_accounting")
    documented = write_sites(tmp_path / "documented", ragged_clients(SIZES), **documented_site())
    silent = write_sites(tmp_path / "silent", ragged_clients(SIZES))
    for paths, method in ((documented, "fedper"), (silent, "fedssa")):
        sites, out = ",".join(map(str, paths)), tmp_path / method
        command = [
            sys.executable,
            "-m",
            "fedquilt",
            "rehearse",
            "--sites",
            sites,
            "--out",
            str(out),
            "--method",
            method,
        ]
        if method == "fedper":  # the documented site demands it
            command.append("--secure-aggregation")
        done = subprocess.run([*command, "--rounds", "2"], capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr
        assert not (out / "run" / "incidents.jsonl").exists()
        said = "'permits: [weights, counts, energy, class.mean, class.covariance, figures]' in site.yaml" in done.stderr
        assert said == (method == "fedssa")
        for path in sorted((out / "sites").glob("*/site.yaml")):
            status = site_status(path)
            assert (status.rounds, status.incident_count) == (2, 0)
            assert ("figures" in status.left) == (method == "fedssa")
