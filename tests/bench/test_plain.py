from __future__ import annotations

import pytest
import torch

from fedquilt.bench.cases import SYNTHETIC, load_cases
from fedquilt.bench.plain import PLAIN, data_of
from support.federations import make_method, ragged_clients


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_a_plain_loop_learns_as_ours_does(name: str) -> None:
    torch.manual_seed(0)
    (loaded,), _ = load_cases([SYNTHETIC], [name], "cpu")
    run = loaded.resolve(name)
    ours = run.training(0)
    plain = PLAIN[name](run.clients(0), run.settings, torch.device("cpu"))
    ours.advance(16)
    plain.advance(15)
    val, _ = plain.round()
    assert abs(100 * val - ours.records[-1]["val"]) < 6


def test_a_plain_loop_trains_as_many_epochs_as_the_method() -> None:
    clients = ragged_clients()
    plain = PLAIN["fedpub"](clients, make_method("fedpub", clients, epochs=3).settings, torch.device("cpu"))
    plain.advance(2)
    assert {int(state["step"]) for optimiser in plain.optimisers for state in optimiser.state.values()} == {6}


def test_plain_fedavg_gives_everyone_the_weighted_average() -> None:
    clients = ragged_clients(sizes=(25, 14))
    plain = PLAIN["fedavg"](clients, make_method("fedavg", clients).settings, torch.device("cpu"))
    with torch.no_grad():
        plain.models[0].conv1.bias.fill_(1.0)
        plain.models[1].conv1.bias.fill_(3.0)
    plain.aggregate()
    one, two = (float(data.train_mask.sum()) for data in plain.data)
    for model in plain.models:
        assert torch.allclose(model.conv1.bias, torch.tensor((one + 3 * two) / (one + two)))


def test_nodes_without_a_label_are_in_no_part() -> None:
    client = ragged_clients()[0]
    client.graph.y[:] = -1
    data = data_of(client, torch.device("cpu"))
    assert not (data.train_mask | data.val_mask | data.test_mask).any()
