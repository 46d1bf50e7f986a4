"""What a server knows after a training beyond its own state: what it sent last, and what each client would send now."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fedquilt.cohort.cohort import Cohort
from fedquilt.devices.device import Precision, computing_in
from fedquilt.messages.message import Message, declared, dense, moved
from fedquilt.messages.slicing import join_messages
from fedquilt.methods.base import LAST_SENT, STANDING, State
from fedquilt.methods.base_adam import CLOCK
from fedquilt.training.loop import Training


def server_for_newcomers(training: Training, cohorts: Iterable[Cohort], precision: Precision = "float32") -> State:
    """What `Method.newcomer_state` is given: the server's state, with what it sent last and what clients would send now.

    The latter, where the method keeps it, is computed from the clients' states, so that a training that was resumed after its
    last round gives the same. Clients that never took part are left out.

    Args:
        cohorts: all clients of the training, in the order of their numbers.
    """
    method = training.method
    found = dict(training.server)
    for name, value in training.down.items():
        spec = declared(method.downloads, name)
        if spec is not None and spec.shared:
            found[LAST_SENT + name] = dense(value)
    if method.keeps_uploads():
        found |= {
            STANDING + name: dense(value) for name, value in standing_uploads(training, cohorts, precision).items()
        }
    return found


def standing_uploads(training: Training, cohorts: Iterable[Cohort], precision: Precision = "float32") -> Message:
    """What the clients that ever trained would send now: [n, ...]; attackers send what they would."""
    method, state = training.method, training.engine.state()
    hello = moved(method.server_start()[1], training.engine.device)
    messages, first = [], 0
    with torch.no_grad(), computing_in(precision):
        for cohort in cohorts:
            rows = {name: tensor[first : first + cohort.clients] for name, tensor in state.items()}
            messages.append(method.standing(rows, cohort, hello))
            first += cohort.clients
    uploads = join_messages(messages)
    last, everyone = max(training.progress.next_round - 1, 0), torch.arange(method.context.clients)
    down = training.down if training.plan.participation == 1 else {}
    for transform in training.runner.upload_transforms:
        uploads = transform.applied(uploads, method.uploads, last, everyone, down)
    heard = state[CLOCK] > 0 if CLOCK in state else torch.ones(first, dtype=torch.bool)
    chosen = torch.nonzero(heard).ravel()
    return {name: dense(value)[chosen.to(dense(value).device)] for name, value in uploads.items()}
