"""The commands `audit` and `compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._core.files import TableError
from ..data.criteria import CRITERIA
from ..report.formats import number, short_names
from ..report.verdict_views import (
    apart_note,
    impact_cells,
    impact_notes,
    verdict_notes,
    verdict_rows,
    verdict_sentence,
)
from .rows import TableRows, Vector
from .terminal import (
    LIMIT_MISSED,
    NOT_ENOUGH_DATA,
    command,
    say,
    show_audit,
    show_conditional,
    show_parts,
    show_pricing,
    show_set,
    show_table,
)

if TYPE_CHECKING:
    from ..auditing.impact import Impact
    from ..auditing.result import Audit, AuditSet
    from ..auditing.tolerance import Tolerance
    from ..auditing.verdict import Verdict


def parse_limits(options: Sequence[str], has_target: bool) -> dict[str, float]:
    """``separation=0.05`` → {"separation": 0.05}."""
    limits: dict[str, float] = {}
    for text in options:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or name not in CRITERIA:
            raise TableError(
                f"--fail-above must be CRITERION=LIMIT with one of {', '.join(CRITERIA)}, got "
                f"{text!r}. Hint: --fail-above separation=0.05"
            )
        try:
            limits[name] = float(value)
        except ValueError:
            limits[name] = float("nan")
        if not 0 <= limits[name] <= 1:
            raise TableError(
                f"--fail-above must have a limit between 0 and 1, got {value!r} for {name}."
            )
        if "y" in CRITERIA[name].needs and not has_target:
            raise TableError(f"--fail-above {name} needs --target: it compares true outcomes.")
    return limits


def check_limits(
    found: Audit | AuditSet, limits: Mapping[str, float], judge_by: str
) -> list[dict[str, Any]]:
    """One entry per limit, audit and part of it: a crossing must not hide what it is made of."""
    from ..auditing.verdict import information_parts

    checks = []
    for (name, criterion), part, m, _ in information_parts(audits_of(found), limits):
        limit = limits[criterion]
        ends = {"value": m.value, "lower": m.interval[0], "upper": m.interval[1]}
        checks.append(
            {
                "audit": name,
                "part": part,
                "criterion": criterion,
                "limit": limit,
                "judged_by": judge_by,
                "judged": ends[judge_by],
                "passed": bool(ends[judge_by] <= limit),
            }
        )
    return checks


def audits_of(found: Audit | AuditSet) -> dict[str, Audit]:
    from ..auditing.result import AuditSet

    return dict(found) if isinstance(found, AuditSet) else {"": found}


def run_audit(
    rows: TableRows, prediction: str, each: bool, estimator: str, confidence: float, seed: int,
    reference: str | None = None, loss: str | None = None, power: float = 1.5,
) -> Any:  # fmt: skip
    """An Audit, or an AuditSet with `each`."""
    from ..auditing.audits import audit

    return audit(
        rows.y, rows.scores[prediction], sensitive_features=rows.who,
        sample_weight=rows.weight, frequency=rows.frequency, cluster=rows.cluster,
        controls=rows.control_columns, reference=reference or "largest",
        exposure=rows.more.get("exposure"), loss=loss, power=power,
        estimator=estimator, confidence_level=confidence, random_state=seed,
        per_attribute=each and len(rows.sensitive) > 1,
    )  # fmt: skip


def write_audit(
    found: Any,
    path: Path,
    facts: dict[str, Any],
    force: bool,
    verdicts: Mapping[str, Any] | None = None,
    impacts: Mapping[str, Any] | None = None,
    favorable: str | None = None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """The HTML report of an audit or of several."""
    from ..auditing.result import AuditSet
    from ..report.page import audit_page, audit_set_page, write_page

    if isinstance(found, AuditSet):
        text = audit_set_page(
            found, about=about, source=facts, verdicts=verdicts, impacts=impacts,
            favorable=favorable,
        )  # fmt: skip
    else:
        one = {"verdict": (verdicts or {}).get(""), "impact": (impacts or {}).get("")}
        text = audit_page(found, about=about, source=facts, favorable=favorable, **one)
    write_page(text, path, force)


def about(
    title: str | None, owner: str | None, purpose: str | None, model_name: str | None,
    period: str | None, note: str | None,
) -> dict[str, str | None]:  # fmt: skip
    """What a report is about, as its options say."""
    return {
        "title": title, "owner": owner, "purpose": purpose, "model_name": model_name,
        "period": period, "note": note,
    }  # fmt: skip


def show_found(found: Any, title: str) -> None:
    """Print an audit, or several."""
    for name, audit in audits_of(found).items():
        show_audit(audit, f"{title}, {name}" if name else title)
        say("")


def show_checks(checks: Sequence[Mapping[str, Any]]) -> None:
    """Print which limits are met."""
    for check in checks:
        sign = "✓ within" if check["passed"] else "✕ above"
        named = [check[key] for key in ("audit", "part") if check[key]]
        where = f" ({', '.join(named)})" if named else ""
        say(
            f"{check['criterion']}{where}: {check['judged_by']} {check['judged']:.4f} {sign} the "
            f"limit {check['limit']:g}",
            "green" if check["passed"] else "bold red",
        )


def run_compare(
    rows: TableRows, scores: Mapping[str, Vector], estimator: str, confidence: float, seed: int,
    loss: str | None = None, power: float = 1.5,
) -> Any:  # fmt: skip
    """An AuditSet, one audit per model."""
    from ..auditing.audits import audit

    return audit(
        rows.y, dict(scores), sensitive_features=rows.who, sample_weight=rows.weight,
        frequency=rows.frequency, cluster=rows.cluster, controls=rows.control_columns,
        exposure=rows.more.get("exposure"), loss=loss, power=power, estimator=estimator,
        confidence_level=confidence, random_state=seed,
    )  # fmt: skip


def show_compare(found: AuditSet, favorable: str | None = None) -> None:
    """Measures side by side, then who gains and who loses."""
    from ..auditing.changes import gains_of

    first = next(iter(found))
    show_set(found)
    for name, audit in found.items():
        parts = [audit.attributes, audit.pricing, audit.conditional]
        if any(part for part in parts):
            say(f"\n{name}:", "bold")
        if audit.pricing is not None:
            show_pricing(audit.pricing)
        if audit.conditional is not None:
            show_conditional(audit.conditional)
        if audit.attributes:
            show_parts(audit)
    for name in list(found)[1:]:
        table = gains_of(found[first], found[name], favorable)
        say(f"\nChange of scores from {first} to {name}:", "bold")
        rows = [
            [
                group,
                number(table["mean"][k], 3),
                f"{number(table['q05'][k], 3)} to {number(table['q95'][k], 3)}",
                f"{100 * table['gain'][k]:.0f}%",
                f"{100 * table['loss'][k]:.0f}%",
            ]
            for k, group in enumerate(short_names(table["group"], 40))
        ]
        ends = ["rises", "falls"] if favorable is None else ["gain", "lose"]
        show_table(["group", "mean change", "middle 90%", *ends], rows)


# ------------------------------------------------------------------------------------------------
# Tolerances, verdicts and the impact table on the command line.


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
    from ..auditing.impact import read_cutoffs
    from ..auditing.tolerance import Tolerance

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
    from ..auditing.tolerance import Tolerance, range_text

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
