"""The ``"auto"`` estimator: Ĥ(A|Z) from the leave-one-out loss of a ladder, less what fitting cost.

Variables are replaced by the normal scores of their mid-ranks (information does not change under
monotone maps), and the group is regressed on them by multinomial logistic regression with a
ladder of bases: a constant, linear, quadratic, then smoothing splines of falling penalty and, for
discrete data, the table of cells. For two variables there are the splines of both without their
products, and with them in several coordinate systems: the two scores, and one of them with the
residual of the other. The probabilities of the rungs are averaged, with weights by their
leave-one-out loss (one Newton step per row).

A direction of the basis that the penalty leaves a share a of lowers the in-sample loss of noise by
(a − a²/2)/n on average and raises the leave-one-out loss by a²/2n. The estimate is the mean of the
two losses with the weight λ = 1 − Σa² / 2Σa on the second, for which both cancel: ½ without a
penalty, more with one.

Beyond a few thousand rows all of this works on the cells of a fine grid of ranks, so that only
finding each row's cell grows with n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._kernels.threads import one_blas_thread
from ..criteria import Condition
from ..estimation import RowLosses
from ..sensitive import Groups
from ._cells import Cells, Levels, cut, gather_one, gather_two, merge_copies, sums
from ._designs import LARGE_ROWS, Design, designs, trim
from ._multinomial import fit
from ._spline_basis import smooth

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Rows beyond which rungs are weighed on a coarse grid, and beyond which they are fitted on a fine
# one. A grid of B bins a side loses about g²/(200 B²) nats where the log odds change by g per
# standard deviation: 3e-6 at B = 128 and g = 3, far below the sampling error of 16,000 rows.
_COARSE_ROWS, _COARSE_BINS = 4096, 64
_FINE_ROWS, _FINE_BINS = 16384, 128
# A column in which the penalty outweighs the data, at most ¼ a row, by ten to one is left out. The
# last digits keep a tie from being decided by rounding.
_NEGLIGIBLE = 2.5 * (1.0 + 1e-9)
# With few rows, rougher fits than the last are so far from quadratic in a row's weight that one
# Newton step does not tell what leaving it out does; with many they may be needed.
_PENALTIES, _ROUGH_PENALTIES = (15000.0, 2000.0, 250.0, 30.0, 4.0), (0.5, 0.06)
# Ridges on the terms that smoothing leaves free. The weak one keeps separated groups finite; the
# others shrink a quadratic where there is little to see.
_RIDGE, _SHRINKAGES = 0.05, (4.0, 16.0)
# Most cells of a table of discrete data.
_MAX_TABLE = 4096


@dataclass(frozen=True)
class _Rung:
    """One fit: how to repeat it, and the losses of the entries it was fitted on."""

    name: str
    inside: Array
    outside: Array
    terms: float
    squares: float
    design: int = -1
    top: int = 0
    penalty: float = 0.0
    ridge: float = 0.0
    theta: Array | None = None


@dataclass(frozen=True)
class _Estimate:
    """Pooled losses by entry and the entry of each row; means of its own rungs; what was chosen.

    `between` is the variance of the estimates of the rungs around the mean they are averaged to.
    """

    inside: Array
    outside: Array
    row_entry: Index
    mean: float
    mean_outside: float
    between: float
    chosen: str
    terms: float
    squares: float
    prior_bias: float

    def rows(self) -> Array:
        lean = _lean(self.terms, self.squares)
        return (self.prior_bias * _blend(self.inside, self.outside, lean))[self.row_entry]


class Adaptive:
    """Ĥ(A|Z) = (1 − λ) · in-sample + λ · leave-one-out log loss of a ladder of bases, pooled.

    λ = 1 − tr S² / 2 tr S for a fit with the smoothing matrix S.

    Parameters
    ----------
    temperature : float
        Probabilities of the rungs are averaged with weights ∝ exp(−n · loss / temperature), where
        loss is the leave-one-out loss in nats; towards 0 only the best one counts.

    Notes
    -----
    Costs one sort of each variable (beyond 100,000 rows a search among sample quantiles), and
    beyond 16,384 rows an amount that does not depend on n.
    The result does not change under increasing maps of a variable nor, up to the placing of the
    grid, under decreasing ones. Copies of a row are taken for one row of greater weight.

    The entropies are scaled so that with nothing to condition on the estimate is the H(A) of the
    group shares: both then share its small-sample bias, which cancels in every criterion.
    """

    def __init__(self, temperature: float = 4.0) -> None:
        if not temperature > 0:
            raise ValueError(f"`temperature` must be positive, got {temperature}.")
        self.temperature = temperature

    def __repr__(self) -> str:
        return f"Adaptive(temperature={self.temperature})"

    def row_losses(
        self,
        variables: Mapping[str, Array],
        conditions: Sequence[Condition],
        groups: Groups,
    ) -> dict[Condition, RowLosses]:
        """Estimate H(A|Z) for every condition asked for."""
        with one_blas_thread():
            return self._row_losses(variables, conditions, groups)

    def _row_losses(
        self,
        variables: Mapping[str, Array],
        conditions: Sequence[Condition],
        groups: Groups,
    ) -> dict[Condition, RowLosses]:
        names = sorted({name for condition in conditions for name in condition})
        weight = np.ones(groups.n_known) if groups.weight is None else groups.weight
        levels = {name: cut(variables[name], weight) for name in names}
        whole = merge_copies({name: variables[name] for name in names}, levels, groups)
        if whole is not None:
            variables, groups, place = whole
            fewer = self._row_losses(variables, conditions, groups)
            return {
                condition: replace(found, value=found.value[place], influence=found.value[place])
                for condition, found in fewer.items()
            }
        # No row is a copy of another, but people can share their score or their target.
        single = {}
        for name in names:
            merged = merge_copies({name: variables[name]}, levels, groups)
            if merged is None:
                single[name] = self._one(name, levels[name], weight, groups)
                continue
            reduced, merged_groups, place = merged
            assert merged_groups.weight is not None
            own = cut(reduced[name], merged_groups.weight)
            found = self._one(name, own, merged_groups.weight, merged_groups)
            single[name] = replace(found, row_entry=found.row_entry[place])
        out = {}
        for condition in conditions:
            if len(condition) == 1:
                found = single[condition[0]]
            else:
                found = self._two(condition, levels, single, weight, groups)
            rows = found.rows()
            out[condition] = RowLosses(rows, rows, found.chosen, found.terms, found.between)
        return out

    def _one(self, name: str, level: Levels, weight: Array, groups: Groups) -> _Estimate:
        cells = gather_one(level, weight, groups)
        rungs = self._climb(cells, (name,), groups.n_effective)
        share = self._weigh([cells.mean(rung.outside) for rung in rungs], groups.n_effective)
        return _combine(cells, rungs, share, [], _prior_bias(cells, rungs[0]))

    def _two(
        self,
        names: Condition,
        levels: Mapping[str, Levels],
        single: Mapping[str, _Estimate],
        weight: Array,
        groups: Groups,
    ) -> _Estimate:
        first, second = (levels[name] for name in names)
        mirrored = len(second.rank) - 1 - second.codes
        if any(np.array_equal(first.codes, codes) for codes in (second.codes, mirrored)):
            return single[names[0]]  # one is a monotone map of the other
        n = groups.n_known
        # The (C, K−1, K−1) leverages are the largest array; many groups mean fewer cells.
        room = max(512, int(4e6 / max(groups.n_groups - 1, 1) ** 2))
        coarse, fine = n > min(_COARSE_ROWS, room), n > min(_FINE_ROWS, room)
        bins = min(_FINE_BINS, int(np.sqrt(room)))
        center = None
        if coarse:
            per_level = sums(second.codes, weight, len(second.rank))
            mean = sums(second.codes, weight * first.score[first.codes], len(second.rank))
            mean = mean / np.where(per_level > 0, per_level, 1.0)
            center = smooth(second.score, mean, per_level)
        coarse_bins = min(_COARSE_BINS, bins) if coarse else 0
        cells = gather_two(first, second, center, weight, groups, coarse_bins)
        rungs = self._climb(cells, names, groups.n_effective)
        bias = _prior_bias(cells, rungs[0])
        # A variable that adds nothing is best left out: either one alone is a rung too.
        alone = [single[name] for name in names]

        def weigh() -> Array:
            losses = [cells.mean(rung.outside) for rung in rungs] + [e.mean_outside for e in alone]
            return self._weigh(losses, groups.n_effective)

        share = weigh()
        if coarse:
            least = 0.1 * share.max()
            kept = [r for r, w in zip(rungs, share, strict=False) if w >= least]
            cells = gather_two(first, second, center, weight, groups, bins if fine else 0)
            rungs = _refit(cells, names, kept)
            share = weigh()
        return _combine(cells, rungs, share, alone, bias)

    def _weigh(self, losses: Sequence[float], effective: float) -> Array:
        loss = np.array(losses)
        share = np.exp(-effective / self.temperature * (loss - loss.min()))
        share[share < 1e-3] = 0.0
        return share / share.sum()

    def _climb(self, cells: Cells, names: Condition, effective: float) -> list[_Rung]:
        """Fit the rungs, up each basis for as long as the leave-one-out loss does not rise."""
        slack = self.temperature / effective
        penalties: tuple[float, ...] = _PENALTIES
        if cells.weight.sum() > LARGE_ROWS:
            penalties += _ROUGH_PENALTIES
        makers = designs(cells, names)
        design = trim(makers[0](), cells.counts.shape[1])
        rungs = [_fit_rung(cells, design, 0, top, 0.0, _RIDGE, None) for top in (0, 1, 2)]
        theta = rungs[2].theta
        for ridge in _SHRINKAGES:
            rungs.append(_fit_rung(cells, design, 0, 2, 0.0, ridge, rungs[-1].theta))
        best = min(cells.mean(rung.outside) for rung in rungs)
        if best < 0.1:
            # Nearly separated groups: the ridge itself is what keeps the loss up.
            for ridge in (1e-2 * _RIDGE, 1e-4 * _RIDGE):
                rungs.append(_fit_rung(cells, design, 0, 2, 0.0, ridge, theta))
                theta = rungs[-1].theta
                best = min(best, cells.mean(rungs[-1].outside))
        start = 0
        for number, make in enumerate(makers):
            if number:
                design, theta = trim(make(), cells.counts.shape[1]), None
            tried: dict[int, float] = {}
            low = high = start
            step = start
            while 0 <= step < len(penalties):
                rung = _fit_rung(cells, design, number, 99, penalties[step], _RIDGE, theta)
                rungs.append(rung)
                theta = rung.theta
                tried[step] = cells.mean(rung.outside)
                own, best = min(tried.values()), min(best, *tried.values())
                low, high = min(tried), max(tried)
                if len(tried) > 1 and own > best + slack:
                    break
                if tried[high] <= own + slack and high + 1 < len(penalties):
                    step = high + 1
                elif tried[low] <= own + slack:
                    step = low - 1
                else:
                    break
            start = max(min(tried, key=lambda j: tried[j]) - 1, 0)
        return rungs + _table(cells)


def _lean(terms: float, squares: float) -> float:
    """λ = 1 − Σa² / 2Σa, from the traces of the smoothing matrix and of its square."""
    return 1.0 - 0.5 * squares / terms


def _blend(inside: Any, outside: Any, lean: float) -> Any:
    return (1.0 - lean) * inside + lean * outside


def _prior_bias(cells: Cells, constant: _Rung) -> float:
    """H(A) of the shares over its own estimate from in-sample and leave-one-out loss."""
    inside, outside = cells.mean(constant.inside), cells.mean(constant.outside)
    return inside / _blend(inside, outside, 0.5)


def _pool(losses: Sequence[Array], share: Array) -> Array:
    """−log Σ share · exp(−loss): the loss of the averaged probability."""
    least = np.minimum.reduce(losses)
    return least - np.log(sum(w * np.exp(least - v) for v, w in zip(losses, share, strict=True)))


def _mean(losses: Sequence[Array], share: Array) -> Array:
    return np.tensordot(share, np.stack(losses), axes=1)


def _combine(
    cells: Cells,
    rungs: list[_Rung],
    share: Array,
    alone: Sequence[_Estimate],
    bias: float,
) -> _Estimate:
    """Pool the rungs and the estimates from one variable alone; the heaviest one in words."""
    fits: list[_Rung | _Estimate] = [*rungs, *alone]
    terms = float(share @ [fit.terms for fit in fits])
    squares = float(share @ [fit.squares for fit in fits])
    top = int(np.argmax(share))
    if top >= len(rungs):
        words = alone[top - len(rungs)].chosen
    elif rungs[top].theta is None:
        words = rungs[top].name
    else:
        words = f"{rungs[top].name}, {rungs[top].terms:.0f} terms"
    used = np.flatnonzero(share[: len(rungs)])
    own = float(share[used].sum())
    parts, mean, mean_outside = [], np.inf, np.inf
    if own > 0:
        inside = _pool([rungs[j].inside for j in used], share[used] / own)
        outside = _pool([rungs[j].outside for j in used], share[used] / own)
        parts.append((inside, outside, cells.row_entry, own))
        mean_outside = cells.mean(outside)
        mean = _blend(cells.mean(inside), mean_outside, _lean(terms, squares))
    values = [
        _blend(
            cells.mean(rungs[j].inside),
            cells.mean(rungs[j].outside),
            _lean(rungs[j].terms, rungs[j].squares),
        )
        for j in used
    ]
    values += [estimate.mean for estimate in alone]
    weights = np.append(share[used], share[len(rungs) :])
    between = float(weights @ np.square(np.array(values) - weights @ values))
    for estimate, w in zip(alone, share[len(rungs) :], strict=True):
        if w > 0:
            parts.append((estimate.inside, estimate.outside, estimate.row_entry, float(w)))
    inside, outside, row_entry, _ = parts[0]
    if len(parts) > 1:
        # The entries of different estimates are different sets of rows. Where memberships were
        # averaged over them, only their mean losses can be compared, not those of one row.
        weight = np.array([part[3] for part in parts])
        merge = _mean if cells.spread.any() else _pool
        inside = merge([part[0][part[2]] for part in parts], weight)
        outside = merge([part[1][part[2]] for part in parts], weight)
        row_entry = np.arange(len(row_entry))
    return _Estimate(
        inside, outside, row_entry, mean, mean_outside, between, words, terms, squares, bias
    )


def _fit_rung(
    cells: Cells,
    design: Design,
    number: int,
    top: int,
    penalty: float,
    ridge: float,
    theta: Array | None,
) -> _Rung:
    """Fit the columns of degree up to `top` that the penalty leaves something of."""
    keep = design.degree <= top
    keep &= penalty * design.roughness <= _NEGLIGIBLE * cells.weight.sum()
    shrink = np.where(design.roughness > 0, penalty * design.roughness, ridge)
    shrink[0] = 0.0
    columns = design.columns if keep.all() else np.ascontiguousarray(design.columns[:, keep])
    found = fit(columns, cells, shrink[keep], None if theta is None else theta[:, keep])
    full = np.zeros((len(found.theta), len(keep)))
    full[:, keep] = found.theta
    name = ("constant", "linear", "quadratic")[top] if top < 3 else design.name
    losses = found.inside, found.outside
    sums = found.terms, found.squares
    return _Rung(name, *losses, *sums, number, top, penalty, ridge, full)


def _refit(cells: Cells, names: Condition, rungs: list[_Rung]) -> list[_Rung]:
    """The same rungs on other cells."""
    makers = designs(cells, names)
    built: dict[int, Design] = {}
    tables = {table.name: table for table in _table(cells)}
    out = []
    for rung in rungs:
        if rung.theta is None:
            if rung.name in tables:
                out.append(tables[rung.name])
            continue
        if rung.design not in built:
            built[rung.design] = trim(makers[rung.design](), cells.counts.shape[1])
        args = rung.design, rung.top, rung.penalty, rung.ridge, rung.theta
        out.append(_fit_rung(cells, built[rung.design], *args))
    return out


def _table(cells: Cells) -> list[_Rung]:
    """Shares within each distinct cell, smoothed towards the overall ones; for discrete data."""
    most = min(_MAX_TABLE, 0.25 * cells.weight.sum())
    values = [np.unique(np.round(v, 12), return_inverse=True) for v in cells.coordinates]
    if max(len(distinct) for distinct, _ in values) > most:
        return []
    code = values[0][1]
    for distinct, own in values[1:]:
        code = np.unique(code * len(distinct) + own, return_inverse=True)[1]
    size = int(code.max()) + 1
    if size > most:
        return []
    k = cells.counts.shape[1]
    counts = np.stack([sums(code, column, size) for column in cells.counts.T], axis=1)
    share = counts.sum(axis=0) / counts.sum()
    own = code[cells.cell]
    memberships: list[tuple[Array | float, Array]] = [(1.0, cells.target)]
    if cells.spread.any():
        far = cells.spread[:, None]
        memberships = [
            (part, (1.0 - far) * cells.target + far * corner)
            for part, corner in zip(cells.target.T, np.eye(k), strict=True)
        ]
    rungs = []
    for prior in (0.5, 4.0, 32.0):
        here = counts[own] + prior * (0.5 * share + 0.5 / k)
        inside = _table_loss(here, cells.target)
        outside = np.zeros_like(inside)
        for part, member in memberships:
            left = np.maximum(here - cells.single[:, None] * member, 1e-12)
            outside += part * _table_loss(left, member)
        name = f"table of {size} cells, prior weight {prior:g}"
        kept = counts.sum(axis=1) / (counts.sum(axis=1) + prior)
        terms, squares = (k - 1) * kept.sum(), (k - 1) * np.square(kept).sum()
        rungs.append(_Rung(name, inside, outside, float(terms), float(squares)))
    return rungs


def _table_loss(mass: Array, member: Array) -> Array:
    return -(member * np.log(mass / mass.sum(axis=1, keepdims=True))).sum(axis=1)
