"""Sections of other pages that are written from tables, between marks that name them."""

from __future__ import annotations

import re
from statistics import fmean

from evidence import ROOT, is_older, read_stamps, read_table
from pages.defects import scores, survivors
from pages.goals import goals
from pages.markdown import table
from registry import STUDIES

NAMES = {
    "native": "its own",
    "plain function": "squared error as a Python function",
    "ours": "ours",
}


def boosting_gap() -> str:
    """Training fairness of boosted models, and what of it holds on other rows."""
    head = ["criterion", "λ", "rounds", "training, as trained", "training, audited",
            "held out, audited", "R² in training", "R² held out"]  # fmt: skip
    columns = ("training", "training_audit", "held_out_audit", "training_r2", "held_out_r2")
    rows = [
        [r["criterion"], f"{float(r['fairness_weight']):g}", r["rounds"],
         *(f"{float(r[name]):.3f}" for name in columns)]
        for r in read_table("boosting")
        if r["what"] == "gap"
    ]  # fmt: skip
    return table(head, rows)


def boosting_speed() -> str:
    """CPU seconds of trainings with each kind of objective."""
    head = ["library", "criterion", "objective", "seconds", "times its own", "inside the function"]
    rows = [
        [r["library"], r["criterion"], NAMES[r["objective"]], f"{float(r['seconds']):.2f}",
         f"{float(r['times_native']):.2f}",
         f"{float(r['inside_share']):.0%}" if float(r["inside"]) else ""]
        for r in read_table("boosting")
        if r["what"] == "speed"
    ]  # fmt: skip
    return table(head, rows)


def stack() -> str:
    """R² by method (rows) and by data set, criterion and bound (columns), means over repeats.

    A bound that is missed in some of the repeats is marked by how many meet it.
    """
    lines = read_table("stack")
    result: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        key = (line["method"], line["dataset"], line["criterion"], line["bound"])
        result.setdefault(key, []).append(line["r2"])
    methods = list(dict.fromkeys(line["method"] for line in lines))
    places = list(dict.fromkeys((line["dataset"], line["criterion"]) for line in lines))
    plain = {
        d: {x["repeat"]: x["booster_r2"] for x in lines if x["dataset"] == d} for d, _ in places
    }
    head = ["R² held out at no bound / ≤ .10 / ≤ .05 / ≤ .01", *(f"{d}, {c}" for d, c in places)]
    rows = []
    booster_r2 = [_mean([*plain[name].values()]) for name, _ in places]
    rows.append(["plain booster, which has no bound", *booster_r2])
    bounds = list(dict.fromkeys(line["bound"] for line in lines))
    for method in methods:
        cells = [" / ".join(_mean(result[(method, *p, b)]) for b in bounds) for p in places]
        rows.append([method, *cells])
    return table(head, rows)


def _mean(values: list[str]) -> str:
    met = [float(v) for v in values if v != ""]
    if not met:
        return "–"
    part = f" ({len(met)} of {len(values)})" if len(met) < len(values) else ""
    return f"{fmean(met):.3f}".lstrip("0") + part


def count(share: str, total: str) -> str:
    """Return a share of repeats as a count, such as "3 of 200"."""
    return f"{round(float(share) * int(total))} of {total}"


def certify() -> str:
    """How often a limit is exceeded on fresh data, with and without certificate."""
    head = ["case", "rows", "features", "groups", "limit", "exceeded", "certified: exceeded",
            "certified: no model", "R²", "certified: R²"]  # fmt: skip
    rows = [
        [r["scenario"], r["n"], r["features"], r["groups"], f"{r['criterion']} ≤ {r['limit']}",
         count(r["plain_violations"], r["repeats"]), count(r["certified_violations"], r["repeats"]),
         count(r["certified_unreachable"], r["repeats"]), f"{float(r['plain_r2']):.3f}",
         f"{float(r['certified_r2']):.3f}"]
        for r in read_table("certify")
    ]  # fmt: skip
    return table(head, rows)


def small_samples() -> str:
    """R² on new people of models from few rows, beside fair ridge at equal unfairness."""
    head = ["data", "rows", "criterion", "limit", "on new people", "R²", "fair ridge", "ahead",
            "over the limit", "mostly chosen"]  # fmt: skip
    rows = [
        [r["dataset"], r["rows"], r["criterion"], f"{float(r['bound']):.3f}",
         f"{float(r['unfairness']):.3f}", f"{float(r['r2']):.3f}",
         f"{float(r['fair_ridge_r2']):.3f}" if r["fair_ridge_r2"]
         else f"not below {float(r['fair_ridge_least']):.3f}",
         f"{float(r['ahead']):+.3f} ± {float(r['ahead_stderr']):.3f}"
         if r["ahead"] else "",
         count(r["exceeds"], r["repeats"]), r["chosen"]]
        for r in read_table("small_samples")
    ]  # fmt: skip
    return table(head, rows)


