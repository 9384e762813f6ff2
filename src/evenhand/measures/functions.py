"""One criterion of a score as a number: the measures that plain arrays go into.

I = H(A | given) − H(A | joint),   normalized by H(A | given)
"""

from __future__ import annotations

from typing import Any

from ..data.criteria import INDEPENDENCE, SEPARATION, SUFFICIENCY, Criterion
from ..data.sample import Sample, too_many
from .cell_rows import people as rows_of
from .cell_rows import refuse_beside_cells
from .cells import Cells
from .effective import check_effective_size, warn_shared_values
from .entropies import estimate_entropies, get_estimator


def _measure(
    criterion: Criterion, y_true: Any, y_pred: Any, estimator: Any, normalize: bool, **columns: Any
) -> float:
    if "y" not in criterion.needs:
        y_true = None
    elif y_true is None:
        raise ValueError("`y_true` must be given, got None.")
    if too_many(columns["frequency"]):
        refuse_beside_cells(estimator, cluster=columns.pop("cluster"))
        sample = rows_of(Cells.from_rows(y_true, y_pred, **columns))
    else:
        if y_pred is None:
            raise ValueError("`y_pred` must be given, got None.")
        sample = Sample.read(y_true, y_pred, **columns).weighted()
        check_effective_size(sample.groups)
    entropies = estimate_entropies(
        [criterion], sample.variables, sample.groups, get_estimator(estimator), sample.frequency
    )
    if sample.frequency is None:
        rows = sample.known()
        warn_shared_values(rows.variables, entropies.alone, rows.groups)
    return entropies.normalized(criterion) if normalize else entropies.nats(criterion)


def independence(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    frequency: Any = None,
    cluster: Any = None,
    estimator: Any = "auto",
    normalize: bool = True,
) -> float:
    """I(S;A) / H(A): how much a prediction tells about the group.

    Parameters
    ----------
    y_true : (n,) array or None
        Not used; present so that all measures share a signature.
    y_pred : (n,) array
        Scores.
    sensitive_features : array, series, frame or Proxy
        Group of each row; a frame of several columns is crossed. Rows are matched by place; pandas
        indices that hold the same labels in another order are refused.
    sample_weight : (n,) array, optional
        Weights that leave fewer than 5 rows, or 5 effective ones, (Σw)²/Σw², are refused, and fewer
        than 100 are warned of.
    frequency : (n,) array, optional
        Number of people that each row of an aggregated table stands for; a row of frequency 3
        equals three rows.
    cluster : (n,) array, optional
        Label of the person, place or school that each row belongs to, where rows of one are not
        independent. Estimators then leave whole clusters out; fewer than 5 are refused.
    estimator : str or instance
        "auto", "lspc", "logistic", "fourier", "knn", or an instance such as ``LSPC("linear")``.
    normalize : bool
        Divide by the entropy of the group, giving a share in [0, 1]; False returns nats.

    Returns
    -------
    float
        0 when predictions tell nothing about the group, 1 when they give it away. Estimates near
        zero can come out slightly negative: that is sampling error and means "none was found".
    """
    return _measure(
        INDEPENDENCE, y_true, y_pred, estimator, normalize, sensitive_features=sensitive_features,
        sample_weight=sample_weight, frequency=frequency, cluster=cluster,
    )  # fmt: skip


def separation(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    frequency: Any = None,
    cluster: Any = None,
    estimator: Any = "auto",
    normalize: bool = True,
) -> float:
    """I(S;A|Y) / H(A|Y): what a prediction tells about the group beyond the true outcome.

    Parameters
    ----------
    y_true : (n,) array
        Targets.
    y_pred : (n,) array
        Scores.
    sensitive_features, sample_weight, frequency, cluster, estimator, normalize
        As for :func:`independence`.

    Returns
    -------
    float
    """
    return _measure(
        SEPARATION, y_true, y_pred, estimator, normalize, sensitive_features=sensitive_features,
        sample_weight=sample_weight, frequency=frequency, cluster=cluster,
    )  # fmt: skip


def sufficiency(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    frequency: Any = None,
    cluster: Any = None,
    estimator: Any = "auto",
    normalize: bool = True,
) -> float:
    """I(Y;A|S) / H(A|S): what the true outcome tells about the group beyond the prediction.

    Parameters
    ----------
    y_true : (n,) array
        Targets.
    y_pred : (n,) array
        Scores.
    sensitive_features, sample_weight, frequency, cluster, estimator, normalize
        As for :func:`independence`.

    Returns
    -------
    float
    """
    return _measure(
        SUFFICIENCY, y_true, y_pred, estimator, normalize, sensitive_features=sensitive_features,
        sample_weight=sample_weight, frequency=frequency, cluster=cluster,
    )  # fmt: skip
