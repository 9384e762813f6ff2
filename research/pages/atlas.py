"""docs/atlas.md and its picture, written from its tables: no number on it is typed by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from common import (
    BLACK,
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SEED,
    SKY,
    YELLOW,
    Setting,
    new_figure,
    save_figure,
)
from evidence import read_facts, read_numbers
from pages.markdown import origin, picture
from pages.markdown import table as markdown
from studies.atlas_methods import DATASETS, METHODS

LEAGUES = {"blind": "Attribute not needed", "known": "Attribute known"}
COLORS = (BLACK, BLUE, RED, GREEN, ORANGE, SKY, PINK, YELLOW, GRAY)
Line = dict[str, Any]


def recommended(league: str) -> str:
    return f"FairRegressor, {league}"


def cells(lines: list[Line]) -> dict[tuple[Any, ...], dict[str, Line]]:
    """(data set, criterion, share, league) → method → line."""
    out: dict[tuple[Any, ...], dict[str, Line]] = {}
    for line in lines:
        key = (line["dataset"], line["criterion"], line["share"], line["league"])
        out.setdefault(key, {})[line["method"]] = line
    return out


def met(line: Line | None) -> bool:
    return line is not None and bool(np.isfinite(line.get("r2", np.nan)))


def ranked(cell: dict[str, Line]) -> dict[str, Line]:
    return {m: line for m, line in cell.items() if np.isfinite(line.get("rank", np.nan))}


def ranks(table: Any, league: str, keep: Callable[[tuple[Any, ...]], bool]) -> dict[str, float]:
    """Mean rank of each method over some cells of a league."""
    result: dict[str, list[float]] = {}
    for key, cell in table.items():
        if key[3] == league and keep(key):
            for method, line in ranked(cell).items():
                result.setdefault(method, []).append(line["rank"])
    return {method: float(np.mean(values)) for method, values in result.items()}


def data_table(lines: list[Line]) -> str:
    kinds = [(league, c) for league in LEAGUES for c in ("independence", "separation")]
    rows = [["data set", "rows", "target; groups", *(f"{c}, {league}" for league, c in kinds)]]
    for dataset in dict.fromkeys(line["dataset"] for line in lines):
        mine = [line for line in lines if line["dataset"] == dataset]
        value = {(x["league"], x["criterion"]): x for x in mine}
        shown = [
            f"{value[k]['ridge_unfairness']:.3f} ({value[k]['ridge_r2']:.3f})"
            if k in value
            else "–"
            for k in kinds
        ]
        rows.append([dataset, f"{int(mine[0]['rows']):,}", mine[0]["what"], *shown])
    return markdown(rows[0], rows[1:], numbers=True)


def rank_table(table: Any, league: str) -> str:
    shares = sorted({key[2] for key in table}, reverse=True)
    total = ranks(table, league, lambda key: True)
    columns = {s: ranks(table, league, lambda key, s=s: key[2] == s) for s in shares}
    criteria = {c: ranks(table, league, lambda key, c=c: key[1] == c)
                for c in ("independence", "separation")}  # fmt: skip
    reach = {m: [met(cell[m]) for key, cell in table.items() if key[3] == league and m in cell]
             for m in total}  # fmt: skip
    rows = [["method", "mean rank", *(f"bound ×{s:g}" for s in shares), *criteria, "bound met"]]
    for method in sorted(total, key=total.__getitem__):
        name = f"**{method}**" if method == recommended(league) else method
        rows.append([
            name, f"{total[method]:.2f}", *(f"{columns[s][method]:.2f}" for s in shares),
            *(f"{criteria[c].get(method, np.nan):.2f}" for c in criteria),
            f"{np.mean(reach[method]):.0%}",
        ])  # fmt: skip
    return markdown(rows[0], rows[1:], numbers=True)


def against(table: Any, league: str) -> tuple[list[Line], int, int]:
    """Rivals' lines that are ahead of ours, largest excess first; cells; cells within one error."""
    ahead, total, good = [], 0, 0
    for key, cell in table.items():
        if key[3] != league:
            continue
        total += 1
        rivals = [line for line in cell.values() if not line["ours"] and met(line)]
        mine = cell[recommended(league)]
        if not met(mine):
            good += not rivals
            ahead += [{**line, "excess": np.inf} for line in rivals]
            continue
        worst = max((x["ahead_of_recommended"] - x["stderr"] for x in rivals), default=-1.0)
        good += worst <= 0
        for line in rivals:
            gap = line["ahead_of_recommended"]
            if gap > 0:
                ahead.append({**line, "excess": gap / max(line["stderr"], 1e-12)})
    return sorted(ahead, key=lambda x: -x["excess"]), total, good


