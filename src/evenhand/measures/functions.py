"""One criterion of a score as a number: the measures that plain arrays go into.

I = H(A | given) − H(A | joint),   normalized by H(A | given)
"""

from __future__ import annotations

from typing import Any

from .._core.validation import check_column, check_index
from ..data.criteria import INDEPENDENCE, SEPARATION, SUFFICIENCY, Criterion
from ..data.frequency import repeat_rows, too_many
from ..data.groups import resolve_groups
from ..data.weights import check_weight, weighted_rows
from .effective import check_effective_size, take_weighted, warn_shared_values
from .entropies import estimate_entropies, get_estimator


def _measure(
    criterion: Criterion,
    y_true: Any,
    y_pred: Any,
    sensitive_features: Any,
    sample_weight: Any,
    frequency: Any,
    cluster: Any,
    estimator: Any,
    normalize: bool,
) -> float:
    if "y" not in criterion.needs:
        y_true = None
    if too_many(frequency):
        from .cell_rows import people, refuse_beside_cells
        from .cells import Cells

        refuse_beside_cells(estimator, cluster=cluster)
        made = people(
            Cells.from_rows(
                y_true, y_pred, sensitive_features=sensitive_features,
                sample_weight=sample_weight, frequency=frequency,
            )
        )  # fmt: skip
        found = estimate_entropies(
            [criterion], made.variables, made.groups, get_estimator(estimator), made.frequency
        )
        return found.normalized(criterion) if normalize else found.nats(criterion)
    y_true, y_pred, sensitive_features, sample_weight, cluster = repeat_rows(
        frequency, y_true=y_true, y_pred=y_pred, sensitive_features=sensitive_features,
        sample_weight=sample_weight, cluster=cluster,
    )  # fmt: skip
    used = {"y_true": y_true} if "y" in criterion.needs else {}
    check_index(
        **used, y_pred=y_pred, sensitive_features=sensitive_features, sample_weight=sample_weight,
        cluster=cluster,
    )  # fmt: skip
    s = check_column(y_pred, "y_pred")
    y = None
    if "y" in criterion.needs:
        y = check_column(y_true, "y_true", len(s))
    weight = check_weight(sample_weight, len(s))
    groups = resolve_groups(
        sensitive_features, n_rows=len(s), sample_weight=weight, cluster=cluster
    )
    rows = weighted_rows(weight)
    if rows is not None:
        s, y = s[rows], None if y is None else y[rows]
    groups = take_weighted(groups, rows)
    check_effective_size(groups, stacklevel=4)
    columns = {"s": s} if y is None else {"s": s, "y": y}
    found = estimate_entropies([criterion], columns, groups, get_estimator(estimator))
    variables = {name: groups.take_known(column) for name, column in columns.items()}
    left = {c[0]: value for c, value in found.mean.items() if len(c) == 1}
    warn_shared_values(variables, left, groups, stacklevel=4)
    return found.normalized(criterion) if normalize else found.nats(criterion)


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
        INDEPENDENCE,
        y_true,
        y_pred,
        sensitive_features,
        sample_weight,
        frequency,
        cluster,
        estimator,
        normalize,
    )


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
        SEPARATION,
        y_true,
        y_pred,
        sensitive_features,
        sample_weight,
        frequency,
        cluster,
        estimator,
        normalize,
    )


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
        SUFFICIENCY,
        y_true,
        y_pred,
        sensitive_features,
        sample_weight,
        frequency,
        cluster,
        estimator,
        normalize,
    )
