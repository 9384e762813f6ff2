"""Everything there is to say about the fairness of a score, with its uncertainty.

Not named `audit`: a submodule of that name would hide the function `evenhand.audit`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from ._kernels.threads import n_threads
from ._ranks import EXACT_RANK_ROWS, rank_all
from .criteria import CRITERIA
from .disparities import Disparities, GroupTable, summarize_groups
from .effective import check_effective_size, warn_shared_values
from .information import estimate_entropies, get_estimator
from .measures import Measure, measure, measure_columns
from .sensitive import Groups, Proxy, check_weight, resolve_groups, weighted_rows
from .significance import exact_fairness_p_values
from .tables import to_frame
from .validation import (
    check_column,
    check_confidence_level,
    check_index,
    check_n_boot,
    check_names,
    check_seed,
    frame_columns,
    read_native,
)

Vector = NDArray[np.float64]
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Audit:
    """The result of :func:`audit`.

    Attributes
    ----------
    independence, separation, sufficiency : Measure
        The latter two are None where no target was given.
    disparities : Disparities
        Simple gaps between groups, for context.
    sensitive_name, n_rows, n_unknown, confidence_level
    name : str
        The model's name, when several are compared.
    """

    independence: Measure
    separation: Measure | None
    sufficiency: Measure | None
    disparities: Disparities
    sensitive_name: str
    labels: tuple[str, ...]
    n_rows: int
    n_unknown: int
    confidence_level: float
    name: str = ""
    r2: float = float("nan")
    _groups: GroupTable = field(repr=False, default_factory=lambda: GroupTable({}))
    _sample: dict[str, Any] = field(repr=False, default_factory=dict, compare=False)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures that could be computed, in the order of the criteria."""
        found = (self.independence, self.separation, self.sufficiency)
        return tuple(m for m in found if m is not None)

    @property
    def n_clusters(self) -> int | None:
        """Clusters among the rows with a known group; None where rows are independent."""
        return self.independence.n_clusters

    @property
    def groups(self) -> Any:
        """One row per group: size, means, spreads, errors, with intervals (a data frame)."""
        return to_frame(self._groups.columns)

    def to_frame(self, backend: str | None = None) -> Any:
        """The three measures, one row each.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
        """
        return to_frame(measure_columns(self.measures), backend)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values that JSON can hold (undefined numbers are None)."""
        return _json_safe(
            {
                "format": "evenhand.audit",
                "version": FORMAT_VERSION,
                "name": self.name,
                "sensitive": self.sensitive_name,
                "n_rows": self.n_rows,
                "n_unknown": self.n_unknown,
                "n_clusters": self.n_clusters,
                "confidence_level": self.confidence_level,
                "r2": self.r2,
                "measures": {
                    m.criterion: {**_fields(m), "found": m.found, "conflict": m.conflict}
                    for m in self.measures
                },
                "groups": self._groups.columns,
                "disparities": _fields(self.disparities),
            }
        )

    def __str__(self) -> str:
        from .report.text import describe

        return describe(self)

    def plot(self) -> Any:
        """A Matplotlib figure: scores by group, score against target, the three measures."""
        from .report.plots import plot_audit

        return plot_audit(self)

    def to_html(self, path: Any, *, force: bool = False) -> Any:
        """Write the audit as one self-contained page, to mail or to print.

        Parameters
        ----------
        path : str or Path
            File to write.
        force : bool
            Overwrite an existing file.

        Returns
        -------
        Path
        """
        from .report.html import audit_page, write_page

        return write_page(audit_page(self), path, force)

    def _repr_html_(self) -> str:
        from .report.html import compact

        return compact(self)


@dataclass(frozen=True)
class AuditSet(Mapping[str, Audit]):
    """Several audits by name: models compared on the same rows, or attributes one by one."""

    audits: dict[str, Audit]
    kind: str = "model"

    def __getitem__(self, name: str) -> Audit:
        if name not in self.audits:
            raise KeyError(f"no audit named {name!r}; there are {', '.join(self.audits)}")
        return self.audits[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.audits)

    def __len__(self) -> int:
        return len(self.audits)

    def to_frame(self, backend: str | None = None) -> Any:
        """All measures of all audits, one row each, with the name in the first column."""
        columns: dict[str, list[Any]] = {self.kind: []}
        for name, audit in self.audits.items():
            part = measure_columns(audit.measures)
            columns[self.kind] += [name] * len(audit.measures)
            for key, values in part.items():
                columns.setdefault(key, []).extend(values)
        return to_frame(columns, backend)

    def to_dict(self) -> dict[str, Any]:
        """All audits, by name under "audits", as plain values that JSON can hold."""
        return {
            "format": "evenhand.audits",
            "version": FORMAT_VERSION,
            "kind": self.kind,
            "audits": {name: audit.to_dict() for name, audit in self.audits.items()},
        }

    def __str__(self) -> str:
        from .report.text import describe_set

        return describe_set(self)

    def to_html(self, path: Any, *, force: bool = False) -> Any:
        """Write all audits, side by side and one by one, as one self-contained page.

        Parameters
        ----------
        path : str or Path
            File to write.
        force : bool
            Overwrite an existing file.

        Returns
        -------
        Path
        """
        from .report.html import audit_set_page, write_page

        return write_page(audit_set_page(self), path, force)

    def _repr_html_(self) -> str:
        from .report.html import compact_set

        return compact_set(self)


def audit(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    cluster: Any = None,
    estimator: Any = "auto",
    confidence_level: float = 0.95,
    random_state: Any = None,
    n_boot: int = 0,
    per_attribute: bool = False,
) -> Audit | AuditSet:
    """Measure the fairness of a score, with uncertainty.

    Parameters
    ----------
    y_true : (n,) array or None
        Targets; without them only independence can be measured.
    y_pred : (n,) array, or a dict or frame of such columns
        Scores. Several columns give an :class:`AuditSet`, one audit per model.
    sensitive_features : array, series, frame or Proxy
        Group of each row. Several columns are crossed into intersections. Rows with a missing
        group are left out of the measures and counted in `n_unknown`. Rows of all arguments are
        matched by place; pandas indices that hold the same labels in different places are refused,
        while a default index (0 to n − 1) may stand beside any other labels.
    sample_weight : (n,) array, optional
        Nonnegative. A row of weight 0 counts as absent, in `n_rows` too. Weights that leave fewer
        than 5 effective rows, (Σw)²/Σw², are refused, and fewer than 100 are warned of.
    cluster : (n,) array, optional
        Label of the person, place or school that each row belongs to, where rows of one are not
        independent. Clusters are then left out whole, standard errors sum over them and intervals
        use Student's t. Fewer than 5 are refused, and fewer than 100 are warned of.
    estimator : str or instance
        "auto", "logistic", "lspc", "fourier", "knn", or an instance.
    confidence_level : float
        Of all intervals.
    random_state : int, Generator, RandomState or None
        For estimators, tests and bootstrap draws; None is seed 0.
    n_boot : int
        Replace the standard errors by those of this many bootstrap draws over rows or clusters, at
        least 2 (with the fitted classifiers held fixed); 0 uses the influence function.
    per_attribute : bool
        With several attributes, audit each by itself as well as their intersection.

    Returns
    -------
    Audit, or AuditSet for several models or attributes

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(2000, random_state=0)
    >>> result = eh.audit(data.y, data.s, sensitive_features=data.a)
    >>> 0 <= result.separation.interval[0] <= result.separation.interval[1] <= 1
    True
    """
    confidence_level = check_confidence_level(confidence_level)
    n_boot = check_n_boot(n_boot)
    seed = check_seed(random_state)
    check_index(
        y_true=y_true, y_pred=y_pred, sensitive_features=sensitive_features,
        sample_weight=sample_weight, cluster=cluster,
    )  # fmt: skip
    models = _models(y_pred)
    attributes: dict[str, Any] = {"": sensitive_features}
    if per_attribute:
        attributes = _attributes(sensitive_features)
    if len(models) > 1 and len(attributes) > 1:
        raise ValueError(
            "`per_attribute` must not be combined with several models: audit one model at a time."
        )
    scores: dict[str, Vector] = {}
    n: int | None = None
    for name, column in models.items():
        scores[name] = check_column(column, f"y_pred[{name!r}]" if name else "y_pred", n)
        n = len(scores[name])
    assert n is not None
    y = None if y_true is None else check_column(y_true, "y_true", n)
    weight = check_weight(sample_weight, n)
    rows = weighted_rows(weight)
    if rows is not None:
        scores = {name: column[rows] for name, column in scores.items()}
        y = None if y is None else y[rows]
    results: dict[str, Audit] = {}
    for attribute, labels in attributes.items():
        groups = resolve_groups(labels, n_rows=n, sample_weight=weight, cluster=cluster)
        if rows is not None:
            groups = groups.take(rows)
        check_effective_size(groups)
        for name, s in scores.items():
            results[attribute or name] = _audit_one(
                y, s, groups, get_estimator(estimator, seed), _name_of(estimator),
                confidence_level, seed, n_boot, name,
            )  # fmt: skip
    if len(attributes) > 1:
        return AuditSet(results, "attribute")
    if isinstance(y_pred, dict) or len(models) > 1:
        return AuditSet(results, "model")
    return next(iter(results.values()))


def _audit_one(
    y: Vector | None, s: Vector, groups: Groups, estimator, estimator_name: str,
    confidence_level: float, seed: int, n_boot: int, name: str,
) -> Audit:  # fmt: skip
    criteria = [c for c in CRITERIA.values() if y is not None or not c.needs_target]
    variables = {"s": groups.take_known(s)}
    if y is not None:
        variables["y"] = groups.take_known(y)
    known_y = variables.get("y")

    def tests_and_tables():
        ranks = rank_all(variables)
        tests = exact_fairness_p_values(criteria, variables, groups, random_state=seed, ranks=ranks)
        return tests, *summarize_groups(
            known_y, variables["s"], groups, confidence_level, ranks["s"]
        )

    if groups.n_known > EXACT_RANK_ROWS and n_threads() > 1:
        # The long loops release the interpreter lock.
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(tests_and_tables)
            entropies = estimate_entropies(criteria, y, s, groups, estimator)
            tests, table, gaps = other.result()
    else:
        entropies = estimate_entropies(criteria, y, s, groups, estimator)
        tests, table, gaps = tests_and_tables()
    left = {c[0]: value for c, value in entropies.mean.items() if len(c) == 1}
    warn_shared_values(variables, left, groups, stacklevel=4)
    measures: dict[str, Measure | None] = dict.fromkeys(CRITERIA)
    for criterion in criteria:
        measures[criterion.name] = measure(
            criterion, entropies, confidence_level, tests[criterion.name].p_value,
            estimator_name, n_boot, seed,
        )  # fmt: skip
    independent = measures["independence"]
    assert independent is not None
    return Audit(
        independent, measures["separation"], measures["sufficiency"], gaps, groups.name,
        groups.label_names, groups.n_rows, groups.n_unknown, confidence_level, name,
        _r2(known_y, variables["s"], groups), table, _sample(known_y, variables["s"], groups),
    )  # fmt: skip


def _models(y_pred: Any) -> dict[str, Any]:
    """Prediction columns by name; a single column has the name ""."""
    if isinstance(y_pred, dict):
        if not y_pred:
            raise ValueError("`y_pred` must hold at least one model, got an empty dict.")
        check_names(list(y_pred), "y_pred")
        return {str(name): column for name, column in y_pred.items()}
    native = read_native(y_pred, "y_pred")
    if isinstance(native, nw.DataFrame) and len(native.columns) > 1:
        check_names([column.name for column in native.iter_columns()], "y_pred")
        return {name: column.to_numpy() for name, column in frame_columns(native)}
    return {"": y_pred}


def _attributes(sensitive_features: Any) -> dict[str, Any]:
    native = read_native(sensitive_features, "sensitive_features")
    if isinstance(sensitive_features, dict):
        check_names(list(sensitive_features), "sensitive_features")
        columns = {str(name): column for name, column in sensitive_features.items()}
    elif isinstance(native, nw.DataFrame):
        check_names([column.name for column in native.iter_columns()], "sensitive_features")
        columns = {name: column.to_native() for name, column in frame_columns(native)}
    else:
        array = np.asarray(sensitive_features)
        if isinstance(sensitive_features, Proxy) or array.ndim != 2:
            raise ValueError(
                "`per_attribute` must be used with several attributes: `sensitive_features` has "
                "one. Hint: pass a frame or a dict of columns."
            )
        columns = {f"attribute {j}": array[:, j] for j in range(array.shape[1])}
    # An Arrow column or an array does not know its name; a dict of one keeps it.
    alone: dict[str, Any] = {name: {name: column} for name, column in columns.items()}
    if len(alone) == 1:
        return alone
    return {**alone, " × ".join(columns): sensitive_features}


def _name_of(estimator: Any) -> str:
    return estimator if isinstance(estimator, str) else type(estimator).__name__


def _r2(y: Vector | None, s: Vector, groups: Groups) -> float:
    if y is None:
        return float("nan")
    with np.errstate(over="ignore", invalid="ignore"):  # squares beyond the largest float
        mean = np.average(y, weights=groups.weight)
        spread = np.average((y - mean) ** 2, weights=groups.weight)
        error = np.average((y - s) ** 2, weights=groups.weight)
        defined = spread > 0 and math.isfinite(spread) and math.isfinite(error)
        return float(1.0 - error / spread) if defined else float("nan")


def _sample(y: Vector | None, s: Vector, groups: Groups, limit: int = 6000) -> dict[str, Any]:
    """Rows for the figures, evenly spaced within each group so that small groups keep theirs."""
    n = len(s)
    if n <= limit:
        rows = np.arange(n)
    elif groups.codes is None or groups.n_groups > limit // 50:
        rows = np.linspace(0, n - 1, limit).astype(int)
    else:
        # A stable sort of 16-bit integers is a radix sort: linear in n.
        order = np.argsort(groups.codes.astype(np.int16), kind="stable")
        ends = np.cumsum(groups.counts).astype(int)
        each = limit // groups.n_groups
        picked = [
            order[np.unique(np.linspace(start, end - 1, min(end - start, each)).astype(int))]
            for start, end in zip(np.append(0, ends[:-1]), ends, strict=True)
        ]
        rows = np.sort(np.concatenate(picked))
    sample: dict[str, Any] = {"y": None if y is None else y[rows], "s": s[rows]}
    sample["weight"] = None if groups.weight is None else groups.weight[rows]
    sample["codes"] = None if groups.codes is None else groups.codes[rows]
    sample["membership"] = None if groups.probabilities is None else groups.probabilities[rows]
    return sample


def _fields(item: Any) -> dict[str, Any]:
    return dict(vars(item))


def _json_safe(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _json_safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_json_safe(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
