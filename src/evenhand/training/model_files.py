"""Fitted models as plain JSON files: all that `predict` needs, and nothing that is code.

    {"format": "evenhand.model", "version": 3, "about": {...}, "model": {...}, "digest": "..."}

An object is its type, its parameters and its fields. `_FIELDS` lists the types; a file that names
another is refused. The digest is that of everything else in the file, so that one which was changed
after it was written is refused, and fields need no further checks. Nothing in it is code, so
opening a stranger's file is safe, and a person can read it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from inspect import signature
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array

from .._core.arrays import Vector
from .._core.files import TableError, write_text
from .._core.validation import InputError, quote
from ..data.bands import Bands, measurement
from ..data.encoding import Column, encode

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT, VERSION = "evenhand.model", 3
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

    A file that was changed is refused, and nothing is executed. Predictions equal those of the
    model that was saved. What trees a model stands on come back as arrays that predict, and cannot
    be fitted again.

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
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _refused(path, "is not a model: it is no JSON") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise _refused(path, "is not a model written by evenhand")
    version = data.get("version")
    if version != VERSION:
        raise _refused(
            path, f"has version {version!r} of the format; this evenhand reads version {VERSION}"
        )
    try:
        if data.get("digest") != _digest(data):
            raise ValueError("it was changed after it was written")
        model = _unpack(data["model"])
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise _refused(path, f"is damaged: {error}") from error
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


# ------------------------------------------------------------------------------------------------
# What each type holds: the fields that are written, where an object has them.


_NAMES = "n_features_in_ feature_names_in_"
_FAIR = (
    f"{_NAMES} coef_ intercept_ group_coef_ group_alpha_ unfairness_ objective_ n_iter_ "
    "n_evaluations_ encoder_ _group_features _base controls_summary_"
)
_REGRESSORS = (
    "LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV",
    "BayesianRidge", "HuberRegressor", "SGDRegressor", "QuantileRegressor", "PoissonRegressor",
    "GammaRegressor", "TweedieRegressor",
)  # fmt: skip
# Where a type is, its name, and its fields.
_TYPES = f"""
evenhand.training.linear FairRidge {_FAIR}
evenhand.training.glm FairGLM {_FAIR} n_newton_ _least_eta _covariance _errors totals_
evenhand.training.postprocess FairPostprocessor
    {_NAMES} estimator_ group_classifier_ regressor_ columns_ passthrough_alpha_ map_ center_
    scale_ bends_ transport_ offsets_ slopes_ blend_ unfairness_ n_iter_ _maps _membership _copy
evenhand.training.recommended FairRegressor
    {_NAMES} encoder_ scaler_ estimator_ choice_ explanation_ tried_ measure_ measures_
    fairness_weight_ r2_ unfairness_ unfairness_bound_ unseen_
{__name__} TableModel model columns target sensitive banded bands
evenhand.training.group_features GroupFeatures kind labels shares center scale posterior
evenhand.training.group_features Membership kind labels shares
evenhand.training.group_features Transport knots values
evenhand.training.group_features ScoreMaps n_groups bends transport stacked
evenhand.training.recommended Tried
    name words fairness_weight r2 unfairness reached behind behind_stderr
evenhand.measures.measures Measure
    criterion value nats normalizer stderr interval p_value estimator chosen n n_effective
    n_clusters n_merged freedom n_independent of
