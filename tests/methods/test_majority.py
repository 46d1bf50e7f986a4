"""Majority: the most common training class answers for every node."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.cohort.client import Client
from fedquilt.graphs.split import TEST, TRAIN, VAL
from fedquilt.training.plan import Plan
from support.clients import PADDING, lay
from support.federations import Wiretap, make_method, make_training, ragged_clients


def common(client: Client) -> int:
    labels = client.graph.y[(client.split == TRAIN) & (client.graph.y >= 0)]
    return int(np.bincount(labels, minlength=client.graph.classes).argmax())


@pytest.mark.parametrize("rows", PADDING)
def test_it_answers_with_the_most_common_training_class(rows: str) -> None:
    clients = ragged_clients()
    method, cohort = make_method("majority", clients), lay(clients, rows)
    logits = method.logits(method.personal(method.start(cohort)), cohort)
    for client, mine in zip(clients, cohort.parts_of(logits), strict=True):
        assert mine.argmax(1).tolist() == [common(client)] * client.graph.nodes
    assert len({common(client) for client in clients}) > 1


def test_its_accuracy_is_that_classs_share_and_one_round_is_enough() -> None:
    clients = ragged_clients()
    training = make_training(make_method("majority", clients), clients, Plan(50))
    tap = Wiretap(training.engine)
    progress = training.run()
    (record,) = training.records
    for part, code in (("val", VAL), ("test", TEST)):
        expected = [100 * np.mean(c.graph.y[(c.split == code) & (c.graph.y >= 0)] == common(c)) for c in clients]
        assert record["clients"][part] == pytest.approx(expected, abs=1e-4)
        assert record[part] == pytest.approx(np.mean(expected), abs=1e-4)
    assert progress.upload_bytes == progress.download_bytes == 0
    assert tap.ups == tap.downs == [{}]


def test_its_loss_is_the_entropy_of_the_classes() -> None:
    clients = ragged_clients()
    method, cohort = make_method("majority", clients), lay(clients)
    state = method.start(cohort)
    loss = method.local_update(state, cohort, {}, 0).loss
    share = (state["counts"] / state["counts"].sum(1, keepdim=True)).double().numpy()
    expected = [-sum(p * np.log(p) for p in row if p) for row in share]
    assert loss.tolist() == pytest.approx(expected, abs=1e-5)
    assert torch.equal(state["counts"].sum(1), cohort.train_count)
