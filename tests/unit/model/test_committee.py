"""Prediction: who is asked, with what weight, and that nothing else matters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigagp import HGPRegressor
from gigagp.combine import RULES, Blend, GPoE, HealedBlend, Message, PoE, Prediction, Rule
from gigagp.data.row_lists import IndexLists, Runs
from gigagp.data.store import ExpertStore
from gigagp.engines import SerialEngine
from gigagp.kernels import SquaredExponential
from gigagp.linalg import cholesky
from gigagp.model import committee_prediction, joint_prediction
from gigagp.model.committee import Committee
from gigagp.model.committee_prediction import predict
from gigagp.model.routing import Router
from gigagp.tree import Tree

RULES_ = [*(made() for made in RULES.values()), PoE(target="y")]
every_rule = pytest.mark.parametrize("chosen", RULES_, ids=repr)
LEAVES = 10
POINTS = 15


def committee(dtype="float64", noise=0.05, leaves=LEAVES) -> Committee:
    """Experts on neighbouring rows along the first column."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (leaves * POINTS, 2))
    X = X[np.argsort(X[:, 0])].astype(dtype)
    y = np.sin(2 * X).sum(axis=1) + np.sqrt(noise) * rng.standard_normal(len(X))
    kernel, metric = SquaredExponential(1.3, [0.8, 1.1]), 1 / np.array([0.8, 1.1])
    starts = np.arange(leaves + 1) * POINTS
    centres = X.astype(float).reshape(leaves, POINTS, 2).mean(axis=1) * metric
    return Committee(
        kernel=kernel,
        theta=np.append(kernel.theta, np.log(noise)),
        store=ExpertStore.in_memory(X, y.astype(dtype), np.arange(len(X))),
        experts=Runs(starts),
        tree=Tree.balanced(leaves),
        router=Router(centres, metric),
        communication=np.arange(0, len(X), leaves),
    )


def queries(n=60, dtype="float64", seed=1):
    return np.random.default_rng(seed).uniform(-3, 3, (n, 2)).astype(dtype)


def ask(c, Z, chosen, k=None, with_variance=True):
    return predict(c, Z, chosen, k, SerialEngine(), with_variance)


def distances(router, Z):
    """From each query to each centre, in the kernel's metric."""
    return np.linalg.norm(Z[:, None] * router.metric - router.centres, axis=2)


@given(st.integers(2, 60), st.integers(1, 12), st.integers(1, 4), st.integers(0, 99))
def test_routes_go_to_the_nearest(experts, k, columns, seed):
    rng = np.random.default_rng(seed)
    router = Router(rng.standard_normal((experts, columns)), rng.uniform(0.2, 3, columns))
    Z = rng.standard_normal((20, columns))
    route, far = router.nearest(Z, k), distances(router, Z)
    order = np.argsort(far, axis=1)
    if k >= experts:  # all are asked, and no one is at the rim
        assert (np.sort(route.experts, axis=1) == np.arange(experts)).all()
        assert (route.closeness == 1).all()
        return
    np.testing.assert_array_equal(route.experts, order[:, :k])
    sorted_far = np.take_along_axis(far, order, axis=1)
    np.testing.assert_allclose(route.closeness, 1 - (sorted_far[:, :k] / sorted_far[:, k : k + 1]) ** 2, atol=1e-12)


def test_experts_equally_near_have_equal_weights():
    router = Router(np.array([[-1.0], [1.0], [1.0], [-1.0]]), np.ones(1))
    for k in (1, 2, 3):
        closeness = router.nearest(np.zeros((1, 1)), k).closeness
        assert (closeness == 1).all()
    on_the_spot = Router(np.zeros((3, 2)), np.ones(2)).nearest(np.zeros((2, 2)), 2)
    assert (on_the_spot.closeness == 1).all()


def test_a_query_on_a_centre_hears_it_loudest():
    router = Router(np.array([[0.0], [1.0], [2.0], [4.0]]), np.ones(1))
    route = router.nearest(np.array([[1.0]]), 3)
    assert route.experts[0, 0] == 1
    np.testing.assert_allclose(route.closeness[0], [1, 1 - 1 / 9, 1 - 1 / 9])


