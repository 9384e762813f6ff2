"""The grid of cells: which bin a score and a target fall into.

    x = s − shift_s − slope·(y − shift_y)        v = y − shift_y
    score bin  = clip(floor((x/(scale_s + |x|) − low_s)·rate_s), 0, bins − 1)
    target bin = clip(floor((v/(scale_y + |v|) − low_y)·rate_y), 0, bins − 1)

Elementwise, so that a database can fill the same cells, and of operations that every engine rounds
in the same way. Bins are level in the middle of a distribution and wider the farther out they lie.
`slope` is 0 on a plain grid. Where score and target lie along a line more closely than |r| = 0.99
it is the slope of that line, and the score bins are bins of the residual, which a plain grid would
blur. Where they go together as closely but not along a line the grid is plain and has 32,768 bins a
side in place of 512.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from .._core.arrays import Vector
from .._core.threads import run_chunks
from .._core.validation import InputError, is_number

VERSION = 2
BINS, FINE_BINS, MOST_BINS = 512, 2**15, 2**16
# Correlation beyond which a plain grid would blur what the score says beyond the target.
CLOSE = 0.99
# Standard deviations from the middle at which bins are four times as wide as there.
WIDE = 4.0
# Rows that the scale and the correlation are taken from, and room beyond the extremes seen.
SAMPLE, _ROOM = 200_000, 0.05
# Turns of a number between −1 and 1: what is left after the point is as good as random.
_TURNS = (987654321.9875, 618033988.7498949)
_NO_TARGET = np.empty(0)


@dataclass(frozen=True)
class Axis:
    """Bins of one variable: clip(floor((x/(scale + |x|) − low)·rate), 0, bins − 1).

    x is a value less the shift.
    """

    shift: float
    scale: float
    low: float
    rate: float

    @classmethod
    def from_range(
        cls, shift: float, scale: float, least: float, largest: float, bins: int
    ) -> Axis:
        """Bins that span what lies between two values.

        Parameters
        ----------
        shift, scale : float
            A middle, such as the median, and some standard deviations.
        least, largest : float
        bins : int
        """
        scale = scale if scale > 0 and math.isfinite(scale) else 1.0
        low, high = (_squeezed(t - shift, scale) for t in (least, largest))
        width = max(high - low, 1e-6)
        return cls(
            float(shift), float(scale), low - _ROOM * width, bins / ((1 + 2 * _ROOM) * width)
        )

    @classmethod
    def from_values(cls, values: Vector, bins: int) -> Axis:
        """Bins for some values, by their median and quartiles."""
        middle = float(np.median(values))
        return cls.from_range(middle, WIDE * _spread(values), values.min(), values.max(), bins)

    def at(self, x: float) -> float:
        """Where a value less the shift lies, in bins."""
        return (_squeezed(x, self.scale) - self.low) * self.rate

    def numbers(self) -> Vector:
        return np.array([self.shift, self.scale, self.low, self.rate])


@dataclass(frozen=True)
class Edges:
    """A grid of cells; the module's docstring has the formula.

    Attributes
    ----------
    bins : int
        Bins per side.
    score : Axis
    target : Axis or None
        None where there is no target.
    slope : float
        Of the line that score bins are residuals from; 0 on a plain grid.
    """

    bins: int
    score: Axis
    target: Axis | None = None
    slope: float = 0.0

    @classmethod
    def from_values(cls, s: Vector, y: Vector | None, bins: int | None = None) -> Edges:
        """A grid for scores and targets like these.

        Parameters
        ----------
        s : (n,) array
        y : (n,) array or None
        bins : int, optional
            512, or 32,768 where the two go together closely but not along a line.
        """
        if bins is not None and not (isinstance(bins, Integral) and 2 <= bins <= MOST_BINS):
            raise InputError(
                "edges", "be Edges of other cells, or a number of bins per side between 2 and "
                f"{MOST_BINS}, got {bins!r}",
            )  # fmt: skip
        some, other = draw_rows(s, y)
        edges = cls._from_sample(some, other, bins)
        if len(some) == len(s):
            return edges
        rest = s
        if edges.slope and edges.target is not None and y is not None:
            rest = s - edges.score.shift - edges.slope * (y - edges.target.shift)
        return edges.spanning(*((v.min(), v.max()) for v in (rest, y) if v is not None))

    @classmethod
    def _from_sample(cls, s: Vector, y: Vector | None, bins: int | None) -> Edges:
        size = BINS if bins is None else int(bins)
        if y is None:
            return cls(size, Axis.from_values(s, size))
        slope = _line(s, y)
        if slope and abs(_correlation(s, y)) > CLOSE:
            target = Axis.from_values(y, size)
            # About the same middle as the target's, so that the two shifts lie on the line.
            middle = float(np.median(s))
            rest = s - middle - slope * (y - target.shift)
            score = Axis.from_range(0.0, WIDE * _spread(rest), rest.min(), rest.max(), size)
            return cls(size, replace(score, shift=middle), target, slope)
        if bins is None and abs(_correlation(rankdata(s), rankdata(y))) > CLOSE:
            size = FINE_BINS
        return cls(size, Axis.from_values(s, size), Axis.from_values(y, size))

    def spanning(
        self, score: tuple[float, float], target: tuple[float, float] | None = None
    ) -> Edges:
        """The same middles and scales with bins from other extremes to others.

        Parameters
        ----------
        score : least and largest
            Of the residual on a grid with a slope.
        target : least and largest, optional
        """
        shift = 0.0 if self.slope else self.score.shift
        first = Axis.from_range(shift, self.score.scale, *score, self.bins)
        first = replace(first, shift=self.score.shift)
        if self.target is None or target is None:
            return replace(self, score=first)
        second = Axis.from_range(self.target.shift, self.target.scale, *target, self.bins)
        return replace(self, score=first, target=second)

    @property
    def kind(self) -> str:
        """The grid in words."""
        if self.target is None:
            return f"{self.bins} bins of the score"
        what = "of the score's residual and the target" if self.slope else "of score and target"
        return f"{self.bins} × {self.bins} bins {what}"

    def bins_of(self, s: Vector, y: Vector | None) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Score and target bin of each row; the latter 0 without a target.

        Parameters
        ----------
        s : (n,) array
        y : (n,) array or None
        """
        from ..kernels.sums import bins_chunk

        first, second = np.zeros(len(s), dtype=np.int32), np.zeros(len(s), dtype=np.int32)
        target = _NO_TARGET if self.target is None else self.target.numbers()
        numbers = (self.score.numbers(), target, self.slope, self.bins)
        column = _NO_TARGET if y is None else y
        run_chunks(bins_chunk, len(s), 0, (s, column, *numbers), (first, second))
        return first, second

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Any) -> Edges:
        """From :meth:`to_dict`, every field checked."""
        if not isinstance(values, Mapping):
            raise InputError("edges", f"be a mapping, got {type(values).__name__}")
        if values.get("version") != VERSION:
            raise InputError(
                "edges", f"be of version {VERSION}, got {values.get('version')!r}",
                hint="this file was written by another version of evenhand.",
            )  # fmt: skip
        bins = values.get("bins")
        if not isinstance(bins, int) or isinstance(bins, bool) or not 1 < bins <= MOST_BINS:
            raise InputError("edges", f"have between 2 and {MOST_BINS} bins, got {bins!r}")
        target = values.get("target")
        slope: Any = values.get("slope")
        # Squares of a slope beyond have no room in floats.
        if not is_number(slope) or abs(slope) > 1e100 or (slope and target is None):
            raise InputError("edges", f"have a finite slope, 0 without target, got {slope!r}")
        score = _axis(values.get("score"), "score")
        other = None if target is None else _axis(target, "target")
        return cls(bins, score, other, float(slope))


