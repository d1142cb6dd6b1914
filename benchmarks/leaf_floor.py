"""Part 1: evidence + gradient of one leaf against the floor, p^3 flops at GEMM's rate measured in the same run."""

from __future__ import annotations

from typing import Any

import numpy as np

from gigagp import expert
from gigagp.engines import one_blas_thread
from gigagp.kernels import SquaredExponential
from gigagp.linalg.workspace import Workspace
from measure import Timing, arguments, bar, gemm_rate, save, side_by_side

D = 8


def measure(p: int, dtype: str, workers: int, repeats: int) -> dict[str, Any]:
    """Seconds a leaf and the share of GEMM's rate, GEMM and leaves measured in turn."""
    rng = np.random.default_rng(p)
    X = rng.standard_normal((p, D)).astype(dtype)
    y = np.sin(X.sum(axis=1)).astype(dtype)
    kernel = SquaredExponential(1.0, 1.5).bind(D)
    theta = np.append(kernel.theta, np.log(0.05))
    times = max(4, int(2e9 / p**3))  # long enough for caches and clock to settle
    works = [Workspace() for _ in range(workers)]

    def leaves(work: Workspace) -> None:
        for _ in range(times):
            expert.evidence(kernel, theta, X, y, work)

    leaves(works[0])
    spent, shares = [], []
    for _ in range(repeats):
        rate = gemm_rate(dtype, workers)
        leaf = side_by_side([lambda w=w: leaves(w) for w in works]) / times
        spent.append(leaf)
        shares.append(workers * p**3 / leaf / rate)
    timing = Timing.of(spent)
    return {
        "p": p, "dtype": dtype, "workers": workers, "seconds": timing.median, "low": timing.low, "high": timing.high,
        "share": float(np.median(shares)), "leaves_per_second": workers / timing.median,
    }  # fmt: skip


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    sizes = (64, 128, 256, 512, 1024, 2048) if options.full else (128, 256, 512, 1024)
    rows = []
    with one_blas_thread():
        for dtype in ("float64", "float32"):
            for p in sizes:
                for workers in (1, 2):
                    row = measure(p, dtype, workers, 15 if options.full else 7)
                    rows.append(row)
                    print(
                        f"  {dtype} p={p:<5} workers={workers}  {1e3 * row['seconds']:8.3f} ms per leaf  "
                        f"{row['share']:.1%} of GEMM's rate",
                        flush=True,
                    )

    def of(p: int, dtype: str, workers: int) -> dict[str, Any]:
        return next(r for r in rows if (r["p"], r["dtype"], r["workers"]) == (p, dtype, workers))

    bars = [
        bar(f"share of two-core DGEMM, two workers, p={p}", of(p, "float64", 2)["share"], bound, at_least=True)
        for p, bound in ((128, 0.30), (256, 0.45), (512, 0.60), (1024, 0.75))
    ]
    bars += [
        bar(
            f"float32 over float64, two workers, p={p}",
            of(p, "float64", 2)["seconds"] / of(p, "float32", 2)["seconds"], 1.7, at_least=True,
        )
        for p in (256, 512, 1024)
    ]  # fmt: skip
    bars += [
        bar(
            f"two workers over one, p={p}",
            of(p, "float64", 2)["leaves_per_second"] / of(p, "float64", 1)["leaves_per_second"], 1.8, at_least=True,
        )
        for p in (128, 256, 512, 1024)
    ]  # fmt: skip
    save("leaf_floor", {"rows": rows, "bars": bars})


if __name__ == "__main__":
    main()
