"""Quilt's views and its server's steps: gradients against NumPy's Adam, each view against itself alone, masks, cohorts and
newcomers while views are dropped. tests/methods/test_base_votes.py has votes, and which views are dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import dense
from fedquilt.methods.base_adam import KEYS
from fedquilt.methods.base_votes import MASK_SHARE
from fedquilt.methods.quilt import Quilt
from fedquilt.methods.quilt_settings import QuiltSettings
from fedquilt.methods.quilt_views import SAGE_WIDTH
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.views import MIXTURE, prefix_of
from fedquilt.scenarios.attacks import Attack
from fedquilt.scenarios.guarded_aggregation import GuardedAverage
from fedquilt.scenarios.robust_aggregation import RobustAverage
from fedquilt.training.plan import Plan
from support.clients import assert_near, dense_features
from support.federations import make_training, ragged_clients, tapped_run
from support.quilt_views import LARGER, NAMES, WHO, WITH_MASKS, dropping_early, trained, views_in
from support.quilt_views import make_quilt as make

# -- the server's steps --------------------------------------------------------------------------------------------------


def numpy_adam(start: np.ndarray, grads: list[np.ndarray], lr: float, decay: float) -> list[np.ndarray]:
    w, first, second, out = start.copy(), np.zeros_like(start), np.zeros_like(start), []
    for step, grad in enumerate(grads, 1):
        g = grad + decay * w
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
        w = w - lr * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        out.append(w)
    return out


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(
    "settings", [{}, {"drop": False}, {"model": "filter"}, {"model": "gpr"}, {"model": "sage", "masks": False}], ids=str
)
def test_the_server_takes_steps_of_adam_along_the_mean_gradient(settings: dict[str, Any], participation: float) -> None:
    method = make(lr=0.02, weight_decay=0.01, epochs=2, **settings)
    _, tap = tapped_run(method, ragged_clients(), 4, participation)
    start = {name: w[0].double().numpy() for name, w in method.common_weights(1, torch.device("cpu")).items()}
    for name in method.shapes():
        nodes = [up["train_nodes"].double().numpy() for up in tap.ups]
        sent = [up[f"gradient.{name}"].double().numpy() for up in tap.ups]
        mean = [np.tensordot(n, g, 1) / n.sum() for n, g in zip(nodes, sent, strict=True)]
        for found, expected in zip(tap.downs[1:], numpy_adam(start[name], mean, 0.02, 0.01)[:-1], strict=True):
            assert np.abs(found[f"model.{name}"].double().numpy() - expected).max() < 1e-5, name


def test_what_is_sent_is_the_gradient_at_what_was_received() -> None:
    """Of two epochs the mean, with other dropout; and neither weights nor counts of features or classes."""
    clients = ragged_clients(sparse=True)
    method, cohort = make(clients, epochs=2), Cohort(clients)
    state = method.start(cohort)
    keys = state[KEYS].clone()
    alone = {name: tensor.clone() for name, tensor in state.items()}
    update = method.local_update(state, cohort, {}, 0)
    first, _ = method.gradients(alone, cohort, Dropout(0.5, keys, 0), {})
    alone["filter"].copy_(
        state["filter"]
    )  # after one step; two were taken, so that the second gradient differs a little
    for name in ("view.mlp.conv1.weight", "view.gpr.steps", "view.sage.conv1.root"):
        second, _ = method.gradients(alone, cohort, Dropout(0.5, keys, 1), {})
        assert_near(update.upload[f"gradient.{name}"], (first[f"model.{name}"] + second[f"model.{name}"]) / 2, 1e-6)
        assert torch.equal(state[f"model.{name}"], alone[f"model.{name}"])
    assert {name.partition(".")[0] for name in update.upload} == {"gradient", "train_nodes", "votes"}


def test_dropped_features_change_no_weight() -> None:
    method, cohort = make(model="mlp", feature_dropout=0.5, dropout=0.0), Cohort(ragged_clients())
    state = method.start(cohort)
    dropout = Dropout(0.0, state[KEYS], 3)
    kept = method.kept_features(cohort, dropout, 1)
    grads, _ = method.gradients(state, cohort, dropout, {})
    rows = grads["model.conv1.weight"].abs().amax(2) > 0
    assert not bool((rows & (kept[..., 0] == 0)).any())
    assert bool((kept[..., 0] == 0).any())
    assert bool(rows.any())
    assert sorted(set(kept.ravel().tolist())) == [0.0, 2.0]
    one = method.kept_features(Cohort(ragged_clients()[1:2]), Dropout(0.0, state[KEYS][1:2], 3), 1)
    assert torch.equal(one[0], kept[1])  # each client's own, whatever the company


@pytest.mark.parametrize("rule", [RobustAverage("median"), GuardedAverage()], ids=["median", "guarded"])
def test_hostile_gradients_move_weights_no_farther_than_steps_of_adam(rule: Any) -> None:
    """By any rule; and a robust one goes nearly where it would go without them."""
    clients = ragged_clients((20, 24, 18, 22, 26, 20, 24))
    ends = {}
    for kind, averaging in ((None, None), ("inflated", None), ("inflated", rule)):
        method = make(clients, averaging=averaging, model="filter")
        attacks = [] if kind is None else [Attack(kind, 100.0, frozenset({0, 1}), 3, method.evidence_of)]
        training = make_training(method, clients, Plan(6), upload_transforms=attacks)
        start = {name: w[0].clone() for name, w in method.common_weights(1, torch.device("cpu")).items()}
        training.run()
        ends[kind, averaging] = {name: dense(training.down[f"model.{name}"]) - w for name, w in start.items()}
        assert max(float(way.abs().max()) for way in ends[kind, averaging].values()) < 6 * 0.01 * 3
    clean = torch.cat([way.ravel() for way in ends[None, None].values()])
    bent, guarded = (torch.cat([way.ravel() for way in ends["inflated", each].values()]) for each in (None, rule))
    assert torch.cosine_similarity(guarded, clean, 0) > torch.cosine_similarity(bent, clean, 0) + 0.1


DEFAULTS = {name: getattr(QuiltSettings(), name) for name in WITH_MASKS}


# -- features of one length ----------------------------------------------------------------------------------------------


def scaled(clients: Sequence[Client], factors: Sequence[float]) -> list[Client]:
    """The same clients, each with its features times a factor."""
    graphs = [replace(c.graph, x=(c.graph.x * f).astype(np.float32)) for c, f in zip(clients, factors, strict=True)]
    return [Client(c.id, graph, c.split, settings=c.settings) for c, graph in zip(clients, graphs, strict=True)]


def rounds_of(method: Quilt, clients: Sequence[Client]) -> list[tuple[dict[str, Tensor], Tensor]]:
    """What clients send in each of four rounds, and the logits of their models then."""
    cohort, (server, down), out = Cohort(clients), method.server_start(), []
    state = method.start(cohort)
    for number in range(4):
        update = method.local_update(state, cohort, down, number)
        sent = {name: dense(value).clone() for name, value in update.upload.items()}
        out.append((sent, method.logits(update.personal, cohort).clone()))
        down = method.aggregate(server, update.upload, WHO, WHO)
    return out


def to_length(length: float, clients: Sequence[Client]) -> list[float]:
    """What each client's features are multiplied by, by a loop."""
    squares = [np.mean(np.sum(dense_features(client) ** 2, axis=1)) for client in clients]
    return [length / float(np.sqrt(square)) if square else length for square in squares]


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"masks": True, "drop": False},
        {"feature_dropout": 0.0, "weight_decay": 0.01},
        {"model": "filter", "identity": 8},
        {"share": "head"},
        {"masks": False},
        {"share": "", "weight_decay": 0.0},
        {"average": "weights", "lr": 0.01, "weight_decay": 0.0},
    ],
    ids=str,
)
def test_training_is_as_if_each_client_had_multiplied_its_features(settings: dict[str, Any], sparse: bool) -> None:
    clients = ragged_clients(sparse=sparse)
    clients[1] = replace(clients[1], settings={} if "average" in settings else {"weight_decay": 0.05})
    multiplied = scaled(clients, to_length(0.7, clients))
    ours = rounds_of(make(clients, epochs=2, feature_length=0.7, **settings), clients)
    theirs = rounds_of(make(clients, epochs=2, feature_length=0.0, **settings), multiplied)
    for (sent, logits), (expected, wanted) in zip(ours, theirs, strict=True):
        assert sent.keys() == expected.keys()
        for name in sent:
            assert_near(sent[name], expected[name], 5e-3)  # Adam divides gradients of rounding's size by themselves
        assert_near(logits, wanted, 5e-3)


