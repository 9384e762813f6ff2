"""How many rows an audit needs, before there are any."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

import numpy as np
from scipy.special import ndtri

from .._core.arrays import Array
from .._core.validation import InputError, as_number
from ..data.criteria import get_criterion
from ..measures.exact_tests import SMOOTH_SHARE
from ..measures.measures import errors_below, half_width_down_to
from .tolerance import check_level

# Smooth functions that the test of exact fairness looks at, for each group but one: four of the
# score, and with a condition six.
_FUNCTIONS = {False: 4, True: 6}
# Parameters of the classifiers that an estimate of the information rests on, for each group but
# one, at the least.
_TERMS = 3


def rows_needed(
    effect: float,
    shares: Any,
    level: float = 0.05,
    power: float = 0.8,
    criterion: str = "independence",
    *,
    tolerance: float | None = None,
) -> int:
    """Return how many rows tell a normalized information from 0: n = λ / (2·effect·H(A)).

    A test with d degrees of freedom sees an information I in n rows with the noncentrality 2nI, and
    λ is where its power is the one asked for. From a tolerance v₀, rows that put the one-sided
    bound on the effect's side of it: for a larger effect v, 2√v·(√v − √v₀) ≥ (z_level +
    z_power)·σ(v); for a smaller one, v₀ − v ≥ x·σ(v₀) + z_power·σ(v). Here σ²(v) = (2vH/n +
    p/(2n²))/H² with H = H(A), and x is z_level less its share in the skewness (`errors_below`).

    Parameters
    ----------
    effect : float
        The normalized information to be told from 0, or from the tolerance.
    shares : list of float
        Shares of the groups, or their sizes.
    level : float
        Of the test.
    power : float
        How often it is to succeed.
    criterion : str
        The normalizer is taken as H(A). For separation and sufficiency it is H(A|Y) and H(A|S),
        which are smaller where outcome or score say much about the group; more rows are needed then
        in the same proportion.
    tolerance : float, optional
        What the effect is to be told from: a smaller effect is to pass, a larger one to fail.

    Returns
    -------
    int
        Independent rows of equal weight. Of clustered rows count the effective ones: rows divided
        by 1 + (m − 1)·ρ for clusters of m rows that correlate by ρ.

    See Also
    --------
    evenhand.Tolerance
    evenhand.audit

    References
    ----------
    Schuirmann, D. J. (1987). A Comparison of the Two One-Sided Tests Procedure and the Power
    Approach. Journal of Pharmacokinetics and Biopharmaceutics 15.

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.rows_needed(0.01, [0.5, 0.5]) < eh.rows_needed(0.01, [0.9, 0.1])
    True
    >>> eh.rows_needed(0.002, [0.5, 0.5], tolerance=0.01) > 0
    True
    """
    p = _shares(shares)
    entropy = float(-(p * np.log(p)).sum())
    effect = _check_information(effect, "effect")
    level = check_level(level)
    if not isinstance(power, int | float) or not level < power < 1.0:
        raise InputError("power", f"lie between the level, {level:g}, and 1, got {power!r}")
    conditional = bool(get_criterion(criterion).given)
    freedom = _FUNCTIONS[conditional] * (len(p) - 1)
    if tolerance is None:
        return math.ceil(_noncentrality(freedom, level, power) / (2.0 * effect * entropy))
    tolerance = _check_information(tolerance, "tolerance")
    if tolerance == effect:
        raise ValueError(
            f"`effect` must differ from the tolerance, got {effect:g} for both: no number of rows "
            "tells a value from itself. Hint: plan for a score at half the tolerance."
        )
    # −Φ⁻¹(level), as 1 − level is 1 for the smallest levels.
    z, more, limit = -float(ndtri(level)), float(ndtri(power)), tolerance
    terms = _TERMS * (len(p) - 1)

    def spread(value: float, n: int) -> float:
        return math.sqrt(2.0 * value * entropy / n + terms / (2.0 * n * n)) / entropy

    def enough(n: int) -> bool:
        if effect > limit:
            return half_width_down_to(effect, limit) >= (z + more) * spread(effect, n)
        # The value that this share of samples stays below.
        seen = effect + more * spread(effect, n)
        if seen >= limit:
            return False
        error = spread(max(seen, 0.0), n)
        return -errors_below(seen, error, limit, 2.0 / (n * entropy)) >= z

    high = 2
    while not enough(high):
        high *= 2
    return bisect_left(range(high), True, lo=high // 2, key=enough)


def _noncentrality(freedom: int, level: float, power: float) -> float:
    """λ with P(χ²(freedom, λ) > critical value) = power."""
    from scipy.optimize import brentq
    from scipy.stats import chi2, ncx2

    # The smooth functions have this share of the level, a scan for the rest.
    smooth = -math.expm1(SMOOTH_SHARE * math.log1p(-level))
    critical = float(chi2.isf(smooth, freedom))
    top = 4.0 * (critical + float(ndtri(power)) ** 2 + 10.0)
    return float(brentq(lambda x: ncx2.sf(critical, freedom, x) - power, 1e-9, top))


def _shares(shares: Any) -> Array:
    try:
        p = np.asarray(shares, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"`shares` must be numbers, got {shares!r}.") from None
    if p.ndim != 1 or len(p) < 2:
        raise ValueError(
            f"`shares` must hold the share of each of at least two groups, got {shares!r}."
        )
    if not np.isfinite(p).all() or (p <= 0).any():
        raise ValueError(f"`shares` must be positive and finite, got {shares!r}.")
    return p / p.sum()


def _check_information(value: Any, name: str) -> float:
    if not 1e-100 < as_number(value) < 1.0:  # below that no number of rows is finite
        raise InputError(name, f"be a normalized information above 0 and below 1, got {value!r}")
    return float(value)
