"""The summary of all evidence: every goal with how often it was met, and the worst case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evidence import read_table
from pages.markdown import meets, table

Row = dict[str, str]


@dataclass(frozen=True)
class Goal:
    """A goal that every row of a table, or of a part of it, is to meet.

    Attributes
    ----------
    what, goal : str
        In words.
    page : str
        Where the whole table is.
    name : str
        Of the table.
    value : function
        Row → number.
    meets : function
        Number → whether it meets the goal.
    case : function
        Row → what it is about.
    keep : function, optional
        Row → whether the goal is for it.
    """

    what: str
    goal: str
    page: str
    name: str
    value: Callable[[Row], float]
    meets: Callable[[float], bool]
    case: Callable[[Row], str]
    keep: Callable[[Row], bool] = lambda row: True


def _share(column: str) -> Callable[[Row], float]:
    return lambda row: float(row[column])


def _named(*columns: str) -> Callable[[Row], str]:
    return lambda row: ", ".join(row[c] for c in columns if row[c])


GOALS = (
    Goal("error of `auto` over the best possible, smooth data, 2,000 rows or more", "≤ 1.15",
         "accuracy", "accuracy", _share("ratio"), lambda v: v <= 1.155,
         _named("family", "criterion", "n"),
         lambda r: r["estimator"] == "auto" and int(r["n"]) >= 2000),
    Goal("coverage of 95 % intervals, `auto`", "≥ 92 %", "accuracy", "intervals",
         _share("coverage"), lambda v: v >= 0.92, _named("family", "criterion", "n"),
         lambda r: r["estimator"] == "auto"),
    Goal("coverage with clusters, `logistic`", "≥ 92 %", "accuracy", "clusters",
         _share("coverage"), lambda v: v >= 0.92, _named("kind", "criterion", "clusters"),
         lambda r: r["cluster_given"] == "True"),
    Goal("rejections of fair scores at 5 %", "≤ 5 % (7 % by chance)", "accuracy", "calibration",
         _share("rejected_5"), lambda v: v <= 0.07, _named("family", "criterion", "n"),
         lambda r: r["study"] == "size"),
    Goal("wrong passes at the limit", "≤ 5 % (6.5 % by chance)", "verdicts", "verdicts",
         _share("wrong_pass"), lambda v: v <= 0.065, _named("number", "design", "units"),
         lambda r: r["part"] == "edge"),
    Goal("wrong fails at the limit", "≤ 5 % (6.5 % by chance)", "verdicts", "verdicts",
         _share("wrong_fail"), lambda v: v <= 0.065, _named("number", "design", "units"),
         lambda r: r["part"] == "edge"),
    Goal("coverage of adjusted gaps, hard controls", "≥ 92 %", "controls", "hard_controls",
         _share("coverage"), lambda v: v >= 0.92, _named("design")),
    Goal("test given hard controls rejects at 5 %", "≤ 5 % (10 % by chance)", "controls",
         "hard_controls", _share("rejected"), lambda v: v <= 0.10, _named("design")),
    Goal("certified models that exceed their limit on new people", "≤ 5 %", "how-it-works",
         "certify", _share("certified_violations"), lambda v: v <= 0.05, _named("scenario")),
    Goal("models without a certificate that exceed it", "none stated", "how-it-works", "certify",
         _share("plain_violations"), lambda v: v <= 0.05, _named("scenario")),
    Goal("series without a change in which an alarm was raised", "≤ 5 %", "monitor", "monitor",
         _share("alarms"), lambda v: v <= 0.05, _named("what", "rows_a_month"),
         lambda r: r["what"] == "no change"),
    Goal("drivers ranked in the right order", "≥ 95 %", "explain", "drivers", _share("ranked"),
         lambda v: v >= 0.95, _named("scores")),
    Goal("bounds for inferred groups that hold", "≥ 95 %", "explain", "imputed",
         _share("bounds_hold"), lambda v: v >= 0.95, _named("K", "direct")),
    Goal("error for a measurement over the best possible", "≤ 1.3", "continuous", "continuous",
         _share("over_oracle"), lambda v: v <= 1.3, _named("law", "criterion", "rows")),
)  # fmt: skip
# Tables whose rows carry their goal.
SPEEDS = {
    "performance": "fits and evaluations against peers",
    "audit_speed": "audits against peers",
    "many_groups": "many groups",
}


def goals() -> str:
    """Return one line per goal: how many cases meet it, and the one farthest from it."""
    head = ["what", "goal", "met", "farthest from it", "measured", "table"]
    body = [_line(goal) for goal in GOALS]
    for name, what in SPEEDS.items():
        rows = [r for r in read_table(name, stamped=True) if r["goal"]]
        missed = [r for r in rows if not meets(float(r["value"]), r["goal"])]
        worst = "; ".join(f"{r['what']}: {float(r['value']):.3g} ({r['goal']})" for r in missed[:2])
        met = f"{len(rows) - len(missed)} of {len(rows)}"
        body.append([f"time: {what}", "each its own", met, worst or "–", _when(rows),
                     "[performance](performance.md)"])  # fmt: skip
    return table(head, body)


def _line(goal: Goal) -> list[str]:
    rows = [r for r in read_table(goal.name, stamped=True) if goal.keep(r)]
    missed = [r for r in rows if not goal.meets(goal.value(r))]
    side = -1.0 if goal.goal.startswith("≥") else 1.0
    far = max(missed, key=lambda r: side * goal.value(r), default=None)
    worst = "–"
    if far is not None:
        value = goal.value(far)
        is_share = "%" in goal.goal or goal.goal == "none stated"
        worst = f"{goal.case(far)}: {value:.1%}" if is_share else f"{goal.case(far)}: {value:.2f}"
    met = f"{len(rows) - len(missed)} of {len(rows)}"
    return [goal.what, goal.goal, met if missed == [] else f"**{met}**", worst.replace("|", "\\|"),
            _when(rows), f"[{goal.page}]({goal.page}.md)"]  # fmt: skip


def _when(rows: list[Row]) -> str:
    """Return the date of the newest row and its commit."""
    last = max(rows, key=lambda r: r["date"])
    return f"{last['date']}, {last['commit'][:7]}"
