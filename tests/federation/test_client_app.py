"""Flower's ClientApp: light to import, and it answers whatever it is sent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict

from fedquilt.federation import client_app
from fedquilt.federation.flower_messages import unpack
from support.federations import ragged_clients
from support.flower_doubles import MemoryGrid, write_open_sites


def test_importing_it_does_not_import_pytorch() -> None:
    """Flower starts a process for every message: it must not take seconds."""
    code = "import sys, fedquilt.federation.client_app; print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"


def test_a_message_without_a_header_is_answered(tmp_path: Path) -> None:
    grid = MemoryGrid(write_open_sites(tmp_path, ragged_clients((12,))))
    content = RecordDict({"header": ConfigRecord({"json": "{"})})
    (reply,) = grid.pull_messages(grid.push_messages([Message(content, 1000, "query")]))
    assert unpack(reply.content)[0] == {"refused": "The request cannot be read."}


def test_a_node_without_a_site_says_so(tmp_path: Path, monkeypatch) -> None:
    grid = MemoryGrid([])
    monkeypatch.setattr(client_app, "exit_with_parent", lambda: None)
    message = Message(RecordDict({}), 1000, "query")
    message.metadata.__dict__["_message_id"] = "1"
    message.metadata.__dict__["_src_node_id"] = 1
    context = Context(run_id=1, node_id=1000, node_config={}, state=RecordDict(), run_config={})
    header, _ = unpack(client_app.app(message, context).content)
    assert "started without --node-config" in header["refused"]
    assert grid.sent == []
