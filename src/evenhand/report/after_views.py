"""What comes after an audit: drivers of a gap, fairness over time, tariffs and alternatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.frames import tabulate
from .._core.provenance import stamp
from ..measures.measures import HOLDS, VIOLATED
from .charts import Bar, Chart, bar_chart
from .markup import asset, element, join, label, page
from .page import About, about_section, made_with
from .view import Figure, Lead, Name, Note, Table, View, section, view_of
from .words import fixed, group_name, number, percent, short_names, with_interval

if TYPE_CHECKING:
    from ..auditing.drivers import Drivers, Part
    from ..auditing.monitoring import Look, Monitor
    from ..training.alternatives import Alternatives
    from ..training.glm import Relativities


# ------------------------------------------------------------------------------------------------
# Drivers.


# Features in a table and a picture; the CSV has all of them.
MOST_FEATURES = 20


def drivers_view(result: Drivers) -> View:
    """Return which features carry the gap: words, a picture and a table."""
    shown = result.drivers[:MOST_FEATURES]
    heads = ["feature", "tells group", *(f"part of {c}" for c in ("the gap", *result.criteria))]
    rows = []
    for d in shown:
        parts = [_starred(part) for part in (d.gaps[result.widest], *d.criteria.values())]
        rows.append([Name(d.feature), number(d.stands_in.value, 2), *parts])
    more = len(result) - len(shown)
    pair = f"{group_name(result.widest)} minus that of {group_name(result.reference)}"
    whole = {f"Mean score of {pair}": result.gaps[result.widest]}
    whole |= {name.capitalize(): part for name, part in result.criteria.items()}
    return View(
        "Which features carry the gap",
        f"Drivers of the score by {short_names([result.sensitive_name], 24)[0]}: {len(result)} "
        "features.",
        *(f"{name}: {with_interval(p.value, p.interval)}." for name, p in whole.items()),
        "A part is what goes away when one feature's path is closed (everybody gets the same "
        "values of the feature).",
        Figure(lambda: next(iter(drivers_charts(result, MOST_FEATURES).values())).svg(),
               "Parts of the gap, with intervals"),
        Table(
            heads, rows, f"By feature, with {percent(result.confidence_level)} intervals; * "
            "the interval excludes 0", result._columns(), "drivers.csv",
        ),
        *([Note(f"{more} more features have smaller parts.")] if more else []),
        Note(f"The sum of the parts differs from the gap by {number(result.remainder, 3)}, as what "
             "several features do together is counted for each of them or for none. Parts of a "
             "criterion do not add up."),
        *map(Note, result.notes),
    )  # fmt: skip


def drivers_charts(result: Drivers, n: int) -> dict[str, Chart]:
    """Return bars of the first `n` features: parts of the gap and of each criterion, and what
    features tell about the group."""
    shown = result.drivers[:n]
    parts = {f"gap, {result.widest} minus {result.reference}":
             [d.gaps[result.widest] for d in shown]}  # fmt: skip
    parts |= {name: [d.criteria[name] for d in shown] for name in result.criteria}
    parts["tells the group"] = [d.stands_in for d in shown]
    names = [d.feature for d in shown]
    return {
        title: bar_chart(
            [Bar(name, p.value, *p.interval) for name, p in zip(names, values, strict=True)],
            title, f"{title}, by feature",
        )
        for title, values in parts.items()
    }  # fmt: skip


def _starred(part: Part) -> str:
    star = "*" if part.interval[0] > 0 or part.interval[1] < 0 else ""
    return with_interval(part.value, part.interval, star)


# ------------------------------------------------------------------------------------------------
# Monitoring.


# Rows of a table; the CSV has all of them.
MOST_PERIODS = 24
METHOD = (
    "The band holds the true value of all periods at once, however long the series grows and "
    "however often you look: the stated chance of a false alarm is divided among all looks, and "
    "early looks get more of it. An alarm means that the last 1, 2, 4, … periods differ from the "
    "periods before them, back to the last change, by more than chance explains. All these "
    "comparisons share that chance."
)
_BADGES = {VIOLATED: "strong", HOLDS: "holds"}


def monitor_view(result: Monitor) -> View:
    """Return the state, the alarms, and one picture and table per criterion."""
    names = [result.sensitive_name, result.periods[0], result.periods[-1]]
    name, first, last = short_names(names, 40)
    parts: list[Any] = [
        f"Fairness by {name} over {len(result.periods)} periods, {first} to {last}.",
        *(alarm.text for alarm in result.alarms),
        *([] if result.alarms else ["No alarm was raised at any look."]),
        *_unseen(result),
        *_limits_met(result),
        f"Chance of a false alarm over all looks: {percent(result.level)}.",
        *map(Note, result.notes),
    ]
    for criterion, looks in result.looks.items():
        parts += [_looks_figure(result, criterion), _looks_table(criterion, looks)]
    parts.append(element("p", METHOD, class_="note"))
    badge = (result.state, _BADGES.get(result.judged, "unclear"))
    return View("Fairness over time", *parts, badge=badge)


def _unseen(result: Monitor) -> list[str]:
    """Return a sentence per criterion on what would not have shown."""
    return [
        f"{name.capitalize()}: a rise of less than {rise:.4f} would not have shown yet."
        if math.isfinite(rise)
        else f"{name.capitalize()}: no rise, however large, would have shown yet."
        for name, rise in result.detectable.items()
    ]


def _limits_met(result: Monitor) -> list[str]:
    """Return a sentence per limit on whether the data show that it is met."""
    return [
        f"{name.capitalize()}: values up to {result.possible[name]:.4f} are possible, "
        + ("which is below" if result.possible[name] <= limit else "so it is not shown to be below")
        + f" the limit {limit:g}."
        for name, limit in result.limits.items()
    ]


def _looks_table(criterion: str, looks: Sequence[Look]) -> Table:
    shown = looks[-MOST_PERIODS:]
    cells: dict[str, Callable[[Look], str]] = {
        "period": lambda look: Name(look.period),
        "people": lambda look: f"{look.n:,}",
        "value": lambda look: "–" if _is_open(look) else fixed(max(look.value, 0.0)),
        "band of all periods": lambda look: (
            Name(look.why) if _is_open(look) else f"{look.low:.4f} to {look.high:.4f}"
        ),
    }
    caption = f"{criterion.capitalize()} in {len(shown)} of {len(looks)} periods"
    columns = tabulate(looks, "period", "n", "value", "stderr", "low", "high", "why")
    return Table.of(shown, cells, caption, columns, f"{criterion}.csv", limit=30)


def _is_open(look: Look) -> bool:
    return look.value != look.value


def _looks_figure(result: Monitor, name: str) -> Figure:
    has_alarm = any(alarm.criterion == name for alarm in result.alarms)
    words = "Shaded: the band of all periods."
    words += " Dashed line: the limit." if name in result.limits else ""
    words += " Upright line: an alarm." if has_alarm else ""
    return Figure(lambda: looks_chart(result, name).svg(), name.capitalize(), words)


def looks_chart(result: Monitor, name: str) -> Chart:
    """Return a criterion by period, with the band of all periods, the limit and the alarms."""
    looks, periods = result.looks[name], result.periods
    # A picture ends with the band, unless that is wide beyond reading.
    known = [look for look in looks if not _is_open(look)]
    highest = max((max(look.value, 0.0) for look in known), default=0.0)
    band = 1.05 * max((look.high for look in known), default=0.0)
    top = max(min(2.5 * highest, band), 1.2 * result.limits.get(name, 0.0), 0.01)
    # No more names than fit side by side on a phone.
    names = short_names(list(periods), 12)
    step = math.ceil(len(looks) / max(2, min(8, 44 // max(map(len, names)))))
    ends = (0.5, len(looks) + 0.5)
    chart = Chart(
        ends, (0.0, top), y_label=name, width=720, height=320, look="chart wide",
        x_ticks={k + 1: names[k] for k in range(0, len(looks), step)},
        title=f"{name} by period, with the band of all periods",
    )  # fmt: skip
    values = np.ma.masked_invalid([look.value for look in looks])
    for run in np.ma.clump_unmasked(values):
        place = np.arange(run.start, run.stop) + 1.0
        value = np.maximum(values.data[run], 0.0)
        low, high = (
            np.minimum([getattr(look, end) for look in looks[run]], top) for end in ("low", "high")
        )
        if len(place) == 1:  # a stretch of one period has no width to shade
            chart.bars(place, low, high, 0)
        else:
            chart.area(place, low, high, 0, "area band")
            chart.line(place, value, 0)
        chart.dots(place, value, 0, 2.6 if len(looks) <= 60 else 1.6)
    if name in result.limits:
        chart.guide(ends, [result.limits[name]] * 2, "limit")
    for period in dict.fromkeys(a.at for a in result.alarms if a.criterion == name):
        chart.guide([periods.index(period) + 1.0] * 2, [0.0, top], "alarm")
    return chart


# ------------------------------------------------------------------------------------------------
# Models: relativities of a tariff, and a record of alternatives.


_RATIOS = {"log": "relativity", "logit": "odds ratio"}


def relativities_view(result: Relativities) -> View:
    """Return factors, levels and what they multiply the mean by, and the deviance table."""
    columns, ratio = result.columns, _RATIOS.get(result.link, "")
    rows = []
    for k, factor in enumerate(columns["factor"]):
        cells = [f"{columns['coef'][k]:.4f}", f"{columns['stderr'][k]:.4f}"]
        if ratio:
            low, high = columns["low"][k], columns["high"][k]
            cells += [f"{columns['relativity'][k]:.4f}", f"{low:.4f} to {high:.4f}"]
        level = columns["level"][k]
        rows.append([Name(factor), Name(level) if level else "", *cells])
    heads = ["factor", "level", "coefficient", "error"]
    heads += [ratio, f"{percent(result.confidence_level)} interval"] if ratio else []
    models = [
        [name, f"{of['deviance']:.5g}", f"{of['explained']:.4f}", number(of["total"], 6),
         f"{of['actual_to_expected']:.4f}"]
        for name, of in result.totals.items()
    ]  # fmt: skip
    return View(
        f"Relativities, {result.family} with {result.link} link",
        Table(heads, rows, "Coefficients with sandwich errors", columns, "relativities.csv"),
        Table(
            ["model", "deviance", result.symbol, "sum of means", "actual / expected"], models,
            "Deviance per unit of weight, and totals over the training rows",
        ),
        Note("A category is compared with the level in brackets; a number is moved by what its "
             "level says."),
    )  # fmt: skip


def alternatives_view(result: Alternatives) -> View:
    """Return every model that was looked at, and why it was chosen or not."""
    columns, criterion = result.columns, result.criterion
    accuracy = columns[result.key]
    limits = {f"{result.symbol} floor": result.floor, f"{criterion} limit": result.limit}
    asked = [f"{name} {value:g}" for name, value in limits.items() if value is not None]
    k = columns["chosen"].index(True)
    rows = [
        [
            Name(name), f"{accuracy[j]:.4f}", f"{columns[criterion][j]:.4f}",
            *(f"{columns[f'{what}_difference'][j]:+.4f} ± {columns[f'{what}_margin'][j]:.4f}"
              if j != k else "" for what in ("accuracy", "unfairness")),
        ]
        for j, name in enumerate(columns["name"])
    ]  # fmt: skip
    reasons = [f"{n}, {why}." for n, why in zip(columns["name"], columns["reason"], strict=True)]
    return View(
        f"Search for alternatives: {len(rows)} models",
        Lead(f"{result.chosen}, {columns['reason'][k]}."),
        f"{result.held_out[0].upper()}{result.held_out[1:]}."
        + (f" Asked for: {', '.join(asked)}." if asked else ""),
        Table(
            ["model", result.symbol, criterion, f"{result.symbol}, difference",
             f"{criterion}, difference"], rows,
            f"Differences from the chosen model (± {percent(result.confidence_level)}, paired)",
            columns, "alternatives.csv",
        ),
        View("Why each was chosen or not", *reasons, brief=True),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------
# The page of any of these.


# The title, and the question that the page answers.
_TITLES = {
    "Drivers": ("Drivers of a disparity", "Which features carry the gap?"),
    "Monitor": ("Monitoring report", "Has the fairness of this score changed?"),
    "Alternatives": (
        "Search for less discriminatory alternatives",
        "Is there a model that serves the purpose and is fairer?",
    ),
}


def result_page(
    result: Any, about: About | Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None,
) -> str:  # fmt: skip
    """Return the page of drivers, monitoring or alternatives, with what they were made with."""
    title, question = _TITLES[type(result).__name__]
    who = About.of(about)
    named = result.sensitive_name != "group"
    under = join(["By ", label(result.sensitive_name, 80)]) if named else None
    facts = {str(name): str(value) for name, value in (source or {}).items()}
    if type(result).__name__ == "Monitor":
        limits = [f"{name} at most {limit:g}" for name, limit in result.limits.items()]
        facts |= {
            "Limits": "; ".join(limits) or "none", "Estimator": result.estimator,
            "Chance of a false alarm": percent(result.level),
        }  # fmt: skip
    asked = [] if about is None else [section(about_section(who, question))]
    body = [*asked, section(view_of(result)), section(made_with(list(facts.items())))]
    data = {**result.to_dict(), **stamp(), "source": facts}
    return page(who.title or title, under, [*body, asset("signatures.html")], data)
