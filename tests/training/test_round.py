"""One round: the messages that cross and their bytes, upload transforms, and keys of CUDA graphs."""

from __future__ import annotations

import pytest
import torch

from fedquilt.messages.message import dense
from fedquilt.training.plan import Plan
from support.federations import (
    Wiretap,
    make_method,
    make_training,
    ragged_clients,
)


@pytest.mark.parametrize(("share", "here"), [(1.0, 5), (0.6, 3)])
def test_fedavgs_bytes_by_hand(share: float, here: int) -> None:
    clients = ragged_clients()
    training = make_training(make_method("fedavg", clients), clients, Plan(4, share))
    progress = training.run()
    sizes = {
        "model.conv1.weight": 10 * 8,
        "model.conv1.bias": 8,
        "model.conv2.weight": 8 * 8,
        "model.conv2.bias": 8,
        "model.classifier.weight": 8 * 3,
        "model.classifier.bias": 3,
    }
    numbers = sum(sizes.values())
    for record in training.records:
        assert record["bytes_up"] == {n: 4 * size * here for n, size in sizes.items()} | {"train_nodes": 4 * here}
        down = {} if record["round"] == 0 else {n: 4 * size * here for n, size in sizes.items()}
        assert record["bytes_down"] == down
    assert progress.upload_bytes == 4 * here * (numbers + 1) * 4
    assert progress.download_bytes == 3 * here * numbers * 4


@pytest.mark.parametrize("name", ["fedavg", "fedper", "fedpub", "local"])
def test_the_ledger_names_what_crossed(name: str) -> None:
    clients = ragged_clients()
    training = make_training(make_method(name, clients), clients, Plan(4, 0.6))
    tap = Wiretap(training.engine)
    progress = training.run()
    for record, up, down in zip(training.records, tap.ups, tap.downs, strict=True):
        assert set(record["bytes_up"]) == set(up)
        assert set(record["bytes_down"]) == set(down)
        assert record["bytes_up"] == {key: t.numel() * t.element_size() for key, t in up.items()}
    assert progress.upload_bytes == sum(sum(r["bytes_up"].values()) for r in training.records)
    assert progress.download_bytes == sum(sum(r["bytes_down"].values()) for r in training.records)
    assert progress.seconds == pytest.approx(sum(r["seconds"] for r in training.records))


def test_the_last_round_is_aggregated_too() -> None:
    """So that what the server knows of the clients after it is that round's: the same as if a round followed."""
    clients = ragged_clients()
    ended, longer = (make_training(make_method("fedpub", clients), clients, Plan(rounds)) for rounds in (3, 4))
    ended.run()
    longer.advance(3)
    assert torch.equal(ended.server["similarity"], longer.server["similarity"])
    longer.advance(1)
    assert not torch.equal(ended.server["similarity"], longer.server["similarity"])


def test_a_download_stays_at_its_address_where_a_cuda_graph_reads_it() -> None:
    clients = ragged_clients()
    training = make_training(make_method("fedavg", clients), clients, Plan(9))
    runner = training.runner
    runner.fixed_addresses = True
    runner.run(0)
    first, keys = dense(runner.down["model.conv1.weight"]), [runner.graph_key(1)]
    before = first.clone()
    runner.run(1)
    keys.append(runner.graph_key(2))
    assert dense(runner.down["model.conv1.weight"]) is first
    assert not torch.equal(first, before)
    assert keys[0] == keys[1]  # they share one CUDA graph
    assert runner.graph_key(0) != keys[0] == runner.graph_key(8)  # only the first round has its own


def test_captured_clients_do_not_leave_stale_models() -> None:
    """Replaying a CUDA graph changes the states, not the models that the engine remembers."""
    clients = ragged_clients()
    method = make_method("fedpub", clients)
    training = make_training(method, clients, Plan(3))
    forgotten: list[int] = []
    training.engine.forget = lambda: forgotten.append(1)
    training.runner.capture_clients(lambda key, step: step())
    training.runner.run(0)
    assert forgotten == [1]
