"""What one variable says beyond another: a coordinate for laws that follow the line y = f(s)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata

from .._core.arrays import Array
from ._cells import Levels, sums
from ._spline_basis import smooth

# Numbers of stretches of the given variable in each of which a curve is fitted, and the least rows
# of one.
_PIECES, _STRETCH_ROWS = (1, 32, 256, 1024), 60
# Unexplained variance below which a closer fit is tried.
_NEAR = 0.01
# Share of the unexplained variance below which a closer fit takes the place of a plainer one.
_CLOSE = 0.8


def residuals(
    values: Array, level: Levels, given: Array, given_level: Levels, weight: Array
) -> list[Array]:
    """Functions of (t, z) that increase in t at every z, and of which z tells little.

    The normal score of t less its smooth regression on that of z. Where t follows z so closely that
    this blurs what is left (a score that is the target but for a cent), the residual of t from a
    parabola, or from parabolas in narrow stretches of z, in multiples of its spread there: in the
    units of the two, which see what is finer than the rows are dense, or in the normal scores of
    their exact ranks, which are the same for any margins.
    """
    score = level.score[level.codes]
    codes, count = given_level.codes, len(given_level.rank)
    per_level = sums(codes, weight, count)
    mean = sums(codes, weight * score, count) / np.where(per_level > 0, per_level, 1.0)
    plain = score - smooth(given_level.score, mean, per_level)[codes]
    left = float(weight @ np.square(plain)) / max(float(weight @ np.square(score)), 1e-300)
    if left > _NEAR:
        return [plain]
    # The tails decide a variance and hold few rows.
    middle = np.abs(given_level.rank - 0.5)[codes] < 0.49
    raw = [v / max(float(np.abs(v).max()), 1e-300) for v in (values, given)]
    ranked = [ndtri((rankdata(v) - 0.5) / len(v)) for v in (values, given)]
    out = []
    for t, z in (ranked, raw):
        best, left = plain, np.inf
        for pieces in _PIECES:
            if pieces > 1 and pieces * _STRETCH_ROWS > len(t):
                break
            rest, unexplained = _curves(t, z, given_level, weight, middle, pieces)
            # What is fitted by chance, three coefficients a stretch, is no explanation.
            unexplained *= 1.0 + 6.0 * pieces / len(t)
            if unexplained < _CLOSE * left:
                best, left = rest, unexplained
        out.append(best)
    return out


def falls(values: Array, others: Array, level: Levels, other: Levels) -> bool:
    """Whether one variable is a falling map of the other in all rows, ties included."""
    # Levels are cut from below: of a falling map they need not be the mirror image, but nearly.
    apart = np.abs(level.rank[level.codes] + other.rank[other.codes] - 1.0)
    if float(apart.max()) > 3.0 * float(
        max(np.diff(v.rank, prepend=0.0).max() for v in (level, other))
    ):
        return False
    order = np.argsort(values)
    steps, drops = np.diff(values[order]), -np.diff(others[order])
    return bool((drops[steps > 0] > 0).all() and (drops[steps == 0] == 0).all())


def standardized(values: Array, weight: Array) -> Array:
    """(t − mean) / spread, whatever the units; zero for a constant."""
    t: Array = values / max(float(np.abs(values).max()), 1e-300)
    t = t - float(weight @ t) / float(weight.sum())
    spread = float(np.sqrt(weight @ np.square(t) / weight.sum()))
    return t / spread if spread > 1e-15 else np.zeros_like(t)


def _curves(
    t: Array, z: Array, level: Levels, weight: Array, middle: NDArray[np.bool_], pieces: int
) -> tuple[Array, float]:
    """Residual from a parabola in each of so many stretches of z, over its spread there; the share
    of the variance of t that it leaves."""
    piece = np.minimum((level.rank * pieces).astype(np.intp), pieces - 1)[level.codes]
    w = np.where(middle, weight, 0.0) if pieces == 1 else weight
    mass = np.maximum(sums(piece, w, pieces), 1e-300)

    def mean(v: Array) -> Array:
        return (sums(piece, w * v, pieces) / mass)[piece]

    dz, dt = z - mean(z), t - mean(t)
    size = np.maximum(mean(dz * dz), 1e-300)
    rest = dt - mean(dz * dt) / size * dz
    bend = dz * dz - size
    bend -= mean(dz * bend) / size * dz
    rest = rest - mean(bend * rest) / np.maximum(mean(bend * bend), 1e-300) * bend
    spread = np.sqrt(mean(rest * rest))
    inside = weight * middle
    center = t - inside @ t / inside.sum()
    left = float(inside @ (rest * rest) / max(inside @ (center * center), 1e-300))
    return rest / np.maximum(spread, 1e-300), left
