"""The paper's table "airline": delays of flights, 1,400 experts of 1,000 random points, each row in two of them.

Four times, rows are drawn at random from all flights. Beside the paper's model: what it compares with (a stochastic
variational GP), the mean and boosted trees as sanity lines, and our defaults on the same rows and on all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from gigagp import HGPRegressor, metrics
from gigagp.arrays import Array
from gigagp.combine import RBCM, GPoE, Healed, PoE, Rule
from gigagp.kernels import SquaredExponential
from gigagp.memory import peak_memory
from gigagp.paper import datasets, drawing, page, peers
from gigagp.paper.all_experts import BLOCK, predict_with_all_experts
from gigagp.paper.record import Record, Results
from gigagp.progress import Listener, silent

FILE = "airline2008_jan_apr"
PAPER = {"SVGP (Hensman et al. 2013)": 33.00, "distributed SVGP (Gal et al. 2014)": 32.95, "HGP": 27.45}
PAPER_MINUTES = 35.6
PAPER_ITERATIONS = 14
RULES: dict[str, Rule] = {
    "PoE over y, as eq. 7": PoE(target="y"), "PoE over f": PoE(), "gPoE": GPoE(), "rBCM": RBCM(), "healed": Healed(),
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """Numbers of rows, experts and repeats, and the seconds that the SVGP may train."""

    training: int = 700_000
    test: int = 100_000
    repeats: int = 4
    experts: int = 1_400
    sharing: int = 2
    dtype: str = "float32"
    inducing: int = 512
    svgp_seconds: float = 120.0

    @property
    def points(self) -> int:
        """Rows of one expert."""
        return self.training * self.sharing // self.experts


FULL = Settings()
QUICK = Settings(training=35_000, test=2_000, repeats=1, experts=70, svgp_seconds=10.0)


class Rows(datasets.Rows):
    """One repeat; delays are in minutes."""

    @classmethod
    def drawn(cls, X: Array, y: Array, settings: Settings, seed: int) -> Rows:
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = np.split(order[: settings.training + settings.test], [settings.training])
        return cls(X[train], y[train], X[test], y[test])

    @classmethod
    def all_but_the_test(cls, X: Array, y: Array, settings: Settings, seed: int) -> Rows:
        order = np.random.default_rng(seed).permutation(len(y))
        test = order[settings.training : settings.training + settings.test]
        others = np.delete(order, np.s_[settings.training : settings.training + settings.test])
        return cls(X[others], y[others], X[test], y[test])


def run(record: Record, data: Path, settings: Settings, tell: Listener = silent) -> Results:
    """All repeats, one step after another."""
    most = settings.training + settings.test
    table = datasets.load(data, FILE, rows=most)
    X, y = np.asarray(table["X"], float), np.asarray(table["y"], float)
    repeats = []
    for seed in range(settings.repeats):
        rows = Rows.drawn(X, y, settings, seed)
        all_others = Rows.all_but_the_test(X, y, settings, seed) if len(y) > most else None
        repeats.append(_repeat(record, rows, all_others, float(rows.y.std()), settings, seed, tell))
    return {"rows": len(y), "repeats": repeats, "names": list(repeats[0]["lines"])}


def _repeat(
    record: Record, rows: Rows, all_others: Rows | None, scale: float, settings: Settings, seed: int, tell: Listener
) -> Results:
    def step(what: str, work: Callable[[], Results]) -> Results:
        return record.step(f"repeat {seed}, {what}", work)

    lines = {"the mean": step("the mean", lambda: _mean(rows, scale))}
    lines["boosted trees"] = step("boosted trees", lambda: _trees(rows, seed))
    reason = peers.reason_unavailable("svgp", "torch", "gpytorch")
    name = f"SVGP, {settings.inducing} inducing inputs (GPyTorch)"
    if reason is None:
        lines[name] = step("SVGP", lambda: _svgp(rows, scale, settings))
    else:
        lines[name] = {"not_run": reason}
    lines |= _paper_model(record, rows, scale, settings, seed, tell)
    lines["ours, defaults"] = step("ours", lambda: _ours(rows, scale, seed, tell))
    if all_others is not None:
        name = f"ours, defaults, all {len(all_others.y):,} rows"
        lines[name] = step("ours all", lambda: _ours(all_others, scale, seed, tell))
    return {"seed": seed, "deviation": scale, "lines": lines}


def _scored(truth: Array, mean: Array, std: Array, scale: float) -> Results:
    """RMSE in minutes, NLPD in standard deviations of the training targets, coverage of 95% intervals."""
    return {
        "rmse": metrics.rmse(truth, mean), "nlpd": metrics.nlpd(truth, mean, std) - float(np.log(scale)),
        "coverage": metrics.coverage(truth, mean, std),
    }  # fmt: skip


def _mean(rows: Rows, scale: float) -> Results:
    flat = np.full(len(rows.truth), rows.y.mean())
    return _scored(rows.truth, flat, np.full(len(flat), scale), scale)


def _trees(rows: Rows, seed: int) -> Results:
    start = time.perf_counter()
    model = HistGradientBoostingRegressor(random_state=seed).fit(rows.X, rows.y)
    fitted = time.perf_counter() - start
    return {"rmse": metrics.rmse(rows.truth, model.predict(rows.Z)), "fit_seconds": fitted}


def _svgp(rows: Rows, scale: float, settings: Settings) -> Results:
    centre, spread = rows.X.mean(axis=0), rows.X.std(axis=0)
    level = float(rows.y.mean())
    prediction = (
        peers.load_peer("svgp")
        .SVGP(settings.inducing)
        .learn((rows.X - centre) / spread, (rows.y - level) / scale, (rows.Z - centre) / spread, settings.svgp_seconds)
    )
    scores = _scored(rows.truth, prediction.mean * scale + level, prediction.std * scale, scale)
    return {**scores, "fit_seconds": prediction.fit_seconds, "predict_seconds": prediction.predict_seconds}


def paper_model(settings: Settings, seed: int) -> HGPRegressor:
    """One level of random experts, each row in two of them, all experts at every evaluation."""
    return HGPRegressor(
        SquaredExponential(), partition="random", levels=1, branching=settings.experts, sharing=settings.sharing,
        combine=PoE(target="y"), experts_per_query=None, training="full", dtype=settings.dtype, random_state=seed,
    )  # fmt: skip


def _paper_model(
    record: Record, rows: Rows, scale: float, settings: Settings, seed: int, tell: Listener
) -> dict[str, Results]:
    """Train the paper's model and predict block by block.

    An interrupted run repeats the training, which is the shorter part, and goes on with the next block.
    """
    fitted: list[HGPRegressor] = []

    def model() -> HGPRegressor:
        if not fitted:
            fitted.append(paper_model(settings, seed).fit(rows.X, rows.y, progress=tell))
        return fitted[0]

    def train() -> Results:
        start = time.perf_counter()
        report = model().report_
        return {
            "fit_seconds": time.perf_counter() - start, "iterations": report.iterations,
            "evaluations": report.evaluations, "theta": report.theta.tolist(), "names": list(report.names),
        }  # fmt: skip

    def predict_block(start: int, spent: float) -> Results:
        """Sums over the queries of a block."""
        Z, truth = rows.Z[start : start + BLOCK], rows.truth[start : start + BLOCK]
        begin = time.perf_counter()
        predictions = predict_with_all_experts(model(), Z, RULES, _of_all(tell, start, spent, len(rows.truth)))
        sums = {
            name: {
                "squares": float(np.sum((truth - mean) ** 2)), "loss": metrics.nlpd(truth, mean, std) * len(truth),
                "inside": metrics.coverage(truth, mean, std) * len(truth),
            }
            for name, (mean, std) in predictions.items()
        }  # fmt: skip
        return {"queries": len(truth), "seconds": time.perf_counter() - begin, "gb": peak_memory(), "sums": sums}

    trained = record.step(f"repeat {seed}, theta", train)
    blocks: list[Results] = []
    for start in range(0, len(rows.Z), BLOCK):
        spent = sum(b["seconds"] for b in blocks)
        blocks.append(record.step(f"repeat {seed}, block {start}", partial(predict_block, start, spent)))
    n = sum(b["queries"] for b in blocks)
    shared = {
        "fit_seconds": trained["fit_seconds"], "iterations": trained["iterations"],
        "evaluations": trained["evaluations"], "predict_seconds": sum(b["seconds"] for b in blocks),
        "gb": max(b["gb"] for b in blocks), "theta": trained["theta"], "names": trained["names"],
    }  # fmt: skip
    lines = {}
    for name in RULES:
        squares, loss, inside = (sum(b["sums"][name][key] for b in blocks) for key in ("squares", "loss", "inside"))
        scores = {"rmse": (squares / n) ** 0.5, "nlpd": loss / n - float(np.log(scale)), "coverage": inside / n}
        lines[f"the paper's experts, {name}"] = {**scores, **shared}
    return lines


def _of_all(tell: Listener, rows: int, seconds: float, total: int) -> Listener:
    """Report the progress of a block as progress of all queries; earlier blocks had `rows` queries."""
    return lambda event: tell(replace(event, done=rows + event.done, total=total, seconds=seconds + event.seconds))


def _ours(rows: Rows, scale: float, seed: int, tell: Listener) -> Results:
    start = time.perf_counter()
    model = HGPRegressor(random_state=seed).fit(rows.X, rows.y, progress=tell)
    fitted = time.perf_counter()
    mean, std = model.predict(rows.Z, return_std=True)
    predicted = time.perf_counter()
    return {
        **_scored(rows.truth, mean, std, scale), "fit_seconds": fitted - start, "predict_seconds": predicted - fitted,
        "iterations": model.report_.iterations, "evaluations": model.report_.evaluations,
        "points": model.report_.points_per_expert[1],
    }  # fmt: skip


def _of_repeats(results: Results, line: str, key: str) -> list[float]:
    return [r["lines"][line][key] for r in results["repeats"] if r["lines"][line].get(key) is not None]


def _mean_and_spread(values: list[float], digits: int) -> str:
    if not values:
        return "-"
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def table(results: Results) -> list[list[str]]:
    """One line per model: mean and standard deviation over the repeats."""
    lines = []
    for line in results["names"]:
        reason = results["repeats"][0]["lines"][line].get("not_run")
        if reason:
            lines.append([line, f"not run: {reason}", *["-"] * 5])
            continue
        fit, predict = _of_repeats(results, line, "fit_seconds"), _of_repeats(results, line, "predict_seconds")
        lines.append([
            line, _mean_and_spread(_of_repeats(results, line, "rmse"), 2),
            _mean_and_spread(_of_repeats(results, line, "nlpd"), 3),
            _mean_and_spread(_of_repeats(results, line, "coverage"), 3),
            page.number(float(np.mean(fit)) / 60, 2) if fit else "-",
            page.number(float(np.mean(predict)) / 60, 2) if predict else "-",
            _mean_and_spread(_of_repeats(results, line, "iterations"), 0),
        ])  # fmt: skip
    return lines


HEAD = ["model", "RMSE, minutes", "NLPD", "95% coverage", "minutes to train", "minutes to predict", "iterations"]


def write(record: Record, results: Results, settings: Settings, paths: page.Paths) -> str:
    """The page and its picture; returns the table for the terminal."""
    draw(results, paths.picture())
    rows = table(results)
    printed = [[f"{name}, as printed in the paper", number, "-", "-", minutes, "-", steps]
               for name, number, minutes, steps in _printed()]  # fmt: skip
    paper = [r["lines"]["the paper's experts, PoE over y, as eq. 7"] for r in results["repeats"]]
    theta = ", ".join(
        f"{name} {np.exp(np.mean([r['theta'][i] for r in paper])):.3g}" for i, name in enumerate(paper[0]["names"])
    )
    text = [
        f"{settings.training:,} training rows and {settings.test:,} test rows, drawn at random from "
        f"{results['rows']:,} flights, {_times(settings.repeats)}; the paper's own rows cannot be recovered. Its "
        f"experts: {settings.experts:,} of {settings.points:,} random rows each, every row in {settings.sharing} of "
        "them, squared exponential, all experts at every evaluation and for every query, "
        f"{settings.dtype}. NLPD is that of delays in standard deviations of the training targets. Boosted trees have "
        "scikit-learn's defaults and predict no density.",
        page.table(HEAD, [*printed, *rows]),
        f"![RMSE and NLPD of all models]({paths.picture().name})",
        "## What this shows",
        *_conclusions(results, settings),
        f"The theta that the paper's experts agree on (geometric mean over repeats, standardised units): {theta}.",
        f"All {settings.experts:,} experts predicted {settings.test:,} queries in blocks of {BLOCK:,}, with at most "
        f"{max(r['gb'] for r in paper):.1f} GB of memory, training included.",
    ]
    seeds = f"repeat r has seed r, for its rows and its model, r = 0..{settings.repeats - 1}"
    page.write(paths, "The airline table", text, record, seeds)
    return page.table(HEAD, rows)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _printed() -> list[tuple[str, str, str, str]]:
    times = {"HGP": (f"{PAPER_MINUTES}", f"{PAPER_ITERATIONS}")}
    return [(name, f"{rmse:.2f}", *times.get(name, ("-", "-"))) for name, rmse in PAPER.items()]


def _conclusions(results: Results, settings: Settings) -> list[str]:
    """Sentences that follow from the figures."""
    paper, ours = "the paper's experts, PoE over y, as eq. 7", "ours, defaults"
    wins = {
        key: sum(r["lines"][ours][key] < r["lines"][paper][key] for r in results["repeats"]) for key in ("rmse", "nlpd")
    }
    of = settings.repeats
    theirs, flat = _of_repeats(results, paper, "rmse"), _of_repeats(results, "the mean", "rmse")
    trees = _of_repeats(results, "boosted trees", "rmse")
    sentences = [
        f"Our defaults have a lower RMSE than the paper's model in {wins['rmse']} of {of} repeats and a lower NLPD in "
        f"{wins['nlpd']} of {of}, with experts of at most {max(_of_repeats(results, ours, 'points')):,} points against "
        f"its {settings.points:,}.",
        f"The paper prints {PAPER['HGP']} minutes for its model. On these rows the mean alone has "
        f"{np.mean(flat):.2f}, boosted trees {np.mean(trees):.2f} and the paper's model {np.mean(theirs):.2f}: RMSE is "
        "dominated by the few flights that are hours late. The order of the models on the same rows can be compared; "
        "figures of other draws, or of delays that were clipped, cannot.",
    ]
    worst = _of_repeats(results, paper, "coverage")
    sentences.append(
        f"A product of densities of the noisy y (eq. 7) makes {settings.experts:,} experts overconfident: 95% "
        f"intervals contain {np.mean(worst):.1%} of the targets. The other rules combine the same predictions."
    )
    return sentences


def draw(results: Results, path: Path) -> None:
    """RMSE and NLPD of each model, one point per repeat. Values far above the others are written as numbers."""
    names = [n for n in results["names"] if "not_run" not in results["repeats"][0]["lines"][n]]
    figure, axes = drawing.grid(1, 2, (11, 0.34 * len(names) + 1.2), sharey=True)
    for ax, key, title in ((axes[0, 0], "rmse", "RMSE, minutes"), (axes[0, 1], "nlpd", "NLPD, standardised")):
        values = {name: _of_repeats(results, name, key) for name in names}
        limit = _limit([v for each in values.values() for v in each])
        for place, name in enumerate(names):
            colour = drawing.OURS if name.startswith("ours") else drawing.EXACT if "eq. 7" in name else drawing.GREY
            visible = [v for v in values[name] if v <= limit]
            ax.plot(visible, [place] * len(visible), "o", color=colour, markersize=5, alpha=0.8)
            if values[name] and not visible:
                words = f"{np.mean(values[name]):.3g} \N{RIGHTWARDS ARROW}"
                ax.text(0.99, place, words, transform=ax.get_yaxis_transform(), ha="right", va="center", color=colour)
        ax.set_title(title, fontsize=10, loc="left")
        ax.set_yticks(range(len(names)), names, fontsize=9)
        ax.grid(axis="y", color="#eeeeee")
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
    axes[0, 0].invert_yaxis()
    drawing.save(figure, path)


def _limit(values: list[float]) -> float:
    """The largest value that is drawn to scale; outliers beyond it are written as numbers."""
    low, high = np.percentile(values, [0, 50])
    return float(high + 3 * max(high - low, 1e-9))
