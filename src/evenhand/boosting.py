"""Objectives of XGBoost and LightGBM with the fairness term in them.

For experts: what is fair on the rows of training is less so on others. The stack,
`FairPostprocessor` on scores that are out of fold, is the better way to a fair booster.

Losses are as the libraries write them, summed over rows, in the raw score m:

squared   ½(y − m)²          gradient m − y          curvature 1
poisson   e^m − y·m          gradient e^m − y        curvature e^(m + 0.7)
gamma     y·e^−m + m         gradient 1 − y·e^−m     curvature y·e^−m

Each is half the deviance up to a constant. The 0.7 is both libraries' own safeguard.
"""

from __future__ import annotations

from copy import copy
from importlib.util import find_spec
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._core.installing import install_hint
from ._core.validation import check_choice, check_nonnegative, is_number
from .data.weights import are_equal, weighted_mean, weighted_sum
from .measures.losses import LINKS, Loss, PowerLoss
from .training.curvature import RowBound

__all__ = ["FairnessObjective", "objective"]

Floats = NDArray[Any]

PLAIN_ROUNDS = 10
# Rounds that one bound of the curvature serves, where rows are many.
REFRESH = 5
# What the libraries multiply a step by unless told otherwise.
LEARNING_RATES = {"xgboost": 0.3, "lightgbm": 0.1}
# XGBoost's `max_delta_step` and LightGBM's `poisson_max_delta_step`.
POISSON_STEP = 0.7


