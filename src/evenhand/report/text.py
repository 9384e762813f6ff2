"""An audit in plain English: a paragraph to act on, and a table to check it against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from ..data.criteria import get_criterion
from ..measures.measures import OPEN
from .formats import clean, number, short_names

if TYPE_CHECKING:
    from ..auditing.imputed import Imputation
    from ..auditing.result import Audit, AuditSet
    from ..measures.measures import Measure


# Where words change; shares of the uncertainty about the group. Not thresholds of any law.
SMALL, LARGE = 0.01, 0.10
_GRADES = ("undefined", "holds", "unclear", "slight", "unsized", "clear", "strong")


def grade(measure: Measure) -> str:
    """How bad it is: "undefined", "holds", "unclear", "slight", "unsized", "clear", "strong"."""
    if not measure.defined:
        return "undefined"
    if not measure.found:
        return "holds" if measure.interval[1] <= SMALL else "unclear"
    if measure.unsized:
        return "unsized"
    if measure.value < SMALL:
        return "slight"
    return "clear" if measure.value < LARGE else "strong"


def verdict(measure: Measure) -> str:
    """One sentence on one criterion, to follow its name."""
    if not measure.defined:
        criterion = get_criterion(measure.criterion)
        given = criterion.words(criterion.given)
        return (
            f"has nothing to measure here: the {given} by itself gives the group away, so that the "
            "value is not defined."
        )
    low, high = (100 * v for v in measure.interval)
    found = f"{measure.meaning} (between {low:.1f}% and {high:.1f}%)"
    level = grade(measure)
    tested = not math.isnan(measure.p_value)
    advice = f" {measure.conflict}." if measure.conflict else ""
    if level == "holds":
        return f"holds as far as these data can tell: {found}.{advice}"
    if level == "unclear" and advice:
        return f"is left open: {found}, p {_p_with_sign(measure.p_value)}.{advice}"
    if level == "unclear":
        chance = (
            f", which chance alone could produce (p {_p_with_sign(measure.p_value)})"
            if tested
            else ""
        )
        return f"is left open, {OPEN}: {found}{chance}."
    p = f", p {_p_with_sign(measure.p_value)}" if tested else ""
    if level == "unsized":
        return f"is violated, by how much is not known: {found}{p}.{advice}"
    size = {"slight": "slightly", "clear": "clearly", "strong": "strongly"}[level]
    return f"is {size} violated: {found}{p}.{advice}"


def worst_part(audit: Audit, criterion: str) -> tuple[str, Measure]:
    """Which part of an audit decides on a criterion: the one violated most."""
    parts = audit.parts(criterion)
    order = list(_GRADES)
    return max(parts.items(), key=lambda part: (order.index(grade(part[1])), part[1].value))


def judgment(audit: Audit, criterion: str) -> str:
    """One sentence on one criterion, the worst of a crossing and its parts."""
    own = audit.measures[criterion]
    name, found = worst_part(audit, criterion)
    if found is own:
        return verdict(own)
    return (
        f"{verdict(found)} This is of {clean(name)}; crossed into {len(audit.labels)} groups the "
        f"value is {fixed(own.shown)}, as more groups leave more to tell."
    )


def part_rows(audit: Audit) -> list[list[str]]:
    """A crossing and its parts, one row each: the name, and value ± standard error by criterion.

    Empty where nothing was crossed.
    """
    if not audit.attributes and not audit.one_against_rest:
        return []
    rows: dict[str, list[str]] = {}
    for j, m in enumerate(audit.measures.values()):
        for name, found in audit.parts(m.criterion).items():
            row = rows.setdefault(name, [""] * len(audit.measures))
            row[j] = f"{found.shown:.4f} ± {found.stderr:.4f}"
    return [[name, *cells] for name, cells in rows.items()]


PARTS = "Crossing spreads a difference over more groups; the verdict is the worst of these:"


def accuracy(r2: float) -> str:
    """R² in a sentence."""
    if r2 <= 0:
        return (
            f"The score predicts the target no better than the target's mean would (R² {r2:.3f})."
        )
    return f"The score explains {100 * r2:.1f}% of the variance of the target (R²)."


def negative_scores(audit: Audit) -> str:
    """That scores lie where the target cannot."""
    known = audit.n_rows - audit.n_unknown
    share = 100 * audit.n_negative / known
    return f"{audit.n_negative:,} scores ({share:.2g}%) are negative, and the target never is."


def fixed(value: float, places: int = 4) -> str:
    """A number to so many places, without "-0.0000"."""
    return f"{round(value, places) + 0.0:.{places}f}"


def is_measured(audit: Audit) -> bool:
    """Whether the measures are of a measurement, of which the groups are bands."""
    return any(m.of == "measurement" for m in audit.measures.values())


def part_word(audit: Audit) -> str:
    """What rows are tabled and drawn by: groups, or bands of a measurement."""
    return "band" if is_measured(audit) else "group"


def unknown_words(audit: Audit) -> str:
    """What rows without one lack."""
    return "known value" if is_measured(audit) else "known group"


def row_count(n_rows: int, n_clusters: int | None) -> str:
    """So many rows, and in how many clusters."""
    return f"{n_rows:,} rows" + ("" if n_clusters is None else f" in {n_clusters:,} clusters")


def describe(audit: Audit) -> str:
    """The paragraph and the tables behind ``str(audit)``."""
    known = audit.n_rows - audit.n_unknown
    title = "Fairness audit" + (f" of {short_names([audit.name], 60)[0]}" if audit.name else "")
    name = short_names([audit.sensitive_name], 60)[0]
    what = f"{len(audit.labels)} groups of '{name}' ({_listing(audit.labels)})"
    if is_measured(audit):
        what = (
            f"'{name}' as a measurement. Values are 1 − exp(−2·nats), the share of its variance "
            f"explained if all is normal; tables are by {len(audit.labels)} bands of about equal "
            "size"
        )
    lines = [f"{title}: {row_count(known, audit.n_clusters)}, {what}."]
    if audit.n_unknown:
        lines.append(
            f"{audit.n_unknown:,} rows ({100 * audit.n_unknown / audit.n_rows:.1f}%) have no "
            f"{unknown_words(audit)} and are left out."
        )
    if not math.isnan(audit.r2):
        lines.append(accuracy(audit.r2))
    if audit.n_negative:
        lines.append(negative_scores(audit))
    lines.append("")
    if audit.conditional is not None:
        lines += [str(audit.conditional), ""]
    if audit.pricing is not None:
        lines += [str(audit.pricing), ""]
    lines += [f"{get_criterion(name).title} {judgment(audit, name)}" for name in audit.measures]
    lines.append("")
    percent = f"{100 * audit.confidence_level:g}%"
    lines += _table(
        ["criterion", "value", f"{percent} interval", "p (exactly fair)", "estimated by"],
        [
            [
                m.criterion,
                fixed(m.shown),
                f"{m.interval[0]:.4f} to {m.interval[1]:.4f}",
                p_text(m.p_value),
                m.chosen,
            ]
            for m in audit.measures.values()
        ],
    )
    lines.append("")
    parts = part_rows(audit)
    if parts:
        short = short_names([row[0] for row in parts], 29)
        cells = [[name, *row[1:]] for name, row in zip(short, parts, strict=True)]
        lines += [PARTS, *_table(["", *audit.measures], cells), ""]
    wanted = {
        "group": "group", "n": "rows", "n_clusters": "clusters", "share": "share",
        "mean_score": "mean score",
        "sd_score": "sd score", "mean_target": "mean target", "mean_residual": "mean residual",
        "rmse": "RMSE", "calibration_slope": "calibration",
    }  # fmt: skip
    columns = {**audit._groups.columns}
    columns["group"] = list(short_names(columns["group"], 40))
    names = [name for name in wanted if name in columns]
    rows = [[_cell(name, columns[name][k]) for name in names] for k in range(len(columns["group"]))]
    lines += _table([wanted[name] for name in names], rows)
    gaps = audit.disparities
    lines += [
        "",
        f"Mean scores differ by up to {gaps.mean_score_gap:.4g}; the distributions of scores by up "
        f"to {gaps.kolmogorov_smirnov:.3f} (Kolmogorov-Smirnov) and {gaps.wasserstein:.4g} "
        "(Wasserstein, in units of the score).",
    ]
    if audit.imputation is not None:
        lines += ["", *(fill(text, 80) for text in imputation_words(audit.imputation))]
    return "\n".join(lines)


def imputation_words(found: Imputation, limit: int = 6) -> list[str]:
    """What imputed membership leaves open, in sentences."""
    words = [
        "Groups are given as probabilities, which remove "
        f"{100 * found.certainty:.0f}% of the uncertainty about them. All values above hold if, "
        "among people of the same probabilities, the score has nothing to do with the group. Where "
        "it has, a disparity is left out, and values are too small."
    ]
    percent = f"{100 * found.confidence_level:g}%"
    for gap in found.gaps[:limit]:
        name, reference = short_names([gap.group, gap.reference], 40)
        words.append(
            f"Mean score of {name} less that of {reference}: {number(gap.value, 3)} "
            f"({number(gap.interval[0], 3)} to {number(gap.interval[1], 3)}) if that is so; "
            f"between {number(gap.bounds[0], 3)} and {number(gap.bounds[1], 3)} whatever is so "
            f"({percent} confidence)."
        )
    if len(found.gaps) > limit:
        words.append(f"{len(found.gaps) - limit} more groups are in the result's `imputation`.")
    return words


def describe_set(audits: AuditSet) -> str:
    """Several audits side by side: one line each, one column per criterion."""
    criteria = list(next(iter(audits.values())).measures)
    rows = []
    for name, audit in zip(short_names(list(audits), 40), audits.values(), strict=True):
        cells = [
            f"{fixed(m.shown)} ({m.interval[0]:.3f} to {m.interval[1]:.3f})"
            for m in audit.measures.values()
        ]
        rows.append([name, f"{audit.r2:.4f}", *cells])
    percent = f"{100 * next(iter(audits.values())).confidence_level:g}%"
    lines = [f"Fairness by {audits.kind}, with {percent} intervals (0 is fair, 1 is not):", ""]
    lines += _table([audits.kind, "R²", *criteria], rows)
    return "\n".join(lines)


def _listing(labels: Sequence[str], limit: int = 6) -> str:
    shown = ", ".join(short_names(labels[:limit], 40))
    return shown if len(labels) <= limit else f"{shown} and {len(labels) - limit} more"


def p_text(p: float) -> str:
    """A p-value for a table."""
    if math.isnan(p):
        return "n/a"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _p_with_sign(p: float) -> str:
    return p_text(p) if p < 0.001 else f"= {p_text(p)}"


def _cell(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if name in ("n", "n_clusters"):
        return f"{value:,.0f}"
    if value != value:
        return "n/a"
    if name == "share":
        return f"{100 * value:.1f}%"
    # Residuals of a model fitted with group indicators are zero up to rounding.
    return "0" if abs(value) < 1e-12 else f"{value:.4g}"


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[j]) for row in [header, *rows]) for j in range(len(header))]
    out = ["  ".join(text.ljust(w) for text, w in zip(header, widths, strict=True)).rstrip()]
    out.append("  ".join("-" * w for w in widths))
    out += [
        "  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return out
