"""What a loader gives back."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..groups.tables import to_frame


@dataclass(frozen=True, eq=False)
class Dataset:
    """A regression data set with a group for every row.

    Attributes
    ----------
    X : (n, p) float array
        Features, categories as one column per level.
    y : (n,) float array
        Target.
    sensitive : (n,) array of str
        Group of each row; pass it as `sensitive_features`.
    feature_names : tuple of str
    target_name, sensitive_name : str
    description : str
        What a row is, how the groups were made and which columns were left out, and why.
    provenance : str
        Where the file comes from, its license and its SHA-256.
    citation : str
    score : (n,) float array or None
        A score to audit, where the data come with one.
    cluster : (n,) array of str or None
        Cluster of each row, where rows are not independent; pass it as `cluster`.
    exposure : (n,) float array or None
        Years at risk of each row, where the target is a rate.
    """

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    sensitive: NDArray[np.str_]
    feature_names: tuple[str, ...]
    target_name: str
    sensitive_name: str
    description: str
    provenance: str
    citation: str
    score: NDArray[np.float64] | None = None
    cluster: NDArray[np.str_] | None = None
    exposure: NDArray[np.float64] | None = None

    def __repr__(self) -> str:
        labels, counts = np.unique(self.sensitive, return_counts=True)
        groups = ", ".join(f"{k} {c}" for k, c in zip(labels, counts, strict=True))
        n, p = self.X.shape
        return f"<Dataset {self.target_name}: {n} rows, {p} features; {groups}>"

    def to_frame(self, backend: str | None = None) -> Any:
        """Features, target, group, and score, cluster and exposure if there are any, as a frame.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
            The first of these that is installed when left out.
        """
        columns: dict[str, Any] = dict(zip(self.feature_names, self.X.T, strict=True))
        columns[self.target_name] = self.y
        columns[self.sensitive_name] = self.sensitive.tolist()
        if self.score is not None:
            columns["score"] = self.score
        if self.cluster is not None:
            columns["cluster"] = self.cluster.tolist()
        if self.exposure is not None:
            columns["exposure"] = self.exposure
        return to_frame(columns, backend)


def one_hot(
    labels: NDArray[np.str_], levels: tuple[str, ...], name: str
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Columns ``name=level``; only the first for two levels, as the other is its complement."""
    used = levels[:1] if len(levels) == 2 else levels
    columns = np.stack([labels == level for level in used], axis=1).astype(np.float64)
    return columns, tuple(f"{name}={level}" for level in used)


def read_text(content: bytes) -> dict[str, NDArray[np.str_]]:
    """The columns of a CSV file with a header, as text; missing is ''."""
    reader = csv.reader(io.StringIO(content.decode("utf-8")))
    header = next(reader)
    columns = zip(*reader, strict=True)
    return {
        name: np.array(column, dtype=np.str_) for name, column in zip(header, columns, strict=True)
    }


def to_numbers(text: NDArray[np.str_]) -> NDArray[np.float64]:
    """Numbers of a text column; NaN where it is ''."""
    return np.where(text == "", "nan", text).astype(np.float64)


def make(
    columns: dict[str, NDArray[np.float64]],
    groups: NDArray[np.str_],
    levels: tuple[str, ...],
    *,
    sensitive_name: str,
    include_sensitive: bool,
    **rest: Any,
) -> Dataset:
    """A `Dataset` of these features, with the groups among them on request.

    The last sentence of the description then says so, whichever it is.
    """
    X = np.column_stack(list(columns.values()))
    names: tuple[str, ...] = tuple(columns)
    if include_sensitive:
        added, added_names = one_hot(groups, levels, sensitive_name)
        X, names = np.hstack([X, added]), (*names, *added_names)
    word = "" if include_sensitive else "not "
    rest["description"] += f"\n{sensitive_name.capitalize()} is {word}among the features."
    return Dataset(
        X=np.ascontiguousarray(X),
        sensitive=groups.astype(np.str_),
        feature_names=names,
        sensitive_name=sensitive_name,
        **rest,
    )


def check_option(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"`{name}` must be one of {', '.join(allowed)}, got {value!r}.")
