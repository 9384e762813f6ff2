"""Fitted models as ONNX graphs, for where scores are served without Python.

Written operator by operator in double precision, trees too, so that scores are those of `predict`.
"""

from __future__ import annotations

from functools import partialmethod
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from ._core.installing import need
from ._core.validation import InputError
from .data.encoding import Column, TableEncoder
from .data.labels import label_text
from .measures.losses import LINKS
from .training.glm import FairGLM
from .training.group_features import GroupFeatures, Membership, Transport
from .training.linear import FairLinear
from .training.model_files import REGRESSORS, Trees, plain_model
from .training.postprocess import FairPostprocessor
from .training.recommended import FairRegressor
from .training.stack import FoldMean

__all__ = ["export"]

# The first with trees in double precision, and what is as old.
OPSET = {"": 21, "ai.onnx.ml": 5}
IR_VERSION = 10


def export(model: Any) -> Any:
    """A fitted model as an ONNX graph whose output ``score`` equals its `predict`.

    Inputs are in double precision: ``X``, (n, d), with the columns in the order of training; or,
    where categories are encoded, one (n, 1) input for each column that is used, by its name, with
    NaN and "" where a value is missing, and dates as days since 1970. A model that knows the group
    has an input ``sensitive_features`` too, (n, 1) text: labels as an audit shows them, crossed
    ones joined by " × ". Any other text counts as not known, and stands for the average of groups.

    Parameters
    ----------
    model : fitted model
        :class:`FairRidge`, :class:`FairGLM` (its means, per unit of exposure),
        :class:`FairPostprocessor` with or without `passthrough`, or :class:`FairRegressor`. A
        regressor inside can be a linear model, a tree, a forest or boosted trees of scikit-learn,
        and a pipeline of :class:`TableEncoder` or `StandardScaler` and one of these.

    Returns
    -------
    onnx.ModelProto
        ``onnx.save(graph, "model.onnx")`` writes it. Releases of ONNX Runtime before 1.24 score
        some trees wrongly.

    See Also
    --------
    evenhand.save

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> a, X = rng.integers(0, 2, 200), rng.normal(size=(200, 3))
    >>> model = eh.FairRidge().fit(X, X[:, 0] + a, sensitive_features=a)
    >>> graph = eh.onnx.export(model)
    >>> [value.name for value in graph.graph.input], [value.name for value in graph.graph.output]
    (['X'], ['score'])
    """
    check_is_fitted(model)
    graph = _Graph()
    return graph.close(graph.score(model, None))


class _Value:
    """An (n, ·) matrix of a graph, by its name; constants are what NumPy takes for arrays."""

    def __init__(self, graph: _Graph, name: str):
        self.graph, self.name = graph, name

    def _with(self, operator: str, other: Any) -> Any:
        return self.graph.add(operator, self, other)

    __add__, __sub__ = partialmethod(_with, "Add"), partialmethod(_with, "Sub")
    __mul__, __truediv__ = partialmethod(_with, "Mul"), partialmethod(_with, "Div")

    def __matmul__(self, other: Any) -> Any:
        # Not MatMul: ONNX Runtime draws factors next to it into it, in single precision.
        other = np.asarray(other)
        return self.graph.add("Gemm", self, other[:, None] if other.ndim == 1 else other)

    def total(self) -> Any:
        """Sums of rows, (n, 1)."""
        return self.graph.add("ReduceSum", self, np.array([1]))


Table = _Value | None  # None: the table as it is handed in


