"""Updates against daily refits: flights of 2008, day by day (section 1 of the bars for updates).

A model is fitted to the 500,000 flights before the first of February. Then every day is predicted before it is learnt,
by three models: `updates` learns each day and forgets all but the last 500,000 flights; `refits` is fitted again every
day to the last 500,000; `stays` learns nothing. All of them are scored by the same flights of each day.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gigagp import HGPRegressor
from measure import arguments, bar, data_set, save

WINDOW = 500_000  # flights
SCORED = 1000  # flights per day
MONTH, DAY = 0, 1  # columns by which flights are ordered


def scores(model: HGPRegressor, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -np.asarray(model.predict_distribution(X).log_pdf(y))


def main() -> None:
    parser = arguments(__doc__ or "", data=True)
    parser.add_argument("--days", type=int, default=5, help="days to predict (28 with --full)")
    parser.add_argument("--month-column", type=int, default=MONTH)
    parser.add_argument("--day-column", type=int, default=DAY)
    options = parser.parse_args()
    data = data_set(options.data, "airline2008_jan_apr")
    if data is None:
        return
    X, y = np.asarray(data["X"], float), np.asarray(data["y"], float)
    number = 31 * X[:, options.month_column] + X[:, options.day_column]
    order = np.argsort(number, kind="stable")
    X, y, number = X[order], y[order], number[order]
    first = int(np.searchsorted(number, 31 * 2 + 1))
    settings = {"method": "neighbourhood", "random_state": 0}
    updates = HGPRegressor(**settings).fit(X[max(0, first - WINDOW) : first], y[max(0, first - WINDOW) : first])
    stays = HGPRegressor(**settings)
    stays._take(updates.model_)
    losses: dict[str, list[np.ndarray]] = {"updates": [], "refits": [], "stays": []}
    rng = np.random.default_rng(0)
    for day in range(28 if options.full else options.days):
        begin, end = (int(np.searchsorted(number, 63 + day + shift)) for shift in (0, 1))
        some = begin + rng.choice(end - begin, min(SCORED, end - begin), replace=False)
        refits = (
            updates if day == 0 else HGPRegressor(**settings).fit(X[begin - WINDOW : begin], y[begin - WINDOW : begin])
        )
        for name, model in (("updates", updates), ("refits", refits), ("stays", stays)):
            losses[name].append(scores(model, X[some], y[some]))
        means = {name: float(np.concatenate(parts).mean()) for name, parts in losses.items()}
        print(f"  day {day + 1}: " + ", ".join(f"{name} {mean:.4f}" for name, mean in means.items()), flush=True)
        updates.partial_fit(X[begin:end], y[begin:end]).forget(max_rows=WINDOW)
    together = {name: np.concatenate(parts) for name, parts in losses.items()}
    difference = together["updates"] - together["refits"]
    error = float(difference.std() / np.sqrt(len(difference)))
    result: dict[str, Any] = {name: float(values.mean()) for name, values in together.items()}
    bars = [bar("NLPD of updates minus that of daily refits", float(difference.mean()), 2 * error, at_least=False)]
    save("online_airline", {"nlpd": result, "standard_error": error, "days": len(losses["stays"]), "bars": bars})


if __name__ == "__main__":
    main()
