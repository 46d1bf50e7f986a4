from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from fedquilt.federation.site.budget import Budget
from fedquilt.federation.site.check import check_site
from fedquilt.federation.site.config import SiteConfig, read_site
from fedquilt.federation.site.ledger import Ledger
from fedquilt.federation.site.log import SiteLog
from fedquilt.federation.site.state import SiteState
from fedquilt.messages.message import TensorSpec
from fedquilt.methods.base import federated_methods
from fedquilt.privacy.accountant import spent_epsilon
from fedquilt.privacy.dp import DpConfig
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun
from support.federations import ragged_clients
from support.trained_sites import as_file, client_at, write_site

CLIENT = ragged_clients((40,))[0]


def test_a_site_that_is_ready_says_what_would_leave_it(call: Callable, here: Path) -> None:
    write_site(here, as_file(CLIENT), permits=["model.conv*", "train_nodes", "figures"])
    before = sorted(here.rglob("*"))
    called = call("site check site.yaml")
    assert called.status == 0, called.err
    assert called.err == ""
    assert sorted(here.rglob("*")) == before
    assert all(name in called.out for name in federated_methods())
    assert "How many training nodes the client has." in called.out
    assert "model (not permitted in part)" in called.out
    assert re.search(r"│ model\.conv\* +│ .*model\.conv1\.weight, .*model\.conv2\.bias", called.out)
    assert "14 train, 12 val, 13 test" in called.out
    assert "\nFeatures: Numeric columns are standardised by this site's own statistics" in called.out
    assert "no differential privacy" in called.out
    assert (
        "Not ready for fedpub, which sends 'model.classifier.weight', 'model.classifier.bias', 'embedding' too"
        in called.out
    )
    found = check_site(here / "site.yaml")
    assert {"fedper", "local", "majority"} <= set(found.permitted)
    others = [name for name in federated_methods() if name not in found.permitted]
    assert {"fedavg", "fedhero", "fediih", "fedprox", "fedpub", "fedsheafhn", "fedssa", "quilt"} <= set(others)
    assert called.out.endswith(
        f"Permitted: {', '.join(found.permitted)}.\nSite 'st-anna' is ready for these, and not for {', '.join(others)}.\n"
    )
    write_site(here, as_file(CLIENT), permits="all")
    assert call("site check site.yaml").out.endswith("Site 'st-anna' is ready.\n")


def test_a_site_that_says_nothing_about_permits_is_told_what_to_write(
    call: Callable, refused: Callable, here: Path
) -> None:
    write_site(here, as_file(CLIENT))
    said = call("site check site.yaml").out
    assert "does not say what may leave (permits), so only weights and counts may" in said
    assert (
        "Not ready for fedpub, which sends 'embedding' too; it needs 'permits: [weights, counts, embedding]'." in said
    )
    assert "Losses and metrics (figures) stay here" in said
    assert refused("site check site.yaml --method fedpub") == (
        "Site 'st-anna' is not ready for fedpub, which sends 'embedding' too; to let that leave, write "
        "'permits: [weights, counts, embedding]' in its site.yaml."
    )
    assert call("site check site.yaml --method fedpub --set matching=false").status == 0
    assert "say which one with --method" in refused("site check site.yaml --set hidden=3")


def test_a_site_that_permits_nothing_is_told_what_that_means(call: Callable, here: Path) -> None:
    write_site(here, as_file(CLIENT), permits=[])
    called = call("site check site.yaml")
    silent = ", ".join(name for name, kind in federated_methods().items() if not kind.uploads)
    assert f"no method may run here but those that send nothing: {silent}." in called.out


def test_brackets_in_names_are_no_markup(call: Callable, here: Path) -> None:
    write_site(here, as_file(CLIENT), state="[bold]")
    called = call("site check site.yaml")
    assert called.status == 0, called.err
    assert "[bold]" in called.out


def test_what_is_wrong_is_one_sentence(refused: Callable, here: Path) -> None:
    assert "cannot be read" in refused("site check site.yaml")
    write_site(here, as_file(CLIENT), permits=["modle"])
    assert refused("site check site.yaml") == "There is no upload 'modle'; did you mean 'model'?"
    write_site(here, as_file(CLIENT), graph="lost.npz")
    assert "lost.npz" in refused("site check site.yaml")
    write_site(here, as_file(CLIENT), dp={"clip": -1, "noise": 1})
    assert "dp.clip=-1 is not possible" in refused("site check site.yaml")
    (here / "graph.npz").write_text("no graph")
    (here / "site.yaml").write_text("{name: a, graph: graph.npz, state: s}")
    assert "graph.npz is not an npz file" in refused("site check site.yaml")


