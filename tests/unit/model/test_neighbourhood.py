"""A neighbourhood predicts what scikit-learn's exact GP predicts from the same rows, noise and weights."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, RationalQuadratic

from gigagp import HGPRegressor, kernels, load
from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore
from gigagp.engines import SerialEngine, ThreadsEngine
from gigagp.model.boxes import extents
from gigagp.model.neighbourhood import Neighbourhood, predict
from gigagp.model.routing import Router
from gigagp.partition.kdtree import cell_starts, kd_order

VARIANCE = 1.7
LENGTHS = np.array([0.8, 1.5])
NOISE = 0.05
THEIRS = {
    "SquaredExponential": RBF(LENGTHS),
    "Matern12": Matern(LENGTHS, nu=0.5),
    "Matern32": Matern(LENGTHS, nu=1.5),
    "Matern52": Matern(LENGTHS, nu=2.5),
}


def model(kernel="Matern32", rows=200, neighbours=30, kind=np.float64, seed=0, cells=9, copies=1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (rows, 2))
    X[:copies] = X[0]
    y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + np.sqrt(NOISE) * rng.standard_normal(rows)
    starts = cell_starts(rows, cells)
    order = kd_order(X, starts)
    X, y = X[order].astype(kind), y[order].astype(kind)
    if isinstance(kernel, str):
        kernel = getattr(kernels, kernel)(VARIANCE, LENGTHS)
    theta = np.append(kernel.theta, np.log(NOISE))
    metric = kernel.metric(kernel.theta)
    router = Router((X[:cells] * metric).astype(float), metric, tuple(side * metric for side in extents(X, starts)))
    return Neighbourhood(kernel, theta, ExpertStore(X, y), Runs(starts), router, neighbours, exact=True)


def weights(near, z, without=()):
    """Rows around a query and their weights, by all distances."""
    squares = (((near.store.X - z) * near.router.metric) ** 2).sum(axis=1)
    order = np.array([row for row in np.argsort(squares) if row not in without])
    if near.neighbours >= len(order):
        return order, np.ones(len(order))
    order, reach = order[: near.neighbours], squares[order[near.neighbours]]
    return order, np.sqrt(1 - squares[order] / reach)


def reference(near, theirs, z, without=()):
    rows, w = weights(near, z, without)
    gp = GaussianProcessRegressor(ConstantKernel(VARIANCE) * theirs, alpha=NOISE / w, optimizer=None)
    gp.fit(near.store.X[rows], near.store.y[rows])
    mean, std = gp.predict(z[None], return_std=True)
    C = np.linalg.inv(gp.L_ @ gp.L_.T)
    errors = np.abs(C @ near.store.y[rows]) / np.sqrt(np.diag(C))
    return mean[0], std[0] ** 2, (w @ errors) / w.sum() / np.sqrt(2 / np.pi)


@pytest.mark.parametrize("name", list(THEIRS))
@pytest.mark.parametrize("neighbours", [1, 7, 30, 500])
def test_it_is_scikit_learns_gp_on_the_nearest_rows(name, neighbours):
    near = model(name, neighbours=neighbours)
    Z = np.random.default_rng(1).uniform(-3.5, 3.5, (12, 2))
    prediction = predict(near, Z, SerialEngine())
    only_means = predict(near, Z, SerialEngine(), with_variance=False)
    assert only_means.variance is None
    np.testing.assert_allclose(only_means.mean, prediction.mean, rtol=1e-9, atol=1e-9)
    for i, z in enumerate(Z):
        mean, variance, misfit = reference(near, THEIRS[name], z)
        assert prediction.mean[i] == pytest.approx(mean, abs=1e-8)
        assert prediction.variance[i] == pytest.approx(variance, rel=1e-6)
        assert prediction.misfit[i] == pytest.approx(misfit, rel=1e-6)


def test_the_rational_quadratic_and_composed_kernels_predict_too():
    quadratic = kernels.RationalQuadratic(VARIANCE, [0.9, 0.9], 2.0)
    near = model(quadratic, neighbours=25)
    composed = model(kernels.Matern32(0.7, LENGTHS) + kernels.SquaredExponential(1.0, 2 * LENGTHS), neighbours=25)
    Z = np.random.default_rng(1).uniform(-3, 3, (6, 2))
    prediction, both = predict(near, Z, SerialEngine()), predict(composed, Z, SerialEngine())
    sums = ConstantKernel(0.7) * THEIRS["Matern32"] + ConstantKernel(1.0) * RBF(2 * LENGTHS)
    for i, z in enumerate(Z):
        mean, variance, _ = reference(near, RationalQuadratic(0.9, 2.0), z)
        assert prediction.mean[i] == pytest.approx(mean, abs=1e-8)
        assert prediction.variance[i] == pytest.approx(variance, rel=1e-6)
        rows, w = weights(composed, z)
        gp = GaussianProcessRegressor(sums, alpha=NOISE / w, optimizer=None)
        mean, std = gp.fit(composed.store.X[rows], composed.store.y[rows]).predict(z[None], return_std=True)
        assert both.mean[i] == pytest.approx(mean[0], abs=1e-8)
        assert both.variance[i] == pytest.approx(std[0] ** 2, rel=1e-6)
    no_variance = predict(composed, Z, SerialEngine(), with_variance=False)
    np.testing.assert_allclose(no_variance.mean, both.mean, atol=1e-9)


def test_a_held_out_row_is_predicted_as_if_it_were_not_there():
    near = model(neighbours=20)
    rows = np.array([0, 17, 120, 199])
    prediction = predict(near, near.store.X[rows], SerialEngine(), held_out=rows)
    for i, row in enumerate(rows):
        mean, variance, misfit = reference(near, THEIRS["Matern32"], near.store.X[row], without={row})
        assert prediction.mean[i] == pytest.approx(mean, abs=1e-8)
        assert prediction.variance[i] == pytest.approx(variance, rel=1e-6)
        assert prediction.misfit[i] == pytest.approx(misfit, rel=1e-6)


@pytest.mark.parametrize("kernel", ["Matern32", kernels.Matern32(0.7, LENGTHS) + kernels.Matern12(0.5, LENGTHS)])
@pytest.mark.parametrize("held_out", [False, True])
def test_few_and_many_neighbours_together_are_their_mixture_weighted_by_precision(kernel, held_out):
    many = model(kernel, neighbours=40)
    few, both = replace(many, neighbours=10), replace(many, inner=10)
    rows = np.array([3, 50, 111, 180]) if held_out else None
    Z = np.random.default_rng(1).uniform(-3.5, 3.5, (12, 2)) if rows is None else many.store.X[rows]
    a, b, joint = (predict(each, Z, SerialEngine(), held_out=rows) for each in (few, many, both))
    s, t = ((each.variance + NOISE) * each.misfit**2 for each in (a, b))
    w = (1 / s) / (1 / s + 1 / t)
    np.testing.assert_allclose(joint.mean, w * a.mean + (1 - w) * b.mean, atol=1e-3)
    np.testing.assert_allclose(joint.variance, w * a.variance + (1 - w) * b.variance, rtol=1e-3)
    spread = w * (a.mean - joint.mean) ** 2 + (1 - w) * (b.mean - joint.mean) ** 2
    expected = w * s + (1 - w) * t + spread
    np.testing.assert_allclose((joint.variance + NOISE) * joint.misfit**2, expected, rtol=2e-3)
    only_means = predict(both, Z, SerialEngine(), with_variance=False, held_out=rows)
    np.testing.assert_array_equal(only_means.mean, joint.mean)
    assert only_means.variance is None


def test_all_rows_do_not_answer_twice():
    near = model(rows=20, neighbours=40, cells=2)
    Z = np.random.default_rng(1).uniform(-3, 3, (5, 2))
    once, twice = predict(near, Z, SerialEngine()), predict(replace(near, inner=20), Z, SerialEngine())
    np.testing.assert_array_equal(once.mean, twice.mean)
    np.testing.assert_array_equal(once.misfit, twice.misfit)


@pytest.mark.parametrize("kernel", ["Matern32", kernels.Matern32(0.7, LENGTHS) + kernels.Matern12(0.5, LENGTHS)])
def test_all_copies_of_a_query_answer_on_their_own_not_some_of_them(kernel):
    near = model(kernel, neighbours=40, copies=25)  # their targets differ
    places, counts = np.unique(near.store.X, axis=0, return_counts=True)
    Z = places[[counts.argmax()]]
    few, many, joint, more = (
        predict(each, Z, SerialEngine())
        for each in (replace(near, neighbours=25), near, replace(near, inner=10), replace(near, inner=30))
    )
    s, t = ((each.variance + NOISE) * each.misfit**2 for each in (few, many))
    w = (1 / s) / (1 / s + 1 / t)
    np.testing.assert_allclose(joint.mean, w * few.mean + (1 - w) * many.mean, atol=1e-3)
    np.testing.assert_allclose(joint.variance, w * few.variance + (1 - w) * many.variance, rtol=1e-3)
    assert more.mean != joint.mean
    all_copies = predict(replace(near, neighbours=20, inner=10), Z, SerialEngine())
    np.testing.assert_array_equal(all_copies.mean, predict(replace(near, neighbours=20), Z, SerialEngine()).mean)


@pytest.mark.parametrize("name", ["Matern32", "Matern12"])
def test_predictions_near_copies_are_continuous(name):
    near = replace(model(name, neighbours=40, copies=25), inner=10)
    places, counts = np.unique(near.store.X, axis=0, return_counts=True)
    Z = places[counts.argmax()] + np.linspace(0, 1e-5, 3)[:, None]
    prediction = predict(near, Z, SerialEngine())
    np.testing.assert_allclose(prediction.mean, prediction.mean[0], atol=1e-3)
    np.testing.assert_allclose(prediction.misfit, prediction.misfit[0], rtol=1e-2)


@pytest.mark.parametrize("kernel", ["Matern32", kernels.Matern52(1.0, 1.0) * kernels.Matern12(1.0, 3.0)])
@pytest.mark.parametrize("inner", [0, 9])
def test_an_answer_depends_on_no_other_query_nor_on_the_engine(kernel, inner):
    near = replace(model(kernel.bind(2) if not isinstance(kernel, str) else kernel), inner=inner)
    Z = np.random.default_rng(2).uniform(-4, 4, (150, 2))
    whole = predict(near, Z, SerialEngine())
    with ThreadsEngine(2) as threads:
        for other in (
            predict(near, Z, threads),
            predict(near, Z[::-1].copy(), SerialEngine()).at(np.arange(150)[::-1]),
        ):
            for name in ("mean", "variance", "misfit"):
                np.testing.assert_array_equal(getattr(whole, name), getattr(other, name))
    for i in (0, 77, 149):
        one = predict(near, Z[i : i + 1], SerialEngine())
        assert (one.mean[0], one.variance[0], one.misfit[0]) == (
            whole.mean[i], whole.variance[i], whole.misfit[i],
        )  # fmt: skip


@pytest.mark.parametrize("inner", [0, 5])
@pytest.mark.parametrize("name", list(THEIRS))
def test_predictions_are_continuous_where_neighbours_change(name, inner):
    near = replace(model(name, neighbours=12), inner=inner)

    def along(start, end, points):
        steps = np.linspace(start, end, points)
        line = np.array([-2.5, -1.0]) + steps[:, None] * np.array([5.0, 2.2])
        return steps, line, predict(near, line, SerialEngine())

    steps, line, coarse = along(0, 1, 1001)
    rows = {frozenset(weights(near, z)[0]) for z in line[::10]}
    assert len(rows) > 20  # neighbours do change along the line
    for of in ("mean", "variance"):
        jumps = np.abs(np.diff(getattr(coarse, of)))
        largest = int(jumps.argmax())
        _, _, fine = along(steps[largest], steps[largest + 1], 10_001)  # a jump would remain as large as it is
        assert np.abs(np.diff(getattr(fine, of))).max() < 0.1 * jumps[largest]


def test_float32_rows_are_predicted_in_double_precision():
    near = model(kind=np.float32)
    exact = replace(near, store=ExpertStore(near.store.X.astype(float), near.store.y.astype(float)))
    Z = np.random.default_rng(3).uniform(-3, 3, (20, 2)).astype(np.float32)
    prediction, wanted = predict(near, Z, SerialEngine()), predict(exact, Z.astype(float), SerialEngine())
    np.testing.assert_allclose(prediction.mean, wanted.mean, rtol=1e-9)
    np.testing.assert_allclose(prediction.variance, wanted.variance, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_many_copies_without_noise_are_answered():
    X = np.repeat(np.array([[0.0], [1.0], [2.0]]), 40, axis=0)
    y = np.repeat([0.0, 1.0, 4.0], 40)
    fitted = HGPRegressor(kernels.SquaredExponential(), method="neighbourhood", neighbours=30, random_state=0)
    mean, std = fitted.fit(X, y).predict(np.array([[0.0], [1.0], [2.0]]), return_std=True)
    np.testing.assert_allclose(mean, [0, 1, 4], atol=0.2)
    assert np.isfinite(std).all()


def test_no_queries_have_no_answers():
    assert predict(model(), np.empty((0, 2)), SerialEngine()).mean.shape == (0,)


def test_a_saved_model_keeps_the_neighbours_that_answer_on_their_own(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (300, 2))
    y = np.sin(X[:, 0]) + np.cos(X[:, 1]) + 0.1 * rng.standard_normal(300)
    fitted = HGPRegressor(
        kernels.Matern32(), method="neighbourhood", neighbours=32, leaf_size=60, random_state=0, training="full"
    ).fit(X, y)
    alone = fitted.predict(X[:20], return_std=True)
    near = replace(fitted.model_.neighbourhood, inner=8)
    fitted.model_ = replace(fitted.model_, neighbourhood=near)
    together = fitted.predict(X[:20], return_std=True)
    assert not np.array_equal(alone[0], together[0])
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model").predict(X[:20], return_std=True)
    for ours, theirs in zip(loaded, together, strict=True):
        np.testing.assert_array_equal(ours, theirs)
