"""Part 2: LML + gradient of one expert against the exact GPs of scikit-learn and GPyTorch, same data, same theta.

Everyone uses every core: ours as a fit does, one expert through the engine of threads, where idle workers take part in
its products. Ours and GPyTorch also run on one thread, for what that tells. Ratios and bars are to ours on every core.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from gigagp import expert
from gigagp.engines import Engine, SerialEngine, ThreadsEngine, one_blas_thread
from gigagp.kernels import SquaredExponential
from gigagp.tree import Tree
from measure import Timing, arguments, bar, gemm_rate, save, seconds
from peers import CORES, LML, GPyTorchExact, ScikitLearn

D = 8
MOST_GB = 6.0  # of scikit-learn's gradient tensors
BARS = {"scikit-learn": 10.0, "GPyTorch exact": 4.0}
BAR_AT = 2048
OURS = "GigaGP"
ALONE = "GigaGP, one thread"
THREADS = {OURS: CORES, ALONE: 1}


def ours(X: np.ndarray, y: np.ndarray, engine: Engine) -> LML:
    kernel, one_leaf = SquaredExponential(1.0, 1.5).bind(D), Tree.regular(1, 1)

    def value_and_gradient(theta: np.ndarray) -> tuple[float, np.ndarray]:
        with one_blas_thread():
            evidence = engine.sum(one_leaf, lambda _, work: expert.evidence(kernel, theta, X, y, work))
        return evidence.value, evidence.gradient

    return value_and_gradient


def peers_at(n: int, X: np.ndarray, y: np.ndarray, installed: list[Any]) -> dict[str, LML]:
    able = {}
    for peer in installed:
        if peer is ScikitLearn and ScikitLearn.gradient_gb(n, D) > MOST_GB:
            gigabytes = ScikitLearn.gradient_gb(n, D)
            print(f"  n={n}: scikit-learn left out: its gradient would take {gigabytes:.0f} GB", flush=True)
        else:
            able[peer.name] = peer.lml(X, y)
        if peer is GPyTorchExact:
            able["GPyTorch exact, one thread"] = GPyTorchExact.lml(X, y, threads=1)
    return able


def measure(n: int, repeats: int, installed: list[Any], engine: Engine) -> list[dict[str, Any]]:
    """Everyone in turn, `repeats` times; ratios are formed within a turn."""
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, D))
    y = np.sin(X.sum(axis=1)) + 0.1 * rng.standard_normal(n)
    theta = np.concatenate([[0.1], np.log(np.linspace(1.0, 3.0, D)), [np.log(0.05)]])
    methods = {OURS: ours(X, y, engine), ALONE: ours(X, y, SerialEngine()), **peers_at(n, X, y, installed)}
    results = {name: lml(theta) for name, lml in methods.items()}  # also the warm-up
    agree(n, results)
    times: dict[str, list[float]] = {name: [] for name in methods}
    shares: dict[str, list[float]] = {name: [] for name in THREADS}
    for _ in range(repeats):
        gc.collect()
        for name, lml in methods.items():
            times[name].append(seconds(lambda f=lml: f(theta)))
        with one_blas_thread():
            for name, threads in THREADS.items():
                shares[name].append(n**3 / times[name][-1] / gemm_rate("float64", threads))
    rows = []
    for name, spent in times.items():
        timing = Timing.of(spent)
        ratio = Timing.of([t / o for t, o in zip(spent, times[OURS], strict=True)])
        row = {
            "n": n, "who": name, "seconds": timing.median, "low": timing.low, "high": timing.high,
            "ratio": ratio.median, "ratio_low": ratio.low, "ratio_high": ratio.high,
        }  # fmt: skip
        row |= {"share": float(np.median(shares[name]))} if name in shares else {}
        rows.append(row)
        print(
            f"  n={n:<5} {name:<26} {timing.median:9.4f} s  {ratio.median:6.1f} times ours "
            f"(quartiles {ratio.low:.1f} to {ratio.high:.1f})",
            flush=True,
        )
    return rows


def agree(n: int, results: dict[str, tuple[float, np.ndarray]]) -> None:
    """Values to 1e-6, gradients to 1e-5 of the largest entry, or there is nothing to compare."""
    value, gradient = results[OURS]
    for name, (other, slope) in results.items():
        apart = abs(other - value) / abs(value)
        bent = np.abs(slope - gradient).max() / np.abs(gradient).max()
        assert apart < 1e-6, f"n={n}: the evidence of {name} differs by {apart:.1e}"
        assert bent < 1e-5, f"n={n}: the gradient of {name} differs by {bent:.1e}"


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    installed = [peer for peer in (ScikitLearn, GPyTorchExact) if peer.available()]
    rows = []
    with ThreadsEngine(CORES) as engine:
        for n in (512, 1024, 2048, 4096, 8192) if options.full else (512, 1024, 2048):
            rows += measure(n, 3 if n > 4096 else 7 if options.full else 5, installed, engine)
    at = {row["who"]: row["ratio"] for row in rows if row["n"] == BAR_AT}
    bars = [
        bar(f"{name} over one expert, n={BAR_AT}, LML + gradient", at[name], bound, at_least=True)
        for name, bound in BARS.items()
        if name in at
    ]
    save("exact_gp", {"rows": rows, "bars": bars})


if __name__ == "__main__":
    main()
