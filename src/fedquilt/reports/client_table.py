"""The table of a run's clients by name: how many nodes each holds and its test metric."""

from __future__ import annotations

import statistics
from typing import Any

from rich.table import Table
from rich.text import Text

from fedquilt.common.printable import printable
from fedquilt.reports.names import metric_name
from fedquilt.reports.read_run import StoredRun, StoredSeed
from fedquilt.runs.result import CLIENT_NAMES

_MOST = 40  # rows; a longer table is for the page


def client_table(run: StoredRun) -> Table | None:
    """A row for each client that has a name, in the order of the clients; None where clients have none.

    A client that was held out in some seeds counts in the others. The test metric is the mean over its seeds, with their
    standard deviation where there are several.
    """
    nodes: dict[str, int] = {}
    tests: dict[str, list[float]] = {}
    for seed in run.evaluated:
        names = (seed.summary or {}).get(CLIENT_NAMES)
        found = (seed.summary or {}).get("clients_test") or []
        if not isinstance(names, list) or len(names) != len(found):
            return None
        sizes = _sizes(seed)
        for number, (name, test) in enumerate(zip(names, found, strict=True)):
            tests.setdefault(str(name), []).extend([] if test is None else [float(test)])
            if sizes is not None and number < len(sizes):
                nodes[str(name)] = int(sizes[number])
    if not tests or run.result is None:
        return None
    table = Table(title="Clients", title_justify="left", title_style="bold")
    table.add_column("Client")
    for heading in ("Nodes", f"Test {metric_name(str(run.result['metric'])).label}"):
        table.add_column(heading, justify="right")
    order = [name for name in _all_names(run) if name in tests] or list(tests)
    for name in order[:_MOST]:
        table.add_row(Text(printable(name)), f"{nodes[name]:,}" if name in nodes else "", _spread(tests[name]))
    if len(order) > _MOST:
        table.add_row(f"and {len(order) - _MOST} more", "", "")
    return table


def _all_names(run: StoredRun) -> list[str]:
    resolved = run.config.get("resolved")
    names = resolved.get(CLIENT_NAMES) if isinstance(resolved, dict) else None
    return [str(name) for name in names] if isinstance(names, list) else []


def _sizes(seed: StoredSeed) -> Any:
    return (seed.folder.load_arrays("split-and-partition") or {}).get("sizes")


def _spread(values: list[float]) -> str:
    if not values:
        return "-"
    deviation = f" ± {statistics.pstdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{deviation}"
