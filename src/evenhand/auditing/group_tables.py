"""Group by group: sizes, means, errors, and the simple disparities people already know.

These put the three information measures in context; they do not replace them. Equal means hide
unequal spreads, and no single gap sees all of a distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, permutations
from typing import Any

import numpy as np

from .._core.arrays import Array, Mask, Matrix, Rows, Vector
from ..data.groups import Groups
from ..data.sample import Sample
from ..data.weights import cluster_groups, cluster_sums
from ..estimators.ranks import Ranks
from ..measures.effective import group_sizes, unit_masses
from ..measures.measures import freedom_of, standard_error
from .influence import Entry, GroupRows, two_sided

# Rows this many times as far from the median as most are, and the share of the squared distances
# at which they drown all others. Three in four lognormal samples of σ = 1.5 stay below it.
_FAR, _NEARLY_ALL = 10.0, 0.9
# Numbers in the cumulative shares of a few groups.
_GAP_NUMBERS = 2_000_000


@dataclass(frozen=True)
class Disparities:
    """Gaps between groups in common units; each the largest over groups.

    Attributes
    ----------
    mean_score_gap : float
        Largest minus smallest mean score.
    kolmogorov_smirnov, wasserstein : float
        Largest distance between a group's scores and those of all other rows; the latter in
        units of the score.
    rmse_ratio : float
        Largest over smallest root mean squared error (NaN without a target).
    """

    mean_score_gap: float
    kolmogorov_smirnov: float
    wasserstein: float
    rmse_ratio: float


@dataclass(frozen=True)
class GroupTable:
    """One row per group; `columns` maps a name to K values, NaN where not defined."""

    columns: dict[str, list]

    @property
    def gaps(self) -> Disparities:
        """Gaps between the groups."""
        score, ks, wasserstein, rmse = (
            np.array(self.columns.get(name, [0.0]))
            for name in ("mean_score", "kolmogorov_smirnov", "wasserstein", "rmse")
        )
        least, most = rmse.min(), rmse.max()
        # Errors of enormous numbers are infinite, and have no ratio.
        ratio = float(most / least) if 0 < least < np.inf else math.nan
        return Disparities(float(np.ptp(score)), float(ks.max()), float(wasserstein.max()), ratio)


class GroupStatistics:
    """Numbers of each group by name, with what every row adds to them; each is computed once.

    Means of scores, targets and residuals, errors, "spread" (of squared distances of the score from
    the group's mean), and the slope of E[y|s] = a + b·s.
    """

    def __init__(self, rows: Sample):
        self.members, self.s, self.y = GroupRows(rows.groups), rows.scores, rows.target
        self._entries: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            with np.errstate(over="ignore", invalid="ignore"):  # squares beyond the largest float
                self._entries[name] = _STATISTICS[name](self)
        return self._entries[name]

    def forget(self, *names: str) -> None:
        """Free what the rows add to these numbers: of millions of rows that is most of the room."""
        for name in names:
            self._entries.pop(name, None)

    def mean_loss(self, loss: Callable[[Vector], Vector]) -> Entry:
        """Mean of a function of the residual y − s."""
        return self.members.mean(loss(self.y - self.s))

    def _rmse(self) -> Entry:
        value = np.sqrt(self["mse"].value)
        slope = np.where(value > 0, 0.5 / value, 0.0)
        return Entry(self.members, value, self.members.apply(np.multiply, self["mse"].psi, slope))

    def _slope(self) -> Entry:
        """1 + that of the residual: of good scores y leaves little more than rounding."""
        members, spread, apart = self.members, self["spread"], self["mean_score"].psi
        bend = members.mean(apart * self["mean_residual"].psi) / spread
        # Residuals of a fitted line are too small by the leverage of their rows, and far scores
        # decide on it: over 1 − h they are those of the jackknife (MacKinnon and White's HC3).
        rest = members.apply(np.divide, np.square(apart), spread.value)
        rest += 1.0
        rest = members.apply(np.divide, members.weigh(rest), -members.total)
        rest += 1.0
        psi = bend.psi / np.maximum(rest, 0.1, out=rest)
        return Entry(members, 1.0 + bend.value, psi, few_decide=True)


_STATISTICS: dict[str, Callable[[GroupStatistics], Entry]] = {
    "mean_score": lambda table: table.members.mean(table.s),
    "spread": lambda table: table.members.mean(np.square(table["mean_score"].psi)),
    "mean_target": lambda table: table.members.mean(table.y),
    "mean_residual": lambda table: table.mean_loss(np.asarray),
    "mae": lambda table: table.mean_loss(np.abs),
    "mse": lambda table: table.mean_loss(np.square),
    "rmse": GroupStatistics._rmse,
    "calibration_slope": GroupStatistics._slope,
}
# Columns of the table of groups, without and with a target.
_COLUMNS = ("mean_score",)
_WITH_TARGET = (*_COLUMNS, "mean_target", "mean_residual", "mae", "rmse", "calibration_slope")


def summarize_groups(
    rows: Sample, confidence_level: float, cells: tuple[Any, Vector] | None = None
) -> GroupTable:
    """Per-group table, over rows with a known group.

    Columns ``*_low`` and ``*_high`` are intervals at the confidence level, from the influence of
    each row or cluster. `cells` are those of :meth:`Ranks.distribution` of the scores, if known.
    """
    groups = rows.groups
    ordered = Sample(groups, rows.scores, rows.target)
    if groups.codes is not None and groups.cluster is None:
        # NumPy sorts short integers in one pass over them.
        ordered = ordered.take(np.argsort(groups.codes.astype(np.uint16), kind="stable"))
    with np.errstate(all="ignore"):  # scores beyond 1e154 have no variance, equal ones no slope
        statistics = GroupStatistics(ordered)
        members = statistics.members
        columns: dict[str, list[Any]] = {
            "group": list(groups.label_names),
            "n": [float(c) if groups.codes is None else int(c) for c in groups.counts],
            "share": groups.shares.tolist(),
            "n_effective": members.size.tolist(),
        }
        if groups.cluster is not None:
            held = unit_masses(groups) > 0
            columns["n_clusters"] = held.sum(axis=0).tolist()
        for name in _COLUMNS if rows.target is None else _WITH_TARGET:
            entry = statistics[name]
            low, high = entry.interval(confidence_level)
            columns[name] = entry.value.tolist()
            columns[f"{name}_low"], columns[f"{name}_high"] = low.tolist(), high.tolist()
            if name.startswith("mean"):
                spread = np.sqrt(members.add(np.square(entry.psi)) / members.total)
                columns[name.replace("mean", "sd")] = spread.tolist()
            if name not in ("mean_score", "mean_residual"):  # which the slope is made of
                statistics.forget(name, "mse")
            del entry
    cell, points = cells or Ranks(rows.scores).distribution()
    ks, wasserstein = _distribution_gaps(cell, points, groups)
    columns |= {"kolmogorov_smirnov": ks.tolist(), "wasserstein": wasserstein.tolist()}
    return GroupTable(columns)


def _distribution_gaps(cell: Any, points: Vector, groups: Groups) -> tuple[Vector, Vector]:
    """Kolmogorov-Smirnov and Wasserstein distance of each group from all other rows, (K,) each."""
    everyone = np.bincount(cell, groups.weight, len(points)).cumsum()
    # A value between two others has no width: only the end of a run counts.
    step = np.append(np.diff(points), 1.0)
    ends = step > 0
    ks, wasserstein = np.empty(groups.n_groups), np.empty(groups.n_groups)
    # A few groups at a time: a column for each of many would be far larger than the data.
    size = max(1, _GAP_NUMBERS // len(points))
    wanted = groups.n_groups if groups.n_groups > 2 else 1
    for first in range(0, wanted, size):
        part = slice(first, min(first + size, wanted))
        below = _mass_by_cell(cell, len(points), groups, part)
        np.cumsum(below, axis=0, out=below)
        total = below[-1].copy()
        rest = everyone[:, None] - below
        with np.errstate(invalid="ignore", divide="ignore"):
            below /= total
            rest /= everyone[-1] - total
        gap = np.abs(np.subtract(below, rest, out=rest), out=rest)
        ks[part] = gap[ends].max(axis=0)
        wasserstein[part] = step[:-1] @ gap[:-1]
    # Of two groups each is as far from the other.
    ks[wanted:], wasserstein[wanted:] = ks[0], wasserstein[0]
    return ks, wasserstein


def _distance_from_rest(
    rows: Sample, inside: Vector, order: Rows, statistic: str
) -> tuple[float, float, Vector]:
    """How far a group is from all other rows, at the least, and what each row adds to that.

    Each distance is the difference of two means of some x: s/σ_s − y/σ_y, 1[s ≤ t] at the widest
    gap t between the distributions, and ∫ sign of the gap over t > s. Where x is the largest of
    many, the difference is too large; x from one half of the rows is not, for the other half.
    """
    s, weight, groups = rows.scores, rows.groups.row_weight, rows.groups
    with np.errstate(divide="ignore", invalid="ignore"):
        if statistic == "dsm":
            x = s / weighted_spread(s, weight) - rows.target / weighted_spread(rows.target, weight)
            value, psi = _difference_of_means(x, inside, weight)
            factor = (
                1.0 - weight @ inside / weight.sum()
            )  # against all rows, the group's among them
            return factor * value, factor * value, factor * psi
        units = np.arange(len(s)) if groups.cluster is None else groups.cluster
        half = np.random.default_rng(0).random(int(units.max()) + 1)[units] < 0.5
        value, psi = _difference_of_means(
            _widest_gap(s, inside, weight, order, statistic), inside, weight
        )
        least = []
        for one in (half, ~half):
            x = _widest_gap(s, inside, weight * ~one, order, statistic)
            least.append(_difference_of_means(x, inside, weight * one)[0])
    return value, min(float(np.mean(least)), value), psi


def _widest_gap(s: Vector, inside: Vector, weight: Vector, order: Rows, statistic: str) -> Vector:
    """The x whose mean differs most between a group and all others, of those of a distance."""
    share = weight @ inside / weight.sum()
    gap = np.cumsum((weight * (inside / share - (1.0 - inside) / (1.0 - share)))[order])
    step = np.append(np.diff(s[order]), 0.0)
    if statistic == "kolmogorov_smirnov":
        widest = np.argmax(np.abs(gap) * (step > 0))
        return np.sign(gap[widest]) * (s <= s[order[widest]])
    x = np.empty(len(s))
    x[order] = np.cumsum((np.sign(gap) * step)[::-1])[::-1]
    return x


def _difference_of_means(x: Vector, inside: Vector, weight: Vector) -> tuple[float, Vector]:
    """Mean of x in a group less that of all others, and what each row adds to it."""
    total = weight.sum()
    share = weight @ inside / total
    own, rest = inside / share, (1.0 - inside) / (1.0 - share)
    ends = [float(weight @ (part * x) / total) for part in (own, rest)]
    return ends[0] - ends[1], own * (x - ends[0]) - rest * (x - ends[1])


def weighted_spread(x: Vector, weight: Vector) -> float:
    """Standard deviation."""
    return math.sqrt(float(np.cov(x, aweights=weight, ddof=0)))


def _mass_by_cell(cell: Any, n_cells: int, groups: Groups, part: slice) -> Matrix:
    """Σω of some of the groups in each cell."""
    codes, weight, count = groups.codes, groups.weight, part.stop - part.start
    if codes is None:
        own = groups.membership()[:, part] * groups.row_weight[:, None]
        return np.column_stack([np.bincount(cell, column, n_cells) for column in own.T])
    if count < groups.n_groups:
        # Numbers of rows are taken several times as fast as a mask of every other row.
        rows = np.flatnonzero((codes >= part.start) & (codes < part.stop))
        cell, codes = cell[rows], codes[rows]
        weight = None if weight is None else weight[rows]
    place = cell.astype(np.int64) * count + codes - part.start
    return np.bincount(place, weight, n_cells * count).astype(float).reshape(n_cells, count)


# ------------------------------------------------------------------------------------------------
# Rows → means by group of a few functions of score and target, with the covariance of them all.
#
# Everything that compares groups by their means, spreads or rates is a smooth function of these
# means, so that this is all it needs of rows.


SIDES = ("high", "low")


@dataclass(frozen=True)
class Cutoff:
    """Where scores are cut: at a quantile of all rows, or at a value that is known beforehand.

    Attributes
    ----------
    quantile, value : float or None
        One of the two. Scores beyond a quantile are favorable, as are those that reach a value.
    """

    quantile: float | None = None
    value: float | None = None

    @property
    def name(self) -> str:
        if self.quantile is None:
            return f"score {self.value:g}"
        return "median" if self.quantile == 0.5 else f"{self.quantile:g}"


@dataclass(frozen=True)
class GroupMoments:
    """Means by group and their covariance.

    Attributes
    ----------
    labels : tuple of K str
    share, count, size : (K,) arrays
        Weighted share, rows, and effective rows or clusters of each group.
    n_units : float
        Effective rows or clusters in all; `n_clusters` their number, or None without clusters.
    names : tuple of d names
        Those of :class:`GroupStatistics`, and a pair of cutoff and favorable side for the share of
        favorable scores.
    mean : (d, K) array
    covariance : (d, K, d, K) array
    third : (c, c, c, K) array
        Third moments of the first c means: all but the shares of favorable scores.
    cutoffs : dict of Cutoff → float
        The score it stands for.
    """

    labels: tuple[str, ...]
    share: Vector
    count: Vector
    size: Vector
    n_units: float
    n_clusters: int | None
    names: tuple[Any, ...]
    mean: Matrix
    covariance: Array
    third: Array
    cutoffs: dict[Cutoff, float]

    def __getitem__(self, name: Any) -> Vector:
        """The means of one name."""
        return self.mean[self.names.index(name)]


class AuditedRows:
    """The rows of an audit, by reference: nothing is computed or copied before it is asked for.

    Parameters
    ----------
    rows : Sample
        Those with a known group.
    times : float
        People that each row stands for, as one of a sample does; errors count people.
    unknown : (2, u) array, optional
        Scores and weights of the rows whose group is not known.
    """

    def __init__(self, rows: Sample, times: float = 1.0, unknown: Matrix | None = None):
        self.rows = Sample(rows.groups, rows.scores, rows.target)
        self.times, self.unknown = times, unknown

    def moments(
        self, cutoffs: Sequence[Cutoff] = (), side: str = "high", more: Sequence[str] = ()
    ) -> GroupMoments:
        """Means by group with the shares on the favorable side of cutoffs, and more by name."""
        with np.errstate(over="ignore", invalid="ignore"):  # powers beyond the largest float
            return self.scaled(group_moments(self.rows, cutoffs, side, more))

    def scaled(self, m: GroupMoments) -> GroupMoments:
        """Moments of these rows with the errors of the people that they stand for."""
        times = self.times
        if times == 1.0:
            return m
        return replace(
            m, count=m.count * times, size=m.size * times, n_units=m.n_units * times,
            covariance=m.covariance / times, third=m.third / times**2,
        )  # fmt: skip

    def against_rest(self, statistic: str) -> Iterator[tuple[float, float, float, float, float]]:
        """Value, standard error, freedom, skewness and the least value of how groups differ from
        others.

        "kolmogorov_smirnov" and "wasserstein" are distances of the scores, "dsm" the mean of
        s/σ_s − y/σ_y in the group less that of all rows.
        """
        rows, groups = self.rows, self.rows.groups
        order = np.argsort(rows.scores, kind="stable")
        for size, inside in zip(group_sizes(groups), groups.membership().T, strict=True):
            value, least, psi = _distance_from_rest(rows, inside, order, statistic)
            error = standard_error(psi, groups.weight, groups.cluster) / math.sqrt(self.times)
            units = groups.row_weight * psi
            freedom = max(size * self.times - 1.0, 1.0)
            if groups.cluster is not None:
                units = cluster_sums(groups.cluster, units)
                freedom = freedom_of(psi, groups)
            cubes, squares = float((units**3).sum()), float(np.square(units).sum())
            skewness = cubes / squares**1.5 / math.sqrt(self.times) if squares > 0 else 0.0
            yield value, error, freedom, skewness, least

    def standing_for(self, people: int) -> AuditedRows:
        """The same rows as a sample of so many people."""
        return AuditedRows(self.rows, people / self.rows.n_rows, self.unknown)

    def without_far(self) -> AuditedRows | None:
        """The same without far scores and targets, where these carry nearly all of the spread."""
        far = np.zeros(self.rows.n_rows, dtype=bool)
        weight = self.rows.groups.row_weight
        for column in (self.rows.scores, self.rows.target):
            if column is None:
                continue
            apart = np.abs(column - np.median(column))
            apart /= apart.max() or 1.0
            # One value may be that of most rows, as no claims are.
            usual = np.quantile(apart[apart > 0], 0.75) if apart.any() else 0.0
            beyond, squares = apart > _FAR * usual, weight * np.square(apart)
            if squares[beyond].sum() >= _NEARLY_ALL * squares.sum():
                far |= beyond
        return AuditedRows(self.rows.take(~far), self.times) if far.any() else None

    def pool(self, labels: Sequence[str], name: str) -> AuditedRows:
        """The same rows with some of the groups as one, the last."""
        groups = self.rows.groups
        kept = [k for k, label in enumerate(groups.label_names) if label not in labels]
        place = np.full(groups.n_groups, len(kept))
        place[kept] = np.arange(len(kept))
        codes, table = groups.codes, groups.probabilities
        if table is None:
            codes = place[codes]
        else:
            table = table @ np.eye(len(kept) + 1)[place]
        names = (*(groups.label_names[k] for k in kept), name)
        merged = replace(groups, labels=names, codes=codes, probabilities=table, measured=None)
        return AuditedRows(replace(self.rows, groups=merged), self.times)

    def compare_unknown(self) -> tuple[float, float, float] | None:
        """Mean scores of rows of unknown group and of the others, and a p-value that they agree."""
        if self.unknown is None:
            return None
        s = np.append(self.unknown[0], self.rows.scores)
        weight = np.append(self.unknown[1], self.rows.groups.row_weight)
        codes = (np.arange(len(s)) >= self.unknown.shape[1]).astype(np.intp)
        two = GroupRows(Groups(("unknown", "known"), codes, None, weight, None, len(s)))
        mean = two.mean(s)
        theirs, others = mean.value.tolist()
        error = float(np.sqrt(np.square(mean.stderr).sum()))
        return theirs, others, two_sided(theirs - others, error, float(two.size.sum() - 2.0))

    def moved_by_unknown(self, k: int, ref: int) -> tuple[float, float]:
        """How far mean score of k less that of ref could fall or rise with the unknown rows.

        It is highest where those of the highest scores are of group k and of the lowest of ref.
        """
        if self.unknown is None:
            return 0.0, 0.0
        members = GroupRows(self.rows.groups)
        mean, order = members.mean(self.rows.scores).value, np.argsort(self.unknown[0])
        scores, weights = self.unknown[:, order]

        def furthest(group: int, sign: int) -> float:
            s, w = scores[::-sign], weights[::-sign]
            total = np.cumsum(np.append(members.total[group] * mean[group], s * w))
            values = total / np.cumsum(np.append(members.total[group], w))
            return float(values.max() if sign > 0 else values.min()) - float(mean[group])

        return furthest(k, -1) - furthest(ref, 1), furthest(k, 1) - furthest(ref, -1)

    def is_same(self, other: AuditedRows) -> bool:
        """Whether another score is of the same rows; not if only one had copies to leave out."""
        one, two = self.rows, other.rows
        same = np.array_equal(one.groups.numbers(), two.groups.numbers())
        return same and (one.target is None or np.array_equal(one.target, two.target))

    def change(self, other: AuditedRows) -> AuditedRows:
        """How far each row's score moves from these to other scores of the same rows."""
        moved = other.rows.scores - self.rows.scores
        return AuditedRows(Sample(self.rows.groups, moved), self.times)


def group_moments(
    rows: Sample, cutoffs: Sequence[Cutoff], side: str, more: Sequence[str] = ()
) -> GroupMoments:
    """The means and their covariance, with n_k/(n_k − 1) for the mean of each group.

    A cutoff at a quantile is itself an estimate, ĉ − c ≈ −(mean 1[s ≤ c] − q)/f(c): it moves the
    rate of group k by its density there, of which only the ratio to that of all rows is needed,
    f_k/f = P(k | s = c)/P(k), and read off the rows next to the cutoff.
    """
    y, s, groups = rows.target, rows.scores, rows.groups
    statistics, weight = GroupStatistics(rows), groups.row_weight
    members = statistics.members
    main = ["mean_score", "spread", *["mean_target"] * (y is not None), *more]
    entries: dict[Any, Entry] = {name: statistics[name] for name in main}
    at = {cutoff: _place(s, weight, cutoff) for cutoff in cutoffs}
    for cutoff, c in at.items():
        entries[cutoff, side] = members.mean(_favorable(s, c, cutoff, side).astype(float))
    names = tuple(entries)
    units = [members.by_unit(entry.psi) for entry in entries.values()]
    covariance = members.covariance(units)
    third = np.empty((len(names), len(names), len(names), groups.n_groups))
    for places in combinations_with_replacement(range(len(names)), 3):
        value = members.moment(*(units[j] for j in places))
        for order in permutations(places):
            third[order] = value
    covariance += _moved_by_cutoffs(members, s, at, names, units)
    return GroupMoments(
        groups.label_names, groups.shares, groups.counts, members.size, groups.n_effective,
        None if groups.cluster is None else groups.n_units, names,
        np.array([entry.value for entry in entries.values()]), covariance, third, at,
    )  # fmt: skip


def _moved_by_cutoffs(
    members: GroupRows, s: Vector, at: Mapping[Cutoff, float], names: Sequence[Any],
    units: Sequence[Any],
) -> Array:  # fmt: skip
    """What estimated cutoffs add to the covariance, (d, K, d, K)."""
    groups = members.groups
    weight, n_groups = groups.row_weight, groups.n_groups
    moved = {c: _density_ratio(s, at[c], c.quantile, groups) for c in at if c.quantile is not None}
    out = np.zeros((len(names), n_groups, len(names), n_groups))
    if not moved:
        return out
    # The influence of each unit on the share below, and what a move of it does to each number.
    below = np.column_stack([weight * ((s <= at[c]) - (c.quantile or 0.0)) for c in moved])
    below /= weight.sum()
    if groups.cluster is not None:
        below = cluster_groups(groups.cluster, below)
    pull = np.zeros((len(names), n_groups, len(moved)))
    for j, name in enumerate(names):
        if isinstance(name, tuple) and name[0] in moved:
            sign = 1.0 if name[1] == "high" else -1.0
            pull[j, :, list(moved).index(name[0])] = sign * moved[name[0]][0]
    shared = np.array([[members.cross(u, v) for v in below.T] for u in units])
    mixed = np.einsum("jck,lmc->jklm", shared, pull)
    # Steps of a share from one score to the next are spread evenly, with a variance of 1/12.
    spread = below.T @ below + np.diag([step**2 / 12 for _, step in moved.values()])
    return mixed + mixed.transpose(2, 3, 0, 1) + np.einsum("jkc,cd,lmd->jklm", pull, spread, pull)


def _favorable(s: Vector, c: float, cutoff: Cutoff, side: str) -> Mask:
    if cutoff.quantile is None:
        return s >= c if side == "high" else s <= c
    return s > c if side == "high" else s < c


def _place(s: Vector, weight: Vector, cutoff: Cutoff) -> float:
    """The score with a weight share of q below; between two scores where the share is exact."""
    if cutoff.value is not None:
        return cutoff.value
    order = np.argsort(s, kind="stable")
    below = np.cumsum(weight[order])
    wanted = (cutoff.quantile or 0.0) * below[-1]
    k = min(int(np.searchsorted(below, wanted * (1.0 - 1e-12))), len(s) - 1)
    exact = abs(below[k] - wanted) <= 1e-9 * wanted and k + 1 < len(s)
    return float((s[order[k]] + s[order[k + 1]]) / 2) if exact else float(s[order[k]])


def _density_ratio(s: Vector, c: float, quantile: float, groups: Groups) -> tuple[Vector, float]:
    """f_k(c)/f(c) for each group, by which the cutoff moves its rate, and the share of rows at c.

    Where many rows share the score c it stands fast, and the ratio is 0; but NaN where the quantile
    is so close to the edge of such a score that another sample may well have the next one.
    """
    weight, far = groups.row_weight, np.abs(s - c)
    total = float(weight.sum())
    error = math.sqrt(quantile * (1.0 - quantile) / groups.n_effective)
    # Between two scores the next ones on either side may be frequent.
    closest = far <= far.min() * (1.0 + 1e-9)
    step = float(weight[closest].sum()) / total
    if step > 3.0 * error:
        ends = np.array([weight[s < c].sum(), weight[s <= c].sum()]) / total
        stands = np.abs(ends - quantile).min() > 2.0 * error
        return np.full(groups.n_groups, 0.0 if stands else np.nan), 0.0
    # A window of n^0.8 rows, the rate of a density estimate, and not less than 30.
    width = min(max(int(groups.n_effective**0.8), 30), len(s) - 1)
    near = far <= np.partition(far, width)[width]
    if groups.codes is not None:
        inside = np.bincount(groups.codes[near], weight[near], groups.n_groups)
    else:
        inside = weight[near] @ groups.membership()[near]
    return np.asarray(inside / weight[near].sum() / groups.shares), step
