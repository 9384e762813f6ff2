"""The classifiers of the group inside the loss, fitted over sums that come from any device.

    ω_i = w_i·m/Σw over the m rows with a known group, 0 elsewhere
    t(y) = c·tanh(z/c) of the standardized target z
    minimize Σᵢ −ωᵢ log ρ(aᵢ|zᵢ) + (κ/2) Σ_k ‖w_k − w̄‖²

Sums go over the rows of all processes where a process group is given, so that a batch in two parts
has the weights, shares and targets of the whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._core.arrays import Array
from ..estimators._newton import cold_start, damped_newton, penalty, solve
from ..kernels.basis import Basis

# Sum of a small float64 tensor over the processes.
Reduce = Callable[[Tensor], Tensor]
# As in `kernels.standardizer`: a spread at the level of rounding in the mean is no spread.
_ROUNDING = {torch.float64: 1e-13, torch.float32: 1e-6}
# Rows that are kept or left out together.
_BLOCK = 256


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
    _thinned: dict[int, Batch] = field(default_factory=dict, init=False)

    @property
    def n_groups(self) -> int:
        return len(self.present)

    @property
    def entropy(self) -> float:
        """H(A), in nats."""
        shares = self.shares[self.shares > 0]
        return float(-(shares * np.log(shares)).sum())

    def every(self, stride: int) -> Batch:
        """The rows that `thin` leaves; made once, as scores change more often than the rest."""
        if stride not in self._thinned:
            codes, weight, target = (
                None if column is None else thin(column, stride)
                for column in (self.codes, self.weight, self.target)
            )
            self._thinned[stride] = replace(self, codes=codes, weight=weight, target=target)
        return self._thinned[stride]


def thin(column: Tensor, stride: int) -> Tensor:
    """Every `stride`-th block of rows: single rows could fall in step with rows that repeat."""
    whole = len(column) // _BLOCK * _BLOCK
    return column[:whole].view(-1, _BLOCK)[::stride].reshape(-1)


def make_batch(
    groups: Tensor, n_groups: int, weight: Tensor | None, dtype: torch.dtype, reduce: Reduce,
    keep_all: bool = False,
) -> Batch:  # fmt: skip
    """Groups (codes or probabilities) and weights; groups without weight are left out.

    With `keep_all` they stay, for classifiers that outlive the batch.
    """
    codes = table = omega = None
    known = ~groups.isnan().any(dim=1) if groups.ndim == 2 else groups >= 0
    mass = known if weight is None else weight.to(torch.float64) * known
    if groups.ndim == 2:
        table = torch.where(known[:, None], groups, 0.0).to(dtype)
        totals = (table.to(torch.float64) * mass[:, None]).sum(dim=0)
    else:
        # A tensor of single bytes does not index: PyTorch takes it for a mask.
        groups = groups.to(torch.int16) if groups.itemsize == 1 else groups
        codes = torch.where(known, groups, n_groups)
        totals = torch.bincount(codes, None if weight is None else mass, minlength=n_groups + 1)
    counts = [mass.sum(), known.sum(), torch.ones_like(known).sum()]
    flat = [totals[:n_groups].double(), *(count.double()[None] for count in counts)]
    sums = reduce(torch.cat(flat)).cpu().numpy()
    shares, (total, n_known, n_rows) = sums[:n_groups], sums[n_groups:].tolist()
    keep = np.ones(n_groups, dtype=bool) if keep_all else shares > 0
    k = int(keep.sum())
    if table is not None:
        table = table[:, torch.as_tensor(np.flatnonzero(keep), device=table.device)]
    elif codes is not None and k < n_groups:
        # Rows of a group whose weights are all zero are of no group.
        place = np.append(np.where(keep, np.cumsum(keep) - 1, k), k)
        codes = torch.as_tensor(place, device=codes.device)[codes.long()]
        n_known = float(reduce((codes < k).sum().double()[None])[0])
    if weight is not None and total > 0:
        omega = (mass * (n_known / total)).to(dtype)
    elif n_known < n_rows:
        omega = known.to(dtype)
    if codes is not None:
        codes = codes.to(torch.uint8 if k < 255 else torch.int16)
    shares = shares[keep] / total if total > 0 else np.full(k, np.nan)
    present = tuple(np.flatnonzero(keep).tolist())
    return Batch(codes, table, omega, None, present, n_known, shares, reduce)


def standardizer(values: Tensor, batch: Batch) -> tuple[float, float]:
    """Weighted mean and reciprocal spread over all processes; 0 for a constant column."""
    x = values.to(torch.float64)
    w = torch.ones_like(x) if batch.weight is None else batch.weight.to(torch.float64)
    # All processes shift by the same: the mean of their first rows.
    sums = batch.reduce(torch.stack([torch.ones_like(x[:1]).sum(), x[:1].sum()]))
    shift = sums[1] / sums[0]
    # A second look at the mean: the first row may lie far from the rest.
    for _ in range(2):
        d = x - shift
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


class Sums(NamedTuple):
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
    hessian : (FD, FD) array
        Of the loss; from some of the rows where those are many. Empty if not asked for.
    drift : (2, F, D) array
        Derivative of `chain` in W, likewise.
    """

    loss: float
    score: Array
    chain: Array
    hessian: Array
    drift: Array


