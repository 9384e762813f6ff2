"""What an audit found: measures by criterion, gaps, and the views that show them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._core.arrays import Vector
from .._core.files import write_text
from .._core.frames import json_safe, to_frame
from .._core.views import Shown, view
from ..data.criteria import get_criterion
from ..data.labels import doubtful_labels
from ..measures.measures import Difference, Measure, measure_columns
from .by_group import ByGroup, metric_by_group
from .conditional import Conditional
from .group_tables import AuditedRows, Disparities, GroupTable
from .impact import SMALLEST, Impact, impact_table
from .imputed import Imputation
from .one_against_rest import OneAgainstRest
from .pricing import Pricing
from .tolerance import Tolerance
from .verdict import Verdict, verdict_of

if TYPE_CHECKING:
    from .drivers import Drivers


FORMAT_VERSION = 1


@dataclass(frozen=True)
class Audit(Shown):
    """The result of :func:`audit`.

    Attributes
    ----------
    measures : dict of str → Measure
        By criterion, those that could be computed: without a target only independence. Each of the
        three criteria is also an attribute by its name, None where it is not among them.
    sensitive_name, n_rows, n_unknown, confidence_level
    name : str
        The model's name, when several are compared.
    attributes : dict of str → Audit
        Of crossed attributes, each by itself; empty for a single one. A crossing has more groups
        than its attributes and so a larger normalizer: it can look fair where one of them is not.
    one_against_rest : dict of str → OneAgainstRest
        Of crossed attributes, by criterion: the group or level that differs most from all others.
    imputation : Imputation or None
        Of a :class:`Proxy`: what can be said of gaps between the true groups without the assumption
        that score and group are independent among people of the same probabilities.
    conditional : Conditional or None
        With controls: gaps in units of the score among people with the same controls, and the
        information that the score then still has about the group.
    pricing : Pricing or None
        With a loss or an exposure: deviance explained, actual over expected by group and by band.
    n_negative : int
        Scores below zero, where the target is never negative.
    n_copies : int
        Rows that are copies of others; each person counts once, and `n_rows` leaves them out.
    n_weightless : int
        Rows of weight or frequency zero, which count as absent.
    shared : tuple of str
        Why several rows seem to be one person's, in sentences; then no verdict is a pass.
    counted_by : tuple of str
        What rows count by if not alike, in words: sample weights, frequencies, with their names.

    See Also
    --------
    evenhand.audit
    evenhand.Tolerance
    evenhand.drivers

    References
    ----------
    Barocas, S., Hardt, M. and Narayanan, A. (2023). Fairness and Machine Learning. MIT Press.

    Holm, S. (1979). A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal
    of Statistics 6.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(500, random_state=0)
    >>> audit = eh.audit(data.y, data.s, sensitive_features=data.a, estimator="logistic")
    >>> list(audit.measures)
    ['independence', 'separation', 'sufficiency']
    >>> audit.labels
    ('0', '1')
    """

    measures: dict[str, Measure]
    sensitive_name: str
    labels: tuple[str, ...]
    n_rows: int
    n_unknown: int
    confidence_level: float
    _groups: GroupTable = field(repr=False)
    _rows: AuditedRows = field(repr=False, compare=False)
    name: str = ""
    r2: float = float("nan")
    attributes: dict[str, Audit] = field(default_factory=dict)
    one_against_rest: dict[str, OneAgainstRest] = field(default_factory=dict)
    imputation: Imputation | None = None
    conditional: Conditional | None = None
    pricing: Pricing | None = None
    n_negative: int = 0
    n_copies: int = 0
    n_weightless: int = 0
    shared: tuple[str, ...] = ()
    counted_by: tuple[str, ...] = ()
    _unweighted: Callable[[], Audit] | None = field(repr=False, default=None, compare=False)
    # Of models that were audited together, what each row or cluster adds to the criteria.
    _units: dict[str, Vector] = field(repr=False, default_factory=dict, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without the way back to other rows, which no file can hold."""
        return {**vars(self), "_unweighted": None}

    @property
    def independence(self) -> Measure | None:
        return self.measures.get("independence")

    @property
    def separation(self) -> Measure | None:
        return self.measures.get("separation")

    @property
    def sufficiency(self) -> Measure | None:
        return self.measures.get("sufficiency")

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was done to the rows before anything was measured, in sentences."""
        out = []
        if self.n_copies:
            out.append(
                f"{self.n_copies:,} of {self.n_copies + self.n_rows:,} rows are copies of others, "
                "and each person counts once."
            )
        if self.counted_by:
            out.append(f"Rows count by {self.counted}.")
        if self.n_weightless:
            out.append(f"{self.n_weightless:,} rows of weight zero are left out.")
        if self.pricing is not None and self.pricing.has_exposure:
            out.append("Shares and means of groups count each row by its exposure.")
        for part in self.attributes.values() or [self]:
            out += doubtful_labels(part.labels)
        return (*out, *self.shared)

    @property
    def counted(self) -> str:
        """What rows count by, in words."""
        return " and ".join(self.counted_by)

    def parts(self, criterion: str) -> dict[str, Measure]:
        """All there is on one criterion, by what it is on; a verdict is the worst of them.

        The audit's own measure comes first; of crossed attributes each one follows, and the worst
        group against the rest.

        Parameters
        ----------
        criterion : str
        """
        name = get_criterion(criterion).name
        if name not in self.measures:
            return {}
        measures = {self.sensitive_name: self.measures[name]}
        measures |= {part: audit.measures[name] for part, audit in self.attributes.items()}
        if name in self.one_against_rest:
            worst = self.one_against_rest[name]
            measures[f"{worst.group} against the rest"] = worst.measure
        return measures

    def impact(
        self, reference: str = "largest", at: Any = ("median",), favorable: str = "high", *,
        cutoffs: Any = (), smallest: float = SMALLEST,
    ) -> Impact:  # fmt: skip
        """Each group against a reference: SMD, means, actual over expected, impact and odds ratios.

        Intervals are simultaneous over the groups, for each number by itself: the largest t by the
        covariance of the estimates. P-values are Holm's over the groups. With clusters both count
        clusters. The rows are read when this is called; do not change the arrays in between.

        Parameters
        ----------
        reference : str
            A group, "largest", or "best": the group with the largest share of favorable scores at
            the first cutoff, as New York City's Local Law 144 has it.
        at : list of "median" and quantiles
            Scores beyond this quantile of all rows with a known group are favorable.
        favorable : {"high", "low"}
            Whether a person is better off with a high score (a grade) or a low one (a premium).
        cutoffs : list of float
            Cutoffs in units of the score; scores that reach one are favorable.
        smallest : float
            Groups of a smaller share are listed apart, with intervals of their own.

        Returns
        -------
        Impact

        Examples
        --------
        >>> import evenhand as eh
        >>> data = eh.datasets.make_bivariate_normal(2000, random_state=0)
        >>> table = eh.audit(data.y, data.s, sensitive_features=data.a).impact(at=("median", 0.8))
        >>> table.get("smd", "1").low < table.get("smd", "1").value
        True
        """
        return self._compare(
            reference=reference, at=at, favorable=favorable, cutoffs=cutoffs, smallest=smallest
        )

    def _compare(self, **how: Any) -> Impact:
        """The impact table, with what :func:`impact_table` takes by name."""
        level, name = self.confidence_level, self.sensitive_name
        return impact_table(self._rows, confidence_level=level, sensitive_name=name, **how)

    def by_group(
        self, metric: Any, *, reference: str = "largest", random_state: Any = None
    ) -> ByGroup:
        """Any metric of each group, with gaps, ratios, simultaneous intervals and tests.

        Values are those of the metric on the rows of the group, with their weights. Intervals of
        values, of gaps and of ratios each hold for all groups at once; p-values are Holm's over the
        groups, of a gap of 0 and a ratio of 1. Errors come from leaving out blocks of rows or whole
        clusters, or from bootstrap draws where the metric is not smooth, such as a median. Where
        single rows decide, as in a maximum, there is no interval.

        Parameters
        ----------
        metric : str or function
            A metric of scikit-learn by its name, or ``metric(y_true, y_pred, sample_weight=None)``.
            A function without `sample_weight` will do if rows are not weighted.
        reference : str
            What gaps and ratios are against: a group, "largest" or "overall" (all rows).
        random_state : int, Generator, RandomState or None
            For blocks and draws; None is seed 0.

        Returns
        -------
        ByGroup

        Examples
        --------
        >>> import evenhand as eh
        >>> data = eh.datasets.make_bivariate_normal(2000, random_state=0)
        >>> audit = eh.audit(data.y, data.s, sensitive_features=data.a)
        >>> errors = audit.by_group("mean_absolute_error")
        >>> errors.gaps["1"].low <= errors.values["1"] - errors.values["0"] <= errors.gaps["1"].high
        True
        """
        return metric_by_group(self._rows, metric, reference, self.confidence_level, random_state)

    def verdict(self, tolerance: Tolerance, level: float | None = None) -> Verdict:
        """Pass, fail or not enough data, by equivalence tests over all clauses of a tolerance.

        A clause on a criterion is asked of every part (:meth:`parts`), and one on a number of the
        impact table of every group that is not small, crossed and by attribute. A limit is not met
        where a one-sided test, by Holm's rule over all of them, rejects that the value is within
        it, and is met where tests reject that it is outside. One limit that is not met is a fail;
        a pass needs all of them to be met.

        Parameters
        ----------
        tolerance : Tolerance
        level : float, optional
            Of the tests; the tolerance's own when left out.

        Returns
        -------
        Verdict

        Examples
        --------
        >>> import evenhand as eh
        >>> data = eh.datasets.make_bivariate_normal(2000, random_state=0)
        >>> audit = eh.audit(data.y, data.s, sensitive_features=data.a)
        >>> audit.verdict(eh.Tolerance(independence=0.5, smd=(-2, 2))).outcome
        'pass'
        """
        return verdict_of(self, tolerance, level)

    @property
    def disparities(self) -> Disparities:
        """Simple gaps between groups, for context."""
        return self._groups.gaps

    @property
    def n_clusters(self) -> int | None:
        """Clusters among the rows with a known group; None where rows are independent."""
        return next(iter(self.measures.values())).n_clusters

    @property
    def groups(self) -> Any:
        """One row per group: size, means, spreads, errors, with intervals (a data frame)."""
        return to_frame(self._groups.columns)

    def to_frame(self, backend: str | None = None) -> Any:
        """The measures, one row each.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
        """
        return to_frame(measure_columns(self.measures.values()), backend)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values that JSON can hold (undefined numbers are None)."""
        plain = ("n_rows", "n_unknown", "n_copies", "n_clusters", "confidence_level", "r2")
        held: dict[str, Any] = {
            "format": "evenhand.audit", "version": FORMAT_VERSION, "name": self.name,
            "sensitive": self.sensitive_name, **{name: getattr(self, name) for name in plain},
            "measures": self.measures,
            "attributes": {name: one.measures for name, one in self.attributes.items()},
            "one_against_rest": {
                name: {"group": w.group, "n_compared": w.n_compared, **w.measure.to_dict()}
                for name, w in self.one_against_rest.items()
            },
            "remarks": self.remarks, "n_negative": self.n_negative, "groups": self._groups.columns,
            "disparities": self.disparities, "imputation": self.imputation,
        }  # fmt: skip
        held |= {
            name: getattr(self, name)
            for name in ("conditional", "pricing")
            if getattr(self, name) is not None
        }
        return json_safe(held)

    def plot(self) -> Any:
        """A Matplotlib figure: scores by group, score against target, the three measures."""
        return view("plot_audit")(self)

    def to_html(
        self, path: Any, *, force: bool = False, tolerance: Tolerance | None = None,
        favorable: str | None = None, about: Any = None, drivers: Drivers | None = None,
    ) -> Any:  # fmt: skip
        """Write the audit as one self-contained page, to mail, to print or to sign.

        Parameters
        ----------
        path : str or Path
            File to write.
        force : bool
            Overwrite an existing file.
        tolerance : Tolerance, optional
            With it the verdict comes first.
        favorable : {"high", "low"}, optional
            With it, or with that of the tolerance, the impact table is shown.
        about : evenhand.report.About or dict, optional
            Title, owner, purpose, model_name, period and note; what is left out is printed as "not
            stated".
        drivers : Drivers, optional
            As from :func:`evenhand.drivers`, of the same score; with it a section says which
            features carry the gap.

        Returns
        -------
        Path
        """
        page = _page({"": self}, self, tolerance, favorable, about=about, drivers=drivers)
        return write_text(path, page, force)

    def log_mlflow(self, name: str = "evenhand") -> None:
        """Log measures, their intervals and the page to the active run of MLflow, if installed.

        Parameters
        ----------
        name : str
            Of the metrics, such as ``evenhand.independence``, and of the files.
        """
        import mlflow

        ends = {"": "value", ".stderr": "stderr", ".p_value": "p_value"}
        mlflow.log_metrics({
            f"{name}.{criterion}{end}": getattr(measure, key)
            for criterion, measure in self.measures.items() for end, key in ends.items()
            if math.isfinite(getattr(measure, key))
        })  # fmt: skip
        mlflow.log_dict(self.to_dict(), f"{name}.json")
        mlflow.log_text(view("audit_page")(self), f"{name}.html")


