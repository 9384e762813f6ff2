"""The best score without the attribute: the entropic optimum of Taturyan, Chzhen and Hebiri."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from copy import deepcopy
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import optimize
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, indexable
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from evenhand._core.validation import check_column, check_index
from evenhand.data.folds import make_folds
from evenhand.data.groups import Groups, resolve_groups
from evenhand.data.weights import check_weight
from evenhand.training.group_features import classifier_input, out_of_fold_groups
from evenhand.training.stack import fit_out_of_fold

from ._base import (
    Array,
    check_choice,
    check_nonnegative,
    check_share,
)

OUTPUTS = ("mean", "mode", "draw")
# Scores beyond these quantiles are taken for the ends of the grid: levels that hardly any row
# reaches would be spent on outliers.
TAIL = 0.005
BLOCK = 50_000


class EntropicUnaware(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    r"""The most accurate score that is independent of a group it is not told.

    .. math::
        \pi(\ell \mid x) \propto \exp\Bigl\{\tfrac{1}{\beta}\bigl[
            \textstyle\sum_k u_{k\ell}\, t_k(x) - (\eta(x) - g_\ell)^2 \bigr]\Bigr\}, \qquad
        t_k(x) = 1 - \frac{p(k \mid x)}{p_k}

    over a grid of values :math:`g_\ell`, with :math:`\eta(x)` the regressor's score, :math:`p(k
    \mid x)` the probability of group k given the features, and u the minimizer of the convex

    .. math::
        \mathrm{E}\Bigl[\beta \log \sum_\ell \exp\{\cdot/\beta\}\Bigr]
            + \varepsilon \sum_{k\ell} |u_{k\ell}|,

    at which :math:`|P(\ell \mid k) - P(\ell)| \le \varepsilon` for all groups and levels. It takes
    no target: rows without one do. As β falls, π tends to the one value that is optimal. It serves
    independence only, and is as good as η and p(k | x) are.

    ``predict`` asks nobody for their group, yet acts on a guess of it from the features.

    Parameters
    ----------
    estimator : regressor
        η. Cloned and fitted; u is found from out-of-fold scores.
    interpolation : float in [0, 1]
        Share t of the fair score in (1 − t)·η + t·fair. It can be changed after `fit`.
    tolerance : float
        ε.
    temperature : float
        β in units of the variance of η.
    n_levels : int
        Size of the grid.
    bounds : (float, float), optional
        Ends of the grid; the 0.5 % and 99.5 % quantiles of η when left out.
    output : {"mean", "mode", "draw"}
        What stands for π: its mean; its likeliest level; or a level drawn from it, which is what
        the guarantee above is about, and gives equal people different scores. It can be changed
        after `fit`.
    group_classifier : classifier, optional
        p(k | x): anything with `predict_proba`. Logistic regression on scaled features when left
        out, which needs numeric features.
    cv : int, splitter or list of (train, test)
        Folds of the out-of-fold scores and probabilities.
    max_iter : int
        Iterations of L-BFGS.
    random_state : int, RandomState or None
        For the folds, and for the draws, which repeat exactly.

    Attributes
    ----------
    estimator_, group_classifier_ : regressor, classifier
        Fitted to all rows.
    levels_ : (L,) array
        g.
    multipliers_ : (K, L) array
        u, in units of the variance of η.
    group_shares_ : (K,) array
        p_k, as the classifier has them on average.
    labels_ : tuple of length K
        The groups.
    unfairness_ : float
        The largest gap \|P(ℓ | k) − P(ℓ)\| on the rows that u was fitted to.
    n_iter_ : int

    Notes
    -----
    The published method draws a level, and runs stochastic gradient descent with its own choice of
    L and β; here the whole sample is used at once, on the same objective.

    References
    ----------
    Taturyan, Chzhen, Hebiri (2024), "Regression under demographic parity constraints via unlabeled
    post-processing". For the optimum itself: Divol, Gaucher (2024), "Demographic parity in
    regression and classification within the unawareness framework".
    """

    __metadata_request__fit: ClassVar = {"sensitive_features": True}

    def __init__(
        self,
        estimator: Any,
        *,
        interpolation: float = 1.0,
        tolerance: float = 0.0,
        temperature: float = 0.1,
        n_levels: int = 30,
        bounds: tuple[float, float] | None = None,
        output: str = "mean",
        group_classifier: Any = None,
        cv: Any = 5,
        max_iter: int = 500,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.interpolation = interpolation
        self.tolerance = tolerance
        self.temperature = temperature
        self.n_levels = n_levels
        self.bounds = bounds
        self.output = output
        self.group_classifier = group_classifier
        self.cv = cv
        self.max_iter = max_iter
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            tags.input_tags = deepcopy(self.estimator.__sklearn_tags__().input_tags)
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        X_unlabeled: Any = None,
    ) -> EntropicUnaware:
        """Fit η and p(k | x), then u.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features, passed to the estimator and to the classifier.
        y : (n,) array
            Target.
        sensitive_features : array, series, frame or Proxy
            Groups of the rows of X; required. Rows of unknown group serve η and u.
        sample_weight : (n,) array, optional
            Nonnegative weights.
        X_unlabeled : (m, d) array, sparse matrix or frame, optional
            Rows without target and group to find u from, instead of the training rows.
        """
        self._check_parameters()
        check_index(
            X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight
        )  # fmt: skip
        y = check_column(y, "y")
        (X,) = indexable(X)
        check_consistent_length(X, y)
        weight = check_weight(sample_weight, len(y))
        if sensitive_features is None:
            raise ValueError(
                "`sensitive_features` must be given to fit: p(k | x) is learned from it, got None."
            )
        groups = resolve_groups(sensitive_features, n_rows=len(y), sample_weight=weight)
        self.labels_ = groups.labels
        self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        folds = [] if X_unlabeled is not None else self._folds(X, y, groups)
        self.estimator_, score = fit_out_of_fold(self.estimator, X, y, weight, folds)
        posterior = self._fit_posterior(X, groups, folds)
        if X_unlabeled is not None:
            score = check_column(self.estimator_.predict(X_unlabeled), "scores")
            posterior, weight = self._posterior(X_unlabeled), None
        self._solve(score, posterior, np.ones(len(score)) if weight is None else weight)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def _folds(self, X: Any, y: Array, groups: Groups) -> list[Any]:
        return make_folds(self.cv, X, y, groups, self._seed)

    def _fit_posterior(self, X: Any, groups: Groups, folds: list[Any]) -> Array:
        """p(k | x) of the training rows, out of fold."""
        X = classifier_input(self.group_classifier, X)
        self.group_classifier_, out = out_of_fold_groups(self.group_classifier, X, groups, folds)
        return out

    def _posterior(self, X: Any) -> Array:
        return self.group_classifier_.predict_proba(classifier_input(self.group_classifier, X))

    def _solve(self, score: Array, posterior: Array, weight: Array) -> None:
        weight = weight / weight.sum()
        # The classifier's own average, so that E t = 0 exactly and no level is favored by a bias.
        self.group_shares_ = weight @ posterior
        order = np.argsort(score, kind="stable")
        rank = np.cumsum(weight[order])
        low, high = self.bounds or score[order][np.searchsorted(rank, [TAIL, 1.0 - TAIL])]
        self.levels_ = np.linspace(low, high, int(self.n_levels))
        self._center = float(weight @ score)
        spread = float(np.sqrt(weight @ np.square(score - self._center)))
        self._scale = spread if spread > 1e-12 * abs(self._center) else 1.0
        dual = Dual(
            self._standardized(score),
            1.0 - posterior / self.group_shares_,
            self._standardized(self.levels_),
            weight,
            float(self.temperature),
        )
        self.multipliers_, self.n_iter_, finished = dual.minimize(
            float(self.tolerance), int(self.max_iter)
        )
        self.unfairness_ = float(np.abs(dual.value_and_grad(self.multipliers_)[1]).max())
        if not finished and self.unfairness_ > self.tolerance + 1e-3:
            warnings.warn(
                f"EntropicUnaware reached a gap of {self.unfairness_:.4f} in training, not "
                f"tolerance={self.tolerance}, in {self.n_iter_} iterations. Hint: raise "
                "`max_iter` or `temperature`.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _standardized(self, score: Array) -> Array:
        return (score - self._center) / self._scale

    def predict(self, X: Any) -> Array:
        """Fair scores, moved towards η by `interpolation`; the attribute is not needed.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features.

        Returns
        -------
        (n,) array
        """
        check_is_fitted(self, "multipliers_")
        check_share(self.interpolation, "interpolation")
        check_choice(self.output, "output", OUTPUTS)
        score = check_column(self.estimator_.predict(X), "scores")
        fair = np.empty(len(score))
        uniform = np.random.default_rng(self._seed).random(len(score))
        for rows, chance in self._chances(X, score):
            if self.output == "mean":
                fair[rows] = chance @ self.levels_
            elif self.output == "mode":
                fair[rows] = self.levels_[chance.argmax(axis=1)]
            else:
                passed = (np.cumsum(chance, axis=1) < uniform[rows, None]).sum(axis=1)
                fair[rows] = self.levels_[np.minimum(passed, len(self.levels_) - 1)]
        t = float(self.interpolation)
        return (1.0 - t) * score + t * fair

    def predict_levels(self, X: Any) -> Array:
        """π, the chance of each of `levels_`, (n, L).

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features.
        """
        check_is_fitted(self, "multipliers_")
        score = check_column(self.estimator_.predict(X), "scores")
        return np.vstack([chance for _, chance in self._chances(X, score)])

    def _chances(self, X: Any, score: Array) -> Iterator[tuple[slice, Array]]:
        """π block by block, with the rows of each."""
        tilt = 1.0 - self._posterior(X) / self.group_shares_
        levels = self._standardized(self.levels_)
        for rows in _blocks(len(score)):
            chance, _ = _choice(
                self._standardized(score[rows]), tilt[rows], levels, self.multipliers_,
                float(self.temperature),
            )  # fmt: skip
            yield rows, chance

    def _check_parameters(self) -> None:
        check_share(self.interpolation, "interpolation")
        check_nonnegative(self.tolerance, "tolerance")
        check_choice(self.output, "output", OUTPUTS)
        beta = self.temperature
        if not isinstance(beta, Real) or isinstance(beta, bool) or not 0 < float(beta) < np.inf:
            raise ValueError(f"`temperature` must be a finite positive number, got {beta!r}.")
        for name, least in (("n_levels", 2), ("max_iter", 1)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise ValueError(f"`{name}` must be an integer of at least {least}, got {value!r}.")


class Dual:
    """E[β log Σ_ℓ exp{(Σ_k u_kℓ t_k − (η − g_ℓ)²)/β}], convex in u (K, L).

    Its gradient is E[π(ℓ|x) t_k(x)] = P(ℓ) − P(ℓ|k).
    """

    def __init__(
        self, score: Array, tilt: Array, levels: Array, weight: Array, temperature: float
    ) -> None:
        self.score, self.tilt, self.levels = score, tilt, levels
        self.weight, self.temperature = weight, temperature

    @property
    def shape(self) -> tuple[int, int]:
        return self.tilt.shape[1], len(self.levels)

    def value_and_grad(self, u: Array) -> tuple[float, Array]:
        value, gradient = 0.0, np.zeros(self.shape)
        for rows in _blocks(len(self.score)):
            tilt, weight = self.tilt[rows], self.weight[rows]
            chance, log_sum = _choice(self.score[rows], tilt, self.levels, u, self.temperature)
            value += self.temperature * float(weight @ log_sum)
            gradient += (weight[:, None] * tilt).T @ chance
        return value, gradient

    def minimize(self, tolerance: float, max_iter: int) -> tuple[Array, int, bool]:
        """u, iterations and whether they were enough."""
        size = int(np.prod(self.shape))
        options = {"maxiter": max_iter, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-6}

        def smooth(flat: Array) -> tuple[float, Array]:
            value, gradient = self.value_and_grad(flat.reshape(self.shape))
            return value, gradient.ravel()

        def split(flat: Array) -> tuple[float, Array]:
            # u = λ − ν with λ, ν ≥ 0 makes the absolute value smooth.
            value, gradient = smooth(flat[:size] - flat[size:])
            penalized = np.concatenate([gradient, -gradient]) + tolerance
            return value + tolerance * float(flat.sum()), penalized

        if tolerance == 0:
            result = optimize.minimize(
                smooth, np.zeros(size), jac=True, method="L-BFGS-B", options=options
            )
            u = result.x
        else:
            result = optimize.minimize(
                split, np.zeros(2 * size), jac=True, method="L-BFGS-B",
                bounds=[(0.0, None)] * (2 * size), options=options,
            )  # fmt: skip
            u = result.x[:size] - result.x[size:]
        return u.reshape(self.shape), int(result.nit), bool(result.success)


def _choice(
    score: Array, tilt: Array, levels: Array, u: Array, temperature: float
) -> tuple[Array, Array]:
    """π (n, L) and log Σ exp (n,)."""
    exponent = (tilt @ u - np.square(score[:, None] - levels)) / temperature
    log_sum = logsumexp(exponent, axis=1)
    return np.exp(exponent - log_sum[:, None]), log_sum


def _blocks(n: int) -> Iterator[slice]:
    for start in range(0, n, BLOCK):
        yield slice(start, start + BLOCK)
