"""Logistic regression of the group on splines of a bounded score: the classifier of training.

    f_k(t, y) = Σᵢⱼ θ_kij ψᵢ(t) χⱼ(y) + Σₗ τ_kl χₗ(y),   ρ = softmax(0, f₁, …)
    minimize Σ −ω log ρ_a + (λ/2) Σ_k roughness(f_k − f̄) + (κ/2) Σ_k ‖θ_k − θ̄‖²

ψ and χ are 1, t, t² and cubic splines by growing roughness, Σ(Δ³ of their coefficients)², which is
zero for a quadratic alone. λ counts in rows: with few of them, or in a small group, the classifier
is a quadratic; with many it follows whatever a score gives away.

Nothing here loops over rows. They are put on a table of a few dozen nodes of t, four nodes each, by
cells of y and groups; the classifier is fitted to the table, and the slopes of its log ρ between
nodes are the gradient. What is trained against is therefore exactly the information in a score that
noise of a hundredth of its range has been added to: never more than that in the score itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrs

from .._core.arrays import Array
from ..kernels import Rows, get_kernels, numpy_passes
from ._newton import cholesky, cold_objective, cold_start, damped_newton

Index = NDArray[np.intp]

# The c of t = c·tanh(z/c): at 1 too little of the score is left, at 3 its tails are back.
LIMIT = 1.5
# Functions of the score, and those of the target they are multiplied with; the target alone has as
# many as the score, or the splines of the score stand in for what it lacks (Communities, separation
# at most 0.02: R² .585 with three, .591 with all).
N_SPLINES, N_CROSSED = 12, 3
# Cells of the score and of the target. Twice as many of either changed no result.
CELLS, TARGET_CELLS = 64, 24
TARGET_MIDDLES: Array = 2.0 * LIMIT * (np.arange(TARGET_CELLS) + 0.5) / TARGET_CELLS - LIMIT
# λ. From 0.1 to 10 held-out frontiers of 2,000 rows are alike, and with fewer rows 10 is best.
# Leave-one-out at the plain model asks for more, and what the fair one hides is then out of sight
# (Communities, independence at most 0.005: R² .327 with it, .335 without). Where the target is
# given there are three times as many functions, and at 10 their noise costs up to .04 of R² (wages
# of 1,084 people at .005); both terms of sufficiency need the same λ, or noise is their difference.
ROUGHNESS, ROUGHNESS_GIVEN = 10.0, 300.0
# Squared Newton decrement per row after which one more step is the last, and where three digits of
# the gradient will do.
LAST_STEP, ROUGH_LAST_STEP = 1e-8, 1e-5
MAX_STEPS = 100
# Of conjugate gradients: what may be left of the residual, near the optimum and far, and steps.
CG_TOL, CG_STEPS = (1e-4, 0.1), 60


class Design(NamedTuple):
    """Functions at the nodes: G of the score, M of the target.

    score : (G, I) ψ;  target : (M, J) χ, of which the first `crossed`, P, are multiplied with ψ
    rough : (D,) roughness of each of the D = I·P + J − P terms, products first
    squares : (I², G) products of two ψ;  pairs : (M, P·J) products of χ with those crossed
    """

    score: Array
    target: Array
    crossed: int
    rough: Array
    squares: Array
    pairs: Array

    @property
    def n_terms(self) -> int:
        """D."""
        return len(self.rough)

    def predict(self, weights: Array) -> Array:
        """f at the nodes, (…, G, M), of weights (…, D)."""
        size, p = self.score.shape[1] * self.crossed, self.crossed
        products = weights[..., :size].reshape(*weights.shape[:-1], -1, p)
        f = self.score @ products @ self.target[:, :p].T
        if self.n_terms > size:
            f += (weights[..., size:] @ self.target[:, p:].T)[..., None, :]
        return f

    def project(self, r: Array) -> Array:
        """Σ r·φ, (…, D), of r at the nodes: the transpose of `predict`."""
        products = self.score.T @ r @ self.target[:, : self.crossed]
        alone = r.sum(axis=-2) @ self.target[:, self.crossed :]
        return np.concatenate([products.reshape(*r.shape[:-2], -1), alone], axis=-1)

    def terms_at(self, node: Index, cell: Index) -> Array:
        """φ, (…, D), at nodes of the score and cells of the target."""
        psi, chi = self.score[node], self.target[cell]
        products = psi[..., :, None] * chi[..., None, : self.crossed]
        alone = chi[..., self.crossed :]
        return np.concatenate([products.reshape(*node.shape, -1), alone], axis=-1)

    def softmax(self, weights: Array) -> tuple[Array, Array]:
        """log ρ and ρ of all groups at the nodes, (K, G, M), of weights (K − 1, D)."""
        f = self.predict(weights)
        f = np.concatenate([np.zeros((1, *f.shape[1:])), f])
        f -= f.max(axis=0)
        rho = np.exp(f)
        total = rho.sum(axis=0)
        f -= np.log(total)
        rho /= total
        return f, rho


def spline_shares(x: Array, cells: int) -> Array:
    """Values of the cells + 3 cubic B-splines with knots at whole numbers, at x in [0, cells]."""
    j = np.clip(x.astype(int), 0, cells - 1)
    u = x - j
    v = 1.0 - u
    shares = [v**3, 4.0 - 3.0 * u**2 * (1.0 + v), 4.0 - 3.0 * v**2 * (1.0 + u), u**3]
    out = np.zeros((len(x), cells + 3))
    for k, share in enumerate(shares):
        out[np.arange(len(x)), j + k] = share / 6.0
    return out


def smooth_functions(t: Array) -> tuple[Array, Array]:
    """1, t, t² − 1 and splines by growing roughness at t, (n, I), and their roughness."""
    reach, cells = 1.1 * LIMIT, N_SPLINES - 3

    def splines(at: Array) -> Array:
        return spline_shares((at + reach) * (cells / (2.0 * reach)), cells)

    even = splines(np.linspace(-LIMIT, LIMIT, 401))
    third = np.diff(np.eye(N_SPLINES), 3, axis=0)
    rough, vectors = scipy.linalg.eigh(third.T @ third, even.T @ even / len(even))
    rough[:3] = 0.0
    out = splines(t) @ vectors
    out[:, :3] = np.stack([np.ones_like(t), t, t**2 - 1.0], axis=1)
    return out, rough


@lru_cache
def make_design(two: bool) -> Design:
    """Functions of the score alone, or of score and target."""
    step = 2.0 * LIMIT / CELLS
    knots: Array = np.linspace(-LIMIT - step, LIMIT + step, CELLS + 3, dtype=np.float64)
    score, rough = smooth_functions(knots)
    if not two:
        return Design(score, np.ones((1, 1)), 1, rough, _products(score), np.ones((1, 1)))
    target, rough_target = smooth_functions(TARGET_MIDDLES)
    # Products are as rough as the spline of as high a degree.
    degree = np.add.outer(np.arange(N_SPLINES), np.arange(N_CROSSED))
    products = rough[np.minimum(degree, N_SPLINES - 1)]
    rough = np.r_[products.ravel(), rough_target[N_CROSSED:]]
    pairs = (target[:, :N_CROSSED, None] * target[:, None]).reshape(TARGET_CELLS, -1)
    return Design(score, target, N_CROSSED, rough, _products(score), pairs)


def _products(columns: Array) -> Array:
    n, width = columns.shape
    return np.ascontiguousarray((columns[:, :, None] * columns[:, None]).reshape(n, width**2).T)


class Seen(NamedTuple):
    """The objective and −∂objective/∂weights; log ρ and ρ at the nodes, (K, G, M)."""

    objective: float
    score: Array
    log_rho: Array
    rho: Array


class Table:
    """Masses of the groups at the nodes, (K, G, M), and the penalized loss of weights on them.

    Weights are (K − 1, D), the first group being the reference.
    """

    def __init__(self, masses: Array, design: Design, strength: Array) -> None:
        self.masses, self.total = masses, masses.sum(axis=0)
        self.design, self.strength = design, strength
        self._free = len(masses) - 1

    def smooth(self, weights: Array) -> Array:
        """Half the gradient of the penalty: differences from the mean group, by strength."""
        return self.strength * (weights - weights.sum(axis=0) / (self._free + 1))

    def look(self, weights: Array) -> Seen:
        log_rho, rho = self.design.softmax(weights)
        slope = self.smooth(weights)
        objective = 0.5 * float((weights * slope).sum()) - float(
            self.masses.ravel() @ log_rho.ravel()
        )
        residual = self.masses[1:] - self.total * rho[1:]
        return Seen(objective, self.design.project(residual) - slope, log_rho, rho)

    def curve(self, rho: Array, v: Array) -> Array:
        """Hessian times v, both (K − 1, D)."""
        change = rho[1:] * self.design.predict(v)
        change -= rho[1:] * change.sum(axis=0)
        return self.design.project(self.total * change) + self.smooth(v)

    def gram(self, h: Array) -> Array:
        """Σ h·φφᵀ, (…, D, D), of h at the nodes, with the penalty's strength on the diagonal."""
        design, p = self.design, self.design.crossed
        (g, i), j = design.score.shape, design.target.shape[1]
        by_node = (h @ design.pairs).reshape(-1, g, p, j)
        inner = design.squares @ by_node[..., :p].reshape(-1, g, p * p)
        inner = inner.reshape(-1, i, i, p, p).transpose(0, 1, 3, 2, 4).reshape(-1, i * p, i * p)
        if j > p:
            mixed = design.score.T @ by_node[..., p:].reshape(-1, g, p * (j - p))
            mixed = mixed.reshape(-1, i * p, j - p)
            alone = design.target[:, p:]
            alone = (alone.T * h.sum(axis=1)[:, None, :]) @ alone
            inner = np.block([[inner, mixed], [mixed.transpose(0, 2, 1), alone]])
        d = np.arange(design.n_terms)
        inner[:, d, d] += self.strength
        return inner

    def information(self, weights: Array) -> Array:
        """The whole Hessian, (D(K − 1), D(K − 1))."""
        rho, size = self.look(weights).rho, weights.size
        unit = np.eye(size).reshape(size, *weights.shape)
        return np.stack([self.curve(rho, v).ravel() for v in unit])


