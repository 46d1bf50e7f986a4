"""Quilt's formulas, each against a few lines of NumPy or autograd, and what of them crosses.

The first version of Quilt, one view whose weights are averaged; test_quilt_views.py has gradients and several views,
test_base_votes.py votes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.methods import quilt_views
from fedquilt.methods.base import State
from fedquilt.methods.base_adam import KEYS
from fedquilt.methods.base_evidence import FLOOR, features_seen
from fedquilt.methods.quilt import Quilt
from fedquilt.methods.quilt_views import GPR_ORDER
from fedquilt.nn.dropout import Dropout
from fedquilt.tasks.node_classification import training_class_counts
from support.clients import assert_near, numbers, with_training_nodes
from support.federations import (
    CLASSES,
    FEATURES,
    FIRST_QUILT,
    assert_same,
    averaging_settings,
    make_method,
    make_task,
    ragged_clients,
    tapped_run,
)

seeds = st.integers(0, 2**31)
FILTER_WEIGHTS = {"hidden.weight", "hidden.bias", "classifier.weight", "classifier.bias"}
SEEN = {"seen.features", "seen.classes"}


def make(clients: Sequence[Client] | None = None, epochs: int = 1, **settings: Any) -> Quilt:
    clients = clients or ragged_clients(sparse=True)
    method = make_method("quilt", clients, make_task(clients, epochs=epochs), **FIRST_QUILT | settings)
    assert isinstance(method, Quilt)
    return method


def stirred(method: Quilt, cohort: Cohort) -> State:
    """A start whose clients all differ, in masks and filters too."""
    state = method.start(cohort)
    for place, tensor in enumerate(method.trained(state).values()):
        tensor.add_(numbers(place, *tensor.shape) / 5)
    return state


def doubles_of(state: State) -> dict[str, np.ndarray]:
    return {name: tensor.double().numpy() for name, tensor in state.items()}


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", ["layers", "layer,everything", "layer;head", "none", "Head"])
def test_what_cannot_be_shared_is_named(share: str) -> None:
    with pytest.raises(
        FedquiltError, match=r"^Quilt cannot share '[^']+': give share as any of layer, head, filter\.$"
    ):
        make(share=share)


@pytest.mark.parametrize("model", ["gpr", "sage", "gcn", "mlp"])
@pytest.mark.parametrize("settings", [{"identity": 8}, {"share": "layer,filter"}], ids=str)
def test_identities_and_shared_filters_are_for_the_filter_network(settings: dict[str, Any], model: str) -> None:
    with pytest.raises(FedquiltError, match=rf"^identity and share=filter are for model=filter, not {model}; [^.]+\.$"):
        make(model=model, **settings)
    make(model="filter", **settings)
    make(model=model)


@pytest.mark.parametrize(
    "settings",
    [
        *({"order": 0}, {"groups": 0}, {"basis": "fourier"}, {"filter_lr": 0.0}, {"node_dropout": 1.0}),
        *({"identity": -1}, {"reach": -1.0}, {"model": "nobody"}, {"masks": "perhaps"}),
        *({"drop": "perhaps"}, {"views": "gpr,gpr"}, {"own_votes": -1.0}, {"sharpness": -1.0}, {"hidden": 0}),
    ],
    ids=str,
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(FedquiltError, match=f"{next(iter(settings))}.* of method 'quilt' is not possible"):
        make(**settings)


def test_what_is_shared_may_be_given_in_any_order_with_blanks() -> None:
    assert make(share=" head , layer ,").shared == make().shared == {"layer", "head"}


# -- what crosses ----------------------------------------------------------------------------------

HIDDEN_LAYER, HEAD = {"model.hidden.weight", "model.hidden.bias"}, {"model.classifier.weight", "model.classifier.bias"}
SAGE = {f"model.conv{i}.{name}" for i in (1, 2) for name in ("weight", "root", "bias")}
STEPS = {"model.steps"}
CROSSINGS: list[tuple[dict[str, Any], set[str], set[str]]] = [
    ({}, HIDDEN_LAYER | HEAD, SEEN),
    ({"identity": 4}, HIDDEN_LAYER | HEAD, SEEN),
    ({"masks": False}, HIDDEN_LAYER | HEAD, SEEN),
    ({"evidence": False}, HIDDEN_LAYER | HEAD, set()),
    ({"share": "layer"}, HIDDEN_LAYER, {"seen.features"}),
    ({"share": "head"}, HEAD, {"seen.classes"}),
    ({"share": "layer", "evidence": False}, HIDDEN_LAYER, set()),
    ({"share": "head", "evidence": False}, HEAD, set()),
    ({"share": "filter"}, {"filter"}, set()),
    ({"share": "filter", "identity": 4}, {"filter"}, set()),
    ({"share": "layer,head,filter", "identity": 4}, HIDDEN_LAYER | HEAD | {"filter"}, SEEN),
    ({"model": "sage"}, SAGE | HEAD, SEEN),
    ({"model": "sage", "share": "layer"}, SAGE, {"seen.features"}),
    ({"model": "gpr"}, HIDDEN_LAYER | HEAD | STEPS, SEEN),
    ({"model": "gpr", "share": "layer"}, HIDDEN_LAYER | STEPS, {"seen.features"}),
    ({"model": "gpr", "share": "head"}, HEAD, {"seen.classes"}),
]


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(
    ("settings", "weights", "beside"), CROSSINGS, ids=[str(settings) for settings, *_ in CROSSINGS]
)
def test_what_is_sent_is_what_is_shared_and_the_evidence_for_it(
    settings: dict[str, Any], weights: set[str], beside: set[str], participation: float
) -> None:
    method = make(**settings)
    training, tap = tapped_run(method, ragged_clients(sparse=True), 3, participation)
    beside = beside | {"train_nodes"}
    assert all(set(up) == weights | beside for up in tap.ups)
    assert tap.downs[0] == {}  # everybody starts from the same seed
    assert all(set(down) == weights for down in tap.downs[1:])
    declared = {c.name for c in method.uploads if c.name != "model.*" and method.sends(c.name)}
    assert declared == beside | (weights & {"filter"})
    # Masks, coefficients and identities are learned all the same.
    state, start = training.engine.parts[0].state, method.start(Cohort(ragged_clients()))
    private = {name for name in state if name.startswith("mask.") or name in ("filter", "identity")}
    assert ("identity" in private) == bool(settings.get("identity"))
    assert any(name.startswith("mask.") for name in private) == settings.get("masks", True)
    assert all(bool((state[name] != start[name]).any()) for name in private)


def test_what_is_sent_is_without_the_mask_and_what_is_used_with_it() -> None:
    training, tap = tapped_run(make(), ragged_clients(sparse=True), 3, 1.0)
    state, personal = training.engine.parts[0].state, training.engine.personal()
    assert set(personal) == FILTER_WEIGHTS | {"filter"}
    assert torch.equal(personal["filter"], state["filter"])
    for name in FILTER_WEIGHTS:
        assert torch.equal(tap.ups[-1][f"model.{name}"], state[f"model.{name}"])
        mask = 1 + state.get(f"mask.{name}", torch.zeros(()))
        assert_near(personal[name], state[f"model.{name}"].double() * mask.double(), 1e-6)


@pytest.mark.parametrize("share", ["layer,head", "head", "layer", "filter", "layer,head,filter"])
def test_what_is_received_takes_the_place_of_what_is_shared_and_of_nothing_else(share: str) -> None:
    clients = ragged_clients(sparse=True)
    training, tap = tapped_run(make(share=share, identity=4), clients, 3, 1.0)
    state = {name: tensor.clone() for name, tensor in training.engine.parts[0].state.items()}
    before = {name: tensor.clone() for name, tensor in state.items()}
    down = tap.downs[-1]
    training.method.receive(state, down)
    for name, tensor in state.items():
        if name in down:
            assert all(torch.equal(one, down[name]) for one in tensor)
        else:
            assert torch.equal(tensor, before[name])


@pytest.mark.parametrize(
    "settings", [{}, {"identity": 4}, {"share": "layer,head,filter"}, {"model": "sage"}, {"model": "gpr"}], ids=str
)
def test_what_is_sent_does_not_depend_on_what_is_private(settings: dict[str, Any]) -> None:
    """An upload of a state with other masks, coefficients and identities is the same, except what is shared of them."""
    method, cohort = make(**settings), Cohort(ragged_clients(sparse=True))
    state = stirred(method, cohort)
    other = {n: t + 1 if n.startswith("mask.") or n in ("filter", "identity") else t for n, t in state.items()}
    uploads = [method.upload(s, method.personal(s), cohort, {}) for s in (state, other)]
    assert set(uploads[0]) == set(uploads[1])
    for name, value in uploads[0].items():
        assert torch.equal(value, uploads[1][name]) == (name != "filter")


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("hidden", [4, 8, 128])
def test_a_round_costs_no_more_bytes_than_fedavgs(hidden: int, participation: float) -> None:
    """Where there are fewer features than the second layer has weights: evidence costs less than that layer."""
    clients = ragged_clients(sparse=True)
    assert hidden**2 > FEATURES
    mine, theirs = (
        tapped_run(make_method(name, clients, hidden=hidden, **averaging_settings(name)), clients, 3, participation)[0]
        for name in ("quilt", "fedavg")
    )
    for own, other in zip(mine.records, theirs.records, strict=True):
        for way in ("bytes_up", "bytes_down"):
            assert sum(own[way].values()) <= sum(other[way].values())
    senders = 5 if participation == 1.0 else 3
    sent = FEATURES * hidden + hidden + hidden * CLASSES + CLASSES + FEATURES + CLASSES + 1
    assert sum(mine.records[0]["bytes_up"].values()) == 4 * senders * sent


# -- evidence --------------------------------------------------------------------------------------


def test_evidence_is_what_the_clients_send() -> None:
    clients = ragged_clients(sparse=True)
    training, tap = tapped_run(make(clients), clients, 3, 0.6)
    for record, up in zip(training.records, tap.ups, strict=True):
        here = [clients[m] for m in record["participants"]]
        assert up["seen.features"].tolist() == [features_seen(client).tolist() for client in here]
        assert up["seen.classes"].tolist() == [training_class_counts(client).tolist() for client in here]
        assert up["train_nodes"].tolist() == [len(client.training_nodes) for client in here]


# -- the average -----------------------------------------------------------------------------------


def averaged(uploads: dict[str, np.ndarray], evidence: bool = True) -> dict[str, np.ndarray]:
    """What the server sends, patch by patch in loops: features are the first axis, classes the last."""
    nodes = uploads["train_nodes"]
    out = {}
    for name, stack in uploads.items():
        if name in SEEN or name == "train_nodes":
            continue
        mean = out[name] = np.zeros(stack.shape[1:])
        if evidence and name in ("model.hidden.weight", "model.conv1.weight", "model.conv1.root"):
            for f in range(len(mean)):
                weight = uploads["seen.features"][:, f] + FLOOR * nodes
                mean[f] = sum(e * w[f] for e, w in zip(weight, stack, strict=True)) / weight.sum()
        elif evidence and name in ("model.classifier.weight", "model.classifier.bias"):
            for c in range(mean.shape[-1]):
                weight = uploads["seen.classes"][:, c] + FLOOR * nodes
                mean[..., c] = sum(e * w[..., c] for e, w in zip(weight, stack, strict=True)) / weight.sum()
        else:
            mean += sum(n * w for n, w in zip(nodes, stack, strict=True)) / nodes.sum()
    return out


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"share": "layer"},
        {"share": "head"},
        {"share": "filter"},
        {"share": "layer,head,filter"},
        {"evidence": False},
        {"model": "sage"},
        {"model": "gpr"},
        {"model": "gcn"},
        {"model": "mlp", "evidence": False},
    ],
    ids=str,
)
def test_aggregation_equals_numpy(settings: dict[str, Any], participation: float) -> None:
    clients = ragged_clients(sparse=True)
    _, tap = tapped_run(make(clients, epochs=2, **settings), clients, 4, participation)
    for up, down in zip(tap.ups[:-1], tap.downs[1:], strict=True):
        expected = averaged(doubles_of(up), settings.get("evidence", True))
        assert set(down) == set(expected)
        for name, tensor in down.items():
            assert_near(tensor, torch.from_numpy(expected[name]), 1e-6)


def test_evidence_matters() -> None:
    """Guards the test above: these clients have not all seen the same, so that the plain average differs."""
    clients = ragged_clients(sparse=True)
    up = doubles_of(tapped_run(make(clients, epochs=2), clients, 1, 1.0)[1].ups[0])
    by_evidence, plain = averaged(up), averaged(up, evidence=False)
    for name in ("model.hidden.weight", "model.classifier.weight", "model.classifier.bias"):
        assert np.abs(by_evidence[name] - plain[name]).max() > 1e-3
    assert np.array_equal(by_evidence["model.hidden.bias"], plain["model.hidden.bias"])


def made_up(seen: list[list[float]], classes: list[list[float]], nodes: list[float]) -> dict[str, torch.Tensor]:
    clients, features, labels = len(nodes), len(seen[0]), len(classes[0])
    return {
        "model.hidden.weight": numbers(0, clients, features, 4),
        "model.hidden.bias": numbers(1, clients, 4),
        "model.classifier.weight": numbers(2, clients, 4, labels),
        "model.classifier.bias": numbers(3, clients, labels),
        "seen.features": torch.tensor(seen),
        "seen.classes": torch.tensor(classes),
        "train_nodes": torch.tensor(nodes),
    }


def test_what_nobody_has_seen_is_averaged_by_training_nodes() -> None:
    """Two of five clients have sent; the others have no say."""
    up = made_up([[0.0, 3.0, 0.0], [0.0, 0.0, 5.0]], [[3.0, 0.0, 0.0], [2.0, 0.0, 4.0]], [3.0, 6.0])
    down = make().aggregate({}, up, torch.tensor([1, 4]), torch.arange(5))
    w, head, bias = up["model.hidden.weight"], up["model.classifier.weight"], up["model.classifier.bias"]
    assert_near(down["model.hidden.weight"][0], (3 * w[0, 0] + 6 * w[1, 0]) / 9, 1e-6)
    # Who has seen a feature beats by far who has not.
    assert_near(down["model.hidden.weight"][1], w[0, 1], 1e-2)
    assert_near(down["model.hidden.weight"][2], w[1, 2], 1e-2)
    assert_near(down["model.classifier.weight"][:, 1], (3 * head[0, :, 1] + 6 * head[1, :, 1]) / 9, 1e-6)
    assert_near(down["model.classifier.weight"][:, 2], head[1, :, 2], 1e-2)
    assert_near(down["model.classifier.bias"][1], (3 * bias[0, 1] + 6 * bias[1, 1]) / 9, 1e-6)
    assert_near(down["model.classifier.bias"][0], (3 * bias[0, 0] + 2 * bias[1, 0]) / 5, 1e-2)
    biases = up["model.hidden.bias"]
    assert_near(down["model.hidden.bias"], (3 * biases[0] + 6 * biases[1]) / 9, 1e-6)
    expected = averaged(doubles_of(up))
    for name, tensor in down.items():
        assert_near(tensor, torch.from_numpy(expected[name]), 1e-6)


def test_equal_weights_stay_as_they_are_whatever_the_evidence() -> None:
    up = made_up([[0.0, 3.0, 1.0]] * 3, [[3.0, 0.0, 0.0]] * 3, [3.0, 6.0, 1.0])
    up |= {name: tensor[:1].repeat(3, *[1] * (tensor.dim() - 1)) for name, tensor in up.items() if "model." in name}
    for name, tensor in make().aggregate({}, up, torch.arange(3), torch.arange(3)).items():
        assert_near(tensor, up[name][0], 1e-6)


def test_one_sender_is_its_own_average() -> None:
    up = made_up([[0.0, 3.0, 0.0]], [[3.0, 0.0, 0.0]], [3.0])
    for name, tensor in make().aggregate({}, up, torch.tensor([2]), torch.arange(5)).items():
        assert_near(tensor, up[name][0], 1e-6)


def test_a_client_without_training_nodes_has_no_say() -> None:
    up = made_up([[0.0, 3.0], [0.0, 0.0]], [[3.0, 0.0], [0.0, 0.0]], [3.0, 0.0])
    for name, tensor in make().aggregate({}, up, torch.tensor([0, 1]), torch.arange(5)).items():
        assert_near(tensor, up[name][0], 1e-6)


def test_without_evidence_the_average_is_fedavgs() -> None:
    clients = ragged_clients(sparse=True)
    _, tap = tapped_run(make(clients, evidence=False), clients, 2, 0.6)
    theirs = make_method("fedavg", clients).aggregate({}, dict(tap.ups[0]), torch.arange(3), torch.arange(3))
    assert_same(tap.downs[1], theirs)


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("model", ["gcn", "sage", "mlp"])
def test_without_masks_and_evidence_it_is_fedavg(model: str, participation: float) -> None:
    clients = ragged_clients()
    mine = make(clients, model=model, masks=False, evidence=False)
    theirs = make_method("fedavg", clients, model=model)
    ours, others = (tapped_run(method, clients, 3, participation)[0] for method in (mine, theirs))
    assert_same(ours.engine.personal(), others.engine.personal())


# -- sharing nothing -------------------------------------------------------------------------------


def test_sharing_nothing_sends_nothing() -> None:
    clients = ragged_clients()
    training, tap = tapped_run(make(clients, share="", identity=4), clients, 3, 1.0)
    assert tap.ups == tap.downs == [{}, {}, {}]
    assert training.progress.upload_bytes == training.progress.download_bytes == 0


@pytest.mark.parametrize(
    "settings", [{}, {"identity": 4, "basis": "chebyshev"}, {"model": "sage"}, {"model": "gpr"}], ids=str
)
def test_sharing_nothing_is_training_alone(settings: dict[str, Any]) -> None:
    clients = ragged_clients()
    method = make(clients, share="", **settings)
    found = tapped_run(method, clients, 3, 1.0)[0].engine.personal()
    for m, client in enumerate(clients):
        cohort = Cohort([client])
        state = method.start(cohort)
        for r in range(3):
            method.local_update(state, cohort, {}, r)
        for name, w in method.personal(state).items():
            assert_near(found[name][m], w[0])


@pytest.mark.parametrize("model", ["gcn", "sage", "mlp"])
def test_sharing_nothing_without_masks_is_the_method_local(model: str) -> None:
    clients = ragged_clients()
    mine = make(clients, model=model, share="", masks=False)
    theirs = make_method("local", clients, model=model, lr=mine.settings.lr)
    ours, others = (tapped_run(method, clients, 3, 1.0)[0].engine.personal() for method in (mine, theirs))
    assert_same(ours, others)


# -- what a client minimises -----------------------------------------------------------------------


@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize(
    "settings",
    [{}, {"identity": 4, "basis": "chebyshev"}, {"groups": 1, "order": 1}, {"model": "sage"}, {"model": "gpr"}],
    ids=str,
)
def test_gradients_equal_autograd_through_the_mask(settings: dict[str, Any], masks: bool) -> None:
    method, cohort = make(masks=masks, **settings), Cohort(ragged_clients(sparse=True))
    state = stirred(method, cohort)
    kept = {name: tensor.clone() for name, tensor in state.items()}
    dropout = Dropout(0.5, state[KEYS], 4)
    found, loss = method.gradients(state, cohort, dropout, {})
    assert_same(state, kept)

    leaves = {name: tensor.clone().requires_grad_() for name, tensor in method.trained(state).items()}
    weights = {n.removeprefix("model."): t for n, t in leaves.items() if n.startswith("model.")}
    mask = {n.removeprefix("mask."): t for n, t in leaves.items() if n.startswith("mask.")}
    matrices = {n for n, w in weights.items() if w.dim() > 2}  # the first axis is the clients
    assert matrices == {n for n in weights if not n.endswith(".bias") and n != "steps"}
    assert set(mask) == (matrices if masks else set())
    acting = weights | {n: weights[n] * (1 + offset) for n, offset in mask.items()}
    acting |= {n: leaves[n] for n in ("filter", "identity") if n in leaves}
    total, each = method.task.training_loss(
        cohort, method.model.training(cohort, acting, dropout).logits, dropout.draws
    )
    grads = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
    assert set(found) == set(grads)
    for name, grad in grads.items():
        assert_near(found[name], grad, 1e-6)
        assert bool(grad.any())
    assert_near(loss, each.detach())


def test_masks_start_at_ones_on_the_matrices() -> None:
    method, cohort = make(identity=4), Cohort(ragged_clients())
    state = method.start(cohort)
    masks = {name.removeprefix("mask."): t for name, t in state.items() if name.startswith("mask.")}
    assert set(masks) == {"hidden.weight", "classifier.weight"}
    assert not any(bool(offset.any()) for offset in masks.values())  # kept as the offset from one
    personal = method.personal(state)
    assert set(personal) == FILTER_WEIGHTS | {"filter", "identity"}
    for name in FILTER_WEIGHTS:
        assert torch.equal(personal[name], state[f"model.{name}"])


@pytest.mark.parametrize("settings", [{}, {"model": "sage"}, {"model": "gpr"}], ids=str)
def test_without_masks_there_are_none(settings: dict[str, Any]) -> None:
    method, cohort = make(masks=False, **settings), Cohort(ragged_clients())
    state = method.start(cohort)
    assert not any("mask." in name for name in (*state, *method.trained(state), *method.rates(cohort)))
    method.local_update(state, cohort, {}, 0)
    assert not any("mask." in name for name in state)
    for name, w in method.personal(state).items():
        assert torch.equal(w, state.get(f"model.{name}", state.get(name)))


@pytest.mark.parametrize("reach", [0.0, 5.0, 200.0])
@pytest.mark.parametrize("lr", [0.01, 0.03])
def test_masks_learn_the_faster_the_more_labels_there_are(lr: float, reach: float) -> None:
    clients = with_training_nodes((1, 4, 9, 14))
    method, cohort = make(clients, lr=lr, reach=reach, filter_lr=0.07, node_dropout=0.0, dropout=0.0), Cohort(clients)
    state = method.start(cohort)
    expected = [lr * n / (n + reach) for n in (1, 4, 9, 14)]
    for name in ("mask.hidden.weight", "mask.classifier.weight"):
        assert method.rates(cohort)[name].tolist() == pytest.approx(expected)
        if reach == 0:
            assert method.rates(cohort)[name].tolist() == pytest.approx([lr] * 4)
    # The first step of Adam is as long as the rate, whatever the gradient.
    before = {name: tensor.clone() for name, tensor in state.items()}
    grads, _ = method.gradients(state, cohort, Dropout(0.0, state[KEYS], 0), {})
    method.local_update(state, cohort, {}, 0)
    for name, grad in grads.items():
        for m in range(4):
            rate = expected[m] if name.startswith("mask.") else 0.07 if name == "filter" else lr
            clear = grad[m].abs() > 1e-4  # beside which Adam's epsilon is nothing
            assert bool(clear.any())
            moved = (state[name][m] - before[name][m])[clear]
            assert_near(moved / rate, -grad[m][clear].sign(), 1e-3)


def test_masks_of_clients_without_labels_stand_still() -> None:
    clients = with_training_nodes((0, 6))
    method, cohort = make(clients), Cohort(clients)
    state = method.start(cohort)
    method.local_update(state, cohort, {}, 0)
    for name in ("mask.hidden.weight", "mask.classifier.weight", "model.hidden.weight"):
        start = method.start(cohort)[name]
        assert torch.equal(state[name][0], start[0])
        assert not torch.equal(state[name][1], start[1])


def test_rates_stay_with_their_clients_where_some_sit_out() -> None:
    clients = ragged_clients()
    method, used = make(clients, reach=5.0), []
    plain = method.rates
    method.rates = lambda cohort: used.append((cohort.ids.tolist(), found := plain(cohort))) or found
    tapped_run(method, clients, 4, 0.6)
    counts = [len(client.training_nodes) for client in clients]
    assert len(set(counts)) > 1
    assert len({tuple(ids) for ids, _ in used}) > 1
    for ids, rates in used:
        assert rates["mask.hidden.weight"].tolist() == pytest.approx(
            [0.01 * counts[m] / (counts[m] + 5.0) for m in ids]
        )


# -- other backbones -------------------------------------------------------------------------------


def test_with_sage_both_matrices_that_read_features_are_averaged_by_features() -> None:
    method = make(model="sage")
    by = {name: method.evidence_of(f"model.{name}") for name in method.shapes()}
    assert {name for name, kind in by.items() if kind == ("seen.features", 0)} == {"conv1.weight", "conv1.root"}
    assert {name for name, kind in by.items() if kind == ("seen.classes", -1)} == {
        "classifier.weight",
        "classifier.bias",
    }
    assert {name for name, kind in by.items() if kind is None} == {
        *("conv1.bias", "conv2.weight", "conv2.root", "conv2.bias")
    }


def test_gprs_steps_are_averaged_by_training_nodes_and_have_no_mask() -> None:
    method = make(model="gpr")
    by = {name: method.evidence_of(f"model.{name}") for name in method.shapes()}
    assert by == {
        "hidden.weight": ("seen.features", 0),
        **{"hidden.bias": None, "steps": None},
        **{f"classifier.{kind}": ("seen.classes", -1) for kind in ("weight", "bias")},
    }
    assert list(method.maskable) == ["hidden.weight", "classifier.weight"]
    assert (method.model.order, method.model.dropout) == (GPR_ORDER, 0.8)
    assert make(model="gpr", dropout=0.0).model.dropout == pytest.approx(0.6)


@pytest.mark.parametrize("model", ["filter", "gpr", "sage", "gcn", "mlp"])
def test_every_model_learns(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quilt_views, "GPR_KEPT", 1.0)
    clients = ragged_clients()
    training, _ = tapped_run(make(clients, model=model, dropout=0.0, node_dropout=0.0), clients, 8, 1.0)
    losses = [record["train_loss"] for record in training.records]
    assert all(after < before for before, after in itertools.pairwise(losses))


def test_a_client_without_training_nodes_keeps_its_mask_whatever_the_reach() -> None:
    clients = with_training_nodes((0, 5))
    method = make(clients, reach=0.0)
    state, cohort = method.start(Cohort(clients)), Cohort(clients)
    update = method.local_update(state, cohort, {}, 0)
    assert not any(w.isnan().any() for w in update.personal.values())
    assert not state["mask.hidden.weight"][0].any()


def test_its_findings_are_each_clients_mean_filter() -> None:
    clients = ragged_clients()
    state = make(clients, groups=2, order=3).start(Cohort(clients))
    state["filter"].copy_(torch.rand(state["filter"].shape, generator=torch.Generator().manual_seed(1)))
    found = make(clients, groups=2, order=3).findings({}, state)
    assert found.keys() == {"coefficients"}
    assert_near(found["coefficients"], (state["filter"][:, 0] + state["filter"][:, 1]) / 2)
    sage = make(clients, model="sage")
    assert sage.findings({}, sage.start(Cohort(clients))) == {}


@pytest.mark.parametrize("settings", [{}, {"model": "gpr"}, {"model": "views", "views": "filter,gpr"}], ids=str)
def test_layers_are_for_the_usual_backbones(settings: dict[str, Any]) -> None:
    with pytest.raises(FedquiltError, match="layers is for the usual backbones, such as sage"):
        make(layers=3, **settings)
    make(**settings)
    assert "conv3.weight" in make(layers=3, model="gcn").shapes()
