"""Engines that run queries: what is asked of them is in `plan`, how they say it is their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from .._core.arrays import Vector
from ..measures.cells import Cells
from ..measures.edges import Edges
from . import plan
from .plan import Columns, Expressions, Operations, to_cells

_NAMES = ("s", "y")


def _looks_drawn(found: Any, wanted: float) -> bool:
    """Whether values drawn with all of their rows are as good as rows drawn one by one.

    They are where few rows share a value; else there are too many rows, too few, or few values.
    """
    values, rows = found.num_rows, np.sum(found.column("copies").to_numpy())
    return bool(values >= 0.9 * rows and abs(rows - wanted) < 0.05 * wanted)


def in_short(error: Exception) -> str:
    """What an engine says, in a line, without the rows it quotes."""
    lines = (line.strip() for line in str(error).splitlines())
    kept = [line for line in lines if line and not line.startswith(("Original Line", "LINE", "^"))]
    return " ".join(kept)[:300] or type(error).__name__


class Queried(ABC):
    """A table that an engine holds.

    Attributes
    ----------
    name : str
        Of the engine, for messages.
    ops : Operations
    """

    name: str
    ops: Operations

    @abstractmethod
    def kinds(self) -> dict[str, str]:
        """Column → "number", "boolean", "text", "date", or the type's own name for any other."""

    @abstractmethod
    def select(self, expressions: Expressions, where: Any | None) -> Any:
        """A query of rows or, of aggregates, one row."""

    @abstractmethod
    def group(
        self, rows: Expressions, where: Any | None, keys: list[str], sums: Expressions
    ) -> Any:
        """A query of sums by keys, both of columns that `rows` makes."""

    @abstractmethod
    def positive(self, query: Any, name: str) -> Any:
        """Rows of another query in which a column is positive."""

    @abstractmethod
    def fetch(self, query: Any) -> Any:
        """The result as a pyarrow Table."""

    @abstractmethod
    def show(self, query: Any) -> str:
        """The query as text."""

    def total(self, expressions: Expressions, where: Any | None) -> Any:
        """A query of aggregates."""
        return self.select(expressions, where)

    def run(self, query: Any) -> Any:
        try:
            return self.fetch(query)
        except MemoryError:
            raise
        except Exception as error:  # every engine has its own kinds
            raise ValueError(
                f"`table` cannot be read by {self.name}: {self.reason(error)}"
            ) from error

    def reason(self, error: Exception) -> str:
        """Why a query failed."""
        return in_short(error)

    def facts(self, columns: Columns) -> dict[str, float]:
        """What :func:`plan.facts` asks for; NaN where there is no row."""
        found = self.run(self._facts(columns)).to_pylist()[0]
        return {key: float("nan") if v is None else float(v) for key, v in found.items()}

    def sample(self, columns: Columns, facts: dict[str, float]) -> tuple[Vector, Vector | None]:
        """Scores and targets of some rows, in order, so that their sums repeat exactly."""
        found = self.run(self._sample(columns, facts))
        wanted = plan.share(facts) * facts.get("n_used", facts["n"])
        if plan.share(facts) < 1.0 and not _looks_drawn(found, wanted):
            found = self.run(self._copies(columns, facts))
        names = _NAMES if columns.target is not None else _NAMES[:1]
        values = [found.column(name).to_numpy() for name in names]
        order = np.lexsort(values)
        if "copies" in found.column_names:
            times = np.rint(found.column("copies").to_numpy()).astype(np.int64)
            order = np.repeat(order, times[order])
        s, *y = (column[order] for column in values)
        return s, y[0] if y else None

    def ends(self, columns: Columns, edges: Edges) -> tuple[float, float]:
        """Least and largest residual."""
        found = self.run(self.total(*plan.ends(self.ops, columns, edges))).to_pylist()[0]
        return found["least"], found["largest"]

    def cells(self, columns: Columns, edges: Edges, facts: dict[str, float]) -> Cells:
        """The one scan that counts."""
        return to_cells(self.run(self._cells(columns, edges, facts)), columns, edges, facts)

    def explain(self, columns: Columns, edges: Edges, facts: dict[str, float]) -> str:
        """All queries, in order."""
        queries = {
            "Least and largest values, gaps, levels": self._facts(columns),
            "A sample of scores and targets": self._sample(columns, facts),
        }
        if plan.share(facts) < 1.0:
            what = "The sample in place of it, where many rows have the same score and target"
            queries[what] = self._copies(columns, facts)
        if edges.slope:
            queries["Ends of the residual"] = self.total(*plan.ends(self.ops, columns, edges))
        queries["Cells"] = self._cells(columns, edges, facts)
        return "\n\n".join(f"-- {what}\n{self.show(query)}" for what, query in queries.items())

    def _facts(self, columns: Columns) -> Any:
        return self.total(plan.facts(self.ops, columns), None)

    def _sample(self, columns: Columns, facts: dict[str, float]) -> Any:
        if plan.share(facts) == 1.0:
            return self.select(*plan.every_row(self.ops, columns))
        rows, where = plan.some_values(self.ops, columns, facts)
        return self.group(rows, where, list(rows), {"copies": self.ops.count()})

    def _copies(self, columns: Columns, facts: dict[str, float]) -> Any:
        rows, where = plan.all_values(self.ops, columns, facts)
        keys = [name for name in rows if name in _NAMES]
        times = {"copies": plan.copies(self.ops, facts)}
        return self.positive(self.group(rows, where, keys, times), "copies")

    def _cells(self, columns: Columns, edges: Edges, facts: dict[str, float]) -> Any:
        rows, where = plan.cell_rows(self.ops, columns, edges, facts)
        keys = [plan.PLACE, *(f"label_{j}" for j in range(len(columns.groups)))]
        return self.group(rows, where, keys, plan.cell_sums(self.ops, columns))
