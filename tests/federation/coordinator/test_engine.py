"""Rounds over sites: who is waited for, and which replies are used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message

from fedquilt.errors import FedquiltError
from support.federations import ragged_clients, without_seconds
from support.flower_doubles import MemoryGrid, federation, site_models, write_open_sites
from support.tampering import HOSTILE, W, at, changed, header_of, put, with_header

SIZES = (25, 14, 31)


@pytest.mark.parametrize(("min_sites", "goes_on"), [(0, True), (2, True), (3, False)])
def test_a_bad_upload_stops_a_run_only_where_it_insists_on_all_sites(
    min_sites: int, goes_on: bool, tmp_path: Path
) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = at(1, changed(W, put(3, float("nan"))))
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", min_sites=min_sites)
    if goes_on:
        there.run()
        assert [r["participants"] for r in there.folder.seed(3).records()] == ["all", [0, 2], "all"]
    else:
        with pytest.raises(FedquiltError, match="from 2 of 3 sites and needs 3"):
            there.run()


@pytest.mark.parametrize("figures", [[0.1, 0.1, 7.0, 0.5, 1.0], [0.1, 0.1, 0.5, 0.5, 0.0], ["x"] * 5, [1.0], "x"])
def test_metrics_that_are_not_possible_are_left_out(figures: Any, tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = at(1, with_header({"figures": figures}))
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=3)
    there.run()
    records = there.folder.seed(3).records()
    assert [r["participants"] for r in records] == ["all"] * 3
    assert [r["clients"]["val"][1] is None for r in records] == [False, True, False]


def test_a_round_waits_for_sites_that_it_needs(tmp_path: Path) -> None:
    """A reply is lost: the site is asked again, gives the same answer, and nothing is lost or done twice."""
    lost: list[int] = []

    def lose(who: int, message: Message, reply: Message) -> Message | None:
        if who == HOSTILE and header_of(message).get("round") == 1 and not lost:
            lost.append(who)
            return None
        return reply

    grid = MemoryGrid(write_open_sites(tmp_path / "a", ragged_clients(SIZES)))
    grid.tamper = lose
    there = federation(tmp_path / "a", ragged_clients(SIZES), grid, method="fedpub", timeout=0.5, rounds=4)
    there.run()
    plain = federation(tmp_path / "b", ragged_clients(SIZES), method="fedpub", rounds=4)
    plain.run()
    assert lost
    assert without_seconds(there.folder.seed(3).records()) == without_seconds(plain.folder.seed(3).records())
    ledger = [
        json.loads(x) for x in next((tmp_path / "a/site-1/state").glob("*/ledger.jsonl")).read_text().splitlines()
    ]
    assert sum(line["name"] == W and line["round"] == 1 for line in ledger) == 1


def test_too_few_sites_stop_the_run_with_a_sentence(tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = at(2, lambda reply: None)
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", timeout=0.3, tries=2, rounds=4)
    with pytest.raises(FedquiltError, match="Round 2 got uploads that can be used from 2 of 3 sites and needs 3"):
        there.run()
    # ... and with the site there again it goes on, and ends as if nothing had been.
    grid.tamper = lambda who, message, reply: reply
    federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", timeout=0.3, tries=2, rounds=4).run()
    plain = federation(tmp_path / "b", ragged_clients(SIZES), method="fedavg", rounds=4)
    plain.run()
    assert without_seconds(there.folder.seed(3).records()) == without_seconds(plain.folder.seed(3).records())
    for mine, other in zip(site_models(tmp_path), site_models(tmp_path / "b"), strict=True):
        assert all(torch.equal(mine[0][name], other[0][name]) for name in other[0])