def small_samples_summary() -> str:
    """How often it is behind, in a sentence."""
    ahead = [float(r["ahead"]) for r in read_table("small_samples") if r["ahead"]]
    total = len(read_table("small_samples"))
    behind = sum(v < -0.004 for v in ahead)
    return (
        f"Of {total} cases fair ridge gets as far in {len(ahead)}. There `FairRegressor` is ahead "
        f"by {fmean(ahead):+.4f} on average and behind by more than 0.004 in {behind}, at most "
        f"by {-min(ahead):.3f}."
    )


def floors() -> str:
    """Least unfairness at any weight and R² at bounds, against splines and a quadratic."""
    bounds = ("0.05", "0.02", "0.01", "0.005")
    head = ["data", "criterion", "against", "at no weight", "least at any",
            *(f"R² at ≤ {b.lstrip('0')}" for b in bounds)]  # fmt: skip
    rows = [
        [r["dataset"], r["criterion"], "splines" if r["basis"] == "spline" else "a quadratic",
         f"{float(r['unfairness']):.3f}", f"{float(r['least']):.4f}",
         *(f"{float(v):.3f}" if (v := r[f"r2_at_{b}"]) else "–" for b in bounds)]
        for r in read_table("floors")
    ]  # fmt: skip
    return table(head, rows)


def floors_summary() -> str:
    """Floors of both, and how far splines are ahead, in sentences."""
    rows = {(r["dataset"], r["criterion"], r["basis"]): r for r in read_table("floors")}
    over = {
        basis: sum(float(r["least"]) > 0.002 for r in rows.values() if r["basis"] == basis)
        for basis in ("spline", "quadratic")
    }
    ahead = {}
    for (dataset, criterion, basis), r in rows.items():
        other = rows[dataset, criterion, "quadratic"]
        for bound in ("0.05", "0.02", "0.01", "0.005"):
            r2, r2_other = r[f"r2_at_{bound}"], other[f"r2_at_{bound}"]
            if basis == "spline" and r2 and r2_other:
                ahead[f"{dataset}, {criterion} ≤ {bound}"] = float(r2) - float(r2_other)
    worst, best = min(ahead, key=ahead.__getitem__), max(ahead, key=ahead.__getitem__)
    return (
        f"Against splines {over['spline']} of {len(rows) // 2} cases stay above 0.002, against the "
        f"quadratic {over['quadratic']}. At the {len(ahead)} bounds that both reach, splines have "
        f"{fmean(ahead.values()):+.4f} more R² on average: {ahead[best]:+.3f} at best ({best}), "
        f"{ahead[worst]:+.3f} at worst ({worst}), and they are behind by more than 0.003 in "
        f"{sum(v < -0.003 for v in ahead.values())}: "
        '`basis="quadratic"` is worth a try there.'
    )


def dressing() -> str:
    """Outcomes of tables that were dressed up."""
    rows = read_table("dressing")
    keys = ("compositions", "fail", "not enough data", "refused", "pass", "silent pass")
    heads = ("tricks", *keys[:4], "pass that says what was done", "pass in silence")
    total = {key: sum(int(r[key]) for r in rows) for key in keys}
    body = [[r["tricks"], *(r[key] for key in keys)] for r in rows]
    return table(heads, [*body, ["all", *map(str, total.values())]])


def gates() -> str:
    """Every trick at every gate, and where it passed in silence before."""
    rows = read_table("gates")
    names = list(dict.fromkeys(r["gate"] for r in rows))
    was = "silent pass"
    cells = {
        (r["trick"], r["gate"]): f"{was} → {r['after']}" if r["before"] == was else r["after"]
        for r in rows
    }
    tricks = dict.fromkeys(r["trick"] for r in rows)
    body = [[trick, *(cells[trick, gate] for gate in names)] for trick in tricks]
    then, now = (sum(r[key] == was for r in rows) for key in ("before", "after"))
    told = (
        f"Of {len(rows)} cases {then} passed in silence at {rows[0]['base']}, where the last three "
        f"gates were not there yet, and {now} do today."
    )
    return f"{table(['trick', *names], body)}\n\n{told}"


