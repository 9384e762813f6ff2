"""Numbers and tables of docs/reproduction.md, all read from the tables of results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common import CRITERIA
from evidence import read_facts, read_numbers, read_stamps
from studies.frontiers import THRESHOLDS
from studies.methods import (
    ATTRIBUTE,
    BEST,
    BLIND,
    COMPARED,
    CUBIC,
    FAMILIES,
    NESTED,
    OURS,
    PAPER,
    RAW,
    TRANSPORT,
    VARIANTS,
)

NAMES = {"communities": "Communities and Crime", "lsac": "LSAC"}
PAPER_NAMES = [m.name for m in PAPER]
LSPC = ("LSPC-sep-quad", "LSPC-ind-quad")
LSPC_BEST = tuple(name + BEST for name in LSPC)
LR = ("LR-sep-quad", "LR-ind-quad")
PLAIN = ("evenhand-sep", "evenhand-ind")
PLAIN_OR_CUBIC = (*PLAIN, *(m.name for m in CUBIC[:2]))
FRONTIER_NAMES = [name for name in FAMILIES if name.startswith(("LSPC", "CVX"))]
INSIDE_NAMES = [*LSPC, *LSPC_BEST, *LR, *(m.name for m in OURS)]
ESTIMATORS = ("auto", "knn")
SIDES = {LSPC: "LSPC-quad as published", LSPC_BEST: "LSPC-quad at its best penalty",
         LR: "logistic inside", PLAIN: "ours"}  # fmt: skip
# R² that differs by less is called level.
LEVEL = 5e-4
# R² that is lower by more is called clearly lower. At a bound of 0.05 the standard error of
# separation on LSAC is 0.008, and along the path that is worth about 0.005 of R²: two such errors.
CLEAR = 1e-2


@dataclass(frozen=True)
class Frontier:
    """Points of one data set."""

    rows: list[dict[str, Any]]

    def path(self, method: str, column: str) -> NDArray[np.float64]:
        """Values along the sweep, in order of strength."""
        mine = [r for r in self.rows if r["method"] == method and r["point"] == "sweep"]
        return np.array([r[column] for r in sorted(mine, key=lambda r: r["strength"])])


class Results:
    """The tables of a folder, each read once."""

    def __init__(self, folder: Path) -> None:
        self.rows = cache(lambda name: read_numbers(name, folder))
        self.facts = cache(lambda name: read_facts(name, folder))
        self.stamps = cache(lambda name: read_stamps(name, folder))

    def frontier(self, dataset: str) -> Frontier:
        names = (f"frontier_{dataset}", f"supplement_{dataset}")
        return Frontier([row for name in names for row in self.rows(name)])

    def lines(self, dataset: str, estimator: str, criterion: str, threshold: float) -> list[dict]:
        """Lines of the threshold table, one a method."""
        wanted = (dataset, estimator, criterion, threshold)
        keys = ("dataset", "estimator", "criterion", "threshold")
        return [r for r in self.rows("thresholds") if tuple(r[k] for k in keys) == wanted]

    def best(
        self, dataset: str, estimator: str, criterion: str, threshold: float, *methods: str
    ) -> float:
        """Highest R² of some lines of the tables under a bound; NaN if none of them meets it."""
        members = {member for name in methods for member in FAMILIES[name]}
        lines = self.lines(dataset, estimator, criterion, threshold)
        result = [r["r2"] for r in lines if r["method"] in members and np.isfinite(r["r2"])]
        return max(result, default=float("nan"))


def number(value: float) -> str:
    return f"{value:.3f}" if np.isfinite(value) else "–"


def lowest(frontier: Frontier, methods: Iterable[str], least_r2: float) -> dict[str, float]:
    """The least value of both criteria by fourier at an R² of at least `least_r2`."""
    out = {}
    for criterion in ("separation", "independence"):
        values = [
            row[f"{criterion}_fourier"]
            for row in frontier.rows
            if row["method"] in methods and row["r2"] >= least_r2 and row["point"] == "sweep"
        ]
        out[criterion] = min(values)
    return out


def frontier_table(
    results: Results, dataset: str, names: Sequence[str], estimator: str = "auto"
) -> str:
    """R² under each bound, and the least value of the sweep with the R² it costs."""
    rows = results.frontier(dataset).rows
    columns = [(c, t) for c in ("separation", "independence") for t in THRESHOLDS]
    head = [f"R², {c} ≤ {t:.2f}" for c, t in columns]
    head += ["least separation (R²)", "least independence (R²)"]
    lines = ["| method | " + " | ".join(head) + " |", "| --- |" + " ---: |" * len(head)]
    for name in names:
        cells = [number(results.best(dataset, estimator, c, t, name)) for c, t in columns]
        mine = [r for r in rows if r["method"] in FAMILIES[name] and r["point"] == "sweep"]
        for criterion in ("separation", "independence"):
            least = min(mine, key=lambda r, key=f"{criterion}_{estimator}": r[key])
            cells.append(f"{least[f'{criterion}_{estimator}']:.3f} ({least['r2']:.3f})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def compare(
    results: Results, dataset: str, estimator: str, first: Sequence[str], second: Sequence[str]
) -> str:
    """A sentence with the best R² of two sets of methods under the bounds of both criteria."""
    parts = []
    for criterion in ("separation", "independence"):
        pairs = []
        for threshold in THRESHOLDS:
            a = results.best(dataset, estimator, criterion, threshold, *first)
            b = results.best(dataset, estimator, criterion, threshold, *second)
            pairs.append(f"{number(a)} against {number(b)}")
        parts.append(f"{', '.join(pairs)} for {criterion}")
    names = " against ".join(SIDES.get(tuple(side), "/".join(side)) for side in (first, second))
    bounds = " / ".join(f"{t:.2f}" for t in THRESHOLDS)
    return f"R² of {names} at a bound of {bounds} ({estimator}): {'; '.join(parts)}."


def ahead(
    results: Results, dataset: str, estimator: str, first: Sequence[str], second: Sequence[str]
) -> tuple[int, int]:
    """Bounds at which the first methods are level or ahead, and all that either meets."""
    won = total = 0
    for criterion in ("separation", "independence"):
        for threshold in THRESHOLDS:
            a = results.best(dataset, estimator, criterion, threshold, *first)
            b = results.best(dataset, estimator, criterion, threshold, *second)
            total += bool(np.isfinite(a) or np.isfinite(b))
            won += bool(np.isfinite(a) and not a < b - LEVEL)
    return won, total


def gap(
    results: Results,
    dataset: str,
    estimator: str,
    first: Sequence[str],
    second: Sequence[str],
    met_by_both: bool = False,
) -> NDArray[np.float64]:
    """How far the first methods are behind the second in R², bound by bound.

    Where only the second meet one the first are behind by all of their R², or it does not count.
    """
    out = []
    for criterion in ("separation", "independence"):
        for threshold in THRESHOLDS:
            a = results.best(dataset, estimator, criterion, threshold, *first)
            b = results.best(dataset, estimator, criterion, threshold, *second)
            if np.isfinite(a) and np.isfinite(b):
                out.append(b - a)
            elif np.isfinite(b) and not met_by_both:
                out.append(b)
    return np.array(out)


def same_as_nested(results: Results, dataset: str) -> tuple[float, float]:
    """Largest difference in R², and in a criterion (auto), of our raw fits and the nested ones."""
    rows = results.frontier(dataset).rows
    worst = {"r2": 0.0, "independence_auto": 0.0, "separation_auto": 0.0}
    for nested, ours in zip(NESTED, RAW, strict=True):
        known = {r["strength"]: r for r in rows if r["method"] == ours.name}
        for row in (r for r in rows if r["method"] == nested.name and r["strength"] in known):
            for key in worst:
                worst[key] = max(worst[key], abs(row[key] - known[row["strength"]][key]))
    r2, *criteria = worst.values()
    return r2, max(criteria)


def median_seconds(rows: list[dict[str, Any]], n: float) -> dict[str, float]:
    """Median over strengths of the time of each method at n rows, or at its largest size."""
    out = {}
    for name in dict.fromkeys(r["method"] for r in rows):
        sizes = [r["n"] for r in rows if r["method"] == name]
        at = n if n in sizes else max(sizes)
        out[name] = float(
            np.median([r["seconds"] for r in rows if r["method"] == name and r["n"] == at])
        )
    return out


def growth(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Exponent of time in n over the upper half of the sizes."""
    out = {}
    for name in dict.fromkeys(r["method"] for r in rows):
        sizes = sorted({r["n"] for r in rows if r["method"] == name})
        sizes = sizes[len(sizes) // 2 :] if len(sizes) > 3 else sizes
        times = [median_seconds([r for r in rows if r["n"] == n], n)[name] for n in sizes]
        out[name] = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
    return out


def errors(rows: list[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Root mean square and mean error of each estimator, criterion by criterion."""
    out: dict[str, list[tuple[float, float]]] = {}
    for name in dict.fromkeys(r["estimator"] for r in rows):
        out[name] = []
        for criterion in CRITERIA:
            mine = [r for r in rows if r["estimator"] == name and r["criterion"] == criterion]
            error = np.array([r["estimate"] - r["truth"] for r in mine])
            out[name].append((float(np.sqrt(np.mean(error**2))), float(error.mean())))
    return out


def league_table(results: Results, dataset: str, estimator: str, league: str) -> str:
    """R² of every method of a league under every bound, the best of each column in bold."""
    columns = [(c, t) for c in ("separation", "independence") for t in THRESHOLDS]
    run = {
        r["method"]
        for r in results.rows("thresholds")
        if r["league"] == league and r["dataset"] == dataset
    }
    cells = {
        name: [results.best(dataset, estimator, c, t, name) for c, t in columns]
        for name, members in FAMILIES.items()
        if run.intersection(members)
    }
    tops = [max((v for v in col if np.isfinite(v)), default=np.inf)
            for col in zip(*cells.values(), strict=True)]  # fmt: skip
    lines = ["| method | " + " | ".join(f"{c} ≤ {t:.2f}" for c, t in columns) + " |",
             "| --- |" + " ---: |" * len(columns)]  # fmt: skip
    for method, values in cells.items():
        shown = [f"**{number(v)}**" if v >= t - LEVEL else number(v)
                 for v, t in zip(values, tops, strict=True)]  # fmt: skip
        lines.append(f"| {method} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def settings_table(results: Results) -> str:
    """What of each rival was tried, and the most that a setting other than its own default won."""
    lines = ["| method | other settings tried | most gained in R² under a bound by auto | where |",
             "| --- | --- | ---: | --- |"]  # fmt: skip
    run = {r["method"] for r in results.rows("thresholds")}
    for name, settings in VARIANTS.items():
        gains, only = [(0.0, "–")], 0
        for dataset, title in NAMES.items():
            for criterion in ("separation", "independence"):
                for threshold in THRESHOLDS:
                    result = {
                        r["method"]: r["r2"]
                        for r in results.lines(dataset, "auto", criterion, threshold)
                        if np.isfinite(r["r2"])
                    }
                    for words in settings:
                        tried = result.get(f"{name}, {words}")
                        if tried is None:
                            continue
                        if name not in result:
                            only += 1
                        else:
                            place = f"{words}; {title}, {criterion} ≤ {threshold:.2f}"
                            gains.append((tried - result[name], place))
        if name not in run:
            continue
        gain, where = max(gains)
        met = " A bound that the default misses is met as well." if only else ""
        lines.append(f"| {name} | {'; '.join(settings)} | {gain:.3f} | {where}.{met} |"
                     if gain > 0 or met else
                     f"| {name} | {'; '.join(settings)} | – | the default is best |")  # fmt: skip
    return "\n".join(lines)


# The last section: all methods under all bounds, and where ours stands ----------------------------


@dataclass
class Standing:
    """Bounds where ours is level or ahead, all bounds, those ours does not meet, worst gap.

    `lost` says in words which bounds are not reached, and by how much.
    """

    level: int = 0
    total: int = 0
    unmet: int = 0
    behind: float = 0.0
    lost: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        text = f"{self.level} of {self.total} (at worst {self.behind:.3f} behind"
        return text + (f"; {self.unmet} met by another method only)" if self.unmet else ")")


def standing(results: Results, league: str) -> tuple[str, dict[str, Standing]]:
    """Ours against the best other method under every bound, and a count by estimator."""
    lines = ["| data | estimator | bound | ours | best other | ours ahead by | standard error |",
             "| --- | --- | --- | ---: | --- | ---: | ---: |"]  # fmt: skip
    counts: dict[str, Standing] = {}
    for dataset in NAMES:
        for estimator in ESTIMATORS:
            for criterion in ("separation", "independence"):
                for threshold in THRESHOLDS:
                    rows = [r for r in results.lines(dataset, estimator, criterion, threshold)
                            if r["league"] == league and np.isfinite(r["r2"])]  # fmt: skip
                    mine = max((r for r in rows if r["ours"]), key=lambda r: r["r2"], default=None)
                    best = max(
                        (r for r in rows if not r["ours"]), key=lambda r: r["r2"], default=None
                    )
                    if mine is None and best is None:
                        continue
                    count = counts.setdefault(estimator, Standing())
                    count.total += 1
                    bound = f"{criterion} ≤ {threshold:.2f} on {NAMES[dataset]} by {estimator}"
                    error, ahead = float("nan"), "only ours" if mine else "only theirs"
                    if mine and best:
                        lead = mine["r2"] - best["r2"]
                        count.level += lead > -LEVEL
                        count.behind = max(count.behind, -lead)
                        ahead = f"{lead:+.3f}"
                        if lead <= -LEVEL:
                            count.lost.append(f"{bound} ({lead:+.4f} against {best['method']})")
                        error = max((r["behind_se"] for r in (mine, best)
                                     if np.isfinite(r["behind_se"])), default=error)  # fmt: skip
                    elif mine:
                        count.level += 1
                    elif best:
                        count.unmet += 1
                        low = lowest_of_ours(results, dataset, league, f"{criterion}_{estimator}")
                        count.lost.append(
                            f"{bound}, met by {best['method']} alone at R² {best['r2']:.3f}; ours "
                            f"comes to {low[0]:.3f} at R² {low[1]:.3f}"
                        )
                    lines.append(
                        f"| {NAMES[dataset]} | {estimator} | {criterion} ≤ {threshold:.2f} | "
                        f"{number(mine['r2']) + ' ' + mine['method'] if mine else '–'} | "
                        f"{number(best['r2']) + ' ' + best['method'] if best else '–'} | "
                        f"{ahead} | {number(error)} |"
                    )
    return "\n".join(lines), counts


def lowest_of_ours(results: Results, dataset: str, league: str, column: str) -> tuple[float, float]:
    """The least value that any of our fits has, and its R²."""
    names = [m.name for m in COMPARED if m.ours and m.league == league]
    rows = [r for r in results.frontier(dataset).rows if r["method"] in names]
    return min((r[column], r["r2"]) for r in rows if np.isfinite(r[column]))


def plain_standing(results: Results) -> str:
    """Plain FairRidge against LSPC and the convex penalties, the worst case of each estimator."""
    lines = ["| estimator | basis | bounds met by any | met by LSPC or CVX only | furthest behind "
             "LSPC or CVX | where |", "| --- | --- | ---: | ---: | ---: | --- |"]  # fmt: skip
    for estimator in ESTIMATORS:
        for basis, methods in (("quadratic", PLAIN), ("quadratic or degree3", PLAIN_OR_CUBIC)):
            gaps, met, unmet = [], 0, 0
            for dataset in NAMES:
                for criterion in ("separation", "independence"):
                    for threshold in THRESHOLDS:
                        where = (dataset, estimator, criterion, threshold)
                        a = results.best(*where, *methods)
                        b = results.best(*where, *FRONTIER_NAMES)
                        met += bool(np.isfinite(a) or np.isfinite(b))
                        unmet += bool(np.isnan(a) and np.isfinite(b))
                        if np.isfinite(a) and np.isfinite(b):
                            gaps.append((b - a, where))
            worst, (dataset, _, criterion, threshold) = max(gaps, key=lambda g: g[0])
            place = f"{NAMES[dataset]}, {criterion} ≤ {threshold:.2f}" if worst > 0 else "–"
            lines.append(
                f"| {estimator} | {basis} | {met} | {unmet} | {max(worst, 0.0):.3f} | {place} |"
            )
    return "\n".join(lines)


def tightest(results: Results, *names: str) -> tuple[int, int]:
    """Least bounds that some lines meet by auto on Communities, and how many there are."""
    values = [
        results.best("communities", "auto", criterion, THRESHOLDS[-1], *names)
        for criterion in ("separation", "independence")
    ]
    return int(np.isfinite(values).sum()), len(values)


def why_degree(results: Results) -> str:
    plain, total = tightest(results, *PLAIN)
    cubic, _ = tightest(results, *(m.name for m in CUBIC[:2]))
    start = (
        f"**Degree.** Of the {total} bounds of {THRESHOLDS[-1]:.2f} on Communities (by auto) plain "
        f"`FairRidge` meets {plain} with the quadratic basis and {cubic} with one degree more"
    )
    if cubic > plain:
        return start + (
            ": a quadratic fit leaves nothing that a quadratic classifier sees, and a little that "
            "richer estimators do."
        )
    return start + ": on bounded scores the cubic term has little left to remove."


def why_transport(results: Results) -> str:
    before = [m.name for m in COMPARED if m.ours and m.league == ATTRIBUTE and m not in TRANSPORT]
    after = [*before, *(m.name for m in TRANSPORT if m.league == ATTRIBUTE)]
    lead = [
        max(
            gap(results, d, "auto", mine, ["Wasserstein, interpolated"], met_by_both=True).max()
            for d in NAMES
        )
        for mine in (before, after)
    ]
    text = (
        "**Transport.** A fairness term of low degree sees mean, spread and skewness, and an "
        "affine map by group can correct no more. A linear score of LSAC's students in six "
        "clusters of schools has several peaks, at different places in each group. The barycenter "
        "maps whole distributions; "
    )
    if lead[0] < LEVEL:
        return text + "yet by auto it is nowhere ahead of our affine maps."
    return text + (
        f"it is ahead of our affine maps by up to {lead[0]:.3f} in R² (auto). "
        '`FairPostprocessor(map="transport")` has that map as one of its features, and chooses by '
        "the objective how much of it to use and how steep each group's map is; with it the "
        f"barycenter's largest lead is {max(lead[1], 0.0):.4f}."
    )


def final_table(results: Results) -> str:
    text = [
        "## One table: the best held-out R² under a bound",
        "The strength of every method is free; the highest R² under the bound counts, "
        "interpolated between the strengths on either side of it, which by auto on Communities "
        "were sought close to it. A dash: no strength meets it. Bold: the best of its column, to "
        f"within {LEVEL}. Two leagues, kept apart: methods that do not need the attribute of a new "
        "person, and methods that do.",
        "**Rivals at their best.** Methods other than ours were also run at other settings of "
        "their own, and a cell shows the best of them. That best is chosen on the very rows it is "
        "reported on, cell by cell, which favors them; what is chosen on inner folds is in the "
        "[atlas](atlas.md). LSPC as published keeps a line of its own. The ridge penalty of the "
        "base model is the same for all. Fair ridge, Komiyama's method and CorrelationRemover "
        "have no other settings; of the nested logistic regression, too slow to be swept, the "
        'lines "LR" without "(nested)" are the same objective solved by `FairRidge` on raw scores.',
        settings_table(results),
    ]
    for dataset, name in NAMES.items():
        for league in (BLIND, ATTRIBUTE):
            text += [f"### {name}, {league} to predict",
                     "By auto:", league_table(results, dataset, "auto", league),
                     "<details><summary>By knn (interpolated between strengths)</summary>",
                     league_table(results, dataset, "knn", league), "</details>"]  # fmt: skip
    text.append("### Where that leaves us")
    for league in (BLIND, ATTRIBUTE):
        body, counts = standing(results, league)
        leads = "; ".join(f"by {e} in {count}" for e, count in counts.items())
        text += [
            f"**{league.capitalize()} to predict.** Ours has the highest R², or shares it, "
            f"{leads}. The standard error is that of the difference over rows; differences within "
            "two of it may be luck, and of estimates so close to zero as 0.01 the estimators' own "
            "error decides which strength counts.",
            body,
        ]
        losses = [loss for count in counts.values() for loss in count.lost]
        if losses:
            text.append("Not reached: " + "; ".join(losses) + ".")
    whole = {
        e: next(
            r[f"independence_{e}"]
            for r in results.frontier("lsac").rows
            if r["method"] == "Wasserstein, interpolated" and r["strength"] == 1
        )
        for e in ESTIMATORS
    }
    luck = max(r for r, _ in errors(results.rows("estimator_accuracy"))["nearest neighbors"])
    text += [
        why_degree(results),
        why_transport(results),
        "**By knn, bounds of 0.01 are luck.** The barycenter's whole step makes the two groups of "
        f"LSAC the same except for sampling error: {whole['auto']:.3f} by auto, "
        f"{whole['knn']:.3f} by knn. An estimator with that much error of its own "
        f"({luck:.3f} in the scenarios above) lets one strength of one method under a bound of "
        "0.01 and not its neighbors. More strengths would be more draws, not better models.",
        "**Choice among variants.** Ours is the best of several fits (with and without group "
        "features, for either criterion, of two degrees, in one step or post-processed by lines or "
        "by transport), as the others' is the best of all of theirs at all of their settings; the "
        "winners' small leads carry the luck of that.",
        "**Plain `FairRidge`** (logistic, no group features) against LSPC at its best penalty and "
        "the convex penalties:",
        plain_standing(results),
    ]
    return "\n\n".join(text)
