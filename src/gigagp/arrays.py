"""The one type of array the package speaks of: NumPy's, of any shape and precision."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
