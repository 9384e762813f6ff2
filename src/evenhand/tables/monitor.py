"""Fairness over time, of a table wherever it is or of cells that were counted before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from os import PathLike
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Rows
from .._core.files import list_files
from .._core.validation import InputError, check_column, frame_columns, quote, read_native
from ..auditing.monitoring import Monitor, check_watch, judge
from ..data.labels import sorted_labels
from ..data.sample import Sample
from ..data.weights import LEAST, check_cluster
from ..measures.cell_files import is_cells
from ..measures.cells import Cells, read_parts
from ..measures.edges import Edges
from .audit_table import cells_of, columns_of
from .engines import open_table
from .plan import Engine, EngineError, TooManyLevels

# ------------------------------------------------------------------------------------------------
# Names of periods, which sort as time does.


# The parts of a date that say which period it is in.
PARTS = {
    "day": ("year", "month", "day"), "week": ("year", "month", "day"), "month": ("year", "month"),
    "quarter": ("year", "month"), "year": ("year",),
}  # fmt: skip
PERIODS = tuple(PARTS)
_DATE = re.compile(r"(?<!\d)(\d{4})-(\d{2})(?:-(\d{2}))?(?!\d)")
_NAMED = 12
_MISSING = "missing"


def check_period(period: str | None) -> None:
    """One of `PERIODS`, or None."""
    if period is not None and period not in PERIODS:
        raise InputError("period", f"be None or one of {', '.join(PERIODS)}, got {period!r}")


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
    step = {"day": 1, "week": 7}.get(period, 28)
    days = range(0, (last - first).days, step)
    all_names = dict.fromkeys(label_of(first + timedelta(k), period) for k in days)
    there = set(names)
    gone = [name for name in all_names if name not in there]
    if not gone:
        return []
    more = f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
    return [f"No rows in {', '.join(gone[:_NAMED])}{more}: left out."]


def _first_day(name: str, period: str) -> date:
    if period == "week":
        return date.fromisocalendar(int(name[:4]), int(name[6:]), 1)
    if period == "quarter":
        return date(int(name[:4]), 3 * int(name[6:]) - 2, 1)
    return date.fromisoformat(name + "-01-01"[len(name) - 4 :])


def in_order(values: Iterable[Any]) -> dict[Any, str]:
    """Values of a column of periods, in their order, each with a name that sorts as it does."""
    order = sorted(set(values))
    text = [str(value) for value in order]
    if sorted(text) != text:  # 9 comes after 10 as text
        width = len(str(len(order)))
        text = [f"{k + 1:0{width}d}: {value}" for k, value in enumerate(text)]
    return dict(zip(order, text, strict=True))


def parts_of(time: str, dtype: Any, period: str) -> dict[str, nw.Expr]:
    """Year, month and day of a column of dates, as far as the period needs them."""
    if dtype not in (nw.Date, nw.Datetime, nw.String):
        raise InputError(
            "time", f"hold dates, got values of type {dtype}",
            hint="pass period=None to take the values as they are.",
        )  # fmt: skip
    column = nw.col(time)
    if dtype == nw.String:
        column = column.str.slice(0, 10).str.to_datetime(format="%Y-%m-%d")
    return {part: getattr(column.dt, part)() for part in PARTS[period]}


def no_dates() -> ValueError:
    return ValueError(
        "`time` must hold dates, got text that is none. Hint: write them as 2024-03-07, or pass "
        "period=None to take the values as they are."
    )


def missing_times(count: int) -> ValueError:
    return ValueError(
        f"`time` must be given in every row: {count:,} are missing. Hint: drop these rows, or fill "
        "them in."
    )


def period_labels(column: Any, period: str | None) -> NDArray[np.str_]:
    """The name of the period of each row."""
    missing = int(column.is_null().sum())
    if missing:
        raise missing_times(missing)
    if period is None:
        values = column.to_list()
        named = in_order(values)
        return np.array([named[value] for value in values])
    parts = parts_of("time", column.dtype, period)
    try:
        found = column.alias("time").to_frame().select(**parts)
    except Exception as error:  # of the library that parses text
        raise no_dates() from error
    year, month, day = (
        found[part].to_numpy().astype(np.int64) if part in parts else 1
        for part in ("year", "month", "day")
    )
    days, number = np.unique((year * 12 + month - 1) * 31 + day - 1, return_inverse=True)
    names = [
        label_of(date(int(k // 372), int(k // 31 % 12) + 1, int(k % 31) + 1), period) for k in days
    ]
    return np.array(names)[number]


# ------------------------------------------------------------------------------------------------
# Series of cells: of rows in memory, of files of cells, and of a table where it is, in one scan for
# all periods. There the parts of a date are counted as attributes beside the groups.

Samples = dict[str, tuple[Sample, Rows]]


def rows_by_period(
    frame: nw.DataFrame[Any], period: str | None, **names: Any
) -> tuple[dict[str, Cells], Samples | None]:
    """Cells of each period of a table in memory, in the order of time; with clusters the rows too.

    `names` are those of its columns by argument: time, y_true, y_pred, sensitive_features,
    sample_weight, frequency and cluster.
    """
    columns = dict(frame_columns(frame))

    def take(name: Any, argument: str) -> Any:
        if name is None and argument not in ("time", "y_pred", "sensitive_features"):
            return None
        if name not in columns:
            there = "" if name is None else f"; there are {', '.join(map(quote, columns))}"
            raise InputError(argument, f"name a column of the table, got {name!r}{there}")
        return columns[name]

    attributes = names.pop("sensitive_features")
    if attributes is None or isinstance(attributes, str):
        attributes = [attributes]
    held = {argument: take(name, argument) for argument, name in names.items()}
    groups = {name: take(name, "sensitive_features") for name in attributes}
    labels, cluster = period_labels(held.pop("time"), period), held.pop("cluster")
    numbers = {
        name: None if column is None else check_column(column.to_native(), name)
        for name, column in held.items()
    }
    assert numbers["y_pred"] is not None
    edges = Edges.from_values(numbers["y_pred"], numbers["y_true"])
    distinct, number = np.unique(labels, return_inverse=True)
    order = np.argsort(number, kind="stable")
    ends = np.cumsum(np.bincount(number, minlength=len(distinct)))
    pieces = dict(zip(map(str, distinct), np.split(order, ends[:-1]), strict=True))

    def some(rows: Rows) -> dict[str, Any]:
        return {
            **{name: None if v is None else v[rows] for name, v in numbers.items()},
            "sensitive_features": {name: v[rows].to_native() for name, v in groups.items()},
        }

    series = {name: Cells.from_rows(**some(rows), edges=edges) for name, rows in pieces.items()}
    if cluster is None:
        return series, None
    units = check_cluster(cluster.to_native(), len(labels))
    units = np.arange(len(labels)) if units is None else units
    samples = {}
    for name, rows in pieces.items():
        for counted in (numbers["frequency"], numbers["sample_weight"]):
            rows = rows if counted is None else rows[counted[rows] > 0]
        if series[name].n and len(np.unique(units[rows])) >= LEAST:
            samples[name] = _clustered(some(rows), units[rows])
    return series, samples


def _clustered(columns: dict[str, Any], units: Rows) -> tuple[Sample, Rows]:
    """Rows of one period whose group is known, and their clusters."""
    labels = columns.pop("sensitive_features")
    sample = Sample.read(**columns, cluster=units, groups_optional=True, unit=units, **labels)
    again = {name: sample.others[name] for name in labels}
    sample = sample.regroup(again, require_two=False, warn=False).known()
    return sample, sample.others["unit"]


def are_cell_files(table: Any) -> bool:
    """Whether a path, a pattern or a list of paths is of files of cells."""
    if isinstance(table, list | tuple):
        return bool(table) and all(isinstance(v, str | PathLike) and is_cells(v) for v in table)
    return isinstance(table, str | PathLike) and is_cells(table)


def read_series(files: Any, labels: Sequence[str] | None = None) -> dict[str, Cells]:
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
    parts: dict[str, list[Path]] = {}
    for label, path in zip(labels, paths, strict=True):
        parts.setdefault(label, []).append(path)
    return {label: Cells.merge(read_parts(named)) for label, named in parts.items()}


def checked_series(table: Mapping[Any, Any]) -> dict[str, Cells]:
    """Cells by period, all of one grid and of one attribute; the first that is not is named."""
    out: dict[str, Cells] = {}
    first: tuple[str, Cells] | None = None
    for number, (name, part) in enumerate(table.items(), 1):
        if not isinstance(part, Cells):
            raise InputError(
                "table", f"hold Cells for every period, got {type(part).__name__} for {name!r}"
            )
        first = first or (str(name), part)
        where = f"those of {str(name)!r} (number {number} of {len(table)})"
        if part.edges != first[1].edges:
            raise InputError(
                "table", f"hold cells of the same edges: {where} have other ones than those of "
                f"{first[0]!r}",
                hint="count them again with edges=first.edges, on the command line with --edges; "
                "cells of other edges cannot be brought onto these.",
            )  # fmt: skip
        if part.names != first[1].names:
            raise InputError(
                "table", f"hold cells of one attribute: {where} are of {part.sensitive_name!r}, "
                f"and those of {first[0]!r} of {first[1].sensitive_name!r}",
            )  # fmt: skip
        out[str(name)] = part
    if not out:
        raise InputError("table", "hold at least one period, got none")
    return out


def gathered(series: Mapping[str, Cells], period: str) -> dict[str, Cells]:
    """Cells of days, by the dates in their names, added up to longer periods."""
    check_period(period)
    needs_day = period in ("day", "week")
    parts: dict[str, list[Cells]] = {}
    for name, cells in series.items():
        match = _DATE.search(name)
        if match is None or (needs_day and match[3] is None):
            form = "2024-03-07" if needs_day else "2024-03"
            raise InputError(
                "period", f"be left out for cells whose names are no dates such as {form}, got "
                f"{period!r} with {name!r}",
            )  # fmt: skip
        try:
            day = date(int(match[1]), int(match[2]), int(match[3] or 1))
        except ValueError:
            raise InputError("period", "names with dates", repr(name), verb="needs") from None
        parts.setdefault(label_of(day, period), []).append(cells)
    return {name: Cells.merge(parts[name]) for name in sorted(parts)}


def count_periods(
    table: Any, period: str | None, time: str, engine: str | None, **names: Any
) -> dict[str, Cells]:
    """Cells of each period of a table, in the order of time, counted where it is.

    Parameters
    ----------
    table, engine
        As in :func:`evenhand.audit_table`.
    period : str or None
        One of :data:`PERIODS`; None takes the values of `time`, up to 200 of them, as they are.
    time : str
        Column of dates.
    **names : str
        y_true, y_pred, sensitive_features, sample_weight, frequency.
    """
    wanted = _listed(names["sensitive_features"])
    rows = _open_rows(table, engine, {"time": time}, wanted, names)
    dtype = rows.collect_schema()[time]
    keys = {time: nw.col(time)} if period is None else parts_of(time, dtype, period)
    made = {
        f"evenhand: {part}": key.cast(nw.String).fill_null(_MISSING) for part, key in keys.items()
    }
    names = {**names, "sensitive_features": [*made, *wanted]}
    try:
        cells = cells_of(rows.with_columns(**made).to_native(), **names)
    except TooManyLevels as error:
        if period is not None or error.where != f"(column {next(iter(made))!r})":
            raise
        raise InputError(
            "time", "have at most 200 values where no period is named",
            hint="name a period, such as month, if they are dates.",
        ) from error  # fmt: skip
    except EngineError as error:
        if dtype != nw.String or period is None:
            raise
        raise ValueError(f"{no_dates()} The engine says: {error}") from error
    return _split(cells, len(made), period)


def _listed(groups: Any) -> list[str]:
    return [groups] if isinstance(groups, str) else list(groups)


def _open_rows(
    table: Any, engine: str | None, more: dict[str, str], wanted: list[str], names: dict[str, Any]
) -> nw.LazyFrame[Any]:
    """Rows of a table that an engine holds, of the columns that are read."""
    columns = columns_of(
        names["y_true"], names["y_pred"], [*dict.fromkeys([*more.values(), *wanted])],
        names["sample_weight"], names["frequency"],
    )  # fmt: skip
    rows: nw.LazyFrame[Any] = open_table(table, columns, engine).rows
    there = list(rows.collect_schema())
    for argument, name in more.items():
        if name not in there:
            shown = ", ".join(map(repr, there[:30]))
            raise InputError(
                argument, f"name a column of the table, got {name!r}; there are {shown}"
            )
    return rows


def _split(cells: Cells, n_keys: int, period: str | None) -> dict[str, Cells]:
    """Cells crossed with the parts of a date, by period."""
    lost = [k for k, label in enumerate(cells.labels) if _MISSING in label[:n_keys]]
    if lost:
        raise missing_times(int(cells.count[np.isin(cells.group, lost)].sum()))
    keys = [label[:n_keys] for label in cells.labels]
    if period is None:
        values = _numbers([key[0] for key in keys])
        named = in_order(values)
        name_of = {key: named[value] for key, value in zip(keys, values, strict=True)}
    else:
        name_of = {key: label_of(_date(key), period) for key in keys}
    rest = [label[n_keys:] if len(label) > n_keys + 1 else label[n_keys] for label in cells.labels]
    labels = tuple(sorted_labels(list(dict.fromkeys(rest))))
    place = {label: k for k, label in enumerate(labels)}
    group = np.array([place[label] for label in rest], dtype=np.int32)[cells.group]
    distinct = {key: k for k, key in enumerate(dict.fromkeys(keys))}
    number = np.array([distinct[key] for key in keys])[cells.group]
    order = np.lexsort((group, cells.target_bin, cells.score_bin, number))
    ends = np.cumsum(np.bincount(number, minlength=len(distinct)))
    parts: dict[str, list[Cells]] = {}
    # People of unknown group have no period in the counts; they are told of all together.
    unknown = cells.n_unknown
    for key, rows in zip(distinct, np.split(order, ends[:-1]), strict=True):
        part = replace(
            cells.take(rows), labels=labels, names=cells.names[n_keys:], group=group[rows],
            n_unknown=unknown,
        )  # fmt: skip
        unknown = 0
        parts.setdefault(name_of[key], []).append(part)
    return {
        name: found[0] if len(found) == 1 else Cells.merge(found)
        for name, found in sorted(parts.items())
    }


def _numbers(texts: list[str]) -> list[Any]:
    """As numbers, which sort as such, where all of them are."""
    try:
        values = [float(text) for text in texts]
    except ValueError:
        return texts
    return [int(value) if value.is_integer() else value for value in values]


def _date(key: tuple[str, ...]) -> date:
    year, month, day = (int(float(v)) for v in (*key, "1", "1")[:3])
    return date(year, month, day)


def monitor(
    table: Any,
    *,
    period: str | None = "auto",
    time: str | None = None,
    y_true: str | None = None,
    y_pred: str | None = None,
    sensitive_features: str | Sequence[str] | None = None,
    sample_weight: str | None = None,
    frequency: str | None = None,
    cluster: str | None = None,
    criteria: Sequence[str] = ("independence",),
    limits: Mapping[str, float] | None = None,
    level: float = 0.05,
    estimator: Any = "auto",
    engine: str | None = None,
) -> Monitor:
    """Measure a score period by period, and say whether its fairness has moved.

    Parameters
    ----------
    table : frame, path, address, relation or expression; or cells by period
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
    limits : mapping of criterion → float, optional
        Values that should not be exceeded; the chance of a false alarm is then shared equally
        between limits and changes.
    level : float
        Chance of one or more false alarms, however long the series and however often one looks.
    estimator : {"auto", "logistic", "lspc"}
        That of the audit. "logistic" is quicker, and sees shifts and spreads alone.
    engine : str, optional
        As in :func:`audit_table`.

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
    columns = {
        "time": time, "y_true": y_true, "y_pred": y_pred, "sensitive_features": sensitive_features,
        "sample_weight": sample_weight, "frequency": frequency,
        "cluster": cluster,
    }  # fmt: skip
    notes: list[str] = []
    samples = None
    counted = _counted_before(table)
    if counted is not None:
        for argument, value in {**columns, "engine": engine}.items():
            if value is not None:
                raise InputError(argument, "be left out for cells, which hold it")
        series = checked_series(counted)
        if period not in ("auto", None):
            series = gathered(series, str(period))
            notes += absent(list(series), period)
    else:
        unit = "month" if period == "auto" else period
        check_period(unit)
        series, samples = _counted_now(table, unit, engine, columns)
        notes += absent(list(series), unit)
    return judge(
        series, criteria=criteria, limits=limits, level=level, estimator=estimator, notes=notes,
        samples=samples,
    )  # fmt: skip


