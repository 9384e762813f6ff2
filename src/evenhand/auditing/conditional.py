"""Is the score independent of the group among people with the same legitimate factors?

Two answers side by side: in money, the gap of mean scores that the controls do not explain
(`adjusted_gap`), and in information, I(S;A|C) (`conditional_information`). Money comes first: a
score that is a function of controls and group gives the group away at a difference of one cent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, gammaln
from scipy.stats import f_oneway, rankdata, spearmanr

from .._core.arrays import Matrix, Vector
from .._core.frames import json_safe, tabulate
from .._core.threads import one_blas_thread
from .._core.validation import InputError, check_squares, warn_user
from .._core.views import Tabled
from ..data.criteria import CONDITIONAL
from ..data.encoding import FEW_VALUES, Control, Controls, refuse_none
from ..data.groups import Groups, GroupWarning
from ..data.sample import Sample
from ..data.weights import cluster_groups, mean_one, renumber
from ..estimators.estimation import EntropyEstimator, RowLosses
from ..estimators.ranks import Ranks
from ..measures.balancing import LEAST_COUNTERPARTS, Regression, add_leaves, build_basis, log_odds
from ..measures.covariances import root_inverse
from ..measures.entropies import Entropies, estimate_entropies
from ..measures.exact_tests import SINGULAR, TestResult, exact_fairness_p_values
from ..measures.measures import Measure, measure
from .adjusted_gap import AdjustedGap, Imbalance, adjusted_gaps
from .influence import find_reference

# ------------------------------------------------------------------------------------------------
# I(S;A|C) = H(A|C) − H(A|S,C) without a density in as many dimensions as there are controls.
#
# One numeric control c is the two-variable case of the other criteria, with c in the target's
# place. Otherwise two summaries stand for the controls: the balancing score b(C), the log-odds of
# the group given C, and the prediction e(C) = E[S|C]. With R = S − e(C),
#
#     I(R; A | b(C)) ≤ I(S; A | C),   and both are 0 if S ⟂ A | C,
#
# as A depends on C through b alone and R is a function of S and C. The two are equal where the
# distribution of R given the group changes with C only as far as b does. Both are fitted to all
# rows, whatever their group, with the columns that gaps are balanced on: within a level, residuals
# of rows that differ in the group alone are alike, however few rows it has. Of K groups the chain
# rule takes one after another: the smallest against all others, the next among those left, and so
# on.


GIVEN, JOINT = CONDITIONAL.given, CONDITIONAL.joint
# Units for each direction tested, so that their covariance is known well enough.
UNITS_A_DIRECTION = 20
# A score is called a function of controls and group where they leave less of its variance.
FUNCTION_SHARE = 0.01


def through_summaries(
    residual: Vector, groups: Groups, probabilities: Matrix, estimator: EntropyEstimator
) -> Entropies:
    """H(A|b) and H(A|R,b), as the chain rule has them, under the names of the criterion."""
    weight, membership = groups.row_weight, groups.membership()
    left, order = np.ones(groups.n_known), np.argsort(groups.shares, kind="stable")
    parts: list[tuple[Any, Vector, Entropies]] = []
    for j, k in enumerate(order[:-1]):
        rows = np.flatnonzero(left > 1e-12)
        among = probabilities[rows, k] / probabilities[np.ix_(rows, order[j:])].sum(axis=1)
        pair = _pair(groups, membership[rows, k] / left[rows], weight[rows] * left[rows], rows)
        columns = {"s": residual[rows], "c": log_odds(among)}
        found = estimate_entropies([CONDITIONAL], columns, pair, estimator)
        parts.append((rows, left[rows], found))
        left = left - membership[:, k]
    losses = {c: _add_up(c, parts, weight) for c in (GIVEN, JOINT)}
    mean = {c: max(float(np.average(one.value, weights=weight)), 0.0) for c, one in losses.items()}
    independent = {}
    if groups.cluster is not None:
        name = CONDITIONAL.name
        each = (e.independent.get(name, e.groups.n_effective) / e.groups.n_known for *_, e in parts)
        independent = {name: groups.n_known * min(each)}
    return Entropies({(): groups.entropy, **mean}, losses, groups, independent)


def _add_up(condition: Any, parts: list[tuple[Any, Vector, Entropies]], weight: Vector) -> Any:
    """One entropy of all groups from those of the pairs of the chain."""
    value, influence = np.zeros((2, len(weight)))
    terms = between = 0.0
    for rows, share, found in parts:
        one = found.rows[condition]
        value[rows] += share * one.value
        influence[rows] += share * one.influence
        terms += one.terms
        between += float(weight[rows] @ share / weight.sum()) ** 2 * one.between
    joint = [found.rows[JOINT] for *_, found in parts]
    words = "; ".join(dict.fromkeys(one.chosen for one in joint))
    merged = sum(one.merged for one in joint)
    return RowLosses(value, influence, words, terms, between=between, merged=merged)


def _pair(groups: Groups, share: Vector, weight: Vector, rows: NDArray[np.intp]) -> Groups:
    """Some rows as two groups: members, in these shares, and the others."""
    cluster = None if groups.cluster is None else renumber(groups.cluster[rows])
    two = Groups(
        ("others", "group"), None, None, mean_one(weight), None, len(rows), "group", cluster
    )
    if groups.codes is None:
        share = np.clip(share, 0.0, 1.0)
        return replace(two, probabilities=np.column_stack([1.0 - share, share]))
    weight_of = None if groups.weight is None else two.weight
    return replace(two, codes=(share > 0.5).astype(np.intp), weight=weight_of)


def products_test(residual: Vector, expected: Vector, regression: Regression) -> TestResult:
    """T = ŪᵀV⁻¹Ū with Ū = mean (a_k − p_k(C))·(f(S, C) − E[f(S, C)|C]): is S ⟂ A | C?

    Both factors are residuals of regressions on the same columns, so that what biases Ū is the
    product of their errors: the generalized covariance measure (Shah and Peters 2020) for several
    f. These are Legendre polynomials of the rank of S − E[S|C] for shifts, spreads and skews, and
    the first again times the log-odds of the group and the expected score, for gaps that change
    sign.
    """
    groups, weight = regression.groups, regression.weight
    x = 2.0 * Ranks(residual).rank - 1.0
    drop = int(np.argmax(groups.shares))
    balance = _standard(log_odds(regression.probabilities[:, drop]), weight)
    level = _standard(expected, weight)
    factors = [x, 1.5 * x**2 - 0.5, balance * x, level * x, 2.5 * x**3 - 1.5 * x]
    room = max(int(groups.n_effective // (UNITS_A_DIRECTION * (groups.n_groups - 1))), 1)
    f, a = np.column_stack(factors[:room]), np.delete(regression.membership, drop, axis=1)
    f, a = f - regression.predict(f), a - regression.predict(a)
    U = np.column_stack([weight[:, None] * a * one[:, None] for one in f.T])
    total = U.sum(axis=0)
    # Residuals of a fit are too small by the leverage of their rows; their sum is what it is.
    U /= np.sqrt(1 - regression.leverage)[:, None]
    if groups.cluster is not None:
        U = cluster_groups(groups.cluster, U)
    n = len(U)
    root = root_inverse(U.T @ U, SINGULAR)
    dof = root.shape[1]
    if not dof:
        return TestResult(0.0, 0, 1.0, "holds: the score is a function of the controls")
    if n <= dof + 1:
        return TestResult(0.0, 0, float("nan"), f"not tested: {n} units for {dof} directions")
    z = total @ root
    # About zero, as here, Hotelling's T² from sums of squares that are not centered.
    statistic = float(z @ z)
    centered = statistic / max(1.0 - statistic / n, 1e-12) * (n - 1) / n
    p_value = float(fdtrc(dof, n - dof, centered * (n - dof) / (dof * (n - 1))))
    unit = "clusters" if groups.cluster is not None else "rows"
    method = (
        f"covariances of residuals of group and score given the controls, {dof} directions, "
        f"F over {n:,} {unit}"
    )
    return TestResult(statistic, dof, p_value, method)


def _standard(values: Vector, weight: Vector) -> Vector:
    mean = np.average(values, weights=weight)
    spread = np.sqrt(np.average(np.square(values - mean), weights=weight))
    return np.clip((values - mean) / (spread or 1.0), -4.0, 4.0)


def left_by_group_and_controls(
    s: Vector, expected: Vector, probabilities: Matrix, groups: Groups
) -> float:
    """Share of the variance of S that a fit by controls and group leaves.

    With S = f(C) + Σ_k δ_k(C)·1{A = k}, S − E[S|C] = Σ_k δ_k(C)·(1{A = k} − p_k(C)): regressed on
    the groups, their probabilities, and both times the expected score.
    """
    weight = groups.row_weight
    kept = np.argsort(-groups.shares)[1:20]
    gap = groups.membership()[:, kept] - probabilities[:, kept]
    level = _standard(expected, weight)[:, None]
    Z = np.column_stack([np.ones(len(s)), gap, gap * level, probabilities[:, kept], level])
    root, R = np.sqrt(weight), s - expected
    beta = np.linalg.lstsq(Z * root[:, None], R * root, rcond=1e-10)[0]
    variance = np.cov(s, aweights=weight, ddof=0)
    left = np.average(np.square(R - Z @ beta), weights=weight)
    return float(left / variance) if variance > 0 else 0.0


def information_given(
    s: Vector, regression: Regression, entropies: EntropyEstimator, seed: int, **how: Any
) -> tuple[Measure, TestResult, str, float]:  # fmt: skip
    """Return the normalized conditional information, its test, how the controls entered, and the
    share of the variance of the score that controls and group leave.

    `how` is that of :func:`measure`.
    """
    controls, groups = regression.basis.controls, regression.groups
    expected = regression.predict(s)
    # Of a score that is a function of the controls, rounding is left.
    residual = np.where(np.abs(s - expected) > 1e-9 * np.ptp(s), s - expected, 0.0)
    probabilities = regression.probabilities
    if controls.single is not None:
        variables = {"s": s, "c": controls.single}
        result = estimate_entropies([CONDITIONAL], variables, groups, entropies)
        tests = exact_fairness_p_values([CONDITIONAL], variables, groups, random_state=seed)
        test = tests[CONDITIONAL.name]
        summary = f"{controls.names[0]} itself, with the score as the second variable"
    else:
        result = through_summaries(residual, groups, probabilities, entropies)
        test = products_test(residual, expected, regression)
        summary = (
            "two summaries: the log-odds of the group given the controls and the score minus its "
            "expectation given them"
        )
    left = left_by_group_and_controls(s, expected, probabilities, groups)
    information = measure(CONDITIONAL, result, p_value=test.p_value, **how)
    return information, test, summary, left


ESTIMAND = (
    "the mean, over the members of the group that have a counterpart, of their score minus the "
    "expected score of members of the reference with the same controls"
)
# Rank correlation beyond which a control is the score itself.
NEARLY = 0.999
# A share of members without counterparts that deserves a warning.
MANY_ALONE = 0.1


@dataclass(frozen=True)
class Conditional(Tabled):
    """What an audit with controls found.

    Attributes
    ----------
    gaps : tuple of AdjustedGap
        Each group against the reference, in units of the score.
    information : Measure
        I(S;A|C) / H(A|C); the p-value is of S ⟂ A | C.
    controls : tuple of str
        Names of those used.
    left_out : dict of str → str
        Why others are not used.
    reference : str
        The group that the others are compared with.
    is_function : bool
        Whether the score is (nearly) a function of controls and group. Then the information
        says that the group can be told, not how large the difference is: read the gaps.
    unexplained : float
        Share of the variance of the score that controls and group leave.
    no_counterpart : float
        Share of all rows outside the reference with hardly any counterpart in it.
    summary, test : str
        How the controls entered the information, and how the p-value was computed.
    estimand : str
        What is averaged over whom.
    confidence_level : float
    """

    gaps: tuple[AdjustedGap, ...]
    information: Measure
    controls: tuple[str, ...]
    left_out: dict[str, str]
    reference: str
    is_function: bool
    unexplained: float
    no_counterpart: float
    summary: str
    test: str
    confidence_level: float
    estimand: str = ESTIMAND

    @property
    def balance(self) -> Imbalance:
        """The largest imbalance that the weights leave in any group."""
        compared = [gap.balance for gap in self.gaps if gap.is_estimated]
        return max(compared, key=lambda b: b.largest, default=Imbalance("", "", 0.0, 0.0))

    def gap(self, group: Any = None) -> AdjustedGap:
        """The gap of one group; of the only one where there are two.

        Parameters
        ----------
        group : label, optional
        """
        if group is None and len(self.gaps) == 1:
            return self.gaps[0]
        for found in self.gaps:
            if found.group == str(group):
                return found
        names = ", ".join(repr(found.group) for found in self.gaps)
        raise KeyError(f"no gap of {group!r} against {self.reference!r}; there are {names}")

    def _columns(self) -> dict[str, list[Any]]:
        kinds = [n + end for n in ("raw", "explained", "adjusted") for end in ("", "_percent")]
        return tabulate(
            self.gaps, "group", "reference", "n", "n_compared", *kinds,
            ratio_percent="ratio_percent.value", p_value="adjusted.p_value",
            p_adjusted="p_adjusted", no_counterpart="no_counterpart", imbalance="balance.largest",
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Everything by name."""
        return json_safe({**vars(self), "balance": self.balance})


