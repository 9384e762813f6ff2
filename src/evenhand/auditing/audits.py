"""Everything there is to say about the fairness of a score, with its uncertainty.

Not named `audit`: a submodule of that name would hide the function `evenhand.audit`.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from .._core.arrays import Vector
from .._core.validation import (
    check_column,
    check_confidence_level,
    check_index,
    check_n_boot,
    check_names,
    check_seed,
    frame_columns,
    read_native,
)
from ..data.continuous import Continuous
from ..data.controls import Controls, read_controls
from ..data.criteria import complete, measurable
from ..data.frequency import repeat_rows, too_many
from ..data.groups import Groups, Proxy, resolve_groups
from ..data.weights import check_weight, weighted_rows
from ..estimators.estimation import EntropyEstimator
from ..estimators.ranks import EXACT_RANK_ROWS, rank_all
from ..kernels.threads import n_threads
from ..measures.cell_rows import People, refuse_beside_cells
from ..measures.cells import Cells
from ..measures.effective import check_effective_size, take_weighted, warn_shared_values
from ..measures.entropies import Entropies, estimate_entropies, get_estimator
from ..measures.exact_tests import exact_fairness_p_values
from ..measures.losses import Loss
from ..measures.measures import measure
from .conditional import audit_given
from .from_cells import audit_cells
from .group_tables import AuditedRows, summarize_groups
from .imputed import imputation
from .one_against_rest import worst_against_rest
from .pricing import exposed, price, read_exposure, read_loss
from .result import Audit, AuditSet

# ------------------------------------------------------------------------------------------------
# What an audit is given: columns of scores by model, and of groups by attribute.


def models_of(y_pred: Any) -> dict[str, Any]:
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


def attributes_of(sensitive_features: Any) -> dict[str, Any] | None:
    """Attributes by name, each as a dict of one; None for a single column without a frame."""
    native = read_native(sensitive_features, "sensitive_features")
    if isinstance(sensitive_features, dict):
        check_names(list(sensitive_features), "sensitive_features")
        columns = {str(name): column for name, column in sensitive_features.items()}
    elif isinstance(native, nw.DataFrame):
        check_names([column.name for column in native.iter_columns()], "sensitive_features")
        columns = {name: column.to_native() for name, column in frame_columns(native)}
    elif isinstance(sensitive_features, Proxy | Continuous) or isinstance(native, nw.Series):
        return None
    else:
        array = np.asarray(sensitive_features)
        if array.ndim != 2:
            return None
        columns = {f"attribute {j}": array[:, j] for j in range(array.shape[1])}
    # An Arrow column or an array does not know its name; a dict of one keeps it.
    return {name: {name: column} for name, column in columns.items()}


# ------------------------------------------------------------------------------------------------
# What an audit keeps of its rows: R², and enough of them for the figures.


def r2_of(y: Vector | None, s: Vector, groups: Groups, exposure: Vector | None = None) -> float:
    """1 − mean ω(y − s)²/Var(y); NaN without a target, or one that does not vary.

    With an exposure e that of totals, Σ ω(e·y − e·s)², against the best constant rate.
    """
    if y is None:
        return float("nan")
    weight = groups.weight
    if exposure is not None:
        weight = exposure**2 if weight is None else weight * exposure**2
    with np.errstate(over="ignore", invalid="ignore"):  # squares beyond the largest float
        mean = np.average(y, weights=weight)
        spread = np.average((y - mean) ** 2, weights=weight)
        error = np.average((y - s) ** 2, weights=weight)
        defined = spread > 0 and math.isfinite(spread) and math.isfinite(error)
        return float(1.0 - error / spread) if defined else float("nan")


def negative_scores(y: Vector | None, s: Vector) -> int:
    """Scores below zero of a target that is never so, and not always zero."""
    if y is None or y.min() < 0 or y.max() <= 0:
        return 0
    return int(np.count_nonzero(s < 0))


def sample_rows(y: Vector | None, s: Vector, groups: Groups, limit: int = 6000) -> dict[str, Any]:
    """Rows for the figures, evenly spaced within each group so that small groups keep theirs."""
    n = len(s)
    if n <= limit:
        rows = np.arange(n)
    elif groups.codes is None or groups.n_groups > limit // 50:
        rows = np.linspace(0, n - 1, limit).astype(int)
    else:
        from ..kernels.groups import pick_rows

        each = limit // groups.n_groups
        wanted = [
            np.unique(np.linspace(0, count - 1, min(count, each)).astype(int))
            for count in groups.counts.astype(int).tolist()
        ]
        ends = np.cumsum([len(places) for places in wanted])
        rows = pick_rows(groups.codes, np.concatenate(wanted), np.append(0, ends))
    sample: dict[str, Any] = {"y": None if y is None else y[rows], "s": s[rows]}
    sample["weight"] = None if groups.weight is None else groups.weight[rows]
    sample["codes"] = None if groups.codes is None else groups.codes[rows]
    sample["membership"] = None if groups.probabilities is None else groups.probabilities[rows]
    return sample


def audit(
    y_true: Any,
    y_pred: Any = None,
    *,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    frequency: Any = None,
    cluster: Any = None,
    controls: Any = None,
    exposure: Any = None,
    loss: str | None = None,
    power: float = 1.5,
    reference: Any = "largest",
    estimator: Any = "auto",
    confidence_level: float = 0.95,
    random_state: Any = None,
    n_boot: int = 0,
    per_attribute: bool = False,
) -> Audit | AuditSet:
    """Measure the fairness of a score, with uncertainty.

    Parameters
    ----------
    y_true : (n,) array or None, or Cells
        Targets; without them only independence can be measured. Or :class:`Cells`, which hold all
        that is needed of targets, scores, groups, weights and frequencies; these must then be left
        out, as must `cluster`, `controls`, `exposure`, `loss` and `n_boot`, for which there would
        have to be rows.
    y_pred : (n,) array, or a dict or frame of such columns
        Scores. Several columns give an :class:`AuditSet`, one audit per model.
    sensitive_features : array, series, frame, Proxy or Continuous
        Group of each row. Several columns are crossed into intersections, and then each of them
        is measured by itself as well (`Audit.attributes`), and the worst group against the rest
        (`Audit.one_against_rest`), so that a column cannot dilute another. Rows with a missing
        group are left out of the measures and counted in `n_unknown`. Rows of all arguments are
        matched by place; pandas indices that hold the same labels in different places are refused,
        while a default index (0 to n − 1) may stand beside any other labels.
    sample_weight : (n,) array, optional
        Nonnegative. A row of weight 0 counts as absent, in `n_rows` too. Weights that leave fewer
        than 5 rows, or 5 effective ones, (Σw)²/Σw², are refused, and fewer than 100 are warned of.
    frequency : (n,) array, optional
        Number of people that each row of an aggregated table stands for. A row of frequency 3
        equals three rows: sample sizes, intervals and tests count people. Unlike `sample_weight`,
        which says how much one person counts; both may be given.
    cluster : (n,) array, optional
        Label of the person, place or school that each row belongs to, where rows of one are not
        independent. Clusters are then left out whole, standard errors sum over them and intervals
        use Student's t. Fewer than 5 are refused, and fewer than 100 are warned of.
    controls : frame, dict of columns or array, optional
        Legitimate factors: numbers, dates and categories, with gaps. The result then also has
        `conditional`: whether people with the same controls are scored alike whatever their group,
        in units of the score and in information.
    exposure : (n,) array, optional
        Time at risk, or number of units, of each row, positive. `y_true` are then totals over it
        (claims, amounts) and `y_pred` predictions per unit of it, as those of :class:`FairGLM`.
        Information counts rows, with ``y_true/exposure`` for the outcome; the tables of groups, the
        impact table and `pricing` count units of exposure, and R² is that of the totals.
    loss : {"poisson", "gamma", "tweedie", "normal"}, optional
        With it, or with `exposure`, the result has `pricing`: the deviance explained, actual over
        expected by group and by band of the score, log-ratio gaps.
    power : float
        Variance power of "tweedie".
    reference : label or "largest"
        With `controls`, `exposure` or `loss`, the group that each other one is compared with.
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
        With several attributes, return an :class:`AuditSet` of each by itself and of their
        intersection, rather than the intersection that holds the others.

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
    others = {
        "y_pred": y_pred, "sensitive_features": sensitive_features,
        "sample_weight": sample_weight, "frequency": frequency, "cluster": cluster,
        "controls": controls, "exposure": exposure, "loss": loss,
    }  # fmt: skip
    if isinstance(y_true, Cells):
        refuse_beside_cells(estimator, n_boot=n_boot or None, **others)
        run = _Run(get_estimator(estimator, seed), _name_of(estimator), confidence_level, seed, 0)
        return _audit_cells(y_true, run, per_attribute)
    if too_many(frequency):
        refuse_beside_cells(
            estimator, n_boot=n_boot or None, cluster=cluster, controls=controls,
            exposure=exposure, loss=loss,
        )  # fmt: skip
        run = _Run(get_estimator(estimator, seed), _name_of(estimator), confidence_level, seed, 0)
        for name in ("y_pred", "cluster", "controls", "exposure", "loss"):
            del others[name]
        found = {
            name: _audit_cells(Cells.from_rows(y_true, s, **others), run, per_attribute, name)
            for name, s in models_of(y_pred).items()
        }
        if isinstance(y_pred, dict) or len(found) > 1:
            return AuditSet({k: v for k, v in found.items() if isinstance(v, Audit)}, "model")
        return next(iter(found.values()))
    y_true, y_pred, sensitive_features, sample_weight, cluster, controls, exposure = repeat_rows(
        frequency, y_true=y_true, y_pred=y_pred, sensitive_features=sensitive_features,
        sample_weight=sample_weight, cluster=cluster, controls=controls, exposure=exposure,
    )  # fmt: skip
    check_index(
        y_true=y_true, y_pred=y_pred, sensitive_features=sensitive_features,
        sample_weight=sample_weight, cluster=cluster, controls=controls, exposure=exposure,
    )  # fmt: skip
    if isinstance(sensitive_features, Continuous) and controls is not None:
        raise ValueError(
            "`controls` must be None with a Continuous attribute: comparisons given controls are "
            "of groups. Hint: cut the attribute with evenhand.bands."
        )
    models = models_of(y_pred)
    attributes = attributes_of(sensitive_features)
    if per_attribute and attributes is None:
        raise ValueError(
            "`per_attribute` must be used with several attributes: `sensitive_features` has one. "
            "Hint: pass a frame or a dict of columns."
        )
    attributes = attributes or {}
    if len(models) > 1 and per_attribute and len(attributes) > 1:
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
    given = None if controls is None else read_controls(controls, n)
    priced_by = read_loss(loss, power, y)
    size = read_exposure(exposure, n, y)
    if y is not None and size is not None:
        y = y / size
    weight = check_weight(sample_weight, n)
    rows = weighted_rows(weight)
    if rows is not None:
        given = None if given is None else given.take(rows)
        scores = {name: column[rows] for name, column in scores.items()}
        y = None if y is None else y[rows]
        size = None if size is None else size[rows]

    def read_groups(labels: Any, aside: bool) -> Groups:
        """`aside`: beside a crossing that has been warned of already."""
        groups = resolve_groups(
            labels, n_rows=n, sample_weight=weight, cluster=cluster, warn=not aside,
            require_two=not aside,
        )  # fmt: skip
        return take_weighted(groups, rows)

    groups = read_groups(sensitive_features, aside=False)
    check_effective_size(groups)
    alone = {}
    if len(attributes) > 1:
        alone = {name: read_groups(a, aside=not per_attribute) for name, a in attributes.items()}
    run = _Run(
        get_estimator(estimator, seed), _name_of(estimator), confidence_level, seed, n_boot,
        given, reference, size, priced_by,
    )  # fmt: skip
    results: dict[str, Audit] = {}
    for name, s in scores.items():
        parts = {
            part: run.audit(y, s, of, name, warn=per_attribute)
            for part, of in alone.items()
            if of.n_groups > 1
        }
        results[name] = run.audit(y, s, groups, name, parts, tuple(alone))
    if per_attribute and len(alone) > 1:
        (crossed,) = results.values()
        return AuditSet({**crossed.attributes, " × ".join(alone): crossed}, "attribute")
    if isinstance(y_pred, dict) or len(models) > 1:
        return AuditSet(results, "model")
    return next(iter(results.values()))


