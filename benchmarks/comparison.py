"""What the files of an accuracy comparison say: ours against each peer, paired by rows, and the bars of issue 17."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

from gigagp.arrays import Array
from measure import judged
from scores import paired

Result = dict[str, Any]
OURS = "GigaGP"
# What is compared: a loss of ours, the same loss of the peer, and how the tables name it.
COLUMNS = {
    "rmse": ("rmse", "RMSE"),
    "nlpd": ("nlpd", "NLPD"),
    "crps": ("crps", "CRPS"),
    "recalibrated_nlpd": ("nlpd", "recalibrated NLPD"),
    "recalibrated_crps": ("crps", "recalibrated CRPS"),
}
# Largest RMSE and NLPD of ours, means over the splits.
BARS = {
    "kin40k_classic": (0.111, -1.0),
    "kin40k": (0.067, -1.68),
    "protein": (0.480, 0.22),
    "keggundirected": (0.117, -2.4),
    "elevators": (0.358, 0.345),
    "pol": (0.072, -2.6),
    "airline": (0.855, 0.35),
    "wind": (0.069, -2.1),
    "etopo5": (0.0225, -3.6),
}
COVERAGE = 0.015  # by which the coverage of 50, 80 and 95% intervals may be off
CHOOSING = 1 / 3  # of our fit may go into choosing what is left open


def run_path(folder: Path, name: str, split: int, method: str, no_cap: bool = False) -> Path:
    """The file of a run."""
    return folder / f"{name}_{split}_{method}{'_nocap' if no_cap else ''}.json"


def losses_path(folder: Path, name: str, split: int, who: str) -> Path:
    """The losses of the single test rows."""
    plain = "".join(c if c.isalnum() else "-" for c in who)
    return folder / f"{name}_{split}_{plain}.npz"


def runs(folder: Path) -> list[Result]:
    """The results of all runs of a folder."""
    return [row for path in sorted(folder.glob("*.json")) for row in json.loads(path.read_text())]


def losses(folder: Path, name: str, split: int, who: str) -> dict[str, Array]:
    """Losses row by row, and as "queries" the fingerprint of the rows; nothing if there is no such file."""
    path = losses_path(folder, name, split, who)
    if not path.exists():
        return {}
    with np.load(path) as file:
        return dict(file)


def versus(rows: Sequence[Result], folder: Path) -> list[Result]:
    """Paired differences of ours to each peer in each column, for single splits and over all splits that both have."""
    compared = []
    done = {(r["set"], r["split"], r["who"]) for r in rows if "nlpd" in r}
    for name, who in dict.fromkeys((r["set"], r["who"]) for r in rows if "nlpd" in r and r["who"] != OURS):
        splits = sorted(s for n, s, w in done if (n, w) == (name, who) and (n, s, OURS) in done)
        pairs = {s: (losses(folder, name, s, OURS), losses(folder, name, s, who)) for s in splits}
        splits = [s for s, (a, b) in pairs.items() if a and b and str(a["queries"]) == str(b["queries"])]
        for some in [[s] for s in splits] + ([splits] if len(splits) > 1 else []):
            for column, (of_ours, _) in COLUMNS.items():
                if all(column in pairs[s][1] for s in some):
                    mine, theirs = (
                        [pairs[s][i][key].astype(float) for s in some] for i, key in enumerate((of_ours, column))
                    )
                    d = paired(mine, theirs)
                    compared.append({
                        "set": name, "who": who, "splits": some, "column": column, "difference": d.mean, "low": d.low,
                        "high": d.high, "verdict": d.verdict,
                    })  # fmt: skip
    return compared


def bars(rows: Sequence[Result], compared: Sequence[Result]) -> list[Result]:
    """The bars of ours on the sets whose split 0 was measured."""
    judgements = []
    for name, bounds in BARS.items():
        mine = [r for r in rows if r["set"] == name and r["who"] == OURS and "nlpd" in r]
        first = next((r for r in mine if r["split"] == 0), None)
        if first is None:
            continue
        over = "" if len(mine) == 1 else f", mean of {len(mine)} splits"
        here = []
        for score, bound in zip(("rmse", "nlpd"), bounds, strict=True):
            mean = sum(r[score] for r in mine) / len(mine)
            here.append(judged(f"{name} {COLUMNS[score][1]}{over}", mean, bound, at_least=False))
        here += _coverage(name, mine)
        if first.get("choosing") is not None:
            what = f"{name} share of the fit to choose"
            here.append(judged(what, first["choosing"], CHOOSING, at_least=False))
        judgements += [{"set": name, **b} for b in [*here, *_lowest(name, compared)]]
    return judgements


def _rows_to_tell(level: float) -> float:
    """Test rows from which two standard errors of the share inside an interval are at most the bar."""
    return 4 * level * (1 - level) / COVERAGE**2


def _coverage(name: str, mine: Sequence[Result]) -> list[Result]:
    """By how much coverage is off: at most, over the splits with rows enough to tell, and over all splits together."""
    judgements = []
    for level in mine[0]["coverage"]:
        p = float(level)
        enough = _rows_to_tell(p)
        errors = [abs(r["coverage"][level] - p) for r in mine if r["answered"] >= enough]
        rows = sum(r["answered"] for r in mine)
        together = abs(sum(r["coverage"][level] * r["answered"] for r in mine) / rows - p)
        if errors:
            what = f"{name} {p:.0%} intervals, off by at most, {len(errors)} of {len(mine)} splits"
            judgements.append(judged(what, max(errors), COVERAGE, at_least=False))
        if len(mine) > 1 and rows >= enough:
            what = f"{name} {p:.0%} intervals, off by, all {len(mine)} splits together"
            judgements.append(judged(what, together, COVERAGE, at_least=False))
    return judgements


def coverage_misses(rows: Sequence[Result]) -> tuple[int, int, float]:
    """Coverages of ours on single splits: how many are judged, how many miss the bar, and how many would by chance.

    The last is the expected number if every predicted distribution were exact and only the test rows were random.
    """
    judged_ones = [
        (float(level), share, r["answered"])
        for r in rows
        if r["who"] == OURS and "nlpd" in r
        for level, share in r["coverage"].items()
        if r["answered"] >= _rows_to_tell(float(level))
    ]
    missed = sum(abs(share - p) > COVERAGE for p, share, _ in judged_ones)
    within = [
        binom.cdf(np.floor((p + COVERAGE) * n), n, p) - binom.cdf(np.ceil((p - COVERAGE) * n) - 1, n, p)
        for p, _, n in judged_ones
    ]
    return len(judged_ones), missed, float(len(within) - sum(within))


def _lowest(name: str, compared: Sequence[Result]) -> list[Result]:
    """Whether no peer is better than ours beyond the paired interval, column by column, on split 0."""
    judgements = []
    for column, (_, words) in COLUMNS.items():
        here = [v for v in compared if v["set"] == name and v["splits"] == [0] and v["column"] == column]
        if not here:
            continue
        closest = max(here, key=lambda v: v["low"])
        counts = ", ".join(f"{n} {k}" for k, n in tally(here).items())
        judgements.append({
            "what": f"{name} {words} against {len(here)} peers ({counts}); least favourable: {closest['who']}",
            "measured": closest["difference"], "bar": "no loss", "met": closest["verdict"] != "loss",
        })  # fmt: skip
    return judgements


def tally(compared: Sequence[Result]) -> dict[str, int]:
    """How many wins, ties and losses."""
    return {verdict: sum(v["verdict"] == verdict for v in compared) for verdict in ("win", "tie", "loss")}
