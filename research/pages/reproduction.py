"""docs/reproduction.md, written from its tables: no number on it is typed by hand."""

from __future__ import annotations

import re

import numpy as np

import pages.reproduction_tables as table
from common import ALPHA, LSAC_ROWS, SEED
from evidence import RESULTS
from pages.markdown import origin, picture
from pages.other_papers import section as other_papers
from pages.penalties import minima, what_we_had_wrong
from pages.reproduction_tables import (
    CLEAR,
    LR,
    LSPC,
    LSPC_BEST,
    NAMES,
    PLAIN,
    Results,
    final_table,
)
from registry import STUDIES
from studies.frontiers import N_STEPS
from studies.methods import LSAC_WEIGHTS, NOT_ON_LSAC, OURS, WEIGHTS
from studies.paper import N_ROWS, N_SCENARIOS

CONFIRMED, FAILED, SURPASSED = "confirmed", "not confirmed", "surpassed"
# The most of LSPC's time that the exact classifier inside may take.
FAST_ENOUGH = 1.5
AT_BEST = "confirmed at its best penalty, not as published"


def verdict(kind: str, why: str) -> str:
    return f"**Verdict: {kind}.** {why}"


def top(results: Results) -> str:
    # The table of bounds counts fits of the frontiers a second time.
    timed = [s.name for s in STUDIES.values() if s.page.startswith("reproduction")]
    timed = [name for name in timed if name != "thresholds"]
    total = sum(results.facts(name).get("compute_seconds", 0.0) for name in timed)
    left_out = "; ".join(m.name for m in NOT_ON_LSAC)
    return f"""\
# The paper's results, reproduced

Every figure of the paper that this package starts from ("LSPC", 2020), made again from our own
code and data, next to the methods it was compared with and to what this package does now. The page
is written from tables that `make evidence` makes (the LSAC data cannot be downloaded: put the file
in the folder named by `EVENHAND_DATA`).

**How it was measured.** *Data:* Communities and Crime (1,994 communities, 99 features, violent
crimes per person; a community is "black" where the rescaled share exceeds 0.5, "other" else) and
LSAC ({LSAC_ROWS:,} random law students of 20,800, undergraduate grade, white against all others;
features: LSAT score, full-time study, family income, age, sex, cluster of law schools, race).
Race is among the features of both, as in the paper. *Base model:* linear, squared error, the same
fixed ridge penalty for every method (alpha = {ALPHA:g}; the paper chooses it by cross-validation),
columns standardized on the training folds. *Folds:* five,
shuffled, the same for all. *Measures:* R² and the normalized criteria (0 is fair, 1 means that the
group is given away) of the predictions of all rows together, each row predicted by the model that
did not see its fold. Measuring all rows at once instead of fold by fold has a fraction of the
estimation error. *Estimators:* "auto", this package's, decides; "knn" (nearest neighbors) and
"fourier" (logistic regression on random Fourier features, cross-fitted) are the paper's, and the
latter, which is slow, was run for the paper's own methods alone. *Strengths:* every method is swept
over its own range, {len(WEIGHTS)} strengths for most, and {N_STEPS} more are then sought for each
bound of the table at the end, to just meet it by auto. *Settings:* every rival is also run at
several settings of its own, and the best is shown (chosen on the rows it is reported on, which
favors the rivals). *Not run:* on LSAC, where auto takes several times as long, most methods have
{len(LSAC_WEIGHTS)} strengths and none are sought for the bounds, and these were left out:
{left_out}.

LSPC here is `FairRidge(classifier="lspc", kappa="published")`, started from the ridge solution: the
published equations in this package's implementation, not the authors' code. The published penalty
κ is the default of the authors' code, 1 on the score as it is. "Best penalty" is the best of that
and of other penalties. The convex penalties ("CVX") are exact, in linear time.

An earlier version of this page had LSPC at a penalty that nobody would choose, and judged the paper
by it: see [what we had wrong](#what-we-had-wrong-and-how-it-was-found).

All fits and measures took {total / 60:.0f} minutes of one core; seed {SEED}.
"""


