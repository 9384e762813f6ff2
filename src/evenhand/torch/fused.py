"""The passes as generated Triton kernels: each reads the rows once and keeps nothing of their size.

Newton steps need exact scores and a good Hessian: with more than `SAMPLE_ROWS` rows the Hessian is
that of some of them, spread evenly, which leaves about a hundredth of a step. A start from nothing
is found on such rows too.
"""

from __future__ import annotations

import linecache
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._core.arrays import Array
from ..kernels.basis import Basis
from .passes import Batch, Curvature, EagerPasses, Sums, alone, unpack_first, unpack_second
from .template import Shape, source

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
_MOST_SUMS, _FEW_SUMS, _FEWER_SUMS = 240, 64, 20
# A program for so many rows at least, and programs per processor at most; by mode the rows of a
# tile and the warps that work on it.
_PROGRAMS = 8
_TILES = {
    "first": (1024, 4),
    "large first": (512, 8),
    "second": (256, 4),
    "large second": (128, 4),
    "gradient": (1024, 4),
    "moments": (1024, 8),
}


@triton.jit
def _moments_kernel(
    s_ptr, w_ptr, shift_ptr, out_ptr, n, n_tiles,
    WEIGHTED: tl.constexpr, LONG: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Σω, Σω(s − shift), Σω(s − shift)² of the rows of a program."""
    shift = tl.load(shift_ptr)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    plain = tl.zeros((BLOCK,), dtype=tl.float32)
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for tile in range(tl.program_id(0), n_tiles, tl.num_programs(0)):
        if LONG:
            row = tl.cast(tile, tl.int64) * BLOCK + tl.arange(0, BLOCK)
        else:
            row = tile * BLOCK + tl.arange(0, BLOCK)
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
def _total_kernel(part_ptr, out_ptr, programs, width, scale, BLOCK: tl.constexpr):
    """One column of a table of sums, added up in float64."""
    column = tl.program_id(0)
    row = tl.arange(0, BLOCK)
    part = tl.load(part_ptr + row * width + column, mask=row < programs, other=0.0)
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


def _grid(n: int, mode: str, device: torch.device, block: int | None = None) -> tuple[int, ...]:
    """Programs, rows of a tile, warps, tiles."""
    rows, warps = _TILES[mode]
    rows = rows if block is None else block
    tiles = max(1, -(-n // rows))
    return min(tiles, _PROGRAMS * _processors(device)), rows, warps, tiles


def _is_long(n: int) -> bool:
    """Whether numbers of rows, and of those of a last tile, outgrow 32 bits."""
    return n > 2**31 - 2**16


def _power(count: int) -> int:
    """The next power of two."""
    return 1 << max(count - 1, 0).bit_length()


def center_of(s: Tensor, batch: Batch, start: Tensor | None) -> Tensor:
    """Mean and reciprocal spread, (2,) float32 on the device; `start` begins with a mean to shift
    by."""
    n = len(s)
    if start is None:
        # Some of the rows, so that one odd row does not cost the digits of all.
        start = s[:: max(1, n // 1024)].to(torch.float32).mean()
    programs, block, warps, tiles = _grid(n, "moments", s.device)
    part = torch.empty((programs, 3), dtype=torch.float32, device=s.device)
    weight = s if batch.weight is None else batch.weight
    _moments_kernel[(programs,)](
        s, weight, start, part, n, tiles, batch.weight is not None, _is_long(n), block,
        num_warps=warps,
    )  # fmt: skip
    center = torch.empty(2, dtype=torch.float32, device=s.device)
    _center_kernel[(1,)](part, start, center, programs, _power(programs))
    return center


class FusedPasses:
    """Sums and gradients over the rows of a batch, with scores as they come.

    Parameters
    ----------
    basis : Basis
    s : (n,) float32, bfloat16 or float16 tensor
    center : (2,) float32 tensor
        Mean and reciprocal spread of the scores.
    limit : float or None
    batch : Batch
        By codes, not probabilities.
    """

    last_step, last_share = 1e-8, 2e-4

    def __init__(self, basis: Basis, s: Tensor, center: Tensor, limit: float | None, batch: Batch):
        self.basis, self.batch, self.n_known = basis, batch, batch.n_known
        self.s, self.center, self.limit = s, center, limit
        self._some: tuple[EagerPasses, float] | None = None

    def sample(self) -> FusedPasses | None:
        """Some of the rows, to find a start on; None where all are few."""
        stride = len(self.s) // SAMPLE_ROWS
        # Processes with more and with fewer rows must not part ways.
        if stride < 4 or self.batch.reduce is not alone:
            return None
        some, share = self._take(stride)
        s = self.s[::stride].contiguous()
        part = FusedPasses(self.basis, s, self.center, self.limit, some)
        part.n_known = self.n_known / share
        # Closer than the rows left out allow would be in vain.
        part.last_step = 0.1 / SAMPLE_ROWS
        return part

    def _take(self, stride: int) -> tuple[Batch, float]:
        def some(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[::stride].contiguous()

        b = self.batch
        part = replace(b, codes=some(b.codes), weight=some(b.weight), target=some(b.target))
        assert part.codes is not None
        return part, len(self.s) / len(part.codes)

    def _shape(self, mode: str, adds: bool = False) -> Shape:
        weighted = self.batch.weight is not None
        long = _is_long(len(self.s))
        return Shape(mode, self.batch.n_groups, self.basis, self.limit, weighted, adds, long)

    def first(self, weights: Array) -> Sums:
        flat = self.batch.reduce(self._first(weights)).cpu().numpy()
        return unpack_first(flat, *weights.shape)

    def both(self, weights: Array) -> tuple[Sums, Curvature]:
        free, d = weights.shape
        shape, ahead = self._shape("second"), 3 + free * d
        stride = max(1, len(self.s) // SAMPLE_ROWS)
        by_moments = not shape.is_wide and shape.n_sums <= _MOST_SUMS
        if not by_moments:
            sums = torch.cat([self._first(weights), self._some_second(weights, stride)])
        elif stride == 1:
            sums = self._launch(shape, weights)
        else:
            # The long one first: what follows is made ready while it runs.
            sums = torch.empty(ahead + shape.n_sums, dtype=torch.float64, device=self.s.device)
            self._launch(self._shape("first"), weights, 1, sums)
            self._launch(shape, weights, stride, sums[ahead:])
        # One wait for the device.
        flat = self.batch.reduce(sums).cpu().numpy()
        # A Hessian from some of the rows comes with their own loss and score: passed over.
        rest = flat[-(shape.n_sums - ahead) :] if by_moments else flat[ahead:]
        bent = self._from_moments(rest, free, d) if by_moments else unpack_second(rest, free, d)
        return unpack_first(flat, free, d), bent

    def _some_second(self, weights: Array, stride: int) -> Tensor:
        """Hessian and drift of every `stride`-th row in plain PyTorch."""
        if self._some is None:
            batch, share = self._take(stride)
            s = self.s[::stride].to(torch.float32)
            self._some = EagerPasses(self.basis, s, self.center, self.limit, batch), share
        return self._some[0].second_sums(weights) * self._some[1]

    def _from_moments(self, flat: Array, free: int, d: int) -> Curvature:
        blocks, moments = free * (free + 1) // 2, self.basis.n_moments
        grams = iter(self.basis.gram(flat[: blocks * moments].reshape(blocks, moments)))
        hessian = np.empty((free, d, free, d))
        for k in range(free):
            for other in range(k + 1):
                hessian[k, :, other] = hessian[other, :, k] = next(grams)
        drift = flat[blocks * moments :].reshape(2, free, d)
        return Curvature(hessian.reshape(free * d, free * d), drift)

    def _first(self, weights: Array) -> Tensor:
        free, d = weights.shape
        shape = self._shape("first")
        if not shape.is_wide:
            return self._launch(shape, weights)
        table, wide = self._widened(weights)
        device = self.s.device
        programs, block, warps, tiles = _grid(len(self.s), "first", device, max(16, 4096 // wide))
        out = torch.empty((programs, 3), dtype=torch.float32, device=device)
        score = torch.empty((programs, d, wide), dtype=torch.float32, device=device)
        _kernel(shape)[(programs,)](
            *self._columns(), table, out, score, len(self.s), tiles, 1, block, wide,
            num_warps=warps,
        )  # fmt: skip
        sums = out.sum(dim=0, dtype=torch.float64)
        scores = score.sum(dim=0, dtype=torch.float64)[:, 1 : 1 + free].T.reshape(-1)
        return torch.cat([sums[:1], scores, sums[1:]])

    def _columns(self) -> tuple[Tensor, ...]:
        b = self.batch
        assert b.codes is not None
        # A column that the kernel does not read is any tensor.
        return (
            self.s, self.s if b.target is None else b.target, b.codes,
            self.s if b.weight is None else b.weight, self.center,
        )  # fmt: skip

    def _launch(
        self, shape: Shape, weights: Array, stride: int = 1, out: Tensor | None = None
    ) -> Tensor:
        """Sums of every `stride`-th tile, scaled up to all rows."""
        n, device, width = len(self.s), self.s.device, shape.n_sums
        mode = shape.mode
        if width > (_FEW_SUMS if mode == "second" else _FEWER_SUMS):
            mode = f"large {mode}"
        rows, _ = _TILES[mode]
        tiles = -(-max(1, -(-n // rows)) // stride)
        programs, block, warps, _ = _grid(tiles * rows, mode, device)
        part = torch.empty((programs, width), dtype=torch.float32, device=device)
        _kernel(shape)[(programs,)](
            *self._columns(), *weights.ravel().tolist(), part, n, tiles, stride, block,
            num_warps=warps,
        )  # fmt: skip
        scale = 1.0 if stride == 1 else n / (tiles * rows)
        if out is None:
            out = torch.empty(width, dtype=torch.float64, device=device)
        _total_kernel[(width,)](part, out, programs, width, scale, _power(programs))
        return out

    def _widened(self, weights: Array) -> tuple[Tensor, int]:
        """(D, WIDE) with a column of zeros for the first group and for those that pad."""
        free, d = weights.shape
        wide = _power(free + 1)
        table = torch.zeros((d, wide), dtype=torch.float32)
        table[:, 1 : 1 + free] = torch.as_tensor(weights.T)
        return table.to(self.s.device), wide

    def gradient(
        self, weights: Array, scale: float, constant: float, along: float, upstream: Tensor,
        out: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """upstream·scale·(h − ω·(constant + along·z))/spread of every row, added to `out`."""
        device, n = self.s.device, len(self.s)
        shape = self._shape("gradient", out is not None)
        out = torch.empty_like(self.s) if out is None else out
        finish = float(scale), float(constant), float(along)
        if shape.is_wide:
            table, wide = self._widened(weights)
            _, block, warps, tiles = _grid(n, "gradient", device, max(16, 4096 // wide))
            given: tuple[Any, ...] = (table,)
            blocks: tuple[int, ...] = (block, wide)
        else:
            _, block, warps, tiles = _grid(n, "gradient", device)
            given, blocks = tuple(weights.ravel().tolist()), (block,)
        _kernel(shape)[(tiles,)](
            *self._columns(), *given, out, upstream, *finish, n, tiles, 1, *blocks,
            num_warps=warps,
        )  # fmt: skip
        return out
