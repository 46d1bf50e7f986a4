"""Votes on views and on masks against NumPy, the mixture that they give, and views that are dropped; all of it in Quilt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import softmax

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.graphs.split import VAL
from fedquilt.messages.message import dense
from fedquilt.methods import base_votes
from fedquilt.methods.base import State, Update
from fedquilt.methods.base_votes import AVERAGE_VOTES, CLEARLY, DROPPED, DROPS, LEFT, MASK_SHARE, VOTES
from fedquilt.methods.quilt import Quilt
from fedquilt.nn.views import MIXTURE, prefix_of
from fedquilt.training.plan import Plan
from support.clients import assert_near, numbers
from support.federations import make_training, ragged_clients, tapped_run
from support.quilt_views import LARGER, NAMES, WHO, dropping_early, trained, views_in
from support.quilt_views import make_quilt as make

# -- votes on views -----------------------------------------------------------------------------------------------------


def accuracy(clients: Sequence[Client], predicted: list[np.ndarray]) -> np.ndarray:
    """Each client's accuracy at its validation nodes, in points, by a loop; predicted are scores [n, C] of each client."""
    found = []
    for client, scores in zip(clients, predicted, strict=True):
        nodes = np.flatnonzero((client.split == VAL) & (client.graph.y >= 0))
        found.append(100 * float(np.mean([scores[n].argmax() == client.graph.y[n] for n in nodes])))
    return np.array(found)


def below_the_best(points: np.ndarray) -> np.ndarray:
    """Votes, from points [M, options]."""
    return np.clip(1 + (points - points.max(1, keepdims=True)) / 10, 0, 1)


def own_trust(clients: Sequence[Client], own_votes: float = 1000.0) -> np.ndarray:
    checked = np.array([((c.split == VAL) & (c.graph.y >= 0)).sum() for c in clients])
    return (checked / (checked + own_votes))[:, None]


def test_votes_are_the_validation_metric_below_the_best() -> None:
    clients = ragged_clients(LARGER)
    method, cohort = make(clients), Cohort(clients)
    state = method.start(cohort)
    update = method.local_update(state, cohort, {}, 0)
    points = []
    for view in NAMES:
        only = update.personal | {MIXTURE: torch.eye(4)[NAMES.index(view)].repeat(5, 1)}
        points.append(accuracy(clients, [part.numpy() for part in cohort.parts_of(method.logits(only, cohort))]))
    expected = below_the_best(np.array(points).T)
    assert expected.std() > 0.1
    # Masks do not learn yet: both ways are alike.
    assert_near(update.upload[VOTES], torch.from_numpy(np.concatenate([expected, np.ones((5, 2))], 1)), 1e-5)
    weight = np.exp(10 * (1 + own_trust(clients) * (expected - 1)))  # nobody's votes are known before: all alike
    assert_near(update.personal[MIXTURE], torch.from_numpy(weight / weight.sum(1, keepdims=True)), 1e-5)


@pytest.mark.parametrize(
    "settings", [{}, {"drop": False, "reach": 0.0, "lr": 0.2}, {"masks": False, "drop": False}], ids=str
)
def test_clients_vote_in_every_round_and_the_average_moves_half_way_by_training_nodes(settings: dict[str, Any]) -> None:
    training, tap = tapped_run(make(**settings), ragged_clients(), 4, 1.0)
    options = 4 if settings.get("masks") is False else 6
    average = np.ones(options)
    for up, record in zip(tap.ups, training.records, strict=True):
        nodes = up["train_nodes"].double().numpy()
        assert up[VOTES].shape == (5, options)
        average = average + 0.5 * (nodes @ up[VOTES].double().numpy() / nodes.sum() - average)
        found = record["diagnostics"]
        assert [found[f"view_{view}"] for view in NAMES] == pytest.approx(softmax(10 * average[:4]).tolist(), abs=1e-5)
        assert set(found) == {f"view_{view}" for view in (*NAMES, *(["masks"] if options == 6 else []))}
        if options == 6:
            assert found["view_masks"] == pytest.approx(softmax(10 * average[4:])[0], abs=1e-5)
    for down, up in zip(tap.downs[1:], tap.ups, strict=False):
        assert down[AVERAGE_VOTES].shape == (options,)
        assert up[VOTES].min() >= 0
        assert up[VOTES].max() <= 1
    assert_near(training.down[AVERAGE_VOTES], torch.from_numpy(average), 1e-5)
    learned = any(n.startswith("mask.") and bool(t.any()) for n, t in training.engine.state().items())
    assert learned == ("reach" in settings)
    assert any(bool((up[VOTES][:, 4:] < 1).any()) for up in tap.ups) == learned  # else nothing to vote on