def judged(results: Results, dataset: str, others: tuple[str, ...]) -> tuple[str, str]:
    """Verdict on LSPC-quad against others by auto, as published and at its best, and why."""
    holds, words = [], []
    for how, mine in (("as published", LSPC), ("at its best penalty", LSPC_BEST)):
        gaps = table.gap(results, dataset, "auto", mine, others)
        total = table.ahead(results, dataset, "auto", mine, others)[1]
        # A bound that only the others meet counts as a gap of all of their R².
        clear = int((gaps > CLEAR).sum())
        holds.append(clear == 0)
        words.append(
            f"{how} level or ahead at {total - clear} of {total} bounds and behind at {clear}"
        )
    kind = CONFIRMED if holds[0] else AT_BEST if holds[1] else FAILED
    return kind, (
        f"LSPC is {' and '.join(words)} (by more than {CLEAR} in R², about two standard errors, "
        "or not meeting a bound that the other meets)."
    )


def by_fourier(results: Results, dataset: str) -> str:
    body = table.frontier_table(results, dataset, table.PAPER_NAMES, "fourier")
    return f"<details><summary>By fourier</summary>\n\n{body}\n\n</details>"


def frontier_communities(results: Results) -> str:
    d = "communities"
    f = results.frontier(d)
    sep = f.path("CVX-group", "separation_fourier")
    auto = f.path("CVX-group", "separation_auto")
    turned = sep[-1] > sep.min() + 0.05
    low = f.path("CVX-group", "independence_auto").min()
    linear = table.lowest(f, ["LSPC-sep-linear", "LSPC-ind-linear"], 0.2)
    quad = table.lowest(f, LSPC, 0.2)
    indiv = results.best(d, "auto", "separation", 0.05, "CVX-indiv")
    group = results.best(d, "auto", "separation", 0.05, "CVX-group")
    kind, count = judged(results, d, ("CVX-group",))
    text = [
        "## Frontier on Communities and Crime",
        "**Claim.** LSPC with the quadratic basis gives the best accuracy for a level of fairness. "
        "The convex group penalty is about as good for some strengths but meets neither criterion "
        "exactly, and at large strengths turns away from separation; the individual penalty meets "
        "neither; LSPC with the linear basis does badly.",
        picture("frontier_communities", "R² against independence and separation on Communities"),
        "By auto:",
        table.frontier_table(results, d, table.FRONTIER_NAMES),
        by_fourier(results, d),
        verdict(
            CONFIRMED if turned and low > 0.01 else FAILED,
            "*The convex penalties.* The group penalty passes by separation, "
            f"{sep.min():.3f} by fourier and {auto.min():.3f} by auto at the same strength, and at "
            f"the largest strength is back at {sep[-1]:.3f} and {auto[-1]:.3f}. Its independence "
            f"stays at {low:.3f} or above by auto. The individual penalty gets under a separation "
            f"of 0.05 only at R² {table.number(indiv)}, where the group penalty has "
            f"{table.number(group)}: it buys fairness by predicting less.",
        ),
        verdict(
            kind,
            f"*LSPC with the quadratic basis is the most efficient.* {count} "
            + table.compare(results, d, "auto", LSPC, ["CVX-group"])
            + " "
            + table.compare(results, d, "auto", LSPC_BEST, ["CVX-group"])
            + " "
            + table.compare(results, d, "fourier", LSPC, ["CVX-group"])
            + " The published penalty is in the units of the target, so how good it is depends on "
            "the data; the best one was chosen on these rows.",
        ),
        verdict(
            CONFIRMED if linear["separation"] > quad["separation"] else FAILED,
            "*The linear basis does badly.* With R² of at least 0.2 the linear basis gets down to "
            f"a separation of {linear['separation']:.3f} and an independence of "
            f"{linear['independence']:.3f}, the quadratic one to {quad['separation']:.3f} and "
            f"{quad['independence']:.3f} (fourier, as published).",
        ),
    ]  # fmt: skip
    return "\n\n".join(text)


