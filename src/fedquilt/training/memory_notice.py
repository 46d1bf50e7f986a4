"""Say how much memory a training will need, before it starts; warn where that is more than is free."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.common.machine_limits import readable
from fedquilt.devices.room import Room, room_of
from fedquilt.errors import FedquiltError, MachineLimitError
from fedquilt.methods.base import Method
from fedquilt.training.engines.registry import EngineOptions
from fedquilt.training.memory_estimate import MemoryEstimate, estimate_memory

_log = logging.getLogger(__name__)
SMALL = 10**9  # bytes; a training that needs certainly less is not estimated
COHORT = 50  # the cohort size to advise


def announce_memory(
    method: Method,
    clients: Sequence[Client],
    options: EngineOptions,
    participation: float = 1.0,
    changes_uploads: bool = False,
    sits_out: bool | None = None,
) -> None:
    """Log what `estimate_memory` finds: as a warning where it is more than is free.

    Raises:
        MachineLimitError: the clients' states alone are more than the device has.
    """
    room = room_of(options.device)
    try:
        if _at_most(method, clients) < min(SMALL, SMALL if room is None else room.free // 2):
            return
        estimate = estimate_memory(method, clients, options, participation, changes_uploads, sits_out)
    except FedquiltError:
        raise  # training would raise it as well
    except Exception as error:  # a method of a user's own may need what a few clients do not have
        _log.info("How much memory the training needs is not known (%s).", type(error).__name__)
        return
    if room is not None and estimate.least > room.most:
        raise MachineLimitError(_too_much(estimate, room, options), lasting=True)
    if room is None or estimate.total <= room.free:
        known = "" if room is None else f"; {readable(room.free)} are free"
        _log.info("Training needs about %s of memory (%s)%s.", readable(estimate.total), _parts(estimate), known)
        return
    _log.warning(
        "Training needs about %s of memory (%s), and %s are free; %s.",
        readable(estimate.total),
        _parts(estimate),
        readable(room.free),
        _advice(estimate, options, len(clients)),
    )


def _at_most(method: Method, clients: Sequence[Client]) -> float:
    """A number of bytes that a training hardly needs, without a trial: from the sizes of one state and of the graphs."""
    first = Cohort(clients[:1])
    state = sum(tensor.numel() * tensor.element_size() for tensor in method.start(first).values())
    features = sum(c.graph.x.data.nbytes if hasattr(c.graph.x, "indptr") else c.graph.x.nbytes for c in clients)
    rows = sum(client.graph.nodes + client.graph.edges.shape[1] for client in clients)
    return 8.0 * len(clients) * state + 25.0 * features + 4000.0 * rows + 400.0 * len(clients) ** 2


def _parts(estimate: MemoryEstimate) -> str:
    named = {"clients": estimate.clients, "training": estimate.working, "server": estimate.server}
    said = [f"{name} {readable(size)}" for name, size in named.items()]
    return ", ".join(said) + (f", and {readable(estimate.offloaded)} on disk" if estimate.offloaded else "")


def _advice(estimate: MemoryEstimate, options: EngineOptions, clients: int) -> str:
    largest = max(estimate.clients, estimate.working, estimate.server)
    if largest == estimate.server:
        return "use fewer clients, a lower --participation or a smaller model"
    smaller = min(COHORT, max(1, estimate.cohort // 2))
    if largest == estimate.working and estimate.cohort > 1:
        return f"use smaller cohorts, such as --cohort-size {smaller}, or a smaller model"
    if options.device.type == "cpu" and estimate.cohort == clients and clients > 1:
        return f"with --cohort-size {smaller} large states are kept on disk; or use fewer clients or a smaller model"
    return "use fewer clients or a smaller model" + ("" if options.device.type == "cpu" else ", or --device cpu")


def _too_much(estimate: MemoryEstimate, room: Room, options: EngineOptions) -> str:
    on = "This machine" if options.device.type == "cpu" else f"The device {options.device}"
    how = (
        f"with --cohort-size {COHORT} they are kept on disk"
        if options.device.type == "cpu"
        else "use --device cpu with --cohort-size"
    )
    return (
        f"The clients' states and models take {readable(estimate.least)}, and {on[0].lower() + on[1:]} has "
        f"{readable(room.most)} of memory; {how}, or use fewer clients or a smaller model."
    )
