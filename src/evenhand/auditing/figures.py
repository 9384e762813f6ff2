"""What figures and frontier pages show: curves, changes, and the models of a path as audits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from .._core.arrays import Rows, Vector
from ..data.criteria import get_criterion
from ..data.sample import Sample
from ..measures.exact_tests import exact_fairness_p_values
from .audits import describe_rows
from .group_tables import summarize_groups
from .result import Audit

if TYPE_CHECKING:
    from ..measures.measures import Measure
    from ..training.path import FairnessPath, PathPoint

# ------------------------------------------------------------------------------------------------
# Curves of an audit's rows that figures draw: densities and calibration, by group.


# Groups that a figure can tell apart.
DRAWN_GROUPS = 8


@dataclass(frozen=True)
class DrawnRows:
    """The rows an audit keeps for its figures, restricted to the groups that are drawn.

    Attributes
    ----------
    s, y : (m,) arrays
        Scores and targets; `y` is None without a target.
    membership : (m, G) array
        Weight of each row in each drawn group (0 or the sample weight for known groups).
    names : tuple of G str
        The groups, full length. `index` gives their numbers in the audit.
    """

    s: Vector
    y: Vector | None
    membership: Vector
    names: tuple[str, ...]
    index: tuple[int, ...]

    @property
    def codes(self) -> Rows:
        """The most likely drawn group of each row; −1 where the row is in none of them."""
        return np.where(self.membership.any(axis=1), self.membership.argmax(axis=1), -1)


def some_rows(rows: Sample, limit: int = 6000) -> Sample:
    """Rows for the figures, evenly spaced within each group so that small groups keep theirs."""
    groups = rows.groups
    if groups.n_known <= limit:
        return rows
    if groups.codes is None or groups.n_groups > limit // 50:
        return rows.take(np.linspace(0, groups.n_known - 1, limit).astype(int))
    each, counts = limit // groups.n_groups, groups.counts.astype(int)
    # Two bytes a row: NumPy then sorts by counting.
    order = np.argsort(groups.codes.astype(np.int16), kind="stable")
    places = [
        first + np.unique(np.linspace(0, count - 1, min(count, each)).astype(int))
        for first, count in zip(np.cumsum(counts) - counts, counts, strict=True)
    ]
    return rows.take(np.sort(order[np.concatenate(places)]))


def drawn_rows(audit: Audit, limit: int = DRAWN_GROUPS) -> DrawnRows:
    """Keep the `limit` largest groups of an audit's rows, in their original order."""
    rows = some_rows(audit._rows.rows)
    shares = np.asarray(audit._groups.columns["share"], dtype=float)
    index = tuple(sorted(np.argsort(-shares, kind="stable")[:limit].tolist()))
    membership = rows.groups.membership()[:, list(index)] * rows.groups.row_weight[:, None]
    names = tuple(audit.labels[k] for k in index)
    return DrawnRows(rows.scores, rows.target, membership, names, index)


def grid_over(*columns: Vector, size: int = 120) -> Vector:
    """Points covering all but the last 0.2% of the values, with a margin; never a single point."""
    values = np.concatenate(columns)
    low, high = np.quantile(values, [0.001, 0.999])
    spread = float(high - low)
    if spread <= 1e-12 * max(abs(low), abs(high), 1e-300):
        spread = max(abs(float(low)), 1.0) * 0.1
    margin = 0.08 * spread
    start = float(low) - margin
    # Prices, counts and shares have no values below zero to draw.
    if values.min() >= 0.0:
        start = max(start, 0.0)
    return np.linspace(start, float(high) + margin, size)


