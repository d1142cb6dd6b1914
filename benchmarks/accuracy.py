"""Accuracy with defaults against every peer, on the same rows.

Each run is a process of its own. Targets are in units of the training rows' deviation; so are inputs, except ours,
which we take raw. Where a set has more than 100,000 test rows, 100,000 of them are scored, in a random order. A peer
learns until its cap (--cap, in seconds of CPU time, so that other work on the machine does not count) and predicts with
what it has; --no-cap lets it learn until it has converged.
Some training rows are held out for every peer, so that its distribution can be recalibrated as ours is (see `peers` and
`boosting` for what is learnt without them). Each peer is scored by its own distribution and by the recalibrated one.

Every run has a file of its own, <set>_<split>_<method>.json, in a folder (--results, default results/accuracy), beside
the losses of the single rows, for the paired intervals. A long comparison can so be done in pieces, and ours measured
again without the peers; --resume leaves out what has been measured (ours: what this commit has measured). At the end
all files of the folder are collected in results/accuracy.json, from which docs/accuracy.md is rendered; --collect does
only this.
Without --full: elevators, split 1, a few methods, in results/accuracy_quick.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from boosting import CatBoost, LightGBM, ScikitLearnTrees
from comparison import OURS, Result, bars, losses_path, run_path, runs, versus
from deadline import CPU
from gigagp import HGPRegressor
from gigagp.arrays import Array
from gigagp.datasets import robot_arm
from gigagp.memory import peak_memory
from gigagp.model.distribution import PredictiveDistribution
from measure import HERE, RESULTS, arguments, data_set, machine, save, seconds, tell_bar
from peers import (
    CORES,
    SVGP,
    Answer,
    ExactGP,
    GPBoost,
    NearestNeighbours,
    Prediction,
)
from scores import Losses, own_distribution, recalibrated

MOST_QUERIES = 100_000
NEIGHBOURS = (64, 128, 256, 400)
HELD_OUT_SHARE = 0.1  # of the training rows, for recalibration and early stopping
MOST_HELD_OUT = 4096  # rows
CAP = 120.0  # seconds of CPU time that a peer may learn
QUICK_CAP = 10.0  # seconds of CPU time, of the quick set
LONGEST = 6 * 3600  # seconds of wall time, after which a run has failed
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}  # spinning threads are a hundred times slower where cores are shared


@dataclass(frozen=True)
class DataSet:
    """A file of the data folder, and which of its masks divide it."""

    file: str
    test_mask: str = "test_mask"
    train_mask: str | None = None  # without it, all rows that are not for test


SETS = {
    "elevators": DataSet("uci_elevators"),
    "pol": DataSet("uci_pol"),
    "protein": DataSet("uci_protein"),
    "kin40k_classic": DataSet("uci_kin40k", "orig_test_mask"),
    "kin40k": DataSet("uci_kin40k"),
    "keggundirected": DataSet("uci_keggundirected"),
    "wind": DataSet("wind_la_haute_borne"),
    "airline": DataSet("airline2008_jan_apr", train_mask="train700k_mask"),
    "etopo5": DataSet("etopo5"),
}


@dataclass(frozen=True)
class Rows:
    """Raw inputs and standardised targets for training, and the queries in a random order."""

    X: Array
    y: Array
    Z: Array
    truth: Array

    @classmethod
    def of(cls, data: Any, which: DataSet, split: int) -> Rows:
        test = data[which.test_mask].reshape(len(data["y"]), -1)[:, split]
        train = ~test if which.train_mask is None else data[which.train_mask].astype(bool)
        queries = np.random.default_rng(0).permutation(np.flatnonzero(test))[:MOST_QUERIES]
        X, y = data["X"], data["y"].astype(np.float64)
        y = (y - y[train].mean()) / y[train].std()
        return cls(X[train], y[train], X[queries], y[queries])

    def standardised(self) -> tuple[Array, Array, Array]:
        """Inputs in units of the training rows' deviation, targets, and queries, for the peers."""
        X, Z = self.X.astype(np.float64), self.Z.astype(np.float64)
        centre, spread = X.mean(axis=0), X.std(axis=0)
        spread[spread == 0] = 1.0
        return (X - centre) / spread, self.y, (Z - centre) / spread

    @property
    def held_out(self) -> Array:
        """Numbers of training rows by which peers are recalibrated."""
        count = min(int(HELD_OUT_SHARE * len(self.y)), MOST_HELD_OUT)
        return np.sort(np.random.default_rng(1).permutation(len(self.y))[:count])

    @property
    def fingerprint(self) -> str:
        """Of the queries: losses can be compared where it is the same."""
        return sha256(self.truth.tobytes()).hexdigest()[:16]


def ours(rows: Rows) -> Prediction:
    """Defaults."""
    model = HGPRegressor(random_state=0, n_jobs=CORES)
    fit = seconds(lambda: model.fit(rows.X, rows.y))
    distributions: list[PredictiveDistribution] = []
    predict = seconds(lambda: distributions.append(model.predict_distribution(rows.Z)))
    (d,) = distributions
    return Prediction(Answer(d.mean, d.std), fit, predict, d, choosing=model.report_.choosing)