def test_units_of_features_do_not_matter() -> None:
    """Of all clients, and of one alone: what is sent is the same, as are the outputs."""
    clients = ragged_clients()
    plain = rounds_of(make(clients, **DEFAULTS), clients)
    for factors in ([1000.0] * 5, [1.0, 1.0, 0.001, 1.0, 1.0]):
        for (sent, logits), (expected, wanted) in zip(
            rounds_of(make(clients, **DEFAULTS), scaled(clients, factors)), plain, strict=True
        ):
            assert_near(logits, wanted, 1e-3)
            for name in sent:
                # Of the private view weights too are trained by Adam, which divides gradients of rounding's size by themselves.
                assert_near(sent[name], expected[name], 5e-3 if "private" in name else 2e-4)


# -- views ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropped", [0.0, 0.5])
def test_each_view_trains_as_it_would_alone(dropped: float) -> None:
    together = trained(make(feature_dropout=dropped), 4)
    assert make().names == NAMES
    settings = {"mlp": {"layers": 1}, "sage": {"hidden": round(8 * SAGE_WIDTH)}}
    for view in NAMES:
        alone = trained(make(model=view, masks=False, feature_dropout=dropped, **settings.get(view, {})), 4)
        assert len(alone.down) == sum(prefix_of(view) in name for name in together.down) > 0
        for name, value in alone.down.items():
            inside = name.removeprefix("model.")
            assert torch.equal(dense(value), dense(together.down[f"model.{prefix_of(view)}{inside}"])), name


