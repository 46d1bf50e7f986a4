"""Each attack on each method runs and changes what the server receives from exactly the malicious clients, or is refused.

What is attacked is what a method sends: weights, or prototypes, distributions and the like where it sends no weights.
"""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch

from fedquilt.cohort.client import Client
from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Message, dense
from fedquilt.methods.base import methods
from fedquilt.scenarios.attacks import EMBEDDING, Attack, check_attackable
from fedquilt.scenarios.kinds import AttackKind
from fedquilt.scenarios.poisoned_labels import with_poisoned_labels
from fedquilt.training.plan import Plan
from support.federations import make_method, make_training, ragged_clients

ATTACKS = get_args(AttackKind)
MALICIOUS = frozenset({1, 3})
ROUNDS = 2
# One attack of each sort in `make test`; all of them in `make test-long`.
QUICK = ("scaled", "counts", "labels")


class Recorded(Attack):
    """An attack that keeps the uploads before and after it."""

    def __init__(self, *fields: Any) -> None:
        super().__init__(*fields)
        object.__setattr__(self, "seen", [])

    def applied(self, uploads: Message, specs: Any, round: int, senders: torch.Tensor, down: Message) -> Message:
        before = {name: dense(value).clone() for name, value in uploads.items()}
        after = super().applied(uploads, specs, round, senders, down)
        self.seen.append((senders.tolist(), before, {name: dense(value).clone() for name, value in after.items()}))
        return after


def uploads_under(name: str, kind: str) -> list[tuple[list[int], Message, Message]]:
    """Of each round: the senders, what they trained, and what the server received."""
    clients = ragged_clients((25, 14, 31, 9, 18))
    if kind == "labels":
        clients = [with_poisoned_labels(client) if client.id in MALICIOUS else client for client in clients]
    return _run(name, kind, clients)


def _run(name: str, kind: str, clients: list[Client]) -> list[tuple[list[int], Message, Message]]:
    method = make_method(name, clients)
    check_attackable(method, kind)  # type: ignore[arg-type]
    attack = Recorded(kind, 0.5, MALICIOUS, 3, method.evidence_of)
    make_training(method, clients, Plan(ROUNDS, 1.0), upload_transforms=[attack]).run()
    return attack.seen


def changed_clients(senders: list[int], before: Message, after: Message) -> set[int]:
    assert before.keys() == after.keys()
    return {
        client
        for place, client in enumerate(senders)
        if any(not torch.equal(before[name][place], after[name][place]) for name in before)
    }


REFUSALS = "uploads nothing to attack|uploads no embedding|uploads no counts|does not average by evidence"


def is_refused(name: str, kind: str) -> bool:
    """Whether a method sends nothing that the attack replaces, as it declares what it sends."""
    method = make_method(name, ragged_clients((25, 14)))
    sent = method.sent_uploads()
    if kind in ("gaussian", "same-value"):
        return not method.sends(EMBEDDING) or all(spec.name != EMBEDDING for spec in method.uploads)
    wanted = {"counts": any(spec.count for spec in sent), "own-rows": method.averages_by_evidence()}
    return not sent or not wanted.get(kind, True)


@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.long) for kind in ATTACKS]
)
@pytest.mark.parametrize("name", methods())
def test_an_attack_changes_what_malicious_clients_send_or_is_refused(name: str, kind: str) -> None:
    if is_refused(name, kind):
        with pytest.raises(FedquiltError, match=REFUSALS):
            uploads_under(name, kind)
        return
    seen = uploads_under(name, kind)
    assert seen
    changed = [changed_clients(*round) for round in seen]
    if kind == "labels":
        honest = _run(name, "labels", ragged_clients((25, 14, 31, 9, 18)))
        (senders, before, _), (_, clean, _) = seen[0], honest[0]
        first = changed_clients(senders, clean, before)
        later = set().union(*(changed_clients(s, c, b) for (s, b, _), (_, c, _) in zip(seen, honest, strict=True)))
        assert first <= MALICIOUS  # before the server has averaged anything
        assert later & MALICIOUS
        assert changed == [set()] * len(changed)  # it is the data that is poisoned
        return
    assert set().union(*changed) <= MALICIOUS
    if kind == "own-rows":
        return  # it strikes only where it wins
    assert set().union(*changed) == MALICIOUS


def test_what_can_be_attacked_is_as_documented() -> None:
    from support.pages import ROOT

    page = (ROOT / "docs" / "how-to" / "noise-and-attacks.md").read_text(encoding="utf-8")
    listed = page[page.index("| attack |") : page.index("## Robust")]
    for kind in ATTACKS:
        assert f"| `{kind}` |" in listed
    clients = ragged_clients((25, 14))
    sorts = {"nothing": set(), "counts": set(), EMBEDDING: set()}
    for name in methods():
        method = make_method(name, clients)
        if not method.sent_uploads():
            sorts["nothing"].add(name)
        if any(spec.count for spec in method.sent_uploads()):
            sorts["counts"].add(name)
        try:
            check_attackable(method, "gaussian")
            sorts[EMBEDDING].add(name)
        except FedquiltError:
            pass
    for start, found in zip(
        ("Nothing is sent by", "Counts are sent by", "Embeddings are sent by"), sorts.values(), strict=True
    ):
        line = next(line for line in page.splitlines() if line.startswith(f"- {start}"))
        assert {
            piece.strip("`., ") for piece in line.removeprefix(f"- {start}").replace(" and ", ",").split(",")
        } == found
