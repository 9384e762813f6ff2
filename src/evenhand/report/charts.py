"""Small charts as inline SVG: colors come from the page's style, so they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .markup import Html, element, join
from .words import number, short_names

# Okabe and Ito's palette, which the common kinds of color blindness keep apart; yellow last, as it
# is faint on white.
PALETTE = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#4D4D4D", "#B8A900",
)  # fmt: skip
DASHES = ("", "6 2", "2 2", "8 2 2 2", "", "6 2", "2 2", "8 2 2 2")
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 12, 46


class Chart:
    """One pair of axes.

    Parameters
    ----------
    x, y : (float, float)
        Ends of the axes, in data units.
    x_label, y_label : str
        What the axes show.
    title : str
        Read out in place of the picture.
    width, height : int
        In pixels, before the page scales it.
    x_ticks : sequence of numbers, optional
        Where they are not round numbers of the scale.
    left : int, optional
        Room on the left, in pixels, where y has no scale worth reading, as for densities.
    """

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], *, x_label: str, y_label: str,
        title: str, width: int = 520, height: int = 300,
        x_ticks: Sequence[float] | None = None, left: int | None = None,
    ):  # fmt: skip
        self.x, self.y = x, y
        self.width, self.height = width, height
        self.left = left or LEFT
        self.title = title
        self.layers: list[Html] = []
        shown = ticks(*x, count=max(3, width // 100)) if x_ticks is None else x_ticks
        self._axes(x_label, y_label, left is None, shown)

    def px(self, value: Any) -> Any:
        inner = self.width - self.left - RIGHT
        return self.left + (np.asarray(value, dtype=float) - self.x[0]) * (
            inner / (self.x[1] - self.x[0])
        )

    def py(self, value: Any) -> Any:
        inner = self.height - TOP - BOTTOM
        return TOP + (self.y[1] - np.asarray(value, dtype=float)) * (
            inner / (self.y[1] - self.y[0])
        )

    def draw(self, d: str, class_: str, **attributes: Any) -> None:
        """A path in pixels."""
        self.layers.append(element("path", d=d, class_=class_, **attributes))

    def line(self, x: Any, y: Any, k: int) -> None:
        """A curve in the color and dashes of group `k`."""
        self.draw(self._path(x, y), f"line g{k}", stroke_dasharray=DASHES[k] or None)

    def band(self, x: Any, low: Any, high: Any, k: int, class_: str = "area band") -> None:
        """The area between two curves."""
        x, low = np.asarray(x), np.asarray(low)
        back = self._path(x[::-1], low[::-1])
        self.draw(f"{self._path(x, high)}L{back[1:]}Z", f"{class_} g{k}")

    def guide(self, x: Any, y: Any, class_: str = "guide") -> None:
        """A line that is no curve, such as a limit."""
        self.draw(self._path(x, y), class_)

    def dots(self, x: Any, y: Any, k: int, radius: float = 3.2, class_: str = "dot") -> None:
        """Points; those outside the axes are left out."""
        x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
        inside = (x >= self.x[0]) & (x <= self.x[1]) & (y >= self.y[0]) & (y <= self.y[1])
        px, py = self.px(x[inside]), self.py(y[inside])
        # One path of zero-length strokes with round ends is far smaller than a circle per point.
        d = "".join(f"M{a:.0f} {b:.0f}h0" for a, b in zip(px, py, strict=True))
        if d:
            self.draw(d, f"{class_} g{k}", stroke_width=number(2 * radius))

    def error_bars(self, x: Any, low: Any, high: Any, k: int) -> None:
        """Vertical bars, cut off at the axes."""
        px, top, bottom = (
            self.px(x), self.py(np.clip(high, *self.y)), self.py(np.clip(low, *self.y))
        )  # fmt: skip
        d = "".join(f"M{a:.1f} {b:.1f}V{c:.1f}" for a, b, c in zip(px, bottom, top, strict=True))
        self.draw(d, f"bar g{k}")

    def _path(self, x: Any, y: Any) -> str:
        pairs = zip(self.px(x), self.py(y), strict=True)
        return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in pairs)

    def add(self, *parts: Html) -> None:
        """Markup of one's own, on top."""
        self.layers += parts

    def render(self, role: str = "img", class_: str = "chart") -> Html:
        """The chart as markup; it scales with the column it stands in."""
        return element(
            "svg",
            element("title", self.title),
            *self.layers,
            viewBox=f"0 0 {self.width} {self.height}",
            class_=class_,
            role=role,
        )

    def _axes(self, x_label: str, y_label: str, y_ticks: bool, x_ticks: Sequence[float]) -> None:
        bottom, right = self.height - BOTTOM, self.width - RIGHT
        grid, words = [], []
        for value in x_ticks:
            at = float(self.px(value))
            grid.append(f"M{at:.1f} {TOP}V{bottom}")
            words.append(
                element("text", number(value), x=f"{at:.1f}", y=bottom + 18, class_="tick middle")
            )
        if y_ticks:
            for value in ticks(*self.y):
                at = float(self.py(value))
                grid.append(f"M{self.left} {at:.1f}H{right}")
                words.append(
                    element(
                        "text", number(value), x=self.left - 6, y=f"{at + 4:.1f}", class_="tick end"
                    )
                )
        middle = (self.left + right) / 2
        center = (TOP + bottom) / 2
        self.layers += [
            element("path", d="".join(grid) or "M0 0", class_="grid"),
            element("path", d=f"M{self.left} {TOP}V{bottom}H{right}", class_="axis"),
            join(words),
            element("text", x_label, x=f"{middle:.0f}", y=self.height - 6, class_="name middle"),
        ]
        if y_label:
            turn = f"rotate(-90 12 {center:.0f})"
            self.add(element("text", y_label, x=12, y=f"{center:.0f}", class_="name middle side",
                             transform=turn))  # fmt: skip


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers inside [low, high], about `count` of them."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return []
    raw = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def legend(names: Sequence[Html], omitted: int = 0) -> Html:
    """Groups and their colors and dashes, as text beside small strokes."""
    items = []
    for k, name in enumerate(names):
        stroke = element(
            "svg",
            element("path", d="M1 6H27", class_=f"line g{k}", stroke_dasharray=DASHES[k] or None),
            viewBox="0 0 28 12", class_="key", aria_hidden="true",
        )  # fmt: skip
        items.append(element("li", stroke, name))
    if omitted:
        items.append(element("li", f"{omitted} smaller groups are not drawn"))
    return element("ul", *items, class_="legend")