class Optimum(NamedTuple):
    """The optimum: L = −objective per row, weights, `chain` there, Hessian of the loss."""

    value: float
    weights: Array
    chain: Array
    hessian: Array


class NoDescent(ArithmeticError):
    """Sums are not finite: the scores are not."""


def find_optimum(passes: Passes, kappa: float, start: Array | None) -> Optimum:
    """Newton steps from `start`, or from the shares of the groups."""

    def look(weights: Array) -> tuple[float, Array, Array, Sums]:
        sums = passes.look(weights)
        size, slope, form = penalty(weights)
        objective = (sums.loss + 0.5 * kappa * size) / passes.n_known
        return objective, sums.score - kappa * slope, sums.hessian + kappa * form, sums

    entropy = passes.batch.entropy
    weights = cold_start(passes.batch.shares, passes.basis) if start is None else start
    seen = look(weights)
    if start is not None and not seen[0] <= entropy + 1e-6:
        # Worse than knowing nothing: the rows have moved too far for the old weights to help.
        weights = cold_start(passes.batch.shares, passes.basis)
        seen = look(weights)
    if not np.isfinite(seen[0]):
        raise NoDescent

    def enough(objective: float) -> float:
        return max(passes.last_step, passes.last_share * (entropy - objective))

    end = damped_newton(look, weights, seen, passes.n_known, enough, MAX_ITER)
    objective, _, _, sums = end.seen
    chain = sums.chain + (sums.drift * end.step).sum(axis=(1, 2))
    return Optimum(0.5 * end.decrement - objective, end.weights + end.step, chain, sums.hessian)


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

    def refit(self, passes: Passes) -> Optimum:
        """The optimum over the batch, from that of the batch before."""
        start = self.weights if self.present == passes.batch.present else None
        sample = passes.sample() if start is None else None
        if sample is not None:
            start = find_optimum(sample, self.kappa, None).weights
        optimum = find_optimum(passes, self.kappa, start)
        self.weights, self.present = optimum.weights, passes.batch.present
        return optimum

    def follow(self, passes: Passes, momentum: float, learn: bool) -> Optimum:
        """A step toward the optimum over the batch, by a share that falls to `momentum`."""
        if self.weights is None:
            optimum = self.refit(passes)
            if learn:
                self.hessian, self.count = optimum.hessian / passes.n_known, 1
            return optimum
        n, sums = passes.n_known, passes.look(self.weights)
        if learn and self.hessian is not None:
            self.count += 1
            share = max(momentum, 1.0 / self.count)
            self.hessian = (1.0 - share) * self.hessian + share * sums.hessian / n
            _, slope, form = penalty(self.weights)
            score = sums.score - self.kappa * slope
            step = share * solve(n * self.hessian + self.kappa * form, score)
            for _ in range(_HALVINGS):
                trial = passes.look(self.weights + step, curved=False)
                if trial.loss <= sums.loss:
                    self.weights, sums = self.weights + step, trial
                    break
                step = 0.5 * step
        value = -(sums.loss + 0.5 * self.kappa * penalty(self.weights)[0]) / n
        if not np.isfinite(value):
            raise NoDescent
        return Optimum(value, self.weights, sums.chain, sums.hessian)

    def state(self) -> dict[str, Any]:
        """What is remembered, as plain lists for a checkpoint."""
        names = ("weights", "present", "hessian", "count")
        return {name: np.asarray(getattr(self, name)).tolist() for name in names}

    def load(self, state: dict[str, Any]) -> None:
        """Take up a state."""
        self.weights, self.hessian = (
            None if state[name] is None else np.array(state[name])
            for name in ("weights", "hessian")
        )
        self.present, self.count = tuple(state["present"]), state["count"]


