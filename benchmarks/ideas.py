"""Shared inducing points, conditional evidence, Student-t noise a row: each against its like, on development rows."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, cholesky, lapack, solve_triangular
from sklearn.cluster import MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning

from experiments import QUICK, SETS, SPLIT, rows_of
from gigagp import HGPRegressor, expert, metrics
from gigagp.arrays import Array
from gigagp.data.row_lists import RowLists, Runs
from gigagp.engines.serial import SerialEngine
from gigagp.expert import Evidence
from gigagp.fit.training import Objective, Precision, Trace, maximise, summed_evidence
from gigagp.kernels import Kernel
from gigagp.linalg.workspace import Workspace
from gigagp.model.committee import Committee
from gigagp.model.factor_cache import FactorCache
from gigagp.model.routing import QueriesByExpert
from gigagp.model.sharing import share_nearest
from measure import arguments, save

LEFT_OUT = ("wind_la_haute_borne",)  # of the sets of experiments, for time
ALONE = {"sharing": 1, "experts": "gaussian", "experts_per_query": 1, "combine": "blend", "calibrate": False}
INDUCING = (256, 512)
JITTER = 1e-8  # of the prior variance, at the inducing points
BATCH = 64  # cells whose conditional evidence is maximised
ITERATIONS = 60  # of that maximisation
DOF = 4.0  # degrees of freedom of the Student-t noise
ROUNDS = 6  # of its EM algorithm
NOISE_EXPERTS = 64  # experts whose noise is learnt row by row
MOST_SHARING = 4.0  # of these experts
Rows = tuple[Array, Array, Array, Array]  # X, y of training, X, y of development


@dataclass(frozen=True, eq=False)
class Predictions:
    """Targets, and mean and variance of y."""

    y: Array
    mean: Array
    variance: Array

    @property
    def z(self) -> Array:
        """The errors in predicted deviations."""
        return np.asarray((self.y - self.mean) / np.sqrt(self.variance))

    def at(self, which: Array) -> Predictions:
        return Predictions(self.y[which], self.mean[which], self.variance[which])


def scaled(predictions: Predictions) -> Predictions:
    """Variances times one factor, which either half of the rows learns from the other."""
    even, square = np.arange(len(predictions.y)) % 2 == 0, predictions.z**2
    return replace(
        predictions, variance=predictions.variance * np.where(even, square[~even].mean(), square[even].mean())
    )


def losses(predictions: Predictions) -> Array:
    """Negative log density of each row."""
    return np.asarray(0.5 * (predictions.z**2 + np.log(2 * np.pi * predictions.variance)))


@dataclass(frozen=True, eq=False)
class Table:
    """Results of one data set, printed as they come. The first row of an idea is what its others are compared with.

    fit_seconds: what it takes beyond the model it starts from.
    """

    name: str
    rows: int
    lines: list[dict[str, Any]]
    firsts: dict[str, Predictions] = field(default_factory=dict)

    def add(self, idea: str, variant: str, predictions: Predictions, seconds: float, predict_seconds: float) -> None:
        fit, first = scaled(predictions), self.firsts.setdefault(idea, predictions)
        inside = metrics.coverage(fit.y, fit.mean, np.sqrt(fit.variance))
        better = losses(scaled(first)) - losses(fit)
        gain, error = float(better.mean()), float(better.std() / np.sqrt(len(better)))
        rmse, nlpd, nlpd_scaled = (
            metrics.rmse(predictions.y, predictions.mean),
            losses(predictions).mean(),
            losses(fit).mean(),
        )
        self.lines.append(
            {
                "set": self.name, "rows": self.rows, "asked": len(predictions.y), "idea": idea, "variant": variant,
                "rmse": rmse, "nlpd": float(nlpd), "nlpd_scaled": float(nlpd_scaled), "gain": [gain, error],
                "inside": inside, "fit_seconds": seconds, "predict_seconds": predict_seconds,
            }
        )  # fmt: skip
        print(
            f"  {variant:<58} RMSE {rmse:.4f}  NLPD {nlpd:8.4f}, scaled {nlpd_scaled:8.4f} (gain {gain:+.4f} +- "
            f"{error:.4f})  inside {inside:.3f}  fit {seconds:.1f} s, predict {len(predictions.y):,}: "
            f"{predict_seconds:.1f} s",
            flush=True,
        )


def fitted(X: Array, y: Array, **settings: Any) -> tuple[HGPRegressor, float]:
    """A model, and the seconds it took."""
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = HGPRegressor(random_state=0, n_jobs=1, **settings).fit(X, y)
    return model, time.perf_counter() - begun


def answer(model: HGPRegressor, Z: Array, z: Array, fit_seconds: float = 0.0) -> tuple[Predictions, float, float]:
    """What a model says of the development rows, and the seconds of the fit and of the answer."""
    begun = time.perf_counter()
    mean, deviation = model.predict(Z, return_std=True)
    return Predictions(z, mean, deviation**2), fit_seconds, time.perf_counter() - begun


def sharing_of(model: HGPRegressor) -> float:
    return float(model.model_.committee.experts.sizes.sum() / model.model_.cells.sizes.sum())


def with_sharing(model: HGPRegressor, sharing: float) -> HGPRegressor:
    """The model at the same theta and cells, its experts with so many times the points."""
    c, cells, other = model.model_.committee, model.model_.cells, copy.copy(model)
    assert isinstance(cells, Runs)
    committee = replace(c, experts=share_nearest(c.store, cells, c.router, sharing), cache=FactorCache())
    other.model_ = replace(other.model_, committee=committee)
    return other


def visits(c: Committee, Z: Array) -> Iterator[tuple[int, Array]]:
    """Each query asks the nearest expert: the experts, and who asks them."""
    every = QueriesByExpert.of(c.router.nearest(Z, 1))
    return (every[visit][:2] for visit in range(len(every)))


class InducingPoints:
    """PIC (Snelson & Ghahramani 2007): cells are independent given f at U, which all of them inform.

    With L L^T = k(U, U), V = L^-1 k(U, x) and R = K - V^T V, what is left of the kernel within a cell, L^-1 f(U) has
    the precision A = I + sum V (R + noise I)^-1 V^T and the mean A^-1 b, b = sum V (R + noise I)^-1 y, over cells.
    """

    def __init__(self, c: Committee, cells: RowLists, U: Array) -> None:
        self.c, self.U = c, U
        K = self._k(U, U)
        self.L = cholesky(K + JITTER * K[0, 0] * np.eye(len(U)), lower=True)
        A, b = np.eye(len(U)), np.zeros(len(U))
        for cell in range(len(cells)):
            X, y = c.store.read(cells, cell)
            V = self._whitened(X)
            S = cho_solve(self._left(X, V), np.column_stack([V.T, y]))
            A, b = A + V @ S[:, :-1], b + V @ S[:, -1]
        self.A, self.b = (cholesky(A, lower=True), True), b

    def _k(self, X: Array, Z: Array) -> Array:
        return self.c.kernel.cross(self.c.theta[:-1], X, Z)

    def _whitened(self, X: Array) -> Array:
        return np.asarray(solve_triangular(self.L, self._k(self.U, X), lower=True))

    def _left(self, X: Array, V: Array) -> tuple[Array, bool]:
        """The factor of R + noise I."""
        return cholesky(self._k(X, X) - V.T @ V + self.c.noise * np.eye(len(X)), lower=True), True

    def posterior(self, X: Array, y: Array, Z: Array) -> tuple[Array, Array]:
        """Mean and variance of f at queries of the expert with these points.

        E f = r^T S y + w^T A^-1 b and var f = r_** - r^T S r + w^T A^-1 w, S = (R + noise I)^-1, w = v_* - V S r.
        """
        V, v = self._whitened(X), self._whitened(Z)
        r = self._k(X, Z) - V.T @ v
        Sr = cho_solve(self._left(X, V), r)
        w = v - V @ Sr
        left = self.c.kernel.diagonal(self.c.theta[:-1], Z) - (v**2).sum(axis=0) - (r * Sr).sum(axis=0)
        variance = left + (w * cho_solve(self.A, w)).sum(axis=0)
        return Sr.T @ y + w.T @ cho_solve(self.A, self.b), np.maximum(variance, 0.0)


def inducing_points(c: Committee, count: int) -> Array:
    """Centres of clusters of the training rows, in the kernel's metric."""
    means = MiniBatchKMeans(count, random_state=0, n_init=1, batch_size=4096)
    return np.asarray(means.fit(c.store.X * c.router.metric).cluster_centers_ / c.router.metric)


