"""Names for arrays by what they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]  # (n,)
Matrix = NDArray[np.float64]  # (n, k)
Array = NDArray[np.float64]  # any shape
Rows = NDArray[np.intp]  # numbers of rows, groups or clusters
Mask = NDArray[np.bool_]