def audit_given(
    rows: Sample, entropies: EntropyEstimator, reference: Any = "largest", *, seed: int,
    warn: bool = True, **how: Any,
) -> Conditional:  # fmt: skip
    """Judge scores among people with the same controls.

    Parameters
    ----------
    rows : Sample
        Scores, groups, controls and perhaps exposure of the rows with a known group. Gaps are per
        unit of exposure; information is about rows.
    entropies : EntropyEstimator
    reference : label or "largest"
        The group that others are compared with.
    seed : int
        Of folds.
    warn : bool
        Warn of members without counterparts.
    how
        Of :func:`measure`: `confidence_level` and `estimator` (its name).
    """
    s, groups, controls = rows.scores, rows.groups, rows.controls
    assert controls is not None
    units = rows.by_exposure().groups
    _check(controls, s, groups)
    at = find_reference(reference, units.label_names, units.shares)
    with one_blas_thread():
        basis = add_leaves(build_basis(controls, groups.n_effective), s, groups)
        gaps = adjusted_gaps(s, units, basis, at, how["confidence_level"], seed)
        if not any(gap.n_compared for gap in gaps):
            names = ", ".join(map(repr, controls.names[:10]))
            raise InputError(
                "controls", f"leave the group open, but {names} "
                f"determine{'s' if len(controls.names) == 1 else ''} it: no member of another "
                f"group has a counterpart with the same controls in {groups.label_names[at]!r}",
                hint="drop the control that stands for the group, or leave the controls out.",
            )  # fmt: skip
        information, test, summary, left = information_given(
            s, Regression(basis, groups, s), entropies, seed, **how
        )
    others = np.delete(units.shares, at)
    alone = float(others @ [gap.no_counterpart for gap in gaps] / others.sum())
    if warn:
        _warn_alone(gaps)
    return Conditional(
        tuple(gaps), information, controls.names, controls.left_out, groups.label_names[at],
        left < FUNCTION_SHARE, left, alone, summary, test.method, how["confidence_level"],
    )  # fmt: skip


