"""What the command line prints, and how it fails."""

from __future__ import annotations

import functools
import inspect
import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.text import Text

from .._core.provenance import last_changed
from .._core.validation import InputError
from ..data.labels import ManyValues
from ..report.view import WIDTH, View, view_lines, view_of
from ..report.words import clean
from .options import Output, check_choices, long_name

# Exit codes, as --help lists them.
LIMIT_MISSED, BAD_INPUT, BUG, NOT_ENOUGH_DATA, INTERRUPTED = 1, 2, 3, 4, 130
_CODES = {"pass": 0, "fail": LIMIT_MISSED, "not enough data": NOT_ENOUGH_DATA}
# Colors of titles, and of judgments by their grade.
_COLORS = {
    "title": "bold", "holds": "green", "undefined": "yellow", "unclear": "yellow",
    "slight": "yellow", "unsized": "red", "clear": "red", "strong": "red",
}  # fmt: skip


class _Screen(Console):
    """Where nobody reads on (`| head`), nothing more is written, and the exit code stays."""

    def on_broken_pipe(self) -> None:
        stop_writing()


def stop_writing() -> None:
    """Send what is still to come to standard output nowhere."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def console(stderr: bool = False) -> Console:
    """Where text goes now (tests swap the streams). Wide where nobody looks at it."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDTH
    return _Screen(file=stream, markup=False, highlight=False, emoji=False, width=width)


def say_json(values: Any) -> None:
    """Results as JSON, and nothing else."""
    try:
        print(json.dumps(values, indent=2, allow_nan=False), flush=True)
    except BrokenPipeError:
        stop_writing()


def say(text: str, style: str = "") -> None:
    """A line of results. User strings in it cannot steer the terminal."""
    lines = [line[: len(line) - len(line.lstrip())] + clean(line) for line in text.split("\n")]
    _print(Text("\n".join(lines), style=style))


def _print(text: Text, stderr: bool = False) -> None:
    out = console(stderr)
    # Where nobody looks at it, a line is a line.
    out.print(text, soft_wrap=not out.file.isatty())


def deliver(result: Any, output: Output, style: str = "", **page: Any) -> None:
    """A result as JSON or in words, and as a page where one is asked for: `about` and `source`."""
    if output.json_:
        say_json(result.to_dict())
    else:
        show_result(result, style)
    if output.html is not None:
        result.to_html(output.html, force=output.force, **page)
        if not output.json_:
            say(f"Page: {output.html}")


def run_facts(seed: int | None = None, tolerance: Path | None = None) -> dict[str, Any]:
    """For the report: the file of the tolerance and its digest, the seed, and the command."""
    from ..auditing.tolerance import Tolerance

    facts: dict[str, Any] = {}
    if tolerance is not None:
        changed = last_changed(tolerance)
        when = "" if changed is None else f", last changed {changed:%Y-%m-%d %H:%M UTC}"
        facts["Tolerance"] = f"{clean(tolerance.name)}{when}"
        facts["SHA-256 of the tolerance"] = Tolerance.from_file(tolerance).digest
    if seed is not None:
        facts["Seed"] = seed
    return {**facts, "Command": shlex.join(["evenhand", *sys.argv[1:]])}


def leave(*outcomes: str) -> None:
    """End with the code of the worst outcome: a fail outranks not enough data, and that a pass."""
    codes = {_CODES[outcome] for outcome in outcomes} - {0}
    if codes:
        raise typer.Exit(min(codes))


def note(text: str) -> None:
    """A remark, beside the results."""
    _print(Text("Note: ", style="yellow") + Text(clean(text)), stderr=True)


