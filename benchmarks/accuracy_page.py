"""docs/accuracy.md and the comparison in the README, from results/accuracy.json and from nothing else."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence

from comparison import COLUMNS, OURS, Result, coverage_misses, tally
from measure import HERE, RESULTS
from page_parts import DOCS, origin, table
from peers import ExactGP

README = HERE.parent / "README.md"
PEERS = {
    "neighbours": "NN-GP", "exact": "exact GP", "gpboost": "GPBoost Vecchia", "svgp": "SVGP-1024",
    "trees": "scikit-learn boosting", "lightgbm": "LightGBM", "catboost": "CatBoost",
}  # fmt: skip

SETTINGS = (
    ("GigaGP", "`HGPRegressor(random_state=0)`, raw inputs; scores of `predict_distribution`, which is calibrated by "
     "held-out predictions of training rows"),
    ("NN-GP", "exact GP on the nearest rows of each query, in torch; family (squared exponential, Matern 5/2, 3/2, "
     "1/2) and theta by the exact evidence of 32 neighbourhoods of 256 rows, for at most half of the cap; each count "
     "of neighbours may predict for the other half, and queries are answered in turn"),
    ("exact GP", "Cholesky in torch, where there are at most 15,000 rows; theta starts as that of NN-GP and is refined "
     "by the exact evidence of 5,000 random rows until the cap (without a cap: of all rows)"),
    ("GPBoost Vecchia", "Matern 5/2, 20 neighbours (40 to predict), its defaults; parameters from growing subsets, as "
     "far as the cap allows; at most 50,000 rows, as its search is quadratic"),
    ("SVGP-1024", "GPyTorch, Matern 5/2, 1,024 learnt inducing inputs, float32, natural gradients at 0.1 and Adam at "
     "0.01, minibatches of 1,024, until the cap (without a cap: 1,800 s); theta starts from the exact evidence of "
     "1,000 rows"),
    ("scikit-learn boosting", "histogram gradient boosting with early stopping, a model for the mean and one for each "
     "of seven quantiles; CRPS and intervals are those of the quantiles, NLPD is that of a Gaussian with the deviation "
     "that the 95% interval implies"),
    ("LightGBM", "rate 0.05, 31 or 255 leaves as held-out rows advise, early stopping; mean and quantiles as above"),
    ("CatBoost", "RMSEWithUncertainty at rate 0.1, early stopping: a Gaussian with predicted mean and variance"),
)  # fmt: skip
HOW = (
    "Written by `benchmarks/accuracy_page.py` from what `benchmarks/accuracy.py --full` measured; do not edit. Scores "
    "are in units of the target's deviation on the training rows. All methods saw the same rows, each in a process of "
    "its own.",
    "**Two distributions per peer.** NLPD, CRPS and coverage are those of the method's own predictive distribution. "
    'In the columns "recalibrated" each peer has our calibration (`gigagp.model.calibration`): the variance as '
    "a function of the predicted one, and the shape of the errors, learnt from held-out predictions. These are of a "
    "tenth of the training rows, at most 4,096. NN-GP, the exact GP and GPBoost predict each held-out row without it "
    "(theta is learnt with it, as ours is); NN-GP has the neighbours' misfit as we do. SVGP is trained without the "
    "held-out rows. Boosted trees are grown without them, to find the number of trees and for the calibration, and "
    "the model of the mean is then fitted to all rows.",
    "**Differences** are ours less theirs, of losses of the same test rows (squared errors for RMSE), with paired 95% "
    "intervals; negative is better for us. A win or a loss is one whose interval leaves out zero. Who ran out of time "
    "while predicting is compared on the rows that it answered.",
    "**Caps** are in seconds of CPU time, summed over threads. The machine did other work meanwhile, so no times are "
    'given here. A peer learns until its cap and predicts with what it has; "capped" marks those that the cap stopped '
    "before they had converged, or before they had predicted every test row.",
)

COVERAGE = (
    "Coverage is judged on each split that has rows enough to tell, where two standard errors of the share of rows "
    "inside an interval are at most 1.5 points, and over all splits together."
)


def coverage_words(rows: Sequence[Result]) -> str:
    """What is judged, and how many misses chance alone explains."""
    judged, missed, by_chance = coverage_misses(rows)
    return (
        f"{COVERAGE} Of {judged} coverages of single splits, {missed} miss the bar; if all predicted distributions "
        f"were exact, {by_chance:.1f} would be expected to miss it by the chance of the test rows."
    )


def cover(scores: Result) -> str:
    return " / ".join(f"{100 * scores['coverage'][level]:.1f}" for level in ("0.5", "0.8", "0.95"))


def bars_table(bars: Sequence[Result]) -> str:
    body = [(b["what"], f"{b['measured']:.4g}", b["bar"], "met" if b["met"] else "**missed**") for b in bars]
    return table(("what", "measured", "bar", ""), body)


def tally_table(versus: Sequence[Result], splits: Sequence[int] = (0,)) -> str:
    """Wins, ties and losses of ours over the data sets, one line per peer and one for all of them."""
    here = [v for v in versus if v["splits"] == list(splits)]
    if not here:
        return "Nothing has been compared."
    body = [_tallies(who, [v for v in here if _peer(v) == who]) for who in sorted({_peer(v) for v in here}, key=_order)]
    return table(
        ("against: win / tie / loss", *(words for _, words in COLUMNS.values())),
        [*body, _tallies("all together", here)],
    )


def _peer(v: Result) -> str:
    """The peer's name; a method that learns from a part of large sets is one peer."""
    return re.sub(r", [\d,]+ rows", "", v["who"])


