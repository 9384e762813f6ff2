"""The convex fairness penalties of Berk et al. (2017), as published and in linear time."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from ._base import (
    Array,
    BaselineProblem,
    LinearBaseline,
    check_choice,
    check_nonnegative,
    dense,
    is_sparse,
    ridge,
    scale_rows,
)
from ._gaussian_pairs import TOLERANCE, ChebyshevSums, PairSums

PENALTIES = ("group", "individual")
METHODS = ("linear", "pairs")


class BerkRegressor(LinearBaseline):
    r"""Ridge regression with a convex penalty on cross-group pairs of rows.

    .. math::
        \frac{\overline{w (y - s)^2} + \alpha \|\theta\|^2 + \lambda P(s)}{\mathrm{Var}(y)},
        \qquad s = X\theta + b,\quad d_{ij} = e^{-(y_i - y_j)^2}

    with, for two groups of :math:`n_1` and :math:`n_2` rows (i in the first, j in the second),

    * individual: :math:`P = \frac{1}{n_1 n_2} \sum_{ij} d_{ij} (s_i - s_j)^2`,
    * group: :math:`P = \bigl(\frac{1}{n_1 n_2} \sum_{ij} d_{ij} (s_i - s_j)\bigr)^2`.

    More groups: the sum over all pairs of groups. Sample weights multiply a pair's term by
    :math:`w_i w_j` and replace the counts by sums of weights; a proxy's membership probabilities
    do the same. Rows whose group is unknown count in the first term only.

    Parameters
    ----------
    penalty : {"group", "individual"}
        Which of the two penalties.
    fairness_weight : float
        λ. Zero gives ``Ridge(alpha=n*alpha)``.
    alpha : float
        Ridge penalty; the intercept is not penalized.
    fit_intercept : bool
        Whether to fit b.
    method : {"linear", "pairs"}
        How the sums over pairs are formed. "pairs" visits all of them, O(n²), as published.
        "linear" replaces d by a piecewise Chebyshev expansion within 1e-10 of it everywhere,
        O(n); the coefficients agree. Either way the fit is then one linear solve.
    standardize : bool
        Measure y in standard deviations inside d. False is as published: raw units, so that
        d hardly varies for a target in [0, 1] and hardly any pair counts for one in dollars.
    normalize : bool
        Divide P by Var(y) like the rest, as written above, which is the published trade-off and
        free of units. False adds λP in the squared units of y.

    Attributes
    ----------
    coef_ : (d,) array
    intercept_ : float
    unfairness_ : float
        P at the fit, divided by Var(y) if `normalize`; NaN when fitted without groups.
    rank_ : int or None
        Terms of the expansion in each cell; None for "pairs".
    labels_ : tuple
        The groups; empty when fitted without.

    References
    ----------
    Berk, Heidari, Jabbari, Joseph, Kearns, Morgenstern, Neel, Roth (2017), "A Convex Framework
    for Fair Regression".
    """

    def __init__(
        self,
        *,
        penalty: str = "group",
        fairness_weight: float = 1.0,
        alpha: float = 1e-3,
        fit_intercept: bool = True,
        method: str = "linear",
        standardize: bool = False,
        normalize: bool = True,
    ) -> None:
        self.penalty = penalty
        self.fairness_weight = fairness_weight
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.method = method
        self.standardize = standardize
        self.normalize = normalize

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> BerkRegressor:
        """Fit by one linear solve.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features.
        y : (n,) array
            Target.
        sensitive_features : array, series, frame or Proxy
            Groups; required when `fairness_weight` is positive.
        sample_weight : (n,) array, optional
            Nonnegative weights.
        """
        check_choice(self.penalty, "penalty", PENALTIES)
        check_choice(self.method, "method", METHODS)
        check_nonnegative(self.fairness_weight, "fairness_weight")
        problem = self._prepare(
            X, y, sensitive_features, sample_weight, needs_groups=self.fairness_weight > 0
        )
        self.rank_: int | None = None
        self.unfairness_ = float("nan")
        self.labels_ = () if problem.groups is None else problem.groups.labels
        if problem.groups is None or problem.groups.n_groups < 2:
            self._store(problem, ridge(problem, self.alpha))
            return self
        # The fit is scaled by Var(y) throughout, so the penalty is scaled only when it is raw.
        form = self._quadratic_form(problem)
        scale = 1.0 if self.normalize else problem.variance
        coef = ridge(problem, self.alpha, self.fairness_weight * scale * form)
        self._store(problem, coef)
        value = float(coef @ form @ coef)
        if not self.normalize:
            self.unfairness_ = value
        elif problem.variance > 0:
            self.unfairness_ = value / problem.variance
        return self

    def _quadratic_form(self, problem: BaselineProblem) -> Array:
        """The (d, d) matrix A with P = θᵀAθ."""
        groups = problem.groups
        assert groups is not None
        membership = groups.membership()
        if groups.weight is not None:
            membership = membership * groups.weight[:, None]
        P = membership / membership.sum(axis=0)
        y, X = groups.take_known(problem.y), problem.X
        X = X if groups.known is None else X[groups.known]
        if not is_sparse(X):
            # P(s) does not change when the scores are shifted; centering keeps digits.
            X = X - X.mean(axis=0)
        if self.standardize and problem.variance > 0:
            y = y / np.sqrt(problem.variance)
        sums: PairSums | ChebyshevSums
        if self.method == "pairs":
            sums = PairSums(y)
        else:
            sums = ChebyshevSums(y, TOLERANCE)
            self.rank_ = sums.rank
        U = sums.apply(P)
        if self.penalty == "group":
            pairs = list(combinations(range(P.shape[1]), 2))
            contrast = np.stack([P[:, k] * U[:, m] - P[:, m] * U[:, k] for k, m in pairs], axis=1)
            direction = np.asarray(X.T @ contrast)
            return direction @ direction.T
        diagonal = (P * (U.sum(axis=1, keepdims=True) - U)).sum(axis=1)
        form = dense(X.T @ scale_rows(X, diagonal)) - sums.cross(X, P)
        return (form + form.T) / 2.0