def density(values: Vector, weight: Vector, grid: Vector) -> Vector:
    """Kernel density Σ wᵢ φ((x − vᵢ)/h) / (h Σ wᵢ), h by Silverman's rule on effective rows.

    Values that are never negative are mirrored at zero, so that no density is lost below it.
    """
    keep, mirrored = weight > 0, np.min(values, initial=0.0) >= 0.0
    values, weight = values[keep], weight[keep] / weight[keep].sum()
    if not len(values):
        return np.zeros_like(grid)
    spread = math.sqrt(float(weight @ (values - weight @ values) ** 2))
    order = np.argsort(values, kind="stable")
    low, high = np.interp([0.25, 0.75], np.cumsum(weight[order]), values[order])
    if high > low:
        spread = min(spread, float(high - low) / 1.349)
    width = 0.9 * spread * float(np.square(weight).sum()) ** 0.2
    # A group of one row, or of equal scores, is still drawn: as a bump of visible width.
    width = max(width, float(grid[-1] - grid[0]) / len(grid))
    near = mirrored & (values < 39.0 * width)  # exp(−39²/2) is 0
    values, weight = np.append(values, -values[near]), np.append(weight, weight[near])
    z = (grid[:, None] - values[None, :]) / width
    return np.exp(-0.5 * z * z) @ weight / (width * math.sqrt(2 * math.pi))


