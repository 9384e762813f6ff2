"""Cross-fitted models of a number or of a group given controls: E[v|C] and P(A = k|C).

Two models compete: splines with a ridge penalty (one linear solve, or a few Newton steps), and
boosted trees. Each predicts rows that it has not seen. Trees are tried on one fold first, and on
the others only if they come near the splines there; the two are then averaged with the weights
that lose least out of fold. Everything is seeded and repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from .._core.arrays import Matrix, Vector
from ..data.controls import Control, Controls
from ..data.groups import Groups
from ..data.weights import cluster_folds

N_FOLDS = 5
# Trees need rows to split; below this they never beat a curve.
TREE_ROWS = 300
TREE_BINS = 200
MANY_ROWS = 20_000
# Products of pairs of controls, where there are few enough of them.
MOST_PAIRED = 8
# Smallest and largest ridge penalty per row, on columns of variance 1.
PENALTIES = np.geomspace(1e-8, 1.0, 17)
LOGIT_PENALTIES = (3e-1, 3e-2, 3e-3, 3e-4)
# Log-odds beyond this are certain for all that any number of rows can show.
MOST_LOGIT = 30.0


def deal_folds(
    strata: NDArray[np.intp], cluster: NDArray[np.intp] | None, seed: int
) -> NDArray[np.intp]:
    """Fold of each row: every stratum shared out evenly, clusters whole.

    Parameters
    ----------
    strata : (n,) array of numbers 0 … K − 1
    cluster : (n,) array of numbers 0 … G − 1, or None
    seed : int
    """
    if cluster is not None:
        return cluster_folds(cluster, strata, min(N_FOLDS, int(cluster.max()) + 1), seed)
    order = np.random.default_rng(seed).permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    out = np.empty(len(strata), dtype=np.intp)
    out[order] = np.arange(len(strata)) % N_FOLDS
    return out


@dataclass(frozen=True)
class Fitted:
    """Out-of-fold predictions.

    Attributes
    ----------
    value : (n,) array
        E[v|C] or P(A = k|C), each row by models that have not seen its fold.
    chosen : str
        "splines", "boosted trees", or both with the share of the latter.
    pull : callable, optional
        u → h with Σu·value = Σh·v + a constant: how much each row that the splines were fitted to
        moves a sum of predictions. Of trees it says how splines in their place would do.
    """

    value: Vector
    chosen: str
    pull: Callable[[Vector], Vector] | None = None


@dataclass(frozen=True)
class Features:
    """Controls as the two models see them, and the folds of their rows."""

    controls: Controls
    fold: NDArray[np.intp]
    seed: int = 0
    # Two groups are one question, however it is put: gaps and information share its answer.
    _answers: dict[bytes, Fitted] = field(default_factory=dict, repr=False, compare=False)

    @property
    def n(self) -> int:
        return len(self.fold)

    @property
    def n_folds(self) -> int:
        return int(self.fold.max()) + 1

    @cached_property
    def splines(self) -> Matrix:
        """(n, d): natural cubic splines of numbers, levels of categories, products of pairs."""
        parts: list[Matrix] = []
        lines: list[Vector] = []
        for column in self.controls.columns:
            part, line = _basis(column, self.n)
            parts.append(part)
            lines += line
        if 1 < len(lines) <= MOST_PAIRED:
            pairs = [a * b for i, a in enumerate(lines) for b in lines[:i]]
            parts.append(np.column_stack(pairs))
        X = np.column_stack(parts)
        X = X - X.mean(axis=0)
        spread = X.std(axis=0)
        kept = spread > 1e-10 * np.maximum(np.abs(X).max(axis=0), 1e-300)
        return np.ascontiguousarray(X[:, kept] / spread[kept])

    @cached_property
    def trees(self) -> tuple[Matrix, list[bool]]:
        """(n, p) with gaps as NaN, and which columns are categories.

        Numbers are in bins already, which boosting makes of them anyway, at a high cost where rows
        have weights.
        """
        columns = [
            _binned(c.values) if c.values is not None else np.asarray(c.codes, dtype=np.float64)
            for c in self.controls.columns
        ]
        return np.column_stack(columns), [not c.is_number for c in self.controls.columns]

    def regress(self, target: Vector, mass: Vector) -> Fitted:
        """E[target | C] among rows in proportion to their `mass`, predicted for all rows."""
        center = float(np.average(target, weights=mass))
        scale = float(np.sqrt(np.average(np.square(target - center), weights=mass)))
        if not scale > 0.0:
            return Fitted(np.full(self.n, center), "constant")
        z = (target - center) / scale
        fits = self._ridge_fits(z[:, None], mass)
        smooth = self._predict(fits, z[:, None])[:, 0]

        def pull(u: Vector) -> Vector:
            out = np.zeros(self.n)
            for test, fit, penalty in fits:
                out[~test] += fit.pull(self.splines[test], u[test], self.splines[~test], penalty[0])
            return out

        def loss(prediction: Vector, rows: Any = slice(None)) -> float:
            return float(mass[rows] @ np.square(z[rows] - prediction[rows]))

        def tree(train: NDArray[np.intp], test: NDArray[np.intp]) -> Vector:
            X, categories = self.trees
            model = _booster("Regressor", categories, len(train), self.seed)
            return model.fit(X[train], z[train], _unequal(mass[train])).predict(X[test])

        rough = self._try_trees(tree, loss, smooth, mass)
        if rough is None:
            return Fitted(center + scale * smooth, "splines", pull)
        step = rough - smooth
        share = float(mass @ (step * (z - smooth))) / max(float(mass @ np.square(step)), 1e-300)
        share = min(max(share, 0.0), 1.0)
        return Fitted(center + scale * (smooth + share * step), _mixture(share), pull)

    def residuals(self, targets: Matrix, mass: Vector) -> Matrix:
        """Targets less their cross-fitted splines; (n, J) each."""
        return targets - self._predict(self._ridge_fits(targets, mass), targets)

    def classify(self, label: Vector, mass: Vector) -> Fitted:
        """P(label = 1 | C) among rows in proportion to their `mass`, predicted for all rows.

        `label` lies in [0, 1]; in between it is a probability.
        """
        key = blake2b(label.tobytes() + mass.tobytes()).digest()
        if key not in self._answers:
            self._answers[key] = self._classify(label, mass)
        return self._answers[key]

    def _classify(self, label: Vector, mass: Vector) -> Fitted:
        smooth = self._logit(label, mass)

        def loss(p: Vector, rows: Any = slice(None)) -> float:
            q, p = label[rows], p[rows]
            return -float(mass[rows] @ (q * np.log(p) + (1 - q) * np.log1p(-p)))

        def tree(train: NDArray[np.intp], test: NDArray[np.intp]) -> Vector:
            X, categories = self.trees
            model = _booster("Classifier", categories, len(train), self.seed)
            # A soft label is one row of each kind.
            sides = [(train, 1, mass[train] * label[train])]
            sides += [(train, 0, mass[train] * (1 - label[train]))]
            parts = [(rows[w > 0], np.full((w > 0).sum(), k), w[w > 0]) for rows, k, w in sides]
            rows, y, w = (np.concatenate(part) for part in zip(*parts, strict=True))
            p = model.fit(X[rows], y, _unequal(w)).predict_proba(X[test])[:, 1]
            return np.clip(p, 1e-6, 1 - 1e-6)

        rough = self._try_trees(tree, loss, smooth, mass, label)
        if rough is None:
            return Fitted(smooth, "splines")
        shares = np.linspace(0.0, 1.0, 21)
        share = float(shares[np.argmin([loss(smooth + t * (rough - smooth)) for t in shares])])
        return Fitted(smooth + share * (rough - smooth), _mixture(share))

    def _try_trees(self, tree, loss, smooth: Vector, mass: Vector, label=None) -> Vector | None:
        """Predictions by trees; None where the first fold shows that they are not worth it."""
        out = smooth.copy()
        # Of many rows the first fold says enough, and trees take their time.
        slack = 1.01 if self.n < MANY_ROWS else 1.0
        for f in range(self.n_folds):
            train = np.flatnonzero((self.fold != f) & (mass > 0))
            test = np.flatnonzero(self.fold == f)
            if len(train) < TREE_ROWS:
                return None
            if label is not None and np.ptp(label[train]) == 0:
                return None
            out[test] = tree(train, test)
            if f == 0 and loss(out, test) > slack * loss(smooth, test):
                return None
        return out

    def _ridge_fits(
        self, targets: Matrix, mass: Vector
    ) -> list[tuple[NDArray[np.bool_], _Moments, Vector]]:
        """Ridge regressions without each fold, with the penalties of GCV over all rows."""
        X = self.splines
        penalty = _Moments(X, targets, mass).best_penalties()
        folds = [self.fold == f for f in range(self.n_folds)]
        return [(f, _Moments(X[~f], targets[~f], mass[~f]), penalty) for f in folds]

    def _predict(
        self, fits: list[tuple[NDArray[np.bool_], _Moments, Vector]], targets: Matrix
    ) -> Matrix:
        out = np.empty_like(targets)
        for test, fit, penalty in fits:
            out[test] = fit.predict(self.splines[test], penalty)
        return out

    def _logit(self, label: Vector, mass: Vector) -> Vector:
        """Out-of-fold logistic regression on the splines, with the penalty of least AIC."""
        X = np.column_stack([np.ones(self.n), self.splines])
        best, score, theta = LOGIT_PENALTIES[0], np.inf, None
        used = mass > 0
        for penalty in LOGIT_PENALTIES:
            theta, found = _newton(X[used], label[used], mass[used], penalty, theta)
            if found >= score:
                break
            best, score, start = penalty, found, theta
        out = np.empty(self.n)
        for f in range(self.n_folds):
            test = self.fold == f
            train = ~test & used
            theta, _ = _newton(X[train], label[train], mass[train], best, start)
            out[test] = expit(np.clip(X[test] @ theta, -MOST_LOGIT, MOST_LOGIT))
        return np.clip(out, 1e-12, 1 - 1e-12)


class _Moments:
    """Weighted sums of a ridge regression, and its solutions for any penalty."""

    def __init__(self, X: Matrix, Y: Matrix, mass: Vector):
        self.total = float(mass.sum())
        self.n = float(self.total**2 / np.square(mass).sum())
        self.share = share = mass / self.total
        self.center, self.mean = share @ X, share @ Y
        centered = X - self.center
        weighted = (centered * share[:, None]).T
        self.values, self.vectors = np.linalg.eigh(weighted @ centered)
        self.values = np.maximum(self.values, 0.0)
        self.cross = self.vectors.T @ (weighted @ (Y - self.mean))
        self.power = share @ np.square(Y - self.mean)

    def best_penalties(self) -> Vector:
        """The penalty of least generalized cross-validation error, for each target."""
        shrink = 1.0 / (self.values[:, None] + PENALTIES)
        squares = np.square(self.cross)
        left = self.power[:, None] - np.einsum(
            "dj,dp->jp", squares, 2 * shrink - self.values[:, None] * shrink**2
        )
        freedom = 1.0 + (self.values[:, None] * shrink).sum(axis=0)
        room = np.maximum(self.n - freedom, 0.5)
        return PENALTIES[np.argmin(np.maximum(left, 0.0) / room**2, axis=1)]

    def predict(self, X: Matrix, penalty: Vector) -> Matrix:
        beta = self.vectors @ (self.cross / (self.values[:, None] + penalty))
        return (X - self.center) @ beta + self.mean

    def pull(self, X: Matrix, u: Vector, train: Matrix, penalty: float) -> Vector:
        """Coefficients of the training values in Σu·(prediction at X)."""
        moved = self.vectors.T @ (u @ (X - self.center)) / (self.values + penalty)
        return self.share * (u.sum() + (train - self.center) @ (self.vectors @ moved))


def _newton(
    X: Matrix, label: Vector, mass: Vector, penalty: float, start: Vector | None
) -> tuple[Vector, float]:
    """Minimize mean log loss + penalty/2·‖θ‖², intercept free; θ and Σ losses + effective terms."""
    share = mass / mass.sum()
    ridge = np.full(X.shape[1], penalty)
    ridge[0] = 1e-9

    def evaluate(theta: Vector) -> tuple[float, Vector]:
        eta = np.clip(X @ theta, -MOST_LOGIT, MOST_LOGIT)
        value = float(share @ (np.logaddexp(0.0, eta) - label * eta))
        return value + 0.5 * float(ridge @ theta**2), eta

    if start is None:
        rate = min(max(float(share @ label), 1e-9), 1 - 1e-9)
        start = np.zeros(X.shape[1])
        start[0] = np.log(rate / (1 - rate))
    theta = start
    value, eta = evaluate(theta)
    for _ in range(50):
        p = expit(eta)
        gradient = X.T @ (share * (p - label)) + ridge * theta
        H = (X * (share * p * (1 - p))[:, None]).T @ X
        A = H + np.diag(ridge + 1e-12)
        step = np.linalg.solve(A, gradient)
        size = 1.0
        while True:
            trial, trial_eta = evaluate(theta - size * step)
            if trial <= value + 1e-14 or size < 1e-4:
                break
            size /= 2
        gain, theta, eta, value = value - trial, theta - size * step, trial_eta, trial
        if gain < 1e-9:
            break
    n = mass.sum() ** 2 / np.square(mass).sum()
    terms = float(np.trace(np.linalg.solve(A, H)))
    return theta, float(n * (value - 0.5 * (ridge @ theta**2)) + terms)


def _basis(column: Control, n: int) -> tuple[Matrix, list[Vector]]:
    """Columns of the spline basis, and those lines of them that products are made of."""
    if column.codes is not None:
        levels = np.arange(1, int(column.codes.max()) + 1)
        table = (column.codes[:, None] == levels).astype(np.float64)
        lines = [] if column.values is None or np.isnan(column.values).any() else [column.values]
        lines = [(line - line.mean()) / (line.std() or 1.0) for line in lines]
        if table.shape[1] == 1 and not lines:
            lines = [table[:, 0] - table[:, 0].mean()]
        return table, lines
    assert column.values is not None
    missing = np.isnan(column.values)
    x = np.where(missing, np.median(column.values[~missing]), column.values)
    # Tails are drawn in, so that a few extreme values do not own the line.
    middle, spread = float(np.median(x)), float(np.subtract(*np.quantile(x, [0.75, 0.25])))
    spread = spread / 1.35 or float(x.std()) or 1.0
    z = (x - middle) / spread
    knots = np.unique(np.quantile(z, np.linspace(0.03, 0.97, 5 if n < 5000 else 8)))
    parts = [z[:, None], *([natural_spline(z, knots)] if len(knots) > 2 else [])]
    if np.abs(z).max() > 20:
        parts.append(np.arcsinh(z)[:, None])
    if missing.any():
        parts.append(missing.astype(np.float64)[:, None])
    return np.column_stack(parts), [np.clip(z, -4, 4)]


def natural_spline(z: Vector, knots: Vector) -> Matrix:
    """Natural cubic splines beyond the line: m − 2 columns for m knots, linear outside them.

    d_j(z) − d_{m−1}(z) with d_j = [(z − t_j)₊³ − (z − t_m)₊³] / (t_m − t_j).
    """
    above = np.maximum(z[:, None] - knots, 0.0) ** 3
    d = (above[:, :-1] - above[:, -1:]) / (knots[-1] - knots[:-1])
    return d[:, :-1] - d[:, -1:]


def _binned(values: Vector) -> Vector:
    """Numbers of bins of about equal size, NaN where missing."""
    missing = np.isnan(values)
    edges = np.unique(np.quantile(values[~missing], np.linspace(0.0, 1.0, TREE_BINS + 1)[1:-1]))
    return np.where(missing, np.nan, np.searchsorted(edges, values))


def _unequal(mass: Vector) -> Vector | None:
    return None if mass.min() == mass.max() else mass


def _booster(kind: str, categories: list[bool], n: int, seed: int) -> Any:
    from sklearn import ensemble

    small = n < 5000
    return getattr(ensemble, f"HistGradientBoosting{kind}")(
        max_iter=30 if small else 100, learning_rate=0.2 if small else 0.1,
        max_leaf_nodes=8 if small else 15, early_stopping=False, random_state=seed,
        categorical_features=categories if any(categories) else None,
    )  # fmt: skip


def _mixture(share: float) -> str:
    if share <= 0.025:
        return "splines"
    if share >= 0.975:
        return "boosted trees"
    return f"splines with {100 * share:.0f}% boosted trees"


# ------------------------------------------------------------------------------------------------
# The balancing score of controls: all that they tell about the group, in one number a row.
#
# b(C) = log P(k|C) − log P(rest|C): given b, the group is independent of the controls, so that
# S ⟂ A | C implies S ⟂ A | b(C). Of K groups the chain rule takes one after another, the smallest
# against all others first.


LEAST_PROBABILITY = 1e-6


@dataclass(frozen=True)
class Chain:
    """Groups told apart one after another from the controls.

    Attributes
    ----------
    order : list of int
        Groups, the largest last.
    step : list of Fitted
        P(group | C, none of the groups before it), for all but the last.
    """

    order: list[int]
    step: list[Fitted]

    def probabilities(self, n_groups: int) -> Vector:
        """(m, K): P(A = k | C)."""
        left = np.ones(len(self.step[0].value))
        out = np.empty((len(left), n_groups))
        for k, fitted in zip(self.order, self.step, strict=False):
            out[:, k] = left * fitted.value
            left = left * (1.0 - fitted.value)
        out[:, self.order[-1]] = left
        return out


def fit_chain(groups: Groups, features: Features) -> Chain:
    """Cross-fitted models of every step."""
    membership = groups.membership()
    weight = np.ones(groups.n_known) if groups.weight is None else groups.weight
    order = np.argsort(groups.shares, kind="stable").tolist()
    left = np.ones(groups.n_known)
    steps = []
    for k in order[:-1]:
        label = np.divide(membership[:, k], left, out=np.zeros_like(left), where=left > 1e-12)
        steps.append(features.classify(np.clip(label, 0.0, 1.0), weight * np.maximum(left, 0.0)))
        left = left - membership[:, k]
    return Chain(order, steps)


def log_odds(p: Vector) -> Vector:
    """log p/(1 − p), of probabilities that are nowhere certain."""
    p = np.clip(p, LEAST_PROBABILITY, 1.0 - LEAST_PROBABILITY)
    return np.log(p) - np.log1p(-p)


def control_features(controls: Controls, groups: Groups, seed: int) -> Features:
    """Controls of the known rows, with folds that share out the groups and keep clusters whole."""
    strata = groups.codes if groups.codes is not None else groups.membership().argmax(axis=1)
    return Features(controls, deal_folds(strata, groups.cluster, seed), seed)


def summarize_controls(controls: Controls, groups: Groups, seed: int = 0) -> tuple[Vector, str]:
    """One number a row that stands for the controls where a model is trained, and what it is.

    One numeric control stands for itself. Otherwise it is the balancing score; of more than two
    groups, the direction in which their log-odds against the largest differ most.

    Parameters
    ----------
    controls : Controls
        Of all n rows.
    groups : Groups
    seed : int

    Returns
    -------
    (n,) array
        0 where the group is not known.
    str
    """
    single = controls.single
    if single is not None:
        return single, f"{controls.names[0]} itself"
    if groups.known is not None:
        controls = controls.take(groups.known)
    chain = fit_chain(groups, control_features(controls, groups, seed))
    if groups.n_groups == 2:
        found = log_odds(chain.step[0].value)
        return groups.put_known(found), "the log-odds of the group given the controls"
    p = np.clip(chain.probabilities(groups.n_groups), LEAST_PROBABILITY, 1.0)
    odds = np.log(p) - np.log(p[:, chain.order[-1:]])
    odds = np.delete(odds, chain.order[-1], axis=1)
    weight = np.ones(groups.n_known) if groups.weight is None else groups.weight
    centered = odds - np.average(odds, axis=0, weights=weight)
    # A small group's odds matter as far as there are people to tell apart.
    scaled = centered * np.sqrt(np.delete(groups.shares, chain.order[-1]))
    direction = np.linalg.svd(scaled * np.sqrt(weight)[:, None], full_matrices=False)[2][0]
    direction *= np.sign(direction[np.abs(direction).argmax()])
    words = "the direction in which the log-odds of the groups given the controls differ most"
    return groups.put_known(scaled @ direction), words
