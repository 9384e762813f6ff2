"""The classifiers of the group inside the loss, fitted over sums that come from any device.

ω_i = w_i·m/Σw over the m rows with a known group, 0 elsewhere
t(y) = c·tanh(z/c) of the standardized target z
minimize Σᵢ −ωᵢ log ρ(aᵢ|zᵢ) + (κ/2) Σ_k ‖w_k − w̄‖²
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._core.arrays import Array
from ..estimators._newton import assemble_hessian, cold_start, damped_newton, penalty, solve
from ..estimators.logistic import evaluate, newton
from ..kernels import Rows, get_kernels
from ..kernels import standardizer as standardize
from ..kernels.basis import Basis

# As in `kernels.standardizer`: a spread at the level of rounding in the mean is no spread.
_ROUNDING = {torch.float64: 1e-13}
# Rows that are kept or left out together.
_BLOCK = 256


@dataclass(frozen=True)
class Batch:
    """Rows of a batch; K counts the groups that it has rows of.

    Attributes
    ----------
    codes : (n,) integer tensor
        0 … K − 1, and K where the group is not known.
    weight : (n,) tensor or None
        ω; None where all rows are known and weigh the same.
    target : (n,) tensor or None
        The target as the classifiers see it.
    present : tuple of int
        The groups, by their numbers in the user's count.
    n_known : float
        m.
    shares : (K,) array
        Weighted shares of the groups.
    """

    codes: Tensor
    weight: Tensor | None
    target: Tensor | None
    present: tuple[int, ...]
    n_known: float
    shares: NDArray[np.float64]
    _thinned: dict[int, Batch] = field(default_factory=dict, init=False)

    @property
    def n_groups(self) -> int:
        return len(self.present)

    @property
    def known(self) -> Tensor | None:
        """Rows of a known group; None where all are."""
        if self.weight is None:
            return None
        known = self.codes < self.n_groups
        return None if bool(known.all()) else known

    @property
    def entropy(self) -> float:
        """H(A), in nats."""
        shares = self.shares[self.shares > 0]
        return float(-(shares * np.log(shares)).sum())

    def every(self, stride: int) -> Batch:
        """The rows that `thin` leaves; made once, as scores change more often than the rest."""
        if stride not in self._thinned:
            weight, target = (
                None if column is None else thin(column, stride)
                for column in (self.weight, self.target)
            )
            codes = thin(self.codes, stride)
            self._thinned[stride] = replace(self, codes=codes, weight=weight, target=target)
        return self._thinned[stride]


def thin(column: Tensor, stride: int) -> Tensor:
    """Every `stride`-th block of rows: single rows could fall in step with rows that repeat."""
    return column[: len(column) // _BLOCK * _BLOCK].view(-1, _BLOCK)[::stride].reshape(-1)


def make_batch(
    groups: Tensor, n_groups: int, weight: Tensor | None, dtype: torch.dtype,
    keep_all: bool = False,
) -> Batch:  # fmt: skip
    """Groups and weights; groups without weight are left out.

    With `keep_all` they stay, for classifiers that outlive the batch.
    """
    omega, known = None, groups >= 0
    mass = known if weight is None else weight.to(torch.float64) * known
    # A tensor of single bytes does not index: PyTorch takes it for a mask.
    groups = groups.to(torch.int16) if groups.itemsize == 1 else groups
    codes = torch.where(known, groups, n_groups)
    totals = torch.bincount(codes, None if weight is None else mass, minlength=n_groups + 1)
    flat = [totals[:n_groups].double(), *(count.sum().double()[None] for count in (mass, known))]
    sums = torch.cat(flat).cpu().numpy()
    shares, (total, n_known) = sums[:n_groups], sums[n_groups:].tolist()
    keep = np.ones(n_groups, dtype=bool) if keep_all else shares > 0
    k = int(keep.sum())
    if k < n_groups:
        # Rows of a group whose weights are all zero are of no group.
        place = np.append(np.where(keep, np.cumsum(keep) - 1, k), k)
        codes = torch.as_tensor(place, device=codes.device)[codes.long()]
        n_known = float((codes < k).sum())
    if weight is not None and total > 0:
        omega = (mass * (n_known / total)).to(dtype)
    elif n_known < len(groups):
        omega = known.to(dtype)
    codes = codes.to(torch.uint8 if k < 255 else torch.int16)
    shares = shares[keep] / total if total > 0 else np.full(k, np.nan)
    return Batch(codes, omega, None, tuple(np.flatnonzero(keep).tolist()), n_known, shares)


def standardizer(values: Tensor, batch: Batch) -> tuple[float, float]:
    """Weighted mean and reciprocal spread; 0 for a constant column.

    In float64: squares of scores in units of 1e±30 leave the range of float32.
    """
    x = values.double()
    if x.device.type == "cpu":
        weight = np.empty(0) if batch.weight is None else batch.weight.double().numpy()
        center, inverse = standardize(x.numpy(), weight)
        return center, inverse * (_ROUNDING.get(values.dtype, 1e-6) * abs(center) * inverse < 1.0)
    if batch.weight is None:
        variance, mean = torch.var_mean(x, correction=0)
    else:
        w = batch.weight.double()
        mass = w.sum()
        mean = w @ x / mass
        variance = w @ (x - mean).square() / mass
    center, square = torch.stack([mean, variance]).tolist()
    if not 1e-200 < square < math.inf:  # squares beyond the largest float or the smallest
        size = float(x.abs().amax())
        if 0.0 < size < math.inf and not 0.5 < size < 2.0:  # else it has been divided by already
            center, inverse = standardizer(x / size, batch)
            return center * size, inverse / size
    spread = math.sqrt(square)
    if not spread > _ROUNDING.get(values.dtype, 1e-6) * abs(center):
        return center, 0.0 if spread == spread else math.nan
    return center, 1.0 / spread


# ------------------------------------------------------------------------------------------------
# Newton steps over sums.
#
# One step beyond a point whose squared decrement per row is small enough lands at the optimum as
# far as the passes can tell, so none is spent on looking at it: the objective there is that of the
# quadratic.


MAX_ITER = 100


class Sums(NamedTuple):
    """Sums over rows at weights W, (F, D) with F = K − 1.

    Attributes
    ----------
    loss : float
        Σ −ω log ρ.
    score : (F, D) array
        Its negative gradient in W.
    hessian : (FD, FD) array
        Of the loss; from some of the rows where those are many. Empty if not asked for.
    """

    loss: float
    score: Array
    hessian: Array


class Optimum(NamedTuple):
    """The optimum: L = −objective per row, and the weights."""

    value: float
    weights: Array


class NoDescent(ArithmeticError):
    """Sums are not finite: the scores are not."""


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
        optimum = passes.find_optimum(self.kappa, start)
        self.weights, self.present = optimum.weights, passes.batch.present
        return optimum

    def follow(self, passes: Passes, momentum: float, learn: bool) -> Optimum:
        """A step toward the optimum over the batch, by a share that falls to `momentum`."""
        n = passes.n_known
        if self.weights is None:
            optimum = self.refit(passes)
            if learn:
                self.hessian, self.count = passes.look(optimum.weights).hessian / n, 1
            return optimum
        sums = passes.look(self.weights)
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
        return Optimum(value, self.weights)


# ------------------------------------------------------------------------------------------------
# Passes over the rows, and those on the CPU.
#
#     f = WΦ,  p = softmax([0, f]),  r = ω(1[a] − p),  h = Σ_k r_k·∂f_k/∂t·dt/dz
#     Hessian Σ ω (diag p − ppᵀ) ⊗ φφᵀ


def bounded(z: Tensor, limit: float | None) -> Tensor:
    """t = c·tanh(z/c); z itself without a limit."""
    return z if limit is None else limit * torch.tanh(z / limit)


class Passes(ABC):
    """Sums and gradients over the rows of a batch.

    Parameters
    ----------
    basis : Basis
        Of one variable, t, or of two, t and the target.
    s : (n,) float tensor
        Scores.
    center : pair of floats
        Their mean and reciprocal spread.
    limit : float or None
        c of the bound.
    batch : Batch

    Attributes
    ----------
    last_step : float
        Squared decrement per row under which the error of one more step is below that of the sums.
    last_share, last_rare : float
        The same as a share of the information: a last step by a hundredth of the weights; and at
        most this, times the square of the rarest group's share over that of equal groups.
    """

    last_step = 1e-13
    last_share = last_rare = 0.0

    def __init__(
        self, basis: Basis, s: Tensor, center: tuple[float, float], limit: float | None,
        batch: Batch,
    ):  # fmt: skip
        self.basis, self.batch, self.n_known = basis, batch, batch.n_known
        self.s, self.center, self.limit = s, center, limit

    def find_optimum(self, kappa: float, start: Array | None) -> Optimum:
        """Newton steps from `start`, or from the shares of the groups."""

        def look(weights: Array) -> tuple[float, Array, Array]:
            sums = self.look(weights)
            size, slope, form = penalty(weights)
            objective = (sums.loss + 0.5 * kappa * size) / self.n_known
            return objective, sums.score - kappa * slope, sums.hessian + kappa * form

        shares, entropy = self.batch.shares, self.batch.entropy
        weights = cold_start(shares, self.basis.n_terms) if start is None else start
        seen = look(weights)
        if start is not None and not seen[0] <= entropy + 1e-6:
            # Worse than knowing nothing: the rows have moved too far for the old weights to help.
            weights = cold_start(shares, self.basis.n_terms)
            seen = look(weights)
        if not np.isfinite(seen[0]):
            raise NoDescent
        # A rare group adds little to a decrement and much to the gradient of its own rows, and its
        # part of a Hessian from some of the rows is rough.
        rare = self.last_rare * (len(shares) * float(shares[shares > 0].min())) ** 2

        def enough(objective: float) -> float:
            return max(self.last_step, min(self.last_share * (entropy - objective), rare))

        end = damped_newton(look, weights, seen, self.n_known, enough, MAX_ITER)
        return Optimum(0.5 * end.decrement - end.seen[0], end.weights + end.step)

    def look(self, weights: Array, curved: bool = True) -> Sums:
        """Sums at some weights, with the Hessian if `curved`."""
        free, d = weights.shape
        flat = self.sums(weights, curved).cpu().numpy()  # one wait for the device
        score, rest = flat[1 : 1 + free * d].reshape(free, d), flat[1 + free * d :]
        hessian = assemble_hessian(self.basis, rest, free) if curved else rest
        return Sums(float(flat[0]), score, hessian)

    @abstractmethod
    def sums(self, weights: Array, curved: bool) -> Tensor:
        """Those of the rows in float64: loss, score, moments of the Hessian."""

    @abstractmethod
    def gradient(
        self, weights: Array, scale: float, upstream: Tensor, out: Tensor | None
    ) -> Tensor:
        """upstream·scale·(h − ω·(mean h + z·mean hz))/spread of every row, added to `out`.

        The two means, over all rows, are what mean and spread of the scores take.
        """


class HostPasses(Passes):
    """On the CPU, by the compiled kernels of the classifiers, in float64."""

    def __init__(self, basis: Basis, s: Tensor, *rest: Any):
        super().__init__(basis, s, *rest)
        center, limit, batch = self.center, self.limit, self.batch
        self._known = known = batch.known

        def column(values: Tensor | None) -> Any:
            if values is None:
                return np.empty(0)
            return (values if known is None else values[known]).contiguous().numpy()

        self._own = x = column(s.double())
        self._slopes: Any = None
        t = get_kernels().bound_scores(x, *center, limit) if limit else (x - center[0]) * center[1]
        if not (math.isfinite(center[0]) and np.isfinite(t).all()):
            raise NoDescent
        codes = column(batch.codes).astype(np.uint8 if batch.n_groups <= 256 else np.int64)
        self._rows = Rows(
            t, column(batch.target if basis.n_variables == 2 else None), codes, np.empty((0, 0)),
            column(batch.weight), batch.shares, np.array([0.0, 1.0, 0.0, 1.0]), moves=False,
        )  # fmt: skip

    def find_optimum(self, kappa: float, start: Array | None) -> Optimum:
        weights = newton(self._rows, self.basis, kappa, start=start).weights
        value, self._slopes = evaluate(self._rows, self.basis, weights, kappa, self.n_known)
        return Optimum(value, weights)

    def sums(self, weights: Array, curved: bool) -> Tensor:
        parts = get_kernels().logistic_pass(self._rows, self.basis, weights, curved)[: 2 + curved]
        return torch.from_numpy(np.concatenate([np.ravel(part) for part in parts]))

    def gradient(
        self, weights: Array, scale: float, upstream: Tensor, out: Tensor | None
    ) -> Tensor:
        slopes, self._slopes = self._slopes, None  # once: they are changed in place
        if slopes is None:
            slopes = evaluate(self._rows, self.basis, weights, 0.0, self.n_known)[1]
        limit = self.limit or math.inf
        get_kernels().unbound_gradient(self._rows, self._own, *self.center, limit, slopes)
        h = torch.from_numpy(slopes).mul_(upstream.double() * scale)
        if self._known is not None:
            h = torch.zeros(len(self.s), dtype=h.dtype).masked_scatter(self._known, h)
        return h if out is None else out + h
