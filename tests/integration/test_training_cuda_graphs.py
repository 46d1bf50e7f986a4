"""On an accelerator: captured rounds give what eager rounds give, for every method. Skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedquilt.messages.message import Factored
from fedquilt.methods import fedpub
from fedquilt.methods.base import methods
from fedquilt.nn.models import Model
from fedquilt.training import captured_rounds
from fedquilt.training.attendance import Conditions
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.loop import Training
from fedquilt.training.plan import BEST, Plan
from support.clients import assert_near
from support.federations import make_method, make_task, ragged_clients

on_accelerator = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an accelerator, and there is none here"
)
ROUNDS = 12
# Methods of which two runs of the same rounds may differ in last bits, captured or not, and why.
NOT_REPRODUCIBLE = {
    "fedhero": "sums over latent neighbours by atomic additions (index_add)",
    "fediih": "the gradient of index_select adds atomically",
}
# Methods of whose rounds nothing is captured, and why.
NOT_CAPTURED = {"majority": "it has a single round"}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in methods()),
    *(("fedavg", {"model": kind}) for kind in Model.kinds),
    *(("fedpub", {"model": kind}) for kind in ("gin", "gamlp")),
    ("fedpub", {"threshold": 0.5}),
    ("fedsheafhn", {"refresh": 2, "fresh_moments": False}),
    ("quilt", {"share": "layer,head,filter", "identity": 4}),
]


def on_cuda(name: str, settings: dict[str, Any], plan: Plan, captured: bool) -> Training:
    """Clients of so many nodes that one answer more or less is a third of a percent."""
    clients = ragged_clients((180, 150, 210, 165, 195))
    method = make_method(name, clients, make_task(clients, epochs=2), **settings)
    return Training(method, InProcess(method, clients, "cuda"), plan, cuda_graphs=captured)


@on_accelerator
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_captured_rounds_are_those_one_by_one(name: str, settings: dict[str, Any], every: int) -> None:
    plan = Plan(ROUNDS, evaluate_every=every)
    replayed, single = (on_cuda(name, settings, plan, captured) for captured in (True, False))
    replayed.run()
    single.run()
    assert single.captured is None
    if name in NOT_CAPTURED:
        assert replayed.captured is None or replayed.captured.startswith("nothing: ")
    else:
        assert replayed.captured == ("clients" if replayed.method.host_server else "rounds")
    loose = name in NOT_REPRODUCIBLE or settings.get("model") == "gat"  # attention adds atomically
    near = 2.0 if loose else 1e-3
    assert len(replayed.records) == len(single.records)
    for mine, other in zip(replayed.records, single.records, strict=True):
        assert set(mine) == set(other)
        if settings.get("threshold") is None:
            assert (mine["bytes_up"], mine["bytes_down"]) == (other["bytes_up"], other["bytes_down"])
        if "val" in mine:
            for part in ("val", "test"):
                assert mine[part] == pytest.approx(other[part], abs=near)
            if other["train_loss"] is not None:
                assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-2)
    assert set(replayed.similarities) == set(single.similarities)
    if not loose:
        assert replayed.progress.best.round == single.progress.best.round
        for weight, model in replayed.progress.best.models.items():
            assert_near(model, single.progress.best.models[weight], 1e-3)
        for round, similarity in replayed.similarities.items():
            assert_near(similarity.cpu(), single.similarities[round].cpu(), 1e-3)


@on_accelerator
@pytest.mark.parametrize(
    ("share", "conditions"),
    [(0.6, Conditions()), (1.0, Conditions(drop_out=0.3, leave=0.2, leave_round=8))],
    ids=["participation", "lost and left"],
)
@pytest.mark.parametrize("name", [name for name, m in methods().items() if not m.single_round and not m.pools_graphs])
def test_captured_rounds_of_some_are_those_of_the_participants_alone(
    name: str, share: float, conditions: Conditions
) -> None:
    plan = Plan(2 * ROUNDS, share, conditions=conditions)
    replayed, single = (on_cuda(name, {}, plan, captured) for captured in (True, False))
    for each in (replayed, single):
        each.run()
    assert replayed.captured == ("clients" if replayed.method.host_server else "rounds")
    for mine, other in zip(replayed.records, single.records, strict=True):
        for entry in ("participants", "lost", "bytes_down"):
            assert mine.get(entry) == other.get(entry)
        if other.get("train_loss") is not None:
            assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=2e-2)
            assert mine["val"] == pytest.approx(other["val"], abs=2.0)


@on_accelerator
def test_averages_in_factors_are_captured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """FED-PUB with more clients than it compares one by one."""
    whole = on_cuda("fedpub", {}, Plan(ROUNDS), True)
    whole.run()
    monkeypatch.setattr(fedpub, "MANY", 2)
    replayed, single = (on_cuda("fedpub", {}, Plan(ROUNDS), captured) for captured in (True, False))
    for each in (replayed, single):
        each.run()
        assert isinstance(each.down["model.conv1.weight"], Factored)
    assert replayed.captured == "rounds"
    for mine, other, plain in zip(replayed.records, single.records, whole.records, strict=True):
        assert mine["val"] == pytest.approx(other["val"], abs=1e-3)
        assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)
        assert mine["train_loss"] == pytest.approx(plain["train_loss"], rel=1e-2)
        assert mine["bytes_down"] == plain["bytes_down"]


@on_accelerator
@pytest.mark.parametrize("most", [1, 3, 32])
def test_captured_rounds_of_any_block(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience ends them where it ends them one by one, and the best models are those of the best round."""
    monkeypatch.setattr(captured_rounds, "BLOCK_ROUNDS", most)
    for patience in (None, 2):
        plan = Plan(40, patience=patience)
        replayed, single = (on_cuda("fedpub", {"dropout": 0.8}, plan, captured) for captured in (True, False))
        for each in (replayed, single):
            each.run()
        assert replayed.progress.next_round == single.progress.next_round
        assert replayed.progress.best.round == single.progress.best.round
        assert_near(replayed.similarities[BEST].cpu(), single.similarities[BEST].cpu(), 1e-3)


@on_accelerator
def test_it_learns_what_it_learns_on_a_cpu() -> None:
    """Within what single precision makes of another order of sums."""
    clients = ragged_clients((180, 150, 210, 165, 195))
    method = make_method("fedavg", clients, make_task(clients, epochs=2))
    here = Training(method, InProcess(method, clients), Plan(6))
    here.run()
    there = on_cuda("fedavg", {}, Plan(6), True)
    there.run()
    for mine, other in zip(there.records, here.records, strict=True):
        assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-2)
