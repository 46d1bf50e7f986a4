"""FedGTA: who is averaged with whom follows from the moments of spread labels, by how much from confidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import xlogy

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.graphs.split import TRAIN
from fedquilt.methods.base import EMBEDDING
from fedquilt.methods.fedgta import CONFIDENCE
from fedquilt.nn.models import Model
from fedquilt.training.plan import Plan
from support.clients import assert_near, gcn_operator, numbers
from support.federations import make_method, make_training, ragged_clients, tapped_run


def uploads_of(moments: torch.Tensor, confidence: torch.Tensor) -> dict[str, torch.Tensor]:
    """Uploads with one weight beside what is given."""
    return {"model.w": numbers(1, len(moments), 4, 2), EMBEDDING: moments, CONFIDENCE: confidence}


def plain_average(
    moments: np.ndarray, models: np.ndarray, confidence: np.ndarray, threshold: float
) -> tuple[np.ndarray, list[list[int]]]:
    """The server's step as the paper writes it: a loop over clients, and over those who are like each."""
    out, chosen = [], []
    for mine in moments:
        near = [
            j
            for j, other in enumerate(moments)
            if mine @ other / np.linalg.norm(mine) / np.linalg.norm(other) >= threshold
        ]
        chosen.append(near)
        out.append(sum(confidence[j] * models[j] for j in near) / sum(confidence[j] for j in near))
    return np.stack(out), chosen


def test_the_server_equals_a_loop_over_pairs() -> None:
    clients = ragged_clients()
    method = make_method("fedgta", clients, similarity_threshold=0.6, steps=2, orders=2, moments="raw")
    server, _ = method.server_start()
    moments, confidence = numbers(2, 5, method.width).abs(), numbers(3, 5).abs() + 0.1
    moments[1:3] *= torch.arange(method.width) < method.width // 2
    everyone = torch.arange(5)
    uploads = uploads_of(moments, confidence)
    down = method.aggregate(server, uploads, everyone, everyone)
    expected, chosen = plain_average(
        moments.double().numpy(), uploads["model.w"].double().numpy(), confidence.double().numpy(), 0.6
    )
    assert_near(down["model.w"], torch.from_numpy(expected))
    sizes = [len(near) for near in chosen]
    assert min(sizes) == 1 < np.median(sizes) < max(sizes) < 5  # one is alone, nobody has all
    found = method.diagnostics(server)
    assert float(found["accepted_clients"]) == pytest.approx(np.mean(sizes))
    assert 1.0 < float(found["effective_clients"]) <= float(found["accepted_clients"])


def test_the_upload_equals_numpy() -> None:
    clients = ragged_clients()
    method = make_method("fedgta", clients, steps=2, orders=3, moments="hybrid", alpha=0.25)
    cohort = Cohort(clients)
    state = method.start(cohort)
    update = method.local_update(state, cohort, {}, 0)
    soft = cohort.parts_of(method.logits(update.personal, cohort).softmax(1).double())
    for m, client in enumerate(clients):
        first, a = soft[m].detach().numpy(), gcn_operator(client)
        known = client.split == TRAIN
        first[known] = np.eye(3)[client.graph.y[known]]
        y, signals = first, []
        for _ in range(2):
            y = 0.25 * first + 0.75 * a @ y
            signals.append(y / y.sum(1, keepdims=True))
        joined = np.concatenate(signals, axis=1)
        moments = [(joined**p).mean(0) for p in (1, 2, 3)]
        moments += [((joined - joined.mean(0)) ** p).mean(0) for p in (2, 3)]
        assert_near(update.upload[EMBEDDING][m], torch.from_numpy(np.concatenate(moments)))
        degree = np.bincount(client.graph.edges.ravel(), minlength=client.graph.nodes) + 1
        sure = (np.exp(-1) + xlogy(signals[-1], signals[-1])).sum(1) / (3 * np.exp(-1))
        assert_near(update.upload[CONFIDENCE][m], torch.tensor(len(sure) * np.average(sure, weights=degree)))


def two_families() -> list[Client]:
    """Six clients of which the first three have nodes of class 0 mostly, the others of class 2."""
    clients = ragged_clients((24, 20, 22, 25, 21, 23))
    out = []
    for client in clients:
        y = client.graph.y.copy()
        most = np.arange(len(y)) % 5 > 0
        y[most & (y >= 0)] = 0 if client.id < 3 else 2
        out.append(replace(client, graph=replace(client.graph, y=y)))
    return out


