"""Who belongs to which group: codes, crossed attributes, proxies and missing values.

Every other module sees group membership only as a :class:`Groups`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray

# A float column with more distinct values than this is taken for a measurement, not a category.
MAX_FLOAT_CATEGORIES = 20
# Integer codes may be many (40 regions), but an age in days or an identifier is not a group.
MAX_INTEGER_CATEGORIES = 200


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
        Group number of each known row.
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
    """

    labels: tuple[Any, ...]
    codes: NDArray[np.intp] | None
    probabilities: NDArray[np.float64] | None
    weight: NDArray[np.float64] | None
    known: NDArray[np.bool_] | None
    n_rows: int
    name: str = "group"

    @property
    def n_groups(self) -> int:
        return len(self.labels)

    @property
    def n_known(self) -> int:
        rows = self.codes if self.codes is not None else self.probabilities
        assert rows is not None
        return len(rows)

    @property
    def n_unknown(self) -> int:
        return self.n_rows - self.n_known

    @cached_property
    def n_effective(self) -> float:
        """(Σw)² / Σw²: the number of equally weighted rows that carry as much information."""
        if self.weight is None:
            return float(self.n_known)
        return float(self.weight.sum() ** 2 / np.square(self.weight).sum())

    @cached_property
    def counts(self) -> NDArray[np.float64]:
        """Rows per group, unweighted; expected rows for a proxy."""
        if self.codes is not None:
            return np.bincount(self.codes, minlength=self.n_groups).astype(float)
        assert self.probabilities is not None
        return self.probabilities.sum(axis=0)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Weighted share of each group, P(A = k)."""
        if self.codes is not None:
            counts = np.bincount(self.codes, weights=self.weight, minlength=self.n_groups)
            totals = counts.astype(np.float64)
        else:
            assert self.probabilities is not None
            weight = np.ones(self.n_known) if self.weight is None else self.weight
            totals = weight @ self.probabilities
        return totals / totals.sum()

    @cached_property
    def entropy(self) -> float:
        """H(A) = −Σ_k P(k) log P(k), in nats."""
        shares = self.shares[self.shares > 0]
        return float(-(shares * np.log(shares)).sum())

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels as text; crossed labels joined with " × "."""
        return tuple(
            " × ".join(map(str, label)) if isinstance(label, tuple) else str(label)
            for label in self.labels
        )

    def membership(self) -> NDArray[np.float64]:
        """(m, K) membership: one-hot rows, or the proxy's probabilities."""
        if self.probabilities is not None:
            return self.probabilities
        assert self.codes is not None
        out = np.zeros((self.n_known, self.n_groups))
        out[np.arange(self.n_known), self.codes] = 1.0
        return out

    def take(self, rows: NDArray[np.intp]) -> Groups:
        """Membership of some of the n rows, with the same labels; a group may end up empty."""
        keep: Any = rows
        known = None
        if self.known is not None:
            known = self.known[rows]
            keep = (np.cumsum(self.known) - 1)[rows[known]]
            known = None if known.all() else known
        weight = None if self.weight is None else _mean_one(self.weight[keep])
        codes = None if self.codes is None else self.codes[keep]
        table = None if self.probabilities is None else self.probabilities[keep]
        return Groups(self.labels, codes, table, weight, known, len(rows), self.name)

    def take_known(self, values: NDArray[Any]) -> NDArray[Any]:
        """The entries of a length-n array that belong to known rows (no copy if all are known)."""
        return values if self.known is None else values[self.known]

    def put_known(self, values: NDArray[Any]) -> NDArray[Any]:
        """A length-n array with `values` in the known rows and zero elsewhere."""
        if self.known is None:
            return values
        out = np.zeros(self.n_rows, dtype=values.dtype)
        out[self.known] = values
        return out


