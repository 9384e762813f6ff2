"""Everything there is to say about the fairness of a score, with its uncertainty.

Not named `audit`: a submodule of that name would hide the function `evenhand.audit`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from .._core.arrays import Matrix, Rows, Vector
from .._core.threads import PARALLEL_ROWS, n_threads, one_blas_thread
from .._core.validation import (
    InputError,
    as_array,
    check_column,
    check_confidence_level,
    check_index,
    check_names,
    check_seed,
    frame_columns,
    read_native,
    warn_user,
)
from ..data.bands import Continuous
from ..data.criteria import complete, measurable
from ..data.encoding import CONSTANT, Control, Controls, refuse_none
from ..data.groups import MAX_GROUPS, Proxy
from ..data.sample import Sample, repeat_rows, too_many
from ..estimators.estimation import EntropyEstimator
from ..estimators.ranks import EXACT_RANK_ROWS, Columns, rank_all
from ..measures.cell_rows import expand_cells, refuse_beside_cells, refuse_copied, sample_cells
from ..measures.cells import PRODUCT, SCORE, SCORE2, TARGET, TARGET2, WEIGHT, WEIGHT2, Cells
from ..measures.effective import SharedValuesWarning, check_effective_size, find_shared_values
from ..measures.entropies import Entropies, estimate_entropies, get_estimator
from ..measures.exact_tests import TestResult, exact_fairness_p_values
from ..measures.losses import Loss
from ..measures.measures import measure, unit_influence
from .conditional import Conditional, audit_given
from .group_tables import AuditedRows, GroupTable, summarize_groups
from .imputed import Imputation, bound_gaps
from .one_against_rest import worst_against_rest
from .pricing import price, read_loss
from .result import Audit, AuditSet

# ------------------------------------------------------------------------------------------------
# What an audit is given: columns of scores by model, and of groups by attribute.


def models_of(y_pred: Any) -> dict[str, Any]:
    """Prediction columns by name; a single column has the name ""."""
    columns = _named_columns(y_pred, "y_pred")
    if isinstance(y_pred, dict) and not y_pred:
        raise InputError("y_pred", "hold at least one model, got an empty dict")
    several = columns is not None and (isinstance(y_pred, dict) or len(columns) > 1)
    return columns if columns is not None and several else {"": y_pred}


def _named_columns(columns: Any, argument: str) -> dict[str, Any] | None:
    """Columns of a dict or a frame by name; None for anything else."""
    native = read_native(columns, argument)
    if isinstance(columns, dict):
        check_names(list(columns), argument)
        return {str(name): column for name, column in columns.items()}
    if isinstance(native, nw.DataFrame):
        check_names([column.name for column in native.iter_columns()], argument)
        return {name: column.to_native() for name, column in frame_columns(native)}
    return None


# ------------------------------------------------------------------------------------------------
# What an audit keeps of its rows: R², and enough of them for the figures.


def r2_of(rows: Sample) -> float:
    """1 − mean ω(y − s)²/Var(y); NaN without a target, or one that does not vary.

    With an exposure e that of totals, Σ ω(e·y − e·s)², against the best constant rate.
    """
    y, s, weight = rows.target, rows.scores, rows.groups.weight
    if y is None:
        return float("nan")
    with np.errstate(over="ignore", invalid="ignore"):  # squares beyond the largest float
        if rows.exposure is not None:
            square = (rows.exposure / rows.exposure.max()) ** 2
            weight = square if weight is None else weight * square
        mean = np.average(y, weights=weight)
        spread = np.average((y - mean) ** 2, weights=weight)
        error = np.average((y - s) ** 2, weights=weight)
        defined = spread > 0 and math.isfinite(spread) and math.isfinite(error)
        return float(1.0 - error / spread) if defined else float("nan")


def count_negative(rows: Sample) -> int:
    """Counts negative scores when the target is never negative, and not always zero."""
    y = rows.target
    if y is None or y.min() < 0 or y.max() <= 0:
        return 0
    return int(np.count_nonzero(rows.scores < 0))


def _read_attributes(sensitive_features: Any) -> dict[str, Any]:
    """Attributes by name where there are several, each as a dict of one."""
    columns = _named_columns(sensitive_features, "sensitive_features")
    if columns is None:
        native = read_native(sensitive_features, "sensitive_features")
        if not isinstance(native, Proxy | Continuous | nw.Series):
            masked = isinstance(native, np.ma.MaskedArray)
            array = native if masked else as_array(native, "sensitive_features")
            if array.ndim == 2:
                columns = {f"attribute {j}": column for j, column in enumerate(array.T)}
    if columns is None or len(columns) < 2:
        return {}
    # An Arrow column or an array does not know its name; a dict of one keeps it.
    return {name: {name: column} for name, column in columns.items()}


def _read_models(y_true: Any, y_pred: Any, columns: dict[str, Any]) -> dict[str, Sample]:
    """The rows with the scores of each model, by its name."""
    if isinstance(columns["sensitive_features"], Continuous) and columns["controls"] is not None:
        raise InputError(
            "controls", "be None with a Continuous attribute: comparisons given controls are of "
            "groups", hint="cut the attribute with evenhand.bands.",
        )  # fmt: skip
    check_index(y_true=y_true, y_pred=y_pred, **columns)
    models = models_of(y_pred)
    called = {name: f"y_pred[{name!r}]" if name else "y_pred" for name in models}
    name, column = next(iter(models.items()))
    first = Sample.read(y_true, column, names={"y_pred": called[name]}, **columns)
    return {
        name: replace(first, scores=check_column(column, called[name], first.n_rows))
        for name, column in models.items()
    }


def describe_rows(sample: Sample, units: Sample, table: GroupTable) -> dict[str, Any]:
    """The fields of an Audit that say what its rows are; `units` are those of known group."""
    return {
        "sensitive_name": units.groups.name,
        "labels": units.groups.label_names,
        "n_rows": sample.n_rows,
        "n_unknown": sample.n_rows - units.n_rows,
        "n_negative": count_negative(units),
        "_groups": table,
        "_rows": AuditedRows(units, unknown=_unknown_scores(sample)),
    }


def _unknown_scores(sample: Sample) -> Matrix | None:
    """Scores and weights of rows without a known group, on the scale of the groups' weights."""
    known = sample.groups.known
    if known is None:
        return None
    weight = np.ones(sample.n_rows)
    if sample.weight is not None:
        weight = sample.weight / sample.weight[known].mean()
    return np.stack([sample.scores[~known], weight[~known]])


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
) -> Audit | AuditSet:
    """Measure the fairness of a score, with uncertainty.

    Parameters
    ----------
    y_true : (n,) array or None, or Cells
        Targets; without them only independence can be measured. Or :class:`Cells`, which hold all
        that is needed of targets, scores, groups, weights and frequencies. Leave these out then,
        and also `cluster`, `controls`, `exposure` and `loss`, which need rows.
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
        For estimators and tests; None is seed 0.

    Returns
    -------
    Audit, or AuditSet for several models

    Notes
    -----
    Where rows are copies of one another, as in a file that was read twice, each person counts once,
    with the mean weight of the copies; `n_copies` and the verdict say how many rows were copies.
    Otherwise whoever is copied most often would count most. A plain measure such as
    :func:`evenhand.independence` adds the weights of copies up, as a bootstrap needs. Name the
    person as the `cluster` where rows of one person are not copies.

    See Also
    --------
    evenhand.independence
    evenhand.audit_table
    evenhand.Tolerance
    evenhand.fairness_path

    References
    ----------
    Barocas, S., Hardt, M. and Narayanan, A. (2023). Fairness and Machine Learning. MIT Press.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(2000, random_state=0)
    >>> result = eh.audit(data.y, data.s, sensitive_features=data.a)
    >>> 0 <= result.separation.interval[0] <= result.separation.interval[1] <= 1
    True
    """
    given, seed = dict(locals()), check_seed(random_state)
    run = _Run(
        get_estimator(estimator, seed), _name_of(estimator),
        check_confidence_level(confidence_level), seed, reference,
    )  # fmt: skip
    need_rows = {name: given[name] for name in ("cluster", "controls", "exposure", "loss")}
    others = {"y_pred": y_pred, "frequency": frequency}
    counted = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
    models = models_of(y_pred)
    if isinstance(y_true, Cells):
        refuse_beside_cells(estimator, **others, **counted, **need_rows)
        audits = {"": run.audit_cells(y_true)}
    elif too_many(frequency):
        refuse_beside_cells(estimator, **need_rows)
        audits = {
            name: run.audit_cells(Cells.from_rows(y_true, s, frequency=frequency, **counted), name)
            for name, s in models.items()
        }
    else:
        audits = run.audit_rows(given, len(models))
    audits = _beside_plain(audits, given)
    several = isinstance(y_pred, dict) or len(models) > 1
    return AuditSet(audits) if several else next(iter(audits.values()))


