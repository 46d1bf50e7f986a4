"""What everyone knows of uploads before round 0, and what is sent with which settings: every method."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import declared, dense
from fedquilt.methods.base import methods
from fedquilt.privacy.dp import DpConfig, Privatiser, Protection
from fedquilt.training.plan import Plan
from support.federations import make_method, make_task, make_training, ragged_clients, tapped_run

CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in methods()),
    *(("fedhero", {"learner": kind}) for kind in ("cosine", "attention", "gat", "glcn", "gaug")),
    *(("fedhero", {"share": kind}) for kind in ("gcn", "all", "none")),
    ("fedpub", {"similarity": "label"}),
    ("fedpub", {"matching": False}),
    ("fedsheafhn", {"client_vector": "one-hot"}),
    ("fedssa", {"components": 2}),
    ("fedssa", {"semantic": False}),
    ("fedssa", {"structural": False}),
    ("fedssa", {"semantic": False, "structural": False}),
    ("quilt", {"share": "layer,head,filter"}),
    ("quilt", {"share": "filter"}),
    ("quilt", {"share": "head", "evidence": False}),
    ("quilt", {"share": ""}),
]
CLIENTS = ragged_clients((12, 9, 14))
ROUNDS = 3


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_every_client_starts_from_what_everyone_knows_and_sends_what_is_said(
    name: str, settings: dict[str, Any]
) -> None:
    method = make_method(name, CLIENTS, make_task(CLIENTS), **settings)
    known, start = method.public_start(), method.start(Cohort(CLIENTS))
    for tensor in known:
        if tensor in start:
            everyones = dense(known[tensor]).expand_as(start[tensor])
            if tensor.removeprefix("model.") in getattr(method, "readers", ()):  # of features in the client's own units
                everyones = everyones * start["feature scale"].view(-1, 1, 1)
            assert torch.equal(everyones, start[tensor]), tensor
    counts = {spec.name for spec in method.uploads if spec.count}
    assert not counts & set(known)
    uploads = tapped_run(method, CLIENTS, ROUNDS, 1.0)[1].ups
    for upload in uploads:
        assert set(upload) & set(start) <= set(known) | counts
        assert all(dense(known[sent]).shape == upload[sent].shape[1:] for sent in set(upload) & set(known))
    sent = {tensor for upload in uploads for tensor in upload}
    said = {spec.name for spec in method.sent_uploads()}
    assert {spec.name for tensor in sent if (spec := declared(method.uploads, tensor))} == said


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_who_changes_nothing_sends_what_is_known_in_every_round(name: str, settings: dict[str, Any]) -> None:
    """Only the change is clipped: constants, such as the covariances that FedSSA starts from, arrive as they are."""
    method = make_method(name, CLIENTS, make_task(CLIENTS), **settings)
    known, aggregate = method.public_start(), method.aggregate
    seen: set[str] = set()

    def watched(server: Any, uploads: Any, *rest: Any) -> Any:
        for sent in set(uploads) & set(known):
            base = dense((known | training.down)[sent])
            tensor = dense(uploads[sent])
            assert torch.allclose(tensor, base.expand_as(tensor), rtol=1e-6, atol=1e-6), sent
            seen.add(sent)
        return aggregate(server, uploads, *rest)

    method.aggregate = watched  # type: ignore[method-assign]
    privatiser = Privatiser(DpConfig(clip=1e-9, noise=1e-3), 3, method.context.seed)
    protection = Protection(privatiser, tuple(range(1, method.total_rounds(ROUNDS) + 1)), known)
    training = make_training(method, CLIENTS, Plan(ROUNDS), upload_transforms=[protection])
    training.run()
    sent = {tensor for record in training.records for tensor in record["bytes_up"]}
    assert seen == sent & set(known)
    if name == "fedssa":
        assert seen == sent - {"energy", "class.count"}
