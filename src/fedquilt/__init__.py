"""fedquilt: one personal graph neural network per data owner, trained together, without moving anyone's graph.

    import fedquilt
    run = fedquilt.run("quilt", "cora", clients=10, seeds=[0, 1, 2])
    print(run)

`help(fedquilt.run)` lists the options of a run; `fedquilt docs python` shows the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedquilt.common.version import VERSION
from fedquilt.devices.threads import wait_passively

wait_passively()  # before PyTorch is loaded, which reads the environment then

__version__ = VERSION
__all__ = [
    "Callback",
    "ComparedRuns",
    "FedquiltError",
    "Graph",
    "Run",
    "StopRun",
    "compare",
    "load_graph",
    "load_plugins",
    "load_run",
    "resume",
    "run",
]

if TYPE_CHECKING:
    from fedquilt.api import compare, load_plugins, load_run, resume, run
    from fedquilt.datasets.load import load_graph
    from fedquilt.errors import FedquiltError
    from fedquilt.graphs.graph import Graph
    from fedquilt.reports.compared_runs import ComparedRuns
    from fedquilt.runs.callbacks import Callback
    from fedquilt.runs.finished import Run
    from fedquilt.training.stop import StopRun

# The module of each public name. It is imported on first use: torch takes seconds, and `fedquilt --help` does not need it.
_MODULES = {
    "Callback": "fedquilt.runs.callbacks",
    "ComparedRuns": "fedquilt.reports.compared_runs",
    "FedquiltError": "fedquilt.errors",
    "Graph": "fedquilt.graphs.graph",
    "Run": "fedquilt.runs.finished",
    "StopRun": "fedquilt.training.stop",
    "compare": "fedquilt.api",
    "load_graph": "fedquilt.datasets.load",
    "load_plugins": "fedquilt.api",
    "load_run": "fedquilt.api",
    "resume": "fedquilt.api",
    "run": "fedquilt.api",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fedquilt' has no attribute '{name}'")
    import importlib

    found = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "__doc__", "__name__", "__file__", "__path__", "__spec__", "__all__"])
