"""Fairness over time, of a table wherever it is or of cells that were counted before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from .._core.arrays import Rows
from .._core.files import list_files
from .._core.validation import InputError, check_column, is_one_of
from ..auditing.audits import counted_by
from ..auditing.monitoring import Monitor, check_watch, judge
from ..auditing.tolerance import Tolerance
from ..data.criteria import get_criterion
from ..data.labels import doubtful_labels, sorted_labels
from ..data.sample import Sample
from ..data.weights import LEAST, check_cluster
from ..measures.cell_files import is_cells
from ..measures.cells import Cells, read_parts, without_target
from ..measures.edges import Edges
from ..measures.measures import VIOLATED
from .audit_table import cells_of, columns_of
from .engines import known, open_table
from .plan import Engine, TooManyLevels, column_kind

# ------------------------------------------------------------------------------------------------
# Names of periods, which sort as time does.


# The parts of a date that say which period it is in.
PERIODS = {
    "day": ("year", "month", "day"), "week": ("year", "month", "day"), "month": ("year", "month"),
    "quarter": ("year", "month"), "year": ("year",),
}  # fmt: skip
_DATE = re.compile(r"(?<!\d)(\d{4})-(\d{2})(?:-(\d{2}))?(?!\d)")
_NAMED = 12
_MISSING = "missing"
# How dates are written as text, and what of them is looked at to find out.
_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%Y%m%d", "%d/%m/%Y", "%m/%d/%Y")
_SIZE = {form: len(f"{date(2000, 1, 1):{form}}") for form in _FORMATS}
_LOOKED_AT = 1000


def label_of(day: date, period: str) -> str:
    """Text that sorts as time does: 2024, 2024-Q1, 2024-03, 2024-W05, 2024-03-07."""
    if period == "day":
        return day.isoformat()
    if period == "week":
        week = day.isocalendar()
        return f"{week.year}-W{week.week:02d}"
    if period == "quarter":
        return f"{day.year}-Q{(day.month + 2) // 3}"
    return f"{day.year}-{day.month:02d}" if period == "month" else str(day.year)


def absent(names: Sequence[str], period: str | None) -> list[str]:
    """A sentence on periods between the first and the last that have no row."""
    if period is None:
        return []
    first, last = _first_day(names[0], period), _first_day(names[-1], period)
    # No month is shorter than 28 days, so that none is stepped over.
    days = range(0, (last - first).days, {"day": 1, "week": 7}.get(period, 28))
    gone = sorted({label_of(first + timedelta(k), period) for k in days} - set(names))
    more = f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
    return [f"No rows in {', '.join(gone[:_NAMED])}{more}: left out."] if gone else []


def _first_day(name: str, period: str) -> date:
    if period == "week":
        return date.fromisocalendar(int(name[:4]), int(name[6:]), 1)
    if period == "quarter":
        return date(int(name[:4]), 3 * int(name[6:]) - 2, 1)
    return date.fromisoformat(name + "-01-01"[len(name) - 4 :])


def time_keys(rows: Any, time: str, period: str | None) -> dict[str, nw.Expr]:
    """Columns of text that tell the period of a row: parts of its date, or the value itself."""
    dtype, column = rows.collect_schema()[time], nw.col(time)
    if period is None:
        if isinstance(dtype, nw.Enum):
            named = [*name_periods([(str(v),) for v in dtype.categories], None).values()]
            if named != sorted(named):
                raise InputError("time", "be categories whose names sort as they do", named)
        keys = {time: column}
    elif dtype in (nw.Date, nw.Datetime) or column_kind(dtype) == "text":
        if column_kind(dtype) == "text":
            form = _date_format(rows, time)
            column = column.cast(nw.String).str.slice(0, _SIZE[form]).str.to_datetime(format=form)
        keys = {part: getattr(column.dt, part)() for part in PERIODS[period]}
    else:
        raise InputError(
            "time", f"hold dates, got values of type {dtype}",
            hint="pass period=None to take the values as they are.",
        )  # fmt: skip
    return {
        f"evenhand: {part}": nw.when(~key.is_null())
        .then(key.cast(nw.String))
        .otherwise(nw.lit(_MISSING))
        for part, key in keys.items()
    }


def _date_format(rows: Any, time: str) -> str:
    """The one way of writing dates that the first texts are all written in."""
    few = rows.select(time).filter(~nw.col(time).is_null()).head(_LOOKED_AT)
    few = few if isinstance(few, nw.DataFrame) else nw.from_native(Engine(few).run(few))
    texts = few[time].cast(nw.String).to_list()  # objects may be of several types

    def reads(form: str) -> bool:
        try:
            return all(datetime.strptime(text[: _SIZE[form]], form) for text in texts)
        except ValueError:
            return False

    forms = [form for form in _FORMATS if reads(form)]
    if len(forms) == 1 or (forms and not texts):
        return forms[0]
    unclear = "text such as 03/07/2024, of which month and day cannot be distinguished"
    raise _no_dates(unclear if forms else "text that is none")


def _no_dates(what: str) -> InputError:
    return InputError(
        "time", "hold dates", what,
        "write them as 2024-03-07, or pass period=None to take the values as they are.",
    )  # fmt: skip


def name_periods(keys: Iterable[tuple[str, ...]], period: str | None) -> dict[Any, str]:
    """The name of the period of each key of :func:`time_keys`, which sorts as time does."""
    distinct = list(dict.fromkeys(keys))
    if period is not None:
        parts = ((int(float(v)) for v in (*key, "1", "1")[:3]) for key in distinct)
        days = (date(year, month, day) for year, month, day in parts)
        return {key: label_of(day, period) for key, day in zip(distinct, days, strict=True)}
    values: list[Any] = [key[0] for key in distinct]
    try:
        numbers = [float(text) for text in values]
        values = [int(value) if value.is_integer() else value for value in numbers]
    except ValueError:
        pass  # texts, which sort as such
    order = sorted(set(values))
    names = [str(value) for value in order]
    if sorted(names) != names:  # 9 comes after 10 as text
        width = len(str(len(order)))
        names = [f"{k + 1:0{width}d}: {name}" for k, name in enumerate(names)]
    named = dict(zip(order, names, strict=True))
    return {key: named[value] for key, value in zip(distinct, values, strict=True)}


# ------------------------------------------------------------------------------------------------
# Cells that were counted before, in memory or in files.


class CellSeries(Mapping[str, Cells]):
    """Cells by period, in the order of time; files are read when they are asked for.

    Parameters
    ----------
    parts : dict of period → list of Cells or of paths
        Those of one period are added up.
    flat : bool
        Leave the target out.
    """

    def __init__(self, parts: dict[str, list[Any]], flat: bool = False) -> None:
        self.parts, self.flat = parts, flat
        if not parts:
            raise InputError("table", "hold at least one period, got none")

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, name: str) -> Cells:
        parts = self.parts[name]
        if not all(isinstance(part, Cells) for part in parts):
            parts = read_parts(parts)
        cells = Cells.merge(parts)
        return without_target(cells) if self.flat else cells

    def total(self) -> Cells:
        """All periods; the first that is of another grid or attribute is named."""
        total, first = None, next(iter(self))
        for number, (name, part) in enumerate(self.items(), 1):
            where = f"those of {name!r} (number {number} of {len(self)})"
            total = total or replace(part, n_unknown=0).take(slice(0))
            if part.edges != total.edges:
                raise InputError(
                    "table", f"hold cells of the same edges: {where} have other ones than those "
                    f"of {first!r}",
                    hint="count them again with edges=first.edges, on the command line with "
                    "--edges; cells of other edges cannot be brought onto these.",
                )  # fmt: skip
            if part.names != total.names:
                raise InputError(
                    "table", f"hold cells of one attribute: {where} are of "
                    f"{part.sensitive_name!r}, and those of {first!r} of "
                    f"{total.sensitive_name!r}",
                )  # fmt: skip
            total = total + part
        assert total is not None
        return total

    def gathered(self, period: str) -> CellSeries:
        """Cells of days, by the dates in their names, for longer periods."""
        needs_day = period in ("day", "week")
        parts: dict[str, list[Any]] = {}
        for name, own in self.parts.items():
            match = _DATE.search(name)
            if match is None or (needs_day and match[3] is None):
                form = "2024-03-07" if needs_day else "2024-03"
                raise InputError(
                    "period", f"be left out for cells whose names are no dates such as {form}, "
                    f"got {period!r} with {name!r}",
                )  # fmt: skip
            try:
                day = date(int(match[1]), int(match[2]), int(match[3] or 1))
            except ValueError:
                raise InputError("period", "names with dates", repr(name), verb="needs") from None
            parts.setdefault(label_of(day, period), []).extend(own)
        return CellSeries({name: parts[name] for name in sorted(parts)}, self.flat)


def are_cell_files(table: Any) -> bool:
    """Whether a path, a pattern or a list of paths is of files of cells."""
    paths = table if isinstance(table, list | tuple) else [table]
    return bool(paths) and all(isinstance(v, str | PathLike) and is_cells(v) for v in paths)


def read_series(files: Any, labels: Sequence[str] | None = None) -> CellSeries:
    """Cells of each period from files; those of the same period are added up.

    Parameters
    ----------
    files : path, pattern, or list of paths
        Names that differ in numbers alone are put in the order of these; others stay as they are.
    labels : sequence of str, optional
        The period of each file, in the order of time, in place of the names of the files.
    """
    paths = [Path(v) for v in list_files(files if isinstance(files, list | tuple) else [files])]
    if labels is None:
        if len({re.sub(r"\d+", "0", path.stem) for path in paths}) == 1:
            paths.sort(key=lambda path: [int(v) for v in re.findall(r"\d+", path.stem)])
        labels = [path.stem for path in paths]
    elif len(labels) != len(paths):
        raise ValueError(
            f"There must be a period for each of {len(paths)} files of cells, got {len(labels)}."
        )
    parts: dict[str, list[Any]] = {}
    for label, path in zip(labels, paths, strict=True):
        parts.setdefault(label, []).append(path)
    return CellSeries(parts)


def _counted_before(table: Any, flat: bool) -> CellSeries | None:
    """Cells by period, from memory or files; None for a table of rows."""
    if are_cell_files(table):
        table = read_series(table)
    if isinstance(table, CellSeries):
        return CellSeries(table.parts, flat)
    if not isinstance(table, Mapping):
        return None
    others = [k for k, v in table.items() if not (isinstance(v, Cells) or are_cell_files(v))]
    if table and len(others) == len(table):
        return None
    for name in others:
        got = f"{type(table[name]).__name__} for {name!r}"
        raise InputError("table", "hold Cells for every period", got)
    return CellSeries({str(name): [part] for name, part in table.items()}, flat)


# ------------------------------------------------------------------------------------------------
# Tables of rows: one scan for all periods, with the parts of a date counted as attributes beside
# the groups.

Samples = dict[str, tuple[Sample, Rows]]


def count_periods(
    table: Any, period: str | None, *, time: str, cluster: str | None,
    **names: Any,
) -> tuple[CellSeries, Samples | None]:  # fmt: skip
    """Cells of each period of a table, in the order of time; with clusters the rows too.

    Parameters
    ----------
    table
        As in :func:`evenhand.audit_table`.
    period : str or None
        One of :data:`PERIODS`; None takes the values of `time`, up to 200 of them, as they are.
    time, cluster : str
    **names : str
        y_true, y_pred, sensitive_features, sample_weight, frequency, missing and assume.
    """
    if isinstance(table, Mapping):
        raise InputError(
            "table", "be a frame with a column of dates, a path, an address, a relation or a "
            "mapping of period to Cells, got a mapping of other things",
            hint="columns in a dict become a frame with pandas.DataFrame(columns).",
        )  # fmt: skip
    needed = {"time": time, **names}
    for argument in ("time", "y_pred", "sensitive_features"):
        if needed[argument] is None:
            raise InputError(argument, "name a column of the table, got None")
    names["missing"] = names["missing"] or ()
    wanted = names["sensitive_features"]
    if isinstance(wanted, Mapping) and cluster is not None:
        raise InputError("cluster", "be left out for probabilities, which are counted")
    more = [name for name in (time, cluster) if name is not None]
    listed = [wanted] if isinstance(wanted, str) else wanted
    if isinstance(listed, list | tuple | Mapping):
        more = [name for name in more if name not in listed]
    columns = columns_of(**names, keys=more)
    opened = open_table(table, columns, time=time, cluster=cluster)
    rows = opened.rows.select(*columns.names)
    if cluster is not None and isinstance(rows, nw.LazyFrame):
        rows = nw.from_native(Engine(rows).run(rows), eager_only=True)
    keys = time_keys(rows, time, period)
    try:
        rows = rows.with_columns(**keys)
        if isinstance(rows, nw.LazyFrame):
            cells = cells_of(rows.to_native(), **names, keys=list(keys))
            return _split(cells, len(keys), period), None
    except TooManyLevels as error:
        if period is not None or error.where != f"(column {next(iter(keys))!r})":
            raise
        raise InputError(
            "time", "have at most 200 values where no period is named",
            hint="name a period, such as month, if they are dates.",
        ) from error  # fmt: skip
    except Exception as error:  # of the library that parses text
        if column_kind(rows.collect_schema()[time]) != "text" or period is None:
            raise
        raise ValueError(f"{_no_dates('text that is none')} The engine says: {error}") from error
    return _count_held(rows, list(keys), period, cluster, names)


def _count_held(
    rows: nw.DataFrame[Any], keys: list[str], period: str | None, cluster: str | None,
    names: dict[str, Any],
) -> tuple[CellSeries, Samples | None]:  # fmt: skip
    """The same of rows in memory, period by period."""
    times = list(zip(*(rows[key].to_list() for key in keys), strict=True))
    _refuse_gaps(sum(_MISSING in time for time in times))
    named = name_periods(times, period)
    label = np.array([named[time] for time in times])
    s, y = (
        None if names[k] is None else check_column(rows[names[k]].to_native(), k)
        for k in ("y_pred", "y_true")
    )
    assert s is not None
    edges = Edges.from_values(s, y)
    units = None if cluster is None else check_cluster(rows[cluster].to_native(), len(rows))
    if cluster is not None and units is None:
        units = np.arange(len(rows))
    series, samples = {}, {}
    for name in np.unique(label).tolist():
        own = np.flatnonzero(label == name)
        series[name] = [cells_of(rows[own].to_native(), **names, edges=edges)]
        if units is not None and series[name][0].n:
            samples[name] = _clustered(rows[own], units[own], names)
    known = {name: sample for name, sample in samples.items() if sample is not None}
    return CellSeries(series), None if units is None else known


def _clustered(
    rows: nw.DataFrame[Any], units: Rows, names: dict[str, Any]
) -> tuple[Sample, Rows] | None:
    """Rows of one period whose group is known, and their clusters; None where these are few."""
    groups = names["sensitive_features"]
    groups = [groups] if isinstance(groups, str) else groups
    others = ("y_true", "y_pred", "sample_weight", "frequency")
    columns = {argument: names[argument] for argument in others if names[argument] is not None}
    used = np.ones(len(rows), dtype=bool)
    for argument in ("sample_weight", "frequency"):
        if argument in columns:
            used &= rows[columns[argument]].to_numpy() > 0
    own = np.flatnonzero(used)
    if len(np.unique(units[own])) < LEAST:
        return None
    part = {argument: rows[name][own].to_native() for argument, name in columns.items()}
    labels = {name: known(rows[name][own].to_native(), names["missing"]) for name in groups}
    sample = Sample.read(
        **part, cluster=units[own], groups_optional=True, unit=units[own], labels=labels
    )
    sample = sample.regroup(sample.others["labels"], require_two=False, warn=False).known()
    return sample, sample.others["unit"]


def _refuse_gaps(count: int) -> None:
    if count:
        raise InputError(
            "time", f"be given in every row: {count:,} are missing",
            hint="drop these rows, or fill them in.",
        )  # fmt: skip


def _split(cells: Cells, n_keys: int, period: str | None) -> CellSeries:
    """Cells crossed with the parts of a date, by period."""
    lost = [k for k, label in enumerate(cells.labels) if _MISSING in label[:n_keys]]
    _refuse_gaps(int(cells.count[np.isin(cells.group, lost)].sum()))
    keys = [label[:n_keys] for label in cells.labels]
    name_of = name_periods(keys, period)
    rest = [label[n_keys:] if len(label) > n_keys + 1 else label[n_keys] for label in cells.labels]
    labels = tuple(sorted_labels(list(dict.fromkeys(rest))))
    place = {label: k for k, label in enumerate(labels)}
    group = np.array([place[label] for label in rest], dtype=np.int32)[cells.group]
    distinct = {key: k for k, key in enumerate(dict.fromkeys(keys))}
    number = np.array([distinct[key] for key in keys])[cells.group]
    order = np.lexsort((group, cells.target_bin, cells.score_bin, number))
    ends = np.cumsum(np.bincount(number, minlength=len(distinct)))
    parts: dict[str, list[Any]] = {}
    # People of unknown group have no period in the counts; they are told of all together.
    unknown = cells.n_unknown
    for key, rows in zip(distinct, np.split(order, ends[:-1]), strict=True):
        part = replace(
            cells.take(rows), labels=labels, names=cells.names[n_keys:], group=group[rows],
            n_unknown=unknown,
        )  # fmt: skip
        unknown = 0
        parts.setdefault(name_of[key], []).append(part)
    return CellSeries(dict(sorted(parts.items())))


def monitor(
    table: Any,
    *,
    period: str | None = "auto",
    time: str | None = None,
    y_true: str | None = None,
    y_pred: str | None = None,
    sensitive_features: str | Sequence[str] | Mapping[str, str] | None = None,
    sample_weight: str | None = None,
    frequency: str | None = None,
    cluster: str | None = None,
    criteria: Sequence[str] = ("independence",),
    limits: Mapping[str, float] | Tolerance | None = None,
    level: float = 0.05,
    estimator: Any = "auto",
    missing: Sequence[str] = (),
    assume: str | None = None,
) -> Monitor:
    """Measure a score period by period, and say whether its fairness has moved.

    Parameters
    ----------
    table : frame, path, relation or expression; or cells by period
        A table with a column of dates: in memory, or one that :func:`audit_table` takes, which is
        counted where it is, in one scan for all periods. Or counts made before, all of the same
        edges: a mapping of period → Cells, or → path of a file of cells, in the order of time; a
        list of such files, or a pattern such as ``"days/*.cells"``. Names of files are the periods;
        files of the same period are added up. Names that differ in numbers alone are put in the
        order of these, others are taken in the order given.
    period : {"auto", "day", "week", "month", "quarter", "year"} or None
        What dates are gathered into; None takes the values of `time` as they are, in their order.
        "auto" is months for a table. Cells are taken as they are, unless a period is named and
        their names are dates.
    time, y_true, y_pred, sensitive_features, sample_weight, frequency : str
        Names of columns of a table; several sensitive ones are crossed.
    cluster : str, optional
        Column that says which rows belong together: the same person or place, in one period or in
        several. Errors then count clusters. Rows are read into memory for it; cells have none.
    criteria : sequence of str
        What is watched.
    limits : mapping of criterion → float, or Tolerance, optional
        Values that should not be exceeded, and "drift", the largest rise that is tolerated of the
        last 1, 2, 4, … periods over those before them; smaller changes are then no reason to stop.
        The chance of a false alarm is shared equally between limits and changes.
    level : float
        Chance of one or more false alarms, however long the series and however often one looks.
    estimator : {"auto", "logistic", "lspc"}
        That of the audit. "logistic" is quicker, and sees shifts and spreads alone.
    missing, assume
        As in :func:`audit_table`, which says how to give probabilities in place of groups.

    Returns
    -------
    Monitor

    Notes
    -----
    All looks are replayed: alarms are those that somebody who looked at the end of each period
    would have had, and what was raised once stays. After a change the series begins anew.

    All groups together, each attribute, and each group against the rest are watched, and share
    `level`. No alarm does not say that nothing changed: `detectable` has the smallest rise that
    would have shown.

    Without `cluster` rows are taken for independent people. Where the same person, or place, has
    several rows, alarms then come too often.

    See Also
    --------
    evenhand.Monitor
    evenhand.Cells
    evenhand.audit_table

    References
    ----------
    Zou, G. Y. and Donner, A. (2008). Construction of Confidence Limits about Effect Measures: A
    General Approach. Statistics in Medicine 27.

    Examples
    --------
    >>> import numpy as np, pandas as pd, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 360, 9000), "D")
    >>> group = rng.integers(0, 2, 9000)
    >>> shift = np.where(day >= "2024-08-01", 1.0, 0.2)
    >>> table = pd.DataFrame(
    ...     {"day": day, "group": group, "score": rng.normal(size=9000) + shift * group})
    >>> found = eh.monitor(table, time="day", y_pred="score", sensitive_features="group")
    >>> found.state, found.alarms[0].since
    ('changed', '2024-08')
    """
    check_watch(criteria, level, estimator)
    if period is not None and not is_one_of(period, ("auto", *PERIODS)):
        raise InputError("period", f"be None or one of {', '.join(PERIODS)}, got {period!r}")
    columns: dict[str, Any] = {
        "time": time, "y_true": y_true, "y_pred": y_pred, "sensitive_features": sensitive_features,
        "sample_weight": sample_weight, "frequency": frequency, "cluster": cluster,
        "missing": missing or None, "assume": assume,
    }  # fmt: skip
    # A grid of the score alone is smaller by far, and says as much about independence.
    flat = not any("y" in get_criterion(name).needs for name in criteria)
    samples, notes = None, []
    series = _counted_before(table, flat)
    if series is None:
        unit = "month" if period == "auto" else period
        named = {**columns, "y_true": None} if flat else columns
        series, samples = count_periods(table, unit, **named)
        notes = absent(list(series), unit)
    else:
        for argument, value in columns.items():
            if value is not None:
                raise InputError(argument, "be left out for cells, which hold it")
        if period not in ("auto", None):
            series = series.gathered(str(period))
            notes = absent(list(series), period)
    total = series.total()
    counted = counted_by({"sample_weight": sample_weight, "frequency": frequency})
    told = [*_remarks(total, counted, estimator), *notes]
    result = judge(
        series, total, criteria=criteria, limits=limits, level=level, estimator=estimator,
        notes=told, samples=samples,
    )  # fmt: skip
    if result.judged == VIOLATED or not counted:
        return result
    plain = monitor(
        table, period=period, criteria=criteria, limits=limits, level=level, estimator=estimator,
        **{**columns, "sample_weight": None, "frequency": None},
    )  # fmt: skip
    if plain.state == result.state:
        return result
    first = f"Without weights and frequencies: {plain.state}."
    return replace(result, notes=(first, *result.notes))


def _remarks(total: Cells, counted: Sequence[str], estimator: Any) -> Iterator[str]:
    """What was done to the people, or is strange about them, in sentences."""
    if counted or total.weighted:
        yield f"Rows count by {' and '.join(counted) or 'the weights of the cells'}."
    if total.n_unknown:
        share = total.n_unknown / (total.n + total.n_unknown)
        yield (
            f"{total.n_unknown:,} rows ({100 * share:.1f}%) have no known group and are left out."
        )
    if total.copied:
        yield "People who share a score and a target are of one group, as copies of a row are."
    for levels in zip(*total.labels, strict=True) if len(total.names) > 1 else [total.labels]:
        yield from doubtful_labels(list(dict.fromkeys(map(str, levels))))
    if estimator != "auto":
        yield f"Estimated by {estimator}, which does not see every pattern."
