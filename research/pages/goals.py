"""The summary of all evidence: every goal with how often it was met, and the worst case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import ge, le

from evidence import read_facts, read_numbers, read_table
from pages import other_papers
from pages.markdown import meets, table
from registry import STUDIES

Row = dict[str, str]
CHANCE = 0.9  # of the samples: where so many claim nothing, the others are too few to judge by


@dataclass(frozen=True)
class Goal:
    """A goal that every row of a table, or of a part of it, is to meet.

    Attributes
    ----------
    what, goal : str
        In words. The goal begins with ≤ or ≥.
    name : str
        Of the table.
    value : function or str
        Row → number, or the column that holds it.
    limit : float
        What the number is compared with: a little beyond the goal where chance alone takes some
        cases there.
    case : tuple of str
        Columns that say what a row is about.
    keep : function, optional
        Row → whether the goal is for it.
    share : float
        The least share of the rows that must meet `limit`; 0 where nothing is promised.
    """

    what: str
    goal: str
    name: str
    value: Callable[[Row], float] | str
    limit: float
    case: tuple[str, ...]
    keep: Callable[[Row], bool] = lambda row: True
    share: float = 1.0

    def read(self, row: Row) -> float:
        return float(row[self.value]) if isinstance(self.value, str) else self.value(row)

    def is_met(self, row: Row) -> bool:
        return (ge if self.goal.startswith("≥") else le)(self.read(row), self.limit)


def _is(**wanted: str) -> Callable[[Row], bool]:
    """Rows with these entries."""
    return lambda row: all(row[column] == value for column, value in wanted.items())


def _claims(claim: str) -> Callable[[Row], bool]:
    """Rows of the cases next door that claim something."""
    return lambda row: row["claim"] == claim and float(row["withheld"]) < CHANCE


def _size(column: str) -> Callable[[Row], float]:
    return lambda row: abs(float(row[column]))


def _of_coverages(worst: Callable[..., float]) -> Callable[[Row], float]:
    """The lowest or highest coverage of a metric: of its values, gaps and ratios."""
    return lambda row: worst(float(row[key]) for key in ("values", "gaps", "ratios"))


def _smooth() -> set[str]:
    """Families of the study of cells that `lspc` is tried on, too."""
    return {row["family"] for row in read_table("cells") if row["estimator"] == "lspc"}


def _notice(later: bool) -> Callable[[Row], float]:
    """Whether a planted defect was noticed when it was drawn, or by a test written later."""
    return lambda row: float(row["outcome"] == "noticed" or (later and row["later"] != ""))


# Samples of planted defects: in words, the seed, and whether tests written later count.
_NOTICED = "planted defects that the tests notice"
SAMPLES = (
    (f"{_NOTICED}, first sample, before any test was written for it", "23", False),
    (f"{_NOTICED}, first sample, with the tests written for it", "23", True),
    (f"{_NOTICED}, second sample, of five rooms, before any test was written for it", "29", False),
    (f"{_NOTICED}, second sample, with the tests written for it", "29", True),
    (f"{_NOTICED}, third sample, of five rooms, before any test was written for it", "30", False),
    (f"{_NOTICED}, third sample, with the tests written for it", "30", True),
)


GOALS = {
    "Estimates, intervals and tests": (
        Goal("error of `auto` over the best possible, smooth data, 2,000 rows or more", "≤ 1.15",
             "accuracy", "ratio", 1.155, ("family", "criterion", "n"),
             lambda r: r["estimator"] == "auto" and int(r["n"]) >= 2000),
        Goal("bias of `auto`, rough data, 2,000 rows", "≤ 25 % of the truth", "rough",
             _size("relative_bias"), 0.25, ("family", "criterion"),
             lambda r: (r["estimator"], r["n"]) == ("auto", "2000") and float(r["truth"]) > 0.05),
        Goal("the same, 20,000 rows or more", "≤ 10 % of the truth", "rough",
             _size("relative_bias"), 0.10, ("family", "criterion", "n"),
             lambda r: r["estimator"] == "auto" and int(r["n"]) >= 20_000
             and float(r["truth"]) > 0.05),
        Goal("coverage of 95 % intervals, `auto`", "≥ 92 %", "intervals", "coverage", 0.92,
             ("family", "criterion", "n"), _is(estimator="auto")),
        Goal("the same, rough data, 20,000 rows", "≥ 88 %", "rough", "coverage", 0.88,
             ("family", "criterion"), lambda r: (r["estimator"], r["n"]) == ("auto", "20000")
             and float(r["truth"]) > 0.05),
        Goal("coverage with clusters, `logistic`", "≥ 92 %", "clusters", "coverage", 0.92,
             ("kind", "criterion", "clusters"), _is(cluster_given="True")),
        Goal("rejections of fair scores at 5 %", "≤ 5 % (7 % by chance)", "calibration",
             "rejected_5", 0.07, ("family", "criterion", "n"), _is(study="size")),
        Goal("next door to what is tested: coverage", "≥ 92 %", "next_door", "covered", 0.92,
             ("feature", "case"), _claims("interval")),
        Goal("next door: rejections of fair scores at 5 %", "≤ 7 %", "next_door", "wrong", 0.07,
             ("feature", "case"), _claims("size")),
        Goal("error for a measurement over the best possible", "≤ 1.3", "continuous",
             "over_oracle", 1.3, ("law", "criterion", "rows")),
        Goal("cells against rows, `auto`, smooth data, in standard errors", "≤ 0.1", "cells",
             _size("largest"), 0.1, ("family", "n"),
             lambda r: r["estimator"] == "auto" and r["family"] in _smooth()),
        Goal("engines against one another, 3·10⁷ rows, in standard errors", "≤ 0.05", "scale",
             _size("error_se"), 0.05, ("engine", "criterion"), _is(what="same")),
    ),
    "Verdicts, controls and what follows an audit": (
        Goal("wrong passes at the limit", "≤ 5 % (6.5 % by chance)", "verdicts", "wrong_pass",
             0.065, ("number", "design", "units"), _is(part="edge")),
        Goal("wrong fails at the limit", "≤ 5 % (6.5 % by chance)", "verdicts", "wrong_fail",
             0.065, ("number", "design", "units"), _is(part="edge")),
        Goal("next door: wrong passes", "≤ 6 %", "next_door", "wrong", 0.06,
             ("feature", "case"), _is(claim="verdict")),
        Goal("tricks at gates of the command line that pass in silence", "≤ 0", "gates",
             lambda r: float(r["after"] == "silent pass"), 0.0, ("trick", "gate")),
        Goal("tables dressed up by tricks that pass in silence", "≤ 0", "dressing", "silent pass",
             0.0, ("tricks",)),
        Goal("coverage of metrics by group", "≥ 93 %", "metrics", _of_coverages(min), 0.93,
             ("design", "groups", "metric")),
        Goal("intervals of metrics by group that are too wide", "≤ 97 %", "metrics",
             _of_coverages(max), 0.97, ("design", "groups", "metric")),
        Goal("coverage of adjusted gaps, hard controls", "≥ 92 %", "hard_controls", "coverage",
             0.92, ("design",)),
        Goal("bias of adjusted gaps, hard controls, in standard errors", "≤ 0.25",
             "hard_controls", _size("bias_in_stderr"), 0.25, ("design",)),
        Goal("test given hard controls rejects at 5 %", "≤ 5 % (10 % by chance)",
             "hard_controls", "rejected", 0.10, ("design",)),
        Goal("series without a change in which an alarm was raised", "≤ 5 %", "monitor", "alarms",
             0.05, ("what", "rows_a_month"), _is(what="no change")),
        Goal("drivers ranked in the right order", "≥ 95 %", "drivers", "ranked", 0.95,
             ("scores",)),
        Goal("bounds for inferred groups that hold", "≥ 95 %", "imputed", "bounds_hold", 0.95,
             ("K", "direct")),
    ),
    "Models": (
        Goal("certified models that exceed their limit on new people", "≤ 5 %", "certify",
             "certified_violations", 0.05, ("scenario",)),
        Goal("models without a certificate that exceed it", "none is promised", "certify",
             "plain_violations", 0.05, ("scenario",), share=0.0),
        Goal("least unfairness at any weight, against splines", "≤ 0.002", "floors", "least", 0.002,
             ("dataset", "criterion"), _is(basis="spline")),
        Goal("few rows: R² of `FairRegressor` less that of fair ridge, equally unfair", "≥ -0.004",
             "small_samples", "ahead", -0.004, ("dataset", "criterion", "share"),
             lambda r: r["ahead"] != ""),
        Goal("plain `FairGLM` against scikit-learn, largest difference", "≤ 1e-6", "glm",
             "apart_from_scikit_learn", 1e-6, ("data", "family"),
             lambda r: r["apart_from_scikit_learn"] != ""),
        Goal("gradient of the loss for networks, 25 rare groups, largest error", "≤ 0.001",
             "network_steps", "gradient_error", 1e-3, ("criterion", "rows"),
             lambda r: r["gradient_error"] != ""),
    ),
    "Time and memory": (
        Goal("path of 20 points over one cold fit", "≤ 4", "path_speed", "ratio", 4.0,
             ("data", "criterion")),
        Goal("fair part of a GLM over the plain fit", "≤ 1.2", "glm", "fair_part_over_plain", 1.2,
             ("data", "family", "criterion")),
        Goal("fair booster over the library's own objective", "≤ 1.15", "boosting",
             "times_native", 1.15, ("library", "criterion"), _is(what="speed", objective="ours")),
        Goal("loss for networks, share of a plain step", "≤ 20 %", "network_steps", "batch_share",
             0.20, ("network", "rows", "criterion"), lambda r: r["batch_share"] != ""),
        Goal("scan of a table over a mean and variance by group", "≤ 5", "scale", "ratio", 5.0,
             ("engine", "rows"), _is(what="engine")),
        Goal("fit on files over one in memory, CPU time per row", "≤ 1.3", "training",
             "ratio_cpu_with_scan", 1.3, ("model", "rows"), _is(how="files")),
        Goal("two workers on one machine over one", "≥ 1.6", "cluster", "speedup", 1.6,
             ("engine", "model"), _is(workers="2")),
    ),
    "The code itself": (
        *(Goal(what, "≥ 85 % of them", "mutants", _notice(later), 1.0, ("module", "line"),
               _is(seed=seed), 0.85)
          for what, seed, later in SAMPLES),
        Goal("random misuse: errors that explain nothing and results that cannot be true, "
             "by target", "≤ 0", "fuzz", lambda r: float(r["undocumented"]) + float(r["broken"]),
             0.0, ("target",)),
        Goal("the wheel on each Python, lowest and newest dependencies: what fails", "≤ 0",
             "wheels", lambda r: float(r["failed"]) + 2.0 - float(r["audit"]) - float(r["demo"]),
             0.0, ("case",)),
        Goal("`import evenhand` from the wheel, seconds of CPU time", "≤ 0.1", "wheels",
             "import_s", 0.1, ("case",)),
        Goal("numbers before and after the house was made smaller, audits by `logistic` and `lspc` "
             "and quadratic fits", "≤ 1e-12", "same_numbers", "largest", 1e-12, ("data", "what"),
             lambda r: r["what"] != "audit, auto"),
        Goal("the same, audits by `auto`, which was changed on purpose", "none is promised",
             "same_numbers", "largest", 1e-12, ("data", "what"), _is(what="audit, auto"), 0.0),
        Goal("time before that over time after", "≥ 0.95", "base_head", "base_over_head",
             0.95, ("job",)),
    ),
}  # fmt: skip
# Tables whose rows carry their goal.
SPEEDS = {
    "performance": "fits and evaluations against peers",
    "audit_speed": "audits against peers",
    "many_groups": "many groups",
    "cold_start": "first calls, with nothing compiled (CPU seconds)",
    "followers": "what follows an audit, over its floor",
}
# Where the number that a goal is about is not in the column `value`.
COLUMNS = {"cold_start": "cpu_seconds", "followers": "ratio"}
HEAD = ("what", "goal", "met", "farthest from it", "measured", "table")


def goals() -> str:
    """Return one table per subject: how many cases meet each goal, and the one farthest from it."""
    parts, lines = [], {title: [_line(goal) for goal in each] for title, each in GOALS.items()}
    lines["Models"] += [*_atlas_lines(), _papers_line()]
    lines["The code itself"] += [_misuse_line(), *_size_lines()]
    lines["Time and memory"] += [_speed_line(name, what) for name, what in SPEEDS.items()]
    for title, body in lines.items():
        parts += [f"### {title}", table(HEAD, body)]
    body = [line for each in lines.values() for line in each if line[1] != "none is promised"]
    met = sum(not line[2].startswith("**") for line in body)
    return "\n\n".join([f"**{met} of {len(body)} goals are met.**", *parts])


def _line(goal: Goal) -> list[str]:
    rows = [r for r in read_table(goal.name, stamped=True) if goal.keep(r)]
    if not rows:
        raise LookupError(f"no row of {goal.name}.csv is about: {goal.what}")
    missed = [r for r in rows if not goal.is_met(r)]
    met = f"{len(rows) - len(missed)} of {len(rows)}"
    worst = "–"
    if 0.0 < goal.share < 1.0:
        worst = f"{1 - len(missed) / len(rows):.1%}"
    elif missed:
        far = (min if goal.goal.startswith("≥") else max)(missed, key=goal.read)
        value = goal.read(far)
        # A number alone does not say of what it is one.
        words = ", ".join(
            f"{column.replace('_', ' ')} {far[column]}" if far[column].isdigit() else far[column]
            for column in goal.case
            if far[column]
        ).replace("|", "\\|")
        worst = f"{words}: {value:.1%}" if "%" in goal.goal else f"{words}: {value:.3g}"
    good = len(missed) <= (1.0 - goal.share) * len(rows)
    return [goal.what, goal.goal, met if good else f"**{met}**", worst, _when(rows),
            _link(goal.name)]  # fmt: skip


def _speed_line(name: str, what: str) -> list[str]:
    rows = [r for r in read_table(name, stamped=True) if r["goal"]]
    column = COLUMNS.get(name, "value")
    missed = [r for r in rows if not meets(float(r[column]), r["goal"])]
    worst = "; ".join(f"{r['what']}: {float(r[column]):.3g} ({r['goal']})" for r in missed[:2])
    met = f"{len(rows) - len(missed)} of {len(rows)}"
    return [what, "each its own", f"**{met}**" if missed else met, worst or "–", _when(rows),
            _link(name)]  # fmt: skip


def _atlas_lines() -> list[list[str]]:
    """Return how the recommended model stands against the best rivals, by what it may know."""
    from pages import atlas

    out = []
    cells, when = atlas.cells(read_numbers("atlas")), _when(read_table("atlas", stamped=True))
    for league, title in atlas.LEAGUES.items():
        ahead, total, good = atlas.against(cells, league)
        beyond = [line for line in ahead if line["excess"] > 2]
        lost = {(line["dataset"], line["criterion"], line["share"]) for line in beyond}
        rank = atlas.ranks(cells, league, lambda key: True)[atlas.recommended(league)]
        words = f"on a dozen data sets, {title[0].lower()}{title[1:]}"
        near, clear = f"{good} of {total}", f"{total - len(lost)} of {total}"
        out += [
            [f"no rival ahead by more than one standard error, {words}", "≥ 92 % of the cases",
             near if good >= 0.92 * total else f"**{near}**", f"{good / total:.1%}", when,
             _link("atlas")],
            [f"no rival ahead by more than two, {words}", "all cases",
             f"**{clear}**" if beyond else clear,
             f"{beyond[0]['dataset']}, {beyond[0]['criterion']}" if beyond else "–", when,
             _link("atlas")],
            [f"mean rank among the rivals, {words}", "≤ 1.6",
             "1 of 1" if rank <= 1.6 else "**0 of 1**", f"{rank:.2f}", when, _link("atlas")],
        ]  # fmt: skip
    return out


def _misuse_line() -> list[str]:
    """Return how many cases of random misuse there were."""
    rows = read_table("fuzz", stamped=True)
    total = sum(int(r["cases"]) for r in rows)
    most = max(rows, key=lambda r: int(r["cases"]))
    return ["random misuse: cases over all targets", "≥ 1,000,000",
            "1 of 1" if total >= 1_000_000 else "**0 of 1**",
            f"{total:,}, of which {int(most['cases']):,} of the target {most['target']}",
            _when(rows), _link("fuzz")]  # fmt: skip


def _size_lines() -> list[list[str]]:
    """Return what the files of a release weigh."""
    facts, when = read_facts("wheels"), _when(read_table("wheels", stamped=True))
    return [
        [f"size of the {what}, kB", f"≤ {most:,}",
         "1 of 1" if facts[name] <= most else "**0 of 1**", f"{facts[name]:,}", when,
         _link("wheels")]
        for what, name, most in (("wheel", "wheel_kb", 1000),
                                 ("source distribution", "sdist_kb", 1500))
    ]  # fmt: skip


def _papers_line() -> list[str]:
    """Return against how many rivals of later papers ours are not behind, and the others."""
    standings = other_papers.standings()
    won = (other_papers.BEHIND, other_papers.MISSED)
    lost = [where for kind, where, _ in standings if kind in won]
    met = f"{len(standings) - len(lost)} of {len(standings)}"
    more = f"; and {len(lost) - 2} more" if len(lost) > 2 else ""
    return [
        "rivals of later papers, in their own measures: ours not behind", "all of them",
        f"**{met}**" if lost else met, f"{'; '.join(lost[:2])}{more}" or "–",
        _when(read_table("rivals_published", stamped=True)), _link("rivals_published"),
    ]  # fmt: skip


def _link(name: str) -> str:
    """Return a link to the page that shows a table, or the file of one that no page shows."""
    page = STUDIES[name].page.split(":")[0]
    return f"[{page}]({page}.md)" if page else f"`{name}.csv`"


def _when(rows: list[Row]) -> str:
    """Return the date of the newest row and its commit."""
    last = max(rows, key=lambda r: r["date"])
    return f"{last['date']}, {last['commit'][:7]}"
