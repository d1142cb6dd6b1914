"""The prior of theta: its gradient, how much it counts, and that it keeps theta from fitting labels by chance."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.datasets import load_wine
from sklearn.metrics import log_loss

from gigagp import HGPClassifier
from gigagp.expert import Evidence
from gigagp.fit.theta_prior import ThetaPrior
from gigagp.fit.training import with_prior

NAMES = ("variance", "lengthscale[0]", "lengthscale[1]", "noise_variance")
START = np.log([10.0, 1.4, 1.4, 0.1])


@pytest.mark.parametrize(
    "prior",
    [ThetaPrior.around(NAMES, START, 1.0), ThetaPrior.of_latent_functions(NAMES, START)],
    ids=["few", "classes"],
)
def test_gradient_is_that_of_the_log_density(prior):
    theta = START + np.array([0.3, -1.0, 2.0, 0.5])
    np.testing.assert_allclose(prior.gradient(theta), approx_fprime(theta, prior.log_density, 1e-7), atol=1e-5)


def test_the_prior_counts_once_for_all_rows():
    prior = ThetaPrior.of_latent_functions(NAMES, START)
    theta = START + 0.5

    def evidence(theta, leaves):
        return Evidence.of(-3.0, np.ones(4), 25, 0.0)

    total = with_prior(evidence, prior, 100.0)(theta, None)
    assert total.value == pytest.approx(-3.0 + prior.log_density(theta) / 4)
    np.testing.assert_allclose(total.gradient, 1 + prior.gradient(theta) / 4)
    assert (total.points, total.experts) == (25, 1)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_few_rows_with_many_columns_are_not_fitted_by_chance():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:119], order[119:]
    model = HGPClassifier(random_state=0).fit(X[train], y[train])
    assert log_loss(y[test], model.predict_proba(X[test])) < 0.12  # 0.17 and more with a wide prior
