"""The price of fairness: a fitter at many fairness weights, measured on rows it has not seen."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Vector
from .._core.files import write_text
from .._core.frames import json_safe
from .._core.validation import InputError, check_choice
from .._core.views import Tabled, view
from ..data.criteria import get_criterion
from ..data.sample import Sample
from ..measures.losses import R2, Accuracy
from .held_out import Gauge, Handle, PathPoint, correlation, critical, tabulate_points

if TYPE_CHECKING:
    from .alternatives import Alternatives

# ------------------------------------------------------------------------------------------------
# What was asked of a path, and the point that meets it or comes closest.


@dataclass(frozen=True)
class Request:
    """Limits on a model, as :meth:`FairnessPath.select` was given them.

    Attributes
    ----------
    criterion : str
        What `max_unfairness` limits.
    max_unfairness, min_accuracy : float or None
    certify : bool
        Whether bounds that hold for all points at once are judged, rather than estimates.
    confidence_level : float
        Of these bounds.
    accuracy : Accuracy
        What `min_accuracy` limits.
    """

    criterion: str
    max_unfairness: float | None
    min_accuracy: float | None
    certify: bool
    confidence_level: float
    accuracy: Accuracy = R2

    def limits(self) -> str:
        """The limits in words."""
        symbol = self.accuracy.symbol
        ends = {f"{self.criterion} ≤": self.max_unfairness, f"{symbol} ≥": self.min_accuracy}
        return " and ".join(f"{name} {end:g}" for name, end in ends.items() if end is not None)

    def judge(self) -> str:
        """What the limits are compared with, in words."""
        if self.certify:
            return (
                f"certified: judged by bounds that hold for all models at once with "
                f"{100 * self.confidence_level:g}% confidence"
            )
        return "judged by held-out estimates, not certified"

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {f"min_{self.accuracy.key}" if n == "min_accuracy" else n: v
                for n, v in vars(self).items() if n != "accuracy"}  # fmt: skip

    def choose(self, u: Vector, accuracy: Vector) -> tuple[int, bool]:
        """The best point under the limits, or the closest one and False where none meets them.

        Parameters
        ----------
        u, accuracy : (n_points,) arrays
            What is judged: estimates or bounds.
        """
        meets = np.ones(len(u), dtype=bool)
        if self.max_unfairness is not None:
            meets &= u <= self.max_unfairness
        if self.min_accuracy is not None:
            meets &= accuracy >= self.min_accuracy
        if meets.any():
            wanted = u if self.max_unfairness is None else -accuracy
            return int(np.flatnonzero(meets)[np.argmin(wanted[meets])]), True
        if self.min_accuracy is None:
            return int(np.argmin(u)), False
        short = np.maximum(self.min_accuracy - accuracy, 0.0)
        if self.max_unfairness is None:
            return int(np.argmax(accuracy)), False
        return int(np.argmin(np.maximum(u - self.max_unfairness, 0.0) + short)), False

    def explain(self, point: PathPoint, u: float, accuracy: float) -> str:
        """Why there is no such model, and what there is."""
        how = f" (bounds at {self.confidence_level:.0%} confidence)" if self.certify else ""
        return (
            f"No point of the path has held-out {self.limits()}{how}. The closest has "
            f"{self.criterion} {u:.4f} at {self.accuracy.symbol} {accuracy:.4f} (fairness_weight="
            f"{point.fairness_weight:g}). Hint: relax the request, gather more rows, or try "
            "group_features; on_unreachable='best' returns this point with a warning."
        )


# ------------------------------------------------------------------------------------------------
# Checks of what users ask of a path, with messages that say what to do.


def check_request(
    max_unfairness: Any, min_accuracy: Any, on_unreachable: str, name: str = "min_accuracy",
    limit: str = "max_unfairness",
) -> None:  # fmt: skip
    """What `select` was asked for; `name` and `limit` are what the two numbers are called."""
    if max_unfairness is None and min_accuracy is None:
        raise InputError(limit, "be given", "neither", where=f"or `{name}`")
    if max_unfairness is not None and not (
        isinstance(max_unfairness, Real) and 0 <= float(max_unfairness) <= 1
    ):
        raise InputError(limit, f"lie between 0 and 1, got {max_unfairness!r}")
    if min_accuracy is not None and not (
        isinstance(min_accuracy, Real) and float(min_accuracy) <= 1
    ):
        raise InputError(name, f"be a number of at most 1, got {min_accuracy!r}")
    check_choice("on_unreachable", on_unreachable, ("raise", "best"))


__all__ = ["FairnessPath", "PathPoint", "Unreachable"]


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
class FairnessPath(Tabled):
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

    See Also
    --------
    evenhand.fairness_path
    evenhand.FairRegressor

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(500, random_state=0)
    >>> X = data.s[:, None]
    >>> path = eh.fairness_path(
    ...     eh.FairRidge(), X, data.y, sensitive_features=data.a, fairness_weights=[0, 1], cv=2,
    ...     measure_with="logistic", random_state=0,
    ... )
    >>> len(path)
    2
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
    _gauge: Gauge = field(repr=False)
    _handle: Handle = field(repr=False)
    _rows: Sample = field(repr=False)
    selected: PathPoint | None = None
    request: Request | None = None
    n_clusters: int | None = None
    fitted_before: bool = False
    accuracy: Accuracy = R2
    constant_folds: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.points)

    @property
    def criteria(self) -> tuple[str, ...]:
        """Names of the criteria that were measured."""
        return tuple(self.points[0].measures)

    @property
    def fairness_weights(self) -> Vector:
        """The weights, ascending."""
        return np.array([p.fairness_weight for p in self.points])

    def dominated(self, criterion: str | None = None) -> NDArray[np.bool_]:
        """Return which points another one beats in both accuracy and the criterion.

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
        self, *, max_unfairness: float | None = None, min_accuracy: float | None = None,
        criterion: str | None = None, certify: bool = False, on_unreachable: str = "raise",
    ) -> Any:  # fmt: skip
        """The estimator at the best point that meets a request, refitted on all rows.

        With `max_unfairness` the most accurate such point; without it the fairest. The
        measures that the choice rests on are in `selected` afterwards.

        Parameters
        ----------
        max_unfairness : float
            Largest normalized information allowed, in [0, 1]. Met on average: on new people up to
            half of such models exceed it, unless `certify`.
        min_accuracy : float
            Smallest held-out accuracy allowed: R², or what else the path measures, such as D².
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
        check_request(max_unfairness, min_accuracy, on_unreachable)
        u, accuracy = self._judged(name, certify)
        self.request = Request(
            name, max_unfairness, min_accuracy, bool(certify), self.confidence_level, self.accuracy
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
        self.selected = self.points[best]
        return self._handle.fit(self.selected.fairness_weight, self._rows)

    def alternatives(
        self, others: Mapping[str, Any] | None = None, *, floor: float | None = None,
        limit: float | None = None, criterion: str | None = None,
    ) -> Alternatives:  # fmt: skip
        """The record of a search for less discriminatory alternatives.

        All models of the path and candidates of your own in one table: accuracy and unfairness,
        how far each is from the chosen one (paired over rows), which of them meet the floor and
        the limit, and why the others were not chosen.

        Parameters
        ----------
        others : mapping of name to scores or fitted model, optional
            One score for each row of the path, best out of fold; or a model that predicts them,
            whose scores are held out only if it was not fitted to these rows.
        floor : float, optional
            Least accuracy that the purpose allows.
        limit : float, optional
            Largest unfairness allowed. With it the most accurate model is chosen that meets both;
            without it the fairest that meets the floor. With neither it is the model that `select`
            returned last.
        criterion : str, optional
            What `limit` is about; the path's own when left out.

        Examples
        --------
        >>> import numpy as np, evenhand as eh
        >>> rng = np.random.default_rng(0)
        >>> a, X = rng.integers(0, 2, 500), rng.normal(size=(500, 2))
        >>> y = X.sum(axis=1) + a + rng.normal(size=500)
        >>> path = eh.fairness_path(eh.FairRidge(), X, y, sensitive_features=a,
        ...                         fairness_weights=[1.0], random_state=0)
        >>> path.alternatives({"first": X[:, 0]}, limit=0.9).to_frame()["name"].tolist()
        ['weight 0', 'weight 1', 'first']
        """
        from .alternatives import compare

        if floor is not None or limit is not None:
            check_request(limit, floor, "raise", "floor", "limit")
        name = self._criterion(criterion)
        request = Request(name, limit, floor, False, self.confidence_level, self.accuracy)
        return compare(self, dict(others or {}), request)

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
            clusters, key = measures[0].n_clusters, self.accuracy.key
            u = u + critical(correlation(self.points, name), level, clusters) * u_error
            u = np.where([m.defined for m in measures], u, 1.0)  # nothing is certain about a 0/0
            apart = critical(correlation(self.points, key), level, self.n_clusters)
            accuracy = accuracy - apart * error
        return u, accuracy

    def _criterion(self, criterion: str | None) -> str:
        return self.criterion if criterion is None else get_criterion(criterion).name

    def _columns(self) -> dict[str, list[Any]]:
        columns = tabulate_points(self.points)
        columns["dominated"] = self.dominated().tolist()
        columns["selected"] = [p is self.selected for p in self.points]
        return columns

    def to_dict(self) -> dict[str, Any]:
        """Everything but the models and the rows, as plain values that JSON can hold."""
        names = ("criterion", "confidence_level", "n_rows", "n_clusters", "n_unknown",
                 "fitted_before")  # fmt: skip
        out = {
            "format": "evenhand.path",
            "version": 1,
            **{name: getattr(self, name) for name in names},
            "sensitive": self.sensitive_name,
            "labels": list(self.labels),
            "request": None if self.request is None else self.request.to_dict(),
            "points": self._columns(),
        }
        return json_safe(out)

    def plot(self) -> Any:
        """A Matplotlib figure: accuracy against each criterion, with error bars."""
        return view("plot_path")(self)

    def to_html(
        self, path: Any, *, force: bool = False, tolerance: Any = None,
        favorable: str | None = None, about: Any = None,
    ) -> Any:  # fmt: skip
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
        page = view("path_page")(self, about=about, tolerance=tolerance, favorable=favorable)
        return write_text(path, page, force)
