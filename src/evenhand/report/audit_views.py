"""An audit and a set of audits: their views, and their pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.frames import tabulate
from ..auditing.figures import DrawnRows, calibration, density, drawn_rows, gains_of, grid_over
from ..auditing.result import Audit
from ..data.criteria import get_criterion
from ..measures.measures import measure_columns
from .after_views import drivers_view
from .charts import LEFT, Bar, Chart, bar_chart, legend, round_ticks
from .gap_views import conditional_view, imputation_view, money_view, pricing_view
from .markup import Html, element, join, label
from .page import About, signed_page
from .verdict_views import BADGES, impact_view, verdict_view
from .view import Figure, Judged, Lead, Name, Note, Table, View, section
from .words import (
    GRADES,
    accuracy,
    fixed,
    grade,
    grade_criterion,
    half_width,
    headline,
    is_measured,
    judge_criterion,
    judge_measure,
    largest_group,
    measured,
    negative_scores,
    number,
    p_text,
    part_word,
    people_words,
    percent,
    places_of,
    plus_minus,
    row_count,
    short_names,
    span,
    unknown_words,
    with_margin,
)

if TYPE_CHECKING:
    from ..auditing.drivers import Drivers
    from ..auditing.impact import Impact
    from ..auditing.result import AuditSet
    from ..auditing.verdict import Verdict
    from ..measures.measures import Difference, Measure


CLOUD = 800
SPLITTING = (
    "Splitting groups makes the share smaller, so each attribute, and each group against the rest, "
    "is judged as well. The worst of these counts."
)
OTHER_ROWS = "rows that are copies of others were left out, and not those of the first model."
UNTESTED = (
    "Differences between these models are not tested: their rows are not the same, or were counted."
)
UNJUDGED = "No tolerance was stated, so there is no verdict."
_GROUP_HEADS = {
    "n": "rows", "n_clusters": "clusters", "share": "share", "mean_score": "mean score",
    "sd_score": "spread of score", "mean_target": "mean outcome",
    "mean_residual": "outcome minus score", "rmse": "RMSE",
    "calibration_slope": "calibration slope", "kolmogorov_smirnov": "KS distance",
}  # fmt: skip


# ------------------------------------------------------------------------------------------------
# Views.


def audit_view(audit: Audit) -> View:
    """Return everything an audit says: gaps in units of the score, criteria, groups."""
    title = "Fairness audit" + (f" of {short_names([audit.name], 60)[0]}" if audit.name else "")
    parts: list[Any] = [f"{row_words(audit)}.", *audit.remarks]
    if audit.n_unknown:
        share = 100 * audit.n_unknown / audit.n_rows
        parts.append(
            f"{audit.n_unknown:,} rows ({share:.1f}%) have no {unknown_words(audit)} and are left "
            "out."
        )
    if audit.n_negative:
        parts.append(negative_scores(audit))
    return View(title, *parts, *sections(audit))


def sections(
    audit: Audit, verdict: Verdict | None = None, impact: Impact | None = None, money: Any = ()
) -> list[View]:
    """Return the results of an audit, in the order of a decision.

    `money` are views of the gaps in units of the score, where there are to be any.
    """
    r2 = f" {accuracy(audit.r2)}" if audit.r2 == audit.r2 else ""
    judged = [Judged(judge_criterion(audit, n), grade_criterion(audit, n)) for n in audit.measures]
    measures = measure_table(audit.measures, audit.confidence_level)
    picture = Figure(lambda: measures_chart(audit).svg(), "The measures, with intervals")
    short = [Lead(headline(audit) + r2), *judged, Figure(lambda: cards(audit)), picture, measures]
    drawn = Figure(lambda: draw(audit_charts(audit), audit))
    return [
        *_made(verdict_view, verdict),
        *money,
        *_made(conditional_view, audit.conditional),
        *_made(pricing_view, audit.pricing),
        View("In short", *short, *part_tables(audit), brief=True),
        *_made(impact_view, impact),
        *_made(imputation_view, audit.imputation),
        View(f"By {part_word(audit)}", drawn, group_table(audit), gaps(audit)),
    ]


def _made(make: Any, result: Any) -> list[View]:
    return [] if result is None else [make(result)]


def audit_set_view(audits: AuditSet) -> View:
    """Return several audits side by side."""
    remarks = dict.fromkeys(remark for audit in audits.values() for remark in audit.remarks)
    tables = [comparison_table(audits), *difference_parts(audits)]
    return View(f"Fairness by {audits.kind}", *remarks, *tables)


def measure_view(measure: Measure) -> View:
    """Return one measure."""
    level = grade(measure)
    return View(
        get_criterion(measure.criterion).title,
        Judged(judge_measure(measure), level),
        measure_table({measure.criterion: measure}),
        badge=(GRADES[level], level),
    )


def row_words(audit: Audit, unknown: str = "") -> str:
    """Return how many rows and groups were measured, such as "400 rows, 2 groups (a, b)"."""
    rows = row_count(audit.n_rows - audit.n_unknown, audit.n_clusters) + unknown
    n_groups = len(audit.labels)
    name = short_names([audit.sensitive_name], 60)[0]
    if is_measured(audit):
        return (
            f"{rows}, '{name}' as a measurement. Values are on the scale of R²: the share of its "
            f"variance explained if all is normal. Tables have {n_groups} bands of about equal size"
        )
    shown = ", ".join(short_names(audit.labels[:6], 40))
    more = f" and {n_groups - 6} more" if n_groups > 6 else ""
    # The name an attribute has when it came as a plain array says nothing.
    of = "" if name == "group" else f" of '{name}'"
    return f"{rows}, {n_groups} groups{of} ({shown}{more})"


# ------------------------------------------------------------------------------------------------
# Tables.


def measure_table(measures: Mapping[str, Measure], confidence_level: float | None = None) -> Table:
    """Return the measures with the numbers behind them."""
    level = "" if confidence_level is None else f"{percent(confidence_level)} "
    places = max((places_of(m, 4) for m in measures.values()), default=4)
    cells: dict[str, Callable[[Measure], str]] = {
        "criterion": lambda m: m.criterion,
        "value": lambda m: fixed(m.shown, places),
        f"{level}interval": lambda m: " to ".join(f"{end:.{places}f}" for end in m.interval),
        "p (exactly fair)": lambda m: p_text(m.p_value),
        "standard error": lambda m: f"{m.stderr:.{places}f}" if m.defined else "not defined",
        "nats": lambda m: fixed(m.nats, places + 1),
        "estimated by": lambda m: m.chosen,
    }
    columns = measure_columns(measures.values())
    caption = "The measures (0 fair, 1 not)"
    return Table.of(measures.values(), cells, caption, columns, "measures.csv")


def part_tables(audit: Audit) -> list[Any]:
    """Return a crossing, its attributes and its worst group; nothing where none is."""
    if not audit.attributes and not audit.one_against_rest:
        return []
    cells: dict[str, list[str]] = {}
    columns: dict[str, list[Any]] = {"criterion": [], "part": []}
    for j, name in enumerate(audit.measures):
        parts = audit.parts(name)
        for part, m in parts.items():
            cells.setdefault(part, [""] * len(audit.measures))[j] = plus_minus(m)
        columns["part"] += list(parts)
        for key, values in measure_columns(tuple(parts.values())).items():
            columns.setdefault(key, []).extend(values)
    rows = [[Name(part), *row] for part, row in cells.items()]
    what = "Each attribute on its own, and the" if audit.attributes else "All groups, and the"
    caption = f"{what} worst group against the rest ({half_width(audit)})"
    heads = ["groups", *audit.measures]
    return [Note(SPLITTING), Table(heads, rows, caption, columns, "parts.csv", limit=29)]


def group_table(
    audit: Audit, heads: Sequence[str] = tuple(_GROUP_HEADS), file: str = "groups.csv"
) -> Table:
    """Return one row per group, with ± half the interval where there is one."""
    columns = audit._groups.columns
    names = [name for name in heads if name in columns]
    rows = [
        [Name(group), *(group_cell(columns, name, k) for name in names)]
        for k, group in enumerate(columns["group"])
    ]
    part = part_word(audit)
    caption = f"{part.title()}s ({half_width(audit)})"
    shown = [part, *(_GROUP_HEADS[n] for n in names)]
    return Table(shown, rows, caption, columns if file else None, file, limit=40)


def group_cell(columns: Mapping[str, Sequence[Any]], name: str, k: int) -> str:
    """Return one number of a group, with ± half its interval where it has one."""
    value = columns[name][k]
    if name == "share":
        return f"{100 * value:.1f}%"
    if name in ("n", "n_clusters"):
        return f"{value:,.0f}"
    if f"{name}_low" not in columns:
        return number(value, 3)
    return with_margin(value, (columns[f"{name}_high"][k] - columns[f"{name}_low"][k]) / 2)


def gaps(audit: Audit) -> str:
    """Return the simple gaps, in the units of the score."""
    d, part = audit.disparities, part_word(audit)
    text = (
        f"Mean scores differ by up to {number(d.mean_score_gap, 3)} between {part}s. The scores of "
        f"one {part} and of all others are up to {number(d.wasserstein, 3)} apart on average "
        "(Wasserstein distance, in units of the score), and their distribution functions up to "
        f"{number(d.kolmogorov_smirnov, 3)} (Kolmogorov-Smirnov)."
    )
    if d.rmse_ratio == d.rmse_ratio:
        text += (
            f" The typical error is up to {number(d.rmse_ratio, 3)} times as large in one {part} "
            "as in another."
        )
    return text


def comparison_table(audits: AuditSet) -> Table:
    """Return one row per audit, one column per criterion."""
    first = next(iter(audits.values()))
    rows = [
        [Name(name), number(audit.r2), *map(measured, audit.measures.values())]
        for name, audit in audits.items()
    ]
    columns: dict[str, list[Any]] = {audits.kind: list(audits), **tabulate(audits.values(), "r2")}
    for name in first.measures:
        table = measure_columns([audit.measures[name] for audit in audits.values()])
        columns |= {f"{name}_{key}": table[key] for key in ("value", "low", "high")}
    caption = f"Measures with {percent(first.confidence_level)} intervals (0 fair, 1 not)"
    heads = [audits.kind, "R²", *first.measures]
    return Table(heads, rows, caption, columns, "comparison.csv", limit=40)


def difference_parts(audits: AuditSet) -> list[Any]:
    """Return how criteria differ from the first model's, with a test; nothing for attributes."""
    differences = audits.differences()
    first, *others = audits
    if not differences:
        return [Note(UNTESTED)] if audits.kind == "model" and others else []
    cells: dict[str, Callable[[Difference], str]] = {
        "model": lambda d: Name(d.name),
        "criterion": lambda d: d.criterion,
        "difference": lambda d: f"{d.value:+.4f}",
        f"{percent(audits[first].confidence_level)} interval": lambda d: (
            f"{d.interval[0]:+.4f} to {d.interval[1]:+.4f}"
        ),
        "p (no difference)": lambda d: p_text(d.p_value),
    }
    columns = tabulate(differences, "name", "criterion", "value", "stderr", "interval", "p_value")
    caption = f"Differences from {short_names([first], 60)[0]}, paired by rows (below 0: fairer)"
    return [Table.of(differences, cells, caption, columns, "differences.csv", limit=28)]


