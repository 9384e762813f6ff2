"""I(joint;A) − I(given;A) of a measurement A, from ladders of fitted density ratios.

Each condition has a ladder of rungs of growing size (`density_fits`). With r parameters the mean
log ratio of the fitted rows is too large by about r/2n, which is taken out (`_Ladder.make`); what a
rung then lacks is the part of the distribution that it cannot follow. In the rung that predicts
best, that is about as much as its noise. An estimate of information wants less of it: from the rung
that predicts best one climbs as long as a larger one differs by more than chance (Lepski's rule,
`_stop`). Both conditions of a criterion are on the same rung, where much of the bias cancels.
Errors are those of the rows' log ratios by the rungs that predict best.

For distributions that nothing smooth follows there are probabilities of classes of A by `adaptive`,
which take over where they find more information. Classes are cut in two ways: where a regression
tree finds a jump, such as a surcharge below 22, so few that hardly anything is lost to fitting; and
at quantiles, so many that hardly anything is averaged away, with whole years as classes of their
own. Few classes must be ahead by one standard error of the difference, many by three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri

from .._core.arrays import Array
from .._core.threads import one_blas_thread
from .._core.validation import InputError
from ..data.criteria import NOTHING, Condition, word_for
from ..data.groups import Groups
from ..data.weights import cluster_groups, cluster_sums
from ._newton import damped_newton
from .estimation import EntropyEstimator, RowLosses, refuse_many_variables
from .ranks import sums
from .rungs import blend, cubic, lean_of, pool_losses, splines, weigh

# ------------------------------------------------------------------------------------------------
# The density ratio of a measurement on one rung: its design, its fit, and rows left out.
#
#     log p(a|z)/p(a) = Σ_jk θ_jk ψ_j(u) f_k(z) − log Σ_u p(u) exp(Σ_jk θ_jk ψ_j(u) f_k(z))
#
# with u the normal score of the rank of a on a fine grid, p(u) the share of rows at each point of
# it,
# and ψ and f splines (products of splines for two variables), orthonormal under the normal law. It
# is
# convex in θ; with ψ of degree two it holds every conditional normal law, with more of them skewed,
# heavy-tailed and mixed ones. A value that many rows share is a point of its own.


Index = NDArray[np.intp]

# Grid of normal scores. Rounding to a width h loses about h²/24 · ρ²/(1 − ρ²) nats.
WIDTH = 0.06
RIDGE, _ITERATIONS, _TOLERANCE = 1e-3, 40, 1e-5
# Log densities at once.
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Grid:
    """Points of a variable in normal scores of its ranks, and the point of each row."""

    points: Array
    codes: Index


def make_grid(values: Array, weight: Array) -> Grid:
    _found, inverse = np.unique(values, return_inverse=True)
    mass = np.bincount(inverse, weight)
    rank = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    # Weights of zero at an end leave a rank of 0 or 1.
    rank = np.clip(rank, 0.25 / len(values), 1.0 - 0.25 / len(values))
    score = ndtri(rank)
    _, cell = np.unique(np.round(score / WIDTH), return_inverse=True)
    total = np.maximum(np.bincount(cell, mass), 1e-300)
    mean = np.bincount(cell, mass * score) / total
    return Grid(np.clip(mean, -4.4, 4.4), cell[inverse].astype(np.intp))


@dataclass(frozen=True)
class Design:
    """Rows as cells of z, entries (cell, point of u), and the entry of each row."""

    u: Array
    base: Array
    z: list[Array]
    entry_cell: Index
    entry_u: Index
    entry_weight: Array
    entry_mean: Array
    row_entry: Index
    weight: Array
    cluster: Index | None
    n_effective: float

    @classmethod
    def make(cls, u: Grid, given: list[Grid], groups: Groups) -> Design:
        n = groups.n_known
        weight = np.ones(n) if groups.weight is None else groups.weight
        code = np.zeros(n, dtype=np.intp)
        for grid in given:
            code = code * len(grid.points) + grid.codes
        cells, cell = np.unique(code, return_inverse=True)
        places: list[Index] = []
        rest = cells
        for grid in reversed(given):
            rest, place = np.divmod(rest, len(grid.points))
            places.insert(0, place)
        entries, entry = np.unique(cell * len(u.points) + u.codes, return_inverse=True)
        if groups.cluster is not None:
            entries, entry = cell * len(u.points) + u.codes, np.arange(n)
        mass = np.bincount(entry, weight)
        return cls(
            u.points, np.bincount(u.codes, weight) / n,
            [grid.points[place] for grid, place in zip(given, places, strict=True)],
            entries // len(u.points), entries % len(u.points), mass / n,
            np.bincount(entry, weight * weight) / np.maximum(mass, 1e-300), entry, weight,
            groups.cluster, groups.n_effective,
        )  # fmt: skip

    def columns(self, degree: int, alone: int) -> list[tuple[int, int]]:
        """Degrees in the one or two variables of the functions of z, 1 first."""
        if len(self.z) == 1:
            return [(i, 0) for i in range(alone + 1)]
        return [
            (i, j)
            for i in range(alone + 1)
            for j in range(alone + 1)
            if i + j <= degree or min(i, j) == 0
        ]

    def functions(self, columns: list[tuple[int, int]]) -> Array:
        tables = [splines(z) for z in self.z]
        first = tables[0][:, [i for i, _ in columns]]
        if len(tables) == 1:
            return first
        return first * tables[1][:, [j for _, j in columns]]


@dataclass(frozen=True)
class Fitted:
    theta: Array
    columns: list[tuple[int, int]]
    inside: Array
    outside: Array
    terms: float
    squares: float

    def information(self, design: Design) -> float:
        """Mean log ratio, without what fitting has added to it."""
        # Rows of a cluster are no r/2n to go by.
        left_out = _LEFT_OUT if design.cluster is None else 1.0
        gained = -float(design.entry_weight @ self.inside)
        lost = gained + float(design.entry_weight @ self.outside)
        cost = left_out * lost + (1.0 - left_out) * self.terms / design.n_effective
        return gained - lean_of(self.terms, self.squares) * cost


def fit(
    design: Design, size: int, columns: list[tuple[int, int]], kappa: float,
    start: Mapping[tuple[int, int], Array],
) -> Fitted:  # fmt: skip
    """Penalized maximum likelihood by damped Newton, and each entry's loss with and without it."""
    law = Law(splines(design.u)[:, 1 : size + 1], np.log(np.maximum(design.base, 1e-300)))
    f = design.functions(columns)
    rough = np.add.outer(
        cubic(np.arange(1.0, size + 1)), [cubic(float(i)) + cubic(float(j)) for i, j in columns]
    )
    penalty = kappa * np.maximum(rough, 0.0) + RIDGE
    theta = np.zeros((size, len(columns)))
    for k, column in enumerate(columns):
        if column in start:
            theta[: len(start[column]), k] = start[column]
    theta, eta, hessian = _maximize(design, law, f, penalty, theta)
    inverse = scipy.linalg.inv(hessian + np.diag(penalty.ravel()))
    smoother = inverse @ hessian
    inside, outside = _leave_out(design, law, f, eta, inverse)
    terms, squares = float(np.trace(smoother)), float((smoother * smoother.T).sum())
    return Fitted(theta, columns, inside, outside, terms, squares)


