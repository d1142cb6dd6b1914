"""HGPRegressor with likelihoods of counts, positive numbers and labels: predictions, files, saving, errors."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy import special
from sklearn.base import clone

from gigagp import HGPRegressor, InvalidInput, InvalidParameter, load
from gigagp.likelihoods import Derivatives, Likelihood, NegativeBinomial, Poisson
from gigagp.report import write_report
from gigagp.testing import check_likelihood

QUICK = {"neighbours": 48, "leaf_size": 100, "random_state": 0}


def table(likelihood, n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 8, (n, 2))
    f = np.sin(X[:, 0]) - 0.5
    return X, {
        "poisson": lambda: rng.poisson(np.exp(f)).astype(float),
        "negative_binomial": lambda: rng.poisson(np.exp(f + 2) * rng.gamma(4, 0.25, n)).astype(float),
        "gamma": lambda: np.exp(f) * rng.gamma(5, 0.2, n),
        "bernoulli": lambda: (rng.random(n) < special.expit(2 * f)).astype(float),
    }[likelihood]()


@pytest.fixture(scope="module")
def fitted():
    X, y = table("poisson")
    return SimpleNamespace(X=X, y=y, model=HGPRegressor(likelihood="poisson", **QUICK).fit(X, y))


def test_counts_are_predicted_as_counts(fitted):
    law = fitted.model.predict_distribution(fitted.X)
    low, high = law.interval(0.95)
    assert (low >= 0).all()
    assert (high == np.floor(high)).all()
    quantiles = fitted.model.predict_quantiles(fitted.X[:20], [0.05, 0.5, 0.95])
    assert quantiles.shape == (20, 3)
    np.testing.assert_array_equal(quantiles, law[:20].quantile([0.05, 0.5, 0.95]))
    mean, std = fitted.model.predict(fitted.X, return_std=True)
    np.testing.assert_array_equal(mean, law.mean)
    np.testing.assert_array_equal(std, law.std)
    truth = np.exp(np.sin(fitted.X[:, 0]) - 0.5)
    assert np.corrcoef(mean, truth)[0, 1] > 0.9
    latent = fitted.model.predict(fitted.X, return_std=True, latent=True)[1]
    assert (latent < std).all()
    assert (np.abs(mean - truth) < 4 * latent).mean() > 0.9


def test_far_from_all_rows_counts_are_those_of_all_rows(fitted):
    law = fitted.model.predict_distribution(np.full((1, 2), 1e4))
    assert law.mean[0] == pytest.approx(fitted.y.mean(), rel=1e-3)
    assert law.std[0] == pytest.approx(fitted.y.std(), rel=1e-2)


def test_scores_files_and_the_saved_model_agree(fitted, tmp_path):
    evaluation = fitted.model.evaluate(fitted.X, fitted.y)
    law = fitted.model.predict_distribution(fitted.X)
    assert evaluation.nlpd == pytest.approx(-law.log_pmf(fitted.y).mean())
    assert evaluation.crps == pytest.approx(law.crps(fitted.y).mean())
    low, high = law.pit(fitted.y)
    u = low + (high - low) * np.random.default_rng(0).random((400, len(low)))
    assert evaluation.coverage[0.8] == pytest.approx(((u > 0.1) & (u < 0.9)).mean(), abs=0.01)  # randomised PIT
    blocks = []
    fitted.model.evaluate(fitted.X, fitted.y, each=lambda X, y, mean, std: blocks.append((mean, std)))
    np.testing.assert_array_equal(blocks[0][0], law.mean)
    fitted.model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.get_params()["likelihood"] == "poisson"
    np.testing.assert_array_equal(again.predict_quantiles(fitted.X, 0.9), law.quantile([0.9]))
    again.predict_file(fitted.X, tmp_path / "p.parquet", quantiles=[0.9])
    written = pq.read_table(tmp_path / "p.parquet").to_pandas()
    np.testing.assert_array_equal(written["q0.9"], law.quantile(0.9))
    np.testing.assert_array_equal(written["mean"], law.mean)
    again.predict_file(fitted.X, tmp_path / "l.parquet", quantiles=[0.9], latent=True)
    assert (pq.read_table(tmp_path / "l.parquet").to_pandas()["q0.9"] > law.mean).mean() > 0.9


@pytest.mark.parametrize("engine", ["serial", "threads"])
def test_engines_give_the_same_model(fitted, engine):
    model = clone(fitted.model).set_params(engine=engine, n_jobs=2).fit(fitted.X, fitted.y)
    np.testing.assert_array_equal(model.theta_, fitted.model.theta_)
    one, whole = model.predict_distribution(fitted.X[7:8]), model.predict_distribution(fitted.X)
    assert one.quantile(0.95)[0] == whole.quantile(0.95)[7]
    assert one.mean[0] == whole.mean[7]


@pytest.mark.parametrize("likelihood", ["negative_binomial", "gamma", "bernoulli"])
def test_each_likelihood_is_calibrated_and_knows_its_dispersion(likelihood):
    X, y = table(likelihood, 500)
    model = HGPRegressor(likelihood=likelihood, **QUICK).fit(X, y)
    new_X, new_y = table(likelihood, 1000, seed=1)
    evaluation = model.evaluate(new_X, new_y)
    assert evaluation.coverage[0.8] == pytest.approx(0.8, abs=0.05)
    law = model.predict_distribution(new_X)
    constant = model.predict_distribution(np.full((len(new_y), 2), 1e4))
    assert evaluation.nlpd < -constant.log_pdf(new_y).mean() - 0.03
    assert (law.quantile(0.01) >= 0).all()
    if likelihood != "bernoulli":
        assert model.noise_variance_ == pytest.approx({"negative_binomial": 0.25, "gamma": 0.2}[likelihood], rel=0.5)
    value, gradient = model.log_marginal_likelihood(eval_gradient=True)
    step = np.zeros(len(model.theta_))
    step[-1] = 1e-5
    slope = (model.log_marginal_likelihood(model.theta_ + step) - value) / 1e-5
    assert gradient[-1] == pytest.approx(slope, abs=0.05 + 1e-3 * abs(slope))


def test_a_table_and_weights(tmp_path):
    X, _ = table("bernoulli", 300)
    trials = np.random.default_rng(1).integers(1, 20, 300)
    shares = np.random.default_rng(2).binomial(trials, special.expit(np.sin(X[:, 0]))) / trials
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "n": trials, "share": shares})
    model = HGPRegressor(likelihood="bernoulli", **QUICK).fit(frame, "share", sample_weight="n")
    truth = special.expit(np.sin(X[:, 0]))
    assert np.abs(model.predict(frame) - truth).mean() < 0.08
    law = model.predict_distribution(frame)
    p = law.pmf(np.ones(300))
    nlpd = -(shares * np.log(p) + (1 - shares) * np.log1p(-p)).mean()
    assert model.evaluate(frame, "share").nlpd == pytest.approx(nlpd)


class Binomial(Likelihood):
    """Successes in a fixed number of trials."""

    name, discrete, lowest = "binomial", True, 0.0

    def __init__(self, trials):
        self.trials, self.requirement = trials, f"counts of at most {trials}"

    def is_possible(self, y):
        return (y >= 0) & (y <= self.trials) & (y == np.floor(y))

    def log_density(self, y, f, d):
        n = self.trials
        return (
            special.gammaln(n + 1)
            - special.gammaln(y + 1)
            - special.gammaln(n - y + 1)
            + y * f
            - n * np.logaddexp(0, f)
        )

    def derivatives(self, y, f, d):
        n, p, q = self.trials, special.expit(f), special.expit(-f)
        return Derivatives(y - n * p, n * p * q, n * p * q * (p - q))

    def mean(self, f):
        return self.trials * special.expit(f)

    def latent(self, mean):
        return special.logit(mean / self.trials)

    def variance(self, f, d):
        return self.trials * special.expit(f) * special.expit(-f)

    def cdf(self, y, f, d):
        return np.where(y < 0, 0.0, special.bdtr(np.clip(y, 0, self.trials), self.trials, special.expit(f)))

    def sample(self, f, d, rng):
        return rng.binomial(self.trials, special.expit(f)).astype(float)


def test_a_likelihood_of_the_users_own(tmp_path):
    own = Binomial(6)
    check_likelihood(own)
    X, _ = table("poisson", 250)
    y = own.sample(np.sin(X[:, 0]), 1.0, np.random.default_rng(3))
    model = HGPRegressor(likelihood=own, **{**QUICK, "neighbours": 24}).fit(X, y)
    law = model.predict_distribution(X)
    assert np.corrcoef(law.mean, np.sin(X[:, 0]))[0, 1] > 0.9
    assert law.interval(0.95)[1].max() <= 6
    model.save(tmp_path / "m")
    again = load(tmp_path / "m", kernels=[Binomial])
    assert again.likelihood == own
    np.testing.assert_array_equal(again.predict(X), law.mean)
    with pytest.raises(InvalidInput, match="pass it"):
        load(tmp_path / "m")


def test_a_built_in_likelihood_and_the_same_in_python_fit_the_same_model(fitted):
    class Counts(Poisson):
        compiled = 0

    model = clone(fitted.model).set_params(likelihood=Counts()).fit(fitted.X[:120], fitted.y[:120])
    compiled = clone(fitted.model).fit(fitted.X[:120], fitted.y[:120])
    np.testing.assert_allclose(model.predict(fitted.X[:50]), compiled.predict(fitted.X[:50]), rtol=1e-3)


@pytest.mark.parametrize(
    ("likelihood", "value", "needs"),
    [
        ("poisson", -1.0, "whole numbers of at least 0"), ("negative_binomial", 2.5, "whole numbers"),
        ("gamma", 0.0, "positive numbers"), ("bernoulli", 1.5, "between them"),
    ],
)  # fmt: skip
def test_impossible_targets_are_named_with_their_row(fitted, likelihood, value, needs, tmp_path):
    y = np.where(np.arange(400) == 17, value, 1.0)
    model = HGPRegressor(likelihood=likelihood, **QUICK)
    with pytest.raises(InvalidInput, match=f"y has the value {value:g} at row 17.*{needs}"):
        model.fit(fitted.X, y)
    frame = pd.DataFrame({"a": fitted.X[:, 0], "count": y})
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InvalidInput, match=r"column 'count' of .*t.csv has the value .* at row 17"):
        model.fit(tmp_path / "t.csv", "count")


def test_evaluation_needs_possible_targets_too(fitted):
    with pytest.raises(InvalidInput, match="at row 0"):
        fitted.model.evaluate(fitted.X[:3], np.array([0.5, 1.0, 1.0]))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"partition": "random"}, "neighbouring rows"), ({"combine": "poe"}, "neighbouring rows"),
        ({"sharing": 2}, "neighbouring rows"), ({"leaf": "sparse"}, "neighbouring rows"),
        ({"noise": "inputs"}, "no Gaussian noise"), ({"experts": "student"}, "no Gaussian noise"),
        ({"mean": "linear"}, "mean= is for"),
        ({"likelihood": "binomial"}, "likelihood"), ({"likelihood": Poisson}, "likelihood"),
        ({"likelihood": "gaussian", "experts": "student"}, "contradicts"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(fitted, settings, words):
    with pytest.raises(InvalidParameter, match=words):
        HGPRegressor(**{"likelihood": "poisson", **QUICK, **settings}).fit(fitted.X, fitted.y)


def test_known_noise_is_for_gaussian_targets(fitted):
    with pytest.raises(InvalidParameter, match="noise_std is for targets with Gaussian noise"):
        clone(fitted.model).fit(fitted.X, fitted.y, noise_std=np.ones(400))
    with pytest.raises(InvalidParameter, match="noise_std is for targets with Gaussian noise"):
        fitted.model.evaluate(fitted.X, fitted.y, noise_std=np.ones(400))


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_equal_counts_and_few_rows_can_be_fitted(value):
    X = np.arange(12.0)[:, None]
    law = HGPRegressor(likelihood="poisson", random_state=0).fit(X, np.full(12, value)).predict_distribution(X)
    assert np.isfinite(law.mean).all()
    assert law.mean.mean() == pytest.approx(value, abs=1.0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # Gaussian fits to targets that are not
def test_the_report_says_what_the_target_looks_like(fitted):
    X = fitted.X
    cases = {
        "counts": fitted.y,
        "labels": (fitted.y > 0).astype(float),
        "shares": special.expit(X[:, 0]),
        "": X[:, 1] - 4,
    }
    for kind, y in cases.items():
        report = HGPRegressor(training="full", method="neighbourhood", kernel="matern32", **QUICK).fit(X, y).report_
        assert report.looks_like == kind
        assert ("likelihood=" in repr(report)) == bool(kind)
    assert fitted.model.report_.looks_like == ""


def test_gaussian_and_student_choose_the_shape_of_errors(fitted):
    X, y = fitted.X, np.random.default_rng(0).standard_t(3, 400)
    gaussian, student = (HGPRegressor(likelihood=each, **QUICK).fit(X, y) for each in ("gaussian", "student"))
    assert gaussian.predict_distribution(X).shape.is_gaussian
    assert not gaussian.model_.committee.student
    assert not student.predict_distribution(X).shape.is_gaussian
    assert student.model_.committee.student


def test_the_html_report_of_counts(fitted, tmp_path, no_pictures):
    done = write_report(fitted.model, tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "Poisson, given a latent function f" in text
    assert done.rows == 400
    scored = write_report(fitted.model, tmp_path / "s.html", fitted.X, target=fitted.y)
    assert scored.evaluation is not None


def test_parameters_are_named(fitted):
    assert all("noise" not in name and "dispersion" not in name for name in _names(fitted.model))
    X, y = table("negative_binomial", 200)
    model = HGPRegressor(likelihood=NegativeBinomial(), training="full", kernel="matern32", **QUICK).fit(X, y)
    assert _names(model)[-1] == "dispersion"
    assert "dispersion" in repr(model.report_)


def _names(model):
    return [each.name for each in model.units_.parameters(model.kernel_, model.noise_variance_)]
