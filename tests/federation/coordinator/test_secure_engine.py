"""Rounds by secure aggregation: who may drop out when, restarts, and hostile sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.coordinator import Coordinator
from fedquilt.federation.flower_messages import pack, unpack
from fedquilt.federation.site.examples import write_sites
from support.federations import ragged_clients, without_seconds
from support.flower_doubles import MemoryGrid, edit_site, federation, loaded_sites
from support.tampering import header_of

SIZES = (12, 9, 14, 10)
STAGES = ("secure-setup", "secure-share", "round", "secure-confirm", "secure-unmask")


@pytest.fixture(autouse=True)
def _loaded() -> Iterator[None]:
    with loaded_sites():
        yield


def secure(folder: Path, grid: MemoryGrid | None = None, **options: Any) -> Coordinator:
    wanted = {"method": "fedavg", "rounds": 1, "timeout": 0.3, "tries": 1, "secure_aggregation": True} | options
    return federation(folder, ragged_clients(SIZES[: options.pop("sites", 4)]), grid, **wanted)


def grid_of(folder: Path, tamper: Callable[..., Any], sites: int = 4) -> MemoryGrid:
    grid = MemoryGrid(write_sites(folder, ragged_clients(SIZES[:sites]), permits="all"))
    grid.tamper = tamper
    return grid


def lost(stage: str, *nodes: int, round: int = 0) -> Callable[..., Any]:
    """Some sites' replies to a stage of a round do not arrive."""

    def tamper(node: int, message: Message, reply: Message) -> Message | None:
        header = header_of(message)
        return None if node in nodes and (header["kind"], header.get("round")) == (stage, round) else reply

    return tamper


def bad(stage: str, body: bytes | None = None, **header: Any) -> Callable[..., Any]:
    """Site 1 replies to a stage of round 0 with something else."""

    def tamper(node: int, message: Message, reply: Message) -> Message:
        asked = header_of(message)
        if node == 1001 and (asked["kind"], asked.get("round")) == (stage, 0):
            said, sent = unpack(reply.content)
            reply.content = pack({**said, **header}, sent if body is None else body)
        return reply

    return tamper


@pytest.mark.parametrize("stage", STAGES)
def test_beyond_the_bound_a_round_fails_with_a_sentence(stage: str, tmp_path: Path) -> None:
    """Two of four sites drop out, and three have to stay."""
    there = secure(tmp_path, grid_of(tmp_path, lost(stage, 1001, 1002)), min_sites=3)
    unmasking = {"secure-confirm": "0 of 3", "secure-unmask": "2 of 3"}
    says = f"{unmasking[stage]} sites that are needed helped" if stage in unmasking else "too few of its 4 sites stayed"
    with pytest.raises(FedquiltError, match=says):
        there.run()
    assert not there.folder.seed(3).records()
    if stage not in ("round", "secure-unmask"):
        return
    # With the sites there again it goes on, and ends as if nothing had been.
    there.roster.grid.tamper = lambda node, message, reply: reply  # type: ignore[attr-defined]
    secure(tmp_path, there.roster.grid, min_sites=3).run()  # type: ignore[arg-type]
    other = secure(tmp_path / "other")
    other.run()
    assert without_seconds(there.folder.seed(3).records()) == without_seconds(other.folder.seed(3).records())
    assert not list(there.folder.path.glob("secure-sum*"))


def test_without_min_sites_a_site_that_sends_no_keys_is_waited_for(tmp_path: Path) -> None:
    missed: list[int] = []

    def once(node: int, message: Message, reply: Message) -> Message | None:
        if not missed and lost("secure-setup", 1001)(node, message, reply) is None:
            missed.append(node)
            return None
        return reply

    there = secure(tmp_path, grid_of(tmp_path, once), tries=2)
    there.run()
    assert [record["participants"] for record in there.folder.seed(3).records()] == ["all"]
    assert [line["what"] for line in there.incidents.all] == ["too few"]


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (bad("secure-setup", keys=["x"]), "keys cannot be read"),
        (bad("secure-setup", keys=["x"] * 4), "has bad keys"),
        (bad("secure-share", b"{}"), "shares for other sites"),
        (bad("round", b"short"), "5 bytes, where a masked upload has"),
    ],
)
def test_a_site_that_does_not_keep_to_the_form_is_left_out(tamper: Any, says: str, tmp_path: Path) -> None:
    there = secure(tmp_path, grid_of(tmp_path, tamper))
    there.run()
    assert [record["participants"] for record in there.folder.seed(3).records()] == [[0, 2, 3]]
    assert any(says in line["reason"] for line in there.incidents.all)


def test_a_masked_upload_that_was_changed_is_noticed(tmp_path: Path) -> None:
    length = 8 * (10 * 8 + 8 + 8 * 8 + 8 + 8 * 3 + 3 + 1 + 1)
    there = secure(tmp_path, grid_of(tmp_path, bad("round", b"\x55" * length)))
    with pytest.raises(FedquiltError, match="secure aggregation hides which"):
        there.run()


@pytest.mark.parametrize("tamper", [bad("secure-unmask", b"{}"), bad("secure-confirm", signature="00")])
def test_shares_and_signatures_of_another_form_are_done_without(tamper: Any, tmp_path: Path) -> None:
    there = secure(tmp_path, grid_of(tmp_path, tamper))
    there.run()
    assert [record["participants"] for record in there.folder.seed(3).records()] == ["all"]


def test_a_site_that_is_asked_in_the_clear_refuses_where_it_demands_masks(tmp_path: Path) -> None:
    """It comes to demand them while a run goes on."""
    paths = write_sites(tmp_path, ragged_clients(SIZES), permits="all")
    grid = MemoryGrid(paths)

    def demand(node: int, message: Message, reply: Message) -> Message:
        if node == 1003 and header_of(message).get("round") == 0:
            edit_site(paths[1], secure_aggregation="required")
        return reply

    grid.tamper = demand
    there = secure(tmp_path, grid, secure_aggregation=False, rounds=2)
    there.run()
    assert [record["participants"] for record in there.folder.seed(3).records()] == ["all", [0, 2, 3]]
    assert any("demands secure aggregation and sends nothing in the clear" in x["reason"] for x in there.incidents.all)


def test_numbers_that_were_cut_are_counted_for_all_sites_together(tmp_path: Path) -> None:
    there = secure(tmp_path, settings={"lr": 2.0}, secure_range=1.0)
    there.run()
    counts = [record["clipped"] for record in there.folder.seed(3).records()]
    assert counts[-1] > 0
    (line, *_) = [line for line in there.incidents.all if line["what"] == "clipped"]
    assert "were cut to 1; a larger secure-range avoids it" in line["reason"]
    assert line["site"] is None


def test_a_budget_that_is_spent_ends_the_run(tmp_path: Path) -> None:
    site = {"dp": {"clip": 1.0, "noise": 30.0, "epsilon": 0.3}}
    there = federation(
        tmp_path, ragged_clients(SIZES[:3]), site=site, method="fedavg", rounds=6, timeout=2.0, secure_aggregation=True
    )
    there.run()
    records = there.folder.seed(3).records()
    assert 0 < len(records) < 6
    assert records[-1]["epsilon"] > 0
    assert there.folder.seed(3).summary["confirmed"] == [f"site-{m}" for m in range(3)]
