"""Planted defects: how many the tests notice, and why the others survive."""

from __future__ import annotations

from evidence import read_table
from pages.markdown import table

# Whether the numbers stay the same, and if not, what of them.
KINDS = {"the same numbers", "harmless", "gone", "a gap"}
SAME, HARMLESS, GONE, GAP = "the same numbers", "harmless", "gone", "a gap"
# Seed, module, line when it was drawn → the kind, and why no test notices it.
EXPLAINED: dict[tuple[str, str, str], tuple[str, str]] = {
    ("23", "measures/balancing.py", "551"): (
        HARMLESS, "Trees may use more threads, which takes longer on a busy machine."),
    ("23", "measures/balancing.py", "538"): (
        HARMLESS, "The folds of the trees are another random draw."),
    ("23", "measures/balancing.py", "308"): (
        SAME, "Replaces the divisor where a stratum has no mass: 0/3 is 0/1."),
    ("23", "measures/balancing.py", "325"): (
        HARMLESS, "A Newton step that overshoots is cut to a fifth and not to half of it; the "
        "minimum is the same."),
    ("23", "measures/balancing.py", "124"): (
        SAME, "Replaces the spread of a column without any, whose values less their median are 0."),
    ("23", "measures/cells.py", "209"): (
        SAME, "Shares of groups that there are none of are 0, and count for nothing."),
    ("23", "measures/covariances.py", "209"): (
        SAME, "Starts from three test functions and not one; the loop that follows comes down to "
        "as many as there are units for."),
    ("23", "auditing/verdict.py", "418"): (
        SAME, "A p-value is capped at 1 once more where all are corrected for their number."),
    ("23", "measures/balancing.py", "246"): (GONE, "The line has another form today."),
    ("23", "measures/cells.py", "471"): (
        SAME, "Chooses between two ways to number keys that give the same numbers; only time and "
        "memory differ."),
    ("23", "measures/cells.py", "473"): (SAME, "Copies an array that need not be copied."),
    ("23", "measures/measures.py", "133"): (
        SAME, "At equality, which is hit by chance only, the bisection goes to the other side of a "
        "middle that is the root."),
    ("23", "training/penalty.py", "289"): (SAME, "The sign is 1 or −1."),
    ("23", "measures/cell_rows.py", "296"): (
        HARMLESS, "Part of a threshold for rounding, 1e-14 of the squares."),
    ("29", "measures/exact_tests.py", "227"): (
        SAME, "Decides whether tests run side by side."),
    ("29", "measures/edges.py", "325"): (
        SAME, "Replaces the divisor of differences that are all zero."),
    ("29", "measures/effective.py", "275"): (
        SAME, "Whether an eigenvalue of exactly 1e-8 counts; none is."),
    ("29", "estimators/ranks.py", "547"): (
        SAME, "A lower bound for the length of a table that grows as needed."),
    ("29", "estimators/_newton.py", "648"): (SAME, "Copies an array that need not be copied."),
    ("29", "training/glm.py", "493"): (
        HARMLESS, "A share of exactly zero that rounding made may come as −0."),
    ("29", "training/problem.py", "664"): (
        HARMLESS, "Where a search of a model with a log link starts; the minimum is the same."),
    ("29", "training/solver.py", "357"): (
        HARMLESS, "Whether a search starts from some of the rows or from all; the minimum is the "
        "same."),
    ("29", "training/solver.py", "173"): (
        HARMLESS, "How much rounding a step of a search may take for progress."),
    ("29", "auditing/audits.py", "382"): (
        SAME, "Decides whether derived columns are kept for a next audit: time and memory."),
    ("29", "auditing/audits.py", "465"): (
        SAME, "Decides whether derived columns are shared: time and memory."),
    ("29", "auditing/conditional.py", "386"): (SAME, "None stands for no, as False does."),
    ("29", "auditing/figures.py", "137"): (
        SAME, "A guard: shares of the rows are below 1, so that the last bin is never exceeded."),
    ("29", "tables/plan.py", "158"): (
        SAME, "Places of cells are held in 64 bits where 32 are enough."),
    ("29", "tables/plan.py", "482"): (SAME, "A check that two lists are equally long: they are."),
    ("29", "tables/monitor.py", "156"): (SAME, "The same of a list of names and of periods."),
    ("29", "tables/readers.py", "324"): (
        GAP, "From which size on a file is not read in one block. A test needs a file of 2 GB."),
    ("29", "tables/audit_table.py", "286"): (
        HARMLESS, "A column of 401 to 801 values is refused after it was counted, not before."),
    ("30", "measures/exact_tests.py", "78"): (SAME, "None stands for no rows, as 0 does."),
    ("30", "estimators/_newton.py", "161"): (SAME, "Copies an array that need not be copied."),
    ("30", "estimators/ranks.py", "146"): (
        SAME, "Takes along counts of slots that are empty, which are subtracted again."),
    ("30", "training/held_out.py", "470"): (
        SAME, "A confidence level of intervals that nobody asks for there."),
    ("30", "auditing/audits.py", "485"): (
        SAME, "Decides whether estimates and tests run side by side."),
    ("30", "tables/readers.py", "306"): (
        SAME, "Text is held once per row where once per value is enough: memory."),
    ("30", "measures/cell_rows.py", "261"): (
        SAME, "Whether a random number equals its limit exactly."),
    ("30", "training/problem.py", "573"): (
        HARMLESS, "How little a step of a search may gain; the minimum is the same."),
    ("30", "tables/monitor.py", "329"): (
        SAME, "A check that a table is in memory, of one that is."),
}  # fmt: skip


