"""Part 4: fit and predict with variance on robot arm rows, all defaults, against SVGP, GPBoost and nearest neighbours.

Errors are in units of the target's standard deviation, on 10,000 held-out rows. Each run has its own process and a time
limit. SVGP reports its held-out NLPD while it trains: what it has reached after our time (fit and predict), when it
reaches our NLPD, and its last value, converged or out of time. Its clock stops while the NLPD is computed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gigagp import HGPRegressor, metrics
from gigagp.datasets import robot_arm
from gigagp.memory import peak_memory
from measure import HERE, RESULTS, Timing, arguments, bar, save, seconds
from peers import SVGP, Answer, GPBoost, NearestNeighbours, Prediction

HELD_OUT = 10_000
PATIENCE = 20  # evaluations of SVGP, at least a third of its time, after which it must have gained
GAIN = 0.005  # nats per row that count as progress
START = 20  # seconds a process may take beyond its cap, for imports and data
BAR_ROWS = 1_000_000  # rows at which the bar is tested
BAR = 20.0  # least ratio of SVGP's time to ours


def standardised(n: int) -> tuple[np.ndarray, ...]:
    """Training inputs and targets, held-out inputs and targets, in standard deviations of the training targets."""
    X, y = robot_arm(n + HELD_OUT)
    X = (X - X[:n].mean(axis=0)) / X[:n].std(axis=0)
    y = (y - y[:n].mean()) / y[:n].std()
    return X[:n], y[:n], X[n:], y[n:]


def ours(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Prediction:
    model = HGPRegressor(random_state=0, n_jobs=2)
    fit = seconds(lambda: model.fit(X, y))
    answers: list[tuple[np.ndarray, np.ndarray]] = []
    predict = seconds(lambda: answers.append(model.predict(Z, return_std=True)))
    return Prediction(Answer(*answers[0]), fit, predict)


class Watch:
    """Prints SVGP's NLPD while it trains, one JSON value per line, so that a run that is stopped has reported it."""

    def __init__(self, truth: np.ndarray) -> None:
        self.truth, self.seen = truth, list[float]()

    def __call__(self, spent: float, mean: np.ndarray, std: np.ndarray) -> bool:
        reached = metrics.nlpd(self.truth, mean, std)
        print(json.dumps({"seconds": spent, "nlpd": reached, "rmse": metrics.rmse(self.truth, mean)}), flush=True)
        self.seen.append(reached)
        before, lately = self.seen[:-PATIENCE], self.seen[-PATIENCE:]
        return bool(before) and min(before) - min(lately) < GAIN


def one(who: str, n: int, cap: float) -> None:
    """One run. Standard output: the NLPDs of SVGP, and the result as the last line."""
    X, y, Z, truth = standardised(n)
    runs: dict[str, Callable[[], Prediction]] = {
        "GigaGP": lambda: ours(X, y, Z),
        SVGP.name: lambda: SVGP().run(X, y, Z, cap, Watch(truth)),
        GPBoost.name: lambda: GPBoost().run(X, y, Z, cap / 2),  # its predictions take as long
        NearestNeighbours.name: lambda: NearestNeighbours().run(X, y, Z, cap),
    }
    predicted = runs[who]()
    mean, std = predicted.answer.mean, predicted.answer.std
    result = {
        "fit_seconds": predicted.fit_seconds, "predict_seconds": predicted.predict_seconds,
        "seconds": predicted.fit_seconds + predicted.predict_seconds, "rmse": metrics.rmse(truth, mean),
        "nlpd": metrics.nlpd(truth, mean, std), "coverage95": metrics.coverage(truth, mean, std),
        "gb": peak_memory(), "done": True,
    }  # fmt: skip
    print(json.dumps(result), flush=True)


def in_its_own_process(who: str, n: int, cap: float) -> dict[str, Any]:
    """The result of a run, or how far it came; `trace` contains the NLPDs of SVGP."""
    command = [sys.executable, str(HERE / "end_to_end.py"), "--one", who, str(n), str(cap)]
    error = None
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=cap + START)
        output = done.stdout
        if done.returncode != 0:
            error = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except subprocess.TimeoutExpired as late:
        output, error = (late.stdout or b"").decode(), f"not done after {cap + START:.0f} s"
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    result = next((line for line in lines if line.get("done")), {})
    trace = [line for line in lines if not line.get("done")]
    return {"who": who, "n": n, "cap": cap, **result, "trace": trace, "error": error}


def print_row(row: dict[str, Any]) -> None:
    head = f"  N={row['n']:<9,} {row['who']:<18}"
    if "nlpd" in row:
        print(
            f"{head} fit {row['fit_seconds']:7.1f} s, predict {row['predict_seconds']:6.1f} s, RMSE {row['rmse']:.4f}, "
            f"NLPD {row['nlpd']:.3f}, {row['gb']:.1f} GB",
            flush=True,
        )
    else:
        print(f"{head} {row['error']}", flush=True)


