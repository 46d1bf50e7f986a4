"""A whole federation in memory: its run folder, restarts, budgets and robust aggregation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.export.sources import module_of
from fedquilt.federation.coordinator.engine import FlowerEngine
from fedquilt.federation.site.config import read_site
from fedquilt.federation.site.predict import predict
from fedquilt.runs.folder import RunFolder
from support.federations import ragged_clients, without_seconds
from support.flower_doubles import MemoryGrid, federation, site_models, site_states, write_open_sites
from support.tampering import header_of

SIZES = (25, 14, 31)


def test_without_reported_metrics_the_last_models_are_kept(tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES), permits=["model", "train_nodes"]))

    def tell(text: str) -> None:
        if text.startswith("Round 2"):
            raise KeyboardInterrupt

    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=4)
    there.say = tell
    with pytest.raises(KeyboardInterrupt):
        there.run()
    again = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=4)
    result = again.run()
    assert (result["test_mean"], result["val_mean"], result["seeds"][0]["best_round"]) == (None, None, 3)
    for model, facts in site_models(tmp_path):
        assert (facts["round"], facts["finished"]) == (3, True)
        assert "conv1.weight" in model
    assert predict(read_site(tmp_path / "site-0/site.yaml")).values.shape == (SIZES[0], 3)


def test_the_coordinators_folder_is_a_run_without_models(tmp_path: Path) -> None:
    federation(tmp_path, ragged_clients(SIZES), method="fedpub").run()
    run = fedquilt.load_run(tmp_path / "run")
    assert len(run.records[3]) == 3
    assert run.similarities[3]
    with pytest.raises(FedquiltError, match="its clients are sites"):
        module_of(run)
    with pytest.raises(FedquiltError, match="is of sites, which train it"):
        fedquilt.resume(tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(FedquiltError, match="is of sites, which train it"):
        fedquilt.load_run(tmp_path / "run")


PROTECTED = {"clip": 1.0, "noise": 20.0, "delta": 1e-5, "epsilon": 0.85}


def test_a_run_ends_when_all_budgets_are_spent(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    paths = write_open_sites(tmp_path, ragged_clients(SIZES), dp={**PROTECTED, "report": True})
    there = federation(tmp_path, ragged_clients(SIZES), MemoryGrid(paths), method="fedavg", rounds=9)
    there.run()
    records = there.folder.seed(3).records()
    assert 1 <= len(records) < 9
    assert None not in records[-1]["clients"]["val"]  # reported, as they asked for
    assert there.folder.result["seeds"][0]["epsilon"] <= 0.85


def test_robust_aggregation_is_a_setting(tmp_path: Path) -> None:
    there = federation(tmp_path / "a", ragged_clients(SIZES), method="fedavg", aggregation="median")
    there.run()
    plain = federation(tmp_path / "b", ragged_clients(SIZES), method="fedavg")
    plain.run()
    w = "model.conv1.weight"
    assert not torch.equal(site_states(tmp_path / "a")[0][w], site_states(tmp_path / "b")[0][w])
    with pytest.raises(FedquiltError, match="does not average"):
        federation(tmp_path / "c", ragged_clients(SIZES), method="local", aggregation="median").run()


def test_a_robust_average_of_two_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedquiltError, match="at least 3 clients and there are 2"):
        federation(tmp_path, ragged_clients((12, 9)), method="fedavg", aggregation="median").run()


def test_a_coordinator_restarted_after_its_last_round_knows_what_was_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dp_accounting")
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES), dp={**PROTECTED, "epsilon": None}))

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(FlowerEngine, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=2).run()
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=2)
    result = there.run()
    records = there.folder.seed(3).records()
    assert there.folder.seed(3).summary["epsilon"] == records[-1]["epsilon"] == result["seeds"][0]["epsilon"]


class KilledError(Exception):
    pass


@pytest.mark.parametrize("name", ["fedavg", "fedpub", "fedssa", "fedsheafhn", "quilt"])
@pytest.mark.parametrize("when", ["in a round", "after a round"])
def test_a_killed_coordinator_goes_on(name: str, when: str, tmp_path: Path) -> None:
    plain = federation(tmp_path / "b", ragged_clients(SIZES), method=name, rounds=4)
    plain.run()
    grid = MemoryGrid(write_open_sites(tmp_path / "a", ragged_clients(SIZES)))

    def die(who: int, message: Message, reply: Message) -> Message | None:
        if (who, header_of(message).get("round")) == (1001, 2):  # two sites have trained, the third has not
            raise KilledError
        return reply

    there = federation(tmp_path / "a", ragged_clients(SIZES), grid, method=name, rounds=4)
    if when == "in a round":
        grid.tamper = die
    else:

        def tell(text: str) -> None:
            if text.startswith("Round 3"):
                raise KilledError

        there.say = tell
    with pytest.raises(KilledError):
        there.run()
    grid.tamper = lambda who, message, reply: reply
    again = federation(tmp_path / "a", ragged_clients(SIZES), grid, method=name, rounds=4)
    again.run()
    assert without_seconds(again.folder.seed(3).records()) == without_seconds(plain.folder.seed(3).records())
    for mine, other in zip(site_states(tmp_path / "a"), site_states(tmp_path / "b"), strict=True):
        assert all(torch.equal(mine[n].nan_to_num(), other[n].nan_to_num()) for n in other if n != "answer")
    for mine, other in zip(site_models(tmp_path / "a"), site_models(tmp_path / "b"), strict=True):
        assert mine[1]["round"] == other[1]["round"]
        assert all(torch.equal(mine[0][n], other[0][n]) for n in other[0])
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    first = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg").run()
    sent = len(grid.sent)
    assert federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg").run() == first
    assert len(grid.sent) == sent
    with pytest.raises(FedquiltError, match="another method"):
        federation(tmp_path, ragged_clients(SIZES), grid, method="fedprox").run()


def stopped(tmp_path: Path) -> MemoryGrid:
    """A federation whose coordinator was stopped after its second round."""
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))

    def tell(text: str) -> None:
        if text.startswith("Round 2"):
            raise KilledError

    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=4)
    there.say = tell
    with pytest.raises(KilledError):
        there.run()
    return grid


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": {"lr": 9.0}}, "settings.lr was 0.01 and is now 9.0 in"),
        ({"clients": 9}, "clients was 3 and is now 9 in"),
        ({"versions": {}}, "versions.fedquilt was"),
    ],
)
def test_a_coordinator_does_not_go_on_with_a_config_that_was_changed(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    grid = stopped(tmp_path)
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FedquiltError, match=r"put back what it began with, or choose another 'out'") as caught:
        federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=4)
    assert said in str(caught.value)


def test_a_coordinator_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    grid = stopped(tmp_path)
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    del config["versions"]
    path.write_text(json.dumps(config))
    (tmp_path / "run" / "seal.json").unlink()
    assert federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=4).run()["test_mean"] is not None


def test_metrics_of_a_coordinator_are_sealed_by_its_checkpoint(tmp_path: Path) -> None:
    grid = stopped(tmp_path)
    path = tmp_path / "run" / "seed-3" / "metrics.jsonl"
    path.write_text(path.read_text().replace('"val":', '"val":1', 1))
    with pytest.raises(FedquiltError, match=r"metrics\.jsonl was changed or damaged: its records up to round 1"):
        federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=4).run()


def test_the_result_of_a_coordinator_that_was_changed_is_not_believed(tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg").run()
    path = tmp_path / "run" / "result.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"test_mean": 99.9}))
    with pytest.raises(FedquiltError, match=r"result\.json was changed: its test_mean is 99\.9"):
        federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg").run()
    path.unlink()
    again = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg").run()
    assert again["test_mean"] == result["test_mean"]


def test_a_coordinator_that_is_killed_before_its_config_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))

    def die(*_: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "config", property(None, die))
        with pytest.raises(KilledError):
            federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg").run()
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left >= {"sites.json", "seal.json"}
    assert "config.json" not in left
    (tmp_path / "run" / ".config.json.77-0123abcd.tmp").touch()
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg")
    assert there.run()["test_mean"] is not None
    assert not (tmp_path / "run" / ".config.json.77-0123abcd.tmp").exists()
