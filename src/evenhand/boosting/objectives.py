"""loss + fairness term as an objective of XGBoost and LightGBM."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._kernels import shards
from ..penalty.row_bound import RowBound
from .calls import (
    check_bound,
    check_fairness_weight,
    check_finite,
    check_library,
    read_call,
    rows_of,
)
from .losses import BoostingLoss, get_loss

PLAIN_ROUNDS = 10
# Rounds that one look at the bound of the curvature serves, where rows are many.
REFRESH = 5
# What the libraries multiply a step by unless told otherwise.
LEARNING_RATES = {"xgboost": 0.3, "lightgbm": 0.1}


def objective(
    bound: Any,
    loss: str = "squared",
    library: str = "xgboost",
    *,
    fairness_weight: float = 1.0,
    plain_rounds: int = PLAIN_ROUNDS,
    learning_rate: float | None = None,
) -> FairnessObjective:
    """Σ ω·loss + λ·c·Ĩ as an objective, c = ½ Σω·(null deviance).

    That is n·½·(null deviance) times deviance/null deviance + λ·Ĩ, so `fairness_weight` means what
    it means in :class:`evenhand.FairRidge`, and the loss has the scale that the library gives it: a
    sum over rows, with which `min_child_weight`, `lambda` and the like keep their meaning.

    Parameters
    ----------
    bound : BoundRegularizer
        `FairnessRegularizer(criterion).bind(y, sensitive_features=a)` over the rows of training, in
        their order.
    loss : {"squared", "poisson", "gamma"}
        The last two have a log link: the library then predicts log means, and the fairness term
        judges means.
    library : {"xgboost", "lightgbm"}
    fairness_weight : float
        λ.
    plain_rounds : int
        Rounds of the loss alone before the fairness term sets in. Its curvature is that of 1/Var(s)
        and beyond bounds while the scores have hardly any spread.
    learning_rate : float, optional
        The library's `eta` or `learning_rate` η; by default what is theirs, 0.3 and 0.1. A step is
        η·gradient/curvature, so with η times the bound of the fairness term's curvature it is the
        longest that is safe.

    Returns
    -------
    FairnessObjective
        For `xgboost.train(..., obj=)`, `lightgbm.train({"objective": ...})`, and `objective=` of
        `XGBRegressor` and `LGBMRegressor`.

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> from evenhand import boosting
    >>> a = np.arange(200) % 2
    >>> y = np.sin(np.arange(200)) + a
    >>> bound = eh.FairnessRegularizer("independence").bind(y, sensitive_features=a)
    >>> fair = boosting.objective(bound, "squared", "xgboost", fairness_weight=1.0)
    >>> gradient, curvature = fair(y, np.full(200, y.mean()))
    >>> gradient.shape, fair.round
    ((200,), 1)
    """
    check_bound(bound)
    loss_ = get_loss(loss)
    check_library(library)
    weight = check_fairness_weight(fairness_weight)
    good = isinstance(plain_rounds, Integral) and not isinstance(plain_rounds, bool)
    if not good or plain_rounds < 0:
        raise ValueError(f"`plain_rounds` must be a nonnegative integer, got {plain_rounds!r}.")
    if learning_rate is None:
        learning_rate = LEARNING_RATES[library]
    real = isinstance(learning_rate, Real) and not isinstance(learning_rate, bool)
    if not real or not 0 < float(learning_rate) <= 1:
        raise ValueError(
            f"`learning_rate` must be positive and at most 1, got {learning_rate!r}. Hint: the "
            "number that the library is given, or None where it is given none."
        )
    return FairnessObjective(bound, loss_, weight, int(plain_rounds), float(learning_rate))


class FairnessObjective:
    """A callable that gives a library gradient and curvature of each row; see :func:`objective`.

    Counts rounds by its calls, and starts from the first one again when all scores are equal, as
    they are when a training begins, or when told by `reset`. One instance serves one training at a
    time. LightGBM trains with a copy, which has the counts.

    Attributes
    ----------
    round : int
        Calls since training began.
    value : float
        Ĩ in training at the last round with a fairness term; NaN before.
    """

    def __init__(
        self, bound: Any, loss: BoostingLoss, fairness_weight: float, plain_rounds: int,
        learning_rate: float,
    ) -> None:  # fmt: skip
        self.bound, self.loss, self.learning_rate = bound, loss, learning_rate
        self.fairness_weight, self.plain_rounds = fairness_weight, plain_rounds
        self._row_bound = RowBound(bound, refresh=REFRESH)
        self.reset()

    def reset(self) -> None:
        """Begin with the plain rounds again."""
        self.round, self.value, self._unit = 0, np.nan, 0.0
        self._row_bound.forget()

    def __deepcopy__(self, memo: Any) -> FairnessObjective:
        # LightGBM and `clone` copy what they are given; the rows need not be there twice.
        return FairnessObjective(
            self.bound, self.loss, self.fairness_weight, self.plain_rounds, self.learning_rate
        )

    def __repr__(self) -> str:
        return (
            f"FairnessObjective({self.bound.criterion.name!r}, {self.loss.name!r}, "
            f"fairness_weight={self.fairness_weight}, plain_rounds={self.plain_rounds}, "
            f"learning_rate={self.learning_rate})"
        )

    def __call__(
        self, first: Any, second: Any, sample_weight: Any = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Gradient and curvature, (n,) each, in the way the libraries ask for them.

        Parameters
        ----------
        first, second : arrays, or an array and a dataset
            Raw scores and a DMatrix or Dataset; or targets and raw scores.
        sample_weight : (n,) array, optional
        """
        y, margin, weight, _ = read_call(first, second, sample_weight)
        n = rows_of(self.bound)
        if len(margin) != n:
            raise ValueError(
                f"the dataset must have the {n} rows of `bound`, got {len(margin)}. Hint: bind the "
                "term to the rows of each training; under cross-validation, to those of each fold."
            )
        if _all_equal(margin):
            self.reset()
        if self.round == 0:
            self.loss.check(y)
            self._unit = _half_null_deviance(self.loss, y, weight)
        gradient, curvature = self.loss.derivatives(y.astype(margin.dtype, copy=False), margin)
        if weight is not None:
            gradient *= weight
            curvature *= weight
        if self.round >= self.plain_rounds and self.fairness_weight > 0:
            self._add_fairness(margin, gradient, curvature)
        self.round += 1
        return gradient, curvature

    def _add_fairness(
        self, margin: NDArray[Any], gradient: NDArray[Any], curvature: NDArray[Any]
    ) -> None:
        scores = margin.astype(np.float64)
        check_finite(scores)
        scores = self.loss.mean(scores)
        scale = self.fairness_weight * self._unit
        value, slope, bar = self._row_bound.evaluate(scores, scale, rough=True)
        self.value = value / scale
        if self.loss.log_link:
            # ds/dm = s, and the map bends as well: where the slope is positive that adds.
            slope *= scores
            bar = bar * scores * scores + np.maximum(slope, 0.0)
        bar *= self.learning_rate
        gradient += slope.astype(gradient.dtype, copy=False)
        curvature += bar.astype(curvature.dtype, copy=False)


def _all_equal(margin: NDArray[Any]) -> bool:
    if shards.active():
        low, high = shards.extent(margin)
        return low == high
    return bool(len(margin) and margin[0] == margin[-1] and (margin == margin[0]).all())


def _half_null_deviance(loss: BoostingLoss, y: NDArray[Any], weight: NDArray[Any] | None) -> float:
    """½ Σω·deviance of the best constant: what the libraries' losses of it add up to."""
    y = y.astype(np.float64)
    mean = shards.average(y, weight)
    deviances = loss.deviances(y, mean)
    return 0.5 * float(shards.add(float(deviances.sum() if weight is None else weight @ deviances)))
