"""Synthetic scores of known unfairness: the paper's joint law, and harder families.

Every scenario is a group A, a law of the target given the group and a law of the score given
both, so that H(A|Y) and H(A|S,Y) follow from explicit densities and H(A|S) from one integral.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evenhand.data.criteria import get_criterion
from evenhand.datasets import check_normal, check_shares, make_generator, residual_variance

from ._laws import Atoms, Gamma, Law, Link, NormalMixture, StudentT, ZeroInflated
from ._scenario import Oracle, Scenario, Truth

__all__ = [
    "FAMILIES",
    "Oracle",
    "Scenario",
    "Truth",
    "bivariate_normal_scenario",
    "null_scenario",
    "random_scenario",
]


def bivariate_normal_scenario(
    share: float | Sequence[float], means: ArrayLike, covariances: ArrayLike
) -> Scenario:
    """Return the scenario that `evenhand.datasets.make_bivariate_normal` draws from."""
    shares, mean, cov = check_normal(share, means, covariances)
    residual = residual_variance(cov)
    slope = cov[:, 0, 1] / cov[:, 0, 0]
    return Scenario(
        shares,
        tuple(_normal(m, np.sqrt(c)) for m, c in zip(mean[:, 0], cov[:, 0, 0], strict=True)),
        tuple(
            Link(intercept=float(i), slope=float(b), sd=float(np.sqrt(r)))
            for i, b, r in zip(mean[:, 1] - slope * mean[:, 0], slope, residual, strict=True)
        ),
        name="bivariate_normal",
    )


def random_scenario(family: str, random_state: Any = None) -> Scenario:
    """Draw a scenario of a family; the normalized criteria spread over about 0 to 0.6.

    Parameters
    ----------
    family : str
        ``"bivariate_normal"``, the paper's; ``"student_t"``, heavy-tailed target and noise;
        ``"bimodal"``, a two-peaked target and a nonlinear score; ``"gamma"``, a skewed target
        whose score is noisier where the target is large; ``"zero_inflated"``, a point mass at
        zero beside a gamma; ``"rounded"``, a target on 20 values; ``"four_groups"``, four
        unbalanced groups, bivariate normal each.
    random_state : int, Generator, RandomState or None
        Seed; the same one gives the same result.
    """
    if family not in FAMILIES:
        raise ValueError(f"`family` must be one of {', '.join(FAMILIES)}, got {family!r}.")
    return FAMILIES[family](make_generator(random_state))


def null_scenario(
    criterion: str, random_state: Any = None, *, share: float | Sequence[float] = 0.5
) -> Scenario:
    """Draw a scenario in which one criterion holds exactly and the other two do not.

    Independence: S has one law in all groups and Y depends on S and A. Separation: Y depends on
    A, and S on Y alone. Sufficiency: S depends on A, and Y on S alone. The dependence of the
    second variable on the first is nonlinear, with noise that grows with it.

    Parameters
    ----------
    criterion : {"independence", "separation", "sufficiency"}
        The one that holds.
    random_state : int, Generator, RandomState or None
        Seed; the same one gives the same result.
    share : float or sequence of length K
        P(A = 1) for two groups, or P(A = k) for each group.
    """
    name = get_criterion(criterion).name
    rng = make_generator(random_state)
    shares = check_shares(share)
    k = len(shares)
    scale = rng.uniform(0.7, 1.3)

    def link() -> Link:
        return Link(
            intercept=rng.uniform(-0.6, 0.6),
            slope=rng.uniform(-0.2, 0.8),
            sd=rng.uniform(0.4, 0.8),
            bend=rng.choice([-1.0, 1.0]) * rng.uniform(0.6, 1.4),
            bend_rate=rng.uniform(1.0, 2.0),
            bend_at=rng.uniform(-0.5, 0.5),
            spread=rng.uniform(0.0, 0.4),
        )

    laws: tuple[Law, ...]
    if name == "independence":
        laws = (_two_peaks(rng, 0.0, scale),) * k
        links = tuple(link() for _ in shares)
    else:
        laws = tuple(_two_peaks(rng, float(m), scale) for m in rng.uniform(-1.0, 1.0, k))
        links = (link(),) * k
    first = "y" if name == "separation" else "s"
    return Scenario(shares, laws, links, first=first, name=f"null_{name}")


def _normal(mean: float, sd: float) -> NormalMixture:
    return NormalMixture((1.0,), (float(mean),), (float(sd),))


def _two_peaks(rng: np.random.Generator, center: float, scale: float) -> NormalMixture:
    w = rng.uniform(0.25, 0.75)
    gap = rng.uniform(0.8, 1.6)
    return NormalMixture(
        (w, 1.0 - w),
        (center - gap * scale, center + gap * scale),
        (scale * rng.uniform(0.5, 0.9), scale * rng.uniform(0.5, 0.9)),
    )


class _Groups:
    """Draws of one scenario: parameters of each group around a value common to all.

    Parameter = common + strength · (own − common): a strength drawn anew for the targets and for
    the scores of each scenario spreads the criteria from nearly fair to very unfair.
    """

    def __init__(self, rng: np.random.Generator, shares: Sequence[float] | None = None) -> None:
        self.rng = rng
        if shares is None:
            p = rng.uniform(0.2, 0.8)
            shares = (1.0 - p, p)
        self.shares = tuple(shares)
        self.strength = 1.0
        self.redraw_strength()

    def redraw_strength(self) -> None:
        self.strength = self.rng.uniform(0.1, 1.25)

    def draw(self, low: float, high: float) -> list[float]:
        """One value per group; beyond [low, high] by at most 5 % of its width on either side."""
        common = self.rng.uniform(low, high)
        own = self.rng.uniform(low, high, len(self.shares))
        value = common + self.strength * (own - common)
        margin = 0.05 * (high - low)
        return np.clip(value, low - margin, high + margin).tolist()

    def scenario(self, name: str, laws: Iterable[Law], links: Iterable[Link]) -> Scenario:
        return Scenario(self.shares, tuple(laws), tuple(links), name=name)

    def linear_links(self, df: float = np.inf) -> list[Link]:
        """Scores slope·y + shift + noise, with the shift in units of the noise."""
        self.redraw_strength()
        noise = self.rng.uniform(0.4, 1.2)
        return [
            Link(intercept=noise * shift, slope=slope, sd=noise * np.exp(log_sd), df=df)
            for shift, slope, log_sd in zip(
                self.draw(-1.6, 1.6), self.draw(0.3, 1.2), self.draw(-0.4, 0.4), strict=True
            )
        ]

    def skewed_links(self) -> list[Link]:
        """Scores of a positive target, noisier where it is large."""
        self.redraw_strength()
        return [
            Link(intercept=shift, slope=slope, sd=sd, spread=spread)
            for shift, slope, sd, spread in zip(
                self.draw(-0.8, 0.8),
                self.draw(0.4, 1.4),
                self.draw(0.45, 0.85),
                self.draw(0.2, 0.5),
                strict=True,
            )
        ]

    def gammas(self) -> list[Gamma]:
        return [
            Gamma(shape, scale)
            for shape, scale in zip(self.draw(1.5, 4.0), self.draw(0.5, 1.5), strict=True)
        ]

    def means_and_sds(self, reach: float = 1.3) -> list[tuple[float, float]]:
        sds = np.exp(self.draw(-0.4, 0.4)).tolist()
        return list(zip(self.draw(-reach, reach), sds, strict=True))


def _bivariate_normal(rng: np.random.Generator) -> Scenario:
    g = _Groups(rng)
    laws = [_normal(m, sd) for m, sd in g.means_and_sds()]
    return g.scenario("bivariate_normal", laws, g.linear_links())


def _student_t(rng: np.random.Generator) -> Scenario:
    g = _Groups(rng)
    df = rng.uniform(3.0, 6.0)
    laws = [StudentT(df, m, sd) for m, sd in g.means_and_sds()]
    return g.scenario("student_t", laws, g.linear_links(df=rng.uniform(3.0, 6.0)))


def _bimodal(rng: np.random.Generator) -> Scenario:
    g = _Groups(rng)
    laws = [
        NormalMixture((w, 1.0 - w), (m - gap, m + gap), (left, right))
        for w, m, gap, left, right in zip(
            g.draw(0.25, 0.75),
            g.draw(-0.9, 0.9),
            g.draw(0.9, 1.7),
            g.draw(0.5, 0.9),
            g.draw(0.5, 0.9),
            strict=True,
        )
    ]
    g.redraw_strength()
    noise = rng.uniform(0.4, 0.9)
    links = [
        Link(
            intercept=noise * shift,
            slope=slope,
            sd=noise * np.exp(log_sd),
            bend=bend,
            bend_rate=rate,
            bend_at=at,
        )
        for shift, slope, log_sd, bend, rate, at in zip(
            g.draw(-1.6, 1.6),
            g.draw(-0.3, 0.4),
            g.draw(-0.3, 0.3),
            g.draw(0.5, 1.5),
            g.draw(1.0, 2.5),
            g.draw(-0.8, 0.8),
            strict=True,
        )
    ]
    return g.scenario("bimodal", laws, links)


def _gamma(rng: np.random.Generator) -> Scenario:
    g = _Groups(rng)
    laws = g.gammas()
    return g.scenario("gamma", laws, g.skewed_links())


def _zero_inflated(rng: np.random.Generator) -> Scenario:
    g = _Groups(rng)
    laws = [ZeroInflated(p, law) for p, law in zip(g.draw(0.25, 0.75), g.gammas(), strict=True)]
    return g.scenario("zero_inflated", laws, g.skewed_links())


def _rounded(rng: np.random.Generator) -> Scenario:
    g = _Groups(rng)
    values = np.linspace(-2.85, 2.85, 20)
    laws = [Atoms.rounded_normal(m, sd, values) for m, sd in g.means_and_sds()]
    return g.scenario("rounded", laws, g.linear_links())


def _four_groups(rng: np.random.Generator) -> Scenario:
    shares = rng.dirichlet((50.0, 28.0, 15.0, 7.0)).clip(min=0.03)
    g = _Groups(rng, (shares / shares.sum()).tolist())
    laws = [_normal(m, sd) for m, sd in g.means_and_sds(reach=2.2)]
    return g.scenario("four_groups", laws, g.linear_links())


FAMILIES: dict[str, Callable[[np.random.Generator], Scenario]] = {
    "bivariate_normal": _bivariate_normal,
    "student_t": _student_t,
    "bimodal": _bimodal,
    "gamma": _gamma,
    "zero_inflated": _zero_inflated,
    "rounded": _rounded,
    "four_groups": _four_groups,
}
"""The families of :func:`random_scenario`."""
