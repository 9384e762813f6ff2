"""Who belongs to which group: codes, crossed attributes and missing values.

Every other module sees group membership only as a :class:`Groups`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._core.arrays import Array, Mask, Rows
from .._core.shards import here, once
from .._core.validation import (
    InputError,
    as_array,
    as_floats,
    check_length,
    check_names,
    is_one_of,
    read_native,
    warn_user,
)
from .bands import Continuous
from .columns import split_columns
from .labels import cross, encode, label_text, refuse_equal_types, share_labels
from .weights import check_cluster, check_weight, mean_one, renumber

# ------------------------------------------------------------------------------------------------
# Membership probabilities in place of groups.


@dataclass(frozen=True)
class Proxy:
    """Membership probabilities, where the group itself is not recorded.

    Parameters
    ----------
    probabilities : (n, K) array or frame
        P(A = k) for each row, nonnegative, each row summing to one. A row that holds a missing or
        masked value is a row whose group is not known. With exactly two `classes` a 1-D array is
        read as the probability of the second one.
    classes : sequence of length K, optional
        The groups. Column names of a frame are used when left out.
    assume : {"guess", "group"}, optional
        What is taken for granted about the score, which no data here can show. "guess": among
        people of the same probabilities it does not depend on the group, so that rows are weighted
        by the probabilities. "group": among people of the same group it does not depend on the
        probabilities, so that the score is regressed on them. Left out, audits show both and the
        range without either, and a verdict passes only if all of them do.

    Notes
    -----
    Information is measured under "guess". The truth can be outside both where neither holds.

    See Also
    --------
    evenhand.audit
    evenhand.Continuous

    References
    ----------
    Kallus, N., Mao, X. and Zhou, A. (2022). Assessing Algorithmic Fairness with Unobserved
    Protected Class Using Data Combination. Management Science 68.

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> p = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    >>> eh.Proxy(p, ["A", "B"], assume="guess").assume
    'guess'
    """

    probabilities: Any
    classes: Sequence[Any] | None = None
    assume: str | None = None
    _table: Array = field(init=False, repr=False, compare=False)
    _labels: tuple[Any, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (self.assume is None or is_one_of(self.assume, ("guess", "group"))):
            raise ValueError(
                f'`assume` of a Proxy must be "guess", "group" or None, got {self.assume!r}.'
            )
        labels: Sequence[Any] | None = self.classes
        if not (labels is None or hasattr(labels, "__len__")):
            raise InputError("classes", "be a list of names", repr(labels), where="of a Proxy")
        frame = read_native(self.probabilities, "probabilities")
        if isinstance(frame, nw.DataFrame):
            labels = frame.columns if labels is None else labels
            table = frame.to_numpy()
        else:
            table = as_array(self.probabilities, "probabilities")
        try:
            table = as_floats(table)
        except (TypeError, ValueError):
            raise InputError(
                "probabilities", f"be numbers, got an array of dtype {table.dtype}",
                hint="for known groups pass the labels themselves.", where="of a Proxy",
            ) from None  # fmt: skip
        if isinstance(self.probabilities, np.ma.MaskedArray):
            table[np.ma.getmaskarray(self.probabilities)] = np.nan
        if table.ndim == 1 and labels is not None and len(labels) == 2:
            table = np.column_stack([1.0 - table, table])
        if table.ndim != 2:
            raise InputError(
                "probabilities", f"be 2-D, one column per class, got shape {table.shape}",
                where="of a Proxy",
            )  # fmt: skip
        if labels is None:
            labels = range(table.shape[1])
        if len(labels) != table.shape[1]:
            raise ValueError(
                f"`classes` of a Proxy must name every column of `probabilities`: got "
                f"{len(labels)} classes for {table.shape[1]} columns."
            )
        if len(set(labels)) != len(labels):
            raise ValueError(f"`classes` of a Proxy must be distinct, got {list(labels)!r}.")
        object.__setattr__(self, "_table", _probabilities(table))
        object.__setattr__(self, "_labels", tuple(labels))

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, rows: Any) -> Proxy:
        """Rows of the proxy, so that cross-validation can split it."""
        return Proxy(self._table[rows], self._labels, self.assume)

    # scikit-learn's splitter takes `shape`, `__len__` and integer indexing for an array.
    @property
    def shape(self) -> tuple[int, int]:
        return self._table.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        # Without this NumPy would take `__getitem__` for a sequence of proxies without end.
        return np.array(self._table, dtype=dtype)


def _probabilities(table: Array) -> Array:
    """Rows that sum to one, and rows of a group that is not known as they are."""
    known = ~np.isnan(table).any(axis=1)
    rows = table[known]
    with np.errstate(invalid="ignore"):  # of infinities of both signs
        off = np.abs(rows.sum(axis=1) - 1.0) > 1e-3
    negative = (rows < -1e-9).any(axis=1) | ~np.isfinite(rows).all(axis=1)
    if negative.any() or off.any():
        bad = int(np.flatnonzero(known)[np.flatnonzero(negative | off)[0]])
        raise InputError(
            "probabilities", f"be nonnegative and sum to 1 in each row; row {bad} is "
            f"{table[bad].tolist()}", hint="use NaN in a row whose group is unknown.",
            where="of a Proxy",
        )  # fmt: skip
    rows = np.clip(rows, 0.0, None)
    table[known] = rows / rows.sum(axis=1, keepdims=True)
    return table


# More groups than this are refused: every estimate would rest on a handful of rows of each, and
# classifiers of them need time and memory that grow with their square.
MAX_GROUPS = 300


class GroupWarning(UserWarning):
    """A group is empty or so small that nothing can be said about it."""


@dataclass(frozen=True)
class Groups:
    """Group membership of the rows whose group is known.

    ``m`` is the number of such rows, ``n`` the number of all rows, ``K`` the number of groups.
    Exactly one of `codes` and `probabilities` is set.

    Attributes
    ----------
    labels : tuple of length K
        The groups, in the order of the codes. A tuple of values for crossed attributes.
    codes : (m,) intp array or None
        Group number of each known row; single bytes for rows read from files.
    probabilities : (m, K) float array or None
        Membership probabilities (a :class:`Proxy`); each row sums to one.
    weight : (m,) float array or None
        Sample weights, scaled to mean 1 over the known rows; None for equal weights.
    known : (n,) bool array or None
        Which rows are known; None when all are.
    n_rows : int
        n.
    name : str
        What the attribute is called in tables.
    cluster : (m,) intp array or None
        Number 0 … G − 1 of the cluster of each known row; None where rows are independent.
    measured : (m,) float array or None
        The measurement itself, of which the groups are bands (:class:`Continuous`); information
        is then about it.
    assume : {"guess", "group"} or None
        Of a :class:`Proxy`.
    """

    labels: tuple[Any, ...]
    codes: Rows | None
    probabilities: Array | None
    weight: Array | None
    known: Mask | None
    n_rows: int
    name: str = "group"
    cluster: Rows | None = None
    measured: Array | None = None
    assume: str | None = None

    @property
    def n_groups(self) -> int:
        return len(self.labels)

    @property
    def n_known(self) -> int:
        rows = self.codes if self.codes is not None else self.probabilities
        assert rows is not None
        return len(rows)

    @once
    def n_total(self) -> int:
        """m over all workers, where these rows are one shard of many."""
        return here().total(self.n_known)

    @property
    def n_unknown(self) -> int:
        return self.n_rows - self.n_known

    @cached_property
    def n_units(self) -> int:
        """Independent units: clusters, or rows where there are none."""
        return self.n_known if self.cluster is None else int(self.cluster.max()) + 1

    @cached_property
    def n_effective(self) -> float:
        """(ΣW)² / ΣW² over the weights W of units: equally weighted units that carry as much."""
        if self.cluster is not None:
            weight = np.bincount(self.cluster, self.weight).astype(np.float64, copy=False)
        elif self.weight is not None:
            weight = self.weight
        else:
            return float(self.n_known)
        return float(weight.sum() ** 2 / np.square(weight).sum())

    @once
    def counts(self) -> Array:
        """Rows per group, unweighted; expected rows for a proxy."""
        return here().add(self._totals(None))

    @once
    def shares(self) -> Array:
        """Weighted share of each group, P(A = k)."""
        totals = here().add(self._totals(self.weight))
        return totals / totals.sum()

    def _totals(self, weight: Array | None) -> Array:
        if self.codes is not None:
            return np.bincount(self.codes, weight, self.n_groups).astype(np.float64)
        assert self.probabilities is not None
        return self.probabilities.sum(axis=0) if weight is None else weight @ self.probabilities

    @once
    def entropy(self) -> float:
        """H(A) = −Σ_k P(k) log P(k), in nats."""
        shares = self.shares[self.shares > 0]
        return float(-(shares * np.log(shares)).sum())

    @property
    def row_weight(self) -> Array:
        """The weights, ones where all are equal."""
        return np.ones(self.n_known) if self.weight is None else self.weight

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels as text; crossed labels joined with " × "."""
        return tuple(map(label_text, self.labels))

    def membership(self) -> Array:
        """(m, K) membership: one-hot rows, or the proxy's probabilities."""
        if self.probabilities is not None:
            return self.probabilities
        assert self.codes is not None
        out = np.zeros((self.n_known, self.n_groups))
        out[np.arange(self.n_known), self.codes] = 1.0
        return out

    def take(self, rows: Rows) -> Groups:
        """Membership of some of the n rows, with the same labels; a group may end up empty."""
        keep: Any = rows
        known = None
        if self.known is not None:
            known = self.known[rows]
            keep = (np.cumsum(self.known) - 1)[rows[known]]
            known = None if known.all() else known
        taken: dict[str, Any] = {
            name: None if column is None else column[keep]
            for name in ("codes", "probabilities", "weight", "cluster", "measured")
            for column in [getattr(self, name)]
        }
        taken["weight"], taken["cluster"] = mean_one(taken["weight"]), renumber(taken["cluster"])
        return replace(self, known=known, n_rows=len(rows), **taken)

    def numbers(self) -> NDArray[np.intp]:
        """A number for each of the n rows that rows of the same membership share; −1 if unknown."""
        codes = self.codes
        if self.measured is not None:
            codes = np.unique(self.measured, return_inverse=True)[1]
        elif codes is None:
            assert self.probabilities is not None
            codes = np.unique(self.probabilities, axis=0, return_inverse=True)[1].ravel()
        if self.known is None:
            return codes
        out = np.full(self.n_rows, -1, dtype=np.intp)
        out[self.known] = codes
        return out

    def reweigh(self, weight: Array | None) -> Groups:
        """The same groups with other weights of the n rows, or without any."""
        return replace(self, weight=None if weight is None else mean_one(self.take_known(weight)))

    def take_known(self, values: NDArray[Any]) -> NDArray[Any]:
        """The entries of a length-n array that belong to known rows (no copy if all are known)."""
        return values if self.known is None else values[self.known]

    def put_known(self, values: NDArray[Any]) -> NDArray[Any]:
        """An array of n rows with `values` in the known ones and zero elsewhere."""
        if self.known is None:
            return values
        out = np.zeros((self.n_rows, *values.shape[1:]), dtype=values.dtype)
        out[self.known] = values
        return out


