"""Tests of exact fairness: S ⟂ A, S ⟂ A | Y and Y ⟂ A | S.

Information is nonnegative, so its estimate is not normal where the truth is zero and an interval
cannot serve as a test there. These tests ask the question by itself, by permuting groups among
rows that are alike in what is conditioned on, with the permutations done in closed form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import chi2

from .criteria import Criterion, get_criterion
from .sensitive import Groups

# A cell of the conditioning variable holds about this many rows, until there are MAX_CELLS. The
# error of treating its rows as alike falls with the square of the number of cells, so it vanishes
# beside the noise; a cell of h rows costs 1/h of the information.
CELL_ROWS = 10
MAX_CELLS = 2000
BLOCK_ROWS = 50
MAX_BLOCKS = 64
# A group with fewer rows is merged with others of its kind.
MIN_GROUP_ROWS = 5
# Below this much information about a group the chi-squared law is replaced by permutations drawn.
MIN_INFORMATION = 12.0
N_DRAWS = 1999
MAX_DRAWN_ROWS = 4000
# Directions of the test functions with less than this share of variance are not tested.
RANK_TOLERANCE = 1e-2

_NO_WEIGHT = np.empty(0)


@dataclass(frozen=True)
class TestResult:
    """A test that a criterion holds exactly.

    Attributes
    ----------
    statistic : float
        Quadratic form of the covariances between groups and test functions; its null mean is `dof`.
    dof : int
        Degrees of freedom.
    p_value : float
        Probability of a statistic this large if the criterion held exactly; NaN if untestable.
    method : str
        How it was computed, in words.
    """

    __test__ = False  # not a test case, whatever pytest thinks of the name

    statistic: float
    dof: int
    p_value: float
    method: str


def exact_fairness_p_value(
    criterion: str | Criterion,
    variables: Mapping[str, NDArray[np.float64]],
    groups: Groups,
    *,
    random_state: int | np.random.Generator | None = None,
) -> TestResult:
    r"""Q = Uᵀ V⁺ U ~ χ², with U = Σ_c Σ_{i∈c} w_i (a_i − ā_c) ⊗ (f(s_i, y_i) − f̄_c).

    The cells c are narrow slices of the conditioning variable (its values themselves if they are
    few; one single cell for independence). Given the rows of a cell, every assignment of its
    groups to its rows is equally likely if the criterion holds, so the null covariance of U is
    known exactly: V = Σ_c S_a,c ⊗ S_f,c / (n_c − 1). For one function f, the rank, this is the
    Kruskal-Wallis test (independence) and the Cochran-Mantel-Haenszel mean-score test (the others).
    f are Legendre polynomials of the rank of the tested variable given the conditioning one, and
    their products with its rank, so that shifts, spreads, skews and interactions are all seen.

    Parameters
    ----------
    criterion : str or Criterion
    variables : mapping
        ``"s"`` and, unless for independence, ``"y"``: (m,) arrays over the known rows.
    groups : Groups
        Membership and weights of the same rows. Unequal weights are taken for sampling weights:
        V is then a robust covariance. Probabilities are used as they are.
    random_state : int, Generator or None
        For the permutations drawn where a group is too small for the χ² law; None is seed 0.

    Returns
    -------
    TestResult

    Notes
    -----
    f may be any function of (s, y), as permutations leave both alone; a poor estimate of the
    conditional rank costs power and not validity. Time O(m log m).
    """
    criterion = get_criterion(criterion)
    return exact_fairness_p_values([criterion], variables, groups, random_state=random_state)[
        criterion.name
    ]


def exact_fairness_p_values(
    criteria: Iterable[str | Criterion],
    variables: Mapping[str, NDArray[np.float64]],
    groups: Groups,
    *,
    random_state: int | np.random.Generator | None = None,
) -> dict[str, TestResult]:
    """Several criteria at once, as :func:`exact_fairness_p_value`, sharing the ranks."""
    rng = np.random.default_rng(0 if random_state is None else random_state)
    rows, members = _usable(groups)
    weight = groups.weight
    if rows is not None:
        weight = None if weight is None else np.ascontiguousarray(weight[rows])
        weight = None if weight is None else weight / weight.mean()
    ranks: dict[str, _Ranks] = {}
    results = {}
    for criterion in map(get_criterion, criteria):
        for name in criterion.joint:
            if name not in ranks:
                values = np.ascontiguousarray(variables[name], dtype=np.float64)
                ranks[name] = _Ranks(values if rows is None else values[rows], weight)
        results[criterion.name] = _test(criterion, ranks, members, weight, rng)
    return results


@dataclass(frozen=True)
class _Members:
    """Membership of the rows tested, without the column of the largest group.

    `codes` number the groups with the reference last; `soft` is (m, K − 1) or None.
    """

    codes: NDArray[np.intp] | None
    soft: NDArray[np.float64] | None
    n_groups: int
    note: str = ""


@dataclass(frozen=True)
class _Ranks:
    """Mid-ranks in (0, 1) of one variable, found when first asked for."""

    values: NDArray[np.float64]
    weight: NDArray[np.float64] | None

    @cached_property
    def _table(self) -> tuple[NDArray, NDArray, NDArray, int]:
        from ._kernels.significance import mid_ranks

        weight = _NO_WEIGHT if self.weight is None else self.weight
        return mid_ranks(self.values, np.argsort(self.values), weight)

    @property
    def share(self) -> NDArray[np.float64]:
        return self._table[0]

    @property
    def plain(self) -> NDArray[np.float64]:
        return self._table[1]

    @property
    def atom(self) -> NDArray[np.int64]:
        return self._table[2]

    @property
    def n_atoms(self) -> int:
        return self._table[3]

    @cached_property
    def normal(self) -> NDArray[np.float64]:
        return ndtri(self.share)

    def slices(self, wanted: int) -> tuple[NDArray[np.int64], int]:
        """Number of the slice each row is in, of about `wanted` equally filled ones."""
        raw = np.minimum((self.plain * wanted).astype(np.int64), wanted - 1)
        present = np.bincount(raw, minlength=wanted) > 0
        if present.all():
            return raw, wanted
        return (np.cumsum(present) - 1)[raw], int(present.sum())

    def cells(self) -> tuple[NDArray[np.int64], int]:
        n = len(self.values)
        if self.n_atoms <= min(n / 5, MAX_CELLS):
            return self.atom, self.n_atoms
        rows = min(CELL_ROWS, max(4.0, n / 50))
        return self.slices(int(min(max(n // rows, 1), MAX_CELLS)))


def _usable(groups: Groups) -> tuple[NDArray[np.bool_] | None, _Members]:
    """Leave out rows of no weight, and merge or leave out groups of a handful of rows."""
    rows = None
    if groups.weight is not None and not (groups.weight > 0).all():
        rows = groups.weight > 0
    if groups.codes is None:
        assert groups.probabilities is not None
        table = groups.probabilities if rows is None else groups.probabilities[rows]
        drop = int(np.argmax(table.sum(axis=0)))
        return rows, _Members(None, np.delete(table, drop, axis=1), groups.n_groups)
    codes = groups.codes if rows is None else groups.codes[rows]
    counts = np.bincount(codes, minlength=groups.n_groups)
    target = np.arange(groups.n_groups)
    small = (counts > 0) & (counts < MIN_GROUP_ROWS)
    note = ""
    if small.sum() > 1 or (small.any() and (counts > 0).sum() > 2):
        target[small] = np.flatnonzero(small)[0]
        merged = counts[small].sum()
        note = f"; {small.sum()} groups of fewer than {MIN_GROUP_ROWS} rows merged"
        if merged < MIN_GROUP_ROWS and (counts[~small] > 0).sum() >= 2:
            keep = ~small[codes]
            codes = codes[keep]
            if rows is None:
                rows = keep
            else:
                rows = rows.copy()
                rows[rows] = keep
            note = f"; {small.sum()} group(s) of fewer than {MIN_GROUP_ROWS} rows left out"
    counts = np.bincount(target[codes], minlength=groups.n_groups)
    present = np.flatnonzero(counts)
    ordered = present[np.argsort(counts[present], kind="stable")]
    lookup = np.full(groups.n_groups, -1, dtype=np.intp)
    lookup[ordered] = np.arange(len(ordered))
    return rows, _Members(lookup[target][codes], None, len(ordered), note)


def _test(
    criterion: Criterion,
    ranks: Mapping[str, _Ranks],
    members: _Members,
    weight: NDArray[np.float64] | None,
    rng: np.random.Generator,
) -> TestResult:
    from ._kernels import significance as kernels

    (tested,) = set(criterion.joint) - set(criterion.given)
    target = ranks[tested]
    n = len(target.values)
    if members.n_groups < 2:
        return TestResult(0.0, 0, float("nan"), "not tested: fewer than two groups have rows")
    if target.n_atoms < 2:
        return TestResult(0.0, 0, 1.0, f"holds: {tested} is constant")
    conditional = bool(criterion.given)
    if conditional:
        given = ranks[criterion.given[0]]
        cell, n_cells = given.cells()
        rank = _conditional_rank(target, given)
        if rank is None:
            return TestResult(0.0, 0, 1.0, f"holds: {tested} is a function of {criterion.given[0]}")
        u, v = rank, given.share
    else:
        cell, n_cells = np.zeros(n, dtype=np.int64), 1
        u = v = target.share

    w = _NO_WEIGHT if weight is None else weight
    means, scatter = kernels.cell_moments(u, v, cell, n_cells, w, conditional)
    member_scatter, scale = _member_scatter(cell, n_cells, weight, members)
    scatter *= scale[:, None, None]
    g, width = member_scatter.shape[1], scatter.shape[1]
    covariance = member_scatter.reshape(n_cells, g * g).T @ scatter.reshape(n_cells, -1)
    covariance = covariance.reshape(g, g, width, width).transpose(0, 2, 1, 3)
    covariance = covariance.reshape(g * width, g * width)
    if members.soft is None:
        total = kernels.group_sums(
            u, v, cell, means, w, members.codes, members.n_groups, conditional
        )[:g]
    else:
        f = kernels.feature_matrix(u, v, conditional) - means[cell]
        total = (members.soft if weight is None else members.soft * weight[:, None]).T @ f
    root = _root_inverse(covariance)
    dof = root.shape[1]
    where = f" within {n_cells} slices of {criterion.given[0]}" if conditional else ""
    if not dof:
        return TestResult(0.0, 0, 1.0, f"no two groups can be compared{where}{members.note}")
    statistic = float(np.square(total.ravel() @ root).sum())
    method = f"permutation of groups{where}, χ² with {dof} degrees of freedom{members.note}"
    return TestResult(statistic, dof, float(chi2.sf(statistic, dof)), method)


def _conditional_rank(target: _Ranks, given: _Ranks) -> NDArray[np.float64] | None:
    """F(t | z), roughly: the rank of (t − m(z)) / σ(z) on the scale of normal scores.

    m is a cubic in the normal score of z, which is exact in the tails of nearly normal pairs, plus
    interpolated block means of what it leaves. None when nothing is left of t.
    """
    from ._kernels import significance as kernels

    z, t = given.normal, target.normal
    n = len(z)
    block, n_blocks = given.slices(int(min(max(n // BLOCK_ROWS, 1), MAX_BLOCKS)))
    gram, right = kernels.cubic_moments(z, t)
    beta = np.linalg.lstsq(gram, right, rcond=1e-10)[0]
    residual, sums = kernels.cubic_residual(z, t, beta, block, n_blocks)
    counts = sums[:, 0]
    center, level = sums[:, 1] / counts, sums[:, 2] / counts
    squares = kernels.remove_level(z, residual, block, center, level)
    overall = np.sqrt(squares.sum() / n)
    if overall < 1e-6:
        return None
    # A block with a single value of t has no spread of its own.
    spread = np.maximum(np.sqrt(squares / counts), 1e-2 * overall)
    return kernels.conditional_rank(z, residual, block, center, spread)


def _member_scatter(
    cell: NDArray[np.int64],
    n_cells: int,
    weight: NDArray[np.float64] | None,
    members: _Members,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Σ w² (a − ā_c)(a − ā_c)ᵀ by cell, and the factor that makes the product unbiased.

    For weights unrelated to both sides, E[S_a S_f] = σ_a² σ_f² D² and Var U = σ_a² σ_f² D with
    D = Σw² − 2 Σw³/W + (Σw²)²/W², which is n_c − 1 for equal weights. It also holds for weights
    that are a product of a function of the group and one of the tested variable.
    """
    n = len(cell)
    w = np.ones(n) if weight is None else weight
    first = np.bincount(cell, weights=weight, minlength=n_cells).astype(float)
    second = first if weight is None else np.bincount(cell, w * w, n_cells)
    third = first if weight is None else np.bincount(cell, w * w * w, n_cells)
    inner = second - 2.0 * third / first + np.square(second / first)
    scale = np.where(inner > 1e-9 * second, 1.0 / np.maximum(inner, 1e-300), 0.0)
    g = members.n_groups - 1
    if members.soft is None:
        pair = cell * members.n_groups + members.codes
        size = n_cells * members.n_groups
        table1 = np.bincount(pair, weights=weight, minlength=size).reshape(n_cells, -1)[:, :g]
        table2 = (
            table1 if weight is None else np.bincount(pair, w * w, size).reshape(n_cells, -1)[:, :g]
        )
        mean = table1 / first[:, None]
        cross = table2[:, :, None] * mean[:, None, :]
        out = second[:, None, None] * mean[:, :, None] * mean[:, None, :]
        out -= cross + cross.transpose(0, 2, 1)
        out[:, np.arange(g), np.arange(g)] += table2
        return out, scale
    soft = members.soft
    mean = np.column_stack([np.bincount(cell, w * soft[:, k], n_cells) for k in range(g)])
    mean /= first[:, None]
    out = np.empty((n_cells, g, g))
    centered = [w * (soft[:, k] - mean[cell, k]) for k in range(g)]
    for k in range(g):
        for j in range(k + 1):
            out[:, k, j] = out[:, j, k] = np.bincount(cell, centered[k] * centered[j], n_cells)
    return out, scale


def _root_inverse(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """R with RRᵀ the pseudo-inverse, on the scale of correlations; its columns are the rank."""
    spread = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    used = spread > 1e-9 * max(spread.max(), 1e-300)
    if not used.any() or spread.max() <= 1e-12:
        return np.empty((len(spread), 0))
    inverse = np.where(used, 1.0 / np.where(used, spread, 1.0), 0.0)
    values, vectors = np.linalg.eigh(covariance * inverse[:, None] * inverse[None, :])
    keep = values > RANK_TOLERANCE
    return inverse[:, None] * vectors[:, keep] / np.sqrt(values[keep])