# ------------------------------------------------------------------------------------------------
# Passes over the rows, and those in plain PyTorch: any device and precision, readable, and slow for
# many rows.
#
#     f = WΦ,  p = softmax([0, f]),  r = ω(1[a] − p),  h = Σ_k r_k·∂f_k/∂t·dt/dz
#     Hessian Σ ω (diag p − ppᵀ) ⊗ φφᵀ
#
# The reference of the tests, the way of float64 on a GPU, and, on some of the rows, the Hessian of
# the fused passes where groups are many.


# Numbers in the widest table that is made at a time.
_TABLE = 1 << 24


def bounded(z: Tensor, limit: float | None) -> tuple[Tensor, Tensor]:
    """t = c·tanh(z/c) and dt/dz; z itself and 1 without a limit."""
    if limit is None:
        return z, torch.ones_like(z)
    share = torch.tanh(z / limit)
    return limit * share, 1.0 - share * share


class Passes(ABC):
    """Sums and gradients over the rows of a batch.

    Parameters
    ----------
    basis : Basis
        Of one variable, t, or of two, t and the target.
    s : (n,) float tensor
        Scores.
    center : (2,) tensor or pair of floats
        Their mean and reciprocal spread.
    limit : float or None
        c of the bound.
    batch : Batch

    Attributes
    ----------
    last_step : float
        Squared decrement per row under which the error of one more step is below that of the sums.
    last_share : float
        The same as a share of the information: a last step by a hundredth of the weights.
    """

    last_step = 1e-13
    last_share = 0.0

    def __init__(self, basis: Basis, s: Tensor, center: Any, limit: float | None, batch: Batch):
        self.basis, self.batch, self.n_known = basis, batch, batch.n_known
        self.s, self.center, self.limit = s, center, limit

    def look(self, weights: Array, curved: bool = True) -> Sums:
        """Sums at some weights, with the Hessian if `curved`."""
        free, d = weights.shape
        # One wait for the device.
        flat = self.batch.reduce(self.sums(weights, curved)).cpu().numpy()
        size = free * d
        score, chain, rest = flat[1 : 1 + size], flat[1 + size : 3 + size], flat[3 + size :]
        hessian, drift = self.unpack(rest[: -2 * size], free), rest[-2 * size :]
        score, drift = score.reshape(free, d), drift.reshape(-1, free, d)
        return Sums(float(flat[0]), score, chain, hessian, drift)

    @abstractmethod
    def sums(self, weights: Array, curved: bool) -> Tensor:
        """Those of the rows of this process in float64: loss, score, chain; Hessian, drift."""

    @abstractmethod
    def unpack(self, flat: Array, free: int) -> Array:
        """The Hessian from the sums that stand for it."""

    @abstractmethod
    def gradient(
        self, weights: Array, finish: tuple[float, ...], upstream: Tensor, out: Tensor | None
    ) -> Tensor:
        """upstream·scale·(h − ω·(constant + along·z))/spread of every row, added to `out`.

        `finish` are scale, constant and along.
        """

    def sample(self) -> Passes | None:
        """Some of the rows, to find a start on; None where all are few."""
        return None


