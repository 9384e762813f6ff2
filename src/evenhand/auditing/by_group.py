"""Any metric by group: values, gaps and ratios, with intervals that hold for all groups at once.

    T_k = metric(y, s, ω) over the rows of group k,   gap T_k − T_r,   ratio T_k / T_r

Errors come from leaving out blocks of rows, or of clusters, each with a share q_u of the weight:

    D_u = (1 − q_u)·(T − T without block u),   Cov = B/(B − 1) · Σ_u (D_u − D̄)(D_u − D̄)ᵀ

which is the jackknife where a block is one row. A metric that does not answer to that in
proportion, as a median does not, is drawn anew from rows or clusters instead (bootstrap).
"""

from __future__ import annotations

import difflib
import math
import warnings
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import numpy as np

from .._core.arrays import Matrix, Vector
from .._core.frames import json_safe
from .._core.validation import InputError, check_seed
from .._core.views import Tabled
from ..data.sample import Sample
from ..measures.effective import group_sizes
from .group_tables import AuditedRows, GroupMoments
from .impact import SMALLEST, Comparison, ImpactNumber
from .influence import find_reference

OVERALL = "overall"
# Blocks that are left out of each group, and draws of a bootstrap.
BLOCKS, DRAWS = 200, 400
# Blocks are also left out a tenth at a time. If that moves the metric by other than the sum of what
# they do by themselves, beyond this share of its square, the metric is not smooth.
TENTHS, NOT_SMOOTH = 10, 0.02
# Where fewer blocks than this decide on a value, or so many draws have the most extreme one, it is
# made by single rows, and no sample tells how far the next one would be off.
LEAST_BLOCKS, MOST_AT_EDGE = 1.5, 0.3
# By so many standard errors weights move a metric to see how it bends.
_STEP = 0.1


