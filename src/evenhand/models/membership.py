"""Membership p_k of each row in each group: recorded, or as probable given the features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..groups.sensitive import Groups, resolve_groups

KINDS = ("posterior", "attribute")
Table = NDArray[np.float64]


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

    def members(self, X: Any, sensitive_features: Any, n_rows: int, classifier: Any) -> Table:
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

    def recorded(self, sensitive_features: Any, n_rows: int) -> Table:
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
