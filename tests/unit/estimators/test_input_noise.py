"""noise="inputs": deviations and means where the noise depends on a column, choices, engines, files, errors."""

import numpy as np
import pytest

from gigagp import HGPRegressor, plotting
from gigagp.errors import InvalidParameter
from gigagp.kernels import Matern52
from gigagp.report import write_report

pytestmark = pytest.mark.full_choices  # deviations are compared with the true ones

ROWS = 1500
QUIET = 0.1
NOISY = 1.0


def rows_with_noise_of_a_column(seed, count=ROWS):
    """The mean depends on the second column alone, the noise on the first."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (count, 2))
    noise = np.where(X[:, 0] < 0, QUIET, NOISY)
    f = np.sin(3 * X[:, 1])
    return X, f + noise * rng.standard_normal(count), f, noise


@pytest.fixture(scope="module")
def models():
    X, y, _, _ = rows_with_noise_of_a_column(0)
    settings = {"kernel": Matern52(), "neighbours": 64, "random_state": 0, "engine": "serial"}

    class Models(dict):
        """Each is fitted when it is first needed."""

        def __missing__(self, noise):
            self[noise] = HGPRegressor(noise=noise, **settings).fit(X, y)
            return self[noise]

    return Models()


def test_deviations_follow_the_noise(models):
    Z, _, _, noise = rows_with_noise_of_a_column(1, 1000)
    std = models["inputs"].predict(Z, return_std=True)[1]
    for level in (QUIET, NOISY):
        assert np.median(std[noise == level]) == pytest.approx(level, rel=0.15)


def test_quiet_rows_count_more_in_the_mean(models):
    Z, _, f, _ = rows_with_noise_of_a_column(1, 1000)
    constant, inputs = (np.sqrt(np.mean((models[name].predict(Z) - f) ** 2)) for name in ("constant", "inputs"))
    assert inputs < 0.9 * constant


def test_noise_depends_on_its_own_column(models):
    metric = models["inputs"].model_.input_noise.metric
    assert metric[0] > 10 * metric[1]


@pytest.mark.slow
def test_auto_takes_the_better_and_says_so(models):
    auto = models["auto"]
    chosen = {c.name: c for c in auto.report_.choices if c.what == "noise"}
    assert chosen["inputs"].chosen
    assert chosen["inputs"].score < chosen["constant"].score
    Z = rows_with_noise_of_a_column(1, 50)[0]
    np.testing.assert_array_equal(auto.predict(Z), models["inputs"].predict(Z))


@pytest.mark.slow
def test_constant_noise_stays_constant():
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (ROWS, 2))
    y = np.sin(3 * X[:, 1]) + 0.3 * rng.standard_normal(ROWS)
    settings = {"kernel": Matern52(), "neighbours": 64, "random_state": 0, "engine": "serial"}
    auto = HGPRegressor(noise="auto", **settings).fit(X, y)
    assert auto.model_.input_noise is None
    constant = HGPRegressor(noise="constant", **settings).fit(X, y)
    np.testing.assert_array_equal(auto.predict(X[:50], return_std=True), constant.predict(X[:50], return_std=True))


def test_batches_and_saved_models_agree(models, tmp_path):
    model, Z = models["inputs"], rows_with_noise_of_a_column(1, 300)[0]
    mean, std = model.predict(Z, return_std=True)
    parts = [model.predict(part, return_std=True)[1] for part in np.array_split(Z, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), std)
    model.save(tmp_path / "model")
    loaded = HGPRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(Z, return_std=True), (mean, std))
    np.testing.assert_array_equal(loaded.model_.input_noise.metric, model.model_.input_noise.metric)


@pytest.mark.parametrize(
    "settings",
    [{"engine": "threads", "n_jobs": 2}, {"engine": "processes", "n_jobs": 2}],
    ids=str,
)
@pytest.mark.slow  # in short in test_processes.py
def test_engines_and_files_give_the_same_model(models, settings):
    X, y, _, _ = rows_with_noise_of_a_column(0)
    model = HGPRegressor(**models["inputs"].get_params() | settings).fit(X, y)
    Z = rows_with_noise_of_a_column(1, 100)[0]
    np.testing.assert_array_equal(model.predict(Z, return_std=True), models["inputs"].predict(Z, return_std=True))


def test_bad_settings_are_errors_that_say_what_to_do():
    X, y, _, noise = rows_with_noise_of_a_column(0, 200)
    for settings, message in (
        ({"noise": "loud"}, "noise must be"),
        ({"noise": "inputs", "partition": "random"}, "neighbourhoods"),
        ({"noise": "inputs", "method": "committee"}, "neighbourhoods"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            HGPRegressor(**settings).fit(X, y)
    with pytest.raises(InvalidParameter, match="do not pass sample_weight"):
        HGPRegressor(noise="inputs").fit(X, y, sample_weight=1 / noise)


@pytest.mark.slow
def test_picture_and_report_show_the_noise_of_the_column(models, tmp_path):
    ax = plotting.noise_along(models["inputs"])
    (line,) = ax.lines
    x, deviation = line.get_data()
    assert ax.get_xlabel() == "x0"
    assert np.median(deviation[x < -0.1]) == pytest.approx(QUIET, rel=0.25)
    assert np.median(deviation[x > 0.1]) == pytest.approx(NOISY, rel=0.25)
    write_report(models["inputs"], tmp_path / "report.html")
    assert "How the noise varies" in (tmp_path / "report.html").read_text()
