"""What the command line prints, and how it fails."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..data.criteria import get_criterion
from ..report.control_views import conditional_parts
from ..report.formats import clean, number, short_names, with_margin
from ..report.text import (
    PARTS,
    accuracy,
    fixed,
    grade,
    imputation_words,
    is_measured,
    judgment,
    negative_scores,
    p_text,
    part_rows,
    row_count,
    unknown_words,
    worst_part,
)

if TYPE_CHECKING:
    from ..auditing.conditional import Conditional
    from ..auditing.pricing import Pricing
    from ..auditing.result import Audit, AuditSet
    from ..training.path import FairnessPath


# Exit codes, as --help lists them.
LIMIT_MISSED, BAD_INPUT, BUG, NOT_ENOUGH_DATA = 1, 2, 3, 4
_COLORS = {
    "undefined": "yellow",
    "holds": "green",
    "unclear": "yellow",
    "slight": "yellow",
    "unsized": "red",
    "clear": "red",
    "strong": "red",
}


def console(stderr: bool = False) -> Console:
    """Where text goes now (tests swap the streams). Wide where nobody looks at it."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 160
    return Console(file=stream, markup=False, highlight=False, emoji=False, width=width)


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


def note(text: str) -> None:
    """A remark, beside the results."""
    _print(Text("Note: ", style="yellow") + Text(clean(text)), stderr=True)


def fail(text: str) -> None:
    """An error, in words."""
    _print(Text("Error: ", style="bold red") + Text(clean(text)), stderr=True)


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Errors without a traceback unless --debug; warnings as notes."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        debug = kwargs.get("debug", False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always" if not debug else "default", UserWarning)
            try:
                return function(*args, **kwargs)
            except (typer.Exit, typer.BadParameter):
                raise
            except KeyboardInterrupt:
                fail("Interrupted; nothing half-written is left.")
                raise typer.Exit(130) from None
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
                    note(_in_options(text))

    return run


_OPTIONS = {
    "`y_true`": "The target",
    "`y_pred`": "The prediction",
    "`sensitive_features`": "--sensitive",
    "`sample_weight`": "--weight",
    "`frequency`": "--frequency",
    "`cluster`": "--cluster",
    "`confidence_level`": "--confidence",
    "`max_unfairness`": "--max-unfairness",
    "`min_r2`": "--min-r2",
    "`min_accuracy`": "--min-accuracy",
    "`n_points`": "--points",
    "`cv`": "--folds",
    "`alpha`": "--alpha",
    "`exposure`": "--exposure",
    "`given`": "--given",
    "`controls`": "--control",
    "`power`": "--power",
    "`quantile`": "--quantile",
    "`loss`": "--loss",
    "`estimator`": "--estimator",
    "`engine`": "--engine",
    "`criterion`": "--criterion",
    "`group_features`": "--group-features",
    "`table`": "The table",
    "`min_count`": "--min-count",
    "`path`": "The file to write",
    "`favorable`": "--favorable",
    "`reference`": "--reference",
    "`at`": "--at",
    "`level`": "--level",
    "`smallest`": "--smallest",
    "`tolerance`": "--tolerance",
    " Hint: pass `y_true` to the audit.": " Hint: give --target.",
    "force=True (--force on the command line)": "--force",
    # Of no use to someone who has not made the folds.
    " Hint: in cross-validation, stratify the folds by group so that every fold holds each of "
    "them.": "",
}


def _plain(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}: {str(error.filename)!r}."
    return _in_options(text)


def _in_options(text: str) -> str:
    """A message of the library in the words of the command line."""
    for python, option in _OPTIONS.items():
        text = text.replace(python, option)
    return text


def show_audit(audit: Audit, title: str) -> None:
    """The verdicts and both tables."""
    known = audit.n_rows - audit.n_unknown
    name = short_names([audit.sensitive_name], 60)[0]
    lacking = f" ({audit.n_unknown:,} more without a {unknown_words(audit)})"
    count = row_count(known, audit.n_clusters) + (lacking if audit.n_unknown else "")
    what = f"{len(audit.labels)} groups of {name}"
    if is_measured(audit):
        what = f"{name} as a measurement, tables by {len(audit.labels)} bands of it"
    say(f"{title}: {count}, {what}", "bold")
    if audit.r2 == audit.r2:
        say(accuracy(audit.r2))
    if audit.n_negative:
        say(negative_scores(audit), "bold")
    if audit.pricing is not None:
        show_pricing(audit.pricing)
    say("")
    if audit.conditional is not None:
        show_conditional(audit.conditional)
        say("")
    for m in audit.measures.values():
        level = grade(worst_part(audit, m.criterion)[1])
        start = Text(get_criterion(m.criterion).title + " ", style=f"bold {_COLORS[level]}")
        _print(start + Text(judgment(audit, m.criterion)))
    percent = f"{100 * audit.confidence_level:g}%"
    rows = [
        [
            m.criterion,
            fixed(m.shown),
            f"{m.interval[0]:.4f} to {m.interval[1]:.4f}",
            p_text(m.p_value),
        ]
        for m in audit.measures.values()
    ]
    show_table(["criterion", "value", f"{percent} interval", "p (exactly fair)"], rows)
    show_parts(audit)
    show_groups(audit)
    if audit.imputation is not None:
        say("")
        for text in imputation_words(audit.imputation):
            say(text)


