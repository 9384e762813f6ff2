"""What a model file must hold, field by field: one schema, checked on reading.

Every check takes a value and the name of its field and returns the value, or raises ValueError. A
field may be neither absent nor unknown, so that nothing is replaced by a default in silence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from ..models.links import LINKS

FORMAT, VERSION = "evenhand.model", 1
Check = Callable[[Any, str], Any]


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
    fields = _record(_MODEL)(rest, "")
    _check_whole(fields)
    return fields


def _got(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else text[:59] + "…"


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"`{where}` must be text, got {_got(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"`{where}` must be text, got half a character in {_got(value)}") from None
    return value


def _number(value: Any, where: str) -> float:
    try:
        good = not isinstance(value, bool) and isinstance(value, int | float)
        if not good or not math.isfinite(value):
            raise OverflowError
        return float(value)
    except OverflowError:
        raise ValueError(f"`{where}` must be a finite number, got {_got(value)}") from None


def _spread(value: Any, where: str) -> float:
    if not _number(value, where) > 0:
        raise ValueError(f"`{where}` must be above 0, got {_got(value)}")
    return float(value)


def _share(value: Any, where: str) -> float:
    if not 0 <= _number(value, where) <= 1:
        raise ValueError(f"`{where}` must lie between 0 and 1, got {_got(value)}")
    return float(value)


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"`{where}` must be true or false, got {_got(value)}")
    return value


def _edge(value: Any, where: str) -> float | str:
    if not isinstance(value, str):
        return _number(value, where)
    try:
        if np.isnat(np.datetime64(value, "us")):
            raise ValueError
    except ValueError:
        raise ValueError(f"`{where}` must be a number or a date, got {_got(value)}") from None
    return value


def _one_of(*names: str) -> Check:
    def check(value: Any, where: str) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"`{where}` must be one of {', '.join(names)}, got {_got(value)}")
        return value

    return check


def _optional(inner: Check) -> Check:
    return lambda value, where: None if value is None else inner(value, where)


def _list(inner: Check, least: int = 0) -> Check:
    def check(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError(f"`{where}` must be a list, got {_got(value)}")
        if len(value) < least:
            raise ValueError(f"`{where}` must hold at least {least}, got {len(value)}")
        return tuple(inner(item, f"{where}[{k}]") for k, item in enumerate(value))

    return check


def _mapping(inner: Check) -> Check:
    def check(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"`{where}` must be an object, got {_got(value)}")
        return {_text(name, where): inner(item, f"{where}.{name}") for name, item in value.items()}

    return check


def _record(fields: Mapping[str, Check]) -> Check:
    def check(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"`{where}` must be an object, got {_got(value)}")
        prefix = f"{where}." if where else ""
        for name in fields:
            if name not in value:
                raise ValueError(f"`{prefix}{name}` is missing")
        for name in value:
            if name not in fields:
                raise ValueError(f"`{prefix}{name}` is not a field of a model")
        return {name: inner(value[name], f"{prefix}{name}") for name, inner in fields.items()}

    return check


def _anything(value: Any, where: str) -> Any:
    return value


_COLUMN: dict[str, Check] = {
    "name": _text,
    "kind": _one_of("number", "category", "left out"),
    "fill": _number,
    "center": _number,
    "scale": _spread,
    "missing": _flag,
    "levels": _list(_text),
    "other": _flag,
    "reason": _text,
}
_GROUPS: dict[str, Check] = {
    "kind": _one_of("posterior", "attribute"),
    "labels": _list(_text, 2),
    "shares": _list(_share, 2),
    "center": _number,
    "scale": _spread,
    "base_coef": _list(_number),
    "base_intercept": _number,
    "coef": _list(_number),
    "posterior_coef": _list(_list(_number)),
    "posterior_intercept": _list(_number),
}
_MODEL: dict[str, Check] = {
    "columns": _list(_record(_COLUMN)),
    "coef": _list(_number),
    "intercept": _number,
    "target": _text,
    "sensitive": _list(_text, 1),
    "groups": _optional(_record(_GROUPS)),
    "about": _mapping(_anything),
    "group_features": _optional(_one_of("posterior", "attribute")),
    "bands": _mapping(_record({"edges": _list(_edge, 1), "labels": _list(_text, 2)})),
    "link": _one_of(*LINKS),
    "least_predictor": _optional(_spread),
}


def _distinct(values: tuple[Any, ...], where: str) -> None:
    if len(set(values)) < len(values):
        raise ValueError(f"`{where}` must be distinct, got {_got(list(values))}")


def _length(values: tuple[Any, ...], expected: int, where: str, of_what: str) -> None:
    if len(values) != expected:
        raise ValueError(f"`{where}` must have {expected} entries ({of_what}), got {len(values)}")


def _check_whole(model: Mapping[str, Any]) -> None:
    """What fields must have to do with each other."""
    from ..groups.encoding import Column

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
