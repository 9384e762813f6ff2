"""One rule for three words: violated, holds, not enough data.

A value lies within a tolerance where a test at the stated level rejects that it lies beyond, and
beyond where a test rejects that it lies within; else the data are not enough to tell. For a
two-sided tolerance the former are two one-sided tests (equivalence). Without a tolerance, "beyond"
is any departure from exact fairness (:data:`.measures.RULE`).
"""

from __future__ import annotations

import math

from scipy.special import ndtri

VIOLATED, HOLDS, OPEN = "violated", "holds", "not enough data"
RULE_WITH_TOLERANCE = (
    "Against a tolerance a clause is called violated where a one-sided test at the stated level "
    "rejects that the true value lies within it (by Holm's rule over all tests), and holds where "
    "one-sided tests at that level reject that it lies beyond. Else there are not enough data. One "
    "violated clause is a fail; a pass needs all of them to hold, for which no correction is due."
)


def judge(p_within: float, p_beyond: float, level: float) -> str:
    """The word for two p-values.

    Parameters
    ----------
    p_within : float
        Of the hypothesis that the value lies within the tolerance.
    p_beyond : float
        Of the hypothesis that it lies beyond.
    level : float
    """
    if p_within < level:
        return VIOLATED
    return HOLDS if p_beyond < level else OPEN


def units_needed(n: float, errors: float, level: float, power: float = 0.8) -> float:
    """n·((z_level + z_power)/errors)²: units that would decide, if the estimate is the truth.

    Parameters
    ----------
    n : float
        Rows or clusters there are.
    errors : float
        Standard errors between the estimate and the limit.
    level, power : float
        Of the one-sided test, and how often it is to decide.
    """
    wanted = float(ndtri(1.0 - level) + ndtri(power))
    if not errors or not math.isfinite(wanted / errors) or math.isnan(n):
        return math.inf
    return float(math.ceil(n * (wanted / errors) ** 2))


def root_interval(value: float, half: float) -> tuple[float, float]:
    """(√v ± half/(2√v))², cut off at 0 and 1.

    The error of an information grows with its square root, so the root is where it is symmetric.
    Below one half-width the value itself is too uncertain to scale by, and the shift stays put.
    """
    if not math.isfinite(half):
        return 0.0, 1.0
    if value < -half:  # further below 0 than chance can take it: a misfit, not a measurement
        value = 0.0
    shift = half / 4 if value <= half else half * half / (4 * value)
    low = value - half + shift if value > half / 2 else 0.0
    high = value + half + shift
    return min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)


def half_width_down_to(value: float, limit: float) -> float:
    """The half-width at which :func:`root_interval` of a larger value begins at the limit."""
    root = 2.0 * math.sqrt(value) * (math.sqrt(value) - math.sqrt(limit))
    return root if root <= value else (value - limit) / 0.75


def errors_below(value: float, stderr: float, limit: float, rate: float) -> float:
    """Standard errors from a value up to a limit, with the error there would be at the limit.

        x = (v − L)/σ,  σ² = stderr² + rate·(L − v);  x − γ(x² − 1)/6,  γ = min(1.5·σ/L, 1)

    The variance of an information grows with it, by `rate` = 2/(n·H), and a value that came out
    small by chance brings a small standard error along: judged by that one, 15 % of samples would
    pass whose true value is the limit. The last term is Cornish and Fisher's for the skewness of a
    noncentral χ², without which the test would hardly ever pass with few rows. A value below 0
    counts as 0.

    Returns
    -------
    float
        0 or less.
    """
    value = max(value, 0.0)
    spread = math.sqrt(stderr * stderr + rate * (limit - value))
    if spread == 0.0:
        return -math.inf
    x = (value - limit) / spread
    skewness = min(1.5 * spread / limit, 1.0)
    return min(x - skewness * (x * x - 1.0) / 6.0, 0.0)


def upper_bound(value: float, stderr: float, rate: float, errors: float) -> float:
    """The limit that a value lies so many `errors` below (:func:`errors_below`), at most 1."""
    low, high = max(value, 0.0), 1.0
    if not math.isfinite(stderr) or -errors_below(value, stderr, high, rate) < errors:
        return 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if middle > 0.0 and -errors_below(value, stderr, middle, rate) >= errors:
            high = middle
        else:
            low = middle
    return high
