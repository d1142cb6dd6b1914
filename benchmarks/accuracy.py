"""Accuracy with defaults against every peer: the same rows, one run, a stated time for each.

Each run is a process of its own with two threads. Targets are in units of the training rows' deviation; so are inputs,
except ours, which we take raw. Where a set has more than 100,000 test rows, 100,000 of them are scored, in a random
order. A peer's training ends at its cap, max(the set's floor, 1.25 x our fit and predict) unless --cap says otherwise,
and it predicts with what it has. Nearest neighbours spend half of it on theta and answer for the other half; the exact
GP has 120 s to learn and as long to answer, or 20 s where it can hold a part of the rows only.

Results are merged into results/accuracy.json run by run, so that a long comparison can be done in pieces; --resume
leaves out what this commit has measured. Losses of the single rows lie in results/accuracy/, for the paired intervals.
Without --full: elevators, split 1, a few methods, into results/accuracy_quick.json.
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

from gigagp import HGPRegressor
from gigagp.arrays import Array
from gigagp.datasets import robot_arm
from gigagp.memory import peak_memory
from gigagp.model.distribution import PredictiveDistribution
from measure import HERE, RESULTS, arguments, data_set, judged, machine, save, seconds, tell_bar
from peers import SGPR, SVGP, BoostedTrees, ExactSubset, GPBoost, NearestNeighbours, Said
from scores import LEVELS, log_losses, paired, scores

Found = dict[str, Any]
OURS = "GigaGP"
MOST_QUERIES = 100_000
NEIGHBOURS = (32, 64, 128, 256, 400)
TIMES_OURS = 1.25
EXACT_CAP, PART_CAP = 120.0, 20.0  # of the exact GP: on all rows, on a part of them
PATIENCE = 120  # seconds a process may take beyond three caps, for imports, data and predictions
OUR_LIMIT = 1800
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2")
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}  # spinning threads are a hundred times slower where cores are shared
EVALUATIONS, SHARE = 16, 0.1  # of an exact GP's fit, and the part of it that is our bar on kin40k


@dataclass(frozen=True)
class DataSet:
    """A file of the data folder, which of its masks divide it, a floor for caps in seconds, and the bars of ours."""

    file: str
    cap: float
    bars: tuple[tuple[str, float], ...] = ()  # score, bound
    test_mask: str = "test_mask"
    train_mask: str | None = None  # without it, all rows that are not for test


SETS = {
    "kin40k_classic": DataSet("uci_kin40k", 30, (("rmse", 0.111), ("nlpd", -0.87)), "orig_test_mask"),
    "kin40k": DataSet("uci_kin40k", 25, (("rmse", 0.070), ("nlpd", -1.65))),
    "protein": DataSet("uci_protein", 25, (("rmse", 0.54), ("nlpd", 0.25))),
    "keggundirected": DataSet("uci_keggundirected", 25),
    "elevators": DataSet("uci_elevators", 15, (("rmse", 0.37), ("nlpd", 0.36))),
    "pol": DataSet("uci_pol", 15, (("rmse", 0.10), ("nlpd", -2.5))),
    "airline": DataSet("airline2008_jan_apr", 60, (("nlpd", 0.40),), train_mask="train700k_mask"),
    "wind": DataSet("wind_la_haute_borne", 30, (("rmse", 0.085), ("nlpd", -2.05))),
    "etopo5": DataSet("etopo5", 60, (("rmse", 0.029), ("fit_seconds", 90.0))),
}
COVERAGE = 0.015  # by which the coverage of 50, 80 and 95% intervals may be off, on every set
CHOOSING = 1 / 3  # of our fit may go into choosing what is left open


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
    def fingerprint(self) -> str:
        """Of the queries: losses can be compared where it is the same."""
        return sha256(self.truth.tobytes()).hexdigest()[:16]


def ours(rows: Rows) -> Said:
    """Defaults."""
    model = HGPRegressor(random_state=0, n_jobs=2)
    fit = seconds(lambda: model.fit(rows.X, rows.y))
    predicted: list[PredictiveDistribution] = []
    predict = seconds(lambda: predicted.append(model.predict_distribution(rows.Z)))
    (d,) = predicted
    return Said(d.mean, d.std, fit, predict, choosing=model.report_.choosing, distribution=d)


def answers(method: str, rows: Rows, cap: float) -> Iterator[tuple[str, Said]]:
    """What a method says, with the name for the table; nearest neighbours once for each count."""
    if method == "ours":
        yield OURS, ours(rows)
        return
    X, y, Z = rows.standardised()
    if method == "neighbours":
        said = NearestNeighbours(NEIGHBOURS).each(X, y, Z, cap)
        yield from ((f"NN-GP, {count} neighbours", one) for count, one in zip(NEIGHBOURS, said, strict=True))
        return
    peer = METHODS[method]
    yield with_rows(peer.name, len(X), getattr(peer, "most_rows", len(X))), peer.run(X, y, Z, cap)


def with_rows(name: str, rows: int, most: int) -> str:
    return name if rows <= most else f"{name}, {most:,} rows"


METHODS: dict[str, Any] = {
    "ours": None,
    "svgp": SVGP(smooth=False),
    "sgpr": SGPR(),
    "gpboost": GPBoost(smooth=False),
    "neighbours": NearestNeighbours(NEIGHBOURS),
    "exact": ExactSubset(),
    "trees": BoostedTrees(LEVELS),
}
RIVALS = ("SVGP", "GPBoost", "NN-GP")  # beginnings of names; of those with one beginning the best is our bar


def losses_path(name: str, split: int, who: str) -> Path:
    plain = "".join(c if c.isalnum() else "-" for c in who)
    return RESULTS / "accuracy" / f"{name}_{split}_{plain}.npz"


def one(options: Namespace) -> None:
    """A run, told on standard output one JSON a line, its losses row by row in a file."""
    name, split, method, cap = options.one
    data = data_set(options.data, SETS[name].file)
    rows = Rows.of(data, SETS[name], int(split))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theta at its bounds, of ours and of peers
        for who, said in answers(method, rows, float(cap)):
            truth = rows.truth[: len(said.mean)]
            path = losses_path(name, int(split), who)
            path.parent.mkdir(parents=True, exist_ok=True)
            known = said.distribution
            losses = log_losses(truth, said.mean, said.std) if known is None else -known.log_pdf(truth)
            losses = losses.astype(np.float32)
            np.savez_compressed(path, losses=losses, queries=rows.fingerprint)
            result = {
                "set": name, "split": int(split), "method": method, "who": who, "cap": float(cap) or None,
                "capped": said.capped, "rows": len(rows.y), "queries": len(rows.truth), "answered": len(truth),
                "fit_seconds": said.fit_seconds, "predict_seconds": said.predict_seconds, "gb": peak_memory(),
                "evaluation_seconds": said.evaluation_seconds, "choosing": said.choosing, **scores(truth, said),
            }  # fmt: skip
            print(json.dumps(result), flush=True)


def in_its_own_process(name: str, split: int, method: str, cap: float, folder: Path) -> list[Found]:
    """The results of a run, one for each name in the table; a failed run has a result that says why."""
    command = [sys.executable, str(HERE / "accuracy.py"), "--data", str(folder)]
    command += ["--one", name, str(split), method, str(cap)]
    limit = 3 * cap + PATIENCE if cap else OUR_LIMIT
    error = None
    try:
        environment = {**os.environ, **THREADS, **WAITING}
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit, env=environment)
        told = done.stdout
        if done.returncode != 0:
            error = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except subprocess.TimeoutExpired as late:
        told, error = (late.stdout or b"").decode(), f"not done after {limit:.0f} s"
    found: list[Found] = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    if error is not None:
        who = OURS if method == "ours" else METHODS[method].name
        found.append({"set": name, "split": split, "method": method, "who": who, "cap": cap, "error": error})
    here = machine()
    return [{**row, "commit": here["commit"], "date": here["date"]} for row in found]


def tell(row: Found) -> None:
    head = f"  {row['set']:<15} {row['split']}  {row['who']:<28}"
    if "error" in row:
        print(f"{head} {row['error']}", flush=True)
        return
    share = row["answered"] / row["queries"]
    cap = f", cap {row['cap']:.0f} s" if row["capped"] else ""
    print(
        f"{head} fit {row['fit_seconds']:6.1f} s, predict {row['predict_seconds']:6.1f} s, RMSE {row['rmse']:.4f}, "
        f"NLPD {row['nlpd']:7.3f}, CRPS {row['crps']:.4f}, 95% covers {row['coverage']['0.95']:.1%}, "
        f"{row['gb']:.1f} GB{cap}{'' if share == 1 else f', {share:.0%} of the queries'}",
        flush=True,
    )


def merged(before: Sequence[Found], anew: Sequence[Found]) -> list[Found]:
    """Results in the order of sets and methods; what a method said before of a set and split is replaced."""
    replaced = {(r["set"], r["split"], r["method"]) for r in anew}
    kept = [r for r in before if (r["set"], r["split"], r["method"]) not in replaced]
    sets, methods = list(SETS), list(METHODS)
    return sorted([*kept, *anew], key=lambda r: (sets.index(r["set"]), r["split"], methods.index(r["method"])))


def seconds_of(row: Found) -> float:
    return float(row["fit_seconds"] + row["predict_seconds"])


def ours_of(rows: Sequence[Found], name: str, split: int) -> Found | None:
    here = (r for r in rows if r["set"] == name and r["split"] == split and r["who"] == OURS and "nlpd" in r)
    return next(here, None)


def versus(rows: Sequence[Found]) -> list[Found]:
    """Paired differences in NLPD of ours to each peer, for split 0 and over all splits that both have."""
    found = []
    done = {(r["set"], r["split"], r["who"]) for r in rows if "nlpd" in r}
    for name, who in dict.fromkeys((r["set"], r["who"]) for r in rows if "nlpd" in r and r["who"] != OURS):
        splits = sorted(s for n, s, w in done if (n, w) == (name, who) and (n, s, OURS) in done)
        several = [splits] if len(splits) > 1 else []
        for some in [[s] for s in splits if s == 0] + several or [splits]:
            pairs = [(losses(name, s, OURS), losses(name, s, who)) for s in some]
            whole = [(a[0], b[0]) for a, b in pairs if a is not None and b is not None and a[1] == b[1]]
            if some and len(whole) == len(some):
                d = paired(*zip(*whole, strict=True))
                found.append(
                    {"set": name, "who": who, "splits": some, "difference": d.mean, "low": d.low, "high": d.high,
                     "verdict": d.verdict}
                )  # fmt: skip
    return found


def losses(name: str, split: int, who: str) -> tuple[Array, str] | None:
    """Log losses row by row and the fingerprint of their queries."""
    path = losses_path(name, split, who)
    if not path.exists():
        return None
    with np.load(path) as kept:
        return kept["losses"].astype(np.float64), str(kept["queries"])


def bars(rows: Sequence[Found], compared: Sequence[Found]) -> list[Found]:
    """The bars of ours on split 0 of the sets that were measured."""
    made = []
    for name, which in SETS.items():
        mine = ours_of(rows, name, 0)
        if mine is None:
            continue
        peers = [r for r in rows if r["set"] == name and r["split"] == 0 and r["who"] != OURS and "nlpd" in r]
        several = [r for r in rows if r["set"] == name and r["who"] == OURS and "nlpd" in r]
        for score, bound in which.bars:
            made.append({"set": name, **judged(f"{name} {_words[score]}", mine[score], bound, at_least=False)})
            if len(several) > 1:
                mean, splits = sum(r[score] for r in several) / len(several), f"mean of {len(several)} splits"
                made.append({"set": name, **judged(f"{name} {_words[score]}, {splits}", mean, bound, at_least=False)})
        made += [{"set": name, **b} for b in _tenth_of_exact(name, mine, peers)]
        for level, covered in mine["coverage"].items():
            what = f"{name} {float(level):.0%} intervals, off by"
            made.append({"set": name, **judged(what, abs(covered - float(level)), COVERAGE, at_least=False)})
        chosen = mine.get("choosing")
        if chosen is not None:
            made.append({"set": name, **judged(f"{name} share of the fit to choose", chosen, CHOOSING, at_least=False)})
        made += [{"set": name, **b} for b in _rivals(name, mine, peers, compared)]
    return made


_words = {"rmse": "RMSE", "nlpd": "NLPD", "fit_seconds": "seconds to fit"}


def _tenth_of_exact(name: str, mine: Found, peers: Sequence[Found]) -> list[Found]:
    """On the classic kin40k: fit and predict against a tenth of 16 evaluations of the exact evidence."""
    exact = next((r["evaluation_seconds"] for r in peers if r["method"] == "exact"), None)
    if name != "kin40k_classic" or exact is None:
        return []
    what = f"{name} seconds to fit and predict; a tenth of {EVALUATIONS} exact evaluations of {exact:.3g} s"
    return [judged(what, seconds_of(mine), SHARE * EVALUATIONS * exact, at_least=False)]


def _rivals(name: str, mine: Found, peers: Sequence[Found], compared: Sequence[Found]) -> list[Found]:
    """Better NLPD than SVGP, GPBoost and the nearest-neighbour GP that does best, at no more than their time."""
    made = []
    by_name = {r["who"]: r for r in peers}
    here = [v for v in compared if v["set"] == name and v["splits"] == [0] and v["who"] in by_name]
    for beginning in RIVALS:
        named = (v for v in here if v["who"].startswith(beginning))
        row = max(named, key=lambda v: v["difference"], default=None)
        if row is None:
            continue
        best = by_name[row["who"]]
        times = seconds_of(mine) / seconds_of(best)
        made.append({
            "what": f"{name} NLPD less that of {best['who']} ({row['verdict']}, our time {times:.2f} x theirs)",
            "measured": row["difference"], "bar": "< 0, time <= 1 x", "met": row["verdict"] == "win" and times <= 1,
        })  # fmt: skip
    return made


def left_out(method: str, rows: int) -> bool:
    """Whether memory forbids, after a clear line."""
    if method == "sgpr" and rows > SGPR.most_rows:
        print(f"  skipped: SGPR above {SGPR.most_rows:,} rows (memory)", flush=True)
        return True
    return False


def cap_of(name: str, method: str, mine: Found | None) -> float:
    """Seconds a peer may train, from our run on the same rows if there is one."""
    if mine is None:
        return SETS[name].cap
    if method == "exact":
        return EXACT_CAP if mine["rows"] <= ExactSubset.most_rows else PART_CAP
    return max(SETS[name].cap, TIMES_OURS * seconds_of(mine))


def read(result: str, what: str = "rows") -> list[Found]:
    path = RESULTS / f"{result}.json"
    return json.loads(path.read_text())[what] if path.exists() else []


def compare(name: str, split: int, training: int, options: Namespace, result: str) -> None:
    """All methods on a split with so many rows for training, the results merged into the file one by one."""
    commit = machine()["commit"]
    for method in options.methods:
        rows = read(result)
        here = [r for r in rows if (r["set"], r["split"], r["method"]) == (name, split, method)]
        if options.resume and here and all(r["commit"] == commit and "error" not in r for r in here):
            continue
        mine = ours_of(rows, name, split)
        if left_out(method, training):
            continue
        cap = 0.0 if method == "ours" else options.cap or cap_of(name, method, mine)
        anew = in_its_own_process(name, split, method, cap, options.data)
        for row in anew:
            tell(row)
        rows = merged(rows, anew)
        compared = versus(rows)
        save(result, {"rows": rows, "versus": compared, "bars": bars(rows, compared)})


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def options_of(arguments_given: Sequence[str] | None = None) -> Namespace:
    parser = arguments((__doc__ or "").split("\n\n", maxsplit=1)[0], data=True)
    parser.add_argument("--sets", type=names, help=f"some of {','.join(SETS)} (default all; quick: elevators)")
    parser.add_argument("--splits", type=names, help="numbers; the tables report split 0 (default 0; quick: 1)")
    parser.add_argument("--methods", type=names, help=f"some of {','.join(METHODS)} (default all; quick: a few)")
    parser.add_argument("--cap", type=float, help="seconds a peer may train, instead of the set's")
    parser.add_argument("--resume", action="store_true", help="leave out what this commit has measured")
    parser.add_argument("--one", nargs=4, help="for the processes of this program: set, split, method, cap")
    options = parser.parse_args(arguments_given)
    quick = not options.full and not (options.sets or options.splits or options.methods)
    options.result = "accuracy_quick" if quick else "accuracy"
    options.sets = options.sets or (["elevators"] if quick else list(SETS))
    options.splits = [int(s) for s in options.splits or (["1"] if quick else ["0"])]
    options.methods = options.methods or (["ours", "svgp", "neighbours", "trees"] if quick else list(METHODS))
    options.cap = options.cap or (10.0 if quick else None)
    for given, known in ((options.sets, SETS), (options.methods, METHODS)):
        unknown = sorted(set(given) - set(known))
        if unknown:
            parser.error(f"unknown {', '.join(unknown)}; choose from {', '.join(known)}")
    return options


def main() -> None:
    options = options_of()
    if options.one:
        one(options)
        return
    options.methods = [m for m in METHODS if m in options.methods and (m == "ours" or METHODS[m].available())]
    HGPRegressor(random_state=0, n_jobs=2).fit(*robot_arm(2_000))  # compile outside the times
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
            compare(name, split, training, options, options.result)
    for found in read(options.result, "bars"):
        tell_bar(found)


if __name__ == "__main__":
    main()
