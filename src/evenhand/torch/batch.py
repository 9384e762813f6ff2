"""What a call fixes besides the scores: groups, weights and target of the rows.

    ω_i = w_i·m/Σw over the m rows with a known group, 0 elsewhere
    t(y) = c·tanh(z/c) of the standardized target z

Sums go over the rows of all processes where a process group is given, so that a batch in two parts
has the weights, shares and targets of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
        # Rows of a group whose weights are all zero are of no group.
        place = np.where(keep, np.cumsum(keep) - 1, -1)
        renumber = torch.as_tensor(np.append(place, -1), device=groups.device)
        index = renumber[index.long()]
        known = index >= 0
        index = torch.where(known, index, int(keep.sum()))
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
