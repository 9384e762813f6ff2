"""The page of a fairness path: a frontier whose every point opens the model behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.frames import json_safe
from .._core.provenance import stamp
from ..auditing.changes import criterion_changes, residual_changes
from ..auditing.curves import DrawnRows, drawn_rows, grid_over
from ..auditing.path_audits import audits_of, weight_name
from ..data.criteria import get_criterion
from .charts import legend
from .formats import number, short_names, with_margin
from .frontier_chart import frontier_section
from .markup import Html, asset, csv_link, element, json_block, label, page, table
from .notes import limits, method
from .page import NOT_STATED, About, about_section, signature_block
from .price_views import gap_words, has_percent
from .sections import (
    cards,
    density_chart,
    facts,
    feature_table,
    figures,
    footer,
    gains_table,
    preparation,
    software,
)
from .text import fixed, is_measured, part_word, row_count
from .verdict_views import verdict_section

if TYPE_CHECKING:
    from ..auditing.result import Audit
    from ..auditing.tolerance import Tolerance
    from ..training.path import FairnessPath


# ------------------------------------------------------------------------------------------------
# What a selected model does to every criterion and every group, beside the model it replaces.


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


_PANEL_HEADS = {
    "n": "Rows", "mean_score": "Mean score", "sd_score": "Spread of score",
    "mean_target": "Mean outcome", "mean_residual": "Outcome minus score", "rmse": "RMSE",
}  # fmt: skip


def path_page(
    path: FairnessPath,
    *,
    about: About | Mapping[str, Any] | None = None,
    tolerance: Tolerance | None = None,
    favorable: str | None = None,
    source: Mapping[str, Any] | None = None,
    features: Mapping[str, Sequence[Any]] | None = None,
    notes: Sequence[str] = (),
) -> str:
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
    features : mapping, optional
        Columns "feature", "information", "before" and "after", for the table of features.
    notes : sequence of str
        How the columns were prepared, one sentence each.
    """
    about = About.of(about)
    title = about.title or f"The price of fairness: {path.criterion}"
    audits = audits_of(path)
    chosen = chosen_index(path)
    changed = path.selected is not None and chosen > 0
    verdict = None
    if tolerance is not None:
        favorable = favorable or tolerance.favorable
        verdict = audits[chosen].verdict(tolerance) if path.selected is not None else None
    samples = [drawn_rows(audit) for audit in audits]
    names = samples[0].names
    grid = grid_over(samples[0].s, samples[-1].s)
    omitted = len(path.labels) - len(names)
    measured = is_measured(audits[0])
    unknown = f" ({path.n_unknown:,} of unknown {'value' if measured else 'group'})"
    unknown = unknown if path.n_unknown else ""
    part = part_word(audits[0])
    body = [
        element(
            "header",
            element("h1", title),
            element(
                "p", f"{row_count(path.n_rows, path.n_clusters)}{unknown}, ",
                f"{len(path.labels)} {part}s of ",
                label(path.sensitive_name, 80), f", {len(path)} models, each measured on rows it "
                f"was not fitted to ({path.n_splits} folds)", class_="soft",
            ),
        ),
        element(
            "main",
            about_section(about, _question(path, measured)),
            *([] if verdict is None else [verdict_section(verdict)]),
            gap_changes(audits[0], audits[chosen], favorable) if changed else None,
            _summary(path, audits, chosen),
            before_after_section(path, audits, chosen) if changed else None,
            _gains(audits, chosen, favorable) if changed else None,
            _selection(path, chosen),
            frontier_section(path, chosen),
            element(
                "section",
                legend([label(n, 60) for n in names], omitted),
                *(_panel(path, k, audits[k], samples[k], grid, k == chosen)
                  for k in range(len(path))),
            ),
            _points_table(path, audits),
            _pictures(path, audits, samples, grid, chosen) if changed else None,
            feature_table(features) if features else None,
            preparation(notes) if notes else None,
            method(path.confidence_level, measured),
            _path_method(path),
            _facts(path, about, source or {}),
            limits(audits[0], _limits(path)),
            signature_block(),
        ),
        footer(),
        json_block(_data(path, about, source or {}), "evenhand-data"),
    ]  # fmt: skip
    return page(title, body, asset("script.js"))


