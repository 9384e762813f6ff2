"""The convex penalty of Do et al. (2022) on pairs of rows with similar targets."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evenhand.data.groups import Groups

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

SEGMENTS = ("count", "length")


class DoRegressor(LinearBaseline):
    r"""The fair generalized linear model of Do et al. for a normal target.

    .. math::
        \frac{\overline{w (y - s)^2} + \alpha \|\theta\|^2 + \lambda P(s)}{\mathrm{Var}(y)},
        \qquad
        P = \frac{2}{S K (K - 1)} \sum_{v=1}^{S} \sum_{k < m}
            \frac{1}{n_{kv} n_{mv}} \sum_{i \in (k, v)} \sum_{j \in (m, v)} (s_i - s_j)^2

    with :math:`s = X\theta + b`, targets cut into S segments, and (k, v) the rows of group k in
    segment v. It bounds the gaps between groups in expected outcome and in likelihood given the
    target, so it serves separation.

    A pair's squared gap is the gap of the means *and* the spread within both cells, so a large λ
    shrinks all scores to a constant, fair or not. With one segment P is Berk's individual penalty
    (:class:`BerkRegressor`) at a target so nearly constant that all pairs count alike; with more it
    weighs segments, and not pairs, equally.

    Parameters
    ----------
    fairness_weight : float
        λ, as published. Zero gives ``Ridge(alpha=n*alpha)``.
    alpha : float
        Ridge penalty; the intercept is not penalized.
    fit_intercept : bool
        Whether to fit b.
    n_segments : int
        At most so many segments; fewer where a group would be absent from one.
    segments : {"count", "length"}
        Segments of equally many rows, or equally long ones.

    Attributes
    ----------
    coef_ : (d,) array
    intercept_ : float
    n_segments_ : int
        S.
    unfairness_ : float
        P / Var(y) at the fit; NaN when fitted without groups.
    labels_ : tuple
        The groups; empty when fitted without.

    Notes
    -----
    The mean over pairs of two cells is the sum of their covariances and of the outer product of the
    difference of their means, so P takes one pass over the rows and the fit one linear solve.
    Sample weights and a proxy's probabilities weigh the rows of a cell. Rows whose group is unknown
    count in the first term only.

    References
    ----------
    Do, Putzel, Martin, Smyth, Zhong (2022), "Fair Generalized Linear Models with a Convex Penalty".
    """

    def __init__(
        self,
        *,
        fairness_weight: float = 1.0,
        alpha: float = 1e-3,
        fit_intercept: bool = True,
        n_segments: int = 100,
        segments: str = "count",
    ) -> None:
        self.fairness_weight = fairness_weight
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.n_segments = n_segments
        self.segments = segments

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> DoRegressor:
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
        check_nonnegative(self.fairness_weight, "fairness_weight")
        check_choice(self.segments, "segments", SEGMENTS)
        if (
            not isinstance(self.n_segments, Integral)
            or isinstance(self.n_segments, bool)
            or self.n_segments < 1
        ):
            raise ValueError(
                f"`n_segments` must be an integer of at least 1, got {self.n_segments!r}."
            )
        problem = self._prepare(
            X, y, sensitive_features, sample_weight, needs_groups=self.fairness_weight > 0
        )
        self.n_segments_: int = 1
        self.unfairness_ = float("nan")
        self.labels_ = () if problem.groups is None else problem.groups.labels
        if problem.groups is None or problem.groups.n_groups < 2:
            self._store(problem, ridge(problem, self.alpha))
            return self
        form = self._quadratic_form(problem, problem.groups)
        coef = ridge(problem, self.alpha, self.fairness_weight * form)
        self._store(problem, coef)
        if problem.variance > 0:
            self.unfairness_ = float(coef @ form @ coef) / problem.variance
        return self

    def _quadratic_form(self, problem: BaselineProblem, groups: Groups) -> Array:
        """The (d, d) matrix A with P = θᵀAθ."""
        member = groups.membership()
        if groups.weight is not None:
            member = member * groups.weight[:, None]
        X = problem.X if groups.known is None else problem.X[groups.known]
        if not is_sparse(X):
            # P(s) does not change when the scores are shifted; centering keeps digits.
            X = X - X.mean(axis=0)
        segment, mass = self._cut(groups.take_known(problem.y), member)
        n_segments, n_groups = mass.shape
        self.n_segments_ = n_segments
        share = member / mass[segment]
        n_rows = len(segment)
        cell = segment[:, None] * n_groups + np.arange(n_groups)
        average = sparse.csr_array(
            (share.ravel(), (np.repeat(np.arange(n_rows), n_groups), cell.ravel())),
            shape=(n_rows, n_segments * n_groups),
        )
        means = dense(average.T @ X).reshape(n_segments, n_groups, -1)
        # Σ_{k<m} (C_k + C_m + δδᵀ) in second moments, with C = E xxᵀ − μμᵀ and δ = μ_k − μ_m.
        form = (n_groups - 1) * dense(X.T @ scale_rows(X, share.sum(axis=1)))
        flat, total = means.reshape(n_segments * n_groups, -1), means.sum(axis=1)
        form = form + flat.T @ flat - total.T @ total
        return (form + form.T) / (n_segments * n_groups * (n_groups - 1))

    def _cut(self, y: Array, member: Array) -> tuple[NDArray[np.intp], Array]:
        """Segment of each row and mass of each cell (S, K), with as many segments as can be."""
        weight = member.sum(axis=1)
        order = np.argsort(y, kind="stable")
        rank = np.cumsum(weight[order]) / weight.sum()
        for count in range(int(self.n_segments), 0, -1):
            inner = np.arange(1, count) / count
            if self.segments == "count":
                # Rounding must not move a row that a cut falls on exactly.
                cuts = y[order][np.minimum(np.searchsorted(rank, inner - 1e-12) + 1, len(y) - 1)]
            else:
                used = y[weight > 0]
                cuts = used.min() + (used.max() - used.min()) * inner
            segment = np.searchsorted(cuts, y, side="right")
            mass = np.zeros((count, member.shape[1]))
            np.add.at(mass, segment, member)
            if (mass > 0).all():
                break
        return segment, mass