def resolve_groups(
    sensitive_features: Any, *, n_rows: int, sample_weight: ArrayLike | None = None,
    cluster: Any = None, require_two: bool = True, warn: bool = True,
) -> Groups:  # fmt: skip
    """Read any accepted form of `sensitive_features` into :class:`Groups`.

    Parameters
    ----------
    sensitive_features : array, series, frame, Proxy or Continuous
        See the package documentation for the accepted forms.
    n_rows : int
        Number of rows expected.
    sample_weight : (n,) array, optional
        Nonnegative weights. A group whose weights are all zero counts as empty.
    cluster : (n,) array, optional
        Label of the cluster each row belongs to, where rows are not independent.
    require_two : bool
        Refuse a single group, for which no comparison can be made.
    warn : bool
        Warn of empty groups and of groups of one row; no use where rows are only looked up.
    """
    weight = check_weight(sample_weight, n_rows)
    if isinstance(sensitive_features, Groups):  # read before
        check_length("sensitive_features", sensitive_features.n_rows, n_rows)
        groups = sensitive_features if weight is None else sensitive_features.reweigh(weight)
    elif isinstance(sensitive_features, Proxy):
        groups = _from_proxy(sensitive_features, n_rows, weight, warn)
    elif isinstance(sensitive_features, Continuous):
        groups = _from_measurement(sensitive_features, n_rows, weight)
    else:
        groups = _from_labels(sensitive_features, n_rows, weight, warn)
    clusters = check_cluster(cluster, n_rows)
    if clusters is not None:
        groups = replace(groups, cluster=renumber(groups.take_known(clusters)))
    _check_number(groups, 2 if require_two else 0)
    check_names(groups.labels, "sensitive_features", label_text)
    if warn:
        _warn_small(groups)
    return groups


