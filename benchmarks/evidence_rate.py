"""LML + gradient of 65,536 points, D = 8, leaves of 512, through the engine, as a share of two-core DGEMM."""

from __future__ import annotations

import numpy as np

from gigagp.data.store import ExpertStore
from gigagp.datasets import robot_arm
from gigagp.engines import one_blas_thread, open_engine
from gigagp.kernels import SquaredExponential
from gigagp.partition import RandomPartition, Shape
from gigagp.training import summed_evidence
from measure import Timing, arguments, bar, gemm_rate, save, seconds

N, LEAF, D = 65_536, 512, 8


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    X, y = robot_arm(N)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    partition = RandomPartition().split(X, Shape(leaf_size=LEAF), np.random.default_rng(0))
    store = ExpertStore.in_memory(X, y, partition.order)
    kernel = SquaredExponential(1.0, 1.5).bind(D)
    theta = np.append(kernel.theta, np.log(0.01))
    shares, taken = [], []
    with one_blas_thread(), open_engine("threads", 2) as engine:
        evidence = summed_evidence(kernel, store, partition.cells, partition.tree, engine)
        evidence(theta, None)
        for _ in range(15 if options.full else 7):
            rate = gemm_rate("float64", 2, times=8)
            spent = seconds(lambda: evidence(theta, None))
            taken.append(spent)
            shares.append(N / LEAF * LEAF**3 / spent / rate)
    timing = Timing.of(taken)
    low, high = np.percentile(shares, [25, 75])
    print(f"  {timing.median:.3f} s for {N:,} points; share of DGEMM: quartiles {low:.1%} to {high:.1%}", flush=True)
    result = bar("share of two-core DGEMM, 65,536 points, leaves of 512", float(np.median(shares)), 0.35, at_least=True)
    save("evidence_rate", {"seconds": timing.median, "shares": shares, "bars": [result]})


if __name__ == "__main__":
    main()