def _check(controls: Controls, s: Vector, groups: Groups) -> None:
    refuse_none(controls)
    check_squares(s, "y_pred")
    for column in controls.columns:
        if _made_of_score(column, s) or _copies_score(column, s, groups):
            raise InputError(
                "controls", f"not hold the score itself: column {column.name!r} is (nearly) a "
                "function of the score, and among people with the same score nothing can differ",
                hint="drop it, or name the factors that it is made of.",
            )  # fmt: skip
        if _determines(column, groups):
            raise InputError(
                "controls", f"leave the group open, but {column.name!r} determines it: each of "
                "its values is found in one group only",
                hint="drop it; a factor that stands for the group is no legitimate one.",
            )  # fmt: skip


def _made_of_score(column: Control, s: Vector) -> bool:
    """Whether a number rises or falls with the score throughout, or a category is bands of it.

    By chance L levels with m_l of M different scores each are in the order of the score with a
    probability of 2·Πm_l!/M!, and in bands with L!·Πm_l!/M!. A number with few values, each with
    one score, is let through: a price may rest on one such factor.
    """
    values: Any = column.codes if column.values is None else column.values
    known = values == values
    s, codes = s[known], np.unique(values[known], return_inverse=True)[1]
    order = np.lexsort((codes, s))
    s, codes = s[order], codes[order]
    new = np.diff(s, prepend=-np.inf) > 0
    if np.diff(codes)[~new[1:]].any():
        return False
    steps, count = np.diff(codes[new]), np.bincount(codes[new])
    chance = gammaln(count + 1).sum() - gammaln(count.sum() + 1)
    if column.values is None:
        is_ordered = (steps != 0).sum() == len(count) - 1
        chance += gammaln(len(count) + 1)
    else:
        few = len(count) == count.sum() <= FEW_VALUES
        is_ordered = not few and ((steps >= 0).all() or (steps <= 0).all())
        chance += np.log(2)
    return bool(is_ordered and chance < np.log(1e-6))


