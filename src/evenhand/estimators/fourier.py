"""Logistic regression on random Fourier features, cross-fitted: the paper's LR-RKS reference.

    φ_d(z) = √(2/D) cos(ω_d·z + b_d),  ω_d ~ N(0, 2γ I),  b_d ~ U(0, 2π)
    ρ_k(z) ∝ exp(φ(z)·w_k + c_k)

(Rahimi and Recht, "Weighted sums of random kitchen sinks", 2008.) Flexible and slow; here to check
the faster estimators against.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgWarning
from scipy.spatial.distance import pdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state

from .._core.validation import InputError
from ..data.criteria import Condition
from ..data.groups import Groups
from ..data.weights import cluster_folds
from .estimation import RowLosses
from .ranks import typical_spread

# Inverse penalties tried; the features have unit length, so these span "almost the shares" to
# "almost no penalty".
PENALTIES = (0.1, 1.0, 10.0, 100.0)
# Rows used to choose the penalty and the width of the kernel.
CHOICE_ROWS = 5_000
WIDTH_ROWS = 1_000
# Above this many weights, L-BFGS is cheaper than forming a Hessian.
MAX_NEWTON_WEIGHTS = 600
# Rows whose features are held at once when predicting.
BLOCK = 65_536


@dataclass(frozen=True)
class Fourier:
    """H(A|Z) = −mean log ρ(aᵢ|zᵢ), ρ fitted on random Fourier features of the *other* folds.

    Parameters
    ----------
    n_components : int
        D, the number of random features.
    n_folds : int
        Folds of the cross-fitting, stratified by group; whole clusters where rows are clustered.
        Lowered to the number of rows or clusters.
    C : float, optional
        Inverse penalty of scikit-learn's LogisticRegression. By default the one of
        `PENALTIES` with the least cross-fitted loss on at most 5,000 rows.
    gamma : float, optional
        Kernel exp(−γ‖z − z'‖²) on standardized z. By default 1 / (2 × squared median distance).
    random_state : int, RandomState or None
        Draws features, folds and the rows that choose C and γ.

    Notes
    -----
    Every loss comes from a fit that did not see its row, so an entropy is high, and information
    low, by about (number of effective weights) / 2n. Probabilities are mixed with the shares of
    the groups at the rate 1/n, so a group that a fold's fit has not seen costs a finite loss; n is
    the effective number of rows or clusters.

    Weights enter the fits as they are. With membership probabilities each row is entered
    once per group with its probability as weight, and its loss is −Σ_k p_ik log ρ_k(zᵢ).

    Memory is n × `n_components` floats.
    """

    n_components: int = 100
    n_folds: int = 5
    C: float | None = None
    gamma: float | None = None
    random_state: Any = 0

    def __post_init__(self) -> None:
        for name, least in (("n_components", 1), ("n_folds", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise TypeError(f"`{name}` must be an integer, got {value!r}.")
            if value < least:
                raise InputError(name, f"be at least {least}, got {value}")
        for name in ("C", "gamma"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise InputError(
                    name, f"be a positive number or None, got {value!r}",
                    hint="leave it out to have it chosen from the data.",
                )  # fmt: skip

    def row_losses(
        self,
        variables: Mapping[str, NDArray[np.float64]],
        conditions: Sequence[Condition],
        groups: Groups,
    ) -> dict[Condition, RowLosses]:
        """Per-row terms of H(A|Z); see `EntropyEstimator`."""
        random = check_random_state(self.random_state)
        membership, weight = groups.membership(), groups.weight
        if weight is None:
            weight = np.ones(groups.n_known)
        # A proxy has no strata; its likeliest group spreads the rows about as evenly.
        strata = membership.argmax(axis=1)
        some = np.flatnonzero(weight > 0)
        chosen_rows = some
        if len(some) > CHOICE_ROWS:
            chosen_rows = random.choice(some, CHOICE_ROWS, replace=False)
        seed = random.randint(np.iinfo(np.int32).max)
        if groups.cluster is None:
            folds = _stratified_folds(strata, self.n_folds, random)
        else:
            n_folds = min(self.n_folds, groups.n_units)
            folds = cluster_folds(groups.cluster, strata, n_folds, random)
        guess = groups.shares / max(groups.n_effective, 2.0)
        out = {}
        for condition in conditions:
            z = _standardize(np.column_stack([variables[name] for name in condition]), weight)
            gamma = self.gamma
            if gamma is None:
                gamma = _median_gamma(z[chosen_rows[:WIDTH_ROWS]])
            sampler = RBFSampler(gamma=gamma, n_components=self.n_components, random_state=seed)
            sampler.fit(z)
            best = self.C
            if best is None:
                at = (z[chosen_rows], membership[chosen_rows], weight[chosen_rows])
                found = {
                    C: np.average(
                        _cross_fit(sampler, C, *at, folds[chosen_rows], guess),
                        weights=weight[chosen_rows],
                    )
                    for C in PENALTIES
                }
                best = min(found, key=found.__getitem__)
            value = _cross_fit(sampler, best, z, membership, weight, folds, guess)
            words = f"logistic on {self.n_components} Fourier features, C = {best:g}"
            out[condition] = RowLosses(value, value, words)
        return out


def _stratified_folds(
    strata: NDArray[np.intp], n_folds: int, random: np.random.RandomState
) -> NDArray[np.intp]:
    """Fold of each row: every stratum dealt out in turn, starting where the last one ended."""
    order = random.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    folds = np.empty(len(strata), dtype=np.intp)
    folds[order] = np.arange(len(strata)) % min(n_folds, len(strata))
    return folds


def _standardize(z: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = np.abs(z).max(axis=0)
    z = z / np.where(largest > 0, largest, 1.0)  # variances near the largest float overflow
    z = z - np.average(z, axis=0, weights=weight)
    spread = np.array([typical_spread(column, weight) for column in z.T])
    return z / np.where(spread > 1e-300, spread, 1.0)


def _median_gamma(z: NDArray[np.float64]) -> float:
    distances = pdist(z)
    # Where most pairs coincide (point masses), their median says nothing about the rest.
    distances = distances[distances > 0]
    if not len(distances):
        return 1.0
    return float(1.0 / (2.0 * max(np.median(distances), 1e-6) ** 2))


def _cross_fit(
    sampler: RBFSampler,
    C: float,
    z: NDArray[np.float64],
    membership: NDArray[np.float64],
    weight: NDArray[np.float64],
    folds: NDArray[np.intp],
    guess: NDArray[np.float64],
) -> NDArray[np.float64]:
    """−Σ_k p_ik log ρ_k(zᵢ) per row, ρ fitted without the row's fold and mixed with a guess.

    `guess` (K,) adds up to its share of the mixture.
    """
    features = sampler.transform(z)
    losses = np.empty(len(z))
    for fold in np.unique(folds):
        inside = folds != fold
        predict = _fit(C, features[inside], membership[inside], weight[inside])
        outside = np.flatnonzero(~inside)
        for start in range(0, len(outside), BLOCK):
            rows = outside[start : start + BLOCK]
            proba = (1.0 - guess.sum()) * predict(features[rows]) + guess
            losses[rows] = -(membership[rows] * np.log(proba)).sum(axis=1)
    return losses


def _fit(
    C: float,
    features: NDArray[np.float64],
    membership: NDArray[np.float64],
    weight: NDArray[np.float64],
) -> Any:
    """A function from features to (rows, K) probabilities, zero for groups not seen."""
    n_groups = membership.shape[1]
    entry_weight = weight[:, None] * membership
    rows, labels = np.nonzero(entry_weight > 0)
    seen = np.unique(labels)
    if len(seen) < 2:
        certain = np.zeros(n_groups)
        certain[seen] = 1.0
        return lambda features: np.tile(certain, (len(features), 1))
    small = features.shape[1] * len(seen) <= MAX_NEWTON_WEIGHTS
    if small:
        model = LogisticRegression(C=C, solver="newton-cholesky", max_iter=100, tol=1e-5)
    else:
        model = LogisticRegression(C=C, solver="lbfgs", max_iter=100, tol=1e-4)
    known_once = len(rows) == len(features) and (rows == np.arange(len(features))).all()
    with warnings.catch_warnings():
        # The penalty keeps any fit finite, and a loss off in its fourth digit is no news.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", LinAlgWarning)
        model.fit(features if known_once else features[rows], labels, entry_weight[rows, labels])

    def predict(features: NDArray[np.float64]) -> NDArray[np.float64]:
        proba = np.zeros((len(features), n_groups))
        proba[:, seen] = model.predict_proba(features)
        return proba

    return predict