# What a rise and a fall are called, by the side that is favorable.
GAINS = {
    None: ("score rises", "score falls"),
    "high": ("gain (score rises)", "lose (score falls)"),
    "low": ("gain (score falls)", "lose (score rises)"),
}


_CHANGES = ("group", "mean", "q05", "q95", "gain", "loss")


def gains_view(audits: Mapping[str, Audit], favorable: str | None = None) -> View:
    """Return changes of each row's score from the first model to the others, by group."""
    words = (
        "You did not say whether a high score is good. The table shows whose scores go up or down."
        if favorable is None
        else f"A {favorable} score is favorable."
    )
    first, *others = audits
    parts: list[Any] = [Note(words)]
    for k, name in enumerate(others, 2):
        names = short_names([first, name], 80)
        if not audits[first]._rows.is_same(audits[name]._rows):
            parts.append(Note(f"{names[1]} is not compared: {OTHER_ROWS}"))
            continue
        changes = gains_of(audits[first], audits[name], favorable)
        rows = [
            [Name(group), number(mean, 2), span(ends), f"{100 * gain:.0f}%", f"{100 * loss:.0f}%"]
            for group, mean, *ends, gain, loss in zip(*map(changes.get, _CHANGES), strict=True)
        ]
        heads = ["group", "mean change", "middle 90%", *GAINS[favorable]]
        caption = f"Change of each person's score from {names[0]} to {names[1]}, by group"
        file = "gains.csv" if len(others) == 1 else f"gains-{k}.csv"
        parts.append(Table(heads, rows, caption, changes, file, limit=40))
    return View("Who gains and who loses", *parts)


