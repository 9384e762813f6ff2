"""What the command line prints, and how it fails."""

from __future__ import annotations

import functools
import inspect
import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.text import Text

from .._core.validation import InputError
from ..data.labels import ManyValues
from ..report.view import WIDTH, View, view_lines, view_of
from ..report.words import clean
from .options import Output, check_choices, long_name

# Exit codes, as --help lists them.
LIMIT_MISSED, BAD_INPUT, BUG, NOT_ENOUGH_DATA = 1, 2, 3, 4
# Colors of titles, and of judgments by their grade.
_COLORS = {
    "title": "bold",
    "undefined": "yellow",
    "holds": "green",
    "unclear": "yellow",
    "slight": "yellow",
    "unsized": "red",
    "clear": "red",
    "strong": "red",
}


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
    _print(Text(_printable(text), style=style))


def _print(text: Text, stderr: bool = False) -> None:
    out = console(stderr)
    # Where nobody looks at it, a line is a line.
    out.print(text, soft_wrap=not out.file.isatty())


def _printable(text: str) -> str:
    return "\n".join(
        line[: len(line) - len(line.lstrip())] + clean(line) for line in text.split("\n")
    )


def deliver(result: Any, output: Output, style: str = "") -> None:
    """A result as JSON or in words, and as a page where one is asked for."""
    if output.json_:
        say_json(result.to_dict())
    else:
        show_result(result, style)
    if output.html is not None:
        result.to_html(output.html, force=output.force)
        if not output.json_:
            say(f"Page: {output.html}")


def run_facts(seed: int) -> dict[str, Any]:
    """For the report: the seed, and the command as it was typed."""
    return {"Seed": seed, "Command": shlex.join(["evenhand", *sys.argv[1:]])}


def leave(code: int) -> None:
    """End the command with a code other than 0."""
    if code:
        raise typer.Exit(code)


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
        with _in_words(given.get("debug", False)):
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
def _in_words(debug: bool) -> Iterator[None]:
    """Errors as a line and an exit code, warnings as notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always" if not debug else "default", UserWarning)
        try:
            yield
        except (typer.Exit, typer.BadParameter):
            raise
        except KeyboardInterrupt:
            fail("Interrupted; nothing half-written is left.")
            raise typer.Exit(130) from None
        except MemoryError as error:
            if debug:
                raise
            fail(
                f"There is not enough memory for this ({_first(error)}). Hint: count the rows "
                "where they are, with --engine duckdb, which needs memory for cells and not for "
                "rows."
            )
            raise typer.Exit(BAD_INPUT) from None
        except (ValueError, OSError, ModuleNotFoundError) as error:
            if debug:
                raise
            fail(_plain(error))
            raise typer.Exit(BAD_INPUT) from None
        except Exception as error:
            if debug:
                raise
            fail(
                f"This should not happen ({type(error).__name__}: {error}). Please report it, "
                "with what --debug prints."
            )
            raise typer.Exit(BUG) from None
        finally:
            seen = {str(w.message) for w in caught if issubclass(w.category, UserWarning)}
            for text in sorted(seen):
                note(text)


def _first(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


# Arguments of the library as the command line names them.
_NAMES = {
    "y_true": "The target", "y": "The target", "y_pred": "The prediction", "table": "The table",
    "probabilities": "--probability", "edges": "--edges or --bins",
    "sensitive_features": "--sensitive", "sample_weight": "--weight", "controls": "--control",
    "confidence_level": "--confidence", "n_points": "--points", "cv": "--folds",
}  # fmt: skip
_SAME = (
    "frequency", "cluster", "max_unfairness", "min_r2", "min_accuracy", "alpha", "exposure",
    "given", "power", "quantile", "loss", "estimator", "engine", "criterion", "group_features",
    "min_count", "favorable", "reference", "at", "level", "smallest", "tolerance", "period",
    "time",
)  # fmt: skip
_NAMES |= {name: f"--{name.replace('_', '-')}" for name in _SAME}
# A hint of no use to someone who has not made the folds.
_LEFT_OUT = (
    "in cross-validation, stratify the folds by group so that every fold holds each of them."
)


def _plain(error: Exception) -> str:
    """An error of the library in the words of the command line."""
    if isinstance(error, InputError) and error.argument in _NAMES:
        where = error.where.removeprefix("of a Proxy")
        name = f"{_NAMES[error.argument]} {where}".rstrip()
        hint = "" if error.hint == _LEFT_OUT else error.hint
        if isinstance(error, ManyValues):
            hint = (
                "ask about the measurement itself with --continuous, or cut it into bands, such as "
                f"--band {error.column}:{','.join(error.edges)}; codes of true groups must not "
                "look like numbers, so put a letter before them."
            )
        return error.worded(name, hint)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {str(error.filename)!r}."
    return str(error) or type(error).__name__


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
