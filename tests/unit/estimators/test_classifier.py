"""HGPClassifier as a scikit-learn user meets it."""

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

import gigagp
from gigagp import HGPClassifier, HGPRegressor
from gigagp.engines import SerialEngine
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.kernels import Linear, Matern12, SquaredExponential
from gigagp.model import laplace_neighbourhood

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.filterwarnings("ignore")  # tiny and degenerate data sets end at bounds, and say so
@parametrize_with_checks([HGPClassifier(leaf_size=60, random_state=0)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.mark.slow  # The same checks; a single leaf of 300 rows and three classes takes seconds to train.
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([HGPClassifier(random_state=0)])
def test_scikit_learn_conventions_of_a_single_leaf(estimator, check):
    check(estimator)


def table(rows, classes=2, seed=0):
    """Inputs, labels, and the true probabilities of the classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    logits = 2.5 * np.stack([X[:, 0], np.sin(2 * X[:, 1]), -X[:, 0] - X[:, 1]][:classes], axis=1)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    codes = (p.cumsum(axis=1) < rng.uniform(size=(rows, 1))).sum(axis=1)
    return X, np.array(["ant", "bee", "cat"])[np.minimum(codes, classes - 1)], p


@pytest.fixture(scope="module", params=[2, 3])
def fitted(request):
    X, y, p = table(2400, request.param)
    neighbours = "auto" if request.param == 2 else 64  # more would take long
    model = HGPClassifier(neighbours=neighbours, random_state=0).fit(X[:1400], y[:1400])
    return model, X[1400:], y[1400:], p[1400:]


def test_probabilities_are_nearly_as_good_as_the_true_ones(fitted):
    model, X, y, p = fitted
    predicted = model.predict_proba(X)
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0)
    assert log_loss(y, predicted, labels=model.classes_) < log_loss(y, p, labels=model.classes_) + 0.08
    np.testing.assert_array_equal(model.predict(X), model.classes_[predicted.argmax(axis=1)])
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(predicted), rtol=1e-10)


def test_held_out_score_is_honest(fitted):
    model, X, y, _ = fitted
    near, own = model.model_.neighbourhood, model.model_.classes
    rows = np.arange(len(near.store.y))
    latents = laplace_neighbourhood.predict(near, own.classes, near.store.X, SerialEngine(), held_out=rows)
    prior = laplace_neighbourhood.prior_variance(near)
    held_out = own.calibration.losses(own.classes, latents, near.store.y, prior).mean()
    assert log_loss(y, model.predict_proba(X), labels=model.classes_) == pytest.approx(held_out, abs=0.06)


def test_far_from_all_rows_probabilities_are_the_shares(fitted):
    model, *_ = fitted
    far = model.predict_proba(np.array([[1e6, 0.0], [-3e5, 2e5]]))
    np.testing.assert_allclose(far, np.tile(model.model_.classes.classes.shares, (2, 1)), rtol=1e-6)


def test_a_saved_model_predicts_the_same(fitted, tmp_path):
    model, X, *_ = fitted
    model.save(tmp_path / "model")
    for again in (gigagp.load(tmp_path / "model"), HGPClassifier.load(tmp_path / "model")):
        assert type(again) is HGPClassifier
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        assert again.classes_.tolist() == model.classes_.tolist()
    with pytest.raises(InvalidInput, match="is a HGPClassifier"):
        HGPRegressor.load(tmp_path / "model")


def test_predictions_do_not_depend_on_batch_or_engine(fitted):
    model, X, *_ = fitted
    whole = model.predict_proba(X)
    np.testing.assert_array_equal(
        np.concatenate([model.predict_proba(X[:1]), model.predict_proba(X[1:30])]), whole[:30]
    )
    model.set_params(engine="serial")
    np.testing.assert_array_equal(model.predict_proba(X[:30]), whole[:30])
    model.set_params(engine="threads")


def test_the_latent_function_of_all_rows_is_scikit_learns():
    X, y, _ = table(120)
    order = np.argsort(y, kind="stable")
    both = np.concatenate([order[:40], order[-40:]])  # balanced, so that the prior mean is zero
    X, y = X[both], y[both]
    kernel = SquaredExponential(4.0, [0.8, 1.2], variance_bounds=(4.0, 4.0), lengthscale_bounds=(0.8, 1.2))
    model = HGPClassifier(kernel, neighbours=80, standardize=False, random_state=0).fit(X, y)
    scales = np.exp(model.theta_[1:-1])
    theirs = GaussianProcessClassifier(ConstantKernel(4.0) * RBF(scales), optimizer=None).fit(X, y)
    Z = np.random.default_rng(3).normal(size=(20, 2))
    near, classes = model.model_.neighbourhood, model.model_.classes.classes
    latents = laplace_neighbourhood.predict(near, classes, Z, SerialEngine())
    mean, variance = theirs.latent_mean_and_variance(Z)
    np.testing.assert_allclose(latents.mean[:, 0], mean, atol=1e-3)
    np.testing.assert_allclose(latents.variance[:, 0], variance, rtol=3e-3)  # W is that before the last step


def test_class_weight_moves_probabilities_as_repeated_rows_do():
    X, y, _ = table(600)
    kernel = SquaredExponential(4.0, [1.0, 1.0])
    options = {"calibrate": False, "neighbours": 64, "random_state": 0}
    plain = HGPClassifier(kernel, **options).fit(X, y).predict_proba(X[:50])[:, 1]
    weighted = HGPClassifier(kernel, class_weight={"bee": 4.0}, **options).fit(X, y).predict_proba(X[:50])[:, 1]
    balanced = HGPClassifier(kernel, class_weight="balanced", **options).fit(X, y)
    assert (weighted > plain).mean() > 0.95
    np.testing.assert_allclose(balanced.model_.classes.classes.shares, [0.5, 0.5], atol=2e-3)


def test_tables_with_text_integer_and_boolean_targets():
    X, y, _ = table(300)
    options = {"kernel": Matern12(4.0, [1.0, 1.0]), "neighbours": 32, "random_state": 0}
    frame = pd.DataFrame(X, columns=["a", "b"])
    for labels, kind in ((y, "U"), (y == "bee", "b"), ((y == "bee") + 7, "i")):
        model = HGPClassifier(**options).fit(frame.assign(label=labels), "label")
        assert model.classes_.dtype.kind == kind
        assert model.classes_.tolist() == np.unique(labels).tolist()
        arrays = HGPClassifier(**options).fit(X, labels)
        np.testing.assert_array_equal(model.predict_proba(frame), arrays.predict_proba(X))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a"] * 30, "only one class, 'a'"),
        ([None, *["a", "b"] * 15][:30], "missing label"),
        ([np.nan, *[0.0, 1.0] * 15][:30], "NaN at row 0"),
    ],
)
def test_bad_labels(y, message):
    with pytest.raises(InvalidInput, match=message):
        HGPClassifier().fit(np.random.default_rng(0).normal(size=(30, 2)), np.array(y))


def test_skewed_columns_become_normal_scores(tmp_path):
    X, y, _ = table(1500)
    skewed = np.exp(3 * X)
    train, new = slice(0, 1000), slice(1000, None)

    def fitted(inputs, warp):
        return HGPClassifier(neighbours=64, warp=warp, random_state=0).fit(inputs[train], y[train])

    def loss(model, inputs):
        return model.evaluate(inputs[new], y[new]).log_loss

    warped = fitted(skewed, "auto")
    assert loss(warped, skewed) < loss(fitted(skewed, False), skewed) - 0.02
    assert loss(warped, skewed) < loss(fitted(X, "auto"), X) + 0.03
    assert len(warped.model_.inputs.warps) == 2
    np.testing.assert_allclose(
        warped.model_.inputs.restore(warped.model_.inputs.apply(skewed, np.dtype(float))), skewed
    )
    warped.save(tmp_path / "model")
    np.testing.assert_array_equal(
        gigagp.load(tmp_path / "model").predict_proba(skewed[new]), warped.predict_proba(skewed[new])
    )
    far = warped.predict_proba(np.full((1, 2), 1e9))
    assert np.abs(far[0, 1] - np.mean(y[train] == "bee")) < 0.01


def test_columns_are_not_warped_where_the_kernel_is_given_or_the_user_says_so():
    X, y, _ = table(200)
    for settings in ({"warp": False}, {"kernel": SquaredExponential()}, {"standardize": False}):
        assert HGPClassifier(random_state=0, **settings).fit(np.exp(3 * X), y).model_.inputs.warps == ()
    for settings in ({"warp": "yes"}, {"warp": 1}, {"warp": True, "standardize": False}):
        with pytest.raises(InvalidParameter, match="warp"):
            HGPClassifier(**settings).fit(X, y)


def test_bad_settings():
    X, y, _ = table(60)
    for weight, message in (("equal", "balanced"), ({"dog": 1.0}, "'dog'"), ({"bee": -1.0}, "positive")):
        with pytest.raises(InvalidParameter, match=message):
            HGPClassifier(class_weight=weight).fit(X, y)
    with pytest.warns(UserWarning, match="no metric"), pytest.raises(InvalidParameter, match="metric"):
        HGPClassifier(Linear()).fit(X, y)
