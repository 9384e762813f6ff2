"""The pool of the adaptive estimator: what a rung is, its smooth rungs and tables, their average.

A rung is one way to learn the probabilities of the groups. Whatever it is made of, it gives two
losses of each row, with the row in the fit and without it, by entry: rows of one cell and group
share theirs. :func:`combine` averages the probabilities of all rungs, with weights by the second
loss. A row by itself is a cell with a count of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import ndtri

from .._core.arrays import Array
from ..data.criteria import Condition, word_for
from ..data.groups import Groups
from ..data.weights import deal_by_size
from ._leave_out import losses_without_fold
from ._newton import fit, softmax
from .ranks import Cells, averages_memberships, rescore, sums

Index = NDArray[np.intp]
# Point masses of cells, or values, with the variable along which each has a slope of its own.
Atoms = Sequence[tuple[Index, Array | None]]

# Of one variable there are more where the roughest fit of these predicts best: six waves in 1,000
# rows are covered in 94 % of samples with them, in 92 % without.
N_SPLINES, _MORE_SPLINES = 20, 40
# Most parameters of one fit, over all groups.
_MAX_PARAMETERS = 420
# Rows beyond which products of higher degree and rougher fits are worth their time.
LARGE_ROWS = 1500

# Clusters are left out in at most this many folds.
_FOLDS = 50
# Rungs are averaged in shares ∝ exp(−n · loss / TEMPERATURE): towards 0 only the best one counts.
TEMPERATURE = 4.0
# Shares of the average below which a rung does not count.
LEAST_SHARE = 1e-3
# Nats over all rows by which a partition must predict better than a smooth rung to weigh the same:
# with few rows the best of several partitions is often ahead by luck.
HANDICAP = 8.0
# A column in which the penalty outweighs the data, at most ¼ a row, by ten to one is left out. The
# last digits keep a tie from being decided by rounding.
_NEGLIGIBLE = 2.5 * (1.0 + 1e-9)
# With few rows, rough fits are so far from quadratic in a row's weight that one Newton step does
# not quite tell what leaving it out does: each is made only if the one before it predicted clearly
# better. Six waves in 1,000 rows were covered in 61 % of samples without them, in 87 % with them.
_PENALTIES, _ROUGH_PENALTIES = (15000.0, 2000.0, 250.0, 30.0, 4.0), (0.5, 0.06)
# A basis whose best fit has at least this place in the list of penalties, less one, is too small.
_ROUGH = len(_PENALTIES) - 1
# Ridges on the terms that smoothing leaves free. The weak one keeps separated groups finite; the
# others shrink a quadratic where there is little to see.
_RIDGE, _SHRINKAGES = 0.05, (4.0, 16.0)
# Leave-one-out loss below which groups are nearly separated, and the ridge itself keeps it up.
_SEPARATED = 0.1
# Most cells of a table of discrete data, and most of the rows that may be alone in theirs.
_MAX_TABLE, _MAX_ALONE = 4096, 0.05


@dataclass(frozen=True)
class Data:
    """What all conditions share: weights that add up to the effective rows, groups, folds."""

    weight: Array
    groups: Groups
    folds: Index | None
    effective: float

    @cached_property
    def alpha(self) -> Array:
        """α of the Dirichlet-multinomial, ½ for groups of equal size and less for rare ones."""
        return 0.25 + 0.25 * self.groups.n_groups * self.groups.shares

    @cached_property
    def rising(self) -> Array:
        """Logarithms of its rising factorials, for the counts that come up most."""
        from ..kernels.dyadic import log_rising

        return log_rising(self.alpha, min(self.groups.n_known + 1, 4096))


def prepare(groups: Groups) -> Data:
    """Weights in units of effective rows, so that a penalty or a prior means the same to all."""
    weight = np.ones(groups.n_known)
    if groups.weight is not None:
        weight = groups.weight
    effective = groups.n_effective if groups.cluster is None else _worth_of_rows(groups, weight)
    if groups.weight is not None or groups.cluster is not None:
        weight = weight * (effective / weight.sum())
    folds = None if groups.cluster is None else deal_by_size(groups.cluster, _FOLDS)
    return Data(weight, groups, folds, effective)


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


class Recipe(NamedTuple):
    """How to repeat a smooth fit on other cells, and where to start."""

    design: int
    top: int
    penalty: float
    ridge: float
    theta: Array | None


@dataclass(frozen=True)
class Rung:
    """Losses of one learner, or of the average of several.

    Attributes
    ----------
    words : str
        What it is, for the result to show.
    inside, outside : (E,) arrays
        In-sample and leave-one-out loss of every entry, in nats.
    row_entry : (n,) array
        Entry of each row.
    mean_inside, mean_outside : float
        Their weighted means over the rows.
    terms, squares : float
        Traces of the smoothing matrix and of its square.
    shift, doubt : float
        What the learner adds to the entropy because it resolves no more, and its standard error.
    handicap : float
        Nats over all rows by which it must predict better than others to weigh the same.
    between : float
        Variance of the estimates of the rungs around the mean they were averaged to.
    prior_bias : float
        H(A) over its estimate by the same means from nothing.
    recipe : Recipe, optional
    """

    words: str
    inside: Array
    outside: Array
    row_entry: Index
    mean_inside: float
    mean_outside: float
    terms: float
    squares: float
    shift: float = 0.0
    doubt: float = 0.0
    handicap: float = 0.0
    between: float = 0.0
    prior_bias: float = 1.0
    recipe: Recipe | None = None

    @property
    def theta(self) -> Array | None:
        """Coefficients to start others from."""
        return None if self.recipe is None else self.recipe.theta

    @property
    def lean(self) -> float:
        return lean_of(self.terms, self.squares)

    @property
    def value(self) -> float:
        """The estimate of the entropy."""
        return blend(self.mean_inside, self.mean_outside, self.lean) - self.shift

    def rows(self) -> Array:
        """Terms of the rows, whose mean is the estimate."""
        losses = self.prior_bias * blend(self.inside, self.outside, self.lean) - self.shift
        return losses[self.row_entry]


def lean_of(terms: float, squares: float) -> float:
    """λ = 1 − Σa² / 2Σa, from the traces of the smoothing matrix and of its square."""
    return 1.0 - 0.5 * squares / terms if terms > 0 else 0.5


def blend(inside: Any, outside: Any, lean: float) -> Any:
    """The mean of in-sample and leave-one-out loss in which what fitting costs cancels."""
    return (1.0 - lean) * inside + lean * outside


def weigh(losses: Sequence[float], effective: float) -> Array:
    """Shares ∝ exp(−n · loss / TEMPERATURE)."""
    loss = np.array(losses)
    share = np.exp(-effective / TEMPERATURE * (loss - loss.min()))
    share[share < LEAST_SHARE] = 0.0
    return share / share.sum()


def combine(rungs: Sequence[Rung], data: Data) -> Rung:
    """Pool rungs."""
    n = data.effective
    share = weigh([r.mean_outside + r.handicap / n for r in rungs], n)
    pooled = _average(rungs, share, data)
    # With these weights the average is within T·log(rungs) of the best rung, over all rows; more
    # means that something went wrong on the way, and then the best one stands alone. (Always
    # keeping the best one costs up to 17 % of the error at 500 rows: it is often ahead by luck.)
    slack = TEMPERATURE * np.log(len(rungs)) + HANDICAP
    best = int(np.argmin([r.mean_outside for r in rungs]))
    if pooled.mean_outside <= rungs[best].mean_outside + slack / n:
        return pooled
    return _average(rungs, np.eye(len(rungs))[best], data)


def _average(rungs: Sequence[Rung], share: Array, data: Data) -> Rung:
    """The average of rungs with given shares; the heaviest one in words."""
    heaviest = rungs[int(np.argmax(share))]
    rungs, share = [r for r, w in zip(rungs, share, strict=True) if w], share[share > 0]
    # Rungs on the same entries are averaged there, before all of them are by row.
    parts: dict[int, list[int]] = {}
    for j, rung in enumerate(rungs):
        parts.setdefault(id(rung.row_entry), []).append(j)
    losses = []
    for mine in parts.values():
        within = share[mine] / share[mine].sum()
        inside = pool_losses([rungs[j].inside for j in mine], within)
        outside = pool_losses([rungs[j].outside for j in mine], within)
        losses.append((inside, outside, rungs[mine[0]].row_entry))
    inside, outside, row_entry = losses[0]
    if len(parts) > 1:
        # The entries of different parts are different sets of rows. Where memberships were averaged
        # over them, only their mean losses can be compared, not those of one row.
        weight = np.array([share[mine].sum() for mine in parts.values()])
        merge = _mean if averages_memberships(data.groups, data.folds) else pool_losses
        inside = merge([near[entry] for near, _, entry in losses], weight)
        outside = merge([far[entry] for _, far, entry in losses], weight)
        row_entry = np.arange(len(row_entry))
    amount = sums(row_entry, data.weight, len(inside))
    values = np.array([r.value for r in rungs])

    def mean(name: str) -> float:
        return float(sum(w * getattr(r, name) for w, r in zip(share, rungs, strict=True)))

    return Rung(
        heaviest.words, inside, outside, row_entry,
        mean_inside=float(amount @ inside / amount.sum()),
        mean_outside=float(amount @ outside / amount.sum()),
        terms=mean("terms"), squares=mean("squares"), shift=mean("shift"), doubt=mean("doubt"),
        between=float(share @ np.square(values - share @ values)),
    )  # fmt: skip


def pool_losses(losses: Sequence[Array], share: Array) -> Array:
    """−log Σ share · exp(−loss): the loss of the averaged probability."""
    if len(losses) == 1:
        return losses[0]
    least = np.minimum.reduce(losses)
    return least - np.log(sum(w * np.exp(least - v) for v, w in zip(losses, share, strict=True)))


def _mean(losses: Sequence[Array], share: Array) -> Array:
    return np.tensordot(share, np.stack(losses), axes=1)


# ------------------------------------------------------------------------------------------------
# Smooth rungs: logistic regressions on splines of falling penalty, on the cells of one grid.


class Ladder:
    """The smooth rungs of one condition on some cells, and its tables where data are discrete."""

    def __init__(self, cells: Cells, names: Condition) -> None:
        self.cells, self._is_one = cells, len(names) == 1
        self._makers = designs(cells, names)
        self._made: dict[int, SplineDesign] = {}
        self._fitted: dict[tuple[int, bytes, bytes], Rung] = {}

    def climb(self, slack: float) -> list[Rung]:
        """Fit rungs, up each basis while the leave-one-out loss rises by no more than `slack`."""
        rungs = [self.fit(Recipe(0, top, 0.0, _RIDGE, None)) for top in (0, 1, 2)]
        theta = rungs[2].theta
        for ridge in _SHRINKAGES:
            rungs.append(self.fit(Recipe(0, 2, 0.0, ridge, rungs[-1].theta)))
        if min(rung.mean_outside for rung in rungs) < _SEPARATED:
            for ridge in (1e-2 * _RIDGE, 1e-4 * _RIDGE):
                rungs.append(self.fit(Recipe(0, 2, 0.0, ridge, theta)))
                theta = rungs[-1].theta
        start = 0
        for number in range(len(self._makers)):
            if number and self._is_one and start < _ROUGH:
                break
            start = self._climb_one(number, start, None if number else theta, rungs, slack)
        return rungs + self.tables()

    def _climb_one(
        self, number: int, start: int, theta: Array | None, rungs: list[Rung], slack: float
    ) -> int:
        """Add fits of one basis to the rungs, from a penalty upwards and then downwards.

        Returns where to start on the next basis: a step before the penalty that predicts best.
        """
        penalties: tuple[float, ...] = _PENALTIES
        n_sure = len(penalties) + 2 * (self.cells.mass > LARGE_ROWS)
        penalties += _ROUGH_PENALTIES
        best = min(rung.mean_outside for rung in rungs)
        tried: dict[int, float] = {}
        step = start
        while 0 <= step < len(penalties):
            rung = self.fit(Recipe(number, 99, penalties[step], _RIDGE, theta))
            rungs.append(rung)
            theta, tried[step] = rung.theta, rung.mean_outside
            own = min(tried.values())
            low, high = min(tried), max(tried)
            if len(tried) > 1 and own > best + slack:
                break
            reach = own + slack if high + 1 < n_sure else tried.get(high - 1, np.inf) - slack
            if tried[high] <= reach and high + 1 < len(penalties):
                step = high + 1
            elif tried[low] <= own + slack:
                step = low - 1
            else:
                break
        return max(min(tried, key=lambda j: tried[j]) - 1, 0)

    def repeat(self, rungs: Sequence[Rung]) -> list[Rung]:
        """The same rungs, made on other cells, on these."""
        tables = {table.words: table for table in self.tables()}
        smooth = [self.fit(rung.recipe) for rung in rungs if rung.recipe is not None]
        return smooth + [tables[rung.words] for rung in rungs if rung.words in tables]

    def fit(self, recipe: Recipe) -> Rung:
        """Fit the functions of degree up to `top` that the penalty leaves something of."""
        number, top, penalty, ridge, _ = recipe
        if number not in self._made:
            # One at a time: a design is as large as everything else.
            self._made = {number: trim(self._makers[number](), self.cells.counts.shape[1])}
        design, cells = self._made[number], self.cells
        keep = design.degree <= top
        keep &= penalty * design.roughness <= _NEGLIGIBLE * cells.mass
        shrink = np.where(design.roughness > 0, penalty * design.roughness, ridge)
        shrink[0] = 0.0
        # With many groups a few functions are all there is room for, at any degree and penalty.
        key = number, keep.tobytes(), shrink[keep].tobytes()
        if key not in self._fitted:
            self._fitted[key] = self._fit(recipe, design, keep, shrink[keep])
        return self._fitted[key]

    def _fit(
        self, recipe: Recipe, design: SplineDesign, keep: NDArray[np.bool_], shrink: Array
    ) -> Rung:
        cells, (_, top, _, _, theta) = self.cells, recipe
        functions = design.take(keep)
        fitted = fit(functions, cells, shrink, None if theta is None else theta[:, keep])
        full = np.zeros((len(fitted.theta), len(keep)))
        full[:, keep] = fitted.theta
        outside = fitted.outside
        if cells.fold is not None:
            outside = losses_without_fold(functions, cells, shrink, fitted.theta)
        name = ("constant", "linear", "quadratic")[top] if top < 3 else design.name
        rung = self._rung(
            f"{name}, {fitted.terms:.0f} terms", fitted.inside, outside, fitted.terms,
            fitted.squares, recipe._replace(theta=full),
        )  # fmt: skip
        return replace(rung, shift=_blur(fitted.theta @ functions, cells))

    def _rung(
        self, words: str, inside: Array, outside: Array, terms: float, squares: float,
        recipe: Recipe | None = None,
    ) -> Rung:  # fmt: skip
        means = self.cells.mean(inside), self.cells.mean(outside)
        losses = words, inside, outside, self.cells.row_entry, *means
        return Rung(*losses, terms, squares, recipe=recipe)

    def tables(self) -> list[Rung]:
        """Shares within each distinct cell, smoothed towards the overall ones; for discrete data.

        Not for the bins of a grid: those are no values, and on another grid they are others.
        """
        cells = self.cells
        code = _number_values(cells) if cells.exact else None
        if code is None:
            return []
        k = cells.counts.shape[1]
        size = int(code.max()) + 1
        counts = np.stack([sums(code, column, size) for column in cells.counts.T], axis=1)
        # Cells of one row each are a continuous variable, not a table: with the row in, they know
        # its group, and without it nothing, and the truth is not halfway between the two.
        amount = counts.sum(axis=1)
        alone = amount < 1.5 * float(cells.weight @ cells.single) / cells.mass
        if amount[alone].sum() > _MAX_ALONE * amount.sum():
            return []
        share = counts.sum(axis=0) / counts.sum()
        rungs = []
        for prior in (0.5, 4.0, 32.0):
            here = counts[code[cells.cell]] + prior * (0.5 * share + 0.5 / k)
            kept = amount / (amount + prior)
            rungs.append(self._rung(
                f"table of {size} cells, prior weight {prior:g}",
                _table_loss(here, cells.target), _table_left_out(here, code[cells.cell], cells),
                float((k - 1) * kept.sum()), float((k - 1) * np.square(kept).sum()),
            ))  # fmt: skip
        return rungs


def _blur(eta: Array, cells: Cells) -> float:
    """What a grid adds to the entropy, as log odds change within its cells.

    In proportion to the squared width of a cell: a third of what is lost by taking the cells of
    half as many bins per side for one, Σ KL(p ‖ p at their mean log odds). Without it a million
    normal rows with strong shifts read sufficiency lower by 1.1 standard errors.
    """
    if cells.wider is None:
        return 0.0
    total, count = cells.totals, int(cells.wider.max()) + 1
    mass = np.maximum(sums(cells.wider, total, count), 1e-300)
    mean = np.stack([(sums(cells.wider, total * v, count) / mass)[cells.wider] for v in eta])
    (own, prob), (merged, _) = softmax(eta), softmax(mean)
    lost = (prob[1:] * (eta - mean)).sum(axis=0) - own + merged
    return float(total @ lost) / (3.0 * cells.mass)


def _number_values(cells: Cells) -> Index | None:
    """Number of the distinct values that each cell has; None where they are too many."""
    most = min(_MAX_TABLE, 0.25 * cells.mass)
    code, size = np.zeros(len(cells.counts), dtype=np.intp), 1
    for v in cells.coordinates:
        distinct, own = np.unique(np.round(v, 12), return_inverse=True)
        if len(distinct) > most:
            return None
        code = np.unique(code * len(distinct) + own, return_inverse=True)[1]
        size = int(code.max()) + 1
    return None if size > most else code


def _table_left_out(here: Array, own: Index, cells: Cells) -> Array:
    """Losses of a table without the fold of an entry, or without one of its rows."""
    if cells.fold is not None:
        pairs, number = np.unique(
            own * (int(cells.fold.max()) + 1) + cells.fold, return_inverse=True
        )
        share = cells.weight[:, None] * cells.target
        fold = np.stack([sums(number, v, len(pairs)) for v in share.T], axis=1)[number]
        return _table_loss(np.maximum(here - fold, 1e-12), cells.target)
    memberships: list[tuple[Array | float, Array]] = [(1.0, cells.target)]
    if cells.spread.any():
        far = cells.spread[:, None]
        memberships = [
            (part, (1.0 - far) * cells.target + far * corner)
            for part, corner in zip(cells.target.T, np.eye(cells.target.shape[1]), strict=True)
        ]
    outside = np.zeros(len(here))
    for part, member in memberships:
        left = np.maximum(here - cells.single[:, None] * member, 1e-12)
        outside += part * _table_loss(left, member)
    return outside


def _table_loss(mass: Array, member: Array) -> Array:
    total = mass.sum(axis=1)
    label = member.argmax(axis=1)
    rows = np.arange(len(member))
    if (member[rows, label] == 1.0).all():  # one logarithm an entry, however many groups
        return -np.log(mass[rows, label] / total)
    return -(member * np.log(mass / total[:, None])).sum(axis=1)


# ------------------------------------------------------------------------------------------------
# Smooth functions of standard normal variables, and the bases that are made of them.


@lru_cache(maxsize=2)
def spline_table(count: int) -> tuple[float, float, Array]:
    """So many smooth functions of a standard normal variable, from smoothest to roughest, on a
    grid.

    Quartic splines with knots at normal quantiles, made orthonormal under the normal distribution
    and orthogonal in ∫ f‴² dΦ: 1, u, (u² − 1)/√2, then curves of growing roughness. Symmetric, so
    that reversing a variable only changes signs.
    """
    from scipy.interpolate import BSpline

    limit, knots, order = 4.5, count - 4, 4
    inner = ndtri(np.arange(1, knots) / knots)
    t = np.concatenate([[-limit] * (order + 1), inner, [limit] * (order + 1)])
    grid = np.linspace(-limit, limit, 2001)
    density = np.exp(-0.5 * grid**2)
    density /= density.sum()
    identity = np.eye(len(t) - order - 1)
    basis = BSpline(t, identity, order)(grid)
    third = BSpline(t, identity, order).derivative(3)(grid)
    _, vectors = scipy.linalg.eigh(
        third.T @ (density[:, None] * third), basis.T @ (density[:, None] * basis)
    )
    table = basis @ vectors
    table[:, :3] = np.stack([np.ones_like(grid), grid, (grid**2 - 1.0) / np.sqrt(2.0)], axis=1)
    return -limit, float(grid[1] - grid[0]), np.ascontiguousarray(table.T)


def splines(u: Array, count: int = N_SPLINES) -> Array:
    """Values of the first functions at u, (n, count), contiguous by function."""
    low, step, table = spline_table(max(count, N_SPLINES))
    x = np.clip((u - low) / step, 0.0, table.shape[1] - 1.0)
    at = np.minimum(x.astype(np.intp), table.shape[1] - 2)
    share = x - at
    below, above = (np.take(table[:count], j, axis=1) for j in (at, at + 1))
    below *= 1.0 - share
    above *= share
    below += above
    return below.T


def cubic(degree: Any) -> Any:
    """Roughness ∫ h‴² dΦ of a Hermite polynomial, 1 at degree 5."""
    return degree * (degree - 1.0) * (degree - 2.0) / 60.0


def smooth(u: Array, v: Array, weight: Array) -> Array:
    """Smoothing-spline regression of v on u, at u."""
    f = splines(u, 12)
    gram = f.T @ (weight[:, None] * f)
    gram[np.diag_indices(12)] += cubic(np.arange(12)) + 1e-6
    return f @ scipy.linalg.solve(gram, f.T @ (weight * v), assume_a="pos")


@lru_cache(maxsize=2)
def product_terms(large: bool) -> tuple[Index, Index, Index, Array]:
    """Factors, degree and roughness Σ ∫ (third derivatives)² dΦ of the products of two splines.

    All splines of each variable alone, so that adding a variable never takes terms away. Products
    of total degree up to 6, and of 12 beside a quadratic; with many rows 8, and 13 beside a cubic.
    """
    total, other, most = (8, 3, 13) if large else (6, 2, 12)
    pairs = [
        (i, j)
        for i in range(N_SPLINES)
        for j in range(N_SPLINES)
        if i + j <= total or (min(i, j) <= other and max(i, j) <= most) or min(i, j) == 0
    ]
    pairs.sort(key=lambda p: (p[0] + p[1], p))
    left, right = (np.ascontiguousarray(v) for v in np.array(pairs, dtype=np.intp).T)
    degree = left + right
    return left, right, degree, cubic(degree)


@dataclass(frozen=True)
class SplineDesign:
    """Functions of one basis, (D, C); `roughness` is zero for those that are not smoothed."""

    name: str
    functions: Array
    roughness: Array
    degree: Index
    _last: list[tuple[NDArray[np.bool_], Array]] = field(default_factory=list, repr=False)

    def take(self, keep: NDArray[np.bool_]) -> Array:
        """Some of the functions; the same ones as last time are not copied again."""
        if keep.all():
            return self.functions
        if not self._last or not np.array_equal(self._last[0][0], keep):
            self._last[:] = [(keep, self.functions[keep])]
        return self._last[0][1]


def designs(cells: Cells, names: Condition) -> list[Callable[[], SplineDesign]]:
    """The bases for one or two variables, each made when it is called for."""
    words = [word_for(name) for name in names]
    if len(names) == 1:
        u, atom = cells.coordinates[0], cells.atoms[0]
        atom = atom if cells.values[0] is None else cells.values[0]

        def build(count: int) -> SplineDesign:
            degree, name = np.arange(count), f"splines of {words[0]}"
            return _assemble(name, splines(u, count).T, cubic(degree), degree, [(atom, None)])

        return [partial(build, count) for count in (N_SPLINES, _MORE_SPLINES)]
    s, y = cells.coordinates
    weight = cells.totals
    large = bool(weight.sum() > LARGE_ROWS)

    def build_residual(of: int, given: int) -> SplineDesign:
        t, z = cells.coordinates[of], cells.coordinates[given]
        e = rescore(t - smooth(z, t, weight), weight)
        atoms = list(zip(cells.atoms, (y, e) if of == 0 else (e, s), strict=True))
        return _multiply(f"splines of {words[given]} and residual {words[of]}", z, e, atoms, large)

    both = f"splines of {words[0]} and {words[1]}"
    either = f"splines of {words[0]} plus those of {words[1]}"
    atoms: Atoms = list(zip(cells.atoms, (y, s), strict=True))
    makers = [
        lambda: _multiply(both, s, y, atoms, large),
        lambda: _multiply(either, s, y, atoms, large, additive=True),
        lambda: build_residual(0, 1),
        lambda: build_residual(1, 0),
    ]
    if cells.counts.shape[1] > 6:
        makers = makers[::2]
    # Values of a discrete variable have levels of their own, shrunk towards its splines.
    listed: Atoms = [(v, None) for v in cells.values if v is not None]
    if listed:
        name = f"{either}, value by value"
        makers.append(lambda: _multiply(name, s, y, listed, large, additive=True))
    return makers


def _multiply(
    name: str, first: Array, second: Array, atoms: Atoms, large: bool, additive: bool = False
) -> SplineDesign:
    """Products of the splines of two variables; if `additive`, only the quadratic ones."""
    left, right, degree, roughness = product_terms(large)
    if additive:
        alone = (np.minimum(left, right) == 0) | (degree <= 2)
        left, right, degree, roughness = (v[alone] for v in (left, right, degree, roughness))
    functions = splines(first).T[left]
    functions *= splines(second).T[right]
    return _assemble(name, functions, roughness, degree, atoms)


def _assemble(
    name: str, functions: Array, roughness: Array, degree: Index, atoms: Atoms
) -> SplineDesign:
    """Add the terms of point masses: each its own level, and its own slope along the other."""
    extra, rough = [functions], [roughness]
    for atom, along in atoms:
        count = int(atom.max(initial=-1)) + 1
        lift = 1.0 if count > 3 else 0.01
        slopes = np.ones((1, len(atom)))
        if along is not None and count:
            slopes = splines(along, 5 if count <= 3 else 2).T
        for j in range(count):
            extra.append((atom == j) * slopes)
            rough.append(lift + cubic(np.arange(len(slopes))))
    if len(extra) > 1:
        functions, roughness = np.concatenate(extra), np.concatenate(rough)
    degree = np.concatenate([degree, np.full(len(roughness) - len(degree), 3)])
    return SplineDesign(name, functions, roughness, degree)


def trim(design: SplineDesign, n_groups: int) -> SplineDesign:
    """Keep the smoothest functions where many groups would make the Newton system large."""
    room = max(3, _MAX_PARAMETERS // (n_groups - 1))
    if len(design.roughness) <= room:
        return design
    order = np.lexsort((design.degree, design.roughness))[:room]
    order.sort()
    return SplineDesign(
        design.name, design.functions[order], design.roughness[order], design.degree[order]
    )
