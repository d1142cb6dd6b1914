"""The paper's figure "depth": more experts reduce the accuracy, more data restore it.

Top row: 200 points in one dimension under trees of 1, 2 and 3 levels (4, 16 and 64 experts), in which each row goes to
two children of a node. Bottom row: 64 experts and increasing numbers of points. Each panel also shows an exact GP.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gigagp import HGPRegressor, metrics
from gigagp.arrays import Array
from gigagp.combine import PoE, Prediction
from gigagp.kernels import SquaredExponential
from gigagp.paper import drawing, page
from gigagp.paper.record import Record, Results
from gigagp.progress import Listener, silent

NOISE = 0.2  # standard deviation
SPAN = 4.0  # points lie between -SPAN and SPAN
EDGE = 4.6  # limit of the x axis


@dataclass(frozen=True)
class Settings:
    """Number of points and levels of each panel; three panels per row."""

    panels: tuple[tuple[int, int], ...] = ((200, 1), (200, 2), (200, 3), (400, 3), (800, 3), (1600, 3))
    seed: int = 0


FULL = Settings()
QUICK = Settings(panels=((200, 1), (200, 2), (200, 3), (300, 3), (400, 3), (800, 3)))


@dataclass(frozen=True, eq=False)
class Panel:
    """The predictions of one hierarchy and of the exact GP."""

    x: Array
    y: Array
    levels: int
    grid: Array
    exact: Prediction  # of the latent f
    ours: Prediction
    likelihood_ratio: float  # of ours to the exact GP, over the grid within the data

    @property
    def experts(self) -> int:
        return int(4**self.levels)

    @property
    def points(self) -> int:
        """Rows per expert: each level assigns every row to two of four children."""
        return len(self.x) >> self.levels


def data(points: int, seed: int = 0) -> tuple[Array, Array]:
    """The first `points` of a fixed sequence of points in one dimension."""
    rng = np.random.default_rng(seed)
    x, noise = rng.uniform(-SPAN, SPAN, 10_000), rng.standard_normal(10_000)
    y = np.sin(2 * x) + 0.7 * np.sin(7 * x) + NOISE * noise
    return x[:points, None], y[:points]


def panel(points: int, levels: int, seed: int = 0) -> Panel:
    """Train the paper's model and an exact GP on the same points."""
    x, y = data(points, seed)
    at = np.linspace(-EDGE, EDGE, 400)[:, None]
    exact = HGPRegressor(SquaredExponential(), partition="random", leaf_size=points, random_state=seed).fit(x, y)
    ours = HGPRegressor(
        SquaredExponential(), partition="stratified", levels=levels, branching=4, sharing=2, combine=PoE(),
        experts_per_query=None, training="full", random_state=seed,
    ).fit(x, y)  # fmt: skip
    predictions = [_latent(model, at) for model in (exact, ours)]
    inside = np.abs(at[:, 0]) <= SPAN
    ratio = metrics.likelihood_ratio(
        predictions[0].mean[inside],
        _noisy(exact, predictions[0])[inside],
        predictions[1].mean[inside],
        _noisy(ours, predictions[1])[inside],
    )
    return Panel(x, y, levels, at, predictions[0], predictions[1], ratio)


def panels(settings: Settings = FULL) -> list[Panel]:
    """All panels, the top row first."""
    return [panel(points, levels, settings.seed) for points, levels in settings.panels]


def run(record: Record, data: Path, settings: Settings, tell: Listener = silent) -> list[Panel]:
    """Computed at every call because it takes seconds. The data folder is not used."""
    computed: list[Panel] = []

    def work() -> Results:
        computed.extend(panels(settings))
        return {"lines": [list(line) for line in table(computed)]}

    record.step("panels", work, again=True)
    return computed


HEAD = ["points", "experts", "points per expert", "likelihood ratio to the exact GP"]


def write(record: Record, results: list[Panel], settings: Settings, paths: page.Paths) -> str:
    draw(results, paths.picture())
    lines = page.table(HEAD, [[f"{n:,}", str(c), str(p), f"{ratio:.3f}"] for n, c, p, ratio in table(results)])
    text = [
        "The paper's model in one dimension (a KD-tree assigns each row to two of four children; PoE over f), compared "
        "with an exact GP on the same points: means and bands of two standard deviations of f. Top row: the same "
        "points under increasing numbers of experts. Bottom row: the same experts with increasing numbers of points.",
        f"![Means and bands of the hierarchy and of the exact GP]({paths.picture().name})",
        lines,
        "More experts reduce the accuracy because each sees fewer points; more points restore it. The ratio is "
        "exp(-KL) of the predictive distributions of y, averaged over the part of the axis with data.",
    ]
    page.write(paths, "The depth figure", text, record, f"seed {settings.seed}")
    return lines


def table(results: list[Panel]) -> list[tuple[int, int, int, float]]:
    """Points, experts, points per expert, likelihood ratio to the exact GP."""
    return [(len(p.x), p.experts, p.points, p.likelihood_ratio) for p in results]


def draw(results: list[Panel], path: Path) -> None:
    figure, axes = drawing.grid(2, 3, (11, 5.6), sharex=True, sharey=True)
    for one, ax in zip(results, axes.flat, strict=True):
        ax.plot(one.x[:, 0], one.y, ".", color="#b5b5b5", markersize=2.5, zorder=0)
        models = ((one.exact, drawing.EXACT, "exact GP"), (one.ours, drawing.OURS, "hierarchy of experts"))
        for prediction, colour, name in models:
            assert prediction.variance is not None
            band = 2 * np.sqrt(prediction.variance)
            ax.fill_between(
                one.grid[:, 0], prediction.mean - band, prediction.mean + band, color=colour, alpha=0.18, linewidth=0
            )
            ax.plot(one.grid[:, 0], prediction.mean, color=colour, linewidth=1.4, label=name)
        ax.set_title(f"{len(one.x):,} points, {one.experts} experts of {one.points}", fontsize=10, loc="left")
        ratio = f"likelihood ratio {one.likelihood_ratio:.3f}"
        ax.text(0.98, 0.03, ratio, transform=ax.transAxes, ha="right", fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(frameon=False, fontsize=9, loc="upper left")
    axes[0, 0].set_ylim(-3.1, 2.9)
    axes[0, 0].set_xlim(-EDGE, EDGE)
    drawing.save(figure, path)


def _latent(model: HGPRegressor, at: Array) -> Prediction:
    mean, std = model.predict(at, return_std=True, latent=True)
    return Prediction(mean, std**2)


def _noisy(model: HGPRegressor, latent: Prediction) -> Array:
    """The standard deviation of y."""
    assert latent.variance is not None
    return np.asarray(np.sqrt(latent.variance + model.noise_variance_))
