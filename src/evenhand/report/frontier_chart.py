"""The picture of a frontier: each point a model, to be clicked, touched or reached by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..auditing.path_audits import weight_name
from .charts import Chart
from .markup import Html, element

if TYPE_CHECKING:
    from ..training.path import FairnessPath


def frontier_section(path: FairnessPath, chosen: int) -> Html:
    order = [path.criterion, *(c for c in path.criteria if c != path.criterion)]
    wide = _frontier_chart(path, order[0], chosen, 720, 380)
    rest = [
        element(
            "figure",
            element("figcaption", f"{path.accuracy.symbol} against {name}"),
            _frontier_chart(path, name, chosen, 520, 300),
        )
        for name in order[1:]
    ]
    steps = element(
        "div",
        element("button", "← Less fair", type="button", id="step-back"),
        element("button", "Fairer →", type="button", id="step-forward"),
        element("span", id="spoken", class_="note", aria_live="polite"),
        class_="steps screen",
        hidden=True,
    )
    return element(
        "section",
        element("h2", "What fairness costs"),
        element(
            "p",
            "Each point is a model; further left is fairer, higher up more accurate. Click a "
            "point, or reach it with the Tab and arrow keys, to see that model below. Bars are "
            f"{100 * path.confidence_level:g}% intervals, cut off where they leave the picture. "
            "Faded models are beaten by another in both respects.",
            class_="note",
        ),
        element(
            "figure", element("figcaption", f"{path.accuracy.symbol} against {order[0]}"), wide
        ),
        element("div", *rest, class_="figures"),
        steps,
    )


def _frontier_chart(path: FairnessPath, name: str, chosen: int, width: int, height: int) -> Html:
    measures = [p.measure(name) for p in path.points]
    u = np.array([m.shown for m in measures])
    ends = np.array([m.interval for m in measures])
    symbol = path.accuracy.symbol
    accuracy = np.array([p.accuracy for p in path.points])
    margins = np.array([p.accuracy_interval for p in path.points])
    left, right = _axis(u, ends, 0.02)
    bottom, top = _axis(accuracy, margins, 0.01)
    left = min(left, -0.03 * right)
    chart = Chart(
        (left, right), (bottom, top), width=width, height=height,
        x_label=f"{name} (0 fair, 1 not)", y_label=f"held-out {symbol}",
        title=f"{symbol} against {name}",
    )  # fmt: skip
    faded = path.dominated(name)
    front = np.flatnonzero(~faded)[np.argsort(u[~faded], kind="stable")]
    if len(front) > 1:
        px, py = chart.px(u[front]), chart.py(accuracy[front])
        d = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(px, py, strict=True))
        chart.add(element("path", d=d, class_="frontier-line"))
    marks = []
    for k, point in enumerate(path.points):
        x, y = float(chart.px(u[k])), float(chart.py(accuracy[k]))
        low, high = chart.px(np.clip(ends[k], left, right))
        below, above = chart.py(np.clip(margins[k], bottom, top))
        kind = "point" + (" dominated" if faded[k] else "")
        kind += " chosen" if point is path.selected else ""
        text = _point_words(path, k, name)
        marks.append(
            element(
                "g",
                element("title", text),
                element(
                    "path", class_="whisker",
                    d=f"M{low:.1f} {y:.1f}H{high:.1f}M{x:.1f} {below:.1f}V{above:.1f}",
                ),
                element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=10, class_="ring"),
                element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=6, class_="mark"),
                element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=12, class_="hit"),
                class_=kind, role="radio", aria_checked="true" if k == chosen else "false",
                tabindex="0" if k == chosen else "-1", aria_label=text, data_point=k,
            )
        )  # fmt: skip
    chart.add(element("g", *marks, role="radiogroup", aria_label=f"Models by {symbol} and {name}"))
    return chart.render("group", "chart wide" if width > 600 else "chart")


def _axis(values: Any, ends: Any, least: float) -> tuple[float, float]:
    """Ends of an axis: all points, and of the intervals what does not squeeze the points."""
    low, high = float(values.min()), float(values.max())
    room = max(0.5 * (high - low), least)
    low, high = max(float(ends.min()), low - room), min(float(ends.max()), high + room)
    low, high = min(low, float(values.min())), max(high, float(values.max()))
    pad = 0.05 * max(high - low, least)
    return low - pad, high + pad


def _point_words(path: FairnessPath, k: int, name: str) -> str:
    point = path.points[k]
    text = weight_name(point.fairness_weight)
    selected = ", selected" if point is path.selected else ""
    return (
        f"Model {k + 1} of {len(path)}, {text}{selected}: {path.accuracy.symbol} "
        f"{point.accuracy:.3f}, {name} {point.measure(name).shown:.3f}"
    )
