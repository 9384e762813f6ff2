"""The group that differs most from all others, which no splitting of the others can hide.

    I(S; 1[A = k]) / H(1[A = k])  and its conditional siblings, at the worst k.

The normalized information of many groups shrinks as groups are split, since H(A) grows and the nats
do not; that of one group against the rest does not depend on how the rest is cut. All candidates
are screened on one table of counts; only the worst of each criterion is then estimated in full.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._core.arrays import Array, Rows, Vector
from ..data.criteria import Criterion
from ..data.groups import Groups
from ..estimators.estimation import EntropyEstimator
from ..measures.entropies import estimate_entropies
from ..measures.exact_tests import exact_fairness_p_values
from ..measures.measures import Measure, measure
from .impact import SMALLEST

# Bins a side of the table that candidates are screened on, and rows that the cuts are taken from.
BINS = 16
SAMPLE = 20_000
# Tables drawn to see what chance adds to the value of a cell.
DRAWS = 8


@dataclass(frozen=True)
class OneAgainstRest:
    """One group against all others.

    Attributes
    ----------
    group : str
        The group, or the level of one attribute ("race: black").
    measure : Measure
        Of the two groups "it" and "the others". The p-value is multiplied by `n_compared`, as the
        group was picked among so many; value and interval are those of the group picked.
    n_compared : int
        Groups and levels that were looked at.
    """

    group: str
    measure: Measure
    n_compared: int


def worst_against_rest(
    criteria: Sequence[Criterion],
    variables: Mapping[str, Vector],
    groups: Groups,
    names: Sequence[str],
    estimation: EntropyEstimator,
    *,
    seed: int,
    **how: Any,
) -> dict[str, OneAgainstRest]:
    """For each criterion the group or level that differs most from all others.

    Parameters
    ----------
    criteria : sequence of Criterion
    variables : mapping
        (m,) arrays over the known rows, by name.
    groups : Groups
        Of crossed attributes, with more than two groups.
    names : sequence of str
        The attributes.
    estimation : EntropyEstimator
    seed, **how
        As for the audit itself: what :func:`measure` takes by name.
    """
    assert groups.codes is not None
    candidates = _candidates(groups, names)
    members = np.array([inside for _, inside in candidates], dtype=np.float64)
    scores = _screen(criteria, variables, groups, members, seed)
    # With few rows the screen is rough, and a second estimate costs little.
    tries = 2 if groups.n_known <= SAMPLE else 1
    wanted: dict[int, list[Criterion]] = {}
    for criterion in criteria:
        for k in np.argsort(-scores[criterion.name], kind="stable")[:tries].tolist():
            wanted.setdefault(k, []).append(criterion)
    worst: dict[str, OneAgainstRest] = {}
    for k, shared in wanted.items():
        name = candidates[k][0]
        codes = members[k].astype(np.intp)[groups.codes]
        two = replace(groups, labels=("the others", name), codes=codes, known=None, name=name,
                      n_rows=groups.n_known)  # fmt: skip
        entropies = estimate_entropies(shared, variables, two, estimation)
        tests = exact_fairness_p_values(shared, variables, two, random_state=seed)
        for criterion in shared:
            p = min(tests[criterion.name].p_value * len(candidates), 1.0)
            value = measure(criterion, entropies, p_value=p, seed=seed, **how)
            before = worst.get(criterion.name)
            if before is None or _certain(value) > _certain(before.measure):
                worst[criterion.name] = OneAgainstRest(name, value, len(candidates))
    return {c.name: worst[c.name] for c in criteria}


def _certain(value: Measure) -> float:
    """What a value is worth less one standard error, so that noise does not win."""
    return value.value - value.stderr if value.defined else -math.inf


def _candidates(groups: Groups, names: Sequence[str]) -> list[tuple[str, list[bool]]]:
    """Which of the crossed groups belong to each candidate: every group, level, all small groups.

    Levels of an attribute of two are left out: there one against the rest is the attribute.
    """
    candidates = [
        (name, [k == j for j in range(groups.n_groups)])
        for k, name in enumerate(groups.label_names)
    ]
    for j, attribute in enumerate(names):
        levels = dict.fromkeys(label[j] for label in groups.labels)
        if len(levels) > 2:
            for level in levels:
                inside = [label[j] == level for label in groups.labels]
                candidates.append((f"{attribute}: {level}", inside))
    small = groups.shares < SMALLEST
    if not names and small.sum() > 1 and groups.shares[small].sum() >= SMALLEST and not small.all():
        # One group that was cut into many small ones, each too small to tell anything by itself.
        candidates.append((f"{small.sum()} small groups together", small.tolist()))
    return candidates


def _screen(
    criteria: Sequence[Criterion],
    variables: Mapping[str, Vector],
    groups: Groups,
    members: Array,
    seed: int,
) -> dict[str, Vector]:
    """Rough values on a grid, less what chance adds to them and one standard error of that.

    A small group is noisy, so that the largest of many plain values would be the smallest group's.
    Two looks at the same counts, of which the larger value counts: a regression of the indicator on
    few smooth functions, ½·log of the ratio of its residual variances, which sees shifts and
    spreads of any size; and the cells themselves, which see any pattern that is large.
    """
    assert groups.codes is not None
    names = list(variables)
    place = np.zeros(groups.n_known, dtype=np.intp)
    for name in names:
        place = place * BINS + _bins(variables[name])
    place = place * groups.n_groups + groups.codes
    shape = (*[BINS] * len(names), groups.n_groups)
    weighted = np.bincount(place, groups.weight, minlength=int(np.prod(shape)))
    counts = weighted.reshape(shape) * (groups.n_effective / groups.n_known)
    rng = np.random.default_rng(seed)
    values = {}
    for criterion in criteria:
        inner = [name for name in criterion.joint if name not in criterion.given]
        rest = tuple(names.index(name) for name in names if name not in criterion.joint)
        kept = [name for name in names if name in criterion.joint]
        order = [kept.index(name) for name in (*criterion.given, *inner)]
        table = counts.sum(axis=rest).transpose(*order, len(kept))
        table = table.reshape(-1, BINS ** len(inner), groups.n_groups)
        smooth = _smooth_value(table, len(criterion.given), len(inner), members)
        values[criterion.name] = np.maximum(smooth, _cell_value(table, members, rng))
    return values


def _smooth_value(table: Array, n_given: int, n_inner: int, members: Array) -> Vector:
    """½ log(residual variance given / joint) over what is left, for (given, inner, K) counts."""
    n = table.sum()
    share = table.sum(axis=(0, 1)) @ members.T / n
    spread = np.maximum(share * (1.0 - share), 1e-300)
    plain = _entropy(share[None, :], np.ones(1))
    information, terms = [], []
    for counts, depth in ((table.sum(axis=1), n_given), (table, n_given + n_inner)):
        flat = counts.reshape(-1, table.shape[2])
        basis = _smooth(np.arange(len(flat)), depth)
        moments = basis.T @ (flat @ members.T)
        gram = (basis.T * flat.sum(axis=1)) @ basis
        weights = np.linalg.lstsq(gram, moments, rcond=1e-10)[0]
        explained = np.einsum("dk,dk->k", moments, weights) / n - share**2
        information.append(-0.5 * np.log(np.clip(1.0 - explained / spread, 1e-6, 1.0)))
        terms.append(basis.shape[1])
    added = terms[1] - terms[0]
    chance = (added + math.sqrt(2.0 * added)) / (2.0 * n)
    left = np.maximum(plain - information[0], 1e-12)
    return (information[1] - information[0] - chance) / left


def _cell_value(table: Array, members: Array, rng: np.random.Generator) -> Vector:
    """Plug-in information of the cells over what is left, for (given, inner, K) counts.

    What chance adds is found by drawing tables in which the groups of each given cell are spread
    over its inner cells as all rows are: no formula holds where groups are smaller than cells are
    many.
    """
    sizes = table.sum(axis=2)
    outer = sizes.sum(axis=1)
    table, sizes, outer = table[outer > 0], sizes[outer > 0], outer[outer > 0]
    n = outer.sum()
    given = table.sum(axis=1)
    left = _entropy(given @ members.T / outer[:, None], outer / n)

    def information(counts: Array) -> Vector:
        total = counts.sum(axis=2).ravel()
        flat = counts.reshape(-1, counts.shape[2])[total > 0]
        total = total[total > 0]
        inside = given_entropy(counts)
        return inside - _entropy(flat @ members.T / total[:, None], total / total.sum())

    def given_entropy(counts: Array) -> Vector:
        each = counts.sum(axis=1)
        total = np.maximum(each.sum(axis=1), 1e-300)
        return _entropy(each @ members.T / total[:, None], total / total.sum())

    law = sizes / outer[:, None]
    people = np.rint(given).astype(np.int64)
    draws = [
        information(rng.multinomial(people, law[:, None, :]).transpose(0, 2, 1).astype(np.float64))
        for _ in range(DRAWS)
    ]
    # Three errors, as the smooth look is the better one for all that is not plain to see here.
    chance = np.mean(draws, axis=0) + 3.0 * np.std(draws, axis=0, ddof=1)
    return (information(table) - chance) / np.maximum(left, 1e-12)


def _smooth(cells: Rows, depth: int) -> Array:
    """Products of Legendre polynomials of the bin numbers, up to degree 3 together."""
    columns = [np.ones(len(cells))]
    degrees = [0]
    for _ in range(depth):
        x = 2.0 * (cells % BINS) / (BINS - 1) - 1.0
        cells = cells // BINS
        powers = [np.ones_like(x), x, 1.5 * x**2 - 0.5, 2.5 * x**3 - 1.5 * x]
        pairs = [
            (column * power, degree + d)
            for column, degree in zip(columns, degrees, strict=True)
            for d, power in enumerate(powers)
            if degree + d <= 3
        ]
        columns, degrees = [c for c, _ in pairs], [d for _, d in pairs]
    return np.column_stack(columns)


def _bins(values: Vector) -> Rows:
    """About equally filled bins; equal values share one."""
    sample = values[np.linspace(0, len(values) - 1, min(len(values), SAMPLE)).astype(int)]
    cuts = np.unique(np.quantile(sample, np.arange(1, BINS) / BINS))
    return np.searchsorted(cuts, values, side="left").astype(np.intp, copy=False)


def _entropy(share: Array, weight: Vector) -> Vector:
    """Σ weight·h(share) down the rows, h the entropy of a share and its complement."""
    p = np.clip(share, 1e-300, 1.0)
    q = np.clip(1.0 - share, 1e-300, 1.0)
    return -(weight @ (p * np.log(p) + q * np.log(q)))
