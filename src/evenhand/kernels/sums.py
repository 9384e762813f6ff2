"""Row loops that sum: over the cells of a fixed grid, and over the rows of clusters."""

from __future__ import annotations

import math

import numpy as np

from .primitives import jit


@jit
def bin_of(x, scale, low, rate, bins):
    """clip(floor((x/(scale + |x|) − low)·rate), 0, bins − 1)."""
    size = abs(x)
    squeezed = x / (scale + size) if size < math.inf else math.copysign(1.0, x)
    at = math.floor((squeezed - low) * rate)
    return int(min(max(at, 0.0), bins - 1.0))


@jit
def bins_chunk(start, stop, s, y, score, target, slope, bins, first, second):
    """Score and target bin of each row; `score` and `target` hold shift, scale, low and rate."""
    for i in range(start, stop):
        x = s[i] - score[0]
        if len(y):
            v = y[i] - target[0]
            x -= slope * v
            second[i] = bin_of(v, target[1], target[2], target[3], bins)
        first[i] = bin_of(x, score[1], score[2], score[3], bins)


@jit
def fill_sums(entry, rows, shifts, count, sums, least, largest):
    """Number of people, sums and extremes of each entry, (E,), (E, 7) and (E, 2) twice.

    Rows are score, target, weight and frequency, empty where there is none. Sums are Σw, Σw², Σws,
    Σwy, Σws², Σwy² and Σwsy, of variables less their shifts.
    """
    s, y, weight, frequency = rows
    for i in range(len(entry)):
        e = entry[i]
        f = frequency[i] if len(frequency) else 1
        w = weight[i] if len(weight) else 1.0
        a, v = s[i] - shifts[0], 0.0
        if len(y):
            v = y[i] - shifts[1]
            least[e, 1] = min(least[e, 1], y[i])
            largest[e, 1] = max(largest[e, 1], y[i])
        count[e] += f
        m = f * w
        sums[e, 0] += m
        sums[e, 1] += m * w
        sums[e, 2] += m * a
        sums[e, 3] += m * v
        sums[e, 4] += m * a * a
        sums[e, 5] += m * v * v
        sums[e, 6] += m * a * v
        least[e, 0] = min(least[e, 0], s[i])
        largest[e, 0] = max(largest[e, 0], s[i])


@jit
def deal_clusters(shares, order, n_folds):
    """Fold of each cluster, placed in `order` where their strata are least represented.

    `shares` (G, K) is each cluster's share of each stratum. Every fold gets a cluster before any
    gets a second one that another could have used: a fold without rows is no fold.
    """
    n_clusters, n_strata = shares.shape
    held = np.zeros((n_folds, n_strata))
    count = np.zeros(n_folds, np.int64)
    out = np.empty(n_clusters, np.intp)
    empty = n_folds
    for place in range(n_clusters):
        c = order[place]
        must = n_clusters - place <= empty
        best = -1
        least = np.inf
        for f in range(n_folds):
            if must and count[f]:
                continue
            # What Σ over folds and strata of squared shares would grow by, less what is common.
            cost = 0.0
            for k in range(n_strata):
                cost += held[f, k] * shares[c, k]
            if cost < least or (cost == least and count[f] < count[best]):
                best, least = f, cost
        if count[best] == 0:
            empty -= 1
        count[best] += 1
        out[c] = best
        for k in range(n_strata):
            held[best, k] += shares[c, k]
    return out


@jit
def logistic_sums(phi, label, rho, weight, starts, score, hessian):
    """Σω(t − ρ)φ and Σω(diag ρ − ρρᵀ)⊗φφᵀ over each run of rows starts[c]:starts[c + 1].

    `label` and `rho` are (n, F) without the reference group; `score` (C, F·D) and `hessian`
    (C, F·D, F·D) must come in as zeros.
    """
    free = rho.shape[1]
    terms = phi.shape[1]
    for c in range(len(starts) - 1):
        for i in range(starts[c], starts[c + 1]):
            for k in range(free):
                residual = weight[i] * (label[i, k] - rho[i, k])
                for d in range(terms):
                    score[c, k * terms + d] += residual * phi[i, d]
                for j in range(k + 1):
                    curve = weight[i] * rho[i, k] * ((1.0 if j == k else 0.0) - rho[i, j])
                    for d in range(terms):
                        at = curve * phi[i, d]
                        for e in range(terms):
                            hessian[c, k * terms + d, j * terms + e] += at * phi[i, e]
        for k in range(free):
            for j in range(k):
                for d in range(terms):
                    for e in range(terms):
                        hessian[c, j * terms + e, k * terms + d] = hessian[
                            c, k * terms + d, j * terms + e
                        ]


@jit
def least_squares_sums(phi, label, weight, starts, cross, gram):
    """Σω onehot(a)φᵀ, (C, K, D), and Σωφφᵀ, (C, D, D), over each run of rows; both start at 0."""
    terms = phi.shape[1]
    for c in range(len(starts) - 1):
        for i in range(starts[c], starts[c + 1]):
            for d in range(terms):
                at = weight[i] * phi[i, d]
                for k in range(label.shape[1]):
                    cross[c, k, d] += at * label[i, k]
                for e in range(terms):
                    gram[c, d, e] += at * phi[i, e]