@dataclass(frozen=True)
class _Run:
    """How audits are made, whatever they are of."""

    estimator: EntropyEstimator
    estimator_name: str
    confidence_level: float
    seed: int
    n_boot: int
    controls: Controls | None = None
    reference: Any = "largest"
    exposure: Vector | None = None
    loss: Loss | None = None

    def audit(
        self, y: Vector | None, s: Vector, groups: Groups, name: str,
        attributes: dict[str, Audit] | None = None, crossed: tuple[str, ...] = (),
        warn: bool = True, estimated: People | None = None,
    ) -> Audit:  # fmt: skip
        """One audit; that of a crossing is given those of its attributes, and their names.

        `estimated` are other rows, which stand for several people each, for the measures.
        """
        columns = {"s": s} if y is None else {"s": s, "y": y}
        criteria = measurable(columns)
        variables = complete(criteria, {k: groups.take_known(v) for k, v in columns.items()})
        known_y = variables.get("y")

        def estimate() -> Entropies:
            return estimate_entropies(
                criteria, whole.variables, whole.groups, self.estimator, frequency
            )

        def tests_and_tables():
            ranks = rank_all(variables)
            tests = exact_fairness_p_values(
                criteria, variables, groups, random_state=self.seed, ranks=ranks
            )
            return tests, *summarize_groups(
                known_y, variables["s"], units, self.confidence_level, ranks["s"]
            )

        exposure, units = None, exposed(groups, self.exposure)
        if self.exposure is not None:
            exposure = groups.take_known(self.exposure)
        frequency = None if estimated is None else estimated.frequency
        whole = People(s, y, groups, None) if estimated is None else estimated
        if groups.n_known > EXACT_RANK_ROWS and n_threads() > 1:
            # The long loops release the interpreter lock.
            with ThreadPoolExecutor(1) as pool:
                other = pool.submit(tests_and_tables)
                entropies = estimate()
                tests, table, gaps = other.result()
        else:
            entropies = estimate()
            tests, table, gaps = tests_and_tables()
        if warn:
            left = {c[0]: value for c, value in entropies.mean.items() if len(c) == 1}
            warn_shared_values(variables, left, groups, stacklevel=4)
        how: dict[str, Any] = {
            "confidence_level": self.confidence_level,
            "estimator": self.estimator_name,
            "n_boot": self.n_boot,
            "seed": self.seed,
        }
        measures = {
            c.name: measure(
                c, entropies, p_value=tests[c.name].p_value, **how,
                frequency=frequency,
            )
            for c in criteria
        }  # fmt: skip
        worst = {}
        if crossed and groups.n_groups > 2:
            worst = worst_against_rest(criteria, variables, groups, crossed, self.estimator, **how)
        # A label of the crossing is none of its attributes'.
        reference = "largest" if not warn else self.reference
        conditional = pricing = None
        if known_y is not None and (self.loss is not None or exposure is not None):
            pricing = price(
                known_y, variables["s"], groups, exposure, self.loss, self.confidence_level,
                reference,
            )  # fmt: skip
        if self.controls is not None:
            conditional = audit_given(
                s, groups, self.controls, self.estimator, reference, warn=warn, **how
            )
        return Audit(
            measures=measures,
            disparities=gaps,
            sensitive_name=groups.name,
            labels=groups.label_names,
            n_rows=groups.n_rows,
            n_unknown=groups.n_unknown,
            confidence_level=self.confidence_level,
            name=name,
            r2=r2_of(known_y, variables["s"], groups, exposure),
            n_negative=negative_scores(known_y, variables["s"]),
            pricing=pricing,
            attributes=attributes or {},
            one_against_rest=worst,
            imputation=imputation(variables["s"], groups, self.confidence_level),
            conditional=conditional,
            _groups=table,
            _sample=sample_rows(known_y, variables["s"], units),
            _rows=AuditedRows(known_y, variables["s"], units),
        )


def _audit_cells(cells: Cells, run: _Run, per_attribute: bool, name: str = "") -> Audit | AuditSet:
    def one(
        rows: People, tested: People, attributes: dict[str, Audit], names: tuple[str, ...],
        warn: bool,
    ) -> Audit:  # fmt: skip
        estimated = None if rows.frequency is None else rows
        return run.audit(
            tested.y, tested.s, tested.groups, name, attributes, names, warn, estimated
        )

    found = audit_cells(cells, one)
    if not per_attribute:
        return found
    if not found.attributes:
        raise ValueError("`per_attribute` must be used with several attributes: `cells` have one.")
    return AuditSet({**found.attributes, found.sensitive_name: found}, "attribute")


def _name_of(estimator: Any) -> str:
    return estimator if isinstance(estimator, str) else type(estimator).__name__