def chosen_index(path: FairnessPath) -> int:
    """The selected point, or the most accurate one."""
    for k, point in enumerate(path.points):
        if point is path.selected:
            return k
    return int(np.argmax([p.accuracy for p in path.points]))


def _summary(path: FairnessPath, audits: Sequence[Audit], chosen: int) -> Html:
    name, symbol = path.criterion, path.accuracy.symbol
    first = path.points[0]
    fairest = min(path.points, key=lambda p: p.measure(name).value)
    start = (
        f"Without any regard to fairness the model explains {100 * first.accuracy:.1f}% of the "
        f"{path.accuracy.unit} of the outcome ({symbol} {first.accuracy:.3f}) at {name} "
        f"{first.measure(name).shown:.3f}. The fairest model found reaches {name} "
        f"{fairest.measure(name).shown:.3f} at {symbol} {fairest.accuracy:.3f}."
    )
    if path.selected is None:
        asked = f" No model meets what was asked, {_asked(path)}." if path.request else ""
        text = " No model has been selected; choose a point below to see what it would mean."
        return _in_short(start + asked + text, audits, None)
    point = path.points[chosen]
    cost = 100 * (first.accuracy - point.accuracy)
    found = point.measure(name)
    price = f"costs {cost:.1f} points of {symbol}" if cost >= 0.05 else "costs next to no accuracy"
    text = (
        f" The selected model has {name} {found.shown:.3f} (interval "
        f"{found.interval[0]:.3f} to {found.interval[1]:.3f}) at {symbol} {point.accuracy:.3f}: "
        f"it {price}."
    )
    if path.request is not None:
        text += f" It was chosen for {_asked(path)}."
    return _in_short(start + text, audits, chosen)


def _asked(path: FairnessPath) -> str:
    assert path.request is not None
    return f"{path.request.limits()} ({path.request.judge()})"


def _in_short(text: str, audits: Sequence[Audit], chosen: int | None) -> Html:
    parts: list[Any] = [element("h2", "In short"), element("p", text, class_="lead")]
    if chosen is not None:
        before = audits[0] if chosen else None
        words = "The selected model, criterion by criterion"
        words += ", beside the model without a fairness term:" if chosen else ":"
        parts += [element("p", words, class_="next"), cards(audits[chosen], before)]
    return element("section", *parts)


def _question(path: FairnessPath, measured: bool) -> str:
    asked = "" if path.request is None else f" Asked for: {_asked(path)}."
    name = short_names([path.sensitive_name], 60)[0]
    whom = f"people whatever their {name}" if measured else f"the groups of {name}"
    return (
        f"What does it cost to make the score fairer to {whom} "
        f"({path.criterion}), and what does that do to everybody?{asked}"
    )


def _selection(path: FairnessPath, chosen: int) -> Html:
    """The rule as it was applied, and whether the model keeps to it."""
    rows: list[tuple[str, Any]] = [("Models compared", f"{len(path)}")]
    if path.request is None:
        rows.append(("Asked for", "nothing; no model was chosen"))
        return element("section", element("h2", "How the model was chosen"), facts(rows))
    request = path.request
    rows.append(("Asked for", f"{request.limits()}"))
    rows.append(("Judged", request.judge()))
    first = "the most accurate" if request.max_unfairness is not None else "the fairest"
    rows.append(("Chosen among those that meet it", f"{first} one"))
    if path.selected is None:
        rows.append(("Found", "no model meets it"))
    else:
        u, accuracy = path._judged(request.criterion, request.certify)
        what = "upper bound of " if request.certify else ""
        least = "lower bound of " if request.certify else ""
        met = request.choose(u[chosen : chosen + 1], accuracy[chosen : chosen + 1])[1]
        rows += [
            ("Judged value", f"{what}{request.criterion} {fixed(u[chosen], 4)}, {least}"
                             f"{path.accuracy.symbol} {accuracy[chosen]:.4f}"),
            ("Meets it", "yes" if met else "no: it is the closest that was found"),
            ("Certificate", _certificate(path) if request.certify and met else "none"),
        ]  # fmt: skip
    return element("section", element("h2", "How the model was chosen"), facts(rows))


