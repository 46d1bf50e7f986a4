"""What a coordinator may take up of a site: runs, bytes, requests, and the size of a model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from fedquilt.federation.protocol import Request
from fedquilt.federation.site.budget import Budget
from fedquilt.federation.site.config import Quota, SiteConfig
from fedquilt.federation.site.ledger import Ledger, Payment
from fedquilt.federation.site.log import SiteLog
from fedquilt.federation.site.quota import GIGABYTE, QuotaError, QuotaKeeper, usage
from fedquilt.federation.site.request_handler import RequestHandler
from fedquilt.federation.site.state import SiteState, run_folders
from fedquilt.messages.message import TensorSpec
from fedquilt.methods.base import federated_methods
from fedquilt.privacy.dp import DpConfig
from support.federations import make_method, make_task, ragged_clients
from support.flower_doubles import edit_site, write_open_sites

DAY = 86_400.0
SPEC = TensorSpec("w", "Weights.", weights=True)


def keeper(state: Path, **quota: Any) -> QuotaKeeper:
    config = SiteConfig(name="a", graph="g", state=str(state), quota=Quota(**quota))
    return QuotaKeeper(config, SiteLog(state))


def add_run(state: Path, number: int, days_ago: float, finished: bool = True, size: int = 1000) -> Path:
    folder = state / f"{number:08x}"
    Ledger(folder).write(0, {"w": torch.ones(1, 3)}, (SPEC,), Payment(number + 1, 4.0, 1.0))
    SiteState(folder).save(0, {"w": torch.ones(size // 4)}, {})
    SiteState(folder).note(finished=finished, last_seconds=time.time() - days_ago * DAY)
    return folder


def names(state: Path) -> list[int]:
    return [int(folder.name, 16) for folder in run_folders(state)]


def test_the_oldest_finished_run_makes_room_and_its_ledger_stays(tmp_path: Path) -> None:
    for number, days in enumerate((9, 50, 20, 8)):
        add_run(tmp_path, number, days)
    quota, budget = keeper(tmp_path, runs=4), Budget(tmp_path, DpConfig(clip=1.0, noise=4.0))
    before = (budget.uploads, budget.spent())
    quota.admit(f"{9:08x}")
    assert names(tmp_path) == [0, 2, 3, 9]
    assert [line["name"] for line in Ledger.at(tmp_path / "ledgers" / f"{1:08x}.jsonl").lines()] == ["w"]
    assert (budget.uploads, budget.spent()) == before  # it stays spent
    assert "Deleted run 00000001" in (tmp_path / "site.log").read_text()
    quota.admit(f"{9:08x}")  # it is there
    assert names(tmp_path) == [0, 2, 3, 9]


def test_the_ledger_of_a_run_that_comes_back_is_kept_with_the_first(tmp_path: Path) -> None:
    budget = Budget(tmp_path, DpConfig(clip=1.0, noise=4.0))
    for payment in (1, 2):
        folder = tmp_path / "0123abcd"
        Ledger(folder).write(0, {"w": torch.ones(1, 3)}, (SPEC,), Payment(payment, 4.0, 1.0))
        Ledger(folder).archive(tmp_path, folder.name)
        assert not (folder / "ledger.jsonl").exists()
        assert budget.uploads == payment
    assert len(Ledger.at(tmp_path / "ledgers" / "0123abcd.jsonl").lines()) == 2
    Ledger(tmp_path / "ffffffff").archive(tmp_path, "ffffffff")  # there is nothing to keep


def test_runs_that_may_not_be_deleted(tmp_path: Path) -> None:
    """The newest finished one, recent ones, unfinished ones, and one that is being worked on."""
    add_run(tmp_path, 0, 8)
    quota = keeper(tmp_path, runs=1)
    with pytest.raises(
        QuotaError, match=r"has no room for this run: it keeps 1 runs, and no finished run is old enough"
    ):
        quota.admit("f" * 8)
    add_run(tmp_path, 1, 6.9)
    add_run(tmp_path, 2, 29, finished=False)
    assert names(tmp_path) == [0, 1, 2]
    with SiteState(tmp_path / f"{0:08x}").lock(), pytest.raises(QuotaError):
        keeper(tmp_path, runs=3).admit("f" * 8)
    assert names(tmp_path) == [0, 1, 2]
    keeper(tmp_path, runs=3).admit("f" * 8)
    assert names(tmp_path) == [1, 2, 0xFFFFFFFF]
    with pytest.raises(QuotaError):
        keeper(tmp_path, runs=3).admit("e" * 8)
    SiteState(tmp_path / f"{2:08x}").note(last_seconds=time.time() - 31 * DAY)  # nobody comes back to it
    keeper(tmp_path, runs=3).admit("e" * 8)
    assert names(tmp_path) == [1, 0xEEEEEEEE, 0xFFFFFFFF]
    assert not (tmp_path / "incidents.jsonl").exists()


def test_a_coordinator_cannot_make_a_site_forget_its_models(tmp_path: Path) -> None:
    """A hundred runs in a day, all said to be finished: none of those that were there is deleted."""
    mine = add_run(tmp_path, 0, 6)
    quota = keeper(tmp_path, runs=5)
    admitted = 0
    for number in range(1, 100):
        try:
            quota.admit(f"{number:08x}")
        except QuotaError:
            continue
        admitted += 1
        add_run(tmp_path, number, 0)
    assert admitted == 4
    assert mine.is_dir()


def test_bytes_are_limited(tmp_path: Path) -> None:
    for number, days in enumerate((30, 20, 10, 9)):
        add_run(tmp_path, number, days, size=400_000)
    assert usage(tmp_path).runs == 4
    assert 1_600_000 < usage(tmp_path).bytes < 1_700_000
    quota = keeper(tmp_path, gigabytes=900_000 / GIGABYTE)
    quota.admit(f"{3:08x}")  # its own folder stays
    assert names(tmp_path) == [2, 3]
    assert usage(tmp_path).bytes < 900_000
    with pytest.raises(QuotaError, match=r"its runs take up 0.0001 gigabytes"):
        keeper(tmp_path, gigabytes=0.0001).admit(f"{3:08x}")


def test_requests_are_limited_and_the_first_too_many_is_an_incident(tmp_path: Path) -> None:
    quota = keeper(tmp_path, requests=3)
    for _ in range(3):
        quota.count("hello")
    for _ in range(20):
        with pytest.raises(
            QuotaError, match="answers 3 requests of a kind a day, and there were more of 'hello' today"
        ):
            quota.count("hello")
    assert [line["what"] for line in SiteLog(tmp_path).incidents()] == ["quota"]
    quota.count("round")


@pytest.mark.parametrize("name", federated_methods())
def test_a_model_that_is_too_large_is_refused_before_it_is_made(tmp_path: Path, name: str) -> None:
    clients = ragged_clients((9,))
    quota = keeper(tmp_path)
    quota.check_size(make_method(name, clients, make_task(clients, features=10_000)))
    if name == "majority":
        return
    large = make_method(name, clients, make_task(clients, features=100_000), hidden=10_000)
    with pytest.raises(QuotaError, match="larger than site 'a' permits"):
        quota.check_size(large)


def test_the_size_is_at_least_that_of_what_is_held(tmp_path: Path) -> None:
    clients = ragged_clients((9,))
    for name in federated_methods():
        method = make_method(name, clients)
        shapes = method.personal_shapes() or {}
        assert method.size(0) >= sum(torch.Size(shape).numel() for shape in shapes.values())
        server, _ = method.server_start()
        held = sum(w.numel() for n, w in server.items() if n.endswith("weight"))
        assert 3 * method.size(0) >= held  # the optimiser has moments, too
    few, many = (make_method("fedssa", clients, order=order).size(1000) for order in (2, 200))
    assert many - few > 198 * 1000 * clients[0].graph.features


def request_for(run: str, **changes: Any) -> dict[str, Any]:
    clients = ragged_clients((14,))
    context = make_method("fedavg", clients, make_task(clients)).context.to_dict()
    asked = Request("round", run, 0, 0, -1, 0, 5, "fedavg", {"hidden": 8}, context).to_header()
    return {"version": 1, **asked, **changes}


def test_a_coordinator_that_asks_for_more_than_is_its_due_is_refused(tmp_path: Path) -> None:
    """Run folders without end, hidden units without end, requests without end: each is refused, and leaves nothing."""
    (path,) = write_open_sites(tmp_path, ragged_clients((14,)), quota={"runs": 2, "requests": 12})
    state, handler = path.parent / "state", RequestHandler()
    answers = [handler.reply(str(path), request_for(f"{n:08x}"), b"")[0].get("refused", "") for n in range(4)]
    assert answers[:2] == ["", ""]
    assert all("has no room for this run: it keeps 2 runs" in each for each in answers[2:])
    for hidden, says in (
        (10**5, "and a site permits at most 10,000"),
        (10**9, "is not possible: it is over 1,000,000"),
    ):
        asked = request_for(f"{0:08x}", settings={"hidden": hidden})
        said = handler.reply(str(path), asked, b"")[0]["refused"]
        assert f"hidden={hidden}" in said
        assert says in said
    edit_site(path, quota={"runs": 2, "requests": 12, "numbers": 10**6})
    asked = request_for(f"{0:08x}", settings={"hidden": 9000})
    assert "is larger than site 'site-0' permits" in handler.reply(str(path), asked, b"")[0]["refused"]
    for kind in ("evaluate", "finish"):
        replies = [handler.reply(str(path), request_for(f"{0:08x}", kind=kind), b"")[0] for _ in range(14)]
        assert [("answers 12 requests" in each.get("refused", "")) for each in replies] == [False] * 12 + [True] * 2
    hellos = [handler.reply(str(path), {"kind": "hello", "version": 1}, b"")[0] for _ in range(14)]
    assert ["refused" in each for each in hellos] == [False] * 12 + [True] * 2
    assert names(state) == [0, 1]
    kinds = [line["what"] for line in SiteLog(state).incidents()]
    assert kinds.count("quota") == 2 + 1 + 3
    assert all(path.stat().st_mode & 0o077 == 0 for path in state.rglob("*") if not path.name.endswith(".lock"))


def test_a_refused_request_makes_no_folder(tmp_path: Path) -> None:
    (path,) = write_open_sites(tmp_path, ragged_clients((14,)), permits=["train_nodes"])
    for number in range(3):
        assert "does not permit" in RequestHandler().reply(str(path), request_for(f"{number:08x}"), b"")[0]["refused"]
    assert names(path.parent / "state") == []