# ------------------------------------------------------------------------------------------------
# Cards and figures.


def cards(audit: Audit) -> Html:
    """Return one card per criterion: the question, the answer, the number with its interval."""
    return element("div", *(_card(m, audit) for m in audit.measures.values()), class_="cards")


def _card(measure: Measure, audit: Audit) -> Html:
    level = grade_criterion(audit, measure.criterion)
    value, ends = measured(measure).split(" (")
    return element(
        "article",
        element("h3", get_criterion(measure.criterion).title),
        element("p", measure.question, class_="soft"),
        element("p", GRADES[level], class_=f"badge {level}"),
        element("p", element("b", value), f" ({percent(audit.confidence_level)} interval {ends}"),
        element("p", judge_criterion(audit, measure.criterion)),
        class_="card",
    )


def measures_chart(audit: Audit) -> Chart:
    """Return the measures as bars from 0 (fair), with their intervals."""
    bars = [
        Bar(f"{m.criterion} {fixed(m.shown, 3)}", m.shown, *(m.interval if m.defined else (0, 0)))
        for m in audit.measures.values()
    ]
    return bar_chart(bars, "normalized information (0: fair, 1: not)", "The measures")


def audit_charts(audit: Audit) -> dict[str, Chart]:
    """Return scores by group, and the outcome against the score, by title."""
    rows, part = drawn_rows(audit), part_word(audit)
    charts = {f"Scores by {part}": density_chart(rows)}
    if rows.y is not None:
        chart = calibration_chart(rows, audit.confidence_level)
        charts[f"Mean outcome at each score, by {part}"] = chart
    return charts


