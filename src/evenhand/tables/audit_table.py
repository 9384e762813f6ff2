"""Audits of tables that stay where they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._core.progress import waiting
from .._core.validation import InputError
from ..auditing.audits import audit, beside_plain, given_controls
from ..auditing.conditional import Conditional
from ..auditing.result import Audit
from ..measures.cell_rows import refuse_beside_cells
from ..measures.cells import Cells
from ..measures.edges import Edges
from .engines import Held, open_table
from .plan import Columns, changed, check_levels, without_blank


def audit_table(
    table: Any,
    *,
    y_true: str | None,
    y_pred: str,
    sensitive_features: Any,
    sample_weight: str | None = None,
    frequency: str | None = None,
    controls: Any = None,
    cluster: Any = None,
    estimator: Any = "auto",
    confidence_level: float = 0.95,
    missing: Sequence[str] = (),
    assume: str | None = None,
) -> Audit:
    """Measure the fairness of scores in a table, where it is.

    The engine that holds the table runs two light queries, for the ends of the grid and a sample of
    200,000 scores and targets, and one that counts rows by bins of score and target and group. The
    audit is made from these counts (:class:`Cells`). Only the sample, of two columns, leaves the
    engine; a table of fewer than 400,000 rows is its own sample.

    Parameters
    ----------
    table : path, frame, relation or expression
        A path or glob of Parquet or CSV files, a folder of Parquet files, a list of such paths,
        a DuckDB relation, a Polars frame or lazy frame, a pandas frame, an
        Arrow table or dataset, a dict of columns, an Ibis table of any backend, a PySpark or a Dask
        data frame.
    y_true : str or None
        Column with the targets; without it only independence can be measured.
    y_pred : str
        Column with the scores.
    sensitive_features : str or list of str
        Columns with the group of each row; several are crossed. NULL, NaN and empty text mean that
        the group is not known. Up to 200 levels each. Or a mapping of group → column with its
        probability, where groups were inferred: rows then give expected counts.
    sample_weight, frequency : str, optional
        Columns with weights, and with the number of people that each row stands for.
    controls : str or list of str, optional
        Columns with legitimate factors: what they leave of the difference between groups is in
        `conditional` of the result. Up to 200 levels each, missing among them; numbers must be cut
        into bands, except for tables in memory. One more query counts rows by bins of the score.
    cluster : None
        This needs rows; see :func:`evenhand.audit`.
    estimator : str or instance
        "auto", "logistic" or "lspc"; others need rows.
    confidence_level : float
        Of all intervals.
    missing : sequence of str
        Labels of groups that stand for "not known", such as "NA", beside NULL, NaN and blanks.
    assume : {"guess"}, optional
        Of :class:`evenhand.Proxy`, for probabilities. Without it no verdict passes.

    Returns
    -------
    Audit

    See Also
    --------
    evenhand.audit
    evenhand.Cells
    evenhand.monitor

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(2000, random_state=0)
    >>> table = {"outcome": data.y, "score": data.s, "sex": data.a}
    >>> result = eh.audit_table(table, y_true="outcome", y_pred="score", sensitive_features="sex")
    >>> result.n_rows
    2000
    """
    refuse_beside_cells(estimator)
    if cluster is not None:
        raise InputError(
            "cluster", "be left out: errors by cluster need rows, and counts have none",
            hint="audit all rows of some clusters with evenhand.audit.",
        )  # fmt: skip
    arguments = {
        "y_true": y_true, "y_pred": y_pred, "sensitive_features": sensitive_features,
        "sample_weight": sample_weight, "frequency": frequency,
        "missing": missing, "assume": assume,
    }  # fmt: skip
    how = {"estimator": estimator, "confidence_level": confidence_level}
    return audit_counts(table, cells_of(table, **arguments), how, controls, **arguments)


def audit_counts(
    table: Any, cells: Cells, how: dict[str, Any], controls: Any, **names: Any
) -> Audit:
    """An audit of a table's cells, with what it would be without weights and frequencies.

    Parameters
    ----------
    table, controls
        As in :func:`audit_table`.
    cells : Cells
    how : dict
        Of :func:`evenhand.audit`: estimator, confidence_level, random_state and reference.
    **names : str
        As in :func:`cells_of`.
    """
    with waiting("Measuring"):
        found = audit(cells, **how)
    assert isinstance(found, Audit)
    counted = {name: names[name] for name in ("sample_weight", "frequency")}

    def again() -> Audit:
        plain = {**names, **dict.fromkeys(counted)}
        return audit_counts(table, cells_of(table, **plain), how, controls, **plain)

    found = beside_plain({"": found}, counted, again)[""]
    if controls is None:
        return found
    return replace(found, conditional=conditional_of(table, controls, cells.edges, how, **names))


def conditional_of(
    table: Any, controls: Any, edges: Edges, how: dict[str, Any], **names: Any,
) -> Conditional:  # fmt: skip
    """What controls leave of a difference: of rows in memory, else of counts by their levels.

    Parameters
    ----------
    table, controls
        As in :func:`audit_table`.
    edges : Edges
        Of the cells without controls.
    how, **names
        As in :func:`audit_counts`.
    """
    columns = columns_of(**{**names, "y_true": None}, controls=controls)
    opened = open_table(table, columns)
    if isinstance(opened, Held):
        found = opened.audit(columns, **how)
        assert found.conditional is not None
        return found.conditional
    # On a grid with a slope bins of the score are bins of a residual.
    grid = None if edges.slope else Edges(edges.bins, edges.score)
    with waiting("Looking at the controls") as say:
        cells = _counted(opened, columns, grid, say)
        say("Measuring, given the controls")
        return given_controls(cells, len(columns.controls), **how)


def cells_of(table: Any, *, edges: Edges | int | None = None, **names: Any) -> Cells:
    """Count the rows of a table into :class:`evenhand.Cells`, where it is.

    Parameters
    ----------
    table
        As in :func:`audit_table`.
    edges : Edges or int, optional
        Those of the cells that these are to be merged with; a number of bins per side; or a grid
        that suits the table.
    **names : str
        y_true, y_pred, sensitive_features, sample_weight, frequency, missing and assume, as in
        :func:`audit_table`; `bands`, a mapping of column → edges, cuts sensitive columns of numbers
        or dates as :func:`evenhand.bands` does; people are counted by columns in `keys` before
        their groups.

    Returns
    -------
    Cells

    See Also
    --------
    evenhand.Cells
    evenhand.audit_table

    Examples
    --------
    >>> from evenhand.tables import cells_of
    >>> table = {"score": [1.0, 2.0, 3.0, 4.0], "sex": ["f", "m", "f", "m"]}
    >>> cells_of(table, y_true=None, y_pred="score", sensitive_features="sex").n
    4
    """
    columns = columns_of(**names)
    with waiting("Looking at the table") as say:
        return _counted(open_table(table, columns), columns, edges, say)


def _counted(
    opened: Any, columns: Columns, edges: Edges | int | None, say: Callable[[str], None]
) -> Cells:
    if isinstance(opened, Held):
        cells = without_blank(opened.count(columns, edges), columns.missing)
        for j, name in enumerate(columns.groups):
            several = len(columns.groups) > 1
            check_levels(len({v[j] if several else v for v in cells.labels}), name)
        return cells
    facts = opened.facts(columns)
    _check_facts(facts, columns)
    opened.refuse_measurements(columns, facts)
    say("Drawing a sample")
    grid = _edges(opened, columns, facts, edges)
    say(f"Counting {facts['n']:,.0f} rows")
    counted = opened.cells(columns, grid, facts)
    _check_whole(counted, facts, columns)
    return counted


def columns_of(
    y_true: Any, y_pred: Any, sensitive_features: Any, sample_weight: Any = None,
    frequency: Any = None, controls: Any = (), missing: Sequence[str] = (),
    bands: Mapping[str, Any] | None = None, keys: Sequence[str] = (), assume: str | None = None,
) -> Columns:  # fmt: skip
    """Names of columns, checked to be names."""
    shares = dict(sensitive_features) if isinstance(sensitive_features, Mapping) else {}
    groups = (*keys, *_named("sensitive_features", list(shares.values()) or sensitive_features))
    beside = _named("controls", controls)
    if shares and (beside or assume == "group" or len(shares) < 2):
        raise InputError(
            "sensitive_features", "be the probabilities of at least two groups, without controls "
            'and without assume="group", which need rows', hint="audit the rows themselves.",
        )  # fmt: skip
    if not groups or len(set(groups)) < len(groups):
        raise InputError("sensitive_features", f"be distinct columns, got {list(groups)}")
    crossed = (*groups, *beside)
    if len(set(crossed)) < len(crossed) or y_pred in beside:
        raise InputError("controls", f"be columns other than groups and score, got {list(beside)}")
    made = Columns(
        y_pred, y_true, tuple(keys) if shares else crossed, sample_weight, frequency, beside,
        tuple(missing), bands or {}, shares, assume,
    )  # fmt: skip
    for argument, name in {"y_pred": y_pred, **made.numbers}.items():
        _check_text(argument, name)
    return made


def _named(argument: str, names: Any) -> tuple[str, ...]:
    """One name or a list of them."""
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, list | tuple):
        _check_text(argument, names, "be the name of a column or a list of names")
    for j, name in enumerate(listed):
        _check_text(f"{argument}[{j}]", name)
    return tuple(listed)


def _check_text(argument: str, name: Any, must: str = "be the name of a column") -> None:
    if not isinstance(name, str):
        raise InputError(
            argument, must, type(name).__name__, "columns themselves go to evenhand.audit."
        )


def _check_facts(facts: dict[str, float], columns: Columns) -> None:
    """Refuse what `evenhand.audit` refuses, with the number of rows."""
    n = facts["n"]
    if not n > 0:
        raise InputError("table", "hold at least one row, got none")
    for argument, name in columns.numbers.items():
        bad = facts[f"bad_{argument}"]
        if bad:
            raise InputError(
                argument, f"be finite: {bad:,.0f} of {n:,.0f} rows of column {name!r} are NULL, "
                "NaN or infinity", hint="filter or impute these rows first.",
            )  # fmt: skip
    for argument in ("sample_weight", "frequency"):
        least = facts.get(f"least_{argument}", 0.0)
        if least < 0:
            raise InputError(argument, f"be nonnegative, got {least}")
    if facts.get("fractions"):
        raise InputError(
            "frequency", f"be whole numbers: {facts['fractions']:,.0f} rows have others",
            hint="what a person counts for, such as a sampling weight, is a weight.",
        )  # fmt: skip
    if facts.get("people", 0.0) >= 2.0**53:
        raise InputError(
            "frequency", f"add up to fewer than 2^53 people, got {facts['people']:.3g}"
        )
    if not facts.get("n_used", n) > 0:
        what = "`frequency`" if columns.weight is None else "`sample_weight`"
        raise ValueError(f"{what} must not be zero in every row.")
    for j, name in enumerate(columns.groups):
        # Blanks and gaps are among them; the true number is checked with the cells.
        if facts[f"levels_{j}"] > 400:
            check_levels(facts[f"levels_{j}"], name, columns.role(name))


def _check_whole(cells: Cells, facts: dict[str, float], columns: Columns) -> None:
    """Refuse a table that has lost rows since it was looked at, such as those of a deleted file.

    With both weights and frequencies it is not known how many people there were to count.
    """
    if columns.shares or (columns.weight is not None and columns.frequency is not None):
        return
    before = facts["n" if columns.weight is None else "n_used"]
    if columns.frequency is not None:
        before = facts["people"]
    counted = cells.n + cells.n_unknown
    if counted < before:
        gone = f"of {before:,.0f} people {before - counted:,.0f} were gone when they were counted"
        raise changed(gone, "audit a copy that nobody writes to.")


def _edges(
    opened: Any, columns: Columns, facts: dict[str, float], edges: Edges | int | None
) -> Edges:
    if isinstance(edges, Edges):
        if (edges.target is None) != (columns.target is None):
            what = "no target" if edges.target is None else "a target"
            raise InputError("edges", f"fit the target: they are of a grid with {what}")
        return edges
    s, y = opened.sample(columns, facts)
    if not len(s):
        raise changed("no row is left")
    target = None if y is None else np.array(y, dtype=np.float64)
    # Squares that overflow are refused with the sums.
    with np.errstate(over="ignore", invalid="ignore"):
        found = Edges.from_values(np.array(s, dtype=np.float64), target, edges)
    spans = [
        (facts[f"least_{argument}"], facts[f"largest_{argument}"])
        for argument in ("y_pred", "y_true")
        if argument in columns.numbers
    ]
    if found.slope:
        spans[0] = opened.ends(columns, found, facts)
    if not all(math.isfinite(end) for span in spans for end in span):
        raise changed("an extreme is not finite")
    return found.spanning(*spans)
