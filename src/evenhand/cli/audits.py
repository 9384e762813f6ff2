"""The commands `audit`, `compare` and `tolerance`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._core.files import TableError, write_text
from ..report.view import Table, View, view_of
from . import options as group
from .options import as_number, option, parse_limits
from .rows import TableRows, load_models, load_scores
from .tables import Asked
from .terminal import command, leave, note, run_facts, say, say_json, show_result, show_view

if TYPE_CHECKING:
    from ..auditing.impact import Impact
    from ..auditing.result import Audit, AuditSet
    from ..auditing.verdict import Verdict


def check_limits(audits: Mapping[str, Audit], rules: group.Judging) -> list[dict[str, Any]]:
    """One entry per limit, audit and part of it: a crossing must not hide what it is made of.

    A limit that is met by data that cannot carry a pass is "not enough data", as in a verdict, and
    what would be without weights and frequencies stands beside it.
    """
    from ..auditing.tolerance import Tolerance
    from ..auditing.verdict import HOLDS, ClauseResult, information_parts, withhold

    checks = []
    for (name, criterion), part, m, _ in information_parts(audits, rules.limits):
        limit, by = rules.limits[criterion], rules.judge_by
        value = {"value": m.value, "lower": m.interval[0], "upper": m.interval[1]}[by]
        why = ""
        if not m.defined:
            why = "there is nothing to measure"
        elif value <= limit and m.unsized:
            why = "a test finds a difference that the estimate is too coarse to size"
        elif value <= limit and m.interval[1] >= 1.0:
            why = "the value may be anything from 0 to 1"
        elif value <= limit:
            clause = ClauseResult(
                criterion, part or "", (0.0, limit), value=value, interval=(value, value),
                judged=HOLDS,
            )  # fmt: skip
            limits: dict[str, Any] = {criterion: limit}
            why = withhold(audits[name], clause, Tolerance(**limits)).note
        outcome = "not enough data" if why else "pass" if value <= limit else "fail"
        checks.append({
            "audit": name, "part": part, "criterion": criterion, "limit": limit, "judged_by": by,
            "judged": value, "passed": outcome == "pass", "outcome": outcome, "note": why,
            "unweighted": _unweighted(audits[name], criterion, rules),
        })  # fmt: skip
    return checks


def _unweighted(audit: Audit, criterion: str, rules: group.Judging) -> str:
    """The outcome of a limit without weights and frequencies; "" where there are none."""
    if audit._unweighted is None:
        return ""
    alone = replace(rules, limits={criterion: rules.limits[criterion]})
    try:
        outcomes = {check["outcome"] for check in check_limits({"": audit._unweighted()}, alone)}
    except ValueError:  # such as too few rows, where each stands for many people
        return "not enough data"
    return next(word for word in ("fail", "not enough data", "pass") if word in outcomes)


def audits_of(result: Audit | AuditSet) -> dict[str, Audit]:
    from ..auditing.result import AuditSet

    return dict(result) if isinstance(result, AuditSet) else {"": result}


@command
def audit(
    files: group.AuditedFiles, columns: group.AuditColumns, pricing: group.Pricing,
    judging: group.Judging, about: group.About, measuring: group.Measuring, output: group.Output,
    counting: group.Counting,
) -> None:  # fmt: skip
    """Measure the fairness of the scores in a file, with intervals.

    Three senses of fairness are measured, each from 0 (fair) to 1: independence (scores look the
    same in every group), separation (people with the same outcome are scored alike) and sufficiency
    (the same score means the same outcome).

    For example: evenhand audit scores.csv --target y --prediction s --sensitive race --html
    report.html

    To stop a pipeline at a limit: evenhand audit scores.csv -y y -s s -a race
    --fail-above separation=0.05

    Tables beyond memory: evenhand audit "data/*.parquet" -y y -s s -a race

    Prices: evenhand audit policies.csv -y claims -s rate -a sex --exposure years --loss poisson

    Groups inferred from surname and address: evenhand audit loans.csv -s rate --probability white
    --probability black --probability other
    """
    if columns.probability and columns.sensitive:
        raise typer.BadParameter("--probability is in place of --sensitive: give one of them.")
    table = Asked(files, counting.engine, columns, {"loss": pricing.loss})
    rules = read_rules(judging, table.has_target())
    data = table if table.counted else load_scores(Path(files[0]), columns)
    result = run_audit(data, measuring, pricing, judging)

    def show() -> None:
        for name, one in audits_of(result).items():
            show_result(one, title=", ".join([*files, *([name] if name else [])]))
            say("")

    _conclude(result, data, rules, about, output, measuring.seed, show)


def _conclude(
    result: Any, data: TableRows | Asked, rules: group.Judging, about: group.About,
    output: group.Output, seed: int, show: Callable[[], None],
) -> None:  # fmt: skip
    """Judge audits, show or write all there is, and leave with the code of the worst."""
    from ..report.audit_views import audit_page, results_by_audit

    audits = audits_of(result)
    known = with_dropped(audits, data.dropped)
    checks, verdicts = check_limits(known, rules), judged(known, rules, data.dropped)
    compared = impacts(audits, rules)
    if output.html is not None:
        facts = {**data.source_facts(), **run_facts(seed, rules.tolerance)}
        page = audit_page(
            result, verdicts=verdicts, impacts=compared, favorable=rules.favorable,
            about=asdict(about), source=facts,
        )  # fmt: skip
        write_text(output.html, page, output.force)
    if output.json_:
        whole = {**result.to_dict(), "checks": checks, "provenance": data.provenance()}
        say_json(whole | results_by_audit(verdict=verdicts, impact=compared))
    else:
        for name, verdict in verdicts.items():
            show_verdict(verdict, name)
        for check in checks:
            if check["unweighted"] not in ("", check["outcome"]):
                say(
                    f"Without weights and frequencies: {check['unweighted']}. {_check_words(check)}"
                )
        show()
        for groups in compared.values():
            show_result(groups)
        for check in checks:
            say(_check_words(check), _STYLES[check["outcome"]])
        if output.html is not None:
            say(f"Report: {output.html}")
    leave(*(v.outcome for v in verdicts.values()), *(check["outcome"] for check in checks))


def run_audit(
    data: TableRows | Asked, measuring: group.Measuring, pricing: group.Pricing,
    judging: group.Judging,
) -> Any:  # fmt: skip
    """An Audit, or with `--each` those of several attributes and of their crossing."""
    from ..auditing.result import AuditSet

    if isinstance(data, Asked):
        for file, text in data.left_out.items() if data.are_cells else ():
            note(f"{file}: {text}")
        whole = data.audit(measuring, judging)
    else:
        (scores,) = data.scores.values()
        whole = data.audit(scores, measuring, pricing, reference=judging.reference or "largest")
    if not (judging.each and whole.attributes):
        return whole
    parts, plain = dict(whole.attributes), whole._unweighted
    for name, part in parts.items() if plain is not None else ():
        again = partial(lambda name: plain().attributes[name], name)
        parts[name] = replace(part, counted_by=whole.counted_by, _unweighted=again)
    return AuditSet({**parts, whole.sensitive_name: whole}, "attribute")


def _check_words(check: Mapping[str, Any]) -> str:
    """Whether a limit is met."""
    named = ", ".join(check[key] for key in ("audit", "part") if check[key])
    sign = "✕ above" if check["judged"] > check["limit"] else "✓ within"
    return (
        f"{check['criterion']}{f' ({named})' if named else ''}: {check['judged_by']} "
        f"{check['judged']:.4f} {sign} the limit {check['limit']:g}"
        + (f", but not enough data: {check['note']}" if check["note"] else "")
    )


@command
def compare(
    file: group.OneFile, columns: group.ModelColumns, pricing: group.Pricing,
    about: group.About, measuring: group.Measuring, output: group.Output, gate: group.Gate,
) -> None:  # fmt: skip
    """Compare two or more models on the same rows: measures side by side, who gains, who loses.

    For example: evenhand compare scores.csv --target y --prediction old --prediction new
    --sensitive race
    """
    rules = read_rules(group.Judging(**asdict(gate)), columns.target is not None)
    data = load_models(file, columns)
    result = data.audit(dict(data.scores), measuring, pricing)
    show = partial(show_compare, result, rules.favorable)
    _conclude(result, data, rules, about, output, measuring.seed, show)


def show_compare(result: AuditSet, favorable: str | None = None) -> None:
    """Measures side by side, prices and controls by model, then who gains and who loses."""
    from ..report.audit_views import gains_view, part_tables

    show_result(result)
    for name, audit in result.items():
        parts = [part for part in (audit.pricing, audit.conditional) if part is not None]
        crossed = part_tables(audit) if audit.attributes else []
        if parts or crossed:
            say("")
            show_view(View(name, *map(view_of, parts), *crossed))
    say("")
    show_view(gains_view(result, favorable))


# ------------------------------------------------------------------------------------------------
# Tolerances, verdicts and the impact table on the command line.


_STYLES = {"pass": "bold green", "fail": "bold red", "not enough data": "bold yellow"}


def read_rules(judging: group.Judging, has_target: bool) -> group.Judging:
    """What is judged and by what, read and checked before any rows are."""
    from ..auditing.tolerance import Tolerance

    file, reference, favorable = judging.tolerance, judging.reference, judging.favorable
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
    if judging.impact and favorable is None:
        raise TableError(
            "--impact needs --favorable: high if a person is better off with a high score (a "
            "grade), low if with a low one (a premium, a risk)."
        )
    cutoffs: tuple[Any, ...] = (0.5,) if tolerance is None else tolerance.at or (0.5,)
    if judging.at:
        from ..auditing.impact import read_cutoffs

        given = read_cutoffs([as_number(text, text) for text in judging.at])
        cutoffs = tuple(float(cutoff.quantile or 0.0) for cutoff in given)
    limits = parse_limits("--fail-above", judging.fail_above, has_target)
    agreed = {} if tolerance is None else dict(tolerance.clauses)
    for name, limit in limits.items():
        if name in agreed and agreed[name][1] != limit:
            raise TableError(
                f"--fail-above allows {limit:g} of {name}, and {file} {agreed[name][1]:g}. Hint: "
                "keep the limit that was agreed on."
            )
    return replace(
        judging, rule=tolerance, favorable=favorable, reference=reference or "largest",
        cutoffs=cutoffs, limits=limits,
    )  # fmt: skip


def with_dropped(audits: Mapping[str, Audit], dropped: int) -> dict[str, Audit]:
    """Audits that count rows left out as unknown: they could hide as much."""
    return {
        name: replace(a, n_rows=a.n_rows + dropped, n_unknown=a.n_unknown + dropped)
        for name, a in audits.items()
    }


def judged(audits: Mapping[str, Audit], rules: group.Judging, dropped: int) -> dict[str, Verdict]:
    """Verdicts by audit; an attribute of a crossing is judged as a part of it."""
    if rules.rule is None:
        return {}
    parts = {part for audit in audits.values() for part in audit.attributes}
    verdicts = {n: a.verdict(rules.rule) for n, a in audits.items() if n not in parts}
    if not dropped:
        return verdicts
    told = f"{dropped:,} rows were left out by --drop-missing, and count as rows of unknown group."
    return {name: replace(v, remarks=(*v.remarks, told)) for name, v in verdicts.items()}


def impacts(audits: Mapping[str, Audit], rules: group.Judging) -> dict[str, Impact]:
    """Impact tables by audit."""
    if not rules.impact:
        return {}
    assert rules.favorable is not None
    groups = {group for audit in audits.values() for group in audit.labels}
    tables = {}
    for name, audit in audits.items():
        own = None if rules.reference in groups.difference(audit.labels) else rules.reference
        tables[name] = audit.impact(own or "largest", rules.cutoffs, rules.favorable)
    return tables


def show_verdict(verdict: Verdict, name: str = "") -> None:
    """The outcome, the clauses and the notes."""
    shown = view_of(verdict)
    assert shown.badge is not None
    show_view(shown, _STYLES[verdict.outcome], (f"{name}: " if name else "") + shown.badge[0])
    say("")


class Clauses(group.Cutoffs):
    """What is tolerated."""

    clause: list[str] = option(
        "Such as independence=0.01 or mean_ratio=0.95,1.05; an end may be left empty "
        "(impact_ratio=0.8,). May be given again. Without it, the file is read.",
        metavar="NAME=LIMIT",
        default=[],
    )
    reference: str = option("The group that others are compared with.", default="largest")
    level: float = option("Chance of a wrong verdict.", default=0.05)
    smallest: float = option("Groups of a smaller share are judged together.", default=0.02)


@command
def tolerance(
    file: Annotated[Path, typer.Argument(help="A file that ends in .toml or .json.")],
    writing: group.Writing,
    wanted: Clauses,
) -> None:
    """Write down what is tolerated, before the data are seen; or show what a file says.

    For example: evenhand tolerance limits.toml --clause independence=0.01 --clause
    mean_ratio=0.95,1.05

    Then: evenhand audit scores.csv -y y -s s -a race --tolerance limits.toml
    """
    from ..auditing.tolerance import Tolerance, distinct_entries, range_text

    if wanted.clause:
        made = Tolerance(
            level=wanted.level, reference=wanted.reference, favorable=wanted.favorable,
            at=[as_number(text, text) for text in wanted.at or ["median"]],
            smallest=wanted.smallest, **distinct_entries(map(_clause, wanted.clause)),
        )  # fmt: skip
        made.to_file(file, force=writing.force)
    else:
        made = Tolerance.from_file(file)
    rows = [[name, range_text(name, *ends)] for name, ends in made.clauses]
    title = f"{file}: level {100 * made.level:g}%, reference {made.reference}"
    show_view(View(title, Table(["clause", "tolerated"], rows), f"SHA-256 {made.digest}"))


def _clause(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    numbers = [as_number(end, text) if end.strip() else None for end in value.split(",")]
    if not sign or text in numbers or numbers == [None]:
        raise TableError(
            f"--clause must be NAME=LIMIT or NAME=LOW,HIGH, got {text!r}. Hint: --clause "
            "independence=0.01"
        )
    return name.strip(), numbers[0] if len(numbers) == 1 else numbers
