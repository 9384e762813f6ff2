"""One-dimensional laws from which synthetic scenarios are built, each with its quadrature panels.

A density is taken with respect to Lebesgue measure plus a unit mass at every atom, so a point
mass and a density are both just f(u), and the posterior of the group is
p_a f_a(u) / Σ_b p_b f_b(u) in either case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtr

Array = NDArray[np.float64]

_NO_ATOMS = np.empty(0)
_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)


class Law(Protocol):
    """A distribution on the line."""

    def sample(self, rng: np.random.Generator, n: int) -> Array: ...

    def log_density(self, u: Array) -> Array: ...

    @property
    def panels(self) -> Array:
        """Break points between which the density is well approximated by a polynomial."""
        ...

    @property
    def atoms(self) -> Array:
        """Values that carry positive mass."""
        ...


@dataclass(frozen=True)
class NormalMixture:
    """f(u) = Σ_k w_k N(u; μ_k, σ_k²)."""

    weights: tuple[float, ...]
    means: tuple[float, ...]
    sds: tuple[float, ...]

    @property
    def atoms(self) -> Array:
        return _NO_ATOMS

    @property
    def panels(self) -> Array:
        steps = np.linspace(-8.0, 8.0, 27)
        return np.concatenate([m + s * steps for m, s in zip(self.means, self.sds, strict=True)])

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        component = np.searchsorted(np.cumsum(self.weights)[:-1], rng.random(n), side="right")
        return np.take(self.means, component) + np.take(self.sds, component) * rng.standard_normal(
            n
        )

    def log_density(self, u: Array) -> Array:
        parts = [
            np.log(w / s) - 0.5 * ((u - m) / s) ** 2 - _LOG_SQRT_2PI
            for w, m, s in zip(self.weights, self.means, self.sds, strict=True)
        ]
        return parts[0] if len(parts) == 1 else np.logaddexp.reduce(parts)


@dataclass(frozen=True)
class StudentT:
    """f(u) = t_df((u − μ) / σ) / σ."""

    df: float
    mean: float
    sd: float

    @property
    def atoms(self) -> Array:
        return _NO_ATOMS

    @property
    def panels(self) -> Array:
        # Tail mass beyond the last break point, sinh(x)^-df, is below 1e-10.
        reach = np.log(2.0) + 23.0 / self.df
        return self.mean + self.sd * np.sinh(np.linspace(-reach, reach, int(16 * reach)))

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        return self.mean + self.sd * rng.standard_t(self.df, n)

    def log_density(self, u: Array) -> Array:
        return log_student_t((u - self.mean) / self.sd, self.df) - np.log(self.sd)


@dataclass(frozen=True)
class Gamma:
    """f(u) = u^(k−1) exp(−u/θ) / (Γ(k) θ^k) for u > 0; shape k, scale θ."""

    shape: float
    scale: float

    @property
    def atoms(self) -> Array:
        return _NO_ATOMS

    @property
    def panels(self) -> Array:
        # Geometric toward zero, where u^(k−1) is no polynomial; below the first panel lies less
        # than 1e-12 of the mass.
        first = -28.0 / self.shape
        ratio = np.exp(np.linspace(first, 0.0, int(-2 * first)))
        return self.scale * np.concatenate([ratio, np.arange(1.5, self.shape + 40.0, 0.75)])

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        return rng.gamma(self.shape, self.scale, n)

    def log_density(self, u: Array) -> Array:
        inside = u > 0
        x = np.where(inside, u, 1.0) / self.scale
        out = (self.shape - 1.0) * np.log(x) - x - gammaln(self.shape) - np.log(self.scale)
        return np.where(inside, out, -np.inf)


@dataclass(frozen=True)
class Atoms:
    """P(U = values_j) = masses_j."""

    values: tuple[float, ...]
    masses: tuple[float, ...]

    @property
    def atoms(self) -> Array:
        return np.asarray(self.values)

    @property
    def panels(self) -> Array:
        return _NO_ATOMS

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        index = np.searchsorted(np.cumsum(self.masses)[:-1], rng.random(n), side="right")
        return np.take(self.values, index)

    def log_density(self, u: Array) -> Array:
        index = np.searchsorted(self.values, u).clip(max=len(self.values) - 1)
        return np.where(
            np.take(self.values, index) == u, np.log(np.take(self.masses, index)), -np.inf
        )

    @classmethod
    def rounded_normal(cls, mean: float, sd: float, values: Array) -> Atoms:
        """N(mean, sd²) moved to the nearest of sorted `values`."""
        edges = (values[1:] + values[:-1]) / 2
        masses = np.diff(ndtr((edges - mean) / sd), prepend=0.0, append=1.0).clip(min=1e-300)
        return cls(tuple(values.tolist()), tuple((masses / masses.sum()).tolist()))


@dataclass(frozen=True)
class ZeroInflated:
    """P(U = 0) = zero, otherwise U follows `positive`."""

    zero: float
    positive: Gamma

    @property
    def atoms(self) -> Array:
        return np.zeros(1)

    @property
    def panels(self) -> Array:
        return self.positive.panels

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        is_zero = rng.random(n) < self.zero
        return np.where(is_zero, 0.0, self.positive.sample(rng, n))

    def log_density(self, u: Array) -> Array:
        return np.where(
            u == 0.0,
            np.log(self.zero),
            np.log1p(-self.zero) + self.positive.log_density(u),
        )


@dataclass(frozen=True)
class Link:
    """V given U = u: m(u) + σ(u) ε, with

    m(u) = intercept + slope·u + bend·tanh(bend_rate·(u − bend_at)) and
    σ(u)² = sd² + (spread·u)²; ε is standard normal, or Student's t where `df` is finite.
    """

    intercept: float
    slope: float
    sd: float
    bend: float = 0.0
    bend_rate: float = 1.0
    bend_at: float = 0.0
    spread: float = 0.0
    df: float = np.inf

    def location(self, u: Array) -> Array:
        return (
            self.intercept
            + self.slope * u
            + self.bend * np.tanh(self.bend_rate * (u - self.bend_at))
        )

    def scale(self, u: Array) -> Array:
        return np.sqrt(self.sd**2 + (self.spread * u) ** 2)

    def sample(self, rng: np.random.Generator, u: Array) -> Array:
        noise = (
            rng.standard_normal(len(u)) if np.isinf(self.df) else rng.standard_t(self.df, len(u))
        )
        return self.location(u) + self.scale(u) * noise

    def log_noise(self, e: Array) -> Array:
        return log_normal(e) if np.isinf(self.df) else log_student_t(e, self.df)

    def noise_nodes(self) -> tuple[Array, Array]:
        """Nodes and weights with Σ w g(e) ≈ E g(ε): the trapezoid rule, after sinh for tails."""
        if np.isinf(self.df):
            e = np.linspace(-8.0, 8.0, 101)
            jacobian = np.ones_like(e)
        else:
            reach = np.log(2.0) + 23.0 / self.df
            x = np.linspace(-reach, reach, int(24 * reach))
            e, jacobian = np.sinh(x), np.cosh(x)
        weights = jacobian * np.exp(self.log_noise(e))
        return e, weights / weights.sum()


def log_normal(e: Array) -> Array:
    return -0.5 * e**2 - _LOG_SQRT_2PI


def log_student_t(e: Array, df: float) -> Array:
    constant = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * np.log(df * np.pi)
    return constant - (df + 1) / 2 * np.log1p(e**2 / df)


def gauss_legendre(panels: Array, order: int = 8) -> tuple[Array, Array]:
    """Composite Gauss-Legendre nodes and weights over the panels between sorted break points."""
    if not len(panels):
        return np.empty(0), np.empty(0)
    edges = np.unique(panels)
    x, w = np.polynomial.legendre.leggauss(order)
    half = np.diff(edges) / 2
    middle = (edges[1:] + edges[:-1]) / 2
    return (middle[:, None] + half[:, None] * x).ravel(), (half[:, None] * w).ravel()
