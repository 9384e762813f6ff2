"""Tests of exact fairness: S ⟂ A, S ⟂ A | Y and Y ⟂ A | S.

Information is nonnegative, so its estimate is not normal where the truth is zero and an interval
cannot serve as a test there. These tests ask the question by itself, by permuting groups among
rows that are alike in what is conditioned on, with the permutations done in closed form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from ._kernels.threads import n_threads
from ._ranks import EXACT_RANK_ROWS, Ranks, conditional_rank, rank_all, scattered_rows
from .criteria import CRITERIA, Criterion, get_criterion
from .sensitive import Groups

# A group with fewer rows is merged with others of its kind.
MIN_GROUP_ROWS = 5
# Up to this many rows the chi-squared law is replaced by permutations drawn.
DRAWN_ROWS = 300
N_DRAWS = 1999
# Effective rows of the smallest group at which the sandwich covariance counts for one half.
SANDWICH_ROWS = 300.0
# Products it may take.
SANDWICH_WORK = 4e9
# Directions of the test functions with less than this share of variance are not tested.
RANK_TOLERANCE = 1e-2

_NO_FLOATS = np.empty(0)
_NO_CODES = np.empty(0, dtype=np.intp)


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
    """Q = Uᵀ V⁺ U ~ χ², with U = Σ_c Σ_{i∈c} w_i (a_i − ā_c) ⊗ (f(s_i, y_i) − f̄_c).

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
        ``"independence"``, ``"separation"`` or ``"sufficiency"``.
    variables : mapping
        ``"s"`` and, unless for independence, ``"y"``: (m,) arrays over the known rows.
    groups : Groups
        Membership and weights of the same rows. Unequal weights are taken for sampling weights:
        V is then a robust covariance. Probabilities are used as they are.
    random_state : int, Generator or None
        For the permutations drawn with few rows, where the χ² law is too rough; None is seed 0.

    Returns
    -------
    TestResult

    Notes
    -----
    f may be any function of (s, y), as permutations leave both alone; a poor estimate of the
    conditional rank costs power and not validity. What remains is the dependence of the group on
    the conditioning variable within a slice; f is freed of its slope there, so that the error is of
    third order in the width of a slice. Beyond 100,000 rows ranks are interpolated between sample
    quantiles instead of sorted, and the p-value depends on the order of rows in its third digit.

    Sampling weights that depend on group and tested variable jointly, and not as a product, are
    accounted for only as far as the smallest group's effective size allows (see `_Scores`).
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
    ranks: Mapping[str, Ranks] | None = None,
) -> dict[str, TestResult]:
    """Several criteria at once, as :func:`exact_fairness_p_value`, sharing the ranks.

    `ranks` are those of the variables, where they are known already.
    """
    if isinstance(random_state, np.random.RandomState):
        random_state = int(random_state.randint(2**31))
    rng = np.random.default_rng(0 if random_state is None else random_state)
    wanted = [get_criterion(criterion) for criterion in criteria]
    names = list(dict.fromkeys(name for criterion in wanted for name in criterion.joint))
    # The draws of one criterion must not depend on which others are asked for.
    streams = dict(zip(CRITERIA, rng.integers(2**63, size=len(CRITERIA)).tolist(), strict=True))
    rows, members = _usable(groups)
    weight = groups.weight
    if rows is not None:
        weight = None if weight is None else np.ascontiguousarray(weight[rows])
        weight = None if weight is None else weight / weight.mean()

    if ranks is None or rows is not None:
        chosen = {name: variables[name] for name in names}
        ranks = rank_all(chosen if rows is None else {k: v[rows] for k, v in chosen.items()})
    known = ranks

    def test(criterion: Criterion) -> TestResult:
        return _test(criterion, known, members, weight, streams[criterion.name])

    # The kernels release the interpreter lock.
    parallel = groups.n_known > EXACT_RANK_ROWS and len(wanted) > 1
    with ThreadPoolExecutor(n_threads() if parallel else 1) as pool:
        results = list((pool.map if parallel else map)(test, wanted))
    return {criterion.name: result for criterion, result in zip(wanted, results, strict=True)}