@pytest.mark.parametrize("settings", [{}, {"drop": False}, {"views": "filter,gpr"}], ids=str)
def test_labels_of_validation_nodes_change_votes_and_no_gradient(settings: dict[str, Any]) -> None:
    uploads, masks = [], []
    for turn in (0, 1):
        clients = []
        for client in ragged_clients(LARGER):
            y = np.where(client.split == VAL, (client.graph.y + turn) % client.graph.classes, client.graph.y)
            clients.append(replace(client, graph=replace(client.graph, y=y)))
        training, tap = tapped_run(make(clients, **settings), clients, 3, 1.0)
        uploads.append(tap.ups)
        masks.append({n: t for n, t in training.engine.state().items() if n.startswith(("mask.", "filter"))})
    for one, two in zip(*uploads, strict=True):
        assert not torch.equal(one[VOTES], two[VOTES])
        for name in set(one) - {VOTES}:
            assert torch.equal(one[name], two[name]), name
    for name, mask in masks[0].items():
        assert torch.equal(mask, masks[1][name]), name


def test_one_liar_moves_the_votes_by_its_share_at_most() -> None:
    method = make()
    server, _ = method.server_start()
    training = make_training(method, ragged_clients(), Plan(1))
    uploads, _ = training.engine.round(0, WHO, {}, False)
    nodes = uploads["train_nodes"]
    averages = []
    for lie in ([1.0, 0.0, 0.0, 0.0, 1.0, 0.0], [1e6, -1e6, -1e6, -1.0, 7.0, -1e6], [0.0, 0.0, 0.0, 1.0, 0.0, 1.0]):
        votes = torch.full((5, 6), 0.5)
        votes[0] = torch.tensor(lie)
        server, _ = method.server_start()
        averages.append(dense(method.aggregate(server, uploads | {VOTES: votes}, WHO, WHO)[AVERAGE_VOTES]))
    assert torch.equal(averages[0], averages[1])
    share = float(nodes[0] / nodes.sum())
    assert (averages[0] - averages[2]).tolist() == pytest.approx(
        [0.5 * share * way for way in (1, 0, 0, -1, 1, -1)], abs=1e-5
    )


# -- votes on masks ------------------------------------------------------------------------------------------------------


def given_masks(method: Quilt, clients: Sequence[Client], masks: float = 0.5) -> tuple[Cohort, dict[str, torch.Tensor]]:
    """A state whose masks, filters and mixture differ from client to client."""
    cohort = Cohort(clients)
    state = method.start(cohort)
    for place, name in enumerate(method.maskable):
        state[f"mask.{name}"].copy_(masks * numbers(place, *state[f"mask.{name}"].shape))
    state["filter"].add_(numbers(70, *state["filter"].shape) / 5)
    state[MIXTURE].copy_(numbers(80, cohort.clients, len(method.names)).softmax(1))
    return cohort, state


def download(method: Quilt, votes: list[float], rounds: int = 6) -> dict[str, Any]:
    """What a server sends after some rounds, with other average votes."""
    return {**trained(method, rounds).down, AVERAGE_VOTES: torch.tensor(votes)}


