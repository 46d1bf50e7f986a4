"""What clients minimise and what they are measured by, against loops over clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import Draws
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import NONE, TEST, TRAIN, VAL
from fedquilt.tasks.node_classification import NodeClassification, accuracy, auc, class_count, losses
from support.clients import PADDING, assert_near, client_lists, lay, random_client

PARTS = {"train": TRAIN, "val": VAL, "test": TEST}
seeds = st.integers(0, 2**31)
NO_DRAWS = Draws(torch.zeros(0, dtype=torch.int64), 0)  # this task samples nothing


def random_logits(cohort: Cohort, seed: int) -> torch.Tensor:
    stream = torch.Generator().manual_seed(seed)
    return cohort.rows_of([torch.randn(n, class_count(cohort), generator=stream) for n in cohort.sizes], 9.0)


def own_rows(client: Client, part: str) -> np.ndarray:
    return np.flatnonzero((client.split == PARTS[part]) & (client.graph.y >= 0))


def naive_auc(score: np.ndarray, positive: np.ndarray) -> float:
    """The share of (positive, negative) pairs in the right order, ties for a half; NaN without a pair."""
    pairs = [(p > n) + 0.5 * (p == n) for p in score[positive] for n in score[~positive]]
    return float(np.mean(pairs)) if pairs else float("nan")


@pytest.mark.parametrize("rows", PADDING)
@given(clients=client_lists(), seed=seeds)
def test_training_loss_is_each_clients_own_mean(rows: str, clients: list[Client], seed: int) -> None:
    cohort = lay(clients, rows)
    logits = random_logits(cohort, seed).requires_grad_()
    total, each = NodeClassification().training_loss(cohort, logits[cohort.training.index], NO_DRAWS)
    total.backward()
    expected_total = 0.0
    for m, client in enumerate(clients):
        chosen = own_rows(client, "train")
        mine = cohort.parts_of(logits.detach())[m].double().requires_grad_()
        if not len(chosen):
            assert each[m].isnan()
            assert not cohort.parts_of(logits.grad)[m].any()
            continue
        loss = F.cross_entropy(mine[chosen], torch.from_numpy(client.graph.y[chosen]))
        loss.backward()
        expected_total += float(loss.detach())
        assert_near(each[m], loss.detach())
        assert_near(cohort.parts_of(logits.grad)[m], mine.grad)
    assert float(total.detach()) == pytest.approx(expected_total, rel=1e-5, abs=1e-6)
    assert not each.requires_grad
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("rows", PADDING)
@given(clients=client_lists(), seed=seeds)
def test_losses_and_accuracy(rows: str, clients: list[Client], seed: int) -> None:
    cohort = lay(clients, rows)
    logits = random_logits(cohort, seed)
    for part in PARTS:
        index = getattr(cohort, part)
        loss, share = losses(cohort, logits, index), accuracy(cohort, logits, index)
        assert loss.shape == share.shape == (len(clients),)
        for m, client in enumerate(clients):
            chosen = own_rows(client, part)
            if not len(chosen):
                assert loss[m].isnan()
                assert share[m].isnan()
                continue
            mine, y = cohort.parts_of(logits)[m][chosen], torch.from_numpy(client.graph.y[chosen])
            assert_near(loss[m], F.cross_entropy(mine, y))
            right = [int(row.argmax()) == int(label) for row, label in zip(mine, y, strict=True)]
            assert float(share[m]) == pytest.approx(np.mean(right))


@pytest.mark.parametrize("rows", PADDING)
@given(clients=client_lists(classes=2), seed=seeds, ties=st.booleans())
def test_auc_counts_pairs_in_the_right_order(rows: str, clients: list[Client], seed: int, ties: bool) -> None:
    cohort = lay(clients, rows)
    logits = random_logits(cohort, seed)
    logits = logits.round() if ties else logits
    for part in PARTS:
        area = auc(cohort, logits, getattr(cohort, part))
        for m, client in enumerate(clients):
            chosen = own_rows(client, part)
            mine = cohort.parts_of(logits)[m][chosen]
            expected = naive_auc((mine[:, 1] - mine[:, 0]).numpy(), client.graph.y[chosen] == 1)
            assert float(area[m]) == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_auc_equals_scikit_learns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    clients = [random_client(rng, m, 200, classes=2) for m in range(3)]
    cohort = lay(clients)
    logits = (random_logits(cohort, 0) * 3).round()  # many ties
    area = auc(cohort, logits, cohort.test)
    for m, client in enumerate(clients):
        chosen = own_rows(client, "test")
        mine = cohort.parts_of(logits)[m][chosen]
        assert float(area[m]) == pytest.approx(
            metrics.roc_auc_score(client.graph.y[chosen], mine[:, 1] - mine[:, 0]), abs=1e-6
        )


@pytest.mark.parametrize("rows", PADDING)
@given(data=st.data(), clients=st.integers(1, 5))
def test_auc_equals_scikit_learns_client_by_client(rows: str, data: st.DataObject, clients: int) -> None:
    """Few different scores, so that most are tied; clients of one class, of none, and without a row in this part."""
    metrics = pytest.importorskip("sklearn.metrics")
    labels = st.sampled_from([[0, 1], [0], [1], [-1], [-1, 0, 1]])
    answers = [data.draw(st.lists(st.sampled_from(data.draw(labels)), min_size=1, max_size=12)) for _ in range(clients)]
    members = [two_classes(m, y) for m, y in enumerate(answers)]
    for client in members:
        if data.draw(st.booleans()):
            client.split[client.graph.y >= 0] = data.draw(st.sampled_from([VAL, TEST]))
    cohort = lay(members, rows)
    scores = data.draw(st.sampled_from([[0.0], [0.0, 1.0], [-1.5, 0.0, 0.25, 3.0], [1e-3 * i for i in range(50)]]))
    parts = [
        torch.tensor(data.draw(st.lists(st.sampled_from(scores), min_size=len(y), max_size=len(y)))) for y in answers
    ]
    score = cohort.rows_of(parts, 99.0)
    base = data.draw(st.sampled_from([0.0, 2.0]))
    area = auc(cohort, torch.stack([torch.full_like(score, base), score + base], dim=1), cohort.test)
    assert area.dtype == torch.float32
    assert area.shape == (clients,)
    for m, client in enumerate(members):
        chosen = own_rows(client, "test")
        y = client.graph.y[chosen]
        if len(set(y.tolist())) < 2:
            assert area[m].isnan()
        else:
            # What is ranked is the difference of two float32 logits, which rounding may tie.
            mine = (parts[m] + base) - base
            assert float(area[m]) == pytest.approx(metrics.roc_auc_score(y, mine[chosen]), abs=1e-6)


@pytest.mark.parametrize("rows", PADDING)
@given(clients=client_lists(classes=2), seed=seeds)
def test_auc_of_a_cohort_is_that_of_its_clients(rows: str, clients: list[Client], seed: int) -> None:
    cohort = lay(clients, rows)
    logits = random_logits(cohort, seed).round()
    area = auc(cohort, logits, cohort.test)
    # The order of the rows does not matter, nor does anything that keeps the order of the scores.
    shuffled = cohort.test[torch.randperm(len(cohort.test), generator=torch.Generator().manual_seed(seed))]
    stretched = logits * 4.0 + 1.0
    for other in (auc(cohort, logits, shuffled), auc(cohort, stretched, cohort.test)):
        assert torch.equal(other.nan_to_num(-1), area.nan_to_num(-1))
    turned = auc(cohort, -logits, cohort.test)
    assert torch.allclose(turned, 1 - area, atol=1e-6, equal_nan=True)
    for m, client in enumerate(clients):
        one = lay([client])
        alone = auc(one, cohort.parts_of(logits)[m], one.test)
        assert torch.equal(alone.nan_to_num(-1), area[m : m + 1].nan_to_num(-1))


def test_auc_without_a_row_at_all() -> None:
    cohort = lay([two_classes(0, [0, 1]), two_classes(1, [1])])
    assert not len(cohort.val)
    assert auc(cohort, torch.randn(cohort.rows, 2), cohort.val).isnan().tolist() == [True, True]


def two_classes(number: int, y: list[int]) -> Client:
    n = len(y)
    empty, x = np.zeros((2, 0), dtype=np.int64), np.ones((n, 1), dtype=np.float32)
    labels = np.array(y)
    return Client(number, Graph("two", empty, x, labels, 2), np.where(labels >= 0, TEST, NONE).astype(np.int8))


def test_auc_by_hand() -> None:
    cohort = lay([two_classes(0, [0, 1, 0, 1]), two_classes(1, [1, 1]), two_classes(2, [0]), two_classes(3, [-1])])
    score = cohort.rows_of([torch.tensor(s) for s in ([0.1, 0.2, 0.3, 0.4], [1.0, 2.0], [1.0], [1.0])], 0.0)
    area = auc(cohort, torch.stack([torch.zeros_like(score), score], dim=1), cohort.test)
    assert float(area[0]) == 0.75
    assert area[1:].isnan().all()  # one class only, one class only, no label at all
    constant = auc(cohort, torch.zeros(cohort.rows, 2), cohort.test)
    assert float(constant[0]) == 0.5


def test_metrics_by_name() -> None:
    cohort = lay([two_classes(0, [0, 1, 0, 1])])
    logits = torch.randn(cohort.rows, 2)
    metrics = NodeClassification.metrics
    assert list(metrics) == [
        "accuracy", "auc", "macro-f1", "balanced-accuracy", "average-precision", "log-loss", "ece"
    ]  # fmt: skip
    for name, function in {"accuracy": accuracy, "auc": auc}.items():
        assert torch.equal(metrics[name].function(cohort, logits, "test"), function(cohort, logits, cohort.test))
        assert (metrics[name].scale, metrics[name].higher_is_better) == (100.0, True)
