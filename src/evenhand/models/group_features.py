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

from ..groups.sensitive import Groups, resolve_groups

KINDS = ("posterior", "attribute")
Vector = NDArray[np.float64]


def check_kind(kind: str | None) -> None:
    """Refuse an unknown kind of group features."""
    if kind is not None and kind not in KINDS:
        raise ValueError(
            f"`group_features` must be None, {' or '.join(map(repr, KINDS))}, got {kind!r}."
        )


@dataclass(frozen=True)
class GroupFeatures:
    """Fitted map from a row to its 2(K − 1) group features.

    Attributes
    ----------
    kind : {"posterior", "attribute"}
    labels : tuple
        The K groups.
    shares : (K,) array
        Used for a row whose group is not known.
    center, scale : float
        Mean and spread of s₀ on the training rows.
    posterior : classifier or None
        P(a|x), for "posterior".
    """

    kind: str
    labels: tuple[Any, ...]
    shares: Vector
    center: float
    scale: float
    posterior: Any

    @classmethod
    def fit(
        cls, kind: str, X: Any, score: Vector, groups: Groups, weight: Vector | None
    ) -> GroupFeatures:
        """Fit on the training rows, of which `score` is the ridge prediction s₀."""
        center = float(np.average(score, weights=weight))
        scale = float(np.sqrt(np.average((score - center) ** 2, weights=weight))) or 1.0
        posterior = _fit_posterior(X, groups) if kind == "posterior" else None
        return cls(kind, groups.labels, groups.shares, center, scale, posterior)

    def transform(self, X: Any, score: Vector, sensitive_features: Any = None) -> Vector:
        """(n, 2(K − 1)) features; `sensitive_features` is needed for "attribute" only."""
        if self.kind == "posterior":
            membership = self.posterior.predict_proba(X)
        else:
            membership = self._membership(sensitive_features, len(score))
        p = membership[:, 1:]
        return np.hstack([p, p * ((score - self.center) / self.scale)[:, None]])

    def _membership(self, sensitive_features: Any, n_rows: int) -> Vector:
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


def _fit_posterior(X: Any, groups: Groups) -> Any:
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    known = slice(None) if groups.known is None else np.flatnonzero(groups.known)
    rows = X if groups.known is None else X[known]
    weight = groups.weight
    if groups.codes is not None:
        labels = groups.codes
    else:
        # Soft labels: every row once for each group, weighted by its probability.
        assert groups.probabilities is not None
        k = groups.n_groups
        stack = sparse.vstack if sparse.issparse(rows) else np.vstack
        rows = stack([rows] * k)
        labels = np.repeat(np.arange(k), groups.n_known)
        soft = groups.probabilities.T.ravel()
        weight = soft if weight is None else soft * np.tile(weight, k)
    # Fitted one by one: a Pipeline would route the weights, which depends on a global setting.
    scaler = StandardScaler(with_mean=not sparse.issparse(rows)).fit(rows)
    model = LogisticRegression(max_iter=1000).fit(scaler.transform(rows), labels, weight)
    return Pipeline([("scale", scaler), ("classify", model)])