def predictions(method: str, rows: Rows, cap: float) -> Iterator[tuple[str, Prediction]]:
    """What a method predicts, with its name in the table; nearest neighbours once for each count."""
    if method == "ours":
        yield OURS, ours(rows)
        return
    X, y, Z = rows.standardised()
    peer = METHODS[method]
    if method == "neighbours":
        each = peer.each(X, y, Z, cap, held_out=rows.held_out)
        yield from ((f"NN-GP, {count} neighbours", one) for count, one in zip(NEIGHBOURS, each, strict=True))
        return
    most = getattr(peer, "most_rows", len(X))
    name = peer.name if len(X) <= most else f"{peer.name}, {most:,} rows"
    yield name, peer.run(X, y, Z, cap, held_out=rows.held_out)


METHODS: dict[str, Any] = {
    "ours": None,
    "neighbours": NearestNeighbours(NEIGHBOURS, clock=CPU),
    "exact": ExactGP(clock=CPU),
    "gpboost": GPBoost(smooth=False, clock=CPU),
    "svgp": SVGP(smooth=False, clock=CPU),
    "trees": ScikitLearnTrees(),
    "lightgbm": LightGBM(),
    "catboost": CatBoost(),
}


def one(options: Namespace) -> None:
    """A run, printed on standard output as one JSON per line, its losses row by row in a file."""
    name, split, method, cap = options.one
    data = data_set(options.data, SETS[name].file)
    rows = Rows.of(data, SETS[name], int(split))
    unlimited = float(cap) == np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theta at its bounds, of ours and of peers
        for method_name, prediction in predictions(method, rows, float(cap)):
            who = f"{method_name}, no cap" if unlimited else method_name
            scores = score(rows, prediction, losses_path(options.results, name, int(split), who))
            result = {
                "set": name, "split": int(split), "method": method, "who": who, "no_cap": unlimited,
                "cap": None if unlimited or method == "ours" else float(cap), "capped": prediction.capped,
                "rows": len(rows.y), "queries": len(rows.truth), "answered": len(prediction.answer.mean),
                "fit_seconds": prediction.fit_seconds, "predict_seconds": prediction.predict_seconds, "cores": CORES,
                "gb": peak_memory(), "choosing": prediction.choosing, **scores,
            }  # fmt: skip
            print(json.dumps(result), flush=True)


def score(rows: Rows, prediction: Prediction, path: Path) -> Result:
    """The scores of a method's own and of its recalibrated distribution; losses of the single rows go into a file."""
    mean = prediction.answer.mean
    truth = rows.truth[: len(mean)]
    own = Losses.of(truth, mean, own_distribution(prediction))
    arrays = {"rmse": own.rmse, "nlpd": own.nlpd, "crps": own.crps}
    scores: Result = dict(own.scores)
    distribution = recalibrated(prediction, rows.y[rows.held_out])
    if distribution is not None:
        second = Losses.of(truth, mean, distribution)
        arrays |= {"recalibrated_nlpd": second.nlpd, "recalibrated_crps": second.crps}
        scores["recalibrated"] = second.scores
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, queries=rows.fingerprint, **{k: v.astype(np.float32) for k, v in arrays.items()})
    return scores


def in_its_own_process(name: str, split: int, method: str, cap: float, options: Namespace) -> list[Result]:
    """The results of a run, one for each name in the table; a failed run has a result that says why."""
    command = [sys.executable, str(HERE / "accuracy.py"), "--data", str(options.data)]
    command += ["--results", str(options.results), "--one", name, str(split), method, str(cap)]
    error = None
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(CORES))
    try:
        environment = {**os.environ, **threads, **WAITING}
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST, env=environment)
        output = done.stdout
        if done.returncode != 0:
            error = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except subprocess.TimeoutExpired as late:
        output, error = (late.stdout or b"").decode(), f"not done after {LONGEST} s"
    results: list[Result] = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    if error is not None:
        who = OURS if method == "ours" else METHODS[method].name
        failure = {"set": name, "split": split, "method": method, "who": who, "error": error}
        results.append({**failure, "cap": None if cap == np.inf else cap, "no_cap": cap == np.inf})
    here = machine()
    return [{**row, "commit": here["commit"], "date": here["date"]} for row in results]


def describe(row: Result) -> None:
    head = f"  {row['set']:<15} {row['split']}  {row['who']:<28}"
    if "error" in row:
        print(f"{head} {row['error']}", flush=True)
        return
    share = row["answered"] / row["queries"]
    other = row.get("recalibrated")
    second = "" if other is None else f"; recalibrated {other['nlpd']:.3f}, {other['crps']:.4f}"
    print(
        f"{head} fit {row['fit_seconds']:6.1f} s, predict {row['predict_seconds']:6.1f} s, RMSE {row['rmse']:.4f}, "
        f"NLPD {row['nlpd']:7.3f}, CRPS {row['crps']:.4f}, 95% covers {row['coverage']['0.95']:.1%}{second}, "
        f"{row['gb']:.1f} GB{', capped' if row['capped'] else ''}"
        f"{'' if share == 1 else f', {share:.0%} of the queries'}",
        flush=True,
    )


