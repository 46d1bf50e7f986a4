"""Protected uploads in a training: every method, what is written down, budgets, resuming, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, dense
from fedquilt.methods.base import methods
from fedquilt.privacy.accountant import spent_epsilon
from fedquilt.privacy.dp import DpConfig, Privatiser, Protection
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import make_method, make_task, make_training, ragged_clients, without_seconds
from support.small_runs import stop_after

pytest.importorskip("dp_accounting", reason="needs the extra dp")

SMALL: dict[str, Any] = {"clients": 5, "rounds": 4, "device": "cpu", "settings": {"hidden": 8}}
CLIENTS = ragged_clients()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def training(name: str, noise: float, clip: float = 1.0, cohort_size: int | None = None, **options: Any) -> Training:
    method = make_method(name, CLIENTS, make_task(CLIENTS), **options)
    made = Privatiser(DpConfig(clip=clip, noise=max(noise, 1e-3)), 3, method.context.seed)
    made.noise = noise  # also less than can be asked for
    protection = Protection(made, tuple(range(1, method.total_rounds(3) + 1)), method.public_start())
    return make_training(method, CLIENTS, Plan(3), cohort_size, upload_transforms=[protection])


@pytest.mark.parametrize("name", list(methods()))
@pytest.mark.parametrize("noise", [0.1, 1000.0])
def test_every_method_trains_on_noised_uploads(name: str, noise: float) -> None:
    mine = training(name, noise)
    mine.run()
    evaluated = [record for record in mine.records if mine.method.phase(record["round"])[0].evaluated]
    assert [len(record["clients"]["test"]) for record in evaluated] == [5] * len(evaluated)
    assert len(mine.records) == mine.plan.rounds
    assert all(torch.isfinite(tensor).all() for tensor in mine.progress.best.models.values())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedpub", {"similarity": "label"}),
        ("fedpub", {"similarity": "gradient"}),
        ("fedpub", {"threshold": 0.5}),
        ("fedpub", {"matching": False}),
        ("fediih", {"divergence": "mean"}),
        ("fedssa", {"components": 2}),
        ("quilt", {"share": "layer,head,filter"}),
    ],
    ids=str,
)
def test_so_they_do_with_other_settings(name: str, settings: dict[str, Any]) -> None:
    mine = training(name, 100.0, **settings)
    mine.run()
    assert len(mine.records) == 3


@pytest.mark.parametrize("name", ["fedavg", "fedpub", "fedssa"])
def test_the_server_gets_nothing_but_protected_uploads(name: str) -> None:
    mine = training(name, 1e-12, clip=0.5)
    sent: list[tuple[Message, Message]] = []
    aggregate = type(mine.method).aggregate

    def watched(server: Any, uploads: Message, *rest: Any) -> Message:
        known = mine.runner.upload_transforms[0].known | mine.down
        sent.append((dict(uploads), {n: known[n] for n in uploads if n in known}))
        return aggregate(mine.method, server, uploads, *rest)

    mine.runner.aggregate = watched
    mine.run()
    assert len(sent) == 3
    counts = {c.name for c in mine.method.uploads if c.count}
    for uploads, known in sent:
        total = torch.zeros(5, dtype=torch.float64)
        for upload, value in uploads.items():
            tensor = dense(value)
            if upload in counts:
                assert torch.equal(tensor, torch.ones_like(tensor))
                continue
            base = dense(known[upload]) if upload in known else torch.zeros(())
            fits = base.shape in (tensor.shape, tensor.shape[1:])
            total += (tensor - base if fits else tensor).double().flatten(1).square().sum(1)
        assert (total.sqrt() <= 0.5001).all()
        assert (total.sqrt() > 0.01).any()


@pytest.mark.parametrize("name", ["fedavg", "fedpub", "fedssa", "quilt"])
def test_cohorts_change_nothing(name: str) -> None:
    whole, ones = training(name, 0.5), training(name, 0.5, cohort_size=1)
    for one in (whole, ones):
        one.runner.run(0)
    for download, value in whole.down.items():
        assert_near(dense(value), dense(ones.down[download]), tolerance=1e-4)


def test_what_is_spent_is_written_down(tmp_path: Path) -> None:
    run = fedquilt.run("fedavg", **SMALL, dp_clip=1.0, dp_noise=5.0, seeds=[0, 1], out="protected")
    for seed in (0, 1):
        spent = [record["epsilon"] for record in run.records[seed]]
        assert spent == [spent_epsilon(5.0, rounds, 1e-5) for rounds in (1, 2, 3, 4)]
        summary = json.loads((tmp_path / f"protected/seed-{seed}/summary.json").read_text())
        assert summary["epsilon"] == spent[-1]
        assert summary["dp"] == {"clip": 1.0, "noise": 5.0, "delta": 1e-5, "epsilon": None}
        assert run.result["seeds"][seed]["epsilon"] == spent[-1]
    plain = fedquilt.run("fedavg", **SMALL)
    assert "epsilon" not in plain.records[0][0]
    assert "epsilon" not in plain.result["seeds"][0]


def test_a_budget_alone_is_spent_over_the_planned_rounds() -> None:
    run = fedquilt.run("fedavg", **SMALL, dp_clip=1.0, dp_epsilon=3.0)
    assert len(run.records[0]) == 4
    assert 2.999 < run.result["seeds"][0]["epsilon"] <= 3.0


def test_a_run_stops_before_it_would_exceed_its_budget() -> None:
    options = {"dp_clip": 1.0, "dp_noise": 5.0, "evaluate_every": 3}
    budget = spent_epsilon(5.0, 2, 1e-5) + 0.01
    run = fedquilt.run("fedavg", **SMALL, **options, dp_epsilon=budget)
    assert [record["round"] for record in run.records[0]] == [0, 1]
    assert run.result["seeds"][0]["best_round"] == 1  # the last round is evaluated
    assert run.result["seeds"][0]["epsilon"] <= budget


def test_the_client_that_sent_most_counts() -> None:
    run = fedquilt.run("fedavg", **SMALL, participation=0.4, dp_clip=1.0, dp_noise=5.0)
    sent = [0] * 5
    for record in run.records[0]:
        for client in record["participants"]:
            sent[client] += 1
        assert record["epsilon"] == spent_epsilon(5.0, max(sent), 1e-5)
    assert max(sent) < 4


def test_who_sends_nothing_spends_nothing() -> None:
    for name in ("local", "majority"):
        run = fedquilt.run(name, "patchwork", clients=5, rounds=2, device="cpu", dp_clip=1.0, dp_epsilon=0.5)
        assert run.result["seeds"][0]["epsilon"] == 0.0


def test_rounds_at_home_cost_nothing() -> None:
    """AdaFGL's second phase sends nothing: epsilon stays where the first phase left it."""
    run = fedquilt.run("adafgl", **SMALL | {"rounds": 2}, dp_clip=1.0, dp_noise=5.0)
    spent = [record["epsilon"] for record in run.records[0]]
    assert spent == [spent_epsilon(5.0, sent, 1e-5) for sent in (1, 2, 2, 2)]
    assert [bool(record["bytes_up"]) for record in run.records[0]] == [True, True, False, False]


