"""Parts of a page that show one audit: verdict, figures, tables, facts."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.provenance import now
from ..auditing.changes import gains_of
from ..auditing.curves import DrawnRows, calibration, density, drawn_rows, grid_over
from ..data.criteria import get_criterion
from ..measures.measures import measure_columns
from .charts import Chart, legend
from .formats import number, ticks, with_margin
from .markup import Html, csv_link, element, escape, join, label, table
from .notes import GRADES, PHRASES
from .text import (
    PARTS,
    fixed,
    grade,
    judgment,
    p_text,
    part_rows,
    part_word,
    unknown_words,
    worst_part,
)

if TYPE_CHECKING:
    from ..auditing.result import Audit
    from ..measures.measures import Measure


CLOUD = 800
_GROUP_HEADS = {
    "n": "Rows", "n_clusters": "Clusters", "share": "Share",
    "mean_score": "Mean score", "sd_score": "Spread of score",
    "mean_target": "Mean outcome", "mean_residual": "Outcome minus score", "rmse": "RMSE",
    "calibration_slope": "Calibration slope", "kolmogorov_smirnov": "KS distance",
}  # fmt: skip
_PACKAGES = ("evenhand", "numpy", "scipy", "scikit-learn", "numba")


def headline(audit: Audit) -> str:
    """All criteria in one sentence, the worst first."""
    order = list(GRADES)
    worst = [worst_part(audit, m.criterion)[1] for m in audit.measures.values()]
    found = sorted(worst, key=lambda m: -order.index(grade(m)))
    if all(grade(m) == "holds" for m in found):
        return "No sign of unfairness, in any of the senses measured."
    parts = [f"{m.criterion} {PHRASES[grade(m)]}" for m in found]
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."


def cards(audit: Audit, before: Audit | None = None) -> Html:
    """One card a criterion: the question, the answer, the number with its interval.

    With `before`, the number that it replaces stands beside it, on the same scale.
    """
    shown = [audit] if before is None else [before, audit]
    sized = [m for one in shown for m in one.measures.values() if m.defined]
    top = max([0.05, *(m.interval[1] for m in sized), *(m.shown for m in sized)])
    return element(
        "div",
        *(
            _card(m, top, audit, None if before is None else before.measures[name])
            for name, m in audit.measures.items()
        ),
        class_="cards",
    )


def _card(measure: Measure, top: float, audit: Audit, before: Measure | None) -> Html:
    level = grade(worst_part(audit, measure.criterion)[1])
    name = get_criterion(measure.criterion).title
    ends = f"{measure.interval[0]:.3f} to {measure.interval[1]:.3f}"
    old = None if before is None else element("span", f"{fixed(before.shown, 3)} → ")
    return element(
        "article",
        element("h3", name),
        element("p", measure.question, class_="soft"),
        element("p", GRADES[level], class_=f"badge {level}"),
        gauge(measure.shown, measure.interval, top, None if before is None else before.shown),
        element(
            "p",
            old,
            element("b", fixed(measure.shown, 3)),
            f" ({100 * audit.confidence_level:g}% interval {ends})",
        ),
        element("p", f"{name} {judgment(audit, measure.criterion)}"),
        class_="card",
    )


def gauge(
    value: float, interval: tuple[float, float], top: float, before: float | None = None
) -> Html:
    """A scale from 0 to `top` with the interval and the value on it, and a ring where it was."""
    scale = 220 / (1.1 * top)

    def at(v: float) -> float:
        return 8 + min(max(v, 0.0), 1.1 * top) * scale

    low, high = (at(v) for v in interval)
    ends = f"{interval[0]:.3f} to {interval[1]:.3f}"
    text = f"{value:.3f} on a scale from 0 (fair) to 1, interval {ends}"
    text += "" if before is None else f"; before, {before:.3f}"
    marks = []
    for tick in ticks(0.0, 1.1 * top, 4):
        marks += [
            element("path", d=f"M{at(tick):.1f} 13v4", class_="axis"),
            element("text", number(tick, 3), x=f"{at(tick):.1f}", y=29, class_="tick middle"),
        ]
    return element(
        "svg",
        element("title", text),
        element("rect", x=8, y=9, width=220, height=4, class_="track"),
        *marks,
        element(
            "rect", x=f"{low:.1f}", y=7, width=f"{max(high - low, 1):.1f}", height=8, class_="span"
        ),
        None
        if before is None
        else element("circle", cx=f"{at(before):.1f}", cy=11, r=5, class_="before"),
        element("rect", x=f"{at(value) - 1.5:.1f}", y=2, width=3, height=18, class_="value"),
        viewBox="0 0 240 33",
        class_="chart gauge",
        role="img",
    )


def figures(audit: Audit) -> Html:
    """Scores by group, and the outcome against the score."""
    sample = drawn_rows(audit)
    part = part_word(audit)
    parts = [_figure(f"Scores by {part}", density_chart(sample))]
    if sample.y is not None:
        parts.append(_figure(f"Mean outcome at each score, by {part}", calibration_chart(sample)))
    omitted = len(audit.labels) - len(sample.names)
    return join(
        [
            legend([label(n, 60) for n in sample.names], omitted),
            element("div", *parts, class_="figures"),
        ]
    )


def _figure(caption: str, chart: Chart) -> Html:
    return element("figure", element("figcaption", caption), chart.render())


def density_chart(
    sample: DrawnRows,
    grid: Any = None,
    height: int = 300,
    title: str = "Density of scores by group",
) -> Chart:
    """Densities of the score, one curve a group."""
    grid = grid_over(sample.s) if grid is None else grid
    curves = [density(sample.s, weight, grid) for weight in sample.membership.T]
    top = max(float(c.max()) for c in curves) * 1.05 or 1.0
    chart = Chart(
        (float(grid[0]), float(grid[-1])), (0.0, top), x_label="score", y_label="share of people",
        title=title, y_ticks=False, height=height,
    )  # fmt: skip
    if len(curves) <= 4:
        for k, curve in enumerate(curves):
            chart.area(grid, curve, k)
    for k, curve in enumerate(curves):
        chart.line(grid, curve, k)
    return chart


def calibration_chart(sample: DrawnRows) -> Chart:
    """The mean target in bins of the score, one line a group, over a cloud of rows."""
    assert sample.y is not None
    wide, tall = grid_over(sample.s), grid_over(sample.y)
    chart = Chart(
        (float(wide[0]), float(wide[-1])), (float(tall[0]), float(tall[-1])), x_label="score",
        y_label="outcome (dashed: outcome = score)", title="Mean outcome at each score, by group",
    )  # fmt: skip
    codes = sample.codes
    rows = np.unique(np.linspace(0, len(codes) - 1, CLOUD).astype(int))
    for k in range(len(sample.names)):
        mine = rows[codes[rows] == k]
        chart.dots(sample.s[mine], sample.y[mine], k, radius=2.2, class_="cloud")
    chart.diagonal()
    for k, weight in enumerate(sample.membership.T):
        if not weight.any():
            continue
        x, y, error = calibration(sample.s, sample.y, weight)
        low = np.clip(y - 1.96 * error, *chart.y)
        chart.error_bars(x, low, np.clip(y + 1.96 * error, *chart.y), k)
        chart.line(x, y, k)
        chart.dots(x, y, k)
    return chart


def measure_table(audit: Audit, filename: str = "measures.csv") -> Html:
    """The measures with every number behind them."""
    percent = f"{100 * audit.confidence_level:g}%"
    header = [
        "Criterion", "Value", f"{percent} interval", "Standard error", "p (exactly fair)", "Nats",
        "Estimated by",
    ]  # fmt: skip
    rows = [
        [
            m.criterion,
            fixed(m.shown),
            f"{m.interval[0]:.4f} to {m.interval[1]:.4f}",
            f"{m.stderr:.4f}" if m.defined else "not defined",
            p_text(m.p_value),
            f"{m.nats:.5f}",
            m.chosen,
        ]
        for m in audit.measures.values()
    ]
    columns = measure_columns(audit.measures.values())
    return join(
        [table(header, rows, caption="The measures (0 fair, 1 not)"), csv_link(columns, filename)]
    )


def parts_table(audit: Audit, filename: str = "parts.csv") -> Html | None:
    """A crossing beside its attributes and its worst group; None where nothing was crossed."""
    rows = part_rows(audit)
    if not rows:
        return None
    columns: dict[str, list[Any]] = {"criterion": [], "part": []}
    for m in audit.measures.values():
        parts = audit.parts(m.criterion)
        columns["criterion"] += [m.criterion] * len(parts)
        columns["part"] += list(parts)
        for key, values in measure_columns(tuple(parts.values())).items():
            columns.setdefault(key, [])
            if key != "criterion":
                columns[key] += values
    header = ["Groups", *(get_criterion(name).title for name in audit.measures)]
    return join(
        [
            element("p", PARTS, class_="note"),
            table(
                header, [[label(row[0], 80), *row[1:]] for row in rows],
                caption="Each attribute by itself, and the worst group against the rest "
                "(value ± standard error)",
            ),
            csv_link(columns, filename),
        ]
    )  # fmt: skip


def group_table(audit: Audit, filename: str = "groups.csv") -> Html:
    """One row a group, with intervals where there are any."""
    columns = audit._groups.columns
    names = [name for name in _GROUP_HEADS if name in columns]
    rows = []
    for k, group in enumerate(columns["group"]):
        cells: list[Any] = [label(group, 60)]
        for name in names:
            value = columns[name][k]
            if name == "share":
                cells.append(f"{100 * value:.1f}%")
            elif name in ("n", "n_clusters"):
                cells.append(f"{value:,.0f}")
            elif (
                f"{name}_low" in columns and columns[f"{name}_low"][k] == columns[f"{name}_low"][k]
            ):
                margin = value - columns[f"{name}_low"][k]
                cells.append(with_margin(value, margin))
            else:
                cells.append(number(value))
        rows.append(cells)
    part = part_word(audit)
    caption = (
        f"{part.title()}s; ± is half the width of the {100 * audit.confidence_level:g}% interval"
    )
    return join(
        [
            table([part.title(), *(_GROUP_HEADS[n] for n in names)], rows, caption=caption),
            csv_link(columns, filename),
        ]
    )


def gaps(audit: Audit) -> Html:
    """Simple gaps, in the units of the score."""
    d, part = audit.disparities, part_word(audit)
    parts = [
        f"Mean scores differ by up to {number(d.mean_score_gap)} between {part}s. The scores of "
        f"one {part} and of all others lie up to {number(d.wasserstein)} apart on average "
        "(Wasserstein distance), and their distribution functions up to "
        f"{number(d.kolmogorov_smirnov, 3)} (Kolmogorov-Smirnov)."
    ]
    if d.rmse_ratio == d.rmse_ratio:
        parts.append(
            f" The typical error is up to {number(d.rmse_ratio, 3)} times as large in one {part} "
            "as in another."
        )
    return element("p", *parts)


# What a rise and a fall are called, by the side that is favorable.
GAINS = {
    None: ("Score rises", "Score falls"),
    "high": ("Gain (score rises)", "Lose (score falls)"),
    "low": ("Gain (score falls)", "Lose (score rises)"),
}


def gains_table(before: Audit, after: Audit, filename: str, favorable: str | None = None) -> Html:
    """The same as a table."""
    found = gains_of(before, after, favorable)
    rows = [
        [
            label(group, 60),
            number(found["mean"][k], 3),
            f"{number(found['q05'][k], 3)} to {number(found['q95'][k], 3)}",
            f"{100 * found['gain'][k]:.0f}%",
            f"{100 * found['loss'][k]:.0f}%",
        ]
        for k, group in enumerate(found["group"])
    ]
    header = ["Group", "Mean change", "Middle 90% of changes", *GAINS[favorable]]
    return join(
        [
            table(header, rows, caption="Change of each person's score, by group"),
            csv_link(found, filename),
        ]
    )


def feature_table(features: Mapping[str, Sequence[Any]]) -> Html:
    """What each feature tells about the group, and how its coefficient moved."""
    before, after = (np.asarray(features[k], dtype=float) for k in ("before", "after"))
    order = np.argsort(-np.abs(after - before), kind="stable")[:30]
    rows = [
        [
            label(features["feature"][j], 80),
            f"{100 * features['information'][j]:.1f}%",
            number(float(before[j])),
            number(float(after[j])),
            number(float(after[j] - before[j])),
        ]
        for j in order
    ]
    header = ["Feature", "Uncertainty about the group it removes", "Coefficient before", "After",
              "Change"]  # fmt: skip
    more = len(before) - len(rows)
    caption = "Features whose coefficient moved most" + (
        f"; {more} more in the CSV" if more else ""
    )
    return element(
        "section",
        element("h2", "Which features carry the group"),
        element(
            "p",
            "Coefficients are per standard deviation of the feature, without and with the fairness "
            "term. A feature that tells much about the group and loses weight carried it into "
            "the score.",
            class_="note",
        ),
        table(header, rows, caption=caption),
        csv_link(features, "features.csv"),
    )


def preparation(notes: Sequence[str]) -> Html:
    """How each column of the file was used."""
    items = [element("li", element("bdi", note)) for note in notes]
    return element("section", element("h2", "How the columns were used"), element("ul", *items))


def footer() -> Html:
    """The last line."""
    return element(
        "footer",
        "Made with evenhand. This page is complete in itself: it loads nothing and sends nothing.",
    )


def facts(rows: Sequence[tuple[str, Any]]) -> Html:
    """Terms and what they are."""
    cells = []
    for name, value in rows:
        cells += [element("dt", name), element("dd", value)]
    return element("dl", *cells, class_="facts")


def provenance(audit: Audit, source: Mapping[str, Any], period: str) -> Html:
    """Data and software: enough to do it again."""
    rows: list[tuple[str, Any]] = [(str(k), escape(v)) for k, v in source.items()]
    rows += [
        ("Period", escape(period)),
        ("Sensitive attribute", label(audit.sensitive_name)),
        (
            "Rows",
            f"{audit.n_rows:,}, of which {audit.n_unknown:,} without a {unknown_words(audit)}",
        ),
        *([] if audit.n_clusters is None else [("Clusters", f"{audit.n_clusters:,}")]),
        ("Estimator", next(iter(audit.measures.values())).estimator),
        ("Confidence level", f"{100 * audit.confidence_level:g}%"),
    ]
    return element("section", element("h2", "Data and software"), facts(rows + software()))


def software() -> list[tuple[str, Any]]:
    """Versions and the time of writing."""
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return [
        ("Software", ", ".join(found) + f", Python {platform.python_version()}"),
        ("Written", now().strftime("%Y-%m-%d %H:%M UTC")),
    ]
