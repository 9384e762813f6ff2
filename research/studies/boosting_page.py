"""The tables of docs/boosting.md, written from results/models_boosting.csv.

python research/run.py boosting_page
"""

from __future__ import annotations

import csv

from common import HERE, RESULTS

PAGE = HERE.parent / "docs" / "boosting.md"
NAMES = {
    "native": "its own",
    "plain function": "squared error as a Python function",
    "ours": "ours",
}


def read() -> list[dict[str, str]]:
    with (RESULTS / "models_boosting.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def gap_table(rows: list[dict[str, str]]) -> str:
    lines = [
        "| criterion | λ | rounds | training, as trained | training, audited | held out, audited "
        "| R² in training | R² held out |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    columns = ("training", "training_audit", "held_out_audit", "training_r2", "held_out_r2")
    for row in rows:
        if row["what"] == "gap":
            numbers = " | ".join(f"{float(row[name]):.3f}" for name in columns)
            weight = f"{float(row['fairness_weight']):g}"
            lines.append(f"| {row['criterion']} | {weight} | {row['rounds']} | {numbers} |")
    return "\n".join(lines)


def speed_table(rows: list[dict[str, str]]) -> str:
    lines = ["| library | criterion | objective | seconds | times its own | inside the function |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        if row["what"] == "speed":
            numbers = f"{float(row['seconds']):.2f} | {float(row['times_native']):.2f}"
            numbers += f" | {float(row['inside_share']):.0%}" if float(row["inside"]) else " | "
            name = NAMES[row["objective"]]
            lines.append(f"| {row['library']} | {row['criterion']} | {name} | {numbers} |")
    return "\n".join(lines)


TABLES = {"gap": gap_table, "speed": speed_table}


def filled(text: str, rows: list[dict[str, str]]) -> str:
    """The page with its tables between their marks."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}{table(rows)}\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), read()), encoding="utf-8")
