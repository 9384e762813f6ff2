"""A criterion, a basis and an estimator from outside the package: the recipes of the docs."""

from __future__ import annotations

import numpy as np

import evenhand as eh
from evenhand.groups.sensitive import Groups
from evenhand.information.basis import DEGREES
from evenhand.information.criteria import CRITERIA, unregister_criterion
from evenhand.information.entropies import ESTIMATORS
from evenhand.information.estimation import RowLosses

# A criterion of the two variables there are, with its own words.
REVERSED = eh.Criterion(
    "reversed",
    given=("y",),
    joint=("s", "y"),
    question="Is this separation by another name?",
    meaning="by another name, {percent} of the uncertainty is removed",
)
# One of a variable that is computed from them.
ERROR = eh.Variable(
    "r", "error", of=("s", "y"), value=lambda s, y: y - s, slope=lambda s, y: -np.ones_like(s)
)
ERRORS = eh.Criterion("errors", given=(), joint=("r",), variables=(ERROR,))


class Bins:
    """H(A|Z) by group shares in equally filled bins of each variable."""

    def __init__(self, n_bins: int = 8) -> None:
        self.n_bins = n_bins

    def row_losses(self, variables, conditions, groups: Groups):
        found = {}
        for condition in conditions:
            cell = np.zeros(groups.n_known, dtype=np.intp)
            for name in condition:
                cuts = np.quantile(variables[name], np.arange(1, self.n_bins) / self.n_bins)
                cell = cell * self.n_bins + np.searchsorted(cuts, variables[name])
            size = self.n_bins ** len(condition)
            table = np.bincount(
                cell * groups.n_groups + groups.codes, minlength=size * groups.n_groups
            )
            table = table.reshape(size, groups.n_groups) + 0.5
            loss = -np.log(table / table.sum(axis=1, keepdims=True))[cell, groups.codes]
            found[condition] = RowLosses(loss, loss, f"{self.n_bins} bins")
        return found


def register() -> None:
    for criterion in (REVERSED, ERRORS):
        eh.register_criterion(criterion)
    DEGREES["quartic"] = 4
    ESTIMATORS["bins"] = lambda random_state: Bins()


def unregister() -> None:
    for criterion in (REVERSED, ERRORS):
        if criterion.name in CRITERIA:
            unregister_criterion(criterion.name)
    DEGREES.pop("quartic", None)
    ESTIMATORS.pop("bins", None)