def _counted_before(table: Any) -> dict[str, Any] | None:
    """Cells by period, from memory or files; None for a table of rows."""
    if are_cell_files(table):
        return dict(read_series(table))
    if isinstance(table, Mapping) and any(
        isinstance(part, Cells) or are_cell_files(part) for part in table.values()
    ):
        return {
            str(name): Cells.from_file(part) if are_cell_files(part) else part
            for name, part in table.items()
        }
    return None


def _counted_now(
    table: Any, period: str | None, engine: str | None, columns: dict[str, Any]
) -> tuple[dict[str, Cells], Samples | None]:
    if isinstance(table, Mapping):
        raise InputError(
            "table", "be a frame with a column of dates, a path, an address, a relation or a "
            "mapping of period to Cells, got a mapping of other things",
            hint="columns in a dict become a frame with pandas.DataFrame(columns).",
        )  # fmt: skip
    named = isinstance(table, str | PathLike | list | tuple)
    frame = None if named else read_native(table, "table")
    if isinstance(frame, nw.DataFrame) and engine in (None, "numpy"):
        return rows_by_period(frame, period, **columns)
    for argument in ("time", "y_pred", "sensitive_features"):
        if columns[argument] is None:
            raise InputError(argument, "name a column of the table, got None")
    names = dict(columns)
    cluster = names.pop("cluster")
    if cluster is None:
        return count_periods(table, period, engine=engine, **names), None
    more = {"time": columns["time"], "cluster": cluster}
    rows = _open_rows(table, engine, more, _listed(columns["sensitive_features"]), names)
    wanted = [*more.values(), *_listed(columns["sensitive_features"])]
    wanted += [names[k] for k in ("y_true", "y_pred", "sample_weight", "frequency") if names[k]]
    held = Engine(rows).run(rows.select(*dict.fromkeys(wanted)))
    return rows_by_period(nw.from_native(held, eager_only=True), period, **columns)