class _Graph:
    """Operators in the order in which they are added, and the inputs they turned out to need."""

    def __init__(self) -> None:
        self.onnx = need("onnx", "`export` needs the package onnx.", "[onnx]")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: dict[str, Any] = {}

    def add(self, operator: str, *inputs: Any, domain: str = "", **attributes: Any) -> Any:
        """The output of an operator."""
        names = [v.name if isinstance(v, _Value) else self._constant(v) for v in inputs]
        output = f"_{len(self.nodes)}"
        node = self.onnx.helper.make_node(operator, names, [output], domain=domain, **attributes)
        self.nodes.append(node)
        return _Value(self, output)

    def _constant(self, value: Any) -> str:
        array = np.asarray(value)
        array = array.astype(np.float64) if array.dtype.kind == "f" else array
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def cast(self, value: Any, kind: str = "DOUBLE") -> _Value:
        return self.add("Cast", value, to=getattr(self.onnx.TensorProto, kind))

    def read(self, name: str, kind: str = "DOUBLE", width: int = 1) -> _Value:
        """An input."""
        kind = getattr(self.onnx.TensorProto, kind)
        self.inputs[name] = self.onnx.helper.make_tensor_value_info(name, kind, ["n", width])
        return _Value(self, name)

    def matrix(self, X: Table, width: int) -> _Value:
        return self.read("X", width=width) if X is None else X

    def close(self, score: _Value) -> Any:
        """The graph, checked."""
        helper = self.onnx.helper
        flat = self.add("Reshape", score, np.array([-1]))
        self.nodes.append(helper.make_node("Identity", [flat.name], ["score"]))
        output = helper.make_tensor_value_info("score", self.onnx.TensorProto.DOUBLE, ["n"])
        graph = helper.make_graph(
            self.nodes, "evenhand", [*self.inputs.values()], [output], self.constants
        )
        imports = [helper.make_opsetid(*pair) for pair in OPSET.items()]
        model = helper.make_model(graph, opset_imports=imports, producer_name="evenhand")
        model.ir_version = IR_VERSION
        self.onnx.checker.check_model(model)
        return model

    # Regressors → (n, 1) scores -------------------------------------------------------------------

    def score(self, model: Any, X: Table) -> _Value:
        """The predictions of a fitted regressor."""
        model, X = self._last(model, X)
        model = plain_model(model, "model")
        if isinstance(model, FoldMean):
            parts = [self.score(part, X) for part in model.estimators_]
            return self.add("Sum", *parts) / float(len(parts))
        if isinstance(model, FairPostprocessor):
            return self._post_processed(model, X)
        if isinstance(model, Trees):
            return self._trees(model, self.matrix(X, model.n_features_in_))
        if isinstance(model, FairLinear):
            eta = self._predictor(model, self.matrix(X, len(model.coef_)))
            return self._mean(model, eta) if isinstance(model, FairGLM) else eta
        if type(model).__name__ not in REGRESSORS:
            raise _refused(model)
        eta = self.matrix(X, model.n_features_in_) @ np.ravel(model.coef_) + model.intercept_
        link = getattr(getattr(model, "_base_loss", None), "link", None)
        return self.add("Exp", eta) if type(link).__name__ == "LogLink" else eta

    def _predictor(self, model: FairLinear, X: _Value) -> _Value:
        score = X @ model.coef_ + model.intercept_
        features = model._group_features
        if not isinstance(features, GroupFeatures):
            return score
        base, intercept = model._base
        z = (X @ base + (intercept - features.center)) / features.scale
        # The first group has neither a shift nor a slope.
        shift, slope = np.pad(np.reshape(model.group_coef_, (2, -1)), ((0, 0), (1, 0)))
        p = self._members(features, X, features.posterior)
        return score + p @ shift + (p @ slope) * z

    def _mean(self, model: FairGLM, eta: _Value) -> _Value:
        link = model.loss_.link
        if LINKS.get(link.name) is not link:
            raise _refused(link)
        if link.positive:
            eta = self.add("Max", eta, model._least_eta)
        if link.name == "log":
            ends = np.log(link.inverse(np.array([-np.inf, np.inf])))
            return self.add("Exp", self.add("Clip", eta, *ends))
        if link.name == "logit":
            return self.add("Sigmoid", eta)
        power = {"inverse": -1.0, "inverse_squared": -0.5}.get(link.name)
        return eta if power is None else self.add("Pow", eta, power)

    def _post_processed(self, model: FairPostprocessor, X: Table) -> _Value:
        z = (self.score(model.estimator_, X) - model.center_) / model.scale_
        numbers = X if model._copy is None else self.numbers(model._copy, X)
        maps = model._maps
        columns = z
        if len(maps.bends):
            columns = self.add("Concat", z, self.add("Max", z - maps.bends, 0.0), axis=1)
        moved = p = None
        if model._membership is not None:
            own = model.group_classifier is not None
            p = self._members(model._membership, X if own else numbers, model.group_classifier_)
        if maps.transport is not None:
            moved = self._transported(maps.transport, z)
        if model.passthrough:
            parts = [numbers, columns]
            if p is not None:
                others = p @ np.eye(maps.n_groups)[:, 1:]
                parts += [others, *([] if moved is None else [(moved * p).total()]), others * z]
            return self._predictor(model.regressor_, self.add("Concat", *parts, axis=1))
        each = columns @ model.slopes_[:, : 1 + len(maps.bends)].T + model.offsets_
        each = each if moved is None else each + moved * model.slopes_[:, 1]
        return (each if p is None else each * p).total()

    def _transported(self, transport: Transport, z: _Value) -> _Value:
        """(n, K): each group's map, its pieces added up."""
        out = []
        for knots, values in zip(transport.knots, transport.values, strict=True):
            width = np.append(np.diff(knots), np.inf)
            rise = np.append(np.diff(values) / width[:-1], 1.0)
            below = self.add("Min", z - knots[0], 0.0)
            pieces = self.add("Min", self.add("Max", z - knots, 0.0), width)
            out.append(pieces @ rise + below + values[0])
        return self.add("Concat", *out, axis=1)

    def _trees(self, trees: Trees, X: _Value) -> _Value:
        """base + scale·Σ value of the leaf; a root that is a leaf is a node with itself below."""
        leaf = trees.left < 0
        inner = ~leaf
        inner[trees.roots] = True
        number = np.cumsum(inner) - 1, np.cumsum(leaf) - 1
        below: dict[str, Any] = {}
        for side, child in (("true", trees.left), ("false", trees.right)):
            child = np.where(leaf, np.arange(len(leaf)), child)[inner]
            below[f"nodes_{side}nodeids"] = np.where(
                leaf[child], number[1][child], number[0][child]
            )
            below[f"nodes_{side}leafs"] = leaf[child].astype(np.int64)
        tensor = self.onnx.numpy_helper.from_array
        total = self.add(
            "TreeEnsemble", self.cast(self.cast(X, "FLOAT")) if trees.single else X, **below,
            domain="ai.onnx.ml", n_targets=1, aggregate_function=1, post_transform=0,
            tree_roots=number[0][trees.roots],
            nodes_featureids=np.maximum(trees.feature[inner], 0),
            nodes_splits=tensor(trees.threshold[inner].astype(np.float64)),
            nodes_modes=tensor(np.zeros(inner.sum(), dtype=np.uint8)),
            nodes_missing_value_tracks_true=trees.missing_left[inner].astype(np.int64),
            leaf_targetids=np.zeros(leaf.sum(), dtype=np.int64),
            leaf_weights=tensor(trees.value[leaf].astype(np.float64)),
        ) * trees.scale + trees.base  # fmt: skip
        return self.add("Exp", total) if trees.link == "log" else total

    # Groups → (n, K) memberships ------------------------------------------------------------------

    def _members(self, members: Membership, X: Table, classifier: Any) -> _Value:
        if members.kind == "posterior":
            return self._probabilities(classifier, X)
        texts = [[label_text(label) for label in members.labels]]
        hit = self._equal(self.read("sensitive_features", "STRING"), texts)
        return hit + (hit.total() - 1.0) * -members.shares

    def _equal(self, text: _Value, levels: Any) -> _Value:
        return self.cast(self.add("Equal", text, np.array(levels, dtype=object)))

    def _probabilities(self, classifier: Any, X: Table) -> _Value:
        classifier, X = self._last(classifier, X)
        if type(classifier).__name__ != "LogisticRegression":
            raise _refused(classifier)
        weights, intercept = classifier.coef_, classifier.intercept_
        if len(weights) == 1:  # of the second class; the first has a score of 0
            weights, intercept = np.vstack([0.0 * weights, weights]), np.r_[0.0, intercept]
        scores = self.matrix(X, classifier.n_features_in_) @ weights.T + intercept
        return self.add("Softmax", scores, axis=1)

    # Tables → (n, d) numbers ----------------------------------------------------------------------

    def _last(self, model: Any, X: Table) -> tuple[Any, Table]:
        """The part of a model that scores, and what the steps before it make of X."""
        steps = [getattr(model, name, None) for name in ("encoder_", "scaler_")]
        if isinstance(model, Pipeline):
            *steps, model = (step for _, step in model.steps)
        for step in steps:
            X = X if step is None else self.numbers(step, X)
        return model.estimator_ if isinstance(model, FairRegressor) else model, X

    def numbers(self, step: Any, X: Table) -> _Value:
        """What a fitted transformer makes of X."""
        if isinstance(step, TableEncoder):
            return self._encoded(step.columns_, X)
        if not isinstance(step, StandardScaler):
            raise _refused(step)
        X = self.matrix(X, step.n_features_in_)
        X = X - step.mean_ if step.with_mean else X
        return X / step.scale_ if step.with_std else X

    def _encoded(self, columns: tuple[Column, ...], X: Table) -> _Value:
        by_name = X is None and any(column.kind == "category" for column in columns)
        X = None if by_name else self.matrix(X, len(columns))
        parts: list[_Value] = []
        for place, column in enumerate(columns):
            if column.kind == "category":
                levels = [*column.levels, *[""] * column.missing]
                hit = self._equal(self.read(column.name, "STRING"), [levels])
                turn, rest = np.eye(len(levels)), np.zeros(len(levels))
                if column.other:  # what is none of them, in its place before the missing ones
                    turn = np.insert(turn, len(column.levels), -1.0, axis=1)
                    rest = np.insert(rest, len(column.levels), 1.0)
                parts.append(hit @ turn[:, 1:] + rest[1:])
            elif column.kind == "number":
                value = (
                    self.read(column.name) if X is None else self.add("Gather", X, [place], axis=1)
                )
                absent = self.add("IsNaN", value)
                value = self.add("Where", absent, column.fill, value) if column.missing else value
                parts.append((value - column.center) / column.scale)
                parts += [self.cast(absent)] * column.missing
        return self.add("Concat", *parts, axis=1)


def _refused(part: Any) -> InputError:
    name = getattr(part, "library", type(part).__name__)
    return InputError(
        "model", f"be made of linear models, trees and forests of scikit-learn, and has {name}",
        hint="linear models, trees, forests and boosted trees of scikit-learn become ONNX.",
    )  # fmt: skip
