"""How long cells take, to run the longest first and to say when a study ends.

A cell is expected to take as long as the finished cells of its method, graph and number of clients; or of its method and graph;
or what a formula says, times what the finished cells took of theirs. Where none is finished, a short training says how fast the
machine is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedquilt.runs.config import RunConfig
from fedquilt.runs.execute import execute_run
from fedquilt.studies.cells import Cell
from fedquilt.studies.digests import graph_size
from fedquilt.studies.store import StoredCell

# A round of FedAvg with the defaults on two cores, in milliseconds (fedquilt docs speed): something for a start, for each node,
# each edge, and each weight of the clients' first layers.
_ROUND, _NODE, _EDGE, _WEIGHT = 2.0, 1.2e-3, 5e-5, 3e-6
_HIDDEN = 128
_SETUP = 300.0  # milliseconds before the first round
OVERLAP = 2.5  # how many clients of an overlapping partition hold a node
# A round of a method in rounds of FedAvg, between those on a CPU and on an accelerator, on Cora and Minesweeper; else 2.
_FACTORS = {
    "majority": 0.0, "local": 1, "fedavg": 1, "fedprox": 1, "fedper": 1, "fednova": 1, "mlp": 1, "centralised": 1,
    "fedproto": 1.3, "apfl": 1.8, "ditto": 1.7, "fedgnn": 2, "fedgta": 2.3, "fedpub": 2, "quilt": 2, "fedrep": 4, "feddyn": 3.5,
    "adafgl": 4, "fedhero": 10, "fediih": 15, "fedlit": 5, "fedssa": 6, "fedsheafhn": 5, "fedsageplus": 4,
}  # fmt: skip
Kind = tuple[str, str, str]


@dataclass
class CellTimes:
    """The seconds of finished cells, by method, graph and number of clients.

    Attributes:
        seconds: of each cell, with what the formula says about it (`expected`).
        unit: seconds for a second of the formula where no cell is done; NaN: not known.
    """

    seconds: dict[Kind, list[tuple[float, float]]] = field(default_factory=dict)
    unit: float = math.nan

    @classmethod
    def of_store(cls, stored: Iterable[StoredCell], device: str, datasets: Collection[str]) -> CellTimes:
        """Those of the finished cells that were computed on this device, given by its name, on these graphs."""
        times = cls()
        for one in stored:
            config, seconds = one.facts.get("config", {}), one.facts.get("seconds")
            if isinstance(seconds, float) and one.facts["device"] == device and config.get("dataset") in datasets:
                times._add(config, seconds)
        return times

    def add(self, cell: Cell, seconds: float) -> None:
        """Add a finished cell."""
        self._add(cell.config.model_dump(), seconds)

    def of(self, cell: Cell) -> float:
        """Expected seconds of a cell; NaN before any cell is done and without a `unit`."""
        kind = _kind(cell.config.model_dump())
        same = self.seconds.get(kind) or [one for k, some in self.seconds.items() if k[:2] == kind[:2] for one in some]
        if same:
            return statistics.fmean(seconds for seconds, _ in same)
        return expected(cell.config) * self.speed

    def length(self, cell: Cell) -> float:
        """A number to put cells in order by: expected seconds, here or by the formula."""
        here = self.of(cell)
        return expected(cell.config) if math.isnan(here) else here

    def left(self, cells: Sequence[Cell], jobs: int, later: int = 0) -> float:
        """Expected seconds for these cells and so many later ones, `jobs` at a time; NaN as `of`."""
        return (sum(map(self.of, cells)) + (later * self.mean if later else 0.0)) / jobs

    @property
    def speed(self) -> float:
        """Seconds for a second of the formula."""
        everything = [one for some in self.seconds.values() for one in some]
        said = sum(formula for _, formula in everything)
        return sum(seconds for seconds, _ in everything) / said if said else self.unit

    @property
    def mean(self) -> float:
        """Mean seconds of all finished cells; NaN before any is done."""
        everything = [seconds for some in self.seconds.values() for seconds, _ in some]
        return statistics.fmean(everything) if everything else math.nan

    def _add(self, config: dict[str, Any], seconds: float) -> None:
        self.seconds.setdefault(_kind(config), []).append((seconds, expected_of(config)))


def expected(config: RunConfig) -> float:
    """Seconds of a run on two cores, by a formula of its method and of the sizes of its graph and clients."""
    return expected_of(config.model_dump())


def expected_of(config: dict[str, Any]) -> float:
    """As `expected`, of a configuration as cell.json has it."""
    size = graph_size(str(config.get("dataset")), config.get("data"), config.get("clients_from"))
    if size is None:
        return _SETUP / 1000
    clients, epochs = _whole(config.get("clients"), 10), _whole(config.get("epochs"), 1)
    settings = config.get("settings")
    hidden = _whole(settings.get("hidden") if isinstance(settings, dict) else None, _HIDDEN)
    rows = OVERLAP if config.get("partition") == "overlapping" else 1.0
    weights = clients * size.features * hidden
    round = _ROUND + rows * (_NODE * size.nodes + _EDGE * size.edges) + _WEIGHT * weights
    rounds = _whole(config.get("rounds"), size.rounds) * epochs
    return (_SETUP + _FACTORS.get(str(config.get("method")), 2.0) * rounds * round) / 1000


def measured_unit(device: str) -> float:
    """Seconds for a second of the formula, from a short training on a small graph, in this process."""
    config = RunConfig.build({"method": "fedavg", "dataset": "patchwork", "rounds": 20, "device": device})
    (seed,) = execute_run(config).result["seeds"]
    formula = expected(config) - _SETUP / 1000
    return float(seed["seconds_per_round"]) * 20 / formula


def _whole(value: Any, default: int) -> int:
    """A positive whole number of a configuration; the default where there is none."""
    return value if isinstance(value, int) and 0 < value < 10**9 else default


def _kind(config: dict[str, Any]) -> Kind:
    return str(config.get("method")), str(config.get("dataset")), str(config.get("clients"))
