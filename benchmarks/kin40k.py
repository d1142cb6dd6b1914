"""kin40k, the paper's 10,000/30,000 split, all defaults: RMSE and NLPD in standardised units."""

from __future__ import annotations

import numpy as np

from gigagp import HGPRegressor, metrics
from measure import arguments, bar, data_set, save, seconds


def main() -> None:
    options = arguments(__doc__ or "", data=True).parse_args()
    data = data_set(options.data, "uci_kin40k")
    if data is None:
        return
    test = data["orig_test_mask"].astype(bool).ravel()
    X, y = data["X"], data["y"]
    y = (y - y[~test].mean()) / y[~test].std()
    rows = []
    for seed in range(5 if options.full else 1):
        model = HGPRegressor(random_state=seed)
        fit = seconds(lambda m=model: m.fit(X[~test], y[~test]))
        predictions: list[tuple[np.ndarray, np.ndarray]] = []
        predict = seconds(lambda m=model, s=predictions: s.append(m.predict(X[test], return_std=True)))
        mean, std = predictions[0]
        row = {
            "seed": seed, "rmse": metrics.rmse(y[test], mean), "nlpd": metrics.nlpd(y[test], mean, std),
            "coverage95": metrics.coverage(y[test], mean, std), "fit_seconds": fit, "predict_seconds": predict,
        }  # fmt: skip
        rows.append(row)
        print("  " + ", ".join(f"{k} {v:.4g}" for k, v in row.items()), flush=True)
    bars = [
        bar("kin40k RMSE (exact GP .106)", max(r["rmse"] for r in rows), 0.120, at_least=False),
        bar("kin40k NLPD (exact GP -.93)", max(r["nlpd"] for r in rows), -0.80, at_least=False),
    ]
    save("kin40k", {"rows": rows, "bars": bars})


if __name__ == "__main__":
    main()
