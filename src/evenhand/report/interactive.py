"""The frontier as a Plotly figure, for notebooks and dashboards.

The HTML report does not use it: Plotly's code alone is larger than a whole report may be.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from .curves import PALETTE

if TYPE_CHECKING:
    from ..frontier.path import FairnessPath


def plotly_frontier(path: FairnessPath) -> Any:
    """Accuracy against each criterion, with intervals; hovering shows the model's numbers.

    Parameters
    ----------
    path : FairnessPath
        As from :func:`evenhand.fairness_path`.

    Returns
    -------
    plotly Figure
    """
    try:
        from plotly.subplots import make_subplots
    except ImportError as error:
        raise ModuleNotFoundError(
            "An interactive figure must have Plotly, which is not installed. Hint: pip install "
            "'evenhand[report]', or path.to_html(...), which needs nothing."
        ) from error
    figure = make_subplots(
        rows=1, cols=len(path.criteria), shared_yaxes=True, horizontal_spacing=0.03
    )
    accuracy = [p.accuracy for p in path.points]
    half = [p.accuracy_interval[1] - p.accuracy for p in path.points]
    for column, name in enumerate(path.criteria, 1):
        measures = [p.measure(name) for p in path.points]
        faded = path.dominated(name)
        value = [m.shown for m in measures]
        figure.add_scatter(
            x=value, y=accuracy, mode="lines+markers", row=1, col=column, showlegend=False,
            line={"color": PALETTE[0], "width": 1},
            marker={
                "size": [12 if p is path.selected else 8 for p in path.points],
                "symbol": ["diamond" if p is path.selected else "circle" for p in path.points],
                "color": [PALETTE[1] if p is path.selected else PALETTE[0] for p in path.points],
                "opacity": [0.35 if f else 1.0 for f in faded],
            },
            error_x={
                "array": [max(m.interval[1] - m.shown, 0.0) for m in measures],
                "arrayminus": [max(m.shown - m.interval[0], 0.0) for m in measures],
                "symmetric": False, "thickness": 0.7, "width": 0, "type": "data",
            },
            error_y={"array": half, "thickness": 0.7, "width": 0, "type": "data"},
            text=[_hover(path, k) for k in range(len(path))],
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
        figure.update_xaxes(title_text=f"{name} (0 fair)", row=1, col=column)
    figure.update_yaxes(title_text=f"held-out {path.accuracy.symbol}", row=1, col=1)
    figure.update_layout(
        template="plotly_white", height=420, title_text=f"{path.accuracy.symbol} against "
        f"fairness, trained for {path.criterion}",
    )  # fmt: skip
    return figure


def _hover(path: FairnessPath, k: int) -> str:
    point = path.points[k]
    lines = [f"fairness weight {point.fairness_weight:.4g}"]
    lines.append(f"{path.accuracy.symbol} {point.accuracy:.4f}")
    lines += [f"{m.criterion} {m.shown:.4f}" for m in point.measures.values()]
    if point is path.selected:
        lines.append("selected")
    # Plotly reads a little HTML in its texts.
    return "<br>".join(map(escape, lines))
