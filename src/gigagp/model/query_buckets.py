"""Buckets of queries: consecutive ranges of the model's rows, in one of which the rows nearest to a query lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.model.neighbour_search import nearest_group
from gigagp.model.neighbourhood import Neighbourhood


@dataclass(frozen=True, eq=False)
class QueryBuckets:
    """Bucket b has the queries whose nearest group of boxes begins in the b-th of `count` equal ranges of the rows."""

    model: Neighbourhood
    scaled: Callable[[Array], Array]  # queries in the user's units -> in the model's units
    count: int

    def __call__(self, X: Array) -> Array:
        """The bucket of each query; the first one where values are missing."""
        ids, complete = np.zeros(len(X), np.int64), np.asarray(~np.isnan(X).any(axis=1))
        if complete.any():
            router, tree = self.model.router, self.model.tree
            points = self.scaled(X if complete.all() else X[complete]).astype(float) * router.metric
            groups = nearest_group(tree, router.search_metric, points, router.limits)
            ids[complete] = tree.first_rows(groups) * self.count // len(self.model.store.y)
        return ids
