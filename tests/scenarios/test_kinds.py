"""The names of attacks and rules are those that the scenarios implement."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest
import torch

from fedquilt.messages.message import TensorSpec
from fedquilt.scenarios.attacks import ON_EMBEDDINGS, Attack
from fedquilt.scenarios.kinds import AggregationRule, AttackKind
from fedquilt.scenarios.robust_aggregation import Rule
from support.cli import environment


def test_every_rule_but_the_mean_is_a_robust_average() -> None:
    assert set(get_args(AggregationRule)) == {"mean", "guarded", *get_args(Rule)}


@pytest.mark.parametrize("kind", get_args(AttackKind))
def test_every_attack_replaces_something_of_malicious_clients_only(kind: AttackKind) -> None:
    attack = Attack(kind, 5.0, frozenset({1}), 0, {"model.w": ("seen", 0)}.get)
    honest = {"embedding": torch.ones(2, 3), "model.w": torch.ones(2, 3), "seen": torch.eye(2, 3)}
    down = {"model.w": torch.zeros(3)}
    sent = attack.applied(honest, (TensorSpec("seen", ".", count=True),), 0, torch.tensor([0, 1]), down)
    assert all(torch.equal(sent[name][0], honest[name][0]) for name in honest)
    changed = "embedding" if kind in ON_EMBEDDINGS else "seen" if kind == "counts" else "model.w"
    # Who trains on false labels sends what comes of it.
    assert torch.equal(sent[changed][1], honest[changed][1]) == (kind == "labels")


def test_the_names_need_no_torch() -> None:
    script = "import sys, fedquilt.scenarios.kinds; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], env=environment(), check=False).returncode == 0
