"""Cut one graph into many clients, save the partition, describe it."""

from fedquilt.partition.fingerprint import fingerprint
from fedquilt.partition.kind import Kind, Option, partition_kinds, register_kind
from fedquilt.partition.make import make_partition
from fedquilt.partition.partition import Partition
from fedquilt.partition.statistics import Statistics, label_distributions, statistics
from fedquilt.partition.storage import check_fits, load, save
from fedquilt.partition.training_nodes import check_training_nodes

__all__ = [
    "Kind",
    "Option",
    "Partition",
    "Statistics",
    "check_fits",
    "check_training_nodes",
    "fingerprint",
    "label_distributions",
    "load",
    "make_partition",
    "partition_kinds",
    "register_kind",
    "save",
    "statistics",
]
