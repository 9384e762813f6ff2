"""The commands `predict` and `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import models
from .options import Debug, Force, Separator
from .terminal import command, note, say


@command
def predict(
    model: Annotated[Path, typer.Argument(help="model.json, or the folder that holds it.")],
    file: Annotated[Path, typer.Argument(help="Rows to score: CSV, TSV, Parquet or Feather.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Table to write: .csv, .tsv, .parquet, .feather.")
    ],
    column: Annotated[
        str, typer.Option("--column", help="Name of the column with the scores.")
    ] = "prediction",
    separator: Separator = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Score new rows with a model that 'evenhand frontier' chose.

    All columns of the file are copied unchanged and the score is added.

    For example: evenhand predict fair/model.json new.csv --out scored.csv
    """
    models.check_free(out, force)
    count, unseen = models.score_file(model, file, out, column, separator, force)
    for name, count_ in unseen.items():
        note(
            f"{count_:,} rows have a value of {name!r} that was not there in training; they are "
            "scored like its most frequent one."
        )
    say(f"{count:,} rows scored: {out}")


@command
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path(
        "evenhand-demo"
    ),
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Tell the whole story on the grades of 4,137 students, and write a report of it."""
    models.run_demo(out, force)
