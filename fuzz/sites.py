"""Small sites: one with a model, and several for a federation in memory."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

from fuzz.processes import forked


def trained_site(folder: Path, **fields: Any) -> Path:
    """The folder of a site that took part in a federation of three, with its state and its model."""

    def train() -> int:
        from fedquilt.federation.site.examples import write_sites
        from support.federations import ragged_clients
        from support.flower_doubles import MemoryGrid, federation

        clients = ragged_clients((14, 9, 18))
        sites = write_sites(folder, clients, **fields)
        federation(folder, clients, MemoryGrid(sites), method="fedavg", rounds=3).run()
        return 0

    folder.mkdir(parents=True)
    ended = forked(train, folder)
    if ended.status:
        raise RuntimeError(f"no site could be trained: {ended.said}")
    return folder / "site-0"


def first_round(run: str) -> dict[str, Any]:
    """The header of a request for the first round of a run of FedAvg among three."""
    return {
        **{"version": 1, "kind": "round", "run": run, "coordinator": 0, "round": 0, "best": -1, "client": 0},
        **{"rounds": 3, "method": "fedavg", "settings": {"hidden": 8}, "evaluate": True},
        "task": {
            **{"dataset": "ragged", "partition": "disjoint", "metric": "accuracy", "task": "node-classification"},
            **{"features": 10, "outputs": 3, "clients": 3, "epochs": 1, "seed": 3},
        },
    }


def ask_first_round(site: Path) -> dict[str, Any] | int:
    """Ask a site with a budget for a round of a new run: the uploads that it has paid for since ever.

    Where it refuses, the sentence of its log is printed, and the result is 2.
    """
    from fedquilt.errors import FedquiltError
    from fedquilt.federation.site.request_handler import RequestHandler
    from fedquilt.federation.site.site import open_site

    log = _LastError()
    logging.getLogger("fedquilt.site").addHandler(log)
    said, body = RequestHandler().reply(str(site), first_round("feedfeedfeed"), b"")
    try:
        budget = open_site(site).budget
        paid = None if budget is None else budget.uploads
    except FedquiltError as error:
        paid, log.text = None, log.text or str(error)
    if "refused" in said:
        print(f"fedquilt: {log.text}", file=sys.stderr)
        return 2
    return {"paid": paid, "sent": bool(body)}


class _LastError(logging.Handler):
    """Keeps what was logged last."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an error's own sentence where it has one."""
        error = record.exc_info[1] if record.exc_info else None
        self.text = record.getMessage() if error is None else f"{type(error).__name__}: {error}"


def export_logits(folder: Path) -> list[float]:
    """The logits of an exported model on a fixed graph."""
    import torch

    from fedquilt.export import load_module
    from fuzz.materials import arrays

    made = arrays(seed=5)
    module = load_module(folder)
    with torch.no_grad():
        logits = module(torch.from_numpy(made["x"]), torch.from_numpy(made["edge_index"]))
    return logits.flatten().tolist()
