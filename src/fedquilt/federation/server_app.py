"""Flower's ServerApp: the coordinator, told by `flwr run --run-config`."""

from __future__ import annotations

import logging

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedquilt.federation.local.processes import end_with_parent

app = ServerApp()
_log = logging.getLogger("flwr")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run a federation to its end."""
    from fedquilt.errors import FedquiltError
    from fedquilt.federation.coordinator.coordinator import Federation, Order

    end_with_parent()  # what is done is on disk after every round
    try:
        order = Order.read(context.run_config)
        result = Federation(order, grid, _say).run()
    except FedquiltError as error:
        _log.error("fedquilt: %s", error)
        raise
    test = result["test_mean"]
    said = "no site said how it stands" if test is None else f"test {test:.2f} at the best validation round"
    _say(f"done: {said}; written to {order.out}.")


def _say(text: str) -> None:
    _log.info("fedquilt: %s", text)
