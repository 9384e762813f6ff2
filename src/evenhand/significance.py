"""Tests of exact fairness: S ⟂ A, S ⟂ A | Y and Y ⟂ A | S.

Information is nonnegative, so its estimate is not normal where the truth is zero and an interval
cannot serve as a test there. These tests ask the question by itself, by permuting groups among
rows that are alike in what is conditioned on, with the permutations done in closed form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from ._kernels.threads import n_threads
from ._null_covariance import NO_FLOATS, Members, Rows, Scores
from ._ranks import EXACT_RANK_ROWS, Ranks, conditional_rank, rank_all
from .criteria import CRITERIA, Criterion, get_criterion
from .sensitive import Groups

# A group with fewer rows is merged with others of its kind.
MIN_GROUP_ROWS = 5
# Up to this many rows the chi-squared law is replaced by permutations drawn.
DRAWN_ROWS = 300
N_DRAWS = 1999
# Directions of the test functions with less than this share of variance are not tested.
RANK_TOLERANCE = 1e-2


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
        V is then a robust covariance; equal ones count as none. Probabilities are used as they are.
    random_state : int, Generator or None
        For the permutations drawn where the χ² law is too rough: with few rows, and for
        independence with a handful in the smaller of two groups. None is seed 0.

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
    accounted for only as far as the smallest group's effective size allows (see `Scores`).
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
    if weight is not None:
        weight = weight if rows is None else np.ascontiguousarray(weight[rows])
        equal = weight.max() - weight.min() <= 1e-12 * weight.max()
        weight = None if equal else weight / weight.mean()

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


def _usable(groups: Groups) -> tuple[NDArray[np.bool_] | None, Members]:
    """Leave out rows of no weight, and merge or leave out groups of a handful of rows."""
    rows = None
    if groups.weight is not None and not (groups.weight > 0).all():
        rows = groups.weight > 0
    if groups.codes is None:
        assert groups.probabilities is not None
        table = groups.probabilities if rows is None else groups.probabilities[rows]
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
    counts = np.bincount(target[codes], minlength=groups.n_groups)
    present = np.flatnonzero(counts)
    ordered = present[np.argsort(counts[present], kind="stable")]
    lookup = np.full(groups.n_groups, -1, dtype=np.intp)
    lookup[ordered] = np.arange(len(ordered))
    return rows, Members(lookup[target][codes], None, len(ordered), note)


def _test(
    criterion: Criterion,
    ranks: Mapping[str, Ranks],
    members: Members,
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
        rows = Rows(rank, given.rank, given.normal, cell, center, _slopes(center, means))
    else:
        where = ""
        cell = np.zeros(target.n, dtype=np.int32)
        flat = np.zeros((1, 4))
        rows = Rows(target.rank, target.rank, NO_FLOATS, cell, NO_FLOATS, flat)
    score = Scores(rows, members, weight)
    root = _root_inverse(score.covariance)
    dof = root.shape[1]
    if not dof:
        return TestResult(0.0, 0, 1.0, f"no two groups can be compared{where}{members.note}")
    statistic = float(np.square(score.total.ravel() @ root).sum())
    handful = 0 if criterion.given else _handful(members)
    if weight is None and (target.n <= DRAWN_ROWS or handful):
        rng = np.random.default_rng(seed)
        if target.n <= DRAWN_ROWS:
            drawn = _draw(rows, members, score.mean, root, rng)
        else:
            drawn = _draw_handful(rows, handful, score.mean, root, rng)
        beyond = int(np.sum(drawn >= statistic * (1.0 - 1e-9)))
        p_value = (1 + beyond) / (1 + len(drawn))
        how = f"{len(drawn)} draws"
    else:
        p_value = float(chi2.sf(statistic, dof))
        how = f"χ² with {dof} degrees of freedom"
    method = f"permutation of groups{where}, {how}{members.note}"
    return TestResult(statistic, dof, p_value, method)


def _draw(
    rows: Rows,
    members: Members,
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


def _handful(members: Members) -> int:
    """Rows of the smaller of two groups if they are too few for the χ² law, else 0."""
    if members.codes is None or members.n_groups != 2:
        return 0
    count = int((members.codes == 0).sum())
    return count if count < MIN_GROUP_ROWS else 0


def _draw_handful(
    rows: Rows,
    count: int,
    mean: NDArray[np.float64],
    root: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """As :func:`_draw` for one single cell, in the time of `count` rows a draw instead of n."""
    from ._kernels.significance import feature_matrix

    f = feature_matrix(*rows) - mean
    total = np.zeros((N_DRAWS, f.shape[1]))
    taken = np.empty((N_DRAWS, 0), dtype=np.intp)
    for j in range(count):
        # One of the rows not yet taken, by its place among them.
        row = rng.integers(len(f) - j, size=N_DRAWS)
        for before in np.sort(taken, axis=1).T:
            row += row >= before
        taken = np.column_stack([taken, row])
        total += f[row]
    return np.square(total @ root).sum(axis=1)


def _slopes(center: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Slope of the cell means along z, from the two neighbors of each cell.

    Subtracting it leaves nothing for a trend of the groups within a cell to be taken for.
    """
    last = len(center) - 1
    after = np.minimum(np.arange(last + 1) + 1, last)
    before = np.maximum(np.arange(last + 1) - 1, 0)
    gap = center[after] - center[before]
    return (means[after] - means[before]) / np.where(gap > 0, gap, np.inf)[:, None]


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