def try_inducing(table: Table, rows: Rows, sharing: float) -> None:
    """Experts of their cells alone, with inducing points, and with more points instead; theta and cells the same."""
    X, y, Z, z = rows
    model, seconds = fitted(X, y, **ALONE)
    table.add("inducing points", "cells alone, one Gaussian expert", *answer(model, Z, z, seconds))
    more = with_sharing(model, sharing)
    table.add("inducing points", f"sharing {sharing:g}", *answer(more, Z, z))
    Z = model.model_.inputs.apply(Z, np.dtype(float))
    for each, count in ((model, INDUCING[0]), (model, INDUCING[1]), (more, INDUCING[1])):
        c = each.model_.committee
        begun = time.perf_counter()
        pic = InducingPoints(c, model.model_.cells, inducing_points(c, count))
        ready = time.perf_counter()
        mean, variance = np.empty(len(z)), np.empty(len(z))
        for leaf, at in visits(c, Z):
            mean[at], variance[at] = pic.posterior(*c.store.read(c.experts, leaf), Z[at])
        spent = time.perf_counter() - ready
        name = f"PIC, {count} inducing points" + (f", sharing {sharing:g}" if each is more else "")
        table.add("inducing points", name, Predictions(z, mean, variance + c.noise), ready - begun, spent)


