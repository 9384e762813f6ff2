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

from ..groups.sensitive import Groups
from .group_classifier import fit_logistic
from .membership import Membership, refuse_measured

Vector = NDArray[np.float64]


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
