"""Scores of known unfairness in which the group depends on score and target without smoothness.

Checkerboards, rings, stripes, narrow bands, ties, parities: what a smooth basis cannot see. Most
are written in ranks u, v in (0, 1) or in normal scores of s and y, and then mapped to other
margins, which changes no information.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri

from evenhand.datasets import make_generator

from ._laws import Array
from ._rough_scenario import (
    MARGINS,
    OscillationScenario,
    Posterior,
    PosteriorScenario,
    RoughScenario,
    TableScenario,
)

__all__ = ["ROUGH_FAMILIES", "RoughFamily", "RoughScenario", "rough_scenario"]

Margins = str | tuple[str, str]


class RoughFamily(NamedTuple):
    """A function that builds a scenario, and the parameters that make it this family."""

    build: Callable[..., RoughScenario]
    parameters: Mapping[str, Any]


def rough_scenario(family: str, random_state: Any = None, **parameters: Any) -> RoughScenario:
    """A law with P(a | s, y) that jumps, and its exact information.

    Parameters
    ----------
    family : str
        A name in `ROUGH_FAMILIES`.
    random_state : int, Generator, RandomState or None
        None gives the family as it stands in the table. A seed also draws, where the family has
        them and `parameters` does not give them, the levels `high` in (0.7, 0.95) and `low` in
        (0.05, 0.3), the place of the edges (`shift`) and the `margins`.
    **parameters
        Override those of the family: `high` and `low`, P(a = 1 | s, y) inside and outside, 0.9
        and 0.1 by default; `margins`, one name or (score, target) out of ``"normal"``,
        ``"uniform"``, ``"lognormal"``, ``"heavy"`` and ``"peaks"``; others by family.

    Returns
    -------
    RoughScenario
        With ``.sample(n, random_state)``, ``.truth``, ``.n_groups`` and ``.name``.

    Examples
    --------
    >>> from distributions import rough_scenario
    >>> scenario = rough_scenario("sign")
    >>> round(scenario.truth.separation, 3)
    0.531
    """
    if family not in ROUGH_FAMILIES:
        raise ValueError(
            f"`family` must be one of {', '.join(ROUGH_FAMILIES)}, got {family!r}. Hint: smooth "
            "families are drawn by `random_scenario`."
        )
    build, given = ROUGH_FAMILIES[family]
    accepted = [p for p in inspect.signature(build).parameters if p != "name"]
    unknown = [p for p in parameters if p not in accepted]
    if unknown:
        raise ValueError(
            f"`{unknown[0]}` is no parameter of the family {family!r}. Hint: it takes "
            f"{', '.join(accepted)}."
        )
    drawn = {} if random_state is None else _draw(make_generator(random_state), accepted)
    return build(**{**given, **drawn, **parameters}, name=family)


def _draw(rng: np.random.Generator, accepted: list[str]) -> dict[str, Any]:
    names = list(MARGINS)
    drawn = {
        "high": rng.uniform(0.7, 0.95),
        "low": rng.uniform(0.05, 0.3),
        "shift": (rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9)),
        "margins": (names[rng.integers(len(names))], names[rng.integers(len(names))]),
    }
    return {name: value for name, value in drawn.items() if name in accepted}


def _pair(margins: Margins) -> tuple[str, str]:
    pair = (margins, margins) if isinstance(margins, str) else tuple(margins)
    if len(pair) != 2 or any(m not in MARGINS for m in pair):
        raise ValueError(
            f"`margins` must be one or two of {', '.join(MARGINS)}, got {margins!r}. Hint: the "
            "first is that of the score, the second that of the target."
        )
    return pair


def _two(inside: Callable[[Array, Array], NDArray[np.bool_]], high: float, low: float) -> Posterior:
    def posterior(s: Array, y: Array) -> Array:
        p = np.where(inside(s, y), high, low)
        return np.stack([1.0 - p, p])

    return posterior


def _odd(x: Array) -> NDArray[np.bool_]:
    return np.floor(x) % 2 == 1


def checkerboard(
    size: int = 4,
    colors: int = 2,
    high: float = 0.9,
    low: float = 0.1,
    shift: tuple[float, float] = (0.0, 0.0),
    margins: Margins = "normal",
    name: str = "checkerboard",
) -> RoughScenario:
    """size × size cells of ranks, color (i + j) mod `colors`.

    With two colors P(a = 1) is `high` on odd cells and `low` on even ones. With more, a group is
    its color with probability `high` and each other color equally often. A `shift`, in cells,
    moves the edges off the ranks i / size, and there are then size + 1 strips a side.
    """

    def color(s: Array, y: Array) -> Array:
        return (np.floor(size * ndtr(s) + shift[0]) + np.floor(size * ndtr(y) + shift[1])) % colors

    def many(s: Array, y: Array) -> Array:
        own = color(s, y)
        rest = (1.0 - high) / (colors - 1)
        return np.stack([np.where(own == k, high, rest) for k in range(colors)])

    posterior = _two(lambda s, y: color(s, y) == 1, high, low) if colors == 2 else many
    return PosteriorScenario(posterior, colors, margins=_pair(margins), name=name)


def rings(
    count: int = 1,
    high: float = 0.9,
    low: float = 0.1,
    shift: tuple[float, float] = (0.5, 0.5),
    margins: Margins = "normal",
    name: str = "rings",
) -> RoughScenario:
    """`count` rings of normal scores; rings and the gaps between them hold equal shares of rows.

    The center is at ranks `shift`.
    """
    center = ndtri(np.asarray(shift))

    def inside(s: Array, y: Array) -> NDArray[np.bool_]:
        squared = (s - center[0]) ** 2 + (y - center[1]) ** 2
        return _odd((2 * count + 1) * -np.expm1(-squared / 2))

    return PosteriorScenario(_two(inside, high, low), margins=_pair(margins), name=name)


def strip(
    width: float = 0.1,
    of: str = "s",
    high: float = 0.9,
    low: float = 0.1,
    shift: tuple[float, float] = (0.6, 0.6),
    margins: Margins = "normal",
    name: str = "strip",
) -> RoughScenario:
    """Another law where the rank of one variable is within `width` / 2 of `shift`."""

    def inside(s: Array, y: Array) -> NDArray[np.bool_]:
        return np.abs(ndtr(s if of == "s" else y) - shift[0]) < width / 2

    return PosteriorScenario(_two(inside, high, low), margins=_pair(margins), name=name)


def band(
    share: float = 0.05,
    correlation: float = 0.8,
    high: float = 0.9,
    low: float = 0.1,
    margins: Margins = "normal",
    name: str = "band",
) -> RoughScenario:
    """Another law where |y − s| is small enough to hold `share` of the rows."""
    width = np.sqrt(2.0 - 2.0 * correlation) * ndtri(0.5 + share / 2)
    return PosteriorScenario(
        _two(lambda s, y: np.abs(y - s) < width, high, low),
        noise=np.sqrt(1.0 - correlation**2),
        margins=_pair(margins),
        name=name,
    )


def jump(
    correlation: float = 0.9,
    high: float = 0.9,
    low: float = 0.1,
    margins: Margins = "normal",
    name: str = "jump",
) -> RoughScenario:
    """One law above s = y, another below."""
    return PosteriorScenario(
        _two(lambda s, y: s > y, high, low),
        noise=np.sqrt(1.0 - correlation**2),
        margins=_pair(margins),
        name=name,
    )


def near_copy(
    noise: float = 1e-3,
    by: str = "sign",
    high: float = 0.9,
    low: float = 0.1,
    margins: Margins = "normal",
    name: str = "near_copy",
) -> RoughScenario:
    """s = r y + `noise` ε with r nearly 1; the group follows the sign of ε, or |ε| < 0.674."""
    slope = np.sqrt(1.0 - noise**2)

    def inside(s: Array, y: Array) -> NDArray[np.bool_]:
        e = (s - slope * y) / noise
        return e > 0 if by == "sign" else np.abs(e) < ndtri(0.75)

    return PosteriorScenario(
        _two(inside, high, low), noise=noise, margins=_pair(margins), name=name
    )


def stripes(
    count: float = 4,
    high: float = 0.9,
    low: float = 0.1,
    shift: tuple[float, float] = (0.0, 0.0),
    margins: Margins = "normal",
    name: str = "stripes",
) -> RoughScenario:
    """Diagonal stripes of ranks, `count` dark ones across the square."""
    return PosteriorScenario(
        _two(lambda s, y: _odd(count * (ndtr(s) + ndtr(y)) + shift[0]), high, low),
        margins=_pair(margins),
        name=name,
    )


def spiral(
    turns: float = 2,
    high: float = 0.9,
    low: float = 0.1,
    shift: tuple[float, float] = (0.0, 0.0),
    margins: Margins = "normal",
    name: str = "spiral",
) -> RoughScenario:
    """Two arms of normal scores that wind `turns` times from the center outward."""

    def inside(s: Array, y: Array) -> NDArray[np.bool_]:
        angle = np.arctan2(y, s) / (2 * np.pi)
        return _odd(2 * (angle + shift[0] + turns * -np.expm1(-(s**2 + y**2) / 2)))

    return PosteriorScenario(_two(inside, high, low), margins=_pair(margins), name=name)


def squares(
    count: int = 5,
    high: float = 0.9,
    low: float = 0.1,
    margins: Margins = "normal",
    name: str = "squares",
) -> RoughScenario:
    """`count` nested squares of ranks, of two laws in turn."""

    def inside(s: Array, y: Array) -> NDArray[np.bool_]:
        return _odd(count * np.maximum(np.abs(2 * ndtr(s) - 1), np.abs(2 * ndtr(y) - 1)))

    return PosteriorScenario(_two(inside, high, low), margins=_pair(margins), name=name)


def spot(
    share: float = 0.03,
    high: float = 0.9,
    low: float = 0.1,
    shift: tuple[float, float] = (0.7, 0.35),
    margins: Margins = "normal",
    name: str = "spot",
) -> RoughScenario:
    """Another law in a disc of ranks about `shift` with area `share` (less what lies outside)."""

    def inside(s: Array, y: Array) -> NDArray[np.bool_]:
        return (ndtr(s) - shift[0]) ** 2 + (ndtr(y) - shift[1]) ** 2 < share / np.pi

    return PosteriorScenario(_two(inside, high, low), margins=_pair(margins), name=name)


def smooth_and_rough(
    slope: float = 1.0,
    jump: float = 1.2,
    size: int = 3,
    correlation: float = 0.6,
    shift: tuple[float, float] = (0.0, 0.0),
    margins: Margins = "normal",
    name: str = "smooth_and_rough",
) -> RoughScenario:
    """logit P(a = 1) = slope·(s − ½y) ± jump, the sign that of a checkerboard of ranks."""

    def posterior(s: Array, y: Array) -> Array:
        i = np.floor(size * ndtr(s) + shift[0])
        odd = (i + np.floor(size * ndtr(y) + shift[1])) % 2
        p = expit(slope * (s - 0.5 * y) + jump * (2 * odd - 1))
        return np.stack([1.0 - p, p])

    noise = np.sqrt(1.0 - correlation**2)
    return PosteriorScenario(posterior, noise=noise, margins=_pair(margins), name=name)


def oscillation(
    periods: float = 2,
    noise: float = 0.3,
    target: str = "uniform",
    margins: Margins = "normal",
    name: str = "oscillation",
) -> RoughScenario:
    """s = y + ½ sin(2π·periods·y)(2a − 1) + noise·ε; `periods` per unit of y."""
    return OscillationScenario(periods, noise, target=target, margins=_pair(margins), name=name)


def ties(
    of: str = "s",
    values: int = 100,
    step: int = 10,
    heap: float = 0.3,
    high: float = 0.9,
    low: float = 0.1,
    name: str = "ties",
) -> RoughScenario:
    """Integers of which those divisible by `step` hold about `heap` of the rows, with a law of
    their own: where s is such a value, where y is, or where both are."""
    v = np.arange(values)
    is_round = v % step == 0
    weight = np.where(is_round, heap / is_round.sum(), (1 - heap) / (~is_round).sum())
    near = np.exp(-0.5 * ((v[:, None] - v) / (values / 3)) ** 2)
    masses = near * weight[:, None] * weight
    s_round, y_round = np.meshgrid(is_round, is_round, indexing="ij")
    special = {"s": s_round, "y": y_round, "both": s_round & y_round}[of]
    return _table(v, v, masses, np.where(special, high, low), name)


def parity(
    values: int = 10, high: float = 0.9, low: float = 0.1, name: str = "parity"
) -> RoughScenario:
    """s and y uniform on `values` integers each; P(a = 1) is `high` where s + y is odd."""
    v = np.arange(values)
    p = np.where((v[:, None] + v) % 2 == 1, high, low)
    return _table(v, v, np.ones((values, values)), p, name)


def _table(s: NDArray[Any], y: NDArray[Any], masses: Array, p: Array, name: str) -> RoughScenario:
    return TableScenario(
        tuple(s.astype(float).tolist()),
        tuple(y.astype(float).tolist()),
        masses / masses.sum(),
        np.stack([1.0 - p, p]),
        name,
    )


_MIXED = ("lognormal", "peaks")

_TABLE: list[tuple[str, Callable[..., RoughScenario], dict[str, Any]]] = [
    ("sign", checkerboard, {"size": 2}),
    ("checkerboard_2", checkerboard, {"size": 2, "margins": _MIXED, "shift": (0.3, 0.6)}),
    ("checkerboard_3", checkerboard, {"size": 3, "margins": "lognormal"}),
    ("checkerboard_4", checkerboard, {"size": 4}),
    ("checkerboard_5", checkerboard, {"size": 5, "margins": "uniform"}),
    ("checkerboard_6", checkerboard, {"size": 6, "margins": ("heavy", "normal")}),
    ("checkerboard_4_weak", checkerboard, {"size": 4, "high": 0.6, "low": 0.4}),
    ("ring", rings, {"count": 1}),
    ("rings", rings, {"count": 3, "margins": _MIXED}),
    ("strip", strip, {"of": "s"}),
    ("strip_target", strip, {"of": "y", "width": 0.05, "margins": _MIXED}),
    ("oscillation", oscillation, {"periods": 2, "target": "normal"}),
    ("oscillation_2", oscillation, {"periods": 2}),
    ("oscillation_5", oscillation, {"periods": 5}),
    ("oscillation_15", oscillation, {"periods": 15, "margins": ("lognormal", "normal")}),
    ("band_2", band, {"share": 0.02}),
    ("band_5", band, {"share": 0.05, "margins": "lognormal"}),
    ("ties_score", ties, {"of": "s"}),
    ("ties_target", ties, {"of": "y"}),
    ("ties_both", ties, {"of": "both"}),
    ("near_copy_sign", near_copy, {"by": "sign"}),
    ("near_copy_size", near_copy, {"by": "size", "margins": "lognormal"}),
    ("parity_10", parity, {"values": 10}),
    ("parity_30", parity, {"values": 30}),
    ("jump", jump, {}),
    ("stripes", stripes, {}),
    ("spiral", spiral, {"margins": _MIXED}),
    ("squares", squares, {"margins": "uniform"}),
    ("spot", spot, {}),
    ("smooth_and_rough", smooth_and_rough, {}),
    ("colors_3", checkerboard, {"size": 6, "colors": 3}),
    ("colors_5", checkerboard, {"size": 5, "colors": 5, "margins": _MIXED}),
    ("colors_10", checkerboard, {"size": 10, "colors": 10}),
]

ROUGH_FAMILIES: dict[str, RoughFamily] = {
    name: RoughFamily(build, parameters) for name, build, parameters in _TABLE
}
"""The families of :func:`rough_scenario`."""
