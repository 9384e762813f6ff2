"""What was asked of a path, and the point that meets it or comes closest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .readings import PathPoint

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Request:
    """Limits on a model, as :meth:`FairnessPath.select` was given them.

    Attributes
    ----------
    criterion : str
        What `max_unfairness` limits.
    max_unfairness, min_r2 : float or None
    certify : bool
        Whether bounds that hold for all points at once are judged, rather than estimates.
    confidence_level : float
        Of these bounds.
    """

    criterion: str
    max_unfairness: float | None
    min_r2: float | None
    certify: bool
    confidence_level: float

    def limits(self) -> str:
        """The limits in words."""
        wanted = []
        if self.max_unfairness is not None:
            wanted.append(f"{self.criterion} ≤ {self.max_unfairness:g}")
        if self.min_r2 is not None:
            wanted.append(f"R² ≥ {self.min_r2:g}")
        return " and ".join(wanted)

    def judge(self) -> str:
        """What the limits are compared with, in words."""
        if self.certify:
            return (
                f"certified: judged by bounds that hold for all models at once with "
                f"{100 * self.confidence_level:g}% confidence"
            )
        return "judged by held-out estimates, not certified"

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dict(vars(self))

    def choose(self, u: Vector, r2: Vector) -> tuple[int, bool]:
        """The best point under the limits, or the closest one and False where none meets them.

        Parameters
        ----------
        u, r2 : (n_points,) arrays
            What is judged: estimates or bounds.
        """
        meets = np.ones(len(u), dtype=bool)
        if self.max_unfairness is not None:
            meets &= u <= self.max_unfairness
        if self.min_r2 is not None:
            meets &= r2 >= self.min_r2
        if meets.any():
            wanted = u if self.max_unfairness is None else -r2
            return int(np.flatnonzero(meets)[np.argmin(wanted[meets])]), True
        if self.min_r2 is None:
            return int(np.argmin(u)), False
        if self.max_unfairness is None:
            return int(np.argmax(r2)), False
        miss = np.maximum(u - self.max_unfairness, 0.0) + np.maximum(self.min_r2 - r2, 0.0)
        return int(np.argmin(miss)), False

    def explain(self, point: PathPoint, u: float, r2: float) -> str:
        """Why there is no such model, and what there is."""
        how = f" (bounds at {self.confidence_level:.0%} confidence)" if self.certify else ""
        return (
            f"No point of the path has held-out {self.limits()}{how}. The closest has "
            f"{self.criterion} {u:.4f} at R² {r2:.4f} (fairness_weight="
            f"{point.fairness_weight:g}). Hint: relax the request, gather more rows, or try "
            "group_features; on_unreachable='best' returns this point with a warning."
        )
