"""Predictions for pairs of nodes from the models of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import fedquilt
from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.runs.config import RunConfig
from fedquilt.runs.finished import Run
from fedquilt.runs.predict import personal_of_run
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.tasks.link_split import negatives

OPTIONS = {
    "method": "fedavg",
    "dataset": "patchwork",
    "task": "link",
    "clients": 3,
    "rounds": 2,
    "settings": {"hidden": 8},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fedquilt.run(**OPTIONS, out=tmp_path_factory.mktemp("pairs") / "run")


@pytest.fixture(scope="module")
def resolved() -> ResolvedRun:
    return ResolvedRun(RunConfig.build(OPTIONS))


def test_own_pairs_are_the_held_out_ones_and_give_the_metric_again(run: Run, resolved: ResolvedRun) -> None:
    own = run.predict()
    assert list(own.columns()) == ["client", "source", "target", "part", "label", "probability"]
    assert set(own.parts) == {"val", "test"}
    for m, client in enumerate(resolved.clients(0)):
        chosen = (own.clients == m) & (own.parts == "test")
        truth, score = own.labels[chosen] == "edge", own.values[chosen, 0].astype(np.float64)
        assert truth.sum() == client.held_out["test"].shape[1]
        assert (~truth).sum() == client.held_out[negatives("test")].shape[1]
        above = (score[truth][:, None] > score[~truth]).mean() + 0.5 * (score[truth][:, None] == score[~truth]).mean()
        record = run.records[0][run.result["seeds"][0]["best_round"]]
        assert 100 * above == pytest.approx(record["clients"]["test"][m], abs=0.2)


def test_asked_pairs_are_predicted_by_the_clients_that_have_them(run: Run, resolved: ResolvedRun) -> None:
    client = resolved.clients(0)[1]
    nodes = resolved.cut(0)[0].nodes[1]
    u, v = nodes[client.graph.edges[:, 0]]
    far = next(n for n in range(len(nodes)) if n and not _joined(client, 0, n))
    found = run.predict(pairs=[(u, v), (nodes[far], nodes[0])])
    assert found.clients.tolist() == [1, 1]
    assert found.labels.tolist() == ["edge", ""]
    assert found.targets.tolist() == [str(v), str(nodes[0])]
    personal, task = personal_of_run(run, 1), resolved.task
    cohort = Cohort([client])
    weights = {name: w.unsqueeze(0) for name, w in personal.weights.items()}
    with torch.no_grad():
        z = personal.method.logits(weights, task.seen(cohort, None))
    assert found.values[1, 0] == pytest.approx(float(chance(z[far], z[0])), rel=1e-5)
    assert "pairs of nodes" in repr(found)


def chance(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The probability of an edge by the cosine decoder."""
    return (3 * (u @ v) / u.norm() / v.norm()).sigmoid()


def _joined(client: Client, u: int, v: int) -> bool:
    whole = np.concatenate([client.graph.edges, *(client.held_out[part] for part in ("train", "val", "test"))], axis=1)
    return any(set(edge) == {u, v} for edge in whole.T.tolist())


def test_pairs_of_another_graph(run: Run, resolved: ResolvedRun, tmp_path: Path) -> None:
    graph = resolved.graph
    by_first = run.predict(client=0, data=graph, pairs=[(0, 1), (5, 3)])
    assert by_first.ids.tolist() == ["0", "5"]
    z = personal_of_run(run, 0).logits(graph)
    assert by_first.values[1, 0] == pytest.approx(float(chance(z[5], z[3])), rel=1e-5)
    mean = run.predict(client="mean", data=graph, pairs=[(5, 3)])
    each = [run.predict(client=m, data=graph, pairs=[(5, 3)]).values[0, 0] for m in range(3)]
    assert mean.values[0, 0] == pytest.approx(np.mean(each), rel=1e-5)
    by_first.write(tmp_path / "pairs.json")
    assert '"source": "0"' in (tmp_path / "pairs.json").read_text()


def test_what_is_refused(run: Run, resolved: ResolvedRun) -> None:
    first, second = (resolved.cut(0)[0].nodes[m][0] for m in (0, 1))
    with pytest.raises(FedquiltError, match=f"No client that is asked has both '{first}' and '{second}'"):
        run.predict(pairs=[(first, second)])
    with pytest.raises(FedquiltError, match="There is no node 'nobody' among those of the clients asked"):
        run.predict(pairs=[(first, "nobody")])
    with pytest.raises(FedquiltError, match="There is no node 'nobody' in patchwork"):
        run.predict(client=0, data=resolved.graph, pairs=[("nobody", 1)])
    with pytest.raises(FedquiltError, match="predicts pairs of nodes; say which"):
        run.predict(client=0, data=resolved.graph)
    nodes = fedquilt.run("fedavg", "patchwork", rounds=1, clients=2, settings={"hidden": 8})
    for data in (None, resolved.graph):
        with pytest.raises(FedquiltError, match="predicts nodes, not pairs of them; leave the pairs out"):
            nodes.predict(client=0, data=data, pairs=[(0, 1)])
