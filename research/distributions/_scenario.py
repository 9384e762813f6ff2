"""A joint law of target, score and group whose information is known by quadrature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicSpline
from scipy.special import logsumexp

from evenhand.data.criteria import BOTH, NOTHING, SCORE, TARGET, Condition, Criterion, get_criterion
from evenhand.datasets import make_generator

from ._laws import Array, Law, Link, gauss_legendre

if TYPE_CHECKING:
    from evenhand.data.groups import Groups
    from evenhand.estimators.estimation import RowLosses

_V_NODES = 801
_NEGLIGIBLE_MASS = 1e-17
_FLOOR = 1e-300


@dataclass(frozen=True)
class Truth:
    """The exact information in a scenario.

    Attributes
    ----------
    entropies : dict
        H(A), H(A|S), H(A|Y), H(A|S,Y) in nats under the keys ``()``, ``("s",)``, ``("y",)`` and
        ``("s", "y")``.
    """

    entropies: Mapping[Condition, float]

    def nats(self, criterion: str | Criterion) -> float:
        """H(A | given) − H(A | joint), the (conditional) mutual information."""
        c = get_criterion(criterion)
        # Never negative; quadrature and rounding can be, by their error.
        return max(self.entropies[c.given] - self.entropies[c.joint], 0.0)

    def value(self, criterion: str | Criterion) -> float:
        """The information divided by its normalizer, in [0, 1]."""
        return self.nats(criterion) / self.entropies[get_criterion(criterion).given]

    @property
    def independence(self) -> float:
        return self.value("independence")

    @property
    def separation(self) -> float:
        return self.value("separation")

    @property
    def sufficiency(self) -> float:
        return self.value("sufficiency")


@dataclass(frozen=True)
class Scenario:
    """P(a) f_a(u) g_a(v | u): a group, a first variable given it, a second given both.

    Attributes
    ----------
    shares : tuple of length K
        P(A = k).
    laws : tuple of Law
        Law of the first variable in each group.
    links : tuple of Link
        Law of the second variable given the first, in each group.
    first : {"y", "s"}
        Which variable comes first: the target, or the score.
    name : str
    """

    shares: tuple[float, ...]
    laws: tuple[Law, ...]
    links: tuple[Link, ...]
    first: str = "y"
    name: str = "scenario"

    def __post_init__(self) -> None:
        if not len(self.shares) == len(self.laws) == len(self.links) >= 2:
            raise ValueError(
                "`shares`, `laws` and `links` must have one entry per group, for two groups or "
                f"more, got {len(self.shares)}, {len(self.laws)} and {len(self.links)}."
            )
        if min(self.shares) <= 0 or abs(sum(self.shares) - 1) > 1e-9:
            raise ValueError(f"`shares` must be positive and sum to 1, got {self.shares}.")
        if self.first not in ("y", "s"):
            raise ValueError(f"`first` must be 'y' or 's', got {self.first!r}.")

    @property
    def n_groups(self) -> int:
        return len(self.shares)

    def sample(self, n: int, random_state: Any = None) -> tuple[Array, Array, NDArray[np.intp]]:
        """Draw n rows.

        Returns
        -------
        y, s : (n,) float arrays
            Target and score.
        a : (n,) int array
            Group codes 0, ..., K − 1.
        """
        rng = make_generator(random_state)
        bounds = np.cumsum(self.shares)[:-1]
        a = np.searchsorted(bounds, rng.random(n), side="right").astype(np.intp)
        u, v = np.empty(n), np.empty(n)
        for k, (law, link) in enumerate(zip(self.laws, self.links, strict=True)):
            rows = np.flatnonzero(a == k)
            u[rows] = law.sample(rng, len(rows))
            v[rows] = link.sample(rng, u[rows])
        return (u, v, a) if self.first == "y" else (v, u, a)

    @cached_property
    def truth(self) -> Truth:
        """H(A), H(A|S), H(A|Y) and H(A|S,Y) by quadrature, absolute error below 1e-5."""
        shares = np.asarray(self.shares)
        h_first, h_both = self._entropies_given_first()
        h_second = self._log_joint_second.entropy
        h_y, h_s = (h_first, h_second) if self.first == "y" else (h_second, h_first)
        return Truth(
            {
                NOTHING: float(-(shares * np.log(shares)).sum()),
                SCORE: h_s,
                TARGET: h_y,
                BOTH: h_both,
            }
        )

    def log_posteriors(
        self,
        y: ArrayLike | None,
        s: ArrayLike | None,
        conditions: Sequence[Condition] = (SCORE, TARGET, BOTH),
    ) -> dict[Condition, Array]:
        """Exact log P(a | z) of every row and group.

        Parameters
        ----------
        y, s : (n,) arrays or None
            Target and score; one that no condition needs may be None.
        conditions : sequence of tuples
            Each is ``("s",)``, ``("y",)`` or ``("s", "y")``.

        Returns
        -------
        dict
            An (n, K) array for each condition.
        """
        given = {"y": y, "s": s}
        second = "s" if self.first == "y" else "y"
        out = {}
        for condition in conditions:
            if condition not in (SCORE, TARGET, BOTH):
                raise ValueError(
                    f"`conditions` must hold ('s',), ('y',) or ('s', 'y'), got {condition!r}."
                )
            z = {}
            for name in condition:
                if given[name] is None:
                    raise ValueError(f"`{name}` must be given for the condition {condition!r}.")
                z[name] = np.asarray(given[name], dtype=np.float64)
            if self.first in condition:
                u = z[self.first]
                joint = self._log_joint_first(u)
                if second in condition:
                    joint = joint + self._log_link(u, z[second])
            else:
                joint = self._log_joint_second(z[second])
            out[condition] = (joint - logsumexp(joint, axis=0)).T
        return out

    def oracle(self) -> Oracle:
        """The estimator that knows this scenario's densities."""
        return Oracle(self)

    def _log_joint_first(self, u: Array) -> Array:
        """(K, n): log p_a f_a(u)."""
        return np.stack(
            [np.log(p) + law.log_density(u) for p, law in zip(self.shares, self.laws, strict=True)]
        )

    def _log_link(self, u: Array, v: Array) -> Array:
        """(K, n): log g_a(v | u)."""
        rows = []
        for link in self.links:
            scale = link.scale(u)
            rows.append(link.log_noise((v - link.location(u)) / scale) - np.log(scale))
        return np.stack(rows)

    @cached_property
    def _first_nodes(self) -> tuple[Array, Array]:
        """Nodes u_j and (K, J) masses p_a f_a(u_j) w_j, each group's summing to p_a."""
        atoms = np.unique(np.concatenate([law.atoms for law in self.laws]))
        u, w = gauss_legendre(np.concatenate([law.panels for law in self.laws]))
        u, w = np.concatenate([atoms, u]), np.concatenate([np.ones(len(atoms)), w])
        mass = np.exp(self._log_joint_first(u)) * w
        keep = mass.sum(axis=0) > _NEGLIGIBLE_MASS
        u, mass = u[keep], mass[:, keep]
        return u, mass * (np.asarray(self.shares) / mass.sum(axis=1))[:, None]

    def _entropies_given_first(self) -> tuple[float, float]:
        """H(A|U) and H(A|U,V)."""
        u, mass = self._first_nodes
        log_first = self._log_joint_first(u)
        log_evidence = logsumexp(log_first, axis=0)
        h_first = -sum(
            float(m @ np.where(m > 0, log_f - log_evidence, 0.0))
            for m, log_f in zip(mass, log_first, strict=True)
        )
        location = [link.location(u)[:, None] for link in self.links]
        scale = [link.scale(u)[:, None] for link in self.links]
        h_both = 0.0
        for a, link in enumerate(self.links):
            nodes = np.flatnonzero(mass[a] > _NEGLIGIBLE_MASS)
            e, weights = link.noise_nodes()
            v = location[a][nodes] + scale[a][nodes] * e
            own = log_first[a, nodes, None] + link.log_noise(e) - np.log(scale[a][nodes])
            odds = np.ones_like(v)
            for b, other in enumerate(self.links):
                if b != a:
                    z = (v - location[b][nodes]) / scale[b][nodes]
                    joint = log_first[b, nodes, None] + other.log_noise(z)
                    joint -= np.log(scale[b][nodes])
                    odds += np.exp(np.minimum(joint - own, 700.0))
            h_both += float(mass[a, nodes] @ (np.log(odds) @ weights))
        return h_first, h_both

    @cached_property
    def _log_joint_second(self) -> _SecondMarginal:
        """log p_a g_a(v), g_a(v) = ∫ f_a(u) g_a(v|u) du, tabulated once and interpolated."""
        u, mass = self._first_nodes
        location = np.stack([link.location(u) for link in self.links])
        scale = np.stack([link.scale(u) for link in self.links])
        center = float((mass * location).sum())
        spread = float(np.sqrt((mass * ((location - center) ** 2 + scale**2)).sum()))
        reach = np.array([abs(link.noise_nodes()[0][0]) for link in self.links])[:, None]
        used = mass > 1e-14
        low = float((location - reach * scale)[used].min())
        high = float((location + reach * scale)[used].max())
        # Finest in the middle, where the narrowest noise is; sinh reaches heavy tails cheaply.
        unit = spread / 4
        x = np.linspace(
            np.arcsinh((low - center) / unit), np.arcsinh((high - center) / unit), _V_NODES
        )
        v = center + unit * np.sinh(x)
        density = np.empty((self.n_groups, _V_NODES))
        for a, link in enumerate(self.links):
            nodes = np.flatnonzero(mass[a] > _NEGLIGIBLE_MASS)
            m, s = location[a, nodes], scale[a, nodes]
            coefficient = mass[a, nodes] / s
            for start in range(0, _V_NODES, 100):
                block = slice(start, start + 100)
                kernel = np.exp(link.log_noise((v[block, None] - m) / s))
                density[a, block] = kernel @ coefficient
        log_joint = np.log(density + _FLOOR)
        log_evidence = np.log(density.sum(axis=0) + _FLOOR)
        jacobian = unit * np.cosh(x) * (x[1] - x[0])
        losses = density * (log_evidence - log_joint) * jacobian
        # The masses of the grid sum to one only up to the rule's error; dividing removes most.
        entropy = float(losses.sum() / (density * jacobian).sum())
        return _SecondMarginal(center, unit, x[0], x[-1], CubicSpline(x, log_joint.T), entropy)