# How rows may count, in words.
_COUNTED = {"sample_weight": "the sample weights", "frequency": "the frequencies"}


def _beside_plain(audits: dict[str, Audit], given: dict[str, Any]) -> dict[str, Audit]:
    """Audits that know what they would be without weights and frequencies, for a verdict."""
    counted, n_absent = {}, 0
    for key in _COUNTED:
        values = None if np.ndim(given[key]) == 0 else check_column(given[key], key)
        if values is not None and (values != values[0]).any():
            native = read_native(given[key], key)
            counted[key] = (
                getattr(native, "name", None) or next(iter(getattr(native, "columns", [])), None)
                or ""
            )  # fmt: skip
            n_absent += int(np.count_nonzero(values == 0)) if key == "frequency" else 0
    return beside_plain(
        {name: replace(a, n_weightless=a.n_weightless + n_absent) for name, a in audits.items()},
        counted, lambda: audit(**{**given, **dict.fromkeys(_COUNTED)}),
    )  # fmt: skip


def counted_by(names: Mapping[str, str | None]) -> tuple[str, ...]:
    """What rows count by, in words, by the names of columns."""
    return tuple(
        f"{_COUNTED[key]} {str(name)!r}" if name else _COUNTED[key]
        for key, name in names.items()
        if name is not None
    )