def test_clients_are_averaged_with_their_family() -> None:
    clients = two_families()
    training = make_training(make_method("fedgta", clients, similarity_threshold=0.9), clients, Plan(4))
    training.run()
    similarity = training.method.similarity(training.server)
    family = torch.arange(6) // 3
    same = family.unsqueeze(1) == family
    assert similarity[same].min() > 0.9 > similarity[~same].max()
    assert float(training.method.diagnostics(training.server)["accepted_clients"]) == 3.0
    model = training.down["model.classifier.weight"]
    assert_near(model[0], model[1])
    assert not torch.allclose(model[0], model[3], atol=1e-3)


def test_exchanging_moments_exchanges_who_is_averaged() -> None:
    clients = two_families()
    method = make_method("fedgta", clients, similarity_threshold=0.9)
    cohort = Cohort(clients)
    upload = method.local_update(method.start(cohort), cohort, {}, 0).upload
    everyone = torch.arange(6)

    def averages(moments: torch.Tensor) -> torch.Tensor:
        server, _ = method.server_start()
        return method.aggregate(server, upload | {EMBEDDING: moments}, everyone, everyone)["model.classifier.weight"]

    before = averages(upload[EMBEDDING])
    after = averages(upload[EMBEDDING][torch.tensor([3, 1, 2, 0, 4, 5])])
    assert_near(after[0], after[4])
    assert not torch.allclose(before[0], after[0], atol=1e-6)


def test_those_who_sat_out_are_compared_by_what_they_sent_last() -> None:
    clients = two_families()
    method = make_method("fedgta", clients, similarity_threshold=0.9)
    width = method.width
    families = torch.eye(2)[torch.arange(6) // 3].repeat_interleave(-(-width // 2), dim=1)[:, :width]
    server, _ = method.server_start()
    everyone, ones = torch.arange(6), torch.ones(6)
    method.aggregate(server, uploads_of(families, ones), everyone, everyone)
    senders, receivers = torch.tensor([0, 3, 4]), torch.tensor([1, 3])
    uploads = uploads_of(families[senders], ones[:3])
    down = method.aggregate(server, uploads, senders, receivers)
    sent = uploads["model.w"]
    assert_near(down["model.w"], torch.stack([sent[0], (sent[1] + sent[2]) / 2]))


def test_a_client_that_nobody_is_like_gets_the_nearest_and_a_stranger_gets_all() -> None:
    clients = two_families()
    method = make_method("fedgta", clients, similarity_threshold=0.9)
    server, _ = method.server_start()
    server[EMBEDDING][0, :2] = 1.0  # client 1 never sent
    senders, receivers = torch.tensor([2, 3]), torch.tensor([0, 1])
    moments = torch.zeros(2, method.width)
    moments[0, 1:4], moments[1, 2:4] = 1.0, 1.0
    uploads = uploads_of(moments, torch.tensor([1.0, 3.0]))
    down = method.aggregate(server, uploads, senders, receivers)["model.w"]
    sent = uploads["model.w"]
    assert_near(down, torch.stack([sent[0], 0.25 * sent[0] + 0.75 * sent[1]]))


def test_one_thing_changes_and_the_models_change() -> None:
    clients = two_families()

    def models(**settings: object) -> torch.Tensor:
        training = make_training(make_method("fedgta", clients, **settings), clients, Plan(3))
        training.run()
        return training.down["model.conv1.weight"]

    usual = models(similarity_threshold=0.9)
    assert not torch.equal(usual, models(similarity_threshold=0.0))
    assert not torch.equal(usual, models(similarity_threshold=0.9, confidence=False))
    all_alike = models(similarity_threshold=0.0)
    assert_near(all_alike, all_alike[:1].expand_as(all_alike))


def test_what_crosses_is_as_declared() -> None:
    clients = ragged_clients()
    method = make_method("fedgta", clients, confidence=False)
    _, tap = tapped_run(method, clients, 3, 0.6)
    weights = {"model." + name for name in method.shapes()}
    assert all(set(up) == weights | {EMBEDDING} for up in tap.ups)
    assert not method.sends(CONFIDENCE)
    assert all(up[EMBEDDING].shape[1] == method.width for up in tap.ups)


@pytest.mark.parametrize("model", sorted(Model.kinds))
def test_every_backbone_trains(model: str) -> None:
    clients = ragged_clients()
    training = make_training(make_method("fedgta", clients, model=model), clients, Plan(2))
    training.run()
    assert all(torch.isfinite(w).all() for w in training.down.values())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"similarity_threshold": 1.0}, "similarity_threshold"),
        ({"similarity_threshold": -0.1}, "similarity_threshold"),
        ({"alpha": 1.5}, "alpha"),
        ({"orders": 0}, "orders"),
        ({"moments": "central", "orders": 1}, "tells no clients apart"),
        ({"moments": "mean"}, "moments"),
    ],
)
def test_bad_settings_get_a_sentence(settings: dict[str, object], words: str) -> None:
    with pytest.raises(FedquiltError, match=words):
        make_method("fedgta", ragged_clients(), **settings)
