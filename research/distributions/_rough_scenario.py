"""Joint laws of target, score and group in which P(a | s, y) need not be smooth.

Three kinds are enough: a known P(a | s, y) over a bivariate normal base, a score that swings about
the target by an amount that depends on the group, and tables over discrete values. All of them
draw rows and know H(A), H(A|S), H(A|Y) and H(A|S,Y).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, ndtr, ndtri

from evenhand.data.criteria import BOTH, NOTHING, SCORE, TARGET
from evenhand.datasets import make_generator

from ._laws import Array
from ._scenario import Truth

Posterior = Callable[[Array, Array], Array]

_BLOCK = 60


def _peaks(z: Array) -> Array:
    return np.asarray(z + 2.0 * np.tanh(3.0 * z))


MARGINS: dict[str, Callable[[Array], Array]] = {
    "normal": lambda z: z,
    "uniform": ndtr,
    "lognormal": np.exp,
    "heavy": np.sinh,
    "peaks": _peaks,
}
"""Strictly increasing maps of a standardized variable; information does not change under them."""


class RoughScenario(Protocol):
    """What every law here offers; the same interface as :class:`Scenario`."""

    @property
    def name(self) -> str: ...

    @property
    def n_groups(self) -> int: ...

    @property
    def truth(self) -> Truth: ...

    def sample(self, n: int, random_state: Any = None) -> tuple[Array, Array, NDArray[np.intp]]: ...


@dataclass(frozen=True)
class PosteriorScenario:
    """P(a | s, y) over standard normal y and s = r y + √(1 − r²) ε.

    Attributes
    ----------
    posterior : callable
        (s, y) of equal shape, both standard normal → P(a | s, y), groups along a new first axis.
    n_groups : int
    noise : float in (0, 1]
        √(1 − r²). At 1 score and target are independent. It is given instead of r because near
        r = 1 the noise is what has digits.
    margins : (str, str)
        Names of maps in `MARGINS`, of the score and of the target, applied to what is drawn.
    name : str
    nodes : int
        Nodes a side of the quadrature behind `truth`; 2,520 is divisible by 2, ..., 10, so that
        edges of checkerboards of these sizes fall between nodes.
    """

    posterior: Posterior
    n_groups: int = 2
    noise: float = 1.0
    margins: tuple[str, str] = ("normal", "normal")
    name: str = "posterior"
    nodes: int = 2520

    def sample(self, n: int, random_state: Any = None) -> tuple[Array, Array, NDArray[np.intp]]:
        """Draw n rows: target, score, group codes."""
        rng = make_generator(random_state)
        y = rng.standard_normal(n)
        s = self._partner(y, rng.standard_normal(n))
        a = _draw_codes(rng, self.posterior(s, y))
        return MARGINS[self.margins[1]](y), MARGINS[self.margins[0]](s), a

    @cached_property
    def truth(self) -> Truth:
        """Midpoint rule over `nodes` × `nodes` ranks.

        Exact up to rounding where P(a | s, y) is constant on rectangles of ranks that the grid
        resolves; about 1e-5 nats where edges are curved or oblique.
        """
        return self._truth_and_error[0]

    @property
    def truth_error(self) -> float:
        """|difference| in nats of two quadratures of H(A|S,Y), over (y, ε) and over (s, ε).

        Nothing is learned at noise 1, where the two grids are one.
        """
        return self._truth_and_error[1]

    @cached_property
    def _truth_and_error(self) -> tuple[Truth, float]:
        shares, h_y, h_both = self._entropies(lambda y, e: (self._partner(y, e), y))
        # (y, s) has the law of (s, y), so the same sums serve H(A|S) with the roles exchanged.
        again, h_s, h_again = self._entropies(lambda s, e: (s, self._partner(s, e)))
        truth = Truth(
            {
                NOTHING: float(entr((shares + again) / 2).sum()),
                SCORE: h_s,
                TARGET: h_y,
                BOTH: (h_both + h_again) / 2,
            }
        )
        return truth, abs(h_both - h_again)

    def _partner(self, first: Array, e: Array) -> Array:
        return np.sqrt(1.0 - self.noise**2) * first + self.noise * e

    def _entropies(
        self, place: Callable[[Array, Array], tuple[Array, Array]]
    ) -> tuple[Array, float, float]:
        """P(a), H(A | first) and H(A | both) over a grid of ranks (first, noise)."""
        m = self.nodes
        nodes = ndtri((np.arange(m) + 0.5) / m)
        shares = np.zeros(self.n_groups)
        h_first = h_both = 0.0
        for begin in range(0, m, _BLOCK):
            first = np.repeat(nodes[begin : begin + _BLOCK, None], m, axis=1)
            p = self.posterior(*place(first, np.broadcast_to(nodes, first.shape)))
            given_first = p.mean(axis=2)
            shares += given_first.sum(axis=1)
            h_first += float(entr(given_first).sum())
            h_both += float(entr(p).sum())
        return shares / m, h_first / m, h_both / m**2


@dataclass(frozen=True)
class OscillationScenario:
    """s = y + c_a · ½ sin(2π·frequency·y) + noise·ε, with the group independent of y.

    Attributes
    ----------
    frequency : float
        Periods per unit of y.
    noise : float
    signs : tuple of length K
        c_a of each group.
    shares : tuple of length K
        P(A = a).
    target : {"uniform", "normal"}
        Law of y: on [0, 1], or standard normal.
    margins : (str, str)
        Maps of the score and of the target, as for `PosteriorScenario`; both are standardized
        before a map other than "normal".
    name : str
    """

    frequency: float
    noise: float = 0.3
    signs: tuple[float, ...] = (-1.0, 1.0)
    shares: tuple[float, ...] = (0.5, 0.5)
    target: str = "uniform"
    margins: tuple[str, str] = ("normal", "normal")
    name: str = "oscillation"

    @property
    def n_groups(self) -> int:
        return len(self.signs)

    def sample(self, n: int, random_state: Any = None) -> tuple[Array, Array, NDArray[np.intp]]:
        """Draw n rows: target, score, group codes."""
        rng = make_generator(random_state)
        shares = np.repeat(np.asarray(self.shares)[:, None], n, axis=1)
        a = _draw_codes(rng, shares)
        y = rng.random(n) if self.target == "uniform" else rng.standard_normal(n)
        s = y + np.take(self.signs, a) * self._swing(y) + self.noise * rng.standard_normal(n)
        return self._map(y, self.margins[1]), self._map(s, self.margins[0]), a

    @cached_property
    def truth(self) -> Truth:
        """Midpoint rules over y and s, absolute error below 1e-5 nats."""
        shares = np.asarray(self.shares)
        reach = 8.0
        # Forty nodes a period: the integrand is smooth and the midpoint rule converges fast.
        span = 1.0 if self.target == "uniform" else 2 * reach
        count = int(max(400, 40 * self.frequency * span))
        middle = (np.arange(count) + 0.5) / count
        if self.target == "uniform":
            y, weight = middle, np.full(count, 1.0 / count)
        else:
            y = reach * (2 * middle - 1)
            weight = np.exp(-0.5 * y**2)
            weight /= weight.sum()
        e = np.linspace(-reach, reach, 201)
        e_weight = np.exp(-0.5 * e**2)
        e_weight /= e_weight.sum()
        swing = self._swing(y)[:, None]
        h_both = 0.0
        for p, sign in zip(shares, self.signs, strict=True):
            # In units of the noise, the score drawn in this group lies (c_a − c_b)·swing + ε from
            # the center of group b.
            log_joint = np.stack(
                [
                    np.log(q) - 0.5 * ((sign - other) * swing / self.noise + e) ** 2
                    for q, other in zip(shares, self.signs, strict=True)
                ]
            )
            own = np.log(p) - 0.5 * e**2
            loss = np.logaddexp.reduce(log_joint) - own
            h_both += float(p * (weight @ loss @ e_weight))
        h_a = float(entr(shares).sum())
        return Truth({NOTHING: h_a, SCORE: self._h_score(y, weight), TARGET: h_a, BOTH: h_both})

    def _h_score(self, y: Array, weight: Array) -> float:
        swing = self._swing(y)
        low = y.min() - 0.5 - 8 * self.noise
        high = y.max() + 0.5 + 8 * self.noise
        s = np.linspace(low, high, int(12 * (high - low) / self.noise))
        joint = np.empty((self.n_groups, len(s)))
        for k, (p, sign) in enumerate(zip(self.shares, self.signs, strict=True)):
            center = y + sign * swing
            for begin in range(0, len(s), 200):
                block = s[begin : begin + 200, None]
                density = np.exp(-0.5 * ((block - center) / self.noise) ** 2) @ weight
                joint[k, begin : begin + 200] = p * density
        total = joint.sum()
        return float((entr(joint).sum() - entr(joint.sum(axis=0)).sum()) / total)

    def _swing(self, y: Array) -> Array:
        return 0.5 * np.sin(2 * np.pi * self.frequency * y)

    def _map(self, v: Array, margin: str) -> Array:
        if margin == "normal":
            return v
        center, spread = (0.5, 0.5) if self.target == "uniform" else (0.0, 1.0)
        return MARGINS[margin]((v - center) / spread)


@dataclass(frozen=True)
class TableScenario:
    """P(s, y) and P(a | s, y) over finitely many values; every entropy is a finite sum.

    Attributes
    ----------
    s_values, y_values : tuples
        Values, ascending.
    masses : (len(s_values), len(y_values)) array
        P(s, y).
    probabilities : (K, len(s_values), len(y_values)) array
        P(a | s, y).
    name : str
    """

    s_values: tuple[float, ...]
    y_values: tuple[float, ...]
    masses: Array
    probabilities: Array
    name: str = "table"

    @property
    def n_groups(self) -> int:
        return len(self.probabilities)

    def sample(self, n: int, random_state: Any = None) -> tuple[Array, Array, NDArray[np.intp]]:
        """Draw n rows: target, score, group codes."""
        rng = make_generator(random_state)
        bounds = np.cumsum(self.masses.ravel())
        cell = np.searchsorted(bounds[:-1] / bounds[-1], rng.random(n), side="right")
        i, j = np.divmod(cell, len(self.y_values))
        a = _draw_codes(rng, self.probabilities[:, i, j])
        return np.take(self.y_values, j), np.take(self.s_values, i), a

    @cached_property
    def truth(self) -> Truth:
        """Exact sums."""
        joint = self.probabilities * (self.masses / self.masses.sum())

        def entropy(p: Array) -> float:
            return float(entr(p).sum() - entr(p.sum(axis=0)).sum())

        return Truth(
            {
                NOTHING: float(entr(joint.sum(axis=(1, 2))).sum()),
                SCORE: entropy(joint.sum(axis=2)),
                TARGET: entropy(joint.sum(axis=1)),
                BOTH: entropy(joint),
            }
        )


def _draw_codes(rng: np.random.Generator, p: Array) -> NDArray[np.intp]:
    """One group of each column of the (K, n) probabilities."""
    u = rng.random(p.shape[1])
    codes = np.zeros(p.shape[1], dtype=np.intp)
    below = np.zeros(p.shape[1])
    for row in p[:-1]:
        below += row
        codes += u >= below
    return codes