def test_example_sites_are_the_clients_of_a_cut(call: Callable, refused: Callable, here: Path) -> None:
    called = call("site example sites --clients 3")
    assert called.status == 0, called.err
    assert "fedquilt rehearse --sites" in called.out
    paths = sorted(here.glob("sites/*/site.yaml"))
    clients = ResolvedRun(RunConfig(dataset="patchwork", clients=3, seeds=[0])).clients(0)
    for client, path in zip(clients, paths, strict=True):
        own = client_at(read_site(path))
        assert np.array_equal(own.graph.edges, client.graph.edges)
        assert np.array_equal(own.split, client.split)
        assert call(f"site check {path}").status == 0
    assert "sites is already there" in refused("site example sites")
    assert "There is no dataset 'coral'" in refused("site example others --dataset coral")
    assert not (here / "others").exists()


def test_examples_that_cannot_be_written_are_one_sentence(
    refused: Callable, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "file").write_text("")
    assert "file/x cannot be made" in refused("site example file/x")
    assert "/proc/x cannot be written to" in refused("site example /proc/x")

    def forbidden(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_file", forbidden)
        assert "sealed/x cannot be written to (Permission denied)" in refused("site example sealed/x")


def test_a_disk_that_is_full_is_one_sentence(call: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedquilt.federation.site.examples.write_text", full)
    called = call("site example sites")
    assert called.status == 3
    assert "sites/site-0 cannot be written to (No space left on device)" in called.sentence


def test_the_key_of_a_site_is_one_line_and_stays(call: Callable) -> None:
    call("site example sites")
    first, again, other = (call(f"site key sites/site-{m}/site.yaml").out for m in (0, 0, 1))
    assert re.fullmatch(r"[0-9a-f]{64}\n", first)
    assert again == first != other


def test_a_site_that_demands_masks_is_told_which_methods_run(call: Callable, here: Path) -> None:
    call("site example sites")
    with open(here / "sites/site-0/site.yaml", "a") as file:
        file.write("permits: all\nsecure_aggregation: required\n")
    out = call("site check sites/site-0/site.yaml").out
    assert "not masked" in out
    able = [name for name, kind in federated_methods().items() if not (kind.uploads and kind.single_uploads)]
    assert {"fedavg", "fedhero", "fedper", "fedprox", "local", "majority", "quilt"} <= set(able)
    assert f"Permitted: {', '.join(able)}." in out


def test_the_help_says_what_a_site_is(call: Callable) -> None:
    group = call("site --help").out
    example = "\n".join(line for line in group.splitlines() if line.strip().startswith(tuple(SiteConfig.model_fields)))
    assert set(yaml.safe_load(example)) == {"name", "graph", "state", "permits"}
    assert "SITE is the site's site.yaml" in call("site check --help").out
    assert "FOLDER is the folder to write" in call("site example --help").out


def test_the_status_of_a_site(call: Callable, refused: Callable, here: Path) -> None:
    write_site(here, as_file(CLIENT))
    assert "never" in call("site status").out  # site.yaml in this folder
    assert "cannot be read" in refused("site status nowhere.yaml")
    run = here / "state" / "0123abcd"
    Ledger(run).write(2, {"model.w": torch.ones(1, 5)}, (TensorSpec("model.*", "All."),))
    SiteState(run).note(method="fedavg", rounds=9, trained=3, last="2026-11-16T15:00:00+00:00")
    for number in range(25):
        SiteLog(here / "state").incident("refused", f"Number [bold]{number}[/].", "0123abcd")
    called = call("site status site.yaml")
    assert called.status == 0, called.err
    for said in (
        "fedavg",
        "3 of 9",
        "model.w",
        "2026-11-16T15:00:00+00:00",
        "20 bytes",
        "refused: Number [bold]24[/].",
    ):
        assert said in called.out
    assert called.out.endswith("5 incidents before these are in incidents.jsonl of the state folder.\n")
    found = json.loads(call("site status site.yaml --json").out)
    assert (found["rounds"], found["left"], found["incident_count"]) == (3, {"model.w": {"times": 1, "bytes": 20}}, 25)


def test_the_status_of_a_site_with_a_budget(call: Callable, here: Path) -> None:
    pytest.importorskip("dp_accounting")
    write_site(here, as_file(CLIENT), dp={"clip": 1.0, "noise": 4.0, "epsilon": 50.0})
    Budget(here / "state", DpConfig(clip=1.0, noise=4.0)).spend(4.0)
    assert f"{spent_epsilon(4.0, 1, 1e-5):.3g} of 50, in 1 uploads" in call("site status").out


def test_what_keeps_a_site_running_is_written_once(call: Callable, refused: Callable, here: Path) -> None:
    write_site(here, as_file(CLIENT))
    (here / "ca.crt").write_text("certificate")
    (here / "node-key").write_text("key")
    called = call("site service site.yaml --coordinator coordinator.example:8000 --out keep")
    assert called.status == 0, called.err
    assert sorted(path.name for path in (here / "keep").iterdir()) == ["Containerfile", "fedquilt-site.service"]
    assert "systemctl enable --now fedquilt-site.service" in called.out
    assert "keep" in refused("site service site.yaml --coordinator coordinator.example:8000 --out keep")
    assert "no address with a port" in refused("site service site.yaml --coordinator here --out other")
    assert not (here / "other").exists()
