"""Ways to divide the rows among experts."""

from gigagp.data.row_lists import IndexLists
from gigagp.errors import choose
from gigagp.partition.base import Partition, Partitioner, Shape
from gigagp.partition.local import LocalPartition
from gigagp.partition.random import RandomPartition
from gigagp.partition.stratified import StratifiedPartition

__all__ = [
    "IndexLists",
    "LocalPartition",
    "Partition",
    "Partitioner",
    "RandomPartition",
    "Shape",
    "StratifiedPartition",
    "partitioner",
]

PARTITIONS = {"random": RandomPartition, "stratified": StratifiedPartition, "local": LocalPartition}


def partitioner(partition: str | Partitioner) -> Partitioner:
    """The partition of that name, or the object itself."""
    if isinstance(partition, Partitioner):
        return partition
    by_name: Partitioner = choose("partition", partition, PARTITIONS)()
    return by_name
