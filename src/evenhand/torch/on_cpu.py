"""Batches on the CPU: bound to the kernels of :class:`evenhand.FairnessRegularizer`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..data.groups import Groups
from ..data.weights import mean_one
from ..training.penalty import BoundRegularizer, FairnessRegularizer
from .inputs import Inputs


def bind(loss: Any, inputs: Inputs) -> BoundRegularizer | None:
    """Groups, target and weights of a batch; None where there is nothing to compare.

    As `FairnessRegularizer.bind`, without its look for labels, which costs more than a small batch.
    """
    groups = inputs.groups.numpy()
    n = len(groups)
    codes = table = None
    if groups.ndim == 1:
        known = groups >= 0
    else:
        known = ~np.isnan(groups).any(axis=1)
        table = groups[known].astype(np.float64)
    weight = None
    if inputs.weight is not None:
        weight = inputs.weight.to(torch.float64).numpy()
    if table is None:
        totals = np.bincount(
            groups[known], None if weight is None else weight[known], loss.n_groups
        )
        keep = totals > 0
        if not keep.all():
            known = known & keep[groups]
        codes = (np.cumsum(keep) - 1)[groups[known]]
    else:
        keep = (table if weight is None else weight[known, None] * table).sum(axis=0) > 0
        table = np.ascontiguousarray(table[:, keep])
    if keep.sum() < 2:
        return None
    y = None
    if inputs.target is not None:
        y = inputs.target.to(torch.float64).numpy()
    bound = Groups(
        tuple(np.flatnonzero(keep).tolist()), codes, table,
        None if weight is None else mean_one(weight[known]),
        None if known.all() else known, n,
    )  # fmt: skip
    regularizer = FairnessRegularizer(
        loss.criterion, "logistic", loss.basis, kappa=loss.kappa, score_map=loss.score_map
    )
    try:
        return BoundRegularizer(regularizer, y, bound)
    except ValueError:  # the target tells the groups of this batch apart
        return None
