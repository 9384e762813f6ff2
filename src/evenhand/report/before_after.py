"""What a selected model does to every criterion and every group, beside the model it replaces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..auditing.group_moments import AuditedRows
from ..information.criteria import get_criterion
from .curves import number, short_names, with_margin
from .markup import Html, csv_link, element, label, table
from .money import gap_words, has_percent
from .text import fixed

if TYPE_CHECKING:
    from ..auditing.result import Audit
    from ..frontier.path import FairnessPath

WORSE, OVERLAP = "worse", "worse; the intervals overlap"
# Changes that would not show in the tables are none.
_LEAST = 5e-4


def criterion_changes(before: Audit, after: Audit) -> dict[str, list[Any]]:
    """Every criterion before and after, with a remark where it is worse."""
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("criterion", "before", "before_low", "before_high", "after", "after_low",
                     "after_high", "remark")
    }  # fmt: skip
    for name, old in before.measures.items():
        new = after.measures[name]
        overlap = old.interval[0] <= new.interval[1] and new.interval[0] <= old.interval[1]
        worse = new.shown - old.shown > _LEAST
        values = [name, old.shown, *old.interval, new.shown, *new.interval]
        values.append((OVERLAP if overlap else WORSE) if worse else "")
        for key, value in zip(columns, values, strict=True):
            columns[key].append(value)
    return columns


def residual_changes(before: Audit, after: Audit) -> dict[str, list[Any]]:
    """Outcome minus score of each group before and after; further from 0 is worse.

    The change is that of the mean score of the same people, whose error is far smaller than that of
    either residual: a remark is made where it is more than chance.
    """
    old, new = before._groups.columns, after._groups.columns
    columns: dict[str, list[Any]] = {"group": list(old["group"])}
    for when, source in (("before", old), ("after", new)):
        for end in ("", "_low", "_high"):
            columns[f"{when}{end}"] = list(source[f"mean_residual{end}"])
    error = _change_errors(before, after)
    columns["remark"] = [
        WORSE if abs(x) < abs(y) and not abs(y - x) <= 1.96 * e else ""
        for x, y, e in zip(columns["before"], columns["after"], error, strict=True)
    ]
    return columns


def _change_errors(before: Audit, after: Audit) -> list[float]:
    """Standard error of the mean change of score of each group."""
    first, second = before._rows, after._rows
    assert isinstance(first, AuditedRows)
    assert isinstance(second, AuditedRows)
    moments = first.change(second).moments((), "high")
    return np.sqrt(np.einsum("kk->k", moments.covariance[0, :, 0, :])).tolist()


def worse_words(criteria: dict[str, list[Any]], residuals: dict[str, list[Any]]) -> str:
    """What the selected model makes worse, in a sentence."""
    found = []
    for k, remark in enumerate(criteria["remark"]):
        if remark:
            found.append(
                f"{criteria['criterion'][k]} (from {fixed(criteria['before'][k], 3)} to "
                f"{fixed(criteria['after'][k], 3)})"
            )
    names = short_names(residuals["group"], 40)
    for k, remark in enumerate(residuals["remark"]):
        if remark:
            side = "above" if residuals["after"][k] < 0 else "below"
            found.append(
                f"{names[k]} is scored further {side} its outcomes (outcome minus score from "
                f"{number(residuals['before'][k], 3)} to {number(residuals['after'][k], 3)})"
            )
    if not found:
        return "No criterion gets worse, and no group's mean residual by more than chance."
    return f"What gets worse: {'; '.join(found)}."


def before_after_section(path: FairnessPath, audits: Sequence[Audit], chosen: int) -> Html:
    """Criteria and residuals, before and after."""
    before, after = audits[0], audits[chosen]
    criteria, residuals = criterion_changes(before, after), residual_changes(before, after)
    points = [path.points[k] for k in (0, chosen)]
    accuracies = [with_margin(p.accuracy, p.accuracy_interval[1] - p.accuracy) for p in points]
    rows: list[list[Any]] = [[path.accuracy.symbol, *accuracies, ""]]
    for k, name in enumerate(criteria["criterion"]):
        cells = [
            f"{fixed(criteria[w][k], 3)} ({criteria[f'{w}_low'][k]:.3f} to "
            f"{criteria[f'{w}_high'][k]:.3f})"
            for w in ("before", "after")
        ]
        rows.append([get_criterion(name).title, *cells, criteria["remark"][k]])
    groups: list[list[Any]] = []
    for k, group in enumerate(residuals["group"]):
        cells = [
            with_margin(residuals[w][k], residuals[w][k] - residuals[f"{w}_low"][k])
            for w in ("before", "after")
        ]
        groups.append([label(group, 60), *cells, residuals["remark"][k]])
    header = ["Before: no fairness term", "After: selected model", "Remark"]
    percent = f"{100 * path.confidence_level:g}%"
    return element(
        "section",
        element("h2", "What the selected model changes"),
        element("p", worse_words(criteria, residuals), class_="lead"),
        table(
            ["Criterion", *header], rows,
            caption=f"Every criterion, with {percent} intervals (0 fair, 1 not)",
        ),
        csv_link(criteria, "criteria.csv"),
        table(
            ["Group", *header], groups,
            caption="Outcome minus score, by group: below 0 the group is scored higher than its "
            f"outcomes bear out (± half the {percent} interval)",
        ),
        csv_link(residuals, "residuals.csv"),
    )  # fmt: skip


def gap_changes(before: Audit, after: Audit, favorable: str | None = None) -> Html:
    """Mean scores against the largest group, before and after."""
    both = [audit.impact(at=(), favorable=favorable or "high") for audit in (before, after)]
    reference = both[0].reference
    rows: list[list[Any]] = []
    for group in both[0].groups:
        if group == reference:
            continue
        cells: list[Any] = [label(group, 60)]
        for impact in both:
            gap, ratio = (impact.get(s, group) for s in ("mean_difference", "mean_ratio"))
            percent = f", {100 * (ratio.value - 1):+.3g}%" if has_percent(impact, group) else ""
            ends = f"{number(gap.low, 3)} to {number(gap.high, 3)}"
            cells.append(f"{number(gap.value, 3)} ({ends}){percent}")
        rows.append(cells)
    first = max(
        (g for g in both[0].groups if g != reference),
        key=lambda g: _finite(both[0].get("mean_difference", g).value) * (g not in both[0].apart),
    )
    return element(
        "section",
        element("h2", "The gap in units of the score"),
        element("p", "Before: ", gap_words(both[0], first, favorable), class_="lead"),
        element("p", "After: ", gap_words(both[1], first, favorable), class_="lead"),
        table(
            ["Group", "Before: no fairness term", "After: selected model"], rows,
            caption=f"Mean score less that of {short_names([reference], 60)[0]}, with "
            f"{100 * before.confidence_level:g}% intervals",
        ),
    )  # fmt: skip


def _finite(value: float) -> float:
    return abs(value) if math.isfinite(value) else 0.0
