"""Tables that stay where they are, and files of cells, on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._core.files import TableError
from .._core.progress import waiting
from .._core.provenance import file_facts, stamp
from .terminal import command, note, say

if TYPE_CHECKING:
    from ..measures.cells import Cells
    from ..measures.edges import Edges


ENGINES = ("duckdb", "polars", "spark")


def _engine(name: str | None) -> str | None:
    if name is None or name in ENGINES or name.startswith("ibis:"):
        return name
    raise typer.BadParameter(f"must be {', '.join(ENGINES)} or ibis:URL, got {name!r}.")


AuditedFiles = Annotated[
    list[str],
    typer.Argument(
        help="CSV, TSV, Parquet or Feather, compressed or not. Or, counted where they are: several "
        "files, a pattern in quotes, duckdb:FILE/TABLE, a table of the database of --engine "
        "ibis:URL; or files of 'evenhand cells', which need no other option."
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="Count in an engine, with memory for cells and not for rows; duckdb for several files "
        "or a pattern. With ibis: and the address of a database, such as "
        "ibis:postgres://user@host/database, the FILE is the name of a table there.",
        metavar=f"[{'|'.join(ENGINES)}|ibis:URL]",
        callback=_engine,
    ),
]


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


@dataclass(frozen=True)
class Asked:
    """What an audit is asked of: rows of one file, tables that an engine counts, or cells.

    Attributes
    ----------
    files : list of str
    engine : str or None
    columns : dict of option → column
        That name columns; cells have them already.
    needs_rows : dict of option → value
        That only rows allow.
    controls : list of str
    """

    files: list[str]
    engine: str | None
    columns: dict[str, Any]
    needs_rows: dict[str, Any]
    controls: list[str] = field(default_factory=list)

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
            for name, value in {**self.columns, "engine": self.engine}.items():
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
            for name in ("sensitive", "prediction"):
                if not self.columns[name]:
                    raise typer.BadParameter(f"Missing option '--{name}'.")
        for name, value in self.needs_rows.items() if self.counted else ():
            option = "--" + name.replace("_", "-")
            if value:
                raise TableError(
                    f"{option} needs rows, and these are counted where they are. Hint: leave out "
                    f"{option}, or audit one file without --engine."
                )

    def has_target(self) -> bool:
        """Whether there is a target; options are checked first."""
        self.check()
        return self.stored[0].has_target if self.are_cells else self.columns["target"] is not None

    def cells(self) -> tuple[Cells, CellSource]:
        """The counts."""
        if self.are_cells:
            return self.stored
        columns = self.columns
        return count_table(
            self.files, self.engine, None, y_true=columns["target"], y_pred=columns["prediction"],
            sensitive_features=columns["sensitive"], sample_weight=columns["weight"],
            frequency=columns["frequency"],
        )  # fmt: skip


def read_cells(files: Sequence[str]) -> tuple[Cells, CellSource]:
    """Files of cells, added up; what was left out of them is told."""
    from ..measures import cells as cell_files
    from ..measures.cells import Cells, merge

    parts = []
    facts: dict[str, Any] = {}
    for file in files:
        parts.append(Cells.from_file(file))
        lost = cell_files.suppressed_in(file)
        if lost is not None:
            note(f"{file}: {lost.text}")
            facts[f"Left out of {Path(file).name}"] = lost.text
    cells = merge(parts)
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


def with_controls(found: Any, asked: Asked, edges: Edges, **how: Any) -> Any:
    """An audit with what controls leave of its differences."""
    if not asked.controls:
        return found
    from ..auditing.result import Audit
    from ..tables.audit_table import conditional_of

    if not isinstance(found, Audit):
        raise TableError("--control and --each must not both be given for tables that are counted.")
    given = conditional_of(
        asked.table, asked.controls, edges, how, engine=asked.engine,
        y_pred=asked.columns["prediction"], sensitive_features=list(asked.columns["sensitive"]),
        sample_weight=asked.columns["weight"], frequency=asked.columns["frequency"],
    )  # fmt: skip
    return replace(found, conditional=given)


def audit_cells(cells: Cells, each: bool, estimator: str, confidence: float, seed: int) -> Any:
    """An Audit, or an AuditSet with `each`."""
    from ..auditing.audits import audit

    with waiting("Measuring"):
        return audit(
            cells, estimator=estimator, confidence_level=confidence, random_state=seed,
            per_attribute=each and len(cells.names) > 1,
        )  # fmt: skip


@command
def cells(
    files: Annotated[
        list[str],
        typer.Argument(help="Parquet or CSV files, a pattern in quotes, or duckdb:FILE/TABLE."),
    ],
    sensitive: Annotated[
        list[str],
        typer.Option("--sensitive", "-a", help="Column with the group. May be repeated."),
    ],
    prediction: Annotated[str, typer.Option("--prediction", "-s", help="Column with the score.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, such as part.cells.")],
    target: Annotated[
        str | None, typer.Option("--target", "-y", help="Column with the true outcome.")
    ] = None,
    weight: Annotated[
        str | None, typer.Option("--weight", "-w", help="Column with the weight of each row.")
    ] = None,
    frequency: Annotated[
        str | None,
        typer.Option("--frequency", help="Column with the number of people of each row."),
    ] = None,
    edges: Annotated[
        Path | None,
        typer.Option("--edges", help="File of cells whose grid to use, to be merged with it."),
    ] = None,
    bins: Annotated[
        int | None, typer.Option("--bins", help="Bins a side, in place of those that suit.")
    ] = None,
    min_count: Annotated[
        int | None,
        typer.Option(
            "--min-count",
            help="Leave out cells with fewer people of a group than this, and say what that does.",
        ),
    ] = None,
    engine: EngineName = None,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Overwrite files that exist.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Count the rows of a table into cells, which can be audited and merged without the rows.

    For example: evenhand cells "monday/*.parquet" -y y -s s -a race --out monday.cells

    Then: evenhand cells "tuesday/*.parquet" -y y -s s -a race --edges monday.cells --out
    tuesday.cells, and evenhand audit monday.cells tuesday.cells
    """
    from .._core.files import check_free
    from ..measures import cells as cell_files
    from ..measures.cells import Cells

    if edges is not None and bins is not None:
        raise TableError("--edges and --bins must not both be given: edges have their bins.")
    if not cell_files.is_cells(out):
        raise TableError(f"--out must end in .cells, got {str(out)!r}.")
    check_free(out, force)
    grid = bins if edges is None else Cells.from_file(edges).edges
    found, _ = count_table(
        files, engine, grid, y_true=target, y_pred=prediction, sensitive_features=list(sensitive),
        sample_weight=weight, frequency=frequency,
    )  # fmt: skip
    whole, lost = found, None
    if min_count is not None:
        found, lost = cell_files.suppress(found, min_count)
    cell_files.write_cells(found, out, force, lost)
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
