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
from numpy.polynomial.legendre import legvander
from scipy.special import xlogy

from .._core.arrays import Array, Rows, Vector
from ..data.criteria import Criterion
from ..data.groups import Groups
from ..data.labels import label_text
from ..estimators.estimation import EntropyEstimator
from ..measures.entropies import estimate_entropies
from ..measures.exact_tests import exact_fairness_p_values
from ..measures.measures import Measure, measure
from .impact import SMALLEST

# Bins a side of the table that candidates are screened on, and rows that the cuts are taken from.
BINS = 16
SAMPLE = 20_000
# Degrees of the polynomials that are looked at, and standard errors that chance is granted: more
# for many of them, as few are the better look at all that is not plain to see.
LOOKS = ((3, 1.0), (12, 3.0))


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
    criteria: Sequence[Criterion], variables: Mapping[str, Vector], groups: Groups,
    names: Sequence[str], estimation: EntropyEstimator, *, seed: int, **how: Any,
) -> dict[str, OneAgainstRest]:  # fmt: skip
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
    seed : int
        Of the tests.
    **how
        What :func:`measure` takes by name.
    """
    assert groups.codes is not None
    compared = candidates(groups.labels, names)
    small = groups.shares < SMALLEST
    if not names and small.sum() > 1 and groups.shares[small].sum() >= SMALLEST and not small.all():
        # One group that was cut into many small ones, each too small to tell anything by itself.
        compared[f"{small.sum()} small groups together"] = small.tolist()
    members = np.array(list(compared.values()), dtype=np.float64)
    scores = _screen(criteria, variables, groups, members)
    # With few rows the screen is rough, and a second estimate costs little.
    tries = 2 if groups.n_known <= SAMPLE else 1
    wanted: dict[int, list[Criterion]] = {}
    for criterion in criteria:
        for k in np.argsort(-scores[criterion.name], kind="stable")[:tries].tolist():
            wanted.setdefault(k, []).append(criterion)
    worst: dict[str, OneAgainstRest] = {}
    for k, shared in wanted.items():
        name = list(compared)[k]
        parts = groups.codes, members[k].astype(np.intp)
        codes = parts[1][groups.codes]
        two = replace(groups, labels=("the others", name), codes=codes, known=None, name=name,
                      n_rows=groups.n_known)  # fmt: skip
        entropies = estimate_entropies(shared, variables, two, estimation)
        tests = exact_fairness_p_values(shared, variables, two, random_state=seed, parts=parts)
        for criterion in shared:
            p = min(tests[criterion.name].p_value * len(compared), 1.0)
            value = measure(criterion, entropies, p_value=p, **how)
            before = worst.get(criterion.name)
            if before is None or _certain(value) > _certain(before.measure):
                worst[criterion.name] = OneAgainstRest(name, value, len(compared))
        del entropies, two, codes  # as large as the rows, which the next group's are, too
    return {c.name: worst[c.name] for c in criteria}


def _certain(value: Measure) -> float:
    """What a value is worth less one standard error, so that noise does not win."""
    return value.value - value.stderr if value.defined else -math.inf


def candidates(labels: Sequence[Any], names: Sequence[str]) -> dict[str, list[bool]]:
    """Which of the groups belong to each candidate: every group, every level of an attribute.

    Levels of an attribute of two are left out: there one against the rest is the attribute.
    """
    # By identity: some labels, such as a tuple of what has no order, do not compare.
    parts = {label_text(v): [u is v for u in labels] for v in labels}
    for j, name in enumerate(names):
        values = dict.fromkeys(v[j] for v in labels)
        if len(values) > 2:
            parts |= {f"{name}: {x}": [v[j] == x for v in labels] for x in values}
    return parts


def _screen(
    criteria: Sequence[Criterion], variables: Mapping[str, Vector], groups: Groups, members: Array
) -> dict[str, Vector]:
    """Rough values on a grid, less what chance adds to them and some standard errors of that.

    A small group is noisy, so that the largest of many plain values would be the smallest group's.
    Two looks at the same counts, of which the larger value counts: few smooth functions see shifts
    and spreads of any size, many see any pattern that is large.
    """
    assert groups.codes is not None
    names = list(variables)
    place = np.zeros(groups.n_known, dtype=np.int32)
    for name in names:
        place = place * BINS + _bins(variables[name])
    place = place * groups.n_groups + groups.codes
    shape = (*[BINS] * len(names), groups.n_groups)
    weighted = np.bincount(place, groups.weight, minlength=int(np.prod(shape)))
    counts = weighted.reshape(shape) * (groups.n_effective / groups.n_known)
    values = {}
    for criterion in criteria:
        inner = [name for name in criterion.joint if name not in criterion.given]
        rest = tuple(names.index(name) for name in names if name not in criterion.joint)
        kept = [name for name in names if name in criterion.joint]
        order = [kept.index(name) for name in (*criterion.given, *inner)]
        table = counts.sum(axis=rest).transpose(*order, len(kept))
        looks = [_value(table, len(criterion.given), members, *look) for look in LOOKS]
        values[criterion.name] = np.max(looks, axis=0)
    return values


def _value(table: Array, n_given: int, members: Array, degree: int, errors: float) -> Vector:
    """½ log(residual variance given / joint) over what is left, by regressions of the indicator.

    `table` holds counts by bins of what is given, then of the others, and group.
    """
    n = table.sum()
    share = table.sum(axis=tuple(range(table.ndim - 1))) @ members.T / n
    spread = np.maximum(share * (1.0 - share), 1e-300)
    plain = -xlogy(share, share) - xlogy(1.0 - share, 1.0 - share)
    information, terms = [], []
    for depth in (n_given, table.ndim - 1):
        counts = table.sum(axis=tuple(range(depth, table.ndim - 1)))
        flat = counts.reshape(-1, table.shape[-1])
        basis = _smooth(depth, degree)
        moments = basis.T @ (flat @ members.T)
        gram = (basis.T * flat.sum(axis=1)) @ basis
        weights = np.linalg.lstsq(gram, moments, rcond=1e-10)[0]
        explained = np.einsum("dk,dk->k", moments, weights) / n - share**2
        information.append(-0.5 * np.log(np.clip(1.0 - explained / spread, 1e-6, 1.0)))
        terms.append(basis.shape[1])
    added = terms[1] - terms[0]
    chance = (added + errors * math.sqrt(2.0 * added)) / (2.0 * n)
    left = np.maximum(plain - information[0], 1e-12)
    return (information[1] - information[0] - chance) / left


def _smooth(depth: int, degree: int) -> Array:
    """Products of Legendre polynomials of the bin numbers, up to a degree together."""
    powers = legvander(np.linspace(-1.0, 1.0, BINS), degree)
    columns: Array = np.ones((1, 1))
    degrees = np.zeros(1)
    for _ in range(depth):
        columns = np.asarray(np.kron(columns, powers), dtype=np.float64)
        degrees = np.add.outer(degrees, np.arange(degree + 1)).ravel()
        columns = columns[:, degrees <= degree]
        degrees = degrees[degrees <= degree]
    return columns


def _bins(values: Vector) -> Rows:
    """About equally filled bins; equal values share one."""
    from ..kernels.ranks import find_slots

    sample = values[np.linspace(0, len(values) - 1, min(len(values), SAMPLE)).astype(int)]
    cuts = np.unique(np.quantile(sample, np.arange(1, BINS) / BINS))
    slot, *_ = find_slots(values, np.append(cuts, np.inf))
    return slot >> 1