@dataclass(frozen=True)
class Proxy:
    """Membership probabilities, where the group itself is not recorded.

    Parameters
    ----------
    probabilities : (n, K) array or frame
        P(A = k) for each row, nonnegative, each row summing to one. A row that holds a missing
        value is a row whose group is not known. With exactly two `classes` a 1-D array is read
        as the probability of the second one.
    classes : sequence of length K, optional
        The groups. Column names of a frame are used when left out.

    Notes
    -----
    Imputed membership (surname and address, say) measures *the imputed group*: information about
    the true group that the proxy does not carry is not seen.
    """

    probabilities: Any
    classes: Sequence[Any] | None = None
    _table: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _labels: tuple[Any, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        labels: Sequence[Any] | None = self.classes
        frame = nw.from_native(self.probabilities, eager_only=True, pass_through=True)
        if isinstance(frame, nw.DataFrame):
            labels = frame.columns if labels is None else labels
            table = frame.to_numpy()
        else:
            table = np.asarray(self.probabilities)
        try:
            table = table.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                "`probabilities` of a Proxy must be numbers, got an array of dtype "
                f"{table.dtype}. Hint: for known groups pass the labels themselves."
            ) from None
        if table.ndim == 1 and labels is not None and len(labels) == 2:
            table = np.column_stack([1.0 - table, table])
        if table.ndim != 2:
            raise ValueError(
                "`probabilities` of a Proxy must be 2-D, one column per class, got shape "
                f"{table.shape}."
            )
        if labels is None:
            labels = range(table.shape[1])
        if len(labels) != table.shape[1]:
            raise ValueError(
                f"`classes` of a Proxy must name every column of `probabilities`: got "
                f"{len(labels)} classes for {table.shape[1]} columns."
            )
        if len(set(labels)) != len(labels):
            raise ValueError(f"`classes` of a Proxy must be distinct, got {list(labels)!r}.")
        known = ~np.isnan(table).any(axis=1)
        rows = table[known]
        off = np.abs(rows.sum(axis=1) - 1.0) > 1e-3
        negative = (rows < -1e-9).any(axis=1) | ~np.isfinite(rows).all(axis=1)
        if negative.any() or off.any():
            bad = int(np.flatnonzero(known)[np.flatnonzero(negative | off)[0]])
            raise ValueError(
                "`probabilities` of a Proxy must be nonnegative and sum to 1 in each row; row "
                f"{bad} is {table[bad].tolist()}. Hint: use NaN in a row whose group is unknown."
            )
        rows = np.clip(rows, 0.0, None)
        table[known] = rows / rows.sum(axis=1, keepdims=True)
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "_labels", tuple(labels))

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, rows: Any) -> Proxy:
        """Rows of the proxy, so that cross-validation can split it."""
        return Proxy(self._table[rows], self._labels)

    # scikit-learn's splitter takes `shape`, `__len__` and integer indexing for an array.
    @property
    def shape(self) -> tuple[int, int]:
        return self._table.shape

    def _find(self) -> tuple[NDArray[np.float64], tuple[Any, ...]]:
        return self._table, self._labels


def resolve_groups(
    sensitive_features: Any,
    *,
    n_rows: int,
    sample_weight: ArrayLike | None = None,
    require_two: bool = True,
    warn: bool = True,
) -> Groups:
    """Read any accepted form of `sensitive_features` into :class:`Groups`.

    Parameters
    ----------
    sensitive_features : array, series, frame or Proxy
        See the package documentation for the accepted forms.
    n_rows : int
        Number of rows expected.
    sample_weight : (n,) array, optional
        Nonnegative weights. A group whose weights are all zero counts as empty.
    require_two : bool
        Refuse a single group, for which no comparison can be made.
    warn : bool
        Warn of empty groups and of groups of one row; no use where rows are only looked up.
    """
    if sensitive_features is None:
        raise ValueError(
            "`sensitive_features` must be given: got None. Hint: pass one group label per row."
        )
    weight = check_weight(sample_weight, n_rows)
    if isinstance(sensitive_features, Proxy):
        groups = _from_proxy(sensitive_features, n_rows, weight, warn)
    else:
        groups = _from_labels(sensitive_features, n_rows, weight, warn)
    if require_two and groups.n_groups < 2:
        found = f"only {groups.label_names[0]!r}" if groups.n_groups else "no known group"
        raise ValueError(
            f"`sensitive_features` must hold at least two groups to compare, found {found} in "
            f"{groups.n_known} rows with a known group. Hint: in cross-validation, stratify the "
            "folds by group so that every fold holds each of them."
        )
    if warn:
        _warn_small(groups)
    return groups


def count_rows(sensitive_features: Any) -> int:
    """Number of rows of any accepted form of `sensitive_features`."""
    if isinstance(sensitive_features, dict):
        return len(next(iter(sensitive_features.values()), ()))
    return 0 if sensitive_features is None else len(sensitive_features)


