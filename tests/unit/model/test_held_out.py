"""Rows held out in closed form: what scikit-learn and the committee itself predict when they never saw the row."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from gigagp.combine import RULES
from gigagp.data.row_lists import IndexLists
from gigagp.data.store import ExpertStore
from gigagp.engines import SerialEngine
from gigagp.kernels import Matern32, SquaredExponential
from gigagp.model import committee_prediction
from gigagp.model.committee import Committee
from gigagp.model.factor_cache import FactorCache
from gigagp.model.held_out import Rows, by_committee, by_own_expert
from gigagp.model.routing import Router
from gigagp.tree import Tree

THETA = np.log([1.3, 0.7, 1.1, 0.2])
EXPERTS = [np.arange(20), np.arange(8, 30), np.array([1, 3, 5, 7, 25, 27, 29]), np.arange(10, 16)]


def committee(family=SquaredExponential, student=False, kind=np.float64):
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-2, 2, (30, 2)).astype(kind), rng.standard_normal(30).astype(kind)
    centres = np.array([X[rows].mean(axis=0) for rows in EXPERTS], float)
    return Committee(
        family(1.0, [1.0, 1.0]), THETA, ExpertStore(X, y), IndexLists.of(EXPERTS), Tree.balanced(len(EXPERTS)),
        Router(centres, np.ones(2)), student=student,
    )  # fmt: skip


@pytest.mark.parametrize(("family", "theirs"), [(SquaredExponential, RBF), (Matern32, lambda s: Matern(s, nu=1.5))])
@pytest.mark.parametrize(("kind", "close"), [(np.float64, 1e-9), (np.float32, 1e-3)])
def test_one_expert_predicts_as_without_the_row(family, theirs, kind, close):
    c = committee(family, kind=kind)
    X, y = c.store.X, c.store.y
    kernel = ConstantKernel(1.3) * theirs([0.7, 1.1]) + WhiteKernel(0.2)
    tasks = [Rows(0, np.arange(0, 30, 2)), Rows(1, np.arange(30))]  # rows that it holds, and others
    for each, prediction in zip(tasks, by_own_expert(c, tasks, SerialEngine()), strict=True):
        for i, row in enumerate(each.rows):
            others = EXPERTS[each.leaf][EXPERTS[each.leaf] != row]
            gp = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(X[others], y[others])
            mean, std = gp.predict(X[[row]], return_std=True)
            assert prediction.mean[i] == pytest.approx(mean[0], abs=close)
            assert prediction.variance[i] + 0.2 == pytest.approx(std[0] ** 2, rel=close)


@pytest.mark.parametrize("name", ["blend", "healed", "healed_blend", "gpoe", "poe", "rbcm"])
@pytest.mark.parametrize("student", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_committee_predicts_as_without_the_row(name, student, k):
    c, rule = committee(student=student), RULES[name]()
    rows = np.array([2, 9, 12, 19, 26])
    prediction = by_committee(c, rows, rule, k, SerialEngine())
    for i, row in enumerate(rows):
        others = IndexLists.of([each[each != row] for each in EXPERTS])
        without = replace(c, experts=others, cache=FactorCache())
        wanted = committee_prediction.predict(without, c.store.X[[row]], rule, k, SerialEngine())
        assert prediction.mean[i] == pytest.approx(wanted.mean[0], abs=1e-9)
        assert prediction.variance[i] == pytest.approx(wanted.variance[0], rel=1e-9)
        assert prediction.misfit[i] == pytest.approx(np.sqrt(wanted.scale[0]) if student else 1.0, rel=1e-9)
