"""Updates against daily refits: flights of 2008, day by day (section 1 of the bars for updates).

A model is fitted to the 500,000 flights before the first day of a month. Then every day is predicted before it is
learnt, by four models: `auto` learns each day with refine="auto" and forgets all but the last 500,000 flights;
`updates` does the same with refine="never"; `refits` is fitted again every day to the last 500,000; `stays` learns
nothing. All are scored by the same flights of each day. The rules of refine="auto" were developed on days of February;
April is reported.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gigagp import HGPRegressor
from measure import arguments, bar, data_set, save

WINDOW = 500_000  # flights
SCORED = 2000  # flights per day by which the models are compared
LEARNT = 1000  # flights per day that `auto` scores itself
MONTH, DAY = 0, 1  # columns by which flights are ordered


def scores(model: HGPRegressor, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -np.asarray(model.predict_distribution(X).log_pdf(y))


def copied(other: HGPRegressor) -> HGPRegressor:
    """Another estimator with the same fitted model."""
    return HGPRegressor.of_model(other.model_, other.get_params(deep=False), "memory")


@contextmanager
def counted(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the CPU time of a block."""
    start = time.process_time()
    yield
    seconds[name] += time.process_time() - start


def main() -> None:
    parser = arguments(__doc__ or "", data=True)
    parser.add_argument("--days", type=int, default=5, help="days to predict (28 with --full)")
    parser.add_argument("--month", type=int, default=4, help="month of the first of these days")
    parser.add_argument("--month-column", type=int, default=MONTH)
    parser.add_argument("--day-column", type=int, default=DAY)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # about columns that a model ignores, on every day
    data = data_set(options.data, "airline2008_jan_apr")
    if data is None:
        return
    X, y = np.asarray(data["X"], float), np.asarray(data["y"], float)
    number = 31 * X[:, options.month_column] + X[:, options.day_column]
    order = np.argsort(number, kind="stable")
    X, y, number = X[order], y[order], number[order]
    first_day = 31 * options.month + 1
    first = int(np.searchsorted(number, first_day))
    settings = {"method": "neighbourhood", "random_state": 0}
    auto = HGPRegressor(**settings).fit(X[max(0, first - WINDOW) : first], y[max(0, first - WINDOW) : first])
    updates, stays = (copied(auto) for _ in range(2))
    losses: dict[str, list[np.ndarray]] = {"auto": [], "updates": [], "refits": [], "stays": []}
    spent = dict.fromkeys(("auto", "updates", "refits"), 0.0)  # seconds of CPU time
    rng = np.random.default_rng(0)
    for day in range(28 if options.full else options.days):
        begin, end = (int(np.searchsorted(number, first_day + day + shift)) for shift in (0, 1))
        some = begin + rng.choice(end - begin, min(SCORED, end - begin), replace=False)
        with counted(spent, "refits"):
            refits = HGPRegressor(**settings).fit(X[begin - WINDOW : begin], y[begin - WINDOW : begin])
        for name, model in (("auto", auto), ("updates", updates), ("refits", refits), ("stays", stays)):
            losses[name].append(scores(model, X[some], y[some]))
        with counted(spent, "auto"):
            auto.partial_fit(X[begin:end], y[begin:end], score_rows=LEARNT, refine="auto").forget(max_rows=WINDOW)
        with counted(spent, "updates"):
            updates.partial_fit(X[begin:end], y[begin:end]).forget(max_rows=WINDOW)
        means = {name: float(np.concatenate(parts).mean()) for name, parts in losses.items()}
        own = ", ".join(f"{name} {parts[-1].mean():.3f} ({means[name]:.4f})" for name, parts in losses.items())
        print(f"  day {day + 1} (mean so far): {own}", flush=True)
    together = {name: np.concatenate(parts) for name, parts in losses.items()}
    difference = together["auto"] - together["refits"]
    error = float(difference.std() / np.sqrt(len(difference)))
    result: dict[str, Any] = {name: float(values.mean()) for name, values in together.items()}
    bars = [
        bar(
            "NLPD of updates with refine=auto minus that of daily refits",
            float(difference.mean()),
            2 * error,
            at_least=False,
        )
    ]
    trainings = auto.prequential_.trainings.tolist()
    by_day = {name: [float(part.mean()) for part in parts] for name, parts in losses.items()}
    save("online_airline", {
        "nlpd": result, "by_day": by_day, "standard_error": error, "days": len(losses["stays"]), "cpu_seconds": spent,
        "trainings": trainings, "month": options.month, "bars": bars,
    })  # fmt: skip


if __name__ == "__main__":
    main()
