"""The ``"auto"`` estimator: Ĥ(A|Z) from the leave-one-out loss of a ladder, less what fitting cost.

Variables are replaced by their mid-ranks (information does not change under monotone maps), and
the probabilities of the groups are learned from them in many ways, the rungs of a ladder:

- multinomial logistic regression on the normal scores of the ranks: a constant, linear, quadratic,
  then smoothing splines of falling penalty (`rungs`);
- for discrete data the table of cells;
- for distributions that nothing smooth follows, the mixture over all dyadic partitions (`dyadic`).

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Array
from .._core.threads import one_blas_thread
from ..data.copies import find_copies
from ..data.criteria import Condition, word_for
from ..data.groups import Groups
from .dyadic import LEAST_ROWS, Plane, deepest, grow, screen
from .estimation import RowLosses, refuse_many_variables
from .ranks import (
    EXACT_RANK_ROWS,
    Cells,
    Columns,
    Levels,
    by_frequency,
    cut,
    cut_roughly,
    gather_one,
    gather_two,
    is_heaped,
    most_cells,
    sums,
)
from .rungs import (
    HANDICAP,
    LEAST_SHARE,
    TEMPERATURE,
    Data,
    Ladder,
    Rung,
    blend,
    combine,
    prepare,
    smooth,
    weigh,
)

Pair = tuple[Levels, Levels]

# Rows beyond which rungs are weighed on a coarse grid, and beyond which they are fitted on a fine
# one. A grid of B bins a side loses about g²/(200 B²) nats where the log odds change by g per
# standard deviation: 3e-6 at B = 128 and g = 3, far below the sampling error of 16,000 rows.
_COARSE_ROWS, _COARSE_BINS = 4096, 64
_FINE_ROWS, _FINE_BINS = 16384, 128
# Rows from which values are looked at as they are, too.
_UNRANKED_ROWS = 250_000
# Nats over all rows that a partition must save before it is looked at closely, and how many are.
_LEAST_GAIN, _MOST_PLANES = 4.0, 2
# Values of discrete data that are told by their numbers.
_MOST_VALUES = 512
# By how much a first look may fall short of a share that counts: a closer one finds more.
_LEEWAY = 12.0
# Nats over all rows that the steps of a monotone map must save before they are looked at closely.
_STEPS_GAIN = 24.0
# Correlation of normal scores below which a variable is turned round.
_FALLING = -0.99


class Adaptive:
    """The estimator "auto": a ladder of classifiers, averaged by how well each one predicts.

    Ĥ(A|Z) = (1 − λ) · in-sample + λ · leave-one-out log loss, with
    λ = 1 − tr S² / 2 tr S for a fit with the smoothing matrix S.

    Notes
    -----
    Probabilities of the rungs are averaged with weights ∝ exp(−n · loss / 4), where loss is the
    leave-one-out loss in nats.

    Costs a sort of each variable and of each derived coordinate (beyond 100,000 rows a search among
    quantiles), and beyond 16,384 rows an amount that does not depend on n; where the distribution
    is one that only partitions follow, some seconds at a million rows. The result does not change
    under increasing maps of a variable nor, up to the placing of the grid, under decreasing ones,
    except where score and target differ by a narrow band, which is looked for in standard
    deviations too, and beyond 250,000 rows, where values as they are have a rung of their own.
    Copies of a row are taken for one row of greater weight.

    The entropies are scaled so that with nothing to condition on the estimate is the H(A) of the
    group shares: both then share its small-sample bias, which cancels in every criterion.

    See Also
    --------
    evenhand.Logistic
    evenhand.LSPC
    evenhand.KNN
    evenhand.Fourier
    evenhand.independence

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(500, random_state=0)
    >>> value = eh.independence(None, data.s, sensitive_features=data.a, estimator=eh.Adaptive())
    >>> 0 < value < 1
    True
    """

    def __repr__(self) -> str:
        return "Adaptive()"

    def row_losses(
        self, variables: Mapping[str, Array], conditions: Sequence[Condition], groups: Groups,
    ) -> dict[Condition, RowLosses]:  # fmt: skip
        """Estimate H(A|Z) for every condition asked for."""
        refuse_many_variables(conditions, "auto")
        found: dict[Condition, RowLosses] = {}
        with one_blas_thread():
            for batch in _batches(conditions):
                found |= self._row_losses(variables, batch, groups)
        return {condition: found[condition] for condition in conditions}

    def _row_losses(
        self, variables: Mapping[str, Array], conditions: Sequence[Condition], groups: Groups,
    ) -> dict[Condition, RowLosses]:  # fmt: skip
        names = sorted({name for condition in conditions for name in condition})
        data = prepare(groups)
        # Clusters change the scale of the weights from one grouping to the next.
        known = variables if groups.cluster is None else None
        columns = known if isinstance(known, Columns) else Columns(variables)
        levels = {name: _cut_once(columns, name, data) for name in names}
        if len(names) == 2 and _correlation([*levels.values()], data.weight) < _FALLING:
            # A falling map tells what a rising one does, which is easier to see.
            columns = Columns({**columns, names[1]: -columns[names[1]]})
            levels[names[1]] = _cut_once(columns, names[1], data)
        # Rows that share their score, or their target, as copies do are rows of one person.
        people = {
            name: place
            for name in names
            if (place := _find_people(columns[name], levels[name], groups)) is not None
        }
        single = {name: self._one(name, levels[name], data) for name in names if name not in people}
        for name, place in people.items():
            single[name] = self._one_each(name, columns[name], groups, place)
        together = min(people.values(), key=np.max, default=None)
        if together is not None:
            data = prepare(replace(groups, cluster=together))
        out = {}
        for condition in conditions:
            rung, place = single[condition[0]], people.get(condition[0])
            if len(condition) == 2:
                rung, place = self._two(condition, columns, levels, single, data), together
            rows, merged = rung.rows(), 0 if place is None else len(place) - int(place.max()) - 1
            out[condition] = RowLosses(
                rows, rows, rung.words, rung.terms, rung.between + rung.doubt**2, merged,
                rung.lean * rung.squares,
            )  # fmt: skip
        return out

    def _one_each(self, name: str, values: Array, groups: Groups, place: NDArray[np.intp]) -> Rung:
        """The pool of one variable that all rows of a person share: a row each, of their weight."""
        first = np.unique(place, return_index=True)[1]
        weight = np.bincount(place, groups.weight).astype(np.float64)
        known = replace(groups, known=None, n_rows=groups.n_known).take(first)
        data = prepare(known.reweigh(weight if np.ptp(weight) else None))
        rung = self._one(name, cut(values[first], data.weight), data)
        return replace(rung, row_entry=rung.row_entry[place])

    def _one(self, name: str, level: Levels, data: Data) -> Rung:
        """The pool of one variable."""
        cells = gather_one(level, data.weight, data.groups, data.folds)
        rungs = Ladder(cells, (name,)).climb(TEMPERATURE / data.effective)
        planes = _lines(name, level) if data.effective >= LEAST_ROWS else []
        partitions = self._partitions(planes, _best(rungs), data)
        pooled = combine([*rungs, *partitions], data)
        return replace(pooled, prior_bias=_prior_bias(rungs[0]))

    def _two(
        self, names: Condition, columns: Columns, levels: Mapping[str, Levels],
        single: Mapping[str, Rung], data: Data,
    ) -> Rung:  # fmt: skip
        """The pool of two variables; a variable that adds nothing is best left out, so that either
        one alone is a rung too.

        Where one is a monotone map of the other, as far as the order of the rows can tell, either
        says as much as both, except where the map has steps that give the group away: a cent more
        for one group changes no rank.
        """
        pair = levels[names[0]], levels[names[1]]
        alone = [single[name] for name in names]
        is_map = np.array_equal(pair[0].codes, pair[1].codes)

        def residual_of(k: int) -> Array:
            of, given = names[k], names[1 - k]
            return columns.derive(
                "residual", [of, given],
                lambda: residual(levels[of], levels[given], data.weight), data.groups.weight,
            )  # fmt: skip

        smooth, bias = [], alone[0].prior_bias
        best = _best(alone)
        if is_map:
            alone = alone[:1]
            best = alone[0].mean_outside - (_STEPS_GAIN - HANDICAP) / data.effective
        else:
            cells, finer = _grids(pair, partial(residual_of, 0), data)
            smooth = Ladder(cells, names).climb(TEMPERATURE / data.effective)
            bias, best = _prior_bias(smooth[0]), min(best, _best(smooth))
        partitions = []
        if data.effective >= LEAST_ROWS and best > 0:
            planes = _planes(names, columns, pair, residual_of, data)
            partitions = self._partitions(planes, best, data)
        if smooth and finer is not None:
            least = min(best, _best(partitions))
            smooth = self._refine(smooth, least, lambda: Ladder(finer(), names), data)
        rungs = [*smooth, *partitions, *alone]
        if smooth:
            rungs += _unranked(names, columns, min(rungs, key=lambda r: r.mean_outside), data)
        if len(rungs) == 1:
            return rungs[0]
        return replace(combine(rungs, data), prior_bias=bias)

    def _refine(
        self, rungs: list[Rung], least: float, make: Callable[[], Ladder], data: Data
    ) -> list[Rung]:
        """The best of the rungs on a finer grid, where they have a share in the average."""
        reached = _best(rungs)
        if reached > least + self._reach(data):
            return rungs
        share = weigh([r.mean_outside for r in rungs], data.effective)
        kept = [r for r, w in zip(rungs, share, strict=True) if w >= 0.1 * share.max()]
        again = make().repeat(kept)
        # A fine grid does not predict worse than a coarse one, save where a fit failed on it.
        return again if _best(again) <= reached + 1.0 / data.effective else rungs

    def _reach(self, data: Data) -> float:
        """A loss so far above the least one has no share in the average."""
        return -TEMPERATURE * np.log(LEAST_SHARE) / data.effective

    def _partitions(
        self, planes: Sequence[tuple[Plane, Callable[[], Plane]]], best: float, data: Data
    ) -> list[Rung]:
        """Partitions of the planes that promise a share in the average.

        Each plane comes twice: coarse for a first look, and made as fine as is worth it after it.
        """
        looks = [screen(first, data) for first, _ in planes]
        most = min(best + (_LEEWAY - HANDICAP) / data.effective,
                   min(looks, default=0.0) + self._reach(data),
                   # Nor does a partition count that has seen nothing worth the name.
                   data.groups.entropy - _LEAST_GAIN / data.effective)  # fmt: skip
        order = np.argsort(looks, kind="stable")[:_MOST_PLANES]
        return [grow(planes[j][1](), data) for j in order if looks[j] <= most]


def _cut_once(columns: Columns, name: str, data: Data) -> Levels:
    values = columns[name]
    slots = columns.slots(name) if len(values) > EXACT_RANK_ROWS else None
    return columns.derive(
        "levels", [name], lambda: cut(values, data.weight, slots), data.groups.weight
    )


def _best(rungs: Sequence[Rung]) -> float:
    """The least leave-one-out loss."""
    return min((rung.mean_outside for rung in rungs), default=np.inf)


def _correlation(levels: Sequence[Levels], weight: Array) -> float:
    """Correlation of the normal scores of two variables."""
    a, b = (level.row_score for level in levels)
    size = float(weight @ a**2) * float(weight @ b**2)
    return float(weight @ (a * b)) / max(size, 1e-300) ** 0.5


def _find_people(values: Array, level: Levels, groups: Groups) -> NDArray[np.intp] | None:
    """Number of the person that each row is about, where people have several rows; else None.

    None of them can be left out while the others stay in; :mod:`evenhand.data.copies` has the rule.
    """
    n = groups.n_known
    distinct = level.distinct or len(np.unique(values))
    if groups.cluster is not None or not max(10, n // 10) <= distinct <= 0.98 * n:
        return None
    return find_copies([values], replace(groups, known=None, n_rows=n).numbers())


def _unranked(
    names: Condition, variables: Mapping[str, Array], best: Rung, data: Data
) -> list[Rung]:
    """Quadratic logistic regression on the values as they are, which no grid blurs.

    It is exact for normal variables, of which splines of ranks read 0.3 to 0.4 standard errors too
    little at 10⁶ rows. With few rows that is next to nothing, and units shall not matter. Where
    some of the rows are enough to see that it is worse, all of them are not fitted.
    """
    n, groups = data.groups.n_known, data.groups
    if n < _UNRANKED_ROWS or groups.n_groups > 6 or data.folds is not None:
        return []
    from ..kernels import make_rows, with_score
    from ..kernels.basis import get_basis
    from .logistic import Logistic, every

    model, basis, step = Logistic(), get_basis("quadratic", 2), n // _FINE_ROWS
    rows = with_score(make_rows(groups, variables[names[1]]), variables[names[0]])
    few = model._row_losses(every(rows, step), basis)[0] - best.inside[best.row_entry[::step]]
    if few.mean() > 3.0 * few.std() / len(few) ** 0.5:
        return []
    inside, outside = model._row_losses(rows, basis)
    mean_inside, mean_outside = (
        float(data.weight @ losses / data.weight.sum()) for losses in (inside, outside)
    )
    terms = float((groups.n_groups - 1) * basis.n_terms)
    words = f"quadratic, without ranks, {basis.n_terms} terms"
    rung = Rung(words, inside, outside, np.arange(n), mean_inside, mean_outside, terms, terms)
    return [rung]


def _prior_bias(constant: Rung) -> float:
    """H(A) of the shares over its own estimate from in-sample and leave-one-out loss."""
    return constant.mean_inside / blend(constant.mean_inside, constant.mean_outside, 0.5)


# ------------------------------------------------------------------------------------------------
# Grids of two variables for the smooth rungs.


def _grid_sizes(groups: Groups) -> list[int]:
    """Bins per side of the grids to weigh rungs on and to repeat the best on; 0 for the rows."""
    room = most_cells(groups.n_groups)
    if groups.n_known <= min(_COARSE_ROWS, room):
        return [0]
    # A Hessian has (K − 1)² blocks, and with many groups there are more of them to fit.
    thin = 1.0 if groups.n_groups <= 3 else 0.75
    bins = min(int(thin * _FINE_BINS), int(np.sqrt(room)))
    fine = groups.n_known > min(_FINE_ROWS, room)
    return [min(int(thin * _COARSE_BINS), bins), bins if fine else 0]


def _grids(
    pair: Pair, residual: Callable[[], Array], data: Data
) -> tuple[Cells, Callable[[], Cells] | None]:
    """Cells to weigh rungs on, and the finer ones to repeat the best on, if any."""

    def gather(bins: int) -> Cells:
        return gather_two(pair, residual, data.weight, data.groups, bins, data.folds)

    sizes = _grid_sizes(data.groups)
    if len(sizes) == 1:
        return gather(sizes[0]), None
    coarse, fine = sizes
    if fine == 2 * coarse:
        cells = gather(fine)  # the coarse ones hold the same entries
        return (cells if cells.wider is None else cells.widen()), lambda: cells
    return gather(coarse), partial(gather, fine)


def _level_means(values: Array, level: Levels, weight: Array) -> tuple[Array, Array]:
    """Weight of each level of a variable, and the mean of other values at it."""
    mass = sums(level.codes, weight, len(level.rank))
    total = sums(level.codes, weight * values, len(level.rank))
    return mass, total / np.where(mass > 0, mass, 1.0)


# ------------------------------------------------------------------------------------------------
# Planes for partitions: pairs of coordinates in which a law may have straight edges.


def _lines(name: str, level: Levels) -> list[tuple[Plane, Callable[[], Plane]]]:
    depth = min(int(np.ceil(np.log2(max(len(level.rank), 2)))), 11)
    words = f"partitions of {word_for(name)}"
    planes = [Plane(words, (level,), (depth, 0))]
    if is_heaped(level):
        words += " by how common values are"
        planes.append(Plane(words, (by_frequency(level),), (depth, 0)))
    return [(plane, partial(replace, plane)) for plane in planes]


def _planes(
    names: Condition, columns: Columns, pair: Pair, residual_of: Callable[[int], Array], data: Data
) -> list[tuple[Plane, Callable[[], Plane]]]:
    """Planes to look at first, each with the finer one to be used where it shows something."""
    s, y = pair
    words = [word_for(name) for name in names]
    both, weight = f"partitions of {words[0]} and {words[1]}", data.weight
    most = deepest(data.effective, data.groups.n_groups)
    rough = min(most, 6 if data.effective <= 20_000 else 7)
    planes: list[tuple[Plane, Callable[[], Plane]]] = []

    def add(
        name: str, first: Levels, second: Levels | Array,
        look: tuple[int, int] = (rough, rough), fine: tuple[int, int] = (most, most),
    ) -> None:  # fmt: skip
        def make(second: Levels, depths: tuple[int, int]) -> Plane:
            return Plane(name, (first, second), _depths(first, second, *depths))

        if isinstance(second, Levels):
            planes.append((make(second, look), partial(make, second, fine)))
        else:  # a derived coordinate, which takes long to cut
            roughly = columns.derive(
                name, names, lambda: cut_roughly(second, weight), data.groups.weight
            )
            planes.append((make(roughly, look), lambda: make(cut(second, weight), fine)))

    add(both, s, y)
    if most > 5:
        add(both, s, y, (most + 1, 4), (most + 2, most - 2))
        add(both, s, y, (4, most + 1), (most - 2, most + 2))
    if any(is_heaped(v) for v in (s, y)):
        first, second = (by_frequency(v) if is_heaped(v) else v for v in (s, y))
        add(f"{both} by how common values are", first, second)
    # The line s = y in standard deviations (ranks blur a narrow band), and for discrete data in the
    # numbers of the values.
    few = min(_MOST_VALUES, data.groups.n_known // 4)
    if all(v.distinct == len(v.rank) <= few for v in (s, y)):
        apart: Array = (s.codes - y.codes).astype(np.float64)
    else:
        apart = np.subtract(*(standardized(columns[name], weight) for name in names))
    add(f"partitions along {words[0]} = {words[1]}", y, apart)
    for given, of in ((1, 0), (0, 1)):
        add(f"partitions of {words[given]} and residual {words[of]}", pair[given], residual_of(of))
    return planes


def _depths(first: Levels, second: Levels, one: int, other: int) -> tuple[int, int]:
    """As many halvings as asked for, or as few as tell all values of a side apart."""
    limits = (int(np.ceil(np.log2(max(len(v.rank), 2)))) for v in (first, second))
    one, other = (min(d, limit) for d, limit in zip((one, other), limits, strict=True))
    return max(one, 1), max(other, 1)


def residual(level: Levels, given: Levels, weight: Array) -> Array:
    """A function of (t, z) that increases in t at every z, and of which z tells little: the normal
    score of t less its smooth regression on that of z."""
    mass, mean = _level_means(level.row_score, given, weight)
    return level.row_score - smooth(given.score, mean, mass)[given.codes]


def standardized(values: Array, weight: Array) -> Array:
    """(t − mean) / spread, whatever the units; zero for a constant."""
    t: Array = values / max(float(values.max()), -float(values.min()), 1e-300)
    t -= float(weight @ t) / float(weight.sum())
    spread = float(np.sqrt(weight @ np.square(t) / weight.sum()))
    if spread <= 1e-15:
        return np.zeros_like(t)
    t /= spread
    return t


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