def losses(ahead: list[Line], most: int = 12) -> str:
    rows = [["data set", "criterion", "bound", "rival", "ahead of ours by", "standard error"]]
    for line in ahead[:most]:
        beyond = not np.isfinite(line["excess"])
        rows.append([
            line["dataset"], line["criterion"], f"×{line['share']:g} = {line['bound']:.4f}",
            line["method"], "ours does not meet it" if beyond
            else f"{line['ahead_of_recommended']:.4f}",
            "" if beyond else f"{line['stderr']:.4f}",
        ])  # fmt: skip
    return markdown(rows[0], rows[1:], numbers=True)


def hindsight(table: Any, league: str) -> dict[str, float]:
    """The recommended model against its own variants: in hindsight, and each of them always."""
    behind, luck_rival, honest_rival = [], [], []
    for key, cell in table.items():
        if key[3] != league or not met(cell[recommended(league)]):
            continue
        own = [
            x["r2"] for m, x in cell.items() if x["ours"] and met(x) and m != recommended(league)
        ]
        rival = [x["r2"] for x in cell.values() if not x["ours"] and met(x)]
        mine = cell[recommended(league)]["r2"]
        if own:
            behind.append(max(own) - mine)
        if own and rival:
            luck_rival.append(max(own) - max(rival))
            honest_rival.append(mine - max(rival))
    return {
        "cells": len(behind),
        "behind": float(np.mean(behind)),
        "worst": float(np.max(behind)),
        "lucky": float(np.mean(luck_rival)),
        "honest": float(np.mean(honest_rival)),
    }


def bounded(table: Any) -> str:
    """The linear score trained on bounded scores against the same on raw ones."""
    gaps = []
    for key, cell in table.items():
        ours, raw = cell.get("linear"), cell.get("nested logistic")
        if met(ours) and met(raw):
            gaps.append((ours["r2"] - raw["r2"], key))
    values = np.array([gap for gap, _ in gaps])
    worst = min(gaps)
    return (
        f"Over {len(gaps)} cells the linear score is {values.mean():+.4f} R² ahead with bounded "
        f"scores, between {values.min():+.4f} ({worst[1][0]}, {worst[1][1]}, ×{worst[1][2]:g}) and "
        f"{values.max():+.4f}; it is behind by more than 0.002 in "
        f"{int((values < -0.002).sum())} and ahead by more than that in "
        f"{int((values > 0.002).sum())}."
    )


def draw(setting: Setting, lines: list[Line]) -> None:
    """Left: mean rank by bound. Right: R² given up per point of unfairness removed."""
    table = cells(lines)
    figure, axes = new_figure(2, 2, 11.0, 8.2)
    shares = sorted({key[2] for key in table}, reverse=True)
    for row, league in zip(axes, LEAGUES, strict=True):
        total = ranks(table, league, lambda key: True)
        order = sorted(total, key=total.__getitem__)
        for method, color in zip(order, COLORS, strict=False):
            ours = method == recommended(league)
            values = [ranks(table, league, lambda key, s=s: key[2] == s)[method] for s in shares]
            row[0].plot(
                range(len(shares)), values, marker="o", color=color, label=method,
                linewidth=2.6 if ours else 1.3, zorder=3 if ours else 2,
            )  # fmt: skip
        row[0].set(
            xticks=range(len(shares)), xticklabels=[f"×{s:g}" for s in shares],
            xlabel="bound, as a share of what plain ridge has", ylabel="mean rank (1 is best)",
            title=LEAGUES[league],
        )  # fmt: skip
        row[0].invert_yaxis()
        row[0].legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=3)
        # Where a method fails to meet the hard bounds its other prices would look low.
        common = [
            cell for key, cell in table.items()
            if key[3] == league and all(met(cell.get(m)) for m in order[:4])
        ]  # fmt: skip
        for place, method in enumerate(order):
            shown = [cell[method] for cell in common if met(cell.get(method))]
            price = [
                (x["ridge_r2"] - x["r2"]) / (x["ridge_unfairness"] - x["bound"]) for x in shown
            ]
            rng = np.random.default_rng(0)
            spread = place + rng.uniform(-0.18, 0.18, len(price))
            row[1].scatter(price, spread, s=10, color=COLORS[place % len(COLORS)], alpha=0.6)
            row[1].plot([np.median(price)] * 2, [place - 0.32, place + 0.32], color="black",
                        linewidth=2)  # fmt: skip
        row[1].set(
            yticks=range(len(order)), yticklabels=order, xlim=(-0.3, 3.0),
            xlabel="R² given up per point of unfairness removed (bar: median)",
            title=f"Price, {len(common)} cells met by the first four",
        )  # fmt: skip
        row[1].invert_yaxis()
        row[1].axvline(0.0, color="0.6", linewidth=0.8)
    save_figure(setting, figure, "atlas")


