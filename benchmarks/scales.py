"""Functions with a long and a short scale: does a fit with default settings find both?

Grids of two to four columns, a short wave along one of many columns, one-hot columns, and columns of very different
relevance. The reference is the best theta that a pattern search on held-out training rows finds, from our theta and
from one that is written by hand, for predictions from the same number of neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gigagp import HGPRegressor
from gigagp.engines import one_blas_thread, open_engine
from gigagp.fit.committee_assembly import Extents
from gigagp.model import neighbourhood
from measure import arguments, bar, save

Table = tuple[np.ndarray, np.ndarray]
_NOISE = 0.02
_HELD_OUT = 0.1
_QUERIES = 20_000
_SEARCH_ROWS = 500
_STEPS = (np.log(2.0), np.log(1.4))  # of the pattern search, in log-parameters


def grid(seed: int, sizes: tuple[int, ...]) -> Table:
    """Longitude, latitude, days and levels: cos(4 latitude) and 60 short waves."""
    rng = np.random.default_rng(seed)
    axes = [np.arange(sizes[0]) * 360 / sizes[0], np.linspace(-90, 90, sizes[1])]
    axes += [np.arange(size, dtype=float) for size in sizes[2:]]
    X = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    waves = np.zeros(len(X))
    for _ in range(60):
        k, spread, speed = rng.integers(4, 24), 8 * rng.standard_normal(), 1.5 * rng.standard_normal(len(sizes) - 2)
        phase, size = rng.uniform(0, 2 * np.pi), rng.exponential()
        waves += size * np.sin(np.radians(k * X[:, 0] + 2 * spread * X[:, 1]) + X[:, 2:] @ speed + phase)
    y = np.cos(np.radians(4 * X[:, 1])) + 0.6 * waves / waves.std()
    return X, y / y.std() + _NOISE * rng.standard_normal(len(y))


def one_short_wave(seed: int) -> Table:
    """A wave of 50 radians per deviation along one of ten columns, on top of a slow one along another."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((300_000, 10))
    y = np.cos(X[:, 0]) + np.sin(50 * X[:, 1])
    return X, y / y.std() + _NOISE * rng.standard_normal(len(y))


def one_hot(seed: int) -> Table:
    """Six numbers and 44 indicator columns; every category shifts a short wave."""
    rng = np.random.default_rng(seed)
    numbers, kind = rng.standard_normal((200_000, 6)), rng.choice(44, 200_000, p=rng.dirichlet(np.full(44, 0.5)))
    y = np.sin(2 * numbers[:, 0] + kind) + 0.5 * np.sin(12 * numbers[:, 1]) + 0.3 * rng.standard_normal(44)[kind]
    return np.hstack([numbers, np.eye(44)[kind]]), y / y.std() + _NOISE * rng.standard_normal(len(y))


