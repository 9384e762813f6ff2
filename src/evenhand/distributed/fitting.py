"""`fit`: a model from rows that are on a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from .._core.shards import refusal
from .._core.validation import is_number
from ..data.criteria import CONDITIONAL, get_criterion
from ..measures.losses import Loss
from ..training.linear import FairLinear
from .on_dask import run_dask
from .on_spark import run_spark
from .workers import ARGUMENTS


def fit(
    estimator: Any,
    data: Any,
    client_or_spark: Any,
    *,
    y: Any,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    features: Any = None,
    exposure: Any = None,
    offset: Any = None,
    given: Any = None,
    timeout: float = 300.0,
) -> Any:
    """Fit a model on rows that are on a cluster, without moving them.

    The same program runs on every worker that holds rows. Sums over rows are added up over all
    workers through XGBoost's `collective`, so that any number of workers gives the model of one
    process, but for rounding and for `tol`.

    Parameters
    ----------
    estimator : FairRidge or FairGLM
        Not fitted itself: the fitted model is a copy. Group features, the conditional criterion and
        quantiles need more of the rows than sums, and are refused.
    data : Dask DataFrame, Dask Array or PySpark DataFrame
        The blocks of an Array, the features, may be SciPy's sparse matrices.
    client_or_spark : distributed.Client or SparkSession
    y : str, or Dask Array beside an Array
        Target: the name of a column, or an array in the same blocks as the data. So are the
        following.
    sensitive_features : str, list of str or Dask Array, optional
        Several columns are crossed. Required unless ``fairness_weight=0``.
    sample_weight : str or Dask Array, optional
    features : list of str, optional
        Columns of a DataFrame; by default all that hold numbers and are nothing else.
    exposure, offset, given : str or Dask Array, optional
        For :class:`FairGLM`.
    timeout : float
        Seconds within which each worker must answer in every exchange, and within which all must
        meet at the start (for that, at least a minute).
        The loss of one ends the fit, at the latest some seconds after that time.

    Returns
    -------
    model
        Fitted, with `n_workers_` and `n_rounds_`, the exchanges it took.

    Raises
    ------
    WorkerLostError
        Where a worker died or did not answer.
    """
    if not isinstance(estimator, FairLinear):
        raise TypeError(
            "`estimator` must be a FairRidge or a FairGLM to be fitted on a cluster, got "
            f"{type(estimator).__name__}. Hint: boosters have cluster versions of their own; see "
            "the page on clusters."
        )
    numbers = dict(zip(ARGUMENTS, (y, sample_weight, exposure, offset, given), strict=True))
    more = [name for name in ("exposure", "offset", "given") if numbers[name] is not None]
    if more and not hasattr(estimator, "family"):
        raise ValueError(f"`{more[0]}` must be None for {type(estimator).__name__}. Hint: FairGLM.")
    model = clone(estimator)
    model._check_parameters()
    refuse_more_than_sums(model)
    if not is_number(timeout, 0.0) or timeout == 0:
        raise ValueError(f"`timeout` must be a positive number of seconds, got {timeout!r}.")
    if y is None:
        raise ValueError("`y` must be given, got None.")
    library = type(data).__module__.split(".")[0]
    there = {"pyspark": run_spark}.get(library, run_dask if library.startswith("dask") else None)
    if there is None:
        raise TypeError(
            "`data` must be a Dask DataFrame, a Dask Array or a PySpark DataFrame, got "
            f"{type(data).__name__}. Hint: rows in memory need no cluster."
        )
    first, n_workers, columns = there(
        model, data, client_or_spark, numbers, sensitive_features, features, float(timeout)
    )
    fitted = first.result
    fitted.n_workers_, fitted.n_rounds_ = n_workers, first.rounds
    if columns is not None:
        fitted.feature_names_in_ = np.array(columns.features, dtype=object)
    return fitted


def refuse_more_than_sums(model: FairLinear) -> None:
    """Refuse a model that needs more of its rows than sums over them."""
    loss = getattr(model, "loss_", None)
    if model.group_features is not None:
        what = f"group_features={model.group_features!r}"
        hint = "group_features=None, or fit on a sample of the rows in one process."
    elif get_criterion(model.criterion) == CONDITIONAL:
        what = "criterion='conditional'"
        hint = "criterion='separation' with given=..., one column that stands for the controls."
    # A loss of one's own may take more from the rows than a mean.
    elif loss is not None and (
        type(loss).null_mean is not Loss.null_mean or type(loss).fixed is not Loss.fixed
    ):
        what = f"The {loss.name} loss, whose best constant is no mean,"
        hint = "fit it in one process."
    else:
        return
    raise refusal(what, hint)
