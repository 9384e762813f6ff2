"""The record of a search for less discriminatory alternatives.

All models of a path and candidates of the user's own, measured on the same rows. Differences from
the chosen model are paired over rows (:func:`.paired_error`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from .._core.arrays import Mask
from .._core.frames import json_safe
from .._core.validation import InputError, check_column
from .._core.views import Paged, Tabled
from ..measures.measures import paired_error
from .held_out import PathPoint, tabulate_points

if TYPE_CHECKING:
    from .path import FairnessPath, Request


@dataclass(frozen=True)
class Alternatives(Tabled, Paged):
    """Every model that was looked at, and why one of them was chosen.

    Attributes
    ----------
    columns : dict of lists
        One entry for each model: name, origin ("path", "scores" or "fitted model"),
        fairness_weight, accuracy and unfairness with intervals, their differences from the chosen
        model with the half-widths of paired intervals, meets_floor, meets_limit, chosen, reason.
    chosen : str
        Name of the chosen model.
    criterion : str
    floor, limit : float or None
    key, symbol : str
        The column of the accuracy, and what people call it.
    confidence_level : float
    held_out : str
        Which rows the numbers are about, in words.
    """

    columns: dict[str, list[Any]]
    chosen: str
    criterion: str
    floor: float | None
    limit: float | None
    key: str
    symbol: str
    confidence_level: float
    held_out: str
    sensitive_name: str

    @property
    def met(self) -> bool:
        """Whether the chosen model meets the floor and the limit."""
        k = self.columns["chosen"].index(True)
        return bool(self.columns["meets_floor"][k] and self.columns["meets_limit"][k])

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values that JSON can hold."""
        return json_safe({"format": "evenhand.alternatives", "version": 1, **vars(self)})


def compare(path: FairnessPath, others: dict[str, Any], request: Request) -> Alternatives:
    """The record of a path and candidates of the user's own."""
    chosen = None
    if request.min_accuracy is None and request.max_unfairness is None:
        if path.selected is None:
            raise InputError(
                "floor", "be given, or `limit`, where no model of the path was selected, got "
                "neither", hint="path.select(max_unfairness=...) selects one.",
            )  # fmt: skip
        chosen = path.points.index(path.selected)
    names = [f"weight {point.fairness_weight:.4g}" for point in path.points]
    points, origins = list(path.points), ["path"] * len(path)
    for name, other in others.items():
        if not isinstance(name, str) or name in names:
            raise InputError("others", f"have names of their own, got {name!r}")
        origins.append("fitted model" if hasattr(other, "predict") else "scores")
        if origins[-1] == "fitted model":
            other = path._handle.predict(other, path._rows)
        scores = check_column(other, f"others[{name!r}]", path.n_rows)
        names.append(name)
        points.append(path._gauge.read(float("nan"), scores))
    mixed = np.concatenate([path.mixed, np.zeros(len(others), dtype=bool)])
    many = "s" if len(others) > 1 else ""
    own = f"; {len(others)} candidate{many} of your own on the same rows" if others else ""
    if "fitted model" in origins:
        own += ", of which fitted models may have seen these"
    held_out = f"{path.n_rows:,} rows, each scored by a model fitted without it{own}"
    return record(names, origins, points, request, mixed, chosen, held_out, path.sensitive_name)


def record(
    names: list[str], origins: list[str], points: list[PathPoint], request: Request, mixed: Mask,
    chosen: int | None, held_out: str, sensitive_name: str,
) -> Alternatives:  # fmt: skip
    """The table of all models; `chosen` is one that was chosen before, `mixed` are no one model."""
    floor, limit, criterion = request.min_accuracy, request.max_unfairness, request.criterion
    columns: dict[str, list[Any]] = {"name": names, "origin": origins, **tabulate_points(points)}
    columns["fairness_weight"] = [None if w != w else w for w in columns["fairness_weight"]]
    key = request.accuracy.key
    accuracy, unfairness = np.array(columns[key]), np.array(columns[criterion])
    best, met = request.choose(
        np.where(mixed, np.inf, unfairness), np.where(mixed, -np.inf, accuracy)
    )
    if chosen is not None:
        best, met = chosen, True
    z = float(ndtri(0.5 + 0.5 * request.confidence_level))
    for what, name in (("accuracy", key), ("unfairness", criterion)):
        value, error = np.array(columns[name]), columns[f"{name}_stderr"]
        columns[f"{what}_difference"] = (value - value[best]).tolist()
        columns[f"{what}_margin"] = [
            z * paired_error(p.influence[name], points[best].influence[name], (e, error[best]))
            for p, e in zip(points, error, strict=True)
        ]
    columns["meets_floor"] = [floor is None or bool(value >= floor) for value in accuracy]
    columns["meets_limit"] = [limit is None or bool(value <= limit) for value in unfairness]
    columns["chosen"] = [k == best for k in range(len(names))]
    columns["reason"] = [_reason(columns, k, request, bool(mixed[k]), met)
                         for k in range(len(names))]  # fmt: skip
    return Alternatives(
        columns, names[best], criterion, floor, limit, key, request.accuracy.symbol,
        request.confidence_level, held_out, sensitive_name,
    )  # fmt: skip


def _reason(columns: dict[str, list[Any]], k: int, request: Request, mixed: bool, met: bool) -> str:
    """Why a model was chosen, or not, in words."""
    symbol, criterion = request.accuracy.symbol, request.criterion
    value, level = columns[request.accuracy.key][k], columns[criterion][k]
    if columns["chosen"][k]:
        if request.max_unfairness is None and request.min_accuracy is None:
            return "chosen before, by `select`"
        if not met:
            return f"closest to {request.limits()}, which no model meets"
        best = "fairest" if request.max_unfairness is None else "most accurate"
        return f"chosen: the {best} with {request.limits()}"
    if mixed:
        return "not chosen: some folds give everybody one score, so that it is no one model"
    failed = []
    if not columns["meets_limit"][k]:
        failed.append(f"{criterion} {level:.4f} is above the limit {request.max_unfairness:g}")
    if not columns["meets_floor"][k]:
        failed.append(f"{symbol} {value:.4f} is below the floor {request.min_accuracy:g}")
    if failed:
        return "not chosen: " + ", and ".join(failed)
    words = [_words(columns, k, "accuracy", symbol), _words(columns, k, "unfairness", criterion)]
    return f"not chosen: {', and '.join(words)}"


def _words(columns: dict[str, list[Any]], k: int, what: str, name: str) -> str:
    change, margin = columns[f"{what}_difference"][k], columns[f"{what}_margin"][k]
    side = "higher" if change > 0 else "lower"
    sure = "" if abs(change) > margin else ", which may be chance"
    return f"{name} is {side} by {abs(change):.4f} (± {margin:.4f}{sure})"
