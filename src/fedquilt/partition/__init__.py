"""One graph to many clients: cut it, save the cut, describe it."""

from fedquilt.partition import kinds as _kinds  # noqa: F401  (importing it registers the kinds)
from fedquilt.partition.fingerprint import fingerprint
from fedquilt.partition.make import make_partition, partition_kinds
from fedquilt.partition.partition import Partition
from fedquilt.partition.statistics import Statistics, label_distributions, statistics
from fedquilt.partition.storage import check_fits, load, save
from fedquilt.partition.training_nodes import training_nodes_check

__all__ = [
    "Partition",
    "Statistics",
    "check_fits",
    "fingerprint",
    "label_distributions",
    "load",
    "make_partition",
    "partition_kinds",
    "save",
    "statistics",
    "training_nodes_check",
]
