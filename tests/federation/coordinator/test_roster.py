"""Which site runs on which node."""

from __future__ import annotations

from pathlib import Path

import pytest
from flwr.app import Message

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.incidents import Incidents
from fedquilt.federation.coordinator.roster import Roster
from fedquilt.federation.flower_messages import pack
from fedquilt.federation.site.examples import write_sites
from support.federations import ragged_clients, without_seconds
from support.flower_doubles import MemoryGrid, federation
from support.tampering import HOSTILE

SIZES = (25, 14, 31)


def test_a_site_that_could_not_say_hello_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedquilt.federation.coordinator.roster.RETRY_SECONDS", 0.0)
    failed: list[int] = []

    def fail_once(who: int, message: Message, reply: Message) -> Message:
        if who == HOSTILE and not failed:
            failed.append(who)
            reply.content = pack({"refused": "The site failed; its own log says why."})
        return reply

    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    grid.tamper = fail_once
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg")
    there.run()
    assert failed
    assert [r["participants"] for r in there.folder.seed(3).records()] == ["all"] * 3


def test_a_site_that_comes_back_as_another_node_is_known_again(tmp_path: Path) -> None:
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
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
    grid = MemoryGrid(write_sites(tmp_path, ragged_clients(SIZES)))
    grid.sites[3000] = grid.sites[1000]
    there = federation(tmp_path, ragged_clients(SIZES), grid, method="fedavg")
    there.run()
    assert [line["what"] for line in there.incidents.all] == ["turned away"]
    assert there.roster.nodes["site-0"] == 1000


@pytest.mark.parametrize("content", ["[]", "{", "[" * 9000, '{"names": 1, "noisy": [], "nodes": []}'])
def test_a_damaged_roster_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "roster.json").write_text(content)
    with pytest.raises(FedquiltError, match=r"roster\.json is damaged; start the run in a new folder"):
        Roster(MemoryGrid([]), Incidents()).load(tmp_path / "roster.json")
