"""Flower's ServerApp: runs the coordinator with the configuration of `flwr run --run-config`."""

from __future__ import annotations

import logging

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedquilt.federation.parent_process import exit_with_parent

app = ServerApp()
_log = logging.getLogger("flwr")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run a federation to its end."""
    from fedquilt.common.machine_limits import find_limit
    from fedquilt.errors import FedquiltError
    from fedquilt.federation.coordinator.config import FederationConfig
    from fedquilt.federation.coordinator.coordinator import Coordinator

    exit_with_parent()  # every finished round is on disk
    try:
        config = FederationConfig.read(context.run_config)
        result = Coordinator(config, grid, _say).run()
    except FedquiltError as error:
        _log.error("fedquilt: %s", error)
        raise
    except Exception as error:
        limit = find_limit(error)
        if limit is not None:
            _log.error("fedquilt: %s", limit.sentence("start the same run again"))
        raise
    test = result["test_mean"]
    outcome = "no site reported metrics" if test is None else f"test {test:.2f} at the best validation round"
    _say(f"done: {outcome}; written to {config.out}.")


def _say(text: str) -> None:
    _log.info("fedquilt: %s", text)