def fail(text: str) -> None:
    """An error, in words."""
    _print(Text("Error: ", style="bold red") + Text(clean(text)), stderr=True)


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command of the parser: groups of options laid out, errors without a traceback.

    Tracebacks come with --debug. Warnings become notes.
    """
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    options = {p.name: list(_options_of(p)) for p in parameters}
    groups: dict[str, Any] = {
        p.name: p.annotation for p in parameters if is_dataclass(p.annotation)
    }

    @functools.wraps(function)
    def run(**given: Any) -> Any:
        with _in_words(given.get("debug", False), set(given)):
            for name, group in groups.items():
                own = {option.name: given.pop(option.name) for option in options[name]}
                given[name] = group(**own)
                check_choices(given[name])
            return function(**given)

    # The parser reads these, and not the function's own.
    laid_out = [option for several in options.values() for option in several]
    run.__signature__ = inspect.Signature(laid_out)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in laid_out}
    del run.__wrapped__
    return run


def _options_of(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """A parameter, or those that the options of its group are."""
    group = parameter.annotation
    if not is_dataclass(group):
        yield parameter.replace(kind=parameter.KEYWORD_ONLY)
        return
    kinds = get_type_hints(group)
    for f in fields(group):
        if "flags" not in f.metadata:
            continue
        flags = dict.fromkeys([long_name(f), *f.metadata["flags"]])
        default = f.default if f.default_factory is MISSING else f.default_factory()
        yield inspect.Parameter(
            f.name, parameter.KEYWORD_ONLY,
            default=parameter.empty if default is MISSING else default,
            annotation=Annotated[kinds[f.name], typer.Option(*flags, **f.metadata["more"])],
        )  # fmt: skip


@contextmanager
def _in_words(debug: bool, options: Container[str]) -> Iterator[None]:
    """Errors as a line and an exit code, warnings as notes; `options` are those of the command."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always" if not debug else "default", UserWarning)
        try:
            yield
        except (typer.Exit, typer.BadParameter):
            raise
        except (Exception, KeyboardInterrupt) as error:
            if debug and not isinstance(error, KeyboardInterrupt):
                raise
            text, code = _worded(error, options)
            fail(text)
            raise typer.Exit(code) from None
        finally:
            seen = {str(w.message) for w in caught if issubclass(w.category, UserWarning)}
            for text in sorted(seen):
                note(text)


# Arguments of the library as the command line names them.
_NAMES = {
    "y_true": "The target", "y": "The target", "y_pred": "The prediction", "table": "The table",
    "probabilities": "--probability", "edges": "--edges or --bins",
    "sensitive_features": "--sensitive", "sample_weight": "--weight", "controls": "--control",
    "confidence_level": "--confidence", "n_points": "--points", "cv": "--folds",
}  # fmt: skip
# A hint of no use to someone who has not made the folds.
_LEFT_OUT = (
    "in cross-validation, stratify the folds by group so that every fold holds each of them."
)


def _worded(error: BaseException, options: Container[str]) -> tuple[str, int]:
    """An error in the words of the command line, and its exit code."""
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted; nothing half-written is left.", INTERRUPTED
    if isinstance(error, MemoryError):
        words = next(iter(str(error).splitlines()), "") or type(error).__name__
        return (
            f"There is not enough memory for this ({words}). Hint: count the rows where "
            "they are, with --engine duckdb, which needs memory for cells and not for rows."
        ), BAD_INPUT
    if not isinstance(error, ValueError | OSError | ModuleNotFoundError):
        return (
            f"This should not happen ({type(error).__name__}: {error}). Please report it, with "
            "what --debug prints."
        ), BUG
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {str(error.filename)!r}.", BAD_INPUT
    name = ""
    if isinstance(error, InputError):
        own = f"--{error.argument.replace('_', '-')}" if error.argument in options else ""
        name = _NAMES.get(error.argument, own)
    if not isinstance(error, InputError) or not name:
        return str(error) or type(error).__name__, BAD_INPUT
    hint = "" if error.hint == _LEFT_OUT else error.hint
    if isinstance(error, ManyValues):
        hint = (
            "ask about the measurement itself with --continuous, or cut it into bands, such as "
            f"--band {error.column}:{','.join(error.edges)}; codes of true groups must not "
            "look like numbers, so put a letter before them."
        )
    return error.worded(
        f"{name} {error.where.removeprefix('of a Proxy')}".rstrip(), hint
    ), BAD_INPUT


def show_result(result: Any, style: str = "", title: str = "") -> None:
    """Print any result: its title, sentences and tables.

    Parameters
    ----------
    result : Audit, Verdict, Monitor, ...
        Anything that :func:`evenhand.report.view.view_of` knows.
    style : str
        Of the title.
    title : str
        In place of the result's own.
    """
    show_view(view_of(result), style, title)


def show_view(view: View, style: str = "bold", title: str = "") -> None:
    """Print a view, no wider than the terminal."""
    first, *lines = view_lines(view, console().width)
    say(title or first.text, style)
    for line in lines:
        _print(Text(line.text, style=_COLORS.get(line.kind, "")))
