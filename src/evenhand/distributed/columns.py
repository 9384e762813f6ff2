"""Which column is what, and a worker's part of a table as the columns of a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..groups.validation import quote

# Rows that are turned from columns into rows at a time, within the cache.
TURNED = 4_096
# Arguments of `fit` that are one column of numbers each.
NUMBERS = ("y", "sample_weight", "exposure", "offset", "given")


@dataclass(frozen=True)
class Roles:
    """Columns of a table by what they are to a fit.

    Attributes
    ----------
    features : tuple of str
    groups : tuple of str
        Columns of `sensitive_features`; empty without.
    numbers : dict
        Argument → column, of `NUMBERS`.
    single : bool
        Whether all features are float32, and stay so.
    """

    features: tuple[str, ...]
    groups: tuple[str, ...]
    numbers: dict[str, str]
    single: bool

    @property
    def names(self) -> list[str]:
        """All columns that are read, each once."""
        return list(dict.fromkeys([*self.features, *self.groups, *self.numbers.values()]))


def find_roles(
    kinds: Mapping[str, str], features: Any, groups: Any, numbers: Mapping[str, Any]
) -> Roles:
    """Check names against the columns there are.

    Parameters
    ----------
    kinds : mapping
        Column → "float32", "number" or "other".
    features : list of str or None
        None for every column of numbers that is nothing else.
    groups : str, list of str or None
    numbers : mapping
        Argument → column or None.
    """
    used = {argument: name for argument, name in numbers.items() if name is not None}
    labels = () if groups is None else _names(groups, "sensitive_features")
    for argument, name in [*used.items(), *(("sensitive_features", name) for name in labels)]:
        _check_name(name, argument, kinds)
    for argument, name in used.items():
        if kinds[name] == "other":
            raise ValueError(f"`{argument}` must be a column of numbers, got {quote(name)}.")
    if features is None:
        taken = {*labels, *used.values()}
        chosen = tuple(
            name for name, kind in kinds.items() if kind != "other" and name not in taken
        )
        if not chosen:
            raise ValueError("`features` must name at least one column: no other holds numbers.")
    else:
        chosen = _names(features, "features")
        if used.get("y") in chosen:
            raise ValueError(f"`features` must not hold the target, got {quote(used['y'])}.")
        for name in chosen:
            _check_name(name, "features", kinds)
            if kinds[name] == "other":
                raise ValueError(
                    f"`features` must be columns of numbers, got {quote(name)}. Hint: make numbers "
                    "of text and categories first, by evenhand.TableEncoder fitted on a sample."
                )
    single = all(kinds[name] == "float32" for name in chosen)
    return Roles(chosen, labels, used, single)


def _names(value: Any, argument: str) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else value
    good = isinstance(found, Sequence) and all(isinstance(name, str) for name in found)
    if not good or not len(found) or len(set(found)) < len(found):
        raise ValueError(
            f"`{argument}` must be the name of a column or a list of distinct names, got "
            f"{quote(value)}."
        )
    return tuple(found)


def _check_name(name: Any, argument: str, kinds: Mapping[str, str]) -> None:
    if not isinstance(name, str) or name not in kinds:
        there = ", ".join(list(kinds)[:20])
        raise ValueError(
            f"`{argument}` must be a column of the table, got {quote(name)}. There are: {there}."
        )


def rows_of_frames(roles: Roles, parts: Sequence[Any]) -> dict[str, Any]:
    """A worker's partitions, pandas frames, as the arguments of a fit."""
    import pandas as pd

    def column(frame: Any, name: str) -> Any:
        values = frame[name]
        if values.dtype in (np.float32, np.float64):
            return values.to_numpy()
        return values.to_numpy(dtype=np.float64, na_value=np.nan)

    def labels(name: str) -> Any:
        # Categories may differ between partitions: their values are what they have in common.
        found = [
            part[name].astype(object) if part[name].dtype == "category" else part[name]
            for part in parts
        ]
        return pd.concat(found).reset_index(drop=True) if found else np.empty(0, dtype=object)

    return _rows(roles, [len(part) for part in parts], parts, column, labels)


def rows_of_batches(roles: Roles, parts: Sequence[Any]) -> dict[str, Any]:
    """The same for Arrow record batches."""
    import pyarrow as pa

    def column(batch: Any, name: str) -> Any:
        values = batch.column(name)
        if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
            values = values.cast(pa.float64())
        return values.to_numpy(zero_copy_only=False)

    def labels(name: str) -> Any:
        found = [part.column(name) for part in parts]
        return pa.chunked_array(found) if found else np.empty(0, dtype=object)

    return _rows(roles, [part.num_rows for part in parts], parts, column, labels)


def _rows(
    roles: Roles, sizes: list[int], parts: Sequence[Any], column: Any, labels: Any
) -> dict[str, Any]:
    n = sum(sizes)
    ends = np.cumsum([0, *sizes])
    X = np.empty((n, len(roles.features)), dtype=np.float32 if roles.single else np.float64)
    out: dict[str, Any] = {name: np.empty(n) for name in roles.numbers}
    for part, start, stop in zip(parts, ends[:-1], ends[1:], strict=True):
        columns = [column(part, name) for name in roles.features]
        for begin in range(0, stop - start, TURNED):
            rows = slice(begin, min(begin + TURNED, stop - start))
            for j, values in enumerate(columns):
                X[start + rows.start : start + rows.stop, j] = values[rows]
        for argument, name in roles.numbers.items():
            out[argument][start:stop] = column(part, name)
    if roles.groups:
        found = {name: labels(name) for name in roles.groups}
        out["sensitive_features"] = found if len(found) > 1 else found[roles.groups[0]]
    return {"X": X, **out}


def rows_of_arrays(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A worker's blocks, each a dict of arrays by argument, as the arguments of a fit."""
    from scipy import sparse

    out: dict[str, Any] = {}
    for argument in parts[0]:
        blocks = [part[argument] for part in parts]
        for block, X in zip(blocks, (part["X"] for part in parts), strict=True):
            if block.shape[0] != X.shape[0]:
                raise ValueError(
                    f"`{argument}` must have its rows in the same blocks as the data, got "
                    f"{block.shape[0]} rows beside {X.shape[0]}. Hint: rechunk both alike."
                )
        if sparse.issparse(blocks[0]):
            out[argument] = sparse.vstack(blocks, format="csr")
        else:
            out[argument] = _joined(blocks)
    return out


def _joined(blocks: list[NDArray[Any]]) -> NDArray[Any]:
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
