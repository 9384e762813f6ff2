"""Which features carry a disparity.

    part of feature j = gap(s) − gap(s with the path of feature j closed)

and likewise for the normalized information of each criterion. A path is closed by giving everybody
the same distribution of the feature, whatever the group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse
from scipy.special import ndtri
from sklearn.model_selection import KFold, cross_val_predict

from .._core.arrays import Rows, Vector
from .._core.frames import json_safe
from .._core.progress import progress
from .._core.validation import (
    InputError,
    check_column,
    check_confidence_level,
    check_positive_integer,
    check_seed,
    frame_columns,
    read_native,
    refuse_masked,
)
from .._core.views import Paged, Tabled, view
from ..data.criteria import INDEPENDENCE, Criterion, get_criterion
from ..data.encoding import TableEncoder
from ..data.groups import Groups
from ..data.sample import Sample
from ..data.weights import cluster_sums
from ..estimators.estimation import EntropyEstimator
from ..measures.entropies import Entropies, estimate_entropies, get_estimator
from ..measures.losses import R2
from ..measures.measures import standard_error
from .influence import GroupRows, find_reference

# ------------------------------------------------------------------------------------------------
# Features one at a time: a table with one column closed, and what a column says by itself.


class FeatureTable:
    """A frame, array or sparse matrix whose columns can be replaced one at a time."""

    def __init__(self, X: Any):
        frame = read_native(X, "X")
        self._frame = frame if isinstance(frame, nw.DataFrame) else None
        if self._frame is not None:
            self.X = X
            # Narwhals matches rows by their index.
            self._frame = nw.maybe_reset_index(self._frame)
            self._columns = dict(frame_columns(self._frame))
            self.names, self.n = list(self._columns), len(self._frame)
            return
        refuse_masked(X, "X")
        self.X = X.tocsc() if sparse.issparse(X) else np.asarray(X)
        if self.X.ndim != 2:
            raise InputError(
                "X", f"be a table with one column per feature, got {self.X.ndim} dimension(s)",
                hint="pass a frame, or an array of shape (n, d).",
            )  # fmt: skip
        self.n = self.X.shape[0]
        self.names = [f"x{j}" for j in range(self.X.shape[1])]

    def values(self, name: str) -> Any:
        """One column: as narwhals sees it, or a dense array."""
        if self._frame is not None:
            return self._columns[name]
        column = self.X[:, self.names.index(name)]
        return column.toarray().ravel() if sparse.issparse(column) else column

    def evenly(self, name: str, count: int) -> Rows:
        """Rows spread evenly over the column in its order, so that their values stand for it."""
        column = self.values(name)
        key = _as_numbers(column)
        order = np.argsort(_levels(column) if key is None else key, kind="stable")
        count = min(count, self.n)
        return order[((np.arange(count) + 0.5) * self.n / count).astype(np.intp)]

    def constants(self, name: str, rows: Rows) -> Any:
        """The table with one column as it is in one row, for all rows; once for each, below."""
        again, taken = np.tile(np.arange(self.n), len(rows)), np.repeat(rows, self.n)
        j = self.names.index(name)
        if sparse.issparse(self.X):
            column = sparse.csc_matrix(self.values(name)[taken][:, None])
            whole = self.X.tocsr()[again].tocsc()
            parts = [whole[:, :j], column, whole[:, j + 1 :]]
            return sparse.hstack([p for p in parts if p.shape[1]], format="csr")
        if self._frame is None:
            table = self.X[again]
            table[:, j] = self.X[taken, j]
            return table
        column = self._columns[name]
        table = nw.maybe_reset_index(self._frame[again])
        values = nw.maybe_reset_index(column[taken])
        return table.with_columns(values.alias(column.name)).to_native()


def stand_in(
    column: Any, name: str, groups: Groups, estimator: EntropyEstimator
) -> tuple[float, float]:
    """I(X_j;A)/H(A), left out row by row, and its standard error: how well X_j stands for A."""
    encoder = TableEncoder(min_level_rows=1, max_levels=10**9).fit(_table(column, name))
    (spec,) = encoder.columns_
    if spec.kind == "number" and not spec.missing:
        x = groups.take_known(encoder.transform(_table(column, name))[:, 0])
        entropies = estimate_entropies(
            [INDEPENDENCE], {"s": groups.put_known(x)}, groups, estimator
        )  # fmt: skip
        psi, value = entropies.influence(INDEPENDENCE), entropies.normalized(INDEPENDENCE)
        return value, standard_error(psi, groups.weight, groups.cluster)
    if spec.kind == "left out" and "different texts" not in spec.reason:
        return 0.0, 0.0
    return _levels_information(groups.take_known(_levels(column)), groups)


def _as_numbers(column: Any) -> Any:
    """A column of numbers as an array; None for anything else."""
    if isinstance(column, np.ndarray):
        return column if column.dtype.kind in "fiub" else None
    if not column.dtype.is_numeric():
        return None
    return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _levels(column: Any) -> Rows:
    """Numbers of the distinct values, missing ones being one more."""
    values = list(column) if isinstance(column, np.ndarray) else column.to_list()
    text = np.array(["" if v is None or v != v else f"={v}" for v in values])
    return np.unique(text, return_inverse=True)[1]


def _levels_information(level: Rows, groups: Groups) -> tuple[float, float]:
    """1 − H(A|level)/H(A), each row (or cluster) predicted from the others of its level.

    ρ_k = (n_lk + P(k)) / (n_l + 1) over the others, the shares P counting for one row.
    """
    member = groups.membership()
    weight = groups.row_weight
    own = member * weight[:, None]
    n_levels = int(level.max()) + 1
    total = np.zeros((n_levels, groups.n_groups))
    np.add.at(total, level, own)
    if groups.cluster is not None:
        # What the row's own cluster has in its level.
        pair = np.unique(level * groups.n_units + groups.cluster, return_inverse=True)[1]
        within = np.column_stack([cluster_sums(pair, column) for column in own.T])
        own = within[pair]
    counts = np.maximum(total[level] - own, 0.0)
    rho = (counts + groups.shares) / (counts.sum(axis=1) + 1.0)[:, None]
    loss = -(member * np.log(rho)).sum(axis=1)
    base = -(member @ np.log(groups.shares))
    left = float(np.average(loss, weights=groups.weight)) / groups.entropy
    psi = (base * left - loss) / groups.entropy
    return max(1.0 - left, -0.1), standard_error(psi, groups.weight, groups.cluster)


def _table(column: Any, name: str) -> Any:
    return column[:, None] if isinstance(column, np.ndarray) else column.alias(name).to_frame()


# ------------------------------------------------------------------------------------------------
# A score with the path of one feature closed: by the model, or by a surrogate of it.


# Rows that are scored at a time: many calls of a few rows take longer than few of many.
TOGETHER = 50_000


@dataclass(frozen=True)
class Closing:
    """The score, and the score with the path of one feature closed."""

    score: Vector
    without: Callable[[str], Vector]
    surrogate_r2: float = float("nan")


def close_paths(
    model: Any, table: FeatureTable, sample: Sample, n_values: int, seed: int
) -> Closing:
    """The score and how to close a path; `sample.others` holds the labels of the groups."""
    if not hasattr(model, "predict"):
        score = check_column(model, "model_or_scores", table.n)
        return _surrogate(score, table, sample.weight, n_values, seed)
    extra: dict[str, Any] = {}
    if getattr(model, "group_features", None) == "attribute":
        extra["sensitive_features"] = sample.others["labels"]

    def predict(X: Any) -> Vector:
        return np.asarray(model.predict(X, **extra), dtype=np.float64).ravel()

    # Groups that a model asks for are those of one copy of the table.
    return _replaced(predict, table, n_values, 1 if extra else TOGETHER)


def _replaced(
    predict: Callable[[Any], Vector], table: FeatureTable, n_values: int, together: int = TOGETHER
) -> Closing:
    n = table.n

    def without(name: str) -> Vector:
        rows = table.evenly(name, n_values)
        total = np.zeros(n)
        for few in np.array_split(rows, -(-len(rows) // max(together // n, 1))):
            scores = predict(table.constants(name, few))
            total += scores.reshape(len(few), n).sum(axis=0)
        return total / len(rows)

    return Closing(predict(table.X), without)


def _surrogate(
    score: Vector, table: FeatureTable, weight: Vector | None, n_values: int, seed: int
) -> Closing:
    """A boosted model of the scores; a closed path moves the score by what it moves the model."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(
        TableEncoder(standardize=False), HistGradientBoostingRegressor(random_state=seed)
    )
    # Shuffled: in a table sorted by score no fold has seen the scores of another.
    folds = KFold(5, shuffle=True, random_state=seed)
    held_out = cross_val_predict(model, table.X, score, cv=folds)
    model.fit(table.X, score)
    r2 = 1.0 if score.min() == score.max() else R2.value(score, held_out, weight)
    replaced = _replaced(model.predict, table, n_values)
    fitted = replaced.score
    return Closing(score, lambda name: score - (fitted - replaced.without(name)), r2)


