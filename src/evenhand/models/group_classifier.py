"""P(a|x) by any classifier, for models that act on the probability of a group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils.validation import has_fit_parameter

from ..groups.sensitive import Groups

Rows = NDArray[np.intp]
Table = NDArray[np.float64]


def fit_group_classifier(classifier: Any, X: Any, groups: Groups, rows: Rows) -> Any:
    """A classifier of the group numbers, fitted on some rows of X.

    Parameters
    ----------
    classifier : classifier or None
        Cloned; None means logistic regression on scaled features.
    X : (n, d) array or frame
        As `classifier_input` returns it.
    groups : Groups
        Of all n rows.
    rows : (m,) array
        Row numbers; those of unknown group among them are left out.
    """
    part = groups.take(rows)
    if classifier is None:
        return fit_logistic(_safe_indexing(X, rows), part)
    known, labels, weight = _labeled(part)
    model = clone(classifier)
    if weight is None:
        return model.fit(_safe_indexing(X, rows[known]), labels)
    if not has_fit_parameter(model, "sample_weight"):
        raise ValueError(
            "`group_classifier` must accept `sample_weight` in fit, for weights and for proxies; "
            f"{type(model).__name__} does not."
        )
    return model.fit(_safe_indexing(X, rows[known]), labels, sample_weight=weight)


def out_of_fold_groups(
    classifier: Any, X: Any, groups: Groups, folds: list[Any]
) -> tuple[Any, Table]:
    """A classifier fitted to all rows, and P(a|x) of each row by one that did not see it."""
    p = np.empty((groups.n_rows, groups.n_groups))
    for train, test in folds:
        model = fit_group_classifier(classifier, X, groups, train)
        p[test] = model.predict_proba(_safe_indexing(X, test))
    return fit_group_classifier(classifier, X, groups, np.arange(groups.n_rows)), p


def fit_logistic(X: Any, groups: Groups) -> Any:
    """Logistic regression on scaled features, of the rows whose group is known."""
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    known, labels, weight = _labeled(groups)
    rows = X if groups.known is None and groups.codes is not None else _safe_indexing(X, known)
    # Fitted one by one: a Pipeline would route the weights, which depends on a global setting.
    with config_context(enable_metadata_routing=False):
        scaler = StandardScaler(with_mean=not sparse.issparse(rows)).fit(rows)
        model = LogisticRegression(max_iter=1000).fit(scaler.transform(rows), labels, weight)
    return Pipeline([("scale", scaler), ("classify", model)])


def classifier_input(classifier: Any, X: Any) -> Any:
    """X as it is for a classifier of the user's own, as checked numbers for the default one."""
    if classifier is not None:
        return X
    try:
        return check_array(X, accept_sparse="csr", dtype=np.float64)
    except ValueError as error:
        raise ValueError(
            f"`X` must be finite numbers for the default group classifier: {error} Hint: pass "
            "group_classifier=..., such as a pipeline that encodes categories, or use "
            "group_features='attribute'."
        ) from None


def _labeled(groups: Groups) -> tuple[Rows, NDArray[np.intp], Table | None]:
    """Row numbers, group numbers and weights: rows of known group, each once for each group.

    Soft labels are repeated rows, weighted by the probability of each group.
    """
    known = np.arange(groups.n_rows) if groups.known is None else np.flatnonzero(groups.known)
    weight = groups.weight
    if groups.codes is not None:
        return known, groups.codes, weight
    assert groups.probabilities is not None
    k = groups.n_groups
    soft = groups.probabilities.T.ravel()
    labels = np.repeat(np.arange(k), groups.n_known)
    return np.tile(known, k), labels, soft if weight is None else soft * np.tile(weight, k)
