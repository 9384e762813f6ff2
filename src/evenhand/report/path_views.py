"""A fairness path: its view, and the page on which every point opens the model behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..auditing.figures import audits_of, criterion_changes, residual_changes, weight_name
from ..data.criteria import get_criterion
from .audit_views import (
    cards,
    density_charts,
    figure_grid,
    gains_view,
    group_cell,
    group_legend,
    group_table,
)
from .charts import Chart
from .gap_views import gap_changes_view
from .markup import Html, asset, element
from .page import About, signed_page
from .verdict_views import verdict_view
from .view import Lead, Name, Note, Table, View, bullets, facts, section
from .words import (
    fixed,
    group_name,
    half_width,
    largest_group,
    measured,
    number,
    part_word,
    people_words,
    percent,
    plus_minus,
    row_count,
    short_names,
    with_margin,
)

if TYPE_CHECKING:
    from ..auditing.result import Audit
    from ..auditing.tolerance import Tolerance
    from ..training.path import FairnessPath, Request


# Marks beside a weight, where words would not fit, and what they mean.
MARKS = {
    "→": "selected",
    "·": "another model is better in both",
    "~": "mixed: some folds give all people the same score",
}


def path_view(path: FairnessPath) -> View:
    """Return the frontier as a table that fits a terminal."""
    prefit = ", around a model that was fitted before" if path.fitted_before else ""
    name = short_names([path.sensitive_name], 60)[0]
    return View(
        f"Frontier of {path.accuracy.symbol} and {path.criterion}",
        f"{_path_counts(path)}, held out in {path.n_splits} folds{prefit}.",
        f"{name}: {', '.join(short_names(path.labels, 40))}.",
        *points_table(path),
    )


def _path_counts(path: FairnessPath) -> str:
    is_value = any(m.of == "measurement" for m in path.points[0].measures.values())
    unknown = f" ({path.n_unknown:,} of unknown {'value' if is_value else 'group'})"
    rows = row_count(path.n_rows, path.n_clusters) + (unknown if path.n_unknown else "")
    return f"{len(path)} models, {rows}"


def points_table(path: FairnessPath) -> list[Any]:
    """Return one row per model, with a mark before its weight, and what the marks mean."""
    rows = []
    for point, dominated, mixed in zip(path.points, path.dominated(), path.mixed, strict=True):
        mark = "→" if point is path.selected else "~" if mixed else "·" if dominated else " "
        rows.append([
            f"{mark} {point.fairness_weight:.4g}",
            f"{point.accuracy:.4f} ± {point.accuracy_interval[1] - point.accuracy:.4f}",
            *map(plus_minus, point.measures.values()),
        ])  # fmt: skip
    heads = ["  weight", path.accuracy.symbol, *path.criteria]
    caption = f"Models, held out ({half_width(path)})"
    used = {row[0][0] for row in rows}
    legend = [f"{mark} {text}" for mark, text in MARKS.items() if mark in used]
    legend.append(f"weight: of fairness against {path.accuracy.symbol}")
    return [Table(heads, rows, caption, path._columns(), "path.csv"), Note(f"{'; '.join(legend)}.")]


# ------------------------------------------------------------------------------------------------
# What a selected model does to every criterion and every group, beside the model it replaces.


_BEFORE_AFTER = ["before: no fairness term", "after: selected model"]


def changes_view(path: FairnessPath, before: Audit, after: Audit, chosen: int) -> View:
    """Return criteria and residuals, before and after."""
    criteria, residuals = criterion_changes(before, after), residual_changes(before, after)
    points = [path.points[k] for k in (0, chosen)]
    accuracies = [with_margin(p.accuracy, p.accuracy_interval[1] - p.accuracy) for p in points]
    rows = [[path.accuracy.symbol, *accuracies, ""]]
    for name, remark in zip(criteria["criterion"], criteria["remark"], strict=True):
        cells = [measured(audit.measures[name]) for audit in (before, after)]
        rows.append([get_criterion(name).title, *cells, remark])
    groups = []
    for k, group in enumerate(residuals["group"]):
        cells = [group_cell(a._groups.columns, "mean_residual", k) for a in (before, after)]
        groups.append([Name(group), *cells, residuals["remark"][k]])
    heads, level = [*_BEFORE_AFTER, "remark"], percent(path.confidence_level)
    return View(
        "What the selected model changes",
        Lead(worse_words(criteria, residuals)),
        Table(
            ["criterion", *heads], rows,
            f"All criteria, with {level} intervals (0 fair, 1 not)", criteria, "criteria.csv",
        ),
        Table(
            ["group", *heads], groups,
            "Outcome minus score, by group. Below 0 the scores are higher than the outcomes "
            f"({half_width(path)})", residuals, "residuals.csv",
        ),
    )  # fmt: skip


def worse_words(criteria: dict[str, list[Any]], residuals: dict[str, list[Any]]) -> str:
    """Return what the selected model makes worse, in a sentence."""
    worse = []
    for k, name in enumerate(criteria["criterion"]):
        if criteria["remark"][k]:
            old, new = criteria["before"][k], criteria["after"][k]
            places = 3 if new - old > 1e-3 else 4
            worse.append(f"{name} ({fixed(old, places)} → {fixed(new, places)})")
    for k, group in enumerate(residuals["group"]):
        if residuals["remark"][k]:
            side = "high" if residuals["after"][k] < 0 else "low"
            worse.append(
                f"scores of {group_name(group)} are too {side}, more than before (outcome minus "
                f"score {number(residuals['before'][k], 3)} → {number(residuals['after'][k], 3)})"
            )
    if not worse:
        return "No criterion gets worse, and no group's mean residual does by more than chance."
    return f"What gets worse: {'; '.join(worse)}."


# ------------------------------------------------------------------------------------------------
# The page.


def path_page(
    path: FairnessPath, *, about: About | Mapping[str, Any] | None = None,
    tolerance: Tolerance | None = None, favorable: str | None = None,
    source: Mapping[str, Any] | None = None, notes: Sequence[str] = (),
) -> str:  # fmt: skip
    """A path as a document.

    Parameters
    ----------
    path : FairnessPath
        As from :func:`evenhand.fairness_path`.
    about : About or mapping, optional
        Who asks and what for.
    tolerance : Tolerance, optional
        What the selected model is judged by.
    favorable : {"high", "low"}, optional
        Which change of a score is a gain; the tolerance's own when left out.
    source : mapping, optional
        Facts about the data to print.
    notes : sequence of str
        How the columns were prepared, one sentence each.
    """
    audits, asked = audits_of(path), About.of(about)
    best = int(np.argmax([p.accuracy for p in path.points]))
    chosen = next((k for k, point in enumerate(path.points) if point is path.selected), best)
    if asked.held_out is None:
        asked = replace(asked, held_out=f"yes, in {path.n_splits} folds")
    selected = path.selected is not None
    favorable = favorable or (None if tolerance is None else tolerance.favorable)
    before, after = audits[0], audits[chosen]
    body: list[Any] = []
    if tolerance is not None and selected:
        body.append(verdict_view(after.verdict(tolerance)))
    changed = selected and chosen > 0
    if changed:
        body.append(gap_changes_view(before, after, favorable, asked.unit or ""))
    body.append(_summary(path, audits, chosen))
    if changed:
        pair = {"the model without a fairness term": before, "the selected one": after}
        body += [changes_view(path, before, after, chosen), gains_view(pair, favorable)]
    body += [_selection(path, chosen), _frontier_view(path, chosen), _panels(path, audits, chosen),
             View("All models", *points_table(path))]  # fmt: skip
    if notes:
        body.append(View("How the columns were used", bullets([element("bdi", n) for n in notes])))
    model = "" if path._handle is None else path._handle.estimator
    facts = {"Criterion": path.criterion, "Model": model, "Measured with": path.measured_with,
             "Reference group": largest_group(before)}  # fmt: skip
    question = (
        f"What does it cost to make the score fairer to {people_words(after)} ({path.criterion}), "
        "and how does that change everyone's score?"
    )
    under = (
        f"{_path_counts(path)}, {len(path.labels)} {part_word(after)}s of "
        f"{short_names([path.sensitive_name], 80)[0]}, each model measured on rows it was not "
        f"fitted to ({path.n_splits} folds)"
    )
    heading = (f"The price of fairness: {path.criterion}", under, question)
    return signed_page(
        path.to_dict(), before, asked, source, heading, body, facts=facts,
        how=[_path_method(path)], caveats=_limits(path), script=asset("script.js"),
    )  # fmt: skip


def _summary(path: FairnessPath, audits: Sequence[Audit], chosen: int) -> View:
    name, symbol = path.criterion, path.accuracy.symbol
    first = path.points[0]
    fairest = min(path.points, key=lambda p: p.measure(name).value)
    text = (
        f"With no fairness term the model explains {100 * first.accuracy:.1f}% of the "
        f"{path.accuracy.unit} of the outcome ({symbol} {first.accuracy:.3f}), and {name} is "
        f"{first.measure(name).shown:.3f}. The fairest model has {name} "
        f"{fairest.measure(name).shown:.3f} and {symbol} {fairest.accuracy:.3f}."
    )
    if path.selected is None:
        unmet = f" No model meets what was asked, {path.request.limits()}." if path.request else ""
        more = " No model has been selected. Choose a point below to see what it would mean."
        return View("In short", Lead(text + unmet + more))
    point = path.points[chosen]
    cost = 100 * (first.accuracy - point.accuracy)
    m = point.measure(name)
    price = f"costs {cost:.1f} points of {symbol}" if cost >= 0.05 else "costs next to no accuracy"
    text += (
        f" The selected model has {name} {m.shown:.3f} (interval {m.interval[0]:.3f} to "
        f"{m.interval[1]:.3f}) and {symbol} {point.accuracy:.3f}: it {price}."
    )
    words = element("p", "The selected model, criterion by criterion:", class_="next")
    return View("In short", Lead(text), words, cards(audits[chosen]))


def _selection(path: FairnessPath, chosen: int) -> View:
    """The rule as it was applied, and whether the model meets it."""
    rows: list[tuple[str, Any]] = [("Models compared", f"{len(path)}")]
    request = path.request
    if request is None:
        rows.append(("Asked for", "nothing; no model was chosen"))
    else:
        best = "most accurate" if request.max_unfairness is not None else "fairest"
        rows += [
            ("Asked for", request.limits()),
            ("Judged", request.judge()),
            ("Chosen", f"the {best} model that meets it"),
        ]
        no_model = [("Result", "no model meets it")]
        rows += no_model if path.selected is None else _judged_rows(path, request, chosen)
    return View("How the model was chosen", facts(rows))


def _judged_rows(path: FairnessPath, request: Request, chosen: int) -> list[tuple[str, Any]]:
    u, accuracy = path._judged(request.criterion, request.certify)
    ends = ("upper bound of ", "lower bound of ") if request.certify else ("", "")
    met = request.choose(u[chosen : chosen + 1], accuracy[chosen : chosen + 1])[1]
    value = f"{ends[0]}{request.criterion} {fixed(u[chosen], 4)}, "
    value += f"{ends[1]}{path.accuracy.symbol} {accuracy[chosen]:.4f}"
    certificate = (
        f"with {percent(path.confidence_level)} confidence the bounds hold for all {len(path)} "
        "models at once, and so for the one picked"
    )
    return [
        ("Judged value", value),
        ("Meets it", "yes" if met else "no: it is the closest model"),
        ("Certificate", certificate if request.certify and met else "none"),
    ]


def _path_method(path: FairnessPath) -> View:
    prefit = (
        ". The model inside was fitted before, once for all parts; that it has seen none of these "
        "rows is what its user says (prefit=True)"
    )
    words = (
        f"The rows were split into {path.n_splits} parts. Each part was scored by models fitted to "
        f"the others, so no row is judged by a model that has seen it"
        f"{prefit if path.fitted_before else ''}. The fairness weight sets how much one point of "
        f"{path.criterion} counts against one point of {path.accuracy.symbol}."
    )
    return View("How the frontier was measured", words)


def _limits(path: FairnessPath) -> tuple[str, ...]:
    return (
        f"{len(path)} models were compared on the same rows. The one that looks best among many "
        "looks a little better than it is. Selection with certify=True (--certify) allows for "
        "that.",
        "The numbers are those of models fitted to part of the rows; the final model is fitted to "
        "all of them.",
    )


# ------------------------------------------------------------------------------------------------
# The frontier and the models behind its points.


_PANEL = ("n", "mean_score", "sd_score", "mean_target", "mean_residual", "rmse")


def _panels(path: FairnessPath, audits: Sequence[Audit], chosen: int) -> Html:
    """The models one by one, of which one is shown at a time."""
    charts = density_charts({f"model {k + 1}": audit for k, audit in enumerate(audits)}, 240)
    shown = []
    for k, (audit, chart) in enumerate(zip(audits, charts.values(), strict=True)):
        drawn = figure_grid({f"Scores by {part_word(audit)}": chart})
        parts = [drawn, group_table(audit, _PANEL, file=""), _request(path, k)]
        inner = section(View(_point_words(path, k), *parts), "h3")
        shown.append(element("article", inner, class_="panel", data_panel=k, hidden=k != chosen))
    return element("section", group_legend(audits[0]), *shown)


def _request(path: FairnessPath, k: int) -> Html | None:
    """What to ask for to be given this model, where asking can name it."""
    value = path.points[k].measure(path.criterion).value
    if value <= 0 or path.dominated()[k]:
        return None
    limit = math.ceil(value * 1e5) / 1e5
    return element(
        "p", "To be given this model: ", element("code", f"path.select(max_unfairness={limit:g})"),
        " in Python, or ", element("code", f"--max-unfairness {limit:g}"), " on the command line.",
        class_="note",
    )  # fmt: skip


def _frontier_view(path: FairnessPath, chosen: int) -> View:
    first, *others = [path.criterion, *(c for c in path.criteria if c != path.criterion)]
    return View(
        "What fairness costs",
        Note(
            "Each point is a model; further left is fairer, higher up is more accurate. Click "
            "a point, or reach it with the Tab and arrow keys, to see that model below. Bars "
            f"are {percent(path.confidence_level)} intervals, cut off where they leave the "
            "picture. For faded models another one is better in both respects."
        ),
        draw_frontier(path, first, chosen, 720, 380, "chart wide"),
        element("div", *(draw_frontier(path, n, chosen) for n in others), class_="figures"),
        asset("steps.html"),
    )


class Points(NamedTuple):
    """The models of a path by one criterion and accuracy, with intervals; `faded` are beaten."""

    u: Any
    ends: Any
    accuracy: Any
    margins: Any
    faded: Any


def frontier_points(path: FairnessPath, name: str) -> Points:
    """Return where a criterion and the accuracy of each model are."""
    measures = [p.measure(name) for p in path.points]
    return Points(
        np.array([m.shown for m in measures]), np.array([m.interval for m in measures]),
        np.array([p.accuracy for p in path.points]),
        np.array([p.accuracy_interval for p in path.points]), path.dominated(name),
    )  # fmt: skip


def frontier_chart(
    path: FairnessPath, name: str, width: int = 520, height: int = 300, look: str = "chart"
) -> Chart:
    """Return axes of accuracy against one criterion, with the line of the models not beaten."""
    u, ends, accuracy, margins, faded = frontier_points(path, name)
    symbol = path.accuracy.symbol
    left, right = _axis(u, ends, 0.02)
    chart = Chart(
        (min(left, -0.03 * right), right), _axis(accuracy, margins, 0.01), width=width,
        height=height, x_label=f"{name} (0 fair, 1 not)", y_label=f"held-out {symbol}",
        title=f"{symbol} against {name}", look=look,
    )  # fmt: skip
    front = np.flatnonzero(~faded)[np.argsort(u[~faded], kind="stable")]
    if len(front) > 1:
        chart.guide(u[front], accuracy[front], "frontier-line")
    return chart


def draw_frontier(path: FairnessPath, name: str, chosen: int, *how: Any) -> Html:
    """Return accuracy against one criterion; every point can be clicked."""
    chart, points = frontier_chart(path, name, *how), frontier_points(path, name)
    marks = []
    for k, point in enumerate(path.points):
        kind = "point" + (" dominated" if points.faded[k] else "")
        kind += " chosen" if point is path.selected else ""
        text = _point_words(path, k)
        marks.append(
            element(
                "g", element("title", text), *_mark(chart, points, k),
                class_=kind, role="radio", aria_checked="true" if k == chosen else "false",
                tabindex="0" if k == chosen else "-1", aria_label=text, data_point=k,
            )
        )  # fmt: skip
    label = f"Models by {path.accuracy.symbol} and {name}"
    drawn = chart.svg(element("g", *marks, role="radiogroup", aria_label=label), role="group")
    return element("figure", element("figcaption", chart.title), drawn)


def _mark(chart: Chart, points: Points, k: int) -> list[Html]:
    """A point with its intervals, cut off at the axes, and room to hit it."""
    x, y = float(chart.px(points.u[k])), float(chart.py(points.accuracy[k]))
    low, high = chart.px(np.clip(points.ends[k], *chart.x))
    below, above = chart.py(np.clip(points.margins[k], *chart.y))
    bars = f"M{low:.1f} {y:.1f}H{high:.1f}M{x:.1f} {below:.1f}V{above:.1f}"
    circles = [
        element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=r, class_=name)
        for r, name in ((10, "ring"), (6, "mark"), (12, "hit"))
    ]
    return [element("path", class_="whisker", d=bars), *circles]


def _axis(values: Any, ends: Any, least: float) -> tuple[float, float]:
    """Ends of an axis: all points, and of the intervals what does not squeeze the points."""
    low, high = float(values.min()), float(values.max())
    room = max(0.5 * (high - low), least)
    low, high = max(float(ends.min()), low - room), min(float(ends.max()), high + room)
    low, high = min(low, float(values.min())), max(high, float(values.max()))
    pad = 0.05 * max(high - low, least)
    return low - pad, high + pad


def _point_words(path: FairnessPath, k: int) -> str:
    point = path.points[k]
    selected = ", selected" if point is path.selected else ""
    values = "".join(f", {name} {m.shown:.3f}" for name, m in point.measures.items())
    return (
        f"Model {k + 1} of {len(path)}, {weight_name(point.fairness_weight)}{selected}: "
        f"{path.accuracy.symbol} {point.accuracy:.3f}{values}"
    )