@dataclass(frozen=True)
class _Members:
    """Membership of the rows tested, without the column of the largest group.

    `codes` number the groups with the reference last; `soft` is (m, K − 1) or None.
    """

    codes: NDArray[np.intp] | None
    soft: NDArray[np.float64] | None
    n_groups: int
    note: str = ""


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
    counts = np.bincount(target[codes], minlength=groups.n_groups)
    present = np.flatnonzero(counts)
    ordered = present[np.argsort(counts[present], kind="stable")]
    lookup = np.full(groups.n_groups, -1, dtype=np.intp)
    lookup[ordered] = np.arange(len(ordered))
    return rows, _Members(lookup[target][codes], None, len(ordered), note)


def _test(
    criterion: Criterion,
    ranks: Mapping[str, Ranks],
    members: _Members,
    weight: NDArray[np.float64] | None,
    seed: int,
) -> TestResult:
    from ._kernels.significance import cell_means

    (tested,) = set(criterion.joint) - set(criterion.given)
    target = ranks[tested]
    if members.n_groups < 2:
        return TestResult(0.0, 0, float("nan"), "not tested: fewer than two groups have rows")
    if target.n_atoms < 2:
        return TestResult(0.0, 0, 1.0, f"holds: {tested} is constant")
    if criterion.given:
        given = ranks[criterion.given[0]]
        rank = conditional_rank(target, given)
        if rank is None:
            return TestResult(0.0, 0, 1.0, f"holds: {tested} is a function of {criterion.given[0]}")
        cell, n_cells = given.cells()
        where = f" within {n_cells} slices of {criterion.given[0]}"
        center, means = cell_means(rank, given.rank, given.normal, cell, n_cells)
        rows = _Rows(rank, given.rank, given.normal, cell, center, _slopes(center, means))
    else:
        where = ""
        cell = np.zeros(target.n, dtype=np.int32)
        flat = np.zeros((1, 4))
        rows = _Rows(target.rank, target.rank, _NO_FLOATS, cell, _NO_FLOATS, flat)
    score = _Scores(rows, members, weight)
    root = _root_inverse(score.covariance)
    dof = root.shape[1]
    if not dof:
        return TestResult(0.0, 0, 1.0, f"no two groups can be compared{where}{members.note}")
    statistic = float(np.square(score.total.ravel() @ root).sum())
    if weight is None and target.n <= DRAWN_ROWS:
        drawn = _draw(rows, members, score.mean, root, np.random.default_rng(seed))
        beyond = int(np.sum(drawn >= statistic * (1.0 - 1e-9)))
        p_value = (1 + beyond) / (1 + len(drawn))
        how = f"{len(drawn)} draws"
    else:
        p_value = float(chi2.sf(statistic, dof))
        how = f"χ² with {dof} degrees of freedom"
    method = f"permutation of groups{where}, {how}{members.note}"
    return TestResult(statistic, dof, p_value, method)


