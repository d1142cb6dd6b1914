"""Boosted trees as the mean function, on real tables: RMSE and NLPD with and without them, and what the fit has chosen.

Split 1 of each table (wind: its only one), at most --rows training rows and 5,000 test rows, both drawn at random. The
trees alone are measured on the same rows. Each table's row of docs/time-series.md is written when it is complete.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from gigagp import HGPRegressor
from gigagp.paper.provenance import machine
from measure import data_set, seconds
from page_parts import DOCS

TABLES = {"wind": "wind_la_haute_borne", "protein": "uci_protein", "elevators": "uci_elevators", "kin40k": "uci_kin40k"}
TEST_ROWS = 5000
TABLE = re.compile(r"(<!-- means -->\n.*?)(<!-- /means -->)", re.DOTALL)


def show(name: str, cells: list[str]) -> None:
    """Write a row into the table of docs/time-series.md, in place of an earlier one of the same data and rows."""
    page, here = DOCS / "time-series.md", machine()
    row = "| " + " | ".join([name, *cells, f"{here['date']}, {here['commit']}"]) + " |"

    def changed(marks: re.Match[str]) -> str:
        lines = [line for line in marks[1].splitlines() if not line.startswith(f"| {name} | {cells[0]} |")]
        return "\n".join([*lines, row]) + "\n" + marks[2]

    page.write_text(TABLE.sub(changed, page.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", default=list(TABLES), help="some of: " + ", ".join(TABLES))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rows", type=int, default=60_000)
    options = parser.parse_args()
    trees = HistGradientBoostingRegressor(max_iter=400, early_stopping=True, random_state=0)
    for name in options.tables:
        content = data_set(options.data, TABLES[name])
        if content is None:
            continue
        X, y, masks = content["X"], content["y"], content["test_mask"]
        mask = masks[:, min(1, masks.shape[1] - 1)]
        rng = np.random.default_rng(0)
        train, test = rng.permutation(np.flatnonzero(~mask))[: options.rows], rng.permutation(np.flatnonzero(mask))
        test, scale = test[:TEST_ROWS], y[train].std()
        alone = trees.fit(X[train], y[train]).predict(X[test])
        cells = [f"{len(train):,}", f"{np.sqrt(np.mean((alone - y[test]) ** 2)) / scale:.4f}"]
        print(f"{name}, trees alone: RMSE {cells[1]}", flush=True)
        for label, mean in (("constant", "constant"), ("trees", trees)):
            model = HGPRegressor(mean=mean, random_state=0)
            spent = seconds(lambda m=model, X=X, y=y, train=train: m.fit(X[train], y[train]))
            answer = model.predict_distribution(X[test])
            rmse = np.sqrt(np.mean((answer.mean - y[test]) ** 2)) / scale
            nlpd = -np.mean(answer.log_pdf(y[test])) - np.log(scale)
            used = "" if model.model_.trend is None else ", used"
            print(f"{name}, {label}{used}: RMSE {rmse:.4f}, NLPD {nlpd:.3f}, fit {spent:.0f} s", flush=True)
            cells.append(f"{rmse:.4f}, {nlpd:.3f}")
        show(name, [*cells, "yes" if used else "no"])


if __name__ == "__main__":
    main()
