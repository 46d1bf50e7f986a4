"""Robust averages: against NumPy, against hostile clients, and in a training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import trim_mean

import fedquilt
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import dense
from fedquilt.methods.averaging import WEIGHTED_MEAN, weighted_mean
from fedquilt.methods.base import methods
from fedquilt.methods.fedavg import FedAvg
from fedquilt.scenarios import robust_aggregation
from fedquilt.scenarios.guarded_aggregation import GuardedAverage
from fedquilt.scenarios.robust_aggregation import RobustAverage, averaging_rule, check_averages
from fedquilt.training.plan import Plan
from support.federations import assert_same, averaging_settings, make_method, make_training, ragged_clients

RULES = ("median", "trimmed", "clipped")
# What these send is the average itself: those that average as FedAvg does, and some that do it in their own way.
AVERAGING = (
    *(name for name, kind in methods().items() if getattr(kind, "aggregate", None) is FedAvg.aggregate),
    *("fedhero", "fednova", "quilt", "scaffold"),
)
MIXING = ("fedpub", "fediih")  # an average for each client


def stack_of(clients: int, seed: int = 0, shape: tuple[int, ...] = (4, 3)) -> torch.Tensor:
    return torch.randn(clients, *shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 12), st.integers(0, 50))
def test_the_median_is_numpys(clients: int, seed: int) -> None:
    stack = stack_of(clients, seed)
    np.testing.assert_allclose(RobustAverage("median").of_voters(stack), np.median(stack, axis=0), rtol=1e-6)


@given(st.integers(1, 12), st.floats(0.0, 0.49), st.integers(0, 50))
def test_the_trimmed_mean_is_scipys_with_at_least_one_cut_off(clients: int, trim: float, seed: int) -> None:
    stack = stack_of(clients, seed)
    share = max(trim, 1 / clients) if trim and clients >= 3 else trim
    np.testing.assert_allclose(
        RobustAverage("trimmed", trim).of_voters(stack), trim_mean(stack, share, axis=0), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("clients", [3, 4])
@pytest.mark.parametrize("lie", [1e6, torch.inf, torch.nan])
def test_one_of_a_few_is_cut_off_as_well(clients: int, lie: float) -> None:
    stack = stack_of(clients)
    honest = stack[1:].clone()
    stack[0] = lie
    votes = torch.ones(clients + 2, 4, dtype=torch.bool)
    votes[clients:] = False
    longer = torch.cat([stack, torch.full((2, 4, 3), -1e9)])  # who does not vote does not make a crowd
    for mine in (RobustAverage("trimmed").of_voters(stack), RobustAverage("trimmed").of_voters(longer, votes)):
        assert ((mine >= honest.amin(0)) & (mine <= honest.amax(0))).all()


def test_nothing_is_cut_off_where_nothing_should_be() -> None:
    for clients, trim in ((1, 0.2), (2, 0.2), (3, 0.0), (7, 0.0)):
        stack = stack_of(clients)
        np.testing.assert_allclose(RobustAverage("trimmed", trim).of_voters(stack), stack.mean(0), rtol=1e-5, atol=1e-6)


@settings(max_examples=30)
@given(st.integers(1, 8), st.floats(0.1, 5.0), st.integers(0, 50))
def test_clipped_as_it_is_written(clients: int, clip: float, seed: int) -> None:
    stack = stack_of(clients, seed)
    w = stack.double().numpy()
    centre = np.median(w, axis=0)
    distance = np.array([np.linalg.norm(one - centre) for one in w])
    radius = clip * np.median(distance)
    share = np.minimum(1.0, radius / np.maximum(distance, 1e-300))
    expected = centre + (share[:, None, None] * (w - centre)).mean(0)
    np.testing.assert_allclose(RobustAverage("clipped", clip=clip).of_voters(stack), expected, rtol=1e-4, atol=1e-5)


@given(st.integers(1, 8), st.integers(0, 50), st.sampled_from(RULES))
def test_only_those_who_vote_for_a_patch_count_in_it(clients: int, seed: int, rule: Any) -> None:
    rng = np.random.default_rng(seed)
    stack, votes = stack_of(clients, seed), rng.random((clients, 4)) < 0.5
    mine = RobustAverage(rule, trim=0.3).of_voters(stack, torch.from_numpy(votes))
    for patch in range(4):
        who = np.flatnonzero(votes[:, patch])
        who = who if who.size else np.arange(clients)
        alone = stack[who, patch]
        if rule != "clipped":  # whose distances go over all patches
            np.testing.assert_allclose(
                mine[patch], RobustAverage(rule, trim=0.3).of_voters(alone), rtol=1e-5, atol=1e-6
            )
        assert (mine[patch] >= alone.amin(0) - 1e-5).all()
        assert (mine[patch] <= alone.amax(0) + 1e-5).all()


def shares_of(receivers: int, clients: int, seed: int) -> torch.Tensor:
    return torch.softmax(2.0 * stack_of(receivers, seed + 1, (clients,)), dim=1)


@given(st.integers(1, 9), st.floats(0.0, 0.49), st.integers(0, 50))
def test_weight_is_cut_off_on_both_sides_as_it_is_written(clients: int, trim: float, seed: int) -> None:
    stack, share = stack_of(clients, seed), shares_of(2, clients, seed)
    mine = RobustAverage("trimmed", trim).mix(share, stack)
    for receiver in range(2):
        for place in np.ndindex(4, 3):
            numbers, weights = stack[(slice(None), *place)].double().numpy(), share[receiver].double().numpy()
            order = np.argsort(numbers)
            edges = np.concatenate([[0.0], np.cumsum(weights[order])])
            left = np.clip(edges[1:], trim, 1 - trim) - np.clip(edges[:-1], trim, 1 - trim)
            expected = (left * numbers[order]).sum() / left.sum()
            assert float(mine[(receiver, *place)]) == pytest.approx(expected, rel=1e-3, abs=1e-4)


@given(st.integers(1, 9), st.integers(0, 50))
def test_clients_that_all_count_alike_are_mixed_as_they_are_averaged(clients: int, seed: int) -> None:
    stack, share = stack_of(clients, seed), torch.full((2, clients), 1.0 / clients)
    for rule in ("median", "clipped"):
        for mine in RobustAverage(rule).mix(share, stack):  # type: ignore[arg-type]
            assert torch.allclose(mine, RobustAverage(rule).of_voters(stack), rtol=1e-4, atol=1e-4)  # type: ignore[arg-type]


@given(st.integers(1, 9), st.integers(0, 50))
def test_the_weighted_median_has_half_the_weight_on_each_side(clients: int, seed: int) -> None:
    stack, share = stack_of(clients, seed), shares_of(1, clients, seed)
    (mine,) = RobustAverage("median").mix(share, stack)
    below = (share[0].view(-1, 1, 1) * (stack < mine - 1e-3)).sum(0)
    above = (share[0].view(-1, 1, 1) * (stack > mine + 1e-3)).sum(0)
    assert float(below.max()) <= 0.5 + 1e-3
    assert float(above.max()) <= 0.5 + 1e-3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("lie", [1e6, torch.inf, torch.nan])
def test_hostile_clients_with_little_weight_cannot_carry_a_mix_away(rule: Any, lie: float) -> None:
    stack, share = stack_of(10), torch.full((3, 10), 0.1)
    honest = stack[:8].clone()
    stack[8:] = lie
    for mine in RobustAverage(rule, trim=0.25).mix(share, stack):
        assert (mine - honest.mean(0)).norm() < honest.std(0).norm()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("lie", [1e6, torch.inf, torch.nan])
def test_two_of_ten_hostile_clients_cannot_carry_the_average_away(rule: Any, lie: float) -> None:
    stack = stack_of(10)
    honest = stack[:8].clone()
    stack[8:] = lie
    mine = RobustAverage(rule).of_voters(stack)
    assert (mine - honest.mean(0)).norm() < honest.std(0).norm()
    if rule != "clipped":
        assert ((mine >= honest.amin(0)) & (mine <= honest.amax(0))).all()


@pytest.mark.parametrize("rule", RULES)
def test_equal_clients_are_their_average(rule: Any) -> None:
    one = stack_of(1)
    assert torch.allclose(RobustAverage(rule).of_voters(one.expand(7, 4, 3)), one[0])


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stack, votes = stack_of(6), torch.rand(6, 4, generator=torch.Generator().manual_seed(1)) < 0.6
    share = shares_of(2, 6, 0)

    def all_of_them() -> list[torch.Tensor]:
        rules = [RobustAverage(rule) for rule in RULES]  # type: ignore[arg-type]
        return [rule.of_voters(stack, who) for rule in rules for who in (None, votes)] + [
            r.mix(share, stack) for r in rules
        ]

    whole = all_of_them()
    monkeypatch.setattr(robust_aggregation, "CHUNK", 30)
    parts = all_of_them()
    for one, other in zip(whole, parts, strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-7)


# -- in methods --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AVERAGING)
def test_methods_that_average_do_so_by_the_rule(name: str) -> None:
    clients, settings = ragged_clients(), averaging_settings(name)
    downs = {}
    for rule in (None, *RULES):
        averaging = averaging_rule(rule or "mean", 0.2, 1.0)  # type: ignore[arg-type]
        method = make_method(name, clients, averaging=averaging, **settings)
        training = make_training(method, clients, Plan(2))
        training.runner.run(0)
        downs[rule] = training.down
    uploads, _ = make_training(make_method(name, clients, **settings), clients, Plan(2)).engine.round(
        0, torch.arange(5), method.server_start()[1], False
    )
    weights = [n for n in downs[None] if n.startswith("model.") and n.endswith("bias") and "classifier" not in n]
    assert weights
    for weight in weights:
        np.testing.assert_allclose(downs["median"][weight], np.median(uploads[weight], axis=0), rtol=1e-5, atol=1e-7)
        assert not torch.allclose(downs[None][weight], downs["median"][weight], rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", MIXING)
def test_methods_that_give_each_client_an_average_do_so_by_the_rule(name: str) -> None:
    clients = ragged_clients()

    def down(rule: Any, spoilt: bool) -> dict[str, Any]:
        rules = averaging_rule(rule or "mean", 0.2, 1.0)
        method = make_method(name, clients, averaging=rules, tau=1e-6)  # everyone counts alike
        training = make_training(method, clients, Plan(2))
        uploads, _ = training.engine.round(0, torch.arange(5), training.down, False)
        if spoilt:
            weights = {n: v.clone() for n, v in uploads.items() if n.startswith("model.")}
            for weight in weights.values():
                weight[2] = 1e9
            uploads |= weights
        return {n: dense(v) for n, v in method.aggregate(training.server, uploads, *[torch.arange(5)] * 2).items()}

    mean = down(None, spoilt=False)
    weights = [n for n in mean if n.startswith("model.") and n.endswith("weight")]
    assert weights
    for rule in RULES:
        alike, kept = down(rule, spoilt=False), down(rule, spoilt=True)
        for weight in weights:
            assert not torch.allclose(alike[weight], mean[weight], rtol=1e-4, atol=0)
            assert float(kept[weight].abs().max()) < 10 * float(mean[weight].abs().max())
    assert all(float(down(None, spoilt=True)[weight].abs().max()) > 1e7 for weight in weights)


def test_quilts_evidence_says_who_votes() -> None:
    clients = ragged_clients(sparse=True)
    method = make_method("quilt", clients, averaging=RobustAverage("median"), **averaging_settings("quilt"))
    uploads, _ = make_training(method, clients, Plan(2)).engine.round(0, torch.arange(5), {}, False)
    uploads["seen.features"][1:, 0] = 0
    down = method.aggregate({}, uploads, torch.arange(5), torch.arange(5))
    assert torch.equal(down["model.hidden.weight"][0], uploads["model.hidden.weight"][0, 0])


def test_the_mean_is_the_mean() -> None:
    method = make_method("fedavg", ragged_clients())
    stack, weight = stack_of(5), torch.rand(5)
    assert method.averaging is WEIGHTED_MEAN is averaging_rule("mean", 0.2, 1.0)
    assert averaging_rule("guarded", voters=5) == GuardedAverage(5)
    assert torch.equal(method.averaging.average(stack, weight), weighted_mean(stack, weight))


GUARDED = ("fedssa", "fedsheafhn")  # which do not average


def test_methods_that_do_not_average_are_refused() -> None:
    clients = ragged_clients()
    assert all(make_method(name, clients).averages() for name in AVERAGING + MIXING)
    assert not any(make_method(name, clients).averages() for name in (*GUARDED, "local", "majority"))
    for name, kind in methods().items():
        method = make_method(name, clients)
        if method.averages():
            check_averages(method, "median")
            check_averages(method, "guarded")
            continue
        assert bool(kind.guarded) or name not in GUARDED
        instead = "choose aggregation=guarded, or" if kind.guarded else "leave out aggregation, or"
        with pytest.raises(
            FedquiltError, match=f"The server of method '{name}' does not average .*{instead}.*: .*fedavg,"
        ):
            check_averages(method, "median")
        if kind.guarded:
            check_averages(method, "guarded")
        else:
            with pytest.raises(FedquiltError, match=r"does not average .*robust by .guarded.; leave out aggregation"):
                check_averages(method, "guarded")
    check_averages(make_method("fedpub", clients, matching=False), "median")
    for name, nothing in (("fedhero", {"share": "none"}), ("quilt", {"share": ""})):
        with pytest.raises(FedquiltError, match="With these settings"):
            check_averages(make_method(name, clients, **nothing), "median")


def test_two_clients_have_no_middle() -> None:
    for clients in (1, 2):
        method = make_method("fedavg", ragged_clients((12, 9)[:clients]))
        with pytest.raises(
            FedquiltError, match=f"needs at least 3 clients and there are {clients}: .*leave out aggregat"
        ):
            check_averages(method, "median")
    check_averages(make_method("fedavg", ragged_clients((12, 9, 14))), "guarded")


# -- in a run ----------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"clients": 5, "rounds": 3, "device": "cpu", "settings": {"hidden": 8}}


def test_a_run_takes_the_rule_and_the_mean_is_the_default() -> None:
    plain, said, other = (
        fedquilt.run("fedavg", **SMALL, **options)
        for options in ({}, {"aggregation": "mean"}, {"aggregation": "trimmed", "aggregation_trim": 0.3})
    )
    assert_same(plain.models[0], said.models[0])
    assert not torch.equal(plain.models[0]["conv1.weight"], other.models[0]["conv1.weight"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"aggregation": "mode"}, "The option aggregation='mode' is not possible"),
        (
            {"aggregation_trim": 0.1},
            "The option aggregation_trim=0.1 is not possible: it is for aggregation=trimmed only",
        ),
        (
            {"aggregation": "trimmed", "aggregation_trim": 0.5},
            "aggregation_trim=0.5 is not possible: input should be less",
        ),
        ({"aggregation": "median", "aggregation_clip": 2.0}, "it is for aggregation=clipped only"),
        ({"aggregation_voters": 5}, "it is for aggregation=guarded only"),
        ({"aggregation": "guarded", "aggregation_voters": 0}, "aggregation_voters=0 is not possible"),
        ({"clients": 2, "aggregation": "trimmed"}, "A robust average needs at least 3 clients and there are 2"),
        ({"method": "fedssa", "aggregation": "median"}, "The server of method 'fedssa' does not average"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(options: dict[str, Any], sentence: str) -> None:
    values = {"method": "fedavg", **SMALL, **options}
    with pytest.raises(FedquiltError, match=sentence):
        fedquilt.run(values.pop("method"), **values)