@pytest.mark.parametrize(("layers", "convolutions"), [(1, 1), (2, 1), (3, 2)])
def test_mlp_has_a_layer_less_than_the_others_beside_them(layers: int, convolutions: int) -> None:
    names = make(layers=layers).shapes()
    assert sum(name.startswith("view.mlp.conv") and name.endswith(".weight") for name in names) == convolutions
    assert sum(name.startswith("view.sage.conv") and name.endswith(".root") for name in names) == layers
    assert (
        sum(name.startswith("conv") and name.endswith(".weight") for name in make(views="mlp", layers=layers).shapes())
        == layers
    )


# -- when views are dropped ----------------------------------------------------------------------------------------------


@pytest.fixture
def early() -> Iterator[None]:
    """Views are dropped before rounds 2 and 4."""
    with dropping_early():
        yield


@pytest.mark.usefixtures("early")
def test_masks_learn_from_when_two_views_are_left() -> None:
    clients = ragged_clients()
    training, live = make_training(make(), clients, Plan(7)), []
    for round in range(7):
        before = {name: t.clone() for name, t in training.engine.state().items() if name.startswith("mask.")}
        training.advance(1)
        live.append(views_in(training.down))
        state = training.engine.state()
        moved = {name for name, t in before.items() if not torch.equal(t, state[name])}
        assert {view for view in NAMES for name in moved if prefix_of(view) in name} == set(
            live[-1] if round >= 4 else []
        )
        assert round >= 4 or bool((state[MASK_SHARE] == 0.5).all())
    assert [len(each) for each in live] == [4, 4, 4, 4, 2, 2, 2]


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize(
    ("settings", "learn"),
    [
        ({"drop": False}, True),
        ({"views": "mlp,sage"}, True),
        ({"views": "mlp,gpr,sage"}, False),
        ({"views": "sage"}, True),
        ({}, False),
        ({"drop": False, "masks": False}, False),
    ],
    ids=str,
)
def test_masks_learn_at_once_where_there_are_two_views_or_none_is_dropped(
    settings: dict[str, Any], learn: bool
) -> None:
    state = trained(make(**settings), 1).engine.state()
    assert any(n.startswith("mask.") and bool(t.any()) for n, t in state.items()) == learn


@pytest.mark.usefixtures("early")
def test_a_cohort_equals_cohorts_of_one_and_a_server_of_sums_while_views_are_dropped() -> None:
    clients = ragged_clients()
    whole = trained(make(), 6)
    parts = make_training(make(), clients, Plan(6), 1)
    parts.run()
    for name, value in whole.engine.personal().items():
        assert_near(parts.engine.personal()[name], value, 1e-5)
    summed = make()
    sums = make_training(summed, clients, Plan(6))

    def aggregate(server: Any, uploads: Any, senders: Any, receivers: Any) -> Any:
        return summed.aggregate_sums(server, {n: v.sum(0) for n, v in summed.summands(uploads).items()}, receivers)

    sums.runner.aggregate = aggregate
    sums.run()
    assert set(sums.down) == set(whole.down)
    for name, value in whole.engine.personal().items():
        assert_near(sums.engine.personal()[name], value, 1e-4)


# -- one view, and newcomers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", NAMES)
def test_one_view_is_the_same_by_either_name(view: str) -> None:
    one, other = trained(make(views=view), 3), trained(make(model=view), 3)
    for name, value in one.engine.personal().items():
        assert torch.equal(other.engine.personal()[name], value)


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("sizes", [(25, 14, 31, 9, 18), LARGER], ids=["two views", "one view"])
def test_a_newcomer_trains_what_is_left(sizes: Sequence[int]) -> None:
    method = make(ragged_clients(sizes))
    training = trained(method, 6, ragged_clients(sizes))
    views = views_in(training.down)
    assert len(views) == (1 if sizes == LARGER else 2)
    cohort = Cohort(ragged_clients(sizes)[:2])
    state = method.start(cohort)
    down = dict(training.down)
    before = {name: tensor.clone() for name, tensor in state.items()}
    update = method.newcomer_update(state, cohort, down)
    moved = {n for n, t in before.items() if n.startswith(("model.", "mask.")) and not torch.equal(t, state[n])}
    for kind in ("model.", "mask."):
        assert {view for view in NAMES if any(n.startswith(kind + prefix_of(view)) for n in moved)} == set(views)
    assert torch.equal(update.personal[MIXTURE].amax(0) > 0, torch.tensor([v in views for v in NAMES]))
    for name in moved & set(down):
        assert not torch.equal(state[name][0], dense(down[name]))  # trained further than given
    share = state[MASK_SHARE]
    for name in method.maskable:
        if any(prefix_of(view) in name for view in views):
            expected = state[f"model.{name}"] * (1 + share[:, None, None] * state[f"mask.{name}"])
            assert_near(update.personal[name], expected, 1e-6)