class FairnessObjective:
    """Σ ω·loss + λ·c·Ĩ as an objective, c = ½ Σω·(null deviance); `objective` for short.

    That is n·½·(null deviance) times deviance/null deviance + λ·Ĩ, so `fairness_weight` means what
    it means in :class:`evenhand.FairRidge`, and the loss has the scale that the library gives it: a
    sum over rows, with which `min_child_weight`, `lambda` and the like keep their meaning.

    For `xgboost.train(..., obj=)`, `lightgbm.train({"objective": ...})`, and `objective=` of
    `XGBRegressor` and `LGBMRegressor`. Counts rounds by its calls, and starts from the first one
    again when all scores are equal, as they are when a training begins, or when told by `reset`.
    One instance serves one training at a time. LightGBM trains with a copy, which has the counts.

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

    Attributes
    ----------
    round : int
        Calls since training began.
    value : float
        Ĩ in training at the last round with a fairness term; NaN before.

    See Also
    --------
    evenhand.FairnessRegularizer
    evenhand.FairPostprocessor

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

    def __init__(
        self, bound: Any, loss: str = "squared", library: str = "xgboost", *,
        fairness_weight: float = 1.0, plain_rounds: Any = PLAIN_ROUNDS,
        learning_rate: float | None = None,
    ) -> None:  # fmt: skip
        if not hasattr(bound, "value_grad_curvature"):
            raise ValueError(
                f"`bound` must be a term that is bound to rows, got {type(bound).__name__}. Hint: "
                "eh.FairnessRegularizer(criterion).bind(y, sensitive_features=a)."
            )
        check_choice("library", library, LEARNING_RATES)
        if find_spec(library) is None:
            raise ImportError(
                f"library={library!r} needs {library}, which is not installed. Hint: "
                f"{install_hint('[boosting]')}."
            )
        check_nonnegative("fairness_weight", fairness_weight)
        if not isinstance(plain_rounds, Integral) or not is_number(plain_rounds, 0.0):
            raise ValueError(f"`plain_rounds` must be a nonnegative integer, got {plain_rounds!r}.")
        if learning_rate is None:
            learning_rate = LEARNING_RATES[library]
        if not is_number(learning_rate, 0.0) or not 0 < learning_rate <= 1:
            raise ValueError(
                f"`learning_rate` must be positive and at most 1, got {learning_rate!r}. Hint: the "
                "number that the library is given, or None where it is given none."
            )
        self.bound, self.loss, self.learning_rate = bound, get_loss(loss), float(learning_rate)
        self.fairness_weight, self.plain_rounds = float(fairness_weight), int(plain_rounds)
        self._row_bound = RowBound(bound, refresh=REFRESH)
        self.reset()

    def reset(self) -> None:
        """Begin with the plain rounds again."""
        self.round, self.value, self._unit = 0, np.nan, 0.0
        self._row_bound.forget()

    def __deepcopy__(self, memo: Any) -> FairnessObjective:
        # LightGBM and `clone` copy what they are given; the rows need not be there twice.
        out = copy(self)
        out._row_bound = RowBound(self.bound, refresh=REFRESH)
        out.reset()
        return out

    def __repr__(self) -> str:
        return (
            f"FairnessObjective({self.bound.criterion.name!r}, {self.loss.name!r}, "
            f"fairness_weight={self.fairness_weight}, plain_rounds={self.plain_rounds}, "
            f"learning_rate={self.learning_rate})"
        )

    def __call__(self, first: Any, second: Any, sample_weight: Any = None) -> tuple[Floats, Floats]:
        """Gradient and curvature, (n,) each, in the way the libraries ask for them.

        Parameters
        ----------
        first, second : arrays, or an array and a dataset
            Raw scores and a DMatrix or Dataset; or targets and raw scores.
        sample_weight : (n,) array, optional
        """
        y, margin, weight = read_call(first, second, sample_weight)
        n = self.bound.groups.n_rows
        if len(margin) != n:
            raise ValueError(
                f"the dataset must have the {n} rows of `bound`, got {len(margin)}. Hint: bind the "
                "term to the rows of each training; under cross-validation, to those of each fold."
            )
        if are_equal(margin):
            self.reset()
        if self.round == 0:
            check_target(self.loss, y)
            # ½ Σω·deviance of the best constant: what the libraries' losses of it add up to.
            target = y.astype(np.float64)
            null = np.asarray(weighted_mean(target, weight))
            self._unit = 0.5 * weighted_sum(self.loss.deviance(target, null), weight)
        gradient, curvature = derivatives(self.loss, y.astype(margin.dtype, copy=False), margin)
        if weight is not None:
            gradient *= weight
            curvature *= weight
        if self.round >= self.plain_rounds and self.fairness_weight > 0:
            self._add_fairness(margin, gradient, curvature)
        self.round += 1
        return gradient, curvature

    def _add_fairness(self, margin: Floats, gradient: Floats, curvature: Floats) -> None:
        scores = margin.astype(np.float64)
        if not np.isfinite(scores.sum()):
            # Boosting goes on with NaN; what follows would not say why.
            raise ValueError(
                "the scores in training are no longer finite. Hint: a smaller `fairness_weight` or "
                "learning rate, or more `plain_rounds`."
            )
        scores = self.loss.link.inverse(scores)
        scale = self.fairness_weight * self._unit
        value, slope, bar = self._row_bound.evaluate(scores, scale)
        self.value = value / scale
        if self.loss.link.name == "log":
            # ds/dm = s, and the map bends as well: where the slope is positive that adds.
            slope *= scores
            bar = bar * scores * scores + np.maximum(slope, 0.0)
        bar *= self.learning_rate
        gradient += slope.astype(gradient.dtype, copy=False)
        curvature += bar.astype(curvature.dtype, copy=False)


objective = FairnessObjective


LOSSES: dict[str, Loss] = {
    "squared": PowerLoss("squared", 0, LINKS["identity"]),
    "poisson": PowerLoss("poisson", 1, LINKS["log"]),
    "gamma": PowerLoss("gamma", 2, LINKS["log"]),
}


def get_loss(name: Any) -> Loss:
    """Look a loss up by name."""
    if not isinstance(name, str) or name not in LOSSES:
        raise ValueError(
            f"`loss` must be one of {', '.join(LOSSES)}, got {name!r}. Hint: for another one, add "
            "the gradient of `bound.value_and_grad` to that of your own objective."
        )
    return LOSSES[name]


def derivatives(loss: Loss, y: Floats, m: Floats) -> tuple[Floats, Floats]:
    """Gradient and curvature in m of half the deviance of each row."""
    gradient, curvature = 0.5 * loss.evaluate(y, m)[1], 0.5 * loss.curvature(y, m)
    return gradient, curvature * np.exp(POISSON_STEP) if loss.name == "poisson" else curvature


def check_target(loss: Loss, y: Floats) -> None:
    """Refuse targets that the loss has no value for."""
    if (y < loss.lower).any() or (loss.open_lower and (y <= loss.lower).any()):
        kind, hint = "nonnegative", "loss='squared' takes any number"
        if loss.open_lower:
            kind = "positive"
            hint = "fit rows without a claim by loss='poisson', and amounts on the others"
        raise ValueError(
            f"the target must be {kind} with loss={loss.name!r}, got {y.min():g}. Hint: {hint}."
        )


def read_call(first: Any, second: Any, weight: Any) -> tuple[Floats, Floats, Floats | None]:
    """Targets, raw scores and weights of one call.

    xgboost.train, lightgbm.train       f(raw scores, dataset)
    XGBRegressor, LGBMRegressor         f(targets, raw scores, weights or None)
    """
    if hasattr(second, "get_label"):
        first, second, weight = second.get_label(), first, second.get_weight()
    weight = None if weight is None or not len(weight) else np.asarray(weight)
    return np.asarray(first), np.ascontiguousarray(np.ravel(second)), weight
