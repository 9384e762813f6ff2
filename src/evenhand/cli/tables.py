"""The commands `cells` and `monitor`: tables that stay where they are, and files of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._core.files import TableError, list_files
from .._core.progress import waiting
from .._core.provenance import file_facts, stamp
from ..tables.readers import open_table, read_table
from . import options as group
from .options import option
from .terminal import LIMIT_MISSED, NOT_ENOUGH_DATA, command, deliver, leave, note, say

if TYPE_CHECKING:
    from ..measures.cells import Cells
    from ..measures.edges import Edges


@dataclass(frozen=True)
class CellSource:
    """What an audit without rows was made from.

    Attributes
    ----------
    files : list of str
        Paths, patterns or addresses.
    facts : dict
        For the report, by name.
    database : str or None
        Address of the one that `files` are tables of.
    """

    files: list[str]
    facts: dict[str, Any]
    database: str | None = None

    def provenance(self) -> dict[str, Any]:
        """For JSON: version, time and files, or a database and tables."""
        if self.database is not None:
            return {**stamp(), "database": self.database, "tables": self.files}
        return {**stamp(), "files": [file_facts(Path(file)) for file in self.files]}

    def source_facts(self) -> dict[str, Any]:
        """For the report."""
        if self.database is not None:
            return {"Table": ", ".join(self.files), "Database": self.database, **self.facts}
        return {"File": ", ".join(Path(file).name for file in self.files), **self.facts}


_ARGUMENTS = {
    "y_true": "target", "y_pred": "prediction", "sensitive_features": "sensitive",
    "sample_weight": "weight", "frequency": "frequency",
}  # fmt: skip
_NEEDS_ROWS = (
    "cluster", "band", "drop_missing", "separator", "exposure", "probability", "continuous",
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What an audit is asked of: rows of one file, tables that an engine counts, or cells.

    Attributes
    ----------
    files : list of str
    engine : str or None
    columns : Roles
        The options that name columns; cells have them already.
    needs_rows : dict of option → value
        That only rows allow, beside those of columns.
    """

    files: list[str]
    engine: str | None
    columns: group.Roles
    needs_rows: dict[str, Any]

    def named(self, role: str) -> Any:
        """The column or columns of a role, None where there is no such option."""
        return getattr(self.columns, role, None)

    @property
    def controls(self) -> list[str]:
        """Columns with legitimate factors."""
        return self.named("control") or []

    @cached_property
    def are_cells(self) -> bool:
        """Whether all files are cells; some among others are refused."""
        from ..measures.cells import is_cells

        found = [is_cells(file) for file in self.files]
        if any(found) and not all(found):
            raise TableError("Files of cells and tables of rows must not be mixed.")
        return all(found)

    @property
    def counted(self) -> bool:
        """Cells, or tables for an engine: asked for, several, a pattern, a folder, a database."""
        one = self.files[0]
        return (
            self.are_cells
            or self.engine is not None
            or len(self.files) > 1
            or one.startswith("duckdb:")
            or Path(one).is_dir()
            or (any(sign in one for sign in "*?[") and not Path(one).exists())
        )

    @property
    def table(self) -> str | list[str]:
        """As `audit_table` takes it."""
        return self.files[0] if len(self.files) == 1 else list(self.files)

    @cached_property
    def stored(self) -> tuple[Cells, CellSource]:
        return read_cells(self.files)

    def check(self) -> None:
        """Refuse options that do not go together."""
        if self.are_cells:
            given = {role: self.named(role) for role in (*_ARGUMENTS.values(), "time")}
            given["sensitive"] = given["sensitive"] or self.named("probability")
            for name, value in {**given, "engine": self.engine}.items():
                if value:
                    raise TableError(
                        f"--{name} must be left out for files of cells, which hold it."
                    )
            if self.controls:
                raise TableError(
                    "--control must be left out for files of cells, which hold no controls. Hint: "
                    "audit the table that they were counted from."
                )
        else:
            for name, other in {"sensitive": "probability", "prediction": ""}.items():
                if not self.named(name) and not self.named(other):
                    raise typer.BadParameter(f"Missing option '--{name}'.")
        needs_rows = {role: self.named(role) for role in _NEEDS_ROWS} | self.needs_rows
        for name, value in needs_rows.items() if self.counted else ():
            option = "--" + name.replace("_", "-")
            if value:
                raise TableError(
                    f"{option} needs rows, and these are counted where they are. Hint: leave out "
                    f"{option}, or audit one file without --engine."
                )

    def has_target(self) -> bool:
        """Whether there is a target; options are checked first."""
        self.check()
        return self.stored[0].has_target if self.are_cells else self.columns.target is not None

    def cells(self) -> tuple[Cells, CellSource]:
        """The counts."""
        if self.are_cells:
            return self.stored
        return count_table(self.files, self.engine, None, **self.names)

    @property
    def names(self) -> dict[str, Any]:
        """Columns by the arguments of `audit_table`."""
        return column_names(self.columns)


