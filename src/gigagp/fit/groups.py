"""Groups of neighbouring rows, from which theta is learnt.

A group consists of the rows nearest to a random row in the metric of the current theta, like the neighbourhood of a
query. The cells of the store are cut once, in the metric of a rough theta, and structure that this metric does not show
remains hidden in them. Groups are formed again whenever theta has changed, so that in the end theta and the groups that
it is learnt from agree.

Where inputs repeat, a group has as many distinct inputs as possible. Rows with equal inputs may have noise in common
(`common_noise`), which looks like structure shorter than the distance to any other row, and theta would follow it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gigagp.arrays import Array
from gigagp.data.directions import Directions
from gigagp.data.row_digests import digests
from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine
from gigagp.fit.committee_assembly import Extents
from gigagp.fit.plan import Log, Plan
from gigagp.fit.training import Objective, summed_evidence
from gigagp.kernels.base import Kernel
from gigagp.linalg.categories import variances
from gigagp.linalg.workspace import Workspace
from gigagp.model.fit_warnings import MissedStructure
from gigagp.model.neighbour_search import NO_ROW
from gigagp.model.neighbourhood import Neighbourhood, predict, search_many
from gigagp.partition.base import StoredPartition
from gigagp.tree import Tree

_EXACT_ROWS = 1 << 24  # rows up to which all may be compared with the centre of a group
_LARGEST_GROUP = 512  # rows
_SEARCHED = 8  # times as many rows as a group has are searched for distinct inputs
_MOST_TIMES = 8  # number of groups that a row may be in, on average
_PARTS = 4  # of a search for many rows, per worker
_PROBES = 32  # queries by which the search through the cells is checked
_PROBE_NEIGHBOURS = 64  # of each such query
_COMPARED_ROWS = 512  # held-out rows that are compared with their nearest row
_MISSED = 1.3  # ratio of errors to differences of nearest rows that indicates missed structure
_NEGLIGIBLE_ERROR = 0.01  # share of the target's mean absolute deviation
_LEAST_RECALL = 0.97  # share of the nearest rows that the limited search must find


@dataclass(frozen=True, eq=False)
class Groups:
    """Forms groups of the rows of a store, in any metric."""

    plan: Plan
    stored: StoredPartition
    engine: Engine
    rng: np.random.Generator
    search_all: bool = False  # whether every search is exact, because cells were cut in a very different metric

    @cached_property
    def extents(self) -> Extents:
        return Extents.of(self.stored.store, self.stored.experts, self.engine)

    def with_plan(self, plan: Plan) -> Groups:
        """The same rows with another plan; their boxes are not computed again."""
        other = replace(self, plan=plan)
        if "extents" in vars(self):
            vars(other)["extents"] = self.extents
        return other

    @property
    def possible(self) -> bool:
        """Whether theta can be learnt from groups: there are several cells, and the kernel has a metric."""
        local = self.plan.partitioner.local and isinstance(self.stored.cells, Runs)
        local = local and self.plan.inducing is None  # sparse leaves are large, and training is to use them
        return local and len(self.stored.cells) > 1 and self.plan.kernel.metric(self.plan.kernel.theta) is not None

    @property
    def size(self) -> int:
        """Rows per group: as many as a leaf has, up to a limit; fewer where there are several latent functions."""
        scale = 1.0 if self.plan.latents is None else self.plan.latents.scale
        return int(np.ceil(scale * min(int(np.ceil(self.stored.cells.sizes.mean())), _LARGEST_GROUP)))

    @property
    def rows(self) -> int:
        return len(self.stored.store.y)

    @property
    def exact(self) -> bool:
        """Whether the search for nearest rows is exact, also where cells were cut in a very different metric."""
        return self.rows <= _EXACT_ROWS

    def model(self, kernel: Kernel, theta: Array, neighbours: int) -> Neighbourhood:
        """The neighbourhood model of a kernel and theta with this number of neighbours."""
        return self._model(kernel, theta, replace(self.plan, kernel=kernel).metric(theta, self.columns), neighbours)

    def around(self, metric: Array, count: int) -> tuple[ExpertStore, Runs]:
        """Groups around random rows, nearest in this metric."""
        store = self.stored.store
        count = min(count, max(1, _MOST_TIMES * self.rows // self.size), self.rows)
        centres = np.sort(self.rng.choice(self.rows, count, replace=False))
        rows = self._around_centres(centres, metric).ravel()
        X, y = store.gather(rows)
        return ExpertStore(X, y, store.noise_of(rows)), Runs(np.arange(len(centres) + 1) * self.size)

    def _around_centres(self, centres: Array, metric: Array) -> Array:
        """The rows of each group, one line per group; with distinct inputs as far as these are found nearby."""

        def nearest(count: int) -> tuple[Array, Array]:
            """Rows, and digests of their inputs."""
            search = replace(self._model(self.plan.kernel, self.plan.start, metric, count), exact=self.exact)
            rows = self._nearest(search, centres, np.full(len(centres), NO_ROW))
            X = np.ascontiguousarray(self.stored.store.gather(rows.ravel())[0])
            return rows, digests(X, np.zeros(len(X)))[0].reshape(rows.shape)

        rows, inputs = nearest(self.size)
        numbers = self.plan.latents is None
        if not numbers or not any(len(np.unique(group)) < len(group) for group in inputs):
            return rows
        rows, inputs = nearest(min(_SEARCHED * self.size, self.rows))
        return np.array([_distinct_first(*group)[: self.size] for group in zip(rows, inputs, strict=True)])

    def evidence(self, kernel: Kernel, theta: Array, count: int, log: Log) -> Objective:
        """The summed evidence of groups that are formed in the metric of theta."""
        store, cells = self.around(replace(self.plan, kernel=kernel).metric(theta, self.columns), count)
        return self.evidence_of(kernel, store, cells, log)

    def evidence_of(self, kernel: Kernel, store: ExpertStore, cells: Runs, log: Log) -> Objective:
        tree = Tree.balanced(len(cells))
        plan = self.plan
        evidence = log.recorded(
            summed_evidence(kernel, store, cells, tree, self.engine, plan.dof, latents=plan.latents)
        )
        return replace(plan, kernel=kernel).with_prior(evidence)

    def well_cut(self, kernel: Kernel, theta: Array) -> bool:
        """Whether the search through the cells finds nearly all of the nearest rows in the metric of theta.

        This is not checked where rows are too many for an exact search.
        """
        limited = self.model(kernel, theta, min(_PROBE_NEIGHBOURS, self.rows))
        exact = replace(limited, exact=self.exact)
        rows = np.random.default_rng(0).integers(self.rows, size=_PROBES)

        nobody = np.full(len(rows), NO_ROW)
        nearest, by_cells = (self._nearest(model, rows, nobody) for model in (exact, limited))
        shares = [np.isin(some, others).mean() for some, others in zip(nearest, by_cells, strict=True)]
        return float(np.mean(shares)) >= _LEAST_RECALL

    def _nearest(self, model: Neighbourhood, rows: Array, held_out: Array) -> Array:
        """The rows nearest to some rows of the store, the nearest first, (rows, m).

        held_out : for each row, one that is ignored
        """
        X, _ = self.stored.store.gather(rows)

        def search(part: slice, work: Workspace) -> Array:
            neighbours = search_many(model, X[part], held_out[part])[1][:, : model.count]
            model.store.touched(len(neighbours) * model.count)
            return neighbours

        step = -(-len(rows) // (_PARTS * self.engine.local.workers))
        step = min(step, model.store.queries_together()) if model.store.mapped else step
        parts = [slice(i, i + step) for i in range(0, len(rows), step)]
        return np.concatenate(list(self.engine.local.map(search, parts)))

    def missed(
        self, kernel: Kernel, theta: Array, common: float = 0.0, directions: Directions | None = None
    ) -> MissedStructure | None:
        """A warning where held-out errors exceed the differences between nearest rows, after allowing for their noise.

        Where the model is right, a row differs from its nearest one by at least the noise of both, so that the
        differences are about sqrt(2) times the model's errors, or more.

        common : share of the noise that rows with equal inputs have in common
        directions : what takes the places of columns in the store
        """
        store = self.stored.store
        rows = np.unique(np.random.default_rng(0).integers(self.rows, size=_COMPARED_ROWS))
        X, y = store.gather(rows)
        deviations = np.sqrt(variances(X, self.plan.categories))
        deviations = deviations if directions is None else directions.lengths(deviations)
        deviations = np.where(deviations > 0, deviations, 1.0)
        single = replace(self._model(kernel, theta, 1 / deviations, 1), exact=self.exact)
        nearest = self._nearest(single, rows, rows)[:, 0]
        differences = np.abs(y.astype(float) - store.gather(nearest)[1])
        model = replace(self.model(kernel, theta, min(_PROBE_NEIGHBOURS, self.rows)), common=common)
        errors = np.abs(y - predict(model, np.ascontiguousarray(X), self.engine, False, held_out=rows).mean)
        ratio = float(errors.mean()) / max(float(differences.mean()) / np.sqrt(2), np.finfo(float).tiny)
        if ratio < _MISSED or errors.mean() < _NEGLIGIBLE_ERROR * np.abs(y - y.mean()).mean():
            return None
        return MissedStructure(ratio)

    @property
    def columns(self) -> int:
        return int(self.stored.store.X.shape[1])

    def _model(self, kernel: Kernel, theta: Array, metric: Array, neighbours: int) -> Neighbourhood:
        assert isinstance(self.stored.cells, Runs)
        router = self.extents.router(metric, True, self.plan.categories)
        return Neighbourhood(
            kernel, theta, self.stored.store, self.stored.cells, router, neighbours,
            self.plan.exact_search or (self.search_all and self.exact),
        )  # fmt: skip


def _distinct_first(rows: Array, inputs: Array) -> Array:
    """The rows, sorted so that those whose inputs have occurred before come last; otherwise in their order."""
    repeats = np.ones(len(rows), bool)
    repeats[np.unique(inputs, return_index=True)[1]] = False
    return rows[np.argsort(repeats, kind="stable")]