def frontier_lsac(results: Results) -> str:
    d = "lsac"
    f = results.frontier(d)
    linear = table.lowest(f, ["LSPC-sep-linear", "LSPC-ind-linear"], 0.15)
    quad = table.lowest(f, LSPC, 0.15)
    spread = []
    for criterion in ("separation", "independence"):
        for t in (0.10, 0.05):
            values = [
                results.best(d, "auto", criterion, t, *names)
                for names in (LSPC, ("LSPC-sep-linear", "LSPC-ind-linear"), ("CVX-group",))
            ]
            spread.append(max(values) - min(values))
    text = [
        "## Frontier on LSAC",
        "**Claim.** Much as on Communities, except that here LSPC with the linear basis is good "
        "enough to (mostly) meet both criteria.",
        picture("frontier_lsac", "R² against independence and separation on LSAC"),
        "By auto:",
        table.frontier_table(results, d, table.FRONTIER_NAMES),
        by_fourier(results, d),
        verdict(
            CONFIRMED if max(linear.values()) < 0.02 else FAILED,
            "*The linear basis suffices.* At an R² of at least 0.15 it reaches a separation of "
            f"{linear['separation']:.3f} and an independence of {linear['independence']:.3f} by "
            f"fourier; the quadratic one {quad['separation']:.3f} and {quad['independence']:.3f}. "
            "Down to 0.05 (auto) LSPC of either basis and the group penalty differ by at most "
            f"{max(spread):.3f} in R².",
        ),
    ]  # fmt: skip
    return "\n\n".join(text)


def supplement(results: Results) -> str:
    text = [
        "## A logistic classifier inside (supplement)",
        "**Claim.** LSPC loses nothing against a logistic regression nested in the objective, and "
        "is much faster. (For the times see [below](#fit-time).)",
    ]
    for d, name in NAMES.items():
        text += [
            f"### {name}",
            picture(f"supplement_{d}", f"LSPC, nested logistic and ours on {name}"),
            "By auto:",
            table.frontier_table(results, d, table.INSIDE_NAMES),
        ]
    same, near = np.max([table.same_as_nested(results, d) for d in NAMES], axis=0)
    for d, name in NAMES.items():
        kind, count = judged(results, d, LR)
        sides = (("auto", LSPC), ("auto", LSPC_BEST), ("knn", LSPC_BEST))
        numbers = [table.compare(results, d, e, mine, LR) for e, mine in sides]
        text.append(verdict(kind, f"*{name}.* {count} {' '.join(numbers)}"))
    ours = [m.name for m in OURS]
    plain, best = (table.ahead(results, "communities", "auto", m, LSPC_BEST) for m in (PLAIN, ours))
    behind = table.gap(results, "communities", "auto", PLAIN, LSPC_BEST).max()
    text += [
        verdict(
            SURPASSED if same < 0.002 and best[0] == best[1] else FAILED,
            '*Ours.* `FairRidge(score_map="raw")` minimizes the nested objective with warm Newton '
            f"steps: held out, R² agrees with the nested fits to {same:.3f}, and the criteria by "
            f"auto to {near:.3f}, at the strengths that both were run at. The default, on bounded "
            f"scores, is level with LSPC at its best penalty or ahead of it at {plain[0]} of "
            f"{plain[1]} bounds on Communities, and behind by {max(behind, 0.0):.3f} at most. With "
            "group features from the posterior p(a|x), which needs no attribute to predict, it is "
            f"level or ahead at {best[0]} of {best[1]}: see the table at the end.",
        ),
        "### Other methods, and methods that need the attribute",
    ]  # fmt: skip
    for d, name in NAMES.items():
        text += [
            picture(f"others_{d}", f"Other methods that do not need the attribute on {name}"),
            picture(f"attribute_{d}", f"Methods that need the attribute on {name}"),
        ]
    text.append(
        "Drawn are two of ours and the four others that are best over all bounds, each at its best "
        "setting; the table at the end has them all. The reduction of "
        "Agarwal et al. bounds gaps between distribution functions and draws its scores at random, "
        "which costs R². Bounded group loss (fairlearn) equalizes errors, a different aim, and "
        "hardly moves either criterion. Fair ridge, Komiyama's method and CorrelationRemover see "
        "means only."
    )
    return "\n\n".join(text)


