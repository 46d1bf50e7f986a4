"""FedStar: the structure channel is averaged, all else stays at home; the structure acts."""

from __future__ import annotations

import pytest
import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.methods.base_adam import KEYS
from fedquilt.nn.dropout import Dropout
from fedquilt.training.plan import Plan
from support.clients import assert_near
from support.federations import Wiretap, make_method, make_training, ragged_clients

SHARED = {
    f"model.structure.{name}" for name in ("weight", "bias", "conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias")
}


def test_only_the_structure_channel_crosses_and_comes_back_as_its_mean() -> None:
    clients = ragged_clients()
    training = make_training(make_method("fedstar", clients), clients, Plan(4, participation=0.6))
    tap = Wiretap(training.engine)
    training.run()
    assert all(set(up) == SHARED | {"train_nodes"} for up in tap.ups)
    assert all(set(down) == SHARED for down in tap.downs[1:])
    for up, down in zip(tap.ups, tap.downs[1:], strict=False):
        share = up["train_nodes"] / up["train_nodes"].sum()
        for name in SHARED:
            assert_near(down[name], torch.einsum("m,m...->...", share, up[name]), 1e-6)


def test_what_is_shared_moves_and_clients_differ_a_little() -> None:
    clients = ragged_clients()
    training = make_training(make_method("fedstar", clients), clients, Plan(6))
    training.run()
    found = [record["diagnostics"] for record in training.records]
    assert 0.0 < found[0]["structure_change"] < found[-1]["structure_change"]
    assert all(0.0 < each["structure_spread"] < 1.0 for each in found)


def test_without_structure_nothing_of_it_reaches_the_loss() -> None:
    """With zeros the first structure layer gets no gradient; with embeddings, shuffled ones too, it does, another one."""
    cohort = Cohort(ragged_clients())
    grads = {}
    for kind in ("both", "shuffled", "none"):
        method = make_method("fedstar", cohort.members, structure=kind, dropout=0.0)
        state = method.start(cohort)
        found, _ = method.gradients(state, cohort, Dropout(0.0, state[KEYS], 0), {})
        grads[kind] = found["model.structure.weight"]
    assert not grads["none"].any()
    assert grads["both"].any()
    assert grads["shuffled"].any()
    assert not torch.allclose(grads["both"], grads["shuffled"])


def test_the_structure_is_a_part_of_what_is_learned() -> None:
    """Half of what the second layer's input is, and no small share of the gradient."""
    cohort = Cohort(ragged_clients())
    method = make_method("fedstar", cohort.members, dropout=0.0)
    state = method.start(cohort)
    grads, _ = method.gradients(state, cohort, Dropout(0.0, state[KEYS], 0), {})
    whole, shared = (
        sum(float(g.square().sum()) for name, g in grads.items() if name.startswith(prefix)) ** 0.5
        for prefix in ("model.", "model.structure")
    )
    assert shared > 0.02 * whole


def test_a_backbone_without_layers_to_join_before_is_refused() -> None:
    clients = ragged_clients()
    for model in ("gcn", "sage", "gat", "gin", "mlp"):
        make_method("fedstar", clients, model=model)
    for model in ("sgc", "appnp", "gcnii"):
        with pytest.raises(
            FedquiltError, match=rf"joins its two channels .* model={model} does not allow; choose gcn, .*\."
        ):
            make_method("fedstar", clients, model=model)


@pytest.mark.parametrize(("name", "value"), [("walks", 0), ("degrees", 0), ("structure", "all")])
def test_bad_settings_are_refused(name: str, value: object) -> None:
    with pytest.raises(FedquiltError, match=f"setting {name}"):
        make_method("fedstar", ragged_clients(), **{name: value})
