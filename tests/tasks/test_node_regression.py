"""Node regression: formulas against NumPy, units, and what is undefined."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.pool import pooled_clients
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.label_numbers import presence
from fedquilt.graphs.split import NONE, TEST, TRAIN, VAL
from fedquilt.tasks.base import find_task
from fedquilt.tasks.node_regression import METRICS, label_deviation, label_mean, standardised

TASK = find_task("node-regression")
SIZES = (12, 7, 20)


def made(number: int, nodes: int, factor: float = 1.0, shift: float = 0.0) -> Client:
    rng = np.random.default_rng(number)
    numbers = shift + factor * (3.0 * rng.normal(size=nodes) + 10 * number)
    split = np.array([TRAIN, VAL, TEST], dtype=np.int8)[np.arange(nodes) % 3]
    numbers[-1], split[-1] = np.nan, NONE
    edges = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
    graph = Graph(
        f"g{number}", edges, rng.normal(size=(nodes, 4)).astype(np.float32), presence(numbers), 1, numbers=numbers
    )
    return Client(number, graph, split)


def clients(factor: float = 1.0, shift: float = 0.0) -> list[Client]:
    return [made(number, nodes, factor, shift) for number, nodes in enumerate(SIZES)]


def outputs_for(cohort: Cohort) -> torch.Tensor:
    """Made-up outputs that belong to nodes, whatever the cohort."""
    each = [
        torch.from_numpy(np.random.default_rng(c.id + 50).normal(size=(c.graph.nodes, 1))).float()
        for c in cohort.members
    ]
    return cohort.rows_of(each, 0.0)


def values(client: Client, part: int) -> tuple[np.ndarray, np.ndarray]:
    """The true numbers of a part, and the predicted ones in their units."""
    known = client.graph.numbers[client.split == TRAIN]
    z = np.random.default_rng(client.id + 50).normal(size=(client.graph.nodes, 1)).astype(np.float32)[:, 0]
    return client.graph.numbers[client.split == part], (known.mean() + known.std() * z)[client.split == part]


def test_metrics_are_numpys() -> None:
    cohort = Cohort(clients())
    outputs = outputs_for(cohort)
    for name, part in (("val", VAL), ("test", TEST)):
        found = {metric: METRICS[metric].function(cohort, outputs, name) for metric in METRICS}
        for m, client in enumerate(cohort.members):
            true, given = values(client, part)
            mse = np.square(given - true).mean()
            right = {
                "r2": 1 - mse / true.var(),
                "mae": np.abs(given - true).mean(),
                "rmse": np.sqrt(mse),
                "mse": mse,
            }
            for metric, value in right.items():
                assert found[metric][m] == pytest.approx(value, rel=1e-5)
    assert list(METRICS) == ["r2", "mae", "rmse", "mse"]
    assert [m.higher_is_better for m in METRICS.values()] == [True, False, False, False]
    assert [m.scale for m in METRICS.values()] == [100.0, 1.0, 1.0, 1.0]


def test_the_loss_is_the_mean_squared_error_of_standardised_labels() -> None:
    cohort = Cohort(clients())
    outputs = outputs_for(cohort)
    rows = torch.zeros(cohort.training.rows, 1)
    rows[cohort.training.real] = outputs[cohort.train]
    total, each = TASK.training_loss(cohort, rows, None)  # type: ignore[arg-type]  # it draws nothing
    right = []
    for client in cohort.members:
        true, given = values(client, TRAIN)
        right.append(np.square(given - true).mean() / client.graph.numbers[client.split == TRAIN].var())
    np.testing.assert_allclose(each, right, rtol=1e-4)
    assert float(total) == pytest.approx(sum(right), rel=1e-4)
    np.testing.assert_allclose(TASK.losses(cohort, outputs, "train"), right, rtol=1e-4)


def test_nothing_depends_on_the_unit_but_errors_and_predictions() -> None:
    plain, other = Cohort(clients()), Cohort(clients(factor=2.5e-4, shift=1e3))
    outputs = outputs_for(plain)
    for client, twin in zip(plain.members, other.members, strict=True):
        np.testing.assert_allclose(standardised(client), standardised(twin), atol=1e-5)
    np.testing.assert_allclose(
        METRICS["r2"].function(plain, outputs, "test"), METRICS["r2"].function(other, outputs, "test"), rtol=1e-3
    )
    for metric, power in (("mae", 1), ("rmse", 1), ("mse", 2)):
        one, two = (METRICS[metric].function(cohort, outputs, "test") for cohort in (plain, other))
        np.testing.assert_allclose(two, one * 2.5e-4**power, rtol=1e-3)
    one, two = (TASK.in_units(cohort, outputs) for cohort in (plain, other))
    np.testing.assert_allclose(two, 1e3 + 2.5e-4 * one, rtol=1e-9)


def test_a_cohort_of_many_gives_what_cohorts_of_one_give() -> None:
    many = Cohort(clients())
    outputs = outputs_for(many)
    alone = [Cohort([client]) for client in clients()]
    for metric in METRICS.values():
        each = torch.cat([metric.function(one, outputs_for(one), "test") for one in alone])
        np.testing.assert_allclose(metric.function(many, outputs, "test"), each, rtol=1e-6)
    units = [TASK.in_units(one, outputs_for(one)) for one in alone]
    for mine, one in zip(many.parts_of(TASK.in_units(many, outputs)), units, strict=True):
        np.testing.assert_allclose(mine, one[: len(mine)], rtol=1e-12)


def test_hidden_labels_are_in_no_statistic() -> None:
    client = clients()[2]
    numbers = client.graph.numbers.copy()
    numbers[client.split != TRAIN] *= 1000.0
    other = replace(client, graph=replace(client.graph, numbers=numbers))
    assert (label_mean(client), label_deviation(client)) == (label_mean(other), label_deviation(other))
    known = client.graph.numbers[client.split == TRAIN]
    assert (label_mean(client), label_deviation(client)) == pytest.approx((known.mean(), known.std()))


@pytest.mark.parametrize(("value", "deviation"), [(8.0, 8.0), (-0.5, 0.5), (0.0, 1.0)])
def test_equal_training_labels_have_their_size_as_deviation(value: float, deviation: float) -> None:
    client = clients()[0]
    numbers = client.graph.numbers.copy()
    numbers[client.split == TRAIN] = value
    assert label_deviation(replace(client, graph=replace(client.graph, numbers=numbers))) == deviation


def test_r2_is_undefined_for_equal_labels_and_for_one() -> None:
    constant, single, usual = clients()
    numbers = constant.graph.numbers.copy()
    numbers[constant.split == TEST] = 0.1 + 0.2
    constant = replace(constant, graph=replace(constant.graph, numbers=numbers))
    split = single.split.copy()
    split[np.flatnonzero(split == TEST)[1:]] = NONE
    cohort = Cohort([constant, replace(single, split=split), usual])
    found = METRICS["r2"].function(cohort, outputs_for(cohort), "test")
    assert torch.isnan(found).tolist() == [True, True, False]
    assert torch.isfinite(METRICS["mae"].function(cohort, outputs_for(cohort), "test")).all()


def test_pooled_clients_have_the_units_of_everyone() -> None:
    everyone = pooled_clients(clients())
    known = np.concatenate([c.graph.numbers[c.split == TRAIN] for c in clients()])
    for client in everyone:
        assert (label_mean(client), label_deviation(client)) == pytest.approx((known.mean(), known.std()))
    assert everyone[0].pooled is not None
    assert label_mean(everyone[0].pooled.whole) == pytest.approx(known.mean())


def test_whole_numbers_are_labels_too() -> None:
    client = clients()[0]
    y = np.arange(12) % 5
    y[-1] = -1
    whole = replace(client, graph=replace(client.graph, numbers=None, y=y, classes=5))
    assert TASK.outputs(whole.graph) == 1
    assert label_mean(whole) == pytest.approx(y[whole.split == TRAIN].mean())


def test_named_classes_are_refused() -> None:
    graph = Graph.from_arrays("g", [[0], [1]], np.ones((2, 1)), [0, 1], class_names=("ill", "well"))
    with pytest.raises(FedquiltError, match="g has classes such as 'ill' as labels, and node-regression needs numbers"):
        TASK.outputs(graph)
    numeric = Graph.from_arrays("g", [[0], [1]], np.ones((2, 1)), [0.5, 2.0])
    with pytest.raises(
        FedquiltError, match=r"g has numbers from 0\.5 to 2, mean 1\.25 as labels, and node-classification needs"
    ):
        find_task("node-classification").outputs(numeric)


def test_the_example_client_and_the_table_of_predictions() -> None:
    client = TASK.example_client(3, 1)
    client.graph.validate()
    assert {TRAIN, VAL, TEST} == set(client.split.tolist())
    rows = list(TASK.prediction_rows(["a", "b"], np.array([[1.5], [1234567.25]]), None))
    assert rows == [["id", "value"], ["a", "1.5"], ["b", "1234567.25"]]
    assert TASK.prediction_columns(np.array(["a"]), np.array([[1.5]]), None)["value"].tolist() == [1.5]
