"""Permutations drawn where the law of a statistic over all of them is too rough."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .null_covariance import Members, RowsInCells

N_DRAWS = 1999


def draw_all(
    rows: RowsInCells,
    members: Members,
    mean: NDArray[np.float64],
    root: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """The statistic for random assignments of the groups of each cell to its rows."""
    from .._kernels.significance import feature_matrix

    order = np.argsort(rows.cell, kind="stable")
    f = (feature_matrix(*rows) - mean[rows.cell])[order]
    if members.soft is None:
        assert members.codes is not None
        a = np.eye(members.n_groups)[members.codes][order, :-1]
    else:
        a = members.soft[order]
    keys = rng.random((N_DRAWS, len(f))) + rows.cell[order]
    total = np.tensordot(f[np.argsort(keys, axis=1)], a, axes=(1, 0))
    return np.square(total.transpose(0, 2, 1).reshape(N_DRAWS, -1) @ root).sum(axis=1)


def handful_of(members: Members, fewest: int) -> int:
    """Rows of the smaller of two groups if fewer than that, too few for the χ² law; else 0."""
    if members.codes is None or members.n_groups != 2:
        return 0
    count = int((members.codes == 0).sum())
    return count if count < fewest else 0


def draw_handful(
    rows: RowsInCells,
    count: int,
    mean: NDArray[np.float64],
    root: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """As :func:`draw_all` for one single cell, in the time of `count` rows a draw instead of n."""
    from .._kernels.significance import feature_matrix

    f = feature_matrix(*rows) - mean
    total = np.zeros((N_DRAWS, f.shape[1]))
    taken = np.empty((N_DRAWS, 0), dtype=np.intp)
    for j in range(count):
        # One of the rows not yet taken, by its place among them.
        row = rng.integers(len(f) - j, size=N_DRAWS)
        for before in np.sort(taken, axis=1).T:
            row += row >= before
        taken = np.column_stack([taken, row])
        total += f[row]
    return np.square(total @ root).sum(axis=1)
