"""Why the leaf has matrix products and a factorisation of its own: theirs and the libraries', one thread, one run."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from gigagp.engines import one_blas_thread
from gigagp.linalg import cholesky, leaf
from gigagp.linalg.gemm import FULL, multiply
from gigagp.linalg.workspace import Workspace
from measure import arguments, bar, save, seconds

DOUBLE = np.dtype(float)


def rates(flops: float, works: dict[str, Any], repeats: int) -> dict[str, float]:
    """GFLOP/s of each work, measured in turn, medians."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(seconds(work))
    return {name: flops / float(np.median(t)) / 1e9 for name, t in times.items()}


def products(n: int, repeats: int) -> dict[str, float]:
    """n x n blocks inside matrices of twice the size: A B and A^T B, ours and NumPy's BLAS."""
    work, stride = Workspace(), cholesky.stride(2 * n)
    A, B, C = (work.take(name, 2 * n, stride, DOUBLE) for name in "ABC")
    A[:], B[:] = np.random.default_rng(0).standard_normal((2, 2 * n, stride))
    a, b, out, times = A[:n, :n], B[:n, :n], np.empty((n, n)), max(1, 64_000_000 // n**3)

    def ours(transposed: bool) -> None:
        for _ in range(times):
            multiply(1.0, A, 0, 0, transposed, B, 0, 0, 0.0, C, 0, 0, n, n, n, FULL)

    def blas(left: Any) -> None:
        for _ in range(times):
            np.matmul(left, b, out=out)

    ours(True)
    works = {
        "A B": lambda: ours(False), "A^T B": lambda: ours(True), "BLAS A B": lambda: blas(a),
        "BLAS A^T B": lambda: blas(a.T),
    }  # fmt: skip
    return rates(times * 2.0 * n**3, works, repeats)


def factorisation(p: int, repeats: int) -> dict[str, float]:
    """Factor and inverse, p^3 flops together: ours, LAPACK's potrf + potri, and GEMM's rate beside them."""
    K = np.exp(-5 * np.abs(np.subtract.outer(*[np.linspace(0, 1, p)] * 2))) + 0.1 * np.eye(p)
    _, A, T, D = leaf.buffers(p, DOUBLE, Workspace())
    G = np.random.default_rng(0).standard_normal((1024, 1024))

    def ours() -> None:
        A[:, :p] = K
        cholesky.factor(A, D, p)
        cholesky.inverse(A, D, T, p)

    def lapack() -> None:
        dpotri(dpotrf(K)[0])

    ours()
    ours_and_lapack = rates(float(p) ** 3, {"ours": ours, "potrf + potri": lapack}, repeats)
    return {**ours_and_lapack, **rates(2.0 * 1024**3, {"DGEMM": lambda: G @ G}, repeats)}


def main() -> None:
    repeats = 25 if arguments(__doc__ or "").parse_args().full else 9
    rows = []
    with one_blas_thread():
        for what, measured, sizes in (
            ("block", products, (64, 128, 256, 512)),
            ("leaf", factorisation, (128, 256, 512, 1024)),
        ):
            for size in sizes:
                row = measured(size, repeats)
                rows.append({"what": what, "size": size, **row})
                print(
                    f"  {what} of {size:<5}" + "  ".join(f"{k} {v:.1f}" for k, v in row.items()) + " GFLOP/s",
                    flush=True,
                )
    bars = [
        bar(f"{way} of blocks of {row['size']}, ours over BLAS", row[way] / row[f"BLAS {way}"], 0.95, at_least=True)
        for row in rows
        if row["what"] == "block"
        for way in ("A B", "A^T B")
    ]
    save("products", {"rows": rows, "bars": bars})


if __name__ == "__main__":
    main()
