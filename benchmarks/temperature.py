"""Healed's temperature, on held-out training rows of kin40k (never its test rows); standardised units."""

from __future__ import annotations

from gigagp import HGPRegressor, metrics
from gigagp.combine import Healed
from measure import arguments, data_set, save

TEMPERATURES = (1, 3, 10, 30, 100)
HELD_OUT = 1500


def main() -> None:
    options = arguments(__doc__ or "", data=True).parse_args()
    data = data_set(options.data, "uci_kin40k")
    if data is None:
        return
    training = ~data["orig_test_mask"].astype(bool).ravel()
    X, y = data["X"][training], data["y"][training]
    y = (y - y.mean()) / y.std()
    rows = []
    for partition in ("random", "stratified", "local"):
        model = HGPRegressor(partition=partition, random_state=0).fit(X[:-HELD_OUT], y[:-HELD_OUT])
        for t in TEMPERATURES:
            mean, std = model.set_params(combine=Healed(t)).predict(X[-HELD_OUT:], return_std=True)
            error, density = metrics.rmse(y[-HELD_OUT:], mean), metrics.nlpd(y[-HELD_OUT:], mean, std)
            rows.append({"partition": partition, "temperature": t, "rmse": error, "nlpd": density})
            print(f"  {partition:<11} temperature {t:>3}: RMSE {error:.4f}, NLPD {density:.4f}", flush=True)
    best = {p: min((r for r in rows if r["partition"] == p), key=lambda r: r["nlpd"]) for p in ("random", "local")}
    print("  best by NLPD: " + ", ".join(f"{p} {r['temperature']}" for p, r in best.items()), flush=True)
    save("temperature", {"rows": rows, "bars": []})


if __name__ == "__main__":
    main()