def _order(who: str) -> tuple[int, int, str]:
    """Peers in their own order, NN-GPs by the number of neighbours, runs without a cap behind those with one."""
    place = next((i for i, name in enumerate(PEERS.values()) if who.startswith(name)), len(PEERS))
    number = re.search(r"\d+ neigh", who)
    return place, int(number[0].split()[0]) if number else 0, who


def _tallies(name: str, versus: Sequence[Result]) -> tuple[str, ...]:
    counts = (tally([v for v in versus if v["column"] == column]) for column in COLUMNS)
    return name, *(" / ".join(map(str, count.values())) for count in counts)


def conditions(rows: Sequence[Result]) -> str:
    """Who was run on split 0 on which sets, with which cap, and at which commits."""
    body = []
    for method, name in {"ours": OURS, **PEERS}.items():
        for no_cap in (False, True):
            here = [r for r in rows if (r["method"], r["no_cap"], r["split"]) == (method, no_cap, 0) and "nlpd" in r]
            if here:
                caps = sorted({r["cap"] for r in here if r["cap"]})
                cap = "none" if no_cap else ", ".join(f"{c:g} s" for c in caps)
                capped = f"{sum(r['capped'] for r in here)} of {len(here)}" if caps else ""
                commits = ", ".join(sorted({f"{r['commit']} ({r['date']})" for r in here}))
                body.append((name, ", ".join(dict.fromkeys(r["set"] for r in here)), cap, capped, commits))
    return table(("who", "sets", "cap, CPU time", "stopped by the cap", "commit"), body)


def not_run(rows: Sequence[Result]) -> str:
    """Sets on whose split 0 a method has no result, with the reason where a run failed."""
    body, sizes = [], {r["set"]: r["rows"] for r in rows if "nlpd" in r}
    for method, name in {"ours": OURS, **PEERS}.items():
        of_method = [r for r in rows if (r["method"], r["split"], r["no_cap"]) == (method, 0, False)]
        done = {r["set"] for r in of_method if "nlpd" in r}
        failed = {r["set"]: r["error"] for r in of_method if "error" in r}
        most = ExactGP.most_rows if method == "exact" else max(sizes.values(), default=0)
        missing = [s for s, size in sizes.items() if s not in done and size <= most]
        if missing:
            body.append((name, ", ".join(f"{s} ({failed[s]})" if s in failed else s for s in missing)))
    words = f"The exact GP is meant for sets of up to {ExactGP.most_rows:,} rows, so that larger ones are not listed."
    return f"{table(('who', 'sets without a result'), body)}\n\n{words}" if body else "Every method ran on every set."


def scores_table(rows: Sequence[Result]) -> str:
    """All methods on one set and split."""
    head = ("who", "RMSE", "NLPD", "CRPS", "50 / 80 / 95% cover", "recalibrated NLPD", "recalibrated CRPS",
            "recalibrated cover", "cap")  # fmt: skip
    return table(head, [_line(row) for row in rows])


def _line(row: Result) -> tuple[str, ...]:
    if "error" in row:
        return (row["who"], row["error"], *[""] * 7)
    other = row.get("recalibrated")
    second = ("", "", "") if other is None else (f"{other['nlpd']:.3f}", f"{other['crps']:.4f}", cover(other))
    share = row["answered"] / row["queries"]
    cap = f"{row['cap']:.0f} s{', capped' if row['capped'] else ''}" if row["cap"] else ""
    cap = "none" if row["no_cap"] else cap
    cap += f", {share:.0%} answered" if share < 1 else ""
    return row["who"], f"{row['rmse']:.4f}", f"{row['nlpd']:.3f}", f"{row['crps']:.4f}", cover(row), *second, cap


