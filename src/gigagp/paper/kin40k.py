"""The paper's table "kin40k": the hierarchy with 1 to 7 levels against the exact GP, on 10,000 rows of the robot arm.

Each level assigns every row to two of four children: 4 to 16,384 experts of 5,000 to 79 rows. All rules combine the
same predictions of the same experts. Our model has cells of half as many rows, and its experts use as many outside
rows, so that they have as many rows as those of the paper.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gigagp import HGPRegressor, metrics
from gigagp.arrays import Array
from gigagp.combine import RBCM, GPoE, Healed, PoE, Rule
from gigagp.kernels import Kernel, SquaredExponential
from gigagp.paper import datasets, drawing, likelihood_ratios, page
from gigagp.paper.all_experts import predict_with_all_experts
from gigagp.paper.likelihood_ratios import ExactGP
from gigagp.paper.record import Record, Results
from gigagp.progress import Listener, silent

FILE = "uci_kin40k"
MASK = "orig_test_mask"
BRANCHING = 4
SHARING = 2
PAPER_RATIO = {1: 0.992, 2: 0.978, 3: 0.956, 4: 0.909, 5: 0.875, 6: 0.834, 7: 0.815}
PAPER_SECONDS = {0: 218.5, 1: 75.6, 2: 56.5, 3: 52.0, 4: 49.4, 5: 32.2, 6: 17.1, 7: 22.0}
EQ7 = "paper: PoE over y (eq. 7)"
RULES: dict[str, Rule] = {
    EQ7: PoE(target="y"), "PoE over f": PoE(), "gPoE": GPoE(), "rBCM": RBCM(), "healed": Healed(),
}  # fmt: skip
BLEND = "ours: local, blend"
DEFAULTS = "ours: defaults"


@dataclass(frozen=True)
class Settings:
    """How many of the 10,000 rows and 30,000 queries are used, which levels, and queries for the likelihood ratios."""

    training: int = 10_000
    queries: int = 30_000
    levels: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)
    read: int = 2_000  # queries at which the readings of the likelihood ratio are compared
    joint: int = 50  # of these, queries whose joint density is used
    random_from: int = 5  # levels from which random experts are trained: with fewer levels training takes too long
    seed: int = 0

    def points(self, level: int) -> int:
        """The largest number of rows of an expert."""
        return -(-self.training * int(SHARING**level) // int(BRANCHING**level))


FULL = Settings()
QUICK = Settings(training=1_500, queries=2_000, levels=(1, 2, 3, 4), read=1_000)


class Rows(datasets.Rows):
    """Targets are in standard deviations of the training targets."""

    @classmethod
    def of(cls, folder: Path, settings: Settings) -> Rows:
        data = datasets.load(folder, FILE, MASK, rows=settings.training + settings.queries)
        test = np.asarray(data[MASK], bool).ravel()
        X, y = np.asarray(data["X"], float), np.asarray(data["y"], float)
        rng = np.random.default_rng(settings.seed)
        rows = rng.permutation(np.flatnonzero(~test))[: settings.training]
        queries = rng.permutation(np.flatnonzero(test))[: settings.queries]
        y = (y - y[rows].mean()) / y[rows].std()
        return cls(X[rows], y[rows], X[queries], y[queries])


def exact_model(settings: Settings, start: Kernel | None = None) -> HGPRegressor:
    """One expert on all rows."""
    return HGPRegressor(
        start or SquaredExponential(), partition="random", leaf_size=settings.training, training="full",
        standardize=False, random_state=settings.seed,
    )  # fmt: skip


def paper_model(settings: Settings, level: int, partition: str = "stratified") -> HGPRegressor:
    return HGPRegressor(
        SquaredExponential(), partition=partition, levels=level, branching=BRANCHING, sharing=SHARING,
        combine=PoE(target="y"), experts_per_query=None, training="full", standardize=False, random_state=settings.seed,
    )  # fmt: skip


def our_model(settings: Settings, level: int, defaults: bool) -> HGPRegressor:
    """Experts of as many points as the paper's: a cell of half of them, and as many around it."""
    size: dict[str, Any] = {"leaf_size": -(-settings.points(level) // 2), "sharing": 2, "random_state": settings.seed}
    if defaults:
        return HGPRegressor(**size)
    return HGPRegressor(SquaredExponential(), combine="blend", experts="gaussian", calibrate=False, **size)


def run(record: Record, data: Path, settings: Settings, tell: Listener = silent) -> Results:
    rows = Rows.of(data, settings)
    spread = rows.X.std(axis=0)
    rows = Rows(rows.X / spread, rows.y, rows.Z / spread, rows.truth)
    exact = record.step("exact", lambda: _exact(rows, settings, tell))
    truth = ExactGP.of(rows.X, rows.y, rows.Z[: settings.read], rows.truth[: settings.read], exact)
    own = ExactGP.of(
        rows.X, rows.y, rows.X[: settings.read], rows.y[: settings.read], {**exact, **exact["at_training_rows"]}
    )
    levels = {level: _level(record, rows, exact, (truth, own), settings, level, tell) for level in settings.levels}
    ours = record.step("ours, all defaults", lambda: _ours(rows, exact, HGPRegressor(random_state=settings.seed), tell))
    short = {key: value for key, value in exact.items() if key not in ("mean", "std", "at_training_rows")}
    return {"exact": short, "levels": {str(level): results for level, results in levels.items()}, "ours": ours}


def _exact(rows: Rows, settings: Settings, tell: Listener) -> Results:
    cells = HGPRegressor(SquaredExponential(), experts="gaussian", standardize=False, random_state=settings.seed)
    model = exact_model(settings, cells.fit(rows.X, rows.y).kernel_).fit(rows.X, rows.y, progress=tell)
    mean, std = model.predict(rows.Z, return_std=True)
    at_rows = model.predict(rows.X[: settings.read], return_std=True)
    return {
        **_training(model), **_scored(rows.truth, mean, std), "mean": mean.tolist(), "std": std.tolist(),
        "at_training_rows": {"mean": at_rows[0].tolist(), "std": at_rows[1].tolist()},
    }  # fmt: skip


def _training(model: HGPRegressor) -> Results:
    report = model.report_
    return {
        "training_seconds": report.seconds["training"], "iterations": report.iterations,
        "evaluations": report.evaluations, "theta": report.theta.tolist(),
        "evidence": report.stages[-1].evidence_per_point, "converged": report.converged,
    }  # fmt: skip


def _scored(truth: Array, mean: Array, std: Array) -> Results:
    return {
        "rmse": metrics.rmse(truth, mean), "nlpd": metrics.nlpd(truth, mean, std),
        "coverage": metrics.coverage(truth, mean, std),
    }  # fmt: skip


def _compared(rows: Rows, exact: Results, mean: Array, std: Array) -> Results:
    """Scores, and the ratio to the exact GP."""
    ratio = metrics.likelihood_ratio(np.array(exact["mean"]), np.array(exact["std"]), mean, std)
    return {**_scored(rows.truth, mean, std), "ratio": ratio}


def _ours(rows: Rows, exact: Results, model: HGPRegressor, tell: Listener) -> Results:
    start = time.perf_counter()
    model.fit(rows.X, rows.y, progress=tell)
    fitted = time.perf_counter()
    mean, std = model.predict(rows.Z, return_std=True)
    predicted = time.perf_counter()
    return {
        **_compared(rows, exact, mean, std), "fit_seconds": fitted - start, "predict_seconds": predicted - fitted,
        "points": model.report_.points_per_expert[1], "experts": model.n_leaves_,
    }  # fmt: skip


def _level(
    record: Record, rows: Rows, exact: Results, truths: tuple[ExactGP, ExactGP], settings: Settings,
    level: int, tell: Listener,
) -> Results:  # fmt: skip
    """Everything about one depth: the paper's experts under all rules and likelihood ratios, and ours of equal size."""
    fitted: dict[str, HGPRegressor] = {}

    def step(what: str, work: Callable[[], Results]) -> Results:
        return record.step(f"level {level}, {what}", work)

    def model(partition: str) -> HGPRegressor:
        if partition not in fitted:
            fitted[partition] = paper_model(settings, level, partition).fit(rows.X, rows.y, progress=tell)
        return fitted[partition]

    def trained() -> Results:
        one = model("stratified")
        predictions = predict_with_all_experts(one, rows.Z, RULES, tell)
        sizes = one.report_.points_per_leaf
        rules = {name: _compared(rows, exact, mean, std) for name, (mean, std) in predictions.items()}
        return {**_training(one), "leaves": one.n_leaves_, "points": list(sizes), "rules": rules}

    results = step("trained", trained)
    trained_theta, (truth, own) = np.array(results["theta"]), truths
    reads: dict[str, tuple[Callable[[], HGPRegressor], Array | None]] = {
        "kd-tree, theta trained": (lambda: model("stratified"), trained_theta)
    }
    reads["kd-tree, theta of the exact GP"] = (lambda: model("stratified"), truth.theta)
    if level >= settings.random_from:
        reads["random, theta trained"] = (lambda: model("random"), None)
    reads["random, theta of the exact GP"] = (lambda: _dealt(rows, settings, level), truth.theta)
    read = {
        how: step(how, lambda make=make, theta=theta: truth.ratios(make(), theta, settings.joint, tell))  # type: ignore[misc]
        for how, (make, theta) in reads.items()
    }
    at_rows = "kd-tree, theta trained, at training rows"
    read[at_rows] = step(at_rows, lambda: own.ratios(model("stratified"), trained_theta, 0, tell))
    for name, defaults in ((BLEND, False), (DEFAULTS, True)):
        ours = our_model(settings, level, defaults)
        results["rules"][name] = step(name, lambda ours=ours: _ours(rows, exact, ours, tell))  # type: ignore[misc]
    return {**results, "readings": read}


def _dealt(rows: Rows, settings: Settings, level: int) -> HGPRegressor:
    """Random experts without training, for use with another theta."""
    model = paper_model(settings, level, "random")
    model.kernel = SquaredExponential(1.0, 1.0, variance_bounds=(1.0, 1.0), lengthscale_bounds=(1.0, 1.0))
    model.noise_bounds = (0.1, 0.1)
    model.fit(rows.X, rows.y)
    return model


def write(record: Record, results: Results, settings: Settings, paths: page.Paths) -> str:
    levels = {int(level): each for level, each in results["levels"].items()}
    draw(results, settings, paths.picture())
    names = [*RULES, BLEND, DEFAULTS]
    first = page.table(
        ["levels", "leaves", "points per leaf", "s per iteration, paper", "here", "iterations", "ratio, paper", "here"],
        [["exact GP", "-", f"{settings.training:,}", f"{PAPER_SECONDS[0]:.1f}", _pace(results["exact"]),
          str(results["exact"]["iterations"]), "1", "1"],
         *([str(level), f"{each['leaves']:,}", _span(each["points"]), f"{PAPER_SECONDS[level]:.1f}", _pace(each),
            str(each["iterations"]), f"{PAPER_RATIO[level]:.3f}", f"{each['rules'][EQ7]['ratio']:.3f}"]
           for level, each in levels.items())],
    )  # fmt: skip
    tables = {
        key: page.table(
            ["points per leaf", *names],
            [[_span(each["points"]), *(page.number(each["rules"][name][key]) for name in names)]
             for each in levels.values()],
        )
        for key in ("ratio", "rmse", "nlpd")
    }  # fmt: skip
    exact, ours = results["exact"], results["ours"]
    text = [
        f"{settings.training:,} rows for training, {settings.queries:,} for the test (the classic split), squared "
        "exponential with one length-scale per column, standardised target, float64. Each architecture trains its own "
        "theta, with all experts at every evaluation (L-BFGS) and at every query. The exact GP starts "
        "from the kernel of our local experts, which saves it iterations. The paper's computer had four cores.",
        "## The paper's table",
        first,
        "The ratio is that of the paper: exp(-KL) between the predictive distributions of y, averaged over "
        f"{settings.queries:,} queries, for the product of densities of the noisy y (eq. 7).",
        "## All rules, and ours with experts of the same size",
        f"![Ratio, RMSE and NLPD by points per leaf]({paths.picture().name})",
        f"The exact GP has RMSE {exact['rmse']:.4f} and NLPD {exact['nlpd']:.3f}, after "
        f"{exact['training_seconds'] / 60:.1f} minutes of training. Our defaults, with experts of the size they choose "
        f"({ours['points']:,} points), have {ours['rmse']:.4f} and {ours['nlpd']:.3f}, after "
        f"{ours['fit_seconds']:.1f} s to fit and {ours['predict_seconds']:.1f} s to predict.",
        "Likelihood ratio to the exact GP:", tables["ratio"],
        "RMSE:", tables["rmse"],
        "NLPD:", tables["nlpd"],
        *_conclusions(levels),
        *likelihood_ratios.section(
            {level: each["readings"] for level, each in levels.items()}, PAPER_RATIO,
            {level: (each["evidence"], exact["evidence"]) for level, each in levels.items()},
            settings.joint, settings.read,
        ),
    ]  # fmt: skip
    page.write(paths, "The kin40k table", text, record, f"seed {settings.seed} everywhere")
    return f"{first}\n\nratio\n{tables['ratio']}\n\nRMSE\n{tables['rmse']}\n\nNLPD\n{tables['nlpd']}"


def _pace(trained: Results) -> str:
    return page.number(trained["training_seconds"] / max(1, trained["iterations"]), 2)


def _span(points: list[int]) -> str:
    low, high = points
    return f"{high:,}" if low == high else f"{low:,}-{high:,}"


def _conclusions(levels: dict[int, Results]) -> list[str]:
    """How often ours is better than the paper's model with experts of the same size."""
    lines = []
    for name in (BLEND, DEFAULTS):
        wins = {
            key: sum(sign * each["rules"][name][key] < sign * each["rules"][EQ7][key] for each in levels.values())
            for key, sign in (("ratio", -1), ("rmse", 1), ("nlpd", 1))
        }
        lines.append(
            f"- {name}: the better ratio in {wins['ratio']}, RMSE in {wins['rmse']} and NLPD in {wins['nlpd']} of "
            f"{len(levels)} sizes, against the paper's model."
        )
    return ["With experts of the same size:", "\n".join(lines)]


def draw(results: Results, settings: Settings, path: Path) -> None:
    """Ratio, RMSE and NLPD by rows per leaf, with the exact GP and the ratios printed in the paper."""
    levels = {int(level): each for level, each in results["levels"].items()}
    points = [settings.points(level) for level in levels]
    figure, axes = drawing.grid(1, 3, (12, 4.2))
    colours = dict(
        zip([*RULES, BLEND, DEFAULTS], [drawing.EXACT, *drawing.FAMILY[1:5], "#1f5fa8", "#0b2d54"], strict=True)
    )
    for ax, key, title in zip(axes[0], ("ratio", "rmse", "nlpd"), ("likelihood ratio", "RMSE", "NLPD"), strict=True):
        for name, colour in colours.items():
            values = [each["rules"][name][key] for each in levels.values()]
            ax.plot(points, values, "o-", color=colour, markersize=3.5, linewidth=1.3, label=name)
        if key == "ratio":
            printed = [PAPER_RATIO[level] for level in levels]
            ax.plot(points, printed, "k--", linewidth=1, label="as printed in the paper")
            ax.set_ylim(0, 1.03)
        else:
            ax.axhline(results["exact"][key], color="black", linewidth=1, linestyle=":", label="exact GP")
        ax.set_xscale("log")
        ax.set_xticks(points, [f"{p:,}" for p in points], fontsize=8, rotation=45)
        ax.minorticks_off()
        ax.set_xlabel("points per expert", fontsize=9)
        ax.set_title(title, fontsize=10, loc="left")
        ax.spines[["top", "right"]].set_visible(False)
    lowest = min(each["rules"][name]["nlpd"] for each in levels.values() for name in colours)
    axes[0, 2].set_ylim(min(lowest, results["exact"]["nlpd"]) - 0.2, 3.0)
    lines = {label: line for ax in axes[0] for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    drawing.save(figure, path)