@pytest.mark.parametrize("k", [1, 2, 4, 9])
@every_rule
def test_asking_the_nearest_is_asking_a_committee_of_them(chosen, k):
    """Query by query, with the others taken away."""
    c, Z = committee(), queries(12)
    prediction = ask(c, Z, chosen, k)
    far = distances(c.router, Z)
    for q in range(len(Z)):
        order = np.argsort(far[q])
        kept = np.sort(order[:k])
        rim = far[q][order[k]]
        few = Committee(
            kernel=c.kernel,
            theta=c.theta,
            store=c.store,
            experts=IndexLists.of([c.experts[leaf] for leaf in kept]),
            tree=Tree.regular(1, k),
            router=Router(c.router.centres[kept], c.router.metric),
            communication=c.communication,
        )
        if isinstance(chosen, Blend | HealedBlend):
            alone = [ask(few_of(few, j), Z[q : q + 1], GPoE()) for j in range(k)]
            weights = np.array([1 - (far[q][leaf] / rim) ** 2 for leaf in kept])
            if isinstance(chosen, HealedBlend):
                weights = weights * [one.variance[0] ** (-chosen.temperature / 2) for one in alone]
            precision = weights / [one.variance[0] for one in alone]
            mean = (precision * [one.mean[0] for one in alone]).sum() / precision.sum()
            variance = weights.sum() / precision.sum()
        else:
            expected = ask(few, Z[q : q + 1], chosen)
            mean, variance = expected.mean[0], expected.variance[0]
        np.testing.assert_allclose(prediction.mean[q], mean, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(prediction.variance[q], variance, rtol=1e-8)


def few_of(c, leaf):
    """The committee of one expert."""
    return Committee(
        kernel=c.kernel,
        theta=c.theta,
        store=c.store,
        experts=IndexLists.of([c.experts[leaf]]),
        tree=Tree.regular(1, 1),
        router=Router(c.router.centres[leaf : leaf + 1], c.router.metric),
    )


@every_rule
def test_asking_more_experts_than_there_are_asks_all(chosen):
    c, Z = committee(), queries()
    all_experts = ask(c, Z, chosen)
    for k in (LEAVES, LEAVES + 1, 1000):
        prediction = ask(c, Z, chosen, k)
        np.testing.assert_array_equal(prediction.mean, all_experts.mean)
        np.testing.assert_array_equal(prediction.variance, all_experts.variance)


@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("at_once", [1, 7, 59, 60])
@every_rule
def test_chunks_of_queries_do_not_matter(chosen, k, at_once, monkeypatch):
    c, Z = committee(), queries()
    whole = ask(c, Z, chosen, k)
    monkeypatch.setattr(committee_prediction, "QUERIES_AT_ONCE", at_once)
    monkeypatch.setattr(joint_prediction, "_ENTRIES_AT_ONCE", at_once * POINTS)
    parts = ask(c, Z, chosen, k)
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(parts.variance, whole.variance, rtol=1e-7)


def test_more_queries_than_an_expert_answers_at_once():
    """Blocks of queries within an expert."""
    c, Z = committee(), queries(1300)
    whole = ask(c, Z, GPoE(), 2)
    for rows in (slice(0, 100), slice(500, 530), slice(1200, 1300)):
        some = ask(c, Z[rows], GPoE(), 2)
        np.testing.assert_allclose(whole.mean[rows], some.mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(whole.variance[rows], some.variance, rtol=1e-9)


@every_rule
@pytest.mark.parametrize("k", [None, 1, 3])
def test_means_alone_are_the_means(chosen, k):
    c, Z = committee(), queries()
    alone = ask(c, Z, chosen, k, with_variance=False)
    assert alone.variance is None
    np.testing.assert_allclose(alone.mean, ask(c, Z, chosen, k).mean, rtol=1e-10, atol=1e-13)


@pytest.fixture
def solves(monkeypatch):
    """How often a variance was worked for."""
    count = []
    real = cholesky.solve_lower

    def counted(*args):
        count.append(1)
        return real(*args)

    monkeypatch.setattr(cholesky, "solve_lower", counted)
    return count


def needs_no_variance_for_one(chosen):
    return "exact_with_one_leaf" in chosen.laws and chosen.name != "npae"


@pytest.mark.parametrize("chosen", [r for r in RULES_ if needs_no_variance_for_one(r)], ids=repr)
def test_the_mean_of_one_expert_needs_no_variance(chosen, solves):
    c, Z = committee(), queries()
    ask(c, Z, chosen, 1, with_variance=False)
    assert not solves
    ask(c, Z, chosen, 1, with_variance=True)
    assert solves


def test_a_mean_that_weighs_nothing_needs_no_variance(solves):
    ask(committee(), queries(), RULES["barycentre"](), None, with_variance=False)
    assert not solves


def test_an_estimator_asked_for_means_works_for_no_variance(solves):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (200, 2))
    model = HGPRegressor(leaf_size=20, experts_per_query=1, engine="serial", random_state=0)
    model.fit(X, np.sin(2 * X).sum(axis=1) + 0.1 * rng.standard_normal(200))
    solves.clear()
    mean = model.predict(X)
    assert not solves
    np.testing.assert_allclose(mean, model.predict(X, return_std=True)[0], rtol=1e-10, atol=1e-12)
    assert solves


FAR = np.array([[0.0, 0.0], [3.0, -3.0], [10.0, 0.0], [-1e3, 1e3], [1e6, 0.0], [1e12, -1e12]])


@every_rule
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("k", [None, 1, 3])
def test_variances_are_positive_and_finite_everywhere(chosen, dtype, k):
    for noise in (0.05, 1e-6):
        c = committee(dtype, noise)
        Z = np.vstack([c.store.X[::3], queries(30, dtype), FAR.astype(dtype)])
        prediction = ask(c, Z, chosen, k)
        assert np.isfinite(prediction.mean).all()
        assert np.isfinite(prediction.variance).all()
        assert (prediction.variance > 0).all()
        prior = 1.3 + (noise if chosen.target == "y" else 0)
        assert (prediction.variance <= prior * 1.001).all()
        np.testing.assert_allclose(prediction.mean[-3:], 0, atol=1e-6)


class Broken(Rule):
    """A rule that loses its variance."""

    name = "broken"
    laws = frozenset()

    def message(self, opinion):
        return Message(np.stack([opinion.mean]))

    def finish(self, total, prior, communication):
        mean = np.zeros(4)
        mean[3] = np.nan
        return Prediction(mean, np.array([-1.0, np.nan, np.inf, 0.5]))


def test_a_variance_that_is_lost_is_the_prior():
    prediction = ask(committee(), queries(4), Broken())
    np.testing.assert_allclose(prediction.variance, 1.3)
    np.testing.assert_array_equal(prediction.mean, 0)


@every_rule
def test_single_precision_is_nearly_as_good(chosen):
    Z = queries()
    for k in (None, 3):
        double, single = ask(committee(), Z, chosen, k), ask(committee("float32"), Z.astype("float32"), chosen, k)
        np.testing.assert_allclose(single.mean, double.mean, atol=2e-3)
        np.testing.assert_allclose(single.variance, double.variance, atol=2e-3)


def test_no_queries_have_no_answers():
    """Scikit-learn refuses them at the border; inside they are an empty answer."""
    prediction = ask(committee(), queries()[:0], GPoE(), 3)
    assert prediction.mean.shape == prediction.variance.shape == (0,)
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (40, 2))
    model = HGPRegressor(random_state=0).fit(X, np.sin(2 * X).sum(axis=1) + 0.1 * rng.standard_normal(40))
    with pytest.raises(ValueError, match="Found array with 0 sample"):
        model.predict(X[:0])


@every_rule
def test_the_order_of_queries_does_not_matter(chosen):
    c, Z = committee(), queries()
    shuffled = np.random.default_rng(0).permutation(len(Z))
    prediction, mixed = ask(c, Z, chosen, 3), ask(c, Z[shuffled], chosen, 3)
    np.testing.assert_allclose(mixed.mean, prediction.mean[shuffled], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(mixed.variance, prediction.variance[shuffled], rtol=1e-7)


@pytest.mark.parametrize("partition", ["random", "stratified", "local"])
def test_noise_is_added_once(partition):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (200, 2))
    y = 5 + 3 * np.sin(2 * X).sum(axis=1) + 0.5 * rng.standard_normal(200)
    model = HGPRegressor(partition=partition, leaf_size=50, experts="gaussian", calibrate=False, random_state=0).fit(
        X, y
    )
    mean, of_y = model.predict(X, return_std=True)
    same, of_f = model.predict(X, return_std=True, latent=True)
    np.testing.assert_array_equal(mean, same)
    np.testing.assert_allclose(of_y**2 - of_f**2, model.noise_variance_, rtol=1e-8)
