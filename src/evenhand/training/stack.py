"""The stack: a linear model on the features and on what any regressor makes of them.

s = Xθ + m(s₀) + Σ_k p_k·(o_k + c_k·s₀) + t·Σ_k p_k·g_k(s₀)

with X encoded and standardized, s₀ the regressor's standardized score, m a line or a curve of
straight pieces, p_k the membership of group k and g_k the map of its scores to the barycenter of
all groups. The columns of X have a penalty γ‖θ‖² of their own, so that without fairness the score
is s₀ with what little X has to add.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from sklearn import get_config
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from .._core.arrays import Matrix, Vector
from .._core.validation import InputError, check_column, read_native
from ..data.encoding import TableEncoder
from .group_features import Slopes
from .problem import Problem, RidgeProblem, TrainingRows

# γ that "auto" tries. Fairness may need X where accuracy does not, and pays γ for it too: beyond
# `MOST` only where X has more than `CROWDED` columns a row, and would else be fitted to noise.
GRID = tuple(10.0 ** (k / 2) for k in range(-8, 3))
MOST, CROWDED = 0.1, 0.2
# A degree of freedom counts for more than one, as cross-validation by formula takes too many.
COUNTED = 1.4


def join_columns(X: Any, columns: Matrix) -> Any:
    """[X, columns], sparse where X is."""
    if sparse.issparse(X):
        return sparse.hstack([X, sparse.csr_array(columns)], format="csr")
    return np.hstack([X, columns])


@dataclass
class StackPenalty:
    """γ‖θ‖² on the columns of X, and the penalty of `Slopes` on the last ones.

    Stands where :class:`FairRidge` expects `Slopes`: all columns but those of X keep their place
    where X is wider than it has rows.

    Attributes
    ----------
    size : int
        Columns beside X, which are not rotated with it.
    slopes : Slopes or None
        The last of them.
    alpha : float or "auto"
        γ; "auto" takes that of least generalized cross-validation error without fairness.
    chosen : float
        γ, once `shrink` was called.
    """

    size: int
    slopes: Slopes | None
    alpha: float | str
    chosen: float = field(default=np.nan)

    def shrink(
        self, problem: RidgeProblem, rows: TrainingRows, group_alpha: float | str
    ) -> tuple[Problem, float]:
        """The problem with both penalties, and that of the slopes."""
        n_features = problem.design.d - self.size
        if isinstance(self.alpha, str):
            n, weight = float(len(rows.y)), rows.weight
            if weight is not None:
                n = float(weight.sum()) ** 2 / float(weight @ weight)
            self.chosen = generalized_cross_validation(problem, n_features, n)
        else:
            self.chosen = float(self.alpha)
        if n_features:
            penalty = problem.penalty.copy()
            block = np.arange(n_features)
            penalty[block, block] = self.chosen
            problem = problem.penalized(penalty)
        if self.slopes is None:
            return problem, 0.0
        return self.slopes.shrink(problem, rows, group_alpha)


def generalized_cross_validation(problem: RidgeProblem, n_features: int, n_rows: float) -> float:
    """γ on the first columns of least n·RSS(γ) / (n − c·df(γ))², c = `COUNTED`.

    Leave-one-out error with every row's leverage replaced by their mean. After the other columns
    are taken out of the moments M = VΛVᵀ and m of the first ones,

        RSS(γ) = RSS(∞) − Σ_j (vⱼᵀm)²·(λⱼ + 2γ)/(λⱼ + γ)²,   df(γ) = df(∞) + Σ_j λⱼ/(λⱼ + γ)

    so that it needs no pass over the rows.
    """
    if n_features == 0:
        return GRID[0]
    k = n_features
    gram, cross = problem.moments.gram, problem.moments.cross
    rest = gram[k:, k:] + problem.penalty[k:, k:]
    # Columns that repeat each other, such as p_k of an attribute that is in X too.
    rest = rest + 1e-10 * np.diag(np.diag(rest)) + 1e-300 * np.eye(len(rest))
    said = cho_solve(cho_factor(rest), np.column_stack([gram[k:, :k], cross[k:]]))
    moment = gram[:k, :k] - gram[:k, k:] @ said[:, :k]
    target = cross[:k] - gram[:k, k:] @ said[:, k]
    values, vectors = np.linalg.eigh((moment + moment.T) / 2.0)
    values = values.clip(0.0)
    shares = np.square(vectors.T @ target)
    left = problem.moments.second_y - float(cross[k:] @ said[:, k])
    free = float(problem.fit_intercept) + len(rest)
    grid = GRID if k > CROWDED * n_rows else [g for g in GRID if g <= MOST * (1.0 + 1e-9)]
    errors = []
    for gamma in grid:
        gained = float(shares @ ((values + 2.0 * gamma) / np.square(values + gamma)))
        room = n_rows - COUNTED * (free + float((values / (values + gamma)).sum()))
        errors.append(np.inf if room <= 0 else max(left - gained, 0.0) / room**2)
    # Where no penalty leaves room, the largest.
    return grid[int(np.argmin(errors))] if min(errors) < np.inf else grid[-1]


# ------------------------------------------------------------------------------------------------
# The score s₀ of any regressor, for rows that it has not seen: out of fold, or fitted before.


@dataclass(frozen=True)
class FoldMean:
    """ŝ(x) = mean of the regressors that were fitted on all folds but one.

    Each row of the training data was scored by one of them out of fold, so that no further fit is
    needed to score new rows; and a mean of several varies less than one.

    Attributes
    ----------
    estimators_ : tuple of regressors
    """

    estimators_: tuple[Any, ...]

    def predict(self, X: Any) -> Vector:
        """(n,) scores."""
        return np.mean([predict_base(model, X) for model in self.estimators_], axis=0)

    def __getattr__(self, name: str) -> Any:
        # What scikit-learn says of the features is the same in all of them.
        if name in ("n_features_in_", "feature_names_in_"):
            return getattr(self.estimators_[0], name)
        raise AttributeError(name)


def column_names(X: Any) -> list[str] | None:
    """Names of the columns of a frame; None for anything else."""
    frame = read_native(X, "X")
    return list(frame.columns) if isinstance(frame, nw.DataFrame) else None


def order_columns(X: Any, names: Any) -> Any:
    """A frame with the columns of training in their order; boosters go by their place.

    LightGBM takes the columns of a frame in whatever order they come, and is wrong in silence.
    """
    held = column_names(X)
    if names is None or held is None or held == list(names):
        return X
    missing = [name for name in names if name not in held]
    if missing:
        raise InputError(
            "X", f"have the columns of training, and {missing[0]!r} is missing; there are "
            f"{', '.join(map(repr, held[:20]))}",
        )  # fmt: skip
    return read_native(X, "X").select(list(names)).to_native()


def predict_base(model: Any, X: Any) -> Vector:
    """Finite scores, one a row."""
    return check_column(model.predict(X), f"the predictions of {type(model).__name__}")


def fit_out_of_fold(
    estimator: Any, X: Any, y: Vector, weight: Vector | None, folds: list[Any],
    ensemble: bool = False,
) -> tuple[Any, Vector]:  # fmt: skip
    """What scores new rows, and the scores of each training row by a model that did not see it.

    The latter are kept within the range of what that model scores the rows that it saw.

    Parameters
    ----------
    estimator : regressor
        Cloned for each fit.
    X, y, weight
        All rows, weights or None.
    folds : list of (train, test) rows
        Empty: the scores are those of the model fitted to all rows.
    ensemble : bool
        New rows are scored by the mean of the models of the folds, rather than by one fitted to
        all rows.

    Returns
    -------
    regressor, (n,) array
    """

    def fit(rows: Any) -> Any:
        extra = {} if weight is None else weight_argument(estimator, weight[rows])
        try:
            return clone(estimator).fit(_safe_indexing(X, rows), y[rows], **extra)
        except TypeError as error:
            schema = getattr(read_native(X, "X"), "schema", {})
            dates = [name for name, kind in schema.items() if kind in (nw.Date, nw.Datetime)]
            if not dates:
                raise
            raise InputError(
                "X", f"hold what {type(estimator).__name__} can read, and column {dates[0]!r} "
                "holds dates", hint="make_pipeline(evenhand.TableEncoder(), estimator).",
            ) from error  # fmt: skip

    if not folds:
        whole = fit(np.arange(len(y)))
        return whole, predict_base(whole, X)
    score, models = np.empty(len(y)), []
    for train, test in folds:
        model = fit(train)
        # A row like no other, which alone holds a coefficient, may be scored far off without it,
        # and the maps would follow that row (MEPS, 1,000 people: R² .12 on new people, not .20).
        seen = predict_base(model, X)
        score[test] = seen[test].clip(seen[train].min(), seen[train].max())
        models += [model] if ensemble else []
    return (FoldMean(tuple(models)) if ensemble else fit(np.arange(len(y)))), score


def weight_argument(estimator: Any, weight: Vector) -> dict[str, Vector]:
    """How `fit` is handed weights: by name, or through a pipeline to its last step."""
    if isinstance(estimator, Pipeline) and not get_config()["enable_metadata_routing"]:
        name, last = estimator.steps[-1]
        if has_fit_parameter(last, "sample_weight"):
            return {f"{name}__sample_weight": weight}
    elif isinstance(estimator, Pipeline) or has_fit_parameter(estimator, "sample_weight"):
        return {"sample_weight": weight}
    raise InputError(
        "sample_weight", "be None for an estimator that takes no weights, got weights for "
        f"{type(estimator).__name__}",
        hint="choose a regressor whose `fit` takes `sample_weight`, or leave the weights out here "
        "and in every measure.",
    )  # fmt: skip


def check_regressor(estimator: Any, prefit: bool | str) -> None:
    """Refuse what cannot predict, and a fit that is promised but not there."""
    if isinstance(estimator, type) or not hasattr(estimator, "predict"):
        raise InputError("estimator", f"be a regressor with `fit` and `predict`, got {estimator!r}")
    if prefit not in (True, False, "auto"):
        raise ValueError(f"`prefit` must be True, False or 'auto', got {prefit!r}.")
    if prefit is True and not is_fitted(estimator):
        raise InputError(
            "estimator", f"be fitted when prefit=True; {type(estimator).__name__} is not",
            hint="fit it first, or leave prefit='auto'.",
        )  # fmt: skip


def is_fitted(estimator: Any) -> bool:
    """Whether a regressor is fitted already; one that cannot be fitted, such as a service, is."""
    if not hasattr(estimator, "fit"):
        return hasattr(estimator, "predict")
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):
        return False
    return True


# ------------------------------------------------------------------------------------------------
# Numbers for a linear model from a table as a booster takes it: text, categories and gaps.


def fit_copy(X: Any) -> TableEncoder | StandardScaler:
    """What makes standardized columns of a table; those of a sparse matrix are not centered."""
    if sparse.issparse(X):
        return StandardScaler(with_mean=False).fit(X.astype(np.float64))
    return TableEncoder().fit(X)


def copy_numbers(copy: TableEncoder | StandardScaler, X: Any) -> Any:
    """(n, m) float64 array, or CSR matrix where `copy` was fitted to one."""
    if isinstance(copy, TableEncoder):
        return copy.transform(X.toarray() if sparse.issparse(X) else X)
    return sparse.csr_array(copy.transform(sparse.csr_array(X, dtype=np.float64)))
