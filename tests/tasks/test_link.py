"""Link prediction: its decoders, loss and metrics against NumPy and scikit-learn, and what it makes of a graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws, client_keys
from fedquilt.errors import FedquiltError
from fedquilt.tasks.base import find_task
from fedquilt.tasks.link_pairs import pairs_of_cohort
from fedquilt.tasks.link_split import negatives
from support.clients import random_client
from support.federations import ragged_clients


def split_cohort(decoder: str = "dot", padding: float = 1e9, **settings: object) -> tuple[object, Cohort, torch.Tensor]:
    """The task, a cohort of ragged clients with split edges, and random embeddings of its rows."""
    task = find_task("link", {"width": 6, "decoder": decoder, **settings})
    clients = [task.client(c.id, c.graph, c.split, 3) for c in ragged_clients((40, 14, 31))]
    cohort = Cohort(clients, padding=padding)
    return task, cohort, torch.from_numpy(np.random.default_rng(0).standard_normal((cohort.rows, 6))).float()


def logits(decoder: str, z: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    u, v = z[pairs[0]].astype(np.float64), z[pairs[1]].astype(np.float64)
    if decoder == "dot":
        return (u * v).sum(1)
    if decoder == "cosine":
        return 3 * (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    return np.maximum(u + v, 0) @ np.array([1, 1, 1, -1, -1, -1])


@pytest.mark.parametrize("padding", [1e9, -1.0])
@pytest.mark.parametrize("decoder", ["cosine", "dot", "mlp"])
@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_metrics_and_losses_are_those_of_scikit_learn(decoder: str, part: str, padding: float) -> None:
    task, cohort, outputs = split_cohort(decoder, padding)
    found = {name: metric.function(cohort, outputs, part) for name, metric in task.metrics.items()}
    losses = task.losses(cohort, outputs, part)
    for m, (client, own) in enumerate(zip(cohort.members, cohort.parts_of(outputs), strict=True)):
        edges, others = (logits(decoder, own.numpy(), client.held_out[name]) for name in (part, negatives(part)))
        score, truth = np.concatenate([edges, others]), np.repeat([1, 0], [len(edges), len(others)])
        assert found["auc"][m].item() == pytest.approx(roc_auc_score(truth, score), abs=1e-5)
        assert found["average-precision"][m].item() == pytest.approx(average_precision_score(truth, score), abs=1e-5)
        if len(others) >= 10:
            assert found["hits@10"][m].item() == pytest.approx((edges > np.sort(others)[-10]).mean(), abs=1e-6)
        else:
            assert found["hits@10"][m].isnan()
        chances = 1 / (1 + np.exp(-score))
        assert losses[m].item() == pytest.approx(log_loss(truth, chances), abs=1e-4)


@pytest.mark.parametrize("decoder", ["cosine", "dot", "mlp"])
def test_the_loss_is_the_mean_over_edges_and_as_many_negatives(decoder: str) -> None:
    task, cohort, outputs = split_cohort(decoder)
    draws = Draws(client_keys(0, cohort), 5)
    rows = torch.zeros(cohort.training.rows, 6)
    rows[cohort.training.real] = outputs[cohort.nodes]
    rows.requires_grad_()
    total, each = task.training_loss(cohort, rows, draws)
    drawn = pairs_of_cohort(cohort).free.draw(pairs_of_cohort(cohort).edges["train"], draws)
    expected = []
    for m, (client, own) in enumerate(zip(cohort.members, cohort.parts_of(outputs), strict=True)):
        edges = logits(decoder, own.numpy(), client.held_out["train"])
        others = logits(decoder, own.numpy(), drawn.ends[:, drawn.client == m].numpy())
        assert len(edges) == len(others) > 0
        expected.append(np.log1p(np.exp(np.concatenate([-edges, others]))).mean())
    np.testing.assert_allclose(each.numpy(), expected, rtol=1e-5)
    assert total.item() == pytest.approx(sum(expected), rel=1e-5)
    total.backward()
    assert float(rows.grad[cohort.training.real].abs().sum()) > 0


def test_clients_with_too_few_edges_or_no_negatives_are_left_out_of_metrics() -> None:
    task = find_task("link", {"width": 6, "decoder": "dot"})
    rng = np.random.default_rng(0)
    graphs = [
        random_client(rng, 0, 30, edges=0.3),
        random_client(rng, 1, 4, edges=0.0),
        random_client(rng, 2, 5, edges=1.0),
    ]
    cohort = Cohort([task.client(c.id, c.graph, c.split, 0) for c in graphs])
    outputs = torch.randn(cohort.rows, 6, generator=torch.Generator().manual_seed(0))
    defined = (~task.metric("auc").function(cohort, outputs, "test").isnan()).tolist()
    assert defined == [True, False, False]
    rows = torch.zeros(cohort.training.rows, 6, requires_grad=True)
    total, each = task.training_loss(cohort, rows + 0.1, Draws(client_keys(0, cohort), 0))
    assert each.isnan().tolist() == [False, True, False]  # the second has no edge to train on
    assert bool(total.isfinite())
    total.backward()
    assert bool(rows.grad.isfinite().all())
    # The third is complete: its edges count, and there are no negatives.
    assert each[2].item() == pytest.approx(np.log1p(np.exp(-6 * 0.01)), rel=1e-5)


def test_every_part_has_its_graph_in_the_same_rows() -> None:
    task, cohort, _ = split_cohort()
    assert task.seen(cohort, "train") is cohort
    for part in ("val", "test", None):
        seen = task.seen(cohort, part)
        assert seen is task.seen(cohort, part)  # made once
        assert (seen.rows, seen.start.tolist(), seen.padding) == (cohort.rows, cohort.start.tolist(), cohort.padding)
        assert seen.gcn.shape == cohort.gcn.shape
    same, cohort, _ = split_cohort(disjoint=0.0)
    assert same.seen(cohort, "val") is cohort


def test_what_it_says_of_itself() -> None:
    task, cohort, outputs = split_cohort()
    assert task.outputs(cohort.members[0].graph) == 6
    assert list(task.metrics) == ["auc", "average-precision", "hits@10", "hits@20", "hits@50"]
    example = task.example_client(5, 6)
    assert all(example.held_out[part].shape[1] > 0 for part in ("train", "val", "test"))
    assert example.graph.features == 5
    pairs = torch.tensor([[0, 2], [1, 3]])
    chances = task.pair_probabilities(outputs, pairs)
    assert chances[1].item() == pytest.approx(1 / (1 + np.exp(-float(outputs[2] @ outputs[3]))), rel=1e-5)
    assert list(task.prediction_rows(["a"], np.array([[0.25]]), None)) == [["source", "probability"], ["a", "0.25"]]
    with pytest.raises(FedquiltError, match="The task link has no classes to weight"):
        task.weighted("balanced", 6)
    with pytest.raises(FedquiltError, match="The task node-classification predicts nodes, not pairs"):
        find_task("node-classification").pair_probabilities(outputs, pairs)