def unequal(seed: int) -> Table:
    """Columns whose length-scales differ by factors of four, and two that do not matter."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (200_000, 6))
    y = np.sin(20 * X[:, 0]) + np.sin(5 * X[:, 1] + X[:, 0]) + 0.5 * np.sin(1.2 * X[:, 2]) + 0.2 * X[:, 3]
    return X, y / y.std() + _NOISE * rng.standard_normal(len(y))


CASES: dict[str, Callable[[int], Table]] = {
    "grid of 3 columns": lambda seed: grid(seed, (144, 73, 132)),
    "grid of 2 columns": lambda seed: grid(seed, (1152, 720)),
    "grid of 4 columns": lambda seed: grid(seed, (72, 37, 20, 16)),
    "one short wave of 10 columns": one_short_wave,
    "44 indicator columns": one_hot,
    "unequal columns": unequal,
}
FULL_SEEDS = {"grid of 3 columns": (0, 1, 2, 3)}
_LARGEST_RMSE = 0.035  # of the first grid
_LONGEST_FIT = 40.0  # seconds, of the first grid
_WITHIN = 1.10  # times the RMSE of the best theta found by a search


def search(model: HGPRegressor, rounds: int) -> tuple[Any, float]:
    """The neighbourhood at the best theta of a pattern search, judged by held-out training rows."""
    near = model.model_.neighbourhood
    store, cells = near.store, near.cells
    rows = np.unique(np.random.default_rng(1).integers(len(store.y), size=_SEARCH_ROWS))
    X, y = store.gather(rows)
    box = Extents.of(store, cells)

    def at(theta: np.ndarray) -> Any:
        metric = near.kernel.metric(theta[:-1])
        return replace(near, theta=theta, router=box.router(np.broadcast_to(metric, (X.shape[1],)), True))

    def loss(theta: np.ndarray) -> float:
        prediction = neighbourhood.predict(at(theta), np.ascontiguousarray(X), engine, False, held_out=rows)
        return float(np.sqrt(np.mean((prediction.mean - y) ** 2)))

    with one_blas_thread(), open_engine("threads", None) as engine:
        theta = near.theta.copy()
        best = loss(theta)
        free = [i for i, name in enumerate(near.kernel.names) if "lengthscale" in name and np.exp(theta[i]) < 100]
        for step in _STEPS[:rounds]:
            for i in [*free, len(theta) - 1]:
                for sign in (-1, 1):
                    other = theta.copy()
                    other[i] += sign * step
                    score = loss(other)
                    if score < best:
                        theta, best = other, score
    return at(theta), best


def measured(name: str, seed: int, rounds: int) -> dict[str, Any]:
    X, y = CASES[name](seed)
    rng = np.random.default_rng(seed)
    test = rng.random(len(y)) < _HELD_OUT
    queries = rng.permutation(np.flatnonzero(test))[:_QUERIES]
    begun = time.perf_counter()
    model = HGPRegressor(random_state=0).fit(X[~test], y[~test])
    took = time.perf_counter() - begun
    distribution = model.predict_distribution(X[queries])
    error = float(np.sqrt(np.mean((distribution.mean - y[queries]) ** 2)))
    row = {
        "case": name, "seed": seed, "rows": int((~test).sum()), "seconds": took, "rmse": error,
        "nlpd": float(-distribution.log_pdf(y[queries]).mean()),
        "within_95": float(np.mean(np.abs(2 * distribution.cdf(y[queries]) - 1) < 0.95)),
        "theta": dict(zip(model.report_.names, np.exp(model.report_.theta).tolist(), strict=True)),
        "start": next((c.name for c in model.report_.choices if c.what == "start" and c.chosen), "none"),
        "warnings": [str(warning) for warning in model.report_.warnings],
    }  # fmt: skip
    if model.model_.neighbourhood is not None:
        near, _ = search(model, rounds)
        Z = model.model_.inputs.apply(X[queries], near.store.X.dtype)
        with one_blas_thread(), open_engine("threads", None) as engine:
            mean = neighbourhood.predict(near, np.ascontiguousarray(Z), engine, False).mean
        target = model.model_.target
        row["searched_rmse"] = float(np.sqrt(np.mean((mean * target.scale[0] + target.centre[0] - y[queries]) ** 2)))
    print(
        f"  {name}, seed {seed}: {row['rows']:,} rows, fit {took:.1f} s, RMSE {error:.4f} "
        f"(searched theta {row.get('searched_rmse', np.nan):.4f}), NLPD {row['nlpd']:.3f}, 95% intervals cover "
        f"{row['within_95']:.1%}, start: {row['start']}",
        flush=True,
    )
    return row


def main() -> None:
    parser = arguments((__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES), help="default all")
    options = parser.parse_args()
    rows, bars = [], []
    for name in options.cases:
        for seed in FULL_SEEDS.get(name, (0,)) if options.full else (0,):
            row = measured(name, seed, len(_STEPS) if options.full else 1)
            rows.append(row)
            if name == "grid of 3 columns" and seed == 0:
                bars.append(bar("RMSE of the two-scale grid", row["rmse"], _LARGEST_RMSE, at_least=False))
                bars.append(bar("seconds to fit the two-scale grid", row["seconds"], _LONGEST_FIT, at_least=False))
            if "searched_rmse" in row:
                ratio = row["rmse"] / row["searched_rmse"]
                bars.append(
                    bar(f"RMSE over that of the searched theta, {name}, seed {seed}", ratio, _WITHIN, at_least=False)
                )
    save("scales", {"rows": rows, "bars": bars})


if __name__ == "__main__":
    main()