def beside_plain(
    audits: dict[str, Audit], names: Mapping[str, str | None], again: Callable[[], Any]
) -> dict[str, Audit]:
    """Audits that know what they would be without weights and frequencies, by `again`."""
    counted = counted_by(names)
    if not counted:
        return audits

    @cache
    def audit_plainly() -> Audit | AuditSet:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return again()

    def find(name: str) -> Audit:
        plain = audit_plainly()
        return plain if isinstance(plain, Audit) else plain[name]

    return {
        name: replace(one, counted_by=counted, _unweighted=partial(find, name))
        for name, one in audits.items()
    }


@dataclass(frozen=True)
class _Run:
    """How audits are made, whatever they are of."""

    estimator: EntropyEstimator
    estimator_name: str
    confidence_level: float
    seed: int
    reference: Any = "largest"
    loss: Loss | None = None
    frequent: bool = False  # rows were repeated by frequencies, for people who differ
    paired: bool = False  # several models of the same rows, whose differences are tested
    several: bool = False  # attributes or models
    memo: dict[Any, Any] = field(default_factory=dict)  # what was derived from the same columns

    @property
    def how(self) -> dict[str, Any]:
        """What :func:`measure` takes by name."""
        return {"confidence_level": self.confidence_level, "estimator": self.estimator_name}

    def audit_rows(self, given: dict[str, Any], n_models: int) -> dict[str, Audit]:
        """Audits by model; several attributes are audited crossed and each by itself."""
        names = ("y_true", "y_pred", "sensitive_features", "sample_weight", "cluster", "controls")
        handed = {name: given[name] for name in (*names, "exposure")}
        frequency = given["frequency"]
        handed = dict(zip(handed, repeat_rows(frequency, **handed), strict=True))
        attributes = _read_attributes(handed["sensitive_features"])
        samples = _read_models(handed.pop("y_true"), handed.pop("y_pred"), handed)
        first = next(iter(samples.values()))
        loss = given["loss"]
        read = None if loss is None else read_loss(loss, given["power"], first.target)
        run = replace(self, frequent=frequency is not None, loss=read, paired=n_models > 1)
        check_effective_size(first.weighted().groups)
        parts = {
            name: first.regroup(labels, warn=False, require_two=False).groups
            for name, labels in attributes.items()
        }
        run = replace(run, several=n_models > 1 or len(parts) > 1)
        audits = {}
        for name, sample in samples.items():
            sample = sample.per_unit()
            # Of other models' columns only the target is this one's, too.
            for key in [key for key in run.memo if key[1:] != (id(sample.target),)]:
                del run.memo[key]
            alone = {
                part: run.audit_once(replace(sample, groups=groups), name, warn=False)
                for part, groups in parts.items()
                if groups.n_groups > 1
            }
            audits[name] = run.audit_once(sample, name, alone, tuple(parts))
        return audits

    @one_blas_thread()
    def audit_once(
        self, sample: Sample, name: str, attributes: dict[str, Audit] | None = None,
        crossed: tuple[str, ...] = (), warn: bool = True,
    ) -> Audit:  # fmt: skip
        """One audit of rows: those of weight zero are left out, and copies count once."""
        weighted = sample.weighted()
        kept, n_copies = weighted.distinct(self.frequent, self.estimator, people=True)
        audit = self.audit(kept, name, attributes, crossed, warn)
        weightless = sample.n_rows - weighted.n_rows
        return replace(audit, n_copies=n_copies, n_weightless=weightless)

    def audit(
        self, sample: Sample, name: str, attributes: dict[str, Audit] | None = None,
        crossed: tuple[str, ...] = (), warn: bool = True, estimated: Sample | None = None,
        counted: bool = False,
    ) -> Audit:  # fmt: skip
        """One audit; that of a crossing is given those of its attributes, and their names.

        `estimated` are other rows, which stand for several people each, for the measures. Rows that
        are made of counts are `counted`.
        """
        rows = sample.known()
        groups, frequency = rows.groups, None if estimated is None else estimated.frequency
        criteria = measurable(rows.variables)
        variables = Columns(complete(criteria, rows.variables), self.memo)
        entropies, shared, tests, table = self._measure_and_test(rows, variables, estimated, warn)
        for sentence in shared:
            warn_user(sentence, SharedValuesWarning)
        measures = {
            c.name: measure(
                c, entropies, p_value=tests[c.name].p_value, **self.how, frequency=frequency
            )
            for c in criteria
        }
        units = {
            c.name: unit_influence(entropies.influence(c), groups.weight, groups.cluster)
            for c in (criteria if self.paired else ())
        }
        worst = {}
        del entropies  # a number per row and condition
        # Attributes of a crossing are judged there, level by level.
        single = groups.codes is not None and groups.measured is None and (crossed or warn)
        if single and groups.n_groups > 2:
            worst = worst_against_rest(
                criteria, variables, groups, crossed, self.estimator, seed=self.seed, **self.how
            )
        return Audit(
            **describe_rows(sample, rows.by_exposure(), table),
            measures=measures,
            confidence_level=self.confidence_level,
            name=name,
            r2=r2_of(rows),
            attributes=attributes or {},
            one_against_rest=worst,
            _units=units,
            shared=shared,
            # A label of the crossing is none of its attributes'.
            **self._extras(rows, self.reference if warn else "largest", warn, counted),
        )

    def _measure_and_test(
        self, rows: Sample, variables: Columns, estimated: Sample | None, warn: bool
    ) -> tuple[Entropies, tuple[str, ...], dict[str, TestResult], GroupTable]:
        criteria, large = measurable(variables), rows.n_rows > EXACT_RANK_ROWS
        for name in variables if large else ():
            variables.slots(name)

        def derived() -> Columns:
            # Of two groups nobody else asks for what was derived, which is as large as the rows.
            alone = rows.groups.n_groups == 2 and not self.several
            return Columns(variables, {**variables.memo}) if alone else variables

        def estimate() -> tuple[Entropies, tuple[str, ...]]:
            if estimated is None:
                entropies = estimate_entropies(criteria, derived(), rows.groups, self.estimator)
            else:
                entropies = estimate_entropies(
                    criteria, estimated.variables, estimated.groups, self.estimator,
                    estimated.frequency,
                )  # fmt: skip
            shared = find_shared_values(variables, entropies.alone, rows.groups) if warn else ()
            return entropies, tuple(shared)

        def test(run: Any = map) -> dict[str, TestResult]:
            return exact_fairness_p_values(
                criteria, columns, rows.groups, random_state=self.seed, ranks=ranks, run=run
            )

        def tabulate() -> GroupTable:
            cells = ranks["s"].distribution()
            return summarize_groups(rows.by_exposure(), self.confidence_level, cells)

        columns = derived()
        if rows.n_rows <= PARALLEL_ROWS or n_threads() < 2:
            found, ranks = estimate(), rank_all(columns)
            return *found, test(), tabulate()
        # The long loops release the interpreter lock.
        with ThreadPoolExecutor(n_threads()) as pool:
            estimates, ranks = pool.submit(estimate), rank_all(columns)
            table = pool.submit(tabulate)
            tests = test(pool.map)
            return *estimates.result(), tests, table.result()

    def audit_cells(self, cells: Cells, name: str = "") -> Audit:
        """An audit without rows: estimates and tests on rows made of cells, exact tables."""
        refuse_copied(cells, self.estimator)
        cells = _present(cells)
        rows, tested = expand_cells(cells), sample_cells(cells)
        if rows.frequency is None:
            check_effective_size(rows.groups)
        parts, several = {}, cells.names if len(cells.names) > 1 else ()

        def audit(levels: tuple[Any, ...], at: Rows, called: str, **how: Any) -> Audit:
            few = [_regroup(v, levels, at, called) for v in (rows, tested)]
            estimated = None if rows.frequency is None else few[0]
            result = self.audit(few[1], name, estimated=estimated, counted=True, **how)
            return _exact(result, cells, at)

        for j, attribute in enumerate(several):
            levels = tuple(dict.fromkeys(label[j] for label in cells.labels))
            if len(levels) > 1:
                at = np.array([levels.index(label[j]) for label in cells.labels])
                parts[attribute] = audit(levels, at, attribute, warn=False)
        each = np.arange(len(cells.labels))
        whole = audit(rows.groups.labels, each, rows.groups.name, attributes=parts, crossed=several)
        return replace(whole, counted_by=("the weights of the cells",) if cells.weighted else ())

    def _extras(self, rows: Sample, reference: Any, warn: bool, counted: bool) -> dict[str, Any]:
        """What proxies, prices and controls ask for besides."""
        extras: dict[str, Any] = {}
        if rows.groups.probabilities is not None:
            # Expected counts tell no other answer than that of weighting by probabilities.
            extras["imputation"] = (
                Imputation((), math.nan, self.confidence_level, rows.groups.assume)
                if counted
                else bound_gaps(rows, self.confidence_level)
            )
        if rows.target is not None and (self.loss is not None or rows.exposure is not None):
            extras["pricing"] = price(rows, self.loss, self.confidence_level, reference)
        if rows.controls is not None:
            extras["conditional"] = audit_given(
                rows, self.estimator, reference, seed=self.seed, warn=warn, **self.how
            )
        return extras


