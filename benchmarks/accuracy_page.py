"""docs/accuracy.md and its figure, from results/accuracy.json and from nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from measure import RESULTS
from render import DOCS, FIGURES, Found, origin, table, time_of

OURS = "GigaGP"
STYLES = {
    OURS: ("#1f5fa8", "*"), "SVGP": ("#d1602a", "o"), "SGPR": ("#8450a0", "s"), "GPBoost": ("#3a8f4c", "^"),
    "NN-GP": ("#c2a000", "."), "exact GP": ("#222222", "D"), "boosted trees": ("#7d7d7d", "v"),
}  # fmt: skip
SETTINGS = (
    ("GigaGP", "`HGPRegressor(random_state=0, n_jobs=2)`; intervals and CRPS from `predict_quantiles`, NLPD from mean "
     "and deviation; raw inputs"),
    ("SVGP-1024", "GPyTorch, Matern 5/2, 1,024 learnt inducing inputs, float32, natural gradients at 0.1 and Adam at "
     "0.01, minibatches of 1,024, until the cap; theta starts from the exact evidence of 1,000 rows"),
    ("SGPR-512", "GPyTorch, Matern 5/2, 512 learnt inducing inputs, Adam at 0.05; at most 100,000 rows (memory); the "
     "same start"),
    ("GPBoost Vecchia", "Matern 5/2, 20 neighbours (40 to predict), its defaults; parameters from growing subsets, as "
     "far as the cap allows; predictions from at most 50,000 rows"),
    ("NN-GP", "exact GP on the nearest rows of each query, in torch; family (squared exponential, Matern 5/2, 3/2, "
     "1/2) and theta by the exact evidence of 32 neighbourhoods of 256 rows, for at most half of the cap; queries "
     "are answered in turn for the other half"),
    ("exact GP", "Cholesky in torch, at most 10,000 random rows; theta starts as that of NN-GP and is refined by the "
     "evidence of all its rows until the cap, 120 s, or 20 s where it holds a part of the rows"),
    ("boosted trees", "scikit-learn's histogram gradient boosting, a model for the mean and one for each of seven "
     "quantiles; NLPD is that of a Gaussian with the deviation that its 95% interval implies"),
)  # fmt: skip


def _beginning(who: str) -> str:
    return next(beginning for beginning in STYLES if who.startswith(beginning))


def picture(rows: Sequence[Found]) -> str:
    """Small multiples: RMSE above, NLPD below, against seconds, a column a set."""
    sets = list(dict.fromkeys(r["set"] for r in rows))
    columns = min(5, len(sets))
    bands = math.ceil(len(sets) / columns)
    with plt.rc_context({"axes.spines.top": False, "axes.spines.right": False, "font.size": 9}):
        shown, axes = plt.subplots(
            2 * bands, columns, figsize=(2.9 * columns, 4.6 * bands), layout="constrained", squeeze=False
        )
        for panel in axes.ravel():
            panel.set_visible(False)
        for i, name in enumerate(sets):
            band, column = divmod(i, columns)
            here = [r for r in rows if r["set"] == name]
            for line, score in ((2 * band, "rmse"), (2 * band + 1, "nlpd")):
                _draw(axes[line, column], here, score)
            axes[2 * band, column].set_title(f"{name}\n", fontsize=10, loc="left")
            axes[2 * band + 1, column].set_xlabel("seconds, fit and predict")
            if column == 0:
                axes[2 * band, column].set_ylabel("RMSE")
                axes[2 * band + 1, column].set_ylabel("NLPD")
        used = [s for s in STYLES if any(r["who"].startswith(s) for r in rows)]
        marks = [plt.Line2D([], [], color=STYLES[s][0], marker=STYLES[s][1], linestyle="", label=s) for s in used]
        shown.legend(handles=marks, loc="outside lower center", ncols=len(marks), frameon=False)
        FIGURES.mkdir(parents=True, exist_ok=True)
        shown.savefig(FIGURES / "accuracy.png", dpi=130)
        plt.close(shown)
    return "![RMSE and NLPD against seconds, a column a data set](benchmarks/accuracy.png)"


def _draw(axes: Axes, rows: Sequence[Found], score: str) -> None:
    axes.set_visible(True)
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for row in rows:
        colour, mark = STYLES[_beginning(row["who"])]
        large = 13 if row["who"] == OURS else 7
        axes.plot(_seconds(row), row[score], mark, color=colour, markersize=large, zorder=3 if large == 13 else 2)
    neighbours = [r for r in rows if r["who"].startswith("NN-GP")]
    axes.plot([_seconds(r) for r in neighbours], [r[score] for r in neighbours], color=STYLES["NN-GP"][0], linewidth=1)
    axes.set_xscale("log")
    low, high = min(map(_seconds, rows)) / 1.6, max(map(_seconds, rows)) * 1.6
    ticks = [t * 10**e for e in range(-1, 4) for t in (1, 2, 5) if low <= t * 10**e <= high]
    axes.set_xlim(low, high)
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    _leave_out_far(axes, rows, score)


def _leave_out_far(axes: Axes, rows: Sequence[Found], score: str) -> None:
    """A scale for the better three quarters; who is much worse lies outside, and is named."""
    values = sorted(r[score] for r in rows)
    best, usual = values[0], values[(3 * len(values)) // 4]
    top = usual + 0.5 * max(usual - best, 1e-3)
    far = list(dict.fromkeys(_beginning(r["who"]) for r in rows if r[score] > top))
    if far:
        axes.set_ylim(best - 0.1 * (top - best), top)
        axes.annotate(f"above: {', '.join(far)}", (0.5, 1.0), xycoords="axes fraction", ha="center", va="bottom",
                      fontsize=8, color="#777777")  # fmt: skip


def _seconds(row: Found) -> float:
    return float(row["fit_seconds"] + row["predict_seconds"])


def bars_table(bars: Sequence[Found]) -> str:
    body = [(b["what"], f"{b['measured']:.4g}", b["bar"], "met" if b["met"] else "**missed**") for b in bars]
    return table(("what", "measured", "bar", ""), body)


def set_table(rows: Sequence[Found], versus: Sequence[Found]) -> str:
    """All methods on one set, split 0."""
    against = {v["who"]: v for v in versus}
    head = ("who", "RMSE", "NLPD", "CRPS", "50 / 80 / 95% cover", "fit", "predict", "peak GB", "cap",
            "our NLPD less theirs (95% interval)", "ours")  # fmt: skip
    return table(head, [_line(r, against.get(r["who"])) for r in rows])


def _line(row: Found, against: Found | None) -> tuple[str, ...]:
    if "error" in row:
        return (row["who"], f"{row['error']} (cap {row['cap']:.0f} s)", *[""] * 9)
    covered = " / ".join(f"{100 * row['coverage'][level]:.1f}" for level in ("0.5", "0.8", "0.95"))
    share = row["answered"] / row["queries"]
    cap = f"{row['cap']:.0f} s{', cap' if row['capped'] else ''}" if row["cap"] else ""
    cap += f", {share:.0%} answered" if share < 1 else ""
    difference = ("", "") if against is None else (
        f"{against['difference']:.3f} ({against['low']:.3f} to {against['high']:.3f})", against["verdict"]
    )  # fmt: skip
    return (
        row["who"], f"{row['rmse']:.4f}", f"{row['nlpd']:.3f}", f"{row['crps']:.4f}", covered,
        time_of(row["fit_seconds"]), time_of(row["predict_seconds"]), f"{row['gb']:.1f}", cap, *difference,
    )  # fmt: skip


def splits_table(versus: Sequence[Found]) -> str:
    body = [
        (v["set"], v["who"], ", ".join(map(str, v["splits"])), f"{v['difference']:.3f}",
         f"{v['low']:.3f} to {v['high']:.3f}", v["verdict"])
        for v in versus
    ]  # fmt: skip
    return table(("data", "who", "splits", "our NLPD less theirs", "95% interval", "ours"), body)


def ours_table(rows: Sequence[Found]) -> str:
    """Our scores on every split that was run. Splits from 1 on served development; split 0 did not."""
    body = [
        (r["set"], str(r["split"]), f"{r['rmse']:.4f}", f"{r['nlpd']:.3f}",
         " / ".join(f"{100 * r['coverage'][level]:.1f}" for level in ("0.5", "0.8", "0.95")))
        for r in sorted(rows, key=lambda r: (r["set"], r["split"]))
        if r["who"] == OURS and "nlpd" in r
    ]  # fmt: skip
    return table(("data", "split", "RMSE", "NLPD", "50 / 80 / 95% cover"), body)


def measured(rows: Sequence[Found]) -> str:
    """When, and from which commits."""
    when = list(dict.fromkeys(f"{r['date']}, commit {r['commit']}" for r in rows))
    return f"Measured {'; '.join(when)}."


def page(found: Found) -> str:
    rows = [r for r in found["rows"] if r["split"] == 0]
    text = [
        "# Accuracy",
        "Written by `benchmarks/render.py` from what `benchmarks/accuracy.py --full` measured; do not edit. Scores are "
        "in units of the target's deviation on the training rows. All methods saw the same rows, each in a process of "
        "its own with two threads. A peer trains until its cap, the larger of the set's floor and 1.25 times our fit "
        "and predict; where that stopped it, the table says so. Of NN-GP the count that does best against us "
        "on these very test rows is the bar. Intervals of differences are paired over the test rows. A win or a loss "
        "is one whose 95% interval leaves out zero.",
        origin(found) + ".",
        "## Bars", bars_table(found["bars"]) if found["bars"] else "Split 0 has not been run.",
    ]  # fmt: skip
    if rows:
        text += ["## Against time", picture([r for r in rows if "nlpd" in r])]
    for name in dict.fromkeys(r["set"] for r in rows):
        here = [r for r in rows if r["set"] == name]
        whole = next((r for r in here if "nlpd" in r), None)
        counts = "" if whole is None else f"{whole['rows']:,} rows for training, {whole['queries']:,} for test. "
        versus = [v for v in found["versus"] if v["set"] == name and v["splits"] == [0]]
        text += [f"## {name}", counts + measured(here), set_table(here, versus)]
    text += ["## Ours over splits", ours_table(found["rows"])]
    several = [v for v in found["versus"] if v["splits"] != [0]]
    if several:
        text += ["## Over splits", splits_table(several)]
    text += ["## Settings", table(("who", "how"), SETTINGS)]
    return "\n\n".join(text) + "\n"


def write() -> bool:
    """Write docs/accuracy.md if accuracy has been measured."""
    path = RESULTS / "accuracy.json"
    if path.exists():
        (DOCS / "accuracy.md").write_text(page(json.loads(path.read_text())))
    return path.exists()
