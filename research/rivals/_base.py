"""What the baselines share: input checks, weighted moments, and the ridge they all start from.

Every linear baseline keeps the fitters' base objective and changes the regularizer only:

    [ mean w (y − s)² + alpha‖θ‖² ] / Var(y) + fairness_weight · regularizer,   s = Xθ + b.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from evenhand._core.validation import check_index, refuse_unreal
from evenhand.data.groups import Groups, resolve_groups
from evenhand.data.weights import check_weight

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BaselineProblem:
    """Checked training data.

    Attributes
    ----------
    X : (n, d) float64 array or CSR matrix
    y : (n,) array
    weight : (n,) array
        Sample weights of mean 1.
    groups : Groups or None
        None when no attribute was given (allowed only where nothing depends on it).
    x_mean, y_mean :
        Weighted means; zero when no intercept is fitted.
    variance : float
        Weighted variance of y.
    """

    X: Any
    y: Array
    weight: Array
    groups: Groups | None
    x_mean: Array
    y_mean: float
    variance: float

    @property
    def n_rows(self) -> int:
        return len(self.y)

    def times(self, columns: Array) -> Array:
        """Xᵀ columns, as a dense array."""
        return np.asarray(self.X.T @ columns)

    def second_moment(self) -> Array:
        """(1/n) Σ w (x − x̄)(x − x̄)ᵀ."""
        if is_sparse(self.X):
            gram = dense(self.X.T @ scale_rows(self.X, self.weight)) / self.n_rows
            return gram - np.outer(self.x_mean, self.x_mean)
        centered = self.X - self.x_mean
        return centered.T @ (self.weight[:, None] * centered) / self.n_rows

    def cross_moment(self, values: Array) -> Array:
        """(1/n) Σ w (x − x̄) values, for one or more columns of values."""
        if values.ndim == 1:
            weighted = self.weight * values
            return (self.times(weighted) - self.x_mean * weighted.sum()) / self.n_rows
        weighted = self.weight[:, None] * values
        return (self.times(weighted) - np.outer(self.x_mean, weighted.sum(axis=0))) / self.n_rows


class LinearBaseline(RegressorMixin, BaseEstimator):
    """Input checks and prediction of a linear baseline; see the module for the objective."""

    __metadata_request__fit: ClassVar = {"sensitive_features": True}

    alpha: float
    fit_intercept: bool
    coef_: Array
    intercept_: float

    def _prepare(
        self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any, *, needs_groups: bool
    ) -> BaselineProblem:
        check_nonnegative(self.alpha, "alpha")
        refuse_unreal(X=X, y=y)
        check_index(
            X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight
        )  # fmt: skip
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True, multi_output=False
        )
        return prepare(
            X,
            np.asarray(y, dtype=np.float64),
            sensitive_features,
            sample_weight,
            fit_intercept=self.fit_intercept,
            needs_groups=needs_groups,
        )

    def _store(self, problem: BaselineProblem, coef: Array) -> None:
        self.coef_ = coef
        self.intercept_ = float(problem.y_mean - problem.x_mean @ coef)

    def _linear(self, X: Any) -> Array:
        check_is_fitted(self)
        refuse_unreal(X=X)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_ + self.intercept_)

    def predict(self, X: Any) -> Array:
        """Scores Xθ + b; the sensitive attribute is not needed.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features.

        Returns
        -------
        (n,) array
        """
        return self._linear(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def prepare(
    X: Any,
    y: Array,
    sensitive_features: Any,
    sample_weight: ArrayLike | None,
    *,
    fit_intercept: bool,
    needs_groups: bool,
) -> BaselineProblem:
    """Weights, groups and means of data that scikit-learn has already checked."""
    n_rows = len(y)
    weight = check_weight(sample_weight, n_rows)
    if needs_groups and sensitive_features is None:
        raise ValueError(
            "`sensitive_features` must be given to fit when `fairness_weight` is positive, got "
            "None. Hint: pass fit(X, y, sensitive_features=...), or set fairness_weight=0 for the "
            "plain model."
        )
    groups = None
    if sensitive_features is not None:
        groups = resolve_groups(
            sensitive_features, n_rows=n_rows, sample_weight=weight, require_two=needs_groups
        )
    w = np.ones(n_rows) if weight is None else weight * (n_rows / weight.sum())
    y_mean = float(w @ y / n_rows)
    variance = float(w @ np.square(y - y_mean) / n_rows)
    if needs_groups and variance <= (1e-15 * max(abs(y_mean), 1e-300)) ** 2:
        raise ValueError(
            f"`y` must not be constant, got {y_mean:g} in every row with positive weight. Hint: "
            "a constant target leaves nothing to trade fairness against."
        )
    if fit_intercept:
        x_mean = np.asarray(X.T @ w).ravel() / n_rows
    else:
        x_mean, y_mean = np.zeros(X.shape[1]), 0.0
    return BaselineProblem(X, y, w, groups, x_mean, y_mean, variance)


def ridge(problem: BaselineProblem, alpha: float, extra: Array | None = None) -> Array:
    """Solve (XᵀWX/n + alpha·I + extra) θ = XᵀWy/n, centered; least norm if singular."""
    matrix = problem.second_moment()
    target = problem.cross_moment(problem.y - problem.y_mean)
    if extra is not None:
        matrix = matrix + extra
    matrix.flat[:: len(matrix) + 1] += alpha
    return solve_psd(matrix, target)


def solve_psd(matrix: Array, target: Array) -> Array:
    """Solve a positive semidefinite system, by least norm when it is singular."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", linalg.LinAlgWarning)
            return linalg.solve(matrix, target, assume_a="pos")
    except (linalg.LinAlgError, linalg.LinAlgWarning):
        return linalg.lstsq(matrix, target, cond=1e-13, lapack_driver="gelsd")[0]


