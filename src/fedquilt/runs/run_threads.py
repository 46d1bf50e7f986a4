"""How many CPU threads a run trains with: as asked, else by its work and by the CPUs of the process.

Threads share out each operation of a training step. Where steps are small, waking the threads takes as long as they save: on
two idle cores, Local on Cora with five clients trains in 1.0 s with one thread, in 1.4 with two. On sixteen idle cores a step
of its size takes 15 ms with one thread and 19 with sixteen; one of 20,000 nodes 164 ms with one, 85 with four and 110 with
sixteen; one of 170,000 nodes 2,654 with one, 866 with four and 822 with eight. So `PRODUCTS` products of a step are one thread.
"""

from __future__ import annotations

import math

import numpy as np

from fedquilt.devices.threads import asked_threads, available_cpus
from fedquilt.runs.resolve import ResolvedRun

PRODUCTS = 1e8
_HIDDEN = 128  # the width of a method that does not say


def run_threads(resolved: ResolvedRun) -> int | None:
    """The threads of a run's training; None leaves the number as it is: the environment says it, or an accelerator computes."""
    if resolved.config.threads is not None:
        return resolved.config.threads
    if asked_threads() is not None or resolved.device.type != "cpu":
        return None
    return max(1, min(available_cpus(), math.floor(products(resolved) / PRODUCTS)))


def products(resolved: ResolvedRun) -> float:
    """About how many products of numbers a forward pass over all clients takes that are computed at once.

    (non-zero features + edges in both directions + nodes h) h, for hidden width h: two propagations and two weights.
    """
    graph, config = resolved.graph, resolved.config
    hidden = getattr(resolved.settings, "hidden", _HIDDEN)
    filled = graph.x.size if isinstance(graph.x, np.ndarray) else graph.x.nnz
    whole = (filled + 2 * graph.edges.shape[1] + graph.nodes * hidden) * hidden
    at_once = (
        1.0 if resolved.cohort_size is None or not config.clients else min(1.0, resolved.cohort_size / config.clients)
    )
    return float(whole * at_once / (config.workers or 1))
