"""Whether a criterion holds exactly for a measurement A: covariances of functions of ranks.

    T_jk = Σᵢ wᵢ·[ψ_j(a) − E(ψ_j(A)|z)]·[ψ_k(t) − E(ψ_k(T)|z)]

for the tested variable t and what is given z, with ψ₁, ψ₂, ψ₃ of normal scores of ranks (level,
spread, tails; j + k ≤ 4), given z of the ranks of standardized residuals, conditional means by
smoothing splines, and T₁₁ once more times z. If the criterion holds their expectation is zero, and
T'Cov⁻¹T follows Hotelling's law: no draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.special import ndtri
from scipy.stats import chi2
from scipy.stats import f as f_law

from .._core.arrays import Array
from ..data.clusters import cluster_groups
from ..data.criteria import Criterion
from ..data.groups import Groups
from ..estimators._spline_basis import cubic, splines

# ------------------------------------------------------------------------------------------------
# What a test of exact fairness found.


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


PAIRS = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (3, 1))
MIN_CLUSTERS = 10
# Splines of what is given, and rows or clusters for each function of it.
_SPLINES, _ROWS = 14, 10
# Slices of what is given with covariances of their own.
_SLICES = 10


def normal_scores(values: Array, weight: Array | None) -> Array:
    """Φ⁻¹ of the (weighted) mid-ranks."""
    _found, inverse = np.unique(values, return_inverse=True)
    mass = np.bincount(inverse, weight)
    rank = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    least = 0.25 / len(values)
    return ndtri(np.clip(rank, least, 1.0 - least))[inverse]


def measured_p_values(
    criteria: Iterable[Criterion], variables: Mapping[str, Array], groups: Groups
) -> dict[str, TestResult]:
    """Each criterion, of the measurement that `groups` are bands of."""
    assert groups.measured is not None
    positive = None if groups.weight is None else groups.weight > 0
    if positive is not None and not positive.all():
        variables = {name: column[positive] for name, column in variables.items()}
        groups = groups.take(np.flatnonzero(positive))
    return {c.name: _test(c, variables, groups) for c in criteria}


def _test(criterion: Criterion, variables: Mapping[str, Array], groups: Groups) -> TestResult:
    if len(criterion.tested) > 1 or len(criterion.given) > 1:
        return _untested("only one variable given at most one other is")
    if groups.cluster is not None and groups.n_units < MIN_CLUSTERS:
        return _untested(f"{groups.n_units} clusters say too little about how clusters differ")
    (tested,) = criterion.tested
    weight = groups.weight
    target = variables[tested]
    if target.min() == target.max():
        return TestResult(0.0, 0, 1.0, f"holds: {tested} is constant")
    assert groups.measured is not None
    scores = [normal_scores(v, weight) for v in (groups.measured, target)]
    where = ""
    given = None
    if criterion.given and np.ptp(variables[criterion.given[0]]) > 0:
        given = normal_scores(variables[criterion.given[0]], weight)
        tables = [_functions_given(v, given, weight, groups.n_units) for v in scores]
        where = f" less their means given {criterion.given[0]}"
        if not all(table.any() for table in tables):
            return TestResult(0.0, 0, 1.0, f"holds: a function of {criterion.given[0]}")
    else:
        tables = [splines(v)[:, 1:4] for v in scores]
        tables = [table - np.average(table, axis=0, weights=weight) for table in tables]
    products = np.stack([tables[0][:, j - 1] * tables[1][:, k - 1] for j, k in PAIRS], axis=1)
    if given is not None:
        products = np.column_stack([products, products[:, 0] * given])
    what = f"{products.shape[1]} covariances of functions of ranks{where}"
    if weight is None and groups.cluster is None:
        return _within_slices(tables, products, given, what)
    units = products if weight is None else products * weight[:, None]
    if groups.cluster is not None:
        units = cluster_groups(groups.cluster, units)
        what += f", {len(units)} clusters"
    n = len(units)
    root = _root(np.cov(units, rowvar=False) * n)
    dof = root.shape[1]
    if not dof or n <= 2 * dof:
        return _untested("too few rows or clusters")
    statistic = float(np.square(units.sum(axis=0) @ root).sum())
    p_value = float(f_law.sf(statistic * (n - dof) / (dof * (n - 1.0)), dof, n - dof))
    return TestResult(statistic, dof, p_value, f"{what}, F with {dof} and {n - dof}")


def _within_slices(
    tables: list[Array], products: Array, given: Array | None, what: str
) -> TestResult:
    """Cov(T) = Σ_b (Σψψ')_A ∘ (Σψψ')_T / n_b over slices b of z, as if permuted within them.

    With nothing given that is the covariance over all permutations. Products of the two covariances
    are far less noisy than the covariance of products, with which the test rejects too often.
    """
    n = len(products)
    j, k = (np.array(v) - 1 for v in zip(*PAIRS, strict=True))
    slices = [np.arange(n)]
    left = n - 1.0
    if given is not None:
        j, k = np.append(j, 0), np.append(k, 0)
        slices = np.array_split(np.argsort(given, kind="stable"), max(min(_SLICES, n // 100), 1))
        left = n - float(min(_SPLINES, max(n // _ROWS, 3)))
    covariance = np.zeros((len(j), len(j)))
    for rows in slices:
        a, b = (table[rows].T @ table[rows] for table in tables)
        scale = np.ones((len(rows), len(j)))
        if given is not None:
            scale[:, -1] = given[rows]
        mean = scale.T @ scale / len(rows)
        covariance += a[np.ix_(j, j)] * b[np.ix_(k, k)] * mean / len(rows)
    # What the regressions took from the residuals they took from both, and from T once.
    root = _root(covariance * n / left)
    statistic = float(np.square(products.sum(axis=0) @ root).sum())
    dof = root.shape[1]
    p_value = float(chi2.sf(statistic, dof)) if dof else 1.0
    return TestResult(statistic, dof, p_value, f"{what}, χ² with {dof} degrees of freedom")


def _functions_given(score: Array, given: Array, weight: Array | None, n_units: int) -> Array:
    """ψ of a score less its mean, over its spread, given z; less their own means given z.

    Of the score as it is they would have as many scales as z has values, and products of them
    tails that few rows decide.
    """
    rest = _residuals(score[:, None], given, weight, n_units)[:, 0]
    size = float(np.mean(rest * rest))
    if size < 1e-6:
        return np.zeros((len(score), 3))
    square = (rest * rest)[:, None]
    spread = (square - _residuals(square, given, weight, n_units))[:, 0]
    rest = rest / np.sqrt(np.maximum(spread, 0.1 * size))
    return _residuals(splines(normal_scores(rest, weight))[:, 1:4], given, weight, n_units)


def _residuals(table: Array, given: Array, weight: Array | None, n_units: int) -> Array:
    """Columns less their smoothing-spline regressions on what is given."""
    size = int(min(_SPLINES, max(n_units // _ROWS, 3)))
    basis = splines(given)[:, :size]
    weighted = basis if weight is None else basis * weight[:, None]
    gram = basis.T @ weighted
    gram[np.diag_indices(size)] += cubic(np.arange(size)) + 1e-6
    return table - basis @ scipy.linalg.solve(gram, weighted.T @ table, assume_a="pos")


def _root(covariance: Array) -> Array:
    """R with R R' the inverse of the covariance, without directions that have none."""
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    keep = values > 1e-8
    return (vectors[:, keep] / np.sqrt(values[keep])) / scale[:, None]


def _untested(reason: str) -> TestResult:
    return TestResult(0.0, 0, float("nan"), f"not tested: {reason}")
