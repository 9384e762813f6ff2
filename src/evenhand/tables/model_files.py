"""A fitted linear model as a plain JSON file: coefficients, and how columns become numbers.

Nothing in the file is code, so opening one from a stranger is safe, and a person can read it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import expit, softmax

from .._core.arrays import Vector
from .._core.files import write_text
from .._core.validation import quote
from ..data.bands import Bands
from ..data.encoding import Column, encode
from ..measures.losses import LINKS
from .readers import TableError

if TYPE_CHECKING:
    import pyarrow as pa


# ------------------------------------------------------------------------------------------------
# What a model file must hold, field by field: one schema, checked on reading.
#
# A field may be neither absent nor unknown, so that nothing is replaced by a default in silence.


FORMAT, VERSION = "evenhand.model", 1


def read_json(text: str) -> Any:
    """The content of a JSON file; ValueError for NaN, infinity and a name given twice."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"it holds {constant}, which is no number")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"`{twice}` is given twice")
        return found

    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)


def check_model(data: Mapping[str, Any]) -> dict[str, Any]:
    """All fields of a model but `format` and `version`, with lists as tuples."""
    rest = {name: value for name, value in data.items() if name not in ("format", "version")}
    fields: dict[str, Any] = _checked(_MODEL, rest, "")
    _check_whole(fields)
    return fields


def _is_finite(value: Any) -> bool:
    good = not isinstance(value, bool) and isinstance(value, int | float)
    # An integer may be too large for a float.
    return good and abs(value) <= sys.float_info.max


def _is_encodable(value: str) -> bool:
    try:
        return bool(value.encode()) or not value
    except UnicodeEncodeError:
        return False


def _is_edge(value: Any) -> bool:
    try:
        return _is_finite(value) or not np.isnat(np.datetime64(value, "us"))
    except (TypeError, ValueError):
        return False


# Kind of a single value → what it must do, in this order, and the test of it.
_TEXT = ("be text", lambda value: isinstance(value, str))
_NUMBER = ("be a finite number", _is_finite)
_KINDS: dict[str, list[tuple[str, Callable[[Any], bool]]]] = {
    "text": [_TEXT, ("be text, and not half a character", _is_encodable)],
    "number": [_NUMBER],
    "spread": [_NUMBER, ("be above 0", lambda value: value > 0)],
    "share": [_NUMBER, ("lie between 0 and 1", lambda value: 0 <= value <= 1)],
    "flag": [("be true or false", lambda value: isinstance(value, bool))],
    "edge": [("be a number or a date", _is_edge)],
    "anything": [],
}


class _Maybe(NamedTuple):
    """Null, or what another rule asks for."""

    rule: Any


# A rule is the name of a kind, a tuple of words, a list of a rule and of how many there must be, a
# record of rules by name, or a mapping of any names: {...: rule}.
_COLUMN: dict[Any, Any] = {
    "name": "text",
    "kind": ("number", "category", "left out"),
    "fill": "number",
    "center": "number",
    "scale": "spread",
    "missing": "flag",
    "levels": ["text", 0],
    "other": "flag",
    "reason": "text",
}
_GROUPS: dict[Any, Any] = {
    "kind": ("posterior", "attribute"),
    "labels": ["text", 2],
    "shares": ["share", 2],
    "center": "number",
    "scale": "spread",
    "base_coef": ["number", 0],
    "base_intercept": "number",
    "coef": ["number", 0],
    "posterior_coef": [["number", 0], 0],
    "posterior_intercept": ["number", 0],
}
_MODEL: dict[Any, Any] = {
    "columns": [_COLUMN, 0],
    "coef": ["number", 0],
    "intercept": "number",
    "target": "text",
    "sensitive": ["text", 1],
    "groups": _Maybe(_GROUPS),
    "about": {...: "anything"},
    "group_features": _Maybe(("posterior", "attribute")),
    "bands": {...: {"edges": ["edge", 1], "labels": ["text", 2]}},
    "link": tuple(LINKS),
    "least_predictor": _Maybe("spread"),
}


