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
from ..estimators._newton import assemble_hessian
from .passes import Batch, EagerPasses, Passes, alone, thin
from .template import Shape, round_up, source

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError as error:
    if error.name != "triton":
        raise
    raise ImportError(
        "`backend` 'triton' needs the package triton, which is not installed. Hint: "
        "pip install triton, or FairnessLoss(..., backend='eager'), which is slower."
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
    "moments": (1024, 8),
}
_WIDE_TILE = 4096


@triton.jit
def _moments_kernel(
    s_ptr, w_ptr, shift_ptr, out_ptr, n, n_tiles, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Σω, Σω(s − shift), Σω(s − shift)² of the rows of a program."""
    shift = tl.load(shift_ptr)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    plain = tl.zeros((BLOCK,), dtype=tl.float32)
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for tile in range(tl.program_id(0), n_tiles, tl.num_programs(0)):
        # Rows are numbered in 64 bits where n has them, which costs registers.
        row = (tile + (n - n)) * BLOCK + tl.arange(0, BLOCK)
        inside = row < n
        x = tl.load(s_ptr + row, mask=inside, other=0.0).to(tl.float32) - shift
        if WEIGHTED:
            w = tl.load(w_ptr + row, mask=inside, other=0.0)
        else:
            w = inside.to(tl.float32)
        total += w
        plain += w * x
        square += w * x * x
    out = out_ptr + tl.program_id(0) * 3
    tl.store(out, tl.sum(total, axis=0))
    tl.store(out + 1, tl.sum(plain, axis=0))
    tl.store(out + 2, tl.sum(square, axis=0))


@triton.jit
def _center_kernel(part_ptr, shift_ptr, out_ptr, programs, BLOCK: tl.constexpr):
    """Mean and reciprocal spread from the sums of all programs, without waiting for the host."""
    row = tl.arange(0, BLOCK)
    part = part_ptr + 3 * row
    inside = row < programs
    total = tl.sum(tl.load(part, mask=inside, other=0.0).to(tl.float64), axis=0)
    plain = tl.sum(tl.load(part + 1, mask=inside, other=0.0).to(tl.float64), axis=0) / total
    square = tl.sum(tl.load(part + 2, mask=inside, other=0.0).to(tl.float64), axis=0) / total
    mean = tl.load(shift_ptr).to(tl.float64) + plain
    variance = square - plain * plain
    # As in `batch.standardizer`: no spread at the level of rounding.
    flat = variance <= 1e-12 * mean * mean
    inverse = tl.where(flat, 0.0, 1.0 / tl.sqrt(tl.where(flat, 1.0, variance)))
    tl.store(out_ptr, mean.to(tl.float32))
    tl.store(out_ptr + 1, inverse.to(tl.float32))


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


def center_of(s: Tensor, batch: Batch, start: Tensor | None) -> Tensor:
    """Mean and reciprocal spread, (2,) float32 on the device; `start` begins with a mean to shift
    by."""
    n = len(s)
    if start is None:
        # Some of the rows, so that one odd row does not cost the digits of all.
        start = s[:: max(1, n // 1024)].to(torch.float32).mean()
    rows, warps = _TILES["moments"]
    tiles, programs = _count(n, rows, s.device)
    part = torch.empty((programs, 3), dtype=torch.float32, device=s.device)
    weighted = batch.weight is not None
    _moments_kernel[(programs,)](
        s, batch.weight if weighted else s, start, part, n, tiles, weighted, rows, num_warps=warps
    )
    center = torch.empty(2, dtype=torch.float32, device=s.device)
    _center_kernel[(1,)](part, start, center, programs, round_up(programs))
    return center


class FusedPasses(Passes):
    """By kernels over scores in float32, bfloat16 or float16, and groups by their codes."""

    last_step, last_share = 1e-8, 2e-4

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

    def sample(self) -> FusedPasses | None:
        # Processes with more and with fewer rows must not part ways.
        return self._some if self.batch.reduce is alone else None

    def sums(self, weights: Array, curved: bool) -> Tensor:
        if not curved:
            return self._add_up("first", weights)
        stride, head = max(1, len(self.s) // SAMPLE_ROWS), 3 + weights.size
        if not self._by_moments:
            some = self._some or self
            rest = some._eager.sums(weights, True)[head:] * (len(self.s) / len(some.s))
            return torch.cat([self._add_up("first", weights), rest])
        if stride == 1:
            return self._add_up("second", weights)
        width = self._shape("second").n_sums
        out = torch.empty(width, dtype=torch.float64, device=self.s.device)
        # The long one first: what follows is made ready while it runs. A Hessian from some of the
        # rows comes with their own loss and score: passed over.
        self._add_up("first", weights, out)
        self._add_up("second", weights, out[head:], stride, head)
        return out

    @cached_property
    def _eager(self) -> EagerPasses:
        s = self.s.to(torch.float32)
        return EagerPasses(self.basis, s, self.center, self.limit, self.batch)

    @cached_property
    def _by_moments(self) -> bool:
        """Whether the Hessian is a kernel."""
        shape = self._shape("second")
        return not shape.is_wide and shape.n_sums <= _MOST_SUMS

    def unpack(self, flat: Array, free: int) -> Array:
        if self._by_moments and len(flat):
            return assemble_hessian(self.basis, flat, free)
        return flat.reshape(-1, free * self.basis.n_terms)

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
        part = torch.empty((programs, width), dtype=torch.float32, device=device)
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
            self.s, *columns, self.center, *given, *outputs, len(self.s), tiles, stride, rows,
            num_warps=warps,
        )  # fmt: skip

    def _widen(self, weights: Array, shape: Shape) -> Tensor:
        """(D, wide) with a column of zeros for the first group and for those that pad."""
        table = torch.zeros((weights.shape[1], shape.wide), dtype=torch.float32)
        table[:, 1 : 1 + len(weights)] = torch.as_tensor(weights.T)
        return table.to(self.s.device)

    def gradient(
        self, weights: Array, finish: tuple[float, ...], upstream: Tensor, out: Tensor | None
    ) -> Tensor:
        shape = self._shape("gradient", out is not None)
        out = torch.empty_like(self.s) if out is None else out
        tiles, _ = _count(len(self.s), _tile(shape)[0], self.s.device)
        self._launch(shape, tiles, tiles, 1, weights, out, upstream, *finish)
        return out