def left_out(lines: list[Line]) -> str:
    """Data sets without a cell, if any."""
    gone = [name for name in DATASETS if name not in {line["dataset"] for line in lines}]
    return f" {', '.join(gone)} has no such cell at all." if gone else ""


def league_section(table: Any, league: str) -> str:
    ahead, total, good = against(table, league)
    beyond = [x for x in ahead if x["excess"] > 2]
    luck = hindsight(table, league)
    met_text = "no rival is ahead of it by more than two standard errors anywhere"
    if beyond:
        met_text = f"in {len(beyond)} comparisons a rival is ahead by more than two"
    losing = losses(ahead) if ahead else "None."
    return f"""\
## {LEAGUES[league]}

{rank_table(table, league)}

Ranks are among the rivals and the recommended model; a method that does not get down to a bound is
last there. In {good} of {total} cells ({good / total:.0%}) no rival is ahead of `FairRegressor` by
more than one standard error, and {met_text} (or meets a bound that it does not). The comparisons in
which a rival is ahead at all, the clearest first ({min(len(ahead), 12)} of {len(ahead)}):

{losing}

**Chosen inside against chosen afterwards.** In hindsight the best of our own variants is ahead of
what `FairRegressor` chose on inner folds by {luck["behind"]:.4f} R² on average over
{int(luck["cells"])} cells, and by {luck["worst"]:.4f} at most. Picking the best variant after
seeing the result would have shown a mean lead over the best rival of {luck["lucky"]:.4f};
reported honestly it is {luck["honest"]:.4f}. That difference is what winner's luck is worth here.
"""


def unmeasured(lines: list[Line]) -> str:
    """Methods that came after the table was made, if any."""
    new = [name for name in METHODS if name not in {line["method"] for line in lines}]
    return f"\n\nAdded since, and not in these tables yet: {', '.join(new)}." if new else ""


def build() -> str:
    """The text of the page."""
    lines, note = read_numbers("atlas"), read_facts("atlas")
    table = cells(lines)
    repeats = sorted({int(line["repeats"]) for line in lines})
    times = " or ".join(map(str, repeats))
    return f"""\
# Atlas: every method on a dozen data sets

Which method gives the most accuracy at a level of fairness, on data that none was made for.

**How it was measured.** At most {note["most_rows"]:,} random rows of each data set;
{note["outer_folds"]} outer folds, stratified by group and drawn {times} times (more often where
rows are few). A method with options of its own (LSPC: penalty and basis; ours: features, degree and
map) chooses them, and its strength, on inner folds of the training rows alone; nothing is chosen
on the rows that are reported. Options that were seen to move next to nothing have their best value
(the entropic temperature, out-of-fold barycenters, Berk's group penalty). Strengths are swept, and
R² is read off where the held-out unfairness, by `auto` on all rows together, just meets the bound:
a half, a fifth and a tenth of what plain ridge has on up to {note["reference_rows"]:,} rows. The
group is among the features in the second
league only. All methods share the ridge penalty and standardized columns. Standard errors of
differences are over rows (a row's influence on R², and through the unfairness on the place where
the bound is met) and, where folds were drawn again, over the draws.{unmeasured(lines)}

All fits took {note["compute_seconds"] / 60:.0f} minutes of CPU; seed {SEED}.

{picture("atlas", "Mean rank by bound and R² given up per point of unfairness")}

{league_section(table, "blind")}
{league_section(table, "known")}
## Bounded or raw scores in the fairness term

Our term reads 1.5·tanh(z/1.5) of the standardized score; the nested objective reads the score
itself, and is otherwise the same. {bounded(table)}

## The data sets

Normalized criteria of plain ridge by `auto`, held out, without and with the group among the
features, and its R² in brackets; – where there is less than 0.01 to remove, which is left
out.{left_out(lines)} Bounds below about 0.005 are within the error of a measure on 2,000 rows: no
inner fold can tell whether they are met, and a strength chosen there is mostly luck.

{data_table(lines)}

{origin("atlas")}
"""
