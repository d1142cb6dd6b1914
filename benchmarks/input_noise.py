"""Noise that depends on the inputs: predicted deviations and errors of f where both are known, with each noise=.

columns: 20,000 rows, noise .1 or 1 by the sign of the first of four columns, on which the mean does not depend.
wave: 4,000 rows, sin(6 x) with noise .02 or .5 by the sign of x; also two separate fits, one per side.
"""

from __future__ import annotations

import argparse

import numpy as np

from gigagp import HGPRegressor
from measure import seconds

ROWS = {"columns": 20_000, "wave": 4000}
QUERIES = 5000
LEVELS = {"columns": (0.1, 1.0), "wave": (0.02, 0.5)}
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def rows_of(name: str, count: int) -> Rows:
    """Inputs, targets, f, and the deviation of the noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (count, 4 if name == "columns" else 1))
    f = np.sin(3 * X[:, 1]) + X[:, 2] if name == "columns" else np.sin(6 * X[:, 0])
    noise = np.where(X[:, 0] < 0, *LEVELS[name])
    return X, f + noise * rng.standard_normal(count), f, noise


def scores(model: HGPRegressor, test: Rows) -> str:
    """Mean predicted deviation, its ratio to the truth, and the error of f, for each level of noise; and the NLPD."""
    X, y, f, noise = test
    prediction = model.predict_distribution(X)
    parts = []
    for level in np.unique(noise):
        here = noise == level
        deviation, error = prediction.std[here].mean(), np.sqrt(np.mean((prediction.mean - f)[here] ** 2))
        parts.append(f"noise {level:g}: deviation {deviation:.4f} ({deviation / level:.3f}), error of f {error:.5f}")
    return "; ".join([*parts, f"NLPD {-np.mean(np.log(prediction.pdf(y))):.4f}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("examples", nargs="*", default=list(ROWS), help="some of: " + ", ".join(ROWS))
    for name in parser.parse_args().examples:
        rows = rows_of(name, ROWS[name] + QUERIES)
        train, test = ([part[here] for part in rows] for here in (slice(ROWS[name]), slice(ROWS[name], None)))
        for noise in ("constant", "inputs", "auto"):
            model = HGPRegressor(noise=noise, random_state=0)
            spent = seconds(lambda m=model, t=train: m.fit(t[0], t[1]))
            print(f"{name}, {noise}: fit {spent:.1f} s; {scores(model, tuple(test))}", flush=True)
        for level in LEVELS[name] if name == "wave" else ():
            side, other = (part[3] == level for part in (train, test))
            model = HGPRegressor(random_state=0).fit(train[0][side], train[1][side])
            print(f"{name}, separate fit: {scores(model, tuple(part[other] for part in test))}", flush=True)


if __name__ == "__main__":
    main()
