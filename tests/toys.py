"""A criterion, a basis, an estimator and a loss from outside the package: the recipes."""

from __future__ import annotations

import numpy as np

import evenhand as eh
from evenhand.cli.models import MODELS
from evenhand.data.criteria import CRITERIA, unregister_criterion
from evenhand.data.groups import Groups
from evenhand.estimators.estimation import RowLosses
from evenhand.kernels.basis import DEGREES
from evenhand.measures.entropies import ESTIMATORS
from evenhand.measures.losses import Loss

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


class LogCosh(Loss):
    """log cosh(y − η): squares near zero, distances far from it."""

    name = "log cosh"

    def deviance(self, y, mean):
        r = np.abs(y - mean)
        return r + np.log1p(np.exp(-2.0 * r)) - np.log(2.0)

    def evaluate(self, y, eta):
        return self.deviance(y, eta), np.tanh(eta - y)

    def curvature(self, y, eta):
        return 1.0 / np.cosh(np.clip(eta - y, -300.0, 300.0)) ** 2

    def null_mean(self, y, weight):
        mean = float(np.median(y))
        for _ in range(100):
            step = np.average(np.tanh(y - mean), weights=weight)
            mean += step / np.average(self.curvature(y, mean), weights=weight)
        return mean


class Shrunk:
    """A model of one's own that shares work along a path: the target's mean, and less of X."""

    def __init__(self, fairness_weight: float = 1.0, criterion: str = "independence") -> None:
        self.fairness_weight, self.criterion = fairness_weight, criterion

    def get_params(self, deep: bool = True) -> dict:
        return {"fairness_weight": self.fairness_weight, "criterion": self.criterion}

    def set_params(self, **params):
        vars(self).update(params)
        return self

    def fit(self, X, y, *, sensitive_features, sample_weight=None):
        fitter = self.path_fitter(
            X, y, sensitive_features=sensitive_features, sample_weight=sample_weight
        )
        vars(self).update(vars(fitter(self.fairness_weight)))
        return self

    def path_fitter(self, X, y, *, sensitive_features, sample_weight=None):
        Shrunk.solved += 1
        mean = np.average(y, weights=sample_weight)
        coef = np.linalg.lstsq(X, y - mean, rcond=None)[0]

        def fit(fairness_weight: float) -> Shrunk:
            point = Shrunk(fairness_weight, self.criterion)
            point.mean, point.coef = mean, coef / (1.0 + fairness_weight)
            return point

        return fit

    def predict(self, X):
        return self.mean + X @ self.coef

    solved = 0


def register() -> None:
    for criterion in (REVERSED, ERRORS):
        eh.register_criterion(criterion)
    DEGREES["quartic"] = 4
    ESTIMATORS["bins"] = lambda random_state: Bins()
    MODELS["glm-log-cosh"] = lambda criterion, options: eh.FairGLM(LogCosh(), criterion)


def unregister() -> None:
    for criterion in (REVERSED, ERRORS):
        if criterion.name in CRITERIA:
            unregister_criterion(criterion.name)
    DEGREES.pop("quartic", None)
    ESTIMATORS.pop("bins", None)
    MODELS.pop("glm-log-cosh", None)
