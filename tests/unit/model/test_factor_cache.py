"""Factors kept between calls change no answer and stay within their budget."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from gigagp import HGPRegressor, expert
from gigagp.kernels import SquaredExponential
from gigagp.model.factor_cache import FactorCache


@pytest.fixture(scope="module")
def pickled(wave):
    return pickle.dumps(HGPRegressor(SquaredExponential(), leaf_size=100, sharing=2, combine="healed_blend").fit(*wave))


@pytest.fixture
def fitted(pickled, wave):
    """A model of its own for each test."""
    return pickle.loads(pickled), wave[0]


def count_factors(monkeypatch):
    made = []
    original = expert.factor
    monkeypatch.setattr(expert, "factor", lambda *a, **k: made.append(a[5]) or original(*a, **k))
    return made


@pytest.mark.parametrize("asked", [None, 2, 1])
def test_a_second_call_factors_nothing_and_says_the_same(fitted, monkeypatch, asked):
    model, X = fitted
    model.set_params(experts_per_query=asked)
    first = model.predict(X[:50], return_std=True)
    made = count_factors(monkeypatch)
    again = model.predict(X[:50], return_std=True)
    assert made == []
    np.testing.assert_array_equal(first, again)


def test_what_does_not_fit_is_not_kept(fitted, monkeypatch):
    model, X = fitted
    wanted = model.predict(X[:50], return_std=True)
    model.model_ = replace(model.model_, committee=replace(model.model_.committee, cache=FactorCache(budget=10_000)))
    made = count_factors(monkeypatch)
    np.testing.assert_array_equal(model.predict(X[:50], return_std=True), wanted)
    model.predict(X[:50])
    assert len(made) > len(set(made))
    assert len(model.model_.committee.cache) == 0


def test_the_oldest_of_earlier_calls_make_room(fitted):
    model, X = fitted
    committee = model.model_.committee
    model.predict(X)
    factors = [committee.cache.get(leaf) for leaf in range(3)]
    small = FactorCache(budget=2 * factors[0].nbytes)
    for leaf, factor in enumerate(factors[:2]):
        small.put(leaf, factor)
    assert not small.has_room(factors[2].nbytes)
    small.put(2, factors[2])  # the same call needs the first two: they stay
    assert small.get(2) is None
    small.begin()
    assert small.get(0) is factors[0]  # now leaf 1 is the one used longest ago
    assert small.has_room(factors[2].nbytes)
    small.put(2, factors[2])
    assert small.get(1) is None
    assert small.get(0) is factors[0]
    assert small.get(2) is factors[2]


def test_as_many_as_fit_are_kept(fitted, monkeypatch):
    model, X = fitted
    wanted = model.predict(X, return_std=True)
    size = max(model.model_.committee.cache.get(leaf).nbytes for leaf in range(model.n_leaves_))
    model.model_ = replace(model.model_, committee=replace(model.model_.committee, cache=FactorCache(budget=3 * size)))
    np.testing.assert_array_equal(model.predict(X, return_std=True), wanted)
    assert 2 <= len(model.model_.committee.cache) <= 4
    made = count_factors(monkeypatch)
    np.testing.assert_array_equal(model.predict(X, return_std=True), wanted)
    assert len(made) == model.n_leaves_ - len(model.model_.committee.cache)


def test_a_new_fit_and_a_pickle_begin_empty(fitted, wave):
    model, X = fitted
    model.predict(X)
    assert len(model.model_.committee.cache) > 0
    assert len(pickle.loads(pickle.dumps(model)).model_.committee.cache) == 0
    before = model.predict(X[:5])
    model.fit(X, 5.0 - wave[1])
    assert not np.allclose(model.predict(X[:5]), before)
