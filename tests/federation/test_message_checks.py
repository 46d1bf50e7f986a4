"""Checks of messages, and the forms that they are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fedquilt.federation.message_checks import (
    BadMessageError,
    ExpectedMessages,
    overlong_uploads,
    read_download,
    read_upload,
)
from fedquilt.messages.message import Message, Sparse, dense
from fedquilt.messages.slicing import slice_message
from fedquilt.messages.wire import encode
from fedquilt.methods.base import find_method
from support.federations import make_method, make_task, ragged_clients
from support.flower_doubles import federation
from support.tampering import W


def sized(*sizes: float, counts: float = 1.0) -> dict[int, Message]:
    """Uploads whose weights have these entries."""
    return {m: {W: torch.full((1, 4), size), "train_nodes": torch.full((1,), counts)} for m, size in enumerate(sizes)}


SPECS = find_method("fedavg").uploads


@pytest.mark.parametrize(
    ("sizes", "left_out"),
    [
        ((1.0, 1.0, 900.0), {2}),
        ((1.0, 1.0, 31.0), {2}),
        ((1.0, 1.0, 29.0), set()),
        ((1.0, 1.0, 0.0), set()),  # who sends nothing is no measure for the others
        ((1.0, 1.0, 1.0, 0.0, 0.0), set()),
        ((1.0, 1.0, 1.0, 1e6, 1e6), {3, 4}),
        ((0.0, 0.0, 0.29), set()),  # nor are those that have nothing to say yet
    ],
    ids=str,
)
def test_a_tensor_is_compared_with_the_median_of_the_others(sizes: tuple[float, ...], left_out: set[int]) -> None:
    assert set(overlong_uploads(sized(*sizes), SPECS, set(), 30.0)) == left_out
    for m in left_out:
        assert f"has '{W}' " in overlong_uploads(sized(*sizes), SPECS, set(), 30.0)[m]


def test_every_tensor_is_compared_by_itself() -> None:
    """A long bias does not hide behind a longer matrix."""
    uploads = {m: {W: torch.ones(1, 10_000), "model.b": torch.full((1, 4), 900.0 if m == 2 else 1.0)} for m in range(4)}
    assert set(overlong_uploads(uploads, SPECS, set(), 30.0)) == {2}


def test_two_uploads_are_compared_with_what_was_sent_before() -> None:
    sent: Message = {W: torch.full((4,), 1.0)}
    downloads = {0: sent, 1: sent}
    assert set(overlong_uploads(sized(1.0, 900.0), SPECS, set(), 30.0, downloads)) == {1}
    assert set(overlong_uploads(sized(1.0, 0.0), SPECS, set(), 30.0, downloads)) == set()
    assert set(overlong_uploads(sized(900.0), SPECS, set(), 30.0, downloads)) == {0}
    assert set(overlong_uploads(sized(1.0, 800.0), SPECS, set(), 30.0)) == set()
    assert set(overlong_uploads(sized(1.0, 1000.0), SPECS, set(), 30.0)) == {1}


def test_uploads_with_noise_are_compared_with_others_that_have_noise() -> None:
    assert set(overlong_uploads(sized(1.0, 1.0, 1e5), SPECS, {2}, 10.0)) == {2}
    assert overlong_uploads(sized(1.0, 1.0, 1e5), SPECS, {2}, 100.0) == {}  # noise may make it longer, up to a limit
    assert set(overlong_uploads(sized(1.0, 1.0, 1e5), SPECS, {0, 1, 2}, 30.0)) == {2}
    assert overlong_uploads(sized(1.0, 1.0, 800.0), SPECS, {0, 1, 2}, 30.0) == {}
    assert overlong_uploads(sized(1.0, 1.0, counts=1e9), SPECS, set(), 2.0) == {}  # counts have bounds of their own
    assert overlong_uploads(sized(0.0, 0.0, 100.0), SPECS, {0, 1, 2}, 30.0) == {}


def test_no_count_is_larger_than_the_site_can_have() -> None:
    clients = ragged_clients()
    method = make_method("fedavg", clients, make_task(clients))
    form = ExpectedMessages(method).upload_form(0, {})
    upload = encode({**form, "train_nodes": torch.full((1,), 33.0)})
    assert read_upload(upload, form, method.uploads, nodes=33)
    with pytest.raises(BadMessageError, match="'train_nodes', which is a count, above 32, more than there can be"):
        read_upload(upload, form, method.uploads, nodes=32)


def trained_dummies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The method and the round of every training of a dummy client from now on."""
    trained: list[tuple[str, int]] = []
    train = ExpectedMessages._train_dummy

    def counted(self: ExpectedMessages, round: int, down: Message) -> Message:
        trained.append((self.method.name, round))
        return train(self, round, down)

    monkeypatch.setattr(ExpectedMessages, "_train_dummy", counted)
    return trained