def newton_step(table: Table, rho: Array, score: Array) -> Array:
    """H⁻¹·score: at once for two groups, by conjugate gradients for more.

    With A_k = Σ ρ_k φφᵀ + penalty of each group, A_k⁻¹r_k + A_0⁻¹Σr is the answer where ρ is the
    same at all nodes, as at a fair score, and a start for the others.
    """
    if len(score) == 1:
        # The penalty of a difference from the mean of two is half that of the one that moves.
        table = Table(table.masses, table.design, 0.5 * table.strength)
        (block,) = table.gram(table.total * rho[1:] * rho[0])
        return dpotrs(cholesky(block), score[0], lower=True)[0][None]
    factors = [cholesky(block) for block in table.gram(table.total * rho)]

    def precondition(r: Array) -> Array:
        first, *rest = (
            dpotrs(f, v, lower=True)[0] for f, v in zip(factors, (r.sum(axis=0), *r), strict=True)
        )
        return np.stack(rest) + first

    residual, step = score, np.zeros_like(score)
    z = p = precondition(residual)
    size = float((residual * z).sum())
    left = np.clip(10.0 * np.sqrt(max(size, 0.0) / float(table.total.sum())), *CG_TOL)
    goal = left**2 * size
    for _ in range(CG_STEPS):
        if not size > goal:
            break
        image = table.curve(rho, p)
        share = size / float((p * image).sum())
        step = step + share * p
        residual = residual - share * image
        z = precondition(residual)
        before, size = size, float((residual * z).sum())
        p = z + (size / before) * p
    return step


