"""Statistical parity for regression by reduction to least squares (Agarwal et al. 2019)."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from evenhand._core.validation import refuse_unreal

from ._base import Array, BaselineProblem, LinearBaseline, check_share, solve_psd


class ReductionRegressor(LinearBaseline):
    r"""A random choice among linear models, with nearly equal score distributions in all groups.

    .. math::
        \min_Q\; \mathrm{E}_{f \sim Q}\, \overline{w (y - f)^2}
        \quad\text{subject to}\quad
        \bigl| P(f \ge z \mid a) - P(f \ge z) \bigr| \le \varepsilon
        \;\text{ for all groups } a \text{ and thresholds } z

    Scores are rounded to a grid, which makes the constraint a finite one. The saddle point over Q
    and the multipliers λ of the constraints is sought by exponentiated gradient; each round asks
    a least-squares learner for the best response to λ, and a linear program over the models found
    so far gives Q, and a second λ to respond to. The target handed to the learner is, row by row,
    the grid value of least cost: squared error plus what λ charges for exceeding each threshold.
    This is the paper's own "LS" oracle, a heuristic: the exact best response of a linear model is
    a hard problem. The learner here is ridge regression.

    The attribute is needed in training only. Predictions are **random**: each row draws one of
    the models. The parity guarantee is for these draws and not for their mean, and two equal
    people may get different scores, which few uses would accept.

    Parameters
    ----------
    unfairness : float in (0, 1]
        ε, the largest gap between a group's distribution function and everybody's.
    alpha : float
        Ridge penalty of the learner.
    fit_intercept : bool
        Whether its models have an intercept.
    n_levels : int
        Grid values of the score, equally spaced over the range of y.
    max_iter : int
        Rounds, of two models each.
    random_state : int, RandomState or None
        Seed of the draws in `predict`; drawn once in `fit`, so that `predict` repeats exactly.

    Attributes
    ----------
    coefs_ : (m, d) array
        Coefficients of the models that Q uses.
    intercepts_ : (m,) array
    probabilities_ : (m,) array
        Q.
    unfairness_ : float
        The largest gap in training, in expectation over Q.
    labels_ : tuple
        The groups.
    n_iter_ : int
        Rounds played.

    References
    ----------
    Agarwal, Dudík, Wu (2019), "Fair Regression: Quantitative Definitions and Reduction-Based
    Algorithms".
    """

    def __init__(
        self,
        *,
        unfairness: float = 0.05,
        alpha: float = 1e-3,
        fit_intercept: bool = True,
        n_levels: int = 40,
        max_iter: int = 50,
        random_state: Any = None,
    ) -> None:
        self.unfairness = unfairness
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.n_levels = n_levels
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> ReductionRegressor:
        """Fit by exponentiated gradient and linear programs.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features.
        y : (n,) array
            Target.
        sensitive_features : array, series, frame or Proxy
            Groups; required. Rows whose group is unknown count for accuracy only.
        sample_weight : (n,) array, optional
            Nonnegative weights.
        """
        check_share(self.unfairness, "unfairness")
        if self.unfairness == 0:
            raise ValueError(
                "`unfairness` must be positive here, got 0. Hint: the bound on the multipliers is "
                "its inverse; take 0.01 for near parity."
            )
        for name, least in (("n_levels", 2), ("max_iter", 1)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < least:
                raise ValueError(f"`{name}` must be an integer of at least {least}, got {value!r}.")
        if sensitive_features is None:
            raise ValueError("`sensitive_features` must be given to fit, got None.")
        problem = self._prepare(X, y, sensitive_features, sample_weight, needs_groups=True)
        assert problem.groups is not None
        self.labels_ = problem.groups.labels
        self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        game = _Game(
            problem,
            float(self.alpha),
            bool(self.fit_intercept),
            int(self.n_levels),
            float(self.unfairness),
        )
        self._grid = game.low, game.step, game.values
        probabilities = game.play(int(self.max_iter))
        self.n_iter_ = int(self.max_iter)
        used = probabilities > 0
        self.probabilities_ = probabilities[used] / probabilities[used].sum()
        self.coefs_ = np.array(game.coefs)[used]
        self.intercepts_ = problem.y_mean - self.coefs_ @ problem.x_mean
        self.intercepts_ = self.intercepts_ + np.array(game.shifts)[used]
        gaps = np.tensordot(self.probabilities_, np.array(game.gaps)[used], axes=1)
        self.unfairness_ = float(np.abs(gaps).max())
        if self.unfairness_ > self.unfairness + 0.01:
            warnings.warn(
                f"ReductionRegressor reached a gap of {self.unfairness_:.3f} in training, not "
                f"unfairness={self.unfairness}. Hint: raise `max_iter`; the least-squares oracle "
                "is a heuristic and may not get there.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def predict(self, X: Any) -> Array:
        """Random scores: each row is scored by one model, drawn from Q, and rounded to the grid.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features.

        Returns
        -------
        (n,) array
        """
        check_is_fitted(self)
        refuse_unreal(X=X)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        scores = np.asarray(X @ self.coefs_.T) + self.intercepts_
        rng = np.random.default_rng(self._seed)
        drawn = rng.choice(len(self.probabilities_), size=len(scores), p=self.probabilities_)
        low, step, values = self._grid
        return np.asarray(values)[
            _level(scores[np.arange(len(scores)), drawn], low, step, len(values))
        ]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags


class _Game:
    """Models against multipliers; errors are in units of Var(y).

    A level c stands for the score ``values[c]``; threshold j lies between levels j − 1 and j.
    """

    def __init__(
        self,
        problem: BaselineProblem,
        alpha: float,
        fit_intercept: bool,
        n_levels: int,
        epsilon: float,
    ) -> None:
        groups = problem.groups
        assert groups is not None
        self.problem, self.groups, self.epsilon = problem, groups, epsilon
        used = problem.y[problem.weight > 0]
        self.low = float(used.min())
        self.step = float(used.max() - used.min()) / n_levels
        self.values: Array = self.low + self.step * (np.arange(n_levels, dtype=np.float64) + 0.5)
        self.matrix = problem.second_moment() + alpha * np.eye(len(problem.x_mean))
        weight = np.ones(groups.n_known) if groups.weight is None else groups.weight
        self.shares = groups.shares
        self.membership = groups.membership()
        # (K, m) weights that average over each group, and over everybody.
        self.average = (self.membership * weight[:, None]).T / groups.n_known
        self.average /= self.shares[:, None]
        self.everybody = weight / groups.n_known
        self.fit_intercept = fit_intercept
        self.coefs: list[Array] = []
        self.shifts: list[float] = []
        self.errors: list[float] = []
        self.gaps: list[Array] = []

    def play(self, rounds: int) -> Array:
        """Probabilities of the models in `coefs`."""
        limit = 1.0 / self.epsilon
        n_thresholds = len(self.values) - 1
        theta = np.zeros((2, len(self.shares), n_thresholds))
        self.respond(np.zeros(theta.shape[1:]))
        probabilities, _ = self.mix(limit)
        for _ in range(rounds):
            top = max(float(theta.max()), 0.0)
            raw = np.exp(theta - top)
            price = limit * raw / (np.exp(-top) + raw.sum())
            gap = self.respond(price[0] - price[1])
            # The linear program decides the mixture, not the average of the rounds, so that the
            # size of the step matters little.
            theta += 2.0 * np.stack([gap - self.epsilon, -gap - self.epsilon])
            _, dual = self.mix(limit)
            self.respond(dual)
            probabilities, _ = self.mix(limit)
        return probabilities

    def respond(self, price: Array) -> Array:
        """Add the model that answers the prices (K, thresholds); returns its gaps."""
        charge = price / self.shares[:, None]
        toll = np.zeros((len(self.shares), len(self.values)))
        toll[:, 1:] = np.cumsum(charge - price.sum(axis=0), axis=1)
        # With membership probabilities the toll is their average, and Σ_k membership = 1.
        target = np.empty(self.problem.n_rows)
        known = np.arange(len(target)) if self.groups.known is None else self.groups.known
        full = np.zeros((len(target), len(self.shares)))
        full[known] = self.membership
        for start in range(0, len(target), 50_000):
            rows = slice(start, start + 50_000)
            cost = np.square(self.problem.y[rows, None] - self.values) / self.problem.variance
            target[rows] = self.values[np.argmin(cost + full[rows] @ toll, axis=1)]
        return self._add(target)

    def _add(self, target: Array) -> Array:
        problem = self.problem
        weight = problem.weight / problem.n_rows
        # Centered at the targets' own mean where there is an intercept to take it up.
        shift = float(weight @ target) - problem.y_mean if self.fit_intercept else 0.0
        coef = solve_psd(self.matrix, problem.cross_moment(target - problem.y_mean - shift))
        scores = np.asarray(problem.X @ coef) + problem.y_mean + shift - problem.x_mean @ coef
        level = _level(scores, self.low, self.step, len(self.values))
        error = weight @ np.square(problem.y - self.values[level]) / problem.variance
        known = self.groups.take_known(level)
        gap = np.stack([self._above(known, w) for w in self.average])
        gap -= self._above(known, self.everybody)
        self.coefs.append(coef)
        self.shifts.append(shift)
        self.errors.append(float(error))
        self.gaps.append(gap)
        return gap

    def _above(self, level: NDArray[np.intp], weight: Array) -> Array:
        """P(level ≥ j) for every threshold j."""
        mass = np.bincount(level, weights=weight, minlength=len(self.values))
        return np.cumsum(mass[::-1], dtype=np.float64)[::-1][1:]

    def mix(self, limit: float) -> tuple[Array, Array]:
        """The best Q over the models so far, and the multipliers (K, thresholds) at it.

        min Σ q_t error_t + limit·ξ  subject to  |Σ q_t gap_t| ≤ ε + ξ,  Σ q_t = 1.
        """
        gaps = np.array(self.gaps).reshape(len(self.gaps), -1)
        bound = np.vstack([gaps.T, -gaps.T])
        result: Any = optimize.linprog(
            np.append(self.errors, limit),
            A_ub=np.column_stack([bound, -np.ones(len(bound))]),
            b_ub=np.full(len(bound), self.epsilon),
            A_eq=[[1.0] * len(gaps) + [0.0]],
            b_eq=[1.0],
            method="highs",
        )
        dual = -result.ineqlin.marginals
        shape = self.gaps[0].shape
        half = gaps.shape[1]
        # Below this a share is the solver's rounding.
        q = np.where(result.x[:-1] > 1e-9, result.x[:-1], 0.0)
        return q, (dual[:half] - dual[half:]).reshape(shape)


def _level(scores: Array, low: float, step: float, n_levels: int) -> NDArray[np.intp]:
    return np.clip(np.floor((scores - low) / step), 0, n_levels - 1).astype(np.intp)
