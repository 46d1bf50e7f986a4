"""The names of attacks and rules are those that the scenarios implement."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest
import torch

from fedquilt.scenarios.attacks import Attack
from fedquilt.scenarios.kinds import AggregationRule, AttackKind
from fedquilt.scenarios.robust_aggregation import Rule
from support.cli import environment


def test_every_rule_but_the_mean_is_a_robust_average() -> None:
    assert set(get_args(AggregationRule)) == {"mean", *get_args(Rule)}


@pytest.mark.parametrize("kind", get_args(AttackKind))
def test_every_attack_replaces_the_embedding(kind: AttackKind) -> None:
    attack = Attack(kind, 5.0, frozenset({1}), 0)
    sent = attack.applied({"embedding": torch.ones(2, 3)}, (), 0, torch.tensor([0, 1]), {})["embedding"]
    assert torch.equal(sent[0], torch.ones(3))
    assert not torch.equal(sent[1], torch.ones(3))


def test_the_names_need_no_torch() -> None:
    script = "import sys, fedquilt.scenarios.kinds; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], env=environment(), check=False).returncode == 0
