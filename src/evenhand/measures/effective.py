"""How many equally weighted, independent units the rows are worth, and when that is too few.

n_eff = (ΣW)² / ΣW² over the weights W of units: clusters where rows are clustered, else rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from .._core.arrays import Array
from .._core.threads import CHUNK
from .._core.validation import InputError, warn_user
from ..data.copies import are_copies
from ..data.criteria import Condition, Criterion, word_for
from ..data.groups import Groups, GroupWarning
from ..data.weights import LEAST, cluster_groups
from ..kernels import standardizer
from ..kernels.basis import get_basis

# Fewer than `LEAST` effective rows: refuse. Fewer than `FEW`: warn. The others are of one group.
FEW, FEW_IN_GROUP, NEXT_TO_NOTHING = 100.0, 10.0, 3.0
# Groups of a smaller share are looked at together.
_SMALL = 0.02
# Rows beyond which some values are looked at before all of them are sorted.
_MANY_ROWS = 100_000
# Rows in the order of a value that tell whether they come in runs, and rows in that of the table.
_SLICE, _FIRST_ROWS = 20_000, 100_000


class EffectiveSizeWarning(GroupWarning):
    """Unequal weights or large clusters leave few effective rows."""


def unit_masses(groups: Groups) -> Array:
    """Weight of each group in each unit: (G, K) for clusters, (m, K) for rows."""
    if groups.codes is not None and groups.cluster is not None:
        cell = groups.cluster * groups.n_groups + groups.codes
        size = groups.n_units * groups.n_groups
        mass = np.bincount(cell, groups.weight, size).astype(np.float64, copy=False)
        return mass.reshape(groups.n_units, groups.n_groups)
    mass = groups.membership()
    if groups.weight is not None:
        mass = mass * groups.weight[:, None]
    return mass if groups.cluster is None else cluster_groups(groups.cluster, mass)


def group_sizes(groups: Groups) -> Array:
    """Effective number of rows, or of clusters, of each group, (K,)."""
    if groups.cluster is None and groups.weight is None and groups.codes is not None:
        return groups.counts
    mass = unit_masses(groups)
    squares = np.square(mass).sum(axis=0)
    return np.divide(mass.sum(axis=0) ** 2, squares, out=np.zeros_like(squares), where=squares > 0)


def check_effective_size(groups: Groups) -> None:
    """Refuse fewer than 5 effective units; warn of fewer than 100, or than 10 in a group.

    Only where clusters, or weights that halve the number of rows, have made them few: how many
    rows there are anybody can see.
    """
    if groups.weight is None and groups.cluster is None:
        return
    unit = "rows" if groups.cluster is None else "clusters"
    n, size = groups.n_known, groups.n_effective
    fewer = groups.cluster is not None or size < 0.5 * n
    if fewer and size < LEAST:
        raise _refusal(groups, size)
    if fewer and size < FEW:
        warn_user(
            f"{n:,} rows count for {size:.3g} {unit}{_why(groups)}: values are rough and intervals "
            f"wide. Hint: {_advice(groups)}.",
            EffectiveSizeWarning,
        )
    sizes = group_sizes(groups)
    # Where all is rough, a group is named only if it rests on next to nothing.
    least = NEXT_TO_NOTHING if fewer and size < FEW else FEW_IN_GROUP
    few = np.flatnonzero((sizes < least) & (sizes < 0.5 * groups.counts))
    if len(few):
        names = ", ".join(f"{groups.label_names[k]!r} ({sizes[k]:.2g})" for k in few[:5])
        more = f" and {len(few) - 5} more" if len(few) > 5 else ""
        warn_user(
            f"There are fewer than {least:g} effective {unit} in {names}{more}: not enough data to "
            "say anything about such a group. Hint: merge it with another, or set it to missing.",
            EffectiveSizeWarning,
        )


class SharedValuesWarning(GroupWarning):
    """Rows that share a value are all of one group, as the rows of one person or place are."""


def find_shared_values(
    variables: Mapping[str, Array], left: Mapping[str, float], groups: Groups
) -> Iterator[str]:
    """Say where rows that share a value are all of one group, so that they may be one unit's.

    Such values often stand for clusters: 923 ZIP codes with a risk each, in 31,382 quotes, or one
    score per person in a monthly panel. They give the group away, or make errors too small.

    Parameters
    ----------
    variables : mapping
        Columns over the known rows, by name.
    left : mapping
        H(A | variable) in nats, by name.
    groups : Groups
    """
    if groups.codes is None or groups.cluster is not None or groups.measured is not None:
        return
    said = [*_look_at_values(variables, left, groups)]
    yield from said or (_look_at_order(variables["s"], groups) if "s" in variables else ())


def _look_at_values(
    variables: Mapping[str, Array], left: Mapping[str, float], groups: Groups
) -> Iterator[str]:
    assert groups.codes is not None
    for name, values in variables.items():
        if _hardly_repeats(values):
            yield from _runs(name, values, groups)
            continue
        distinct, code = np.unique(values, return_inverse=True)
        if len(distinct) > 0.9 * len(values):
            yield from _runs(name, values, groups)
            continue
        if len(distinct) < 10 * groups.n_groups:
            continue
        size = len(distinct), groups.n_groups
        table = np.bincount(code * size[1] + groups.codes, minlength=size[0] * size[1])
        table = table.reshape(size).astype(np.float64)
        pure = table.max(axis=1).sum() / len(values) > 0.99
        told = left.get(name, np.inf) <= 0.1 * groups.entropy and len(distinct) <= 0.2 * len(values)
        repeated = _repeats(table)
        # Rows that are equal throughout are copies, or people whose number is given.
        if repeated and not told:
            rows = np.unique(np.column_stack([*variables.values()]), axis=0)
            repeated = len(rows) > 1.5 * len(distinct)
        elif not told and groups.shares.min() < _SMALL:
            # Copies whose labels have been split at random are of one group where small ones are.
            small = groups.shares < _SMALL
            repeated = _repeats(np.column_stack([table[:, ~small], table[:, small].sum(axis=1)]))
        if (told and pure) or repeated:
            what = "so the value gives the group away" if told else "as those of one person are"
            yield (
                f"The {word_for(name)} has {len(distinct):,} values in {len(values):,} rows, and "
                f"nearly all rows of a value are of one group, {what}. Hint: if rows of a value "
                "belong together (a person, a ZIP code), pass what they have in common as the "
                "cluster."
            )
        elif len(distinct) > 0.5 * len(values):  # copies of copies, the last with noise
            yield from _runs(name, values, groups)


def _repeats(table: NDArray[Any]) -> bool:
    """Whether values, counted by group, repeat as those of copies do."""
    return are_copies(table.sum(axis=1), (table > 0).sum(axis=1) > 1, table.sum(0) / table.sum())


def _runs(name: str, values: Array, groups: Groups) -> Iterator[str]:
    """Say where rows with nearly the same value are of one group, and those a little further off
    are not: so are the rows of a person whose score hardly moves from month to month.

    With rows in the order of the value, neighbors agree in their group more often than rows about
    twenty places apart. A group that depends on the value smoothly makes no such difference.
    """
    assert groups.codes is not None
    codes = groups.codes
    if len(values) > 2 * _SLICE:  # a slice of them, with all rows in it
        some = values[:: len(values) // _SLICE]
        low, high = np.quantile(some, (0.5, 0.5 + _SLICE / len(values)))
        inside = (values >= low) & (values <= high)
        values, codes = values[inside], codes[inside]
    # The places of equal values are nobody's; the table's order says nothing.
    order = np.argsort(values)
    new = np.diff(values[order], prepend=np.nan, append=np.nan) != 0.0
    codes = codes[order[new[1:] & new[:-1]]]
    place = min(20, len(codes) // (15 * groups.n_groups))
    if place < 5:
        return
    near = np.mean([np.mean(codes[k:] == codes[:-k]) for k in (1, 2)])
    far = np.mean([np.mean(codes[k:] == codes[:-k]) for k in range(place, place + 5)])
    spread = 1.0 - np.square(groups.shares).sum()
    # Rows so far apart also lie on both sides of where one group ends and another begins.
    across = (groups.n_groups - 1) * place / len(codes)
    chance = 5.0 * np.sqrt(far * (1.0 - far) / len(codes))
    if near - far > across + max(0.09 * spread, chance):
        yield (
            f"{near:.0%} of the rows are of the same group as one a place or two higher by the "
            f"{word_for(name)}, and {far:.0%} as one about {place} places higher, so rows seem "
            "to come in runs, as those of one person do. Hint: if there are several rows of a "
            "person or a place, pass what they have in common as the cluster."
        )


def _look_at_order(values: Array, groups: Groups) -> Iterator[str]:
    """Say where rows at some distance in the table are of one group and have similar scores, as the
    rows of a person are when they follow one another, or come once in each wave.

    r(L), the correlation of scores less their group's mean at L rows' distance, is about N(0, 1/n)
    in any order that says nothing. In a sorted table it is large, and still large further on. Equal
    scores do not count: rows may be ordered by value, as those that stand for several people are.
    """
    assert groups.codes is not None
    values, codes = values[:_FIRST_ROWS], groups.codes[:_FIRST_ROWS]
    n, further = len(values), len(values) // (24 * groups.n_groups)
    if further < 8:
        return
    low, middle, high = np.quantile(values[:: n // 2000 + 1], (0.1, 0.5, 0.9))
    count = np.bincount(codes)
    x = np.clip((values - middle) / ((high - low) or 1.0), -1.0, 1.0)  # no row decides
    x = (x - (np.bincount(codes, x) / np.maximum(count, 1))[codes]).astype(np.float32)
    size = fft.next_fast_len(n + n // 2 + further + 5, real=True)
    power = np.square(np.abs(fft.rfft(x, size)))
    r = fft.irfft(power, size) / max(float(x @ x), 1e-30)
    at = int(r[1 : n // 2].argmax()) + 1
    beyond = np.abs(r[at + further : at + further + 5]).mean()
    i = np.flatnonzero(values[at:] != values[:-at])
    if len(i) < 100 or not x.any():
        return
    near = float(x[i] @ x[i + at]) / len(i) * n / float(x @ x)
    alike, chance = np.mean(codes[i] == codes[i + at]), np.square(count / n).sum()
    if near > max(0.1, 6.0 / np.sqrt(n), 5.0 * beyond) and alike - chance > 0.3 * (1.0 - chance):
        yield (
            f"{alike:.0%} of the rows are of the same group as the one {at:,} further down the "
            f"table, and their scores are alike (correlation {near:.2f} within groups), as those "
            "of one person are. Hint: if there are several rows of a person or a place, pass what "
            "they have in common as the cluster."
        )


def _hardly_repeats(values: Array) -> bool:
    """Whether nearly all of many values are those of one row, by a sixteenth of the values with all
    of their rows: sorting a million numbers takes longer than estimating from them."""
    if len(values) < _MANY_ROWS:
        return False
    parts = (values[i : i + CHUNK] for i in range(0, len(values), CHUNK))
    hashed = ((v, (v + 0.0).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) for v in parts)
    some = np.concatenate([v[bits >> np.uint64(60) == 0] for v, bits in hashed])
    return len(np.unique(some)) > 0.9 * len(some)  # copies repeat a third of them


def _why(groups: Groups) -> str:
    if groups.cluster is None:
        return " of equal weight, as few weights are far larger than the others"
    weighted = " with these weights" if groups.weight is not None else ""
    return f" of equal size{weighted}"


def _advice(groups: Groups) -> str:
    if groups.cluster is None:
        return "look at the largest weights, and cut them off if they are not meant"
    return "use smaller clusters if their rows are independent, or gather more of them"


def _refusal(groups: Groups, size: float) -> InputError:
    advice = f"{_advice(groups)}."
    if groups.cluster is not None:
        return InputError(
            "cluster", f"hold at least {LEAST:g} clusters of similar size, got {groups.n_units} "
            f"that count for {size:.2g}: from so few nothing can be said about others", hint=advice,
        )  # fmt: skip
    assert groups.weight is not None
    share = 100.0 * groups.weight.max() / groups.weight.sum()
    return InputError(
        "sample_weight", f"leave at least {LEAST:g} effective rows, (Σw)²/Σw², got {size:.2g} from "
        f"{groups.n_known:,} rows: one row alone has {share:.3g}% of the weight", hint=advice,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------
# How much of a sample is left for fitted parameters where rows come in clusters.
#
# With φ what the joint classifier fits beyond the other, r = 1{a = k} less its fit by the other,
# M = Σωφφᵀ and V = Σ_c (Σωrφ)(Σωrφ)ᵀ, the noise of the parameters is that of n/d independent rows,
# d² the mean square of the eigenvalues of M⁻¹V / mean ωr². Rows alone have d = 1; rows of a cluster
# that repeat each other have d = their number; and clusters that share the group but not the score
# lie in between.


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
    weight = groups.row_weight
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
