"""Joint predictions by a fitted model: samples of several queries together, and functions drawn from the posterior."""

from __future__ import annotations

from typing import Any

import numpy as np

from gigagp import memory
from gigagp.arrays import Array
from gigagp.errors import InvalidParameter
from gigagp.estimators.number_predictions import NumberPredictions
from gigagp.fit import settings
from gigagp.model.sample_paths import Paths


class SamplePath:
    """Functions drawn from the posterior of a model: `path(X)` is an array with one row per query, one column each.

    A path may be evaluated at any queries, any number of times and in any order. It keeps the model as it was.
    """

    def __init__(self, model: NumberPredictions, paths: Paths) -> None:
        self._model, self._paths = model, paths

    def __len__(self) -> int:
        return self._paths.count

    def __call__(self, X: Any) -> Array:
        """The values of f, without noise, in the user's units.

        Parameters
        ----------
        X : array, table or path
            Queries, with the columns of the fit.

        """
        predictor = self._paths.predictor
        with predictor.engine() as engine:
            blocks = self._model.query_blocks(X, predictor.queries_at_once(memory.budget(self._model.memory)))
            return np.concatenate([self._paths.values(block, engine) for block in blocks])


class JointPredictions(NumberPredictions):  # type: ignore[misc]
    """The methods of a fitted regressor that concern several queries together."""

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = None, *, latent: bool = False) -> Array:
        """Joint samples of y at the queries: each column is one draw of all of them together.

        Each query has the distribution that `predict_distribution` returns, and the correlations are those of
        `predict(X, return_cov=True)`; where the distribution is not Gaussian, they are those of a Gaussian copula.

        Parameters
        ----------
        X : array, table or path
            At most 10,000 queries, with the columns of the fit.
        n_samples : int
            Number of draws.
        random_state : int, generator or None
            Seed; the same seed gives the same draws.
        latent : bool
            True for draws of the latent function f, without observation noise.

        Returns
        -------
        samples : array
            One row per query, one column per draw.

        """
        count = settings.count("n_samples", n_samples)
        rng = np.random.default_rng(settings.seed(random_state))
        return self._jointly(X, settings.switch("latent", latent)).sample(count, rng)

    def sample_path(self, n: int = 1, random_state: Any = None) -> SamplePath:
        """Functions drawn from the posterior, which can be evaluated anywhere and again.

        At every query the paths have exactly the mean of `predict` and its standard deviation with latent=True. Their
        correlation between queries is approximated by 2,048 random Fourier features of the kernel.

        Parameters
        ----------
        n : int
            Number of functions.
        random_state : int, generator or None
            Seed; the same seed gives the same functions.

        Returns
        -------
        path : SamplePath
            path(X) has one row per query and n columns.

        """
        count, predictor = settings.count("n", n), self.predictor_
        if predictor.model.likelihood is not None:
            raise InvalidParameter("sample_path is for Gaussian targets; this model has another likelihood")
        return SamplePath(self, Paths(predictor, count, settings.seed(random_state)))
