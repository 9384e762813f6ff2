"""The passes in plain PyTorch, any device and precision: readable, and slow for many rows.

    f = WΦ,  p = softmax([0, f]),  r = ω(1[a] − p),  h = Σ_k r_k·∂f_k/∂t·dt/dz
    Hessian Σ ω (diag p − ppᵀ) ⊗ φφᵀ

The reference of the tests, the way of float64 on a GPU, and, on some of the rows, the Hessian of
the fused passes where groups are many.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._core.arrays import Array
from ..kernels.basis import Basis
from .batch import Batch
from .newton import Curvature, Sums

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