evenhand.data.encoding Column name kind fill center scale missing levels other reason
evenhand.data.bands Bands edges labels
evenhand.data.encoding TableEncoder {_NAMES} columns_
evenhand.training.stack FoldMean estimators_
{__name__} Trees
    n_features_in_ feature_names_in_ roots feature left right threshold missing_left value base
    scale link single
{__name__} NativeModel library text feature_names_in_
sklearn.pipeline Pipeline
sklearn.preprocessing StandardScaler {_NAMES} mean_ var_ scale_
sklearn.linear_model LogisticRegression {_NAMES} coef_ intercept_ classes_
sklearn.dummy DummyRegressor n_outputs_ constant_
"""
_FIELDS: dict[str, tuple[str, list[str]]] = {
    **{name: (home, fields) for home, name, *fields in (
        entry.split() for entry in re.split(r"\n(?=\w)", _TYPES.strip())
    )},
    **dict.fromkeys(
        _REGRESSORS, ("sklearn.linear_model", [*_NAMES.split(), "coef_", "intercept_"])
    ),
}  # fmt: skip
TOTALS = ("deviance", "explained", "total", "actual_to_expected")


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
    value = _plain_model(value, where)
    name = type(value).__name__
    home, fields = _FIELDS.get(name, ("", []))
    if not home or not type(value).__module__.startswith(home.split(".")[0]):
        raise InputError(
            "model", f"be made of what can be written as numbers and text; {where} is a "
            f"{type(value).__name__}, which is a program of its own",
            hint="linear models, trees, forests and boosted trees of scikit-learn, XGBoost and "
            "LightGBM can be saved, also after a StandardScaler or TableEncoder in a pipeline.",
        )  # fmt: skip
    out: dict[str, Any] = {"type": name}
    held = value.__getstate__() if name == "FairGLM" else vars(value)
    if isinstance(value, BaseEstimator):
        if name != "Pipeline" and not any(field in held for field in fields):
            raise InputError("model", f"be fitted, and {where} is not")
        given = value.get_params(deep=False)
        # The estimator of a post-processor comes back as what was fitted by it.
        given.pop("estimator", None)
        out["parameters"] = {
            key: _pack(parameter, f"{where}.{key}") if key == "steps"
            else _describe(parameter, f"{where}.{key}")
            for key, parameter in given.items()
        }  # fmt: skip
    return out | {f: _pack(held[f], f"{where}.{f}") for f in fields if f in held}


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


def _unpack(data: Any) -> Any:
    """The value behind JSON."""
    if not isinstance(data, dict):
        return data
    if "type" in data:
        return _build(data)
    if "array" in data:
        values = [float(v) if isinstance(v, str) else v for v in data["values"]]
        return np.array(values, dtype=data["array"]).reshape(data["shape"])
    ((kind, inside),) = data.items()
    if kind == "float":
        return float(inside)
    if kind == "dict":
        return {key: _unpack(item) for key, item in inside.items()}
    values = [_unpack(item) for item in inside]
    if kind == "texts":
        return np.array([*values, None], dtype=object)[:-1]  # also where all are tuples
    return tuple(values) if kind == "tuple" else values


def _build(data: dict[str, Any]) -> Any:
    """An object from its type, parameters and fields."""
    name = data["type"]
    home, known = _FIELDS[name]
    make = getattr(import_module(home), name)
    fields = {field: _unpack(data[field]) for field in known if field in data}
    if not issubclass(make, BaseEstimator):
        model = make.__new__(make)
        vars(model).update(fields)
        return model
    given = {key: _unpack(value) for key, value in data["parameters"].items()}
    if "estimator_" in fields and "estimator" in signature(make).parameters:
        given["estimator"] = fields["estimator_"]
    model = make(**given)
    vars(model).update(fields)
    if hasattr(model, "_check_parameters"):
        model._check_parameters()
    if hasattr(model, "_get_loss"):
        model._base_loss = model._get_loss()
    return model


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
        dtype = np.float32 if self.single else np.float64
        X = check_array(X, dtype=dtype, ensure_all_finite=False)
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
            # By its name alone, which a stranger has written.
            library = import_module("lightgbm" if self.library == "lightgbm" else "xgboost")
        except ImportError:
            raise InputError(
                "path", f"name a model whose packages are installed: this one needs {self.library}",
                hint=f"pip install {self.library}.",
            ) from None  # fmt: skip
        if self.library == "lightgbm":
            return library.Booster(model_str=self.text)
        model = library.XGBRegressor()
        model.load_model(bytearray(self.text, "utf-8"))
        return model

    def predict(self, X: Any) -> Vector:
        """(n,) scores."""
        return np.asarray(self.booster.predict(X))


def _plain_model(value: Any, where: str) -> Any:
    """Trees and boosters as what can be written; anything else as it is."""
    kind, home = type(value).__name__, type(value).__module__.split(".")[0]
    names = getattr(value, "feature_names_in_", None)
    if kind == "LGBMRegressor":
        return NativeModel("lightgbm", value.booster_.model_to_string(), names)
    if kind == "XGBRegressor":
        return NativeModel("xgboost", value.get_booster().save_raw("json").decode(), names)
    if kind == "FrozenEstimator":
        return _plain_model(value.estimator, where)
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
