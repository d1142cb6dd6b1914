"""One step of Bayesian optimisation: learn one more row, then maximise the expected improvement from several starts.

ours: a neighbourhood model of the robot arm, with 2,000 rows and a million. botorch: `SingleTaskGP`, an exact GP, with
2,000 rows, its theta trained once; a step conditions it on one more row and calls `optimize_acqf` with as many starts.
Both maximise by L-BFGS-B in the same box. Where botorch is not installed, only ours is timed. The robot arm has no
maximum inside the box that matters here: what counts is how long a step takes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.stats import norm

from gigagp import HGPRegressor
from gigagp.datasets import robot_arm
from measure import arguments, save

STARTS = 8
SMALL = 2000  # rows of an exact GP
LARGE = 1_000_000  # rows
STEPS = 5  # repeats, of which the median counts
ITERATIONS = 50  # of L-BFGS, at most


def ours(rows: int) -> Callable[[int], float]:
    """A step of the model of so many rows."""
    X, y = robot_arm(rows)
    model = HGPRegressor(kernel="matern52", method="neighbourhood", neighbours=64, random_state=0).fit(X, y)
    box = list(zip(X.min(axis=0), X.max(axis=0), strict=True))
    best = float(y.max())

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        g = model.predict_gradient(x[None, :], latent=True)
        z = (g.mean[0] - best) / g.std[0]
        slope = norm.cdf(z) * g.mean_gradient[0] + norm.pdf(z) * g.std_gradient[0]
        return -g.std[0] * (z * norm.cdf(z) + norm.pdf(z)), -slope

    def step(number: int) -> float:
        new_X, new_y = robot_arm(1, seed=1000 + number)
        model.partial_fit(new_X, new_y, score_rows=0)
        starts = np.random.default_rng(number).choice(len(X), STARTS, replace=False)
        found = [
            minimize(negative, X[i], jac=True, method="L-BFGS-B", bounds=box, options={"maxiter": ITERATIONS})
            for i in starts
        ]
        return -min(result.fun for result in found)

    return step


def botorch(rows: int) -> Callable[[int], float]:
    """The same step of an exact GP by botorch."""
    import torch  # noqa: PLC0415
    from botorch.acquisition import ExpectedImprovement  # noqa: PLC0415
    from botorch.fit import fit_gpytorch_mll  # noqa: PLC0415
    from botorch.models import SingleTaskGP  # noqa: PLC0415
    from botorch.optim import optimize_acqf  # noqa: PLC0415
    from gpytorch.mlls import ExactMarginalLogLikelihood  # noqa: PLC0415

    X, y = robot_arm(rows)
    inputs, targets = torch.tensor(X), torch.tensor(y)[:, None]
    few = SingleTaskGP(inputs[:500], targets[:500])
    fit_gpytorch_mll(ExactMarginalLogLikelihood(few.likelihood, few), optimizer_kwargs={"options": {"maxiter": 50}})
    model = SingleTaskGP(inputs, targets)
    model.load_state_dict(few.state_dict(), strict=False)
    model.eval()
    model.posterior(inputs[:1])  # factors once, as our fit does
    box = torch.stack([inputs.min(0).values, inputs.max(0).values])

    def step(number: int) -> float:
        new_X, new_y = robot_arm(1, seed=1000 + number)
        more = model.condition_on_observations(torch.tensor(new_X), torch.tensor(new_y)[:, None])
        _, value = optimize_acqf(
            ExpectedImprovement(more, targets.max()), box, q=1, num_restarts=STARTS, raw_samples=STARTS,
            options={"maxiter": ITERATIONS},
        )  # fmt: skip
        return float(value)

    return step


def timed(step: Callable[[int], float]) -> dict[str, float]:
    step(0)  # loads compiled code
    times = []
    for number in range(1, 1 + STEPS):
        start = time.perf_counter()
        step(number)
        times.append(time.perf_counter() - start)
    return {"median": float(np.median(times)), "longest": float(max(times))}


def main() -> None:
    parser = arguments(__doc__ or "")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    large = LARGE if options.full else 100_000
    result: dict[str, Any] = {f"ours, {rows:,} rows": timed(ours(rows)) for rows in (SMALL, large)}
    if find_spec("botorch") is not None:
        result[f"botorch, {SMALL:,} rows"] = timed(botorch(SMALL))
    for name, times in result.items():
        print(f"  {name}: {1e3 * times['median']:.0f} ms per step (longest {1e3 * times['longest']:.0f})")
    save("optimisation", result)


if __name__ == "__main__":
    main()
