"""I(joint;A) − I(given;A) of a measurement A, from ladders of fitted density ratios.

Each condition has a ladder of rungs of growing size (`density_fits`). With r parameters the mean
log ratio of the fitted rows is too large by about r/2n, which is taken out (`_Ladder.make`); what a
rung then lacks is the part of the law that it cannot follow. In the rung that predicts best, that
is about as much as its noise. An estimate of information wants less of it: from the rung that
predicts best one climbs as long as a larger one differs by more than chance (Lepski's rule,
`_stop`). Both conditions of a criterion are on the same rung, where much of the bias cancels.
Errors are those of the rows' log ratios by the rungs that predict best.

For laws that nothing smooth follows there are probabilities of 16 quantile classes of A by
`classifiers.adaptive`, which take over where they find more information by more than three standard
errors of the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, logsumexp

from .._kernels.threads import one_blas_thread
from ..groups.clusters import cluster_sums
from ..groups.sensitive import Groups
from .classifiers._cells import cut, merge_copies
from .classifiers._pooling import lean_of, weigh
from .criteria import NOTHING, Condition, word_for
from .density_fits import Array, Design, Grid, Index, fit, make_grid
from .estimation import EntropyEstimator, RowLosses, refuse_many_variables

# What is given, and what is given with what is tested.
Pair = tuple[Condition, Condition]

# Classes of A for laws that nothing smooth follows, and by how many standard errors they must win.
# With fewer rows for each class they are often ahead by luck.
CLASSES, SURE, _PER_CLASS = 16, 3.0, 20.0
TEMPERATURE = 4.0
# Functions of u; total degree of those of z, and the degree up to which each variable has its own;
# and by what roughness is multiplied for the penalty.
_RUNGS = (
    (2, 1, 1, 1.0), (2, 2, 2, 1.0), (3, 3, 3, 1.0), (4, 4, 6, 10.0), (6, 5, 9, 100.0),
    (6, 5, 9, 10.0), (8, 6, 13, 10.0),
)  # fmt: skip
# Parameters of a rung for each row: of those it is fitted with, and of those that count.
_MOST, _TRUSTED = 0.2, 0.08
# Standard errors of a difference beyond which one climbs.
_CLIMB = 2.5
# In rows that few others are near, fitting gains more than r/2n and leaving them out loses more
# still. For a count of a few rows, of which that is the limit, the one is true with a quarter of
# the other.
_LEFT_OUT = 0.25


def measured_ratios(
    variables: Mapping[str, Array], pairs: Sequence[Pair], groups: Groups,
    estimator: EntropyEstimator,
) -> dict[Pair, RowLosses]:  # fmt: skip
    """log p(a|joint)/p(a|given) of each row, whose mean is the information, for every pair."""
    from .classifiers.adaptive import Adaptive

    if not isinstance(estimator, Adaptive):
        raise ValueError(
            f"`estimator` must be 'auto' with a Continuous attribute, got {estimator!r}. Hint: the "
            "others estimate groups; cut the attribute with evenhand.bands for them."
        )
    conditions = [c for c in dict.fromkeys(sum(pairs, ())) if c != NOTHING]
    refuse_many_variables(conditions, "auto")
    assert groups.measured is not None
    once = _without_copies(variables, list(dict.fromkeys(sum(conditions, ()))), groups)
    if once is not None:
        variables, fewer, place = once
        found = measured_ratios(variables, pairs, fewer, estimator)
        return {
            pair: replace(
                ratios, value=ratios.value[place], influence=ratios.influence[place],
                merged=ratios.merged + len(place) - fewer.n_known,
            )
            for pair, ratios in found.items()
        }  # fmt: skip
    weight = np.ones(groups.n_known) if groups.weight is None else groups.weight
    u = make_grid(groups.measured, weight)
    with one_blas_thread():
        grids = {
            name: make_grid(variables[name], weight) for name in dict.fromkeys(sum(conditions, ()))
        }
        smooth = {
            c: _Ladder.make(u, [grids[name] for name in c], c, groups) for c in conditions
        }  # fmt: skip
    rough: dict[Condition, RowLosses] = {}
    if groups.n_effective >= _PER_CLASS * CLASSES:
        classes = _classes(u, groups)
        rough = {
            c: _against_shares(losses, classes)
            for c, losses in estimator.row_losses(variables, conditions, classes).items()
        }
    better = {c for c in rough if _wins(rough[c].value, smooth[c].losses, groups)}
    return {
        pair: _rough_ratio(pair, better, rough, smooth, groups)
        if better & set(pair)
        else _smooth_ratio(smooth.get(pair[0]), smooth.get(pair[1]), groups)
        for pair in pairs
    }


def _without_copies(
    variables: Mapping[str, Array], names: list[str], groups: Groups
) -> tuple[dict[str, Array], Groups, Index] | None:
    """Rows alike in all variables and in the attribute as one of their weight (`merge_copies`)."""
    if not names:
        return None
    assert groups.measured is not None
    weight = np.ones(groups.n_known) if groups.weight is None else groups.weight
    columns = {name: variables[name] for name in names}
    levels = {name: cut(column, weight) for name, column in columns.items()}
    _, codes = np.unique(groups.measured, return_inverse=True)
    merged = merge_copies(columns, levels, replace(groups, codes=codes.astype(np.intp)))
    if merged is None:
        return None
    reduced, fewer, place = merged
    measured = np.empty(fewer.n_known)
    measured[place] = groups.measured
    return reduced, replace(fewer, measured=measured), place


def _smooth_ratio(given: _Ladder | None, joint: _Ladder | None, groups: Groups) -> RowLosses:
    if joint is None or joint is given:
        none = np.zeros(groups.n_known)
        return RowLosses(none, none, "no dependence")
    value, noise, rows = joint.value, joint.noise, -joint.losses
    if given is not None:
        count = min(len(value), len(given.value))
        value, noise = value[:count] - given.value[:count], noise[:count] - given.noise[:count]
        rows = rows + given.losses
    share = _stop(value, noise, min(joint.best, len(value) - 1), joint.last)
    nats = float(share @ value)
    n = groups.n_effective
    return RowLosses(
        rows + (nats - float(np.average(rows, weights=groups.weight))), rows,
        joint.names[int(np.argmax(share))], 2.0 * n * n * float(share @ noise),
        float(share @ np.square(value - nats)),
    )  # fmt: skip


def _stop(value: Array, noise: Array, best: int, last: int) -> Array:
    """Shares of the rungs: how likely it is that one stops at each on the way up from the best.

    One goes on where some larger rung says something else by more than `_CLIMB` standard errors,
    and with a chance of one half where it is just that.
    """
    share = np.zeros(len(value))
    left, last = 1.0, min(max(last, best), len(value) - 1)
    for k in range(best, last):
        apart = np.square(value[k + 1 : last + 1] - value[k])
        errors = apart / np.maximum(noise[k + 1 : last + 1] - noise[k], 1e-30)
        go = float(expit(errors.max() - _CLIMB**2))
        share[k] = left * (1.0 - go)
        left *= go
    share[last] = left
    return share


def _rough_ratio(
    pair: Pair, better: set[Condition], rough: Mapping[Condition, RowLosses],
    smooth: Mapping[Condition, _Ladder], groups: Groups,
) -> RowLosses:  # fmt: skip
    """Each condition by whatever finds more about it."""

    def losses(condition: Condition) -> RowLosses:
        if condition in better:
            return rough[condition]
        if condition == NOTHING:
            none = np.zeros(groups.n_known)
            return RowLosses(none, none, "no dependence")
        ladder = smooth[condition]
        return RowLosses(ladder.losses, ladder.losses, ladder.chosen, ladder.terms)

    given, joint = (losses(c) for c in pair)
    return RowLosses(
        given.value - joint.value, given.influence - joint.influence, joint.chosen,
        abs(joint.terms - given.terms), joint.between, joint.merged,
    )  # fmt: skip


def _against_shares(losses: RowLosses, classes: Groups) -> RowLosses:
    """−log p(class|z)/p(class)."""
    shares = -np.log(classes.shares)[classes.codes]
    return RowLosses(
        losses.value - shares, losses.influence - shares, f"{losses.chosen} of {CLASSES} classes",
        losses.terms, losses.between, losses.merged,
    )  # fmt: skip


def _wins(rough: Array, smooth: Array, groups: Groups) -> bool:
    gain = smooth - rough
    mean = float(np.average(gain, weights=groups.weight))
    parts = (gain - mean) if groups.weight is None else (gain - mean) * groups.weight
    if groups.cluster is not None:
        parts = cluster_sums(groups.cluster, parts)
    return mean > SURE * float(np.linalg.norm(parts)) / groups.n_known


def _classes(u: Grid, groups: Groups) -> Groups:
    """Quantile classes of A, of which a value that many rows share is never cut."""
    mass = np.bincount(u.codes, groups.weight)
    rank = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    _, cell = np.unique((rank * CLASSES).astype(np.intp), return_inverse=True)
    codes = cell[u.codes].astype(np.intp)
    labels = tuple(range(int(cell.max()) + 1))
    return Groups(
        labels, codes, None, groups.weight, None, groups.n_known, groups.name, groups.cluster
    )


@dataclass(frozen=True)
class _Ladder:
    """The rungs of one condition, from "no dependence" on.

    Attributes
    ----------
    value, noise : arrays
        Information by each rung without the bias of fitting, and its variance due to fitting.
    best, last : int
        The rung that predicts best, and the last one with few enough parameters to be trusted.
    losses : (n,) array
        −log ratio of each row by the average of the rungs that predict best.
    names, chosen : str
    terms : float
        Parameters behind `losses`.
    """

    value: Array
    noise: Array
    best: int
    last: int
    losses: Array
    names: list[str]
    chosen: str
    terms: float

    @classmethod
    def make(cls, u: Grid, given: list[Grid], condition: Condition, groups: Groups) -> _Ladder:
        design = Design.make(u, given, groups)
        n = groups.n_effective
        # Rows of a cluster are no r/2n to go by.
        left_out = _LEFT_OUT if groups.cluster is None else 1.0
        words = " and ".join(map(word_for, condition))
        null = np.zeros(len(design.entry_weight))
        inside, outside, names = [null], [null], ["no dependence"]
        value, terms, squares, last = [0.0], [0.0], [0.0], 0
        start = None
        for n_u, degree, alone, kappa in _RUNGS:
            size = min(n_u, len(u.points) - 1)
            columns = design.columns(degree, alone)
            if size * len(columns) > _MOST * n:
                break
            fitted = fit(design, size, columns, kappa, start)
            start = fitted.by_column()
            gained = -float(design.entry_weight @ fitted.inside)
            lost = gained + float(design.entry_weight @ fitted.outside)
            lean = lean_of(fitted.terms, fitted.squares)
            excess = lean * (left_out * lost + (1.0 - left_out) * fitted.terms / n)
            value.append(gained - excess)
            inside.append(fitted.inside)
            outside.append(fitted.outside)
            terms.append(fitted.terms)
            squares.append(fitted.squares)
            names.append(f"density of {size} × {len(columns)} terms of {words}")
            if fitted.terms > _TRUSTED * n:
                break
            last = len(value) - 1
        means = [float(design.entry_weight @ loss) for loss in outside]
        share = weigh(means, n, TEMPERATURE)
        used = np.flatnonzero(share)
        log_share = np.log(share[used])[:, None]
        pooled_in, pooled_out = (
            -logsumexp(log_share - np.stack([losses[k] for k in used]), axis=0)
            for losses in (inside, outside)
        )
        pooled = float(share @ terms)
        lean = lean_of(pooled, float(share @ squares)) if pooled > 0 else 0.5
        losses = (1.0 - lean) * pooled_in + lean * pooled_out
        return cls(
            np.array(value), 0.5 * np.array(squares) / n**2, int(np.argmin(means)), last,
            losses[design.row_entry], names, names[int(np.argmax(share))], pooled,
        )  # fmt: skip
