"""Skewed columns of small tables become normal scores where held-out rows are then predicted better."""

import numpy as np
import pytest

from gigagp import HGPRegressor
from gigagp.errors import InvalidParameter
from gigagp.kernels import SquaredExponential

ROWS = 240


@pytest.fixture(scope="module")
def skewed():
    """A column with a long tail, and one that is spread evenly."""
    rng = np.random.default_rng(0)
    return np.column_stack([rng.lognormal(0, 1.5, 2 * ROWS), rng.uniform(-1, 1, 2 * ROWS)])


def noise(rows):
    return 0.05 * np.random.default_rng(1).standard_normal(rows)


def wave_of_logarithm(X):
    return np.sin(2 * np.log(X[:, 0])) + X[:, 1] + noise(len(X))


def plane(X):
    return X[:, 0] + X[:, 1] + noise(len(X))


def fitted(X, y, **settings):
    return HGPRegressor(random_state=0, **settings).fit(X, y)


def scalings(model):
    return {each.name: each.chosen for each in model.report_.choices if each.what == "scaling"}


@pytest.fixture(scope="module")
def warped(skewed):
    """A model whose first column became normal scores."""
    return fitted(skewed[:ROWS], wave_of_logarithm(skewed[:ROWS]))


def test_normal_scores_are_chosen_where_they_predict_better(skewed, warped):
    assert scalings(warped) == {"standardised": False, "normal scores": True}
    assert [each.column for each in warped.model_.inputs.warps] == [0]
    assert "choice of scaling, by held-out rows" in str(warped.report_)
    queries, truth = skewed[ROWS:], wave_of_logarithm(skewed[ROWS:])
    standardised = fitted(skewed[:ROWS], wave_of_logarithm(skewed[:ROWS]), warp=False)
    errors = [np.sqrt(np.mean((model.predict(queries) - truth) ** 2)) for model in (warped, standardised)]
    assert errors[0] < 0.7 * errors[1]


def test_columns_stay_as_they_are_where_that_predicts_better(skewed):
    y = plane(skewed[:ROWS])
    model = fitted(skewed[:ROWS], y)
    assert scalings(model) == {"standardised": True, "normal scores": False}
    assert model.model_.inputs.warps == ()
    same = fitted(skewed[:ROWS], y, warp=False)
    np.testing.assert_array_equal(model.predict(skewed[ROWS:]), same.predict(skewed[ROWS:]))


def test_a_logarithm_of_a_column_hardly_matters(skewed, warped):
    logarithms = np.column_stack([np.log(skewed[:, 0]), skewed[:, 1]])
    model = fitted(logarithms[:ROWS], wave_of_logarithm(skewed[:ROWS]))
    middle = np.abs(logarithms[ROWS:, 0]) < 2
    np.testing.assert_allclose(
        model.predict(logarithms[ROWS:])[middle], warped.predict(skewed[ROWS:])[middle], atol=0.15
    )


def test_evenly_spread_columns_leave_nothing_to_choose(wave):
    X, y = wave
    assert scalings(fitted(X[:ROWS], y[:ROWS])) == {}


@pytest.mark.parametrize(
    "settings",
    [{"warp": False}, {"kernel": SquaredExponential()}, {"standardize": False}, {"partition": "random"}],
    ids=str,
)
def test_settings_that_leave_columns_as_they_are(skewed, settings):
    model = fitted(skewed[:ROWS], wave_of_logarithm(skewed[:ROWS]), **settings)
    assert scalings(model) == {}
    assert model.model_.inputs.warps == ()


def test_few_rows_do_not_choose(skewed):
    assert scalings(fitted(skewed[:49], wave_of_logarithm(skewed[:49]))) == {}


def test_normal_scores_can_be_asked_for(skewed):
    model = fitted(skewed[:ROWS], plane(skewed[:ROWS]), warp=True, kernel=SquaredExponential())
    assert scalings(model) == {}
    assert len(model.model_.inputs.warps) == 1
    for wrong in ({"warp": "yes"}, {"warp": 1}, {"warp": True, "standardize": False}):
        with pytest.raises(InvalidParameter, match="warp"):
            fitted(skewed[:ROWS], plane(skewed[:ROWS]), **wrong)


def test_gradients_are_those_of_the_users_columns(skewed, warped):
    queries = skewed[ROWS : ROWS + 20]
    step = 1e-6 * queries[:, 0]
    higher, lower = queries.copy(), queries.copy()
    higher[:, 0] += step
    lower[:, 0] -= step
    expected = (warped.predict(higher) - warped.predict(lower)) / (2 * step)
    np.testing.assert_allclose(warped.predict_gradient(queries).mean_gradient[:, 0], expected, rtol=1e-3, atol=1e-4)


def test_saved_models_and_checkpoints_keep_the_choice(skewed, warped, tmp_path):
    queries = skewed[ROWS:]
    warped.save(tmp_path / "model")
    loaded = HGPRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(queries), warped.predict(queries))
    y = wave_of_logarithm(skewed[:ROWS])
    for _ in range(2):  # the second fit finds a complete checkpoint
        model = HGPRegressor(random_state=0).fit(skewed[:ROWS], y, checkpoint=tmp_path / "checkpoint")
        np.testing.assert_array_equal(model.predict(queries), warped.predict(queries))


def test_models_with_normal_scores_take_updates(skewed):
    y = wave_of_logarithm(skewed)
    model = HGPRegressor(random_state=0).partial_fit(skewed[:ROWS], y[:ROWS])
    assert scalings(model)["normal scores"]
    before = np.abs(model.predict(skewed[ROWS:]) - y[ROWS:]).mean()
    model.partial_fit(skewed[ROWS:], y[ROWS:])
    assert np.abs(model.predict(skewed[ROWS:]) - y[ROWS:]).mean() < before


def test_several_targets_and_weights(skewed):
    y = wave_of_logarithm(skewed[:ROWS])
    model = HGPRegressor(random_state=0).fit(skewed[:ROWS], np.column_stack([y, -y]))
    assert model.predict(skewed[:3]).shape == (3, 2)
    weighted = HGPRegressor(random_state=0).fit(skewed[:ROWS], y, sample_weight=np.linspace(1, 2, ROWS))
    assert scalings(weighted)["normal scores"]