def fit_time(results: Results) -> str:
    rows = results.rows("fit_time")
    largest = int(max(r["n"] for r in rows))
    at = table.median_seconds(rows, largest)
    growth = table.growth(rows)
    earlier = ""
    if results.facts("fit_time").get("penalty") != "published":
        earlier = " (an earlier one, with LSPC's penalty at 0.001 and our fit on raw scores)"
    lines = ["| method | seconds, median over strengths | slowest strength | time ~ n^p, p |",
             "| --- | ---: | ---: | ---: |"]  # fmt: skip
    for name in dict.fromkeys(r["method"] for r in rows):
        mine = [r for r in rows if r["method"] == name]
        n = max(r["n"] for r in mine)
        seconds = [r["seconds"] for r in mine if r["n"] == n]
        where = "" if n == largest else f" (at {n:,.0f} rows)"
        lines.append(
            f"| {name} | {np.median(seconds):.3f}{where} | {max(seconds):.3f} | "
            f"{growth[name]:.1f} |"
        )
    pairs = min(at["CVX-group, pairs"], at["CVX-indiv, pairs"])
    lspc, nested, ours = at["LSPC-sep-quad"], at["LR-sep-quad (nested)"], at["evenhand-sep"]
    return "\n\n".join(
        [
            "## Fit time",
            "**Claim.** The convex penalties take time quadratic in the number of rows, LSPC "
            "linear; and LSPC is much faster than a nested logistic regression, more so on more "
            "rows.",
            picture("fit_time", "Seconds a fit against the number of LSAC rows"),
            f"At {largest:,} rows, all in one run{earlier}:",
            "\n".join(lines),
            verdict(
                CONFIRMED if lspc < nested and lspc < pairs else FAILED,
                f"LSPC (separation, quadratic) takes 1/{nested / lspc:.0f} of the nested logistic "
                f"regression's time and 1/{pairs / lspc:.0f} of that of the faster convex penalty "
                "over all pairs.",
            ),
            verdict(
                SURPASSED if ours <= FAST_ENOUGH * lspc else FAILED,
                "Our logistic fit, which has the exact classifier inside, takes "
                f"1/{nested / ours:.0f} of the nested one's time and {ours / lspc:.2f} times "
                f"LSPC's, where we aim at {FAST_ENOUGH} times at most. The convex penalties need "
                "not be slow: the same coefficients in linear time take "
                f"{at['CVX-group, linear time'] * 1000:.0f} ms. Fits as short as these are mostly "
                "overhead, which is why the growth of LSPC and ours is below linear.",
            ),
        ]
    )


