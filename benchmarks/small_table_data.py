"""Tables of up to 2,000 rows: the six of the data folder, scikit-learn's own, and random parts of larger sets.

The settings of small tables were chosen by the splits from 1 on of the six. No setting was chosen by the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, load_linnerud

from gigagp.arrays import Array
from gigagp.paper.datasets import Rows
from measure import data_set

SPLITS = 10
TEST_SHARE = 0.1
SMALL = ("autos", "yacht", "energy", "concrete", "airfoil", "wine")
# File of the data folder and number of rows of each part.
PARTS = {
    "houses_300": ("geo_houses", 300),
    "houses_1000": ("geo_houses", 1000),
    "protein_1000": ("uci_protein", 1000),
    "pol_400": ("uci_pol", 400),
    "pol_1500": ("uci_pol", 1500),
    "elevators_200": ("uci_elevators", 200),
    "elevators_1200": ("uci_elevators", 1200),
    "bike_500": ("count_bike", 500),
    "bike_1500": ("count_bike", 1500),
    "precipitation_400": ("geo_precipitation", 400),
    "kin40k_800": ("uci_kin40k", 800),
    "keggundirected_600": ("uci_keggundirected", 600),
}
OTHERS = ("diabetes", "linnerud", *PARTS)
TABLES = SMALL + OTHERS


@dataclass(frozen=True)
class Table:
    """Inputs, targets, and one column of test rows per split."""

    X: Array
    y: Array
    test: Array

    @classmethod
    def random(cls, X: Array, y: Array) -> Table:
        """With splits of our own: the tables of scikit-learn and the parts have none."""
        rng, n = np.random.default_rng(0), len(y)
        count = max(2, round(TEST_SHARE * n))
        test = np.column_stack([rng.permutation(n) < count for _ in range(SPLITS)])
        return cls(X, y, test)

    def split(self, number: int) -> Rows:
        """Training rows and queries of one split, in units of the training rows' deviations."""
        test, X, y = self.test[:, number], self.X.astype(float), self.y.astype(float)
        centre, width = X[~test].mean(axis=0), X[~test].std(axis=0)
        X = (X - centre) / np.where(width > 0, width, 1.0)
        y = (y - y[~test].mean()) / y[~test].std()
        return Rows(X[~test], y[~test], X[test], y[test])


def table(folder: Path, name: str) -> Table | None:
    """A table by its name; None, after a clear line, where its file is not in the data folder."""
    if name == "diabetes":
        return Table.random(*load_diabetes(return_X_y=True, scaled=False))
    if name == "linnerud":
        X, Y = load_linnerud(return_X_y=True)
        return Table.random(X, Y[:, 0])
    file, rows = PARTS.get(name, (f"small_{name}", 0))
    content = data_set(folder, file)
    if content is None:
        return None
    X, y = content["X"], content["y"].ravel()
    if not rows:
        return Table(X, y, content["test_mask"])
    some = np.random.default_rng(rows).permutation(len(y))[:rows]
    return Table.random(X[some], y[some])
