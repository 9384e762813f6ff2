"""Numbers by name with their intervals, as rows of an inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .curves import number, short_names, ticks
from .markup import Html, element

_LEFT, _RIGHT, _TOP, _ROW, _BOTTOM, _WIDTH = 190, 16, 8, 26, 44, 640


class Bar(NamedTuple):
    """A number and its interval; where there is no number, only the wide range."""

    name: str
    value: float
    low: float
    high: float
    wide: tuple[float, float] | None = None


def bar_chart(bars: Sequence[Bar], x_label: str, title: str) -> Html:
    """One row each: a bar from 0, its interval, and behind it a wide range where there is one.

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
    height = _TOP + _ROW * len(bars) + _BOTTOM
    bottom = height - _BOTTOM

    def px(value: float) -> float:
        return _LEFT + (value - low) * (_WIDTH - _LEFT - _RIGHT) / (high - low)

    marks = ticks(low, high, count=5)
    parts = [
        element("path", d="".join(f"M{px(v):.1f} {_TOP}V{bottom}" for v in marks), class_="grid"),
        *(
            element("text", number(v), x=f"{px(v):.1f}", y=bottom + 18, class_="tick middle")
            for v in marks
        ),
        element("path", d=f"M{px(0.0):.1f} {_TOP}V{bottom}", class_="axis"),
    ]
    for row, (bar, name) in enumerate(zip(bars, short_names([b.name for b in bars], 18),
                                          strict=True)):  # fmt: skip
        middle = _TOP + _ROW * (row + 0.5)
        parts.append(element("text", name, x=_LEFT - 8, y=f"{middle + 4:.1f}", class_="end"))
        if bar.wide is not None:
            parts.append(_block(px(bar.wide[0]), px(bar.wide[1]), middle, 8.0, "range"))
            parts.append(
                element("path", d=f"M{px(bar.value):.1f} {middle:.1f}h0", class_="dot g0",
                        stroke_width="8")
            )  # fmt: skip
        else:
            parts.append(_block(px(0.0), px(bar.value), middle, 7.0, "solid"))
        parts.append(
            element("path", d=f"M{px(bar.low):.1f} {middle:.1f}H{px(bar.high):.1f}", class_="whisk")
        )
    center = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(element("text", x_label, x=f"{center:.0f}", y=height - 6, class_="name middle"))
    return element(
        "svg", element("title", title), *parts, viewBox=f"0 0 {_WIDTH} {height}",
        class_="chart bars", role="img",
    )  # fmt: skip


def _block(first: float, last: float, middle: float, half: float, class_: str) -> Html:
    return element(
        "rect", x=f"{min(first, last):.1f}", y=f"{middle - half:.1f}",
        width=f"{abs(last - first):.1f}", height=f"{2 * half:.1f}", class_=class_,
    )  # fmt: skip
