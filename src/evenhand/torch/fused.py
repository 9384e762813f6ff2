"""The passes as generated Triton kernels: each reads the rows once and keeps nothing of their size.

Newton steps need exact scores and a good Hessian: with more than `SAMPLE_ROWS` rows the Hessian is
that of some of them, spread evenly, which leaves about a thousandth of the error of a step. A start
from nothing is found on such rows too.
"""

from __future__ import annotations

import linecache
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..information.basis import Basis
from .batch import Batch, alone
from .eager import EagerPasses, unpack
from .newton import Sums
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

Array = NDArray[np.float64]

# Rows whose Hessian stands for that of all.
SAMPLE_ROWS = 1 << 17
# Sums up to which the Hessian of few groups is a kernel of its own.
_MOST_SUMS = 48
# A program for so many rows at least, and programs per processor at most; by mode the rows of a
# tile and the warps that work on it.
_PROGRAMS = 8
_TILES = {"first": (1024, 4), "second": (256, 4), "gradient": (1024, 4), "moments": (4096, 8)}


@triton.jit
def _moments_kernel(
    s_ptr, w_ptr, shift_ptr, out_ptr, n, n_tiles, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr
):
    """Σω, Σω(s − shift), Σω(s − shift)² of the rows of a program."""
    shift = tl.load(shift_ptr)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    plain = tl.zeros((BLOCK,), dtype=tl.float32)
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for tile in range(tl.program_id(0), n_tiles, tl.num_programs(0)):
        row = tl.cast(tile, tl.int64) * BLOCK + tl.arange(0, BLOCK)
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