def check_weight(sample_weight: ArrayLike | None, n_rows: int) -> NDArray[np.float64] | None:
    """Validate sample weights; None stays None."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight)
    if weight.ndim == 0:
        weight = np.full(n_rows, weight)
    try:
        weight = weight.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"`sample_weight` must be numbers, got dtype {weight.dtype}.") from None
    if weight.ndim != 1:
        # scikit-learn's common checks expect this wording.
        raise ValueError(f"Sample weights must be 1D array or scalar, got shape {weight.shape}.")
    if len(weight) != n_rows:
        raise ValueError(
            f"`sample_weight` must have one entry per row: got {len(weight)} for {n_rows} rows."
        )
    if not np.isfinite(weight).all():
        raise ValueError("`sample_weight` must be finite: it holds NaN or infinity.")
    if (weight < 0).any():
        raise ValueError(f"`sample_weight` must be nonnegative, got {weight.min()}.")
    if not weight.any():
        raise ValueError("`sample_weight` must not be zero in every row.")
    return weight


def _check_length(found: int, n_rows: int) -> None:
    if found != n_rows:
        raise ValueError(
            f"`sensitive_features` must have one entry per row: got {found} for {n_rows} rows."
        )


def _from_proxy(
    proxy: Proxy, n_rows: int, weight: NDArray[np.float64] | None, warn: bool
) -> Groups:
    table, labels = proxy._find()
    _check_length(len(table), n_rows)
    known: NDArray[np.bool_] = ~np.isnan(table).any(axis=1)
    rows = table[known]
    w = None if weight is None else weight[known]
    total = rows.sum(axis=0) if w is None else w @ rows
    keep = total > 0
    if not keep.all():
        if warn:
            _warn_empty([label for label, k in zip(labels, keep, strict=True) if not k])
        rows = np.ascontiguousarray(rows[:, keep])
        labels = tuple(label for label, k in zip(labels, keep, strict=True) if k)
    return Groups(labels, None, rows, _mean_one(w), None if known.all() else known, n_rows)


def _from_labels(
    values: Any, n_rows: int, weight: NDArray[np.float64] | None, warn: bool
) -> Groups:
    columns = _columns(values)
    if not columns:
        raise ValueError("`sensitive_features` must have at least one column, got none.")
    for _, column in columns:
        _check_length(len(column), n_rows)
    names = [name or "group" for name, _ in columns]
    coded = [_encode(column, name) for name, column in columns]
    if len(coded) == 1:
        codes, labels = coded[0]
    else:
        codes, labels = _cross(coded)
    known = codes >= 0
    if not known.all():
        codes = codes[known]
    w = None if weight is None else weight[known]
    total = np.bincount(codes, weights=w, minlength=len(labels))
    keep = total > 0
    if not keep.all():
        # A crossing need not fill every cell; only categories declared by hand deserve a word.
        if warn and len(coded) == 1:
            _warn_empty([label for label, k in zip(labels, keep, strict=True) if not k])
        present = keep[codes]
        if not present.all():  # rows of a group whose weights are all zero
            index = np.flatnonzero(known)
            known = known.copy()
            known[index[~present]] = False
            codes = codes[present]
            w = None if w is None else w[present]
        codes = (np.cumsum(keep) - 1)[codes]
        labels = [label for label, k in zip(labels, keep, strict=True) if k]
    return Groups(
        tuple(labels),
        np.ascontiguousarray(codes, dtype=np.intp),
        None,
        _mean_one(w),
        None if known.all() else known,
        n_rows,
        " × ".join(names),
    )


def _columns(values: Any) -> list[tuple[str | None, Any]]:
    """Split the input into named columns: narwhals series or 1-D NumPy arrays."""
    if hasattr(values, "__arrow_c_array__") and not hasattr(values, "columns"):
        # A bare Arrow array is not a narwhals series; a chunked one is.
        import pyarrow as pa

        if isinstance(values, pa.Array):
            values = pa.chunked_array([values])
    if isinstance(values, dict):
        return [(str(key), _columns(column)[0][1]) for key, column in values.items()]
    native = nw.from_native(values, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(native, nw.DataFrame):
        return [(str(name), native[name]) for name in native.columns]
    if isinstance(native, nw.Series):
        return [(native.name or None, native)]
    if isinstance(values, np.ma.MaskedArray):
        mask, values = np.ma.getmaskarray(values), np.ma.getdata(values).astype(object)
        values[mask] = None
    array = np.asarray(values)
    if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
        # np.asarray(["a", None]) is an object array but ["a", float("nan")] is text "nan".
        array = np.asarray(values, dtype=object)
    if array.ndim == 1:
        return [(None, array)]
    if array.ndim == 2 and array.shape[1] == 1:
        return [(None, array[:, 0])]
    if array.ndim == 2:
        return [(f"attribute {j}", array[:, j]) for j in range(array.shape[1])]
    raise ValueError(
        f"`sensitive_features` must be 1-D (one label per row) or 2-D (one column per "
        f"attribute), got shape {array.shape}."
    )


def _encode(column: Any, name: str | None) -> tuple[NDArray[np.intp], list[Any]]:
    """Codes (−1 where missing) and the sorted labels of one column."""
    if isinstance(column, nw.Series):
        return _encode_series(column, name)
    if column.dtype.kind in "iu" and len(column):
        low, high = int(column.min()), int(column.max())
        if high - low <= 4 * MAX_INTEGER_CATEGORIES:
            # Small integers are the usual coding: count instead of sorting.
            # Narrow types would overflow in the difference of their extremes.
            wide = column.astype(np.int64) if column.dtype.itemsize < 8 else column
            offset = (wide - low).astype(np.intp)
            present = np.bincount(offset) > 0
            lookup = np.cumsum(present) - 1
            labels = [low + int(k) for k in np.flatnonzero(present)]
            _check_count(labels, len(column), "integer", name)
            return lookup[offset], labels
    if column.dtype.kind == "b":
        labels = [bool(v) for v in (False, True) if (column == v).any()]
        return (column.astype(np.intp) - (labels == [True])), list(labels)
    if column.dtype.kind == "f":
        missing = np.isnan(column)
        values, inverse = np.unique(column[~missing], return_inverse=True)
        labels = [int(v) if float(v).is_integer() else float(v) for v in values]
        _check_count(labels, len(column), "float", name)
        codes = np.full(len(column), -1, dtype=np.intp)
        codes[~missing] = inverse
        return codes, labels
    if column.dtype.kind == "O":
        return _encode_objects(column, name)
    if column.dtype.kind in "Mm":
        column = column.astype("datetime64[s]" if column.dtype.kind == "M" else column.dtype)
        missing = np.isnat(column)
    else:
        missing = np.zeros(len(column), dtype=bool)
    values, inverse = np.unique(column[~missing], return_inverse=True)
    kind = "integer" if column.dtype.kind in "iu" else "text"
    _check_count(values.tolist(), len(column), kind, name)
    codes = np.full(len(column), -1, dtype=np.intp)
    codes[~missing] = inverse
    return codes, values.tolist()


def _encode_objects(column: NDArray[Any], name: str | None) -> tuple[NDArray[np.intp], list[Any]]:
    seen: dict[Any, int] = {}
    codes = np.empty(len(column), dtype=np.intp)
    for i, value in enumerate(column.tolist()):
        try:
            codes[i] = -1 if _is_missing(value) else seen.setdefault(value, len(seen))
        except (TypeError, ValueError):  # not hashable; an array compares to an array
            raise ValueError(
                "`sensitive_features` must hold labels (text, numbers, booleans), got an "
                f"element of type {type(value).__name__}."
            ) from None
    labels = list(seen)
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in labels)
    kind = "text"
    if numeric and labels:
        kind = "float" if any(isinstance(v, float) for v in labels) else "integer"
    _check_count(labels, len(column), kind, name)
    return _sort_labels(codes, labels)


def _encode_series(column: nw.Series[Any], name: str | None) -> tuple[NDArray[np.intp], list[Any]]:
    dtype = column.dtype
    if dtype == nw.Object:
        return _encode_objects(np.fromiter(column.to_list(), dtype=object, count=len(column)), name)
    if dtype.is_numeric() or dtype == nw.Boolean:
        missing = column.is_null().to_numpy().astype(bool)
        if not missing.any():
            array = column.to_numpy()
            if array.dtype.kind in "iufb":
                return _encode(array, name)
        if dtype.is_float():
            return _encode(column.fill_null(float("nan")).to_numpy().astype(float), name)
        # Integers or booleans with gaps: encode what is there and put the gaps back.
        values = np.array([v for v in column.to_list() if not _is_missing(v)])
        codes = np.full(len(column), -1, dtype=np.intp)
        if not len(values):
            return codes, []
        codes[~missing], labels = _encode(values, name)
        return codes, labels
    categories: list[Any] | None = None
    if isinstance(dtype, nw.Categorical | nw.Enum) or dtype in (nw.Categorical, nw.Enum):
        categories = column.cat.get_categories().to_list()
        if len(set(map(type, categories))) == 1 and isinstance(categories[0], int | float):
            _check_count(categories, len(column), "integer", name)
    # Null tests differ between backends; unique() and the dictionary below settle it once.
    uniques = [v for v in column.unique().to_list() if not _is_missing(v)]
    labels = uniques if categories is None else categories
    if categories is None:
        _check_count(labels, len(column), "text", name)
        labels = _sorted(labels)
    position = {label: k for k, label in enumerate(labels)}
    if dtype == nw.String and uniques:
        replaced = column.replace_strict(
            labels, list(range(len(labels))), default=-1, return_dtype=nw.Int64
        )
        codes = replaced.fill_null(-1).to_numpy().astype(np.intp)
    else:
        codes = np.fromiter(
            (-1 if _is_missing(v) else position[v] for v in column.to_list()),
            dtype=np.intp,
            count=len(column),
        )
    return codes, list(labels)


def _is_missing(value: Any) -> bool:
    # pandas.NA compares to NA, not to a truth value, so it is told by its type.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def _sorted(labels: list[Any]) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError:  # mixed types: a stable order that does not depend on the rows
        return sorted(labels, key=lambda v: (type(v).__name__, str(v)))


def _sort_labels(codes: NDArray[np.intp], labels: list[Any]) -> tuple[NDArray[np.intp], list[Any]]:
    ordered = _sorted(labels)
    rank = {label: k for k, label in enumerate(ordered)}
    lookup = np.array([rank[label] for label in labels] + [-1], dtype=np.intp)
    return lookup[codes], ordered


def _cross(
    coded: list[tuple[NDArray[np.intp], list[Any]]],
) -> tuple[NDArray[np.intp], list[Any]]:
    """Intersections of several attributes; unknown where any of them is."""
    combined = np.zeros(len(coded[0][0]), dtype=np.int64)
    missing = np.zeros(len(combined), dtype=bool)
    for codes, labels in coded:
        missing |= codes < 0
        combined = combined * len(labels) + codes
    combined[missing] = -1
    cells, inverse = np.unique(combined[~missing], return_inverse=True)
    out = np.full(len(combined), -1, dtype=np.intp)
    out[~missing] = inverse
    crossed = []
    for cell in cells.tolist():
        parts = []
        for _, labels in reversed(coded):
            cell, k = divmod(cell, len(labels))
            parts.append(labels[k])
        crossed.append(tuple(reversed(parts)))
    return out, crossed


def _check_count(labels: list[Any], n_rows: int, kind: str, name: str | None) -> None:
    """Refuse a measurement or an identifier where a category is meant."""
    count = len(labels)
    where = f" (column {name!r})" if name else ""
    if kind == "float":
        if count > MAX_FLOAT_CATEGORIES:
            raise ValueError(
                f"`sensitive_features`{where} must be categories, got a float column with {count} "
                "distinct values. Hint: bin it first, for example numpy.digitize(age, [30, 45, "
                "60]) or pandas.qcut(age, 4)."
            )
    elif kind == "integer" and count > MAX_INTEGER_CATEGORIES:
        raise ValueError(
            f"`sensitive_features`{where} must be categories, got integers with {count} "
            f"distinct values, from {min(labels)} to {max(labels)}. Hint: bin a measurement "
            "(numpy.digitize, pandas.qcut); drop an identifier; if these truly are groups, "
            "pass them as text."
        )
    if kind != "float" and n_rows > 20 and count > n_rows / 2:
        raise ValueError(
            f"`sensitive_features`{where} must be categories, got {count} distinct values in "
            f"{n_rows} rows, which looks like an identifier."
        )


def _warn_empty(labels: list[Any]) -> None:
    warnings.warn(
        f"`sensitive_features`: {', '.join(map(repr, labels))} has no rows with positive weight "
        "and is left out.",
        GroupWarning,
        stacklevel=4,
    )


def _warn_small(groups: Groups) -> None:
    if groups.codes is None:
        return
    single = [groups.label_names[k] for k in np.flatnonzero(groups.counts == 1)]
    if single:
        warnings.warn(
            f"`sensitive_features`: {', '.join(map(repr, single))} has a single row, from which "
            "no distribution can be told. Hint: merge it with another group, or set it to missing.",
            GroupWarning,
            stacklevel=3,
        )


def _mean_one(weight: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    if weight is None or not len(weight):
        return None
    return weight * (len(weight) / weight.sum())