def scores() -> str:
    """Noticed of each sample by room: when it was drawn, and with the tests of today."""
    rows = read_table("mutants")
    head = ["sample", "room", "noticed when drawn", "share", "with tests written later", "share"]
    body = []
    seeds = [r["seed"] for r in rows]
    for seed in dict.fromkeys(seeds):
        sample = [r for r in rows if r["seed"] == seed]
        rooms = sorted({r["module"].partition("/")[0] for r in sample})
        for room in [*rooms, ""]:
            own = [r for r in sample if r["module"].startswith(f"{room}/" if room else "")]
            first = sum(r["outcome"] == "noticed" for r in own)
            now = first + sum(r["later"] != "" for r in own)
            body.append([f"seed {seed}", room or "**all**", f"{first} of {len(own)}",
                         f"{first / len(own):.0%}", f"{now} of {len(own)}",
                         f"{now / len(own):.0%}"])  # fmt: skip
    return "\n\n".join([table(head, body), *map(_without_the_same, dict.fromkeys(seeds))])


def _without_the_same(seed: str) -> str:
    """The share of a sample without the defects that change no number."""
    rows = [r for r in read_table("mutants") if r["seed"] == seed]
    same = sum(key[0] == seed and kind == SAME for key, (kind, _) in EXPLAINED.items())
    first = sum(r["outcome"] == "noticed" for r in rows)
    now = first + sum(r["later"] != "" for r in rows)
    left = len(rows) - same
    return (
        f"In the sample of seed {seed}, {same} change no number, so that no test can notice them. "
        f"Of the other {left}, {first} ({first / left:.0%}) were noticed when drawn, and {now} "
        f"({now / left:.0%}) are today."
    )


def survivors() -> str:
    """Each defect that no test notices, and why."""
    body = []
    for row in unnoticed():
        kind, why = EXPLAINED[row["seed"], row["module"], row["line"]]
        change = " → ".join(f"`{_short(row[name])}`" for name in ("before", "after"))
        body.append([row["seed"], f"`{row['module']}`", change, kind, why])
    return table(["sample", "where", "what became what", "effect", "why"], body)


def unnoticed() -> list[dict[str, str]]:
    """The rows of defects that neither the tests of then nor those of today notice."""
    return [r for r in read_table("mutants") if r["outcome"] != "noticed" and not r["later"]]


def _short(text: str, most: int = 60) -> str:
    text = text.replace("|", "\\|").replace("`", "'")
    return text if len(text) <= most else f"{text[:most]} …"
