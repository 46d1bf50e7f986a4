"""FED-PUB with factored downloads: the same averages as written out, and the same training after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.messages.message import (
    Factored,
    Message,
    dense,
    each_tensor,
)
from fedquilt.methods import fedpub
from fedquilt.methods.base import EMBEDDING, State
from fedquilt.methods.fedpub import KNOWN, FedPub
from fedquilt.runs.folder import SeedFolder
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.clients import assert_near, numbers
from support.federations import assert_same, copied, make_method, make_training, ragged_clients, without_seconds


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedpub, "MANY", 2)


def centred(method: FedPub, rows: Tensor) -> Tensor:
    """Embeddings [n, H] as their cosines are taken."""
    return rows - rows.mean(0) if method.settings.contrast == "centred" else rows


class WrittenOut(FedPub):
    """FED-PUB that remembers everyone's last embedding and writes the softmax of the cosines out."""

    name = "written out"

    def server_start(self) -> tuple[State, Message]:
        server, down = super().server_start()
        return server | {EMBEDDING: torch.zeros(self.context.clients, self.settings.hidden)}, down

    @property
    def many(self) -> bool:
        return False

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        server[EMBEDDING][senders] = F.normalize(centred(self, dense(uploads[EMBEDDING])), dim=1)
        cosine = server[EMBEDDING].double() @ server[EMBEDDING].double().T
        self.now = self.scaled(cosine.float(), len(senders))
        heard = server[EMBEDDING].abs().sum(1) > 0
        server[KNOWN] |= heard.unsqueeze(1) & heard  # by their last embeddings, whenever they sent them
        return super().aggregate(server, uploads, senders, receivers)

    def compare(self, server: State, uploads: Message, stacks: dict[str, Tensor], senders: Tensor) -> Tensor:
        server["similarity"].copy_(self.now)
        return self.now[senders][:, senders]


def training_of(
    kind: type[FedPub],
    share: float = 1.0,
    cohort_size: int | None = None,
    folder: Path | None = None,
    rounds: int = 5,
    **settings: Any,
) -> Training:
    clients = ragged_clients()
    some = make_method("fedpub", clients, **settings)
    method = kind(some.settings, some.context)
    place = None if folder is None else SeedFolder(folder)
    return make_training(method, clients, Plan(rounds, share, checkpoint_seconds=-1.0), cohort_size, store=place)


@pytest.mark.parametrize(
    "settings", [{}, {"tau": 20.0}, {"threshold": 0.5}, {"masking": False}, {"contrast": "centred"}], ids=str
)
@pytest.mark.parametrize("cohort_size", [None, 2])
@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.usefixtures("few_are_many")
def test_thin_averages_are_those_written_out(share: float, cohort_size: int | None, settings: dict[str, Any]) -> None:
    thin, plain = (training_of(kind, share, cohort_size, **settings) for kind in (FedPub, WrittenOut))
    thin.run()
    plain.run()
    assert isinstance(thin.down["model.conv1.bias"], Factored)
    assert thin.method.similarity(thin.server) is None
    assert "similarity" not in thin.server
    assert_near(thin.server[EMBEDDING], plain.server[EMBEDDING], 1e-4)
    assert list(thin.down) == list(plain.down)
    for name, value in thin.down.items():
        assert_near(dense(value).float(), dense(plain.down[name]).float(), 1e-4)
    for name, weight in thin.engine.personal().items():
        assert_near(weight, plain.engine.personal()[name], 1e-4)
    for mine, other in zip(thin.records, plain.records, strict=True):
        assert mine["train_loss"] == pytest.approx(other["train_loss"], abs=1e-4)
        if not settings.get("threshold"):  # an entry at the threshold may fall to either side
            assert mine["bytes_down"] == other["bytes_down"]
            assert mine["bytes_up"] == other["bytes_up"]


