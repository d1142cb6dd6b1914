"""The paper's data sets, read from a folder of the user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import InvalidParameter


@dataclass(frozen=True)
class Rows:
    """Training inputs and targets, queries and their true targets."""

    X: Array
    y: Array
    Z: Array
    truth: Array


def load(folder: Path, name: str, *keys: str, rows: int = 1) -> dict[str, Any]:
    """The arrays X, y and those of `keys` of <name>.npz, which must have at least `rows` rows."""
    path = folder / f"{name}.npz"
    if not path.is_file():
        raise InvalidParameter(f"{path.name} is not in {folder}; give the folder that holds it with --data")
    try:
        with np.load(path, allow_pickle=False) as data:
            arrays = {key: data[key] for key in ("X", "y", *keys)}
    except KeyError as error:
        raise InvalidParameter(f"{path} has no array {error.args[0]}; give another folder with --data") from None
    except (OSError, ValueError) as error:
        raise InvalidParameter(f"{path} cannot be read ({error}); give another folder with --data") from None
    if len(arrays["y"]) < rows:
        few = f"{path} has {len(arrays['y']):,} rows, fewer than the {rows:,} that are needed"
        raise InvalidParameter(f"{few}; give another folder with --data")
    return arrays
