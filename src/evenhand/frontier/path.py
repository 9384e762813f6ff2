"""The price of fairness: a fitter at many fairness weights, measured on rows it has not seen."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..groups.tables import to_frame
from ..information.criteria import get_criterion
from ..models.accuracy import Accuracy
from ..models.losses import R2
from .checks import (
    check_request,
)
from .held_out import Data, Handle
from .readings import PathPoint, critical
from .select import Request

__all__ = ["FairnessPath", "PathPoint", "Unreachable"]

Vector = NDArray[np.float64]


class Unreachable(ValueError):
    """No point of a path meets a request.

    Attributes
    ----------
    best : PathPoint
        The point that comes closest.
    """

    def __init__(self, message: str, best: PathPoint):
        super().__init__(message)
        self.best = best

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.best)


@dataclass(eq=False)
class FairnessPath:
    """What fairness costs: the result of :func:`fairness_path`.

    Attributes
    ----------
    points : tuple of PathPoint
        By rising fairness weight, the first being 0.
    criterion : str
        The one that `select` and dominance refer to unless told otherwise.
    selected : PathPoint or None
        The held-out measures of the model that `select` returned last; None where it raised.
    request : Request or None
        What `select` was asked for last, for the report.
    confidence_level : float
        Of all intervals, and of `select(certify=True)`.
    measured_with : str
        The estimator of information.
    n_rows, n_unknown, n_splits : int
        Rows, those of unknown group among them, and folds.
    n_clusters : int or None
        Clusters, where rows are not independent.
    fitted_before : bool
        Whether a model inside was fitted before, on other rows (``prefit=True``), so that folds
        hold out only what is fitted around it.
    constant_folds : tuple of int
        For each point the folds in which everybody has one score. Where it is some of them but not
        all, the point is a mixture of two kinds of model: `select` passes over it.
    accuracy : Accuracy
        What the estimator calls its accuracy: R², or D² for a deviance.
    sensitive_name, labels
    """

    points: tuple[PathPoint, ...]
    criterion: str
    confidence_level: float
    measured_with: str
    n_rows: int
    n_unknown: int
    n_splits: int
    sensitive_name: str
    labels: tuple[str, ...]
    selected: PathPoint | None = None
    request: Request | None = None
    n_clusters: int | None = None
    fitted_before: bool = False
    accuracy: Accuracy = R2
    constant_folds: tuple[int, ...] = ()
    _correlation: dict[str, NDArray[np.float64]] = field(repr=False, default_factory=dict)
    _handle: Handle | None = field(repr=False, default=None)
    _data: Data | None = field(repr=False, default=None)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def criteria(self) -> tuple[str, ...]:
        """Those that were measured, by name."""
        return tuple(self.points[0].measures)

    @property
    def fairness_weights(self) -> Vector:
        """The weights, ascending."""
        return np.array([p.fairness_weight for p in self.points])

    def dominated(self, criterion: str | None = None) -> NDArray[np.bool_]:
        """Which points another one beats in both accuracy and the criterion.

        Parameters
        ----------
        criterion : str, optional
            The path's own when left out.
        """
        name = self._criterion(criterion)
        accuracy = np.array([p.accuracy for p in self.points])
        u = np.array([p.measure(name).value for p in self.points])
        no_worse = (accuracy[:, None] >= accuracy) & (u[:, None] <= u)
        better = (accuracy[:, None] > accuracy) | (u[:, None] < u)
        return np.asarray((no_worse & better).any(axis=0))

    @property
    def mixed(self) -> NDArray[np.bool_]:
        """Points where some folds, but not all, give everybody one score."""
        counts = np.array(self.constant_folds or [0] * len(self.points))
        return np.asarray((counts > 0) & (counts < self.n_splits))

    def select(
        self,
        *,
        max_unfairness: float | None = None,
        min_r2: float | None = None,
        min_accuracy: float | None = None,
        criterion: str | None = None,
        certify: bool = False,
        on_unreachable: str = "raise",
    ) -> Any:
        """The estimator at the best point that meets a request, refitted on all rows.

        With `max_unfairness` the most accurate such point; without it the fairest. The
        measures that the choice rests on are in `selected` afterwards.

        Parameters
        ----------
        max_unfairness : float
            Largest normalized information allowed, in [0, 1].
        min_r2 : float
            Smallest held-out R² allowed, of a path whose accuracy is R².
        min_accuracy : float
            The same for whatever the path's accuracy is.
        criterion : {"independence", "separation", "sufficiency"}, optional
            What `max_unfairness` limits; the path's own when left out.
        certify : bool
            Judge by the ends of confidence intervals that hold for all points of the path at
            once, rather than by the estimates: having picked the best of many points then does
            not spoil the confidence level.
        on_unreachable : {"raise", "best"}
            Where no point meets the request: raise :class:`Unreachable`, or warn and return the
            one that comes closest.

        Returns
        -------
        fitted estimator
        """
        name = self._criterion(criterion)
        least = self._least(min_r2, min_accuracy)
        named = "min_r2" if self.accuracy.key == "r2" else "min_accuracy"
        check_request(max_unfairness, least, on_unreachable, named)
        u, accuracy = self._judged(name, certify)
        self.request = Request(
            name, max_unfairness, least, bool(certify), self.confidence_level, self.accuracy
        )
        # Neither kind of model in a mixture has been measured, so that there is none to hand out.
        u, accuracy = np.where(self.mixed, np.inf, u), np.where(self.mixed, -np.inf, accuracy)
        best, met = self.request.choose(u, accuracy)
        self.selected = None
        if not met:
            message = self.request.explain(self.points[best], u[best], accuracy[best])
            if on_unreachable == "raise":
                raise Unreachable(message, self.points[best])
            warnings.warn(message, UserWarning, stacklevel=2)
        assert self._handle is not None
        assert self._data is not None
        self.selected = self.points[best]
        return self._handle.fit(self.selected.fairness_weight, self._data)

    def _least(self, min_r2: float | None, min_accuracy: float | None) -> float | None:
        if min_r2 is None:
            return min_accuracy
        if self.accuracy.key != "r2":
            raise ValueError(
                f"`min_r2` must be None on a path whose accuracy is {self.accuracy.symbol}, got "
                f"{min_r2!r}. Hint: min_accuracy={min_r2!r}."
            )
        if min_accuracy is not None:
            raise ValueError(
                "`min_r2` and `min_accuracy` must not both be given: they are the same here."
            )
        return min_r2

    def bounds(self, criterion: str | None = None) -> tuple[Vector, Vector]:
        """What `select(certify=True)` judges by: upper ends of the criterion, lower of accuracy.

        Each family of one-sided bounds holds for all points at once, with the path's confidence.

        Parameters
        ----------
        criterion : str, optional
            The path's own when left out.
        """
        return self._judged(self._criterion(criterion), certify=True)

    def _judged(self, name: str, certify: bool) -> tuple[Vector, Vector]:
        measures = [p.measure(name) for p in self.points]
        u = np.array([m.value for m in measures])
        accuracy = np.array([p.accuracy for p in self.points])
        if certify:
            level = self.confidence_level
            u_error = np.array([m.stderr for m in measures])
            error = np.array([p.accuracy_stderr for p in self.points])
            clusters = measures[0].n_clusters
            u = u + critical(self._correlation[name], level, clusters) * u_error
            u = np.where([m.defined for m in measures], u, 1.0)  # nothing is certain about a 0/0
            apart = critical(self._correlation[self.accuracy.key], level, self.n_clusters)
            accuracy = accuracy - apart * error
        return u, accuracy

    def _criterion(self, criterion: str | None) -> str:
        return self.criterion if criterion is None else get_criterion(criterion).name

    def _columns(self) -> dict[str, list[Any]]:
        key = self.accuracy.key
        columns: dict[str, list[Any]] = {
            "fairness_weight": [p.fairness_weight for p in self.points],
            key: [p.accuracy for p in self.points],
            f"{key}_stderr": [p.accuracy_stderr for p in self.points],
            f"{key}_low": [p.accuracy_interval[0] for p in self.points],
            f"{key}_high": [p.accuracy_interval[1] for p in self.points],
        }
        for name in self.criteria:
            measures = [p.measure(name) for p in self.points]
            columns[name] = [m.value for m in measures]
            columns[f"{name}_stderr"] = [m.stderr for m in measures]
            columns[f"{name}_low"] = [m.interval[0] for m in measures]
            columns[f"{name}_high"] = [m.interval[1] for m in measures]
        columns["dominated"] = self.dominated().tolist()
        columns["selected"] = [p is self.selected for p in self.points]
        return columns

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per point.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
        """
        return to_frame(self._columns(), backend)

    def plot(self) -> Any:
        """A Matplotlib figure: accuracy against each criterion, with error bars."""
        from .plot import plot_path

        return plot_path(self)

    def to_html(
        self,
        path: Any,
        *,
        force: bool = False,
        tolerance: Any = None,
        favorable: str | None = None,
        about: Any = None,
    ) -> Any:
        """Write the path as one self-contained page whose points open the models behind them.

        Parameters
        ----------
        path : str or Path
            File to write.
        force : bool
            Overwrite an existing file.
        tolerance : Tolerance, optional
            With it the selected model has a verdict.
        favorable : {"high", "low"}, optional
            Which change of a score is a gain.
        about : evenhand.report.About or dict, optional
            Title, owner, purpose, model_name, period and note; what is left out is printed as "not
            stated".

        Returns
        -------
        Path
        """
        from ..report.frontier_page import path_page
        from ..report.html import write_page

        page = path_page(self, about=about, tolerance=tolerance, favorable=favorable)
        return write_page(page, path, force)

    def _table(self) -> list[list[str]]:
        rows = [["fairness_weight", self.accuracy.symbol, *self.criteria, ""]]
        for point, dominated, mixed in zip(self.points, self.dominated(), self.mixed, strict=True):
            note = "dominated" if dominated else ""
            note = "selected" if point is self.selected else "mixed" if mixed else note
            rows.append([
                f"{point.fairness_weight:.4g}",
                f"{point.accuracy:.4f} ± {point.accuracy_stderr:.4f}",
                *(
                    f"{m.shown:.4f} ± {m.stderr:.4f}" if m.defined else "not defined"
                    for m in point.measures.values()
                ),
                note,
            ])  # fmt: skip
        return rows

    def _heading(self) -> str:
        rows = "rows" if self.n_clusters is None else f"rows in {self.n_clusters} clusters"
        unknown = f", {self.n_unknown} of unknown group" if self.n_unknown else ""
        return (
            f"Frontier of {self.accuracy.symbol} and {self.criterion} ({self.sensitive_name}: "
            f"{', '.join(self.labels)}), {len(self)} points, {self.n_rows} {rows}{unknown}, "
            f"held out in {self.n_splits} folds"
            + (", around a model that was fitted before" if self.fitted_before else "")
            + ("; mixed: some folds give everybody one score" if self.mixed.any() else "")
        )

    def __str__(self) -> str:
        rows = self._table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([self._heading(), *lines])

    def _repr_html_(self) -> str:
        head, *rows = self._table()
        header = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        return (
            f"<table><caption>{escape(self._heading())}</caption><thead><tr>{header}</tr></thead>"
            f"<tbody>{body}</tbody></table>"
        )