def _name_of(estimator: Any) -> str:
    return estimator if isinstance(estimator, str) else type(estimator).__name__


# ------------------------------------------------------------------------------------------------
# What sums of cells say exactly, and people of the same controls.
#
# R², means, spreads, root mean squared errors and calibration slopes of groups are those of all
# people, from their sums. Measures, tests, mean absolute errors and distances of distributions see
# each person somewhere within its cell.


# People who are compared with others of the same controls.
MOST_COMPARED = 200_000


def given_controls(
    cells: Cells, n_controls: int, estimator: Any = "auto", confidence_level: float = 0.95,
    random_state: int = 0, reference: Any = "largest",
) -> Conditional:  # fmt: skip
    """Judge scores among people with the same controls, from cells of attributes and controls.

    Beyond :data:`MOST_COMPARED` people as many of them are compared, evenly spread over the cells,
    and errors are those of as many.

    Parameters
    ----------
    cells : Cells
        Of attributes crossed with controls, of which the levels are text.
    n_controls : int
        How many of the crossed columns, the last ones, are controls.
    estimator, confidence_level, random_state, reference
        As in :func:`evenhand.audit`.
    """
    cells = _present(cells, MAX_GROUPS**2)
    rows = sample_cells(cells, MOST_COMPARED, MOST_COMPARED)
    codes = rows.groups.codes
    first = len(cells.names) - n_controls
    own = [label[0] if first == 1 else label[:first] for label in cells.labels]
    attributes = tuple(dict.fromkeys(own))
    at = np.array([attributes.index(label) for label in own])
    groups = _regroup(rows, attributes, at, " × ".join(cells.names[:first])).groups
    columns = []
    for j, name in enumerate(cells.names[first:], first):
        texts, inverse = np.unique([label[j] for label in cells.labels], return_inverse=True)
        columns.append(Control(name, None, inverse[codes], tuple(map(str, texts))))
    gone = {column.name: CONSTANT for column in columns if column.is_constant}
    controls = Controls(tuple(c for c in columns if c.name not in gone), gone)
    refuse_none(controls)
    return audit_given(
        replace(rows, groups=groups, controls=controls), get_estimator(estimator, random_state),
        reference, seed=random_state, confidence_level=confidence_level,
        estimator=_name_of(estimator),
    )  # fmt: skip