@dataclass(frozen=True)
class AuditSet(Mapping[str, Audit], Shown):
    """Several audits by name: models compared on the same rows, or attributes one by one.

    See Also
    --------
    evenhand.audit
    evenhand.Audit

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(500, random_state=0)
    >>> scores = {"full": data.s, "half": data.s / 2}
    >>> audits = eh.audit(data.y, scores, sensitive_features=data.a, estimator="logistic")
    >>> list(audits)
    ['full', 'half']
    """

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

    def verdict(self, tolerance: Tolerance, level: float | None = None) -> dict[str, Verdict]:
        """The verdict on each audit by itself.

        Parameters
        ----------
        tolerance : Tolerance
        level : float, optional
            Of the tests; the tolerance's own when left out.
        """
        return {name: audit.verdict(tolerance, level) for name, audit in self.audits.items()}

    def differences(self) -> tuple[Difference, ...]:
        """Every criterion of each model less that of the first, paired by rows, with a test.

        Models err on the same people, so a difference can be clear although their intervals
        overlap. There are none of models that were not audited together, of rows that were counted
        into cells, and of a model whose rows are copies of others where the first one's are not.

        Examples
        --------
        >>> import evenhand as eh
        >>> data = eh.datasets.make_bivariate_normal(500, random_state=0)
        >>> scores = {"full": data.s, "half": data.s / 2}
        >>> audits = eh.audit(data.y, scores, sensitive_features=data.a, estimator="logistic")
        >>> [round(d.p_value, 6) for d in audits.differences() if d.criterion == "independence"]
        [1.0]
        """
        (_, first), *others = self.audits.items()
        return tuple(
            Difference.of(
                name, (first.measures[c], audit.measures[c]), (units, audit._units[c]),
                audit.confidence_level,
            )
            for name, audit in others
            if audit._units and first._rows.is_same(audit._rows)
            for c, units in first._units.items()
        )  # fmt: skip

    def to_frame(self, backend: str | None = None) -> Any:
        """All measures of all audits, one row each, with the name in the first column."""
        each = [(name, m) for name, audit in self.audits.items() for m in audit.measures.values()]
        columns = {self.kind: [name for name, _ in each], **measure_columns(m for _, m in each)}
        return to_frame(columns, backend)

    def to_dict(self) -> dict[str, Any]:
        """All audits, by name under "audits", as plain values that JSON can hold."""
        return {
            "format": "evenhand.audits",
            "version": FORMAT_VERSION,
            "kind": self.kind,
            "audits": {name: audit.to_dict() for name, audit in self.audits.items()},
            "differences": json_safe(self.differences()),
        }

    def to_html(
        self, path: Any, *, force: bool = False, tolerance: Tolerance | None = None,
        favorable: str | None = None, about: Any = None,
    ) -> Any:  # fmt: skip
        """Write all audits, side by side and one by one, as one self-contained page.

        Parameters
        ----------
        path : str or Path
            File to write.
        force : bool
            Overwrite an existing file.
        tolerance, favorable, about
            As for an audit.

        Returns
        -------
        Path
        """
        return write_text(path, _page(self.audits, self, tolerance, favorable, about=about), force)


def _page(
    audits: Mapping[str, Audit], result: Any, tolerance: Tolerance | None, favorable: str | None,
    **more: Any,
) -> str:  # fmt: skip
    """Return the page of one audit or several, with verdicts and impact where they are asked."""
    verdicts, impacts = {}, {}
    if tolerance is not None:
        verdicts = {name: audit.verdict(tolerance) for name, audit in audits.items()}
        favorable = favorable or tolerance.favorable
    if favorable is not None:
        impacts = {name: audit.impact(favorable=favorable) for name, audit in audits.items()}
    return view("audit_page")(
        result, verdicts=verdicts, impacts=impacts, favorable=favorable, **more
    )