def _checked(rule: Any, value: Any, where: str) -> Any:
    """The value, lists as tuples and numbers as floats; ValueError where it breaks the rule."""
    if isinstance(rule, _Maybe):
        return None if value is None else _checked(rule.rule, value, where)
    if isinstance(rule, tuple):
        good = isinstance(value, str) and value in rule
        _must(good, where, f"be one of {', '.join(rule)}", value)
        return value
    if isinstance(rule, list):
        item, least = rule
        _must(isinstance(value, list), where, "be a list", value)
        _must(len(value) >= least, where, f"hold at least {least}", len(value))
        return tuple(_checked(item, v, f"{where}[{k}]") for k, v in enumerate(value))
    if isinstance(rule, dict):
        _must(isinstance(value, dict), where, "be an object", value)
        prefix = f"{where}." if where else ""
        if ... in rule:
            rule = {_checked("text", name, where): rule[...] for name in value}
        for name in (*rule, *value):
            if name not in value:
                raise ValueError(f"`{prefix}{name}` is missing")
            if name not in rule:
                raise ValueError(f"`{prefix}{name}` is not a field of a model")
        return {name: _checked(inner, value[name], prefix + name) for name, inner in rule.items()}
    for expected, test in _KINDS[rule]:
        _must(test(value), where, expected, value)
    return float(value) if rule != "anything" and _is_finite(value) else value


def _must(good: bool, where: str, expected: str, value: Any) -> None:
    if not good:
        text = json.dumps(value, ensure_ascii=True)
        text = text if len(text) <= 60 else text[:59] + "…"
        raise ValueError(f"`{where}` must {expected}, got {text}")


def _distinct(values: tuple[Any, ...], where: str) -> None:
    _must(len(set(values)) == len(values), where, "be distinct", list(values))


def _length(values: tuple[Any, ...], expected: int, where: str, of_what: str) -> None:
    _must(len(values) == expected, where, f"have {expected} entries ({of_what})", len(values))


def _check_whole(model: Mapping[str, Any]) -> None:
    """What fields must have to do with each other."""
    if LINKS[model["link"]].positive != (model["least_predictor"] is not None):
        raise ValueError(
            "`least_predictor` must be there for a link of positive predictors, and only for it"
        )
    _distinct(tuple(c["name"] for c in model["columns"]), "columns")
    for k, column in enumerate(model["columns"]):
        _distinct(column["levels"], f"columns[{k}].levels")
        if (column["kind"] == "category") != bool(column["levels"]):
            raise ValueError(f"`columns[{k}].levels` must be there for a category, and only for it")
    width = sum(len(Column(**c).features) for c in model["columns"])
    _length(model["coef"], width, "coef", "one for each column of numbers")
    _distinct(model["sensitive"], "sensitive")
    for name, found in model["bands"].items():
        where = f"bands.{name}"
        if name not in model["sensitive"]:
            raise ValueError(f"`{where}` must be one of `sensitive`")
        kinds, edges = {type(e) for e in found["edges"]}, found["edges"]
        if len(kinds) > 1 or any(not a < b for a, b in pairwise(edges)):
            raise ValueError(f"`{where}.edges` must be rising numbers or dates")
        _length(found["labels"], len(edges) + 1, f"{where}.labels", "one more than edges")
        _distinct(found["labels"], f"{where}.labels")
    groups = model["groups"]
    kind = None if groups is None else groups["kind"]
    if kind != model["group_features"]:
        raise ValueError(
            f"`groups` must be {model['group_features']}, as the field group_features says"
        )
    if groups is not None:
        _check_groups(groups, width)


def _check_groups(groups: Mapping[str, Any], width: int) -> None:
    count = len(groups["labels"])
    _distinct(groups["labels"], "groups.labels")
    _length(groups["shares"], count, "groups.shares", "one for each group")
    if not math.isclose(sum(groups["shares"]), 1.0, abs_tol=1e-6):
        raise ValueError(f"`groups.shares` must sum to 1, got {sum(groups['shares']):g}")
    _length(groups["base_coef"], width, "groups.base_coef", "one for each column of numbers")
    _length(groups["coef"], 2 * (count - 1), "groups.coef", "two for each group but the first")
    rows = 0 if groups["kind"] == "attribute" else 1 if count == 2 else count
    _length(groups["posterior_coef"], rows, "groups.posterior_coef", "one row for each group")
    _length(groups["posterior_intercept"], rows, "groups.posterior_intercept", "one for each group")
    for k, row in enumerate(groups["posterior_coef"]):
        _length(row, width, f"groups.posterior_coef[{k}]", "one for each column of numbers")