def differences_table(versus: Sequence[Result]) -> str:
    """Ours less each peer, one column per score, with the interval and what follows from it."""
    body = []
    for who in dict.fromkeys(v["who"] for v in versus):
        by_column = {v["column"]: v for v in versus if v["who"] == who}
        body.append((who, *(_difference(by_column.get(column)) for column in COLUMNS)))
    head = ("ours less", "squared errors", *(words for key, (_, words) in COLUMNS.items() if key != "rmse"))
    return table(head, body)


def _difference(v: Result | None) -> str:
    if v is None:
        return ""
    verdict = v["verdict"] if v["verdict"] != "loss" else "**loss**"
    return f"{v['difference']:.3g} ({v['low']:.3g} to {v['high']:.3g}) {verdict}"


def ours_table(rows: Sequence[Result]) -> str:
    """Our scores on every split that was run. Splits from 1 on served development; split 0 did not."""
    body = [
        (r["set"], str(r["split"]), f"{r['rmse']:.4f}", f"{r['nlpd']:.3f}", f"{r['crps']:.4f}", cover(r))
        for r in rows
        if r["who"] == OURS and "nlpd" in r
    ]
    return table(("data", "split", "RMSE", "NLPD", "CRPS", "50 / 80 / 95% cover"), body)


def stamps(rows: Sequence[Result]) -> str:
    """When, and from which commits."""
    when = {}
    for row in rows:
        when.setdefault(f"{row['date']}, commit {row['commit']}", []).append(row["who"])
    parts = (f"{stamp} ({', '.join(dict.fromkeys(who))})" for stamp, who in when.items())
    return f"Measured {'; '.join(parts) if len(when) > 1 else ''.join(when)}."


def set_sections(results: Result, name: str, splits: Sequence[int]) -> list[str]:
    """The tables of one set: scores and differences on one split, or the differences over several splits."""
    versus = [v for v in results["versus"] if v["set"] == name and v["splits"] == list(splits)]
    if len(splits) > 1:
        return [f"Over splits {', '.join(map(str, splits))}:", differences_table(versus)]
    rows = [r for r in results["rows"] if r["set"] == name and r["split"] == splits[0]]
    whole = next((r for r in rows if "nlpd" in r), None)
    counts = "" if whole is None else f"{whole['rows']:,} rows for training, {whole['queries']:,} for test. "
    text = [f"Split {splits[0]}. {counts}{stamps(rows)}", scores_table(rows)]
    return text + ([differences_table(versus)] if versus else [])


def losses_table(versus: Sequence[Result]) -> str:
    """Where a peer is better than ours on split 0: beyond the paired interval, then within it."""
    here = [v for v in versus if v["splits"] == [0]]
    if not here:
        return "Nothing has been compared."
    losses = [v for v in here if v["verdict"] == "loss"]
    behind = [v for v in here if v["verdict"] == "tie" and v["difference"] > 0]
    text = [_behind(losses) if losses else "No peer is better than ours beyond the paired interval."]
    if behind:
        text += ["Ties in which the peer's mean is better:", _behind(behind)]
    return "\n\n".join(text)


def _behind(versus: Sequence[Result]) -> str:
    body = [
        (v["set"], v["who"], COLUMNS[v["column"]][1], f"{v['difference']:.3g} ({v['low']:.3g} to {v['high']:.3g})")
        for v in versus
    ]
    return table(("data", "peer", "score", "ours less theirs (squared errors for RMSE)"), body)


def not_measured(rows: Sequence[Result]) -> list[str]:
    """Sets whose peers have been measured on split 0 but not GigaGP, so that there are no differences."""
    done = {r["set"] for r in rows if r["who"] == OURS and r["split"] == 0 and "nlpd" in r}
    missing = [name for name in dict.fromkeys(r["set"] for r in rows) if name not in done]
    if not missing:
        return []
    text = (
        f"**GigaGP has not been measured beside these peers on {', '.join(missing)}**, so differences are not given "
        "there and no win or loss follows; [prediction](prediction.md) has its scores as means over splits, at the "
        "commit named there."
    )
    return [text]


