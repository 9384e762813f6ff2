"""Random laws of (score, target, group) with known information: partitions, waves, tables.

A law is drawn from a pair of integers and nothing else, so an identifier is enough to draw it
again. Truth is a finite sum for tables and a midpoint rule over 1,260 × 1,260 ranks for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, softmax

from distributions._rough_scenario import MARGINS, PosteriorScenario, TableScenario

NODES = 1260
Colors = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Drawn:
    """A law, a number of rows and what is worth knowing about them."""

    scenario: Any
    n: int
    kind: str
    pieces: int
    note: str

    @property
    def truth_error(self) -> float:
        """In nats; tables are exact."""
        return getattr(self.scenario, "truth_error", 0.0)


def draw(seed: int, index: int) -> Drawn:
    """The law number `index` of `seed`."""
    rng = np.random.default_rng([seed, index])
    n = int(np.exp(rng.uniform(np.log(500), np.log(300_000))))
    k = int(rng.choice([2, 2, 2, 3, 4, 5, 6]))
    shares = draw_shares(rng, k)
    strength = rng.uniform(0.2, 3.0)
    kind = str(rng.choice([*PARTITIONS, "mixture", "table", "table"]))
    if kind == "table":
        scenario, pieces, note = draw_table(rng, shares, strength)
    else:
        scenario, pieces, note = draw_posterior(rng, kind, shares, strength)
    note = f"K={k}, rarest {shares.min():.2f}, strength {strength:.1f}, {note}"
    return Drawn(scenario, n, kind, pieces, note)


def draw_shares(rng: np.random.Generator, k: int) -> np.ndarray:
    """Shares of at least 3 %."""
    shares = np.maximum(rng.dirichlet(np.full(k, rng.choice([0.7, 3.0, 30.0]))), 0.03)
    return shares / shares.sum()


def levels(rng: np.random.Generator, shares: np.ndarray, strength: float, *shape: int):
    """P(a | color): shares tilted by random log odds, groups along the first axis."""
    tilt = strength * rng.standard_normal((len(shares), *shape))
    return softmax(np.log(shares).reshape(-1, *[1] * len(shape)) + tilt, axis=0)


def dyadic(rng: np.random.Generator) -> tuple[Colors, int, int, str]:
    """Halve a random leaf of a random side, again and again."""
    leaves = [(0.0, 1.0, 0.0, 1.0)]
    count = int(np.exp(rng.uniform(np.log(3), np.log(60))))
    while len(leaves) < count:
        a, b, c, d = leaves.pop(rng.integers(len(leaves)))
        if rng.random() < 0.5:
            leaves += [(a, (a + b) / 2, c, d), ((a + b) / 2, b, c, d)]
        else:
            leaves += [(a, b, c, (c + d) / 2), (a, b, (c + d) / 2, d)]

    def color(u, v):
        out = np.zeros(u.shape, dtype=np.intp)
        for j, (a, b, c, d) in enumerate(leaves):
            out[(a <= u) & (u < b) & (c <= v) & (v < d)] = j
        return out

    return color, count, count, f"{count} dyadic cells"


def voronoi(rng: np.random.Generator) -> tuple[Colors, int, int, str]:
    count = int(np.exp(rng.uniform(np.log(3), np.log(40))))
    points = rng.random((count, 2))

    def color(u, v):
        best = np.full(u.shape, np.inf)
        out = np.zeros(u.shape, dtype=np.intp)
        for j, (a, b) in enumerate(points):
            distance = (u - a) ** 2 + (v - b) ** 2
            nearer = distance < best
            out[nearer], best = j, np.where(nearer, distance, best)
        return out

    return color, count, count, f"{count} Voronoi cells"


def half_planes(rng: np.random.Generator) -> tuple[Colors, int, int, str]:
    """Parity of the number of half-planes that hold the point, or which of them do."""
    count = int(rng.integers(1, 7))
    angle = rng.uniform(0, 2 * np.pi, count)
    at = rng.random((count, 2))
    parity = bool(rng.random() < 0.5)

    def color(u, v):
        sides = [
            (np.cos(t) * (u - a) + np.sin(t) * (v - b) > 0).astype(np.intp)
            for t, (a, b) in zip(angle, at, strict=True)
        ]
        return sum(sides) % 2 if parity else sum(side << j for j, side in enumerate(sides))

    pieces = 1 + count * (count + 1) // 2
    note = f"{count} half-planes{', parity' if parity else ''}"
    return color, 2 if parity else 2**count, pieces, note


def discs(rng: np.random.Generator) -> tuple[Colors, int, int, str]:
    """Each disc lies on top of those before it."""
    count = int(rng.integers(1, 12))
    centers = rng.random((count, 2))
    radius = np.sqrt(np.exp(rng.uniform(np.log(0.005), np.log(0.3), count)) / np.pi)

    def color(u, v):
        out = np.zeros(u.shape, dtype=np.intp)
        for j, ((a, b), r) in enumerate(zip(centers, radius, strict=True)):
            out[(u - a) ** 2 + (v - b) ** 2 < r**2] = j + 1
        return out

    return color, count + 1, count + 1, f"{count} discs"


def waves(rng: np.random.Generator) -> tuple[Colors, int, int, str]:
    """Stripes at an angle, a grid of two such systems, or rings about a point."""
    shape = str(rng.choice(["stripes", "grid", "rings"]))
    colors = int(rng.integers(2, 5))
    periods = np.exp(rng.uniform(0, np.log(12), 2))
    angle, phase = rng.uniform(0, np.pi), rng.random(2)
    if rng.random() < 0.3:
        angle = 0.0  # along the axes
    a, b = rng.random(2)

    def color(u, v):
        first = colors * periods[0] * (np.cos(angle) * u + np.sin(angle) * v) + phase[0]
        second = colors * periods[1] * (np.cos(angle) * v - np.sin(angle) * u) + phase[1]
        if shape == "rings":
            first = colors * periods[0] * np.hypot(u - a, v - b)
        total = np.floor(first) + (np.floor(second) if shape == "grid" else 0)
        return (total % colors).astype(np.intp)

    pieces = colors * periods[0] * (colors * periods[1] if shape == "grid" else 1)
    note = f"{shape} of {colors} colors, {periods[0]:.1f} periods"
    return color, colors, int(np.ceil(pieces)) + 1, note


PARTITIONS = {
    "dyadic": dyadic,
    "voronoi": voronoi,
    "half_planes": half_planes,
    "discs": discs,
    "waves": waves,
}


def draw_posterior(rng, kind: str, shares, strength: float) -> tuple[Any, int, str]:
    inner = str(rng.choice(list(PARTITIONS))) if kind == "mixture" else kind
    color, colors, pieces, note = PARTITIONS[inner](rng)
    table = levels(rng, shares, strength, colors)
    noise = 1.0 if rng.random() < 0.4 else float(np.exp(rng.uniform(np.log(1e-3), 0.0)))
    slope = np.sqrt(1.0 - noise**2)
    # Where score and target nearly agree, what lies between them has a pattern of its own.
    residual = bool(rng.random() < 0.5) and noise < 1
    smooth = np.zeros((len(shares), 3))
    if kind == "mixture":
        smooth = rng.standard_normal((len(shares), 3)) * rng.uniform(0.2, 1.2)

    def posterior(s, y):
        e = (s - slope * y) / noise
        p = table[:, color(ndtr(e if residual else s), ndtr(y))]
        if kind != "mixture":
            return p
        x = e if residual else s
        tilt = smooth[:, 0, None] * x.ravel() + smooth[:, 1, None] * y.ravel()
        tilt += 0.3 * smooth[:, 2, None] * (x * y).ravel()
        return softmax(np.log(p) + tilt.reshape(p.shape), axis=0)

    names = list(MARGINS)
    margins = (names[rng.integers(len(names))], names[rng.integers(len(names))])
    scenario = PosteriorScenario(
        posterior, len(shares), noise=noise, margins=margins, name=kind, nodes=NODES
    )
    note += f" of {'residual' if residual else 'score'} and target, noise {noise:.2g}"
    return scenario, pieces, f"{note}, margins {margins[0]}/{margins[1]}"


def draw_table(rng, shares, strength: float) -> tuple[Any, int, str]:
    """2 to 60 values a side, some of them heaped, with probabilities of one of five patterns."""
    sizes = np.exp(rng.uniform(np.log(2), np.log(60.99), 2)).astype(int)
    i, j = np.meshgrid(*(np.arange(m) for m in sizes), indexing="ij")
    width = np.exp(rng.uniform(np.log(0.02), np.log(3.0)))
    masses = np.exp(-0.5 * ((i / sizes[0] - j / sizes[1]) / width) ** 2)
    heap = int(rng.choice([1, 5, 10]))
    if heap > 1:
        lift = np.exp(rng.uniform(0, 3))
        masses *= np.where(i % heap == 0, lift, 1.0) * np.where(j % heap == 0, lift, 1.0)
    pattern = str(rng.choice(["cells", "parity", "heaps", "score", "smooth"]))
    if pattern == "cells":
        p, pieces = levels(rng, shares, strength, *sizes), i.size
    elif pattern == "parity":
        m = int(rng.integers(2, 5))
        p, pieces = levels(rng, shares, strength, m)[:, (i + j) % m], i.size
    elif pattern == "heaps":
        color = (i % 10 == 0) + 2 * (j % 10 == 0)
        p, pieces = levels(rng, shares, strength, 4)[:, color], 4
    elif pattern == "score":
        p, pieces = levels(rng, shares, strength, sizes[0])[:, i], sizes[0]
    else:
        x, y = ndtri((i + 0.5) / sizes[0]), ndtri((j + 0.5) / sizes[1])
        slopes = strength / 2 * rng.standard_normal((len(shares), 2))
        tilt = slopes[:, 0, None, None] * x + slopes[:, 1, None, None] * y
        p, pieces = softmax(np.log(shares)[:, None, None] + tilt, axis=0), 1
    names = list(MARGINS)
    values = [
        MARGINS[names[rng.integers(len(names))]](ndtri((np.arange(m) + 0.5) / m)) for m in sizes
    ]
    if rng.random() < 0.5:
        values = [np.arange(m).astype(float) for m in sizes]
    scenario = TableScenario(
        tuple(values[0].tolist()), tuple(values[1].tolist()), masses / masses.sum(), p, "table"
    )
    note = f"{sizes[0]} × {sizes[1]} values by {pattern}, heaps {heap}, width {width:.2g}"
    return scenario, int(pieces), note
