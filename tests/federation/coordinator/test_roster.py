"""Which site runs on which node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from flwr.app import Message

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.incidents import Incidents
from fedquilt.federation.coordinator.roster import Roster
from fedquilt.federation.flower_messages import pack, unpack
from support.federations import ragged_clients, without_seconds
from support.flower_doubles import MemoryGrid, federation, write_open_sites
from support.tampering import HOSTILE, header_of

SIZES = (25, 14, 31)


def test_a_site_that_could_not_say_hello_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedquilt.federation.coordinator.roster.RETRY_SECONDS", 0.0)
    failed: list[int] = []

    def fail_once(who: int, message: Message, reply: Message) -> Message:
        if who == HOSTILE and not failed:
            failed.append(who)
            reply.content = pack({"refused": "The site failed; its own log says why."})
        return reply

    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = fail_once
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg")
    there.run()
    assert failed
    assert [r["participants"] for r in there.folder.seed(3).records()] == ["all"] * 3


def test_a_site_that_comes_back_as_another_node_is_known_again(tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=4)

    def tell(text: str) -> None:
        if text.startswith("Round 2"):
            grid.offline = {1002}
            grid.sites[2002] = grid.sites[1002]

    there.say = tell
    there.run()
    plain = federation(tmp_path / "b", ragged_clients(SIZES), method="fedavg", rounds=4)
    plain.run()
    assert without_seconds(there.folder.seed(3).records()) == without_seconds(plain.folder.seed(3).records())


def test_nobody_takes_the_name_of_a_site_that_is_there(tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    grid.sites[3000] = grid.sites[1000]
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg")
    there.run()
    assert [line["what"] for line in there.incidents.all] == ["turned away"]
    assert there.roster.nodes["site-0"] == 1000


def said(name: str, value: object, node: int = HOSTILE) -> Callable[[int, Message, Message], Message]:
    """A hostile site's introduction says something else."""

    def tamper(who: int, message: Message, reply: Message) -> Message:
        if who == node and header_of(message)["kind"] == "hello":
            reply.content = pack({**unpack(reply.content)[0], name: value})
        return reply

    return tamper


def test_counts_are_bounded_by_what_sites_said_and_by_the_other_sites(tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = said("nodes", 10**9)
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", size_limit=10.0)
    there.run()
    assert there.roster.sizes == {"site-0": 32, "site-1": 10**9, "site-2": 32}
    assert [there.roster.largest_count(m, 10.0) for m in range(3)] == [32.0, 320.0, 32.0]
    (incident,) = there.incidents.all
    assert (incident["site"], incident["what"]) == ("site-1", "size")
    assert "counts above 320 are left out. If it is right, give a larger size-limit" in incident["reason"]
    loaded = Roster(grid, there.incidents)
    loaded.load(there.folder.path / "sites.json")
    assert loaded.sizes == there.roster.sizes


def test_what_a_site_says_later_does_not_raise_its_limit(tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients(SIZES)))
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg", rounds=3)

    def tell(text: str) -> None:
        if text.startswith("Round 2"):
            grid.offline = {HOSTILE}
            grid.sites[2001] = grid.sites[HOSTILE]
            grid.tamper = said("nodes", 10**6, 2001)

    there.say = tell
    there.run()
    assert there.roster.nodes["site-1"] == 2001
    assert there.roster.sizes["site-1"] == 16


def test_sites_with_noise_count_ones_and_two_sites_are_not_compared(tmp_path: Path) -> None:
    roster = Roster(MemoryGrid([]), Incidents(), names=["a", "b"], noisy={"a"}, sizes={"b": 64})
    assert [roster.largest_count(m, 10.0) for m in (0, 1)] == [1.0, 64.0]
    roster = Roster(MemoryGrid([]), Incidents(), names=["a", "b", "c"], sizes={"a": 8, "b": 64})
    assert roster.largest_count(2, 10.0) == 80.0  # it did not say


@pytest.mark.parametrize("content", ["[]", "{", "[" * 9000, '{"names": 1, "noisy": [], "nodes": []}'])
def test_a_damaged_roster_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "roster.json").write_text(content)
    with pytest.raises(FedquiltError, match=r"roster\.json is damaged; start the run in a new folder"):
        Roster(MemoryGrid([]), Incidents()).load(tmp_path / "roster.json")
