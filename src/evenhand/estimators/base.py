"""What LSPC and Logistic share: the per-row entropy terms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ..data.criteria import Condition
from ..data.groups import Groups
from ..kernels import Rows, make_rows, with_score
from ..kernels.basis import Basis, get_basis
from .estimation import RowLosses, largest_loss, refuse_many_variables

# Share of the leave-one-out loss in the one that estimates an entropy. In-sample is low and
# leave-one-out high by the same amount to first order.
LOSSES = {"in-sample": 0.0, "leave-one-out": 1.0, "balanced": 0.5}


class BasisClassifier(BaseEstimator, ABC):
    """A classifier of the group that is linear in the basis φ of the standardized inputs.

    A subclass gives `_row_losses` (in-sample and leave-one-out losses) and `_cluster_losses` (the
    same with whole clusters left out).
    """

    basis: str
    losses: str
    # Whether exact values cannot pass for a sign of the group, as they can in tables of values.
    is_smooth = True

    @abstractmethod
    def _row_losses(
        self, rows: Rows, basis: Basis
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...

    @abstractmethod
    def _cluster_losses(
        self, rows: Rows, basis: Basis, cluster: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...

    def row_losses(
        self, variables: Mapping[str, NDArray[np.float64]], conditions: Sequence[Condition],
        groups: Groups,
    ) -> dict[Condition, RowLosses]:  # fmt: skip
        """−log ρ(aᵢ|zᵢ) per row for every condition; see `evenhand.estimators.estimation`."""
        if self.losses not in LOSSES:
            raise ValueError(f"`losses` must be one of {', '.join(LOSSES)}, got {self.losses!r}.")
        refuse_many_variables(conditions, type(self).__name__)
        out, share = {}, LOSSES[self.losses]
        most = largest_loss(groups)
        for condition in conditions:
            second = variables[condition[1]] if len(condition) == 2 else None
            rows = with_score(make_rows(groups, second), variables[condition[0]])
            basis = get_basis(self.basis, len(condition))
            if groups.cluster is None:
                inside, outside = self._row_losses(rows, basis)
            else:
                inside, outside = self._cluster_losses(rows, basis, groups.cluster)
            np.minimum(outside, most, out=outside)
            value = (1.0 - share) * inside + share * outside
            name = f"{self.basis} {type(self).__name__}, {basis.n_terms} terms"
            terms = float((groups.n_groups - 1) * basis.n_terms)
            # A few clusters draw the fit to themselves, so that losses in sample spread too little.
            few = groups.cluster is not None and self.losses == "balanced"
            influence = outside if few else value
            out[condition] = RowLosses(value, influence, name, terms, left_out=share * terms)
        return out
