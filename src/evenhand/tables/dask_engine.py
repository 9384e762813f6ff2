"""Dask: every partition is counted where it lies, and the cells are added up.

Partitions are pandas frames. Nothing but facts, a sample and cells travels.
"""

from __future__ import annotations

import math
import time
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from .._core.arrays import Vector
from ..data.encoding import MISSING
from ..measures.cells import Cells, merge
from ..measures.edges import Edges
from .plan import (
    Columns,
    EngineError,
    Expressions,
    check_levels,
    ends,
    facts,
    in_short,
    kept,
    kind_of,
    label_of,
    share,
    weight_factor,
    without_blank,
)

_ADDED = ("n", "n_used", "fractions", "people")
# Partial cells that are added up in one task.
_TOGETHER = 16
# Seconds that a cluster may be without workers, and between two looks at it.
ALONE, _LOOK = 300.0, 2.0


class DaskTable:
    """A Dask DataFrame."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame

    @property
    def rows(self) -> nw.LazyFrame[Any]:
        """As narwhals sees it."""
        return nw.from_native(self.frame)

    def kinds(self) -> dict[str, str]:
        return {name: kind_of(dtype) for name, dtype in self.rows.collect_schema().items()}

    def facts(self, columns: Columns) -> dict[str, float]:
        """What `plan.facts` asks for, of all partitions together."""
        parts = self._run(_facts, columns)
        return _joined([part for part in parts if part["n"]] or parts[:1])

    def sample(self, columns: Columns, facts: dict[str, float]) -> tuple[Vector, Vector | None]:
        """Scores and targets of some rows, by their place in their partition."""
        parts = self._run(_some, columns, share(facts))
        s = np.concatenate([part[0] for part in parts])
        return s, None if columns.target is None else np.concatenate([part[1] for part in parts])

    def ends(self, columns: Columns, edges: Edges) -> tuple[float, float]:
        """Least and largest residual."""
        found = np.array(self._run(_ends, columns, edges))
        return float(np.nanmin(found[:, 0])), float(np.nanmax(found[:, 1]))

    def cells(self, columns: Columns, edges: Edges, facts: dict[str, float]) -> Cells:
        """Cells of the partitions, added up some at a time on the workers."""
        import dask

        parts = self._tasks(_count, columns, edges, weight_factor(facts))
        while len(parts) > 1:
            parts = [
                dask.delayed(_merged)(parts[k : k + _TOGETHER])
                for k in range(0, len(parts), _TOGETHER)
            ]
        (cells,) = self._compute(parts)
        several = len(columns.groups) > 1
        for j, name in enumerate(columns.groups):
            levels = {label[j] if several else label for label in cells.labels}
            check_levels(len(levels), name, columns.role(name))
        return without_blank(cells)

    def explain(self, columns: Columns, edges: Edges, facts: dict[str, float]) -> str:
        """There is no query."""
        return (
            f"No query: Cells.from_rows on each of {self.frame.npartitions} partitions, of columns "
            f"{', '.join(columns.names)} and {edges.kind}, added up {_TOGETHER} at a time."
        )

    def _run(self, function: Any, columns: Columns, *arguments: Any) -> list[Any]:
        return self._compute(self._tasks(function, columns, *arguments))

    def _tasks(self, function: Any, columns: Columns, *arguments: Any) -> list[Any]:
        import dask

        parts = self.frame[columns.names].to_delayed()
        return [
            dask.delayed(function)(part, number, columns, *arguments)
            for number, part in enumerate(parts)
        ]

    def _compute(self, tasks: list[Any]) -> list[Any]:
        import dask

        try:
            # The client of a cluster, where one is to do the work.
            client = getattr(dask.base.get_scheduler(), "__self__", None)
            return list(dask.compute(*tasks) if client is None else _gathered(client, tasks))
        except (MemoryError, ValueError):
            raise
        except Exception as error:  # whatever a worker or a reader of files raises
            raise EngineError(f"`table` cannot be read by Dask: {in_short(error)}") from error


def _gathered(client: Any, tasks: list[Any]) -> list[Any]:
    """Results of a cluster, which would be waited for without end where it has no workers."""
    from distributed import wait

    futures = client.compute(tasks)
    since = time.monotonic()
    while True:
        try:
            wait(futures, timeout=_LOOK)
            return list(client.gather(futures))
        except TimeoutError:
            if client.scheduler_info()["workers"]:
                since = time.monotonic()
            elif time.monotonic() - since > ALONE:
                client.cancel(futures)
                raise ValueError(
                    f"`table` cannot be read by Dask: its cluster has had no worker for {ALONE:g} "
                    "seconds. Hint: look at what the last of them wrote, and start others."
                ) from None


def _column(frame: Any, name: str) -> Vector:
    return frame[name].to_numpy(dtype=np.float64, na_value=np.nan)


def _row(frame: Any, expressions: Expressions) -> dict[str, Any]:
    """Aggregates of a frame; NaN where there is nothing to aggregate."""
    (row,) = frame.select(**expressions).rows(named=True)
    return {key: math.nan if value is None else float(value) for key, value in row.items()}


def _facts(frame: Any, number: int, columns: Columns) -> dict[str, Any]:
    return _row(nw.from_native(frame), facts(columns))


def _joined(parts: list[dict[str, Any]]) -> dict[str, float]:
    out: dict[str, float] = {}
    for key in parts[0]:
        values = [part[key] for part in parts]
        if key in _ADDED or key.startswith("bad_"):
            out[key] = float(sum(values))
        else:
            # Of levels the most in one partition, which all of them together have at least.
            join = np.fmin if key.startswith("least_") else np.fmax
            out[key] = float(join.reduce(values))
    return out


def _some(frame: Any, number: int, columns: Columns, share: float) -> tuple[Any, ...]:
    frame = kept(nw.from_native(frame), columns).to_native()
    if share < 1.0:
        frame = frame[np.random.default_rng(number).random(len(frame)) <= share]
    s = _column(frame, columns.score)
    return s, None if columns.target is None else _column(frame, columns.target)


def _ends(frame: Any, number: int, columns: Columns, edges: Edges) -> tuple[float, float]:
    row = _row(kept(nw.from_native(frame), columns), ends(columns, edges))
    return row["least"], row["largest"]


def _count(frame: Any, number: int, columns: Columns, edges: Edges, factor: float) -> Cells | None:
    """Cells of one partition; None where no row counts."""
    frame = kept(nw.from_native(frame), columns).to_native()
    if not len(frame):
        return None
    given = {name: _column(frame, column) for name, column in columns.numbers.items()}
    if "sample_weight" in given:
        given["sample_weight"] = given["sample_weight"] * factor
    # As categories: what looks like an identifier in a small partition need not be one.
    groups = {
        name: (_text(frame[name]) if name in columns.controls else frame[name]).astype("category")
        for name in columns.groups
    }
    return Cells.from_rows(
        given.pop("y_true", None), given.pop("y_pred"), sensitive_features=groups, edges=edges,
        **given,
    )  # fmt: skip


def _text(column: Any) -> Any:
    """Values as text, with a level for what is missing."""
    import pandas as pd

    known = column.astype(object).where(column.notna(), None)
    labels = (label_of(value) for value in known)
    texts = [MISSING if label is None else str(label) for label in labels]
    return pd.Series(texts, index=column.index, dtype=object)


def _merged(parts: list[Cells | None]) -> Cells | None:
    found = [part for part in parts if part is not None]
    return merge(found) if found else None
