"""The fairness term of an aggregated table: one score a row, each row for several people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..groups.validation import check_column

if TYPE_CHECKING:
    from .bound import BoundRegularizer


class RepeatedRegularizer:
    """Ĩ(s[rows]) as a function of s, with gradient Σ over the people of each row.

    All attributes are those of the term over people.

    Parameters
    ----------
    inner : BoundRegularizer
        The term over people.
    rows : (N,) array
        Row of each person.
    n_rows : int
        Rows of the table, those of frequency 0 included.
    """

    def __init__(self, inner: BoundRegularizer, rows: NDArray[np.intp], n_rows: int) -> None:
        self._inner, self._rows, self.n_rows = inner, rows, n_rows

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def value(self, y_pred: Any) -> float:
        """Ĩ of the scores, one a row of the table."""
        return self._inner.value(self._people(y_pred))

    def value_and_grad(self, y_pred: Any) -> tuple[float, NDArray[np.float64]]:
        """Ĩ of the scores and its gradient with respect to each of them.

        Parameters
        ----------
        y_pred : (n,) array
            One score a row of the table.
        """
        value, gradient = self._inner.value_and_grad(self._people(y_pred))
        return value, self._by_row(gradient)

    def evaluate(
        self, s: NDArray[np.float64], scale: float = 1.0, rough: bool = False
    ) -> tuple[float, NDArray[np.float64]]:
        """scale·Ĩ and its gradient, for scores that are known to be finite float64."""
        value, gradient = self._inner.evaluate(s[self._rows], scale, rough)
        return value, self._by_row(gradient)

    def value_grad_curvature(
        self, y_pred: Any
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Ĩ, its gradient and the factor B of its curvature, one row of each a row of the table."""
        value, gradient, people = self._inner.value_grad_curvature(self._people(y_pred))
        factor = np.column_stack([self._by_row(column) for column in people.T])
        return value, self._by_row(gradient), factor

    def warm_start(self, other: Any) -> None:
        """Begin the next evaluation from another term's classifiers."""
        self._inner.warm_start(getattr(other, "_inner", other))

    def take(self, rows: NDArray[np.intp]) -> RepeatedRegularizer:
        """The same term over some rows of the table, with its penalty in proportion."""
        order = np.argsort(self._rows, kind="stable")
        ends = np.searchsorted(self._rows[order], np.arange(self.n_rows + 1))
        size = ends[rows + 1] - ends[rows]
        new = np.repeat(np.arange(len(rows)), size)
        inside = np.arange(len(new)) - np.repeat(np.cumsum(size) - size, size)
        people = order[ends[rows][new] + inside]
        return RepeatedRegularizer(self._inner.take(people), new, len(rows))

    def _people(self, y_pred: Any) -> NDArray[np.float64]:
        return check_column(y_pred, "y_pred", self.n_rows)[self._rows]

    def _by_row(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(self._rows, gradient, self.n_rows).astype(np.float64, copy=False)
