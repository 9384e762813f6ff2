"""Results as columns, and columns as whatever data frame the user has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, cast

import numpy as np

BACKENDS = ("pandas", "polars", "pyarrow")


def to_frame(columns: Mapping[str, Sequence[Any]], backend: str | None = None) -> Any:
    """A data frame from columns of equal length.

    Parameters
    ----------
    columns : mapping of name to values
    backend : {"pandas", "polars", "pyarrow"}, optional
        The first of these that is installed when left out.
    """
    if backend is None:
        backend = next((name for name in BACKENDS if find_spec(name)), None)
        if backend is None:
            raise ModuleNotFoundError(
                "A data frame needs pandas, polars or pyarrow, and none is installed. Hint: pip "
                "install pandas, or use to_dict()."
            )
    if backend not in BACKENDS:
        raise ValueError(f"`backend` must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    if not find_spec(backend):
        raise ModuleNotFoundError(
            f"`backend` must be an installed library, got {backend!r}. Hint: pip install {backend}."
        )
    import narwhals.stable.v2 as nw

    data = {name: list(values) for name, values in columns.items()}
    return nw.from_dict(data, backend=cast(Any, backend)).to_native()


def tabulate(items: Iterable[Any], *names: str) -> dict[str, list[Any]]:
    """Columns of some attributes of results; a pair such as `interval` becomes `low` and `high`."""
    columns: dict[str, list[Any]] = {}
    items = list(items)
    for name in names:
        values = [getattr(item, name) for item in items]
        if name in ("interval", "tolerance", "bounds"):
            prefix = "" if name == "interval" else f"{name}_"
            for j, end in enumerate(("low", "high")):
                columns[prefix + end] = [value[j] for value in values]
        else:
            columns[name] = values
    return columns


def json_safe(value: Any) -> Any:
    """Plain values that JSON can hold: lists for tuples, None for what is not finite."""
    if isinstance(value, dict):
        return {str(k): json_safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
