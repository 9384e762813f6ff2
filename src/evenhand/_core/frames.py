"""Results as columns, and columns as whatever data frame the user has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, cast

import numpy as np

from .installing import install_hint

BACKENDS = ("pandas", "polars", "pyarrow")


def to_frame(columns: Mapping[str, Sequence[Any]], backend: str | None = None) -> Any:
    """A data frame from columns of equal length.

    Parameters
    ----------
    columns : mapping of name to values
    backend : {"pandas", "polars", "pyarrow"}, optional
        When left out what ``sklearn.set_config(transform_output=...)`` says, and else the first of
        these that is installed.
    """
    if backend is None:
        from sklearn import get_config

        wanted = get_config()["transform_output"]
        order = sorted(BACKENDS, key=lambda name: name != wanted)
        backend = next((name for name in order if find_spec(name)), None)
        if backend is None:
            raise ModuleNotFoundError(
                "A data frame needs pandas, polars or pyarrow, and none is installed. Hint: "
                f"{install_hint('pandas')}, or use to_dict()."
            )
    if backend not in BACKENDS:
        raise ValueError(f"`backend` must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    if not find_spec(backend):
        raise ModuleNotFoundError(
            f"`backend` must be an installed library, got {backend!r}. Hint: "
            f"{install_hint(backend)}."
        )
    import narwhals.stable.v2 as nw

    data = {name: list(values) for name, values in columns.items()}
    return nw.from_dict(data, backend=cast(Any, backend)).to_native()


def tabulate(items: Iterable[Any], *names: str, **renamed: str) -> dict[str, list[Any]]:
    """Columns of some attributes of results; a pair such as `interval` becomes `low` and `high`.

    An estimate becomes its value, error and interval. `renamed` are columns by the path of an
    attribute, such as ``p_value="adjusted.p_value"``.
    """
    columns: dict[str, list[Any]] = {}
    items = list(items)
    for name, path in [*zip(names, names, strict=True), *renamed.items()]:
        values = list(map(attrgetter(path), items))
        if name in ("interval", "tolerance", "bounds"):
            prefix = "" if name == "interval" else f"{name}_"
            for j, end in enumerate(("low", "high")):
                columns[prefix + end] = [value[j] for value in values]
        elif values and hasattr(values[0], "interval"):
            part = tabulate(values, "value", "stderr", "interval")
            columns[name] = part.pop("value")
            columns |= {f"{name}_{key}": column for key, column in part.items()}
        else:
            columns[name] = values
    return columns


def json_safe(value: Any) -> Any:
    """Plain values that JSON can hold: lists for tuples, None for what is not finite.

    Of a result what its `to_dict` says, or its fields by name.
    """
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    elif is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        return {str(k): json_safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
