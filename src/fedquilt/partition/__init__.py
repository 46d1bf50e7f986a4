"""One graph to many clients: cut it, save the cut, describe it."""

from fedquilt.partition import recipes as _recipes  # noqa: F401  (importing it registers the kinds)
from fedquilt.partition.clients import training_nodes_check
from fedquilt.partition.fingerprint import fingerprint
from fedquilt.partition.making import kinds, make_partition
from fedquilt.partition.partition import Partition
from fedquilt.partition.statistics import Statistics, label_distributions, statistics
from fedquilt.partition.storage import check_fits, load, save

__all__ = [
    "Partition",
    "Statistics",
    "check_fits",
    "fingerprint",
    "kinds",
    "label_distributions",
    "load",
    "make_partition",
    "save",
    "statistics",
    "training_nodes_check",
]