def draw(charts: Mapping[str, Chart], audit: Audit) -> Html:
    """Return charts of groups, with the colors of the groups."""
    return join([group_legend(audit), figure_grid(charts)])


def group_legend(audit: Audit) -> Html:
    """Return the colors of the groups that are drawn."""
    names = drawn_rows(audit).names
    return legend([label(n, 60) for n in names], len(audit.labels) - len(names))


def figure_grid(charts: Mapping[str, Chart]) -> Html:
    """Return charts with their captions, side by side where there is room."""
    shown = [
        element("figure", element("figcaption", label(caption, 80)), chart.svg())
        for caption, chart in charts.items()
    ]
    return element("div", *shown, class_="figures")


def density_chart(
    drawn: DrawnRows, grid: Any = None, height: int = 300, title: str = "Density of scores by group"
) -> Chart:
    """Densities of the score, one curve per group."""
    grid = grid_over(drawn.s) if grid is None else grid
    curves = [density(drawn.s, weight, grid) for weight in drawn.membership.T]
    top = max(float(c.max()) for c in curves) * 1.05 or 1.0
    chart = Chart(
        (float(grid[0]), float(grid[-1])), (0.0, top), x_label="score", y_label="share of people",
        title=title, left=26, height=height, y_ticks={},
    )  # fmt: skip
    if len(curves) <= 4:
        for k, curve in enumerate(curves):
            chart.area(grid, 0 * curve, curve, k)
    for k, curve in enumerate(curves):
        chart.line(grid, curve, k)
    return chart


def calibration_chart(drawn: DrawnRows, confidence_level: float) -> Chart:
    """The mean target in bins of the score, one line per group, over a cloud of rows."""
    assert drawn.y is not None
    curves = [calibration(drawn.s, drawn.y, w, confidence_level) for w in drawn.membership.T]
    ends = [y + side * margin for _, y, margin in curves for side in (-1, 1)]
    # A few large claims would press the means flat; they are left out of the picture.
    shown = np.concatenate([np.quantile(drawn.y, [0.05, 0.95]), *ends])
    wide, tall = grid_over(drawn.s), grid_over(np.clip(shown, drawn.y.min(), drawn.y.max()))
    longest = max(map(len, round_ticks(tall[0], tall[-1]).values()), default=0)
    chart = Chart(
        (float(wide[0]), float(wide[-1])), (float(tall[0]), float(tall[-1])), x_label="score",
        y_label="outcome (dashed: outcome = score)", title="Mean outcome at each score, by group",
        left=max(LEFT, 16 + 9 * longest),
    )  # fmt: skip
    codes = drawn.codes
    rows = np.unique(np.linspace(0, len(codes) - 1, CLOUD).astype(int))
    for k in range(len(drawn.names)):
        mine = rows[codes[rows] == k]
        chart.dots(drawn.s[mine], drawn.y[mine], k, 2.2, "cloud")
    ends = [max(wide[0], tall[0]), min(wide[-1], tall[-1])]
    chart.guide(ends, ends)
    for k, (x, y, margin) in enumerate(curves):
        if not len(x):
            continue
        chart.bars(x, y - margin, y + margin, k)
        chart.line(x, y, k)
        chart.dots(x, y, k)
    return chart


