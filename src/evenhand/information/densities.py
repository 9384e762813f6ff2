"""Ĩ(Z;A) of a measurement A: the log density ratio log p(a|z)/p(a), fitted and left out.

    log p(a|z)/p(a) = Σ_jk θ_jk ψ_j(u) f_k(z) − log Σ_u p(u) exp(Σ_jk θ_jk ψ_j(u) f_k(z))

with u the normal score of the rank of a on a fine grid, p(u) the share of rows at each point of it,
and ψ and f splines (products of splines for two variables), orthonormal under the normal law. It is
convex in θ; with ψ of degree two it holds every conditional normal law, with more of them skewed,
heavy-tailed and mixed ones. A value that many rows share is a point of its own.

Rungs of growing size are averaged by their leave-one-out loss, and the bias of fitting is taken
out, as in the classifier of groups (`classifiers.adaptive`). For laws that nothing smooth follows
there are that classifier's probabilities of 16 quantile classes of A, which take over where they
find more information by more than three standard errors of the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri

from .._kernels.threads import one_blas_thread
from ..groups.clusters import cluster_groups, cluster_sums
from ..groups.sensitive import Groups
from .classifiers._pooling import lean_of, weigh
from .classifiers._spline_basis import cubic, splines
from .criteria import Condition, word_for
from .estimation import EntropyEstimator, RowLosses, refuse_many_variables

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Grid of normal scores. Rounding to a width h loses about h²/24 · ρ²/(1 − ρ²) nats.
WIDTH = 0.06
# Classes of A for laws that nothing smooth follows, and by how many standard errors they must win.
CLASSES, SURE = 16, 3.0
TEMPERATURE = 4.0
# Functions of u; total degree of those of z, and the degree up to which each variable has its own;
# and by what roughness is multiplied for the penalty.
_RUNGS = (
    (2, 1, 1, 1.0), (2, 2, 2, 1.0), (3, 3, 3, 1.0), (4, 4, 6, 10.0), (6, 5, 9, 100.0),
    (6, 5, 9, 10.0), (8, 6, 13, 10.0),
)  # fmt: skip
_RIDGE, _ITERATIONS, _TOLERANCE = 1e-3, 40, 1e-5
# Log densities at once.
_CHUNK = 1 << 20


def measured_losses(
    variables: Mapping[str, Array], conditions: Sequence[Condition], groups: Groups,
    estimator: EntropyEstimator,
) -> dict[Condition, RowLosses]:  # fmt: skip
    """−log p(a|z)/p(a) of each row, whose mean is −I(Z;A), for every condition Z asked for."""
    from .classifiers.adaptive import Adaptive

    if not isinstance(estimator, Adaptive):
        raise ValueError(
            f"`estimator` must be 'auto' with a Continuous attribute, got {estimator!r}. Hint: the "
            "others estimate groups; cut the attribute with evenhand.bands for them."
        )
    refuse_many_variables(conditions, "auto")
    assert groups.measured is not None
    weight = np.ones(groups.n_known) if groups.weight is None else groups.weight
    u = _grid(groups.measured, weight)
    classes = _classes(u, groups)
    with one_blas_thread():
        scores = {
            name: _grid(variables[name], weight) for name in dict.fromkeys(sum(conditions, ()))
        }
        smooth = {c: _smooth(u, [scores[name] for name in c], c, groups) for c in conditions}
    rough = estimator.row_losses(variables, conditions, classes)
    shares = -np.log(classes.shares)[classes.codes]
    return {c: _better(smooth[c], rough[c], shares, groups) for c in conditions}


def _better(smooth: RowLosses, rough: RowLosses, shares: Array, groups: Groups) -> RowLosses:
    gain = smooth.value - (rough.value - shares)
    mean = float(np.average(gain, weights=groups.weight))
    parts = (gain - mean) if groups.weight is None else (gain - mean) * groups.weight
    if groups.cluster is not None:
        parts = cluster_sums(groups.cluster, parts)
    if not mean > SURE * float(np.linalg.norm(parts)) / groups.n_known:
        return smooth
    return RowLosses(
        rough.value - shares, rough.influence - shares,
        f"{rough.chosen} of {CLASSES} classes", rough.terms, rough.between, rough.merged,
    )  # fmt: skip


@dataclass(frozen=True)
class _Grid:
    """Points of a variable in normal scores of its ranks, and the point of each row."""

    points: Array
    codes: Index


def _grid(values: Array, weight: Array) -> _Grid:
    _found, inverse = np.unique(values, return_inverse=True)
    mass = np.bincount(inverse, weight)
    rank = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    # Weights of zero at an end leave a rank of 0 or 1.
    rank = np.clip(rank, 0.25 / len(values), 1.0 - 0.25 / len(values))
    score = ndtri(rank)
    _, cell = np.unique(np.round(score / WIDTH), return_inverse=True)
    total = np.maximum(np.bincount(cell, mass), 1e-300)
    mean = np.bincount(cell, mass * score) / total
    return _Grid(np.clip(mean, -4.4, 4.4), cell[inverse].astype(np.intp))


def _classes(u: _Grid, groups: Groups) -> Groups:
    """Quantile classes of A, of which a value that many rows share is never cut."""
    mass = np.bincount(u.codes, groups.weight)
    rank = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    _, cell = np.unique((rank * CLASSES).astype(np.intp), return_inverse=True)
    codes = cell[u.codes].astype(np.intp)
    labels = tuple(range(int(cell.max()) + 1))
    return Groups(
        labels, codes, None, groups.weight, None, groups.n_known, groups.name, groups.cluster
    )


def _smooth(u: _Grid, given: list[_Grid], condition: Condition, groups: Groups) -> RowLosses:
    """The ladder of one condition, pooled."""
    design = _Design.make(u, given, groups)
    n = groups.n_effective
    words = " and ".join(map(word_for, condition))
    null = np.zeros(len(design.entry_weight))
    inside, outside, terms, squares = [null], [null], [0.0], [0.0]
    names = ["no dependence"]
    start: dict[tuple[int, int], Array] | None = None
    worse = 0
    for n_u, degree, alone, kappa in _RUNGS:
        size = min(n_u, len(u.points) - 1)
        columns = design.columns(degree, alone)
        if size * len(columns) > 0.2 * n:
            break
        fitted = _fit(design, size, columns, kappa, start)
        start = fitted.by_column()
        inside.append(fitted.inside)
        outside.append(fitted.outside)
        terms.append(fitted.terms)
        squares.append(fitted.squares)
        names.append(f"density of {size} × {len(columns)} terms of {words}")
        means = [float(design.entry_weight @ loss) for loss in outside]
        # Larger rungs hold the smaller ones: once two have lost, so will the next.
        worse = worse + 1 if means[-1] > min(means) + 2.0 / n else 0
        if worse == 2:
            break
    means = [float(design.entry_weight @ loss) for loss in outside]
    share = weigh(means, n, TEMPERATURE)
    used = np.flatnonzero(share)
    weights = np.log(share[used])[:, None]
    pooled_in = -logsumexp(weights - np.stack([inside[k] for k in used]), axis=0)
    pooled_out = -logsumexp(weights - np.stack([outside[k] for k in used]), axis=0)
    mean_terms = float(share @ terms)
    lean = lean_of(mean_terms, float(share @ squares)) if mean_terms > 0 else 0.5
    value = (1.0 - lean) * pooled_in + lean * pooled_out
    each = np.array([
        design.entry_weight @ ((1.0 - lean) * inside[k] + lean * outside[k]) for k in used
    ])  # fmt: skip
    between = float(share[used] @ np.square(each - design.entry_weight @ value))
    rows = value[design.row_entry]
    return RowLosses(rows, rows, names[int(np.argmax(share))], mean_terms, between)


@dataclass(frozen=True)
class _Design:
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
    def make(cls, u: _Grid, given: list[_Grid], groups: Groups) -> _Design:
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
class _Fitted:
    theta: Array
    columns: list[tuple[int, int]]
    inside: Array
    outside: Array
    terms: float
    squares: float

    def by_column(self) -> dict[tuple[int, int], Array]:
        return {c: self.theta[:, k] for k, c in enumerate(self.columns)}


def _fit(
    design: _Design, size: int, columns: list[tuple[int, int]], kappa: float,
    start: dict[tuple[int, int], Array] | None,
) -> _Fitted:  # fmt: skip
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
    penalty = kappa * np.maximum(rough, 0.0) + _RIDGE
    theta = np.zeros((size, len(columns)))
    for k, column in enumerate(columns):
        if start is not None and column in start:
            theta[: len(start[column]), k] = start[column]
    law = _Law(psi, np.log(np.maximum(design.base, 1e-300)))

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
    return _Fitted(theta, columns, inside, outside, terms, squares)


@dataclass(frozen=True)
class _Law:
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
    design: _Design, law: _Law, f: Array, eta: Array, mean: Array, covariance: Array, inverse: Array
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