def center_of(s: Tensor, batch: Batch, start: Tensor | None) -> Tensor:
    """Mean and reciprocal spread, (2,) float32 on the device; `start` is a mean to shift by."""
    n = len(s)
    if start is None:
        # Some of the rows, so that one odd row does not cost the digits of all.
        start = s[:: max(1, n // 1024)].to(torch.float32).mean()
    programs, block, warps, tiles = _grid(n, "moments", s.device)
    out = torch.empty((programs, 3), dtype=torch.float32, device=s.device)
    weight = s if batch.weight is None else batch.weight
    _moments_kernel[(programs,)](
        s, weight, start, out, n, tiles, batch.weight is not None, block, num_warps=warps
    )
    sums = out.sum(dim=0, dtype=torch.float64)
    off = sums[1:] / sums[0]
    variance = off[1] - off[0] * off[0]
    mean = start + off[0]
    # As in `batch.standardizer`, without waiting for the device.
    flat = variance <= (1e-6 * mean) ** 2
    inverse = torch.where(flat, 0.0, variance.rsqrt())
    return torch.stack([mean, inverse]).to(torch.float32)


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

    last_step = 1e-8

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
        some, share = self._take(4 * stride)
        part = FusedPasses(self.basis, self.s[:: 4 * stride].contiguous(), self.center, self.limit,
                           some)  # fmt: skip
        part.n_known = self.n_known / share
        return part

    def _take(self, stride: int) -> tuple[Batch, float]:
        def some(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[::stride].contiguous()

        b = self.batch
        part = Batch(some(b.codes), None, some(b.weight), some(b.target), b.present, b.n_known,
                     b.shares, b.reduce)  # fmt: skip
        assert part.codes is not None
        return part, len(self.s) / len(part.codes)

    def sums(self, weights: Array) -> Sums:
        free, d = weights.shape
        table = torch.as_tensor(weights, dtype=torch.float32, device=self.s.device)
        shape = Shape("second", free + 1, self.basis, self.limit, self.batch.weight is not None)
        stride = max(1, len(self.s) // SAMPLE_ROWS)
        if shape.is_wide or shape.n_sums > _MOST_SUMS:
            first = self._first(weights)
            second = self._second(weights, stride)
            out = self.batch.reduce(torch.cat([first, second])).cpu().numpy()
            return unpack(out, free, d)
        if stride == 1:
            flat = self.batch.reduce(self._launch(shape, table)).cpu().numpy()
        else:
            part = self._launch(shape, table, stride)
            first = self._launch(shape_of(shape, "first"), table)
            flat = self.batch.reduce(torch.cat([first, part[len(first) :]])).cpu().numpy()
        return self._unpack_moments(flat, free, d)

    def _unpack_moments(self, flat: Array, free: int, d: int) -> Sums:
        blocks, moments = free * (free + 1) // 2, self.basis.n_moments
        at = 3 + free * d
        grams = iter(self.basis.gram(flat[at : at + blocks * moments].reshape(blocks, moments)))
        hessian = np.empty((free, d, free, d))
        for k in range(free):
            for other in range(k + 1):
                hessian[k, :, other] = hessian[other, :, k] = next(grams)
        rest = flat[at + blocks * moments :]
        return unpack(np.concatenate([flat[:at], hessian.ravel(), rest]), free, d)

    def _first(self, weights: Array) -> Tensor:
        free, d = weights.shape
        device = self.s.device
        shape = Shape("first", free + 1, self.basis, self.limit, self.batch.weight is not None)
        if not shape.is_wide:
            return self._launch(shape, torch.as_tensor(weights, dtype=torch.float32, device=device))
        table, wide = self._widened(weights)
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

    def _second(self, weights: Array, stride: int) -> Tensor:
        """Hessian and drift of every `stride`-th row in plain PyTorch."""
        if self._some is None:
            batch, share = self._take(stride)
            s = self.s[::stride].to(torch.float32)
            self._some = EagerPasses(self.basis, s, self.center, self.limit, batch), share
        return self._some[0].second(weights, self._some[1])

    def _columns(self) -> tuple[Tensor, ...]:
        b = self.batch
        assert b.codes is not None
        # A column that the kernel does not read is any tensor.
        return (
            self.s, self.s if b.target is None else b.target, b.codes,
            self.s if b.weight is None else b.weight, self.center,
        )  # fmt: skip

    def _launch(self, shape: Shape, table: Tensor, stride: int = 1) -> Tensor:
        """Sums of every `stride`-th tile, scaled up to all rows."""
        n = len(self.s)
        rows, _ = _TILES[shape.mode]
        tiles = max(1, -(-n // rows))
        tiles = -(-tiles // stride)
        programs, block, warps, _ = _grid(tiles * rows, shape.mode, self.s.device)
        out = torch.empty((programs, shape.n_sums), dtype=torch.float32, device=self.s.device)
        _kernel(shape)[(programs,)](
            *self._columns(), table, out, n, tiles, stride, block, num_warps=warps
        )
        sums = out.sum(dim=0, dtype=torch.float64)
        return sums if stride == 1 else sums * (n / (tiles * rows))

    def _widened(self, weights: Array) -> tuple[Tensor, int]:
        """(D, WIDE) with a column of zeros for the first group and for those that pad."""
        free, d = weights.shape
        wide = 1 << free.bit_length()
        table = torch.zeros((d, wide), dtype=torch.float32)
        table[:, 1 : 1 + free] = torch.as_tensor(weights.T)
        return table.to(self.s.device), wide

    def gradient(
        self, weights: Array, scale: float, constant: float, along: float, upstream: Tensor,
        out: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """upstream·scale·(h − ω·(constant + along·z))/spread of every row, added to `out`."""
        free, _ = weights.shape
        device, n = self.s.device, len(self.s)
        shape = Shape("gradient", free + 1, self.basis, self.limit, self.batch.weight is not None,
                      out is not None)  # fmt: skip
        out = torch.empty_like(self.s) if out is None else out
        more: dict[str, int] = {}
        if shape.is_wide:
            table, wide = self._widened(weights)
            _, block, warps, tiles = _grid(n, "gradient", device, max(16, 4096 // wide))
            more["WIDE"] = wide
        else:
            table = torch.as_tensor(weights, dtype=torch.float32, device=device)
            _, block, warps, tiles = _grid(n, "gradient", device)
        finish = torch.tensor([scale, constant, along], dtype=torch.float32).to(device)
        _kernel(shape)[(tiles,)](
            *self._columns(), table, finish, upstream, out, n, tiles, 1, BLOCK=block,
            num_warps=warps, **more,
        )  # fmt: skip
        return out


def shape_of(shape: Shape, mode: str) -> Shape:
    """The same kernel in another mode."""
    return Shape(mode, shape.n_groups, shape.basis, shape.limit, shape.weighted)
