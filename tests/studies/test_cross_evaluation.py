"""Models on graphs that they were not trained on, against a loop over clients in PyTorch Geometric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from fedquilt.cohort.client import Client
from fedquilt.errors import FedquiltError
from fedquilt.runs.config import RunConfig
from fedquilt.runs.execute import execute_run
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.studies.cross_evaluation import at_clients, at_neighbours, check_split, whole_graph
from fedquilt.studies.run_cell import FAILED, run_cell
from fedquilt.studies.store import CellStore
from support.clients import dense_features, edge_index
from support.tiny_studies import cells_of, study_of

BASE: dict[str, Any] = {
    "dataset": "communities-3",
    "clients": 4,
    "rounds": 4,
    "seeds": [1],
    "device": "cpu",
    "settings": {"hidden": 8, "model": "gcn"},
}


def config(**options: Any) -> RunConfig:
    return RunConfig.build(BASE | options)


def logits(client: Client, w: dict[str, Tensor]) -> Tensor:
    """Two of PyTorch Geometric's layers and a classifier, with the weights of one client."""

    def layer(name: str, h: Tensor) -> Tensor:
        conv = GCNConv(*w[f"{name}.weight"].shape)
        conv.lin.weight.data, conv.bias.data = w[f"{name}.weight"].T.contiguous(), w[f"{name}.bias"]
        return torch.relu(conv(h, edge_index(client)))

    h = layer("conv2", layer("conv1", torch.from_numpy(dense_features(client))))
    return h @ w["classifier.weight"] + w["classifier.bias"]


def accuracy(client: Client, w: dict[str, Tensor], part: int) -> float:
    """In percent, at the nodes of one part (0 train, 1 val, 2 test) that have a label."""
    here = (client.split == part) & (client.graph.y >= 0)
    with torch.no_grad():
        found = logits(client, w).argmax(dim=1).numpy()
    return 100 * float((found[here] == client.graph.y[here]).mean()) if here.any() else np.nan


@pytest.mark.parametrize("partition", ["disjoint", "overlapping"])
def test_the_oracle_at_its_clients_is_a_loop_over_them(partition: str) -> None:
    asked = config(method="local", partition=partition, clients=10 if partition == "overlapping" else 4)
    run = execute_run(whole_graph(asked), None)
    assert run.models[1]["conv1.weight"].shape[0] == 1
    model = {name: tensor[0] for name, tensor in run.models[1].items()}
    clients = ResolvedRun(asked).clients(1)
    found = at_clients(ResolvedRun(asked), run)
    for part, name in ((1, "val"), (2, "test")):
        expected = np.nanmean([accuracy(client, model, part) for client in clients])
        assert found[name] == pytest.approx(expected, abs=1e-4)


def test_the_oracle_is_trained_on_everything_with_the_same_split() -> None:
    asked = config(method="local")
    one = ResolvedRun(whole_graph(asked)).clients(1)
    (all_of_it,) = one
    several = ResolvedRun(asked).clients(1)
    assert all_of_it.graph.nodes == sum(client.graph.nodes for client in several)
    assert sum((client.split == 0).sum() for client in several) == (all_of_it.split == 0).sum()
    assert all_of_it.graph.edges.shape[1] > sum(client.graph.edges.shape[1] for client in several)


def check(asked: RunConfig) -> None:
    check_split(ResolvedRun(asked), ResolvedRun(whole_graph(asked)))


def test_an_oracle_that_would_see_test_labels_is_refused(tmp_path: Path) -> None:
    check(config(method="local"))
    # Asked for more training nodes of each client than the first split has, it is drawn again until it fits.
    fewest = min(int((client.split == 0).sum()) for client in ResolvedRun(config(method="local")).clients(1))
    with pytest.raises(FedquiltError, match="is split otherwise than its clients are"):
        check(config(method="local", min_train=fewest + 1))
    study = study_of(
        tmp_path,
        of="oracle",
        options={"dataset": "communities-3", "rounds": 2, "min_train": fewest + 1},
        axes={"method": ["local"], "clients": [4]},
        seeds=2,
    )
    store = CellStore(tmp_path / "studies")
    assert run_cell(cells_of(study)[1], store) == FAILED
    assert "is split otherwise" in next(iter(store.failures().values()))


def test_models_at_neighbours_are_a_loop_over_pairs() -> None:
    asked = config(method="fedavg")
    resolved, run = ResolvedRun(asked), execute_run(asked, None)
    clients = resolved.clients(1)
    held = np.full(resolved.graph.nodes, -1)
    for m, nodes in enumerate(resolved.cut(1)[0].nodes):
        held[nodes] = m
    missing = np.zeros((4, 4), dtype=int)
    for u, v in resolved.graph.edges.T:
        if held[u] != held[v]:
            missing[held[u], held[v]] += 1
            missing[held[v], held[u]] += 1
    scores = []
    for m in range(4):
        neighbour = max((n for n in range(4) if n != m), key=lambda n: (missing[m, n], -n))
        scores.append(accuracy(clients[neighbour], {k: t[m] for k, t in run.models[1].items()}, 2))
    assert at_neighbours(resolved, run) == pytest.approx(np.mean(scores), abs=1e-4)
    own = np.mean([accuracy(c, {k: t[m] for k, t in run.models[1].items()}, 2) for m, c in enumerate(clients)])
    assert own == pytest.approx(run.result["test_mean"], abs=1e-4)  # the loop is right where the answer is known
