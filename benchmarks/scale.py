"""Part 3, the paper's timing figure: LML + gradient for 2^10..2^24 points, D = 8, three-level tree, beside peers.

The paper's scheme: leaves of 512 up to 2^20 points and of 128 above. The exponent of time in N is fitted where leaves
are of 128 throughout, since the scheme changes the work of a point at 2^20; the scheme's own is given as well.
Beside it, a full GP (one expert on all rows) and FITC with 10% inducing inputs, as far as they go in the time allowed.
Every point is a process of its own, so its peak memory is its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from gigagp.engines import one_blas_thread
from gigagp.memory import peak_memory
from gigagp.paper import timing
from measure import HERE, Timing, arguments, bar, gemm_rate, save, seconds
from peers import FITC

WORKERS = 2
TIME_EXPONENT = 3  # of the peers, to know when to stop
MEMORY_EXPONENT = 2  # of the peers
MOST_GB = 12.0  # that a peer may take


def one(what: str, n: int, leaf: int) -> dict[str, Any]:
    """One point of the figure: seconds, peak memory, and the share of DGEMM with n leaf^2 flops as the floor.

    Repeated three to seven times; once where a peer takes longer than ten seconds.
    """
    leaves, share = n // leaf, None
    with timing.sparse_evidence(n) if what == "fitc" else timing.tree_evidence(n, leaf, WORKERS) as evidence:
        times = repeated(evidence, at_least=3 if what == "tree" else 1)
    gb = peak_memory()
    if what != "fitc":
        with one_blas_thread():
            rates = [gemm_rate("float64", WORKERS, times=8) for _ in range(3)]
        share = n * (n / leaves) ** 2 / float(np.median(times)) / float(np.median(rates))
    spread = Timing.of(times)
    return {
        "what": what, "n": n, "leaf": leaf, "leaves": leaves, "seconds": spread.median, "low": spread.low,
        "high": spread.high, "repeats": spread.repeats, "gb": gb, "share": share,
    }  # fmt: skip


def repeated(work: Callable[[], Any], at_least: int) -> list[float]:
    times: list[float] = []
    while len(times) < at_least or (len(times) < 7 and sum(times) < 3) or (len(times) < 3 and sum(times) < 10):
        times.append(seconds(work))
    return times


def in_its_own_process(what: str, n: int, leaf: int) -> dict[str, Any] | None:
    command = [sys.executable, str(HERE / "scale.py"), "--one", what, str(n), str(leaf)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"  {what} n={n}: failed\n{done.stderr[-500:]}", flush=True)
        return None
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    share = "" if row["share"] is None else f"  {row['share']:.1%} of DGEMM"
    size = f"2^{n.bit_length() - 1:<3} leaves of {leaf:<6}"
    print(f"  {what:<5} {size} {row['seconds']:9.4f} s  {row['gb']:6.2f} GB{share}", flush=True)
    return row


def peer(what: str, sizes: list[int], allowed: float) -> list[dict[str, Any]]:
    """Doubling until the next would take longer, or more memory, than allowed."""
    points: list[dict[str, Any]] = []
    for n in sizes:
        if points:
            last = points[-1]
            more = n / last["n"]
            if last["low"] * more**TIME_EXPONENT > allowed or last["gb"] * more**MEMORY_EXPONENT > MOST_GB:
                print(f"  {what} stops at 2^{last['n'].bit_length() - 1}", flush=True)
                break
        row = in_its_own_process(what, n, n)
        if row is None:
            break
        points.append(row)
    return points


def exponent(rows: list[dict[str, Any]]) -> float:
    slope, _ = np.polyfit(np.log([r["n"] for r in rows]), np.log([r["seconds"] for r in rows]), 1)
    return float(slope)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--one", nargs=3, help="for the processes of this program: what, rows, leaf size")
    options = parser.parse_args()
    if options.one:
        what, n, leaf = options.one
        print(json.dumps(one(what, int(n), int(leaf))))
        return
    powers = range(10, 25) if options.full else range(10, 19, 2)
    first = 16 if options.full else 14
    scheme, small = [], []
    for power in powers:
        leaf = timing.leaf_size(power)
        row = in_its_own_process("tree", 1 << power, leaf)
        scheme.append(row)
        if power >= first:
            small.append(row if leaf == timing.SMALL else in_its_own_process("tree", 1 << power, timing.SMALL))
    scheme, small = ([r for r in points if r is not None] for points in (scheme, small))
    sizes = [1 << power for power in range(10, 18)]
    allowed = 30.0 if options.full else 4.0
    full = peer("full", sizes, allowed)
    fitc = peer("fitc", sizes, allowed) if FITC.available() else []
    span = f"2^{first}..2^{powers[-1]}"
    of_scheme = exponent([r for r in scheme if r["n"] >= 1 << first])
    print(f"  exponent of the paper's scheme over {span}: {of_scheme:.3f} (its leaves shrink at 2^20)", flush=True)
    in_gemms = exponent([{**r, "seconds": r["n"] * r["leaf"] ** 2 / r["share"]} for r in small])
    print(f"  exponent with leaves of 128, in units of DGEMM's time in the same process: {in_gemms:.3f}", flush=True)
    bars = [bar(f"exponent of time in N, {span}, leaves of 128", exponent(small), 1.03, at_least=False)]
    for row in scheme:
        if row["n"] == 1 << 24:
            bars.append(bar("seconds, LML + gradient of 2^24 points", row["seconds"], 60.0, at_least=False))
            bars.append(bar("peak GB, LML + gradient of 2^24 points", row["gb"], 6.0, at_least=False))
    save(
        "scale",
        {
            "scheme": scheme, "leaves_of_128": small, "full": full, "fitc": fitc, "exponent_span": span,
            "exponent_of_scheme": of_scheme, "exponent": exponent(small), "exponent_in_gemms": in_gemms, "bars": bars,
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()
