"""The passes as generated Triton kernels: each reads the rows once and keeps nothing of their size.

Newton steps need exact scores and a good Hessian: with more than `SAMPLE_ROWS` rows the Hessian is
that of some of them, spread evenly, which leaves about a hundredth of a step. A start from nothing
is found on such rows too.
"""

from __future__ import annotations

import linecache
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from .._core.arrays import Array
from .._core.installing import install_hint
from .passes import Optimum, Passes, bounded, thin
from .template import Shape, round_up, source

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError as error:
    if error.name != "triton":
        raise
    raise ImportError(
        "`backend` 'triton' needs the package triton, which is not installed. Hint: "
        f"{install_hint('triton')}, or FairnessLoss(..., backend='kernels'), on the CPU."
    ) from None


# Rows whose Hessian stands for that of all.
SAMPLE_ROWS = 1 << 17
# Sums up to which the Hessian is a kernel too; and up to which there are registers for long tiles.
_MOST_SUMS, _FEW_SUMS = 240, {"first": 20, "second": 64}
# Programs per processor at most; by mode the rows of a tile and the warps that work on it; numbers
# in a tile whose groups lie along a second axis.
_PROGRAMS = 8
_TILES = {
    "first": (1024, 4),
    "large first": (512, 8),
    "second": (256, 4),
    "large second": (128, 4),
    "gradient": (1024, 4),
}
_WIDE_TILE = 4096


@triton.jit
def _total_kernel(part_ptr, out_ptr, programs, width, skip, scale, BLOCK: tl.constexpr):
    """One column of a table of sums, added up in float64; the first `skip` are passed over."""
    column = tl.program_id(0)
    row = tl.arange(0, BLOCK)
    part = tl.load(part_ptr + row * width + skip + column, mask=row < programs, other=0.0)
    tl.store(out_ptr + column, tl.sum(part.to(tl.float64), axis=0) * scale)


@lru_cache(maxsize=256)
def _kernel(shape: Shape) -> Any:
    """The compiled function; its source lives where tracebacks and Triton look for it."""
    text = source(shape)
    name = f"<evenhand {shape}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "evenhand.torch.generated"}
    exec(compile(text, name, "exec"), namespace)
    return namespace["kernel"]


@lru_cache(maxsize=8)
def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


