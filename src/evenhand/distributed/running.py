"""A program to wherever the rows are."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from .worker import Found, Program


def run_on(
    program: Program, data: Any, client_or_spark: Any, numbers: dict[str, Any], groups: Any,
    features: Any, timeout: float,
) -> Found:  # fmt: skip
    """Run it on every worker that holds rows.

    Parameters
    ----------
    program : Program
    data, client_or_spark, features, timeout
        Of :func:`evenhand.distributed.fit`.
    numbers : dict
        Argument → column, or None.
    groups : Any
        Its `sensitive_features`.
    """
    if not isinstance(timeout, Real) or isinstance(timeout, bool) or not 0 < timeout < np.inf:
        raise ValueError(f"`timeout` must be a positive number of seconds, got {timeout!r}.")
    if numbers["y"] is None:
        raise ValueError("`y` must be given, got None.")
    library = type(data).__module__.split(".")[0]
    columns = (numbers, groups, features, float(timeout))
    if library.startswith("dask"):
        from .on_dask import run_dask

        return run_dask(program, data, client_or_spark, *columns)
    if library == "pyspark":
        from .on_spark import run_spark

        return run_spark(program, data, client_or_spark, *columns)
    raise TypeError(
        "`data` must be a Dask DataFrame, a Dask Array or a PySpark DataFrame, got "
        f"{type(data).__name__}. Hint: rows in memory need no cluster."
    )