@dataclass(frozen=True)
class Part:
    """How much of a number goes away when a feature's path is closed, with its error."""

    value: float
    stderr: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Driver:
    """One feature.

    Attributes
    ----------
    feature : str
    stands_in : Part
        I(X_j;A)/H(A): how well the feature alone tells the group.
    gaps : dict of group → Part
        Part of the group's mean score less that of the reference.
    criteria : dict of criterion → Part
        Part of the normalized information; negative where the feature hides a disparity.
    """

    feature: str
    stands_in: Part
    gaps: dict[str, Part]
    criteria: dict[str, Part]


@dataclass(frozen=True)
class Drivers(Tabled, Paged):
    """The result of :func:`drivers`.

    Attributes
    ----------
    drivers : tuple of Driver
        In the order of how much of the widest gap they carry.
    reference : str
        The group that gaps are taken from.
    widest : str
        The group with the widest gap.
    gaps : dict of group → Part
        The gaps themselves.
    criteria : dict of criterion → Part
        The measures themselves.
    surrogate_r2 : float
        Share of the score's variance that the features explain, where no model was given; else NaN.

    See Also
    --------
    evenhand.drivers
    evenhand.audit

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> a, X = rng.integers(0, 2, 300), rng.normal(size=(300, 2))
    >>> X[:, 0] += a
    >>> result = eh.drivers(X[:, 0], X, sensitive_features=a, estimator="logistic", random_state=0)
    >>> result.drivers[0].feature
    'x0'
    """

    drivers: tuple[Driver, ...]
    reference: str
    widest: str
    gaps: dict[str, Part]
    criteria: dict[str, Part]
    sensitive_name: str = "group"
    surrogate_r2: float = float("nan")
    confidence_level: float = 0.95
    notes: tuple[str, ...] = field(default_factory=tuple)

    def __getitem__(self, feature: str) -> Driver:
        for driver in self.drivers:
            if driver.feature == feature:
                return driver
        there = ", ".join(repr(d.feature) for d in self.drivers[:20])
        raise KeyError(f"no feature named {feature!r}; there are {there}")

    def __len__(self) -> int:
        return len(self.drivers)

    @property
    def remainder(self) -> float:
        """The widest gap less the sum of its parts; what features do together, counted neither."""
        whole = self.gaps[self.widest].value
        left = whole - sum(d.gaps[self.widest].value for d in self.drivers)
        return 0.0 if abs(left) < 1e-12 * abs(whole) else left  # but for rounding

    def _columns(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {"feature": [d.feature for d in self.drivers]}
        for d in self.drivers:
            parts = {"stands_in": d.stands_in, "gap": d.gaps[self.widest], **d.criteria}
            for name, part in parts.items():
                ends = zip(("", "_low", "_high"), (part.value, *part.interval), strict=True)
                for end, value in ends:
                    columns.setdefault(f"{name}{end}", []).append(value)
        return columns

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values that JSON can hold."""
        held = {"format": "evenhand.drivers", "version": 1, **vars(self)}
        held |= {"sensitive": held.pop("sensitive_name"), "remainder": self.remainder}
        return json_safe(held)

    def plot(self, n: int = 15) -> Any:
        """A Matplotlib figure: parts of the gap and of the criteria, the `n` largest."""
        return view("plot_drivers")(self, n)


def drivers(
    model_or_scores: Any,
    X: Any,
    *,
    sensitive_features: Any,
    y_true: Any = None,
    sample_weight: Any = None,
    cluster: Any = None,
    criteria: Sequence[str] | None = None,
    reference: str = "largest",
    n_values: int = 16,
    estimator: Any = "auto",
    confidence_level: float = 0.95,
    random_state: Any = None,
) -> Drivers:
    """Find the features that carry a disparity.

    For each feature: how well it alone stands in for the group, I(X_j;A)/H(A), and how much of the
    gap between mean scores, and of each criterion, goes away when its path is closed.

    Parameters
    ----------
    model_or_scores : fitted regressor, or (n,) array
        Anything with ``predict``. For scores alone a boosted surrogate of them is fitted to X, and
        `surrogate_r2` says how much of them it explains.
    X : (n, d) frame, array or sparse matrix
        What the model takes; text and missing values pass through to it. Best of rows that the
        model was not fitted to: what a flexible model has learned by heart gives parts to features
        that have no path.
    sensitive_features : array, series, frame or Proxy
    y_true : (n,) array, optional
        Targets, for criteria that need them.
    sample_weight, cluster : (n,) arrays, optional
        As for :func:`audit`.
    criteria : sequence of str, optional
        By default independence, and with a target separation.
    reference : str
        Group that gaps are taken from: "largest", or a label.
    n_values : int
        How many values of the feature everybody is given in turn, spread evenly over the rows in
        its order; the score is the mean over them.
    estimator, confidence_level, random_state
        As for :func:`audit`.

    Returns
    -------
    Drivers

    Notes
    -----
    With a model that adds up (a linear one) the parts of a gap add up to the gap. With any other
    they need not: two features that only together make a difference are each counted with it, and
    two that stand in for each other are each counted without it. Parts of an information do not
    add up at all. Closing a path is a statement about the model and not about the world: what
    would happen if the feature itself were changed is another question.

    See Also
    --------
    evenhand.Drivers
    evenhand.audit

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 1000)
    >>> X = rng.normal(size=(1000, 3)) + a[:, None] * [1.0, 0.0, 0.0]
    >>> model = LinearRegression().fit(X, X @ [1.0, 1.0, 0.0] + rng.normal(size=1000))
    >>> eh.drivers(model, X, sensitive_features=a).drivers[0].feature
    'x0'
    """
    check_positive_integer("n_values", n_values)
    level, seed = check_confidence_level(confidence_level), check_seed(random_state)
    table = FeatureTable(X)
    sample = _read_rows(
        table, y_true, model_or_scores=model_or_scores, sensitive_features=sensitive_features,
        sample_weight=sample_weight, cluster=cluster,
    )  # fmt: skip
    closing = close_paths(model_or_scores, table, sample, int(n_values), seed)
    whole = _Whole(
        closing.score, sample,
        find_reference(reference, sample.groups.label_names, sample.groups.shares),
        _criteria(criteria, sample.target),
        get_estimator(estimator, seed), float(ndtri(0.5 + level / 2)),
    )  # fmt: skip
    parts = []
    with progress(len(table.names), "drivers") as advance:
        for name in table.names:
            parts.append(whole.driver(name, table.values(name), closing.without(name)))
            advance()
    notes: tuple[str, ...] = ()
    if closing.surrogate_r2 < 0.9:
        notes = (
            f"The features explain {100 * max(closing.surrogate_r2, 0.0):.0f}% of the scores: what "
            "else went into them is in no part.",
        )
    gaps = whole.gap_parts(closing.score)
    widest = max(gaps, key=lambda name: abs(gaps[name].value))
    parts.sort(key=lambda driver: -abs(driver.gaps[widest].value))
    return Drivers(
        drivers=tuple(parts),
        reference=sample.groups.label_names[whole.reference],
        widest=widest,
        gaps=gaps,
        criteria=whole.criterion_parts(),
        sensitive_name=sample.groups.name,
        surrogate_r2=closing.surrogate_r2,
        confidence_level=level,
        notes=notes,
    )


def _read_rows(table: FeatureTable, y_true: Any, **columns: Any) -> Sample:
    """The rows beside a table of features, with the labels of the groups as they were handed in."""
    y = None if y_true is None else check_column(y_true, "y_true", table.n)
    sample = Sample.read(y, X=table.X, **columns)
    if sample.groups.measured is not None:
        raise InputError(
            "sensitive_features", "be groups for drivers, got a Continuous",
            hint="cut it with evenhand.bands.",
        )  # fmt: skip
    return replace(sample, others={"labels": columns["sensitive_features"]})


@dataclass(frozen=True)
class _Whole:
    """The score as it is, which scores with a closed path are compared with."""

    score: Vector
    sample: Sample
    reference: int
    criteria: list[Criterion]
    estimator: EntropyEstimator
    z: float

    def entropies(self, score: Vector) -> Entropies:
        variables = replace(self.sample, scores=score).variables
        return estimate_entropies(self.criteria, variables, self.sample.groups, self.estimator)

    @cached_property
    def own(self) -> Entropies:
        return self.entropies(self.score)

    def gap_parts(self, values: Vector) -> dict[str, Part]:
        """Means of a column of each group less that of the reference."""
        groups, r = self.sample.groups, self.reference
        members = GroupRows(groups)
        means = members.mean(groups.take_known(values))
        covariance = members.covariance([members.by_unit(means.psi)])[0, :, 0, :]
        gaps, own = means.value - means.value[r], np.diag(covariance)
        errors = np.sqrt(np.maximum(own + own[r] - 2.0 * covariance[r], 0.0))
        return {
            name: _part(float(gaps[k]), float(errors[k]), self.z)
            for k, name in enumerate(groups.label_names)
            if k != r
        }

    def criterion_parts(self, after: Entropies | None = None) -> dict[str, Part]:
        """What goes away from here to `after`; all of it where that is None."""
        groups, parts = self.sample.groups, {}
        for c in self.criteria:
            psi, value, least = self.own.influence(c), self.own.normalized(c), 0.0
            if after is not None:
                psi, value, least = psi - after.influence(c), value - after.normalized(c), -math.inf
            error = standard_error(psi, groups.weight, groups.cluster)
            parts[c.name] = _part(value, error, self.z, least)
        return parts

    def driver(self, name: str, column: Any, without: Vector) -> Driver:
        moved = self.score - without
        # A mean of equal scores is off by its rounding.
        moved[np.abs(moved) <= 1e-13 * np.abs(self.score).max()] = 0.0
        groups = self.sample.groups
        return Driver(
            feature=name,
            stands_in=_part(*stand_in(column, name, groups, self.estimator), self.z, least=0.0),
            gaps=self.gap_parts(moved),
            criteria=self.criterion_parts(self.entropies(self.score - moved)),
        )


def _criteria(criteria: Sequence[str] | None, y: Vector | None) -> list[Criterion]:
    default = ["independence", "separation"][: 1 if y is None else 2]
    wanted = [get_criterion(name) for name in (default if criteria is None else criteria)]
    for criterion in wanted:
        if y is None and criterion.needs:
            raise InputError("y_true", f"be given for {criterion.name}, got None")
    return wanted


def _part(value: float, stderr: float, z: float, least: float = -np.inf) -> Part:
    half = z * stderr
    return Part(value, stderr, (max(value - half, least), max(value + half, least)))
