"""The fairness term, alone or beside the loss, as a metric for early stopping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .calls import check_bound, check_fairness_weight, check_library, read_call, rows_of
from .losses import BoostingLoss, get_loss


def metric(
    bound: Any,
    loss: str = "squared",
    library: str = "xgboost",
    *,
    fairness_weight: float | None = None,
) -> FairnessMetric:
    """Ĩ of a set of rows, or deviance/(null deviance) + λ·Ĩ; less is better.

    Parameters
    ----------
    bound : BoundRegularizer or list of them
        A term bound to the rows of validation; several for several sets, which are told apart by
        their numbers of rows.
    loss : {"squared", "poisson", "gamma"}
        As for :func:`objective`.
    library : {"xgboost", "lightgbm"}
    fairness_weight : float, optional
        λ of the sum. By default Ĩ alone, which is least for a model that says nothing: for
        watching, not for stopping.

    Returns
    -------
    FairnessMetric
        For `xgboost.train(..., custom_metric=)`, `lightgbm.train(..., feval=)`, and `eval_metric=`
        of their regressors.
    """
    bounds = list(bound) if isinstance(bound, Sequence) else [bound]
    for each in bounds:
        check_bound(each)
    if not bounds or len({rows_of(each) for each in bounds}) < len(bounds):
        raise ValueError(
            "`bound` must hold terms whose numbers of rows differ, got "
            f"{[rows_of(each) for each in bounds]}. Hint: one metric for each set of rows."
        )
    weight = None if fairness_weight is None else check_fairness_weight(fairness_weight)
    return FairnessMetric(bounds, get_loss(loss), check_library(library), weight)


class FairnessMetric:
    """A callable that libraries evaluate after each round; see :func:`metric`."""

    def __init__(
        self, bounds: list[Any], loss: BoostingLoss, library: str, fairness_weight: float | None
    ) -> None:
        self._bounds = {rows_of(bound): bound for bound in bounds}
        self.loss, self.library, self.fairness_weight = loss, library, fairness_weight
        criterion = bounds[0].criterion.name
        # Libraries show it, and XGBoost reads it from the callable.
        self.__name__ = criterion if fairness_weight is None else f"{loss.name}+{criterion}"

    def __call__(self, first: Any, second: Any, sample_weight: Any = None) -> Any:
        """Name and value, and for LightGBM that less is better; XGBRegressor wants the value."""
        y, margin, weight, with_dataset = read_call(first, second, sample_weight)
        bound = self._bounds.get(len(margin))
        if bound is None:
            held = ", ".join(map(str, self._bounds))
            raise ValueError(
                f"`bound` must cover the rows of every set that is watched: got {len(margin)} "
                f"rows, and terms over {held}. Hint: metric([bound_of_one, bound_of_another])."
            )
        mean = self.loss.mean(margin.astype(np.float64))
        value = bound.value(mean)
        if self.fairness_weight is not None:
            y = y.astype(np.float64)
            null = self.loss.deviances(y, float(np.average(y, weights=weight)))
            deviances = self.loss.deviances(y, mean)
            share = np.average(deviances, weights=weight) / np.average(null, weights=weight)
            value = float(share) + self.fairness_weight * value
        if self.library == "lightgbm":
            return self.__name__, value, False
        return (self.__name__, value) if with_dataset else value