def _certificate(path: FairnessPath) -> str:
    return (
        f"with {100 * path.confidence_level:g}% confidence the bounds hold for all {len(path)} "
        "models at once, and so for the one picked"
    )


def _panel(
    path: FairnessPath, k: int, audit: Audit, sample: DrawnRows, grid: Any, shown: bool
) -> Html:
    point = path.points[k]
    columns = audit._groups.columns
    names = [n for n in _PANEL_HEADS if n in columns]
    rows = []
    for i, group in enumerate(columns["group"]):
        cells: list[Any] = [label(group, 60)]
        for n in names:
            value = columns[n][i]
            low = columns.get(f"{n}_low", [None] * (i + 1))[i]
            if n == "n":
                cells.append(f"{value:,.0f}")
            else:
                cells.append(number(value) if low is None else with_margin(value, value - low))
        rows.append(cells)
    half = point.accuracy_interval[1] - point.accuracy
    found: list[tuple[str, Any]] = [(path.accuracy.symbol, with_margin(point.accuracy, half))]
    for m in audit.measures.values():
        ends = f"{m.interval[0]:.3f} to {m.interval[1]:.3f}"
        found.append((m.criterion.capitalize(), f"{fixed(m.shown, 3)} ({ends})"))
    part = part_word(audit)
    found.append(("Largest gap in mean score", number(audit.disparities.mean_score_gap, 3)))
    heading = f"Model {k + 1} of {len(path)}: {weight_name(point.fairness_weight)}"
    chart = density_chart(sample, grid, height=240, title=f"Scores by {part}, model {k + 1}")
    return element(
        "article",
        element("h3", heading + (" (selected)" if point is path.selected else "")),
        element(
            "div",
            element("figure", element("figcaption", f"Scores by {part}"), chart.render()),
            facts(found),
            class_="figures",
        ),
        table([part.title(), *(_PANEL_HEADS[n] for n in names)], rows, caption=f"{part.title()}s"),
        _request(path, k),
        class_="panel",
        data_panel=k,
        hidden=not shown,
    )


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


def _points_table(path: FairnessPath, audits: Sequence[Audit]) -> Html:
    faded = path.dominated()
    rows = []
    for k, point in enumerate(path.points):
        note = "selected" if point is path.selected else "dominated" if faded[k] else ""
        rows.append([
            f"{k + 1}",
            f"{point.fairness_weight:.4g}",
            f"{point.accuracy:.4f} ± {point.accuracy_interval[1] - point.accuracy:.4f}",
            *(
                f"{fixed(m.shown)} ({m.interval[0]:.3f} to {m.interval[1]:.3f})"
                for m in point.measures.values()
            ),
            note,
        ])  # fmt: skip
    titles = [get_criterion(name).title for name in path.criteria]
    header = ["Model", "Fairness weight", path.accuracy.symbol, *titles, "Remark"]
    by_group: dict[str, list[Any]] = {"model": [], "fairness_weight": []}
    for k, audit in enumerate(audits):
        count = len(audit._groups.columns["group"])
        by_group["model"] += [k + 1] * count
        by_group["fairness_weight"] += [path.points[k].fairness_weight] * count
        for name, values in audit._groups.columns.items():
            by_group.setdefault(name, []).extend(values)
    caption = f"Models with {100 * path.confidence_level:g}% intervals, held out"
    return element(
        "section",
        element("h2", "All models"),
        table(header, rows, caption=caption),
        csv_link(path._columns(), "path.csv"),
        element("p", "Groups under every model:", class_="note screen"),
        csv_link(by_group, "groups.csv"),
    )


