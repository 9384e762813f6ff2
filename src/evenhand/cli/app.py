"""The command line: parse, call, render."""

from __future__ import annotations

import atexit
import gc
import sys
from typing import Annotated, Any

from .._core.installing import install_hint

try:
    import pyarrow  # noqa: F401
    import typer
except ModuleNotFoundError as error:
    sys.exit(
        f"Error: the command line needs the package {error.name}, which is not installed. "
        f"Hint: {install_hint('[cli]')}."
    )

from . import audits, models, tables

app = typer.Typer(
    name="evenhand",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Is this score fair to these groups, what would it cost to make it fairer, and which model "
        "is that?\n\nStart with 'evenhand demo', then 'evenhand audit' on a table of your own.\n\n"
        "Exit codes: 0 all is well; 1 a limit that you set is not met; 2 the input or the options "
        "cannot be used; 3 a defect of evenhand; 4 not enough data to tell whether the tolerance "
        "is met."
    ),
)


def _version(shown: bool) -> None:
    if shown:
        from .. import __version__

        typer.echo(f"evenhand {__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and exit.")
    ] = False,
) -> None:
    """Leave the work to the commands."""


for _function in (
    audits.audit, audits.compare, models.frontier, models.alternatives, models.pack,
    audits.tolerance, tables.cells, models.predict, models.demo, tables.monitor,
):  # fmt: skip
    app.command()(_function)


def main() -> Any:
    """Entry point of the command."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets a question mark, not a crash.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # What is left goes with the process: to look through it at the end takes 0.4 s.
    atexit.register(gc.freeze)
    return app()
