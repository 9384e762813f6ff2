"""The ``"auto"`` estimator: Ĥ(A|Z) from the leave-one-out loss of a ladder, less what fitting cost.

Variables are replaced by their mid-ranks (information does not change under monotone maps), and
the probabilities of the groups are learned from them in many ways, the rungs of a ladder:

- multinomial logistic regression on the normal scores of the ranks: a constant, linear, quadratic,
  then smoothing splines of falling penalty (`_ladder`, `_designs`);
- for discrete data the table of cells;
- for laws that nothing smooth follows, the mixture over all dyadic partitions (`_dyadic`).

For two variables there are several coordinate systems: the two ranks, and one of them with the
residual of the other. The probabilities of the rungs are averaged, with weights by their
leave-one-out loss, and the average is not kept where it predicts worse than the best rung by more
than these weights allow for.

A direction of the basis that the penalty leaves a share a of lowers the in-sample loss of noise by
(a − a²/2)/n on average and raises the leave-one-out loss by a²/2n. The estimate is the mean of the
two losses with the weight λ = 1 − Σa² / 2Σa on the second, for which both cancel: ½ without a
penalty, more with one.

Beyond a few thousand rows all of this works on the cells of fine grids of ranks, so that only
ranking the coordinates and finding each row's cells grow with n. Rows of one cluster are left out
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from .._core.arrays import Array
from .._core.threads import one_blas_thread
from ..data.criteria import Condition, word_for
from ..data.groups import Groups
from ._cells import (
    Cells,
    Levels,
    by_frequency,
    cut,
    gather_one,
    gather_two,
    is_heaped,
    merge_copies,
    sums,
)
from ._cuts import WORTHWHILE
from ._dyadic import LEAST_ROWS, Grown, Plane, deepest, grow, screen
from ._ladder import climb, refit
from ._pooling import (
    HANDICAP,
    LEAST_SHARE,
    Data,
    Estimate,
    combine,
    lean_of,
    prepare,
    prior_bias,
    weigh,
)
from ._residual import falls, residuals, standardized
from ._spline_basis import smooth
from .estimation import RowLosses, refuse_many_variables

# Rows beyond which rungs are weighed on a coarse grid, and beyond which they are fitted on a fine
# one. A grid of B bins a side loses about g²/(200 B²) nats where the log odds change by g per
# standard deviation: 3e-6 at B = 128 and g = 3, far below the sampling error of 16,000 rows.
_COARSE_ROWS, _COARSE_BINS = 4096, 64
_FINE_ROWS, _FINE_BINS = 16384, 128
# Nats over all rows that a partition must save before it is looked at closely, and how many are.
_LEAST_GAIN, _MOST_PLANES = 4.0, 2
# Values of discrete data that are told by their numbers.
_MOST_VALUES = 512
# By how much a first look may fall short of a share that counts: a closer one finds more.
_LEEWAY = 12.0


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
    Costs a sort of each variable and of each derived coordinate (beyond 100,000 rows a search among
    quantiles), and beyond 16,384 rows an amount that does not depend on n; where the law is
    one that only partitions follow, some seconds at a million rows.
    The result does not change under increasing maps of a variable nor, up to the placing of the
    grid, under decreasing ones, save where score and target differ by a narrow band, which is
    looked for in standard deviations too. Copies of a row are taken for one row of greater weight.

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
        refuse_many_variables(conditions, "auto")
        found: dict[Condition, RowLosses] = {}
        with one_blas_thread():
            for batch in _batches(conditions):
                found |= self._row_losses(variables, batch, groups)
        return {condition: found[condition] for condition in conditions}

    def _row_losses(
        self,
        variables: Mapping[str, Array],
        conditions: Sequence[Condition],
        groups: Groups,
    ) -> dict[Condition, RowLosses]:
        names = sorted({name for condition in conditions for name in condition})
        data = prepare(groups)
        levels = {name: cut(variables[name], data.weight) for name in names}
        whole = merge_copies({name: variables[name] for name in names}, levels, groups)
        if whole is not None:
            variables, groups, place = whole
            fewer = self._row_losses(variables, conditions, groups)
            return {
                condition: replace(
                    found, value=found.value[place], influence=found.influence[place],
                    merged=found.merged + len(place) - groups.n_known,
                )
                for condition, found in fewer.items()
            }  # fmt: skip
        # No row is a copy of another, but people can share their score or their target. Rows that
        # share one and are all of one group are taken for the rows of one person.
        single, person = {}, None
        alike: dict[Condition, int] = {}
        for name in names:
            merged = merge_copies({name: variables[name]}, levels, groups)
            if merged is None:
                single[name] = self._one(name, levels[name], data)
                continue
            reduced, merged_groups, place = merged
            own = prepare(merged_groups)
            found = self._one(name, cut(reduced[name], own.weight), own)
            single[name] = replace(found, row_entry=found.row_entry[place])
            alike[(name,)] = len(place) - merged_groups.n_known
            person = place if person is None or place.max() < person.max() else person
        if len(names) == 2 and falls(
            variables[names[0]], variables[names[1]], levels[names[0]], levels[names[1]]
        ):
            # What one says the other does. Cut from the other end, estimates would differ a little.
            single[names[1]] = single[names[0]]
        if person is not None:
            data = prepare(replace(groups, cluster=person))
        out = {}
        for condition in conditions:
            if len(condition) == 1:
                found = single[condition[0]]
            else:
                found = self._two(condition, variables, levels, single, data)
            rows = found.rows()
            spread = found.between + found.doubt**2
            merged_rows = alike.get(condition, 0)
            if len(condition) == 2 and person is not None:
                merged_rows = len(person) - int(person.max()) - 1
            out[condition] = RowLosses(
                rows, rows, found.chosen, found.terms, spread, merged_rows,
                lean_of(found.terms, found.squares) * found.squares,
            )  # fmt: skip
        return out

    def _one(self, name: str, level: Levels, data: Data) -> Estimate:
        cells = gather_one(level, data.weight, data.groups, data.folds)
        rungs = climb(cells, (name,), self.temperature / data.effective)
        depth = min(int(np.ceil(np.log2(max(len(level.rank), 2)))), 11)
        words = f"partitions of {word_for(name)}"
        planes = [Plane(words, (level,), (depth, 0))]
        if is_heaped(level):
            words += " by how common values are"
            planes.append(Plane(words, (by_frequency(level),), (depth, 0)))
        best = min(cells.mean(rung.outside) for rung in rungs)
        grown: list[Grown] = []
        if data.effective >= LEAST_ROWS:
            grown = self._look_closer(planes, planes, best, data)
        found = combine([(cells, rungs)], grown, [], data, self.temperature)
        return replace(found, prior_bias=prior_bias(cells, rungs[0]))

    def _two(
        self,
        names: Condition,
        variables: Mapping[str, Array],
        levels: Mapping[str, Levels],
        single: Mapping[str, Estimate],
        data: Data,
    ) -> Estimate:
        first, second = (levels[name] for name in names)
        groups, weight = data.groups, data.weight
        if np.array_equal(first.codes, second.codes) or single[names[0]] is single[names[1]]:
            return self._monotone(names, variables, levels, single[names[0]], data)
        n = groups.n_known
        # The (C, K−1, K−1) leverages are the largest array; many groups mean fewer cells.
        room = max(512, int(4e6 / max(groups.n_groups - 1, 1) ** 2))
        coarse, fine = n > min(_COARSE_ROWS, room), n > min(_FINE_ROWS, room)
        # A Hessian has (K − 1)² blocks, and with many groups there are more of them to fit.
        thin = 1.0 if groups.n_groups <= 3 else 0.75
        bins = min(int(thin * _FINE_BINS), int(np.sqrt(room)))
        center = None
        if coarse:
            per_level = sums(second.codes, weight, len(second.rank))
            mean = sums(second.codes, weight * first.score[first.codes], len(second.rank))
            mean = mean / np.where(per_level > 0, per_level, 1.0)
            center = smooth(second.score, mean, per_level)

        def gather(count: int) -> Cells:
            return gather_two(first, second, center, weight, groups, count, data.folds)

        cells = gather(min(int(thin * _COARSE_BINS), bins) if coarse else 0)
        rungs = climb(cells, names, self.temperature / data.effective)
        bias = prior_bias(cells, rungs[0])
        # A variable that adds nothing is best left out: either one alone is a rung too.
        alone = [single[name] for name in names]
        ladders = [(cells, rungs)]
        losses = [cells.mean(rung.outside) for rung in rungs]
        best = min(losses + [e.mean_outside for e in alone])
        grown: list[Grown] = []
        if data.effective >= LEAST_ROWS:
            grown = self._look_closer(*self._planes(names, variables, levels, data), best, data)
        least = min([best] + [g.mean_outside for g in grown])
        if coarse and min(losses) <= least + self._reach(data):
            share = weigh(losses, data.effective, self.temperature)
            kept = [r for r, w in zip(rungs, share, strict=True) if w >= 0.1 * share.max()]
            again = gather(bins if fine else 0)
            repeated = refit(again, names, kept)
            # A fine grid does not predict worse than a coarse one, save where a fit failed on it.
            found_again = min((again.mean(r.outside) for r in repeated), default=np.inf)
            if found_again <= min(losses) + 1.0 / data.effective:
                ladders = [(again, repeated)]
        found = combine(ladders, grown, alone, data, self.temperature)
        return replace(found, prior_bias=bias)

    def _monotone(
        self,
        names: Condition,
        variables: Mapping[str, Array],
        levels: Mapping[str, Levels],
        either: Estimate,
        data: Data,
    ) -> Estimate:
        """One variable is a monotone map of the other, as far as the order of the rows can tell.

        Then either says as much as both, save where the map has steps that give the group away: a
        cent more for one group changes no rank.
        """
        if data.effective < LEAST_ROWS:
            return either
        least = either.mean_outside - (WORTHWHILE + _LEEWAY - HANDICAP) / data.effective
        if least <= 0:
            return either
        grown = self._look_closer(*self._planes(names, variables, levels, data), least, data)
        if not grown:
            return either
        found = combine([], grown, [either], data, self.temperature)
        return replace(found, prior_bias=either.prior_bias)

    def _reach(self, data: Data) -> float:
        """A loss so far above the least one has no share in the average."""
        return -self.temperature * np.log(LEAST_SHARE) / data.effective

    def _planes(
        self,
        names: Condition,
        variables: Mapping[str, Array],
        levels: Mapping[str, Levels],
        data: Data,
    ) -> tuple[list[Plane], list[Plane]]:
        """Grids to look at first, and the finer ones to be used where they show something."""
        s, y = (levels[name] for name in names)
        words = [word_for(name) for name in names]
        most = deepest(data.effective, data.groups.n_groups)
        rough = min(most, 6 if data.effective <= 20_000 else 7)

        def square(name: str, first: Levels, second: Levels) -> tuple[Plane, Plane]:
            sides = (first, second)
            return (
                Plane(name, sides, _depths(first, second, rough, rough)),
                Plane(name, sides, _depths(first, second, most, most)),
            )

        def oblong(long: int) -> tuple[Plane, Plane]:
            name = f"partitions of {words[0]} and {words[1]}"
            first, more = ((most + 1, 4), (most + 2, most - 2))
            if long:
                first, more = first[::-1], more[::-1]
            return (
                Plane(name, (s, y), _depths(s, y, *first)),
                Plane(name, (s, y), _depths(s, y, *more)),
            )

        pairs = [square(f"partitions of {words[0]} and {words[1]}", s, y)]
        if most > 5:
            pairs += [oblong(0), oblong(1)]
        if any(is_heaped(v) for v in (s, y)):
            common = [by_frequency(v) if is_heaped(v) else v for v in (s, y)]
            name = f"partitions of {words[0]} and {words[1]} by how common values are"
            pairs.append(square(name, *common))
        # The line s = y, in normal scores, in standard deviations (ranks blur a narrow band), and
        # for discrete data in the numbers of the values.
        a, b = (v.score[v.codes] for v in (s, y))
        name = f"partitions along {words[0]} = {words[1]}"
        pairs.append(square(name, cut(a + b, data.weight), cut(a - b, data.weight)))
        few = min(_MOST_VALUES, data.groups.n_known // 4)
        if all(v.distinct == len(v.rank) <= few for v in (s, y)):
            apart: Array = (s.codes - y.codes).astype(np.float64)
        else:
            apart = standardized(variables[names[0]], data.weight)
            apart = apart - standardized(variables[names[1]], data.weight)
        pairs.append(square(name, y, cut(apart, data.weight)))
        for given, other in ((1, 0), (0, 1)):
            name = f"partitions of {words[given]} and residual {words[other]}"
            found = residuals(
                variables[names[other]], levels[names[other]], variables[names[given]],
                levels[names[given]], data.weight,
            )  # fmt: skip
            for rest in found:
                pairs.append(square(name, levels[names[given]], cut(rest, data.weight)))
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def _look_closer(
        self, planes: Sequence[Plane], finer: Sequence[Plane], best: float, data: Data
    ) -> list[Grown]:
        """Partitions of the planes that promise a share in the average."""
        looks = [screen(p, data.groups, data.weight, data.prior, data.folds) for p in planes]
        most = min(best + (_LEEWAY - HANDICAP) / data.effective, min(looks) + self._reach(data))
        # Nor does a partition count that has seen nothing worth the name.
        most = min(most, data.groups.entropy - _LEAST_GAIN / data.effective)
        order = np.argsort(looks, kind="stable")[:_MOST_PLANES]
        return [
            grow(
                finer[j], data.groups, data.weight, data.prior, data.effective, data.folds,
                search=place == 0,
            )
            for place, j in enumerate(order)
            if looks[j] <= most
        ]  # fmt: skip


def _depths(first: Levels, second: Levels, one: int, other: int) -> tuple[int, int]:
    """As many halvings as asked for, or as few as tell all values of a side apart."""
    limits = (int(np.ceil(np.log2(max(len(v.rank), 2)))) for v in (first, second))
    one, other = (min(d, limit) for d, limit in zip((one, other), limits, strict=True))
    return max(one, 1), max(other, 1)


def _batches(conditions: Sequence[Condition]) -> list[list[Condition]]:
    """The conditions in parts of at most two variables, which are looked at together."""
    batches: list[list[Condition]] = []
    for condition in sorted(conditions, key=len, reverse=True):
        for batch in batches:
            if len({name for other in (*batch, condition) for name in other}) <= 2:
                batch.append(condition)
                break
        else:
            batches.append([condition])
    # In the order asked for, which decides between equals.
    return [[c for c in conditions if c in batch] for batch in batches]
