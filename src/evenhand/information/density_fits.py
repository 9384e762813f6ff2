"""The density ratio of a measurement on one rung: its design, its fit, and rows left out.

    log p(a|z)/p(a) = Σ_jk θ_jk ψ_j(u) f_k(z) − log Σ_u p(u) exp(Σ_jk θ_jk ψ_j(u) f_k(z))

with u the normal score of the rank of a on a fine grid, p(u) the share of rows at each point of it,
and ψ and f splines (products of splines for two variables), orthonormal under the normal law. It is
convex in θ; with ψ of degree two it holds every conditional normal law, with more of them skewed,
heavy-tailed and mixed ones. A value that many rows share is a point of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import ndtri

from ..groups.clusters import cluster_groups
from ..groups.sensitive import Groups
from .classifiers._spline_basis import cubic, splines

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Grid of normal scores. Rounding to a width h loses about h²/24 · ρ²/(1 − ρ²) nats.
WIDTH = 0.06
RIDGE, _ITERATIONS, _TOLERANCE = 1e-3, 40, 1e-5
# Log densities at once.
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Grid:
    """Points of a variable in normal scores of its ranks, and the point of each row."""

    points: Array
    codes: Index


def make_grid(values: Array, weight: Array) -> Grid:
    _found, inverse = np.unique(values, return_inverse=True)
    mass = np.bincount(inverse, weight)
    rank = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    # Weights of zero at an end leave a rank of 0 or 1.
    rank = np.clip(rank, 0.25 / len(values), 1.0 - 0.25 / len(values))
    score = ndtri(rank)
    _, cell = np.unique(np.round(score / WIDTH), return_inverse=True)
    total = np.maximum(np.bincount(cell, mass), 1e-300)
    mean = np.bincount(cell, mass * score) / total
    return Grid(np.clip(mean, -4.4, 4.4), cell[inverse].astype(np.intp))


@dataclass(frozen=True)
class Design:
    """Rows as cells of z, entries (cell, point of u), and the entry of each row."""

    u: Array
    base: Array
    z: list[Array]
    entry_cell: Index
    entry_u: Index
    entry_weight: Array
    entry_mean: Array
    row_entry: Index
    weight: Array
    cluster: Index | None
    n_effective: float

    @classmethod
    def make(cls, u: Grid, given: list[Grid], groups: Groups) -> Design:
        n = groups.n_known
        weight = np.ones(n) if groups.weight is None else groups.weight
        code = np.zeros(n, dtype=np.intp)
        for grid in given:
            code = code * len(grid.points) + grid.codes
        cells, cell = np.unique(code, return_inverse=True)
        places: list[Index] = []
        rest = cells
        for grid in reversed(given):
            rest, place = np.divmod(rest, len(grid.points))
            places.insert(0, place)
        entries, entry = np.unique(cell * len(u.points) + u.codes, return_inverse=True)
        if groups.cluster is not None:
            entries, entry = cell * len(u.points) + u.codes, np.arange(n)
        mass = np.bincount(entry, weight)
        return cls(
            u.points, np.bincount(u.codes, weight) / n,
            [grid.points[place] for grid, place in zip(given, places, strict=True)],
            entries // len(u.points), entries % len(u.points), mass / n,
            np.bincount(entry, weight * weight) / np.maximum(mass, 1e-300), entry, weight,
            groups.cluster, groups.n_effective,
        )  # fmt: skip

    def columns(self, degree: int, alone: int) -> list[tuple[int, int]]:
        """Degrees in the one or two variables of the functions of z, 1 first."""
        if len(self.z) == 1:
            return [(i, 0) for i in range(alone + 1)]
        return [
            (i, j)
            for i in range(alone + 1)
            for j in range(alone + 1)
            if i + j <= degree or min(i, j) == 0
        ]

    def functions(self, columns: list[tuple[int, int]]) -> Array:
        tables = [splines(z) for z in self.z]
        first = tables[0][:, [i for i, _ in columns]]
        if len(tables) == 1:
            return first
        return first * tables[1][:, [j for _, j in columns]]


@dataclass(frozen=True)
class Fitted:
    theta: Array
    columns: list[tuple[int, int]]
    inside: Array
    outside: Array
    terms: float
    squares: float

    def by_column(self) -> dict[tuple[int, int], Array]:
        return {c: self.theta[:, k] for k, c in enumerate(self.columns)}


def fit(
    design: Design, size: int, columns: list[tuple[int, int]], kappa: float,
    start: dict[tuple[int, int], Array] | None,
) -> Fitted:  # fmt: skip
    """Penalized maximum likelihood by damped Newton, and each entry's loss with and without it."""
    psi = splines(design.u)[:, 1 : size + 1]
    f = design.functions(columns)
    n = float(len(design.row_entry))
    mass = np.zeros(len(f))
    np.add.at(mass, design.entry_cell, n * design.entry_weight)
    counted = n * design.entry_weight
    total = np.stack(
        [np.bincount(design.entry_cell, counted * psi[design.entry_u, j], minlength=len(f))
         for j in range(size)], axis=1,
    )  # fmt: skip
    rough = np.add.outer(
        cubic(np.arange(1.0, size + 1)), [cubic(float(i)) + cubic(float(j)) for i, j in columns]
    )
    penalty = kappa * np.maximum(rough, 0.0) + RIDGE
    theta = np.zeros((size, len(columns)))
    for k, column in enumerate(columns):
        if start is not None and column in start:
            theta[: len(start[column]), k] = start[column]
    law = Law(psi, np.log(np.maximum(design.base, 1e-300)))

    def objective(candidate: Array) -> tuple[float, Array]:
        eta = f @ candidate.T
        log_z = law.log_z(eta)
        return float((total * eta).sum() - mass @ log_z - 0.5 * (penalty * candidate**2).sum()), eta

    value, eta = objective(theta)
    for _ in range(_ITERATIONS):
        mean, covariance = law.moments(eta)
        gradient = (total - mass[:, None] * mean).T @ f - penalty * theta
        hessian = _gram(f, mass, covariance)
        curved = hessian + np.diag(penalty.ravel())
        step = scipy.linalg.solve(curved, gradient.ravel(), assume_a="pos").reshape(theta.shape)
        decrement = float((step * gradient).sum())
        if decrement < _TOLERANCE:
            break
        scale = 1.0
        while scale > 1e-4:
            new, new_eta = objective(theta + scale * step)
            if new > value:
                theta, value, eta = theta + scale * step, new, new_eta
                break
            scale *= 0.5
        else:
            break
    inverse = scipy.linalg.inv(curved)
    smoother = inverse @ hessian
    inside, outside = _leave_out(design, law, f, eta, mean, covariance, inverse)
    terms, squares = float(np.trace(smoother)), float((smoother * smoother.T).sum())
    return Fitted(theta, columns, inside, outside, terms, squares)