def _check_number(groups: Groups, least: int) -> None:
    """Refuse too few groups to compare, and too many."""
    if groups.n_groups < least:
        there = f"only {groups.label_names[0]!r}" if groups.n_groups else "no known group"
        raise InputError(
            "sensitive_features", f"hold at least two groups to compare, found {there} in "
            f"{groups.n_total} rows with a known group",
            hint="in cross-validation, stratify the folds by group so that every fold holds each "
            "of them.",
        )  # fmt: skip
    if groups.n_groups > MAX_GROUPS:
        sizes = np.sort(groups.counts)
        raise InputError(
            "sensitive_features", f"hold at most {MAX_GROUPS} groups, found {groups.n_groups} in "
            f"{groups.n_total} rows; half of them have {sizes[len(sizes) // 2]:.0f} rows or "
            f"fewer, the five smallest {', '.join(f'{size:.0f}' for size in sizes[:5])}",
            hint="merge rare groups into larger ones, or judge one attribute at a time instead of "
            "the crossing of several.",
        )  # fmt: skip


def _from_proxy(proxy: Proxy, n_rows: int, weight: Array | None, warn: bool) -> Groups:
    table, labels = proxy._table, proxy._labels
    check_length("sensitive_features", len(table), n_rows)
    known = np.asarray(~np.isnan(table).any(axis=1))
    rows = table[known]
    w = None if weight is None else weight[known]
    labels, keep = _with_weight(labels, rows.sum(axis=0) if w is None else w @ rows, warn)
    return Groups(
        labels, None, np.ascontiguousarray(rows[:, keep]), mean_one(w),
        None if known.all() else known, n_rows, assume=proxy.assume,
    )  # fmt: skip