def _copies_score(column: Control, s: Vector, groups: Groups) -> bool:
    """Whether a number is the score plus a little noise, in all groups alike.

    That is where ranks of the two correlate beyond 0.999 and what is left of them is the same in
    every group: a price that rests on one factor and on the group differs between groups.
    """
    if column.values is None or column.codes is not None or np.isnan(column.values).any():
        return False
    r = float(spearmanr(column.values, s).statistic)
    if abs(r) < NEARLY:
        return False
    left = rankdata(s) - math.copysign(1.0, r) * rankdata(column.values)
    if groups.codes is None:
        return True
    parts = [left[groups.codes == k] for k in range(groups.n_groups)]
    return bool(f_oneway(*parts).pvalue > 1e-6)


def _determines(column: Control, groups: Groups) -> bool:
    """Whether each level of a column, as it enters the models, is of one group."""
    if column.codes is None or groups.codes is None:
        return False
    table = np.zeros((len(column.levels), groups.n_groups))
    np.add.at(table, (column.codes, groups.codes), 1.0)
    return bool(((table > 0).sum(axis=1) <= 1).all())


def _warn_alone(gaps: list[AdjustedGap]) -> None:
    alone = [gap for gap in gaps if gap.no_counterpart > MANY_ALONE or gap.note]
    if not alone:
        return
    first = alone[0]
    if first.note:
        what = f"{first.group!r} is not compared: {first.note}"
    else:
        what = (
            f"{100 * first.no_counterpart:.0f}% of {first.group!r} have hardly any counterpart in "
            f"{first.reference!r} (fewer than {100 * LEAST_COUNTERPARTS:g} in 100 with the same "
            "controls) and are left out of the adjusted gap"
        )
    more = f"; so with {len(alone) - 1} more" if len(alone) > 1 else ""
    hint = "use fewer controls, or merge groups."
    warn_user(f"`controls`: {what}{more}. Hint: {hint}", GroupWarning)
