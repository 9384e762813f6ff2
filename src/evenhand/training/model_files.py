"""Fitted models as plain JSON files: all that `predict` needs, and nothing that is code.

    {"format": "evenhand.model", "version": 2, "about": {...}, "model": {...}, "digest": "..."}

An object is its type, its parameters and its fields. `_FIELDS` lists the types and what each field
must hold; a file that names another type or lacks a field is refused. So is one that was changed
after it was written, or whose model would not be written in the same way again: that has a field
too many, or numbers in another form. Nothing in it is code, so opening a stranger's file is safe,
and a person can read it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyRegressor
from sklearn.utils import check_array

from .._core.arrays import Vector
from .._core.files import TableError, write_text
from .._core.installing import install_hint
from .._core.validation import InputError, quote
from ..data.bands import Bands, measurement
from ..data.encoding import Column, encode

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT, VERSION = "evenhand.model", 2
HINT = "take an undamaged copy, or write it again with `model.save` or evenhand frontier."


class Saves:
    """A model that writes itself into a file."""

    def save(self, path: Any, *, force: bool = False, about: Any = None) -> Path:
        """Write the fitted model as JSON, for :func:`evenhand.load`.

        Parameters
        ----------
        path : str or Path
            File to write, whole or not at all.
        force : bool
            Overwrite an existing file.
        about : mapping, optional
            What to remember for people, such as the data and the purpose; plain values.

        Returns
        -------
        Path
        """
        return save(self, path, force=force, about=about)


def save(model: Any, path: Any, *, force: bool = False, about: Any = None) -> Path:
    """Write a fitted model as JSON; for what has no `save` of its own, such as a pipeline.

    Parameters
    ----------
    model : fitted estimator
        A model of this package, a linear model, a tree, a forest or boosted trees of scikit-learn,
        XGBoost or LightGBM, or a pipeline of :class:`TableEncoder` or `StandardScaler` and one of
        these.
    path, force, about
        As for the `save` of a model.

    See Also
    --------
    evenhand.load
    evenhand.TableEncoder

    Examples
    --------
    >>> import tempfile, numpy as np, evenhand as eh
    >>> from sklearn.linear_model import LinearRegression
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> model = LinearRegression().fit(X, [1.0, 2.0, 3.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = eh.save(model, f"{folder}/model.json")
    ...     again = eh.load(path)
    >>> bool(np.allclose(again.predict(X), [1.0, 2.0, 3.0]))
    True
    """
    data = {
        "format": FORMAT, "version": VERSION, "about": dict(about or {}),
        "model": _pack(model, type(model).__name__),
    }  # fmt: skip
    try:
        text = json.dumps({**data, "digest": _digest(data)}, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError("about", f"hold plain values that JSON has, and {error}") from None
    return write_text(path, text + "\n", force)


def load(path: Any) -> Any:
    """Read a model that `model.save` or ``evenhand frontier`` wrote.

    Every field is checked, and nothing is executed. Predictions equal those of the model that was
    saved. Trees inside a model come back as arrays that predict; they cannot be fitted again.

    Parameters
    ----------
    path : str or Path
        The file, or the folder that holds it as ``model.json``.

    Returns
    -------
    fitted estimator

    See Also
    --------
    evenhand.save
    evenhand.FairRidge

    Examples
    --------
    >>> import numpy as np, tempfile, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> a, X = rng.integers(0, 2, 200), rng.normal(size=(200, 3))
    >>> model = eh.FairRidge().fit(X, X[:, 0] + a, sensitive_features=a)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = eh.load(model.save(f"{folder}/model.json"))
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    path = Path(path)
    path = path / "model.json" if path.is_dir() else path
    if not path.exists():
        raise InputError(
            "path", f"name a model. There is no model {str(path)!r}",
            hint="`model.save` and evenhand frontier write one.",
        )  # fmt: skip
    try:
        data = _read_json(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise _refused(path, "is not a model: it is no JSON") from error
    except ValueError as error:
        raise _refused(path, f"is damaged: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise _refused(path, "is not a model written by evenhand")
    version: Any = data.get("version")
    if isinstance(version, bool) or version != VERSION:
        raise _refused(
            path, f"has version {version!r} of the format; this evenhand reads version {VERSION}"
        )
    try:
        for name in ("about", "model", "digest"):
            if name not in data:
                raise ValueError(f"`{name}` is missing")
        _must(isinstance(data["about"], dict), "about", "be an object", data["about"])
        model = _unpack(data["model"], "model")
        _fits("any", model, "model")
        again = _digest({**data, "model": _pack(model, "model")})
        _must(data["digest"] == again, "digest", "fit the content, which was changed after it was "
              "written", data["digest"])  # fmt: skip
    except (ValueError, TypeError, OverflowError) as error:
        raise _refused(path, f"is damaged: {error}") from error
    except (LookupError, AttributeError) as error:
        raise _refused(path, f"is damaged: its fields contradict each other ({error})") from error
    if isinstance(model, TableModel):
        model.about = data["about"]
    return model


def load_table_model(path: Any) -> TableModel:
    """A model of ``evenhand frontier``, which knows the columns of its table."""
    model = load(path)
    if not isinstance(model, TableModel):
        raise InputError(
            "path", f"name a model of evenhand frontier, and this is a {type(model).__name__} that "
            "was saved in Python",
            hint="evenhand.load reads it there.",
        )  # fmt: skip
    return model


def _refused(path: Path, what: str) -> InputError:
    return InputError("path", f"name a model file: {str(path)!r} {what}", hint=HINT)


def _digest(data: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in data.items() if name != "digest"}
    # Text that is none, half of a surrogate pair, cannot be encoded and is an error here.
    text = json.dumps(
        kept, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    )
    return sha256(text.encode()).hexdigest()


def _read_json(text: str) -> Any:
    """The content of a JSON file; ValueError for NaN, infinity and a name given twice."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"it holds {constant}, which is no number")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"`{twice}` is given twice")
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)


# ------------------------------------------------------------------------------------------------
# What each type holds: field:kind, with "?" where it may be absent or None and "*" for a tuple.


_NAMES = "n_features_in_:count feature_names_in_:names?"
_FAIR = (
    f"{_NAMES} coef_:vector intercept_:number group_coef_:vector group_alpha_:number "
    "unfairness_:real objective_:real n_iter_:count n_evaluations_:count encoder_:TableEncoder? "
    "_group_features:GroupFeatures? _base:base? controls_summary_:text?"
)
_TARIFF = "n_newton_:count _least_eta:real _covariance:matrix? totals_:totals?"
_REGRESSION = f"{_NAMES} coef_:array intercept_:numbers"
REGRESSORS = (
    "LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV",
    "BayesianRidge", "HuberRegressor", "SGDRegressor", "QuantileRegressor", "PoissonRegressor",
    "GammaRegressor", "TweedieRegressor",
)  # fmt: skip
_MEMBERS = "kind:groups labels:labels shares:vector name:text"
# Where a type is, its name, and its fields.
_TYPES = f"""
evenhand.training.linear FairRidge {_FAIR}
evenhand.training.glm FairGLM {_FAIR} {_TARIFF}
evenhand.training.postprocess FairPostprocessor
    n_features_in_:count? feature_names_in_:names? estimator_:any group_classifier_:any?
    regressor_:FairRidge columns_:texts? passthrough_alpha_:number? map_:text center_:number
    scale_:spread offsets_:vector? slopes_:matrix? blend_:number? unfairness_:real n_iter_:count
    _maps:ScoreMaps _membership:Membership? _copy:TableEncoder|StandardScaler?
evenhand.training.recommended FairRegressor
    {_NAMES} encoder_:TableEncoder? scaler_:StandardScaler estimator_:any choice_:text
    explanation_:text tried_:Tried* measure_:Measure? measures_:measures? fairness_weight_:real
    r2_:real unfairness_:real unfairness_bound_:real unseen_:real
{__name__} TableModel
    model:any columns:Column* target:text sensitive:texts banded:texts bands:Bands*
evenhand.training.group_features GroupFeatures
    {_MEMBERS} center:number scale:spread posterior:Pipeline?
evenhand.training.group_features Membership {_MEMBERS}
evenhand.training.group_features Transport knots:vector* values:vector*
evenhand.training.group_features ScoreMaps
    n_groups:count bends:vector transport:Transport? stacked:flag
evenhand.training.recommended Tried
    name:text words:text fairness_weight:real r2:real unfairness:real reached:flag behind:real
    behind_stderr:real
evenhand.measures.measures Measure
    criterion:text value:real nats:real normalizer:real stderr:real interval:pair p_value:real
    estimator:text chosen:text n:count n_effective:real n_clusters:count? n_merged:count
    freedom:real n_independent:real of:text
evenhand.data.encoding Column
    name:text kind:column fill:number center:number scale:spread missing:flag levels:texts
    other:flag reason:text
evenhand.data.bands Bands edges:edges labels:texts
evenhand.data.encoding TableEncoder {_NAMES} columns_:Column*
evenhand.training.stack FoldMean estimators_:any*
{__name__} Trees
    n_features_in_:count feature_names_in_:names? roots:whole feature:whole left:whole right:whole
    threshold:reals missing_left:flags value:vector base:number scale:number link:link single:flag
{__name__} NativeModel library:library text:text feature_names_in_:names?
sklearn.pipeline Pipeline names:texts parts:any*
sklearn.preprocessing StandardScaler {_NAMES} mean_:vector? var_:vector? scale_:vector?
sklearn.linear_model LogisticRegression {_NAMES} coef_:matrix intercept_:vector classes_:array
sklearn.dummy DummyRegressor n_outputs_:count constant_:array
"""
_FIELDS: dict[str, tuple[str, str]] = {
    **{name: (home, fields) for home, name, fields in (
        entry.split(None, 2) for entry in re.split(r"\n(?=\w)", _TYPES.strip())
    )},
    **dict.fromkeys(REGRESSORS, ("sklearn.linear_model", _REGRESSION)),
}  # fmt: skip
TOTALS = ("deviance", "explained", "total", "actual_to_expected")
# Parameters that come back as what was fitted by them.
_REFITTED = {"FairPostprocessor": ("estimator",), "Pipeline": ("steps",)}


# Squares of larger numbers overflow, so that no fit has such and no prediction could use them.
LARGEST = 1e154


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def _is_real(value: Any) -> bool:
    return isinstance(value, float) or _is_finite(value)


def _is_array(value: Any, kinds: str, ndim: int | None = None) -> bool:
    good = isinstance(value, np.ndarray) and value.dtype.kind in kinds
    return good and (ndim is None or value.ndim == ndim)


def _is_label(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_label, value))
    return isinstance(value, str | bool) or _is_finite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_distinct(values: Any, test: Callable[[Any], bool], least: int = 0) -> bool:
    good = isinstance(values, tuple) and all(map(test, values))
    return good and least <= len(values) == len({*values})


def _are_totals(values: Any) -> bool:
    return isinstance(values, dict) and all(
        isinstance(of, dict) and tuple(of) == TOTALS and all(map(_is_real, of.values()))
        for of in values.values()
    )


def _is_base(value: Any) -> bool:
    good = isinstance(value, tuple) and len(value) == 2
    return good and _finite_array(1)(value[0]) and _is_finite(value[1])


def _one_of(*words: str) -> tuple[str, Callable[[Any], bool]]:
    return f"be one of {', '.join(words)}", lambda v: isinstance(v, str) and v in words


def _finite_array(ndim: int | None) -> Callable[[Any], bool]:
    return lambda v: _is_array(v, "fiu", ndim) and bool((np.abs(v) < LARGEST).all())


# Kind of a field → what it must do, and the test of it.
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("be text", _is_text),
    "flag": ("be true or false", lambda v: isinstance(v, bool)),
    "number": ("be a number between ±1e154", _is_finite),
    "real": ("be a number", _is_real),
    "spread": ("be above 0", lambda v: _is_finite(v) and v > 0),
    "count": ("be a whole number", lambda v: _is_finite(v) and isinstance(v, int) and v >= 0),
    "array": ("be an array of numbers between ±1e154", _finite_array(None)),
    "vector": ("be a row of numbers between ±1e154", _finite_array(1)),
    "matrix": ("be a table of numbers between ±1e154", _finite_array(2)),
    "reals": ("be a row of numbers", lambda v: _is_array(v, "f", 1)),
    "whole": ("be a row of whole numbers", lambda v: _is_array(v, "i", 1)),
    "flags": ("be a row of true and false", lambda v: _is_array(v, "b", 1)),
    "names": ("be a row of texts", lambda v: _is_array(v, "O", 1) and all(map(_is_text, v))),
    "texts": ("be distinct texts", lambda v: _are_distinct(v, _is_text)),
    "labels": ("be two or more distinct labels", lambda v: _are_distinct(v, _is_label, least=2)),
    "totals": ("be numbers by model", _are_totals),
    "measures": (
        "be measures by attribute",
        lambda v: isinstance(v, dict) and all(type(of).__name__ == "Measure" for of in v.values()),
    ),
    "groups": _one_of("posterior", "attribute"),
    "column": _one_of("number", "category", "left out"),
    "link": _one_of("identity", "log"),
    "library": _one_of("xgboost", "lightgbm"),
    "numbers": ("be finite numbers", lambda v: _is_finite(v) or _finite_array(None)(v)),
    "pair": ("be two numbers", lambda v: isinstance(v, tuple) and len(v) == 2),
    "edges": ("be a list", lambda v: isinstance(v, tuple) and len(v) > 0),
    "base": ("be coefficients and an intercept", _is_base),
}


def _fields(name: str) -> Iterator[tuple[str, str, bool, bool]]:
    """Name of each field, its kind, whether it may be absent, whether it is a tuple of them."""
    for part in _FIELDS[name][1].split():
        field, _, kind = part.partition(":")
        yield field, kind.rstrip("?*"), kind.endswith("?"), kind.endswith("*")


def _must(good: bool, where: str, expected: str, value: Any) -> None:
    if not good:
        text = f"{value!r}".encode("ascii", "backslashreplace").decode()
        raise ValueError(f"`{where}` must {expected}, got {text[:60]}")


def _fits(kind: str, value: Any, where: str) -> None:
    if kind in _KINDS:
        expected, test = _KINDS[kind]
        _must(test(value), where, expected, value)
    elif kind == "any":
        _must(type(value).__name__ in _FIELDS, where, "be a model", value)
    else:
        types = kind.split("|")
        _must(type(value).__name__ in types, where, f"be a {' or '.join(types)}", value)


# ------------------------------------------------------------------------------------------------
# Values ↔ JSON. Numbers, texts, true, false, null and lists are themselves.


def _pack(value: Any, where: str) -> Any:
    """A value as JSON; InputError where it is something that only code can say."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        flat = value.ravel().tolist()
        return {"array": value.dtype.name, "shape": list(value.shape),
                "values": [v if math.isfinite(v) else str(v) for v in flat]}  # fmt: skip
    if isinstance(value, dict):
        return {"dict": {str(k): _pack(item, f"{where}.{k}") for k, item in value.items()}}
    if isinstance(value, list | tuple | np.ndarray):
        kind = "tuple" if isinstance(value, tuple) else "list"
        kind = "texts" if isinstance(value, np.ndarray) else kind
        return {kind: [_pack(item, f"{where}[{k}]") for k, item in enumerate(value)]}
    value = plain_model(value, where)
    name = type(value).__name__
    home = _FIELDS.get(name, ("", ""))[0]
    if not home or not type(value).__module__.startswith(home.split(".")[0]):
        raise InputError(
            "model", f"be made of what can be written as numbers and text; {where} is a "
            f"{type(value).__name__}, which is a program of its own",
            hint="linear models, trees, forests and boosted trees of scikit-learn, XGBoost and "
            "LightGBM can be saved, also after a StandardScaler or TableEncoder in a pipeline.",
        )  # fmt: skip
    out: dict[str, Any] = {"type": name}
    if isinstance(value, BaseEstimator):
        given = value.get_params(deep=False)
        out["parameters"] = {
            parameter: _describe(given[parameter], f"{where}.{parameter}")
            for parameter in given if parameter not in _REFITTED.get(name, ())
        }  # fmt: skip
    held = vars(value)
    if name == "Pipeline":
        held = dict(zip(("names", "parts"), zip(*value.steps, strict=True), strict=True))
    elif name == "FairGLM":
        held = value.__getstate__()
    for field, _, optional, several in _fields(name):
        if optional and held.get(field) is None:
            continue
        if field not in held:
            raise InputError("model", f"be fitted, and {where} has no `{field}`")
        packed = _pack(held[field], f"{where}.{field}")
        out[field] = packed["tuple"] if several else packed
    return out


def _describe(value: Any, where: str) -> Any:
    """A parameter; what is an object of its own, such as a splitter, by its description."""
    if type(value).__module__.startswith("evenhand.measures.losses"):
        raise InputError(
            "model", f"have a loss by name to be saved; {where} is a loss of your own, which is "
            "code",
        )  # fmt: skip
    parts = value.values() if isinstance(value, dict) else [value]
    plain = all(v is None or isinstance(v, bool | str | Real | np.bool_) for v in parts)
    return _pack(value, where) if plain else repr(value)


def _unpack(data: Any, where: str) -> Any:
    """The value behind JSON; an error where a field is not what it must be.

    What `_pack` would write in another way is found by `load`, which packs the model again.
    """
    if not isinstance(data, dict):
        _must(not isinstance(data, list), where, "be a value", data)
        return data
    if "type" in data:
        return _build(data, where)
    if "array" in data:
        known = ("float64", "float32", "int64", "int32", "uint8", "bool")
        _must(data["array"] in known, where, "be an array of numbers", data["array"])
        values = [float(v) if isinstance(v, str) else v for v in data["values"]]
        return np.array(values, dtype=data["array"]).reshape(data["shape"])
    ((kind, inside),) = data.items()
    if kind == "float":
        return float(inside)
    if kind == "dict":
        return {key: _unpack(item, f"{where}.{key}") for key, item in inside.items()}
    _must(kind in ("tuple", "list", "texts"), where, "be a value, a list or an object", data)
    values = [_unpack(item, f"{where}[{k}]") for k, item in enumerate(inside)]
    if kind == "texts":
        return np.array([*values, None], dtype=object)[:-1]  # also where all are tuples
    return tuple(values) if kind == "tuple" else values


def _build(data: dict[str, Any], where: str) -> Any:
    """An object from its type, parameters and fields, all of them checked."""
    name = data["type"]
    _must(isinstance(name, str) and name in _FIELDS, f"{where}.type", "be a known type", name)
    make = getattr(import_module(_FIELDS[name][0]), name)
    fields: dict[str, Any] = {}
    for field, kind, optional, several in _fields(name):
        if field not in data:
            if not optional:
                raise ValueError(f"`{where}.{field}` is missing")
            # scikit-learn asks whether a model has names of features, and not which.
            if not field.endswith("_in_"):
                fields[field] = None
            continue
        values = []
        for k, value in enumerate(data[field] if several else [data[field]]):
            place = f"{where}.{field}" + (f"[{k}]" if several else "")
            values.append(_unpack(value, place))
            _fits(kind, values[-1], place)
        fields[field] = tuple(values) if several else values[0]
    model = _make(name, make, data.get("parameters"), fields, f"{where}.parameters")
    _try(model)
    return model


def _make(name: str, make: Any, parameters: Any, fields: dict[str, Any], where: str) -> Any:
    if not issubclass(make, BaseEstimator):
        model = make.__new__(make)
        vars(model).update(fields)
        return model
    given = {key: _unpack(value, f"{where}.{key}") for key, value in parameters.items()}
    if name == "Pipeline":
        return make(list(zip(fields["names"], fields["parts"], strict=True)), **given)
    model = make(**given, **{key: fields.get(f"{key}_") for key in _REFITTED.get(name, ())})
    vars(model).update(fields)
    if "_maps" in fields:
        model.bends_, model.transport_ = model._maps.bends, model._maps.transport
    if name == "FairGLM":
        model._errors = None
    if hasattr(model, "_get_loss"):
        model._base_loss = model._get_loss()
    return model


def _try(model: Any) -> None:
    """Predict one row: fields that contradict each other would show in it."""
    n = getattr(model, "n_features_in_", None)
    if isinstance(model, Column):
        _must((model.kind == "category") == bool(model.levels), "levels", "be there for a "
              "category, and only for it", model.levels)  # fmt: skip
    elif isinstance(model, Bands):
        # Edges that rise, and one name more than edges: else `make` says what is wrong.
        like = "M8[us]" if isinstance(model.edges[0], str) else "f8"
        Bands.make(model.edges, np.empty(0, dtype=like), model.labels)
    elif isinstance(model, TableModel):
        width = sum(len(column.features) for column in model.columns)
        _must(model.model.n_features_in_ == width, "columns", f"become {model.model.n_features_in_}"
              " columns of numbers", width)  # fmt: skip
        _must(len(model.banded) == len(model.bands) and {*model.banded} <= {*model.sensitive},
              "banded", "be one of `sensitive`, each with its bands", model.banded)  # fmt: skip
    elif hasattr(model, "shares"):
        _must(len(model.shares) == len(model.labels) and (model.shares >= 0).all()
              and math.isclose(model.shares.sum(), 1.0, abs_tol=1e-6),
              "shares", "sum to 1, one for each group", model.shares)  # fmt: skip
    elif isinstance(n, int) and hasattr(model, "predict"):
        if hasattr(model, "_check_parameters"):
            model._check_parameters()
        members = _members(model)
        if hasattr(model, "group_features"):
            kind = None if members is None else members.kind
            _must(kind == model.group_features, "group_features", f"be {kind!r}",
                  model.group_features)  # fmt: skip
        if hasattr(model, "center_"):
            # Trees are tried by themselves; they may want text here.
            model = copy(model)
            model.estimator_ = DummyRegressor(strategy="constant", constant=model.center_)
            model.estimator_.fit([[0.0]], [0.0])
        known = {} if members is None else {"sensitive_features": [members.labels[0]]}
        names = getattr(model, "feature_names_in_", None)
        _must(names is None or len(names) == n, "feature_names_in_", f"have {n} entries", names)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            score = model.predict(np.zeros((1, n)), **known)
        _must(np.shape(score) == (1,), "coef_", "give one score a row", np.shape(score))


def _members(model: Any) -> Any:
    """How a model knows the group of a row, itself or by the model inside; None if it does not."""
    held = [getattr(part, name, None) for part in (model, getattr(model, "estimator_", None))
            for name in ("_group_features", "_membership")]  # fmt: skip
    return next((members for members in held if members is not None), None)


# ------------------------------------------------------------------------------------------------
# Trees as arrays, boosters as the text of their own library.


@dataclass(frozen=True)
class Trees:
    """Regression trees that are averaged or summed: base + scale·Σ value of the leaf.

    Attributes
    ----------
    n_features_in_ : int
    roots : (T,) array
        First node of each tree.
    feature, threshold, left, right, missing_left : (N,) arrays
        Rows with x ≤ threshold go left; so do missing ones where `missing_left`. A leaf has the
        left child −1.
    value : (N,) array
    base, scale : float
    link : {"identity", "log"}
    single : bool
        Whether x is rounded to float32 before it is compared.
    """

    n_features_in_: int
    roots: NDArray[np.int64]
    feature: NDArray[np.int64]
    threshold: Vector
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    missing_left: NDArray[np.bool_]
    value: Vector
    base: float = 0.0
    scale: float = 1.0
    link: str = "identity"
    single: bool = False
    feature_names_in_: Any = None

    @classmethod
    def join(cls, trees: list[tuple[Any, ...]], n_features: int, names: Any, **more: Any) -> Trees:
        """One row of nodes from those of several trees."""
        feature, threshold, left, right, missing, value = map(
            np.concatenate, zip(*trees, strict=True)
        )
        sizes = [len(tree[0]) for tree in trees]
        roots = np.cumsum([0, *sizes[:-1]])
        shift = np.repeat(roots, sizes)
        left, right = (np.where(child < 0, -1, child + shift) for child in (left, right))
        return cls(
            n_features, roots, feature.astype(np.int64), threshold, left, right,
            missing.astype(bool), value, feature_names_in_=names, **more,
        )  # fmt: skip

    def predict(self, X: Any) -> Vector:
        """(n,) scores."""
        X = check_array(X, dtype=np.float32 if self.single else np.float64, ensure_all_finite=False)
        out = np.empty(len(X))
        for start in range(0, len(X), 1024):
            rows = X[start : start + 1024].astype(np.float64)
            node = np.tile(self.roots, (len(rows), 1))
            # A child stands behind its parent, so that every walk ends.
            while (inner := self.left[node] >= 0).any():
                x = np.take_along_axis(rows, np.where(inner, self.feature[node], 0), axis=1)
                left = np.where(np.isnan(x), self.missing_left[node], x <= self.threshold[node])
                child = np.where(left, self.left[node], self.right[node])
                if (inner & (child <= node)).any():
                    raise ValueError("a node must stand behind its parent")
                node = np.where(inner, child, node)
            out[start : start + 1024] = self.value[node].sum(axis=1)
        out = self.base + self.scale * out
        return np.exp(out) if self.link == "log" else out


@dataclass(frozen=True)
class NativeModel:
    """A booster in the text of its own library.

    Attributes
    ----------
    library : {"xgboost", "lightgbm"}
    text : str
    """

    library: str
    text: str
    feature_names_in_: Any = None

    @cached_property
    def booster(self) -> Any:
        try:
            library = import_module(self.library)
        except ImportError:
            raise InputError(
                "path", f"name a model whose packages are installed: this one needs {self.library}",
                hint=f"{install_hint(self.library)}.",
            ) from None  # fmt: skip
        if self.library == "lightgbm":
            return library.Booster(model_str=self.text)
        model = library.XGBRegressor()
        model.load_model(bytearray(self.text, "utf-8"))
        return model

    def predict(self, X: Any) -> Vector:
        """(n,) scores."""
        return np.asarray(self.booster.predict(X))


def plain_model(value: Any, where: str) -> Any:
    """Trees and boosters as what can be written; anything else as it is."""
    kind, home = type(value).__name__, type(value).__module__.split(".")[0]
    names = getattr(value, "feature_names_in_", None)
    if kind == "LGBMRegressor":
        return NativeModel("lightgbm", value.booster_.model_to_string(), names)
    if kind == "XGBRegressor":
        return NativeModel("xgboost", value.get_booster().save_raw("json").decode(), names)
    if kind == "FrozenEstimator":
        return plain_model(value.estimator, where)
    if home != "sklearn" or not kind.endswith(("TreeRegressor", "ForestRegressor",
                                               "TreesRegressor", "BoostingRegressor")):  # fmt: skip
        return value
    n = value.n_features_in_
    if kind == "HistGradientBoostingRegressor":
        link = {"squared_error": "identity", "poisson": "log", "gamma": "log"}.get(value.loss, "")
        if value.is_categorical_ is not None or not link:
            raise InputError(
                "model", f"have numbers for features and means for scores; {where} has categories "
                "or another loss", hint="encode categories before it, by a TableEncoder.",
            )  # fmt: skip
        base = float(np.ravel(value._baseline_prediction)[0])
        trees = [
            (t["feature_idx"], t["num_threshold"],
             np.where(t["is_leaf"], -1, t["left"].astype(np.int64)), t["right"].astype(np.int64),
             t["missing_go_to_left"], t["value"])
            for t in (predictor.nodes for (predictor,) in value._predictors)
        ]  # fmt: skip
        return Trees.join(trees, n, names, base=base, link=link)
    members = list(np.ravel(getattr(value, "estimators_", [value])))
    base, scale = 0.0, 1.0 / len(members)
    if kind == "GradientBoostingRegressor":
        scale = value.learning_rate
        base = 0.0 if value.init_ == "zero" else float(value.init_.predict(np.zeros((1, n)))[0])
    if members[0].n_outputs_ != 1:
        raise InputError("model", f"have one output, and {where} has {members[0].n_outputs_}")
    trees = [
        (np.maximum(t.feature, 0), t.threshold, t.children_left, t.children_right,
         t.missing_go_to_left, t.value[:, 0, 0])
        for t in (member.tree_ for member in members)
    ]  # fmt: skip
    return Trees.join(trees, n, names, base=base, scale=scale, single=True)


# ------------------------------------------------------------------------------------------------
# The model of a command: it knows the columns of the table that it was fitted to.


@dataclass
class TableModel(Saves):
    """A model and the columns it needs, as ``evenhand frontier`` writes it.

    Attributes
    ----------
    model : fitted estimator
        Of the encoded columns.
    columns : tuple of Column
    target : str
        What it predicts.
    sensitive : tuple of str
        The attributes it was made fair to; needed to predict only by a model of the attribute.
    banded, bands : tuples of str and of Bands
        Those of them that are cut into bands before they are groups.
    about : dict
        What it was fitted to and how, for people.
    """

    model: Any
    columns: tuple[Column, ...]
    target: str
    sensitive: tuple[str, ...]
    banded: tuple[str, ...] = ()
    bands: tuple[Bands, ...] = ()
    about: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def labels(self) -> tuple[Any, ...]:
        """Groups that a model of the attribute tells apart; empty for others."""
        members = _members(self.model)
        return () if members is None or members.kind == "posterior" else members.labels

    @property
    def needs(self) -> list[str]:
        """Columns a table must have to be scored."""
        names = [c.name for c in self.columns if c.kind != "left out"]
        return [*names, *self.sensitive] if self.labels else names

    @property
    def text(self) -> list[str]:
        """Those of them that hold text, whatever the cells of a new table look like."""
        texts = [c.name for c in self.columns if c.kind == "category"]
        labels = [name for name in self.sensitive if name not in self.banded]
        return [name for name in self.needs if name in {*texts, *labels}]

    def predict(self, table: pa.Table) -> Vector:
        """Scores of the rows of an Arrow table."""
        return self.score_table(table)[0]

    def score_table(self, table: pa.Table) -> tuple[Vector, dict[str, int]]:
        """Scores, and how many rows had a level not seen in training, by column."""
        X, unseen = encode(table, self.columns)
        if not self.labels:
            return self.model.predict(X), unseen
        given = {name: self._column(table, name, k) for k, name in enumerate(self.sensitive)}
        return self.model.predict(X, sensitive_features=given), unseen

    def _column(self, table: pa.Table, name: str, place: int) -> NDArray[Any]:
        """Labels of an attribute as training has them, also of numbers written in another way."""
        if name in self.banded:
            bands = self.bands[self.banded.index(name)]
            try:
                return bands.apply(measurement(table.column(name)))
            except ValueError as error:
                kind = "dates" if bands.dates else "numbers"
                raise TableError(
                    f"Column {quote(name)} is cut into bands by the model and must hold {kind}. "
                    "Hint: leave a cell empty where it is not known."
                ) from error
        labels = [label[place] if isinstance(label, tuple) else label for label in self.labels]
        known = {str(label): label for label in labels}
        values = table.column(name).to_pylist()
        return np.array([known.get(str(v), known.get(_plain(v), v)) for v in values], dtype=object)


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
