"""FedProto: prototypes and their distance as written, the server's averages, and prediction by the nearest prototype."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.graphs.split import TRAIN
from fedquilt.messages.message import Message
from fedquilt.nn.dropout import Dropout
from fedquilt.training.plan import Plan
from support.federations import assert_same, make_method, make_training, ragged_clients, tapped_run

CLIENTS = ragged_clients((12, 9, 14))
CALM = Dropout(0.0, torch.zeros(3, dtype=torch.int64), 0)


def test_only_prototypes_and_counts_cross() -> None:
    _, tap = tapped_run(make_method("fedproto", CLIENTS), CLIENTS, 3, 1.0)
    assert all(set(up) == {"prototype", "class.count"} for up in tap.ups)
    assert tap.downs[0] == {}
    assert all(set(down) == {"prototype", "prototype.known"} for down in tap.downs[1:])


def test_prototypes_are_class_means_over_training_nodes_after_training() -> None:
    method = make_method("fedproto", CLIENTS)
    training, tap = tapped_run(method, CLIENTS, 2, 1.0)
    cohort = Cohort(CLIENTS)
    embeddings = cohort.parts_of(method.model(cohort, training.engine.personal()).embedding)
    for m, (client, z) in enumerate(zip(CLIENTS, embeddings, strict=True)):
        for c in range(3):
            mine = (client.split == TRAIN) & (client.graph.y == c)
            assert tap.ups[-1]["class.count"][m, c] == mine.sum()
            expected = z[mine].mean(0) if mine.any() else torch.zeros(8)
            assert torch.allclose(tap.ups[-1]["prototype"][m, c], expected, atol=1e-5)


def test_the_server_averages_by_counts_and_keeps_what_nobody_sent() -> None:
    method = make_method("fedproto", CLIENTS)
    server, _ = method.server_start()
    rng = np.random.default_rng(0)
    sent = rng.standard_normal((3, 3, 8)).astype(np.float32)
    count = np.array([[2, 0, 1], [6, 0, 0], [0, 0, 3]], np.float32)
    here = torch.arange(3)
    uploads: Message = {"prototype": torch.from_numpy(sent), "class.count": torch.from_numpy(count)}
    down = method.aggregate(server, uploads, here, here)
    for c in (0, 2):
        assert np.allclose(down["prototype"][c], (count[:, c, None] * sent[:, c]).sum(0) / count[:, c].sum(), atol=1e-6)
    assert down["prototype.known"].tolist() == [1, 0, 1]
    found = method.diagnostics(server)
    gap = sum(count[m, c] * np.linalg.norm(sent[m, c] - down["prototype"][c].numpy()) for m in range(3) for c in (0, 2))
    apart = np.linalg.norm(down["prototype"][0] - down["prototype"][2])
    assert float(found["prototype_distance"]) == pytest.approx(apart, rel=1e-5)
    assert float(found["prototype_gap"]) == pytest.approx(gap / count.sum() / apart, rel=1e-5)
    other: Message = {"prototype": uploads["prototype"][:1], "class.count": torch.tensor([[0.0, 4.0, 0.0]])}
    later = method.aggregate(server, other, here[:1], here)
    assert torch.equal(later["prototype"][0], down["prototype"][0])
    assert np.allclose(later["prototype"][1], sent[0, 1], atol=1e-6)
    assert later["prototype.known"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("align", ["classes", "nodes"])
def test_the_loss_as_it_is_written(align: str) -> None:
    method = make_method("fedproto", CLIENTS, align=align, dropout=0.0, prototype_weight=0.7)
    cohort = Cohort(CLIENTS)
    state = method.start(cohort)
    target = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
    method.receive(state, {"prototype": target, "prototype.known": torch.tensor([1.0, 0.0, 1.0])})
    weights = {name: w.clone().requires_grad_() for name, w in method.weights(state).items()}
    output = method.model(cohort, weights)
    total = torch.zeros(())
    for m, client in enumerate(CLIENTS):
        z, logits = (cohort.parts_of(rows)[m] for rows in (output.embedding, output.logits))
        trains, y = torch.from_numpy(client.split == TRAIN), torch.from_numpy(client.graph.y)
        total = total + torch.nn.functional.cross_entropy(logits[trains], y[trains])
        for c in (0, 2):
            mine = z[trains & (y == c)]
            if not len(mine):
                continue
            if align == "classes":
                total = total + 0.7 * (mine.mean(0) - target[c]).square().mean()
            else:
                total = total + 0.7 * (mine - target[c]).square().mean(1).sum() / trains.sum()
    expected = torch.autograd.grad(total, list(weights.values()))
    grads, _ = method.gradients(state, cohort, CALM, {})
    for name, wanted in zip(weights, expected, strict=True):
        assert torch.allclose(grads["model." + name], wanted, atol=1e-5), name


def test_prototypes_change_training_and_draw_clients_together() -> None:
    def trained(weight: float):  # type: ignore[no-untyped-def]
        method = make_method("fedproto", CLIENTS, prototype_weight=weight, dropout=0.0)
        training = make_training(method, CLIENTS, Plan(12))
        training.run()
        return training

    alone, drawn = trained(0.0), trained(5.0)
    local = make_training(make_method("local", CLIENTS, lr=0.01, dropout=0.0), CLIENTS, Plan(12))
    local.run()
    assert_same(alone.engine.personal(), local.engine.personal())
    gaps = [float(t.method.diagnostics(t.server)["prototype_gap"]) for t in (alone, drawn)]
    assert gaps[1] < 0.7 * gaps[0]


def test_the_nearest_prototype_predicts() -> None:
    method = make_method("fedproto", CLIENTS, classify="prototype")
    training, tap = tapped_run(method, CLIENTS, 3, 1.0)
    cohort, personal = Cohort(CLIENTS), training.engine.personal()
    used = tap.downs[-1]["prototype"]
    z = method.model(cohort, {n: w for n, w in personal.items() if not n.startswith("nearest")}).embedding
    distance = (z.unsqueeze(1) - used).square().sum(2)
    scores = method.logits(personal, cohort)
    assert torch.allclose(scores.softmax(1), (-distance).softmax(1), atol=1e-4)
    # In round 0 there is no average yet: a client goes by its own.
    first, tap = tapped_run(method, CLIENTS, 1, 1.0)
    assert torch.equal(first.engine.personal()["nearest.prototype"], tap.ups[0]["prototype"])


def test_bad_settings_are_a_sentence() -> None:
    for name, value in (("prototype_weight", -1.0), ("align", "clients"), ("classify", "server")):
        with pytest.raises(FedquiltError, match=f"The setting {name}="):
            make_method("fedproto", CLIENTS, **{name: value})