def too_many_rows(method: str, rows: int) -> bool:
    """Whether there are too many rows for the method, after a clear line."""
    if method == "exact" and rows > ExactGP.most_rows:
        print(f"  skipped: exact GP above {ExactGP.most_rows:,} rows (memory)", flush=True)
        return True
    return False


def has_result(path: Path, method: str) -> bool:
    """Whether this run has a result already; ours must be of this commit."""
    if not path.exists():
        return False
    rows = json.loads(path.read_text())
    return all("error" not in row and (method != "ours" or row["commit"] == machine()["commit"]) for row in rows)


def compare(name: str, split: int, training: int, options: Namespace) -> None:
    """All methods on a split with so many rows for training, each with a file of its own."""
    for method in options.methods:
        cap = 0.0 if method == "ours" else options.cap
        path = run_path(options.results, name, split, method, no_cap=cap == np.inf)
        if (options.resume and has_result(path, method)) or too_many_rows(method, training):
            continue
        results = in_its_own_process(name, split, method, cap, options)
        for row in results:
            describe(row)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n")


def collect(options: Namespace) -> None:
    """All runs of the folder, compared and judged, in one file for the pages."""
    rows = sorted(
        runs(options.results), key=lambda r: (list(SETS).index(r["set"]), r["split"], list(METHODS).index(r["method"]))
    )
    compared = versus(rows, options.results)
    judgements = bars(rows, compared)
    save(options.results.name, {"rows": rows, "versus": compared, "bars": judgements})
    for judgement in judgements:
        tell_bar(judgement)


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def options_of(arguments_given: Sequence[str] | None = None) -> Namespace:
    parser = arguments((__doc__ or "").split("\n\n", maxsplit=1)[0], data=True)
    parser.add_argument("--sets", type=names, help=f"some of {','.join(SETS)} (default all; quick: elevators)")
    parser.add_argument("--splits", type=names, help="numbers; the tables report split 0 (default 0; quick: 1)")
    parser.add_argument("--methods", type=names, help=f"some of {','.join(METHODS)} (default all; quick: a few)")
    parser.add_argument(
        "--cap", type=float, help=f"seconds of CPU time a peer may learn (default {CAP:g}; quick {QUICK_CAP:g})"
    )
    parser.add_argument("--no-cap", action="store_true", help="peers learn until they have converged")
    parser.add_argument("--resume", action="store_true", help="leave out what has been measured")
    parser.add_argument("--results", type=Path, help="folder for the files of the runs")
    parser.add_argument("--collect", action="store_true", help="measure nothing, collect the files of the folder")
    parser.add_argument("--one", nargs=4, help="for the processes of this program: set, split, method, cap")
    options = parser.parse_args(arguments_given)
    quick = not options.full and not (options.sets or options.splits or options.methods or options.collect)
    options.results = options.results or RESULTS / ("accuracy_quick" if quick else "accuracy")
    options.sets = options.sets or (["elevators"] if quick else list(SETS))
    options.splits = [int(s) for s in options.splits or (["1"] if quick else ["0"])]
    options.methods = options.methods or (["ours", "neighbours", "trees", "lightgbm"] if quick else list(METHODS))
    options.cap = np.inf if options.no_cap else options.cap or (QUICK_CAP if quick else CAP)
    for names_used, available in ((options.sets, SETS), (options.methods, METHODS)):
        unknown = sorted(set(names_used) - set(available))
        if unknown:
            parser.error(f"unknown {', '.join(unknown)}; choose from {', '.join(available)}")
    return options


def main() -> None:
    options = options_of()
    if options.one:
        one(options)
        return
    if not options.collect:
        measure(options)
    collect(options)


def measure(options: Namespace) -> None:
    """Every chosen set, split and method."""
    options.methods = [m for m in METHODS if m in options.methods and (m == "ours" or METHODS[m].available())]
    if "ours" in options.methods:
        HGPRegressor(random_state=0, n_jobs=CORES).fit(*robot_arm(2_000))  # compile outside the times
    for name in options.sets:
        data = data_set(options.data, SETS[name].file)
        if data is None:
            continue
        tests, mask = data[SETS[name].test_mask].reshape(len(data["y"]), -1), SETS[name].train_mask
        for split in options.splits:
            if split >= tests.shape[1]:
                print(f"skipped: {name} has no split {split}", flush=True)
                continue
            training = int((~tests[:, split] if mask is None else data[mask]).sum())
            compare(name, split, training, options)


if __name__ == "__main__":
    main()