def conditional_evidence(c: Committee, cells: RowLists, leaves: Array, dof: float) -> Objective:
    """Sum over cells of ln p(y_cell | y_neighbours), the neighbours being what experts hold besides their cells."""
    rows, work = {leaf: c.experts[leaf] for leaf in leaves.tolist()}, Workspace()

    def one(theta: Array, leaf: int) -> Evidence:
        own = int(cells.sizes[leaf])  # rows of the cell come first
        both = expert.evidence(c.kernel, theta, *c.store.gather(rows[leaf]), work, leaf, dof)
        condition = expert.evidence(c.kernel, theta, *c.store.gather(rows[leaf][own:]), work, leaf, dof)
        return Evidence.of(both.value - condition.value, both.gradient - condition.gradient, own, both.jitter)

    return lambda theta, _: reduce(add, (one(theta, leaf) for leaf in rows))


def fixed(kernel: Kernel) -> Kernel:
    """The kernel, with bounds that leave no parameter free: one pair for all length-scales could not."""
    fixed = copy.copy(kernel)
    bounds = property(lambda self: np.repeat(self.theta[:, None], 2, axis=1))
    fixed.__class__ = type(f"Fixed{type(kernel).__name__}", (type(kernel),), {"bounds": bounds})
    return fixed


def try_conditional(table: Table, rows: Rows, default: HGPRegressor) -> None:
    """Defaults but for theta, which is trained on, from the default's, by the evidence of the same cells, or not."""
    X, y, Z, z = rows
    c, cells, sharing = default.model_.committee, default.model_.cells, sharing_of(default)
    dof = expert.STUDENT_DOF if c.student else np.inf
    leaves = np.sort(np.random.default_rng(0).permutation(len(cells))[:BATCH])
    shared = with_sharing(default, 2.0).model_.committee
    plain, joint = (
        summed_evidence(c.kernel, c.store, lists, c.tree, SerialEngine(), dof) for lists in (cells, shared.experts)
    )
    conditional = conditional_evidence(shared, cells, leaves, dof)
    bounds = np.vstack([default.kernel_.bounds, np.log(default.noise_bounds)])
    noise_kept = np.vstack([bounds[:-1], [default.theta_[-1:].repeat(2)]])
    start = np.repeat(default.theta_[:, None], 2, axis=1)
    for name, evidence, within in (
        ("theta of the defaults", plain, start),
        ("plain evidence, same cells", plain, bounds),
        ("evidence of cells and neighbours", joint, bounds),
        ("conditional evidence", conditional, bounds),
        ("conditional evidence, noise kept", conditional, noise_kept),
    ):
        begun = time.perf_counter()
        theta = maximise(name, evidence, leaves, default.theta_, within, Trace(), Precision(), ITERATIONS).theta
        trained, noise = time.perf_counter() - begun, float(np.exp(theta[-1]))
        kernel = fixed(default.kernel_.with_theta(theta[:-1]))
        model, _ = fitted(X, y, kernel=kernel, noise_bounds=(noise, noise), sharing=sharing)
        variant = f"{name}, noise {noise:.2g}, sharing {sharing:g}"
        table.add("conditional evidence", variant, *answer(model, Z, z, trained))