@pytest.mark.parametrize("contrast", ["centred", "none"])
@pytest.mark.parametrize("cohort_size", [None, 2])
def test_with_everyone_taking_part_it_is_fedpub(
    cohort_size: int | None, contrast: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = training_of(FedPub, 1.0, cohort_size, contrast=contrast)
    plain.run()
    monkeypatch.setattr(fedpub, "MANY", 2)
    thin = training_of(FedPub, 1.0, cohort_size, contrast=contrast)
    thin.run()
    assert plain.method.similarity(plain.server) is None  # asked after the patch
    for name, weight in thin.engine.personal().items():
        assert_near(weight, plain.engine.personal()[name], 1e-4)
    for mine, other in zip(thin.records, plain.records, strict=True):
        assert mine["val_loss"] == pytest.approx(other["val_loss"], abs=1e-4)
        assert mine["bytes_down"] == other["bytes_down"]


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize(
    "settings", [{"matching": False}, {"similarity": "gradient"}, {"communities": "explicit"}], ids=str
)
def test_only_functional_embeddings_in_implicit_communities_are_thin(settings: dict[str, Any]) -> None:
    training = training_of(FedPub, rounds=3, **settings)
    training.run()
    assert not any(isinstance(value, Factored) for value in training.down.values())


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize("contrast", ["centred", "none"])
def test_a_receiver_that_never_sent_gets_the_plain_average(contrast: str) -> None:
    method = training_of(FedPub, contrast=contrast).method
    server, _ = method.server_start()
    senders, receivers = torch.tensor([0, 1, 3]), torch.tensor([1, 2])
    uploads: Message = {EMBEDDING: numbers(0, 3, 8), "model.conv1.bias": numbers(1, 3, 8)}
    uploads["model.conv1.weight"] = numbers(2, 3, 10, 8)
    message = method.aggregate(server, uploads, senders, receivers)
    assert_near(dense(message["model.conv1.bias"])[1], dense(uploads["model.conv1.bias"]).mean(0), 1e-4)
    unit = F.normalize(centred(method, dense(uploads[EMBEDDING])), dim=1)
    assert torch.equal(server[EMBEDDING][senders], unit)
    assert not server[EMBEDDING][[2, 4]].any()
    # One that sent before and does not now is as it was then.
    message = method.aggregate(server, {n: dense(v)[:2] for n, v in uploads.items()}, senders[:2], torch.tensor([3]))
    now = F.normalize(centred(method, dense(uploads[EMBEDDING])[:2]), dim=1)
    alpha = torch.softmax(method.settings.tau * method.scaled(unit[2:] @ now.T, 2), dim=1)
    assert_near(dense(message["model.conv1.bias"]), alpha @ dense(uploads["model.conv1.bias"])[:2], 1e-4)


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize("receivers", [[0, 1, 3], [3], [1, 2, 3], [0, 2, 4]], ids=str)
def test_a_client_gets_its_own_model_back_however_few_columns_there_are(
    receivers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that have nothing in common, and a sharp softmax: what the columns do not tell is a client's own."""
    monkeypatch.setattr("fedquilt.nn.kernel_average.RANK", 1)
    method = training_of(FedPub, tau=20.0, contrast="none").method
    senders = torch.tensor([0, 1, 3])
    uploads: Message = {EMBEDDING: torch.eye(8)[:3], "model.conv1.weight": numbers(1, 3, 10, 8)}
    message = method.aggregate(method.server_start()[0], uploads, senders, torch.tensor(receivers))
    given = dense(message["model.conv1.weight"])
    for place, client in enumerate(receivers):
        if client in senders:
            own = dense(uploads["model.conv1.weight"])[senders.tolist().index(client)]
            assert_near(given[place], own, 1e-4)


class Killed(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("last", [0, 1, 3])
@pytest.mark.parametrize("cohort_size", [None, 2])
@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.usefixtures("few_are_many")
def test_a_resumed_training_is_bit_identical(share: float, cohort_size: int | None, last: int, tmp_path: Path) -> None:
    whole = training_of(FedPub, share, cohort_size)
    whole.run()

    def stop(record: dict[str, Any]) -> None:
        if record["round"] == last:
            raise Killed

    first = training_of(FedPub, share, cohort_size, tmp_path)
    first.on_round = stop
    with pytest.raises(Killed):
        first.run()
    resumed = training_of(FedPub, share, cohort_size, tmp_path)
    resumed._resume()
    for name, value in first.down.items():
        again = resumed.down[name]
        assert type(again) is type(value)
        for tensor, other in zip(each_tensor(again), each_tensor(value), strict=True):
            assert torch.equal(tensor, other)
    resumed = training_of(FedPub, share, cohort_size, tmp_path)
    resumed.run()
    assert without_seconds(resumed.records) == without_seconds(whole.records)
    assert_same(copied(resumed.engine.state()), copied(whole.engine.state()))
    assert_same(resumed.progress.best.models, whole.progress.best.models)
