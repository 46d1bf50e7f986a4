"""A user's module as a backbone: the numbers of our own networks, client by client, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

import fedquilt
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import client_keys
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import find_method, methods
from fedquilt.methods.base_adam import gradients_of, leaves_of
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.models import Gcn, Model, common_start
from fedquilt.nn.module_backbone import BACKBONES, ModuleNetwork, name_backbone, register_backbone
from support.clients import assert_near, with_weights
from support.federations import CLASSES, make_method, ragged_clients
from support.small_runs import SMALL, own_graph

CPU = torch.device("cpu")


class OurGcn(torch.nn.Module):
    """`fedquilt.nn.models.Gcn` of PyTorch Geometric's layers."""

    def __init__(self, features: int, classes: int, settings: Any) -> None:
        super().__init__()
        self.conv1 = GCNConv(features, settings.hidden)
        self.conv2 = GCNConv(settings.hidden, settings.hidden)
        self.classifier = torch.nn.Linear(settings.hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = torch.relu(self.conv1(x, edge_index))
        return self.classifier(torch.relu(self.conv2(h, edge_index)))


class Dropping(OurGcn):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(torch.nn.functional.dropout(x, 0.5, self.training), edge_index)


class Weighted(OurGcn):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = torch.relu(self.conv1(x, edge_index, edge_weight))
        return self.classifier(torch.relu(self.conv2(h, edge_index, edge_weight)))


class Settings:
    hidden = 8


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    for factory in (OurGcn, Dropping, Weighted):
        register_backbone(factory.__name__)(factory)
    yield
    for name in BACKBONES.all():
        BACKBONES.remove(name)


def as_ours(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights of the module by the names and in the layout of our network."""
    out = {}
    for name, w in weights.items():
        plain = name.replace(".lin.", ".")
        out[plain] = w.mT.contiguous() if name.endswith("weight") else w
    return out


def test_outputs_and_gradients_are_those_of_the_same_network_of_ours() -> None:
    cohort = Cohort(ragged_clients())
    network = ModuleNetwork("OurGcn", cohort.features, CLASSES, Settings(), 3)
    ours = Gcn(cohort.features, Settings.hidden, CLASSES)
    leaves = leaves_of(network.start(cohort.clients, CPU))
    twins = leaves_of(as_ours(leaves))
    nodes = cohort.nodes
    assert_near(network(cohort, leaves).logits[nodes], ours(cohort, twins).logits[nodes])
    none = Dropout(0.0, client_keys(0, cohort), 0)
    assert_near(
        network.training(cohort, leaves, none).logits[cohort.training.real],
        ours.training(cohort, twins, none).logits[cohort.training.real],
    )
    grads = gradients_of(network(cohort, leaves).logits[nodes].square().sum(), leaves)
    expected = gradients_of(ours(cohort, twins).logits[nodes].square().sum(), twins)
    for name, grad in as_ours(grads).items():
        assert_near(grad, expected[name])


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedper", "local"])
def test_a_training_is_that_of_the_same_network_of_ours(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: ModuleNetwork, clients: int, device: torch.device) -> dict[str, Tensor]:
        ours = common_start(Gcn(self.features, 8, self.outputs).shapes(), 0, clients, device)
        names = {name.replace(".lin.", "."): name for name in self.shapes()}
        return {names[n]: w.mT.contiguous() if n.endswith("weight") else w for n, w in ours.items()}

    monkeypatch.setattr(ModuleNetwork, "start", start)
    options = SMALL | {"rounds": 5, "epochs": 2, "settings": {"hidden": 8, "dropout": 0.0}}
    own = fedquilt.run(method, own_graph(), **options)
    theirs = fedquilt.run(method, own_graph(), backbone=OurGcn, **options)
    for a, b in zip(own.records[0], theirs.records[0], strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-4)
        assert a["val"] == pytest.approx(b["val"], abs=1e-6)
        assert a["bytes_up"] == {n.replace(".lin.", "."): size for n, size in b["bytes_up"].items()}
    for name, w in as_ours(theirs.models[0]).items():
        torch.testing.assert_close(w, own.models[0][name], rtol=1e-3, atol=1e-4)


def test_random_numbers_belong_to_a_client_and_a_step() -> None:
    clients = ragged_clients()
    whole = Cohort(clients)
    network = ModuleNetwork("Dropping", whole.features, CLASSES, Settings(), 0)
    before = torch.random.get_rng_state()

    def trained(cohort: Cohort, step: int) -> list[Tensor]:
        weights = network.start(cohort.clients, CPU)
        rows = network.training(cohort, weights, Dropout(0.5, client_keys(0, cohort), step)).logits
        return [rows[cohort.training.real][cohort.client[cohort.train] == m] for m in range(cohort.clients)]

    together = trained(whole, 4)
    for m, client in enumerate(clients):
        assert_near(trained(Cohort([client]), 4)[0], together[m])
    assert not torch.equal(trained(whole, 5)[0], together[0])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_start_is_the_modules_own_and_follows_the_seed() -> None:
    first, again, other = (ModuleNetwork("OurGcn", 5, 3, Settings(), seed).start(2, CPU) for seed in (0, 0, 1))
    for name, w in first.items():
        assert torch.equal(w, again[name])
        assert torch.equal(w[0], w[1])
    assert not torch.equal(first["classifier.weight"], other["classifier.weight"])
    assert first["classifier.weight"].shape == (2, 3, 8)


def test_runs_in_smaller_cohorts_and_with_sparse_features_are_the_same() -> None:
    options = SMALL | {"settings": {"hidden": 8, "model": "OurGcn"}}
    whole, cut = (fedquilt.run("fedavg", **options, cohort_size=size) for size in (None, 2))
    for name, w in whole.models[0].items():
        torch.testing.assert_close(w, cut.models[0][name], rtol=1e-4, atol=1e-5)
    sparse = ragged_clients(sparse=True)
    method = make_method("fedavg", sparse, model="OurGcn")
    cohort = Cohort(sparse)
    assert method.logits(method.personal(method.start(cohort)), cohort).shape == (cohort.rows, CLASSES)


class Broken(OurGcn):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x[:, :1], edge_index)


class Normed(OurGcn):
    def __init__(self, features: int, classes: int, settings: Any) -> None:
        super().__init__(features, classes, settings)
        self.norm = torch.nn.BatchNorm1d(features)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(self.norm(x), edge_index)


class Narrow(OurGcn):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index)[:, :1]


class Empty(torch.nn.Module):
    def __init__(self, features: int, classes: int, settings: Any) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x.new_zeros(len(x), self.classes)


class Renamed(torch.nn.Module):
    def __init__(self, features: int, classes: int, settings: Any) -> None:
        super().__init__()
        self.layer = torch.nn.LazyLinear(classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x)


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        (Broken, r"The backbone 'Broken' failed in line \d+ of .*test_module_backbone\.py: RuntimeError: "),
        (
            Normed,
            r"learns numbers that are no parameters \(norm\.running_mean\), which no method averages; use LayerNorm",
        ),
        (
            Narrow,
            r"returns a tensor \[4, 1\] for 4 nodes, and has to return a row of 3 outputs for each node: \[4, 3\]",
        ),
        (Empty, "has no parameters"),
        (lambda *_: 3, "takes a name, a torch.nn.Module class or a function with a name"),
    ],
)
def test_what_cannot_be_a_backbone_is_refused_before_anything_trains(factory: Any, sentence: str) -> None:
    with pytest.raises(FedquiltError, match=sentence):
        fedquilt.run("fedavg", own_graph(), backbone=factory, **SMALL)


def test_a_function_that_makes_no_module_is_refused() -> None:
    def three(features: int, classes: int, settings: Any) -> int:
        return 3

    with pytest.raises(FedquiltError, match=r"The backbone 'three' makes a int, not a torch\.nn\.Module"):
        fedquilt.run("fedavg", own_graph(), backbone=three, **SMALL)  # type: ignore[arg-type]


def test_names_are_taken_once_and_found() -> None:
    assert name_backbone("gcn") == "gcn"
    assert name_backbone(OurGcn) == "OurGcn"
    with pytest.raises(ValueError, match="'gcn' is built in already"):
        register_backbone("gcn")(OurGcn)
    with pytest.raises(
        FedquiltError, match=rf"there is no backbone 'gnc'; choose one of: {', '.join(Model.kinds)}, OurGcn"
    ):
        fedquilt.run("fedavg", backbone="gnc", **SMALL)


def test_methods_that_need_their_own_network_or_names_say_so() -> None:
    able = ", ".join(name for name, kind in methods().items() if getattr(kind, "any_module", False))
    assert {"fedavg", "fedper", "fedprox", "local"} <= set(able.split(", "))
    for method in ("fedpub", "fedsheafhn", "quilt"):
        with pytest.raises(FedquiltError, match=rf"such as model=gcn; .* works with {able}\.$"):
            fedquilt.run(method, own_graph(), backbone=OurGcn, **SMALL)
    with pytest.raises(FedquiltError, match="choose one of: views, filter, gpr, attention, private, gcn, sage, gat, "):
        fedquilt.run("quilt", own_graph(), backbone="nobody", **SMALL)
    with pytest.raises(FedquiltError, match=r"whose names begin with 'conv' .* has layer\.weight, layer\.bias"):
        fedquilt.run("fedper", own_graph(), backbone=Renamed, **SMALL)
    assert fedquilt.run("local", own_graph(), backbone=Renamed, **SMALL).models[0]["layer.weight"].shape == (3, 3, 3)


def test_a_run_says_that_it_is_slower(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        fedquilt.run("local", own_graph(), backbone=OurGcn, **SMALL)
    assert "clients are computed one after the other, which is slower" in caplog.text
    assert find_method("local").any_module


def test_a_module_that_takes_edge_weights_gets_them_over_their_mean() -> None:
    clients = with_weights(ragged_clients((14, 9)))
    cohort = Cohort(clients)
    module = ModuleNetwork("Weighted", cohort.features, CLASSES, Settings(), 0)
    weights = module.start(2, CPU)
    ours = Gcn(cohort.features, 8, CLASSES)(cohort, as_ours(weights)).logits
    theirs = module(cohort, weights).logits
    for mine, other in zip(cohort.parts_of(ours), cohort.parts_of(theirs), strict=True):
        assert_near(other, mine)
    assert not module.ignores_edge_weights
    bare = ModuleNetwork("OurGcn", cohort.features, CLASSES, Settings(), 0)
    assert not torch.allclose(bare(cohort, weights).logits, theirs, atol=1e-3)
    method = make_method("fedavg", clients, model="OurGcn")
    assert method.ignores_edge_weights() == "the forward of 'OurGcn' has no argument edge_weight"
