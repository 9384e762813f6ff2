"""Group features: what a linear score lacks to treat groups differently where fairness asks it.

With s₀ the (standardized) ridge prediction and p_k the membership of group k, append p_k and
p_k·s₀ for all groups but the first: 2(K − 1) columns, no new machinery. p_k is the recorded
attribute ("attribute") or its probability given the features ("posterior").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils.validation import has_fit_parameter

from .._core.arrays import Matrix, Vector
from ..data.groups import Groups, resolve_groups

# ------------------------------------------------------------------------------------------------
# Membership p_k of each row in each group: recorded, or as probable given the features.


KINDS = ("posterior", "attribute")


def check_kind(kind: str | None) -> None:
    """Refuse an unknown kind of group features."""
    if kind is not None and kind not in KINDS:
        raise ValueError(
            f"`group_features` must be None, {' or '.join(map(repr, KINDS))}, got {kind!r}."
        )


def refuse_measured(kind: str | None, groups: Groups) -> None:
    """Refuse bands of a measurement as the recorded group: those of other rows begin elsewhere."""
    if kind == "attribute" and groups.measured is not None:
        raise ValueError(
            "`group_features` must be None or 'posterior' with a Continuous attribute, got "
            "'attribute': a model that knows the group at prediction needs bands that stay where "
            "they are. Hint: cut the attribute with evenhand.bands, in fit and in predict."
        )


@dataclass(frozen=True)
class Membership:
    """How a model knows the group of a row that it scores.

    Attributes
    ----------
    kind : {"posterior", "attribute"}
        By P(a|x) of a fitted classifier, or as recorded.
    labels : tuple
        The K groups.
    shares : (K,) array
        Used for a row whose group is not known.
    """

    kind: str
    labels: tuple[Any, ...]
    shares: NDArray[np.float64]

    def members(self, X: Any, sensitive_features: Any, n_rows: int, classifier: Any) -> Matrix:
        """(n, K) memberships; `sensitive_features` is needed, and used, for "attribute" only.

        Parameters
        ----------
        X : (n, d) array or frame
            As the classifier takes it.
        sensitive_features : array, series, frame, Proxy or Groups
        n_rows : int
            n.
        classifier : fitted classifier of the group numbers, or None for "attribute"
        """
        if self.kind == "posterior":
            return classifier.predict_proba(X)
        return self.recorded(sensitive_features, n_rows)

    def recorded(self, sensitive_features: Any, n_rows: int) -> Matrix:
        """Memberships of rows whose group is given, the shares of all where it is missing."""
        if sensitive_features is None:
            raise ValueError(
                "`sensitive_features` must be given to predict when group_features='attribute': "
                "the score depends on the group. Hint: use group_features='posterior' for a model "
                "that does not need it."
            )
        if isinstance(sensitive_features, Groups):
            groups = sensitive_features
        else:
            groups = resolve_groups(
                sensitive_features, n_rows=n_rows, require_two=False, warn=False
            )
        unseen = [label for label in groups.labels if label not in self.labels]
        if unseen:
            raise ValueError(
                f"`sensitive_features` holds {unseen[0]!r}, which was not among the groups seen in "
                f"fit: {', '.join(map(repr, self.labels))}. Hint: set it to missing to use the "
                "average over groups."
            )
        out = np.tile(self.shares, (n_rows, 1))
        known = slice(None) if groups.known is None else groups.known
        rows = np.zeros((groups.n_known, len(self.labels)))
        rows[:, [self.labels.index(label) for label in groups.labels]] = groups.membership()
        out[known] = rows
        return out


# ------------------------------------------------------------------------------------------------
# P(a|x) by any classifier, for models that act on the probability of a group.


Rows = NDArray[np.intp]


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
) -> tuple[Any, Matrix]:
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


def _labeled(groups: Groups) -> tuple[Rows, NDArray[np.intp], Matrix | None]:
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


@dataclass(frozen=True)
class GroupFeatures(Membership):
    """Fitted map from a row to its 2(K − 1) group features.

    Attributes
    ----------
    kind, labels, shares
        As in :class:`Membership`.
    center, scale : float
        Mean and spread of s₀ on the training rows.
    posterior : classifier or None
        P(a|x), for "posterior".
    """

    center: float
    scale: float
    posterior: Any

    @classmethod
    def fit(
        cls, kind: str, X: Any, score: Vector, groups: Groups, weight: Vector | None
    ) -> GroupFeatures:
        """Fit on the training rows, of which `score` is the ridge prediction s₀."""
        refuse_measured(kind, groups)
        center = float(np.average(score, weights=weight))
        scale = float(np.sqrt(np.average((score - center) ** 2, weights=weight))) or 1.0
        posterior = fit_logistic(X, groups) if kind == "posterior" else None
        return cls(kind, groups.labels, groups.shares, center, scale, posterior)

    def transform(self, X: Any, score: Vector, sensitive_features: Any = None) -> Vector:
        """(n, 2(K − 1)) features; `sensitive_features` is needed for "attribute" only."""
        p = self.members(X, sensitive_features, len(score), self.posterior)[:, 1:]
        return np.hstack([p, p * ((score - self.center) / self.scale)[:, None]])