def repeated(n: int, times: int, cap: float) -> dict[str, Any]:
    """Our run, the one of median time, with the quartiles of the times."""
    runs = sorted((in_its_own_process("GigaGP", n, cap) for _ in range(times)), key=lambda r: r["seconds"])
    timing = Timing.of([run["seconds"] for run in runs])
    return {**runs[len(runs) // 2], "low": timing.low, "high": timing.high, "repeats": times}


def against_svgp(n: int, mine: dict[str, Any], svgp: dict[str, Any]) -> dict[str, Any] | None:
    """SVGP's NLPD when our time is up, and how many times our time it needs to reach ours (or runs without)."""
    trace = svgp["trace"]
    if not trace:
        return None
    in_time = [look["nlpd"] for look in trace if look["seconds"] <= mine["seconds"]]
    reached = next((look["seconds"] for look in trace if look["nlpd"] <= mine["nlpd"]), None)
    spent = reached if reached is not None else trace[-1]["seconds"]
    comparison = {
        "n": n, "nlpd_at_our_time": in_time[-1] if in_time else None, "reached": reached is not None,
        "seconds": spent, "ratio": spent / mine["seconds"], "best_nlpd": min(look["nlpd"] for look in trace),
    }  # fmt: skip
    then = "nothing yet" if not in_time else f"{in_time[-1]:.3f}"
    how = "reaches ours after" if comparison["reached"] else "does not reach ours in"
    print(
        f"  N={n:,}: SVGP's NLPD when our {mine['seconds']:.1f} s are up: {then} (ours {mine['nlpd']:.3f}); "
        f"it {how} {spent:.0f} s, {comparison['ratio']:.1f} times our time; its best {comparison['best_nlpd']:.3f}",
        flush=True,
    )
    return comparison


def earlier_results(measured_anew: Iterable[int]) -> tuple[list[Any], list[Any], list[Any]]:
    """What earlier runs measured at other sizes."""
    path = RESULTS / "end_to_end.json"
    before = json.loads(path.read_text()) if path.exists() else {"rows": [], "against_svgp": [], "bars": []}
    anew = set(measured_anew)
    rows, versus = ([r for r in before[key] if r["n"] not in anew] for key in ("rows", "against_svgp"))
    return rows, versus, [] if BAR_ROWS in anew else before["bars"]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--one", nargs=3, help="for the processes of this program: who, rows, seconds allowed")
    parser.add_argument("--cap", type=float, help="seconds a peer may take, instead of the usual")
    parser.add_argument("--rows", type=int, nargs="*", help="only these sizes; of others what was measured is kept")
    options = parser.parse_args()
    if options.one:
        who, n, cap = options.one
        one(who, int(n), float(cap))
        return
    caps = {10_000: 300.0, 100_000: 600.0, 1_000_000: 900.0} if options.full else {10_000: 30.0, 100_000: 40.0}
    peers = [peer for peer in (SVGP, GPBoost, NearestNeighbours) if peer.available()]
    most = 100_000 if options.full else 10_000  # rows for GPBoost
    chosen = {n: cap for n, cap in caps.items() if not options.rows or n in options.rows}
    rows, versus, bars = earlier_results(chosen) if options.rows else ([], [], [])
    for n, usual in chosen.items():
        cap = options.cap or usual
        mine = repeated(n, 3 if options.full else 1, 900)
        print_row(mine)
        rows.append(mine)
        for peer in peers:
            if peer is GPBoost and n > most:
                print(f"  N={n:,}: GPBoost left out above {most:,} rows", flush=True)
                continue
            row = in_its_own_process(peer.name, n, cap)
            print_row(row)
            rows.append(row)
            comparison = against_svgp(n, mine, row) if peer is SVGP else None
            if comparison is not None:
                versus.append(comparison)
                if n == BAR_ROWS:
                    how = "needs for our NLPD" if comparison["reached"] else "runs without reaching our NLPD"
                    what = f"times our fit and predict, 1e6 rows, that SVGP-1024 {how}"
                    bars.append(bar(what, comparison["ratio"], BAR, at_least=True))
                    training = comparison["seconds"] / mine["fit_seconds"]
                    bars.append(bar(what.replace("fit and predict", "training alone"), training, BAR, at_least=True))
    order = {"rows": sorted(rows, key=lambda r: r["n"]), "against_svgp": sorted(versus, key=lambda v: v["n"])}
    save("end_to_end", {**order, "bars": bars})


if __name__ == "__main__":
    main()