def column_names(columns: group.Roles) -> dict[str, Any]:
    """Columns by the arguments of `audit_table`."""
    return {argument: getattr(columns, role) for argument, role in _ARGUMENTS.items()}


def read_cells(files: Sequence[str]) -> tuple[Cells, CellSource]:
    """Files of cells, added up; what was left out of them is told."""
    from ..measures import cells as cell_files

    facts: dict[str, Any] = {}
    files = list_files(files)
    cells = cell_files.merge(cell_files.read_parts(files))
    for file in files:
        lost = cell_files.suppressed_in(file)
        if lost is not None:
            note(f"{file}: {lost.text}")
            facts[f"Left out of {Path(file).name}"] = lost.text
    return cells, CellSource(list(files), {"Grid": cells.edges.kind, **facts})


def count_table(
    files: Sequence[str], engine: str | None, edges: Edges | int | None, **columns: Any
) -> tuple[Cells, CellSource]:
    """Tables, counted by an engine."""
    from ..tables.audit_table import cells_of
    from ..tables.engines import ADDRESS, without_password

    table = files[0] if len(files) == 1 else list(files)
    cells = cells_of(table, **columns, edges=edges, engine=engine)
    database = None
    if engine is not None and engine.startswith(ADDRESS):
        database = without_password(engine.removeprefix(ADDRESS))
    facts = {"Grid": cells.edges.kind, "Target": columns["y_true"] or "none",
             "Prediction": columns["y_pred"]}  # fmt: skip
    return cells, CellSource(list(files), facts, database)


def with_controls(
    found: Any, asked: Asked, edges: Edges, measuring: group.Measuring, reference: str
) -> Any:
    """An audit with what controls leave of its differences."""
    if not asked.controls:
        return found
    from ..auditing.result import Audit
    from ..tables.audit_table import conditional_of

    if not isinstance(found, Audit):
        raise TableError("--control and --each must not both be given for tables that are counted.")
    how = {**_how(measuring), "reference": reference}
    names = {name: column for name, column in asked.names.items() if name != "y_true"}
    given = conditional_of(asked.table, asked.controls, edges, how, engine=asked.engine, **names)
    return replace(found, conditional=given)


def _how(measuring: group.Measuring) -> dict[str, Any]:
    return {
        "estimator": measuring.estimator, "confidence_level": measuring.confidence,
        "random_state": measuring.seed,
    }  # fmt: skip


def audit_cells(cells: Cells, each: bool, measuring: group.Measuring) -> Any:
    """An Audit, or an AuditSet with `each`."""
    from ..auditing.audits import audit

    with waiting("Measuring"):
        return audit(cells, **_how(measuring), per_attribute=each and len(cells.names) > 1)


@dataclass(frozen=True, kw_only=True)
class Grid(group.Counting):
    """Into what rows are counted."""

    out: Path = option("File to write, such as part.cells.", "-o", default=group.REQUIRED)
    edges: Path | None = option("File of cells whose grid to use, to be merged with it.")
    bins: int | None = option("Bins a side, in place of those that suit.")
    min_count: int | None = option(
        "Leave out cells with fewer people of a group than this, and say what that does."
    )


@command
def cells(
    files: Annotated[
        list[str],
        typer.Argument(help="Parquet or CSV files, a pattern in quotes, or duckdb:FILE/TABLE."),
    ],
    columns: group.CellColumns,
    writing: group.Writing,
    grid: Grid,
) -> None:
    """Count the rows of a table into cells, which can be audited and merged without the rows.

    For example: evenhand cells "monday/*.parquet" -y y -s s -a race --out monday.cells

    Then: evenhand cells "tuesday/*.parquet" -y y -s s -a race --edges monday.cells --out
    tuesday.cells, and evenhand audit monday.cells tuesday.cells
    """
    from ..measures import cells as cell_files
    from ..measures.cells import Cells

    out = grid.out
    if grid.edges is not None and grid.bins is not None:
        raise TableError("--edges and --bins must not both be given: edges have their bins.")
    if not cell_files.is_cells(out):
        raise TableError(f"--out must end in .cells, got {str(out)!r}.")
    writing.check_free(out)
    edges = grid.bins if grid.edges is None else Cells.from_file(grid.edges).edges
    found, _ = count_table(files, grid.engine, edges, **column_names(columns))
    whole, lost = found, None
    if grid.min_count is not None:
        found, lost = cell_files.suppress(found, grid.min_count)
    cell_files.write_cells(found, out, writing.force, lost)
    unknown = f", {found.n_unknown:,} more of unknown group" if found.n_unknown else ""
    say(
        f"{found.n:,} people{unknown} in {found.n_cells:,} cells of {found.edges.kind}, "
        f"{out.stat().st_size:,} bytes: {out}"
    )
    if lost is not None:
        say(lost.text)
        _show_change(whole, found)


