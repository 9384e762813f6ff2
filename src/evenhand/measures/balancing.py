"""Augmented balancing weights: a reference that has a group's controls, as far as data allow.

Columns φ of the controls: every level of a category, splines of every number, products of levels
with lines and with levels, cubic products of up to eight numbers, and leaves of small trees. The
category with the most levels has no columns; it splits the rows into strata l, within which
everything happens. Weights q of the reference have the group's share t_l of each stratum and its
mean of every column,

    q_i ∝ w_i exp(φ_i·θ) within l,   θ = argmin Σ_l t_l log Σ_{i∈l} w_i exp(φ_i·θ) − φ̄·θ + ½θ'Λθ,

by Newton's method (entropy balancing, Hainmueller 2012). A ridge regression β of the reference's
values on the same columns, weighted by q, corrects for what imbalance δ is left, so that an effect
is linear in the values, with weights c_i = q_i(1 + (φ_i − φ̄_q)'(H + Λ)⁻¹δ), and the derivative of
q through θ is in β too: residuals of that regression are the influences of rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from .._core.arrays import Mask, Matrix, Rows, Vector
from ..data.encoding import Control, Controls
from ..data.groups import Groups
from ..data.weights import cluster_groups

BLOCKS = ("line", "level", "curve", "product", "square", "cube", "leaf")
LINE, LEVEL, CURVE, PRODUCT, SQUARE, CUBE, LEAF = range(len(BLOCKS))
# Rows for each knot of a spline, and knots of all numbers together.
ROWS_A_KNOT, FEWEST_KNOTS, MOST_KNOTS, ALL_KNOTS = 60, 4, 25, 60
# A product of a level needs so many rows of it, twice as many over all groups.
ROWS_A_PRODUCT = 20
# Beyond so many numbers there are no products of them, and beyond so many columns none of levels.
MOST_CUBED, MOST_COLUMNS = 8, 250
# The ridge is that of the best prediction over this: it biases the prediction, and must not bias
# its mean. Lines and levels are next to free.
UNDERSMOOTHED, FREE = 30.0, 1000.0
# Factors of the ridge that are tried, and the loss of effective rows that more balance may cost.
FACTORS, TOLERATED = (1e3, 3e1, 1.0), 1.1
# A member has hardly any counterpart where fewer than one in fifty with the same controls is of
# the reference, or where its level has fewer than two rows of the reference.
LEAST_COUNTERPARTS, LEAST_ROWS = 0.02, 2
# Trees whose leaves are columns, one for so many rows, and their leaves. Where steps of numbers
# move score and group, gaps without them are off by 0.65 standard errors, and by 1.7 with six of
# them.
MOST_TREES, ROWS_A_TREE, LEAVES, ROWS_A_LEAF = 10, 100, 4, 20
# Boosted trees look for what the columns do not hold from so many rows of the reference on.
TREE_ROWS, TREE_FOLDS = 300, 3
LEAST_PROBABILITY = 1e-3


@dataclass(frozen=True)
class Basis:
    """Columns of the controls.

    Attributes
    ----------
    controls : Controls
    strata : (n,) array
        Codes of the category with the most levels; zeros without categories.
    X : (n, d) array
    block : (d,) array of numbers of BLOCKS
        Columns of one block have a common ridge.
    """

    controls: Controls
    strata: Rows
    X: Matrix
    block: Rows

    @property
    def n_strata(self) -> int:
        return int(self.strata.max()) + 1


def build_basis(controls: Controls, n_units: float) -> Basis:
    """Build the columns for as many independent rows (or clusters).

    Parameters
    ----------
    controls : Controls
        Of the rows with a known group.
    n_units : float
    """
    coded = [c for c in controls.columns if c.codes is not None]
    coded.sort(key=lambda c: -len(c.levels))
    numbers = [c for c in controls.columns if c.codes is None]
    parts: list[tuple[int, Matrix]] = []
    lines: list[Vector] = []
    for column in coded:
        if column is not coded[0]:
            parts.append((LEVEL, _indicators(column.codes, np.arange(1, len(column.levels)))))
        if column.is_number and column.values is not None and not np.isnan(column.values).any():
            lines.append(_robust_line(column)[0])
    for column in numbers:
        own, line = _curves(column, n_units / len(numbers), ALL_KNOTS // len(numbers))
        parts += own
        lines.append(line)
    codes = [c.codes for c in coded if c.codes is not None]
    used = sum(part.shape[1] for _, part in parts)
    parts += _level_products(codes, lines, MOST_COLUMNS - used)
    parts += _number_products(lines, n_units)
    n = len(codes[0] if codes else lines[0])
    X = np.column_stack([part for _, part in parts]) if parts else np.empty((n, 0))
    block = np.repeat([b for b, _ in parts], [part.shape[1] for _, part in parts]).astype(np.intp)
    return Basis(controls, codes[0] if codes else np.zeros(n, dtype=np.intp), X, block)


def _indicators(codes: Any, levels: Rows) -> Matrix:
    return (codes[:, None] == levels).astype(np.float64)


def _robust_line(column: Control) -> tuple[Vector, Mask]:
    """A number over its interquartile range, medians for missing values, and which are missing."""
    assert column.values is not None
    missing = np.isnan(column.values)
    x = np.where(missing, np.median(column.values[~missing]), column.values)
    spread = float(np.subtract(*np.quantile(x, [0.75, 0.25]))) / 1.35 or float(x.std()) or 1.0
    return (x - np.median(x)) / spread, missing


def _curves(column: Control, rows: float, most: int) -> tuple[list[tuple[int, Matrix]], Vector]:
    """Columns of one number, and the line that products are made of."""
    z, missing = _robust_line(column)
    # Tails are drawn in, so that a few extreme values do not own the curve.
    t = np.arcsinh(z) if np.abs(z).max() > 10 else z
    parts = [(LINE, z[:, None])]
    if missing.any():
        parts.append((LINE, missing[:, None].astype(np.float64)))
    count = int(np.clip(min(rows / ROWS_A_KNOT, most), FEWEST_KNOTS, MOST_KNOTS))
    tail = min(5 / len(t), 0.03)
    low, high = np.quantile(t, [tail, 1 - tail]).tolist()
    even = np.linspace(low, high, count)
    knots = np.unique(0.3 * np.quantile(t, np.linspace(tail, 1 - tail, count)) + 0.7 * even)
    bent = [t[:, None]] if t is not z else []
    bent += [natural_spline(t, knots)] if len(knots) > 2 else []
    if bent:
        C = np.column_stack(bent)
        straight = np.column_stack([np.ones_like(z), z])
        C = C - straight @ np.linalg.lstsq(straight, C, rcond=None)[0]
        U, size, _ = np.linalg.svd(C / np.maximum(C.std(axis=0), 1e-300), full_matrices=False)
        parts.append((CURVE, U[:, size > 1e-6 * size[0]]))
    return parts, np.clip(t, -4, 4)


def natural_spline(z: Vector, knots: Vector) -> Matrix:
    """Natural cubic splines beyond the line: m − 2 columns for m knots, linear outside them.

    d_j(z) − d_{m−1}(z) with d_j = [(z − t_j)₊³ − (z − t_m)₊³] / (t_m − t_j).
    """
    above = np.maximum(z[:, None] - knots, 0.0) ** 3
    d = (above[:, :-1] - above[:, -1:]) / (knots[-1] - knots[:-1])
    return d[:, :-1] - d[:, -1:]


def _level_products(
    codes: list[Rows], lines: list[Vector], room: int
) -> Iterator[tuple[int, Matrix]]:
    """Levels × lines and levels × levels, those of many rows first, as far as there is room."""
    tables: list[tuple[Any, Any]] = [(c, z) for c in codes[::-1] for z in lines]
    tables += [(c * (int(e.max()) + 1) + e, None) for c, e in combinations(codes, 2)]
    for cell, z in tables:
        count = np.bincount(cell)
        kept = np.flatnonzero(count >= 2 * ROWS_A_PRODUCT)
        kept = kept[np.argsort(-count[kept], kind="stable")][: max(room, 0)]
        if len(kept):
            part = _indicators(cell, kept)
            if z is not None:
                part *= z[:, None] - np.bincount(cell, z)[kept] / count[kept]
            room -= len(kept)
            yield PRODUCT, part


def _number_products(lines: list[Vector], n_units: float) -> Iterator[tuple[int, Matrix]]:
    """Products of two and of three lines, where there are rows for so many columns."""
    if not 1 < len(lines) <= MOST_CUBED:
        return
    scaled = [z / (z.std() or 1.0) for z in lines]
    for degree, block in ((2, SQUARE), (3, CUBE)):
        factors = combinations_with_replacement(scaled, degree)
        part = [np.prod(f, axis=0) for f in factors if any(g is not f[0] for g in f)]
        if 4 * len(part) <= n_units:
            yield block, np.column_stack(part)


def add_leaves(basis: Basis, s: Vector, groups: Groups) -> Basis:
    """Add the leaves of trees of the score less its lines and levels, each of what others leave.

    They follow steps, which no smooth column does. The trees see all rows and no group, so that
    what they take from chance favors none. Controls without a number have levels for that.
    """
    from sklearn.tree import DecisionTreeRegressor

    columns = basis.controls.columns
    count = int(min(groups.n_effective // ROWS_A_TREE, MOST_TREES))
    if not count or all(c.codes is not None for c in columns):
        return basis
    weight, largest = groups.row_weight, groups.shares.argmax()
    group = weight * groups.membership()[:, largest]
    F = np.column_stack([_ordered(c, group, weight) for c in columns])
    plain = basis.block <= LEVEL
    straight = Basis(basis.controls, basis.strata, basis.X[:, plain], basis.block[plain])
    left = s - Regression(straight, groups, s).predict(s)
    leaves = []
    for _ in range(count):
        tree = DecisionTreeRegressor(
            max_leaf_nodes=LEAVES, min_samples_leaf=ROWS_A_LEAF, random_state=0
        ).fit(F, left, weight)
        left = left - tree.predict(F)
        leaf = np.unique(tree.apply(F), return_inverse=True)[1]
        leaves.append(_indicators(leaf, np.arange(1, int(leaf.max()) + 1)))
    X = np.column_stack([basis.X, *leaves])
    block = np.append(basis.block, np.full(X.shape[1] - basis.X.shape[1], LEAF))
    return Basis(basis.controls, basis.strata, X, block)


class _Strata:
    """Sums of rows by stratum."""

    def __init__(self, codes: Rows, n_strata: int):
        self.codes, self.n = codes, n_strata
        ones = (np.ones(len(codes)), (codes, np.arange(len(codes))))
        self.table = csr_array(ones, shape=(n_strata, len(codes)))

    def means(self, mass: Vector, values: Any) -> Any:
        """Weighted means of each stratum; 0 where it has no mass."""
        if self.n == 1:
            return (mass @ values / (mass.sum() or 1.0))[None]
        total = self.table @ mass
        return ((self.table @ (mass * values.T).T).T / np.where(total > 0, total, 1.0)).T

    def center(self, mass: Vector, values: Any) -> Any:
        """Values less the weighted mean of their stratum."""
        means = self.means(mass, values)
        return values - (means if self.n == 1 else means[self.codes])


def _scaled(basis: Basis, rows: Rows, mass: Vector) -> tuple[Matrix, Rows]:
    """Columns of mean 0 and variance 1 among some rows, and their blocks; none without spread."""
    part = basis.X[rows]
    mean = mass @ part / mass.sum()
    spread = np.sqrt(mass @ np.square(part - mean) / mass.sum())
    kept = spread > 1e-12 * np.maximum(np.abs(part).max(axis=0, initial=0.0), 1e-300)
    kept &= (basis.block != PRODUCT) | ((part != 0).sum(axis=0) >= ROWS_A_PRODUCT)
    return (basis.X[:, kept] - mean[kept]) / spread[kept], basis.block[kept]


def _learn_ridge(
    gram: Matrix, cross: Vector, power: float, block: Rows, size: float, room: float
) -> Vector:
    """The ridge of each column, from how much of y its block explains (MacKay's evidence).

    σ²/(n·τ²) is that of the best prediction, for noise σ² and coefficients of variance τ². `gram`,
    `cross` and `power` are means of products of columns and y over `size` rows, `room` of which
    are left by the means of strata.
    """
    blocks, at = np.unique(block, return_inverse=True)
    count = np.bincount(at)
    if not power > 0 or not len(blocks):
        return np.full(len(block), 1e-2)
    room = max(room, 0.1 * size)
    variance = power * size / room
    noise, prior = 0.5 * variance, np.full(len(blocks), variance / len(at))
    for _ in range(10):
        V = np.linalg.inv(gram * (size / noise) + np.diag(1 / prior[at]))
        beta = V @ (cross * (size / noise))
        known = np.maximum(count - np.bincount(at, np.diag(V)) / prior, 1e-3 * count)
        prior = np.maximum(np.bincount(at, beta**2) / known, 1e-9 * variance)
        left = size * (power - 2 * beta @ cross + beta @ gram @ beta)
        noise = max(left / max(room - known.sum(), 0.1 * size), 1e-10 * variance)
    factor = np.where(blocks <= LEVEL, FREE, UNDERSMOOTHED)
    return np.clip(noise / (factor * size * prior), 1e-7, 0.1)[at]


class _Moments:
    """Columns within strata, and means of their products."""

    def __init__(self, X: Matrix, strata: _Strata, mass: Vector, block: Rows, size: float):
        self.strata, self.share, self.block, self.size = strata, mass / mass.sum(), block, size
        self.centered = strata.center(self.share, X)
        self.gram = (self.centered * self.share[:, None]).T @ self.centered
        self.room = size - len(np.unique(strata.codes))

    def ridge(self, y: Vector) -> Vector:
        y = self.strata.center(self.share, y)
        cross, power = self.centered.T @ (self.share * y), float(self.share @ y**2)
        return _learn_ridge(self.gram, cross, power, self.block, self.size, self.room)


def _newton(
    X: Matrix, strata: _Strata, share: Vector, target: Vector, base: Vector, ridge: Vector,
    theta: Vector,
) -> tuple[Vector, Vector, Matrix, Matrix]:  # fmt: skip
    """θ, the weights q, columns less their means under q, and the covariances of these."""
    offset = np.log(base)

    def evaluate(theta: Vector) -> tuple[float, Vector]:
        eta = X @ theta + offset
        top = np.full(strata.n, -np.inf)
        np.maximum.at(top, strata.codes, eta)
        q = np.exp(eta - top[strata.codes])
        total = np.bincount(strata.codes, q, strata.n)
        used = share > 0
        value = float(share[used] @ (np.log(total[used]) + top[used])) - float(theta @ target)
        q *= (share / np.where(used, total, 1.0))[strata.codes]
        return value + 0.5 * float(ridge @ theta**2), q

    value, q = evaluate(theta)
    for _ in range(60):
        centered = strata.center(q, X)
        H = (centered * q[:, None]).T @ centered
        gradient = q @ X - target + ridge * theta
        step = np.linalg.solve(H + np.diag(ridge), gradient)
        decrease = float(gradient @ step)
        if decrease < 1e-9:
            break
        size = 1.0
        while True:
            trial, weights = evaluate(theta - size * step)
            if trial <= value - 1e-4 * size * decrease or size < 1e-6:
                break
            size /= 2
        theta, value, q = theta - size * step, trial, weights
    return theta, q, centered, H


class Balance:
    """The reference weighted to the controls of a group.

    Attributes
    ----------
    kept : (n,) mask
        Rows whose controls have counterparts.
    n_columns : int
    """

    def __init__(
        self, basis: Basis, group: Vector, reference: Vector, s: Vector,
        cluster: Rows | None = None, size: float | None = None,
    ):  # fmt: skip
        """Find the weights.

        Parameters
        ----------
        basis : Basis
        group, reference : (n,) arrays
            Mass of each row in the two.
        s : (n,) array
            Scores, from which the ridge is learned.
        cluster : (n,) array, optional
        size : float, optional
            Independent rows (or clusters) of the reference.
        """
        self.basis, self.cluster, self.size = basis, cluster, size
        self.kept = self._trim(group, reference)
        self._select(group * self.kept, reference * self.kept)
        if not self.is_possible:
            return
        X, block = _scaled(basis, self.rows, self.base)
        strata, inside = self.strata, X[self.rows]
        moments = _Moments(inside, strata, self.base, block, self.n_reference)
        ridge = moments.ridge(s[self.rows])
        target = self.member_share @ X[self.members]
        free, theta, least = block <= LEVEL, np.zeros(len(block)), np.inf
        for factor in FACTORS if not free.all() else FACTORS[-1:]:
            trial = np.where(free, ridge, factor * ridge)
            theta, q, centered, H = _newton(
                inside, strata, self.shares, target, self.base, trial, theta
            )
            inverse = np.linalg.inv(H + np.diag(ridge))
            step = inverse @ (target - q @ inside)
            c = q * (1 + centered @ step)
            # Variance and squared bias, in units of the noise.
            cost = float(c @ c + ridge @ step**2 / self.n_reference)
            least = min(cost, least)
            if cost <= TOLERATED * least:
                self.q, self.c, self.centered, self.inverse = q, c, centered, inverse
        self.X, self.n_columns = X, X.shape[1]

    @property
    def is_possible(self) -> bool:
        """Whether anybody can be compared."""
        return bool(len(self.members) and len(self.rows))

    @property
    def n_counterparts(self) -> float:
        """Rows of the reference of equal weight that the comparison rests on."""
        return 1.0 / float(self.q @ self.q)

    def _select(self, group: Vector, reference: Vector) -> None:
        strata, n = self.basis.strata, self.basis.n_strata
        share = np.bincount(strata, group, n)
        reference = reference * (share[strata] > 0)
        self.members, self.rows = np.flatnonzero(group > 0), np.flatnonzero(reference > 0)
        self.base = reference[self.rows]
        self.shares = share / max(share.sum(), 1e-300)
        self.member_share = group[self.members] / max(group.sum(), 1e-300)
        self.strata = _Strata(strata[self.rows], n)
        n_rows = self.base.sum() ** 2 / max(np.square(self.base).sum(), 1e-300)
        self.n_reference = float(min(n_rows, self.size or n_rows))

    def _trim(self, group: Vector, reference: Vector) -> Mask:
        """Rows with counterparts: by levels, then by odds that lines and levels tell."""
        kept = np.ones(len(group), dtype=bool)
        for column in self.basis.controls.columns:
            if column.codes is not None:
                kept &= np.bincount(column.codes, reference > 0)[column.codes] >= LEAST_ROWS
        self._select(group * kept, reference * kept)
        if not self.is_possible:
            return kept
        X, block = _scaled(self.basis, self.rows, self.base)
        X = X[:, block <= LEVEL]
        target, ridge = self.member_share @ X[self.members], np.full(X.shape[1], 1e-4)
        theta, q, *_ = _newton(
            X[self.rows], self.strata, self.shares, target, self.base, ridge, np.zeros(len(ridge))
        )
        level = np.full(self.strata.n, -np.inf)
        used = q > 0
        level[self.strata.codes[used]] = (
            np.log(q[used] / self.base[used]) - X[self.rows[used]] @ theta
        )
        own = level[self.basis.strata]
        odds = np.exp(np.clip(X @ theta + np.where(np.isfinite(own), own, 700.0), -700, 700))
        # A reference that is the smaller group is not for that reason far away.
        odds *= min(float(self.base.sum()), float((group * kept).sum()))
        kept &= odds <= 1.0 / LEAST_COUNTERPARTS - 1.0
        strata = self.basis.strata
        return kept & (np.bincount(strata, (reference > 0) & kept)[strata] >= LEAST_ROWS)

    def residuals(self, values: Vector) -> Vector:
        """Values less what the reference with the same controls has on average, for all rows."""
        strata, inside = self.basis.strata, values[self.rows]
        beta = self.inverse @ (self.centered.T @ (self.q * self.strata.center(self.q, inside)))
        mean = self.strata.means(self.q, inside)
        center = self.strata.means(self.q, self.X[self.rows])
        return values - mean[strata] - (self.X - center[strata]) @ beta

    def effect(self, values: Vector) -> float:
        """Mean over the members of what they have beyond the reference with their controls."""
        return float(self.member_share @ self.residuals(values)[self.members])

    def influences(self, residuals: Vector) -> Vector:
        """Of each row on the effect; their squares, summed over rows or clusters, estimate its
        variance.

        Residuals of rows that were fitted are too small and those of rows that were predicted too
        large. Both are scaled to what they would be without the noise of the fit.
        """
        fitted, predicted = self._noise
        psi = np.zeros(len(residuals))
        mine = residuals[self.members]
        psi[self.members] += self.member_share * (mine - self.member_share @ mine) / predicted
        psi[self.rows] -= self.c * residuals[self.rows] / fitted
        return psi

    @cached_property
    def _noise(self) -> tuple[Vector, Vector]:
        """Standard deviations of residuals of both kinds, in units of the noise of a unit."""
        codes, rows, q = self.strata.codes, self.rows, self.q
        unit = np.arange(len(rows)) if self.cluster is None else self.cluster[rows]
        unit = np.unique(unit, return_inverse=True)[1]
        pair, at = np.unique(unit * self.strata.n + codes, return_inverse=True)
        mass = np.bincount(at, q)
        of_unit, of_stratum = pair // self.strata.n, pair % self.strata.n
        square = np.bincount(of_stratum, mass**2, self.strata.n) / np.square(
            np.where(self.shares > 0, self.shares, 1.0)
        )
        own = mass**2 / self.shares[of_stratum]
        pulled = self.centered * q[:, None]
        if self.cluster is not None:
            pulled = cluster_groups(unit, pulled)
        total = np.maximum(np.bincount(unit, q), 1e-300)
        spread = self.inverse @ (pulled.T @ pulled) @ self.inverse
        mean = pulled / total[:, None]
        leverage = (np.bincount(of_unit, own) + _squares(pulled, self.inverse)) / total
        shared = np.bincount(of_unit, mass * square[of_stratum]) / total + _squares(mean, spread)
        fitted = np.sqrt(np.maximum(1 - 2 * leverage + shared, 0.1))[unit]
        center = self.strata.means(q, self.X[rows])
        level = self.basis.strata[self.members]
        apart = self.X[self.members] - center[level]
        return fitted, np.sqrt(1 + square[level] + _squares(apart, spread))

    def worst_control(self) -> tuple[str, float]:
        """The control with the largest standardized difference that is left, and how large it is.

        Of a number that of its mean, of a category the largest of its levels.
        """
        worst = ("", 0.0)
        for column in self.basis.controls.columns:
            if column.codes is not None:
                n = len(column.levels)
                first = np.bincount(column.codes[self.members], self.member_share, n)
                second = np.bincount(column.codes[self.rows], self.c, n)
                both = 0.5 * (first * (1 - first) + np.abs(second * (1 - second)))
                apart = np.abs(first - second) / np.sqrt(np.maximum(both, 1e-12))
                value = float(apart.max(initial=0.0))
            else:
                x = _robust_line(column)[0]
                spread = np.sqrt(0.5 * (x[self.members].var() + x[self.rows].var()))
                apart = self.member_share @ x[self.members] - self.c @ x[self.rows]
                value = float(abs(apart) / spread) if spread > 0 else 0.0
            if value > worst[1]:
                worst = (column.name, value)
        return worst


def _squares(rows: Any, inner: Any) -> Vector:
    """x'Mx of each row."""
    return np.einsum("ij,ij->i", rows @ inner, rows)


def boost(
    balance: Balance, s: Vector, group: Vector, weight: Vector, seed: int,
    known: dict[bytes, Vector] | None = None,
) -> Vector | None:  # fmt: skip
    """Cross-fitted boosted trees of the reference's scores, where the columns lack something.

    None where trees do not lower the loss out of fold, or where there are too few rows or nothing
    but one category.

    Parameters
    ----------
    balance : Balance
    s, group, weight : (n,) arrays
        Scores; mass of each row in the group; weights.
    seed : int
        Of folds.
    known : dict, optional
        Predictions by rows of the reference and columns, which groups may share.
    """
    rows = balance.rows
    if len(rows) < TREE_ROWS or not balance.n_columns:
        return None
    F = np.column_stack([_ordered(c, group, weight) for c in balance.basis.controls.columns])
    key = hashlib.sha256(F.data).digest() + hashlib.sha256(rows.data).digest()
    known = {} if known is None else known
    if key not in known:
        known[key] = _cross_fit(balance, F, s, seed)
    out = known[key]
    more, left = balance.residuals(out)[rows], balance.residuals(s)[rows]
    gain = balance.base * more * (2 * left - more)
    return out if gain.sum() > 1e-9 * float(balance.base @ left**2) else None


def _cross_fit(balance: Balance, F: Matrix, s: Vector, seed: int) -> Vector:
    """Scores of the reference as trees without the row's fold predict them, within strata."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    rows, strata = balance.rows, balance.basis.strata
    y = s - balance.strata.means(balance.base, s[rows])[strata]
    unit = np.arange(len(s)) if balance.cluster is None else balance.cluster
    fold = (np.random.default_rng(seed).permutation(int(unit.max()) + 1) % TREE_FOLDS)[unit]
    mass = None if balance.base.min() == balance.base.max() else balance.base
    small = len(rows) < 5000
    out = np.zeros(len(s))
    # On a busy machine threads wait for one another, and seconds become minutes.
    with threadpool_limits(1):
        for f in range(TREE_FOLDS):
            train, test = fold[rows] != f, fold == f
            if not train.any() or not test.any():
                return out * np.nan
            model = HistGradientBoostingRegressor(
                max_iter=50 if small else 100, learning_rate=0.15 if small else 0.1,
                max_leaf_nodes=8 if small else 15, early_stopping=False, random_state=seed,
            )  # fmt: skip
            model.fit(F[rows[train]], y[rows[train]], None if mass is None else mass[train])
            out[test] = model.predict(F[test])
    return out


def _ordered(column: Control, group: Vector, weight: Vector) -> Vector:
    """A number as it is; levels in the order of the group's share."""
    if column.codes is None:
        assert column.values is not None
        return column.values
    share = np.bincount(column.codes, group) / np.maximum(np.bincount(column.codes, weight), 1e-300)
    return np.argsort(np.argsort(share, kind="stable"))[column.codes].astype(np.float64)


# ------------------------------------------------------------------------------------------------
# What all rows say given the controls: residuals that no group has an advantage in.


class Regression:
    """Ridge regressions of any values on the columns, over all rows.

    Every row is in the fit, whatever its group, so that residuals of rows with the same controls
    are alike unless the values themselves depend on the group. One ridge serves all values, the
    smallest that the score or a group asks for.
    """

    def __init__(self, basis: Basis, groups: Groups, s: Vector | None = None):
        self.basis, self.groups, self.weight = basis, groups, groups.row_weight
        self.strata = _Strata(basis.strata, basis.n_strata)
        rows = np.flatnonzero(self.weight > 0)
        X, block = _scaled(basis, rows, self.weight[rows])
        self.moments = _Moments(X, self.strata, self.weight, block, groups.n_effective)
        self.membership = groups.membership()
        asked = [*np.delete(self.membership, groups.shares.argmax(), axis=1).T]
        ridge = np.min([self.moments.ridge(y) for y in asked + [s] * (s is not None)], axis=0)
        self.inverse = np.linalg.inv(self.moments.gram + np.diag(ridge))

    def predict(self, values: Any) -> Any:
        """Predictions of (n,) or (n, J) values."""
        centered, share = self.moments.centered, self.moments.share
        apart = self.strata.center(share, values)
        return values - apart + centered @ (self.inverse @ ((centered.T * share) @ apart))

    @cached_property
    def leverage(self) -> Vector:
        """Of each row on its own prediction."""
        share = self.moments.share
        total = (self.strata.table @ share)[self.strata.codes]
        own = share / total + share * _squares(self.moments.centered, self.inverse)
        return np.clip(own, 0.0, 0.9)

    @cached_property
    def probabilities(self) -> Matrix:
        """(n, K): P(A = k | C), rows of sum 1, nowhere certain."""
        # Rounded, so that rows of the same controls have the same.
        p = np.clip(self.predict(self.membership).round(10), LEAST_PROBABILITY, None)
        return p / p.sum(axis=1, keepdims=True)


def log_odds(p: Vector) -> Vector:
    """log p/(1 − p), of probabilities that are nowhere certain."""
    p = np.clip(p, LEAST_PROBABILITY, 1.0 - LEAST_PROBABILITY)
    return np.log(p) - np.log1p(-p)


def summarize_controls(controls: Controls, groups: Groups) -> tuple[Vector, str]:
    """One number per row that stands for the controls where a model is trained, and what it is.

    One numeric control stands for itself. Otherwise it is the balancing score b(C), the log-odds of
    the group: given b, the group is independent of the controls, so that S ⟂ A | C implies
    S ⟂ A | b(C). Of more than two groups it is the direction in which their log-odds against the
    largest differ most.

    Parameters
    ----------
    controls : Controls
        Of all n rows.
    groups : Groups

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
    weight = groups.row_weight
    basis = build_basis(controls, groups.n_effective)
    p = Regression(basis, groups).probabilities
    order = np.argsort(groups.shares, kind="stable")
    if groups.n_groups == 2:
        words = "the log-odds of the group given the controls"
        return groups.put_known(log_odds(p[:, order[0]])), words
    odds = np.delete(np.log(p) - np.log(p[:, order[-1:]]), order[-1], axis=1)
    centered = odds - np.average(odds, axis=0, weights=weight)
    # A small group's odds matter as far as there are people to tell apart.
    scaled = centered * np.sqrt(np.delete(groups.shares, order[-1]))
    direction = np.linalg.svd(scaled * np.sqrt(weight)[:, None], full_matrices=False)[2][0]
    direction *= np.sign(direction[np.abs(direction).argmax()])
    words = "the direction in which the log-odds of the groups given the controls differ most"
    return groups.put_known(scaled @ direction), words
