"""The classifiers of the group inside the loss, fitted over sums that come from any device.

    ω_i = w_i·m/Σw over the m rows with a known group, 0 elsewhere
    t(y) = c·tanh(z/c) of the standardized target z
    minimize Σᵢ −ωᵢ log ρ(aᵢ|zᵢ) + (κ/2) Σ_k ‖w_k − w̄‖²

Sums go over the rows of all processes where a process group is given, so that a batch in two parts
has the weights, shares and targets of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._core.arrays import Array
from ..estimators._newton import damped_newton, penalty, solve
from ..kernels.basis import Basis

# Sum of a small float64 tensor over the processes.
Reduce = Callable[[Tensor], Tensor]
# As in `kernels.standardizer`: a spread at the level of rounding in the mean is no spread.
_ROUNDING = {torch.float64: 1e-13, torch.float32: 1e-6}


def alone(sums: Tensor) -> Tensor:
    """One process: its sums are all there is."""
    return sums


def over_processes(group: torch.distributed.ProcessGroup | None) -> Reduce:
    """Sums over a process group; None is the default one."""

    def reduce(sums: Tensor) -> Tensor:
        sums = sums.clone()
        torch.distributed.all_reduce(sums, group=group)
        return sums

    return reduce


@dataclass(frozen=True)
class Batch:
    """Rows of one process; K counts the groups that some process has rows of.

    Attributes
    ----------
    codes : (n,) integer tensor or None
        0 … K − 1, and K where the group is not known.
    table : (n, K) tensor or None
        Membership probabilities instead of codes; zero where the group is not known.
    weight : (n,) tensor or None
        ω; None where all rows are known and weigh the same.
    target : (n,) tensor or None
        The target as the classifiers see it.
    present : tuple of int
        The groups, by their numbers in the user's count.
    n_known : float
        m, over all processes.
    shares : (K,) array
        Weighted shares of the groups, over all processes.
    reduce : callable
    """

    codes: Tensor | None
    table: Tensor | None
    weight: Tensor | None
    target: Tensor | None
    present: tuple[int, ...]
    n_known: float
    shares: NDArray[np.float64]
    reduce: Reduce

    @property
    def n_groups(self) -> int:
        return len(self.present)

    @property
    def entropy(self) -> float:
        """H(A), in nats."""
        shares = self.shares[self.shares > 0]
        return float(-(shares * np.log(shares)).sum())


def make_batch(
    groups: Tensor, n_groups: int, weight: Tensor | None, dtype: torch.dtype, reduce: Reduce,
    keep_all: bool = False,
) -> Batch:  # fmt: skip
    """Groups (codes or probabilities) and weights; groups without weight are left out.

    With `keep_all` they stay, for classifiers that outlive the batch.
    """
    if groups.ndim == 2:
        known = ~groups.isnan().any(dim=1)
        table = torch.where(known[:, None], groups, 0.0).to(dtype)
    else:
        # A tensor of single bytes does not index: PyTorch takes it for a mask.
        groups = groups.to(torch.int16) if groups.itemsize == 1 else groups
        known = groups >= 0
        table = None
    # One row of a table of sums: shares of the groups, then weights, then rows.
    mass = known if weight is None else weight.to(torch.float64) * known
    if table is None:
        index = torch.where(known, groups, n_groups)
        totals = torch.bincount(index, None if weight is None else mass, minlength=n_groups + 1)
        totals = totals[:n_groups]
    else:
        totals = (table.to(torch.float64) * mass[:, None]).sum(dim=0)
    counts = torch.stack([mass.sum().to(torch.float64), known.sum().to(torch.float64)])
    sums = reduce(torch.cat([totals.to(torch.float64), counts])).cpu().numpy()
    shares, total = sums[:n_groups], sums[n_groups]
    keep = np.ones(n_groups, dtype=bool) if keep_all else shares > 0
    n_known = float(sums[-1])
    if not keep.all() and table is None:
        index, known = _renumber(index, keep)
        n_known = float(reduce(known.sum().to(torch.float64)[None])[0])
    elif table is not None:
        table = table[:, torch.as_tensor(np.flatnonzero(keep), device=table.device)]
    omega = None
    if weight is not None and total > 0:
        omega = (mass * known * (n_known / total)).to(dtype)
    elif n_known < _rows(groups, reduce):
        omega = known.to(dtype)
    present = tuple(int(k) for k in np.flatnonzero(keep))
    small = torch.uint8 if len(present) < 255 else torch.int16
    codes = index.to(small) if table is None else None
    shares = shares[keep] / total if total > 0 else np.full(len(present), np.nan)
    return Batch(codes, table, omega, None, present, n_known, shares, reduce)


def _renumber(index: Tensor, keep: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
    """Numbers among the groups kept, and whether a row is of one.

    Rows of a group whose weights are all zero are of no group.
    """
    place = np.where(keep, np.cumsum(keep) - 1, -1)
    index = torch.as_tensor(np.append(place, -1), device=index.device)[index.long()]
    known = index >= 0
    return torch.where(known, index, int(keep.sum())), known


def _rows(groups: Tensor, reduce: Reduce) -> float:
    return float(reduce(torch.tensor([float(len(groups))], device=groups.device).double())[0])


def standardizer(values: Tensor, batch: Batch) -> tuple[float, float]:
    """Weighted mean and reciprocal spread over all processes; 0 for a constant column."""
    x = values.to(torch.float64)
    shift = x[:1].sum() if len(x) else torch.zeros((), dtype=x.dtype, device=x.device)
    if batch.reduce is not alone:  # all processes shift by the same
        total = batch.reduce(torch.stack([shift, torch.ones_like(shift)]))
        shift = total[0] / total[1]
    # A second look at the mean: the first row may lie far from the rest.
    for _ in range(2):
        d = x - shift
        w = torch.ones_like(d) if batch.weight is None else batch.weight.to(torch.float64)
        sums = batch.reduce(torch.stack([w.sum(), (w * d).sum(), (w * d * d).sum()]))
        off = sums[1] / sums[0]
        variance = sums[2] / sums[0] - off * off
        shift = shift + off
    mean, spread = float(shift), float(variance.clamp(min=0.0).sqrt())
    rounding = _ROUNDING.get(values.dtype, 1e-6)
    if not spread > rounding * abs(mean):
        return mean, 0.0 if spread == spread else float("nan")
    return mean, 1.0 / spread


# ------------------------------------------------------------------------------------------------
# Newton steps over sums.
#
# One step beyond a point whose squared decrement per row is below `last_step` lands at the optimum
# as far as the passes can tell, so none is spent on looking at it: the objective there is that of
# the quadratic, and the two sums that a gradient needs there are moved along the step by their own
# derivatives.


MAX_ITER = 100


@dataclass(frozen=True)
class Sums:
    """Sums over rows at weights W, (F, D) with F = K − 1.

    Attributes
    ----------
    loss : float
        Σ −ω log ρ.
    score : (F, D) array
        Its negative gradient in W.
    chain : (2,) array
        Σh and Σh·z, with h the derivative of −loss in the standardized score z at fixed W: what
        mean and spread of the scores take from a gradient.
    """

    loss: float
    score: Array
    chain: Array


@dataclass(frozen=True)
class Curvature:
    """Derivatives of :class:`Sums` in W; from some of the rows where those are many.

    Attributes
    ----------
    hessian : (FD, FD) array
        Of the loss.
    drift : (2, F, D) array
        Derivative of `chain`.
    """

    hessian: Array
    drift: Array


class Passes(Protocol):
    """Rows with scores in place."""

    basis: Basis
    n_known: float
    # Squared decrement per row under which the error of one more step is below that of the sums.
    last_step: float
    # The same as a share of the information found: a last step by a hundredth of the weights.
    last_share: float

    def first(self, weights: Array) -> Sums: ...

    def both(self, weights: Array) -> tuple[Sums, Curvature]: ...


@dataclass(frozen=True)
class Optimum:
    """The optimum: L = −objective per row, weights, `chain` there, curvature."""

    value: float
    weights: Array
    chain: Array
    curvature: Curvature


class NoDescent(ArithmeticError):
    """Sums are not finite: the scores are not."""


def cold_weights(shares: Array, basis: Basis) -> Array:
    """Intercepts at the log odds of the group shares."""
    out = np.zeros((len(shares) - 1, basis.n_terms))
    out[:, 0] = np.log(shares[1:] / shares[0])
    return out


def find_optimum(passes: Passes, kappa: float, shares: Array, start: Array | None) -> Optimum:
    """Newton steps from `start`, or from the shares of the groups."""

    def look(weights: Array) -> tuple[float, Array, Array, Sums, Curvature]:
        sums, curvature = passes.both(weights)
        size, slope, form = penalty(weights)
        objective = (sums.loss + 0.5 * kappa * size) / passes.n_known
        hessian = curvature.hessian + kappa * form
        return objective, sums.score - kappa * slope, hessian, sums, curvature

    entropy = float(-(shares * np.log(shares)).sum())
    weights = cold_weights(shares, passes.basis) if start is None else start
    seen = look(weights)
    if start is not None and not seen[0] <= entropy + 1e-6:
        # Worse than knowing nothing: the rows have moved too far for the old weights to help.
        weights = cold_weights(shares, passes.basis)
        seen = look(weights)
    if not np.isfinite(seen[0]):
        raise NoDescent

    def enough(objective: float) -> float:
        return max(passes.last_step, passes.last_share * (entropy - objective))

    end = damped_newton(look, weights, seen, passes.n_known, enough, MAX_ITER)
    objective, _, _, sums, curvature = end.seen
    chain = sums.chain + (curvature.drift * end.step).sum(axis=(1, 2))
    return Optimum(0.5 * end.decrement - objective, end.weights + end.step, chain, curvature)


# ------------------------------------------------------------------------------------------------
# A classifier that is refitted in each batch, or kept across batches.
#
#     batch    W = argmin over the rows of the batch, from the weights of the batch before
#     running  H ← (1 − m)·H + m·H_batch,  W ← W + m·H⁻¹·score


# Halvings of a running step that makes the batch itself look worse.
_HALVINGS = 5


@dataclass
class Classifier:
    """One classifier of the group, and what it remembers.

    Attributes
    ----------
    sign : float
        Of its L in the information; 0 for one that only serves a normalizer.
    basis : Basis
    kappa : float
    weights : (K − 1, D) array or None
    present : tuple of int
        Groups that the weights are of.
    hessian : array or None
        Per row, of "running".
    count : int
        Batches seen by "running".
    """

    sign: float
    basis: Basis
    kappa: float
    weights: Array | None = None
    present: tuple[int, ...] = ()
    hessian: Array | None = None
    count: int = 0

    def refit(self, passes: Any, batch: Any) -> Optimum:
        """The optimum over the batch, from that of the batch before."""
        start = self.weights if self.present == batch.present else None
        if start is None:
            sample = getattr(passes, "sample", lambda: None)()
            if sample is not None:
                start = find_optimum(sample, self.kappa, batch.shares, None).weights
        optimum = find_optimum(passes, self.kappa, batch.shares, start)
        self.weights, self.present = optimum.weights, batch.present
        return optimum

    def follow(self, passes: Any, batch: Any, momentum: float, learn: bool) -> Optimum:
        """A step toward the optimum over the batch, by a share that falls to `momentum`."""
        if self.weights is None:
            optimum = self.refit(passes, batch)
            if learn:
                self.hessian, self.count = optimum.curvature.hessian / passes.n_known, 1
            return optimum
        n, (sums, curvature) = passes.n_known, passes.both(self.weights)
        if learn and self.hessian is not None:
            self.count += 1
            share = max(momentum, 1.0 / self.count)
            self.hessian = (1.0 - share) * self.hessian + share * curvature.hessian / n
            _, slope, form = penalty(self.weights)
            score = sums.score - self.kappa * slope
            step = share * solve(n * self.hessian + self.kappa * form, score)
            before = sums.loss
            for _ in range(_HALVINGS):
                sums = passes.first(self.weights + step)
                if sums.loss <= before:
                    break
                step = 0.5 * step
            if sums.loss <= before:
                self.weights = self.weights + step
            else:
                sums = passes.first(self.weights)
        value = -(sums.loss + 0.5 * self.kappa * penalty(self.weights)[0]) / n
        if not np.isfinite(value):
            raise NoDescent
        return Optimum(value, self.weights, sums.chain, curvature)

    def forget(self) -> None:
        """Back to knowing nothing."""
        self.weights, self.present, self.hessian, self.count = None, (), None, 0

    def state(self) -> dict[str, Any]:
        """What `running` keeps, as plain lists for a checkpoint."""
        return {
            "weights": None if self.weights is None else self.weights.tolist(),
            "present": list(self.present),
            "hessian": None if self.hessian is None else self.hessian.tolist(),
            "count": self.count,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take up a state."""
        self.weights, self.hessian = (
            None if state[name] is None else np.array(state[name])
            for name in ("weights", "hessian")
        )
        self.present, self.count = tuple(state["present"]), int(state["count"])