def _maximize(
    design: Design, law: Law, f: Array, penalty: Array, theta: Array
) -> tuple[Array, Array, Array]:
    """θ of the largest penalized likelihood, η and the Hessian of the likelihood there."""
    counted = len(design.row_entry) * design.entry_weight
    own = law.psi[design.entry_u].T
    mass = sums(design.entry_cell, counted, len(f))
    total = np.stack([sums(design.entry_cell, counted * v, len(f)) for v in own], axis=1)

    def look(theta: Array) -> tuple[float, Array, Array, Array, Array]:
        eta = f @ theta.T
        log_z, mean, covariance = law.moments(eta)
        shrunk = penalty * theta
        value = mass @ log_z - (total * eta).sum() + 0.5 * (shrunk * theta).sum()
        score = (total - mass[:, None] * mean).T @ f - shrunk
        hessian = _gram(f, mass, covariance)
        return float(value), score, hessian + np.diag(penalty.ravel()), eta, hessian

    end = damped_newton(look, theta, look(theta), 1.0, lambda _: _TOLERANCE, _ITERATIONS)
    return end.weights, *end.seen[3:]


@dataclass(frozen=True)
class Law:
    """p(u) exp(η·ψ(u)) / Z(η) on the points of u."""

    psi: Array
    log_base: Array

    def average(self, eta: Array, table: Array) -> tuple[Array, Array]:
        """log Z(η), (c,), and the means of the columns of a table of the points."""
        log_z, means = np.empty(len(eta)), np.empty((len(eta), table.shape[1]))
        step = max(_CHUNK // len(self.log_base), 1)
        for i in range(0, len(eta), step):
            p = eta[i : i + step] @ self.psi.T
            p += self.log_base
            top = p.max(axis=1)
            p -= top[:, None]
            np.exp(p, out=p)
            total = p.sum(axis=1)
            log_z[i : i + step] = np.log(total) + top
            if table.size:
                p /= total[:, None]
                means[i : i + step] = p @ table
        return log_z, means

    def log_z(self, eta: Array) -> Array:
        return self.average(eta, self.psi[:, :0])[0]

    def moments(self, eta: Array) -> tuple[Array, Array, Array]:
        """log Z(η), and mean (c, J) and covariance (c, J, J) of ψ(u)."""
        size = self.psi.shape[1]
        products = (self.psi[:, :, None] * self.psi[:, None, :]).reshape(len(self.psi), -1)
        log_z, means = self.average(eta, np.hstack([self.psi, products]))
        mean, second = means[:, :size], means[:, size:].reshape(-1, size, size)
        return log_z, mean, second - mean[:, :, None] * mean[:, None, :]


def _gram(f: Array, mass: Array, covariance: Array) -> Array:
    """Σ_c mass_c · Cov_c ⊗ f_c f_cᵀ."""
    size, m = covariance.shape[1], f.shape[1]
    out = np.empty((size, m, size, m))
    for j in range(size):
        for k in range(j + 1):
            block = f.T @ ((mass * covariance[:, j, k])[:, None] * f)
            out[j, :, k, :] = out[k, :, j, :] = block
    return out.reshape(size * m, size * m)


def _leave_out(
    design: Design, law: Law, f: Array, eta: Array, inverse: Array
) -> tuple[Array, Array]:
    """−log ratio at each entry, of the fit and of the fit without one of its rows (or cluster).

    One Newton step from the fit: η → η − w (I − w M C)⁻¹ M (ψ − E ψ), with M = fᵀ H⁻¹ f of the row.
    Of a cluster the scores of its rows are summed, and H is left as it is.
    """
    cell, at = design.entry_cell, design.entry_u
    own, (log_z, mean, covariance) = law.psi[at], law.moments(eta)
    inside = log_z[cell] - (eta[cell] * own).sum(axis=1)
    size, m = own.shape[1], f.shape[1]
    apart = own - mean[cell]
    if design.cluster is not None:
        scores = (design.weight[:, None] * apart)[:, :, None] * f[cell][:, None, :]
        totals = cluster_groups(design.cluster, scores.reshape(len(scores), -1)) @ inverse
        shift = np.einsum("ijk,ik->ij", totals.reshape(-1, size, m)[design.cluster], f[cell])
    else:
        block = inverse.reshape(size, m, size, m)
        spread = np.empty((len(f), size, size))
        for j in range(size):
            for k in range(j + 1):
                spread[:, j, k] = spread[:, k, j] = ((f @ block[j, :, k, :]) * f).sum(axis=1)
        one = design.entry_mean
        pull = np.einsum("ijk,ik->ij", spread[cell], apart) * one[:, None]
        system = np.eye(size) - one[:, None, None] * (spread @ covariance)[cell]
        shift = np.linalg.solve(system, pull[:, :, None])[:, :, 0]
    moved = eta[cell] - shift
    outside = law.log_z(moved) - (moved * own).sum(axis=1)
    # A row far from all others decides its own prediction. Mixing in p(a) at the odds of one row
    # keeps it from deciding the mean.
    rare = np.log(design.n_effective)
    most = np.log1p(-np.exp(-rare))
    return -np.logaddexp(most - inside, -rare), -np.logaddexp(most - outside, -rare)


# What is given, and what is given with what is tested.
Pair = tuple[Condition, Condition]

# Rows for each class of A and the fewest and most classes, for distributions that nothing smooth
# follows. Of a surcharge below 22 and above 75, 16 quantile classes of 10,000 rows miss 9 % of the
# information, 160 classes 4 %, the three classes of a tree none.
_PER_CLASS, CLASSES = 64.0, (16, 160)
_LEAST_PER_CLASS = 20
# Functions of each variable that a tree follows, and rows it is grown from.
_FOLLOWED, _TREE_ROWS = 4, 100_000
# By how many standard errors classes must win (many are often ahead by luck), and the nats that the
# choice of a cut gains: 0.9 to 1.2 in five bands of 1,000 to 16,000 rows.
_FEW, _MANY = (1.0, 1.0), (3.0, 0.0)
# Functions of u; total degree of those of z, and the degree up to which each variable has its own;
# and by what roughness is multiplied for the penalty.
_RUNGS = (
    (2, 1, 1, 1.0), (2, 2, 2, 1.0), (3, 3, 3, 1.0), (4, 4, 6, 10.0), (6, 5, 9, 100.0),
    (6, 5, 9, 10.0), (8, 6, 13, 10.0),
)  # fmt: skip
# Parameters of a rung for each row: of those it is fitted with, and of those that count.
_MOST, _TRUSTED = 0.2, 0.08
# Standard errors of a difference beyond which one climbs.
_CLIMB = 2.5
# In rows that few others are near, fitting gains more than r/2n and leaving them out loses more
# still. For a count of a few rows, of which that is the limit, the one is true with a quarter of
# the other.
_LEFT_OUT = 0.25


def measured_ratios(
    variables: Mapping[str, Array], pairs: Sequence[Pair], groups: Groups,
    estimator: EntropyEstimator,
) -> dict[Pair, RowLosses]:  # fmt: skip
    """log p(a|joint)/p(a|given) of each row, whose mean is the information, for every pair."""
    from .adaptive import Adaptive

    if not isinstance(estimator, Adaptive):
        raise InputError(
            "estimator", f"be 'auto' with a Continuous attribute, got {estimator!r}",
            hint="the others estimate groups; cut the attribute with evenhand.bands for them.",
        )  # fmt: skip
    conditions = [c for c in dict.fromkeys(sum(pairs, ())) if c != NOTHING]
    refuse_many_variables(conditions, "auto")
    assert groups.measured is not None
    weight = np.ones(groups.n_known) if groups.weight is None else groups.weight
    u = make_grid(groups.measured, weight)
    with one_blas_thread():
        grids = {
            name: make_grid(variables[name], weight) for name in dict.fromkeys(sum(conditions, ()))
        }
        smooth = {
            c: _Ladder.make(u, [grids[name] for name in c], c, groups) for c in conditions
        }  # fmt: skip
    rough: dict[Condition, RowLosses] = {}
    if groups.n_effective >= _LEAST_PER_CLASS * CLASSES[0]:
        trees = [([c], _tree_classes([grids[v] for v in c], groups), _FEW) for c in conditions]
        for given, classes, (sure, luck) in [
            *trees, (conditions, _quantile_classes(u, groups), _MANY)
        ]:  # fmt: skip
            if classes.n_groups < 2:
                continue
            for c, losses in estimator.row_losses(variables, given, classes).items():
                gained = luck * (classes.n_groups - 1) / groups.n_effective
                found = _against_shares(losses, classes, gained)
                rival = rough[c].value if c in rough else smooth[c].losses
                if _wins(found.value, rival, groups, sure):
                    rough[c] = found
    return {
        pair: _rough_ratio(pair, rough, smooth, groups)
        if rough.keys() & set(pair)
        else _smooth_ratio(smooth.get(pair[0]), smooth.get(pair[1]), groups)
        for pair in pairs
    }


def _smooth_ratio(given: _Ladder | None, joint: _Ladder | None, groups: Groups) -> RowLosses:
    if joint is None or joint is given:
        none = np.zeros(groups.n_known)
        return RowLosses(none, none, "no dependence")
    value, noise, rows = joint.value, joint.noise, -joint.losses
    if given is not None:
        count = min(len(value), len(given.value))
        value, noise = value[:count] - given.value[:count], noise[:count] - given.noise[:count]
        rows = rows + given.losses
    share = _stop(value, noise, min(joint.best, len(value) - 1), joint.last)
    nats = float(share @ value)
    n = groups.n_effective
    if len(value) == 1:
        # Too few rows or clusters for the smallest rung: anything is possible.
        return RowLosses(rows, rows, "not enough data", between=1.0)
    return RowLosses(
        rows + (nats - float(np.average(rows, weights=groups.weight))), rows,
        joint.names[int(np.argmax(share))], 2.0 * n * n * float(share @ noise),
        float(share @ np.square(value - nats)),
    )  # fmt: skip


def _stop(value: Array, noise: Array, best: int, last: int) -> Array:
    """Shares of the rungs: how likely it is that one stops at each on the way up from the best.

    One goes on where some larger rung says something else by more than `_CLIMB` standard errors,
    and with a chance of one half where it is just that.
    """
    share = np.zeros(len(value))
    left, last = 1.0, min(max(last, best), len(value) - 1)
    for k in range(best, last):
        apart = np.square(value[k + 1 : last + 1] - value[k])
        errors = apart / np.maximum(noise[k + 1 : last + 1] - noise[k], 1e-30)
        go = float(expit(errors.max() - _CLIMB**2))
        share[k] = left * (1.0 - go)
        left *= go
    share[last] = left
    return share


def _rough_ratio(
    pair: Pair, rough: Mapping[Condition, RowLosses], smooth: Mapping[Condition, _Ladder],
    groups: Groups,
) -> RowLosses:  # fmt: skip
    """Each condition by whatever finds more about it."""

    def losses(condition: Condition) -> RowLosses:
        if condition in rough:
            return rough[condition]
        if condition == NOTHING:
            none = np.zeros(groups.n_known)
            return RowLosses(none, none, "no dependence")
        ladder = smooth[condition]
        return RowLosses(ladder.losses, ladder.losses, ladder.chosen, ladder.terms)

    given, joint = (losses(c) for c in pair)
    return RowLosses(
        given.value - joint.value, given.influence - joint.influence, joint.chosen,
        abs(joint.terms - given.terms), joint.between, joint.merged,
    )  # fmt: skip


def _against_shares(losses: RowLosses, classes: Groups, gained: float) -> RowLosses:
    """−log p(class|z)/p(class), without what the choice of cuts has gained."""
    shares = -np.log(classes.shares)[classes.codes]
    return replace(
        losses, value=losses.value - shares + gained, influence=losses.influence - shares,
        chosen=f"{losses.chosen} of {classes.n_groups} classes", left_out=0.0,
    )  # fmt: skip


def _wins(losses: Array, rival: Array, groups: Groups, sure: float) -> bool:
    gain = rival - losses
    mean = float(np.average(gain, weights=groups.weight))
    parts = (gain - mean) if groups.weight is None else (gain - mean) * groups.weight
    if groups.cluster is not None:
        parts = cluster_sums(groups.cluster, parts)
    return mean > sure * float(np.linalg.norm(parts)) / groups.n_known


def _quantile_classes(u: Grid, groups: Groups) -> Groups:
    """Quantile classes of A, of which a value that many rows share is never cut."""
    mass = np.bincount(u.codes, groups.weight)
    rank = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    count = int(np.clip(groups.n_effective / _PER_CLASS, *CLASSES))
    return _classes((rank * count).astype(np.intp)[u.codes], groups)


def _tree_classes(given: list[Grid], groups: Groups) -> Groups:
    """Classes of A between which the distribution of what is given jumps.

    A cut must gain more than the best of all cuts of noise does. What a tree follows is bounded: a
    few far values would be cut off by themselves.
    """
    from sklearn.tree import DecisionTreeRegressor

    assert groups.measured is not None
    waves = np.pi * np.arange(1, _FOLLOWED + 1)
    tables = [np.cos(np.outer(ndtr(grid.points), waves))[grid.codes] for grid in given]
    follow, n = np.hstack([*tables, *map(np.multiply, tables[:1], tables[1:])]), groups.n_effective
    follow = follow / np.maximum(follow.std(axis=0), 1e-300)
    size = follow.shape[1]
    tree = DecisionTreeRegressor(
        min_samples_leaf=_LEAST_PER_CLASS, max_leaf_nodes=CLASSES[1], random_state=0,
        ccp_alpha=(size + 2.0 * np.log(n)) / (n * size),
    )  # fmt: skip
    # Ranks: trees read float32, in which dates of one year are the same.
    rank = np.unique(groups.measured, return_inverse=True)[1][:, None]
    step = -(-len(rank) // _TREE_ROWS)
    weight = None if groups.weight is None else groups.weight[::step]
    return _classes(tree.fit(rank[::step], follow[::step], weight).apply(rank), groups)


def _classes(cells: Index, groups: Groups) -> Groups:
    labels, codes = np.unique(cells, return_inverse=True)
    return Groups(
        tuple(range(len(labels))), codes.astype(np.intp), None, groups.weight, None,
        groups.n_known, groups.name, groups.cluster,
    )  # fmt: skip


@dataclass(frozen=True)
class _Ladder:
    """The rungs of one condition, from "no dependence" on.

    Attributes
    ----------
    value, noise : arrays
        Information by each rung without the bias of fitting, and its variance due to fitting.
    best, last : int
        The rung that predicts best, and the last one with few enough parameters to be trusted.
    losses : (n,) array
        −log ratio of each row by the average of the rungs that predict best.
    names, chosen : str
    terms : float
        Parameters behind `losses`.
    """

    value: Array
    noise: Array
    best: int
    last: int
    losses: Array
    names: list[str]
    chosen: str
    terms: float

    @classmethod
    def make(cls, u: Grid, given: list[Grid], condition: Condition, groups: Groups) -> _Ladder:
        design = Design.make(u, given, groups)
        n = groups.n_effective
        words = " and ".join(map(word_for, condition))
        null = np.zeros(len(design.entry_weight))
        rungs, names, last = [Fitted(null[:0], [], null, null, 0.0, 0.0)], ["no dependence"], 0
        for n_u, degree, alone, kappa in _RUNGS:
            size = min(n_u, len(u.points) - 1)
            columns = design.columns(degree, alone)
            if size * len(columns) > _MOST * n:
                break
            before = dict(zip(rungs[-1].columns, rungs[-1].theta.T, strict=True))
            rungs.append(fit(design, size, columns, kappa, before))
            names.append(f"density of {size} × {len(columns)} terms of {words}")
            if rungs[-1].terms > _TRUSTED * n:
                break
            last = len(rungs) - 1
        means = [float(design.entry_weight @ rung.outside) for rung in rungs]
        share = weigh(means, n)
        terms, squares = (
            np.array([getattr(r, name) for r in rungs]) for name in ("terms", "squares")
        )
        inside, outside = (
            pool_losses([getattr(rungs[k], name) for k in np.flatnonzero(share)], share[share > 0])
            for name in ("inside", "outside")
        )
        losses = blend(inside, outside, lean_of(float(share @ terms), float(share @ squares)))
        return cls(
            np.array([rung.information(design) for rung in rungs]), 0.5 * squares / n**2,
            int(np.argmin(means)), last, losses[design.row_entry], names,
            names[int(np.argmax(share))], float(share @ terms),
        )  # fmt: skip