class EagerPasses(Passes):
    """In plain PyTorch, in the precision of the scores."""

    def __init__(self, basis: Basis, s: Tensor, center: Any, limit: float | None, batch: Batch):
        super().__init__(basis, s, center, limit, batch)
        self._z = (s - center[0]) * center[1]
        self._t, self._steep = bounded(self._z, limit)

    def _chunks(self) -> list[slice]:
        free = self.batch.n_groups - 1
        size = max(256, _TABLE // (self.basis.n_terms * max(free, self.basis.n_terms)))
        return [slice(i, i + size) for i in range(0, max(len(self._z), 1), size)]

    def _tensor(self, values: Array) -> Tensor:
        return torch.as_tensor(values, dtype=self._t.dtype, device=self._t.device)

    def _look(self, rows: slice, weights: Tensor) -> tuple[Tensor, ...]:
        """φ; of all groups but the first p, r and ∂f/∂z; −log ρ(a); ω."""
        t, batch = self._t[rows], self.batch
        terms = [torch.ones_like(t), t]
        if self.basis.n_variables == 2:
            assert batch.target is not None
            terms.append(batch.target[rows].to(t.dtype))
        for one, other in self.basis.factors[len(terms) : self.basis.n_terms]:
            terms.append(terms[one] * terms[other])
        phi = torch.stack(terms, dim=1)
        logs = torch.log_softmax(torch.nn.functional.pad(phi @ weights.T, (1, 0)), dim=1)
        if batch.table is not None:
            member = batch.table[rows].to(t.dtype)
        else:
            assert batch.codes is not None
            numbers = torch.arange(batch.n_groups, device=t.device)
            member = (batch.codes[rows, None] == numbers).to(t.dtype)
        # A row of no group has weight 0, which keeps it out of everything.
        omega = torch.ones_like(t) if batch.weight is None else batch.weight[rows].to(t.dtype)
        p = logs.exp()
        table = self._tensor(self.basis._slope_table(self.basis.n_terms))
        q = phi[:, : self.basis.n_slopes] @ (weights @ table).T * self._steep[rows, None]
        r = omega[:, None] * (member - p)[:, 1:]
        return phi, p[:, 1:], r, q, -(member * logs).sum(1), omega

    def sums(self, weights: Array, curved: bool) -> Tensor:
        w = self._tensor(weights)
        chunks = [self._sums(rows, w, curved) for rows in self._chunks()]
        flat = [torch.cat([part.to(torch.float64).reshape(-1) for part in c]) for c in chunks]
        return torch.stack(flat).sum(dim=0)

    def _sums(self, rows: slice, w: Tensor, curved: bool) -> list[Tensor]:
        free, d = w.shape
        phi, p, r, q, loss, omega = self._look(rows, w)
        h, z = (r * q).sum(dim=1), self._z[rows]
        out = [(omega * loss).sum(), r.T @ phi, h.sum(), (h * z).sum()]
        if not curved:
            return out
        both = (p[:, :, None] * phi[:, None, :]).reshape(len(phi), free * d)
        hessian = -(both.T @ (omega[:, None] * both)).reshape(free, d, free, d)
        squares = (phi[:, :, None] * phi[:, None, :]).reshape(len(phi), d * d)
        own = ((omega[:, None] * p).T @ squares).reshape(free, d, d)
        for k in range(free):
            hessian[k, :, k] += own[k]
        # ∂h/∂W: through the probabilities, and through ∂f/∂t.
        u = -omega[:, None] * p * (q - (p * q).sum(dim=1, keepdim=True))
        x = r * self._steep[rows, None]
        table, leading = self._tensor(self.basis._slope_table(d)), phi[:, : self.basis.n_slopes]
        drift = [
            (u * by[:, None]).T @ phi + ((x * by[:, None]).T @ leading) @ table.T
            for by in (torch.ones_like(z), z)
        ]
        return [*out, hessian, *drift]

    def unpack(self, flat: Array, free: int) -> Array:
        size = free * self.basis.n_terms
        return flat.reshape(-1, size)

    def gradient(
        self, weights: Array, finish: tuple[float, ...], upstream: Tensor, out: Tensor | None
    ) -> Tensor:
        scale, constant, along = finish
        out = torch.zeros_like(self._z) if out is None else out
        factor = upstream.to(out.dtype) * (scale * self.center[1])
        w = self._tensor(weights)
        for rows in self._chunks():
            _, _, r, q, _, omega = self._look(rows, w)
            h = (r * q).sum(dim=1)
            out[rows] += factor * (h - omega * (constant + along * self._z[rows]))
        return out