# ------------------------------------------------------------------------------------------------
# Numbers by name with their intervals, as rows.


class Bar(NamedTuple):
    """A number and its interval; where there is no number, only the wide range."""

    name: str
    value: float
    low: float
    high: float
    wide: tuple[float, float] | None = None


def bar_chart(bars: Sequence[Bar], x_label: str, title: str) -> Html:
    """Return one row each: a bar from 0, its interval, and behind it a wide range if there is one.

    Parameters
    ----------
    bars : sequence of Bar
    x_label : str
        What the numbers are.
    title : str
        Read out in place of the picture.
    """
    ends = [v for b in bars for v in (b.value, b.low, b.high, *(b.wide or ()))]
    low, high = min(0.0, *ends), max(0.0, *ends)
    pad = 0.04 * (high - low) or 1.0
    low, high = low - pad * (low < 0), high + pad * (high > 0)
    n = len(bars)
    chart = Chart(
        (low, high), (0, n), x_label=x_label, y_label="", title=title, width=640,
        height=TOP + 26 * n + BOTTOM, left=190, x_ticks=ticks(low, high, 5),
    )  # fmt: skip
    for row, name in enumerate(short_names([b.name for b in bars], 18)):
        bar, y = bars[row], n - row - 0.5
        middle = float(chart.py(y))
        chart.add(element("text", name, x=182, y=f"{middle + 4:.1f}", class_="end"))
        first, last = chart.px((0.0, bar.value) if bar.wide is None else bar.wide)
        half, kind = (7, "solid") if bar.wide is None else (8, "range")
        chart.add(
            element("rect", x=f"{min(first, last):.1f}", y=f"{middle - half:.1f}",
                    width=f"{abs(last - first):.1f}", height=2 * half, class_=kind)
        )  # fmt: skip
        if bar.wide is not None:
            chart.dots([bar.value], [y], 0, 4)
        chart.guide([bar.low, bar.high], [y, y], "whisk")
    chart.guide([0, 0], [0, n], "axis")
    return chart.render(class_="chart bars")
