"""Sample weights and exposures: what is accepted, which rows count, and their scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._core import shards
from .._core.validation import as_floats, check_column, refuse_masked

# From fewer effective rows nothing can be said.
LEAST = 5.0


def check_weight(sample_weight: ArrayLike | None, n_rows: int) -> NDArray[np.float64] | None:
    """Validate sample weights; None stays None.

    They keep their scale unless it is one at which sums of them or of their squares leave the range
    of floats; then the largest is made 1.
    """
    if sample_weight is None:
        return None
    # A masked weight could mean none, or one; so it is refused rather than guessed.
    refuse_masked(sample_weight, "sample_weight")
    weight = np.asarray(sample_weight)
    try:
        weight = as_floats(weight)
    except (TypeError, ValueError):
        raise ValueError(
            f"`sample_weight` must be numbers, got dtype {weight.dtype}. Hint: one nonnegative "
            "number per row."
        ) from None
    if weight.ndim == 0:
        weight = np.full(n_rows, weight)
    if weight.ndim != 1:
        # scikit-learn's common checks expect this wording.
        raise ValueError(f"Sample weights must be 1D array or scalar, got shape {weight.shape}.")
    if len(weight) != n_rows:
        raise ValueError(
            f"`sample_weight` must have one entry per row: got {len(weight)} for {n_rows} rows."
        )
    if not np.isfinite(weight).all():
        raise ValueError("`sample_weight` must be finite: it holds NaN or infinity.")
    if (weight < 0).any():
        raise ValueError(f"`sample_weight` must be nonnegative, got {weight.min()}.")
    largest = shards.largest(float(weight.max(initial=0.0)))
    if not largest:
        raise ValueError("`sample_weight` must not be zero in every row.")
    return weight if 1e-100 < largest < 1e100 else weight / largest


def weighted_rows(weight: NDArray[np.float64] | None) -> NDArray[np.intp] | None:
    """The rows to measure: those of positive weight, or None where that is every row.

    A row without weight must count for nothing, and ranks, neighbors and folds see rows, not
    weights.
    """
    if weight is None or weight.all():
        return None
    return np.flatnonzero(weight)


def mean_one(weight: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """Weights in proportion, scaled to mean 1; None for none."""
    if weight is None or not (len(weight) or shards.active()):
        return None
    # A sum of very small ones has no reciprocal.
    largest = shards.largest(float(weight.max(initial=0.0)))
    if not largest:
        return weight
    weight = weight / largest
    count, total = shards.add(float(len(weight)), float(weight.sum()))
    return weight * (count / total)


def refuse_few_weighted(kept: int, n_rows: int) -> None:
    """Refuse fewer than 5 rows of positive weight: what a weight of 0 leaves out nobody sees."""
    if kept < LEAST:
        raise ValueError(
            f"`sample_weight` must be positive in at least {LEAST:g} rows with a known group, got "
            f"{kept} of {n_rows:,}: from so few nothing can be said. Hint: a row of weight 0 "
            "counts as absent; look for weights that are zero and should not be."
        )


def check_exposure(exposure: Any, n_rows: int) -> NDArray[np.float64]:
    """A positive column."""
    exposure = check_column(exposure, "exposure", n_rows)
    if not (exposure > 0).all():
        row = int((exposure <= 0).argmax())
        raise ValueError(
            f"`exposure` must be positive, got {exposure[row]:g} in row {row}. Hint: leave out "
            "rows that were never at risk."
        )
    return exposure
