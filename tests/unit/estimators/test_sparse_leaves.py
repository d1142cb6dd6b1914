"""leaf="sparse": the evidence is the sum of bounds, engines agree, models are saved, bad settings are errors."""

import numpy as np
import pytest

from gigagp import HGPRegressor, sparse
from gigagp.errors import InvalidParameter
from gigagp.kernels import SquaredExponential
from gigagp.linalg.workspace import Workspace
from gigagp.metrics import rmse

SETTINGS = {"leaf": "sparse", "leaf_size": 300, "inducing": 40, "engine": "serial", "random_state": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (1000, 2))
    f = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]
    return X[:900], (f + 0.1 * rng.standard_normal(1000))[:900], X[900:], f[900:]


@pytest.fixture(scope="module", params=["random", "stratified", "local"])
def model(request, data):
    return HGPRegressor(SquaredExponential(), partition=request.param, **SETTINGS).fit(*data[:2])


def test_evidence_is_the_sum_of_the_bounds(model):
    m = model.model_
    parts = [sparse.evidence(m.committee.kernel, m.theta, *m.store.read(m.cells, i), 40, Workspace()) for i in range(3)]
    value, gradient = model.log_marginal_likelihood(eval_gradient=True)
    assert value == pytest.approx(sum(part.value for part in parts), rel=1e-12)
    np.testing.assert_allclose(gradient, sum(part.gradient for part in parts), rtol=1e-9)


def test_predicts_the_function(model, data):
    _, _, Z, f = data
    mean, std = model.predict(Z, return_std=True)
    assert rmse(f, mean) < 0.06
    assert 0.08 < std.mean() < 0.16


def test_engines_batches_and_saved_models_agree(model, data, tmp_path):
    Z = data[2]
    mean, std = model.predict(Z, return_std=True)
    parts = [model.predict(part, return_std=True) for part in np.array_split(Z, 7)]
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), mean)
    np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), std)
    threads = HGPRegressor(**model.get_params() | {"engine": "threads", "n_jobs": 2}).fit(*data[:2])
    np.testing.assert_array_equal(threads.predict(Z), mean)
    model.save(tmp_path / "model")
    loaded = HGPRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(Z, return_std=True)[1], std)
    assert loaded.model_.committee.inducing == 40


def test_bad_settings_are_errors_that_say_what_to_do(data):
    X, y = data[:2]
    for settings, message in (
        ({"leaf": "dense"}, "leaf must be"),
        ({"inducing": 0}, "inducing must be a whole number"),
        ({"method": "neighbourhood"}, 'method="committee"'),
        ({"experts": "student"}, 'experts="gaussian"'),
        ({"combine": "npae"}, "covariances between experts"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            HGPRegressor(**{"leaf": "sparse", **settings}).fit(X, y)
