"""Every method with three sites over Flower's real processes, against the same in this process. `make test-long`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedquilt.federation.local.rehearsal import Rehearsal
from fedquilt.federation.site.state import SiteState
from fedquilt.methods.base import federated_methods
from fedquilt.runs.folder import RunFolder
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import make_method, make_task, make_training, ragged_clients, small_settings
from support.flower_doubles import write_open_sites
from support.rehearsals import SIZES, USUAL, until

pytestmark = pytest.mark.long


def test_every_method_trains_over_flower_as_in_process(tmp_path: Path) -> None:
    clients, rounds = ragged_clients(SIZES), 2
    with Rehearsal(write_open_sites(tmp_path, clients), tmp_path / "logs") as rehearsal:
        for name in federated_methods():
            order = {**USUAL, "out": str(tmp_path / name), "method": name, "rounds": rounds}
            order["settings"] = small_settings(name)
            run = rehearsal.start_run(order, name)
            until(lambda run=run: run.poll() is not None, 120, f"{name} ends")
            assert (tmp_path / name / "result.json").exists(), rehearsal.group.output(name)
    for name in federated_methods():
        here = make_training(make_method(name, clients, make_task(clients)), clients, Plan(rounds))
        here.run()
        folder = RunFolder.open(tmp_path / name)
        assert not (folder.path / "incidents.jsonl").exists()
        for mine, other in zip(folder.seed(3).records(), here.records, strict=True):
            for key in ("val", "test", "train_loss", "val_loss"):
                assert mine[key] == pytest.approx(other[key], rel=1e-5, abs=1e-5, nan_ok=True), (name, key)
        for m, client in enumerate(clients):
            kept = SiteState(tmp_path / f"site-{client.id}" / "state" / folder.config["federation"]["run"])
            for weight, tensor in kept.load_model()[0].items():
                assert_near(tensor, here.progress.best.models[weight][m])