# ------------------------------------------------------------------------------------------------
# Pages.


def audit_page(
    result: Audit | AuditSet, *, about: About | Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None, verdicts: Mapping[str, Verdict] | None = None,
    impacts: Mapping[str, Impact] | None = None, favorable: str | None = None,
    drivers: Drivers | None = None,
) -> str:  # fmt: skip
    """Return an audit as a document; of several, side by side and then one by one.

    Parameters
    ----------
    result : Audit or AuditSet
        As from :func:`evenhand.audit`.
    about : About or mapping, optional
        Who asks and what for.
    source : mapping, optional
        Facts about the data to print, such as the file and its columns.
    verdicts, impacts : mapping, optional
        By the name of an audit, what :meth:`Audit.verdict` and :meth:`Audit.impact` returned. The
        name of a single audit is "".
    favorable : {"high", "low"}, optional
        Which scores are good for a person; the impact table's own when left out.
    drivers : Drivers, optional
        As from :func:`evenhand.drivers`, of the same score.
    """
    audits = {"": result} if isinstance(result, Audit) else result
    verdicts, impacts = verdicts or {}, impacts or {}
    first = next(iter(audits.values()))
    if favorable is None and impacts:
        favorable = next(iter(impacts.values())).favorable
    title = "Fairness audit" + (f": {first.name}" if first.name else "")
    unit = About.of(about).unit or ""
    parts: list[Any] = []
    if not isinstance(result, Audit):
        title = f"Fairness by {result.kind}"
        said = [f"{short_names([n], 60)[0]}: {BADGES[v.outcome][0]}." for n, v in verdicts.items()]
        parts += [View("Side by side", *said, comparison_table(result), *difference_parts(result))]
        if result.kind == "model":
            scores = View(f"Scores by {part_word(first)}", draw(density_charts(result), first))
            parts += [scores, gains_view(result, favorable)]
    for k, (name, audit) in enumerate(audits.items(), 1):
        views = sections(
            audit, verdicts.get(name), impacts.get(name), [money_view(audit, favorable, unit)]
        )
        if isinstance(result, Audit):
            parts += views
        else:
            parts.append(element("h2", f"{result.kind.capitalize()} {k}: ", label(name, 120)))
            parts += [section(view, "h3", f"{result.kind}-{k}-") for view in views]
    parts += _made(drivers_view, drivers)
    data = {**result.to_dict(), **results_by_audit(verdict=verdicts, impact=impacts)}
    if drivers is not None:
        data["drivers"] = drivers.to_dict()
    judged = "It is judged by a written tolerance, below."
    question = f"Is this score fair to {people_words(first)}? {judged if verdicts else UNJUDGED}"
    lacking = f" ({first.n_unknown:,} more without a {unknown_words(first)})"
    heading = (title, row_words(first, lacking if first.n_unknown else ""), question)
    reference = next((one.reference for one in impacts.values()), largest_group(first))
    used = next(iter(first.measures.values())).estimator
    facts = {"Estimator": used, "Reference group": reference}
    return signed_page(data, first, about, source, heading, parts, facts=facts)


def results_by_audit(**results: Mapping[str, Any]) -> dict[str, Any]:
    """Results for programs, by audit where there are several."""
    held = {
        key: {name: result.to_dict() for name, result in by_audit.items()}
        for key, by_audit in results.items()
        if by_audit
    }
    return {key: one[""] if list(one) == [""] else one for key, one in held.items()}


def density_charts(audits: Mapping[str, Audit], height: int = 220) -> dict[str, Chart]:
    """Return scores by group under each model, on the same axis."""
    rows = {name: drawn_rows(audit) for name, audit in audits.items()}
    grid = grid_over(*(one.s for one in rows.values()))
    return {
        name: density_chart(one, grid, height=height, title=f"Density of scores under {name}")
        for name, one in rows.items()
    }