@dataclass(frozen=True)
class Law:
    """p(u) exp(η·ψ(u)) / Z(η) on the points of u."""

    psi: Array
    log_base: Array

    def log_z(self, eta: Array) -> Array:
        out = np.empty(len(eta))
        step = max(_CHUNK // len(self.log_base), 1)
        for i in range(0, len(eta), step):
            logits = eta[i : i + step] @ self.psi.T
            logits += self.log_base
            top = logits.max(axis=1)
            logits -= top[:, None]
            np.exp(logits, out=logits)
            out[i : i + step] = np.log(logits.sum(axis=1)) + top
        return out

    def moments(self, eta: Array) -> tuple[Array, Array]:
        """Mean (c, J) and covariance (c, J, J) of ψ(u)."""
        size = self.psi.shape[1]
        products = (self.psi[:, :, None] * self.psi[:, None, :]).reshape(len(self.psi), -1)
        table = np.hstack([self.psi, products])
        found = np.empty((len(eta), table.shape[1]))
        step = max(_CHUNK // len(self.log_base), 1)
        for i in range(0, len(eta), step):
            p = eta[i : i + step] @ self.psi.T
            p += self.log_base
            p -= p.max(axis=1)[:, None]
            np.exp(p, out=p)
            p /= p.sum(axis=1)[:, None]
            found[i : i + step] = p @ table
        mean = found[:, :size]
        second = found[:, size:].reshape(-1, size, size)
        return mean, second - mean[:, :, None] * mean[:, None, :]


def _gram(f: Array, mass: Array, covariance: Array) -> Array:
    """Σ_c mass_c · Cov_c ⊗ f_c f_cᵀ."""
    size, m = covariance.shape[1], f.shape[1]
    out = np.empty((size, m, size, m))
    for j in range(size):
        for k in range(j + 1):
            block = f.T @ ((mass * covariance[:, j, k])[:, None] * f)
            out[j, :, k, :] = out[k, :, j, :] = block
    return out.reshape(size * m, size * m)


def _leave_out(
    design: Design, law: Law, f: Array, eta: Array, mean: Array, covariance: Array, inverse: Array
) -> tuple[Array, Array]:
    """−log ratio at each entry, of the fit and of the fit without one of its rows (or cluster).

    One Newton step from the fit: η → η − w (I − w M C)⁻¹ M (ψ − E ψ), with M = fᵀ H⁻¹ f of the row.
    Of a cluster the scores of its rows are summed, and H is left as it is.
    """
    cell, at = design.entry_cell, design.entry_u
    own = law.psi[at]
    inside = law.log_z(eta)[cell] - (eta[cell] * own).sum(axis=1)
    size, m = own.shape[1], f.shape[1]
    apart = own - mean[cell]
    if design.cluster is not None:
        scores = (design.weight[:, None] * apart)[:, :, None] * f[cell][:, None, :]
        sums = cluster_groups(design.cluster, scores.reshape(len(scores), -1)) @ inverse
        shift = np.einsum("ijk,ik->ij", sums.reshape(-1, size, m)[design.cluster], f[cell])
    else:
        block = inverse.reshape(size, m, size, m)
        spread = np.empty((len(f), size, size))
        for j in range(size):
            for k in range(j + 1):
                spread[:, j, k] = spread[:, k, j] = ((f @ block[j, :, k, :]) * f).sum(axis=1)
        one = design.entry_mean
        pull = np.einsum("ijk,ik->ij", spread[cell], apart) * one[:, None]
        system = np.eye(size) - one[:, None, None] * (spread @ covariance)[cell]
        shift = np.linalg.solve(system, pull[:, :, None])[:, :, 0]
    moved = eta[cell] - shift
    outside = law.log_z(moved) - (moved * own).sum(axis=1)
    # A row far from all others decides its own prediction. Mixing in p(a) at the odds of one row
    # keeps it from deciding the mean.
    rare = np.log(design.n_effective)
    most = np.log1p(-np.exp(-rare))
    return -np.logaddexp(most - inside, -rare), -np.logaddexp(most - outside, -rare)
