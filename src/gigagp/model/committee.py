"""A committee: the experts of a trained model, with everything that their predictions need."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gigagp import expert, sparse
from gigagp.arrays import Array
from gigagp.combine import Rule
from gigagp.data.row_lists import RowLists
from gigagp.data.store import ExpertStore
from gigagp.kernels.base import Kernel
from gigagp.linalg.workspace import Workspace
from gigagp.model.factor_cache import FactorCache
from gigagp.model.routing import Router
from gigagp.tree import Tree


@dataclass(frozen=True, eq=False)
class Committee:
    """The experts of a trained model, their common theta, the tree above them and the router."""

    travels_once = True  # to each worker

    kernel: Kernel
    theta: Array
    store: ExpertStore
    experts: RowLists
    tree: Tree
    router: Router
    communication: Array | None = None  # storage rows of the communication expert (GRBCM)
    student: bool = False  # whether each expert has its own scale
    inducing: int | None = None  # inducing points of each expert; None for exact experts
    cache: FactorCache = field(default_factory=FactorCache)

    @property
    def noise(self) -> float:
        return float(np.exp(self.theta[-1]))

    @property
    def prior(self) -> float | None:
        """The variance of f far from all rows; None where the kernel is not stationary."""
        return float(self.kernel.diagonal(self.theta[:-1], self.store.X[:1])[0]) if self.kernel.stationary else None

    @property
    def dof(self) -> float:
        """Degrees of freedom of the scale of one expert; infinite where all experts have the same scale."""
        return expert.STUDENT_DOF if self.student else np.inf

    def factor(self, leaf: int, work: Workspace, rule: Rule, keep: bool) -> expert.Factor:
        """The Cholesky factor of one expert, with the communication expert's rows added where the rule needs them.

        It comes from the cache where it is there; with `keep` a new factor is cached if memory allows.
        """
        if rule.needs_communication and self.communication is not None:
            return self.factor_of(np.union1d(self.experts[leaf], self.communication), work, leaf)
        cached = self.cache.get(leaf)
        if cached is not None:
            return cached
        rows = self.experts.rows(leaf)
        size = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        keep = keep and self.cache.has_room(size * (size + 64) * self.store.X.itemsize)
        factor = self.factor_of(rows, work, leaf, keep)
        if keep:
            self.cache.put(leaf, factor)
        return factor

    def factor_of(
        self, rows: slice | Array, work: Workspace, leaf: int | None = None, keep: bool = False
    ) -> expert.Factor:
        """The Cholesky factor of any rows of the store."""
        X, y = self.store.gather(rows)
        row_noise = self.store.noise_of(rows)
        if self.inducing is not None:
            return sparse.factor(self.kernel, self.theta, X, y, self.inducing, work, leaf, row_noise)
        return expert.factor(self.kernel, self.theta, X, y, work, leaf, keep, row_noise)


def mean_scale(log_scales: Array, closeness: Array) -> Array:
    """The geometric mean of the scales of each query's experts, weighted by closeness."""
    return np.asarray(np.exp((closeness * log_scales).sum(axis=1) / closeness.sum(axis=1)))
