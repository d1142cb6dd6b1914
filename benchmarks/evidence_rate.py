"""LML + gradient of 65,536 points, D = 8, leaves of 128 to 1,024, through the engine, as a share of two-core DGEMM.

Evaluations follow each other as in training, for about as long as the products with which they are compared. A single
one at leaves of 128 takes some 15 ms. Where another process has one of the cores, even one of low priority, Linux may
need longer than that to move one of two workers that it has woken on the same core.
"""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from gigagp.data.store import ExpertStore
from gigagp.datasets import robot_arm
from gigagp.engines import Engine, one_blas_thread, open_engine
from gigagp.fit.training import summed_evidence
from gigagp.kernels import SquaredExponential
from gigagp.partition import RandomPartition, Shape
from measure import Timing, arguments, bar, gemm_rate, save, seconds

ROWS = 65_536
COLUMNS = 8
PRODUCTS = 8  # DGEMMs per core and repeat
SECONDS = 0.15  # of evaluations per repeat, at least: about as long as the products take
SHARES = {128: 0.30, 256: 0.45, 512: 0.60, 1024: 0.75}  # leaf size -> bar


def measured(leaf: int, engine: Engine, repeats: int) -> dict[str, Any]:
    """Seconds of one evaluation, and its share of DGEMM's rate, each measured in turn."""
    X, y = robot_arm(ROWS)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    partition = RandomPartition().split(X, Shape(leaf_size=leaf), np.random.default_rng(0))
    store = ExpertStore.in_memory(X, y, partition.order)
    kernel = SquaredExponential(1.0, 1.5).bind(COLUMNS)
    theta = np.append(kernel.theta, np.log(0.01))
    evidence = summed_evidence(kernel, store, partition.cells, partition.tree, engine)
    evidence(theta, None)
    together = ceil(SECONDS / seconds(lambda: evidence(theta, None)))

    def evaluate() -> None:
        for _ in range(together):
            evidence(theta, None)

    shares, times = [], []
    for _ in range(repeats):
        rate = gemm_rate("float64", 2, times=PRODUCTS)
        times.append(seconds(evaluate) / together)
        shares.append(ROWS * leaf**2 / times[-1] / rate)
    timing = Timing.of(times)
    low, high = np.percentile(shares, [25, 75])
    print(f"  leaves of {leaf}: {timing.median:.3f} s; share of DGEMM: quartiles {low:.1%} to {high:.1%}", flush=True)
    what = f"share of two-core DGEMM, {ROWS:,} points, leaves of {leaf}"
    result = bar(what, float(np.median(shares)), SHARES[leaf], at_least=True)
    return {"leaf": leaf, "seconds": timing.median, "shares": shares, "bar": result}


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    with one_blas_thread(), open_engine("threads", 2) as engine:
        rows = [measured(leaf, engine, 15 if options.full else 7) for leaf in SHARES]
    usual = next(row for row in rows if row["leaf"] == 512)
    save("evidence_rate", {"seconds": usual["seconds"], "shares": usual["shares"], "rows": rows,
                           "bars": [row["bar"] for row in rows]})  # fmt: skip


if __name__ == "__main__":
    main()
