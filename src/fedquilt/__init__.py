"""fedquilt: one personal graph neural network per data owner, trained together, without moving anyone's graph.

import fedquilt
run = fedquilt.run("quilt", "cora", clients=10, seeds=[0, 1, 2])
print(run)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedquilt.common.version import VERSION
from fedquilt.devices.threads import wait_passively

wait_passively()  # before PyTorch is loaded, which reads the environment then

__version__ = VERSION
__all__ = ["FedquiltError", "Graph", "Run", "compare", "load_graph", "load_run", "resume", "run"]

if TYPE_CHECKING:
    from fedquilt.api import compare, load_run, resume, run
    from fedquilt.datasets.load import load_graph
    from fedquilt.errors import FedquiltError
    from fedquilt.graphs.graph import Graph
    from fedquilt.runs.finished import Run

# The module of each public name. It is imported on first use: torch takes seconds, and `fedquilt --help` does not need it.
_MODULES = {
    "FedquiltError": "fedquilt.errors",
    "Graph": "fedquilt.graphs.graph",
    "Run": "fedquilt.runs.finished",
    "compare": "fedquilt.api",
    "load_graph": "fedquilt.datasets.load",
    "load_run": "fedquilt.api",
    "resume": "fedquilt.api",
    "run": "fedquilt.api",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fedquilt' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_MODULES[name]), name)
