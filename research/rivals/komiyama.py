"""Bounding the share of the fitted variance that the sensitive attribute explains."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg, optimize
from sklearn.utils.validation import check_is_fitted, validate_data

from evenhand._core.validation import check_index, refuse_unreal
from evenhand.training.linear import ScoresWithGroups

from ._base import (
    Array,
    LinearBaseline,
    check_choice,
    check_share,
    membership_at_prediction,
)

METHODS = ("fair_ridge", "komiyama")


class KomiyamaRegressor(ScoresWithGroups, LinearBaseline):
    r"""Linear regression whose fitted values owe at most a given share to the attribute.

    .. math::
        s = b + S a + U \beta, \quad U = X - S B, \qquad
        \min\; \overline{w (y - s)^2} + \alpha \|\beta\|^2
        \quad\text{subject to}\quad
        \frac{\mathrm{Var}(S a)}{\mathrm{Var}(S a) + \mathrm{Var}(U \beta)} \le r

    S holds the group indicators (centered; a proxy's membership probabilities in their place), B
    the least-squares coefficients of the features on S, so that U is uncorrelated with the
    attribute. The bounded quantity is the R² of the score on the attribute. It sees group means
    only: groups that differ in spread can be far from fair in the sense of independence.

    The attribute enters the model and ``predict(X, sensitive_features=...)`` needs it for every
    new row. Scoring people by formulas that differ by group is disparate treatment, which the law
    forbids in many uses (credit, hiring and insurance in several countries) even where it narrows
    a gap. It also means recording a protected attribute of everyone who is ever scored.

    Parameters
    ----------
    unfairness : float in [0, 1]
        r. Zero leaves the attribute and all that correlates linearly with it out; at 1 the bound
        is void and the model is a least-squares fit on both S and X (not on X alone, unlike the
        other baselines' `fairness_weight` of zero).
    method : {"fair_ridge", "komiyama"}
        "fair_ridge" (Scutari et al.) fits β by ridge regression and then shrinks `a` by the ridge
        penalty that meets the bound: more where a group's indicator explains less.
        "komiyama" solves the constrained problem above exactly. It may then inflate β, for more
        variance from U leaves more room for S.
    alpha : float
        Ridge penalty on β.
    fit_intercept : bool
        Whether to fit b. Without it, second moments about zero stand for the variances.

    Attributes
    ----------
    coef_ : (d,) array
        β, the coefficients of X.
    group_coef_ : (K,) array
        a − Bβ, what membership adds.
    intercept_ : float
    group_shares_ : (K,) array
        Shares of the groups in training; a row of unknown group is taken for the average person.
    labels_ : tuple of length K
        The groups.
    penalty_ : float
        Ridge penalty on `a` that met the bound ("fair_ridge"), or its multiplier ("komiyama").
    unfairness_ : float
        The share reached in training.

    References
    ----------
    Komiyama, Takeda, Honda, Shimao (2018), "Nonconvex Optimization for Regression with Fairness
    Constraints"; Scutari, Panero, Proissl (2021), "Achieving Fairness with a Simple Ridge Penalty".
    """

    def __init__(
        self,
        *,
        unfairness: float = 0.05,
        method: str = "fair_ridge",
        alpha: float = 1e-3,
        fit_intercept: bool = True,
    ) -> None:
        self.unfairness = unfairness
        self.method = method
        self.alpha = alpha
        self.fit_intercept = fit_intercept

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> KomiyamaRegressor:
        """Fit from second moments and one root of one variable.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features, without the attribute.
        y : (n,) array
            Target.
        sensitive_features : array, series, frame or Proxy
            Groups; required. Rows of unknown group are taken for the average person.
        sample_weight : (n,) array, optional
            Nonnegative weights.
        """
        check_share(self.unfairness, "unfairness")
        check_choice(self.method, "method", METHODS)
        if sensitive_features is None:
            raise ValueError(
                "`sensitive_features` must be given to fit: the attribute is part of this model, "
                "got None."
            )
        problem = self._prepare(X, y, sensitive_features, sample_weight, needs_groups=True)
        groups = problem.groups
        assert groups is not None
        n, weight = problem.n_rows, problem.weight
        self.labels_, self.group_shares_ = groups.labels, groups.shares
        S = np.zeros((n, groups.n_groups))
        S[slice(None) if groups.known is None else groups.known] = (
            groups.membership() - groups.shares
        )

        Vss = S.T @ (weight[:, None] * S) / n
        Vsy = S.T @ (weight * (problem.y - problem.y_mean)) / n
        Vxs = problem.cross_moment(S)
        inverse = linalg.pinvh(Vss, rtol=1e-10)
        B = inverse @ Vxs.T
        Vuu = problem.second_moment() - Vxs @ B
        Vuy = problem.cross_moment(problem.y - problem.y_mean) - B.T @ Vsy
        bound = _Bound(Vss, Vsy, Vuu, Vuy, float(self.alpha), float(self.unfairness))
        a, beta, self.penalty_ = getattr(bound, self.method)()
        self.unfairness_ = bound.share(a, beta)
        self._store(problem, beta)
        self.group_coef_ = a - B @ beta
        # Only differences between groups mean anything; this choice leaves the intercept alone.
        self.group_coef_ = self.group_coef_ - self.group_shares_ @ self.group_coef_
        return self

    def predict(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """Scores, which depend on the group as well as on X.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features.
        sensitive_features : array, series, frame or Proxy
            Groups of the same rows; required. Missing where unknown.

        Returns
        -------
        (n,) array
        """
        check_is_fitted(self)
        refuse_unreal(X=X)
        check_index(X=X, sensitive_features=sensitive_features)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        membership, _ = membership_at_prediction(
            sensitive_features, n_rows=X.shape[0], labels=self.labels_, estimator=self
        )
        return np.asarray(X @ self.coef_ + self.intercept_) + membership @ self.group_coef_


class _Bound:
    """The two-block problem in second moments: a for the attribute, β for the rest."""

    def __init__(
        self, Vss: Array, Vsy: Array, Vuu: Array, Vuy: Array, alpha: float, share: float
    ) -> None:
        self.Vss, self.Vsy, self.Vuu, self.Vuy = Vss, Vsy, Vuu, Vuy
        self.alpha, self.bound = alpha, share
        s_values, self.s_vectors = linalg.eigh(Vss)
        self.s_target = self.s_vectors.T @ Vsy
        self.s_values = np.where(s_values > 1e-10 * s_values[-1], s_values, 0.0)
        u_values, self.u_vectors = linalg.eigh((Vuu + Vuu.T) / 2.0)
        self.u_target = self.u_vectors.T @ Vuy
        # What S explains entirely leaves rounding noise in U.
        self.u_values = np.where(u_values > 1e-12 * max(u_values[-1], 0.0), u_values, 0.0)

    def a(self, penalty: float, scale: float = 1.0) -> Array:
        """(scale·V + penalty·I)⁻¹ v on the range of V."""
        return self.s_vectors @ _filtered(scale * self.s_values, penalty, self.s_target)

    def beta(self, scale: float = 1.0) -> Array:
        return self.u_vectors @ _filtered(scale * self.u_values, self.alpha, self.u_target)

    def share(self, a: Array, beta: Array) -> float:
        """Var(Sa) / (Var(Sa) + Var(Uβ))."""
        from_s, from_u = float(a @ self.Vss @ a), max(float(beta @ self.Vuu @ beta), 0.0)
        return from_s / (from_s + from_u) if from_s > 0 else 0.0

    def fair_ridge(self) -> tuple[Array, Array, float]:
        beta = self.beta()
        a = self.a(0.0)
        if self.share(a, beta) <= self.bound:
            return a, beta, 0.0
        unit = self.s_values[-1]
        high = unit
        while self.bound > 0 and self.share(self.a(high), beta) > self.bound and high < 1e12 * unit:
            high *= 10.0
        if self.share(self.a(high), beta) > self.bound or self.bound == 0:
            return np.zeros_like(a), beta, np.inf
        penalty = float(
            optimize.brentq(
                lambda p: self.share(self.a(p), beta) - self.bound, 0.0, high, xtol=1e-14 * high
            )
        )
        return self.a(penalty), beta, penalty

    def komiyama(self) -> tuple[Array, Array, float]:
        # One quadratic constraint, so strong duality holds (S-lemma): with the multiplier m of
        # (1 − r)Var(Sa) − r·Var(Uβ) ≤ 0, a shrinks by 1 + m(1 − r) and V_U counts 1 − m·r times.
        # The dual is over m that keep V_U(1 − m·r) + alpha·I positive.
        r = self.bound
        a, beta = self.a(0.0), self.beta()
        if self.share(a, beta) <= r:
            return a, beta, 0.0
        if r == 0:
            return np.zeros_like(a), beta, np.inf

        def at(m: float) -> tuple[Array, Array]:
            return self.a(0.0, 1.0 + m * (1.0 - r)), self.beta(1.0 - m * r)

        largest = self.u_values[-1]
        if largest <= 0:
            return np.zeros_like(a), beta, np.inf
        limit = (1.0 + self.alpha / largest) / r
        # Towards the limit Uβ grows without bound, so the share falls through r before it, unless
        # y has no part at all along U's main direction; then a = 0, which meets the bound.
        near = limit * (1.0 - 1e-9)
        if self.share(*at(near)) > r:
            return np.zeros_like(a), beta, np.inf
        multiplier = float(
            optimize.brentq(lambda m: self.share(*at(m)) - r, 0.0, near, xtol=1e-14 * near)
        )
        return (*at(multiplier), multiplier)


def _filtered(values: Array, penalty: float, target: Array) -> Array:
    """target / (values + penalty), zero where both vanish."""
    total = values + penalty
    used = values != 0
    return np.where(used, target, 0.0) / np.where(used, total, 1.0)
