"""The Laplace evidence of classes and its gradient, against scikit-learn's GaussianProcessClassifier."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.gaussian_process.kernels import Matern as SklearnMatern

from gigagp.kernels import Matern12, Matern32, Matern52, SquaredExponential
from gigagp.likelihoods import Classes, LaplaceEvidence
from gigagp.linalg.workspace import Workspace

BALANCED = Classes((1, 1), (1.0, 1.0))  # prior mean zero, as scikit-learn has it
PAIRS = [
    (SquaredExponential, RBF),
    (Matern52, lambda scales: SklearnMatern(scales, nu=2.5)),
    (Matern32, lambda scales: SklearnMatern(scales, nu=1.5)),
    (Matern12, lambda scales: SklearnMatern(scales, nu=0.5)),
]


def rows(p, columns=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(p, columns))
    y = (X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * rng.normal(size=p) > 0).astype(float)
    return X, y


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@pytest.mark.parametrize("variance", [0.5, 9.0])
def test_evidence_and_gradient_equal_scikit_learns(ours, theirs, variance):
    X, y = rows(60)
    scales = [0.8, 1.1, 2.0]
    kernel = ours(variance, scales)
    reference = GaussianProcessClassifier(
        ConstantKernel(variance) * theirs(scales), optimizer=None, max_iter_predict=1000
    ).fit(X, y)
    value, gradient = reference.log_marginal_likelihood(reference.kernel_.theta, eval_gradient=True)
    evidence = LaplaceEvidence(kernel, np.append(kernel.theta, 0.0), BALANCED)(0, X, y, Workspace())
    # scikit-learn stops Newton's method when the evidence changes by less than 1e-10.
    assert evidence.value == pytest.approx(value, rel=1e-7)
    np.testing.assert_allclose(evidence.gradient[:-1], gradient, rtol=1e-4, atol=1e-4)
    assert evidence.gradient[-1] == 0.0
