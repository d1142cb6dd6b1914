"""`gigagp benchmark`: how fast this machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import typer

from gigagp.cli import options
from gigagp.cli.display import display
from gigagp.cli.running import emit, table

EXAMPLE = options.example("gigagp benchmark -n 1000")

_LEAF, _MOST_POINTS, _LEAST_POINTS = 512, 65_536, 4_096
_SIZE, _PRODUCTS, _REPEATS = 1024, 2, 3
_MOST_QUERIES = 10_000


def command(
    rows: Annotated[str, typer.Option("--rows", "-n", help="How many rows to fit.")] = "100000",
    jobs: options.Jobs = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Measure how fast this machine is.

    The rate of training as a share of the machine's matrix products, and seconds to fit and predict robot arm data.
    """
    from gigagp import metrics
    from gigagp.datasets import robot_arm
    from gigagp.estimators.regressor import HGPRegressor

    count = options.row_count(rows, at_least=2)
    queries = min(_MOST_QUERIES, count)
    X, y = robot_arm(count + queries)
    with display() as progress:
        HGPRegressor(n_jobs=jobs, random_state=0).fit(*robot_arm(600)).predict(X[:600], return_std=True)  # compiles
        found = _evidence(min(_MOST_POINTS, max(_LEAST_POINTS, count)), jobs)
        model = HGPRegressor(n_jobs=jobs, random_state=0)
        found["fit_rows"] = count
        found["fit_seconds"] = _seconds(lambda: model.fit(X[:count], y[:count], progress=progress))
        start = time.perf_counter()
        mean, std = model.predict(X[count:], return_std=True)
        found["predict_rows"], found["predict_seconds"] = queries, time.perf_counter() - start
    found["rmse"], found["coverage_95"] = metrics.rmse(y[count:], mean), metrics.coverage(y[count:], mean, std)
    lines = [
        ["matrix products (DGEMM)", f"{found['gemm_gflops']:.0f} GFLOP/s", f"{found['workers']} workers"],
        ["evidence and gradient", f"{found['evidence_gflops']:.0f} GFLOP/s", f"{found['evidence_points']:,} points"],
        ["  share of DGEMM", f"{found['share_of_gemm']:.0%}", f"experts of {_LEAF}"],
        ["fit", f"{found['fit_seconds']:.2f} s", f"{count:,} rows"],
        ["predict", f"{found['predict_seconds']:.2f} s", f"{queries:,} rows"],
        ["RMSE", f"{found['rmse']:.4f}", "noise 0.01"],
        ["95% intervals cover", f"{found['coverage_95']:.1%}", ""],
    ]
    emit(as_json, found, table(["robot arm data", "measured", "with"], lines))


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _evidence(points: int, jobs: int | None) -> dict[str, Any]:
    """The rate of eq. 5 and its gradient, p^3 flops an expert of p points, beside DGEMM's in the same minute."""
    import joblib
    import numpy as np

    from gigagp.data.store import ExpertStore
    from gigagp.datasets import robot_arm
    from gigagp.engines import ThreadsEngine, one_blas_thread, open_engine
    from gigagp.fit.training import summed_evidence
    from gigagp.kernels import SquaredExponential
    from gigagp.partition import RandomPartition, Shape

    X, y = robot_arm(points)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    parts = RandomPartition().split(X, Shape(leaf_size=_LEAF), np.random.default_rng(0))
    store = ExpertStore.in_memory(X, y, parts.order)
    kernel = SquaredExponential(1.0, 1.5).bind(X.shape[1])
    theta = np.append(kernel.theta, np.log(0.01))
    flops = float((parts.cells.sizes.astype(float) ** 3).sum())
    G = np.random.default_rng(0).standard_normal((_SIZE, _SIZE))
    with one_blas_thread(), open_engine("threads", jobs) as engine:
        workers = engine.workers if isinstance(engine, ThreadsEngine) else int(joblib.cpu_count())
        evidence = summed_evidence(kernel, store, parts.cells, parts.tree, engine)
        evidence(theta, None)

        def products() -> None:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(lambda _: [G @ G for _ in range(_PRODUCTS)], range(workers)))

        products()
        rates, shares = [], []
        for _ in range(_REPEATS):
            gemm = workers * _PRODUCTS * 2.0 * _SIZE**3 / _seconds(products)
            rate = flops / _seconds(lambda: evidence(theta, None))
            rates.append((gemm, rate))
            shares.append(rate / gemm)
    gemm, rate = (float(each) for each in np.median(rates, axis=0))
    return {
        "workers": workers,
        "gemm_gflops": gemm / 1e9,
        "evidence_points": points,
        "evidence_gflops": rate / 1e9,
        "share_of_gemm": float(np.median(shares)),
    }