def accuracy(results: Results) -> str:
    rows = results.rows("estimator_accuracy")
    errors = table.errors(rows)
    lines = [
        "| estimator | independence | separation | sufficiency |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, values in errors.items():
        cells = [f"{r:.3f} ({b:+.3f})" for r, b in values]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    worst = {name: max(r for r, _ in values) for name, values in errors.items()}
    expensive = min(worst["nearest neighbors"], worst["Fourier features"])
    quality = worst["LSPC quadratic"] < 2 * max(
        worst["nearest neighbors"], worst["Fourier features"]
    )
    return "\n\n".join(
        [
            "## Estimated against true information",
            "**Claim.** LSPC's estimates are reasonable, though not as good as the expensive ones.",
            picture("estimator_accuracy", "Estimates against the truth in synthetic scenarios"),
            f"Root mean square error (mean error) over {N_SCENARIOS} scenarios of {N_ROWS:,} rows; "
            "the oracle knows the densities, so what it has left is the luck of the sample:",
            "\n".join(lines),
            verdict(
                CONFIRMED if quality else FAILED,
                f"The worst criterion is off by {worst['LSPC quadratic']:.3f} with the quadratic "
                f"basis and {worst['LSPC linear']:.3f} with the linear one, against "
                f"{worst['nearest neighbors']:.3f} for nearest neighbors and "
                f"{worst['Fourier features']:.3f} for Fourier features. Nearly all of it is bias, "
                "downward and largest where there is most to see: a least-squares classifier is "
                "not fitted to the logarithmic loss that is read off it. (LSPC's penalty is 0.001 "
                "here, on standardized variables.)",
            ),
            verdict(
                SURPASSED if worst["auto"] < expensive else FAILED,
                f"`auto` is off by {worst['auto']:.3f} at worst, the oracle by "
                f"{worst['oracle']:.3f}; the expensive two by {worst['nearest neighbors']:.3f} and "
                f"{worst['Fourier features']:.3f}.",
            ),
        ]
    )  # fmt: skip


def estimator_time(results: Results) -> str:
    rows = results.rows("estimator_time")
    sizes = (2000, 20_000, 200_000)
    names = list(dict.fromkeys(r["estimator"] for r in rows))
    seconds = {(r["estimator"], r["n"]): r["seconds"] for r in rows}
    lines = ["| estimator | " + " | ".join(f"{n:,} rows" for n in sizes) + " |",
             "| --- | " + " | ".join("---:" for _ in sizes) + " |"]  # fmt: skip
    for name in names:
        cells = [f"{1000 * seconds[name, n]:.1f} ms" if (name, n) in seconds else "" for n in sizes]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    fast = seconds["LSPC quadratic", 20_000]
    slow = min(seconds["nearest neighbors", 20_000], seconds["Fourier features", 20_000])
    auto = seconds["auto", 20_000]
    return "\n\n".join(
        [
            "## Run time of the estimators",
            "**Claim.** LSPC is much faster than the estimators it approximates.",
            picture("estimator_time", "Seconds against the number of rows"),
            "All three criteria, one thread:",
            "\n".join(lines),
            verdict(
                CONFIRMED if fast < slow / 3 else FAILED,
                f"At 20,000 rows LSPC takes 1/{slow / fast:.0f} of the faster of the two. `auto`, "
                f"which is the more accurate, takes {auto / fast:.0f} times LSPC's time there and "
                f"1/{seconds['Fourier features', 20_000] / auto:.0f} of the Fourier features'.",
            ),
        ]
    )


def sufficiency(results: Results) -> str:
    rows = results.rows("sufficiency")
    lines = ["| data | method | R² without fairness | sufficiency there | least sufficiency at a "
             "cost of at most 0.02 in R² |", "| --- | --- | ---: | ---: | ---: |"]  # fmt: skip
    gain = {}
    for d in dict.fromkeys(r["dataset"] for r in rows):
        for name in dict.fromkeys(r["method"] for r in rows):
            mine = [r for r in rows if r["dataset"] == d and r["method"] == name]
            base = next(r for r in mine if r["strength"] == 0)
            near = [r for r in mine if r["r2"] >= base["r2"] - 0.02]
            least = min(near, key=lambda r: r["sufficiency_auto"])
            gain[d, name] = base["sufficiency_auto"], least["sufficiency_auto"]
            lines.append(
                f"| {d} | {name} | {base['r2']:.3f} | {base['sufficiency_auto']:.3f} | "
                f"{least['sufficiency_auto']:.3f} (R² {least['r2']:.3f}) |"
            )
    return "\n\n".join(
        [
            "## Sufficiency",
            "**Claim.** None: the paper leaves sufficiency out, since its base models already met "
            "it. So they do, on data where the group or good proxies of it are among the features.",
            "Two data sets where it is violated. *Found:* the same law students with race left "
            "out of the features, which is what blind scoring does; at one score, grades then "
            "differ by race. *Constructed:* Communities without the racial shares, with noise of "
            'one standard deviation on every feature of the "black" communities, as when one group '
            "is measured less well.",
            picture("sufficiency_lsac-blind", "R² against sufficiency on LSAC without race"),
            picture("sufficiency_communities-noisy", "R² against sufficiency, constructed"),
            "By auto:",
            "\n".join(lines),
            "**Result.** There is no claim to check. On the data found, the regularizer lowers "
            f"sufficiency from {gain['lsac-blind', 'evenhand-suf'][0]:.3f} to "
            f"{gain['lsac-blind', 'evenhand-suf'][1]:.3f} for 0.02 in R²; on those constructed "
            f"only from {gain['communities-noisy', 'evenhand-suf'][0]:.3f} to "
            f"{gain['communities-noisy', 'evenhand-suf'][1]:.3f}. The attribute does more, and "
            "gains accuracy instead of costing it: down to "
            f"{gain['lsac-blind', 'evenhand-suf + attribute'][1]:.3f} and "
            f"{gain['communities-noisy', 'evenhand-suf + attribute'][1]:.3f}. Sufficiency asks "
            "that the score say all that the group says about the target, which a blind score "
            "cannot: where the attribute is forbidden, so is most of this fairness.",
        ]
    )


def build() -> str:
    """The text of the page."""
    results = Results(RESULTS)
    parts = [
        top(results),
        frontier_communities(results),
        frontier_lsac(results),
        supplement(results),
        fit_time(results),
        accuracy(results),
        estimator_time(results),
        sufficiency(results),
        minima(results),
        what_we_had_wrong(results),
        final_table(results),
        other_papers(),
        origin("reproduction"),
    ]
    text = "\n\n".join(part.strip() for part in parts) + "\n"
    return re.sub(r"-(0\.0+)(?!\d)", r"\1", text)
