"""A site's uploads by secure aggregation: when it sends, what its ledger says, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.federation.site.examples import write_sites
from fedquilt.federation.site.request_handler import RequestHandler
from fedquilt.federation.site.secure_uploads import check_sums_enough
from fedquilt.methods.base import federated_methods, find_method
from support.federations import make_method, make_task, ragged_clients
from support.flower_doubles import federation

CLIENTS = ragged_clients((12, 12, 12))
SECURE = {"sum": "0" * 32, "range": 64.0}


def request(**changes: Any) -> dict[str, Any]:
    facts = {"version": 1, "kind": "round", "run": "0123456789abcdef", "coordinator": 0, "round": 0, "best": -1}
    about = {"client": 0, "rounds": 3, "method": "fedavg", "settings": {"hidden": 8}, "evaluate": True}
    return {**facts, **about, "task": make_task(CLIENTS).to_dict(), **changes}


def refusal(path: Path, body: bytes = b"", **changes: Any) -> str:
    reply, sent = RequestHandler().reply(str(path), request(**changes), body)
    assert sent == b""
    return str(reply["refused"])


def test_a_site_that_demands_masks_sends_nothing_in_the_clear(tmp_path: Path) -> None:
    path = write_sites(tmp_path, CLIENTS, permits="all", secure_aggregation="required")[0]
    assert "demands secure aggregation and sends nothing in the clear" in refusal(path)
    assert not list(tmp_path.glob("site-0/state/*/ledger.jsonl"))
    assert not list(tmp_path.glob("site-0/state/*/rounds"))
    # What uploads nothing may run.
    reply, _ = RequestHandler().reply(str(path), request(method="local"), b"")
    assert "refused" not in reply


@pytest.mark.parametrize(
    ("changes", "body", "says"),
    [
        ({"kind": "secure-share"}, b"{", "a table cannot be read"),
        ({"kind": "secure-confirm"}, b"{}", "lists of sites cannot be read"),
        ({"kind": "secure-unmask"}, b"[]", "a table cannot be read"),
        ({"kind": "round"}, b"", "a body is too short"),
        ({"kind": "round"}, bytes(8), "a table cannot be read"),
        ({"kind": "round"}, (2).to_bytes(8, "little") + b"{}", "out of turn"),
        ({"kind": "evaluate"}, b"", "for rounds only"),
        ({"kind": "secure-setup", "method": "fedpub"}, b"", "does not work with fedpub: its server compares"),
        ({"kind": "secure-setup", "method": "local"}, b"", "local uploads nothing"),
    ],
    ids=str,
)
def test_requests_that_make_no_sense_are_refused(
    changes: dict[str, Any], body: bytes, says: str, tmp_path: Path
) -> None:
    path = write_sites(tmp_path, CLIENTS, permits="all")[0]
    assert says in refusal(path, body, secure=SECURE, **changes)


@pytest.mark.parametrize("name", [name for name, kind in federated_methods().items() if kind.single_uploads])
def test_methods_that_need_single_uploads_say_why(name: str) -> None:
    why = find_method(name).single_uploads if find_method(name).uploads else "uploads nothing"
    with pytest.raises(FedquiltError, match=re.escape(why)):
        check_sums_enough(make_method(name, CLIENTS))


def test_the_ledger_says_that_what_left_was_masked(tmp_path: Path) -> None:
    federation(tmp_path, CLIENTS, method="fedavg", rounds=1, secure_aggregation=True).run()
    (ledger,) = tmp_path.glob("site-1/state/*/ledger.jsonl")
    lines = {line["name"]: line for line in map(json.loads, ledger.read_text().splitlines())}
    assert lines["train_nodes"]["reveals"].startswith("Masked; only in a sum over several sites: How many")
    assert lines["model.conv1.weight"]["bytes"] == 8 * 10 * 8
    assert not lines["figures"]["reveals"].startswith("Masked")
