"""What pages of evidence are written with: tables in Markdown, goals, pictures, origins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from registry import STUDIES


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = False) -> str:
    """Return a table; with `numbers` all columns but the first stand to the right."""
    marks = ["---", *(["---:" if numbers else "---"] * (len(header) - 1))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, marks, *rows])


def meets(value: float, goal: str) -> bool:
    """Return whether a value meets a goal such as "<= 4"; no goal is met by all."""
    if not goal:
        return True
    limit = float(goal.split()[-1])
    return value <= limit if goal.startswith("<=") else value >= limit


def say_met(value: float, goal: str) -> str:
    """Return yes, no in bold, or nothing where there is no goal."""
    return ("yes" if meets(value, goal) else "**no**") if goal else ""


def picture(name: str, words: str) -> str:
    return f"![{words}](../research/results/{name}.png)"


def origin(page: str) -> str:
    """Return the line at the end of a page: which tables it is made from, and how to make them."""
    names = [s.name for s in STUDIES.values() if s.page.split(":")[0] == page]
    listed = ", ".join(f"`{name}`" for name in names)
    return (
        f"This page is written by `python research/run.py --pages` from tables in"
        f" `research/results/`: {listed}. Each row there carries commit, date, machine load and"
        " versions; `python research/run.py NAME` measures a table again.\n\n"
        f"```{{evidence}} {page}\n```"
    )