@dataclass(frozen=True)
class _SecondMarginal:
    center: float
    unit: float
    low: float
    high: float
    spline: CubicSpline
    entropy: float

    def __call__(self, v: Array) -> Array:
        x = np.arcsinh((v - self.center) / self.unit)
        return self.spline(np.clip(x, self.low, self.high)).T


@dataclass(frozen=True)
class Oracle:
    """H(A|Z) ≈ −mean log P(aᵢ|zᵢ) with the true P: the floor for every estimator.

    Group labels must be the scenario's codes 0, ..., K − 1.
    """

    scenario: Scenario

    def row_losses(
        self,
        variables: Mapping[str, Array],
        conditions: Sequence[Condition],
        groups: Groups,
    ) -> dict[Condition, RowLosses]:
        from evenhand.estimators.estimation import RowLosses

        if groups.codes is None:
            raise ValueError("The oracle must be given group codes, got a Proxy.")
        codes = np.asarray(groups.labels, dtype=np.intp)[groups.codes]
        posteriors = self.scenario.log_posteriors(variables.get("y"), variables["s"], conditions)
        out = {}
        for condition, log_p in posteriors.items():
            loss = -log_p[np.arange(len(codes)), codes]
            out[condition] = RowLosses(loss, loss, "true densities")
        return out
