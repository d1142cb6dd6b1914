"""Models of the same rows with different kernels are averaged, for each query by their predicted precision."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gigagp import HGPRegressor, kernels, load
from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore
from gigagp.engines import SerialEngine, ThreadsEngine
from gigagp.errors import InvalidInput
from gigagp.fit.committee_assembly import Extents
from gigagp.model.averages import Part, average
from gigagp.model.latent import LatentPrediction
from gigagp.model.neighbourhood import Neighbourhood, nearest_rows, predict
from gigagp.partition.kdtree import cell_starts, kd_order

NOISES = (0.05, 0.02)


def model(rows=300, neighbours=24, row_noise=None):
    """A Matérn 3/2 and a rougher kernel with other length-scales, on the same rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (rows, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.standard_normal(rows)
    starts = cell_starts(rows, 9)
    order = kd_order(X, starts)
    store, cells = ExpertStore(X[order], y[order], row_noise), Runs(starts)
    first, second = kernels.Matern32(1.7, [0.8, 1.5]), kernels.Matern12(4.0, [3.0, 1.0])
    router = Extents.of(store, cells).router(first.metric(first.theta), True)
    theta, other = (np.append(k.theta, np.log(s)) for k, s in zip((first, second), NOISES, strict=True))
    near = Neighbourhood(first, theta, store, cells, router, neighbours, exact=True)
    rough = replace(near, kernel=second, theta=other, router=router.in_metric(second.metric(second.theta)))
    return replace(near, others=(rough,))


def test_the_average_is_that_of_normal_densities_weighted_by_precision():
    """Of equal priors and misfits of one: the mean of a product of Gaussians, and the variance of their mixture."""
    rng = np.random.default_rng(1)
    means, variances = rng.standard_normal((3, 20)), rng.uniform(0.01, 0.9, (3, 20))
    parts = [Part(LatentPrediction(m, v, np.ones(20)), 0.1, 2.0) for m, v in zip(means, variances, strict=True)]
    whole = average(parts, 0.1, 2.0)
    totals = variances + 0.1
    weights = (1 / totals) / (1 / totals).sum(axis=0)
    np.testing.assert_allclose(whole.mean, np.average(means, axis=0, weights=weights), rtol=1e-10)
    np.testing.assert_allclose(whole.variance, (weights * variances).sum(axis=0), rtol=1e-10)
    of_mixture = (weights * (totals + means**2)).sum(axis=0) - whole.mean**2
    np.testing.assert_allclose((whole.variance + 0.1) * whole.misfit**2, of_mixture, rtol=1e-3)


def test_a_model_that_errs_nearby_counts_less():
    good, bad = (LatentPrediction(np.array([m]), np.array([0.1]), np.array([e])) for m, e in ((1.0, 0.1), (0.0, 3.0)))
    whole = average([Part(good, 0.1, 1.0), Part(bad, 0.1, 1.0)], 0.1, 1.0)
    assert whole.mean[0] > 0.99


@pytest.mark.parametrize("priors", [(1.0, 9.0), (3.0, 0.2)])
def test_far_from_all_rows_the_variance_is_that_of_the_mean_prior(priors):
    parts = [
        Part(LatentPrediction(np.zeros(1), np.array([k]), np.array([e])), 0.1, k)
        for k, e in zip(priors, (0.3, 2.0), strict=True)
    ]
    prior = sum(priors) / 2
    assert average(parts, 0.1, prior).variance[0] == pytest.approx(prior, rel=1e-12)


def test_members_predict_as_they_do_alone():
    near = model()
    Z = np.random.default_rng(2).uniform(-4, 4, (40, 2))
    whole, alone = predict(near, Z, SerialEngine()), [predict(each, Z, SerialEngine()) for each in near.members]
    low, high = (of([each.mean for each in alone], axis=0) for of in (np.min, np.max))
    assert ((whole.mean >= low - 1e-12) & (whole.mean <= high + 1e-12)).all()
    assert (high - low).max() > 0.01
    assert near.noise == pytest.approx(np.mean(NOISES))
    assert near.prior == pytest.approx((1.7 + 4.0) / 2)
    assert near.work == pytest.approx(sum(each.work for each in near.members))


def test_a_router_in_another_metric_finds_the_nearest_rows_in_it():
    _, rough = model().members
    for z in np.random.default_rng(3).uniform(-3, 3, (10, 2)):
        squares = (((rough.store.X - z) * rough.router.metric) ** 2).sum(axis=1)
        np.testing.assert_array_equal(nearest_rows(rough, z), np.argsort(squares)[: rough.neighbours])


def test_an_answer_depends_on_no_other_query_nor_on_the_engine():
    near = model()
    Z = np.random.default_rng(2).uniform(-4, 4, (150, 2))
    whole = predict(near, Z, SerialEngine())
    with ThreadsEngine(2) as threads:
        other = predict(near, Z, threads)
    for name in ("mean", "variance", "misfit"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(other, name))
    for i in (0, 77, 149):
        one = predict(near, Z[i : i + 1], SerialEngine())
        assert (one.mean[0], one.variance[0], one.misfit[0]) == (whole.mean[i], whole.variance[i], whole.misfit[i])
    only_means = predict(near, Z, SerialEngine(), with_variance=False)
    np.testing.assert_array_equal(only_means.mean, whole.mean)
    assert only_means.variance is None
    assert len(predict(near, Z[:0], SerialEngine()).mean) == 0


def test_predictions_are_continuous_where_neighbours_change():
    near = model(neighbours=12)

    def along(start, end, points):
        steps = np.linspace(start, end, points)
        line = np.array([-2.5, -1.0]) + steps[:, None] * np.array([5.0, 2.2])
        return steps, predict(near, line, SerialEngine())

    steps, coarse = along(0, 1, 1001)
    for of in ("mean", "variance", "misfit"):
        jumps = np.abs(np.diff(getattr(coarse, of)))
        largest = int(jumps.argmax())
        fine = along(steps[largest], steps[largest + 1], 10_001)[1]  # a jump would remain as large as it is
        assert np.abs(np.diff(getattr(fine, of))).max() < 0.1 * jumps[largest]


def test_rows_of_ten_times_the_weight_are_predicted_like_a_tenth_of_the_noise():
    near, Z = model(), np.random.default_rng(4).uniform(-3, 3, (20, 2))
    weighted = model(row_noise=np.tile([0.1, 0.0], (300, 1)))
    quiet = replace(near, theta=near.theta - np.array([0, 0, 0, np.log(10)]))
    quiet = replace(quiet, others=tuple(replace(o, theta=o.theta - [0, 0, 0, np.log(10)]) for o in near.others))
    ours, theirs = predict(weighted, Z, SerialEngine()), predict(quiet, Z, SerialEngine())
    for name in ("mean", "variance", "misfit"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-9, atol=1e-12)


@pytest.fixture(scope="module")
def fitted():
    """A fitted model whose neighbourhood is then averaged with another kernel."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (400, 2))
    y = np.sin(X[:, 0]) + np.cos(X[:, 1]) + 0.1 * rng.standard_normal(400)
    one = HGPRegressor(
        kernels.Matern32(), method="neighbourhood", neighbours=32, leaf_size=60, random_state=0, training="full"
    ).fit(X, y)
    near = one.model_.neighbourhood
    kernel = kernels.Matern12().bind(2)
    other = replace(
        near,
        kernel=kernel,
        theta=np.append(kernel.theta, -3.0),
        router=near.router.in_metric(kernel.metric(kernel.theta)),
    )
    one.model_ = replace(one.model_, neighbourhood=replace(near, others=(other,)))
    return one, X


def test_a_saved_average_predicts_the_same_bits(fitted, tmp_path):
    one, X = fitted
    one.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.model_.neighbourhood.families == ("Matern32", "Matern12")
    for ours, theirs in zip(again.predict(X[:50] + 0.1, True), one.predict(X[:50] + 0.1, True), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("change", [{"theta": [0.0, 0.0]}, {"theta": [1e9, 0.0, 0.0, 0.0]}, {"neighbours": 0}])
def test_a_damaged_average_is_not_loaded(fitted, tmp_path, change):
    one, _ = fitted
    one.save(tmp_path / "model")
    path = tmp_path / "model" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["neighbourhood"]["others"][0] |= change
    path.write_text(json.dumps(manifest))
    with pytest.raises(InvalidInput):
        load(tmp_path / "model")
