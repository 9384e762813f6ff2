"""docs/accuracy.md, written from its tables: no number on it is typed by hand."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import Any

from evidence import read_numbers, read_table
from pages.markdown import origin, picture, table

# Distributions listed at most.
TOP = 100
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


def build() -> str:
    """The text of the page."""
    rows = read_table("accuracy")
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
                result = [ratio.get((family, n, estimator, c)) for c in CRITERIA]
                if None in result:
                    cells.append("not run")
                else:
                    cells.append(" / ".join(f"{v:.2f}" for v in result))
            body.append([f"`{estimator}`", *cells])
        parts += [f"## {title}", table(["estimator", *(f"n = {int(n):,}" for n in sizes)], body)]
    parts += ["## Where `auto` loses", losses(rows), fresh()]
    parts += ["## Time per call", times(rows, estimators)]
    odd = {k: v for k, v in count.items() if v != "100"}
    if odd:
        said = sorted({f"`{e}` at n = {int(n):,}: {v}" for (_, n, e), v in odd.items()})
        parts.append("Scenarios where not 100: " + "; ".join(said) + ".")
    parts += [rough(), adversary(), coverage(), clusters(), size(), tests_elsewhere()]
    parts.append(origin("accuracy"))
    return "\n\n".join(part for part in parts if part) + "\n"


def fresh() -> str:
    """The largest ratios on scenarios drawn after the last change to the estimator."""
    rows = [row for row in read_table("accuracy_fresh") if row["estimator"] == "auto"]
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
            result = [float(r["ratio"]) for r in rows if (r["family"], r["n"]) == (family, n)]
            cells.append(" / ".join(f"{v:.2f}" for v in result) if result else "not run")
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
            result = sorted(seconds.get((estimator, n), []))
            cells.append(f"{1e3 * result[len(result) // 2]:.0f} ms" if result else "not run")
        body.append([f"`{estimator}`", *cells])
    return (
        table(["all three criteria", *(f"n = {int(n):,}" for n in sizes)], body)
        + "\n\nMedians over families, taken on a machine that was doing other work."
    )


def rough() -> str:
    """Bias and coverage of `auto` where nothing is smooth, one line per family and criterion."""
    rows = [r for r in read_table("rough") if r["estimator"] == "auto" and float(r["truth"]) > 0.05]
    if not rows:
        return ""
    sizes = sorted({r["n"] for r in rows}, key=int)
    result = {(r["family"], r["criterion"], r["n"]): r for r in rows}
    body, over, low = [], [], []
    for family, criterion in dict.fromkeys((r["family"], r["criterion"]) for r in rows):
        cells = []
        for n in sizes:
            row = result.get((family, criterion, n))
            if row is None:
                cells.append("not run")
                continue
            bias, cover = 100 * float(row["relative_bias"]), 100 * float(row["coverage"])
            cells.append(f"{bias:+.1f} % / {count(row)}")
            where = f"{family}, {criterion}, n = {int(n):,}"
            if abs(bias) > (25 if int(n) < 20_000 else 10):
                over.append(f"{where}: {bias:+.0f} %")
            if int(n) >= 20_000 and cover < 88 and int(row["replications"]) >= 20:
                low.append(f"{where}: {cover:.0f} %")
        truth = next(float(result[family, criterion, n]["truth"]) for n in sizes
                     if (family, criterion, n) in result)  # fmt: skip
        body.append([family, criterion, f"{truth:.3f}", *cells])
    counts = "; ".join(
        f"n = {int(n):,}: {', '.join(sorted({r['replications'] for r in rows if r['n'] == n}))}"
        for n in sizes
    )
    said = [
        f"Biases over the goals: {'; '.join(over)}." if over else "No bias is over its goal.",
        f"Coverage below 88 % from 20,000 rows on: {'; '.join(low)}."
        if low
        else "No coverage from 20,000 rows on is below 88 % (sizes with 20 replications or more).",
    ]
    return (
        "## Distributions without smoothness\n\nChecker boards, rings, bands, heaped values, "
        "parities: distributions that no smooth basis follows (`research/distributions`), wherever "
        "the truth is above 0.05. Each cell: bias relative to the truth / how many 95 % intervals "
        "cover it. The goals are a bias under 25 % of the truth at 2,000 rows and under 10 % "
        "from 20,000 on, and 88 % coverage there. Seeds drawn after tuning; replications "
        f"{counts}.\n\n"
        + picture("rough", "Estimate against number of rows")
        + "\n\n"
        + table(["family", "criterion", "truth", *(f"n = {int(n):,}" for n in sizes)], body)
        + "\n\n"
        + " ".join(said)
        + "\n\n"
        + peers()
        + doubling()
    )


def count(row: dict[str, str]) -> str:
    """Replications whose interval covers the truth, of all."""
    return f"{round(float(row['coverage']) * int(row['replications']))} of {row['replications']}"


def peers() -> str:
    """`knn` and `fourier` beside `auto`: mean absolute relative bias over the families."""
    means: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in read_table("rough"):
        if float(row["truth"]) > 0.05 and row["relative_bias"]:
            means[row["estimator"], row["n"]].append(abs(float(row["relative_bias"])))
    names = list(dict.fromkeys(name for name, _ in means))
    if len(names) < 2:
        return ""
    sizes = sorted({n for _, n in means}, key=int)
    body = [
        [f"`{name}`", *(
            f"{100 * sum(v) / len(v):.1f} %" if (v := means.get((name, n))) else "not run"
            for n in sizes
        )]
        for name in names
    ]  # fmt: skip
    return (
        "Mean absolute bias relative to the truth, over the same families:\n\n"
        + table(["estimator", *(f"n = {int(n):,}" for n in sizes)], body)
        + "\n\n"
    )


def doubling() -> str:
    """Whether more rows ever lose what fewer had found."""
    rows = read_table("rough_doubling")
    if not rows:
        return ""
    falls = [r for r in rows if r.get("falls", "") in ("1", "True", "true")]
    chains = len({(r["family"], r.get("chain", "")) for r in rows})
    text = (
        f"**More rows.** Prefixes of one sample of each of {chains} families, 1,000 to 1,000,000"
        f" rows, doubling: {len(falls)} of {len(rows)} estimates lie below the lower end of the"
        " interval before them"
    )
    if falls:
        text += ": " + "; ".join(
            f"{r['family']}, {r['criterion']}, n = {int(r['n']):,} ({float(r['value']):.3f}, truth"
            f" {float(r['truth']):.3f})"
            for r in falls
        )
    return text + "."


def adversary() -> str:
    rows = read_table("adversary")
    if not rows:
        return ""
    by_number: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        by_number[row["id"]].append(row)
    kinds: dict[str, list[tuple[bool, bool, float]]] = defaultdict(list)
    for parts in by_number.values():
        beyond = any(float(r["excess"]) > 0 for r in parts)
        dense = float(parts[0]["rows_per_piece"]) >= 200
        inside = [float(r["low"]) <= float(r["truth"]) <= float(r["high"]) for r in parts]
        kinds[parts[0]["kind"]].append((beyond, dense, sum(inside) / len(inside)))
    body = []
    for kind, result in sorted(kinds.items()):
        dense = [(b, c) for b, d, c in result if d]
        cover = 100 * sum(c for _, c in dense) / max(len(dense), 1)
        body.append([kind, str(len(result)), str(sum(b for b, _, _ in result)), str(len(dense)),
                     str(sum(b for b, _ in dense)), f"{cover:.0f} %"])  # fmt: skip
    head = ["kind", "tried", "beyond", "of 200 or more per piece", "beyond", "intervals that cover"]
    return (
        "## Random distributions, looking for trouble\n\n`research/studies/adversary.py` draws "
        "distributions with known truth (partitions into half-planes, discs, Voronoi cells and "
        "dyadic boxes, waves, tables, mixtures with smooth ones; two to six groups, odd margins, "
        "scores next to equal to their targets) and runs `auto`. An estimate is allowed an error "
        "of three standard errors, a quarter of the truth (a tenth from 10,000 rows on) and 0.005. "
        "Where a piece holds few rows nobody can know it: those with 200 rows per piece are "
        f"counted apart. Intervals are counted for those.\n\n{table(head, body)}\n\n"
        "The worst:\n\n" + list_worst(worst(read_numbers("adversary"), TOP))
    )


def worst(rows: list[dict[str, Any]], top: int) -> list[dict[str, Any]]:
    """The worst criterion of each distribution, the worst of all first."""
    by_law: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["id"] not in by_law or row["excess"] > by_law[row["id"]]["excess"]:
            by_law[row["id"]] = row
    listed = [row for row in by_law.values() if row["excess"] > 0]
    return sorted(listed, key=lambda row: -row["excess"])[:top]


def list_worst(listed: list[dict[str, Any]]) -> str:
    """A table of distributions."""
    lines = [
        "| no. | kind | rows | rows per piece | criterion | truth | estimate | exceeds by | what |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in listed:
        start = f"| {row['id']} | {row['kind']} | {row['n']:,.0f} | {row['rows_per_piece']:,.0f} "
        if isinstance(row["error"], str) and row["error"]:
            lines.append(f"{start}| all |  | {row['error']} |  | {row['note']} |")
        else:
            lines.append(
                f"{start}| {row['criterion']} | {row['truth']:.3f} | {row['value']:.3f} "
                f"({row['low']:.3f} to {row['high']:.3f}) | {row['excess']:.3f} | {row['note']} |"
            )
    return "\n".join(lines)


def coverage() -> str:
    rows = read_table("intervals")
    if not rows:
        return ""
    body = [
        [f"`{r['estimator']}`", FAMILIES[r["family"]], f"{int(r['n']):,}", r["criterion"],
         f"{float(r['truth']):.3f}", count(r)]
        for r in rows
    ]  # fmt: skip
    head = ["estimator", "family", "n", "criterion", "truth", "95 % intervals that cover it"]
    return "## Intervals\n\n" + table(head, body)


def clusters() -> str:
    rows = read_table("clusters")
    if not rows:
        return ""
    keep = [k for k in rows[0] if k not in ("setting", "replications")]
    body = [[count(r) if k == "coverage" else _short(r[k]) for k in keep] for r in rows]
    return (
        "## Clusters\n\nCoverage of 95 % intervals where rows come in clusters, with `cluster=` and"
        " without.\n\n" + table([k.replace("_", " ") for k in keep], body)
    )


def size() -> str:
    rows = [r for r in read_table("calibration") if r.get("study") == "size"]
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
        f"{count:,} replications per setting (one standard error is"
        f" {100 * (0.05 * 0.95 / count) ** 0.5:.2f} %).\n\n" + table(head, body)
    )


def tests_elsewhere() -> str:
    """Size with tied weights and clusters, power on rough distributions."""
    rows = [
        r for r in read_table("calibration") if r["study"] in ("tied weights", "clusters", "rough")
    ]
    if not rows:
        return ""
    rates: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for r in rows:
        rates[r["study"], r["criterion"], r["n"]].append(100 * float(r["rejected_5"]))
    body = [
        [study, criterion, f"{int(n):,}", f"{sum(v) / len(v):.1f} %",
         f"{min(v):.1f} to {max(v):.1f} %", str(len(v))]
        for (study, criterion, n), v in rates.items()
    ]  # fmt: skip
    counts = ", ".join(sorted({r["replications"] for r in rows}, key=int))
    return (
        "The same with weights tied to group and score and with clusters (5 % is right), and on"
        f" rough distributions (100 % is right); {counts} replications per setting.\n\n"
        + table(["study", "criterion", "n", "mean rejection", "range", "settings"], body)
    )


def _short(text: str) -> str:
    try:
        return f"{float(text):.3g}"
    except ValueError:
        return text
