"""The ``"auto"`` estimator: Ĥ(A|Z) = ½ (in-sample + leave-one-out) log loss, up a ladder of bases.

Variables are replaced by the normal scores of their mid-ranks (information does not change under
monotone maps), and the group is regressed on them by multinomial logistic regression with a
ladder of bases: a constant, linear, quadratic, then smoothing splines of falling penalty and, for
discrete data, the table of cells. For two variables the splines are taken in several coordinate
systems: the two scores, one of them and the residual of the other, their sum and difference.
The leave-one-out loss, by one Newton step per row, weighs the rungs. In-sample loss is too low
and leave-one-out loss too high by the same amount to first order, so their mean is neither.

Beyond a few thousand rows all of this works on the cells of a fine grid of ranks, so that only the
sort grows with n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import ndtri

from ..criteria import Condition
from ..estimation import RowLosses
from ..sensitive import Groups

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Rows beyond which rungs are weighed on a coarse grid, and beyond which they are fitted on a fine
# one. A grid of B bins a side loses about g²/(200 B²) nats where the log odds change by g per
# standard deviation: 3e-5 at B = 128 and g = 3, far below the sampling error of 16,000 rows.
_COARSE_ROWS, _COARSE_BINS = 4096, 64
_FINE_ROWS, _FINE_BINS = 16384, 128
_LEVELS = 2048
_ATOM_SHARE = 0.02
_MAX_ATOMS = 25
_PENALTIES = (3000.0, 600.0, 120.0, 24.0, 5.0, 1.0, 0.2, 0.04)
# Weak ridge on the terms that smoothing leaves free: keeps separated groups finite.
_RIDGE = 0.05
_MAX_PARAMETERS = 420


@dataclass(frozen=True)
class _Levels:
    """One variable cut at its distinct values, or at fine quantiles."""

    codes: Index
    rank: Array
    score: Array
    atom: Index  # number of the point mass a level is, or -1


@dataclass(frozen=True)
class _Cells:
    """Rows gathered by where they lie.

    `coordinates` and `atoms` have one entry per cell and variable, `counts` (C, K) the weight of
    each group. An entry is a set of rows with one cell and one membership `target` (E, K);
    `single` is the weight of one such row, `row_entry` the entry of each row.
    """

    coordinates: tuple[Array, ...]
    atoms: tuple[Index, ...]
    counts: Array
    cell: Index
    target: Array
    weight: Array
    single: Array
    row_entry: Index

    @property
    def cell_weight(self) -> Array:
        return self.counts.sum(axis=1)


@dataclass(frozen=True)
class _Design:
    """Columns of one basis; `roughness` is zero for the terms that are not smoothed."""

    name: str
    columns: Array
    roughness: Array
    degree: Index


@dataclass(frozen=True)
class _Rung:
    name: str
    design: int
    penalty: float | None
    ridge: float
    inside: Array
    outside: Array
    terms: float
    theta: Array | None


class Adaptive:
    """Ĥ(A|Z) = ½ (in-sample + leave-one-out) log loss, on a ladder of bases chosen by the data.

    Parameters
    ----------
    temperature : float
        Rungs are averaged with weights ∝ exp(−n · loss / temperature), their leave-one-out losses
        in nats; towards 0 only the best one counts.

    Notes
    -----
    Costs one sort of each variable, and then an amount that does not depend on n beyond 16,384
    rows. The result does not change under increasing maps of a variable, nor, up to the placing
    of the grid, under decreasing ones.
    """

    def __init__(self, temperature: float = 2.0) -> None:
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
        needed = sorted({name for condition in conditions for name in condition})
        weight = np.ones(groups.n_known) if groups.weight is None else groups.weight
        levels = {name: _cut(variables[name], weight) for name in needed}
        out = {}
        for condition in conditions:
            chosen = [levels[name] for name in condition]
            labels = tuple({"s": "score", "y": "target"}[name] for name in condition)
            gather = _gather_one if len(chosen) == 1 else _gather_two
            out[condition] = self._estimate(chosen, labels, weight, groups, gather)
        return out

    def _estimate(
        self,
        levels: list[_Levels],
        labels: tuple[str, ...],
        weight: Array,
        groups: Groups,
        gather: Callable[..., _Cells],
    ) -> RowLosses:
        n = groups.n_known
        # The (C, K−1, K−1) leverages are the largest array; many groups mean fewer cells.
        room = max(512, int(8e6 / max(groups.n_groups - 1, 1) ** 2))
        coarse = n > min(_COARSE_ROWS, room)
        fine = n > min(_FINE_ROWS, room)
        bins = min(_FINE_BINS, int(np.sqrt(room)))
        cells = gather(levels, weight, groups, min(_COARSE_BINS, bins) if coarse else None)
        effective = groups.n_effective
        rungs = _climb(cells, labels, effective, self.temperature)
        share = _rung_weights(cells, rungs, effective / self.temperature)
        if coarse:
            kept = [(r, w) for r, w in zip(rungs, share, strict=True) if w > 0.02]
            cells = gather(levels, weight, groups, bins if fine else None)
            rungs = _refit(cells, labels, [r for r, _ in kept])
            share = np.array([w for _, w in kept]) / sum(w for _, w in kept)
        value = np.zeros(len(cells.weight))
        for rung, w in zip(rungs, share, strict=True):
            value += w * 0.5 * (rung.inside + rung.outside)
        best = rungs[int(np.argmax(share))]
        words = best.name if best.theta is None else f"{best.name}, {best.terms:.0f} terms"
        rows = value[cells.row_entry]
        return RowLosses(rows, rows, words)


def _rung_weights(cells: _Cells, rungs: list[_Rung], scale: float) -> Array:
    loss = np.array([_mean(cells, rung.outside) for rung in rungs])
    share = np.exp(-scale * (loss - loss.min()))
    return share / share.sum()


def _mean(cells: _Cells, losses: Array) -> float:
    return float(cells.weight @ losses / cells.weight.sum())


def _sums(index: Index, weight: Array, size: int) -> Array:
    return np.bincount(index, weight, size).astype(np.float64, copy=False)


# Cells ------------------------------------------------------------------------------------------


def _cut(values: Array, weight: Array) -> _Levels:
    from .._kernels.splines import mid_rank_levels

    values = np.ascontiguousarray(values, dtype=np.float64)
    total = weight.sum()
    target = total / _LEVELS if len(values) > _COARSE_ROWS else 0.0
    share = max(_ATOM_SHARE, 5.0 / len(values))
    codes, rank, mass, single = mid_rank_levels(
        values, np.argsort(values), weight, target, share * total if target else np.inf
    )
    heavy = np.flatnonzero(single & (mass >= share * total))
    atom = np.full(len(rank), -1, dtype=np.intp)
    if len(heavy) > _MAX_ATOMS:
        heavy = np.sort(heavy[np.argsort(-mass[heavy], kind="stable")[:_MAX_ATOMS]])
    atom[heavy] = np.arange(len(heavy))
    return _Levels(codes, rank, _normal_score(rank), atom)


def _normal_score(rank: Array) -> Array:
    return ndtri(np.clip(rank, 1e-7, 1.0 - 1e-7))


def _rescore(values: Array, weight: Array) -> Array:
    """Normal scores of the weighted mid-ranks of a derived coordinate."""
    from .._kernels.splines import mid_rank_levels

    # Rounding turns the noise of arithmetic on equal values back into ties.
    values = np.round(values, 9)
    codes, rank, _, _ = mid_rank_levels(values, np.argsort(values), weight, 0.0, np.inf)
    return _normal_score(rank)[codes]


def _gather_one(levels: list[_Levels], weight: Array, groups: Groups, bins: int | None) -> _Cells:
    (level,) = levels
    return _collect(level.codes, (level.score,), (level.atom,), weight, groups)


def _gather_two(levels: list[_Levels], weight: Array, groups: Groups, bins: int | None) -> _Cells:
    first, second = levels
    if bins is None:
        rows = np.arange(len(weight))
        return _collect(
            rows,
            tuple(v.score[v.codes] for v in levels),
            tuple(v.atom[v.codes] for v in levels),
            weight,
            groups,
        )
    # Bins of the second variable by those of the first's residual on it: where the two go
    # together closely, a grid along the axes would blur the residual.
    across, along = first.score[first.codes], second.score[second.codes]
    per_level = _sums(second.codes, weight, len(second.rank))
    mean = _sums(second.codes, weight * across, len(second.rank))
    mean = mean / np.where(per_level > 0, per_level, 1.0)
    residual = across - _smooth(second.score, mean, per_level)[second.codes]
    n_atoms = [int(v.atom.max(initial=-1)) + 1 for v in levels]
    column = _quantile_bins(residual, weight, bins)
    row = np.minimum((second.rank * bins).astype(np.intp), bins - 1)
    row = np.where(second.atom >= 0, bins + second.atom, row)[second.codes]
    if n_atoms[0]:
        own = first.atom[first.codes]
        column = np.where(own >= 0, bins + own, column)
    width = bins + n_atoms[0]
    key = row * width + column
    size = (bins + n_atoms[1]) * width
    mass = _sums(key, weight, size)
    used = np.flatnonzero(mass > 0)
    number = np.zeros(size, dtype=np.intp)
    number[used] = np.arange(len(used))
    coordinates = tuple(_sums(key, weight * v, size)[used] / mass[used] for v in (across, along))
    column_used, row_used = used % width, used // width
    atoms = tuple(np.where(v >= bins, v - bins, -1) for v in (column_used, row_used))
    return _collect(number[key], coordinates, atoms, weight, groups)


def _quantile_bins(values: Array, weight: Array, bins: int) -> Index:
    """Bins of equal mass by way of a fine histogram, without a sort."""
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-9:
        return np.zeros(len(values), dtype=np.intp)
    fine = 1 << 16
    code = ((values - low) * ((fine - 1) / (high - low))).astype(np.intp)
    mass = _sums(code, weight, fine)
    middle = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    return np.minimum((middle * bins).astype(np.intp), bins - 1)[code]


def _collect(
    cell: Index,
    coordinates: tuple[Array, ...],
    atoms: tuple[Index, ...],
    weight: Array,
    groups: Groups,
) -> _Cells:
    c, k = len(coordinates[0]), groups.n_groups
    if groups.codes is not None:
        key = cell * k + groups.codes
        mass = _sums(key, weight, c * k)
        used = np.flatnonzero(np.bincount(key, minlength=c * k))
        number = np.zeros(c * k, dtype=np.intp)
        number[used] = np.arange(len(used))
        squares = mass if groups.weight is None else _sums(key, weight**2, c * k)
        target = np.zeros((len(used), k))
        target[np.arange(len(used)), used % k] = 1.0
        own = mass[used]
        single = squares[used] / np.where(own > 0, own, 1.0)
        counts = mass.reshape(c, k)
        return _Cells(coordinates, atoms, counts, used // k, target, own, single, number[key])
    assert groups.probabilities is not None
    counts = np.stack([_sums(cell, weight * p, c) for p in groups.probabilities.T], axis=1)
    if len(cell) <= _FINE_ROWS:
        rows = np.arange(len(cell))
        return _Cells(coordinates, atoms, counts, cell, groups.probabilities, weight, weight, rows)
    mass = _sums(cell, weight, c)
    safe = np.where(mass > 0, mass, 1.0)
    single = _sums(cell, weight**2, c) / safe
    target = np.where(mass[:, None] > 0, counts / safe[:, None], 1.0 / k)
    return _Cells(coordinates, atoms, counts, np.arange(c), target, mass, single, cell)


# Bases ------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _spline_table() -> tuple[float, float, Array]:
    """Smooth functions of a standard normal variable, from smoothest to roughest, on a grid.

    Quartic splines with knots at normal quantiles, made orthonormal under the normal law and
    orthogonal in ∫ f‴² dΦ: 1, u, (u² − 1)/√2, then curves of growing roughness. Symmetric, so that
    reversing a variable only changes signs.
    """
    from scipy.interpolate import BSpline

    limit, knots, order = 4.5, 16, 4
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
    return -limit, float(grid[1] - grid[0]), np.ascontiguousarray(table[:, :_N_SPLINES])


_N_SPLINES = 14


def _splines(u: Array) -> Array:
    from .._kernels.splines import table_rows

    return table_rows(np.ascontiguousarray(u), *_spline_table())


def _cubic(degree: Any) -> Any:
    """Roughness ∫ h‴² dΦ of a Hermite polynomial, 1 at degree 5."""
    return degree * (degree - 1.0) * (degree - 2.0) / 60.0


def _smooth(u: Array, v: Array, weight: Array) -> Array:
    """Smoothing-spline regression of v on u, at u."""
    f = _splines(u)[:, :12]
    gram = f.T @ (weight[:, None] * f)
    gram[np.diag_indices(12)] += _cubic(np.arange(12)) + 1e-6
    return f @ scipy.linalg.solve(gram, f.T @ (weight * v), assume_a="pos")


def _product_terms() -> tuple[Index, Index]:
    """Total degree up to 6, and up to 12 where the other factor is at most quadratic."""
    pairs = [(i, j) for i in range(13) for j in range(13) if i + j <= 6 or min(i, j) <= 2]
    pairs.sort(key=lambda p: (p[0] + p[1], p))
    left, right = np.array(pairs, dtype=np.intp).T
    return np.ascontiguousarray(left), np.ascontiguousarray(right)


_LEFT, _RIGHT = _product_terms()
_PRODUCT_DEGREE = _LEFT + _RIGHT
_PRODUCT_ROUGHNESS = np.where(
    _PRODUCT_DEGREE <= 2,
    0.0,
    _cubic(_LEFT) + _cubic(_RIGHT) + 0.1 * ((_LEFT > 0) & (_RIGHT > 0)),
)


def _designs(cells: _Cells, labels: tuple[str, ...]) -> list[Callable[[], _Design]]:
    if len(labels) == 1:
        (u,), (atom,) = cells.coordinates, cells.atoms
        degree = np.arange(_N_SPLINES)
        return [
            lambda: _assemble(
                f"splines of {labels[0]}", _splines(u), _cubic(degree), degree, [(atom, None)]
            )
        ]
    s, y = cells.coordinates
    weight = cells.cell_weight

    def build(name: str, first: Array, second: Array, beside: tuple[Array, Array]) -> _Design:
        from .._kernels.splines import products

        columns = products(_splines(first), _splines(second), _LEFT, _RIGHT)
        return _assemble(
            name,
            columns,
            _PRODUCT_ROUGHNESS,
            _PRODUCT_DEGREE,
            [(cells.atoms[0], beside[0]), (cells.atoms[1], beside[1])],
        )

    def axes() -> _Design:
        return build(f"splines of {labels[0]} and {labels[1]}", s, y, (y, s))

    def residual_of_first() -> _Design:
        e = _rescore(s - _smooth(y, s, weight), weight)
        return build(f"splines of {labels[1]} and residual {labels[0]}", y, e, (y, e))

    def residual_of_second() -> _Design:
        e = _rescore(y - _smooth(s, y, weight), weight)
        return build(f"splines of {labels[0]} and residual {labels[1]}", s, e, (e, s))

    def diagonals() -> _Design:
        p, m = _rescore(s + y, weight), _rescore(s - y, weight)
        return build(f"splines of {labels[0]} ± {labels[1]}", p, m, (m, m))

    if cells.counts.shape[1] > 6:
        return [residual_of_first, axes]
    return [residual_of_first, axes, diagonals, residual_of_second]


def _assemble(
    name: str,
    columns: Array,
    roughness: Array,
    degree: Index,
    atoms: list[tuple[Index, Array | None]],
) -> _Design:
    """Add the terms of point masses: each its own level, and its own slope along the other."""
    extra, rough = [], []
    for atom, beside in atoms:
        count = int(atom.max(initial=-1)) + 1
        smooth = None if beside is None else _splines(beside)[:, : 5 if count <= 3 else 2]
        for j in range(count):
            here = (atom == j).astype(float)
            if smooth is None:
                extra.append(here)
                rough.append(0.1 if count > 3 else 0.01)
                continue
            for d in range(smooth.shape[1]):
                extra.append(here * smooth[:, d])
                rough.append((0.1 if count > 3 else 0.01) + _cubic(d))
    if extra:
        columns = np.column_stack([columns, *extra])
        roughness = np.concatenate([roughness, rough])
        degree = np.concatenate([degree, np.full(len(rough), 3)])
    return _Design(name, columns, roughness, degree)


# Ladder -----------------------------------------------------------------------------------------


def _climb(
    cells: _Cells, labels: tuple[str, ...], effective: float, temperature: float
) -> list[_Rung]:
    """Fit the rungs, up each basis for as long as the leave-one-out loss does not rise."""
    slack = 4.0 * temperature / effective
    rungs = []
    best = np.inf
    for number, make in enumerate(_designs(cells, labels)):
        design = _trim(make(), cells.counts.shape[1])
        own, theta = np.inf, None
        steps: list[tuple[int, float | None]] = [(2, None)]
        if number == 0:
            steps = [(0, None), (1, None), (2, None)]
        steps += [(99, p) for p in _PENALTIES]
        for tried, (top, penalty) in enumerate(steps):
            rung = _fit_rung(cells, design, number, top, penalty, _RIDGE, theta)
            theta = rung.theta
            rungs.append(rung)
            loss = _mean(cells, rung.outside)
            own, best = min(own, loss), min(best, loss)
            if penalty is not None and (
                loss > own + slack or (tried > len(steps) - 6 and own > best + slack)
            ):
                break
        if number == 0 and best < 0.1:
            # Nearly separated groups: the ridge itself is what keeps the loss up.
            rungs += [
                _fit_rung(cells, design, number, 2, None, ridge, theta)
                for ridge in (_RIDGE * 1e-2, _RIDGE * 1e-4)
            ]
    table = _table(cells, effective)
    return rungs + table


def _refit(cells: _Cells, labels: tuple[str, ...], rungs: list[_Rung]) -> list[_Rung]:
    """The same rungs on other cells."""
    designs = _designs(cells, labels)
    built: dict[int, _Design] = {}
    out = []
    tables = {r.name: r for r in _table(cells, np.inf)}
    for rung in rungs:
        if rung.theta is None:
            out.append(tables[rung.name])
            continue
        if rung.design not in built:
            built[rung.design] = _trim(designs[rung.design](), cells.counts.shape[1])
        top = {"constant": 0, "linear": 1, "quadratic": 2}.get(rung.name, 99)
        design = built[rung.design]
        out.append(_fit_rung(cells, design, rung.design, top, rung.penalty, rung.ridge, rung.theta))
    return out


def _trim(design: _Design, n_groups: int) -> _Design:
    """Keep the smoothest columns where many groups would make the Newton system large."""
    room = max(3, _MAX_PARAMETERS // (n_groups - 1))
    if len(design.roughness) <= room:
        return design
    order = np.lexsort((design.degree, design.roughness))[:room]
    order.sort()
    return _Design(
        design.name,
        np.ascontiguousarray(design.columns[:, order]),
        design.roughness[order],
        design.degree[order],
    )


def _fit_rung(
    cells: _Cells,
    design: _Design,
    number: int,
    top: int,
    penalty: float | None,
    ridge: float,
    theta: Array | None,
) -> _Rung:
    keep = design.degree <= top
    smooth = np.where(design.roughness > 0, (penalty or 0.0) * design.roughness, ridge)
    smooth[0] = 0.0
    columns = design.columns if keep.all() else np.ascontiguousarray(design.columns[:, keep])
    start = None if theta is None else theta[:, keep]
    fit = _newton(columns, cells.counts, smooth[keep], start)
    inside, outside, terms = _losses(columns, cells, smooth[keep], *fit)
    full = np.zeros((fit[0].shape[0], len(keep)))
    full[:, keep] = fit[0]
    name = {0: "constant", 1: "linear", 2: "quadratic"}.get(top, design.name)
    return _Rung(name, number, penalty, ridge, inside, outside, terms, full)


def _newton(
    columns: Array, counts: Array, penalty: Array, theta: Array | None
) -> tuple[Array, Array, Array]:
    """Minimize −Σ N log p + ½ Σ penalty · |θ|² by damped Newton; group 0 is the reference.

    The penalty I − 11ᵀ/K between groups makes the choice of reference immaterial.
    Returns θ (K − 1, D), η (C, K − 1) and p (C, K).
    """
    from .._kernels.splines import softmax_loss

    c, d = columns.shape
    k = counts.shape[1]
    total = counts.sum(axis=1)
    between = np.eye(k - 1) - 1.0 / k
    if theta is None:
        theta = np.zeros((k - 1, d))
        share = counts.sum(axis=0) + 1e-9
        theta[:, 0] = np.log(share[1:] / share[0])
    prob, trial_prob = np.empty((c, k)), np.empty((c, k))

    def objective(th: Array, out: Array) -> tuple[float, Array]:
        eta = columns @ th.T
        return softmax_loss(eta, counts, out) + 0.5 * float(
            ((between @ th) * th * penalty).sum()
        ), eta

    value, eta = objective(theta, prob)
    mass = total.sum()
    for _ in range(25):
        slope = (total[:, None] * prob - counts)[:, 1:].T @ columns + (between @ theta) * penalty
        factor = _factor(_hessian(columns, total, prob, penalty, between))
        step = scipy.linalg.cho_solve(factor, slope.ravel(), check_finite=False)
        gain = float(slope.ravel() @ step)
        step = step.reshape(theta.shape)
        scale = 1.0
        while True:
            trial = theta - scale * step
            trial_value, trial_eta = objective(trial, trial_prob)
            if trial_value <= value + 1e-10 * abs(value) or scale < 1e-3:
                break
            scale *= 0.5
        if not trial_value <= value + 1e-10 * abs(value):
            break
        theta, value, eta = trial, trial_value, trial_eta
        prob, trial_prob = trial_prob, prob
        if gain < 1e-6 * mass * min(1.0, value / mass):
            break
    return theta, eta, prob


def _hessian(columns: Array, total: Array, prob: Array, penalty: Array, between: Array) -> Array:
    d, q = columns.shape[1], prob.shape[1] - 1
    if q > 3 and d <= 16:
        # All blocks in one product: with few columns their pairwise products are a small table.
        upper = np.triu_indices(d)
        pairs = columns[:, upper[0]] * columns[:, upper[1]]
        blocks = np.triu_indices(q)
        weights = -prob[:, blocks[0] + 1] * prob[:, blocks[1] + 1]
        weights[:, blocks[0] == blocks[1]] += prob[:, 1:]
        sums = (weights * total[:, None]).T @ pairs
        small = np.empty((len(sums), d, d))
        small[:, upper[0], upper[1]] = sums
        small[:, upper[1], upper[0]] = sums
        out = np.empty((q, q, d, d))
        out[blocks] = small
        out[blocks[1], blocks[0]] = small
    else:
        out = np.empty((q, q, d, d))
        for i in range(q):
            for j in range(i + 1):
                p = prob[:, i + 1]
                w = total * p * ((1.0 - p) if i == j else prob[:, j + 1])
                scaled = columns * np.sqrt(w)[:, None]
                block = scaled.T @ scaled
                out[i, j] = out[j, i] = block if i == j else -block
    diagonal = np.arange(d)
    out[:, :, diagonal, diagonal] += between[:, :, None] * penalty
    return out.transpose(0, 2, 1, 3).reshape(q * d, q * d)


def _factor(hessian: Array) -> tuple[Array, bool]:
    jitter = 1e-10 * float(np.trace(hessian)) / len(hessian) + 1e-12
    while True:
        hessian[np.diag_indices(len(hessian))] += jitter
        try:
            return scipy.linalg.cho_factor(hessian, lower=True, check_finite=False)
        except scipy.linalg.LinAlgError:
            jitter *= 100.0


def _losses(
    columns: Array, cells: _Cells, penalty: Array, theta: Array, eta: Array, prob: Array
) -> tuple[Array, Array, float]:
    """In-sample and leave-one-out loss of each entry, and the effective number of terms."""
    from .._kernels.splines import entry_losses

    c, d = columns.shape
    q = prob.shape[1] - 1
    total = cells.cell_weight
    hessian = _hessian(columns, total, prob, penalty, np.eye(q) - 1.0 / (q + 1))
    inverse = scipy.linalg.cho_solve(_factor(hessian), np.eye(q * d), check_finite=False)
    blocks = inverse.reshape(q, d, q, d)
    leverage = np.empty((c, q, q))
    for i in range(q):
        for j in range(i + 1):
            m = np.einsum("cd,cd->c", columns @ blocks[i, :, j], columns)
            leverage[:, i, j] = leverage[:, j, i] = m
    spread = prob[:, 1:]
    terms = np.einsum("c,ckk,ck->", total, leverage, spread) - np.einsum(
        "c,ckj,ck,cj->", total, leverage, spread, spread
    )
    inside, outside = entry_losses(eta, prob, leverage, cells.cell, cells.target, cells.single)
    return inside, outside, float(terms)


def _table(cells: _Cells, effective: float) -> list[_Rung]:
    """Shares within each distinct cell, smoothed towards the overall ones; for discrete data."""
    key = np.stack([np.round(v, 12) for v in cells.coordinates])
    distinct, code = np.unique(key, axis=1, return_inverse=True)
    size = distinct.shape[1]
    if size > 400 or size * 4 > cells.weight.sum() * (effective > 0):
        return []
    code = code.ravel()
    k = cells.counts.shape[1]
    counts = np.stack([_sums(code, column, size) for column in cells.counts.T], axis=1)
    share = counts.sum(axis=0) / counts.sum()
    own = code[cells.cell]
    rungs = []
    for prior in (0.5, 4.0, 32.0):
        pull = prior * (0.5 * share + 0.5 / k)
        here = counts[own] + pull
        inside = -(cells.target * np.log(here / here.sum(axis=1, keepdims=True))).sum(axis=1)
        left = here - cells.single[:, None] * cells.target
        left = np.maximum(left, 1e-12)
        outside = -(cells.target * np.log(left / left.sum(axis=1, keepdims=True))).sum(axis=1)
        name = f"table of {size} cells, prior weight {prior:g}"
        rungs.append(_Rung(name, -1, None, 0.0, inside, outside, float(size), None))
    return rungs
