"""Sections of the measured pages on rough laws, random laws, clusters and many groups."""

from __future__ import annotations

import csv
from collections import defaultdict

from common import RESULTS


def read(name: str) -> list[dict[str, str]]:
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def meets(value: float, goal: str) -> bool:
    if not goal:
        return True
    limit = float(goal.split()[-1])
    return value <= limit if goal.startswith("<=") else value >= limit


def rough() -> str:
    """Bias and coverage of `auto` on laws without smoothness, one line a family and criterion."""
    rows = [r for r in read("rough") if r["estimator"] == "auto" and float(r["truth"]) > 0.05]
    if not rows:
        return ""
    sizes = sorted({r["n"] for r in rows}, key=int)
    found = {(r["family"], r["criterion"], r["n"]): r for r in rows}
    body, over, low = [], [], []
    for family, criterion in dict.fromkeys((r["family"], r["criterion"]) for r in rows):
        cells = []
        for n in sizes:
            row = found.get((family, criterion, n))
            if row is None:
                cells.append("not run")
                continue
            bias, cover = 100 * float(row["relative_bias"]), 100 * float(row["coverage"])
            cells.append(f"{bias:+.1f} % / {cover:.0f} %")
            where = f"{family}, {criterion}, n = {int(n):,}"
            if abs(bias) > (25 if int(n) < 20_000 else 10):
                over.append(f"{where}: {bias:+.0f} %")
            if int(n) >= 20_000 and cover < 88 and int(row["replications"]) >= 20:
                low.append(f"{where}: {cover:.0f} %")
        truth = next(float(found[family, criterion, n]["truth"]) for n in sizes
                     if (family, criterion, n) in found)  # fmt: skip
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
        "## Laws without smoothness\n\nChecker boards, rings, bands, heaped values, parities: laws"
        " that no smooth basis follows (`research/distributions`), wherever the truth is"
        " above 0.05. Each cell: bias relative to the truth / share of 95 % intervals that cover"
        " it. The goals are a bias under 25 % of the truth at 2,000 rows and under 10 % from 20,000"
        " on, and 88 % coverage there. Seeds drawn after tuning; replications "
        f"{counts}.\n\n![Estimate against number of rows](rough.png)\n\n"
        + table(["family", "criterion", "truth", *(f"n = {int(n):,}" for n in sizes)], body)
        + "\n\n"
        + " ".join(said)
        + "\n\n"
        + peers()
        + doubling()
    )


def peers() -> str:
    """`knn` and `fourier` beside `auto`: mean absolute relative bias over the families."""
    means: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in read("rough"):
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
    rows = read("rough_doubling")
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
    rows = read("adversary")
    if not rows:
        return ""
    laws: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        laws[row["id"]].append(row)
    kinds: dict[str, list[tuple[bool, bool, float]]] = defaultdict(list)
    for parts in laws.values():
        beyond = any(float(r["excess"]) > 0 for r in parts)
        dense = float(parts[0]["rows_per_piece"]) >= 200
        inside = [float(r["low"]) <= float(r["truth"]) <= float(r["high"]) for r in parts]
        kinds[parts[0]["kind"]].append((beyond, dense, sum(inside) / len(inside)))
    body = []
    for kind, found in sorted(kinds.items()):
        dense = [(b, c) for b, d, c in found if d]
        cover = 100 * sum(c for _, c in dense) / max(len(dense), 1)
        body.append([kind, str(len(found)), str(sum(b for b, _, _ in found)), str(len(dense)),
                     str(sum(b for b, _ in dense)), f"{cover:.0f} %"])  # fmt: skip
    head = ["kind", "laws", "beyond", "of 200 rows a piece", "beyond", "intervals that cover"]
    worst = RESULTS / "adversary.md"
    listed = worst.read_text(encoding="utf-8").strip() if worst.exists() else ""
    return (
        "## Random laws, looking for trouble\n\n`research/studies/adversary.py` draws laws with"
        " known truth (partitions into half-planes, discs, Voronoi cells and dyadic boxes, waves,"
        " tables,"
        " mixtures with smooth laws; two to six groups, odd margins, scores next to equal to their"
        " targets) and runs `auto`. An estimate is allowed an error of three standard errors, a"
        " quarter of the truth (a tenth from 10,000 rows on) and 0.005. Where a piece of a law"
        " holds few rows nobody can know it: laws with 200 rows a piece or more are counted apart."
        f" Intervals are counted for those.\n\n{table(head, body)}\n\n"
        "The worst:\n\n" + listed
    )


def clusters() -> str:
    rows = read("clusters")
    if not rows:
        return ""
    keep = [k for k in rows[0] if k not in ("setting",)]
    body = [[_short(r[k]) for k in keep] for r in rows]
    return (
        "## Clusters\n\nCoverage of 95 % intervals where rows come in clusters, with `cluster=` and"
        " without.\n\n" + table([k.replace("_", " ") for k in keep], body)
    )


def many_groups() -> str:
    rows = read("many_groups")
    if not rows:
        return ""
    body = []
    for r in rows:
        if r["goal"] or "growth" in r["what"] or r["n"] == "1000000":
            met = "yes" if meets(float(r["value"]), r["goal"]) else "**no**"
            size = f"{int(r['n']):,}" if r["n"] else ""
            value = f"{float(r['value']):.3g}"
            body.append([r["what"], size, r["groups"], value, r["goal"], met if r["goal"] else ""])
    return "## Many groups\n\n" + table(["what", "n", "groups", "value", "goal", "met"], body)


def devices() -> str:
    """The loss for networks on a GPU and on two cores: forward and backward."""
    rows = [row for row in read("models_torch") if row["what"] == "loss"]
    cells = [
        [
            row["device"], f"{int(row['rows']):,}", row["groups"], row["criterion"], row["dtype"],
            row["start"], row["backend"], f"{float(row['ms']):.3g}", f"{float(row['ratio']):.3g}",
        ]
        for row in rows
    ]  # fmt: skip
    by_row = {
        (row["device"].split()[0], row["groups"], row["criterion"]): float(row["ms"])
        / int(row["rows"])
        for row in rows
        if row["start"] == "warm" and row["dtype"] == "float32" and row["backend"] == "auto"
    }
    faster = [
        f"{groups} groups, {criterion}: {by_row['CPU,', groups, criterion] / ms:.0f}"
        for (device, groups, criterion), ms in by_row.items()
        if device == "NVIDIA" and ("CPU,", groups, criterion) in by_row
    ]
    header = [
        "device", "rows", "groups", "criterion", "type", "start", "backend", "ms", "three reads",
    ]  # fmt: skip
    words = (
        "`evenhand.torch.FairnessLoss`, forward and backward, by `research/studies/models_torch.py "
        "--device cuda` on one NVIDIA H200 and `--device cpu` on two cores of the same machine. "
        "The last column counts in times of reading score, group and target three times at the "
        "measured bandwidth; goals were 2.5 (two groups, warm), 5 (two groups, cold) and 5 (five "
        "groups, warm). Times a row on two cores over those on the GPU, warm (goal 150): "
        + "; ".join(faster)
        + "."
    )
    return f"{words}\n\n{table(header, cells)}"


def tests_elsewhere() -> str:
    """Size with tied weights and clusters, power on rough laws."""
    rows = [r for r in read("calibration") if r["study"] in ("tied weights", "clusters", "rough")]
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
        f" rough laws (100 % is right); {counts} replications a setting.\n\n"
        + table(["study", "criterion", "n", "mean rejection", "range", "settings"], body)
    )


def _short(text: str) -> str:
    try:
        return f"{float(text):.3g}"
    except ValueError:
        return text