@dataclass(frozen=True)
class GroupPart:
    """Group features of a linear model; see :mod:`evenhand.training.group_features`.

    Attributes
    ----------
    kind : {"posterior", "attribute"}
    labels : tuple of str
        The K groups.
    shares : tuple of K floats
        Stand in for a row whose group is unknown.
    center, scale : float
        Of the base score.
    base_coef, base_intercept
        The base score s₀.
    coef : tuple of 2(K − 1) floats
        Of p_k and p_k·s₀.
    posterior_coef, posterior_intercept : nested tuples
        Logistic regression of the group on X; empty for "attribute".
    """

    kind: str
    labels: tuple[str, ...]
    shares: tuple[float, ...]
    center: float
    scale: float
    base_coef: tuple[float, ...]
    base_intercept: float
    coef: tuple[float, ...]
    posterior_coef: tuple[tuple[float, ...], ...] = ()
    posterior_intercept: tuple[float, ...] = ()

    def contribution(self, X: Vector, labels: list[Any] | None) -> Vector:
        """What the group features add to the score."""
        base = X @ np.array(self.base_coef) + self.base_intercept
        if self.kind == "posterior":
            z = X @ np.array(self.posterior_coef).T + np.array(self.posterior_intercept)
            if z.shape[1] == 1:
                membership = np.hstack([1.0 - expit(z), expit(z)])
            else:
                membership = softmax(z, axis=1)
        else:
            assert labels is not None
            place = {name: k for k, name in enumerate(self.labels)}
            eye = np.eye(len(self.labels))
            rows = [np.array(self.shares) if name is None else eye[place[name]] for name in labels]
            membership = np.array(rows)
        p = membership[:, 1:]
        z0 = (base - self.center) / self.scale
        return np.hstack([p, p * z0[:, None]]) @ np.array(self.coef)


@dataclass(frozen=True)
class PortableModel:
    """A linear model and the columns it needs.

    Attributes
    ----------
    columns : tuple of Column
    coef : tuple of float
        One per column of X, in the order of `feature_names`.
    intercept : float
    target : str
        What it predicts.
    sensitive : tuple of str
        The attributes it was made fair to; needed to predict only with
        ``group_features="attribute"``.
    groups : GroupPart or None
    about : dict
        What it was fitted to and how, for people.
    bands : dict of name → Bands
        Of those attributes that are cut into bands before they are groups.
    link : str
        Of a generalized linear model: scores are means μ(η) of the linear predictor η.
    least_predictor : float or None
        η is cut off below it, where the link needs positive ones.
    """

    columns: tuple[Column, ...]
    coef: tuple[float, ...]
    intercept: float
    target: str
    sensitive: tuple[str, ...] = ()
    groups: GroupPart | None = None
    about: dict[str, Any] = field(default_factory=dict)
    bands: dict[str, Bands] = field(default_factory=dict)
    link: str = "identity"
    least_predictor: float | None = None

    @property
    def feature_names(self) -> list[str]:
        return [name for column in self.columns for name in column.features]

    @property
    def needs(self) -> list[str]:
        """Columns a table must have to be scored."""
        names = [c.name for c in self.columns if c.kind != "left out"]
        if self.groups is not None and self.groups.kind == "attribute":
            names += self.sensitive
        return names

    @property
    def text(self) -> list[str]:
        """Those of them that hold text, whatever the cells of a new table look like."""
        texts = [c.name for c in self.columns if c.kind == "category"]
        labels = [name for name in self.sensitive if name not in self.bands]
        return [name for name in self.needs if name in {*texts, *labels}]

    def predict(self, table: pa.Table) -> tuple[Vector, dict[str, int]]:
        """Scores, and how many rows had a level not seen in training, by column."""
        X, unseen = encode(table, self.columns)
        score = X @ np.array(self.coef) + self.intercept
        if self.groups is not None:
            labels = None
            if self.groups.kind == "attribute":
                labels = self._labels(table)
            score = score + self.groups.contribution(X, labels)
        if self.least_predictor is not None:
            score = np.maximum(score, self.least_predictor)
        return LINKS[self.link].inverse(score), unseen

    def _labels(self, table: pa.Table) -> list[str | None]:
        assert self.groups is not None
        rows = zip(*(self._column(table, name) for name in self.sensitive), strict=True)
        known = {name: name for name in self.groups.labels}
        labels: list[str | None] = []
        for row, values in enumerate(rows, 1):
            if any(value is None or value != value for value in values):
                labels.append(None)
                continue
            name = " × ".join(map(str, values))
            if name not in known:  # a number written in another way
                known[name] = " × ".join(map(_plain, values))
            labels.append(known[name])
            if known[name] not in self.groups.labels:
                raise TableError(
                    f"Row {row} belongs to the group {quote(name)}, which was not there in "
                    f"training; there were {', '.join(map(quote, self.groups.labels))}. Hint: "
                    "leave the group empty to use the average over groups."
                )
        return labels

    def _column(self, table: pa.Table, name: str) -> list[Any]:
        if name not in self.bands:
            return table.column(name).to_pylist()
        try:
            return self.bands[name].apply(table.column(name))
        except ValueError as error:
            kind = "dates" if self.bands[name].dates else "numbers"
            raise TableError(
                f"Column {quote(name)} is cut into bands by the model and must hold {kind}. Hint: "
                "leave a cell empty where it is not known."
            ) from error

    def save(self, path: Any, force: bool = False) -> Path:
        """Write the model as JSON.

        Parameters
        ----------
        path : str or Path
            File to write.
        force : bool
            Overwrite an existing file.
        """
        # Said twice, so that `groups` cannot get lost unnoticed.
        kind = None if self.groups is None else self.groups.kind
        data = {"format": FORMAT, "version": VERSION, "group_features": kind, **asdict(self)}
        text = json.dumps(data, indent=1, ensure_ascii=True, allow_nan=False)
        return write_text(path, text + "\n", force)


