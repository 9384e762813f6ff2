"""Passes over rows in NumPy, where compiled ones are no quicker.

Scores that are too far apart for the exponentials of the compiled ones come here as well.

Shapes: n rows, K groups, D basis terms, F = K − 1 free classes (group 0 is the reference of the
logistic classifier), M monomials. Every sum is Σᵢ over rows with weights ωᵢ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

if TYPE_CHECKING:
    from . import Rows
    from .basis import Basis

BLOCK = 4096
_COLUMNS = ("s", "y", "codes", "probabilities", "weight")


def monomials(rows, basis: Basis, count: int):
    """Products of powers of the standardized variables, (count, n)."""
    m0, i0, m1, i1 = rows.center
    columns = [np.ones(len(rows.s)), (rows.s - m0) * i0]
    if basis.n_variables == 2:
        columns.append((rows.y - m1) * i1)
    for j in range(len(columns), count):
        a, b = basis.factors[j]
        columns.append(columns[a] * columns[b])
    return np.stack(columns[:count])


def blocks(rows, size: int = BLOCK) -> Iterator[tuple[slice, Rows]]:
    """Rows a few at a time: what is made of them stays in the cache."""
    for start in range(0, len(rows.s), size):
        block = slice(start, start + size)
        yield block, take(rows, block)


def take(rows, some) -> Rows:
    """Some of the rows; columns that are absent stay so."""
    columns = {name: getattr(rows, name) for name in _COLUMNS}
    return rows._replace(**{name: v[some] for name, v in columns.items() if len(v)})


def labels(rows):
    """Membership of each row in each group, (K, n)."""
    if rows.probabilities.shape[1]:
        return rows.probabilities.T
    return (rows.codes[None, :] == np.arange(rows.n_groups)[:, None]).astype(float)


def weights_of(rows):
    """Weight of each row; 1 where there is none."""
    return rows.weight if len(rows.weight) else np.ones(len(rows.s))


def lspc_row_losses(rows, basis: Basis, weights, inverse, beta: float):
    """In-sample and exact leave-one-out losses, (n,) each; `inverse` is G⁻¹ collapsed, (M,)."""
    out = np.empty((2, len(rows.s)))
    for block, part in blocks(rows):
        m = monomials(part, basis, basis.n_moments)
        t, f = labels(part), weights @ m[: basis.n_terms]
        leverage = np.minimum(weights_of(part) * (inverse @ m), 1.0 - 1e-6)
        for scores, losses in zip((f, (f - leverage * t) / (1.0 - leverage)), out, strict=True):
            sp = softplus(scores, beta)
            losses[block] = np.log(sp.sum(axis=0)) - (t * np.log(sp)).sum(axis=0)
    return out[0], out[1]


def softplus(f, beta):
    """log(1 + e^βf)/β, finite for any f."""
    return (np.maximum(beta * f, 0) + np.log1p(np.exp(-np.minimum(np.abs(beta * f), 700)))) / beta


def logistic_pass(rows, basis: Basis, weights, want_hessian: bool, finish=None, losses=None):
    """Σω·loss, its negative gradient (F, D), Hessian moments (pairs, M), and a gradient by row.

    With `finish` = (scale, constant, along) that is scale·(∂(−loss)/∂u − ω(constant + along·u)).
    An array `losses` is filled with the loss of each row.
    """
    m = monomials(rows, basis, basis.n_moments)
    t, w = labels(rows)[1:], weights_of(rows)
    phi = m[: basis.n_terms]
    f = weights @ phi
    lse = logsumexp(np.vstack([np.zeros_like(f[:1]), f]), axis=0)
    rho = np.exp(f - lse)
    r = w * (t - rho)
    by_row = lse - (t * f).sum(axis=0)
    if losses is not None:
        losses[:] = by_row
    loss = float(w @ by_row)
    hessian = None
    if want_hessian:
        hessian = np.array(
            [
                m @ (w * rho[k] * (float(k == other) - rho[other]))
                for k in range(len(f))
                for other in range(k + 1)
            ]
        )
    gradient = None
    if finish is not None:
        scale, constant, along = finish
        through = (r * (basis.slopes(weights) @ m[: basis.n_slopes])).sum(axis=0)
        gradient = scale * (through - w * (constant + along * m[1]))
    if hessian is None:
        return *rows.sums.add(loss, r @ phi.T), None, gradient
    return *rows.sums.add(loss, r @ phi.T, hessian), gradient