@dataclass(frozen=True)
class Noise:
    """How an expert learns its noise: by EM, weights of rows for finite dof, the scale where it is learnt."""

    dof: float
    learn_scale: bool
    rounds: int = ROUNDS

    def posterior(self, K: Array, y: Array, k: Array, prior: Array, noise: float) -> tuple[Array, Array]:
        """Mean and variance of y at queries with covariances k to the points.

        w_i = (dof + 1) / (dof + E r_i^2 / s^2); the noise of row i is s^2 / w_i. The expert's own scale is
        that of equal noise unless s is learnt, which was kinder to Student's t than the misfit of weighted rows.
        """
        each, misfit = np.full(len(y), noise), 0.0
        for done in range(self.rounds + 1):
            inverse, _ = lapack.dtrtri(cholesky(K + np.diag(each), lower=True), lower=1)
            alpha = inverse.T @ (inverse @ y)
            misfit = float(y @ alpha) if done == 0 or self.learn_scale else misfit
            if done < self.rounds:
                square = (each * alpha) ** 2 + each - each**2 * (inverse**2).sum(axis=0)
                weight = (1 + 1 / self.dof) / (1 + square / (self.dof * noise))
                noise = float(np.mean(weight * square)) if self.learn_scale else noise
                each = noise / weight
        variance = np.maximum(prior - ((inverse @ k) ** 2).sum(axis=0), 0.0) + noise
        return alpha @ k, variance * expert.own_scale(misfit, len(y))


NOISES = {
    "Gaussian noise": Noise(np.inf, False, 0),
    "Gaussian noise, learnt in each expert": Noise(np.inf, True),
    "Student-t noise": Noise(DOF, False),
    "Student-t noise, scale learnt too": Noise(DOF, True),
}


def try_student(table: Table, rows: Rows, default: HGPRegressor) -> None:
    """One expert of the default model answers, the nearest; its noise is learnt row by row, or not."""
    *_, Z, z = rows
    sharing = min(sharing_of(default), MOST_SHARING)
    c = with_sharing(default, sharing).model_.committee
    Z, k = default.model_.inputs.apply(Z, np.dtype(float)), c.kernel
    few = np.random.default_rng(0).permutation(len(c.experts))[:NOISE_EXPERTS]
    some = [(leaf, at) for leaf, at in visits(c, Z) if leaf in few]
    who = np.sort(np.concatenate([at for _, at in some]))
    for name, noise in NOISES.items():
        mean, variance = np.empty(len(z)), np.empty(len(z))
        begun = time.perf_counter()
        for leaf, at in some:
            X, y = c.store.read(c.experts, leaf)
            K, across = k.cross(c.theta[:-1], X, X), k.cross(c.theta[:-1], X, Z[at])
            mean[at], variance[at] = noise.posterior(K, y, across, k.diagonal(c.theta[:-1], Z[at]), c.noise)
        predictions = Predictions(z, mean, variance).at(who)
        table.add("Student-t noise", f"{name}, sharing {sharing:g}", predictions, 0.0, time.perf_counter() - begun)


def main() -> None:
    options = arguments(__doc__ or "", data=True).parse_args()
    lines: list[dict[str, Any]] = []
    for name, most in SETS.items():
        if name in LEFT_OUT or not (options.full or name in QUICK):
            continue
        rows = rows_of(options.data, name, most)
        if rows is None:
            continue
        print(f"{name}: {len(rows[1]):,} rows, {len(rows[3]):,} to predict", flush=True)
        table = Table(name, len(rows[1]), lines)
        default, seconds = fitted(*rows[:2])
        table.add("", f"defaults, sharing {sharing_of(default):g}", *answer(default, *rows[2:], seconds))
        try_inducing(table, rows, sharing_of(default))
        try_conditional(table, rows, default)
        try_student(table, rows, default)
    save("ideas", {"split": SPLIT, "rows": lines, "bars": []})


if __name__ == "__main__":
    main()
