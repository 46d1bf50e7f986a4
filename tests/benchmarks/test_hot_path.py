"""The cost of a round is counted, not timed, and compared with what is recorded in hot_path.json."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from benchmarks.hot_path import (
    HOW_TO_UPDATE,
    Counter,
    Counts,
    count_method,
    increases,
    read_counts,
    same_torch,
    write_counts,
)

from fedquilt.bench.measure import chosen_methods
from fedquilt.devices.device import using_threads
from fedquilt.methods.base import Update
from fedquilt.methods.fedavg import FedAvg
from support.federations import registered

RECORD = Path(__file__).with_name("hot_path.json")
HOW = HOW_TO_UPDATE.format("tests/benchmarks/hot_path.json")


@pytest.mark.parametrize("method", sorted(chosen_methods(None)))
def test_a_round_takes_no_more_than_was_recorded(method: str) -> None:
    recorded = read_counts(RECORD)
    if not same_torch(RECORD):
        pytest.skip(f"the counts were recorded with another PyTorch than {torch.__version__}")
    if method not in recorded:
        pytest.skip(f"nothing is recorded for {method}; {HOW}")
    found = increases(method, count_method(method), recorded[method])
    assert not found, "\n".join([*found, HOW])


class Slowed(FedAvg):
    """FedAvg that copies its upload a few times for nothing."""

    def local_update(self, *arguments: object) -> Update:
        update = super().local_update(*arguments)
        for _ in range(10):
            update.upload.update({name: value.clone() for name, value in update.upload.items()})
        return update


def test_a_slowed_method_is_caught() -> None:
    before = count_method("fedavg")
    with registered(Slowed, "slowed"):
        found = increases("slowed", count_method("slowed"), before)
    assert [quantity in sentence for sentence, quantity in zip(found, ["operators", "bytes"] * 2, strict=True)] == [
        True
    ] * 4
    assert found[0].startswith("5 rounds of slowed on patchwork/natural/10 take ")


def test_counts_do_not_depend_on_threads() -> None:
    counted = []
    for threads in (1, 3):
        with using_threads(threads):
            counted.append(count_method("quilt"))
    assert counted[0] == counted[1]


def test_only_more_than_a_twentieth_more_is_an_increase() -> None:
    old = {"case": Counts(100, 1000, 0)}
    assert increases("m", {"case": Counts(105, 10, 0)}, old) == []
    assert increases("m", {"case": Counts(106, 1000, 0)}, old) == [
        "5 rounds of m on case take 106 operators, over 5% more than the 100 recorded."
    ]
    assert len(increases("m", {"case": Counts(1, 1051, 1)}, old)) == 2
    assert increases("m", {"other": Counts(1, 1, 1)}, old) == ["Nothing is recorded for 5 rounds of m on other."]


def test_views_write_nothing_and_changes_in_place_do() -> None:
    x, y = torch.zeros(10, 10), torch.ones(10, 10)
    with Counter() as counter:
        x.view(100).unsqueeze(0).transpose(0, 1).detach()
    assert (counter.operators, counter.bytes) == (4, 0)
    with Counter() as counter:
        x.add_(1.0)
        x[:5] = 2.0
        torch.mul(x, y, out=y)
        torch._foreach_add_([x, y], 1.0)
    assert counter.bytes == 400 + 200 + 400 + 800


def test_products_are_counted_forward_and_backward() -> None:
    a, b = torch.ones(3, 5, requires_grad=True), torch.ones(5, 7, requires_grad=True)
    with Counter() as counter:
        (a @ b).sum().backward()
    assert counter.flops == 3 * (2 * 3 * 5 * 7)


def test_counts_are_read_as_they_were_recorded(tmp_path: Path) -> None:
    counts = {"m": {"case": Counts(1, 2, 3)}}
    write_counts(tmp_path / "c.json", counts)
    assert read_counts(tmp_path / "c.json") == counts
    assert same_torch(tmp_path / "c.json")
