"""Ray: join or start a cluster, and what it offers to each worker. Importing this module needs pip install 'fedquilt[ray]'."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from fedquilt.devices.threads import asked_threads
from fedquilt.errors import FedquiltError

# Ray reports lost workers on stdout, where results go; fedquilt reports them on stderr. Ray reads this when it is imported.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^")
try:
    import ray
    from ray import exceptions as ray_errors
except ImportError:
    raise FedquiltError("Workers need the package ray; install it with: pip install 'fedquilt[ray]'.") from None

__all__ = ["cluster", "cores_each", "gpu_each", "ray", "ray_errors", "threads_each"]

STORE_BYTES = 2**30  # shared memory for messages of a Ray that is started here; the rest goes to disk


@contextmanager
def cluster() -> Iterator[None]:
    """Connect to Ray for a `with` block, and leave it as it was.

    It is the first of: the cluster that this process has joined, the one at RAY_ADDRESS, the one that `ray start`
    started on this machine, a small one that is started here and shut down after the block.
    """
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS", "")
    _check_reachable(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        try:
            try:
                ray.init(object_store_memory=STORE_BYTES, **quiet)
            except ValueError:  # a cluster that is joined has its own memory limit
                ray.init(**quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            why = str(error).strip().split("\n")[0].rstrip(".")
            raise FedquiltError(
                f"Ray cannot be joined or started ({why}); set RAY_ADDRESS to a cluster's host:port, "
                "or to 'local' to start one here."
            ) from error
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise where nothing listens at a host:port; Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address or not port.isdigit():
        return  # "", "local", "auto" and other kinds of address are left to Ray
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError:
        raise FedquiltError(
            f"No Ray cluster answers at {address}; start one with 'ray start --head', or correct RAY_ADDRESS."
        ) from None


def cores_each(cores: Sequence[int], workers: int) -> int:
    """The most cores that every worker can have on machines with so many; 1 where there are more workers than cores."""
    return next((k for k in range(max(cores), 0, -1) if sum(c // k for c in cores) >= workers), 1)


def threads_each(workers: int) -> int:
    """The number of threads of a worker: OMP_NUM_THREADS, else its share of the cores."""
    cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    return asked_threads() or cores_each(cores, workers)


def gpu_each(workers: int, device: torch.device) -> bool:
    """Whether each worker gets a GPU of its own: where the run is on a GPU and Ray has some."""
    gpus = int(ray.cluster_resources().get("GPU", 0)) if device.type == "cuda" else 0
    if 0 < gpus < workers:
        raise FedquiltError(
            f"Each of {workers} workers needs a GPU and Ray has {gpus}; use --workers {gpus} or --device cpu."
        )
    return gpus > 0