def _gains(audits: Sequence[Audit], chosen: int, favorable: str | None) -> Html:
    words = (
        "Which direction is a gain was not stated; the table says whose scores rise and fall."
        if favorable is None
        else f"A {favorable} score is favorable."
    )
    return element(
        "section",
        element("h2", "Who gains and who loses"),
        element("p", words, class_="note"),
        gains_table(audits[0], audits[chosen], "gains.csv", favorable),
    )


def _pictures(
    path: FairnessPath,
    audits: Sequence[Audit],
    samples: Sequence[DrawnRows],
    grid: Any,
    chosen: int,
) -> Html:
    pairs = (("Before: no fairness term", 0), ("After: the selected model", chosen))
    parts = [
        element(
            "figure",
            element("figcaption", text),
            density_chart(samples[k], grid, height=220, title=text).render(),
        )
        for text, k in pairs
    ]
    return element(
        "section",
        element("h2", "The selected model in pictures"),
        element("h3", f"Scores by {part_word(audits[0])}, before and after"),
        legend([label(n, 60) for n in samples[0].names], len(path.labels) - len(samples[0].names)),
        element("div", *parts, class_="figures"),
        element("h3", "Same score, same outcome?"),
        figures(audits[chosen]),
    )


def _path_method(path: FairnessPath) -> Html:
    return element(
        "section",
        element("h3", "How the frontier was measured"),
        element(
            "p",
            f"The rows were split into {path.n_splits} parts. Each part was scored by models "
            "fitted to the others, so that no row is judged by a model that has seen it"
            f"{_except(path)}. The fairness weight sets how much one point of {path.criterion} "
            f"counts against one point of {path.accuracy.symbol}.",
        ),
    )


def _except(path: FairnessPath) -> str:
    if not path.fitted_before:
        return ""
    return (
        ". The model inside was fitted before, once for all parts; that it has seen none of these "
        "rows is what its user says (prefit=True)"
    )


def _limits(path: FairnessPath) -> tuple[str, ...]:
    return (
        f"{len(path)} models were compared on the same rows. The one that looks best among many "
        "looks a little better than it is; selection with certify=True (--certify) allows for "
        "that.",
        "The numbers are those of models fitted to part of the rows; the final model is fitted to "
        "all of them.",
    )


def _facts(path: FairnessPath, about: About, source: Mapping[str, Any]) -> Html:
    rows: list[tuple[str, Any]] = [(str(k), v) for k, v in source.items()]
    rows += [
        ("Period", about.period or NOT_STATED),
        ("Sensitive attribute", label(path.sensitive_name)),
        ("Rows", f"{path.n_rows:,}, of which {path.n_unknown:,} without a known group"),
        *([] if path.n_clusters is None else [("Clusters", f"{path.n_clusters:,}")]),
        ("Criterion", path.criterion),
        ("Model", str(path._handle.estimator) if path._handle is not None else ""),
        ("Measured with", path.measured_with),
        ("Confidence level", f"{100 * path.confidence_level:g}%"),
    ]
    return element("section", element("h2", "Data and software"), facts(rows + software()))


def _data(path: FairnessPath, about: About, source: Mapping[str, Any]) -> dict[str, Any]:
    return json_safe(
        {
            "format": "evenhand.path",
            "version": 1,
            **stamp(),
            "about": about.to_dict(),
            "source": {str(k): str(v) for k, v in source.items()},
            "criterion": path.criterion,
            "confidence_level": path.confidence_level,
            "sensitive": path.sensitive_name,
            "labels": list(path.labels),
            "n_rows": path.n_rows,
            "n_clusters": path.n_clusters,
            "n_unknown": path.n_unknown,
            "fitted_before": path.fitted_before,
            "request": None if path.request is None else path.request.to_dict(),
            "points": path._columns(),
        }
    )
