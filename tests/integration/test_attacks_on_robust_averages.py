"""Attacks against robust averages: whatever few hostile clients send, the honest ones' models stay near those without them."""

from __future__ import annotations

import pytest
from torch import Tensor

from fedquilt.errors import FedquiltError
from fedquilt.methods.base import methods
from fedquilt.scenarios.attacks import Attack
from fedquilt.scenarios.kinds import AggregationRule, AttackKind
from fedquilt.scenarios.robust_aggregation import averaging_rule, check_averages
from fedquilt.training.plan import Plan
from support.federations import averaging_settings, make_method, make_training, ragged_clients

SIZES = (25, 14, 31, 19, 18, 22, 27)
MALICIOUS = frozenset({1, 4})
HONEST = [m for m in range(len(SIZES)) if m not in MALICIOUS]
ROUNDS = 3
LOUD = 1e3  # so loud that a mean has nothing of the honest clients left


def models(
    name: str,
    rule: AggregationRule,
    kind: AttackKind | None,
    participation: float = 1.0,
    malicious: frozenset[int] = MALICIOUS,
) -> dict[str, Tensor]:
    """The honest clients' models after some rounds."""
    clients = ragged_clients(SIZES)
    method = make_method(name, clients, averaging=averaging_rule(rule), **averaging_settings(name))
    attacks = [] if kind is None else [Attack(kind, LOUD, malicious, 3, method.evidence_of)]
    one = make_training(method, clients, Plan(ROUNDS, participation), upload_transforms=attacks)
    one.run()
    return {weight: value[HONEST].double() for weight, value in one.engine.personal().items()}


def apart(one: dict[str, Tensor], two: dict[str, Tensor]) -> float:
    return float(max((one[name] - two[name]).abs().max() for name in one))


SERVERS = (
    "fedavg",
    "scaffold",
    "feddyn",
    "fedpub",
    "fediih",
    "fedgta",
    "pfedgraph",
    "gcfl",
    "fedhero",
    "fedsheafhn",
    "quilt",
)
CASES: list[tuple[str, AggregationRule, AttackKind]] = [
    *((name, "guarded", "inflated") for name in SERVERS),
    *((name, "median", "flip") for name in ("fedavg", "fedpub", "fediih", "quilt")),
    *((name, "clipped", "noise") for name in ("fedavg", "fedgta", "quilt")),
]
NEAR = 0.25  # what rules, and hostile clients within them, change of weights that a mean brings to 2 and far more


@pytest.mark.parametrize(("name", "rule", "kind"), CASES)
def test_two_of_seven_do_not_move_a_robust_average_far(name: str, rule: AggregationRule, kind: AttackKind) -> None:
    clean = models(name, "mean", None)
    assert apart(models(name, "mean", kind), clean) > 8 * NEAR
    assert apart(models(name, rule, kind), clean) < NEAR


@pytest.mark.parametrize("name", ["fedavg", "quilt"])
def test_they_do_not_where_some_sit_out(name: str) -> None:
    clean = models(name, "mean", None, participation=0.7)
    assert apart(models(name, "mean", "inflated", participation=0.7), clean) > 8 * NEAR
    assert apart(models(name, "guarded", "inflated", participation=0.7), clean) < NEAR


def test_trimming_a_fifth_bears_one_of_seven_and_not_two() -> None:
    clean = models("fedavg", "mean", None)
    assert apart(models("fedavg", "trimmed", "flip"), clean) > 8 * NEAR
    assert apart(models("fedavg", "trimmed", "flip", malicious=MALICIOUS - {1}), clean) < NEAR


@pytest.mark.parametrize("name", ["fedproto", "fedssa"])
def test_models_that_never_leave_stay_near_whatever_is_sent(name: str) -> None:
    clean = models(name, "mean", None)
    for rule in ("mean", "guarded"):
        assert apart(models(name, rule, "inflated"), clean) < NEAR


def test_every_server_is_guarded_or_says_that_it_cannot_be() -> None:
    sends = {name for name in methods() if make_method(name, ragged_clients(SIZES)).sent_uploads()}
    refused = set()
    for name in sends:
        try:
            check_averages(make_method(name, ragged_clients(SIZES)), "guarded")
        except FedquiltError:
            refused.add(name)
    assert refused == {"fedtad"}
