"""The average of the rungs of the adaptive estimator, and the estimate that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Array
from ..data.groups import Groups
from ..data.weights import deal_by_size
from ._cells import Cells, sums
from ._dyadic import Grown, Prior
from ._ladder import Rung

Index = NDArray[np.intp]

# Clusters are left out in at most this many folds.
_FOLDS = 50
# Shares of the average below which a rung does not count.
LEAST_SHARE = 1e-3
# Nats over all rows by which a partition must predict better than a smooth rung to weigh the same:
# with few rows the best of several partitions is often ahead by luck.
HANDICAP = 8.0


@dataclass(frozen=True)
class Data:
    """What all conditions share: weights that add up to the effective rows, groups, folds."""

    weight: Array
    groups: Groups
    folds: Index | None
    prior: Prior
    effective: float


def prepare(groups: Groups) -> Data:
    """Weights in units of effective rows, so that a penalty or a prior means the same to all."""
    weight = np.ones(groups.n_known)
    if groups.weight is not None:
        weight = groups.weight
    effective = groups.n_effective if groups.cluster is None else _worth_of_rows(groups, weight)
    if groups.weight is not None or groups.cluster is not None:
        weight = weight * (effective / weight.sum())
    folds = None if groups.cluster is None else deal_by_size(groups.cluster, _FOLDS)
    return Data(weight, groups, folds, Prior(groups), effective)


def _worth_of_rows(groups: Groups, weight: Array) -> float:
    """Independent rows that clustered ones are worth for learning the group: n / (1 + (m − 1)ρ).

    ρ is the correlation of membership within clusters (its analysis of variance), m the size of the
    cluster of a typical row: as many as there are clusters where each is of one group, and all rows
    where groups mix in them as if by chance.
    """
    assert groups.cluster is not None
    count, n = groups.n_units, float(groups.n_known)
    size = sums(groups.cluster, np.ones(groups.n_known), count)
    member = groups.membership()
    mean = np.stack([sums(groups.cluster, v, count) for v in member.T], axis=1) / size[:, None]
    overall = member.mean(axis=0)
    between = float((size[:, None] * np.square(mean - overall)).sum()) / max(count - 1, 1)
    within = float((size[:, None] * mean * (1.0 - mean)).sum()) / max(n - count, 1.0)
    typical = float(np.square(size).sum()) / n
    apart = (n - typical) / max(count - 1, 1)
    rho = (between - within) / max(between + (apart - 1.0) * within, 1e-300)
    rows = float(weight.sum() ** 2 / np.square(weight).sum())
    worth = rows / (1.0 + (typical - 1.0) * min(max(rho, 0.0), 1.0))
    return min(max(worth, groups.n_effective), rows)


@dataclass(frozen=True)
class Estimate:
    """Pooled losses by entry and the entry of each row; their means; what was chosen.

    `between` is the variance of the estimates of the rungs around the mean they are averaged to.
    `shift` corrects for what no rung resolves, and `doubt` is its standard error.
    """

    inside: Array
    outside: Array
    row_entry: Index
    mean_inside: float
    mean_outside: float
    between: float
    chosen: str
    terms: float
    squares: float
    shift: float
    doubt: float
    prior_bias: float = 1.0

    def rows(self) -> Array:
        lean = lean_of(self.terms, self.squares)
        return (self.prior_bias * blend(self.inside, self.outside, lean) - self.shift)[
            self.row_entry
        ]


@dataclass(frozen=True)
class _Candidate:
    """One rung as pooling sees it; `part` says which entries its losses belong to."""

    words: str
    part: int
    inside: Array
    outside: Array
    mean_inside: float
    mean_outside: float
    terms: float
    squares: float
    shift: float = 0.0
    doubt: float = 0.0
    handicap: float = 0.0

    @property
    def value(self) -> float:
        lean = lean_of(self.terms, self.squares)
        return blend(self.mean_inside, self.mean_outside, lean) - self.shift


def weigh(losses: Sequence[float], effective: float, temperature: float) -> Array:
    """Shares ∝ exp(−n · loss / temperature)."""
    loss = np.array(losses)
    share = np.exp(-effective / temperature * (loss - loss.min()))
    share[share < LEAST_SHARE] = 0.0
    return share / share.sum()


def combine(
    ladders: Sequence[tuple[Cells, list[Rung]]],
    grown: Sequence[Grown],
    alone: Sequence[Estimate],
    data: Data,
    temperature: float,
) -> Estimate:
    """Pool rungs, partitions and the estimates from one variable alone."""
    entries: list[Index] = []
    found: list[_Candidate] = []
    for cells, rungs in ladders:
        found += [
            _Candidate(
                words=r.words,
                part=len(entries),
                inside=r.inside,
                outside=r.outside,
                mean_inside=cells.mean(r.inside),
                mean_outside=cells.mean(r.outside),
                terms=r.terms,
                squares=r.squares,
            )
            for r in rungs
        ]
        entries.append(cells.row_entry)
    for tree in grown:
        found.append(
            _Candidate(
                words=tree.name,
                part=len(entries),
                inside=tree.inside,
                outside=tree.outside,
                mean_inside=tree.mean_inside,
                mean_outside=tree.mean_outside,
                terms=tree.terms,
                squares=tree.terms,
                shift=tree.shift,
                doubt=tree.doubt,
                handicap=HANDICAP,
            )
        )
        entries.append(tree.row_entry)
    for other in alone:
        found.append(
            _Candidate(
                words=other.chosen,
                part=len(entries),
                inside=other.inside,
                outside=other.outside,
                mean_inside=other.mean_inside,
                mean_outside=other.mean_outside,
                terms=other.terms,
                squares=other.squares,
                shift=other.shift,
                doubt=other.doubt,
            )
        )
        entries.append(other.row_entry)
    share = weigh(
        [c.mean_outside + c.handicap / data.effective for c in found], data.effective, temperature
    )
    averaged = any(cells.spread.any() for cells, _ in ladders)
    pooled = _average(found, entries, share, data, averaged)
    # With these weights the average is within T·log(rungs) of the best rung, over all rows; more
    # means that something went wrong on the way, and then the best one stands alone. (Always
    # keeping the best one costs up to 17 % of the error at 500 rows: it is often ahead by luck.)
    slack = temperature * np.log(len(found)) + HANDICAP
    best = int(np.argmin([c.mean_outside for c in found]))
    if not pooled.mean_outside <= found[best].mean_outside + slack / data.effective:
        only = np.zeros(len(found))
        only[best] = 1.0
        pooled = _average(found, entries, only, data, averaged)
    return pooled


def _average(
    found: Sequence[_Candidate], entries: Sequence[Index], share: Array, data: Data, averaged: bool
) -> Estimate:
    """The average of candidates with given shares; the heaviest one in words."""
    used = [int(j) for j in np.flatnonzero(share)]
    terms = float(sum(share[j] * found[j].terms for j in used))
    squares = float(sum(share[j] * found[j].squares for j in used))
    parts: list[tuple[Array, Array, Index, float]] = []
    for part in sorted({found[j].part for j in used}):
        mine = [j for j in used if found[j].part == part]
        own = float(share[mine].sum())
        within = share[mine] / own
        inside = _pool([found[j].inside for j in mine], within)
        outside = _pool([found[j].outside for j in mine], within)
        parts.append((inside, outside, entries[part], own))
    inside, outside, row_entry, _ = parts[0]
    if len(parts) > 1:
        # The entries of different parts are different sets of rows. Where memberships were averaged
        # over them, only their mean losses can be compared, not those of one row.
        weight = np.array([part[3] for part in parts])
        merge = _mean if averaged else _pool
        inside = merge([part[0][part[2]] for part in parts], weight)
        outside = merge([part[1][part[2]] for part in parts], weight)
        row_entry = np.arange(len(row_entry))
    amount = sums(row_entry, data.weight, len(inside))
    mean_inside, mean_outside = (float(amount @ v / amount.sum()) for v in (inside, outside))
    values = np.array([found[j].value for j in used])
    weights = share[used]
    between = float(weights @ np.square(values - weights @ values))
    shift = float(sum(share[j] * found[j].shift for j in used))
    doubt = float(sum(share[j] * found[j].doubt for j in used))
    words = found[int(np.argmax(share))].words
    return Estimate(
        inside=inside,
        outside=outside,
        row_entry=row_entry,
        mean_inside=mean_inside,
        mean_outside=mean_outside,
        between=between,
        chosen=words,
        terms=terms,
        squares=squares,
        shift=shift,
        doubt=doubt,
    )


def lean_of(terms: float, squares: float) -> float:
    """λ = 1 − Σa² / 2Σa, from the traces of the smoothing matrix and of its square."""
    return 1.0 - 0.5 * squares / terms


def blend(inside: Any, outside: Any, lean: float) -> Any:
    return (1.0 - lean) * inside + lean * outside


def prior_bias(cells: Cells, constant: Rung) -> float:
    """H(A) of the shares over its own estimate from in-sample and leave-one-out loss."""
    inside, outside = cells.mean(constant.inside), cells.mean(constant.outside)
    return inside / blend(inside, outside, 0.5)


def _pool(losses: Sequence[Array], share: Array) -> Array:
    """−log Σ share · exp(−loss): the loss of the averaged probability."""
    if len(losses) == 1:
        return losses[0]
    least = np.minimum.reduce(losses)
    return least - np.log(sum(w * np.exp(least - v) for v, w in zip(losses, share, strict=True)))


def _mean(losses: Sequence[Array], share: Array) -> Array:
    return np.tensordot(share, np.stack(losses), axes=1)
