"""The guarded average: each formula against NumPy, few voters, hostile clients, and in a training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedquilt.methods.averaging import WEIGHTED_MEAN
from fedquilt.scenarios import guarded_aggregation
from fedquilt.scenarios.attacks import Attack
from fedquilt.scenarios.guarded_aggregation import (
    GuardedAverage,
    agrees,
    coordinate_median,
    guarded,
    guarded_patches,
    guarded_shares,
    lower_median,
    median_of,
    trusted,
)
from fedquilt.scenarios.robust_aggregation import RobustAverage
from fedquilt.training.plan import Plan
from support.federations import FIRST_QUILT, averaging_settings, make_method, make_training, ragged_clients

FAR, FAR_PATCH, COUNT, SIZE, SHARE = 3.0, 5.0, 3.0, 3.0, 2.0


def low(values: Any) -> float:
    """The lower median of a list."""
    ordered = sorted(float(v) for v in values)
    return ordered[(len(ordered) - 1) // 2]


def stack_of(clients: int, seed: int, *shape: int, loud: float = 1.0) -> torch.Tensor:
    """Clients of different lengths; the last one `loud` times as long."""
    rng = torch.Generator().manual_seed(seed)
    stack = torch.randn(clients, *shape, generator=rng)
    stack = stack * (0.5 + torch.rand(clients, *[1] * len(shape), generator=rng))
    stack[-1] *= loud
    return stack


@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(0, 50), st.sampled_from([1.0, 2.5, 40.0]), st.booleans())
def test_one_average_as_it_is_written(clients: int, seed: int, loud: float, weighted: bool) -> None:
    stack, before = stack_of(clients, seed, 4, 3, loud=loud), 0.1 * stack_of(1, seed + 1, 4, 3)[0]
    weight = torch.arange(1, clients + 1).float().pow(2) if weighted else None
    w, g = stack.double().numpy(), before.double().numpy()
    length = [np.linalg.norm(one - g) for one in w]
    radius = low(length)
    counts = np.ones(clients) if weight is None else weight.double().numpy()
    counts = np.minimum(counts, COUNT * low(counts)) * [one <= FAR * radius for one in length]
    steps = [(one - g) * min(1.0, radius / size) for one, size in zip(w, length, strict=True)]
    expected = g + sum(c * step for c, step in zip(counts, steps, strict=True)) / counts.sum()
    np.testing.assert_allclose(guarded(stack, weight, before), expected, rtol=1e-4, atol=1e-5)


def patches_as_written(w: np.ndarray, e: np.ndarray, g: np.ndarray, voters: int) -> np.ndarray:
    clients, patches = e.shape
    size = np.linalg.norm(w - g, axis=2)
    voting = [m for m in range(clients) if (e[m] > 0).any()]
    radius = low([low(size[m][e[m] > 0]) for m in voting])
    typical = {m: np.sqrt(np.mean(size[m][e[m] > 0] ** 2)) for m in voting}
    sound = {m for m in voting if typical[m] <= FAR * low(typical.values())}
    out, enough = g.copy(), np.zeros(patches, bool)
    for p in range(patches):
        who = [m for m in range(clients) if e[m, p] > 0 and m in sound and size[m, p] <= FAR_PATCH * radius]
        if not who:
            continue
        steps = np.stack([(w[m, p] - g[p]) * min(1.0, radius / size[m, p]) for m in who])
        enough[p] = len(who) >= voters
        if enough[p]:
            counts = np.minimum(e[who, p], COUNT * low(e[who, p]))
            out[p] += (counts[:, None] * steps).sum(0) / counts.sum()
        else:
            zeros = np.zeros((min(voters, clients) - len(who), w.shape[2]))
            out[p] += np.median(np.concatenate([steps, zeros]), axis=0)
    lengths = np.linalg.norm(out, axis=1)
    most = SIZE * low(lengths[enough] if enough.any() else lengths)
    return out * np.minimum(1.0, most / lengths)[:, None]


@settings(max_examples=40)
@given(st.integers(3, 8), st.integers(0, 50), st.sampled_from([1.0, 2.5, 40.0]), st.integers(1, 5))
def test_an_average_of_patches_as_it_is_written(clients: int, seed: int, loud: float, voters: int) -> None:
    stack, before = stack_of(clients, seed, 6, 3, loud=loud), stack_of(1, seed + 1, 6, 3)[0]
    evidence = torch.from_numpy(np.random.default_rng(seed).integers(0, 4, (clients, 6))).float() ** 2
    evidence[0] = 1.0
    mine = guarded_patches(stack, evidence, before, min(voters, clients))
    other = patches_as_written(
        stack.double().numpy(), evidence.double().numpy(), before.double().numpy(), min(voters, clients)
    )
    np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@settings(max_examples=40)
@given(st.integers(2, 8), st.integers(0, 50), st.sampled_from([1.0, 2.5, 40.0]), st.booleans())
def test_shares_as_they_are_written(clients: int, seed: int, loud: float, all_sent: bool) -> None:
    flat = stack_of(clients, seed, 12, loud=loud)
    share = torch.softmax(2 * stack_of(clients, seed + 1, clients), dim=1)
    own = torch.arange(clients)
    if not all_sent:
        own[0] = -1
    mine = guarded_shares(share, flat, own)
    w, a = flat.double().numpy(), share.double().numpy()
    apart = np.array([[np.linalg.norm(x - y) for x in w] for y in w])
    radii = [low(np.delete(apart[i], i)) for i in range(clients)]
    for i in range(clients):
        trusts_itself = own[i] >= 0 and radii[i] <= FAR * low(radii)
        centre = i if trusts_itself else int(np.argmin(radii))
        expected = np.zeros(clients)
        for j in range(clients):
            if j != centre and apart[centre, j] <= FAR * radii[centre]:
                expected[j] = min(a[i, j], SHARE / clients) * min(1.0, radii[centre] / apart[centre, j])
        expected[centre] = 1.0 - expected.sum()
        np.testing.assert_allclose(mine[i], expected, rtol=1e-3, atol=1e-5)
    mixed = GuardedAverage().mix(share, flat, own)
    np.testing.assert_allclose(mixed, mine.double() @ flat.double(), rtol=1e-3, atol=1e-4)


@settings(max_examples=30)
@given(st.integers(2, 9), st.integers(0, 50))
def test_who_goes_against_the_others_as_it_is_written(clients: int, seed: int) -> None:
    steps = stack_of(clients, seed, 5).double()
    limit = -max(0.25, 1.5 / (clients - 1))
    unit = steps / steps.norm(dim=1, keepdim=True)
    cosine = (unit @ unit.T).numpy()
    expected = [low(np.delete(cosine[m], m)) >= limit for m in range(clients)]
    assert agrees(steps @ steps.T).bool().tolist() == expected


def test_who_goes_against_the_others_in_all_or_in_a_long_tensor_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    common = torch.ones(6)
    honest = common + 0.1 * stack_of(5, 0, 6)
    long = torch.cat([honest, -common.unsqueeze(0)])
    short = torch.cat([honest, common.unsqueeze(0)]) / 10
    zeros = [torch.zeros(6), torch.zeros(6)]
    assert [t.tolist() for t in trusted([long, short], zeros, [None, None])] == [[1.0] * 5 + [0.0]] * 2
    votes = torch.ones(6, 6, dtype=torch.bool)
    votes[5] = False  # what it has no evidence for is no step
    assert trusted([long], zeros[:1], [votes])[0].tolist() == [1.0] * 6
    # In a short tensor alone it may go its own way, in a long one it may not.
    assert trusted([short, long / 100], zeros, [None, None])[1].tolist() == [1.0] * 6
    monkeypatch.setattr(guarded_aggregation, "ENTRIES", 6)
    assert trusted([short, long / 100], zeros, [None, None])[1].tolist() == [1.0] * 5 + [0.0]


def test_lower_medians_of_what_is_finite() -> None:
    x = torch.tensor([[3.0, torch.inf], [1.0, 5.0], [2.0, torch.nan], [9.0, torch.inf]])
    assert lower_median(x).tolist() == [2.0, 5.0]
    assert lower_median(torch.full((2, 1), torch.inf)).tolist() == [torch.inf]
    assert coordinate_median(torch.tensor([[1.0], [5.0], [9.0], [2.0]])).tolist() == [3.5]
    votes = torch.tensor([[True, False], [True, False]])
    assert median_of(torch.tensor([[[1.0], [7.0]], [[3.0], [7.0]]]), votes).tolist() == [[2.0], [0.0]]


# -- few voters --------------------------------------------------------------------------------------


def few(values: list[float], voters: int = 3) -> float:
    """The average of one number, before 0.5, of which as many of eight clients as there are values have evidence.

    Another patch, for which all have evidence, says what is usual.
    """
    stack, evidence = torch.full((8, 2, 1), 1.0), torch.ones(8, 2)
    evidence[:, 1] = 0.0
    for m, value in enumerate(values):
        stack[m, 1], evidence[m, 1] = 0.5 + value, 1.0
    return float(guarded_patches(stack, evidence, torch.tensor([[0.0], [0.5]]), voters)[1]) - 0.5


def test_where_few_clients_vote_the_previous_value_votes_too() -> None:
    assert few([]) == 0.0
    assert few([1.0]) == 0.0  # a row that one client owns
    assert few([1.0, -1.0]) == 0.0
    assert few([0.5, 1.0]) == pytest.approx(0.5)
    assert few([0.5, 1.0, 0.9]) == pytest.approx(0.8)
    assert few([0.5, 1.0, 0.9], voters=5) == pytest.approx(0.5)
    assert few([1.0], voters=1) == pytest.approx(1.0)


@pytest.mark.parametrize("lie", [-50.0, 1e30, torch.inf, torch.nan])
@pytest.mark.parametrize("claim", [1.0, 1e9])
def test_a_hostile_owner_of_rows_moves_nothing(lie: float, claim: float) -> None:
    """One of ten claims to have seen everything. Five rows are its own, five it shares with one client, ten with all."""
    before = stack_of(1, 1, 20, 3)[0]
    stack = before + 0.1 * stack_of(10, 2, 20, 3)
    evidence = torch.ones(10, 20)
    evidence[1:, :5] = 0.0
    evidence[2:, 5:10] = 0.0
    honest = guarded_patches(stack[1:], evidence[1:], before, 3)
    stack[0], evidence[0] = lie, claim
    for rule in (GuardedAverage(), RobustAverage("median")):
        mine = rule.average_patches(stack, evidence, torch.zeros(10, 1), before)
        moved = (mine - before)[:5].nan_to_num(nan=torch.inf).abs().max()
        assert (float(moved) == 0.0) == isinstance(rule, GuardedAverage)  # the median believes the only voter
    assert torch.allclose(
        GuardedAverage().average_patches(stack, evidence, torch.zeros(10, 1), before), honest, atol=1e-6
    )


@pytest.mark.parametrize("lie", [-50.0, 1e30, torch.inf, torch.nan])
def test_two_of_ten_hostile_clients_change_little(lie: float) -> None:
    stack, before = stack_of(10, 3, 4, 3), torch.zeros(4, 3)
    share, weight = torch.full((10, 10), 0.1), torch.ones(10)
    rule = GuardedAverage()
    honest = rule.average(stack[:8], weight[:8], before)
    stack[8:], weight[8:] = lie, 1e9
    apart = rule.average(stack, weight, before) - honest  # the radius is another client's now
    assert float(apart.norm()) < 0.2 * float(honest.norm())
    mixed = rule.mix(share, stack)
    assert torch.isfinite(mixed).all()
    assert float(mixed[:8].abs().max()) <= float(stack[:8].abs().max()) + 1e-5
    limited = rule.limited(stack)
    assert torch.equal(limited[8:], torch.zeros(2, 4, 3))
    assert float(limited.flatten(1).norm(dim=1).max()) <= lower_median(stack[:8].flatten(1).norm(dim=1)) * 1.5


def test_no_client_gives_another_more_than_twice_an_equal_share() -> None:
    flat = stack_of(10, 0, 5)
    share = torch.full((10, 10), 0.01 / 9)
    share[:, 3] = 0.99  # it looks like everyone
    mine = guarded_shares(share, flat, torch.arange(10))
    assert all(float(mine[i, 3]) <= 0.2 + 1e-6 for i in range(10) if i != 3)


def test_counts_of_statistics_are_bounded() -> None:
    count = torch.tensor([[4.0, 0.0], [5.0, 3.0], [6.0, 3.0], [1e9, 1e9]])
    size = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 9.0], [1.0, 1.0]])
    assert GuardedAverage().limited_counts(count, size).tolist() == [[4.0, 0.0], [5.0, 3.0], [6.0, 0.0], [15.0, 9.0]]
    assert WEIGHTED_MEAN.limited_counts(count, size) is count
    assert WEIGHTED_MEAN.limited(size) is size
    assert WEIGHTED_MEAN.trust([size], [size[0]], [None]) is None


def test_what_is_centred_is_brought_near_the_median() -> None:
    stack = torch.tensor([[1.0], [1.1], [0.9], [1.2], [-50.0]])
    assert GuardedAverage().limited(stack, centred=True).ravel().tolist() == pytest.approx([1.0, 1.1, 0.9, 1.1, 1.0])


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stack, before = stack_of(6, 0, 8, 3), stack_of(1, 1, 8, 3)[0]
    evidence, share = (stack_of(6, 2, 8) > 0).float(), torch.softmax(stack_of(6, 3, 6), dim=1)

    def all_of_them() -> list[torch.Tensor]:
        rule, votes = GuardedAverage(), evidence > 0
        trust = rule.trust([stack, stack], [before, before], [None, votes])
        assert trust is not None
        return [rule.average(stack), rule.mix(share, stack), guarded_patches(stack, evidence, before, 3), *trust]

    whole = all_of_them()
    monkeypatch.setattr(guarded_aggregation, "CHUNK", 20)
    for one, other in zip(whole, all_of_them(), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


# -- in methods --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedavg", "fedper", "fedhero", "fedpub", "fediih", "quilt", "fedssa", "fedsheafhn"])
def test_a_cohort_of_all_and_cohorts_of_one_are_the_same(name: str) -> None:
    clients = ragged_clients()
    trainings = []
    for size in (None, 1):
        method = make_method(name, clients, averaging=GuardedAverage())
        training = make_training(method, clients, Plan(3), cohort_size=size)
        training.run()
        trainings.append(training)
    one, other = (t.records for t in trainings)
    for mine, theirs in zip(one, other, strict=True):
        assert mine["val_loss"] == pytest.approx(theirs["val_loss"], rel=1e-4)


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedper", "fedhero", "quilt"])
def test_the_server_remembers_what_it_sent(name: str) -> None:
    clients, settings = ragged_clients(), averaging_settings(name)
    method = make_method(name, clients, averaging=GuardedAverage(), **settings)
    training = make_training(method, clients, Plan(2))
    start = method.public_start()
    before = {n: v.clone() for n, v in training.server.items() if n.startswith("previous.")}
    assert before
    assert all(torch.equal(v, start[n.removeprefix("previous.")]) for n, v in before.items())
    training.run()
    assert {f"previous.{n}" for n in training.down} == set(before)
    assert all(torch.equal(training.server[f"previous.{n}"], value) for n, value in training.down.items())
    plain, _ = make_method(name, clients, **settings).server_start()
    assert not any(n.startswith("previous.") for n in plain)


@pytest.mark.parametrize("kind", ["flip", "own-rows", "inflated"])
def test_rows_that_a_hostile_client_owns_stay_small_in_a_training(kind: Any) -> None:
    """With the median they grow by the attack's factor in every round."""
    clients = ragged_clients(sparse=True)
    largest = {}
    for rule in (RobustAverage("median"), GuardedAverage()):
        method = make_method("quilt", clients, averaging=rule, **FIRST_QUILT)
        attack = Attack(kind, 100.0, frozenset({0}), 3, method.evidence_of)
        training = make_training(method, clients, Plan(4), upload_transforms=[OwnRow(), attack])
        training.advance(4)
        largest[type(rule)] = float(training.down["model.hidden.weight"].abs().max())
    assert largest[RobustAverage] > 1e4
    assert largest[GuardedAverage] < 3


class OwnRow(Attack):
    """Nobody but client 0 has seen the first feature."""

    def __init__(self) -> None:
        super().__init__("flip", 1.0, frozenset(), 0)

    def applied(self, uploads: Any, *rest: Any) -> Any:
        seen = uploads["seen.features"].clone()
        seen[1:, 0] = 0.0
        return uploads | {"seen.features": seen}