def test_a_budget_that_ends_before_the_models_of_the_result_is_refused() -> None:
    enough = spent_epsilon(5.0, 2, 1e-5)
    says = rf"epsilon {enough:g} ends in round 2 of 8, in AdaFGL's phase 'extractor', whose models are not the result"
    with pytest.raises(FedquiltError, match=says):
        fedquilt.run("adafgl", **SMALL, dp_clip=1.0, dp_noise=5.0, dp_epsilon=enough)
    whole = fedquilt.run("adafgl", **SMALL | {"rounds": 2}, dp_clip=1.0, dp_noise=5.0, dp_epsilon=enough)
    assert len(whole.records[0]) == 4


@pytest.mark.parametrize(
    ("name", "settings", "sends"),
    [
        ("fedhero", {"share": "none"}, False),
        ("fedhero", {"share": "gcn"}, True),
        ("fedssa", {"semantic": False, "structural": False}, False),
        ("fedssa", {"semantic": False}, True),
        ("quilt", {"share": ""}, False),
        ("quilt", {"share": "filter"}, True),
    ],
    ids=str,
)
def test_settings_with_which_nothing_is_sent_spend_nothing(name: str, settings: dict[str, Any], sends: bool) -> None:
    options = SMALL | {"rounds": 2, "settings": SMALL["settings"] | settings}
    run = fedquilt.run(name, **options, dp_clip=1.0, dp_noise=5.0)
    assert all((record["epsilon"] > 0) == bool(record["bytes_up"]) == sends for record in run.records[0])