@dataclass(frozen=True)
class ByGroup(Tabled):
    """The result of :meth:`evenhand.Audit.by_group`.

    Attributes
    ----------
    metric : str
    overall : float
        Of all rows with a known group.
    reference : str
        What gaps and ratios are against: a group, or "overall".
    numbers : tuple of ImpactNumber
        By group, "value", "gap" and "ratio", each with its interval and p-value.
    groups : dict of str → dict
        Share and rows of each group.
    method : {"jackknife", "bootstrap"}
    sensitive_name, n_clusters, confidence_level
    """

    metric: str
    overall: float
    reference: str
    numbers: tuple[ImpactNumber, ...]
    groups: dict[str, dict[str, float]]
    method: str
    sensitive_name: str
    n_clusters: int | None
    confidence_level: float

    def _all(self, statistic: str) -> dict[str, ImpactNumber]:
        return {n.group: n for n in self.numbers if n.statistic == statistic}

    @property
    def values(self) -> dict[str, float]:
        """The metric of each group."""
        return {group: number.value for group, number in self._all("value").items()}

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Intervals of the values."""
        return {group: (number.low, number.high) for group, number in self._all("value").items()}

    @property
    def gaps(self) -> dict[str, ImpactNumber]:
        """Each group's value less that of the reference."""
        return self._all("gap")

    @property
    def ratios(self) -> dict[str, ImpactNumber]:
        """Each group's value over that of the reference; defined where both are above zero."""
        return self._all("ratio")

    def _columns(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {"group": list(self.groups)}
        for key in ("rows", "share"):
            columns[key] = [group[key] for group in self.groups.values()]
        keys = {"": "value", "_low": "low", "_high": "high", "_p_value": "p_value"}
        for statistic in ("value", "gap", "ratio"):
            numbers = [self._all(statistic).get(group) for group in self.groups]
            # That a value is zero is no question.
            for end, key in list(keys.items())[: 3 if statistic == "value" else 4]:
                columns[statistic + end] = [
                    math.nan if n is None else getattr(n, key) for n in numbers
                ]
        return columns

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values that JSON can hold (undefined numbers are None)."""
        return json_safe({"format": "evenhand.by_group", "version": 1, **vars(self)})


def metric_by_group(
    audited: AuditedRows, metric: Any, reference: Any, confidence_level: float, random_state: Any
) -> ByGroup:
    """The result of :meth:`evenhand.Audit.by_group`, from rows of known group."""
    rows, groups = audited.rows, audited.rows.groups
    if rows.target is None:
        raise InputError("metric", "not be asked of an audit without `y_true`")
    labels, seed = list(groups.label_names), check_seed(random_state)
    ref = len(labels)
    if reference != OVERALL or OVERALL in labels:
        ref = find_reference(reference, labels, groups.shares, f", {OVERALL!r}")
    with warnings.catch_warnings():
        # Of a group of one row R² warns, and is NaN; what else is not defined may be a number.
        warnings.filterwarnings("ignore", ".*less than two samples")
        parts = _Parts(rows, metric, with_overall=ref == len(labels))
        value = parts.values()
        warnings.simplefilter("ignore")
        blocks, covariance, third = _leave_out(parts, value, seed)
        is_smooth = blocks is not None
        if not is_smooth:
            covariance, third = _draw(parts, seed)
    size = np.append(group_sizes(groups), groups.n_effective)
    size = size if blocks is None else np.minimum(size, blocks)
    moments = GroupMoments(
        # A group may have this name, too.
        (*labels, OVERALL if OVERALL not in labels else f"{OVERALL} (all rows)"),
        np.append(groups.shares, 0.0), np.append(groups.counts, groups.n_known), size,
        groups.n_effective, None if groups.cluster is None else groups.n_units, ("value",),
        value[None], covariance[None, :, None, :], third[None, None, None, :], {},
    )  # fmt: skip
    compared = Comparison(audited.scaled(moments), ref, SMALLEST, confidence_level)
    numbers = [n for kind in ("value", "gap", "ratio") for n in compared.numbers(kind)]
    return ByGroup(
        parts.name, float(value[-1]), moments.labels[ref],
        tuple(n for label in labels for n in numbers if n.group == label),
        {
            label: {"rows": float(n), "share": float(p)}
            for label, n, p in zip(labels, groups.counts, groups.shares, strict=True)
        },
        "jackknife" if is_smooth else "bootstrap", groups.name, moments.n_clusters,
        confidence_level,
    )  # fmt: skip


def _find_metric(metric: Any) -> Any:
    """A function of scikit-learn by its name."""
    import sklearn.metrics

    ends = ("_error", "_score", "_loss", "_deviance")
    there = [name for name in dir(sklearn.metrics) if name.endswith(ends)]
    if metric not in there:
        close = difflib.get_close_matches(metric, there, 3)
        raise InputError(
            "metric", "be the name of one of scikit-learn's metrics, or a function", metric,
            f"did you mean {' or '.join(close)}?" if close else "",
        )  # fmt: skip
    return getattr(sklearn.metrics, metric)


class _Parts:
    """A metric of each group, and of all rows, which may count several times or not at all."""

    def __init__(self, rows: Sample, metric: Any, with_overall: bool):
        self.rows, groups, self._with_overall = rows, rows.groups, with_overall
        self._metric = _find_metric(metric) if isinstance(metric, str) else metric
        if not callable(self._metric):
            raise InputError(
                "metric", "be a function of y_true and y_pred, or a name", repr(metric)
            )
        self.name = getattr(self._metric, "__name__", None) or type(metric).__name__
        parameters = signature(self._metric).parameters
        self.takes_weight = "sample_weight" in parameters or any(
            p.kind == Parameter.VAR_KEYWORD for p in parameters.values()
        )
        inferred = groups.codes is None
        if not self.takes_weight and (inferred or groups.weight is not None):
            why = "since groups are inferred" if inferred else "since these rows are weighted"
            raise InputError(
                "metric", f"take `sample_weight`, {why}, got {self.name}",
                hint="def metric(y_true, y_pred, sample_weight=None): ...",
            )  # fmt: skip
        members = [np.flatnonzero(column) for column in groups.membership().T]
        mass = groups.membership().T * groups.row_weight if inferred else groups.weight
        self.members = [*members, np.arange(rows.n_rows)]
        self.weights = [
            None if mass is None else (mass[k] if inferred else mass)[own]
            for k, own in enumerate(members)
        ] + [groups.weight]

    def values(self, times: Vector | None = None) -> Vector:
        """The metric of each part, the last one that of all rows; NaN where it cannot be had.

        All rows are counted again only where something is compared with them.
        """
        count = len(self.members) - (times is not None and not self._with_overall)
        values = [self.one(k, times) for k in range(count)]
        return np.array(values + [math.nan] * (len(self.members) - count))

    def one(self, k: int, times: Vector | None = None) -> float:
        """The metric of one part."""
        own, weight = self.members[k], self.weights[k]
        if times is not None:
            kept = np.flatnonzero(times[own])
            own, weight = own[kept], None if weight is None else weight[kept]
            if self.takes_weight and times.max() > 1:
                weight = times[own] if weight is None else weight * times[own]
            else:
                own = np.repeat(own, times[own].astype(np.intp))
        if not len(own):
            return math.nan
        how = {} if weight is None else {"sample_weight": weight}
        return float(self._metric(self.rows.target[own], self.rows.scores[own], **how))


def _leave_out(parts: _Parts, value: Vector, seed: int) -> tuple[Vector | None, Matrix, Vector]:
    """Blocks (None where the metric is not smooth), covariance and third moments of the values."""
    groups = parts.rows.groups
    unit = np.arange(groups.n_known) if groups.cluster is None else groups.cluster
    first = np.unique(unit, return_index=True)[1]
    kind = np.zeros(len(first)) if groups.codes is None else groups.codes[first]
    # Rows of a group are dealt out evenly.
    order = np.lexsort((np.random.default_rng(seed).random(len(first)), kind))
    block = np.empty(len(first), dtype=np.intp)
    block[order] = np.arange(len(first)) % BLOCKS
    count, block = min(len(first), BLOCKS), block[unit]

    def effects(block: Any, count: int) -> Matrix:
        mass = np.column_stack(
            [
                np.bincount(block[own], weight, count)
                for own, weight in zip(parts.members, parts.weights, strict=True)
            ]
        )
        without = np.array([parts.values((block != b).astype(float)) for b in range(count)])
        return np.where(mass > 0, (value - without) * (1.0 - mass / mass.sum(axis=0)), np.nan)

    with np.errstate(invalid="ignore", divide="ignore"):
        each = effects(block, count)
        blocks = np.isfinite(each).sum(axis=0)
        squares = np.nansum(np.square(each), axis=0)
        tenths = np.array([np.nansum(each[j::TENTHS], axis=0) for j in range(TENTHS)])
        off = np.nansum(np.square(tenths - effects(block % TENTHS, TENTHS)), axis=0)
        peak = np.nansum(each**4, axis=0) / squares**2
        # As many blocks of a normal sample tell the variance as well: 2n/(κ − 1) of kurtosis κ.
        like = 1.0 + 2.0 / np.maximum(peak - 1.0 / blocks, 1e-12)
        moved = np.nan_to_num(each - np.nanmean(each, axis=0)) * np.sqrt(blocks / (blocks - 1.0))
    covariance = moved.T @ moved
    if groups.codes is not None and groups.cluster is None:
        # Groups are independent, but for all rows that they are part of.
        K = groups.n_groups
        covariance[:K, :K] = np.diag(np.diag(covariance)[:K])
    is_rough = ((peak > 1.0 / LEAST_BLOCKS) | (off > NOT_SMOOTH * squares)).any()
    third, variance = (moved**3).sum(axis=0), np.square(moved).sum(axis=0)
    if parts.takes_weight and not is_rough:
        with np.errstate(invalid="ignore", divide="ignore"):
            direction = np.nan_to_num(moved / np.sqrt(variance))[block]
        third += 1.5 * variance * _bends(parts, value, direction)
    return None if is_rough else np.fmin(blocks, like), covariance, third


def _bends(parts: _Parts, value: Vector, direction: Matrix) -> Vector:
    """Second derivative of each value as weights move it by its standard error.

    The skewness of a mean is that of its blocks; a root or R² bends it besides.
    """
    ends = [
        [parts.one(k, 1.0 + step * direction[:, k]) for k in range(len(value))]
        for step in (_STEP, -_STEP)
    ]
    return np.nan_to_num((np.sum(ends, axis=0) - 2.0 * value) / _STEP**2)


def _draw(parts: _Parts, seed: int) -> tuple[Matrix, Vector]:
    """Covariance and third moments of the values over draws of rows or clusters."""
    groups, rng = parts.rows.groups, np.random.default_rng(seed)
    n, unit = groups.n_units, slice(None) if groups.cluster is None else groups.cluster
    counts = (np.bincount(rng.integers(0, n, n), minlength=n)[unit] for _ in range(DRAWS))
    draws = np.array([parts.values(times.astype(float)) for times in counts])
    known = np.isfinite(draws)
    apart = np.where(known, draws - np.nanmean(np.where(known, draws, np.nan), axis=0), 0.0)
    # A maximum is that of the sample in two of three draws, and lower in the others.
    edge = np.maximum(*((apart == end).mean(axis=0) for end in (apart.max(0), apart.min(0))))
    lost = (known.mean(axis=0) < 0.9) | ((edge > MOST_AT_EDGE) & apart.any(axis=0))
    covariance = apart.T @ apart / (DRAWS - 1.0)
    covariance[lost] = covariance[:, lost] = np.nan
    return covariance, (apart**3).sum(axis=0) / DRAWS