@pytest.mark.parametrize(
    ("settings", "votes"),
    [
        ({"views": "filter,gpr"}, [0.9, 0.7, 0.4, 0.6]),
        ({"views": "filter,gpr", "own_votes": 5.0, "sharpness": 0.4}, [0.9, 0.7, 0.4, 0.6]),
        ({"drop": False, "own_votes": 0.0}, [0.9, 0.7, 0.8, 0.3, 1.0, 0.2]),
        ({"drop": False, "own_votes": 20.0, "sharpness": 0.1}, [0.9, 0.7, 0.8, 0.3, 0.2, 1.0]),
    ],
    ids=str,
)
def test_votes_on_masks_and_how_much_of_them_is_used_equal_numpy(settings: dict[str, Any], votes: list[float]) -> None:
    clients = ragged_clients(LARGER)
    method = make(clients, **settings)
    cohort, state = given_masks(method, clients)
    mixture = state[MIXTURE].double().numpy().copy()
    update = method.local_update(state, cohort, download(method, votes), 7)
    points, views, shared = [], len(method.names), []
    for masks in (True, False):
        mixed = [np.zeros((client.graph.nodes, 3)) for client in clients]
        for place, view in enumerate(method.names):
            inside = prefix_of(view)
            weights = {
                name: state[f"model.{inside}{name}"] * (1 + state.get(f"mask.{inside}{name}", torch.zeros(())) * masks)
                for name in method.networks[inside].shapes()
            }
            logits = method.networks[inside](cohort, weights | {"filter": state["filter"]}).logits
            if not masks:
                shared.append(accuracy(clients, [part.numpy() for part in cohort.parts_of(logits)]))
            for m, part in enumerate(cohort.parts_of(logits)):
                mixed[m] += mixture[m, place] * softmax(part.double().numpy(), axis=1)
        points.append(accuracy(clients, mixed))
    expected = below_the_best(np.array(points).T)
    assert expected.min() < 0.5  # masks matter here
    assert_near(update.upload[VOTES][:, views:], torch.from_numpy(expected), 1e-5)
    # Views are compared as they are shared, without masks.
    on_views = below_the_best(np.array(shared).T)
    assert_near(update.upload[VOTES][:, :views], torch.from_numpy(on_views), 1e-5)
    # Exponential weights of everyone's votes, and of its own the more the more validation nodes there are.
    trust = own_trust(clients, settings.get("own_votes", 1000.0))
    average = np.array(votes[views:])
    weight = np.exp(10 * settings.get("sharpness", 1.0) * (average + trust * (expected - average)))
    share = weight[:, 0] / weight.sum(1)
    assert_near(state[MASK_SHARE], torch.from_numpy(share), 1e-5)
    average = np.array(votes[:views])
    weight = np.exp(10 * settings.get("sharpness", 1.0) * (average + trust * (on_views - average)))
    assert_near(update.personal[MIXTURE], torch.from_numpy(weight / weight.sum(1, keepdims=True)), 1e-5)
    for name in method.shapes():
        factor = 1.0
        if name in method.maskable:
            factor = 1 + share[:, None, None] * state[f"mask.{name}"].double().numpy()
        assert_near(update.personal[name], torch.from_numpy(state[f"model.{name}"].double().numpy() * factor), 1e-5)


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize(
    ("settings", "known"),
    [
        ({}, [True] * 4 + [False] * 3),
        ({"masks": False}, [True] * 7),
        ({"sharpness": 1000.0}, [True] * 4 + [False] * 3),  # some views that are trained have no weight
        ({"views": "filter"}, [False] * 7),
    ],
    ids=str,
)
def test_logits_of_compared_views_are_those_of_the_personal_models_to_the_last_bit(
    settings: dict[str, Any], known: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where masks do not learn yet; so that views need not be computed again to be evaluated."""
    found, after_training = [], Quilt.after_training

    def watched(method: Quilt, state: State, cohort: Cohort, *rest: Any) -> Update:
        update = after_training(method, state, cohort, *rest)
        found.append(update.logits is not None)
        if update.logits is not None:
            assert torch.equal(update.logits, method.logits(update.personal, cohort))
            assert torch.equal(update.logits, method.model(cohort, update.personal).logits)
        return update

    monkeypatch.setattr(Quilt, "after_training", watched)
    trained(make(**settings), 7)
    assert found == known


@pytest.mark.parametrize("good", [True, False])
@pytest.mark.parametrize("settings", [{"views": "filter,gpr"}, {"drop": False}], ids=str)
def test_masks_that_make_validation_worse_are_not_used_and_good_ones_are(settings: dict[str, Any], good: bool) -> None:
    """Masks that turn the classifiers around are bad for a model that has learned, and good for one that is turned around."""
    clients = ragged_clients(LARGER)
    method = make(clients, lr=0.03, own_votes=0.0, **settings)
    cohort = Cohort(clients)
    state = method.start(cohort)
    heads = [name for name in method.maskable if "classifier." in name]
    assert len(heads) == len(method.names)
    down = dict(trained(make(clients, lr=0.03, **settings | {"masks": False, "drop": False}), 40, clients).down)
    down[AVERAGE_VOTES] = torch.ones(method.options)
    for name in heads:
        state[f"mask.{name}"].fill_(-2.0)
        if good:
            down[f"model.{name}"] = -dense(down[f"model.{name}"])
    update = method.local_update(state, cohort, down, 41)
    share, votes = state[MASK_SHARE], update.upload[VOTES][:, -2:]
    assert share.shape == (5,)
    if good:
        assert bool((share > 0.9).all())
        assert bool((votes[:, 0] > votes[:, 1]).all())
    else:
        assert bool((share < 0.1).all())
        assert bool((votes[:, 0] < votes[:, 1]).all())
    # So it predicts nearly as the better model does, with masks or without, by the mixture by which they were compared.
    before = method.start(cohort)[MIXTURE]
    better, worse = (
        accuracy(clients, [p.numpy() for p in cohort.parts_of(method.logits(method.personal(other), cohort))])
        for other in (state | {MIXTURE: before}, state | {MIXTURE: before, MASK_SHARE: 1 - share})
    )
    assert bool((better > worse + 10).all())


@pytest.mark.parametrize("settings", [{"views": "filter,gpr"}, {"drop": False}], ids=str)
def test_everyones_votes_on_masks_change_what_is_predicted(settings: dict[str, Any]) -> None:
    """With the two columns exchanged masks are used where they were not; views and what is sent stay as they are."""
    clients = ragged_clients(LARGER)
    method = make(clients, own_votes=1e9, **settings)
    views, found = [0.5] * len(method.names), []
    for columns in ([1.0, 0.0], [0.0, 1.0], [0.6, 0.6]):
        cohort, state = given_masks(method, clients)
        update = method.local_update(state, cohort, download(method, [*views, *columns]), 7)
        assert_near(state[MASK_SHARE], torch.full((5,), float(softmax(10 * np.array(columns))[0])), 1e-4)
        found.append((update, method.logits(update.personal, cohort)))
    (used, one), (unused, other), (half, third) = found
    assert float((one - other).abs().max()) > 0.1
    assert float((one - third).abs().max()) > 0.1
    assert (one.argmax(1) != other.argmax(1)).float().mean() > 0.05
    assert torch.equal(used.personal[MIXTURE], unused.personal[MIXTURE])
    assert torch.equal(used.personal[MIXTURE], half.personal[MIXTURE])
    for name, value in used.upload.items():
        assert torch.equal(dense(value), dense(unused.upload[name])), name


def test_without_masks_there_are_no_votes_on_them() -> None:
    method, cohort = make(masks=False, drop=False), Cohort(ragged_clients())
    state = method.start(cohort)
    assert MASK_SHARE not in state
    assert state[VOTES].shape == state[AVERAGE_VOTES].shape == (5, 4)
    assert method.server_start()[0][AVERAGE_VOTES].shape == (4,)
    assert method.local_update(state, cohort, {}, 0).upload[VOTES].shape == (5, 4)


def test_one_view_is_used_with_its_whole_mask() -> None:
    """As in the first version: there are no votes on anything."""
    method, cohort = make(views="gpr"), Cohort(ragged_clients())
    state = method.start(cohort)
    update = method.local_update(state, cohort, {}, 0)
    assert not {VOTES, AVERAGE_VOTES, MIXTURE, MASK_SHARE} & {*state, *update.upload, *update.personal}
    mask = state["mask.hidden.weight"]
    assert bool(mask.any())
    assert_near(update.personal["hidden.weight"], state["model.hidden.weight"] * (1 + mask), 1e-6)


# -- views that are dropped ----------------------------------------------------------------------------------------------


@pytest.fixture
def early() -> Iterator[None]:
    """Views are dropped before rounds 2 and 4."""
    with dropping_early():
        yield


def left(votes: Sequence[float], last: bool, clearly: float = CLEARLY) -> list[int]:
    """The places of the views that stay, by a loop: those that are near the best one, and in the end as good as the second."""
    known = [vote for vote in votes if vote >= 0]
    second = sorted(known)[-2:][0]
    near = [v for v, vote in enumerate(votes) if vote >= 0 and max(known) - vote <= clearly / 10 + 1e-9]
    return [v for v in near if votes[v] >= second] if last else near


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({}, [4, 4, 4, 4, 2, 2, 2]),
        ({"participation": 0.6}, [4, 4, 3, 3, 2, 2, 2]),
        ({"participation": 0.6, "lr": 0.01}, [4, 4, 4, 4, 3, 3, 3]),  # two are second best
        ({"sizes": LARGER}, [4, 4, 2, 2, 1, 1, 1]),
        ({"sizes": LARGER, "clearly": 5.0}, [4, 4, 4, 4, 2, 2, 2]),
        ({"sizes": LARGER, "clearly": 10.0}, [4, 4, 4, 4, 2, 2, 2]),
        ({"average": "weights", "sizes": LARGER, "clearly": 5.0}, None),
    ],
    ids=str,
)
def test_views_that_are_clearly_worse_are_dropped_and_cost_nothing_any_more(
    options: dict[str, Any], counts: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dict(options)
    clients, participation = (
        ragged_clients(options.pop("sizes", (25, 14, 31, 9, 18))),
        options.pop("participation", 1.0),
    )
    clearly = options.pop("clearly", CLEARLY)
    monkeypatch.setattr(base_votes, "CLEARLY", clearly)
    method = make(clients, **options)
    training, tap = tapped_run(method, clients, 7, participation)
    sent = [views_in(up) for up in tap.ups]
    assert counts is None or [len(each) for each in sent] == counts
    assert len(sent[-1]) < 4
    assert [views_in(down) for down in tap.downs[1:]] == sent[:-1]
    for round in (2, 4):
        average = tap.downs[round][AVERAGE_VOTES][:4].tolist()
        assert sent[round] == [NAMES[v] for v in left(average, round == 4, clearly)]
    for round in (1, 3, 5, 6):
        assert sent[round] == sent[round - 1]
    for up, down in zip(tap.ups, [*tap.downs[1:], training.down], strict=True):
        gone = torch.tensor([view not in views_in(up) for view in NAMES])
        assert torch.equal(dense(down[AVERAGE_VOTES])[:4] == DROPPED, gone)
        assert not bool(up[VOTES][:, :4][:, gone].any())
    last = dense(training.down[AVERAGE_VOTES])[:4] != DROPPED
    here = WHO if participation == 1.0 else torch.tensor(training.records[-1]["participants"])
    mixture = training.engine.personal()[MIXTURE][here]
    assert torch.equal(mixture > 0, last.expand_as(mixture))
    assert_near(mixture.sum(1), torch.ones(len(here)), 1e-6)
    bytes_up = [sum(record["bytes_up"].values()) for record in training.records]
    assert bytes_up[-1] < bytes_up[0]


votes_on_views = st.lists(st.one_of(st.just(DROPPED), st.integers(0, 20).map(lambda n: n / 20)), min_size=4, max_size=4)


@example(votes=[0.9, 0.6, 0.85, 0.6], last=False)  # exactly as much worse as is allowed
@example(votes=[0.9, 0.6, 0.85, 0.6], last=True)
@example(votes=[DROPPED, DROPPED, 0.1, 0.4], last=False)  # the same, where single precision rounds the other way
@example(votes=[1.0, 1.0, 1.0, 1.0], last=True)
@example(votes=[0.9, 0.8, 0.8, 0.7], last=True)
@example(votes=[0.9, 0.9, 0.9, 0.8], last=True)
@example(votes=[0.1, 0.0, 0.05, DROPPED], last=False)
@example(votes=[0.1, DROPPED, DROPPED, DROPPED], last=True)
@example(votes=[0.9, 0.5, 0.5, 0.5], last=True)
@given(votes=votes_on_views.filter(lambda votes: max(votes) >= 0), last=st.booleans())
def test_which_views_are_dropped_equals_a_loop(votes: list[float], last: bool) -> None:
    """Of views with equal votes all stay or none; one that was dropped stays away; votes on masks drop nothing."""
    method = make()
    names = [
        name for v, view in enumerate(NAMES) for name in method.shapes() if prefix_of(view) in name and votes[v] >= 0
    ]
    down = {f"model.{name}": torch.zeros(1) for name in names} | {AVERAGE_VOTES: torch.tensor([*votes, 0.0, 0.4])}
    stay = left(votes, last)
    found = method.without_worse(down, last)
    assert views_in(found) == [NAMES[v] for v in stay]
    assert list(method.live(found)) == [prefix_of(NAMES[v]) for v in stay]
    assert dense(found[AVERAGE_VOTES]).tolist() == pytest.approx(
        [vote if v in stay else DROPPED for v, vote in enumerate(votes)] + [0.0, 0.4]
    )
    assert set(found) == {n for n in down if n == AVERAGE_VOTES or any(prefix_of(NAMES[v]) in n for v in stay)}
    assert down[AVERAGE_VOTES].tolist() == pytest.approx([*votes, 0.0, 0.4])  # the server's own message is left alone
    if last and len({votes[v] for v in stay}) == len(stay):
        assert len(stay) <= LEFT


@pytest.mark.parametrize(
    ("votes", "last", "stay"),
    [
        ((0.5, 0.45, 0.1, 1.0), False, ["mlp", "filter", "private"]),  # what is far below the best shared one goes
        ((0.5, 0.45, 0.4, 1.0), True, ["mlp", "filter", "private"]),  # two shared ones are left, whatever it has
        ((0.5, 0.45, 0.4, 0.45), True, ["mlp", "filter", "private"]),
        ((0.5, 0.45, 0.4, 0.44), True, ["mlp", "filter"]),
    ],
)
def test_the_private_view_takes_nobodys_place(votes: tuple[float, ...], last: bool, stay: list[str]) -> None:
    views = ["mlp", "filter", "gpr", "private"]
    method = make(views=",".join(views), masks=False)
    names = [f"model.{name}" for name in method.shapes() if method.shares(name)]
    down = {name: torch.zeros(1) for name in names} | {AVERAGE_VOTES: torch.tensor(votes)}
    found = method.without_worse(down, last)
    assert list(method.live(found)) == [prefix_of(view) for view in stay]
    assert [view for view, vote in zip(views, dense(found[AVERAGE_VOTES]), strict=True) if vote >= 0] == stay


def test_rounds_that_drop_views_are_of_a_kind_of_their_own() -> None:
    method = make()
    kinds = [method.round_kind(round) for round in range(100)]
    assert all(kinds.count(kinds[round]) == 1 for round in DROPS)
    assert len(set(kinds)) == 1 + len(DROPS)
    for settings in ({"model": "filter"}, {"drop": False}, {"share": "filter"}):
        assert {make(**settings).round_kind(round) for round in range(100)} == {None}


@pytest.mark.usefixtures("early")
def test_views_with_equal_votes_all_stay() -> None:
    """As under differential privacy, where ones are sent in place of votes."""
    method = make()
    down = {**trained(method, 2).down, AVERAGE_VOTES: torch.ones(6)}
    for last in (False, True):
        assert set(method.without_worse(down, last)) == set(down)
    cohort = Cohort(ragged_clients())
    update = method.local_update(method.start(cohort), cohort, down, 4)
    assert views_in(update.upload) == NAMES
    assert not bool((update.personal[MIXTURE] == 0).any())


@pytest.mark.usefixtures("early")
def test_views_stay_where_no_weights_are_shared_or_nothing_has_arrived() -> None:
    alone = trained(make(share="filter"), 5)
    assert not bool((alone.engine.personal()[MIXTURE] == 0).any())
    method, cohort = make(), Cohort(ragged_clients())
    update = method.local_update(method.start(cohort), cohort, {}, 2)
    assert not bool((update.personal[MIXTURE] == 0).any())
