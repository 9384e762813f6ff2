"""What the kernels take from Numba, with a message where it is missing."""

from __future__ import annotations

try:
    from numba import njit, types
    from numba.extending import intrinsic, overload
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "numba":
        raise  # Numba is there and something it needs is not
    raise ModuleNotFoundError(
        "Measures and audits need Numba, which is not installed. Hint: install it with "
        "`pip install numba` or `conda install numba`; without it only the fitters run, slowly.",
        name="numba",
    ) from None

__all__ = ["intrinsic", "njit", "overload", "types"]
