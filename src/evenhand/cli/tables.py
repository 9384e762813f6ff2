"""The commands `cells` and `monitor`: tables that stay where they are, and files of cells."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._core.files import TableError, list_files
from .._core.progress import waiting
from .._core.provenance import file_facts, stamp
from ..data.criteria import CRITERIA
from ..report.words import clean
from ..tables.readers import open_table, read_table
from . import options as group
from .options import option, parse_bands, parse_limits
from .rows import check_levels
from .terminal import command, deliver, leave, note, run_facts, say

if TYPE_CHECKING:
    from ..measures.cells import Cells


_ARGUMENTS = {
    "y_true": "target", "y_pred": "prediction", "sensitive_features": "sensitive",
    "sample_weight": "weight", "frequency": "frequency",
}  # fmt: skip
_NEEDS_ROWS = ("cluster", "drop_missing", "separator", "exposure", "continuous", "least_group")


# Bytes of one file beyond which an engine counts its rows: in memory they take some 20 times that.
LARGE = 2**28
_COUNTABLE = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".parq")


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
    dropped: int = 0

    def named(self, role: str) -> Any:
        """The column or columns of a role, None where there is no such option."""
        return getattr(self.columns, role, None)

    @cached_property
    def are_cells(self) -> bool:
        """Whether all files are cells; some among others are refused."""
        from ..measures.cell_files import is_cells

        kinds = [is_cells(file) for file in self.files]
        if any(kinds) and not all(kinds):
            raise TableError("Files of cells and tables of rows must not be mixed.")
        return all(kinds)

    @cached_property
    def counted(self) -> bool:
        """Cells, or tables for an engine: asked for, several, a pattern, a folder.

        One large file too, unless an option needs its rows.
        """
        one = self.files[0]
        if (
            self.are_cells
            or self.engine is not None
            or len(self.files) > 1
            or Path(one).is_dir()
            or (any(sign in one for sign in "*?[") and not Path(one).exists())
        ):
            return True
        large = one.lower().endswith(_COUNTABLE) and Path(one).is_file()
        large = large and Path(one).stat().st_size >= LARGE and find_spec("duckdb") is not None
        if not large or any(self._rows_options.values()):
            return False
        note(
            f"{one} is larger than {LARGE >> 20} MB, so its rows are counted by an engine and not "
            "held in memory."
        )
        return True

    @property
    def _rows_options(self) -> dict[str, Any]:
        """Options that only rows allow."""
        return {role: self.named(role) for role in _NEEDS_ROWS} | self.needs_rows

    @property
    def table(self) -> str | list[str]:
        """As `audit_table` takes it."""
        return self.files[0] if len(self.files) == 1 else list(self.files)

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
            if self.named("control"):
                raise TableError(
                    "--control must be left out for files of cells, which hold no controls. Hint: "
                    "audit the table that they were counted from."
                )
        else:
            for name, other in {"sensitive": "probability", "prediction": ""}.items():
                if not self.named(name) and not self.named(other):
                    raise typer.BadParameter(f"Missing option '--{name}'.")
        for name, value in self._rows_options.items() if self.counted else ():
            option = "--" + name.replace("_", "-")
            if value:
                raise TableError(
                    f"{option} needs rows, and these are counted where they are. Hint: leave out "
                    f"{option}, or audit one file without --engine."
                )

    def has_target(self) -> bool:
        """Whether there is a target; options are checked first."""
        self.check()
        return self.cells.has_target if self.are_cells else self.columns.target is not None

    @cached_property
    def cells(self) -> Cells:
        """The counts, of files or by an engine."""
        from ..measures.cells import Cells, read_parts

        if not self.are_cells:
            return count(self.table, self.columns)
        return Cells.merge(read_parts(list_files(self.files)))

    def audit(self, measuring: group.Measuring, judging: group.Judging) -> Any:
        """An Audit of the counts."""
        from ..auditing.audits import audit
        from ..tables.audit_table import audit_counts

        how: dict[str, Any] = {
            "estimator": measuring.estimator, "confidence_level": measuring.confidence,
            "random_state": measuring.seed, "reference": judging.reference or "largest",
        }  # fmt: skip
        if self.are_cells:
            with waiting("Measuring"):
                return audit(self.cells, **how)
        controls = self.named("control") or None
        return audit_counts(self.table, self.cells, how, controls, **column_names(self.columns))

    def provenance(self) -> dict[str, Any]:
        """For JSON: version, time and files."""
        files = list_files(self.files) if self.are_cells else self.files
        return {**stamp(), "files": [file_facts(Path(file)) for file in files]}

    def source_facts(self) -> dict[str, Any]:
        """For the report."""
        facts: dict[str, Any] = {"File": ", ".join(Path(file).name for file in self.files)}
        for file in self.provenance().get("files", ()):
            if file["sha256"] is not None:
                facts[f"SHA-256 of {clean(file['name'])[:60]}"] = file["sha256"]
        if "cells" in vars(self):  # a monitor has a grid for all periods
            facts["Grid"] = self.cells.edges.kind
        if self.are_cells:
            lost = {f"Left out of {Path(file).name}": text for file, text in self.left_out.items()}
            return {**facts, **lost}
        return {**facts, "Target": self.columns.target or "none",
                "Prediction": self.named("prediction")}  # fmt: skip

    @cached_property
    def left_out(self) -> dict[str, str]:
        """What was left out of files of cells, by file."""
        from ..measures.cell_files import suppressed_in

        lost = {file: suppressed_in(file) for file in list_files(self.files)}
        return {file: text for file, text in lost.items() if text}


def column_names(columns: group.Roles) -> dict[str, Any]:
    """Columns by the arguments of `cells_of`."""
    named = {argument: getattr(columns, role) for argument, role in _ARGUMENTS.items()}
    shares = {name: name for name in getattr(columns, "probability", ())}
    named["sensitive_features"] = shares or named["sensitive_features"]
    more = {"missing": columns.missing, "assume": getattr(columns, "assume", None)}
    return {**named, **more, "bands": parse_bands(columns)}


def count(table: Any, columns: group.Roles, edges: Any = None) -> Cells:
    """Tables, counted by an engine; `edges` are a grid or a number of bins."""
    from ..tables.audit_table import cells_of

    return cells_of(table, **column_names(columns), edges=edges)


class Grid(group.Counting):
    """Into what rows are counted."""

    out: Path = option("File to write, such as part.cells.", "-o", default=group.REQUIRED)
    edges: Path | None = option("File of cells whose grid to use, to be merged with it.")
    bins: int | None = option("Bins per side; chosen from the data if left out.")
    min_count: int | None = option(
        "Leave out cells with fewer people of a group than this, and say how many."
    )


@command
def cells(
    files: Annotated[
        list[str], typer.Argument(help="Parquet or CSV files, or a pattern in quotes.")
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
    from ..measures import cell_files
    from ..measures.cells import Cells

    out = grid.out
    if grid.edges is not None and grid.bins is not None:
        raise TableError("--edges and --bins must not both be given: edges have their bins.")
    if not cell_files.is_cells(out):
        raise TableError(f"--out must end in .cells, got {str(out)!r}.")
    writing.check_free(out)
    edges = grid.bins if grid.edges is None else Cells.from_file(grid.edges).edges
    kept = count(files[0] if len(files) == 1 else files, columns, edges)
    lost = ""
    if grid.min_count is not None:
        kept, lost = cell_files.suppress(kept, grid.min_count)
    cell_files.write_cells(kept, out, writing.force, lost)
    unknown = f", {kept.n_unknown:,} more of unknown group" if kept.n_unknown else ""
    say(
        f"{kept.n:,} people{unknown} in {kept.n_cells:,} cells of {kept.edges.kind}, "
        f"{out.stat().st_size:,} bytes: {out}"
    )
    if lost:
        say(lost)


# ------------------------------------------------------------------------------------------------
# Change over time.


class Watching(group.CountedColumns, group.Counting):
    """What is watched, and how."""

    time: str | None = option("Column with the date of each row.")
    period: list[str] = option(
        "day, week, month, quarter, year, or as-is; month for tables. For files of cells also the "
        "name of the period of each, in the order of the files. May be given again.",
        default=[],
    )
    criterion: list[str] = option("What is watched. May be given again.", default=[])
    limit: list[str] = option(
        "Value not to be exceeded, as criterion=0.05, or drift=0.02 for the largest rise that is "
        "tolerated. May be given again.",
        default=[],
    )
    tolerance: Path | None = option("File that says what is tolerated, in place of --limit.")
    level: float = option("Chance of a false alarm over all looks.", default=0.05)
    estimator: str = option("How to estimate: auto, logistic or lspc.", default="auto")
    cluster: str | None = option(group.CLUSTER)
    separator: str | None = option(group.SEPARATOR)


@command
def monitor(
    files: group.AuditedFiles, watching: Watching, about: group.Stated, output: group.Output
) -> None:
    """Measure a score period by period and say whether its fairness has moved.

    Exit codes: 0 no change seen, and limits shown to be met; 1 an alarm was raised; 4 not enough
    data.

    For example: evenhand monitor scores.csv --time date --period month --prediction premium
    --sensitive region --html watch.html

    Counts alone: evenhand monitor 2024-01.cells 2024-02.cells 2024-03.cells
    """
    from ..auditing.tolerance import DRIFT, Tolerance
    from ..measures.measures import OPEN, VIOLATED
    from ..tables.monitor import monitor as watch

    asked = Asked(files, watching.engine, watching, {})
    asked.check()
    limits = parse_limits("--limit", watching.limit, more=[DRIFT])
    if watching.tolerance is not None:
        if limits:
            raise TableError("--limit and --tolerance must not both be given.")
        limits = {name: ends[1] for name, ends in Tolerance.from_file(watching.tolerance).clauses}
    criteria = dict.fromkeys([*watching.criterion, *(name for name in limits if name in CRITERIA)])
    wanted: dict[str, Any] = {
        "criteria": list(criteria) or ["independence"],
        "limits": limits,
        "level": watching.level,
        "estimator": watching.estimator,
    }
    table, how = (_cell_series if asked.are_cells else _table)(asked, watching.period)
    with waiting("Measuring" if asked.are_cells else "Counting and measuring"):
        result = watch(table, **how, **wanted)
    style = "bold red" if result.judged == VIOLATED else ""
    facts = {**asked.source_facts(), **run_facts(tolerance=watching.tolerance)}
    period = f"{result.periods[0]} to {result.periods[-1]}"
    deliver(result, output, style, about={**asdict(about), "period": period}, source=facts)
    leave({VIOLATED: "fail", OPEN: "not enough data"}.get(result.judged, "pass"))


def _cell_series(asked: Asked, periods: list[str]) -> tuple[Any, dict[str, Any]]:
    """Cells by period, and what they are to be gathered into."""
    from ..tables.monitor import PERIODS, read_series

    if len(periods) == 1 and periods[0] in PERIODS:
        return read_series(asked.files), {"period": periods[0]}
    named = None if periods in ([], ["as-is"]) else periods
    return read_series(asked.files, named), {"period": "auto"}


def _table(asked: Asked, periods: list[str]) -> tuple[Any, dict[str, Any]]:
    """Rows of one file, or what an engine is to count; the names of columns, and the period."""
    if asked.named("time") is None:
        raise typer.BadParameter("Missing option '--time'.")
    names = column_names(asked.columns) | {r: asked.named(r) for r in ("time", "cluster")}
    del names["bands"]
    table: Any = asked.table
    if not asked.counted:
        source = open_table(Path(asked.files[0]), asked.named("separator"))
        roles = ("sensitive", "prediction", "target", "weight", "frequency", "time", "cluster")
        wanted = [source.resolve(name, f"--{r}") for r in roles for name in asked.columns.listed(r)]
        table = read_table(source, wanted, text=asked.columns.sensitive)
        check_levels(table.select(asked.columns.sensitive), as_written=source.kind == "csv")
    if len(periods) > 1:
        raise typer.BadParameter("--period must be given once for tables.")
    (period,) = periods or ["month"]
    return table, {**names, "period": None if period == "as-is" else period}