def _show_change(whole: Cells, few: Cells) -> None:
    """What leaving out small cells does to the estimates."""
    from ..auditing.audits import audit
    from ..auditing.result import Audit

    with waiting("Measuring with and without small cells"):
        try:
            before, after = (audit(part) for part in (whole, few))
        except ValueError as error:
            note(f"What that does to the estimates cannot be told: {error}")
            return
    assert isinstance(before, Audit)
    assert isinstance(after, Audit)
    for name, m in before.measures.items():
        other = after.measures[name]
        move = (other.value - m.value) / m.stderr if m.stderr > 0 else float("nan")
        say(
            f"{name}: {m.value:.4f} with them, {other.value:.4f} without ({move:+.1f} standard "
            "errors)"
        )


# ------------------------------------------------------------------------------------------------
# Change over time.


@dataclass(frozen=True, kw_only=True)
class Watching(group.CountedColumns, group.Counting):
    """What is watched, and how."""

    time: str | None = option("Column with the date of each row.")
    period: list[str] = option(
        "day, week, month, quarter, year, or as-is; month for tables. For files of cells also the "
        "name of the period of each, in the order of the files; repeatable.",
        default=[],
    )
    criterion: list[str] = option("What is watched; repeatable.", default=[])
    limit: list[str] = option(
        "Value not to be exceeded, as criterion=0.05; repeatable.", default=[]
    )
    level: float = option("Chance of a false alarm over all looks.", default=0.05)
    separator: str | None = option(group.SEPARATOR)


@command
def monitor(files: group.AuditedFiles, watching: Watching, output: group.Output) -> None:
    """Measure a score period by period and say whether its fairness has moved.

    Exit codes: 0 steady; 1 an alarm was raised; 4 not enough data.

    For example: evenhand monitor scores.csv --time date --period month --prediction premium
    --sensitive region --html watch.html

    Of counts alone: evenhand monitor 2024-01.cells 2024-02.cells 2024-03.cells
    """
    from ..measures.measures import OPEN, VIOLATED
    from ..tables.monitor import monitor as watch

    asked = Asked(files, watching.engine, watching, {})
    asked.check()
    limits = _limits(watching.limit)
    wanted: dict[str, Any] = {
        "criteria": list(dict.fromkeys([*watching.criterion, *limits])) or ["independence"],
        "limits": limits,
        "level": watching.level,
    }
    if asked.are_cells:
        series, unit = _cell_series(asked.files, watching.period)
        with waiting("Measuring"):
            result = watch(series, period=unit, **wanted)
    else:
        table, names = _table(asked)
        with waiting("Counting and measuring"):
            result = watch(table, period=_unit(watching.period or ["month"]), **names, **wanted)
    deliver(result, output, "bold red" if result.judged == VIOLATED else "")
    leave({VIOLATED: LIMIT_MISSED, OPEN: NOT_ENOUGH_DATA}.get(result.judged, 0))


def _cell_series(files: list[str], periods: list[str]) -> tuple[Any, str]:
    """Cells by period, and what they are to be gathered into."""
    from ..auditing.monitoring import PERIODS
    from ..tables.monitor import read_series

    if len(periods) == 1 and periods[0] in PERIODS:
        return read_series(files), periods[0]
    return read_series(files, None if periods in ([], ["as-is"]) else periods), "auto"


def _table(asked: Asked) -> tuple[Any, dict[str, Any]]:
    """Rows of one file, or what an engine is to count; and the names of columns."""
    if asked.named("time") is None:
        raise typer.BadParameter("Missing option '--time'.")
    names = {**asked.names, "time": asked.named("time")}
    if asked.counted:
        return asked.table, {**names, "engine": asked.engine}
    source = open_table(Path(asked.files[0]), asked.named("separator"))
    wanted = [source.resolve(name, "--sensitive") for name in asked.columns.sensitive]
    for role in ("prediction", "target", "weight", "frequency", "time"):
        if asked.named(role):
            wanted.append(source.resolve(asked.named(role), f"--{role}"))
    return read_table(source, wanted), names


def _unit(periods: list[str]) -> str | None:
    if len(periods) > 1:
        raise typer.BadParameter("--period must be given once for tables.")
    return None if periods[0] == "as-is" else periods[0]


def _limits(texts: list[str]) -> dict[str, float]:
    out = {}
    for text in texts:
        name, sign, value = text.partition("=")
        try:
            out[name.strip()] = float(value)
        except ValueError:
            sign = ""
        if not sign:
            raise ValueError(f"--limit must be written as independence=0.05, got {text!r}.")
    return out
