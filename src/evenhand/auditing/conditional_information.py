"""I(S;A|C) = H(A|C) − H(A|S,C) without a density in as many dimensions as there are controls.

One numeric control c is the two-variable case of the other criteria, with c in the target's place.
Otherwise two summaries stand for the controls: the balancing score b(C), the log-odds of the group
given C, and the prediction e(C) = E[S|C]. With R = S − e(C),

    I(R; A | b(C)) ≤ I(S; A | C),   and both are 0 if S ⟂ A | C,

as A depends on C through b alone and R is a function of S and C. The two are equal where the law of
R given the group changes with C only as far as b does. Of K groups the chain rule takes one after
another: the smallest against all others, the next among those left, and so on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from ..groups.clusters import cluster_groups, renumber
from ..groups.sensitive import Groups
from ..groups.weights import mean_one
from ..information.balancing import Chain, log_odds
from ..information.criteria import CONDITIONAL
from ..information.entropies import Entropies, estimate_entropies
from ..information.estimation import EntropyEstimator, RowLosses
from ..information.measures import Measure, measure
from ..information.nuisance import Features
from ..information.significance import TestResult, exact_fairness_p_value

Vector = NDArray[np.float64]
GIVEN, JOINT = CONDITIONAL.given, CONDITIONAL.joint
# Units for each direction tested, so that their covariance is known well enough.
UNITS_A_DIRECTION = 20
# A score is called a function of controls and group where they leave less of its variance.
FUNCTION_SHARE = 0.01


def through_summaries(
    residual: Vector, groups: Groups, chain: Chain, estimator: EntropyEstimator
) -> Entropies:
    """H(A|b) and H(A|R,b), as the chain rule has them, under the names of the criterion."""
    n = groups.n_known
    weight = np.ones(n) if groups.weight is None else groups.weight
    membership = groups.membership()
    left = np.ones(n)
    terms = {c: [np.zeros(n), np.zeros(n)] for c in (GIVEN, JOINT)}
    counts = {c: [0.0, 0.0] for c in (GIVEN, JOINT)}
    merged, chosen, shares = 0, [], []
    for k, fitted in zip(chain.order, chain.step, strict=False):
        rows = np.flatnonzero(left > 1e-12)
        part = _pair(groups, membership[rows, k] / left[rows], weight[rows] * left[rows], rows)
        columns = {"s": residual[rows], "c": log_odds(fitted.value[rows])}
        found = estimate_entropies([CONDITIONAL], columns, part, estimator)
        mass = float(weight[rows] @ left[rows]) / float(weight.sum())
        for c in (GIVEN, JOINT):
            losses = found.rows[c]
            terms[c][0][rows] += left[rows] * losses.value
            terms[c][1][rows] += left[rows] * losses.influence
            counts[c][0] += losses.terms
            counts[c][1] += mass**2 * losses.between
        merged += found.rows[JOINT].merged
        chosen.append(found.rows[JOINT].chosen)
        if groups.cluster is not None:
            own = found.independent.get(CONDITIONAL.name, part.n_effective)
            shares.append(own / part.n_known)
        left = left - membership[:, k]
    words = "; ".join(dict.fromkeys(chosen))
    rows_of = {
        c: RowLosses(
            value=terms[c][0], influence=terms[c][1], chosen=words, terms=counts[c][0],
            between=counts[c][1], merged=merged,
        )
        for c in (GIVEN, JOINT)
    }  # fmt: skip
    mean = {c: max(float(np.average(rows_of[c].value, weights=weight)), 0.0) for c in rows_of}
    independent = {CONDITIONAL.name: n * min(shares)} if shares else {}
    return Entropies({(): groups.entropy, **mean}, rows_of, groups, independent)


def _pair(groups: Groups, share: Vector, weight: Vector, rows: NDArray[np.intp]) -> Groups:
    """Some rows as two groups: members, in these shares, and the others."""
    share = np.clip(share, 0.0, 1.0)
    hard = groups.codes is not None
    codes = (share > 0.5).astype(np.intp) if hard else None
    table = None if hard else np.column_stack([1.0 - share, share])
    cluster = None if groups.cluster is None else renumber(groups.cluster[rows])
    equal = groups.weight is None and hard
    scaled = None if equal else mean_one(weight)
    return Groups(("others", "group"), codes, table, scaled, None, len(rows), "group", cluster)


def products_test(
    s: Vector, residual: Vector, expected: Vector, probabilities: Vector, groups: Groups,
    features: Features,
) -> TestResult:  # fmt: skip
    """T = ŪᵀV⁻¹Ū with Ū = mean (a_k − p_k(C))·(f(S, C) − E[f(S, C)|C]): is S ⟂ A | C?

    Both factors are residuals of cross-fitted models, so that the product of their errors is what
    biases Ū: the generalized covariance measure (Shah and Peters 2020) for several f. These are
    Legendre polynomials of the rank of S − E[S|C] for shifts, spreads and skews, and the first
    again times the log-odds of the group and the expected score, for gaps that change sign.
    """
    weight = np.ones(len(s)) if groups.weight is None else groups.weight
    rank = _ranks(residual, weight)
    x = 2.0 * rank - 1.0
    legendre = np.column_stack([x, 1.5 * x**2 - 0.5, 2.5 * x**3 - 1.5 * x])
    f = features.residuals(legendre, weight)
    drop = int(np.argmax(groups.shares))
    kept = [k for k in range(groups.n_groups) if k != drop]
    a = groups.membership()[:, kept] - probabilities[:, kept]
    balance = _standard(log_odds(probabilities[:, drop]), weight)
    factors = [f[:, 0], f[:, 1], balance * f[:, 0], _standard(expected, weight) * f[:, 0], f[:, 2]]
    room = max(int(groups.n_effective // (UNITS_A_DIRECTION * len(kept))), 1)
    factors = factors[:room]
    U = np.column_stack([a[:, j] * g for g in factors for j in range(len(kept))])
    U *= weight[:, None]
    if groups.cluster is not None:
        U = cluster_groups(groups.cluster, U)
    n, total = len(U), U.sum(axis=0)
    V = U.T @ U
    scale = np.sqrt(np.diag(V))
    used = scale > 1e-12 * max(float(scale.max(initial=0.0)), 1e-300)
    if not used.any():
        return TestResult(0.0, 0, 1.0, "holds: the score is a function of the controls")
    V = V[np.ix_(used, used)] / np.outer(scale[used], scale[used])
    values, vectors = np.linalg.eigh(V)
    good = values > 1e-8 * values.max()
    dof = int(good.sum())
    if n <= dof + 1:
        return TestResult(0.0, 0, float("nan"), f"not tested: {n} units for {dof} directions")
    z = (vectors[:, good].T @ (total[used] / scale[used])) / np.sqrt(values[good])
    # About zero, as here, Hotelling's T² from sums of squares that are not centered.
    statistic = float(z @ z)
    centered = statistic / max(1.0 - statistic / n, 1e-12) * (n - 1) / n
    p_value = float(fdtrc(dof, n - dof, centered * (n - dof) / (dof * (n - 1))))
    unit = "clusters" if groups.cluster is not None else "rows"
    method = (
        f"covariances of residuals of group and score given the controls, {dof} directions, "
        f"F over {n} {unit}"
    )
    return TestResult(statistic, dof, p_value, method)


def _ranks(values: Vector, weight: Vector) -> Vector:
    """Share of the weight below each value, and half of that at it."""
    _, inverse = np.unique(values, return_inverse=True)
    mass = np.bincount(inverse, weight)
    return ((np.cumsum(mass) - 0.5 * mass) / mass.sum())[inverse]


def _standard(values: Vector, weight: Vector) -> Vector:
    mean = np.average(values, weights=weight)
    spread = np.sqrt(np.average(np.square(values - mean), weights=weight))
    return np.clip((values - mean) / (spread or 1.0), -4.0, 4.0)


def left_by_group_and_controls(
    s: Vector, expected: Vector, probabilities: Vector, groups: Groups
) -> float:
    """Share of the variance of S that a fit by controls and group leaves.

    With S = f(C) + Σ_k δ_k(C)·1{A = k}, S − E[S|C] = Σ_k δ_k(C)·(1{A = k} − p_k(C)): regressed on
    the groups, their probabilities, and both times the expected score.
    """
    weight = np.ones(len(s)) if groups.weight is None else groups.weight
    drop = int(np.argmax(groups.shares))
    kept = [k for k in np.argsort(-groups.shares)[:20] if k != drop]
    gap = groups.membership()[:, kept] - probabilities[:, kept]
    level = _standard(expected, weight)[:, None]
    Z = np.column_stack([np.ones(len(s)), gap, gap * level, probabilities[:, kept], level])
    root = np.sqrt(weight)[:, None]
    R = (s - expected)[:, None]
    beta = np.linalg.lstsq(Z * root, R * root, rcond=1e-10)[0]
    variance = np.average(np.square(s - np.average(s, weights=weight)), weights=weight)
    left = np.average(np.square(R - Z @ beta)[:, 0], weights=weight)
    return float(left / variance) if variance > 0 else 0.0


def information_given(
    s: Vector, groups: Groups, features: Features, chain: Chain, expected: Vector,
    entropies: EntropyEstimator, *, random_state: int, **how: Any,
) -> tuple[Measure, TestResult, str]:  # fmt: skip
    """The normalized conditional information, its test, and how the controls entered.

    `how` is that of :func:`measure`.
    """
    single = features.controls.single
    if single is not None:
        variables = {"s": s, "c": single}
        found = estimate_entropies([CONDITIONAL], variables, groups, entropies)
        test = exact_fairness_p_value(CONDITIONAL, variables, groups, random_state=random_state)
        (name,) = features.controls.names
        summary = f"{name} itself, with the score as the second variable"
    else:
        residual = s - expected
        found = through_summaries(residual, groups, chain, entropies)
        probabilities = chain.probabilities(groups.n_groups)
        test = products_test(s, residual, expected, probabilities, groups, features)
        models = ", ".join(dict.fromkeys(step.chosen for step in chain.step))
        summary = (
            "two summaries: the log-odds of the group given the controls "
            f"({models}) and the score less its expectation given them"
        )
    return measure(CONDITIONAL, found, p_value=test.p_value, **how), test, summary
