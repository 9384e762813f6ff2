"""A fitter → a path of fitters: the same folds for every weight, and each row held out once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from math import hypot
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import indexable
from sklearn.utils.validation import _num_samples

from .._core.arrays import Vector
from .._core.progress import progress
from .._core.validation import InputError, check_column, check_confidence_level
from ..data.criteria import CONDITIONAL, CRITERIA, get_criterion
from ..data.folds import make_folds
from ..data.sample import Sample
from ..measures.balancing import summarize_controls
from ..measures.effective import check_effective_size
from ..measures.losses import R2, get_loss
from .alternatives import Alternatives, record
from .design import is_source
from .held_out import Gauge, Handle, HeldOut, PathPoint
from .path import FairnessPath, Request, check_request

# ------------------------------------------------------------------------------------------------
# Fairness weights that spread evenly along a frontier, not along the penalty.
#
# The frontier is the curve (unfairness, accuracy) as the weight grows from 0. Both axes are scaled
# to
# its extent; the longest gap between neighbors is bisected until there are enough points.


Place = tuple[float, float]

START = 1.0
FACTOR = 4.0
LARGEST, SMALLEST = 1e8, 1e-8
# A weight four times as large that removes less than this share of the unfairness is "as fair as
# it gets"; a move smaller than MOVED (in either axis) is no effect at all.
GAIN = 5e-3
MOVED = 1e-3
# Gaps that show on no plot are not worth a fit, nor are weights this close to each other.
SHORTEST = 2e-3
CLOSEST = 1.02


def spread_weights(evaluate: Callable[[float], Place], n_points: int) -> list[float]:
    """Weights from 0 to "as fair as it gets", at most `n_points` of them, ascending.

    Parameters
    ----------
    evaluate : weight → (unfairness, accuracy)
        Called once for each weight, some of which may not be returned.
    n_points : int
        At least 2.
    """
    seen = {0.0: evaluate(0.0)}
    kept = _thin(_bracket(evaluate, seen), seen, n_points)
    while len(kept) < n_points:
        weight = _longest_gap(kept, seen)
        if weight is None:
            break
        seen[weight] = evaluate(weight)
        kept = sorted([*kept, weight])
    return kept


def _bracket(evaluate: Callable[[float], Place], seen: dict[float, Place]) -> list[float]:
    """Grow the weight until it no longer helps; the weights that had an effect, and 0."""
    kept = [0.0]
    weight = START
    while weight <= LARGEST:
        seen[weight] = evaluate(weight)
        before, after = seen[kept[-1]], seen[weight]
        if len(kept) > 1 or np.abs(np.subtract(seen[0.0], after)).max() > MOVED:
            gain = before[0] - after[0]
            if len(kept) > 1 and gain <= GAIN * abs(seen[0.0][0]):
                break
            kept.append(weight)
            # Nothing gained at all, or nothing left to gain: unfairness does not go below 0. Both
            # sides are 0 where there was none from the beginning.
            if min(gain, after[0]) <= GAIN * abs(seen[0.0][0]):
                break
        weight *= FACTOR if len(kept) > 1 else FACTOR**2  # far from where it matters: hurry
    if len(kept) == 1:
        kept.append(START)
    return kept


def _thin(kept: list[float], seen: dict[float, Place], n_points: int) -> list[float]:
    """At most `n_points` weights: those in between go first whose neighbors are closest."""
    while len(kept) > n_points:
        around = zip(kept, kept[1:], kept[2:], strict=False)
        extent = _extent(kept, seen)
        kept.remove(min(around, key=lambda w: _distance(seen[w[0]], seen[w[2]], extent))[1])
    return kept


def _extent(kept: list[float], seen: dict[float, Place]) -> Place:
    first, last = seen[0.0], seen[kept[-1]]
    return max(abs(last[0] - first[0]), MOVED), max(abs(last[1] - first[1]), MOVED)


def _distance(a: Place, b: Place, extent: Place) -> float:
    return hypot((a[0] - b[0]) / extent[0], (a[1] - b[1]) / extent[1])


def _longest_gap(kept: list[float], seen: dict[float, Place]) -> float | None:
    """The weight that halves the longest gap worth halving."""
    extent = _extent(kept, seen)
    longest, total, gap = SHORTEST, 0.0, None
    for low, high in pairwise(kept):
        length = _distance(seen[low], seen[high], extent)
        total += length
        room = high > SMALLEST if low == 0.0 else high > CLOSEST**2 * low
        if room and length > longest:
            longest, gap = length, (low, high)
    if gap is None:
        return None
    low, high = gap
    if low > 0.0:
        return (low * high) ** 0.5
    # Near 0 the path is straight in the weight itself, unless all of it lies below `high`.
    return high / (2.0 * FACTOR if longest > 0.5 * total else 2.0)


# ------------------------------------------------------------------------------------------------
# Checks of what users ask for, with messages that say what to do.


def check_criterion(criterion: str | None, handle: Handle, controls: Any = None) -> str:
    """The criterion's name: as given, or the estimator's own."""
    chosen = handle.criterion if criterion is None else get_criterion(criterion)
    if chosen is None:
        raise InputError(
            "criterion", f"be given: {type(handle.estimator).__name__} has none of its own",
            hint=f"one of {', '.join(CRITERIA)}.",
        )  # fmt: skip
    if CONDITIONAL in (chosen, handle.criterion) and controls is None:
        raise InputError(
            "controls", "be given with the criterion 'conditional', got None",
            hint="fairness_path(..., controls=frame[[\"mileage\"]]).",
        )  # fmt: skip
    if chosen == CONDITIONAL:
        return chosen.name
    if CRITERIA.get(chosen.name) != chosen:
        raise InputError(
            "criterion", f"be one that paths measure, got {chosen.name!r}",
            hint="evenhand.register_criterion makes it one.",
        )  # fmt: skip
    if set(chosen.needs) - {"y"}:
        raise InputError(
            "criterion", f"need no columns but scores and targets on a path, got {chosen.name!r}, "
            f"which needs {', '.join(chosen.needs)}",
        )  # fmt: skip
    return chosen.name


def check_refits(estimator: Any) -> bool:
    """Whether a model inside was fitted before, on other rows as its user says; else it is refused.

    Folds cannot undo a fit that survives `clone`: rows it has seen would pass for held out.
    """
    parts = [estimator, *estimator.get_params().values()]
    fitted = [part for part in parts if getattr(part, "_fitted_before", bool)()]
    for part in fitted:
        if part.prefit is not True:
            base = type(part.estimator).__name__
            raise InputError(
                "estimator", f"be fitted anew in every fold, and the {base} inside "
                f"{type(part).__name__} is fitted already: rows that it has seen would be called "
                "held out",
                hint="hand in an unfitted copy, sklearn.base.clone(model); if none of these rows "
                "took part in its fit, say so with prefit=True.",
            )  # fmt: skip
    return bool(fitted)


def check_varies(y: Vector) -> None:
    """Of a constant target there is nothing to explain."""
    if np.ptp(y) == 0:
        raise InputError("y", f"vary, got {y[0]:g} in every row")


def check_weights(fairness_weights: Any) -> list[float]:
    """Given weights in ascending order, 0 among them."""
    try:
        weights = np.unique(np.asarray(list(fairness_weights), dtype=np.float64))
        good = len(weights) > 0 and np.isfinite(weights).all() and weights.min() >= 0
    except (TypeError, ValueError):
        good = False
    if not good:
        raise ValueError(
            "`fairness_weights` must be 'auto' or a sequence of nonnegative numbers, got "
            f"{fairness_weights!r}."
        )
    return sorted({0.0, *weights.tolist()})


def fairness_path(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    fairness_weights: Any = "auto",
    cv: Any = 5,
    sample_weight: Any = None,
    frequency: Any = None,
    cluster: Any = None,
    exposure: Any = None,
    offset: Any = None,
    given: Any = None,
    controls: Any = None,
    n_points: Any = 20,
    criterion: str | None = None,
    measure_with: Any = "auto",
    confidence_level: float = 0.95,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> FairnessPath:
    """Accuracy and fairness of an estimator as its fairness weight grows, on held-out rows.

    Every row is scored by a model fitted without it; accuracy (R², or what the estimator names)
    and the criteria are measured on those scores, once per weight.

    Parameters
    ----------
    estimator : estimator
        Anything with a `fairness_weight` parameter and ``fit(X, y, *, sensitive_features)``, or
        a pipeline with such a step. A post-processor around a fitted model is refused unless it
        says, with ``prefit=True``, that the model has seen none of these rows.
    X : (n, d) array, frame or sparse matrix
        Features.
    y : (n,) array
        Target.
    sensitive_features : array, series, frame or Proxy
        Group of each row. Rows with a missing group count for accuracy and not for fairness. Rows
        are matched by place, and pandas indices that contradict each other are refused.
    fairness_weights : "auto" or sequence of float
        "auto" finds `n_points` weights that spread evenly along the frontier, from 0 to where
        a larger weight no longer helps. To given weights 0 is added.
    cv : int, splitter or list of (train, test)
        Folds, each row tested once. A number means folds stratified by group.
    sample_weight : (n,) array, optional
        For fitting and for all measures.
    frequency : (n,) array, optional
        Number of people that each row of an aggregated table stands for. A row of frequency 3
        equals three rows, in folds too: row numbers in `cv` are those of people.
    cluster : (n,) array, optional
        Label of the person, place or school that each row belongs to, where rows of one are not
        independent. Whole clusters go to one fold, and errors are summed over them.
    exposure, offset, given : (n,) arrays, optional
        For estimators whose `fit` takes them, such as :class:`FairGLM`. With `exposure` scores are
        rates, and accuracy is that of the totals. With `given` separation is measured given it.
    controls : frame, dict of columns or array, optional
        Legitimate factors: independence among people with the same controls ("conditional") is
        measured too, and is what estimators of that criterion train against. It is measured given
        what stands for the controls in training, found once on all rows; an audit of the chosen
        scores with `controls` says what is left in units of the score.
    n_points : int
        Points of the path when `fairness_weights` is "auto".
    criterion : {"independence", "separation", "sufficiency", "conditional"}, optional
        The estimator's own when left out. The first three are measured in any case.
    measure_with : str or instance
        Estimator of information: "auto", "logistic", "lspc", "fourier", "knn" or an instance.
        "logistic" takes a tenth of the time of "auto" and misses what is not a matter of
        means and spreads.
    confidence_level : float
        Of all intervals.
    n_jobs : int, optional
        Folds fitted at a time.
    random_state : int, optional
        For the folds, and for an estimator of information that draws random numbers.

    Returns
    -------
    FairnessPath

    See Also
    --------
    evenhand.FairnessPath
    evenhand.FairRegressor
    evenhand.audit

    References
    ----------
    Agarwal, A., Dudík, M. and Wu, Z. S. (2019). Fair Regression: Quantitative Definitions and
    Reduction-Based Algorithms. ICML.

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 1000)
    >>> X = rng.normal(size=(1000, 3)) + a[:, None] * [1.0, 0.0, 0.0]
    >>> y = X @ [1.0, 1.0, 0.5] + rng.normal(size=1000)
    >>> path = eh.fairness_path(eh.FairRidge(), X, y, sensitive_features=a, n_points=6,
    ...                         random_state=0)
    >>> model = path.select(max_unfairness=0.05)
    >>> path.selected.independence.value <= 0.05
    True
    """
    handle = Handle.find(estimator)
    name = check_criterion(criterion, handle, controls)
    fitted_before = check_refits(estimator)
    if not isinstance(n_points, Integral) or n_points < 2:
        raise InputError("n_points", f"be an integer of at least 2, got {n_points!r}")
    check_confidence_level(confidence_level)
    rows = _read_rows(
        handle, X, y, sensitive_features=sensitive_features, sample_weight=sample_weight,
        frequency=frequency, cluster=cluster, exposure=exposure, offset=offset, given=given,
        controls=controls,
    )  # fmt: skip
    gauge = Gauge(rows, handle.accuracy, measure_with, random_state, confidence_level)
    check_effective_size(gauge.groups)
    X = rows.others["X"]
    folds = make_folds(cv, X, rows.target, rows.groups, random_state, rows.cluster)
    held_out = HeldOut(handle, rows, folds, n_jobs)
    spread = isinstance(fairness_weights, str) and fairness_weights == "auto"
    weights = None if spread else check_weights(fairness_weights)
    points = _measure(held_out, gauge, name, weights, int(n_points))
    path = FairnessPath(
        points=tuple(points),
        criterion=name,
        confidence_level=confidence_level,
        measured_with=gauge.name,
        n_rows=rows.n_rows,
        n_unknown=rows.groups.n_unknown,
        n_splits=len(folds),
        sensitive_name=rows.groups.name,
        labels=rows.groups.label_names,
        n_clusters=None if rows.cluster is None else int(rows.cluster.max()) + 1,
        fitted_before=fitted_before,
        accuracy=handle.accuracy,
        constant_folds=tuple(held_out.n_constant(point.scores) for point in points),
        _gauge=gauge,
        _handle=handle,
        _rows=rows,
    )
    # "auto" looks beyond where a larger weight helps; nobody has asked for that point.
    if not spread:
        _warn_mixed(path)
    return path


def _warn_mixed(path: FairnessPath) -> None:
    """Say where some folds give everybody one score, and the others do not."""
    mixed = [
        f"{path.points[k].fairness_weight:.4g} ({path.constant_folds[k]} of {path.n_splits})"
        for k in np.flatnonzero(path.mixed)
    ]
    if mixed:
        warnings.warn(
            "Some folds give everybody one score, and the others do not, at fairness weights "
            f"{', '.join(mixed)}: what is measured there is of no one model, and `select` passes "
            "over it. Hint: smaller weights, or fewer folds of more rows.",
            UserWarning,
            stacklevel=3,
        )


def _read_rows(handle: Handle, X: Any, y: Any, **columns: Any) -> Sample:
    """Rows of a path: features, labels and what stands for the controls are among `others`."""
    if is_source(X):
        raise InputError(
            "X", "be rows in memory for a path of models, got a path or a dataset",
            hint="choose the weight on a sample of the rows, then fit the model to the files.",
        )  # fmt: skip
    handle.check_takes(**{name: columns[name] for name in ("exposure", "offset", "given")})
    if y is None:
        raise InputError("y", "be given, got None")
    rows = Sample.read(y, names={"y_true": "y"}, keep_labels=True, X=X, **columns)
    others = dict(rows.others)
    for name in ("offset", "given"):
        if others[name] is not None:
            others[name] = check_column(others[name], name, rows.n_rows)
    # Folds of a longer X would leave its last rows out in silence.
    n = _num_samples(others["X"])
    if n != rows.n_rows:
        raise InputError("X", f"have one row per entry of `y`: got {n} for {rows.n_rows}")
    check_varies(rows.target)
    if rows.controls is not None:
        others["summary"], _ = summarize_controls(rows.controls, rows.groups)
    # Folds are rows, which not every sparse format can give.
    (others["X"],) = indexable(others["X"])
    return replace(rows, others=others)


def _measure(
    held_out: HeldOut, gauge: Gauge, name: str, weights: list[float] | None, n_points: int
) -> list[PathPoint]:
    """Points at given weights, or spread evenly along the frontier of a criterion."""
    points: dict[float, PathPoint] = {}
    with progress(n_points if weights is None else len(weights)) as advance:

        def evaluate(weight: float) -> tuple[float, float]:
            points[weight] = point = gauge.read(weight, held_out.scores(weight))
            advance()
            return max(point.measure(name).value, 0.0), point.accuracy

        if weights is None:
            return [points[weight] for weight in spread_weights(evaluate, n_points)]
        for weight in weights:
            evaluate(weight)
    return list(points.values())


# ------------------------------------------------------------------------------------------------
# Columns of scores in place of a path.


def alternatives(
    y_true: Any, y_pred: Mapping[str, Any], *, sensitive_features: Any,
    floor: float | None = None, limit: float | None = None, criterion: str = "independence",
    sample_weight: Any = None, frequency: Any = None, cluster: Any = None, exposure: Any = None,
    loss: str | None = None, power: float = 1.5, estimator: Any = "auto",
    confidence_level: float = 0.95, random_state: Any = None,
) -> Alternatives:  # fmt: skip
    """The record of a search for less discriminatory alternatives among columns of scores.

    Accuracy and unfairness of each model, how far it is from the chosen one (paired over rows),
    which of them meet the floor and the limit, and why the others were not chosen.

    Parameters
    ----------
    y_true : (n,) array
    y_pred : mapping of name to (n,) array
        Scores by model, of rows that the models were not fitted to.
    floor : float, optional
        Least accuracy that the purpose allows: R², or D² with a `loss`.
    limit : float, optional
        Largest unfairness allowed. With it the most accurate model is chosen that meets both;
        without it the fairest that meets the floor.
    criterion : str
        What `limit` is about.
    sensitive_features, sample_weight, frequency, cluster, exposure, estimator, confidence_level
        As for :func:`evenhand.audit`.
    loss : {"poisson", "gamma", "tweedie", "normal"}, optional
        Whose deviance the accuracy is; `power` is that of "tweedie".
    random_state : int, Generator, RandomState or None

    Returns
    -------
    Alternatives

    See Also
    --------
    evenhand.fairness_path
    evenhand.audit

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(500, random_state=0)
    >>> scores = {"full": data.s, "none": 0 * data.s}
    >>> record = eh.alternatives(data.y, scores, sensitive_features=data.a, limit=0.01)
    >>> record.chosen
    'none'
    """
    check_request(limit, floor, "raise", "floor", "limit")
    check_confidence_level(confidence_level)
    check_column(y_true, "y_true")
    columns = {f"y_pred[{name!r}]": column for name, column in y_pred.items()}
    rows = Sample.read(
        y_true, sensitive_features=sensitive_features, sample_weight=sample_weight,
        frequency=frequency, cluster=cluster, exposure=exposure, **columns,
    )  # fmt: skip
    accuracy = R2
    if loss is not None:
        named = get_loss(loss, "log", power)
        named.check_target(rows.target, "y_true", "loss")
        accuracy = named.accuracy
    gauge = Gauge(rows, accuracy, estimator, random_state, confidence_level)
    check_effective_size(gauge.groups)
    points = [
        gauge.read(float("nan"), check_column(rows.others[name], name, rows.n_rows))
        for name in columns
    ]
    name = get_criterion(criterion).name
    request = Request(name, limit, floor, False, confidence_level, accuracy)
    held_out = f"{rows.n_rows:,} rows, which the models must not have been fitted to"
    return record(
        list(y_pred), ["scores"] * len(points), points, request, np.zeros(len(points), dtype=bool),
        None, held_out, rows.groups.name,
    )  # fmt: skip