def _from_measurement(attribute: Continuous, n_rows: int, weight: Array | None) -> Groups:
    check_length("sensitive_features", len(attribute), n_rows)
    groups = _from_codes(
        attribute.codes(), list(attribute._bands.labels), n_rows, weight, attribute.name or "group"
    )
    return replace(groups, measured=np.ascontiguousarray(groups.take_known(attribute._values)))


def _from_labels(values: Any, n_rows: int, weight: Array | None, warn: bool) -> Groups:
    if values is None:
        raise InputError(
            "sensitive_features", "be given: got None", hint="pass one group label per row."
        )
    for name, column in values.items() if isinstance(values, dict) else ():
        if isinstance(column, Continuous):
            raise InputError(
                "sensitive_features", "be categories to be crossed or named in a dict: a "
                "Continuous must stand alone",
                hint=f"pass it by itself, as Continuous(values, {str(name)!r}), or cut it with "
                "evenhand.bands.", where=f"(column {name!r})",
            )  # fmt: skip
    columns = split_columns(values, "sensitive_features", "attribute", refuse_equal_types)
    if not columns:
        raise InputError("sensitive_features", "have at least one column, got none")
    for _, column in columns:
        check_length("sensitive_features", len(column), n_rows)
    names = [name or "group" for name, _ in columns]
    coded = [share_labels(column, *encode(column, name), name) for name, column in columns]
    codes, labels = cross(coded)
    # A crossing need not fill every cell; only categories declared by hand deserve a word.
    word = warn and len(coded) == 1
    return _from_codes(codes, list(labels), n_rows, weight, " × ".join(names), word)


def _from_codes(
    codes: NDArray[Any], labels: list[Any], n_rows: int, weight: Array | None, name: str,
    warn: bool = False,
) -> Groups:  # fmt: skip
    """Groups from numbers of labels, −1 where not known; those without weight are left out."""
    known = codes >= 0
    mass = None if weight is None else weight[known]
    total = np.bincount(codes[known], mass, len(labels)).astype(np.float64)
    held, keep = _with_weight(labels, total, warn)
    if not keep.all():  # rows of a group whose weights are all zero are not known either
        codes = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1)[codes]
        known = codes >= 0
    return Groups(
        held, np.ascontiguousarray(codes[known], dtype=np.intp), None,
        mean_one(None if weight is None else weight[known]), None if known.all() else known,
        n_rows, name,
    )  # fmt: skip


def _with_weight(labels: Sequence[Any], total: Array, warn: bool) -> tuple[tuple[Any, ...], Mask]:
    """The groups whose weight over all rows is positive, and which these are."""
    keep = here().add(total) > 0
    if warn and not keep.all():
        empty = [label for label, k in zip(labels, keep, strict=True) if not k]
        warn_user(
            f"Group {', '.join(map(repr, empty))} has no rows with positive weight and is left "
            "out.",
            GroupWarning,
        )
    return tuple(label for label, k in zip(labels, keep, strict=True) if k), keep


def _warn_small(groups: Groups) -> None:
    if groups.codes is None:
        return
    single = [groups.label_names[k] for k in np.flatnonzero(groups.counts == 1)]
    if single:
        warn_user(
            f"Group {', '.join(map(repr, single))} has a single row, too few to measure anything. "
            "Hint: merge it with another group, or set it to missing.",
            GroupWarning,
        )
