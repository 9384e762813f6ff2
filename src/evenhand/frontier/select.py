"""What was asked of a path, and the point that meets it or comes closest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..models.accuracy import Accuracy
from ..models.losses import R2

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
    max_unfairness, min_accuracy : float or None
    certify : bool
        Whether bounds that hold for all points at once are judged, rather than estimates.
    confidence_level : float
        Of these bounds.
    accuracy : Accuracy
        What `min_accuracy` limits.
    """

    criterion: str
    max_unfairness: float | None
    min_accuracy: float | None
    certify: bool
    confidence_level: float
    accuracy: Accuracy = R2

    def limits(self) -> str:
        """The limits in words."""
        wanted = []
        if self.max_unfairness is not None:
            wanted.append(f"{self.criterion} ≤ {self.max_unfairness:g}")
        if self.min_accuracy is not None:
            wanted.append(f"{self.accuracy.symbol} ≥ {self.min_accuracy:g}")
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
        named = {f"min_{self.accuracy.key}" if n == "min_accuracy" else n: v
                 for n, v in vars(self).items() if n != "accuracy"}  # fmt: skip
        return named

    def choose(self, u: Vector, accuracy: Vector) -> tuple[int, bool]:
        """The best point under the limits, or the closest one and False where none meets them.

        Parameters
        ----------
        u, accuracy : (n_points,) arrays
            What is judged: estimates or bounds.
        """
        meets = np.ones(len(u), dtype=bool)
        if self.max_unfairness is not None:
            meets &= u <= self.max_unfairness
        if self.min_accuracy is not None:
            meets &= accuracy >= self.min_accuracy
        if meets.any():
            wanted = u if self.max_unfairness is None else -accuracy
            return int(np.flatnonzero(meets)[np.argmin(wanted[meets])]), True
        if self.min_accuracy is None:
            return int(np.argmin(u)), False
        short = np.maximum(self.min_accuracy - accuracy, 0.0)
        if self.max_unfairness is None:
            return int(np.argmax(accuracy)), False
        return int(np.argmin(np.maximum(u - self.max_unfairness, 0.0) + short)), False

    def explain(self, point: PathPoint, u: float, accuracy: float) -> str:
        """Why there is no such model, and what there is."""
        how = f" (bounds at {self.confidence_level:.0%} confidence)" if self.certify else ""
        return (
            f"No point of the path has held-out {self.limits()}{how}. The closest has "
            f"{self.criterion} {u:.4f} at {self.accuracy.symbol} {accuracy:.4f} (fairness_weight="
            f"{point.fairness_weight:g}). Hint: relax the request, gather more rows, or try "
            "group_features; on_unreachable='best' returns this point with a warning."
        )