def _squeezed(x: float, scale: float) -> float:
    """Into −1 to 1; what is beyond the floats to an end."""
    return float(x / (scale + abs(x)) if math.isfinite(x) else math.copysign(1.0, x))


def _axis(values: Any, name: str) -> Axis:
    names = [f.name for f in fields(Axis)]
    if not isinstance(values, Mapping) or set(values) != set(names):
        raise InputError("edges", f"give {', '.join(names)} of the {name}, got {values!r}")
    if not all(is_number(values[k]) for k in names):
        raise InputError("edges", f"give finite numbers for the {name}, got {dict(values)!r}")
    if not (values["scale"] > 0 and values["rate"] > 0):
        raise InputError(
            "edges", f"have a positive scale and rate of the {name}, got {dict(values)!r}"
        )
    return Axis(*(float(values[k]) for k in names))


# ------------------------------------------------------------------------------------------------
# The rows that a grid is made from: the same ones wherever a table is, so that the grid is too.


def share_drawn(n: float) -> float:
    """Of n rows, what the sample has; 1 where it has all of them."""
    return SAMPLE / n if n >= 2 * SAMPLE else 1.0


def scramble(columns: Iterable[Any], spans: Iterable[tuple[float, float]], floor: Any) -> Any:
    """A number between 0 and 1 that score and target alone decide, as if it were random.

    The values decide, and neither the order of rows nor threads, partitions or a state: a table
    gives the same sample every time, in every engine. Rows that are equal are in it or out of it
    together.

    Parameters
    ----------
    columns : arrays, or expressions of an engine
        The score, and the target where there is one.
    spans : least and largest of each
    floor : callable
        Of an array or an expression.
    """
    angle: Any = 0.0
    for column, (low, high), turns in zip(columns, spans, _TURNS, strict=False):
        angle = (column - (low / 2 + high / 2)) / (high / 2 - low / 2 or 1.0) * turns + angle
    return angle - floor(angle)


