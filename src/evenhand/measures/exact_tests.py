"""Tests of exact fairness: S ⟂ A, S ⟂ A | Y and Y ⟂ A | S.

Information is nonnegative, so its estimate is not normal where the truth is zero and an interval
cannot serve as a test there. These tests ask the question by itself, by permuting groups among
rows that are alike in what is conditioned on, with the permutations done in closed form. Smooth
test functions have the power where groups differ in shift or spread; a scan of contrasts at all
resolutions sees the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any
from zlib import crc32

import numpy as np
from scipy.special import eval_legendre
from scipy.stats import chi2

from .._core.arrays import Array, Mask, Rows
from ..data.criteria import BOTH, CRITERIA, Criterion, complete, get_criterion
from ..data.groups import Groups
from ..data.weights import refuse_few_weighted, renumber
from ..estimators.ranks import (
    Columns,
    RankedRows,
    Ranks,
    conditional_rank,
    neighbor_slopes,
    rank_all,
)
from .covariances import (
    MIN_CLUSTERS,
    NO_FLOATS,
    Members,
    RowsInCells,
    Scores,
    UnitScores,
    clusters_in_cells,
    difference,
    independent_rows,
    level_rank,
    quadratic_form,
    root_inverse,
    scan_p_value,
    scan_rows,
)

# ------------------------------------------------------------------------------------------------
# Permutations drawn where the law of a statistic over all of them is too rough.


N_DRAWS = 1999


def draw_all(
    rows: RowsInCells, members: Members, mean: Array, root: Array, rng: np.random.Generator
) -> Array:
    """The statistic for random assignments of the groups of each cell to its rows."""
    from ..kernels.contrasts import feature_matrix

    order = np.argsort(rows.cell, kind="stable")
    f = (feature_matrix(*rows) - mean[rows.cell])[order]
    a = members.columns(order)
    keys = rng.random((N_DRAWS, len(f))) + rows.cell[order]
    total = np.tensordot(f[np.argsort(keys, axis=1)], a, axes=(1, 0))
    return np.square(total.transpose(0, 2, 1).reshape(N_DRAWS, -1) @ root).sum(axis=1)


def handful_of(members: Members, fewest: int) -> int:
    """Rows of the smaller of two groups if too few for the χ² distribution; else 0."""
    if members.codes is None or members.n_groups != 2:
        return 0
    count = int((members.codes == 0).sum())
    return count if count < fewest else 0


def draw_handful(
    rows: RowsInCells, count: int, mean: Array, root: Array, rng: np.random.Generator
) -> Array:
    """As :func:`draw_all` for one single cell, in the time of `count` rows a draw instead of n."""
    from ..kernels.contrasts import feature_matrix

    f = feature_matrix(*rows) - mean
    drawn = [rng.choice(len(f), count, replace=False, shuffle=False) for _ in range(N_DRAWS)]
    return np.square(f[np.array(drawn)].sum(axis=1) @ root).sum(axis=1)


@dataclass(frozen=True)
class TestResult:
    """A test that a criterion holds exactly.

    Attributes
    ----------
    statistic : float
        Quadratic form of the covariances between groups and the smooth test functions; its null
        mean is about `dof`.
    dof : int
        Degrees of freedom.
    p_value : float
        Probability of evidence this strong, of the smooth functions or of the scan, if the
        criterion held exactly; NaN if untestable.
    method : str
        How it was computed, in words, and which of the two decided.
    """

    __test__ = False  # not a test case, whatever pytest thinks of the name

    statistic: float
    dof: int
    p_value: float
    method: str


# Directions of covariances of smooth functions with less than this share of variance are rounding.
SINGULAR = 1e-8
# A group with fewer rows is merged with others of its kind.
MIN_GROUP_ROWS = 5
# Up to this many rows the chi-squared law is replaced by permutations drawn.
DRAWN_ROWS = 300
# Shares of the level of the smooth functions and of the scan for fine structure. What the scan
# finds it finds at 1e-10, so it needs little; it rejects about half as often as its level says,
# its largest terms being bounded, so that the two make up one.
SMOOTH_SHARE = 0.95
FINE_SHARE = 0.08
# Beyond this the combined p-value of the scan is rough, and the smooth functions have the word.
FINE_LEVEL = 0.1
# Rows drawn to be independent that a scan needs, at least.
SCAN_ROWS = 100
# Weights below this share of their mean count as none.
LEAST_WEIGHT = 1e-12


def exact_fairness_p_values(
    criteria: Iterable[str | Criterion], variables: Mapping[str, Array], groups: Groups, *,
    random_state: int | np.random.Generator | None = None, ranks: Mapping[str, Ranks] | None = None,
    run: Callable[..., Iterable[TestResult]] = map, parts: tuple[Rows, Rows] | None = None,
) -> dict[str, TestResult]:  # fmt: skip
    """Q = Uᵀ V⁺ U ~ χ², with U = Σ_c Σ_{i∈c} w_i (a_i − ā_c) ⊗ (f(s_i, y_i) − f̄_c).

    The cells c are narrow slices of the conditioning variable (its values themselves if they are
    few; one single cell for independence). Given the rows of a cell, every assignment of its
    groups to its rows is equally likely if the criterion holds, so the null covariance of U is
    known exactly: V = Σ_c S_a,c ⊗ S_f,c / (n_c − 1). For one function f, the rank, this is the
    Kruskal-Wallis test (independence) and the Cochran-Mantel-Haenszel mean-score test (the others).
    f are Legendre polynomials of the rank of the tested variable given the conditioning one, and
    their products with its rank, so that shifts, spreads, skews and interactions are all seen.
    What they miss, such as groups that trade places from one value to the next, a scan of contrasts
    at all resolutions finds (:func:`scan_p_value`); the p-value is the lesser of the two, allowing
    for both having been tried.

    Parameters
    ----------
    criteria : iterable of str or Criterion
        One variable tested given at most one other; NaN for others.
    variables : mapping
        ``"s"`` and what else the criterion needs: (m,) arrays over the known rows, by name.
    groups : Groups
        Membership, weights and clusters of the same rows. Unequal weights are taken for sampling
        weights: the criterion is one of the weighted distribution; equal ones count as none.
        Probabilities are used as they are; of a measurement, Legendre polynomials of its rank given
        the conditioning variable take the place of groups.
    random_state : int, Generator or None
        For the permutations drawn where the χ² distribution is too rough (with few rows, and for
        independence with a handful in the smaller of two groups), and for the rows scanned with
        clusters or weights. None is seed 0.

    ranks : mapping, optional
        Those of the variables, where they are known already.
    run : function, default map
        The `map` of a pool tests several criteria at once: kernels release the interpreter lock.
    parts : (m,) and (J,) arrays, optional
        Codes of finer groups, and the group that each of these belongs to.

    Returns
    -------
    dict of name → TestResult

    Notes
    -----
    f may be any function of (s, y), as permutations leave both alone; a poor estimate of the
    conditional rank costs power and not validity. What remains is the dependence of the group on
    the conditioning variable within a slice; f is freed of its slope there, so that the error is of
    third order in the width of a slice. Beyond 100,000 rows ranks are interpolated between sample
    quantiles instead of sorted, and the p-value depends on the order of rows in its third digit.

    The scan looks at the rank of the tested variable given the other, at its rank as it is, and at
    that of s − y. The last makes it depend on the units of score and target; the rest does not.

    Weights may depend on the group and the tested variable jointly, and no permutation is a
    reference then; nor is it with clusters. The covariance is then that of independent units, with
    an F distribution (:class:`UnitScores`), and the scan is of rows drawn so that they are
    independent and follow the weighted distribution. Groups need not be the same within a cluster.
    With fewer than ten clusters nothing is tested.
    """
    rng = np.random.default_rng(0 if random_state is None else random_state)
    wanted = [get_criterion(criterion) for criterion in criteria]
    names = list(dict.fromkeys(name for criterion in wanted for name in criterion.joint))
    if not isinstance(variables, Columns):  # which are complete
        variables = complete(wanted, variables)
    streams = _streams(wanted, rng)
    rows, members = _usable(groups, parts)
    weight, cluster = groups.weight, groups.cluster
    if cluster is not None and rows is not None:
        cluster = renumber(cluster[rows])
    if weight is not None:
        weight = weight if rows is None else np.ascontiguousarray(weight[rows])
        equal = weight.max() - weight.min() <= 1e-12 * weight.max()
        weight = None if equal else weight / weight.mean()

    if rows is not None:
        variables = {k: variables[k][rows] for k in names}
    elif not isinstance(variables, Columns):
        variables = {k: variables[k] for k in names}
    columns = variables if isinstance(variables, Columns) else Columns(variables)
    if ranks is None or rows is not None:
        ranks = rank_all(columns)
    attribute = None
    if groups.measured is not None:
        attribute = Ranks(groups.measured if rows is None else groups.measured[rows])
    data = _Data(ranks, columns, members, weight, cluster, attribute)

    def test(criterion: Criterion) -> TestResult:
        return _test(criterion, data, streams[criterion.name])

    results = run(test, wanted)
    return {criterion.name: result for criterion, result in zip(wanted, results, strict=True)}


def _streams(criteria: Iterable[Criterion], rng: np.random.Generator) -> dict[str, int]:
    """A seed for each criterion, which must not depend on which others are asked for."""
    known = dict(zip(CRITERIA, rng.integers(2**63, size=len(CRITERIA)).tolist(), strict=True))
    first = next(iter(known.values()))
    return {c.name: known.get(c.name, first ^ crc32(c.name.encode())) for c in criteria}


def _usable(groups: Groups, parts: tuple[Rows, Rows] | None = None) -> tuple[Mask | None, Members]:
    """Leave out rows of no weight, and merge or leave out groups of a handful of rows."""
    rows = None
    if groups.weight is not None:
        positive = groups.weight > LEAST_WEIGHT * groups.weight.mean()
        rows = None if positive.all() else positive
        if rows is not None:
            refuse_few_weighted(int(positive.sum()), len(positive))
    if groups.measured is not None:
        return rows, Members(None, None, 4, measured=True)
    if groups.codes is None:
        table = groups.membership() if rows is None else groups.membership()[rows]
        drop = int(np.argmax(table.sum(axis=0)))
        return rows, Members(None, np.delete(table, drop, axis=1), groups.n_groups)
    codes = groups.codes if rows is None else groups.codes[rows]
    counts = np.bincount(codes, minlength=groups.n_groups)
    target = np.arange(groups.n_groups)
    small = (counts > 0) & (counts < MIN_GROUP_ROWS)
    note = ""
    large = int((counts >= MIN_GROUP_ROWS).sum())
    if large and small.any() and (counts > 0).sum() > 2:
        target[small] = np.flatnonzero(small)[0]
        merged = counts[small].sum()
        note = f"; {small.sum()} groups of fewer than {MIN_GROUP_ROWS} rows merged"
        if merged < MIN_GROUP_ROWS and large >= 2:
            keep = ~small[codes]
            codes = codes[keep]
            if rows is None:
                rows = keep
            else:
                rows = rows.copy()
                rows[rows] = keep
            note = f"; {small.sum()} group(s) of fewer than {MIN_GROUP_ROWS} rows left out"
    counts = np.bincount(target[codes], minlength=groups.n_groups) if note else counts
    present = np.flatnonzero(counts)
    ordered = present[np.argsort(counts[present], kind="stable")]
    lookup = np.full(groups.n_groups, -1, dtype=np.intp)
    lookup[ordered] = np.arange(len(ordered))
    number = lookup[target]
    own = (codes, number) if parts is None or rows is not None else (parts[0], number[parts[1]])
    return rows, Members(number[codes], None, len(ordered), note, parts=own)


@dataclass(frozen=True)
class _Data:
    """What a test of any criterion is made of: ranks, membership, weights and clusters of rows.

    Of a measurement `attribute` are the ranks, and `members` only say so: functions of it depend on
    what is given.
    """

    ranks: Mapping[str, Ranks]
    values: Columns
    members: Members
    weight: Array | None
    cluster: Rows | None
    attribute: Ranks | None = None

    def gap(self, rows: Any = slice(None)) -> Ranks | None:
        """Ranks of s − y in some rows."""
        return difference(self.values["s"][rows], self.values["y"][rows])

    @cached_property
    def scanned_gap(self) -> Ranks | None:
        """Those of the rows scanned, which two criteria ask for."""
        return self.gap(scan_rows(len(self.values["s"]), self.members.n_groups))

    def take(self, rows: Rows) -> _Data:
        """Some of the rows, as independent ones without weights."""
        values = Columns({name: column[rows] for name, column in self.values.items()})
        return _Data(rank_all(values), values, self.members.take(rows), None, None)


@dataclass(frozen=True)
class _Tested:
    """The tested variable given the conditioning one: rows in cells, and how to say so."""

    rows: RowsInCells
    members: Members
    target: Ranks
    given: Ranks | None
    where: str
    same_units: bool = False  # both in those of the target, so that their difference tells


def _test(criterion: Criterion, data: _Data, seed: int) -> TestResult:
    if len(criterion.tested) > 1 or len(criterion.given) > 1:
        return _untested("only one variable given at most one other is")
    (tested,) = criterion.tested
    if data.members.n_groups < 2:
        return _untested("fewer than two groups have rows")
    if data.cluster is not None and (count := int(data.cluster.max()) + 1) < MIN_CLUSTERS:
        return _untested(
            f"{count} clusters say too little about how clusters differ ({MIN_CLUSTERS} do)"
        )
    if data.ranks[tested].n_atoms < 2:
        return TestResult(0.0, 0, 1.0, f"holds: {tested} is constant")
    setting = _set_once(criterion, tested, data)
    if setting is None:
        (given,) = criterion.given
        what = f"{tested} or the attribute" if data.members.measured else tested
        return TestResult(0.0, 0, 1.0, f"holds: {what} is a function of {given}")
    if data.cluster is None and data.weight is None:
        return _permute(criterion, data, setting, seed)
    units = UnitScores(setting.rows, setting.members, data.weight, data.cluster)
    kind = f"of rows, as weights may go with group and {tested}"
    if data.cluster is not None:
        kind = f"of {count} clusters"
    return _unit_result(criterion, units, setting, data, kind, seed)


def _permute(criterion: Criterion, data: _Data, setting: _Tested, seed: int) -> TestResult:
    """The statistic among permutations of the groups within cells, in closed form or drawn."""
    members, where, note = setting.members, setting.where, data.members.note
    # What the groups are made of may have been summed before.
    once = partial(data.values.derive, f"moments of {criterion.name}", criterion.joint)
    score = Scores(setting.rows, members, once)
    used = np.sort(np.concatenate(members.directions(score.total.shape[1])))
    covariance, total = score.covariance[np.ix_(used, used)], score.total.ravel()
    statistic, dof = quadratic_form(total[used], covariance)
    if not dof:
        return TestResult(0.0, 0, 1.0, f"no two groups can be compared{where}{note}")
    handful = 0 if criterion.given else handful_of(members, MIN_GROUP_ROWS)
    n = setting.target.n
    if n <= DRAWN_ROWS or handful:
        rng, root = np.random.default_rng(seed), np.zeros((len(total), dof))
        root[used] = root_inverse(covariance)
        if n <= DRAWN_ROWS:
            drawn = draw_all(setting.rows, members, score.mean, root, rng)
        else:
            drawn = draw_handful(setting.rows, handful, score.mean, root, rng)
        beyond = int(np.sum(drawn >= statistic * (1.0 - 1e-9)))
        p_value = (1 + beyond) / (1 + len(drawn))
        how = f"{len(drawn)} draws"
    else:
        p_value = float(chi2.sf(statistic, dof))
        how = f"χ² with {dof} degrees of freedom"
    fine = float("nan") if handful else _fine_structure(setting, data)
    p_value, decided = _combine(p_value, fine)
    what = "the attribute" if members.measured else "groups"
    method = f"permutation of {what}{where}, {how}{decided}{note}"
    return TestResult(statistic, dof, p_value, method)


def _members(data: _Data, given: Ranks | None = None, merged: int = 1) -> Members | None:
    """Membership; of a measurement level, spread and skew of its rank given the variable."""
    if data.attribute is None:
        return data.members
    rank: Array | None = data.attribute.rank
    if given is not None:
        rank = conditional_rank(data.attribute, given, merged)
    if rank is None:
        return None
    functions = [eval_legendre(k, 2.0 * rank - 1.0) for k in (1, 2, 3)]
    return replace(data.members, soft=np.column_stack(functions))


def _set_once(criterion: Criterion, tested: str, data: _Data) -> _Tested | None:
    """The setting, which other groups of the same rows have, too."""
    if data.attribute is not None:
        return _setting(criterion, tested, data)
    setting = data.values.derive(
        criterion.name, criterion.joint, lambda: _setting(criterion, tested, data), data.cluster
    )
    return None if setting is None else replace(setting, members=data.members)


def _setting(criterion: Criterion, tested: str, data: _Data) -> _Tested | None:
    """Rows in cells of the conditioning variable; None where the tested one is a function of it."""
    from ..kernels.contrasts import cell_means

    target = data.ranks[tested]
    if not criterion.given:
        cell = np.zeros(target.n, dtype=np.int32)
        rows = RowsInCells(target.rank, target.rank, NO_FLOATS, cell, NO_FLOATS, np.zeros((1, 4)))
        members = _members(data)
        assert members is not None
        return _Tested(rows, members, target, None, "")
    (name,) = criterion.given
    given = data.ranks[name]
    cell, n_cells = given.cells()
    merged = 1
    if data.cluster is not None:
        cell, n_cells, merged = clusters_in_cells(cell, n_cells, data.cluster)
    members = _members(data, given, merged)
    if members is None:
        return None
    rank = conditional_rank(target, given, merged)
    if rank is None:
        # A score within 1e-6 of the target's rank: what it differs by may still tell the group.
        gap = data.gap() if criterion.joint == BOTH else None
        if (
            gap is None
            or level_rank(gap, given.normal, cell, n_cells, merged == 1 and given.discrete) is None
        ):
            return None
        target = gap
        rank = conditional_rank(target, given, merged)
        if rank is None:
            return None
    center, means = cell_means(rank, given.rank, given.normal, cell, n_cells)
    # Without its slope f has nothing that a trend of the groups within a cell could be taken for.
    slope = neighbor_slopes(center, means)
    rows = RowsInCells(rank, given.rank, given.normal, cell, center, slope)
    where = f" within {n_cells} slices of {name}"
    return _Tested(rows, members, target, given, where, criterion.joint == BOTH)


def _fine_structure(setting: _Tested, data: _Data) -> float:
    """p-value of the scan, over the rank given the condition, the rank itself and that of s − y."""
    if data.members.measured:
        return float("nan")
    rows = scan_rows(setting.target.n, data.members.n_groups)
    members = data.members.take(rows)
    cell = setting.rows.cell[rows]
    if setting.given is None:
        return scan_p_value([setting.target.rank[rows]], cell, members)
    n_cells = len(setting.rows.slope)
    z = setting.rows.z[rows]
    exact = setting.given.discrete
    coordinates = [setting.rows.u[rows]]
    raw: list[Ranks | RankedRows] = [setting.target.take(rows)]
    if setting.same_units and data.scanned_gap is not None:
        raw.append(data.scanned_gap)
    for target in raw:
        rank = level_rank(target, z, cell, n_cells, exact)
        if rank is not None:
            coordinates.append(rank)
    return scan_p_value(coordinates, cell, members)


def _combine(smooth: float, fine: float) -> tuple[float, str]:
    """The least 1 − (1 − p)^(1/share) of the smooth functions and the scan, and which it was."""
    if np.isnan(fine):
        return smooth, "; smooth shifts and spreads only"
    p = -np.expm1(np.log1p(-np.minimum([smooth, fine], 1.0 - 1e-16)) / [SMOOTH_SHARE, FINE_SHARE])
    if p[1] > FINE_LEVEL or p[0] <= p[1]:
        return float(p[0]), "; with a scan, decided by smooth shifts and spreads"
    return float(p[1]), "; with a scan, decided by fine structure"


def _unit_result(
    criterion: Criterion, units: UnitScores, setting: _Tested, data: _Data, kind: str, seed: int
) -> TestResult:
    """Smooth functions by the covariance of units, and the scan in rows drawn to be independent."""
    note = data.members.note
    if not units.dof:
        return TestResult(0.0, 0, 1.0, f"no two groups can be compared{setting.where}{note}")
    how = f"F with {units.dof} and {units.dof_left:.0f} degrees of freedom"
    p_value, fine = units.p_value, float("nan")
    drawn = independent_rows(data.weight, data.cluster, np.random.default_rng(seed))
    if len(drawn) >= SCAN_ROWS and not data.members.measured:
        some = data.take(drawn)
        (tested,) = criterion.tested
        inner = _setting(criterion, tested, some) if some.ranks[tested].n_atoms > 1 else None
        fine = float("nan") if inner is None else _fine_structure(inner, some)
    p_value, decided = _combine(p_value, fine)
    if not np.isnan(fine):
        decided = decided.replace("a scan", f"a scan of {len(drawn)} rows drawn to be independent")
    method = f"robust covariance {kind}{setting.where}, {how}{decided}{note}"
    return TestResult(units.statistic, units.dof, p_value, method)


def _untested(reason: str) -> TestResult:
    return TestResult(0.0, 0, float("nan"), f"not tested: {reason}")