def _plain(label: Any) -> str:
    """A label as training names it: "1.0" is 1, "TRUE" is True."""
    text = str(label)
    if text.lower() in ("true", "false"):
        return text.capitalize()
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else str(number)


def load_model(path: Any) -> PortableModel:
    """Read a model written by :meth:`PortableModel.save`.

    Parameters
    ----------
    path : str or Path
        The file, or the folder that holds it as ``model.json``.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "model.json"
    if not path.exists():
        raise TableError(f"There is no model {str(path)!r}. Hint: evenhand frontier writes one.")
    try:
        data = read_json(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise TableError(
            f"{str(path)!r} is not a model: it is no JSON. Hint: evenhand frontier writes "
            "model.json."
        ) from error
    except ValueError as error:
        raise TableError(_damaged(path, error)) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise TableError(f"{str(path)!r} is not a model written by evenhand frontier.")
    version: Any = data.get("version")
    if isinstance(version, bool) or version != VERSION:
        raise TableError(
            f"{str(path)!r} has version {version!r} of the format; this evenhand reads "
            f"version {VERSION}. Hint: write it again with evenhand frontier, or upgrade evenhand."
        )
    try:
        return _build(check_model(data))
    except ValueError as error:
        raise TableError(_damaged(path, error)) from error


def _damaged(path: Path, error: ValueError) -> str:
    return (
        f"{str(path)!r} is damaged: {error}. Hint: take an undamaged copy, or write it again with "
        "evenhand frontier."
    )


def _build(found: dict[str, Any]) -> PortableModel:
    columns = tuple(Column(**column) for column in found["columns"])
    groups = None if found["groups"] is None else GroupPart(**found["groups"])
    bands = {name: Bands(**band) for name, band in found["bands"].items()}
    return PortableModel(
        columns, found["coef"], found["intercept"], found["target"], found["sensitive"], groups,
        found["about"], bands, found["link"], found["least_predictor"],
    )  # fmt: skip


def from_linear(
    model: Any, columns: list[Column], target: str, sensitive: list[str], about: dict[str, Any],
    bands: dict[str, Bands] | None = None,
) -> PortableModel:  # fmt: skip
    """A :class:`PortableModel` of a fitted :class:`evenhand.FairRidge` or `evenhand.FairGLM`.

    Parameters
    ----------
    model : FairRidge or FairGLM
        Fitted on the encoded columns.
    columns : list of Column
        As from :func:`evenhand.data.encoding.fit_columns`.
    target : str
        The target's name.
    sensitive : list of str
        The attributes' names.
    about : dict
        What to remember.
    bands : dict of name → Bands, optional
        Of the attributes that were cut into bands.
    """
    if not hasattr(model, "coef_"):
        raise ValueError(
            f"`model` must be linear to be written as numbers, got {type(model).__name__}: what "
            "stands beneath it is a program of its own. Hint: keep it with the tool that made it."
        )
    groups = None
    found = model._group_features
    if found is not None:
        coef: Any = ()
        intercept: Any = ()
        if found.posterior is not None:
            scaler, logistic = (step for _, step in found.posterior.steps)
            # Undo the scaler, so that the file holds one linear map.
            weights = logistic.coef_ / scaler.scale_
            coef = tuple(map(tuple, weights.tolist()))
            intercept = tuple((logistic.intercept_ - weights @ scaler.mean_).tolist())
        names = tuple(
            " × ".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in found.labels
        )
        groups = GroupPart(
            found.kind, names, tuple(found.shares.tolist()), found.center, found.scale,
            tuple(np.asarray(model._base[0], dtype=float).tolist()), float(model._base[1]),
            tuple(model.group_coef_.tolist()), coef, intercept,
        )  # fmt: skip
    link = model.loss_.link if hasattr(model, "loss_") else LINKS["identity"]
    return PortableModel(
        tuple(columns), tuple(model.coef_.tolist()), model.intercept_, target, tuple(sensitive),
        groups, about, bands or {}, link.name, model._least_eta if link.positive else None,
    )  # fmt: skip
