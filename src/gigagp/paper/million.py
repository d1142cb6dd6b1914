"""The paper's "10^6 data points on a standard laptop in about 20 minutes": training with all experts at every step.

For comparison, progressive training of the same experts, and our defaults. The data are generated (robot arm).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gigagp import HGPRegressor, metrics
from gigagp.combine import PoE
from gigagp.datasets import robot_arm
from gigagp.kernels import SquaredExponential
from gigagp.paper import drawing, page
from gigagp.paper.record import Record, Results
from gigagp.progress import Listener, silent

PAPER_MINUTES = 20


@dataclass(frozen=True)
class Settings:
    rows: int = 1_000_000
    held_out: int = 2_000
    leaf_size: int = 512
    seed: int = 0


FULL = Settings()
QUICK = Settings(rows=100_000)
_PAPER = {"partition": "random", "combine": PoE(), "experts_per_query": None}
WAYS: dict[str, dict[str, Any]] = {
    "the paper's: random experts, all at every evaluation": {**_PAPER, "training": "full"},
    "the same experts, progressive training": {**_PAPER, "training": "progressive"},
    "ours, all experts at every evaluation": {"training": "full"},
    "ours, defaults (progressive training)": {},
}


def run(record: Record, data: Path, settings: Settings, tell: Listener = silent) -> Results:
    """Each way in turn; the data folder is not used."""
    lines = {way: record.step(way, lambda way=way: _one(way, settings, tell)) for way in WAYS}  # type: ignore[misc]
    return {"lines": lines}


def _one(way: str, settings: Settings, tell: Listener) -> Results:
    X, y = robot_arm(settings.rows + settings.held_out, seed=settings.seed)
    n, own = settings.rows, WAYS[way]
    if "partition" in own:
        own = {**own, "kernel": SquaredExponential(), "leaf_size": settings.leaf_size}
    start = time.perf_counter()
    model = HGPRegressor(random_state=settings.seed, **own).fit(X[:n], y[:n], progress=tell)
    fitted = time.perf_counter() - start
    mean, std = model.predict(X[n:], return_std=True)
    predicted = time.perf_counter() - start - fitted
    scale, truth, report = float(y[:n].std()), y[n:], model.report_
    return {
        "fit_seconds": fitted, "training_seconds": report.seconds["training"], "predict_seconds": predicted,
        "evaluations": report.evaluations, "iterations": report.iterations, "experts": model.n_leaves_,
        "points": report.points_per_leaf[1], "evidence": report.stages[-1].evidence_per_point,
        "rmse": metrics.rmse(truth, mean) / scale, "nlpd": metrics.nlpd(truth, mean, std) - float(np.log(scale)),
        "coverage": metrics.coverage(truth, mean, std), "trace": list(report.evidence_trace),
        "converged": report.converged,
    }  # fmt: skip


HEAD = [
    "way", "experts", "points", "iterations", "evaluations", "minutes to fit", "s to predict", "RMSE", "NLPD",
    "95% coverage",
]  # fmt: skip


def table(results: Results) -> list[list[str]]:
    return [
        [way, f"{r['experts']:,}", f"{r['points']:,}", str(r["iterations"]), str(r["evaluations"]),
         page.number(r["fit_seconds"] / 60, 2), f"{r['predict_seconds']:.1f}", page.number(r["rmse"], 4),
         page.number(r["nlpd"]), f"{r['coverage']:.1%}"]
        for way, r in results["lines"].items()
    ]  # fmt: skip


def write(record: Record, results: Results, settings: Settings, paths: page.Paths) -> str:
    draw(results, paths.picture())
    paper = results["lines"][next(iter(WAYS))]
    text = [
        f"The paper reports a full training with a million points on a laptop in about {PAPER_MINUTES} minutes; it "
        "does not say of which data or experts. Here: robot arm data, eight columns, noise 0.01; for the paper's way "
        f"random experts of {settings.leaf_size} points, squared exponential, float64. Scores are of "
        f"{settings.held_out:,} further rows, in units of the target's standard deviation.",
        page.table(HEAD, table(results)),
        f"The paper's way took {paper['fit_seconds'] / 60:.1f} minutes for {settings.rows:,} rows, "
        f"{'to convergence' if paper['converged'] else 'without converging'}.",
        f"![Evidence per row during training]({paths.picture().name})",
        "Random experts contain few neighbours of a query, so all must predict; with cells of neighbours (ours) the "
        "nearest few predict better. Progressive training uses growing batches of experts and stops when more "
        "experts would change next to nothing.",
    ]
    page.write(paths, "A million rows on a laptop", text, record, f"seed {settings.seed}")
    return page.table(HEAD, table(results))


def draw(results: Results, path: Path) -> None:
    """The evidence per row during training."""
    figure, axes = drawing.grid(1, 1, (7.5, 3.8))
    ax = axes[0, 0]
    for (way, line), colour in zip(results["lines"].items(), drawing.FAMILY, strict=False):
        ax.plot(np.arange(1, len(line["trace"]) + 1), line["trace"], color=colour, linewidth=1.4, label=way)
    last = [line["trace"][-1] for line in results["lines"].values()]
    ax.set_ylim(min(last) - 1.5, max(last) + 0.2)
    ax.set_xlabel("evaluations of the evidence", fontsize=9)
    ax.set_ylabel("log evidence per row", fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    drawing.save(figure, path)