@pytest.mark.parametrize(
    ("name", "settings", "rounds"),
    [("fedavg", {}, [0, 1]), ("fedpub", {}, [0, 1]), ("fedsheafhn", {"warmup": 2, "refresh": 3}, [0, 1, 3])],
)
def test_a_dummy_client_trains_once_for_each_kind_of_round(
    name: str, settings: dict[str, Any], rounds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = trained_dummies(monkeypatch)
    clients = ragged_clients()
    method = make_method(name, clients, make_task(clients), **settings)
    expected = ExpectedMessages(method)
    first = slice_message(method.server_start()[1], method.downloads, 0, 1)
    forms = [expected.upload_form(r, first if r == 0 else expected.downloads) for r in range(8)]
    assert [round for _, round in trained] == rounds
    for round, form in enumerate(forms):  # and it is the form of every round
        fresh = ExpectedMessages(method).upload_form(round, first if round == 0 else expected.downloads)
        assert {n: dense(t).shape for n, t in form.items()} == {n: dense(t).shape for n, t in fresh.items()}


def test_a_coordinator_trains_few_dummies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = trained_dummies(monkeypatch)
    federation(tmp_path, ragged_clients((25, 14)), method="fedavg", rounds=6).run()
    # The coordinator once for permits, and in rounds 0 and 1; each answer (six rounds and the end) is given by a new process,
    # which trains one to know downloads and permits.
    assert len([round for _, round in trained if round == 1]) == 1
    assert {round for _, round in trained} == {0, 1}
    assert len(trained) == 3 + 2 * 7


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({W: torch.zeros(1, 10, 9)}, r"of shape \[1, 10, 9\], not \[1, 10, 8\]"),
        ({W: torch.zeros(1, 10, 8).double()}, "as float64, not float32"),
        ({W: Sparse(torch.zeros(1, 10, 8))}, "in the wrong form"),
        ({W: torch.full((1, 10, 8), 2e9)}, r"larger than 1e\+09"),
        ({"train_nodes": torch.zeros(1)}, "below zero or zero throughout"),
        ({"other": torch.zeros(1)}, "'other', which the method does not send"),
    ],
)
def test_an_upload_of_another_form_is_refused(change: Message, says: str) -> None:
    clients = ragged_clients()
    method = make_method("fedavg", clients, make_task(clients))
    form = ExpectedMessages(method).upload_form(0, {})
    assert set(read_upload(encode(form), form, method.uploads)) == set(form)
    with pytest.raises(BadMessageError, match=says):
        read_upload(encode({**form, **change}), form, method.uploads)


def test_a_download_may_have_some_of_the_declared_names() -> None:
    clients = ragged_clients()
    method = make_method("fedavg", clients, make_task(clients))
    expected = ExpectedMessages(method).downloads
    some = {W: expected[W]}
    assert set(read_download(encode(some), expected, method.downloads)) == {W}
    assert read_download(b"", expected, method.downloads) == {}
    with pytest.raises(BadMessageError, match="'train_nodes', which the method does not send"):
        read_download(encode({"train_nodes": torch.ones(1)}), expected, method.downloads)
