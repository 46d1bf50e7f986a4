"""One round: the messages that cross and their bytes, upload transforms, and keys of CUDA graphs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedquilt.errors import FedquiltError
from fedquilt.messages.message import Factored, dense
from fedquilt.training.attendance import Conditions, RoundAttendance
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from support.federations import (
    Wiretap,
    assert_same,
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


def test_what_is_lost_is_not_averaged_and_not_counted() -> None:
    clients = ragged_clients()
    training = make_training(make_method("fedavg", clients), clients, Plan(6, 0.6, conditions=Conditions(drop_out=0.4)))
    tap, runner, partly = Wiretap(training.engine), training.runner, 0
    for r in range(6):
        training.advance(1)
        here, name = runner.attendance.at(r), "model.conv1.weight"
        arrived = np.isin(here.participants.numpy(), here.arrived.numpy())
        record = training.records[-1]
        assert record["participants"] == here.arrived.tolist()
        assert record.get("lost", []) == here.participants.numpy()[~arrived].tolist()
        assert record["bytes_up"].get("train_nodes", 0) == 4 * arrived.sum()
        partly += 0 < arrived.sum() < 3
        if arrived.any():
            sent, nodes = tap.ups[r][name].numpy()[arrived], tap.ups[r]["train_nodes"].numpy()[arrived]
            mean = (sent * nodes[:, None, None]).sum(0) / nodes.sum()
            assert np.allclose(dense(runner.down[name]).numpy(), mean, atol=1e-6)
        # Who trained keeps what it trained, whether the upload arrived or not.
        model = training.engine.state()[name][here.participants]
        assert torch.equal(model, tap.ups[r][name])
    assert partly


def test_transforms_see_the_downloads_of_those_whose_uploads_arrived() -> None:
    class Seen:
        def __init__(self) -> None:
            self.calls: list[tuple[list[int], torch.Tensor]] = []

        def applied(self, uploads: dict, specs: object, round: int, senders: torch.Tensor, down: dict) -> dict:
            if "model.conv1.weight" in down:
                self.calls.append((senders.tolist(), dense(down["model.conv1.weight"]).clone()))
                assert all(len(dense(value)) == len(senders) for value in uploads.values())
            return uploads

        def record_entries(self, round: int) -> dict:
            return {}

    clients, seen = ragged_clients(), Seen()
    plan = Plan(5, 0.8, conditions=Conditions(drop_out=0.4))
    training = make_training(make_method("fedpub", clients), clients, plan, upload_transforms=[seen])
    tap = Wiretap(training.engine)
    training.run()
    calls = iter(seen.calls)
    for r in range(1, 5):
        here = training.runner.attendance.at(r)
        if len(here.arrived):
            senders, down = next(calls)
            assert senders == here.arrived.tolist()
            places = np.flatnonzero(np.isin(here.participants.numpy(), senders))
            assert torch.equal(down, tap.downs[r]["model.conv1.weight"][places])


def test_a_thousand_clients_averages_are_sent_again_where_nothing_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factored downloads are made from uploads, whose memory the next round overwrites where they are offloaded."""
    monkeypatch.setattr("fedquilt.methods.fedpub.MANY", 2)
    clients = ragged_clients()
    many = make_training(make_method("fedpub", clients), clients, Plan(3, conditions=Conditions(drop_out=0.999)), 2)
    many.runner.attendance._known.append(RoundAttendance(torch.arange(5), torch.arange(5)))  # round 0 arrives
    tap = Wiretap(many.engine)
    tap_down = []
    many.engine.round = lambda r, here, down, evaluate: (  # type: ignore[method-assign]
        tap_down.append({n: (v.rows(0, 5) if isinstance(v, Factored) else dense(v)).clone() for n, v in down.items()})
        or tap._round(r, here, down, evaluate)
    )
    many.advance(1)
    assert any(isinstance(value, Factored) for value in many.runner.down.values())
    many.advance(2)
    assert [len(many.runner.attendance.at(r).arrived) for r in range(3)] == [5, 0, 0]
    assert_same(tap_down[1], tap_down[2])


def test_metrics_of_a_late_joiner_are_unknown_until_it_joins() -> None:
    clients = ragged_clients()
    plan = Plan(4, conditions=Conditions(join_late=0.4, join_round=2))
    training = make_training(make_method("fedavg", clients), clients, plan)
    late = training.runner.attendance.late.tolist()
    training.run()
    for record in training.records:
        values = record["clients"]["val"]
        known = [value for m, value in enumerate(values) if record["round"] >= 2 or m not in late]
        assert None not in known
        assert record["val"] == pytest.approx(np.mean(known), abs=1e-4)
        assert values.count(None) == 5 - len(known)


def test_stragglers_need_an_engine_that_has_them() -> None:
    clients = ragged_clients()
    method = make_method("fedavg", clients)
    engine = SimpleNamespace(device=torch.device("cpu"), supports_cuda_graphs=False)
    with pytest.raises(FedquiltError, match="has no stragglers"):
        Training(method, engine, Plan(2, conditions=Conditions(stragglers=0.5)))
