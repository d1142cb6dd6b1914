"""Models that have taken updates as models that can be saved: rows sorted into cells again, theta as it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore
from gigagp.fit.committee_assembly import Extents
from gigagp.linalg.categories import limits_of
from gigagp.model.factor_cache import FactorCache
from gigagp.model.model import Model
from gigagp.model.online import all_rows, following
from gigagp.partition.kdtree import cell_starts, kd_order_of_blocks
from gigagp.tree import Tree


def settled(model: Model, metric: Array | None = None) -> Model:
    """The same predictions from one sorted store, so that all parts of the model describe the same rows.

    metric : in which the rows are sorted; None for that of the model's cells, and then only if rows have arrived
    """
    if model.online is None and metric is None:
        return model
    rows, metric = all_rows(model), model.committee.router.metric if metric is None else metric
    near, mixture = model.neighbourhood, model.mixture
    count = 1 if near is None else max(1, round(len(rows) / float(model.cells.sizes.mean())))
    starts = cell_starts(len(rows), count)
    rows = rows.at(_order(rows.X, starts, metric, model.committee.router.categories))
    store, cells = ExpertStore(rows.X, rows.y, rows.row_noise), Runs(starts)
    router = Extents.of(store, cells).router(metric, model.committee.router.by_cells, model.committee.router.categories)
    committee = replace(
        model.committee, store=store, experts=cells, tree=Tree.balanced(len(cells)), router=router, communication=None,
        cache=FactorCache(model.committee.cache.budget),
    )  # fmt: skip
    if near is not None:
        others = tuple(
            replace(each, store=store, cells=cells, router=router.in_metric(each.router.metric), segments=1)
            for each in near.others
        )
        near = replace(near, store=store, cells=cells, router=router, segments=1, others=others)
    if mixture is not None:
        mixture = replace(mixture, store=store, members=tuple(mixture.members), cache=FactorCache(mixture.cache.budget))
    sizes = (int(cells.sizes.min()), int(cells.sizes.max()))
    report = replace(model.report, rows=len(rows), leaves=len(cells), points_per_leaf=sizes, points_per_expert=sizes)
    return replace(
        model, committee=committee, neighbourhood=near, mixture=mixture, cells=cells, report=report,
        arrivals=rows.arrivals, next_arrival=following(model), online=None,
    )  # fmt: skip


def _order(X: Array, starts: Array, metric: Array, categories: tuple[int, ...]) -> Array:
    if len(starts) == 2:
        return np.arange(len(X))
    return kd_order_of_blocks(X * metric.astype(X.dtype), starts, limits_of(metric, categories))