def looks_drawn(values: int, rows: float, wanted: float) -> bool:
    """Whether values drawn with all of their rows are as good as rows drawn one by one.

    They are where few rows share a value; else there are too many rows, too few, or few values.
    """
    return values >= 0.9 * rows and abs(rows - wanted) < 0.05 * wanted


def draw_rows(s: Vector, y: Vector | None) -> tuple[Vector, Vector | None]:
    """The sample of rows in memory that engines draw (`tables.plan`): all of them where few.

    Where many rows share a value, floor(share·n + u) of its n rows, with u its scrambled number:
    that is share·n on average over values.
    """
    share = share_drawn(len(s))
    if share == 1.0:
        return s, y
    columns = [s] if y is None else [s, y]
    u = scramble(columns, [(float(c.min()), float(c.max())) for c in columns], np.floor)
    pairs = s if y is None else s + 1j * y
    values, copies = np.unique(pairs[u <= share], return_counts=True)
    if not looks_drawn(len(values), copies.sum(), share * len(s)):
        values, first, count = np.unique(pairs, return_index=True, return_counts=True)
        copies = np.floor(count * share + u[first]).astype(np.int64)
    drawn = np.repeat(values, copies)
    return (drawn, None) if y is None else (drawn.real.copy(), drawn.imag.copy())


def _spread(values: Vector) -> float:
    """Distance of the quartiles, else of the outer percentiles, else the standard deviation."""
    q = np.quantile(values, (0.01, 0.25, 0.75, 0.99))
    if q[2] > q[1]:
        return float(q[2] - q[1]) / 1.349
    if q[3] > q[0]:
        return float(q[3] - q[0]) / 4.65
    unit = float(np.abs(values).max()) or 1.0  # squares of a few huge values overflow
    return unit * float(np.std(values / unit))


def _line(s: Vector, y: Vector) -> float:
    """Slope of s on y; 0 where either does not vary."""
    unit = float(np.abs(y - y.mean()).max(initial=0.0))
    dy = _centered(y)
    size = float(dy @ dy)
    with np.errstate(over="ignore", invalid="ignore"):
        slope = float(dy @ ((s - s.mean()) / unit)) / size if size > 0 else 0.0
    if not np.isfinite(slope):  # beyond all floats, in units that are too far apart
        return 0.0
    # Twice the same column: its residual is then zero and not rounding.
    return 1.0 if abs(slope - 1.0) < 1e-9 else slope


def _centered(values: Vector) -> Vector:
    """Differences from the mean over the largest of them, so that squares stay within floats."""
    off = values - values.mean()
    return off / (float(np.abs(off).max(initial=0.0)) or 1.0)


def _correlation(a: Vector, b: Vector) -> float:
    da, db = _centered(a), _centered(b)
    size = float(da @ da) * float(db @ db)
    return float(da @ db) / math.sqrt(size) if size > 0 else 0.0