def calibration(
    s: Vector, y: Vector, weight: Vector, confidence_level: float, bins: int = 10
) -> tuple[Vector, Vector, Vector]:
    """Mean score, mean target and half its interval in bins of the score with equal weight.

    Each bin holds 20 rows or more, so a small group has fewer bins.
    """
    keep = weight > 0
    s, y, weight = s[keep], y[keep], weight[keep]
    bins = max(1, min(bins, len(s) // 20))
    order = np.argsort(s, kind="stable")
    s, y, weight = s[order], y[order], weight[order]
    share = (np.cumsum(weight) - 0.5 * weight) / weight.sum()
    cell = np.minimum((share * bins).astype(int), bins - 1)
    total = np.bincount(cell, weight, minlength=bins)
    squares = np.bincount(cell, weight * weight, minlength=bins)
    used = total > 0
    mean_s = np.bincount(cell, weight * s, minlength=bins)[used] / total[used]
    mean_y = np.bincount(cell, weight * y, minlength=bins)[used] / total[used]
    square = np.bincount(cell, weight * y * y, minlength=bins)[used] / total[used]
    variance = np.maximum(square - mean_y**2, 0.0)
    errors = np.sqrt(variance * squares[used]) / total[used]
    return mean_s, mean_y, _normal_width(confidence_level) * errors


def _normal_width(confidence_level: float) -> float:
    """Half the width of a normal interval, in standard errors."""
    return float(ndtri(0.5 + confidence_level / 2))


# ------------------------------------------------------------------------------------------------
# What changes from one model to another: criteria, residuals and scores.


WORSE, OVERLAP = "worse", "worse; the intervals overlap"
# Changes that would not show in the tables are none.
_LEAST = 5e-4


def criterion_changes(before: Audit, after: Audit) -> dict[str, list[Any]]:
    """Every criterion before and after, with a remark where it is worse."""
    names = ("criterion", "before", "before_low", "before_high", "after", "after_low",
             "after_high", "remark")  # fmt: skip
    rows = []
    for name, old in before.measures.items():
        new = after.measures[name]
        overlap = old.interval[0] <= new.interval[1] and new.interval[0] <= old.interval[1]
        remark = (OVERLAP if overlap else WORSE) if new.shown - old.shown > _LEAST else ""
        rows.append((name, old.shown, *old.interval, new.shown, *new.interval, remark))
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def residual_changes(before: Audit, after: Audit) -> dict[str, list[Any]]:
    """Outcome minus score of each group before and after; further from 0 is worse.

    The change is that of the mean score of the same people, whose error is far smaller than that of
    either residual: a remark is made where it is more than chance.
    """
    old, new = before._groups.columns, after._groups.columns
    columns: dict[str, list[Any]] = {"group": list(old["group"])}
    for when, source in (("before", old), ("after", new)):
        for end in ("", "_low", "_high"):
            columns[f"{when}{end}"] = list(source[f"mean_residual{end}"])
    # Errors of the mean change of score of each group.
    moments = before._rows.change(after._rows).moments()
    error = np.sqrt(np.einsum("kk->k", moments.covariance[0, :, 0, :])).tolist()
    wide = _normal_width(before.confidence_level)
    columns["remark"] = [
        WORSE if abs(x) < abs(y) and not abs(y - x) <= wide * e else ""
        for x, y, e in zip(columns["before"], columns["after"], error, strict=True)
    ]
    return columns


def gains_of(before: Audit, after: Audit, favorable: str | None = None) -> dict[str, list[Any]]:
    """Change of each person's score between two audits of the same rows, by group.

    Columns group, n, mean, q05, q25, q50, q75, q95 of the change. "gain" is the share of those
    whose score rises, or falls if a low one is favorable; "loss" that of the others who move.
    """
    first, second = some_rows(before._rows.rows), some_rows(after._rows.rows)
    change, groups = second.scores - first.scores, first.groups
    weight = groups.membership() * groups.row_weight[:, None]
    order = np.argsort(change, kind="stable")
    # Changes far below the spread of the scores are rounding, not gains.
    tiny = 1e-9 * max(float(np.abs(first.scores).max()), float(np.abs(change).max()), 1e-300)
    up, down = ("loss", "gain") if favorable == "low" else ("gain", "loss")
    out = {"group": list(groups.label_names), "n": list(before._groups.columns["n"])}
    for k in range(groups.n_groups):
        w = weight[:, k] / weight[:, k].sum()
        place = np.cumsum(w[order]) - 0.5 * w[order]
        row = {f"q{q:02d}": np.interp(q / 100, place, change[order]) for q in (5, 25, 50, 75, 95)}
        row |= {"mean": w @ change, up: w @ (change > tiny), down: w @ (change < -tiny)}
        for key, value in row.items():
            out.setdefault(key, []).append(float(value))
    return out


# ------------------------------------------------------------------------------------------------
# The models of a fairness path as audits, so that pages show both alike.


def audits_of(path: FairnessPath, points: Sequence[PathPoint] | None = None) -> list[Audit]:
    """Return one audit per point, of its held-out scores; all points when left out.

    Only the selected point is tested, as only that one is judged in words.
    """
    columns = {name: path._rows.others.get(name) for name in ("summary", "given")}
    # A score is a rate where there is an exposure, and so is what it is compared with.
    sample = replace(path._rows, controls=None, others=columns).per_unit()
    return [
        _audit_point(path, point, replace(sample, scores=point.scores))
        for point in (path.points if points is None else points)
    ]


def _audit_point(path: FairnessPath, point: PathPoint, sample: Sample) -> Audit:
    rows = sample.known()
    units = rows.by_exposure()
    table = summarize_groups(units, path.confidence_level)
    return Audit(
        **describe_rows(sample, units, table),
        measures=_tested(point, sample) if point is path.selected else point.measures,
        confidence_level=path.confidence_level,
        name=weight_name(point.fairness_weight),
        r2=point.accuracy if path.accuracy.key == "r2" else float("nan"),
    )


def _tested(point: PathPoint, sample: Sample) -> dict[str, Measure]:
    """The measures with p-values, so that "violated" means what it means in an audit."""
    rows = sample.weighted().known()
    summary, given = rows.others["summary"], rows.others["given"]
    variables = rows.variables if summary is None else {**rows.variables, "c": summary}
    tests = exact_fairness_p_values(point.measures, variables, rows.groups, random_state=0)
    if given is not None:
        # Measured given it, and tested so.
        other = [name for name in point.measures if get_criterion(name).given == ("y",)]
        variables["y"] = given
        tests |= exact_fairness_p_values(other, variables, rows.groups, random_state=0)
    return {name: replace(m, p_value=tests[name].p_value) for name, m in point.measures.items()}


def weight_name(weight: float) -> str:
    """Return what a point is called."""
    return f"fairness weight {weight:.3g}" if weight else "no fairness term"