def metrics() -> str:
    """Coverage of values, gaps and ratios of metrics by group."""
    rows = read_table("metrics")
    kinds = list(dict.fromkeys((r["design"], r["groups"]) for r in rows))
    cells = {
        (r["metric"], r["design"], r["groups"]): [
            100 * float(r[key]) for key in ("values", "gaps", "ratios")
        ]
        for r in rows
    }
    head = ["metric: values, gaps, ratios (%)"]
    words = {"rows": "independent rows", "families": "in families of 5"}
    head += [f"{words[design]}, {groups} groups" for design, groups in kinds]
    body = [
        [f"`{name}`", *(", ".join(f"{v:.1f}" for v in cells[name, *kind]) for kind in kinds)]
        for name in dict.fromkeys(r["metric"] for r in rows)
    ]
    shares = [v for cell in cells.values() for v in cell]
    told = (
        f"{len(shares)} shares of {rows[0]['replications']} samples each lie between "
        f"{min(shares):.1f} and {max(shares):.1f} %, {fmean(shares):.1f} % on average."
    )
    return f"{table(head, body)}\n\n{told}"


def verdicts_edge() -> str:
    """Wrong verdicts at the edge of the tolerance."""
    head = ["clause", "rows or clusters", "groups", "design", "wrong pass", "wrong fail"]
    rows = [
        [r["number"], r["units"], r["groups"], r["design"],
         count(r["wrong_pass"], r["replications"]), count(r["wrong_fail"], r["replications"])]
        for r in read_table("verdicts")
        if r["part"] == "edge"
    ]  # fmt: skip
    return table(head, rows)


def controls() -> str:
    """Bias, coverage and size of tests of what is adjusted for controls."""
    head = ["design", "number", "truth", "mean", "95 % intervals that cover", "rejected at 5 %"]
    rows = []
    for r in read_table("controls"):
        shown = [f"{float(r[name]):.3f}" if r[name] else "" for name in ("truth", "mean")]
        counts = [
            count(r[name], r["replications"]) if r[name] else ""
            for name in ("coverage", "rejected")
        ]
        rows.append([r["design"], r["what"].replace("|", "\\|"), *shown, *counts])
    return table(head, rows)


def hard_controls() -> str:
    """Coverage of adjusted gaps given controls of many kinds."""
    head = ["controls", "rows", "bias, standard errors", "95 % intervals that cover",
            "test rejects at 5 %", "verdict withheld"]  # fmt: skip
    rows = [
        [r["design"], f"{int(r['n']):,}", f"{float(r['bias_in_stderr']):.2f}",
         *(count(r[name], r["replications"]) for name in ("coverage", "rejected", "withheld"))]
        for r in read_table("hard_controls")
    ]  # fmt: skip
    return table(head, rows)


def next_door() -> str:
    """Coverage, size and wrong passes beside the cases that tests hold, failures first."""
    head = ["what", "case", "rows", "claim", "holds", "not enough data", "bias, standard errors"]
    claims = {"interval": "95 % interval", "size": "test at 5 %", "verdict": "no wrong pass",
              "limit": "no wrong fail"}  # fmt: skip

    def kept(r: dict[str, str]) -> float:
        """Share of all samples without a wrong claim; of those with an interval, that it covers."""
        return float(r["covered"]) if r["claim"] == "interval" else 1.0 - float(r["wrong"])

    def is_missed(r: dict[str, str]) -> bool:
        least = {"interval": 0.92, "size": 0.93}.get(r["claim"], 0.94)
        return kept(r) < least and float(r["withheld"]) < 0.9

    rows = [
        [r["feature"], f"**{r['case']}**" if is_missed(r) else r["case"], f"{int(r['n']):,}",
         claims[r["claim"]], _of_claims(r), count(r["withheld"], r["replications"]),
         "–" if r["bias_in_stderr"] in ("", "nan") else f"{float(r['bias_in_stderr']):+.2f}"]
        for r in sorted(read_table("next_door"), key=lambda r: not is_missed(r))
    ]  # fmt: skip
    return table(head, rows)


def _of_claims(row: dict[str, str]) -> str:
    """Samples with a claim in which it holds, of all with a claim."""
    samples = int(row["replications"])
    total = round(samples * (1.0 - float(row["withheld"])))
    if not total:
        return "–"
    wrong = round(samples * float(row["wrong"]))
    kept = total - wrong if row["claim"] != "interval" else round(total * float(row["covered"]))
    return f"{kept} of {total}"


def illinois() -> str:
    """Premiums in minority ZIP codes of the same risk, by company."""
    head = ["company", "quotes", "gap, dollars", "of it by risk", "adjusted", "adjusted, %",
            "95 % interval", "regression, %"]  # fmt: skip
    rows = [
        [r["company"], r["quotes"], f"{float(r['raw_dollars']):.0f}",
         f"{float(r['explained_dollars']):.0f}",
         f"{float(r['adjusted_dollars']):.0f} ± {1.96 * float(r['adjusted_stderr']):.0f}",
         f"{float(r['above_percent']):.1f}", f"{float(r['low']):.1f} to {float(r['high']):.1f}",
         f"{float(r['regression_percent']):.1f}"]
        for r in read_table("illinois")
    ]  # fmt: skip
    return table(head, rows)