def page(results: Result) -> str:
    rows = results["rows"]
    text = [
        "# Accuracy", *HOW, origin(results) + ".", *not_measured(rows),
        "## What was run", "Split 0. A commit with the suffix -dirty had changes that were not committed.",
        conditions(rows), not_run(rows),
        "## Wins, ties and losses", "Numbers of data sets, split 0.", tally_table(results["versus"]),
        "## Where a peer is better", losses_table(results["versus"]),
        "## Bars", coverage_words(rows),
        bars_table(results["bars"]) if results["bars"] else "Split 0 has not been run.",
    ]  # fmt: skip
    for name in dict.fromkeys(r["set"] for r in rows):
        text.append(f"## {name}")
        for split in sorted({r["split"] for r in rows if r["set"] == name and r["who"] != OURS}):
            text += set_sections(results, name, [split])
        for splits in dict.fromkeys(tuple(v["splits"]) for v in results["versus"] if v["set"] == name):
            text += set_sections(results, name, splits) if len(splits) > 1 else []
    text += ["## Ours over splits", ours_table(rows), "## Settings", table(("who", "how"), SETTINGS)]
    return "\n\n".join(text) + "\n"


def summary(results: Result) -> str:
    """The table of the README: ours, and for each score the best of all peers, on split 0."""
    rows = [r for r in results["rows"] if r["split"] == 0 and "nlpd" in r]
    body = []
    for name in dict.fromkeys(r["set"] for r in rows):
        mine = next((r for r in rows if (r["set"], r["who"]) == (name, OURS)), None)
        theirs = [r for r in rows if r["set"] == name and r["who"] != OURS]
        again = [{**r, **r["recalibrated"]} for r in theirs if "recalibrated" in r]
        if mine is not None and theirs:
            best = (_best(theirs, "rmse", 4), _best(theirs, "nlpd", 3), _best(again, "nlpd", 3))
            body.append((f"{name}, {mine['rows']:,} rows", f"{mine['rmse']:.4f}", f"{mine['nlpd']:.3f}", *best))
    head = ("", "GigaGP: RMSE", "NLPD", *(f"best {s} of a peer" for s in ("RMSE", "NLPD", "recalibrated NLPD")))
    return f"{table(head, body)}\n\n{_summary_words(results, rows)}"


def _best(rows: Sequence[Result], score: str, digits: int) -> str:
    """The smallest score and whose it is."""
    if not rows:
        return ""
    row = min(rows, key=lambda r: r[score])
    part = "" if row["answered"] == row["queries"] else f", {row['answered'] / row['queries']:.0%} of the queries"
    return f"{row[score]:.{digits}f} ({row['who']}{part})"


def _summary_words(results: Result, rows: Sequence[Result]) -> str:
    """Commit, caps, and how often ours wins, ties and loses."""
    stamps = sorted({f"commit {r['commit']}, {r['date']}" for r in rows if r["who"] == OURS})
    caps = sorted({r["cap"] for r in rows if r["cap"]})
    times = f"{caps[0]:g}" if len(caps) == 1 else f"{caps[0]:g} to {caps[-1]:g}" if caps else "unlimited"
    here = [v for v in results["versus"] if v["splits"] == [0]]
    counts = []
    for column, (_, words) in COLUMNS.items():
        of_column = [v for v in here if v["column"] == column]
        if of_column:
            counts.append(f"{words} {' / '.join(map(str, tally(of_column).values()))}")
    run = [name for method, name in PEERS.items() if any(r["method"] == method for r in rows)]
    others = [name for name in PEERS.values() if name not in run]
    missing = f" (not run: {', '.join(others)})" if others else ""
    return (
        f"GigaGP: {'; '.join(stamps)}. Peers: {', '.join(run)}{missing}. They learn for at most {times} s of CPU time, "
        "unless their name says "
        '"no cap". Wins / ties / losses of GigaGP over all pairs of a set and a peer, by paired 95% intervals: '
        + "; ".join(counts)
        + "."
    )


def write() -> bool:
    """Write docs/accuracy.md, and the table of the README, if accuracy has been measured."""
    path = RESULTS / "accuracy.json"
    if path.exists():
        results = json.loads(path.read_text())
        (DOCS / "accuracy.md").write_text(page(results))
        README.write_text(with_summary(README.read_text(), results))
    return path.exists()


def with_summary(text: str, results: Result) -> str:
    """A page with what stands between `<!-- accuracy -->` and `<!-- /accuracy -->` written anew."""
    block = f"<!-- accuracy -->\n\n{summary(results)}\n\n<!-- /accuracy -->"
    return re.sub(r"<!-- accuracy -->\n.*?<!-- /accuracy -->", lambda _: block, text, flags=re.S)


if __name__ == "__main__":
    sys.exit(0 if write() else "nothing to render: run accuracy.py first")
