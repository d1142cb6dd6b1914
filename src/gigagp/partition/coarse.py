"""A coarse tree: a few splits of the input space, built from a sample, that sort many rows into buckets.

A row goes left of a split if (its value, its tie-breaker) is less than the split's, compared in that order: where many
rows have the same value, pseudo-random numbers divide them in the right proportion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_keys import RowKeys, key_of
from gigagp.linalg.categories import NO_LIMITS, spreads
from gigagp.linalg.compiled import compiled, compiled_strict, read_only
from gigagp.partition.base import RowSorter

_MOST_ROWS = 1 << 18  # rows per bucket
_FEWEST_ROWS = 4096  # rows per bucket
_TOGETHER = 16  # rows that descend together
_MOST_BYTES = 1 << 25  # bytes per bucket, in double precision


def bucket_rows(columns: int) -> int:
    """How many rows are divided at once. It bounds memory, but must not depend on the machine: it shapes the model."""
    return max(_FEWEST_ROWS, min(_MOST_ROWS, _MOST_BYTES // (8 * (columns + 1))))


@dataclass(frozen=True, eq=False)
class CoarseTree:
    """Splits: column, value, tie-breaker; children are other splits, or ~bucket. Buckets go from left to right."""

    columns: Array
    values: Array
    ties: Array
    children: Array  # (splits, 2)
    leaves: Array  # leaves of each bucket

    def __len__(self) -> int:
        return len(self.leaves)

    @classmethod
    def for_buckets(cls, sorter: RowSorter, points: Array, leaves: int) -> CoarseTree:
        """Buckets of about the sorter's size for so many leaves; `points` are the sample's inputs."""
        most = max(1, sorter.bucket_rows * leaves // sorter.rows)
        return cls.of_sample(points, sorter.sample.keys, leaves, most, sorter.limits)

    @classmethod
    def of_sample(cls, X: Array, keys: Array, n_leaves: int, most: int, limits: Array = NO_LIMITS) -> CoarseTree:
        """Halve `n_leaves` leaves, and the sample with them, until no bucket has more than `most`."""
        ties = _tie_breakers(keys)
        splits: list[tuple[int, float, int]] = []
        children: list[list[int]] = []
        leaves: list[int] = []

        def divide(rows: Array, count: int) -> int:
            if count <= most or len(rows) < 2:
                leaves.append(count)
                return ~(len(leaves) - 1)
            left = count // 2
            column = int(np.argmax(spreads(X[rows], limits)))
            ordered = rows[np.lexsort((ties[rows], X[rows, column]))]
            at = min(max(1, round(len(rows) * left / count)), len(rows) - 1)
            split = len(splits)
            splits.append((column, float(X[ordered[at], column]), int(ties[ordered[at]])))
            children.append([0, 0])
            children[split][0] = divide(ordered[:at], left)
            children[split][1] = divide(ordered[at:], count - left)
            return split

        divide(np.arange(len(X)), n_leaves)
        columns, values, split_ties = zip(*splits, strict=True) if splits else ((), (), ())
        return cls(
            np.array(columns, np.int64), np.array(values, float), np.array(split_ties, np.uint64),
            np.array(children, np.int64).reshape(-1, 2), np.array(leaves, np.int64),
        )  # fmt: skip

    def route(self, X: Array, keys: Array) -> Array:
        """The bucket of each row."""
        if len(self) == 1:
            return np.zeros(len(X), np.int32)
        return np.asarray(_route(X, _tie_breakers(keys), self.columns, self.values, self.ties, self.children))


@dataclass(frozen=True, eq=False)
class Routing:
    """Sorts rows by a coarse tree, in a metric: a value that can be sent to another process."""

    tree: CoarseTree
    metric: Array
    keys: RowKeys

    def __call__(self, first: int, X: Array) -> Array:
        tree, buckets = self.tree, np.zeros(len(X), np.int32)
        if len(tree) > 1:
            number = np.uint64((first + self.keys.seed) % 2**64)
            metric = read_only(self.metric.astype(X.dtype))
            _route_rows(
                read_only(X), metric, number, tree.columns, tree.values, tree.ties, tree.children.ravel(),
                np.zeros(_TOGETHER, np.int64), buckets,
            )  # fmt: skip
        return buckets


def _tie_breakers(keys: Array) -> Array:
    """The rows' keys with reversed bytes: a sample has the smallest keys, so their high bytes are not random in it."""
    return keys.byteswap()


@compiled_strict
def reversed_bytes(key: Any) -> Any:
    """The tie-breaker of one row."""
    result = np.uint64(0)
    for _ in range(8):
        result = (result << np.uint64(8)) | (key & np.uint64(255))
        key = key >> np.uint64(8)
    return result


@compiled
def _route(X: Array, ties: Array, columns: Array, values: Array, split_ties: Array, children: Array) -> Array:
    buckets = np.empty(len(X), np.int32)
    for i in range(len(X)):
        node = 0
        while node >= 0:
            x = np.float64(X[i, columns[node]])
            value = values[node]
            right = x > value or (x == value and ties[i] >= split_ties[node])
            node = children[node, 1 if right else 0]
        buckets[i] = ~node
    return buckets


@compiled_strict
def _route_rows(
    X: Array, metric: Array, number: Any, columns: Array, values: Array, split_ties: Array, children: Array,
    nodes: Array, buckets: Array,
) -> None:  # fmt: skip
    """`_route` of rows in a metric. Some descend together, because each step waits for the memory.

    number : that of the first row plus the seed of its key; keys are computed only where they decide
    children : of node n at 2 n and 2 n + 1
    nodes : scratch, as long as the number of rows that descend together
    """
    for start in range(0, len(X), len(nodes)):
        count = min(len(nodes), len(X) - start)
        for k in range(count):
            nodes[k] = 0
        active = count
        while active > 0:
            active = 0
            for k in range(count):
                node = nodes[k]
                if node < 0:
                    continue
                column, value = columns[node], values[node]
                x = np.float64(X[start + k, column] * metric[column])
                right = int(x > value)
                if x == value:
                    right = int(reversed_bytes(key_of(number + np.uint64(start + k))) >= split_ties[node])
                node = children[2 * node + right]
                nodes[k] = node
                active += int(node >= 0)
        for k in range(count):
            buckets[start + k] = ~nodes[k]
