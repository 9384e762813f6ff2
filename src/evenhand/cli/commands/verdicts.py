"""Tolerances, verdicts and the impact table on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...files.tabular import TableError
from ...report.impact import apart_note, impact_cells, impact_notes
from ...report.verdict import verdict_notes, verdict_rows, verdict_sentence
from .terminal import LIMIT_MISSED, NOT_ENOUGH_DATA, command, say, show_table

if TYPE_CHECKING:
    from ...auditing.impact import Impact
    from ...auditing.result import Audit
    from ...auditing.tolerance import Tolerance
    from ...auditing.verdict import Verdict


class Favorable(StrEnum):
    high = "high"
    low = "low"


ToleranceFile = Annotated[
    Path | None,
    typer.Option(
        "--tolerance",
        help="File that says what is tolerated (see 'evenhand tolerance'): pass, exit code 0; "
        "fail, 1; not enough data, 4.",
    ),
]
WithImpact = Annotated[
    bool, typer.Option("--impact", help="Compare each group with a reference; needs --favorable.")
]
FavorableSide = Annotated[
    Favorable | None,
    typer.Option("--favorable", help="Whether a high or a low score is good for a person."),
]
Reference = Annotated[
    str | None,
    typer.Option("--reference", help="Group for --impact and --control; the largest if left out."),
]
At = Annotated[
    list[str] | None,
    typer.Option(
        "--at", help="Cutoff of impact and odds ratios: median or a quantile. May be repeated."
    ),
]
_STYLES = {"pass": "bold green", "fail": "bold red", "not enough data": "bold yellow"}
EXIT_CODES = {"pass": 0, "fail": LIMIT_MISSED, "not enough data": NOT_ENOUGH_DATA}


@dataclass(frozen=True)
class Asked:
    """What is asked beyond the audit itself.

    Attributes
    ----------
    tolerance : Tolerance or None
    impact : bool
    favorable : str or None
    reference, at
        Of the impact table.
    """

    tolerance: Tolerance | None
    impact: bool
    favorable: str | None
    reference: str
    at: tuple[Any, ...]


def read_asked(
    file: Path | None,
    impact: bool,
    favorable: str | None,
    reference: str | None,
    at: Sequence[str],
    has_target: bool,
) -> Asked:
    """The options of the command line, checked before any rows are read."""
    from ...auditing.impact import read_cutoffs
    from ...auditing.tolerance import Tolerance

    tolerance = None if file is None else Tolerance.from_file(file)
    if tolerance is not None:
        if tolerance.needs_target and not has_target:
            raise TableError(
                f"--tolerance asks for {', '.join(tolerance.needs_target)}, which needs --target."
            )
        if favorable is not None and tolerance.favorable not in (None, favorable):
            raise TableError(
                f"--favorable {favorable} contradicts {file}, which says {tolerance.favorable}."
            )
        favorable = favorable or tolerance.favorable
        reference = reference or tolerance.reference
    if impact and favorable is None:
        raise TableError(
            "--impact needs --favorable: high if a person is better off with a high score (a "
            "grade), low if with a low one (a premium, a risk)."
        )
    cutoffs = tuple(float(c.quantile or 0.0) for c in read_cutoffs([_cutoff(text) for text in at]))
    if not cutoffs:
        cutoffs = (0.5,) if tolerance is None else tolerance.at or (0.5,)
    return Asked(tolerance, impact, favorable, reference or "largest", cutoffs)


def _cutoff(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def judged(audits: Mapping[str, Audit], asked: Asked) -> dict[str, Verdict]:
    """Verdicts by audit; an attribute of a crossing is judged as a part of it."""
    if asked.tolerance is None:
        return {}
    parts = {part for audit in audits.values() for part in audit.attributes}
    return {
        name: audit.verdict(asked.tolerance) for name, audit in audits.items() if name not in parts
    }


def impacts(audits: Mapping[str, Audit], asked: Asked) -> dict[str, Impact]:
    """Impact tables by audit."""
    if not asked.impact:
        return {}
    assert asked.favorable is not None
    groups = {group for audit in audits.values() for group in audit.labels}
    return {
        name: audit.impact(
            "largest" if asked.reference in groups.difference(audit.labels) else asked.reference,
            asked.at,
            asked.favorable,
        )
        for name, audit in audits.items()
    }


def show_verdict(verdict: Verdict, name: str = "") -> None:
    """The outcome, the clauses and the notes."""
    say((f"{name}: " if name else "") + verdict_sentence(verdict), _STYLES[verdict.outcome])
    show_table(*verdict_rows(verdict))
    say("")
    for note in verdict_notes(verdict):
        say(note)
    say("")


def show_impact(impact: Impact) -> None:
    """The table, that of small groups, and what the numbers are."""
    header, rows, apart = impact_cells(impact)
    say("Groups against the reference", "bold")
    for note in impact_notes(impact):
        say(note)
    show_table(header, rows)
    if apart:
        say("")
        say(apart_note(impact))
        show_table(header, apart)
    say("")


def to_dict(verdicts: Mapping[str, Verdict], tables: Mapping[str, Impact]) -> dict[str, Any]:
    """For --json: by audit where there are several."""
    found: dict[str, Any] = {}
    for key, results in (("verdict", verdicts), ("impact", tables)):
        held = {name: result.to_dict() for name, result in results.items()}
        if held:
            found[key] = held[""] if list(held) == [""] else held
    return found


def exit_code(verdicts: Mapping[str, Verdict], limits_met: bool) -> int:
    """A fail outranks what is left open, and that a pass."""
    codes = {EXIT_CODES[verdict.outcome] for verdict in verdicts.values()}
    if not limits_met or LIMIT_MISSED in codes:
        return LIMIT_MISSED
    return NOT_ENOUGH_DATA if NOT_ENOUGH_DATA in codes else 0


@command
def tolerance(
    file: Annotated[Path, typer.Argument(help="A file that ends in .toml or .json.")],
    clause: Annotated[
        list[str] | None,
        typer.Option(
            "--clause",
            metavar="NAME=LIMIT",
            help="Such as independence=0.01 or mean_ratio=0.95,1.05; an end may be left empty "
            "(impact_ratio=0.8,). May be given several times. Without it, the file is read.",
        ),
    ] = None,
    favorable: FavorableSide = None,
    reference: Annotated[
        str, typer.Option("--reference", help="The group that others are compared with.")
    ] = "largest",
    at: At = None,
    level: Annotated[float, typer.Option("--level", help="Chance of a wrong verdict.")] = 0.05,
    smallest: Annotated[
        float, typer.Option("--smallest", help="Groups of a smaller share are not judged.")
    ] = 0.02,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Overwrite a file that exists.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Write down what is tolerated, before the data are seen; or show what a file says.

    For example: evenhand tolerance limits.toml --clause independence=0.01 --clause
    mean_ratio=0.95,1.05

    Then: evenhand audit scores.csv -y y -s s -a race --tolerance limits.toml
    """
    from ...auditing.tolerance import Tolerance, range_text

    if clause:
        clauses = dict(_clause(text) for text in clause)
        if len(clauses) < len(clause):
            raise TableError("--clause names one clause twice.")
        made = Tolerance(
            level=level,
            reference=reference,
            favorable=None if favorable is None else favorable.value,
            at=[_cutoff(text) for text in at or ["median"]],
            smallest=smallest,
            **clauses,
        )
        made.to_file(file, force=force)
    else:
        made = Tolerance.from_file(file)
    rows = [[name, range_text(name, *ends)] for name, ends in made.clauses]
    say(f"{file}: level {100 * made.level:g}%, reference {made.reference}", "bold")
    show_table(["clause", "tolerated"], rows)
    say(f"\nSHA-256 {made.digest}")


def _clause(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    parts = [part.strip() for part in value.split(",")]
    try:
        numbers = [float(part) if part else None for part in parts]
    except ValueError:
        numbers = []
    if not sign or not numbers or numbers == [None]:
        raise TableError(
            f"--clause must be NAME=LIMIT or NAME=LOW,HIGH, got {text!r}. Hint: --clause "
            "independence=0.01"
        )
    return name.strip(), numbers[0] if len(numbers) == 1 else numbers
