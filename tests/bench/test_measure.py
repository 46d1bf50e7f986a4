from __future__ import annotations

import pytest
import torch

from fedquilt.bench.cases import SYNTHETIC, load_cases
from fedquilt.bench.measure import bench, chosen_device, chosen_methods
from fedquilt.bench.result import OURS, PLAIN_LOOP
from fedquilt.devices.device import using_threads
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import Method, methods
from fedquilt.methods.fedavg import FedAvg
from support.federations import registered


def test_all_methods_but_those_of_a_single_round_are_measured_fedavg_first() -> None:
    assert chosen_methods(None)[0] == "fedavg"
    assert set(chosen_methods(None)) == {name for name, method in methods().items() if not method.single_round}
    assert chosen_methods(["quilt", "local", "quilt"]) == ["fedavg", "quilt", "local"]


def test_a_method_registered_elsewhere_is_measured_too() -> None:
    with registered(type("Mine", (FedAvg,), {}), "mine") as mine:
        assert issubclass(mine, Method)
        assert "mine" in chosen_methods(None)


def test_a_method_with_nothing_to_time_is_refused() -> None:
    with pytest.raises(FedquiltError, match="'majority' takes one round only"):
        chosen_methods(["majority"])


def test_a_device_a_bench_cannot_use_is_refused() -> None:
    with pytest.raises(FedquiltError, match="There is no device 'meta'; use auto, cpu or cuda"):
        chosen_device("meta")


def test_threads_are_as_before_when_it_is_over() -> None:
    before = torch.get_num_threads()
    with using_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_every_side_is_measured() -> None:
    cases, _ = load_cases([SYNTHETIC], ["fedavg", "fedpub", "local"], "cpu")
    seen: list[tuple[str, int, int]] = []
    result = bench(
        cases, ["fedavg", "fedpub", "local"], 2, torch.device("cpu"), False, watch=lambda *at: seen.append(at)
    )
    sides = [(row.side, row.method) for row in result.rows]
    assert sides == [
        (OURS, "fedavg"),
        (PLAIN_LOOP, "fedavg"),
        (OURS, "fedpub"),
        (PLAIN_LOOP, "fedpub"),
        (OURS, "local"),
    ]
    assert all(len(row.turns_ms) == 2 and 0 < row.best_ms <= row.ms for row in result.rows)
    assert [row.speedup is not None for row in result.rows] == [True, False, True, False, False]
    assert result.rows[0].to_fedavg == result.rows[1].to_plain_fedavg == 1
    assert seen == [(str(SYNTHETIC), done, 2) for done in range(3)]
    assert result.about["turns"] == 2
