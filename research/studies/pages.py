"""Write docs/accuracy.md and docs/performance.md from the CSV files in results/.

Every number on these pages is read from a file that a benchmark wrote.

    python research/run.py pages
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import fmean

from studies.page_sections import (
    adversary,
    clusters,
    devices,
    many_groups,
    meets,
    read,
    rough,
    table,
    tests_elsewhere,
)

DOCS = Path(__file__).parents[2] / "docs"
CRITERIA = ("independence", "separation", "sufficiency")
FAMILIES = {
    "bivariate_normal": "bivariate normal (the paper's)",
    "student_t": "Student-t noise",
    "bimodal": "bimodal target, nonlinear score",
    "gamma": "gamma target, heteroscedastic score",
    "zero_inflated": "zero-inflated target",
    "rounded": "target rounded to 20 values",
    "four_groups": "four unbalanced groups",
}


def setting(rows: list[dict[str, str]]) -> str:
    found = sorted({row["setting"] for row in rows if row.get("setting")})
    return "Measured with " + "; and ".join(found) + "." if found else ""


def accuracy() -> str:
    rows = read("accuracy")
    estimators = list(dict.fromkeys(row["estimator"] for row in rows))
    ratio = {
        (row["family"], row["n"], row["estimator"], row["criterion"]): float(row["ratio"])
        for row in rows
    }
    count = {(row["family"], row["n"], row["estimator"]): row["scenarios"] for row in rows}
    parts = [
        "# Accuracy of the estimators",
        "Error of the normalized measures against their true values, which are known by quadrature,"
        " over random scenarios of seven families. The unit is the error of an *oracle* that knows"
        " the densities and only suffers from the finite sample: 1.00 is the best that can be"
        " expected of anyone, and values slightly below it are luck. A row gives the root mean"
        " squared error over scenarios, as a multiple of the oracle's, for"
        " independence / separation / sufficiency. `lspc` and `lspc linear` are the published"
        " method; `fourier` and `knn` are the two references its authors compared with.",
    ]
    for family, title in FAMILIES.items():
        sizes = sorted({n for f, n, _, _ in ratio if f == family}, key=int)
        if not sizes:
            continue
        body = []
        for estimator in estimators:
            cells = []
            for n in sizes:
                found = [ratio.get((family, n, estimator, c)) for c in CRITERIA]
                if None in found:
                    cells.append("not run")
                else:
                    cells.append(" / ".join(f"{v:.2f}" for v in found))
            body.append([f"`{estimator}`", *cells])
        parts += [f"## {title}", table(["estimator", *(f"n = {int(n):,}" for n in sizes)], body)]
    parts += ["## Where `auto` loses", losses(rows), fresh()]
    parts += ["## Time a call", times(rows, estimators)]
    odd = {k: v for k, v in count.items() if v != "100"}
    if odd:
        said = sorted({f"`{e}` at n = {int(n):,}: {v}" for (_, n, e), v in odd.items()})
        parts.append("Scenarios where not 100: " + "; ".join(said) + ".")
    parts += [rough(), adversary(), coverage(), clusters(), size(), tests_elsewhere(),
              setting(rows), "Scripts: `research/studies/accuracy.py`, `research/studies/rough.py`,"
              " `research/studies/adversary.py`, `research/studies/intervals.py`,"
              " `research/studies/clusters.py`,"
              " `research/studies/calibration.py`;"
              " this page: `research/studies/pages.py`."]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def fresh() -> str:
    """The largest ratios on scenarios drawn after the last change to the estimator."""
    rows = [row for row in read("accuracy_fresh") if row["estimator"] == "auto"]
    if not rows:
        return ""
    sizes = sorted({row["n"] for row in rows}, key=int)
    over = [
        f"{FAMILIES[r['family']]}, n = {int(r['n']):,}, {r['criterion']}: {float(r['ratio']):.2f}"
        for r in rows
        if float(r["ratio"]) > (1.25 if int(r["n"]) < 2000 else 1.15) + 0.005
    ]
    body = []
    for family, title in FAMILIES.items():
        cells = []
        for n in sizes:
            found = [float(r["ratio"]) for r in rows if (r["family"], r["n"]) == (family, n)]
            cells.append(" / ".join(f"{v:.2f}" for v in found) if found else "not run")
        body.append([title, *cells])
    return (
        "## `auto` on fresh scenarios\n\nThe scenarios above were looked at while the estimator was"
        " being built. These were drawn afterwards, with other seeds:\n\n"
        + table(["family", *(f"n = {int(n):,}" for n in sizes)], body)
        + ("\n\nOver the goals here: " + "; ".join(over) + "." if over else "")
    )


def losses(rows: list[dict[str, str]]) -> str:
    """Goals missed, means by family, and cells in which another estimator's error is smaller.

    By more than 1 %; below that the two are even.
    """
    limits = {("auto", "500"): 1.25, ("auto", "2000"): 1.15, ("auto", "10000"): 1.15}
    body, goals, clear = [], [], 0
    means: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        estimator, family, value = row["estimator"], row["family"], float(row["ratio"])
        means[family, row["n"], estimator].append(value)
        lead, error = -float(row["behind_auto"]), float(row["behind_error"])
        if estimator != "auto" and lead > 0.01:
            where = [FAMILIES[family], f"{int(row['n']):,}", row["criterion"]]
            body.append([*where, f"`{estimator}`", f"{value:.2f}", f"{value + lead:.2f}",
                         f"{lead:.2f} ± {error:.2f}"])  # fmt: skip
            clear += lead > 2 * error
        limit = limits.get((estimator, row["n"]))
        if limit is not None and value > limit + 0.005:
            goals.append(
                f"`{estimator}`, {FAMILIES[family]}, n = {int(row['n']):,}, {row['criterion']}:"
                f" {value:.2f} (goal {limit:.2f})"
            )
    text = "No goal was missed." if not goals else "Goals missed: " + "; ".join(goals) + "."
    sizes = sorted({n for _, n, _ in means}, key=int)
    compared = ("auto", "fourier", "knn")
    by_family = [
        [title, *(" / ".join(f"{fmean(means[family, n, e]):.2f}" for e in compared)
                  for n in sizes)]
        for family, title in FAMILIES.items()
    ]  # fmt: skip
    text += " Means over the three criteria, `auto` / `fourier` / `knn`:\n\n" + table(
        ["family", *(f"n = {int(n):,}" for n in sizes)], by_family
    )
    if not body:
        return text + "\n\nNo other estimator was more accurate by more than 1 % in any cell."
    head = ["family", "n", "criterion", "better", "its ratio", "that of `auto`", "difference"]
    return (
        f"{text}\n\nCells in which another estimator was more accurate, with the standard error of"
        f" the difference over draws of the scenarios; {clear} of {len(body)} differences are more"
        " than two standard errors:\n\n" + table(head, body)
    )


def times(rows: list[dict[str, str]], estimators: list[str]) -> str:
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        seconds[row["estimator"], row["n"]].append(float(row["seconds"]))
    sizes = sorted({n for _, n in seconds}, key=int)
    body = []
    for estimator in estimators:
        cells = []
        for n in sizes:
            found = sorted(seconds.get((estimator, n), []))
            cells.append(f"{1e3 * found[len(found) // 2]:.0f} ms" if found else "not run")
        body.append([f"`{estimator}`", *cells])
    return (
        table(["all three criteria", *(f"n = {int(n):,}" for n in sizes)], body)
        + "\n\nMedians over families, taken on a machine that was doing other work."
    )


def coverage() -> str:
    rows = read("intervals")
    if not rows:
        return ""
    body = [
        [f"`{r['estimator']}`", FAMILIES[r["family"]], f"{int(r['n']):,}", r["criterion"],
         f"{float(r['truth']):.3f}", f"{100 * float(r['coverage']):.1f} %", r["replications"]]
        for r in rows
    ]  # fmt: skip
    head = [
        "estimator",
        "family",
        "n",
        "criterion",
        "truth",
        "95 % intervals that cover it",
        "replications",
    ]
    return "## Intervals\n\n" + table(head, body)


def size() -> str:
    rows = [r for r in read("calibration") if r.get("study") == "size"]
    if not rows:
        return ""
    rates: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for r in rows:
        rates[r["criterion"], r["n"], r["share"]].append(float(r["rejected_5"]))
    body = [
        [c, f"{int(n):,}", share, f"{100 * sum(v) / len(v):.1f} %",
         f"{100 * min(v):.1f} to {100 * max(v):.1f} %", str(len(v))]
        for (c, n, share), v in rates.items()
    ]  # fmt: skip
    head = ["criterion", "n", "smallest share", "mean rejection", "range over settings", "settings"]
    count = int(rows[0]["replications"])
    return (
        "## Tests of exact fairness\n\nRejections at level 5 % where the criterion holds exactly, "
        f"{count:,} replications a setting (one standard error is"
        f" {100 * (0.05 * 0.95 / count) ** 0.5:.2f} %).\n\n" + table(head, body)
    )


def performance() -> str:
    rows = read("performance")
    parts = [
        "# Performance",
        "Ratios against named peers and floors, each pair measured in one run on two shared cores;"
        " medians. A goal that was not met stands here as it was measured.",
    ]
    body = []
    for row in [r for r in rows if r["study"] != "roofline"]:
        value = float(row["value"])
        met = "" if not row["goal"] else ("yes" if meets(value, row["goal"]) else "**no**")
        body.append([row["what"], f"{value:.3g}", row["goal"], met, row.get("note") or ""])
    path = read("path_speed")
    for row in path:
        name = row.get("data") or row.get("problem") or ""
        if row.get("ratio"):
            value = float(row["ratio"])
            what = f"20-point path / one cold fit, {name}, {row['criterion']}"
            note = f"{row['evaluations_path']} evaluations; a cold fit {row['evaluations_cold']}"
            met = "yes" if value <= 4 else "**no**"
            body.append([what, f"{value:.3g}", "<= 4", met, note])
    if body:
        parts += ["## Fits and evaluations", table(["what", "value", "goal", "met", "note"], body)]
    roof = [r for r in rows if r["study"] == "roofline"]
    if roof:
        body = [[r["what"].split(":")[0], f"{float(r['value']):.2f} ns", r["note"]] for r in roof]
        parts += [
            "## Where the time of an evaluation goes",
            "Each pass over the rows on one thread (quadratic basis of score and target, two"
            " groups). Operations are counted in the compiled code; the floor is the larger of"
            " moving the bytes at the bandwidth of a copy and of the operations at the pace of a"
            " matrix product, both measured in the same run. An LSPC evaluation is the first four"
            " passes; a logistic one is the mean and spread, one Hessian pass a Newton step (two or"
            " three from a warm start) and the gradient.",
            table(["pass", "time a row", "bytes, operations, rates"], body),
        ]
    fits = read("fit_speed")
    if fits:
        body = [
            [r["data"], r["criterion"], r["fairness_weight"], f"`{r['classifier']}`",
             r["evaluations"], f"{1e3 * float(r['seconds']):.1f} ms", r["peer_evaluations"],
             f"{1e3 * float(r['peer_seconds']):.0f} ms", f"{float(r['ratio']):.0f}",
             _gap(r)]
            for r in fits
        ]  # fmt: skip
        head = ["data", "criterion", "weight", "classifier", "evaluations", "ours",
                "peer's evaluations", "Algorithm 1 in JAX", "ratio",
                "objective, ours less peer's"]  # fmt: skip
        parts += [
            "## One fit against the published algorithm",
            "The peer minimizes the LSPC objective on raw features with automatic differentiation,"
            " compiled (compilation not counted). The logistic rows minimize another objective, for"
            " which the peer's time is given for scale.",
            table(head, body),
        ]
    parts.append(shortfalls(rows, fits))
    base = read("base_head")
    if base:
        body = [
            [r["job"], f"{1e3 * float(r['base_seconds']):.1f} ms",
             f"{1e3 * float(r['head_seconds']):.1f} ms", f"{float(r['base_over_head']):.2f}"]
            for r in base
        ]  # fmt: skip
        parts += [
            "## Base against head",
            f"The same jobs at revision {base[0]['base']} and at {base[0]['head']}, turn by turn.",
            table(["job", "base", "head", "base / head"], body),
        ]
    audit = read("audit_speed")
    if audit:
        body = [[r["what"], f"{float(r['value']):.3g}", r["goal"],
                 ("yes" if meets(float(r["value"]), r["goal"]) else "**no**") if r["goal"] else ""]
                for r in audit]  # fmt: skip
        parts += ["## Audits", table(["what", "value", "goal", "met"], body)]
    parts.append(many_groups())
    peers = read("measure_peers")
    if peers:
        sizes = list(dict.fromkeys(r["n"] for r in peers if r["n"]))
        methods = list(dict.fromkeys(r["method"] for r in peers if r["n"]))
        seconds = {(r["method"], r["n"]): float(r["seconds"]) for r in peers}
        body = [
            [m, *(f"{1e3 * seconds[m, n]:.0f} ms" if (m, n) in seconds else "not run"
                  for n in sizes), f"{seconds[f'{m}: growth exponent', '']:.2f}"]
            for m in methods
        ]  # fmt: skip
        parts += [
            "## Measures of other packages",
            "dalex gives three ratios without intervals or tests, from logistic regressions that"
            " are linear in score and target; infomeasure gives I(S;A) alone. Ours are whole"
            " audits.",
            table(["method", *(f"n = {int(n):,}" for n in sizes), "growth exponent"], body),
        ]
    knn = read("knn_speed")
    if knn:
        head = list(knn[0])
        body = [[r[h] for h in head] for r in knn]
        parts += ["## Neighbors", table(head, body)]
    parts += ["## Networks on a GPU", devices()]
    parts += [setting(rows), "Scripts: `performance.py`, `fit_speed.py`, `path_speed.py`,"
              " `audit_speed.py`, `many_groups.py`, `knn_speed.py`, `measure_peers.py`,"
              " `base_head.py`; this page:"
              " `research/studies/pages.py`."]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def shortfalls(rows: list[dict[str, str]], fits: list[dict[str, str]]) -> str:
    """What fell short, with the numbers, and why."""
    missed = {r["study"] for r in rows if r["goal"] and not meets(float(r["value"]), r["goal"])}
    said = []
    if "bandwidth" in missed:
        said.append(
            "**Bandwidth.** A pass of LSPC takes two exponentials, two logarithms and four"
            " reciprocals a row, so arithmetic bounds it and not memory (the table of passes says"
            " by how much). A second thread nearly halves the time of the logistic passes here and"
            " hardly that of LSPC, as if the two cores shared their vector units."
        )
    if "first" in missed:
        said.append(
            "**First call with a filled cache.** Nearly all of it is importing Numba and setting up"
            " its compiler, which compiled code from the cache needs too."
        )
    low = [r for r in fits if float(r["ratio"]) < 30]
    if low:
        default = [r for r in fits if r["classifier"] == "logistic"]

        def span(values: list[float]) -> str:
            return f"{min(values):.0f} to {max(values):.0f}"

        lines = []
        for name in dict.fromkeys(r["data"] for r in default):
            own = [r for r in default if r["data"] == name]
            ratios = span([float(r["ratio"]) for r in own])
            more = span([int(r["peer_evaluations"]) / int(r["evaluations"]) for r in own])
            lines.append(f"{name} {ratios}, where the peer takes {more} times the evaluations")
        said.append(
            f"**Algorithm 1 in JAX / ours, goal 30.** {len(low)} of {len(fits)} fits are below it."
            f" With the default classifier: {'; '.join(lines)}. Where that number is small what is"
            " left is the cost of one evaluation; of a fit of some ten milliseconds about a quarter"
            " is set-up (checking and encoding the input, moments) and a third is Python between"
            " the passes. LSPC at large weights takes many more steps than the default."
        )
    return "## What fell short, and why\n\n" + "\n\n".join(said) if said else ""


def _gap(row: dict[str, str]) -> str:
    if not row["peer_objective"]:
        return ""
    return f"{float(row['objective']) - float(row['peer_objective']):+.1e}"


def main() -> None:
    DOCS.mkdir(exist_ok=True)
    for name, text in (("accuracy", accuracy()), ("performance", performance())):
        path = DOCS / f"{name}.md"
        path.write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
