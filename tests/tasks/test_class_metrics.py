"""Metrics of a classification, held against scikit-learn client by client: clients lack classes, and some lack rows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.tasks import class_metrics as m

reference = pytest.importorskip("sklearn.metrics")
FUNCTIONS = (m.macro_f1, m.balanced_accuracy, m.auc, m.average_precision, m.log_loss, m.calibration_error)


def of_one(name: str, logits: np.ndarray, y: np.ndarray) -> float:
    """What scikit-learn says of one client, or NaN where the metric is undefined; ECE, which it lacks, by a loop."""
    classes, chances = logits.shape[1], torch.from_numpy(logits).double().softmax(1).numpy()
    best, there = logits.argmax(1), sorted(set(y.tolist()))
    if not len(y):
        return float("nan")
    if name == "macro_f1":
        return reference.f1_score(y, best, average="macro", zero_division=0)
    if name == "balanced_accuracy":
        return reference.balanced_accuracy_score(y, best)
    if name == "log_loss":
        return reference.log_loss(y, chances, labels=range(classes))
    if name == "calibration_error":
        sure, total = chances.max(1), 0.0
        for b in range(m.ECE_BINS):
            inside = (sure > b / m.ECE_BINS) & (sure <= (b + 1) / m.ECE_BINS)
            if inside.any():
                total += inside.sum() * abs((best == y)[inside].mean() - sure[inside].mean())
        return total / len(y)
    score = reference.roc_auc_score if name == "auc" else reference.average_precision_score
    wanted = [1] if classes == 2 else range(classes)
    margin = (logits[:, 1] - logits[:, 0])[:, None].repeat(2, 1) if classes == 2 else chances
    defined = [c for c in wanted if c in there and (name != "auc" or len(there) > 1)]
    return float(np.mean([score(y == c, margin[:, c]) for c in defined])) if defined else float("nan")


@given(seed=st.integers(0, 2**31), clients=st.integers(1, 4), classes=st.integers(2, 4), ties=st.booleans())
def test_each_is_scikit_learns_for_every_client(seed: int, clients: int, classes: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 25, clients)
    logits = rng.normal(0, 2, (sizes.sum(), classes)).astype(np.float32)
    logits = np.round(logits) if ties else logits
    # Each client has labels of some classes only; it may predict the others.
    y = np.concatenate([rng.choice(rng.integers(0, classes, rng.integers(1, classes + 1)), n) for n in sizes]).astype(
        int
    )
    owner = np.repeat(np.arange(clients), sizes)
    shuffled = rng.permutation(len(y))
    given_ = torch.from_numpy(logits[shuffled]), torch.from_numpy(y[shuffled]), torch.from_numpy(owner[shuffled])
    for function in FUNCTIONS:
        found = function(*given_, clients)
        assert found.shape == (clients,)
        assert found.dtype == torch.float32
        for number in range(clients):
            mine = owner == number
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # scikit-learn's, about classes that are predicted and not there
                expected = of_one(function.__name__, logits[mine], y[mine])
            assert float(found[number]) == pytest.approx(expected, abs=2e-6, nan_ok=True), function.__name__


def test_confusion_counts_true_by_predicted() -> None:
    logits = torch.eye(3)[torch.tensor([0, 1, 1, 2, 0])]
    y, owner = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([0, 0, 0, 0, 2])
    counts = m.confusion(logits, y, owner, 3)
    assert counts.dtype == torch.int64
    assert counts[0].tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert counts[1].sum() == 0
    assert counts[2].tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert np.array_equal(counts[0], reference.confusion_matrix(y[:4], logits[:4].argmax(1)))


def test_a_sure_and_wrong_model_is_told_by_log_loss_and_calibration() -> None:
    y, owner = torch.tensor([0, 1]), torch.zeros(2, dtype=torch.int64)
    sure_and_wrong = torch.tensor([[-20.0, 20.0], [20.0, -20.0]])
    assert float(m.log_loss(sure_and_wrong, y, owner, 1)) == pytest.approx(40.0)
    assert float(m.calibration_error(sure_and_wrong, y, owner, 1)) == pytest.approx(1.0)
    assert float(m.calibration_error(-sure_and_wrong, y, owner, 1)) == pytest.approx(0.0, abs=1e-6)
    unsure = torch.zeros(2, 2)
    assert float(m.log_loss(unsure, y, owner, 1)) == pytest.approx(np.log(2))
    assert float(m.calibration_error(unsure, y, owner, 1)) == pytest.approx(0.0)


def test_clients_without_a_row_and_no_rows_at_all() -> None:
    none = torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    for function in FUNCTIONS:
        assert function(*none, 2).isnan().tolist() == [True, True]