def show_conditional(found: Conditional) -> None:
    """Gaps among people with the same controls."""
    sentences, header, rows = conditional_parts(found)
    say(sentences[0], "bold")
    for sentence in sentences[1:]:
        say(sentence)
    show_table(header, rows)


def show_pricing(pricing: Pricing) -> None:
    """Deviance, actual over expected by group and by band."""
    from ..report.price_views import band_rows, pricing_notes, pricing_rows, pricing_sentences

    for sentence in pricing_sentences(pricing):
        say(sentence)
    show_table(*pricing_rows(pricing))
    say("\nActual over expected by band of the score:")
    show_table(*band_rows(pricing))
    say("")
    for text in pricing_notes(pricing):
        say(text)


def show_parts(audit: Audit) -> None:
    """A crossing beside its attributes and its worst group, where there is one."""
    rows = part_rows(audit)
    if rows:
        say(f"\n{PARTS}")
        names = short_names([row[0] for row in rows], 60)
        cells = [[name, *row[1:]] for name, row in zip(names, rows, strict=True)]
        show_table(["", *audit.measures], cells)


_GROUP_HEADS = {
    "n": "rows", "n_clusters": "clusters", "mean_score": "mean score", "mean_target": "mean target",
    "mean_residual": "target − score", "rmse": "RMSE",
}  # fmt: skip


def show_groups(audit: Audit) -> None:
    """One line a group."""
    columns = audit._groups.columns
    names = [n for n in _GROUP_HEADS if n in columns]
    rows = []
    for k, group in enumerate(short_names(columns["group"], 40)):
        cells = [group]
        for n in names:
            value = columns[n][k]
            low = columns.get(f"{n}_low", [None] * (k + 1))[k]
            if n in ("n", "n_clusters"):
                cells.append(f"{value:,.0f}")
            else:
                cells.append(number(value) if low is None else with_margin(value, value - low))
        rows.append(cells)
    show_table(["group", *(_GROUP_HEADS[n] for n in names)], rows)


def show_set(audits: AuditSet) -> None:
    """One line an audit."""
    criteria = list(next(iter(audits.values())).measures)
    rows = []
    for name, audit in zip(short_names(list(audits), 40), audits.values(), strict=True):
        cells = [
            f"{fixed(m.shown)} ({m.interval[0]:.3f} to {m.interval[1]:.3f})"
            for m in audit.measures.values()
        ]
        rows.append([name, number(audit.r2), *cells])
    show_table([audits.kind, "R²", *criteria], rows)


def show_path(path: FairnessPath) -> None:
    """One line a point, with marks where words would not fit beside the numbers."""
    head, *rows = path._table()
    marks = {"selected": "→", "dominated": "·"}
    rows = [[f"{marks.get(row[-1], ' ')} {row[0]}", *row[1:-1]] for row in rows]
    show_table(["  weight", *head[1:-1]], rows)
    say(
        "→ selected   · another is better in both   weight: of fairness against "
        f"{path.accuracy.symbol}",
        "dim",
    )


def show_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table with the first column to the left and the others to the right.

    Where it is wider than the terminal it goes on below, with the first column once more, so that
    no column is lost or cut.
    """
    out = console()
    cells = [[_printable(" ".join(cell.split("\n"))) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(header, *cells, strict=True)]
    first = min(widths[0], max(out.width // 3, 12))
    for columns in _blocks([first, *widths[1:]], out.width):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
        for j in (0, *columns):
            table.add_column(
                Text(header[j]), justify="left" if j == 0 else "right", overflow="fold",
                no_wrap=j > 0, max_width=first if j == 0 else None,
            )  # fmt: skip
        for row in cells:
            table.add_row(*(Text(row[j]) for j in (0, *columns)))
        out.print()
        out.print(table)


def _blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """The columns but the first, as many together as fit beside it; two spaces between."""
    blocks: list[list[int]] = [[]]
    used = widths[0]
    for j in range(1, len(widths)):
        if blocks[-1] and used + 2 + widths[j] > room:
            blocks.append([])
            used = widths[0]
        blocks[-1].append(j)
        used += 2 + widths[j]
    return blocks
