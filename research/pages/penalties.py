"""Two sections of docs/reproduction.md: what the penalty decides, and how many minima there are."""

from __future__ import annotations

import numpy as np

from pages.markdown import picture
from pages.reproduction_tables import LEVEL, Results, number
from studies.frontiers import THRESHOLDS

CRITERIA = ("independence", "separation")
OLD, PUBLISHED, AUTO = "LSPC, penalty 0.001", "LSPC, published", "LSPC, auto"
RAW, BOUNDED = "logistic, raw scores", "logistic, bounded scores"
# A term less than this is called below zero.
BELOW = -0.005


def value(
    results: Results, dataset: str, setting: str, criterion: str, threshold: float, continued: int
) -> float:
    """R² of one path at one bound; NaN where it does not get there."""
    wanted = (dataset, setting, criterion, threshold, continued)
    keys = ("dataset", "setting", "criterion", "threshold", "continued")
    return next(r["r2"] for r in results.rows("penalty") if tuple(r[k] for k in keys) == wanted)


def cells(results: Results, dataset: str, setting: str, continued: int) -> list[float]:
    """R² under all bounds of independence, then of separation."""
    return [value(results, dataset, setting, c, t, continued) for c in CRITERIA for t in THRESHOLDS]


def listed(values: list[float]) -> str:
    return " / ".join(number(v) for v in values)


def best_penalty(results: Results, dataset: str, criterion: str, threshold: float) -> str:
    """The LSPC setting of highest R² under a bound, from ridge each time."""
    names = [s for s in settings(results) if s.startswith("LSPC")]
    at = {s: value(results, dataset, s, criterion, threshold, 0) for s in names}
    return max(at, key=lambda s: -np.inf if np.isnan(at[s]) else at[s])


def settings(results: Results) -> list[str]:
    return list(dict.fromkeys(r["setting"] for r in results.rows("penalty")))


