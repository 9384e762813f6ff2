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

from .._kernels import standardizer
from ..groups.clusters import cluster_groups
from ..groups.sensitive import Groups
from .basis import get_basis
from .criteria import Condition, Criterion

Array = NDArray[np.float64]
_NO_WEIGHT = np.empty(0)
# The largest groups; they say it well enough.
MOST_GROUPS = 10


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
    n = groups.n_known
    weight = np.ones(n) if groups.weight is None else groups.weight
    given = _terms(criterion.given, variables, groups)
    phi = _terms(criterion.joint, variables, groups)
    weighted = (given * weight[:, None]).T
    project = np.linalg.pinv(weighted @ given, rcond=1e-10, hermitian=True) @ weighted
    phi = phi - given @ (project @ phi)
    # Terms that the other classifier has, too, leave nothing of themselves.
    values, vectors = np.linalg.eigh((phi * weight[:, None]).T @ phi / n)
    kept = values > 1e-8
    phi = phi @ (vectors[:, kept] / np.sqrt(values[kept]))
    squares = []
    for k in np.argsort(-groups.shares)[:MOST_GROUPS] if kept.any() else ():
        if groups.codes is not None:
            label = (groups.codes == k).astype(np.float64)
        else:
            assert groups.probabilities is not None
            label = groups.probabilities[:, k]
        residual = label - given @ (project @ label)
        variance = float(weight @ np.square(residual)) / n
        if variance > 1e-12:
            sums = cluster_groups(groups.cluster, phi * (weight * residual)[:, None])
            squares.append(np.square(sums.T @ sums / (n * variance)).sum())
    if not squares:
        return groups.n_effective
    return float(n / max(np.sqrt(np.mean(squares) / kept.sum()), 1.0))


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
