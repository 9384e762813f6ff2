"""What loaders share: columns of text files, and a `Dataset` with or without its groups."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.datasets import Dataset

_BOOK = "Wooldridge, J. M. Introductory Econometrics: A Modern Approach. Cengage Learning."


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


def read_numbers(content: bytes) -> dict[str, NDArray[np.float64]]:
    """Read the columns of a CSV file with a header as numbers; missing is NaN."""
    return {name: to_numbers(text) for name, text in read_text(content).items()}


def describe_textbook(name: str, sha256: str, origin: str, citation: str = "") -> dict[str, str]:
    """Provenance and citation of a data set of Wooldridge's textbook."""
    return {
        "provenance": (
            f"Data set `{name}` of the Python package `wooldridge` (which carries the data sets of "
            f"the textbook). {origin} SHA-256 of the unpacked file {sha256}. No license of "
            "the data is stated."
        ),
        "citation": f"{citation} {_BOOK} Data set {name}.".strip(),
    }
