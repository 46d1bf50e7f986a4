"""Adding a method is one file, also where it has a network of its own. This one adds a simplified graph convolution.

Nothing else is edited: it is listed, trains, resumes, is compared with others, can be made robust, is tuned, and its models are
exported, saved and used at a site.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

import fedquilt
from fedquilt.cli import main
from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.export import load_module, module_of, save_module
from fedquilt.federation.site.config import read_site
from fedquilt.federation.site.predict import predict
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.base import State
from fedquilt.methods.base_adam import MODEL, AdamMethod, gradients_of, leaves_of
from fedquilt.methods.settings import AdamSettings, Share
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights, linear
from fedquilt.nn.models import Shapes
from fedquilt.tuning.search import tune
from support.clients import assert_near
from support.federations import registered
from support.small_runs import SMALL, own_graph, stop_after
from support.trained_sites import logits_of, make_site

NAME = "sgc"


# -- the method's file -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SgcSettings(AdamSettings):
    """Adam's settings and one more.

    Attributes:
        near: share of a node itself in what it reads, beside its two-step neighbourhood.
    """

    near: Share = 0.3


class Sgc(AdamMethod):
    """y = (near X + (1 - near) A^2 X) W + b; the server averages W, and b stays at home."""

    title = "SGC"
    paper = "Wu et al., ICML 2019"
    Settings = SgcSettings
    settings: SgcSettings
    searched = (*AdamMethod.searched, "near")
    uploads = (TensorSpec(MODEL + "weight", "The client's weights after training."),)
    downloads = (TensorSpec(MODEL + "weight", "The average of the participants' weights.", shared=True),)

    def shapes(self) -> Shapes:
        return {"weight": (self.context.features, self.context.outputs), "bias": (self.context.outputs,)}

    def averages(self) -> bool:
        return True

    def logits(self, personal: State, cohort: Cohort) -> Tensor:
        near = linear(cohort, cohort.x, personal["weight"], personal["bias"])
        far = cohort.add(cohort.gcn @ (cohort.smoothed @ personal["weight"]), personal["bias"])
        return self.settings.near * near + (1.0 - self.settings.near) * far

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        leaves = leaves_of(self.trained(state))
        outputs = self.logits(self.weights(leaves), cohort)[cohort.training.index]
        total, each = self.task.training_loss(cohort, outputs, dropout.draws)
        return gradients_of(total, leaves), each

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        return {MODEL + "weight": personal["weight"]}

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        return {name: self.averaging.average(dense(stack)) for name, stack in uploads.items()}


# -- nothing else ----------------------------------------------------------------------------------------------------

OPTIONS = SMALL | {"settings": {"near": 0.4}, "rounds": 6, "prepare": "none"}


@pytest.fixture(autouse=True)
def added() -> Iterator[None]:
    with registered(Sgc, NAME):
        yield


def test_it_is_listed_and_described(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["methods"]) == 0
    assert "Wu et al., ICML 2019" in capsys.readouterr().out
    assert main(["methods", NAME]) == 0
    described = capsys.readouterr().out
    assert "near" in described
    assert "The client's weights after training." in described


def test_it_trains_and_learns() -> None:
    run = fedquilt.run(NAME, own_graph(), **OPTIONS | {"rounds": 30})
    losses = [record["train_loss"] for record in run.records[0]]
    assert losses[-1] < 0.8 * losses[0]


def test_it_resumes_to_the_same_model(tmp_path: Path) -> None:
    whole = fedquilt.run(NAME, own_graph(), out=tmp_path / "whole", **OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        fedquilt.run(NAME, own_graph(), out=tmp_path / "cut", watch=stop_after(0, 3), checkpoint_seconds=0, **OPTIONS)
    resumed = fedquilt.resume(tmp_path / "cut")
    for name, tensor in whole.models[0].items():
        assert torch.equal(resumed.models[0][name], tensor)


def test_the_server_averages_by_the_rule_that_it_is_given() -> None:
    mean, median = (fedquilt.run(NAME, own_graph(), aggregation=rule, **OPTIONS) for rule in ("mean", "median"))
    losses = [[record["train_loss"] for record in run.records[0]] for run in (mean, median)]
    assert losses[0][0] == losses[1][0]  # nothing was averaged before round 0
    assert losses[0][-1] != losses[1][-1]


def test_it_is_compared_with_others() -> None:
    runs = fedquilt.compare([NAME, "local"], own_graph(), clients=3, rounds=2, device="cpu")
    assert [run.result["method"] for run in runs] == [NAME, "local"]


def test_its_own_setting_is_searched() -> None:
    tuned = tune(NAME, own_graph(masks=True), trials=4, clients=3, rounds=2, device="cpu")
    assert {"lr", "weight_decay", "dropout", "near"} <= set(tuned.trials[-1].settings)


def test_its_models_are_exported_saved_and_trained_further(tmp_path: Path) -> None:
    graph = own_graph()
    run = fedquilt.run(NAME, graph, **OPTIONS)
    data = graph.to_data()
    module = module_of(run, client=1)
    a = torch.from_numpy(Client(0, graph, graph.y).gcn.toarray())
    weight, bias = run.models[0]["weight"][1], run.models[0]["bias"][1]
    assert_near(module(data).detach(), (0.4 * data.x + 0.6 * (a @ (a @ data.x))) @ weight + bias, 1e-5)
    save_module(module, tmp_path)
    again = load_module(tmp_path)
    assert torch.equal(again(data), module(data))
    again(data).sum().backward()
    assert all(w.grad is not None and float(w.grad.abs().max()) > 0 for w in again.parameters())


def test_a_site_predicts_with_it(tmp_path: Path) -> None:
    path, method, client, models = make_site(tmp_path, NAME, near=0.4)
    expected = logits_of(method, client, models).softmax(1)
    assert_near(torch.from_numpy(predict(read_site(path)).values), expected)