def _tile(shape: Shape) -> tuple[int, int]:
    """Rows of a tile, and warps."""
    if shape.is_wide:
        return max(16, _WIDE_TILE // shape.wide), _TILES[shape.mode][1]
    large = shape.mode in _FEW_SUMS and shape.n_sums > _FEW_SUMS[shape.mode]
    return _TILES[f"large {shape.mode}" if large else shape.mode]


def _count(n: int, rows: int, device: torch.device, stride: int = 1) -> tuple[int, int]:
    """Every `stride`-th tile of so many rows, and programs to share them."""
    tiles = max(1, -(-n // (rows * stride)))
    return tiles, min(tiles, _PROGRAMS * _processors(device))


class FusedPasses(Passes):
    """By kernels over scores in float32, bfloat16 or float16, and groups by their codes."""

    last_step, last_share, last_rare = 1e-9, 2e-4, 1e-5

    @cached_property
    def _some(self) -> FusedPasses | None:
        """These passes over some of the rows, spread evenly; None where all are few."""
        stride = len(self.s) // SAMPLE_ROWS
        if stride < 2:
            return None
        s = thin(self.s, stride)
        part = FusedPasses(self.basis, s, self.center, self.limit, self.batch.every(stride))
        part.n_known = self.n_known * len(s) / len(self.s)
        # Closer than the rows left out allow would be in vain.
        part.last_step = 0.1 / SAMPLE_ROWS
        return part

    def find_optimum(self, kappa: float, start: Array | None) -> Optimum:
        if start is None and self._some is not None:
            start = self._some.find_optimum(kappa, None).weights
        return super().find_optimum(kappa, start)

    def sums(self, weights: Array, curved: bool) -> Tensor:
        head = 1 + weights.size
        if not curved:
            return self._add_up("first", weights)[:head]
        if not self._by_moments:
            some = self._some or self
            rest = some._moments(weights) * (len(self.s) / len(some.s))
            return torch.cat([self._add_up("first", weights)[:head], rest])
        stride = max(1, len(self.s) // SAMPLE_ROWS)
        if stride == 1:
            return self._add_up("second", weights)
        out = torch.empty(self._shape("second").n_sums, dtype=torch.float64, device=self.s.device)
        # The long one first: what follows is made ready while it runs. A Hessian from some of the
        # rows comes with their own loss and score: passed over.
        self._add_up("first", weights, out)
        self._add_up("second", weights, out[head:], stride, head)
        return out

    @cached_property
    def _by_moments(self) -> bool:
        """Whether the Hessian is a kernel."""
        shape = self._shape("second")
        return not shape.is_wide and shape.n_sums <= _MOST_SUMS

    def _moments(self, weights: Array) -> Tensor:
        """Moments of the blocks (k, l ≤ k) of the Hessian, in plain PyTorch, for many groups."""
        b, basis, free = self.batch, self.basis, len(weights)
        t = bounded((self.s.float() - self.center[0]) * self.center[1], self.limit)
        m = [torch.ones_like(t), t]
        if basis.n_variables == 2:
            assert b.target is not None
            m.append(b.target)
        for one, other in basis.factors[len(m) :]:
            m.append(m[one] * m[other])
        phi = torch.stack(m[: basis.n_terms], dim=1)
        w = torch.as_tensor(weights, dtype=torch.float32, device=t.device)
        omega = torch.ones_like(t) if b.weight is None else b.weight
        with torch.autocast(t.device.type, enabled=False):
            p = torch.softmax(torch.nn.functional.pad(phi @ w.T, (1, 0)), dim=1)[:, 1:]
            blocks = torch.stack(
                [torch.diag(p.T @ (omega * x)) - (p * (omega * x)[:, None]).T @ p for x in m], dim=2
            )
        rows, columns = torch.tril_indices(free, free, device=t.device)
        return blocks[rows, columns].double().reshape(-1)

    def _shape(self, mode: str, adds: bool = False) -> Shape:
        weighted = self.batch.weight is not None
        return Shape(mode, self.batch.n_groups, self.basis, self.limit, weighted, adds)

    def _add_up(
        self, mode: str, weights: Array, out: Tensor | None = None, stride: int = 1, skip: int = 0
    ) -> Tensor:
        """Sums of every `stride`-th tile, scaled up to all rows, in float64."""
        shape, n, device = self._shape(mode), len(self.s), self.s.device
        width, (rows, _) = shape.n_sums, _tile(shape)
        tiles, programs = _count(n, rows, device, stride)
        part = torch.empty((programs, width), dtype=torch.float64, device=device)
        self._launch(shape, programs, tiles, stride, weights, part)
        if out is None:
            out = torch.empty(width, dtype=torch.float64, device=device)
        scale = 1.0 if stride == 1 else n / (tiles * rows)
        _total_kernel[(width - skip,)](part, out, programs, width, skip, scale, round_up(programs))
        return out

    def _launch(
        self, shape: Shape, programs: int, tiles: int, stride: int, weights: Array, *outputs: Any
    ) -> None:
        b, (rows, warps) = self.batch, _tile(shape)
        # A column that the kernel does not read is any tensor.
        columns = [self.s if c is None else c for c in (b.target, b.codes, b.weight)]
        given = [self._widen(weights, shape)] if shape.is_wide else weights.ravel().tolist()
        _kernel(shape)[(programs,)](
            self.s, *columns, *self.center, *given, *outputs, len(self.s), tiles, stride, rows,
            num_warps=warps,
        )  # fmt: skip

    def _widen(self, weights: Array, shape: Shape) -> Tensor:
        """(D, wide) with a column of zeros for the first group and for those that pad."""
        table = torch.zeros((weights.shape[1], shape.wide), dtype=torch.float32)
        table[:, 1 : 1 + len(weights)] = torch.as_tensor(weights.T)
        return table.to(self.s.device)

    def gradient(
        self, weights: Array, scale: float, upstream: Tensor, out: Tensor | None
    ) -> Tensor:
        taken = self._add_up("first", weights)[1 + weights.size :]
        shape = self._shape("gradient", out is not None)
        out = torch.empty_like(self.s) if out is None else out
        tiles, _ = _count(len(self.s), _tile(shape)[0], self.s.device)
        ends = (taken, upstream, scale, 1.0 / self.n_known)
        self._launch(shape, tiles, tiles, 1, weights, out, *ends)
        return out
