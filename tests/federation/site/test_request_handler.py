"""Requests that are refused, errors that stay at the site, and changes of the site that are seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedquilt.federation.site.request_handler import RequestHandler
from support.federations import ragged_clients
from support.flower_doubles import edit_site, write_open_sites

HELLO = {"kind": "hello", "version": 1}


def test_a_change_of_the_site_is_seen(tmp_path: Path) -> None:
    (path,) = write_open_sites(tmp_path, ragged_clients((12,)))
    handler = RequestHandler()
    assert handler.reply(str(path), HELLO, b"")[0]["permits"] == "all"
    edit_site(path, permits=["train_nodes"])
    assert handler.reply(str(path), HELLO, b"")[0]["permits"] == ["train_nodes"]
    other = write_open_sites(tmp_path / "other", ragged_clients((12,), classes=4))[0]
    (path.parent / "graph.npz").write_bytes((other.parent / "graph.npz").read_bytes())
    assert handler.reply(str(path), HELLO, b"")[0]["classes"] == 4


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ({"kind": "hello"}, "another version"),
        ({"kind": "dance", "version": 1}, "cannot be read"),
        ({"kind": "round", "version": 1, "run": "../../x"}, "cannot be read"),
    ],
)
def test_requests_that_make_no_sense_are_refused(header: dict[str, Any], says: str, tmp_path: Path) -> None:
    (path,) = write_open_sites(tmp_path, ragged_clients((12,)))
    reply, body = RequestHandler().reply(str(path), header, b"")
    assert says in reply["refused"]
    assert body == b""


def test_what_goes_wrong_at_a_site_stays_there(tmp_path: Path) -> None:
    reply, _ = RequestHandler().reply(str(tmp_path / "secret-place/site.yaml"), HELLO, b"")
    assert reply == {"refused": "The site failed; its own log says why."}
