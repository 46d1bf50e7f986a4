"""Cutting messages by client and joining them again."""

from __future__ import annotations

import torch

from fedquilt.messages.message import Factored, Sparse, TensorSpec
from fedquilt.messages.slicing import join_messages, slice_message, take_rows

CROSSINGS = (
    TensorSpec("own", "One a client."),
    TensorSpec("same", "One for all.", shared=True),
    TensorSpec("thin", "Few."),
)


def test_slicing_and_joining_are_inverse() -> None:
    message = {"own": torch.arange(10.0).view(5, 2), "same": torch.ones(3), "thin": Sparse(torch.eye(5))}
    parts = [slice_message(message, CROSSINGS, first, last) for first, last in ((0, 2), (2, 3), (3, 5))]
    for part, (first, last) in zip(parts, ((0, 2), (2, 3), (3, 5)), strict=True):
        assert torch.equal(part["own"], message["own"][first:last])
        assert part["same"] is message["same"]
        assert isinstance(part["thin"], Sparse)
        assert torch.equal(part["thin"].tensor, torch.eye(5)[first:last])
    ups = [{name: part[name] for name in ("own", "thin")} for part in parts]
    joined = join_messages(ups)
    assert torch.equal(joined["own"], message["own"])
    assert isinstance(joined["thin"], Sparse)
    assert torch.equal(joined["thin"].tensor, torch.eye(5))
    assert join_messages(ups[:1]) is ups[0]
    assert join_messages([{}, {}]) == {}


def test_rows_are_taken_of_what_belongs_to_clients() -> None:
    thick = Factored(torch.rand(5, 2), torch.rand(2, 3), torch.rand(5), torch.rand(5, 3))
    message = {"own": torch.arange(10.0).view(5, 2), "same": torch.ones(5), "thin": Sparse(torch.eye(5)), "more": thick}
    rows = torch.tensor([1, 4])
    taken = take_rows(message, rows, CROSSINGS)
    assert torch.equal(taken["own"], message["own"][rows])
    assert taken["same"] is message["same"]
    assert isinstance(taken["thin"], Sparse)
    assert torch.equal(taken["thin"].tensor, torch.eye(5)[rows])
    assert torch.allclose(taken["more"].rows(0, 2), thick.rows(0, 5)[rows])
    assert len(take_rows(message, rows)["same"]) == 2  # uploads are never shared
    assert len(take_rows(message, rows[:0])["own"]) == 0
