"""Section 3.4: the structure above the leaves changes neither training nor prediction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from committees import NOISE, committee, k, opinions
from hypothesis import given
from hypothesis import strategies as st

from gigagp import HGPRegressor
from gigagp.combine import PoE
from gigagp.engines import SerialEngine, ThreadsEngine
from gigagp.expert import Evidence, evidence
from gigagp.fit.training import summed_evidence
from gigagp.linalg.workspace import Workspace
from gigagp.model.committee_prediction import predict
from gigagp.tree import Tree

TREES = {
    "two levels": Tree.regular(2, 8),
    "three levels": Tree.regular(3, 4),
    "six levels": Tree.regular(6, 2),
    "balanced": Tree.balanced(64),
    "uneven": Tree.nested([20, [[1, [9, [3]]], 7], [[[4]]], 20]),
    "a vine": Tree.nested([1, [1, [1, [61]]]]),
}
COMMITTEE = committee(64, 12, shared=3)
FLAT = Tree.regular(1, 64)


def total(tree: Tree, engine=None) -> Evidence:
    c = COMMITTEE
    return summed_evidence(c.kernel, c.store, c.experts, tree, engine or SerialEngine())(c.theta, None)


def assert_same(one: Evidence, other: Evidence) -> None:
    np.testing.assert_allclose(one.value, other.value, rtol=1e-10)
    np.testing.assert_allclose(one.gradient, other.gradient, rtol=1e-10)
    np.testing.assert_allclose(one.scatter, other.scatter, rtol=1e-10)
    assert (one.points, one.experts, one.jittered) == (other.points, other.experts, other.jittered)


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_evidence_of_any_tree_is_that_of_one_level(tree):
    assert_same(total(tree), total(FLAT))


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_engines_add_in_the_order_of_the_tree(tree):
    np.testing.assert_array_equal(total(tree, ThreadsEngine(3)).sums, total(tree).sums)


def test_evidence_is_the_sum_over_leaves():
    """Eq. 5 and 6, by plain NumPy."""
    c, value = COMMITTEE, 0.0
    for leaf in range(64):
        X, y = c.store.X[c.experts[leaf]], c.store.y[c.experts[leaf]]
        C = k(X, X) + NOISE * np.eye(len(X))
        value -= 0.5 * (y @ np.linalg.solve(C, y) + np.linalg.slogdet(C)[1] + len(X) * np.log(2 * np.pi))
    seen = total(FLAT)
    np.testing.assert_allclose(seen.value, value, rtol=1e-10)
    assert (seen.points, seen.experts) == (64 * 15, 64)


@pytest.fixture(scope="module")
def leaves() -> list[Evidence]:
    c = COMMITTEE
    return [evidence(c.kernel, c.theta, *c.store.read(c.experts, leaf), Workspace()) for leaf in range(64)]


@st.composite
def trees_of_64(draw) -> Tree:
    """Any tree over 64 leaves: each level cut at random into runs of the one below."""
    levels, below = [], 64
    for _ in range(draw(st.integers(0, 5))):
        width = draw(st.integers(1, below))
        cuts = draw(st.lists(st.integers(1, max(1, below - 1)), min_size=width - 1, max_size=width - 1, unique=True))
        levels.insert(0, np.array([0, *sorted(cuts), below]))
        below = width
    return Tree((np.array([0, below]), *levels))


@given(tree=trees_of_64())
def test_any_tree_at_all(tree, leaves):
    assert tree.n_leaves == 64
    assert_same(tree.root.evidence(leaves.__getitem__), FLAT.root.evidence(leaves.__getitem__))


def test_batches_of_leaves_are_summed_alike(leaves):
    c, engine = COMMITTEE, SerialEngine()
    some = np.array([3, 5, 8, 40, 63])
    deep = summed_evidence(c.kernel, c.store, c.experts, TREES["uneven"], engine)
    flat = summed_evidence(c.kernel, c.store, c.experts, FLAT, engine)
    assert_same(deep(c.theta, some), flat(c.theta, some))
    alone = [leaves[leaf] for leaf in some]
    assert_same(deep(c.theta, some), Tree.regular(1, 5).root.evidence(alone.__getitem__))
    assert_same(deep(c.theta, np.arange(64)), deep(c.theta, None))


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
@pytest.mark.parametrize("target", ["f", "y"])
def test_products_of_products_are_products(tree, target):
    """The paper's proof, done: every node makes a Gaussian of its children's, from the leaves to the root."""
    Z = np.random.default_rng(1).uniform(-3, 3, (20, 2))
    means, variances = opinions(COMMITTEE, Z)
    if target == "y":
        variances = variances + NOISE

    def recombine(node):
        if node.is_leaf:
            return means[node.index], variances[node.index]
        children = [recombine(child) for child in node.children]
        variance = 1 / sum(1 / v for _, v in children)
        return variance * sum(m / v for m, v in children), variance

    mean, variance = recombine(tree.root)
    for shape in (tree, FLAT):
        prediction = predict(replace(COMMITTEE, tree=shape), Z, PoE(target=target), None, SerialEngine())
        np.testing.assert_allclose(prediction.mean, mean, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(prediction.variance, variance, rtol=1e-8)


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("partition", ["random", "stratified", "local"])
def test_a_fitted_model_of_many_levels_equals_the_flat_one(partition, levels):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 2))
    y = np.sin(2 * X).sum(axis=1) + 0.2 * rng.standard_normal(600)
    deep = HGPRegressor(partition=partition, levels=levels, branching=4, combine="poe", engine="serial", random_state=0)
    deep.fit(X, y)
    assert deep.tree_.depth == levels
    value, gradient = deep.log_marginal_likelihood(eval_gradient=True)
    mean, std = deep.predict(X[:50], return_std=True)
    deep.model_ = replace(deep.model_, committee=replace(deep.model_.committee, tree=Tree.regular(1, 4**levels)))
    flat_value, flat_gradient = deep.log_marginal_likelihood(eval_gradient=True)
    flat_mean, flat_std = deep.predict(X[:50], return_std=True)
    np.testing.assert_allclose(flat_value, value, rtol=1e-10)
    np.testing.assert_allclose(flat_gradient, gradient, rtol=1e-10, atol=1e-10 * abs(value))
    np.testing.assert_allclose(flat_mean, mean, rtol=1e-10)
    np.testing.assert_allclose(flat_std, std, rtol=1e-10)
