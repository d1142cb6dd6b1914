"""The array type of the package: NumPy arrays of any shape and precision."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
