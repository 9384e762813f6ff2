"""The commands `audit` and `compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files.tabular import TableError
from ...information.criteria import CRITERIA
from ...report.curves import number, short_names
from .rows import TableRows, Vector
from .terminal import (
    say,
    show_audit,
    show_conditional,
    show_parts,
    show_pricing,
    show_set,
    show_table,
)

if TYPE_CHECKING:
    from ...auditing.result import Audit, AuditSet


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
    from ...auditing.verdict import information_parts

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
    from ...auditing.result import AuditSet

    return dict(found) if isinstance(found, AuditSet) else {"": found}


def run_audit(
    rows: TableRows, prediction: str, each: bool, estimator: str, confidence: float, seed: int,
    reference: str | None = None, loss: str | None = None, power: float = 1.5,
) -> Any:  # fmt: skip
    """An Audit, or an AuditSet with `each`."""
    from ...auditing.audits import audit

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
    from ...auditing.result import AuditSet
    from ...report.html import audit_page, audit_set_page, write_page

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
    from ...auditing.audits import audit

    return audit(
        rows.y, dict(scores), sensitive_features=rows.who, sample_weight=rows.weight,
        frequency=rows.frequency, cluster=rows.cluster, controls=rows.control_columns,
        exposure=rows.more.get("exposure"), loss=loss, power=power, estimator=estimator,
        confidence_level=confidence, random_state=seed,
    )  # fmt: skip


def show_compare(found: AuditSet, favorable: str | None = None) -> None:
    """Measures side by side, then who gains and who loses."""
    from ...report.sections import gains_of

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