def _present(cells: Cells, most: int = MAX_GROUPS) -> Cells:
    """Without groups that nobody is in; fewer than two that somebody is in are refused."""
    present = np.bincount(cells.group, minlength=len(cells.labels)) > 0
    labels = tuple(label for label, k in zip(cells.labels, present, strict=True) if k)
    if len(labels) < 2:
        there = f"only {labels[0]!r}" if labels else "no known group"
        raise ValueError(
            f"`cells` must hold at least two groups to compare, found {there} among {cells.n:,} "
            "people. Hint: merge them with cells of others first."
        )
    if len(labels) > most:
        raise ValueError(
            f"`cells` must hold at most {most:,} groups, found {len(labels)}. Hint: merge rare "
            "groups into larger ones before counting."
        )
    number = (np.cumsum(present) - 1).astype(np.int32)
    return replace(cells, labels=labels, group=number[cells.group])


def _regroup(rows: Sample, levels: tuple[Any, ...], at: Rows, name: str) -> Sample:
    """The same rows by one of several crossed attributes."""
    if rows.groups.codes is None:
        return rows  # inferred groups are one attribute
    groups = replace(rows.groups, labels=levels, codes=at[rows.groups.codes], name=name)
    return replace(rows, groups=groups)


def _exact(audit: Audit, cells: Cells, at: Rows) -> Audit:
    """Put in what the sums say exactly; `at` is the group of each label of the cells."""
    own, n_groups, columns = at[cells.group], len(audit.labels), audit._groups.columns
    sums = np.stack([np.bincount(own, c, n_groups) for c in cells.sums.T], axis=1).astype(float)
    mass, exact = sums[:, WEIGHT], dict(columns)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        size = np.square(mass) / sums[:, WEIGHT2]
        values, spreads = _moments(cells, sums)
        r2 = _r2(cells) if cells.has_target else float("nan")
        # Where rows stand for several people their margins are those of fewer.
        shrink = np.sqrt(np.asarray(columns["n_effective"]) / size)
        for name in columns:
            if f"{name}_low" in columns:
                before = np.asarray(columns[name])
                value = values.get(name, before)
                exact[name] = value.tolist()
                for end in ("low", "high"):
                    margin = np.asarray(columns[f"{name}_{end}"]) - before
                    exact[f"{name}_{end}"] = (value + margin * shrink).tolist()
    exact |= {name: spread.tolist() for name, spread in spreads.items()}
    exact["n"] = [int(c) for c in np.bincount(own, cells.count, n_groups)]
    exact |= {"share": (mass / mass.sum()).tolist(), "n_effective": size.tolist()}
    return replace(
        audit, n_rows=cells.n + cells.n_unknown, n_unknown=cells.n_unknown, r2=r2,
        _groups=GroupTable(exact), _rows=audit._rows.standing_for(cells.n),
    )  # fmt: skip


