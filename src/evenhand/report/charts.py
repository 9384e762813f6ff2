"""Charts as data: axes and marks, drawn as inline SVG here and with Matplotlib in `plots`.

Colors of the SVG come from the page's style, so they follow light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
LEFT, RIGHT, TOP, BOTTOM = 72, 14, 12, 46


@dataclass(frozen=True)
class Mark:
    """Something drawn, in data units.

    Attributes
    ----------
    kind : {"line", "guide", "area", "dots", "bars", "blocks"}
        A curve of a group; another line; the area from `y` to `high`; points; upright strokes from
        `y` to `high`; lying rectangles from `x` to `high`.
    x, y, high : arrays
    group : int
        Whose color and dashes.
    look : str
        The class in the style sheet.
    size : float
        Radius of points, half the height of rectangles, in pixels.
    """

    kind: str
    x: Any
    y: Any
    group: int = 0
    high: Any = None
    look: str = ""
    size: float = 0.0


@dataclass
class Chart:
    """One pair of axes and what is drawn on them.

    Attributes
    ----------
    x, y : (float, float)
        Ends of the axes, in data units.
    x_label, y_label : str
        What the axes show.
    title : str
        Read out in place of the picture.
    width, height : int
        In pixels, before the page scales it.
    x_ticks, y_ticks : mapping of number to text, optional
        In place of round numbers, such as names; empty for none.
    left : int
        Room on the left, in pixels.
    look : str
        Classes in the style sheet.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    x_label: str = ""
    y_label: str = ""
    title: str = ""
    width: int = 520
    height: int = 300
    x_ticks: Mapping[float, str] | None = None
    y_ticks: Mapping[float, str] | None = None
    left: int = LEFT
    look: str = "chart"
    marks: list[Mark] = field(default_factory=list)

    def line(self, x: Any, y: Any, group: int) -> None:
        """Add a curve in the color and dashes of a group."""
        self.marks.append(Mark("line", x, y, group))

    def area(self, x: Any, low: Any, high: Any, group: int, look: str = "area") -> None:
        """Add the area between two curves."""
        self.marks.append(Mark("area", x, low, group, high, look))

    def guide(self, x: Any, y: Any, look: str = "guide") -> None:
        """Add a line that is no curve, such as a limit."""
        self.marks.append(Mark("guide", x, y, look=look))

    def dots(self, x: Any, y: Any, group: int, size: float = 3.2, look: str = "dot") -> None:
        """Add points; those outside the axes are left out."""
        x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
        inside = (x >= self.x[0]) & (x <= self.x[1]) & (y >= self.y[0]) & (y <= self.y[1])
        self.marks.append(Mark("dots", x[inside], y[inside], group, look=look, size=size))

    def bars(self, x: Any, low: Any, high: Any, group: int) -> None:
        """Add upright intervals, cut off at the axes."""
        self.marks.append(Mark("bars", x, np.clip(low, *self.y), group, np.clip(high, *self.y)))

    def blocks(self, low: Any, high: Any, y: Any) -> None:
        """Add lying rectangles."""
        self.marks.append(Mark("blocks", low, y, high=high, look="solid", size=7.0))

    # --------------------------------------------------------------------------------------------
    # As SVG.

    def px(self, value: Any) -> Any:
        """Return pixels from the left."""
        share = (np.asarray(value, dtype=float) - self.x[0]) / (self.x[1] - self.x[0])
        return self.left + share * (self.width - self.left - RIGHT)

    def py(self, value: Any) -> Any:
        """Return pixels from the top."""
        share = (self.y[1] - np.asarray(value, dtype=float)) / (self.y[1] - self.y[0])
        return TOP + share * (self.height - TOP - BOTTOM)

    def svg(self, *more: Html, role: str = "img") -> Html:
        """Return the chart as markup that scales with its column, with `more` markup on top."""
        return element(
            "svg", element("title", self.title), *self._axes(),
            *(getattr(self, f"_{mark.kind}")(mark) for mark in self.marks), *more,
            viewBox=f"0 0 {self.width} {self.height}", class_=self.look, role=role,
        )  # fmt: skip

    def _path(self, x: Any, y: Any) -> str:
        pairs = zip(self.px(x), self.py(y), strict=True)
        return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in pairs)

    def _line(self, m: Mark) -> Html:
        return _stroke(self._path(m.x, m.y), m.group)

    def _guide(self, m: Mark) -> Html:
        return element("path", d=self._path(m.x, m.y), class_=m.look)

    def _area(self, m: Mark) -> Html:
        x, low = np.asarray(m.x), np.asarray(m.y)
        back = self._path(x[::-1], low[::-1])
        look = f"{m.look} g{m.group}"
        return element("path", d=f"{self._path(x, m.high)}L{back[1:]}Z", class_=look)

    def _dots(self, m: Mark) -> Html | None:
        # One path of zero-length strokes with round ends is far smaller than a circle per point.
        d = "".join(f"M{a:.0f} {b:.0f}h0" for a, b in zip(self.px(m.x), self.py(m.y), strict=True))
        look = f"{m.look} g{m.group}"
        return element("path", d=d, class_=look, stroke_width=number(2 * m.size)) if d else None

    def _bars(self, m: Mark) -> Html:
        ends = zip(self.px(m.x), self.py(m.y), self.py(m.high), strict=True)
        d = "".join(f"M{a:.1f} {b:.1f}V{c:.1f}" for a, b, c in ends)
        return element("path", d=d, class_=f"bar g{m.group}")

    def _blocks(self, m: Mark) -> Html:
        return join([
            element("rect", x=f"{min(a, b):.1f}", y=f"{y - m.size:.1f}", width=f"{abs(b - a):.1f}",
                    height=2 * m.size, class_=m.look)
            for a, b, y in zip(self.px(m.x), self.px(m.high), self.py(m.y), strict=True)
        ])  # fmt: skip

    def _axes(self) -> list[Html]:
        bottom, right = self.height - BOTTOM, self.width - RIGHT
        x_ticks, y_ticks, grid = self.x_ticks, self.y_ticks, "M0 0"
        if x_ticks is None:
            x_ticks = round_ticks(*self.x, max(3, self.width // 100))
            grid += "".join(f"M{self.px(v):.1f} {TOP}V{bottom}" for v in x_ticks)
        if y_ticks is None:
            y_ticks = round_ticks(*self.y)
            grid += "".join(f"M{self.left} {self.py(v):.1f}H{right}" for v in y_ticks)
        below = bottom + (18 if self.x_label else 30)
        middle, center = f"{(self.left + right) / 2:.0f}", f"{(TOP + bottom) / 2:.0f}"
        look = "tick end" if self.y_ticks is None else "end"
        words = [
            *(element("text", text, x=f"{self.px(v):.1f}", y=below, class_="tick middle")
              for v, text in x_ticks.items()),
            *(element("text", text, x=self.left - 6, y=f"{self.py(v) + 4:.1f}", class_=look)
              for v, text in y_ticks.items()),
        ]  # fmt: skip
        if self.x_label:
            foot = self.height - 6
            words.append(element("text", self.x_label, x=middle, y=foot, class_="name middle"))
        if self.y_label:
            turned = {"class_": "name middle side", "transform": f"rotate(-90 12 {center})"}
            words.append(element("text", self.y_label, x=12, y=center, **turned))
        return [
            element("path", d=grid, class_="grid"),
            element("path", d=f"M{self.left} {TOP}V{bottom}H{right}", class_="axis"),
            *words,
        ]


def round_ticks(low: float, high: float, count: int = 5) -> dict[float, str]:
    """Round numbers inside [low, high], about `count` of them, and their text."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return {}
    raw = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return {k * step: number(k * step) for k in range(first, last + 1)}


def _stroke(path: str, group: int) -> Html:
    """A path in the color and dashes of a group."""
    look = f"line g{group}"
    return element("path", d=path, class_=look, stroke_dasharray=DASHES[group] or None)


def legend(names: Sequence[Html], omitted: int = 0) -> Html:
    """Groups and their colors and dashes, as text beside small strokes."""
    items = []
    for k, name in enumerate(names):
        line = _stroke("M1 6H27", k)
        stroke = element("svg", line, viewBox="0 0 28 12", class_="key", aria_hidden="true")
        items.append(element("li", stroke, name))
    if omitted:
        items.append(element("li", f"smaller groups not drawn: {omitted}"))
    return element("ul", *items, class_="legend")


# ------------------------------------------------------------------------------------------------
# Numbers by name with their intervals, as rows.


class Bar(NamedTuple):
    """A number and its interval."""

    name: str
    value: float
    low: float
    high: float


def bar_chart(bars: Sequence[Bar], x_label: str, title: str) -> Chart:
    """Return one row each, from the top: a bar from 0 and its interval.

    Parameters
    ----------
    bars : sequence of Bar
    x_label : str
        What the numbers are.
    title : str
        Read out in place of the picture.
    """
    ends, n = [v for b in bars for v in (b.value, b.low, b.high)], len(bars)
    low, high = min(0.0, float(np.min(ends))), max(0.0, float(np.max(ends)))
    pad = 0.04 * (high - low) or 1.0
    rows = {n - k - 0.5: name for k, name in enumerate(short_names([b.name for b in bars], 18))}
    chart = Chart(
        (low - pad * (low < 0), high + pad * (high > 0)), (0, n), x_label=x_label, title=title,
        width=640, height=TOP + 26 * n + BOTTOM, left=190, y_ticks=rows, look="chart bars",
    )  # fmt: skip
    for bar, y in zip(bars, rows, strict=True):
        chart.blocks([0.0], [bar.value], [y])
        chart.guide([bar.low, bar.high], [y, y], "whisk")
    chart.guide([0, 0], chart.y, "axis")
    return chart