def test_a_summary_has_the_largest_epsilon_that_any_site_told() -> None:
    """A coordinator that is started again after its last round was told nothing itself; the records were."""
    pytest.importorskip("flwr", reason="needs Flower")
    from fedquilt.federation.coordinator.coordinator import largest_epsilon

    records = [{"round": 0, "epsilon": 1.5}, {"round": 1, "epsilon": 2.5}, {"round": 2}]
    assert largest_epsilon([*records, {}]) == {"epsilon": 2.5}
    assert largest_epsilon([*records, {"epsilon": 3.0}]) == {"epsilon": 3.0}  # of a round that came to nothing
    assert largest_epsilon([{"round": 0}, {}]) == {}


def test_a_resumed_run_is_the_same_run(tmp_path: Path) -> None:
    options = {**SMALL, "dp_clip": 1.0, "dp_noise": 0.5, "checkpoint_seconds": 0.0}
    whole = fedquilt.run("fedpub", **options)

    from fedquilt.runs.config import RunConfig
    from fedquilt.runs.execute import execute_run

    with pytest.raises(KeyboardInterrupt):
        execute_run(RunConfig.build({"method": "fedpub", **options}), tmp_path / "halted", watch=stop_after(0, 1))
    again = fedquilt.resume(tmp_path / "halted")
    assert without_seconds(again.records[0]) == without_seconds(whole.records[0])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"dp_clip": 1.0},
            "The option dp_epsilon=None is not possible: dp_clip wants dp_noise beside it, or dp_epsilon",
        ),
        ({"dp_noise": 1.0}, "The option dp_noise=1.0 is not possible: uploads are not clipped; say to which norm with"),
        ({"dp_epsilon": 1.0}, "The option dp_epsilon=1.0 is not possible: uploads are not clipped"),
        ({"dp_delta": 1e-3}, "The option dp_delta=0.001 is not possible: uploads are not clipped"),
        ({"dp_clip": -1.0, "dp_noise": 1.0}, "The option dp_clip=-1.0 is not possible: input should be greater than"),
        (
            {"dp_clip": 1.0, "dp_noise": 1.0, "dp_epsilon": 0.1},
            "One round with noise 1 spends epsilon 10, .*use more noise",
        ),
        (
            {"dp_clip": 1.0, "dp_noise": 1.0, "hold_out_clients": 0.2},
            "The option dp_clip=1.0 is not possible: clients that are held out send unprotected; leave out hold_out_clients",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_before_anything_trains(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedquiltError, match=sentence):
        fedquilt.run("fedavg", **SMALL, **options, out="nothing")
    assert not Path("nothing").exists()


def test_without_the_accountant_nothing_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(FedquiltError, match="accounted for by dp-accounting, which is not installed"):
        fedquilt.run("fedavg", **SMALL, dp_clip=1.0, dp_noise=1.2345, out="nothing")
    assert not Path("nothing").exists()
