"""Flower's ClientApp: hands a message to the site, and its answer back. `--node-config 'site="/path/site.yaml"'` says whose."""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedquilt.federation.flower_messages import packed, unpacked
from fedquilt.federation.local.processes import end_with_parent
from fedquilt.federation.site import worker_process

app = ClientApp()


@app.train()
@app.evaluate()
@app.query()
def handle(message: Message, context: Context) -> Message:
    """Answer a request."""
    end_with_parent()
    site = context.node_config.get("site")
    if isinstance(site, str):
        try:
            header, body = worker_process.ask(site, *unpacked(message.content))
        except (ValueError, KeyError, TypeError, RecursionError):
            header, body = {"refused": "The request cannot be read."}, b""
    else:
        header, body = {"refused": "This node was started without --node-config 'site=\"/path/to/site.yaml\"'."}, b""
    return Message(packed(header, body), reply_to=message)