def glm() -> str:
    """Iterations and time of fair GLMs."""
    head = ["data", "family", "rows", "criterion", "weight", "Newton steps, plain", "iterations",
            "plain, s", "fair, s", "glum, s"]  # fmt: skip
    rows = [
        [r["data"], r["family"], f"{int(r['n']):,}", r["criterion"],
         f"{float(r['fairness_weight']):g}", r["newton_steps"], r["iterations"],
         f"{float(r['plain_seconds']):.2f}", f"{float(r['fair_seconds']):.2f}",
         f"{float(r['peer_seconds']):.2f}" if r["peer_seconds"] else ""]
        for r in read_table("glm")
    ]  # fmt: skip
    return table(head, rows)


# Page: the sections on it by the name in their marks.
def older() -> str:
    """How many tables are older than the code they measure, and which.

    A copy of the repository without its history leaves a name as it is on the page.
    """
    page = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
    named = re.findall(r"^`(\w+)`[,.]$", page, re.MULTILINE)
    shown = [study for study in STUDIES.values() if study.page]
    ages = {study.name: is_older(study.name, study.sources) for study in shown}
    names = [name for name, age in ages.items() if age or (age is None and name in named)]
    bare = sum(any(not stamp["load"] for stamp in read_stamps(s.name)) for s in shown)
    lines = [
        f"Of {len(shown)} tables, {len(names) or 'none'} have rows that were measured before the "
        "last change of the code that they measure"
        + (", so a new run may give other numbers:" if names else "."),
        *(f"`{name}`," for name in names),
    ]
    lines[-1] = lines[-1].rstrip(",.") + "."
    if bare:
        lines += ["", f"In {bare} tables, rows do not say how busy the machine was."]
    return "\n".join(lines)


def wheels() -> str:
    """The wheel on each Python, and the time from it to a first audit."""
    head = ["Python", "dependencies", "tests passed", "failed", "import, s",
            "environment and wheel, s (wall)", "first audit, s (wall)", "busy cores",
            "with"]  # fmt: skip
    rows = [
        [*r["case"].split(), r["passed"], r["failed"], f"{float(r['import_s']):.3f}",
         *(f"{float(r[f'{name}_cpu_s']):.1f} ({float(r[f'{name}_wall_s']):.0f})"
           if r.get(f"{name}_wall_s") else "" for name in ("install", "audit")),
         r["load"], r["installed"].replace(" ", ", ").replace("=", " ")]
        for r in sorted(read_table("wheels", stamped=True), key=lambda r: r["case"])
    ]  # fmt: skip
    return table(head, rows)


def fuzz() -> str:
    """Cases of random misuse by target."""
    names = ("cases", "results", "refused", "undocumented", "broken")
    head = ["target", "cases", "results", "refused with reason", "errors that explain nothing",
            "results that cannot be true", "CPU minutes"]  # fmt: skip
    lines = read_table("fuzz")
    rows = [
        [r["target"], *(f"{int(r[name]):,}" for name in names), f"{float(r['cpu_s']) / 60:.1f}"]
        for r in lines
    ]  # fmt: skip
    minutes = sum(float(r["cpu_s"]) for r in lines) / 60
    total = [f"{sum(int(r[name]) for r in lines):,}" for name in names]
    return table(head, [*rows, ["all", *total, f"{minutes:.1f}"]])


SECTIONS = {
    "boosting": {"boosting_gap": boosting_gap, "boosting_speed": boosting_speed},
    "stack": {"stack": stack},
    "how-it-works": {
        "certify": certify,
        "floors_summary": floors_summary,
        "floors": floors,
        "small_samples_summary": small_samples_summary,
        "small_samples": small_samples,
    },
    "verdicts": {
        "verdicts_edge": verdicts_edge,
        "metrics": metrics,
        "dressing": dressing,
        "gates": gates,
    },
    "controls": {"controls": controls, "hard_controls": hard_controls, "illinois": illinois},
    "glm": {"glm": glm},
    "limits": {"next_door": next_door},
    "defects": {"defect_scores": scores, "defect_survivors": survivors},
    "measured": {"goals": goals, "older": older, "wheels": wheels, "fuzz": fuzz},
}


def fill(page: str, text: str) -> str:
    """Return a page with its sections between `<!-- NAME -->` and `<!-- end of NAME -->`."""
    for name, write in SECTIONS[page].items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"docs/{page}.md must have {begin} and {end} once each.")
        before, rest = text.split(begin)
        text = f"{before}{begin}\n\n{write()}\n\n{end}{rest.split(end)[1]}"
    return text
