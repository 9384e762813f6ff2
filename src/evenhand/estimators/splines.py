"""Smooth functions of standard normal variables, and the bases of rungs that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import ndtri

from .._core.arrays import Array
from ..data.criteria import Condition, word_for
from .ranks import Cells, rescore

Index = NDArray[np.intp]
# Point masses of cells, or values, with the variable along which each has a slope of its own.
Atoms = Sequence[tuple[Index, Array | None]]

N_SPLINES = 20
# Most parameters of one fit, over all groups.
_MAX_PARAMETERS = 420
# Rows beyond which products of higher degree and rougher fits are worth their time.
LARGE_ROWS = 1500


@lru_cache(maxsize=1)
def spline_table() -> tuple[float, float, Array]:
    """Smooth functions of a standard normal variable, from smoothest to roughest, on a grid.

    Quartic splines with knots at normal quantiles, made orthonormal under the normal distribution
    and orthogonal in ∫ f‴² dΦ: 1, u, (u² − 1)/√2, then curves of growing roughness. Symmetric, so
    that reversing a variable only changes signs.
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
    return -limit, float(grid[1] - grid[0]), np.ascontiguousarray(table[:, :N_SPLINES].T)


def splines(u: Array, count: int = N_SPLINES) -> Array:
    """Values of the first functions at u, (n, count), contiguous by function."""
    low, step, table = spline_table()
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
        degree, name = np.arange(N_SPLINES), f"splines of {words[0]}"
        functions = (name, splines(cells.coordinates[0]).T, cubic(degree), degree)
        atom = cells.atoms[0] if cells.values[0] is None else cells.values[0]
        return [lambda: _assemble(*functions, [(atom, None)])]
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
