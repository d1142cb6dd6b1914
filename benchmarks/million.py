"""A million robot arm rows, all defaults: seconds, peak memory, accuracy."""

from __future__ import annotations

import numpy as np

from gigagp import HGPRegressor, metrics
from gigagp.datasets import robot_arm
from gigagp.memory import peak_memory
from measure import arguments, bar, save, seconds

N = 1_000_000  # training rows
HELD_OUT = 10_000  # rows


def main() -> None:
    arguments(__doc__ or "").parse_args()
    X, y = robot_arm(N + HELD_OUT)
    model = HGPRegressor(random_state=0)
    fit = seconds(lambda: model.fit(X[:N], y[:N]))
    fitted = peak_memory()
    predictions: list[tuple[np.ndarray, np.ndarray]] = []
    predict = seconds(lambda: predictions.append(model.predict(X[N:], return_std=True)))
    mean, std = predictions[0]
    scale, truth = y.std(), y[N:]
    row = {
        "fit_seconds": fit, "predict_seconds": predict, "peak_gb_fit": fitted, "peak_gb": peak_memory(),
        "rmse": metrics.rmse(truth, mean) / scale, "nlpd": metrics.nlpd(truth, mean, std) - float(np.log(scale)),
        "coverage95": metrics.coverage(truth, mean, std),
    }  # fmt: skip
    print("  " + ", ".join(f"{k} {v:.4g}" for k, v in row.items()), flush=True)
    print(model.report_)
    save("million", {"row": row, "bars": [bar("peak GB, fit of 1e6 rows", fitted, 3.0, at_least=False)]})


if __name__ == "__main__":
    main()
