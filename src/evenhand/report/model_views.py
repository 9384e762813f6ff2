"""What models say of themselves: relativities of a tariff, and a record of alternatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .view import Lead, Name, Note, Table, View
from .words import number, percent

if TYPE_CHECKING:
    from ..training.alternatives import Alternatives
    from ..training.glm import Relativities

_RATIOS = {"log": "relativity", "logit": "odds ratio"}


def relativities_view(result: Relativities) -> View:
    """Return factors, levels and what they multiply the mean by, and the deviance table."""
    columns, ratio = result.columns, _RATIOS.get(result.link, "")
    rows = []
    for k, factor in enumerate(columns["factor"]):
        cells = [f"{columns['coef'][k]:.4f}", f"{columns['stderr'][k]:.4f}"]
        if ratio:
            low, high = columns["low"][k], columns["high"][k]
            cells += [f"{columns['relativity'][k]:.4f}", f"{low:.4f} to {high:.4f}"]
        level = columns["level"][k]
        rows.append([Name(factor), Name(level) if level else "", *cells])
    heads = ["factor", "level", "coefficient", "error"]
    heads += [ratio, f"{percent(result.confidence_level)} interval"] if ratio else []
    models = [
        [name, f"{of['deviance']:.5g}", f"{of['explained']:.4f}", number(of["total"], 6),
         f"{of['actual_to_expected']:.4f}"]
        for name, of in result.totals.items()
    ]  # fmt: skip
    return View(
        f"Relativities, {result.family} with {result.link} link",
        [
            Table(heads, rows, "Coefficients with sandwich errors", columns, "relativities.csv"),
            Table(
                ["model", "deviance", result.symbol, "sum of means", "actual / expected"], models,
                "Deviance per unit of weight, and totals over the training rows",
            ),
            Note("A category is compared with the level in brackets; a number is moved by what its "
                 "level says."),
        ],
    )  # fmt: skip


def alternatives_view(result: Alternatives) -> View:
    """Return every model that was looked at, and why it was chosen or not."""
    columns, criterion = result.columns, result.criterion
    accuracy = columns[result.key]
    limits = {"floor": result.floor, "limit": result.limit}
    asked = [f"{name} {value:g}" for name, value in limits.items() if value is not None]
    k = columns["chosen"].index(True)
    rows = [
        [
            Name(name), f"{accuracy[j]:.4f}", f"{columns[criterion][j]:.4f}",
            *(f"{columns[f'{what}_difference'][j]:+.4f} ± {columns[f'{what}_margin'][j]:.4f}"
              if j != k else "" for what in ("accuracy", "unfairness")),
        ]
        for j, name in enumerate(columns["name"])
    ]  # fmt: skip
    reasons = [
        f"{name}: {why}." for name, why in zip(columns["name"], columns["reason"], strict=True)
    ]
    return View(
        f"Search for alternatives: {len(rows)} models",
        [
            Lead(f"{result.chosen}: {columns['reason'][k]}."),
            f"{result.held_out[0].upper()}{result.held_out[1:]}."
            + (f" {result.symbol} {', '.join(asked)}." if asked else ""),
            Table(
                ["model", result.symbol, criterion, f"{result.symbol}, difference",
                 f"{criterion}, difference"], rows,
                f"Differences from the chosen model (± {percent(result.confidence_level)}, paired)",
                columns, "alternatives.csv",
            ),
            View("Why each was chosen or not", reasons, brief=True),
        ],
    )  # fmt: skip
