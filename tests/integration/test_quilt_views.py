"""Quilt's views and its server's steps: gradients against NumPy's Adam, each view against itself alone, votes, halving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.graphs.split import VAL
from fedquilt.messages.message import dense
from fedquilt.methods import quilt
from fedquilt.methods.base_adam import KEYS
from fedquilt.methods.quilt import AVERAGE_VOTES, DROPPED, HALVINGS, VOTES, Quilt
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.views import MIXTURE, prefix_of
from fedquilt.scenarios.attacks import Attack
from fedquilt.scenarios.guarded_aggregation import GuardedAverage
from fedquilt.scenarios.robust_aggregation import RobustAverage
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import make_method, make_task, make_training, ragged_clients, tapped_run

WHO = torch.arange(5)


def make(clients: Sequence[Client] | None = None, epochs: int = 1, averaging: Any = None, **settings: Any) -> Quilt:
    clients = clients or ragged_clients()
    rule = {} if averaging is None else {"averaging": averaging}
    method = make_method("quilt", clients, make_task(clients, epochs=epochs), **rule, **settings)
    assert isinstance(method, Quilt)
    return method


def trained(method: Quilt, rounds: int, clients: Sequence[Client] | None = None, **options: Any) -> Training:
    training = make_training(method, clients or ragged_clients(), Plan(rounds, **options))
    training.run()
    return training


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
@pytest.mark.parametrize("settings", [{}, {"model": "filter"}, {"model": "sage", "masks": False}], ids=str)
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
    for name in ("view.mlp.conv1.weight", "view.sage.conv1.root"):
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


# -- views ---------------------------------------------------------------------------------------------------------------


def test_each_view_trains_as_it_would_alone() -> None:
    together = trained(make(), 4)
    for view, hidden in (("mlp", 8), ("filter", 8), ("sage", 6)):
        alone = trained(make(model=view, hidden=hidden, masks=False), 4)
        for name, value in alone.down.items():
            inside = name.removeprefix("model.")
            assert torch.equal(dense(value), dense(together.down[f"model.{prefix_of(view)}{inside}"])), name


def test_votes_are_the_validation_metric_below_the_best() -> None:
    clients = ragged_clients()
    method, cohort = make(clients), Cohort(clients)
    state = method.start(cohort)
    update = method.local_update(state, cohort, {}, 0)
    points = []
    for view in method.names:
        only = update.personal | {MIXTURE: torch.eye(3)[method.names.index(view)].repeat(5, 1)}
        right = method.logits(only, cohort).argmax(1)
        rows = [part[torch.from_numpy(c.split == VAL)] for c, part in zip(clients, cohort.parts_of(right), strict=True)]
        points.append(
            [
                100 * float((row == torch.from_numpy(c.graph.y[c.split == VAL])).float().mean())
                for c, row in zip(clients, rows, strict=True)
            ]
        )
    table = np.array(points).T
    expected = np.clip(1 + (table - table.max(1, keepdims=True)) / 10, 0, 1)
    assert_near(update.upload[VOTES], torch.from_numpy(expected), 1e-5)
    checked = np.array([(c.split == VAL).sum() for c in clients])
    trust = (checked / (checked + 1000.0))[:, None]
    weight = np.exp(10 * (1 + trust * (expected - 1)))  # nobody's votes are known before: all alike
    assert_near(update.personal[MIXTURE], torch.from_numpy(weight / weight.sum(1, keepdims=True)), 1e-5)


def test_the_average_votes_move_half_way_in_a_round_by_training_nodes() -> None:
    training, tap = tapped_run(make(), ragged_clients(), 4, 1.0)
    average = np.ones(3)
    for up, down in zip(tap.ups, tap.downs[1:], strict=False):
        nodes = up["train_nodes"].double().numpy()
        average = average + 0.5 * (nodes @ up[VOTES].double().numpy() / nodes.sum() - average)
        assert_near(down[AVERAGE_VOTES], torch.from_numpy(average), 1e-5)
    assert {f"view_{view}" for view in ("mlp", "filter", "sage")} == set(training.records[-1]["diagnostics"])


def test_labels_of_validation_nodes_change_votes_and_no_gradient() -> None:
    uploads = []
    for turn in (0, 1):
        clients = []
        for client in ragged_clients():
            y = np.where(client.split == VAL, (client.graph.y + turn) % client.graph.classes, client.graph.y)
            clients.append(replace(client, graph=replace(client.graph, y=y)))
        uploads.append(tapped_run(make(clients), clients, 3, 1.0)[1].ups)
    for one, two in zip(*uploads, strict=True):
        assert not torch.equal(one[VOTES], two[VOTES])
        for name in set(one) - {VOTES}:
            assert torch.equal(one[name], two[name]), name


def test_one_liar_moves_the_votes_by_its_share_at_most() -> None:
    method = make()
    server, _ = method.server_start()
    training = make_training(method, ragged_clients(), Plan(1))
    uploads, _ = training.engine.round(0, WHO, {}, False)
    nodes = uploads["train_nodes"]
    averages = []
    for lie in ([1.0, 0.0, 0.0], [1e6, -1e6, -1e6], [0.0, 0.0, 1.0]):
        votes = torch.full((5, 3), 0.5)
        votes[0] = torch.tensor(lie)
        server, _ = method.server_start()
        averages.append(dense(method.aggregate(server, uploads | {VOTES: votes}, WHO, WHO)[AVERAGE_VOTES]))
    assert_near(averages[0], averages[1])
    share = float(nodes[0] / nodes.sum())
    assert float((averages[0] - averages[2]).abs().max()) == pytest.approx(0.5 * share, abs=1e-5)


# -- halving -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def early() -> Any:
    """Views are dropped before rounds 2 and 4."""
    with mock.patch.object(quilt, "HALVINGS", (2, 4)):
        yield


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_the_worse_half_of_the_views_is_dropped_and_costs_nothing_any_more(participation: float) -> None:
    method = make(ragged_clients((40, 36, 44, 38, 42)))  # with few validation nodes, views have equal votes
    training, tap = tapped_run(method, ragged_clients((40, 36, 44, 38, 42)), 7, participation)

    def views(message: dict[str, Any]) -> list[str]:
        return [view for view in method.names if any(prefix_of(view) in name for name in message)]

    sent = [views(up) for up in tap.ups]
    assert [len(each) for each in sent] == [3, 3, 2, 2, 1, 1, 1]
    assert [views(down) for down in tap.downs[1:]] == sent[:-1]
    for round, keeps in ((2, 2), (4, 1)):
        average = tap.downs[round][AVERAGE_VOTES].tolist()
        order = sorted((v for v in range(3) if average[v] >= 0), key=lambda v: -average[v])
        assert sent[round] == [method.names[v] for v in sorted(order[:keeps])]
    last = tap.downs[-1][AVERAGE_VOTES]
    assert (last == DROPPED).sum() == 2
    here = WHO if participation == 1.0 else torch.tensor(training.records[-1]["participants"])
    mixture = training.engine.personal()[MIXTURE][here]
    assert torch.equal(mixture, (last != DROPPED).float().expand_as(mixture))


@pytest.mark.usefixtures("early")
def test_masks_learn_from_when_one_view_is_left() -> None:
    training = make_training(make(), ragged_clients(), Plan(6))
    for round in range(6):
        training.advance(1)
        state = training.engine.state()
        moved = {name for name, t in state.items() if name.startswith("mask.") and bool(t.any())}
        (left,) = (n for n in make().names if any(prefix_of(n) in s for s in training.down)) if round >= 4 else ("",)
        assert bool(moved) == (round >= 4)
        assert all(prefix_of(left) in name for name in moved)
    assert any(n.startswith("mask.") and bool(t.any()) for n, t in trained(make(halve=False), 1).engine.state().items())


@pytest.mark.usefixtures("early")
def test_a_cohort_equals_cohorts_of_one_and_a_server_of_sums_over_halvings() -> None:
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


def test_rounds_that_drop_views_are_of_a_kind_of_their_own() -> None:
    method = make()
    kinds = [method.round_kind(round) for round in range(60)]
    assert all(kinds.count(kinds[round]) == 1 for round in HALVINGS)
    assert len(set(kinds)) == 2 + len(HALVINGS)
    assert {make(model="filter").round_kind(round) for round in range(60)} == {None}


# -- what is refused, and newcomers --------------------------------------------------------------------------------------


def test_views_need_classes_and_a_task_without_has_one_view() -> None:
    clients = ragged_clients()
    task = make_task(clients, task="node-regression", metric="r2", outputs=1)
    assert make_method("quilt", clients, task).names == ["filter"]  # type: ignore[attr-defined]
    with pytest.raises(FedquiltError, match="the task node-regression has not; give one view, such as views=filter"):
        make_method("quilt", clients, task, views="mlp,sage")


def test_one_view_is_the_same_by_either_name() -> None:
    one, other = trained(make(views="filter"), 3), trained(make(model="filter"), 3)
    for name, value in one.engine.personal().items():
        assert torch.equal(other.engine.personal()[name], value)


def test_a_newcomer_trains_what_is_left() -> None:
    method = make(ragged_clients())
    with mock.patch.object(quilt, "HALVINGS", (2, 4)):
        training = trained(method, 6)
        (left,) = (view for view in method.names if any(prefix_of(view) in name for name in training.down))
        cohort = Cohort(ragged_clients()[:2])
        state = method.start(cohort)
        down = dict(training.down)
        before = {name: tensor.clone() for name, tensor in state.items()}
        update = method.newcomer_update(state, cohort, down)
    moved = {n for n, t in before.items() if n.startswith("model.") and not torch.equal(t, state[n])}
    assert moved
    assert all(prefix_of(left) in name for name in moved)
    assert torch.equal(update.personal[MIXTURE].amax(0) > 0, torch.tensor([v == left for v in method.names]))
    for name in moved:
        assert not torch.equal(state[name][0], dense(down[name]))  # trained further than given


@pytest.mark.usefixtures("early")
def test_views_with_equal_votes_all_stay() -> None:
    """As under differential privacy, where ones are sent in place of votes."""
    method = make()
    down = {**trained(method, 2).down, AVERAGE_VOTES: torch.ones(3)}
    assert set(method.halved(down)) == set(down)
    first = method.halved(down | {AVERAGE_VOTES: torch.tensor([0.9, 0.9, 0.8])})
    assert list(method.live(first)) == [prefix_of("mlp"), prefix_of("filter")]
    assert list(method.live(method.halved(down | {AVERAGE_VOTES: torch.tensor([0.9, 0.5, 0.5])}))) == [*method.networks]


@pytest.mark.usefixtures("early")
def test_views_stay_where_no_weights_are_shared_or_nothing_has_arrived() -> None:
    alone = trained(make(share="filter"), 5)
    assert not bool((alone.engine.personal()[MIXTURE] == 0).any())
    method, cohort = make(), Cohort(ragged_clients())
    update = method.local_update(method.start(cohort), cohort, {}, 2)
    assert not bool((update.personal[MIXTURE] == 0).any())