def _draw(
    rows: _Rows,
    members: _Members,
    mean: NDArray[np.float64],
    root: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """The statistic for random assignments of the groups of each cell to its rows."""
    from ._kernels.significance import feature_matrix

    order = np.argsort(rows.cell, kind="stable")
    f = (feature_matrix(*rows) - mean[rows.cell])[order]
    if members.soft is None:
        assert members.codes is not None
        a = np.eye(members.n_groups)[members.codes][order, :-1]
    else:
        a = members.soft[order]
    keys = rng.random((N_DRAWS, len(f))) + rows.cell[order]
    total = np.tensordot(f[np.argsort(keys, axis=1)], a, axes=(1, 0))
    return np.square(total.transpose(0, 2, 1).reshape(N_DRAWS, -1) @ root).sum(axis=1)


class _Rows(NamedTuple):
    """What the test functions are made of; z is empty for independence.

    u : rank of the tested variable given the conditioning one;  v, z : rank and normal score of the
    latter;  cell, center, slope : cell of each row, mean of z and slope of f along z in each cell
    """

    u: NDArray[np.float64]
    v: NDArray[np.float64]
    z: NDArray[np.float64]
    cell: NDArray[np.int32]
    center: NDArray[np.float64]
    slope: NDArray[np.float64]


def _slopes(center: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Slope of the cell means along z, from the two neighbors of each cell.

    Subtracting it leaves nothing for a trend of the groups within a cell to be taken for.
    """
    last = len(center) - 1
    after = np.minimum(np.arange(last + 1) + 1, last)
    before = np.maximum(np.arange(last + 1) - 1, 0)
    gap = center[after] - center[before]
    return (means[after] - means[before]) / np.where(gap > 0, gap, np.inf)[:, None]


class _Scores:
    """U (K − 1, J) and its null covariance V = Σ_c S_a,c ⊗ S_f,c / (n_c − 1).

    For equal weights V is the exact permutation covariance. Sampling weights are split into a
    factor h of the group and the rest g: with S_a the scatter of h(a − ā), S_f that of g(f − f̄) and
    means weighted by w, V is again exact if either factor is constant. As the smallest group grows
    V moves to the sandwich covariance, which asks nothing of the weights but is noisy before that.
    """

    def __init__(self, rows: _Rows, members: _Members, weight: NDArray[np.float64] | None) -> None:
        from ._kernels import significance as kernels

        g = members.n_groups - 1
        codes = _NO_CODES if members.codes is None else members.codes
        factor, rest = _split_weight(weight, rows.cell, len(rows.slope), members)
        mass, first, first1, first2, second, counts, table, total = kernels.cell_moments(
            *rows, _NO_FLOATS if weight is None else weight, rest, codes, members.n_groups
        )
        n_cells = len(mass)
        n_rows, w1, g1, g2 = mass.T
        self.mean = first / w1[:, None]
        scatter = _recenter(second, first2, self.mean, g2)
        _subtract_square(scatter, first1 - g1[:, None] * self.mean, n_rows)
        scale = 1.0 / np.maximum(n_rows - 1.0, 1.0)
        # What is left of a constant after subtraction is rounding, not spread.
        noise = 1e-12 * np.trace(second, axis1=1, axis2=2)
        scale[np.trace(scatter, axis1=1, axis2=2) <= noise] = 0.0
        if members.soft is None:
            scaled, square = counts * factor, counts * np.square(factor)
            raw = np.zeros((n_cells, g, g))
            raw[:, np.arange(g), np.arange(g)] = square[:, :g]
            share = table[:, :g] / w1[:, None]
            member_scatter = _recenter(raw, square[:, :g], share, square.sum(axis=1))
            off = scaled[:, :g] - scaled.sum(axis=1)[:, None] * share
            _subtract_square(member_scatter, off, n_rows)
            self.total = total[:g] - table[:, :g].T @ self.mean
        else:
            share = _cell_shares(members.soft, rows.cell, weight, w1)
            plain = share if weight is None else _cell_shares(members.soft, rows.cell, None, n_rows)
            member_scatter = _soft_scatter(members.soft, rows.cell, plain)
            f = kernels.feature_matrix(*rows) - self.mean[rows.cell]
            self.total = (members.soft if weight is None else members.soft * weight[:, None]).T @ f
        scatter *= scale[:, None, None]
        width = scatter.shape[1]
        covariance = member_scatter.reshape(n_cells, -1).T @ scatter.reshape(n_cells, -1)
        covariance = covariance.reshape(g, g, width, width).transpose(0, 2, 1, 3)
        self.covariance = covariance.reshape(g * width, g * width)
        if weight is not None:
            trust = _smallest_effective(members, weight) ** 2
            trust /= trust + SANDWICH_ROWS**2
            robust = _sandwich(rows, members, weight, self.mean, share, w1)
            self.covariance = (1.0 - trust) * self.covariance + trust * robust


def _split_weight(
    weight: NDArray[np.float64] | None, cell: NDArray[np.int32], n_cells: int, members: _Members
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """h by group and g by row with w = h·g, from the regression of log w on the group in cells."""
    factor = np.ones(members.n_groups)
    if weight is None:
        return factor, _NO_FLOATS
    if members.codes is None:
        return factor, weight
    k, g = members.n_groups, members.n_groups - 1
    pair = cell.astype(np.int64) * k + members.codes
    table = np.bincount(pair, minlength=n_cells * k).reshape(n_cells, k)
    logs = np.bincount(pair, np.log(weight), n_cells * k).reshape(n_cells, k)
    share = table / table.sum(axis=1, keepdims=True)
    gram = np.diag(table.sum(axis=0)) - share.T @ table
    right = logs.sum(axis=0) - share.T @ logs.sum(axis=1)
    factor[:g] = np.exp(np.linalg.lstsq(gram[:g, :g], right[:g], rcond=1e-9)[0])
    return factor, weight / factor[members.codes]


def _smallest_effective(members: _Members, weight: NDArray[np.float64]) -> float:
    """(Σw)² / Σw² of the smallest group."""
    if members.codes is not None:
        total = np.bincount(members.codes, weight)
        squares = np.bincount(members.codes, np.square(weight))
        return float((np.square(total) / squares).min())
    assert members.soft is not None
    expected = weight @ members.soft
    square_sum = np.square(weight) @ members.soft
    return float((np.square(expected) / np.maximum(square_sum, 1e-300)).min())


def _sandwich(
    rows: _Rows,
    members: _Members,
    weight: NDArray[np.float64],
    mean: NDArray[np.float64],
    share: NDArray[np.float64],
    mass: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Σ w² (a − ā)(a − ā)ᵀ ⊗ (f − f̄)(f − f̄)ᵀ / q, a block of rows at a time.

    q = 1 − 2w/W + Σw²/W² is what estimating the mean of its cell leaves of a row's variance, which
    makes the sum unbiased in narrow cells; W is `mass`.
    """
    from ._kernels.significance import feature_matrix

    n, g = len(rows.u), share.shape[1]
    width = g * mean.shape[1]
    # With many groups a sample of the rows settles it.
    stretch = max(int(n * width**2 // SANDWICH_WORK), 1)
    sample = None if stretch == 1 else scattered_rows(n, stretch)
    count = n if sample is None else len(sample)
    block = 1 + 2_000_000 // width
    lost = np.bincount(rows.cell, np.square(weight), len(mass)) / np.square(mass)
    out = np.zeros((width, width))
    for start in range(0, count, block):
        part: Any = slice(start, start + block)
        if sample is not None:
            part = sample[part]
        cell = np.ascontiguousarray(rows.cell[part])
        z = np.ascontiguousarray(rows.z[part]) if len(rows.z) else rows.z
        u, v = np.ascontiguousarray(rows.u[part]), np.ascontiguousarray(rows.v[part])
        f = feature_matrix(u, v, z, cell, rows.center, rows.slope) - mean[cell]
        w = weight[part]
        left = 1.0 - 2.0 * w / mass[cell] + lost[cell]
        f *= np.where(left > 1e-9, w / np.sqrt(np.maximum(left, 1e-9)), 0.0)[:, None]
        if members.codes is not None:
            a = -share[cell]
            codes = members.codes[part]
            hit = np.flatnonzero(codes < g)
            a[hit, codes[hit]] += 1.0
        else:
            assert members.soft is not None
            a = members.soft[part] - share[cell]
        product = (a[:, :, None] * f[:, None, :]).reshape(len(f), width)
        out += product.T @ product
    return out * (n / count)


def _recenter(
    raw: NDArray[np.float64],
    first: NDArray[np.float64],
    mean: NDArray[np.float64],
    mass: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Σ v (x − m)(x − m)ᵀ by cell from Σ v xxᵀ, Σ v x and Σ v."""
    cross = first[:, :, None] * mean[:, None, :]
    out = raw - cross - cross.transpose(0, 2, 1)
    out += mass[:, None, None] * mean[:, :, None] * mean[:, None, :]
    return out


def _subtract_square(
    scatter: NDArray[np.float64], total: NDArray[np.float64], count: NDArray[np.float64]
) -> None:
    """Scatter about the mean from that about zero, in place, given the sums."""
    scatter -= total[:, :, None] * total[:, None, :] / count[:, None, None]


def _cell_shares(
    soft: NDArray[np.float64],
    cell: NDArray[np.int32],
    weight: NDArray[np.float64] | None,
    mass: NDArray[np.float64],
) -> NDArray[np.float64]:
    columns = [c if weight is None else c * weight for c in soft.T]
    return np.column_stack([np.bincount(cell, c, len(mass)) / mass for c in columns])


def _soft_scatter(
    soft: NDArray[np.float64], cell: NDArray[np.int32], share: NDArray[np.float64]
) -> NDArray[np.float64]:
    n_cells, g = share.shape
    centered = [soft[:, k] - share[cell, k] for k in range(g)]
    out = np.empty((n_cells, g, g))
    for k in range(g):
        for j in range(k + 1):
            out[:, k, j] = out[:, j, k] = np.bincount(cell, centered[k] * centered[j], n_cells)
    return out


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
