"""What a run asks of its method: refused before training where the method lacks it; and what is kept of its server."""

from __future__ import annotations

import math

from fedquilt.errors import FedquiltError
from fedquilt.methods.base import Method, check_classes, refuse_pooling
from fedquilt.methods.settings import check_client_settings
from fedquilt.runs.config import RunConfig
from fedquilt.scenarios.attacks import check_attackable
from fedquilt.scenarios.newcomers import check_admits
from fedquilt.scenarios.robust_aggregation import check_averages
from fedquilt.training.buffered_uploads import check_buffers

LARGEST_SERVER = 256 * 2**20  # bytes of all clients' models that a run keeps for newcomers without being asked to


def check_needs(method: Method, config: RunConfig) -> None:
    """Refuse a method that needs, or is asked for, what the task or scenario of a run does not have."""
    check_classes(method)
    if method.task.splits_edges:
        _check_edge_split(method, config)
    _check_pooled(method, config)
    if config.batch != "full" and (why := method.needs_whole_graphs()):
        raise FedquiltError(
            f"Method '{method.name}' cannot train on parts of a client's graph: {why}; leave out batch, or choose "
            "another method."
        )
    if config.attack is not None:
        check_attackable(method, config.attack)
    if config.hold_out_clients:
        check_admits(type(method))
    if config.aggregation != "mean":
        check_averages(method, config.aggregation)
    if config.upload_delay or config.buffer:
        check_buffers(method)
    for client, given in config.client_settings.items():
        check_client_settings(method, given, f"client {client}")


def _check_edge_split(method: Method, config: RunConfig) -> None:
    """Refuse what makes no sense where each client's edges are split."""
    refuse_pooling(type(method), f"the task {config.task} splits each client's own edges, so choose another method")
    wrong = {
        "edge_noise": (config.edge_noise > 0, "a moved edge could be one that is to be predicted"),
        "min_train": (config.min_train is not None, "all nodes train"),
        "keep_copies": (config.keep_copies not in (None, "never"), "it is edges that are split, not nodes"),
    }
    for option, (given, why) in wrong.items():
        if given:
            raise FedquiltError(f"Leave out {option} for the task {config.task}: {why}.")


def _check_pooled(method: Method, config: RunConfig) -> None:
    """Refuse what makes no sense where everyone's graph is in one place."""
    clients = method.context.clients
    wrong = {
        "workers": config.workers is not None,
        "participation": config.participation < 1,
        "drop_out": config.drop_out > 0,
        "stragglers": config.stragglers > 0,
        "join_late": config.join_late > 0,
        "leave": config.leave > 0,
        "upload_delay": config.upload_delay > 0,
        "buffer": config.buffer is not None,
        "hold_out_clients": config.hold_out_clients > 0,
        "cohort_size": (config.cohort_size or clients) < clients,
        "dp_clip": config.dp_clip is not None,
    }
    for option in (option for option, given in wrong.items() if given):
        why = "nothing is sent that could be protected" if option == "dp_clip" else "all clients train as one"
        refuse_pooling(type(method), f"leave out {option}, since {why}")


def keeps_server(method: Method, config: RunConfig) -> bool:
    """Whether the method admits anyone, and what newcomers need may be kept and is not too much.

    Where averages are made of all clients' models, these are kept, up to `LARGEST_SERVER` bytes unless clients are held out;
    not those of a protected run, whose server never had them without noise.
    """
    if not method.admits or not method.keeps_uploads():
        return method.admits
    entries = sum(math.prod(shape) for shape in (method.personal_shapes() or {}).values())
    fits = 4 * entries * method.context.clients <= LARGEST_SERVER or config.hold_out_clients > 0
    return config.dp_clip is None and fits