def penalty_table(results: Results, dataset: str) -> str:
    head = [f"{c} ≤ {t:.2f}" for c in CRITERIA for t in THRESHOLDS]
    lines = ["| inside the fairness term | each weight starts from | " + " | ".join(head) + " |",
             "| --- | --- |" + " ---: |" * len(head)]  # fmt: skip
    run = {(r["setting"], r["continued"]) for r in results.rows("penalty")
           if r["dataset"] == dataset}  # fmt: skip
    rows = [(s, c) for s in settings(results) for c in (0, 1) if (s, c) in run]
    table = np.array([cells(results, dataset, *row) for row in rows])
    tops = np.nanmax(np.vstack([table, np.full(table.shape[1], -np.inf)]), axis=0)
    for (setting, continued), values in zip(rows, table, strict=True):
        shown = [f"**{number(v)}**" if v >= top - LEVEL else number(v)
                 for v, top in zip(values, tops, strict=True)]  # fmt: skip
        start = "the weight before" if continued else "ridge"
        lines.append(f"| {setting} | {start} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def continuation(results: Results) -> str:
    """What continuation does at our old constant and at the other penalties."""
    first = (OLD, "independence", THRESHOLDS[0])
    alone, along = (value(results, "communities", *first, c) for c in (0, 1))
    others = [s for s in settings(results) if s.startswith("LSPC") and s not in (OLD, PUBLISHED)]
    moved = [
        abs(a - b)
        for s in others
        for c in CRITERIA
        for t in THRESHOLDS[:2]
        if np.isfinite(a := value(results, "communities", s, c, t, 0))
        and np.isfinite(b := value(results, "communities", s, c, t, 1))
    ]
    published = [
        value(results, "communities", PUBLISHED, "independence", t, c)
        for c in (0, 1)
        for t in THRESHOLDS[:2]
    ]
    text = (
        "*Continuation.* The objective at κ = 0.001 is the same whichever way it is searched. From "
        f"ridge each time, R² at independence ≤ {THRESHOLDS[0]:.2f} is {number(alone)}; from the "
        f"solution at the weight before it is {number(along)}"
    )
    if not along <= alone + LEVEL:
        text += (
            ". So part of what we had put down to the method was a search that ended in a worse "
            "minimum, ours to avoid"
        )
    else:
        text += ", so the way of searching is not what held it back"
    text += (
        f". At penalties of 100 and more continuation moves R² by at most {max(moved):.3f} at "
        f"bounds of {THRESHOLDS[0]:.2f} and {THRESHOLDS[1]:.2f}. "
        f"As published it is {listed(published[:2])} from ridge and {listed(published[2:])} "
        "continued, for independence at these bounds"
    )
    if published[2] < published[0] - LEVEL:
        text += ": following the path is no guarantee either"
    return text + "."


def bounded(results: Results) -> str:
    """Raw against bounded scores in the logistic term."""
    raw, tanh = (cells(results, "communities", s, 0) for s in (RAW, BOUNDED))
    gains = [b - a for a, b in zip(raw[:3], tanh[:3], strict=True) if np.isfinite(a - b)]
    rest = [
        abs(b - a)
        for a, b in zip(
            [*raw[3:], *cells(results, "lsac", RAW, 0)],
            [*tanh[3:], *cells(results, "lsac", BOUNDED, 0)],
            strict=True,
        )
        if np.isfinite(a - b)
    ]
    text = (
        "*The same remedy for our own term.* A strong penalty helps LSPC because it holds back the "
        "square of the score in the tails. The logistic term has the same tails. With scores "
        "bounded smoothly before they enter it (`score_map`), R² on Communities under the three "
        f"bounds of independence is {listed(tanh[:3])} instead of {listed(raw[:3])}"
    )
    more = sum(np.isfinite(tanh)) - sum(np.isfinite(raw))
    if more > 0:
        text += f", and {more} more bound{'s are' if more > 1 else ' is'} met"
    text += f"; elsewhere it moves R² by at most {max(rest):.3f}"
    if min(gains) >= -LEVEL:
        text += ". Bounded scores are the default now"
    return text + "."


def long_step(results: Results) -> str:
    """A remark where the first weight of the sweep is past the first bound already."""
    rows = [r for r in results.rows("penalty_path") if r["dataset"] == "lsac" and r["strength"] > 0]
    first = min(r["strength"] for r in rows)
    if any(r["value"] > THRESHOLDS[0] for r in rows if r["strength"] == first):
        return ""
    return (
        f" (where the first weight, {first:g}, meets the first bounds: what is interpolated "
        "from no fairness to there is a little low, for all alike)"
    )


def what_we_had_wrong(results: Results) -> str:
    d, at = "communities", THRESHOLDS[0]
    old, new = (cells(results, d, s, 0) for s in (OLD, PUBLISHED))
    best = best_penalty(results, d, "independence", at)
    spread = results.facts("penalty")["score_spread"][d]
    lsac = np.array([cells(results, "lsac", s, 0) for s in settings(results)])
    apart = np.nanmax(lsac[:, [0, 1, 3, 4]], axis=0) - np.nanmin(lsac[:, [0, 1, 3, 4]], axis=0)
    lost = new[0] - old[0]
    gap = value(results, d, best, "independence", at, 0) - old[0]
    return "\n\n".join(
        [
            "## What we had wrong, and how it was found",
            "An earlier version of this page said of the paper's main claim on Communities \"not "
            "confirmed\", and gave reasons: several minima, and a misfit of the classifier that "
            "training exploits. Much of that came from one constant, and the constant was ours.",
            "*The constant.* LSPC's classifier is a ridge regression with a penalty κ. Ours had "
            "κ = 0.001 on standardized variables, and nobody could change it. The published code "
            f"has a penalty of 1 on the score as it is. With a score of spread {spread:.2f}, as on "
            f"Communities, that is κ = {1 / spread**2:.0f} on the linear term and κ = "
            f"{1 / spread**4:.0f} on the quadratic one in our units. We had reproduced the "
            "equations and not the setting.",
            "*How it was found.* The published method was run independently, with its own penalty, "
            "next to ours. Its independence fell smoothly where ours went back and forth, so the "
            "penalty was swept.",
            "R², held out by auto, interpolated along each path, Communities:",
            penalty_table(results, d),
            "LSAC" + long_step(results) + ":",
            penalty_table(results, "lsac"),
            picture("penalty", "R² against the criterion it is trained for, by penalty"),
            f"*What it changes.* At independence ≤ {at:.2f} R² is {number(old[0])} at κ = 0.001, "
            f"{number(new[0])} as published ({lost:+.3f}), and "
            f"{number(value(results, d, best, 'independence', at, 0))} at the best of the settings "
            f"tried ({best}, {gap:+.3f}). Under all bounds, independence then separation: "
            f"{listed(old)} at κ = 0.001; {listed(new)} as published; "
            f"{listed(cells(results, d, best, 0))} for {best}. On LSAC all settings agree within "
            f"{apart.max():.3f} in R² at bounds of {THRESHOLDS[0]:.2f} and {THRESHOLDS[1]:.2f}, "
            "so that nothing looked wrong there.",
            continuation(results),
            bounded(results),
            standing_explanations(results),
            "*What follows.* κ is a parameter of `FairRidge` and of the regularizer "
            '(`kappa="published"`, a number, or "auto", which does not depend on units); the '
            "comparisons on this page have LSPC as published and at its best penalty; and every "
            "other rival is run at several settings of its own, of which the best is shown.",
        ]
    )  # fmt: skip


def summarize(results: Results) -> dict[tuple[str, str], dict[str, float]]:
    """Of each kind of fit and criterion: the least weights with several minima and with a term
    below zero (NaN for none), most minima, least term."""
    out: dict[tuple[str, str], dict[str, float]] = {}
    for name, criterion, weight, count, _, lowest in ends(results):
        kept = out.setdefault((name, criterion), {"several": np.nan, "below": np.nan,
                                                  "minima": 0, "least": np.inf})  # fmt: skip
        if count > 1:
            kept["several"] = np.fmin(kept["several"], weight)
        if lowest < BELOW:
            kept["below"] = np.fmin(kept["below"], weight)
        kept["minima"] = max(kept["minima"], count)
        kept["least"] = min(kept["least"], lowest)
    return out


def ends(results: Results) -> list[tuple[str, str, float, int, float, float]]:
    """Different minima, spread of the objective and least term of every set of starts."""
    rows = results.rows("local_minima")
    out = []
    for key in dict.fromkeys((r["classifier"], r["criterion"], r["fairness_weight"]) for r in rows):
        mine = [r for r in rows if (r["classifier"], r["criterion"], r["fairness_weight"]) == key]
        result = np.sort([r["objective"] for r in mine])
        tolerance = 1e-3 * (1 + key[2])
        count = 1 + int((np.diff(result) > tolerance).sum())
        lowest = min(r["unfairness"] for r in mine)
        out.append((*key, count, float(result[-1] - result[0]), lowest))
    return out


def standing_explanations(results: Results) -> str:
    """Which of the earlier explanations hold at which penalty."""
    result = summarize(results)
    names = list(dict.fromkeys(name for name, _ in result))
    several = [n for n in names if any(result[n, c]["minima"] > 1 for c in CRITERIA)]
    below = [n for n in names if any(result[n, c]["least"] < BELOW for c in CRITERIA)]
    text = (
        f'*What became of the explanations.* "Several minima" {_holds(several, names)}. "A term '
        'below zero", that is a classifier made wrong by training instead of a score made fair, '
        f"{_holds(below, names)}. "
    )
    first = {n: result[n, "independence"]["several"] for n in (OLD, PUBLISHED)}
    met = min(
        (
            r["strength"]
            for r in results.rows("penalty_path")
            if (r["dataset"], r["setting"], r["criterion"], r["continued"])
            == ("communities", PUBLISHED, "independence", 0)
            and r["value"] <= THRESHOLDS[0]
        ),
        default=np.inf,
    )
    if max(first[OLD], met) < first[PUBLISHED]:
        text += (
            "But as published several minima of the term for independence begin at a weight of "
            f"{first[PUBLISHED]:g}, where our constant had them at {first[OLD]:g} (of the weights "
            f"tried), and independence ≤ {THRESHOLDS[0]:.2f} is met at {met:.2g}: they are true "
            "of the method at large weights, and no reason against it at the weights one would "
            "use. "
        )
    return text + "See [minima](#several-minima)."


def _holds(where: list[str], everywhere: list[str]) -> str:
    if not where:
        return "holds at none of the settings"
    if len(where) == len(everywhere):
        return "holds at all settings"
    rest = [n for n in everywhere if n not in where]
    return f"holds for {_listed(where)} and not for {_listed(rest)}"


def _listed(names: list[str]) -> str:
    quoted = [f'"{n}"' for n in names]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + f" and {quoted[-1]}"


def minima(results: Results) -> str:
    lines = ["| fairness term | criterion | fairness weight | different minima | spread of the "
             "objective | least value of the term |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for name, criterion, weight, count, spread, lowest in ends(results):
        lines.append(f"| {name} | {criterion} | {weight:g} | {count} | {spread:.4f} | "
                     f"{lowest:.3f} |")  # fmt: skip
    result = summarize(results)
    short = ["| fairness term | criterion | several minima from weight | most | below zero from "
             "weight | least value of the term |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for (name, criterion), f in result.items():
        several, below = ("–" if np.isnan(f[k]) else f"{f[k]:g}" for k in ("several", "below"))
        short.append(f"| {name} | {criterion} | {several} | {f['minima']:.0f} | {below} | "
                     f"{f['least']:.3f} |")  # fmt: skip
    starts = len({r["start"] for r in results.rows("local_minima")})
    text = [
        "## Several minima",
        f"Not a figure of the paper. The same objective was minimized from {starts} starts (the "
        "ridge solution, smaller ones, and random ones), at κ as published, at the 0.001 that we "
        "had, and at today's default.",
        picture("local_minima", "The fairness term at the end of searches from many starts"),
        "\n".join(short),
        "<details><summary>At every weight</summary>",
        "\n".join(lines),
        "</details>",
        "Information is never negative: below zero the classifier inside does worse than guessing "
        "the share, and the fit has learned to confuse it.",
    ]
    if all(
        result["logistic", c]["minima"] == 1 and result["logistic", c]["least"] > BELOW
        for c in CRITERIA
    ):
        text.append(
            "From every start the logistic term ended in one minimum and never below zero: it is "
            "fitted to the very loss that the objective reads, so there is no misfit to exploit."
        )
    calm = [result[AUTO, c] for c in CRITERIA]
    if all(f["minima"] == 1 for f in calm):
        text.append(
            'LSPC with bounded scores and a penalty that grows with the rows ("auto") has one '
            f"minimum too, with a term of {min(f['least'] for f in calm):.3f} at least: several "
            "minima are a matter of the penalty and the tails, not of least squares as such."
        )
    return "\n\n".join(text)