def _moments(cells: Cells, sums: Vector) -> tuple[dict[str, Vector], dict[str, Vector]]:
    """Means, errors and slopes of each group, and standard deviations, by name of the column."""
    edges, mass = cells.edges, sums[:, WEIGHT]
    s1, y1, s2, y2, sy = (sums[:, j] / mass for j in (SCORE, TARGET, SCORE2, TARGET2, PRODUCT))
    variance_s = np.maximum(s2 - s1 * s1, 0.0)
    values, spreads = {"mean_score": s1 + edges.score.shift}, {"sd_score": np.sqrt(variance_s)}
    if edges.target is not None:
        apart = edges.target.shift - edges.score.shift
        residual = y1 - s1
        mse = np.maximum(y2 - 2.0 * sy + s2 + 2.0 * apart * residual + apart * apart, 0.0)
        values |= {
            "mean_target": y1 + edges.target.shift,
            "mean_residual": residual + apart,
            "rmse": np.sqrt(mse),
            "calibration_slope": np.where(variance_s > 0, (sy - s1 * y1) / variance_s, np.nan),
        }
        spreads |= {
            "sd_target": np.sqrt(np.maximum(y2 - y1 * y1, 0.0)),
            "sd_residual": np.sqrt(np.maximum(mse - np.square(residual + apart), 0.0)),
        }
    return values, spreads


def _r2(cells: Cells) -> float:
    """1 − mean (y − s)²/Var(y)."""
    values, spreads = _moments(cells, cells.sums.sum(axis=0)[None, :])
    error, spread = values["rmse"][0], spreads["sd_target"][0]
    return float(1.0 - np.square(error / spread)) if spread > 0 else float("nan")
