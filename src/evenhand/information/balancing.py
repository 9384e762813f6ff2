"""The balancing score of controls: all that they tell about the group, in one number a row.

b(C) = log P(k|C) − log P(rest|C): given b, the group is independent of the controls, so that
S ⟂ A | C implies S ⟂ A | b(C). Of K groups the chain rule takes one after another, the smallest
against all others first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..groups.controls import Controls
from ..groups.sensitive import Groups
from .nuisance import Features, Fitted, deal_folds

Vector = NDArray[np.float64]
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