# ------------------------------------------------------------------------------------------------
# The passes in plain PyTorch, any device and precision: readable, and slow for many rows.
#
#     f = WΦ,  p = softmax([0, f]),  r = ω(1[a] − p),  h = Σ_k r_k·∂f_k/∂t·dt/dz
#     Hessian Σ ω (diag p − ppᵀ) ⊗ φφᵀ
#
# The reference of the tests, the way of float64 on a GPU, and, on some of the rows, the Hessian of
# the fused passes where groups are many.


# Numbers in the widest table that is made at a time.
_TABLE = 1 << 24


def bounded(z: Tensor, limit: float | None) -> tuple[Tensor, Tensor | None]:
    """t = c·tanh(z/c) and dt/dz; z itself and None without a limit."""
    if limit is None:
        return z, None
    share = torch.tanh(z / limit)
    return limit * share, 1.0 - share * share


class EagerPasses:
    """Sums and gradients over the rows of a batch.

    Parameters
    ----------
    basis : Basis
        Of one variable, t, or of two, t and the target.
    s : (n,) float tensor
        Scores, in the precision to work in.
    center : (2,) tensor or pair of floats
        Their mean and reciprocal spread.
    limit : float or None
        c of the bound.
    batch : Batch
    """

    last_step, last_share = 1e-13, 0.0

    def __init__(self, basis: Basis, s: Tensor, center: Any, limit: float | None, batch: Batch):
        self.basis, self.batch, self.n_known = basis, batch, batch.n_known
        self._z, self._inverse = (s - center[0]) * center[1], center[1]
        self._t, self._slope = bounded(self._z, limit)
        self._target = batch.target if basis.n_variables == 2 else None

    def _chunks(self) -> list[slice]:
        free = self.batch.n_groups - 1
        size = max(256, _TABLE // (self.basis.n_terms * max(free, self.basis.n_terms)))
        return [slice(i, i + size) for i in range(0, max(len(self._z), 1), size)]

    def _look(self, rows: slice, weights: Tensor) -> tuple[Tensor, ...]:
        """Terms φ, probabilities of all groups but the first, residuals, −log ρ(a), weights ω."""
        t = self._t[rows]
        variables = [t] if self._target is None else [t, self._target[rows].to(t.dtype)]
        terms = [torch.ones_like(t), *variables]
        for one, other in self.basis.factors[len(terms) : self.basis.n_terms]:
            terms.append(terms[one] * terms[other])
        phi = torch.stack(terms, dim=1)
        f = torch.nn.functional.pad(phi @ weights.T, (1, 0))
        logs = torch.log_softmax(f, dim=1)
        batch = self.batch
        if batch.table is not None:
            member = batch.table[rows].to(t.dtype)
        else:
            assert batch.codes is not None
            numbers = torch.arange(batch.n_groups, device=t.device)
            member = (batch.codes[rows, None] == numbers).to(t.dtype)
        omega = torch.ones_like(t) if batch.weight is None else batch.weight[rows].to(t.dtype)
        # A row of no group has weight 0, which keeps it out of everything.
        p = logs.exp()
        return phi, p[:, 1:], omega[:, None] * (member - p)[:, 1:], -(member * logs).sum(1), omega

    def first(self, weights: Array) -> Sums:
        w = self._tensor(weights)
        flat = self._total([self._first(rows, w) for rows in self._chunks()])
        return unpack_first(self.batch.reduce(flat).cpu().numpy(), *weights.shape)

    def both(self, weights: Array) -> tuple[Sums, Curvature]:
        flat = self.batch.reduce(self.second_sums(weights)).cpu().numpy()
        return self.first(weights), unpack_second(flat, *weights.shape)

    def second_sums(self, weights: Array) -> Tensor:
        """Hessian and drift of the rows of this process, flat."""
        w = self._tensor(weights)
        return self._total([self._second(rows, w) for rows in self._chunks()])

    @staticmethod
    def _total(chunks: list[list[Tensor]]) -> Tensor:
        flat = [torch.cat([part.to(torch.float64).reshape(-1) for part in c]) for c in chunks]
        return torch.stack(flat).sum(dim=0)

    def _tensor(self, values: Array) -> Tensor:
        return torch.as_tensor(values, dtype=self._t.dtype, device=self._t.device)

    def _slopes(self, rows: slice, phi: Tensor, weights: Tensor) -> Tensor:
        """∂f_k/∂z at fixed weights."""
        table = self._tensor(self.basis._slope_table(self.basis.n_terms))
        q = phi[:, : self.basis.n_slopes] @ (weights @ table).T
        return q if self._slope is None else q * self._slope[rows, None]

    def _first(self, rows: slice, w: Tensor) -> list[Tensor]:
        phi, _, r, loss, omega = self._look(rows, w)
        h = (r * self._slopes(rows, phi, w)).sum(dim=1)
        z = self._z[rows]
        # Order of `unpack_first`.
        return [(omega * loss).sum(), r.T @ phi, h.sum(), (h * z).sum()]

    def _second(self, rows: slice, w: Tensor) -> list[Tensor]:
        free, d = w.shape
        phi, p, r, _, omega = self._look(rows, w)
        both = (p[:, :, None] * phi[:, None, :]).reshape(len(phi), free * d)
        hessian = -(both.T @ (omega[:, None] * both))
        squares = (phi[:, :, None] * phi[:, None, :]).reshape(len(phi), d * d)
        own = ((omega[:, None] * p).T @ squares).reshape(free, d, d)
        hessian = hessian.reshape(free, d, free, d)
        for k in range(free):
            hessian[k, :, k] += own[k]
        # ∂h/∂W: through the probabilities, and through ∂f/∂t.
        q = self._slopes(rows, phi, w)
        u = -omega[:, None] * p * (q - (p * q).sum(dim=1, keepdim=True))
        steep = r if self._slope is None else r * self._slope[rows, None]
        table = self._tensor(self.basis._slope_table(d))
        leading = phi[:, : self.basis.n_slopes]
        z = self._z[rows, None]
        drift = [
            (u * by).T @ phi + ((steep * by).T @ leading) @ table.T
            for by in (torch.ones_like(z), z)
        ]
        return [hessian, *drift]

    def gradient(
        self, weights: Array, scale: float, constant: float, along: float, upstream: Tensor,
        out: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """upstream·scale·(h − ω·(constant + along·z))/spread of every row, added to `out`."""
        out = torch.zeros_like(self._z) if out is None else out
        factor = upstream.to(out.dtype) * (scale * self._inverse)
        w = self._tensor(weights)
        for rows in self._chunks():
            phi, _, r, _, omega = self._look(rows, w)
            h = (r * self._slopes(rows, phi, w)).sum(dim=1)
            out[rows] += factor * (h - omega * (constant + along * self._z[rows]))
        return out


def unpack_first(flat: Array, free: int, d: int) -> Sums:
    """Sums from the head of a flat array: loss, score, chain."""
    end = 1 + free * d
    return Sums(float(flat[0]), flat[1:end].reshape(free, d), flat[end : end + 2])


def unpack_second(flat: Array, free: int, d: int) -> Curvature:
    """Hessian and drift from a flat array."""
    square = (free * d) ** 2
    hessian = flat[:square].reshape(free * d, free * d)
    return Curvature(hessian, flat[square:].reshape(2, free, d))
