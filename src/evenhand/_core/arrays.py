"""Names for arrays of float64 by their shape."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]  # (n,)
Matrix = NDArray[np.float64]  # (n, k)
Array = NDArray[np.float64]  # any shape
