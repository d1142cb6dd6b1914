"""`make demo`: fit 200,000 generated rows of robot arm data and score the predictions.

For comparison, what one would do without the hierarchy: an exact GP on 2,000 of the rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gigagp import HGPRegressor, metrics
from gigagp.arrays import Array
from gigagp.datasets import distance_to_target, robot_arm
from gigagp.memory import peak_memory

ROWS = 200_000
SUBSET = 2_000  # rows of the exact GP
HELD_OUT = 10_000  # rows that are scored
COMPILED = 3_000  # rows whose fit compiles all code that the timed fit uses: far fewer rows get exact GPs only
PICTURE = Path("gigagp-demo.png")


@dataclass(frozen=True)
class Result:
    """Predictions of one model, and the seconds they took."""

    name: str
    model: HGPRegressor
    mean: Array
    std: Array
    fit_seconds: float
    predict_seconds: float


def run(name: str, model: HGPRegressor, X: Array, y: Array, Z: Array) -> Result:
    start = time.perf_counter()
    model.fit(X, y)
    fitted = time.perf_counter()
    mean, std = model.predict(Z, return_std=True)
    return Result(name, model, mean, std, fitted - start, time.perf_counter() - fitted)


def table(results: list[Result], y: Array) -> str:
    """RMSE and NLPD in standard deviations of the target, coverage of 95% intervals, seconds."""
    scale = float(y.std())
    lines = [f"{'':<34}{'RMSE':>8}{'NLPD':>8}{'95% coverage':>14}{'fit s':>8}{'predict s':>11}"]
    for r in results:
        lines.append(
            f"{r.name:<34}{metrics.rmse(y, r.mean) / scale:>8.4f}{metrics.nlpd(y, r.mean, r.std) - np.log(scale):>8.3f}"
            f"{metrics.coverage(y, r.mean, r.std):>14.1%}{r.fit_seconds:>8.1f}{r.predict_seconds:>11.1f}"
        )
    return "\n".join(lines)


def picture(results: list[Result], noise: float, path: Path) -> None:
    """Predictions along a line through the input space, with 95% intervals, against the noiseless truth."""
    from matplotlib.figure import Figure  # noqa: PLC0415 slow to import, and only needed here

    from gigagp.plotting import band  # noqa: PLC0415

    turn = np.linspace(-2.0, 2.0, 300)
    line = np.tile(np.array([0.0, 1.0, -1.2, 0.8, 0.5, -1.0, 0.4, 0.0]), (len(turn), 1))
    line[:, 0] = turn
    truth = distance_to_target(line)
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.subplots(1, len(results), sharey=True)
    for axis, result in zip(axes, results, strict=True):
        low, high = result.model.predict_quantiles(line, [0.025, 0.975]).T
        band(turn, result.model.predict(line), low, high, "95% interval of y", axis)
        axis.plot(turn, truth, "k--", linewidth=1, label="true function")
        axis.set_title(result.name)
        axis.set_xlabel("angle of the first joint (radians), the others fixed")
    axes[0].set_ylabel("distance of the hand to the target")
    axes[0].legend(loc="best", frameon=False)
    figure.suptitle(
        f"Robot arm, noise standard deviation {noise}: predictions along a line through the 8-D input space"
    )
    figure.savefig(path, dpi=110)


@dataclass(frozen=True)
class Comparison:
    """GigaGP on all rows compared with an exact GP on some of them."""

    results: list[Result]
    test_y: Array
    noise: float
    memory: float  # GB, peak of the fit to all rows

    def scores(self) -> dict[str, Any]:
        """Scores of both models in the units of the target."""
        y = self.test_y
        return {
            "held_out": len(y),
            "peak_gb": self.memory,
            "noise": self.noise,
            "models": [
                {
                    "name": r.name,
                    "rmse": metrics.rmse(y, r.mean),
                    "nlpd": metrics.nlpd(y, r.mean, r.std),
                    "coverage_95": metrics.coverage(y, r.mean, r.std),
                    "fit_seconds": r.fit_seconds,
                    "predict_seconds": r.predict_seconds,
                }
                for r in self.results
            ],
        }

    def __str__(self) -> str:
        y = self.test_y
        return (
            f"{table(self.results, y)}\n\n"
            f"peak memory of {self.results[0].name}: {self.memory:.2f} GB; {len(y):,} held-out rows; noise alone would "
            f"give\nRMSE {self.noise / y.std():.4f}. RMSE and NLPD are in units of the target's standard deviation.\n\n"
            f"{self.results[0].model.report_}"
        )


def compare(rows: int, say: Callable[[str], None], noise: float = 0.01) -> Comparison:
    """Generate data, fit both models and predict held-out rows. `say` is called with a line per step."""
    some, held_out = min(SUBSET, max(2, rows // 10)), min(HELD_OUT, rows)
    say(f"generating {rows + held_out:,} rows of robot arm data ...")
    X, y = robot_arm(rows + held_out, noise=noise, seed=0)
    test_X, test_y = X[rows:], y[rows:]
    say("compiling (once; cached on disk for later runs) ...")
    HGPRegressor(random_state=0).fit(*robot_arm(min(rows, COMPILED))).predict(X[:600], return_std=True)
    say(f"fitting {rows:,} rows ...")
    whole = run(f"GigaGP, {rows:,} rows", HGPRegressor(random_state=0), X[:rows], y[:rows], test_X)
    memory = peak_memory()
    say(f"fitting an exact GP on {some:,} of them ...")
    exact = HGPRegressor(leaf_size=some, random_state=0)
    subset = run(f"exact GP, {some:,} of the rows", exact, X[:some], y[:some], test_X)
    return Comparison([whole, subset], test_y, noise, memory)


def main() -> None:
    comparison = compare(ROWS, lambda line: print(line, flush=True))
    print(f"\n{comparison}")
    picture(comparison.results, comparison.noise, PICTURE)
    print(f"\npicture: {PICTURE}")


if __name__ == "__main__":
    main()