def is_sparse(X: Any) -> bool:
    return bool(sparse.issparse(X))


def scale_rows(X: Any, weight: Array) -> Any:
    """diag(weight) X, dense or sparse."""
    if is_sparse(X):
        diagonal: Any = sparse.diags_array(weight).tocsr()
        return diagonal @ X
    return weight[:, None] * X


def dense(matrix: Any) -> Array:
    return matrix.toarray() if is_sparse(matrix) else np.asarray(matrix)


def check_nonnegative(value: Any, name: str) -> None:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < np.inf:
        raise ValueError(f"`{name}` must be a finite number of at least 0, got {value!r}.")


def check_share(value: Any, name: str) -> None:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) <= 1:
        raise ValueError(f"`{name}` must be a number between 0 and 1, got {value!r}.")


def check_choice(value: Any, name: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {value!r}.")


def membership_at_prediction(
    sensitive_features: Any, *, n_rows: int, labels: tuple[Any, ...], estimator: Any
) -> tuple[Array, NDArray[np.bool_]]:
    """Membership of new rows in the groups seen in fit, and which rows are known.

    Returns
    -------
    membership : (n, K) array
        Columns in the order of `labels`; zero in unknown rows.
    known : (n,) bool array
    """
    if sensitive_features is None:
        raise ValueError(
            f"`sensitive_features` must be given to predict: {type(estimator).__name__} needs the "
            "group of every new row, got None. Hint: call predict(X, sensitive_features=...), or "
            "use a method that needs the attribute in training only."
        )
    # No warnings: a batch to predict may well hold one row of a group.
    groups = resolve_groups(sensitive_features, n_rows=n_rows, require_two=False, warn=False)
    known = np.ones(n_rows, dtype=bool) if groups.known is None else groups.known
    position = {label: k for k, label in enumerate(labels)}
    unseen = [
        name
        for name, label in zip(groups.label_names, groups.labels, strict=True)
        if label not in position
    ]
    if unseen:
        raise ValueError(
            f"`sensitive_features` must hold groups seen in fit ({', '.join(map(str, labels))}), "
            f"got {', '.join(unseen)} as well. Hint: set them to missing, or refit."
        )
    out = np.zeros((n_rows, len(labels)))
    if groups.n_known:
        columns = np.array([position[label] for label in groups.labels])
        out[np.ix_(np.flatnonzero(known), columns)] = groups.membership()
    return out, known
