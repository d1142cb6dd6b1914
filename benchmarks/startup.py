"""Part 6: import time, the first fit in a fresh process with a warm cache, and what a second process compiles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from measure import Timing, arguments, bar, save

IMPORT = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"
FIT = """
import json, sys, time
import numpy as np
start = time.perf_counter()
from gigagp import HGPRegressor
imported = time.perf_counter() - start
from numba.core.dispatcher import Dispatcher

rng = np.random.default_rng(0)
X = rng.standard_normal((2000, 8))
y = np.sin(X.sum(axis=1)) + 0.1 * rng.standard_normal(2000)
def fit_and_predict():
    start = time.perf_counter()
    model = HGPRegressor(random_state=0).fit(X, y)
    model.predict(X[:100], return_std=True)
    return time.perf_counter() - start
first, again = fit_and_predict(), fit_and_predict()
found = {
    id(thing): thing
    for name, module in list(sys.modules.items()) if name.startswith("gigagp")
    for thing in vars(module).values() if isinstance(thing, Dispatcher)
}
misses = sum(sum(f.stats.cache_misses.values()) for f in found.values())
hits = sum(sum(f.stats.cache_hits.values()) for f in found.values())
print(json.dumps({"import": imported, "first": first, "again": again, "compiled": misses, "loaded": hits}))
"""


def in_a_fresh_process(code: str, cache: str | None = None) -> str:
    environment = {**os.environ, **({"NUMBA_CACHE_DIR": cache} if cache else {})}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def imports(repeats: int) -> dict[str, Any]:
    """The two imports in turn; the first turn only warms the disk."""
    names = ("gigagp", "sklearn.gaussian_process")
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats + 1):
        for name in names:
            spent = float(in_a_fresh_process(IMPORT.format(name)))
            if turn:
                times[name].append(spent)
    ours, theirs = (Timing.of(times[name]) for name in names)
    ratio = Timing.of([a / b for a, b in zip(*times.values(), strict=True)])
    print(
        f"  import gigagp {ours.median:.3f} s, sklearn.gaussian_process {theirs.median:.3f} s, "
        f"ratio {ratio.median:.2f} (quartiles {ratio.low:.2f} to {ratio.high:.2f})",
        flush=True,
    )
    return {
        "gigagp": ours.median,
        "sklearn": theirs.median,
        "ratio": ratio.median,
        "low": ratio.low,
        "high": ratio.high,
    }


def fits(repeats: int) -> dict[str, Any]:
    """A process that compiles into an empty cache, and processes that find it filled."""
    with tempfile.TemporaryDirectory() as cache:
        cold = json.loads(in_a_fresh_process(FIT, cache))
        warm = [json.loads(in_a_fresh_process(FIT, cache)) for _ in range(repeats)]
    firsts, agains = (Timing.of([w[key] for w in warm]) for key in ("first", "again"))
    excess = Timing.of([w["first"] - w["again"] for w in warm])
    print(
        f"  first fit and predict of 2,000 rows: {cold['first']:.2f} s with an empty cache "
        f"({cold['compiled']} compiled), {firsts.median:.2f} s with a warm one, {agains.median:.2f} s the second time",
        flush=True,
    )
    return {
        "cold": cold["first"], "compiled_by_first": cold["compiled"],
        "warm": firsts.median, "warm_low": firsts.low, "warm_high": firsts.high, "again": agains.median,
        "loading": excess.median, "compiled_by_second": max(w["compiled"] for w in warm), "loaded": warm[0]["loaded"],
    }  # fmt: skip


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    imported, fitted = imports(15 if options.full else 7), fits(7 if options.full else 3)
    bars = [
        bar("import gigagp over import sklearn.gaussian_process", imported["ratio"], 1.5, at_least=False),
        bar("functions compiled in a second process", fitted["compiled_by_second"], 0, at_least=False),
    ]
    save("startup", {"import": imported, "fit": fitted, "bars": bars})


if __name__ == "__main__":
    main()
