"""Flower's ClientApp: passes a request to the site that `--node-config 'site="/path/site.yaml"'` names, and its reply back.

Flower starts a process with this module for every message, so it must not import PyTorch.
"""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedquilt.federation.flower_messages import pack, unpack
from fedquilt.federation.parent_process import exit_with_parent
from fedquilt.federation.site import worker_process

app = ClientApp()


@app.train()
@app.evaluate()
@app.query()
def handle(message: Message, context: Context) -> Message:
    """Answer a request."""
    exit_with_parent()
    site = context.node_config.get("site")
    if isinstance(site, str):
        try:
            header, body = worker_process.ask(site, *unpack(message.content))
        except (ValueError, KeyError, TypeError, RecursionError):
            header, body = {"refused": "The request cannot be read."}, b""
    else:
        header, body = {"refused": "This node was started without --node-config 'site=\"/path/to/site.yaml\"'."}, b""
    return Message(pack(header, body), reply_to=message)