def fit_table(
    table: Table, weights: Array, start: Seen, last_step: float
) -> tuple[Array, float, Array]:
    """Weights of least objective, that objective and log ρ, from what `look` says of weights."""

    def step_at(seen: Seen) -> Array:
        return newton_step(table, seen.rho, seen.score)

    n = float(table.total.sum())
    end = damped_newton(table.look, weights, start, n, lambda _: last_step, MAX_STEPS, step_at)
    last = table.look(end.optimum)
    if not last.objective <= end.seen.objective + 1e-13 * abs(last.objective):
        return end.weights, end.seen.objective, end.seen.log_rho
    return end.optimum, last.objective, last.log_rho


class SplineTerm:
    """L = −(penalized log loss per row) and its gradient; warm-started from call to call.

    Parameters
    ----------
    n_variables : int
        1 for the score alone, 2 with the target.
    kappa : float
        κ, which keeps groups that a score tells apart without error finite.
    roughness : float
        λ.
    """

    def __init__(self, n_variables: int, kappa: float, roughness: float = ROUGHNESS) -> None:
        self.basis = make_design(n_variables == 2)
        free = np.arange(self.basis.n_terms) == 0
        self.strength = roughness * self.basis.rough + np.where(free, 0.0, kappa)
        self._weights: Array | None = None
        self._lines: tuple[Any, Any, NDArray[np.integer]] | None = None

    def warm_start(self, other: SplineTerm) -> None:
        """Begin from the weights of another term."""
        self._weights = other._weights

    def weights_at(self, rows: Rows) -> Array:
        """The weights, (K − 1, D); those of the last gradient, which must be at these rows."""
        if self._weights is None:
            self._weights = self._fit(rows, LAST_STEP)[0]
        return self._weights

    def value(self, rows: Rows) -> float:
        """L."""
        return -self._fit(rows, LAST_STEP)[1] / rows.n

    def value_given(self, rows: Rows) -> float:
        """L of the target alone: with one score for everybody."""
        center = np.r_[0.0, 1.0, rows.center[2:]]
        return self.value(rows._replace(s=np.zeros(len(rows.y)), center=center))

    def value_and_grad(self, rows: Rows, scale: float, rough: bool = False) -> tuple[float, Array]:
        """L and scale·∂L/∂t; if `rough`, to three digits."""
        fit = self._fit(rows, ROUGH_LAST_STEP if rough else LAST_STEP)
        self._weights, objective, log_rho = fit
        gradient, kernels, scale = np.zeros(len(rows.s)), get_kernels(), scale / rows.n
        line = self._line(rows)
        if _has_codes(rows):
            table = np.ascontiguousarray(log_rho.transpose(2, 0, 1)).reshape(-1, log_rho.shape[1])
            kernels.add_slopes(rows.s, line, rows.weight, LIMIT, table, scale, gradient)
        else:
            for group, table in enumerate(log_rho):
                weight, table = _membership(rows, group), np.ascontiguousarray(table.T)
                kernels.add_slopes(rows.s, line, weight, LIMIT, table, scale, gradient)
        return -objective / rows.n, gradient

    def tabulate(self, rows: Rows, share: float = 1.0) -> Table:
        """The rows on the nodes; `share` is theirs among all that the penalty is for."""
        width, cells = len(self.basis.score), len(self.basis.target)
        k, kernels, line = rows.n_groups, get_kernels(), self._line(rows)
        t = rows.s if rows.center[1] else np.zeros(len(rows.s))
        if _has_codes(rows):
            out = kernels.deposit(t, line, rows.weight, LIMIT, cells * k, width)
            out = out.reshape(cells, k, width).transpose(1, 2, 0)
        else:
            weights = (_membership(rows, group) for group in range(k))
            out = np.stack([kernels.deposit(t, line, w, LIMIT, cells, width).T for w in weights])
        out = rows.sums.add(np.ascontiguousarray(out))
        return Table(out, self.basis, share * self.strength)

    def cross(self, rows: Rows, weights: Array) -> Array:
        """d(residual_k·φ_j)/dt of each row, (D(K − 1), n), in the order of the Hessian."""
        cell = self.cell_of(rows)
        x = (rows.s + LIMIT) * (CELLS / (2.0 * LIMIT))
        j = np.clip(x.astype(int), 0, CELLS - 1)
        u = x - j
        v = 1.0 - u
        shares = np.stack([-(v**2), u * (3.0 * u - 4.0), v * (4.0 - 3.0 * v), u**2])
        shares *= CELLS / (4.0 * LIMIT)
        if len(rows.weight):
            shares = shares * rows.weight
        node = j + np.arange(4)[:, None]
        cell = np.broadcast_to(cell, node.shape)
        label = numpy_passes.labels(rows)[1:, None]
        residual = label - self.basis.softmax(weights)[1][1:, node, cell]
        phi = self.basis.terms_at(node, cell)
        return np.einsum("kgn,gnd->kdn", residual * shares, phi).reshape(-1, len(rows.s))

    def _fit(self, rows: Rows, last_step: float) -> tuple[Array, float, Array]:
        table = self.tabulate(rows)
        weights = self._weights
        if weights is not None:
            start = table.look(weights)
            # Else worse than knowing nothing: the data have moved too far for them to help.
            if start[0] <= rows.n * cold_objective(rows):
                return fit_table(table, weights, start, last_step)
        weights = cold_start(rows.shares, self.basis.n_terms)
        return fit_table(table, weights, table.look(weights), last_step)

    def cell_of(self, rows: Rows) -> Index:
        """Cell of the target of each row."""
        if len(self.basis.target) == 1:
            return np.zeros(len(rows.s), dtype=np.intp)
        v = (rows.y - rows.center[2]) * rows.center[3]
        cell = (v + LIMIT) * (TARGET_CELLS / (2.0 * LIMIT))
        return np.clip(cell.astype(np.intp), 0, TARGET_CELLS - 1)

    def _line(self, rows: Rows) -> NDArray[np.integer]:
        """Line of the table of each row: its cell of the target and its group, where known."""
        if len(self.basis.target) == 1 and _has_codes(rows):
            return rows.codes
        kept = self._lines
        if kept is None or kept[0] is not rows.y or kept[1] is not rows.codes:
            line, k = self.cell_of(rows), 1
            if _has_codes(rows):
                k = rows.n_groups
                line = line * k + rows.codes
            small = TARGET_CELLS * k <= 256
            kept = rows.y, rows.codes, line.astype(np.uint8 if small else np.int64)
            self._lines = kept
        return kept[2]


def _has_codes(rows: Rows) -> bool:
    """Whether groups are known, rather than their probabilities; a shard may have no rows."""
    return rows.probabilities.shape[1] == 0


def _membership(rows: Rows, group: int) -> Array:
    out = np.ascontiguousarray(rows.probabilities[:, group])
    return out * rows.weight if len(rows.weight) else out
