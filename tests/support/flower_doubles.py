"""Flower without its processes: a grid that calls the ClientApp, and sites on disk made of clients."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedquilt[flower]'")

from flwr.app import Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedquilt.cohort.client import Client
from fedquilt.federation import client_app
from fedquilt.federation.coordinator.config import FederationConfig
from fedquilt.federation.coordinator.coordinator import Coordinator
from fedquilt.federation.flower_messages import pack, unpack
from fedquilt.federation.site import worker_process
from fedquilt.federation.site.examples import write_sites
from fedquilt.federation.site.request_handler import RequestHandler
from fedquilt.federation.site.site import open_site
from fedquilt.federation.site.worker_process import ENABLED
from fedquilt.methods.base import State
from support.federations import small_settings

Tamper = Callable[[int, Message, Message], Message | Exception | None]


class MemoryGrid(Grid):
    """A grid whose nodes are sites on disk; every message is answered by the ClientApp at once.

    Attributes:
        offline: nodes that cannot be reached.
        tamper: called with a node, what it was sent and its reply; gives the reply that arrives, None: none does. An
            exception is what Flower raises when it unpacks the reply.
    """

    def __init__(self, sites: Sequence[Path]) -> None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
        self.sites = {1000 + n: path for n, path in enumerate(sites)}
        self.offline: set[int] = set()
        self.tamper: Tamper = lambda node, message, reply: reply
        self.replies: dict[str, Message | Exception] = {}
        self.sent: list[tuple[int, Message]] = []

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node) for node in self.get_node_ids()]

    def get_node_ids(self) -> list[int]:
        return [node for node in self.sites if node not in self.offline]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            id_ = message.object_id
            message.metadata.__dict__["_message_id"] = id_
            message.metadata.__dict__["_src_node_id"] = 1
            ids.append(id_)
            node = message.metadata.dst_node_id
            self.sent.append((node, message))
            if node in self.offline:
                continue
            site = {"site": str(self.sites[node])}
            context = Context(run_id=1, node_id=node, node_config=site, state=RecordDict(), run_config={})
            # In this process: there is no worker process, and no parent to end with.
            with patch.dict(os.environ, {ENABLED: "0"}), patch.object(client_app, "exit_with_parent"):
                try:
                    reply = client_app.app(message, context)
                except Exception as error:
                    reply = Message(Error(1, str(error)), reply_to=message)
            arrived = self.tamper(node, message, reply)
            if arrived is not None:
                self.replies[id_] = arrived
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        found = [self.replies.pop(id_) for id_ in list(message_ids) if id_ in self.replies]
        for reply in found:
            if isinstance(reply, Exception):  # Flower cannot unpack it
                raise reply
        return found

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        return self.pull_messages(self.push_messages(messages))


@contextmanager
def loaded_sites() -> Iterator[None]:
    """Sites stay loaded between requests inside the block, as in their worker processes, which is faster."""
    handlers: dict[str, RequestHandler] = {}

    def answer(site: str, header: dict[str, Any], body: bytes) -> Any:
        return handlers.setdefault(site, RequestHandler()).reply(site, header, body)

    with patch.object(worker_process, "_answer_here", answer):
        yield


def write_open_sites(folder: Path, clients: Sequence[Client], **fields: Any) -> list[Path]:
    """Sites that permit everything to leave, unless `fields` say otherwise."""
    return write_sites(folder, clients, **{"permits": "all", **fields})


def federation(
    folder: Path,
    clients: Sequence[Client],
    grid: MemoryGrid | None = None,
    site: dict[str, Any] | None = None,
    **options: Any,
) -> Coordinator:
    """A federation of these clients in memory, as the tests of methods have theirs."""
    if grid is None:
        grid = MemoryGrid(write_open_sites(folder, clients, **(site or {})))
    given = small_settings(options.get("method", FederationConfig.model_fields["method"].default)) | options.pop(
        "settings", {}
    )
    defaults = {"seed": 3, "dataset": "ragged", "partition": "disjoint", "timeout": 5.0, "wait": 5.0, "rounds": 3}
    defaults |= {"prepare": "none"}  # as the clients that they are compared with
    config = FederationConfig(
        **{**defaults, "out": str(folder / "run"), "sites": len(clients), "settings": given, **options}
    )
    return Coordinator(config, grid, lambda text: None)


def site_states(folder: Path) -> list[State]:
    """What each site keeps after the last round."""
    return [next(iter(_states(path))).load()[1] for path in sorted(folder.glob("site-*"))]


def site_models(folder: Path) -> list[tuple[State, dict[str, Any]]]:
    """Each site's model, and the facts about it."""
    return [next(iter(_states(path))).load_model() for path in sorted(folder.glob("site-*"))]


def _states(path: Path) -> list[Any]:
    return [open_site(path / "site.yaml").state(run.name) for run in (path / "state").iterdir() if run.is_dir()]


def edit_site(path: Path, **fields: Any) -> None:
    """Change some fields of a site.yaml."""
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **fields}))


def ask(grid: MemoryGrid, node: int, header: dict[str, Any], body: bytes, kind: str = "train") -> tuple[dict, bytes]:
    """Send a node a request; the header and the blob of its reply."""
    (reply,) = grid.pull_messages(grid.push_messages([Message(pack(header, body), node, kind)]))
    return unpack(reply.content)


def last_request(grid: MemoryGrid, kind: str = "round", node: int | None = None) -> tuple[int, dict[str, Any], bytes]:
    """The node, the header and the blob of the last request of a kind (to a node)."""
    for there, message in reversed(grid.sent):
        header, body = unpack(message.content)
        if header["kind"] == kind and node in (None, there):
            return there, header, body
    raise AssertionError(f"there was no {kind}")
