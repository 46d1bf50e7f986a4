"""What the views `attention` and `private` of Quilt are for, on graphs that are made for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import fedquilt
from fedquilt.cohort.cohort import Cohort
from fedquilt.methods.quilt import Quilt
from support.federations import make_method, make_task, ragged_clients, tapped_run

CLASSES = 4
DEFAULTS = "mlp,filter,gpr,attention,sage"


def made(seed: int, turn: int = 0, alike: float = 0.9, clear: float = 1.5, nodes: int = 160) -> Data:
    """Four classes, and four features for each; those of class c are higher at nodes of class c + `turn`. A share `alike` of
    a node's neighbours is of its class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, nodes)
    x = rng.standard_normal((nodes, CLASSES, 4))
    x[np.arange(nodes), (y - turn) % CLASSES] += clear
    same = rng.random((nodes, 4)) < alike
    ends = [[rng.choice(np.flatnonzero((y == y[u]) == each)) for each in same[u]] for u in range(nodes)]
    one_way = np.stack([np.repeat(np.arange(nodes), 4), np.ravel(ends)])
    edges = torch.from_numpy(np.concatenate([one_way, one_way[::-1]], axis=1))
    return Data(x=torch.from_numpy(x.reshape(nodes, -1)).float(), edge_index=edges, y=torch.from_numpy(y))


def accuracy(graphs: list[Data], views: str, rounds: int = 40, **options: object) -> float:
    run = fedquilt.run(
        "quilt", graphs, rounds=rounds, seeds=[0, 1], split="30/30/40", settings={"views": views}, **options
    )
    return float(run.result["test_mean"])


def test_clients_whose_features_mean_something_else_rely_on_their_private_view() -> None:
    """With shared weights alone what one client learns is wrong for the others."""
    graphs = [made(m % CLASSES, turn=m, alike=0.5, clear=1.0) for m in range(2 * CLASSES)]
    assert accuracy(graphs, f"{DEFAULTS},private") > accuracy(graphs, DEFAULTS) + 20


@pytest.mark.parametrize(
    ("attack", "options"),
    [("noise", {"attack_ratio": 0.1}), ("flip", {"attack_ratio": 0.2, "attack_scale": 2.0})],
)
def test_beside_hostile_clients_the_honest_ones_fall_back_on_their_private_view(
    attack: str, options: dict[str, float]
) -> None:
    """What hostile clients send turns every shared view; validation tells, and the votes leave what is trained at home."""
    usual = {"partition": "natural", "rounds": 40, "seeds": [0], "attack": attack, **options}
    shared, all_views = (
        fedquilt.run("quilt", "patchwork", settings={"views": views}, **usual)
        for views in (DEFAULTS, f"{DEFAULTS},private")
    )
    best = all_views.records[0][all_views.result["seeds"][0]["best_round"]]
    assert best["diagnostics"]["view_private"] > 0.9
    found = [run.result["seeds"][0]["groups"]["honest"]["test"] for run in (shared, all_views)]
    assert found[1] > found[0] + 10


def test_attention_helps_where_some_neighbours_are_of_another_class(data_folder: Path) -> None:
    options = {"dataset": "syn-cora:h=0.80", "clients": 5, "seeds": [0, 1, 2], "data": data_folder}
    found = {
        view: fedquilt.run("quilt", settings={"views": view}, **options).result["val_mean"]
        for view in ("gpr", "attention")
    }
    assert found["attention"] > found["gpr"] + 0.5


def private(**settings: object) -> Quilt:
    method = make_method("quilt", ragged_clients(), make_task(ragged_clients()), **settings)
    assert isinstance(method, Quilt)
    return method


@pytest.mark.parametrize("average", ["gradients", "weights"])
def test_of_the_private_view_only_its_coefficients_cross(average: str) -> None:
    method = private(average=average)
    _, tap = tapped_run(method, ragged_clients(), 3, 1.0)
    for message in (*tap.ups, *tap.downs):
        of_view = {name for name in message if "view.private." in name}
        assert of_view <= {"gradient.view.private.steps", "model.view.private.steps"}
    assert any("view.private.steps" in name for name in tap.ups[0])


def test_its_weights_are_trained_at_home_by_adam() -> None:
    """And differ between clients, where those of the others are as they were received."""
    method, cohort = private(), Cohort(ragged_clients())
    state = method.start(cohort)
    before = {name: tensor.clone() for name, tensor in state.items() if name.startswith("model.")}
    method.local_update(state, cohort, {}, 0)
    moved = {name for name, tensor in before.items() if not torch.equal(tensor, state[name])}
    assert moved == {
        f"model.view.private.{name}"
        for name in ("hidden.weight", "hidden.bias", "classifier.weight", "classifier.bias")
    }
    weight = state["model.view.private.classifier.weight"]
    assert not torch.equal(weight[0], weight[1])


def test_it_has_no_masks() -> None:
    names = private(masks=True).maskable
    assert any(name.startswith("view.gpr.") for name in names)
    assert not any(name.startswith("view.private.") for name in names)
    assert private(masks=True).masks_learn(["view.gpr.", "view.sage.", "view.private."])  # it takes nobody's place
