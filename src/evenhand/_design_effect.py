"""How much of a sample is left for fitted parameters where rows come in clusters.

With φ what the joint classifier fits beyond the other, r = 1{a = k} less its fit by the other,
M = Σωφφᵀ and V = Σ_c (Σωrφ)(Σωrφ)ᵀ, the noise of the parameters is that of n/d independent rows,
d² the mean square of the eigenvalues of M⁻¹V / mean ωr². Rows alone have d = 1; rows of a cluster
that repeat each other have d = their number; and clusters that share the group but not the score
lie in between.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ._clusters import cluster_groups
from ._kernels import standardizer
from .basis import get_basis
from .criteria import Condition, Criterion
from .sensitive import Groups

Array = NDArray[np.float64]
_NO_WEIGHT = np.empty(0)


def independent_rows(criterion: Criterion, variables: Mapping[str, Array], groups: Groups) -> float:
    """n/d: independent rows whose noise the parameters of a criterion would have.

    Parameters
    ----------
    criterion : Criterion
    variables : mapping
        Columns of the known rows, those that vary.
    groups : Groups
        With clusters.
    """
    assert groups.cluster is not None
    weight = np.ones(groups.n_known) if groups.weight is None else groups.weight
    given = _terms(criterion.given, variables, groups)
    joint = _terms(criterion.joint, variables, groups)
    root = np.sqrt(weight)[:, None]
    table = groups.membership()
    fit = np.linalg.lstsq(root * given, root * np.hstack([joint, table]), rcond=1e-10)[0]
    phi, residual = np.hsplit(np.hstack([joint, table]) - given @ fit, [joint.shape[1]])
    # Terms that the other classifier has, too, leave nothing of themselves.
    values, vectors = np.linalg.eigh((phi * weight[:, None]).T @ phi / groups.n_known)
    kept = values > 1e-8
    if not kept.any():
        return groups.n_effective
    phi = phi @ (vectors[:, kept] / np.sqrt(values[kept]))
    squares = []
    for r in residual.T:
        variance = float(weight @ np.square(r)) / groups.n_known
        if variance > 1e-12:
            sums = cluster_groups(groups.cluster, phi * (weight * r)[:, None])
            squares.append(np.square(sums.T @ sums / (groups.n_known * variance)).sum())
    if not squares:
        return groups.n_effective
    return float(groups.n_known / max(np.sqrt(np.mean(squares) / kept.sum()), 1.0))


def _terms(condition: Condition, variables: Mapping[str, Array], groups: Groups) -> Array:
    weight = _NO_WEIGHT if groups.weight is None else groups.weight
    columns = []
    for name in condition:
        if name in variables:
            mean, scale = standardizer(variables[name], weight)
            columns.append((variables[name] - mean) * scale)
    if not columns:
        return np.ones((groups.n_known, 1))
    return get_basis("quadratic", len(columns))(np.column_stack(columns))
