"""Part 5: the cost of a query at N = 1e5, 1e6, 1e7 training rows of the robot arm, by the committee
of experts (benchmarks/neighbourhood.py measures the other way to answer).

few, cold: 64 queries in batches of 8 that have no expert in common with any other, so that every expert is
factored for them alone (fewer where there are not experts enough; four answer a query).
few, warm: each batch again, at once.
many: 20,000 queries in one call (2,000 of 1e7 rows), which share experts where they can: the more, the fewer rows
there are.
Each N is a process of its own; costs are compared in flops of DGEMM, whose rate is measured after every batch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np

from gigagp import HGPRegressor
from gigagp.datasets import robot_arm
from gigagp.engines import one_blas_thread
from gigagp.memory import peak_memory
from measure import HERE, Timing, arguments, bar, gemm_rate, save, seconds

FEW = 64  # queries
BATCH = 8  # queries per call
MANY = 20_000  # queries
MANY_SHARE = 1_000_000  # rows up to which many queries share experts
EXPERTS = 4  # that answer a query, by default
Costs = tuple[list[float], list[float]]


def apart(model: HGPRegressor, Z: np.ndarray) -> np.ndarray:
    """Queries, up to FEW of them, that are answered by different experts."""
    router = model.model_.committee.router
    nearest = router.nearest(model.model_.inputs.apply(Z, np.dtype(float)), EXPERTS).experts
    used: set[int] = set()
    chosen: list[int] = []
    for query, experts in enumerate(nearest):
        if len(chosen) < FEW and used.isdisjoint(experts.tolist()):
            used.update(experts.tolist())
            chosen.append(query)
    return Z[chosen[: len(chosen) // (2 * BATCH) * 2 * BATCH]]


def each(model: HGPRegressor, batches: list[np.ndarray], with_variance: bool) -> Costs:
    """For each batch, seconds per query and the flops of DGEMM in the same time, measured directly afterwards."""
    spent, flops = [], []
    for batch in batches:
        spent.append(seconds(lambda b=batch: model.predict(b, return_std=with_variance)) / len(batch))
        with one_blas_thread():
            flops.append(spent[-1] * gemm_rate("float64", 2))
    return spent, flops


def cold_and_warm(model: HGPRegressor, batches: list[np.ndarray], with_variance: bool) -> tuple[Costs, Costs]:
    """Each batch twice in succession: the second time its factors may still be in memory."""
    spent, flops = each(model, [b for batch in batches for b in (batch, batch)], with_variance)
    return (spent[::2], flops[::2]), (spent[1::2], flops[1::2])


def one(n: int, repeats: int) -> dict[str, Any]:
    X, y = robot_arm(n + MANY)
    Z = X[n:].copy()
    model = HGPRegressor(method="committee", random_state=0, n_jobs=2)
    fit = seconds(lambda: model.fit(X[:n], y[:n]))
    X = y = np.empty(0)
    fitted = peak_memory()
    model.predict(Z[:1], return_std=True)  # loads the compiled code
    far = apart(model, Z[1:])
    batches = [far[a : a + BATCH] for a in range(0, len(far), BATCH)]
    half = len(batches) // 2  # means and standard deviations use different experts, so that both are cold
    variance, mean = (cold_and_warm(model, *part) for part in ((batches[:half], True), (batches[half:], False)))
    many = Z if n <= MANY_SHARE else Z[: MANY // 10]
    costs: dict[str, Costs] = {
        "few, cold, with variance": variance[0],
        "few, cold, mean only": mean[0],
        "few, warm, with variance": variance[1],
        "few, warm, mean only": mean[1],
        "many, with variance": each(model, [many] * repeats, True),
        "many, mean only": each(model, [many] * repeats, False),
    }
    queries = []
    for what, (spent, flops) in costs.items():
        timing = Timing.of(spent)
        row = {"what": what, "seconds": timing.median, "low": timing.low, "high": timing.high}
        queries.append({**row, "flops": float(np.median(flops))})
    return {
        "n": n, "leaves": model.n_leaves_, "fit_seconds": fit, "few": len(far), "many": len(many), "queries": queries,
        "gb_fit": fitted, "gb": peak_memory(),
    }  # fmt: skip


def in_its_own_process(n: int, repeats: int) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "prediction.py"), "--one", str(n), str(repeats)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(
        f"  N={n:,}: {row['leaves']:,} experts, fit {row['fit_seconds']:.1f} s, "
        f"peak {row['gb_fit']:.2f} GB after the fit, {row['gb']:.2f} GB after {row['many']:,} queries",
        flush=True,
    )
    for q in row["queries"]:
        print(
            f"    {q['what']:<25} {1e3 * q['seconds']:9.3f} ms per query "
            f"(quartiles {1e3 * q['low']:.3f} to {1e3 * q['high']:.3f}), {1 / q['seconds']:9,.0f} a second",
            flush=True,
        )
    return row


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--one", nargs=2, type=int, help="for the processes of this program: rows, repeats")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one)))
        return
    sizes = (100_000, 1_000_000, 10_000_000) if options.full else (100_000, 1_000_000)
    rows = [in_its_own_process(n, 3 if options.full and n <= MANY_SHARE else 1) for n in sizes]
    of_first, of_last = ({q["what"]: q["flops"] for q in rows[i]["queries"]} for i in (0, -1))
    ratios = {what: of_last[what] / of_first[what] for what in of_first}
    span = f"N={sizes[-1]:.0e} over N={sizes[0]:.0e}".replace("e+0", "e")
    for what, ratio in ratios.items():
        print(f"  {span}, {what}: {ratio:.2f}", flush=True)
    bars = [
        bar(f"cost of a query, {span}, {what}", ratios[what], 1.5, at_least=False)
        for what in ("few, cold, with variance", "few, cold, mean only")
    ]
    save("prediction", {"rows": rows, "span": span, "ratios": ratios, "bars": bars})


if __name__ == "__main__":
    main()
