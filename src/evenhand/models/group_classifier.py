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
from .group_features import _fit_posterior


def fit_group_classifier(classifier: Any, X: Any, groups: Groups, rows: NDArray[np.intp]) -> Any:
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
        # Weights go to a step by name there, which metadata routing does not know.
        with config_context(enable_metadata_routing=False):
            return _fit_posterior(_safe_indexing(X, rows), part)
    known = rows if part.known is None else rows[part.known]
    weight = part.weight
    if part.codes is not None:
        labels = part.codes
    else:
        # Soft labels: every row once for each group, weighted by its probability.
        assert part.probabilities is not None
        k = part.n_groups
        labels = np.repeat(np.arange(k), len(known))
        soft = part.probabilities.T.ravel()
        weight = soft if weight is None else soft * np.tile(weight, k)
        known = np.tile(known, k)
    model = clone(classifier)
    if weight is None:
        return model.fit(_safe_indexing(X, known), labels)
    if not has_fit_parameter(model, "sample_weight"):
        raise ValueError(
            "`group_classifier` must accept `sample_weight` in fit, for weights and for proxies; "
            f"{type(model).__name__} does not."
        )
    return model.fit(_safe_indexing(X, known), labels, sample_weight=weight)


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
