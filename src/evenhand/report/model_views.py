"""What a model says of itself: relativities of a tariff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .view import Name, Note, Table, View
from .words import number, percent

if TYPE_CHECKING:
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
