"""`gigagp benchmark`: measure the speed of this machine."""

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

_LEAF_SIZE = 512  # rows per expert in the measurement of the evidence
_MIN_EVIDENCE_ROWS = 4_096
_MAX_EVIDENCE_ROWS = 65_536
_MATRIX_SIZE = 1024  # rows and columns of the matrices that are multiplied
_PRODUCTS = 2  # matrix products per worker and repeat
_REPEATS = 3
_MAX_QUERIES = 10_000


def command(
    rows: Annotated[str, typer.Option("--rows", "-n", help="Number of rows to fit.")] = "100000",
    jobs: options.Jobs = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Measure the speed of this machine.

    Reports the rate of training relative to matrix products, and the seconds to fit and predict robot arm data.
    """
    from gigagp import metrics
    from gigagp.datasets import robot_arm
    from gigagp.estimators.regressor import HGPRegressor

    count = options.row_count(rows, at_least=2)
    queries = min(_MAX_QUERIES, count)
    X, y = robot_arm(count + queries)
    with display() as progress:
        HGPRegressor(n_jobs=jobs, random_state=0).fit(*robot_arm(600)).predict(
            X[:600], return_std=True
        )  # compile first
        results = _evidence_rate(min(_MAX_EVIDENCE_ROWS, max(_MIN_EVIDENCE_ROWS, count)), jobs)
        model = HGPRegressor(n_jobs=jobs, random_state=0)
        results["fit_rows"] = count
        results["fit_seconds"] = _seconds(lambda: model.fit(X[:count], y[:count], progress=progress))
        start = time.perf_counter()
        mean, std = model.predict(X[count:], return_std=True)
        results["predict_rows"], results["predict_seconds"] = queries, time.perf_counter() - start
    results["rmse"], results["coverage_95"] = metrics.rmse(y[count:], mean), metrics.coverage(y[count:], mean, std)
    lines = [
        ["matrix products (DGEMM)", f"{results['gemm_gflops']:.0f} GFLOP/s", f"{results['workers']} workers"],
        [
            "evidence and gradient",
            f"{results['evidence_gflops']:.0f} GFLOP/s",
            f"{results['evidence_points']:,} points",
        ],
        ["  share of DGEMM", f"{results['share_of_gemm']:.0%}", f"experts of {_LEAF_SIZE}"],
        ["fit", f"{results['fit_seconds']:.2f} s", f"{count:,} rows"],
        ["predict", f"{results['predict_seconds']:.2f} s", f"{queries:,} rows"],
        ["RMSE", f"{results['rmse']:.4f}", "noise 0.01"],
        ["coverage of 95% intervals", f"{results['coverage_95']:.1%}", ""],
    ]
    emit(as_json, results, table(["robot arm data", "measured", "with"], lines))


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _evidence_rate(points: int, jobs: int | None) -> dict[str, Any]:
    """The rate of the evidence (eq. 5) and its gradient, p^3 flops per expert of p rows, and that of DGEMM."""
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
    parts = RandomPartition().split(X, Shape(leaf_size=_LEAF_SIZE), np.random.default_rng(0))
    store = ExpertStore.in_memory(X, y, parts.order)
    kernel = SquaredExponential(1.0, 1.5).bind(X.shape[1])
    theta = np.append(kernel.theta, np.log(0.01))
    flops = float((parts.cells.sizes.astype(float) ** 3).sum())
    G = np.random.default_rng(0).standard_normal((_MATRIX_SIZE, _MATRIX_SIZE))
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
            gemm = workers * _PRODUCTS * 2.0 * _MATRIX_SIZE**3 / _seconds(products)
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
