"""Synthetic scores of known unfairness: the paper's joint law, and harder families.

Every scenario is a group A, a law of the target given the group and a law of the score given
both, so that H(A|Y) and H(A|S,Y) follow from explicit densities and H(A|S) from one integral.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..criteria import get_criterion
from ._laws import Array, Atoms, Gamma, Law, Link, NormalMixture, StudentT, ZeroInflated
from ._scenario import Oracle, Scenario, Truth, as_generator

__all__ = [
    "FAMILIES",
    "Oracle",
    "Scenario",
    "SyntheticData",
    "Truth",
    "bivariate_normal_scenario",
    "make_bivariate_normal",
    "null_scenario",
    "random_scenario",
]


class SyntheticData(NamedTuple):
    """Rows drawn from a scenario, and the scenario itself."""

    y: Array
    s: Array
    a: NDArray[np.intp]
    scenario: Scenario

    @property
    def truth(self) -> Truth:
        return self.scenario.truth


def make_bivariate_normal(
    n_samples: int = 1000,
    *,
    share: float | Sequence[float] = 0.4,
    means: ArrayLike = ((0.0, 0.0), (0.8, 1.0)),
    covariances: ArrayLike = (((1.0, 0.7), (0.7, 1.0)), ((1.0, 0.4), (0.4, 0.8))),
    random_state: Any = None,
) -> SyntheticData:
    """A ~ shares, (Y, S) | A = k ~ N(means_k, covariances_k): the joint law of the paper.

    Differences in means are differences in base rate (of Y) and in score (of S); differences in
    covariance are differences in how accurate the score is.

    Parameters
    ----------
    n_samples : int
        Number of rows.
    share : float or sequence of length K
        P(A = 1) for two groups, or P(A = k) for each group.
    means : (K, 2) array
        Mean of (Y, S) in each group.
    covariances : (K, 2, 2) array
        Covariance of (Y, S) in each group, positive definite.
    random_state : int, Generator, RandomState or None
        Seed; the same one gives the same result.

    Returns
    -------
    SyntheticData
        ``y, s, a, scenario``; ``.truth`` holds the exact information.

    Examples
    --------
    >>> from evenhand.datasets import make_bivariate_normal
    >>> data = make_bivariate_normal(500, random_state=0)
    >>> round(data.truth.independence, 3)
    0.175
    """
    scenario = bivariate_normal_scenario(share, means, covariances)
    return SyntheticData(*scenario.sample(n_samples, random_state), scenario)


def bivariate_normal_scenario(
    share: float | Sequence[float], means: ArrayLike, covariances: ArrayLike
) -> Scenario:
    """The scenario behind :func:`make_bivariate_normal`; same parameters."""
    shares = _shares(share)
    mean = np.asarray(means, dtype=np.float64)
    cov = np.asarray(covariances, dtype=np.float64)
    k = len(shares)
    if mean.shape != (k, 2):
        raise ValueError(f"`means` must have shape ({k}, 2), got {mean.shape}.")
    if cov.shape != (k, 2, 2):
        raise ValueError(f"`covariances` must have shape ({k}, 2, 2), got {cov.shape}.")
    residual = cov[:, 1, 1] - cov[:, 0, 1] * cov[:, 1, 0] / cov[:, 0, 0]
    symmetric = np.allclose(cov[:, 0, 1], cov[:, 1, 0])
    if not (symmetric and (cov[:, 0, 0] > 0).all() and (residual > 0).all()):
        raise ValueError("`covariances` must be symmetric and positive definite in each group.")
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
    return FAMILIES[family](as_generator(random_state))


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
    rng = as_generator(random_state)
    shares = _shares(share)
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


def _shares(share: float | Sequence[float]) -> tuple[float, ...]:
    if np.ndim(share) == 0:
        p = float(share)  # type: ignore[arg-type]
        if not 0 < p < 1:
            raise ValueError(f"`share` must lie strictly between 0 and 1, got {share}.")
        return (1.0 - p, p)
    shares = np.asarray(share, dtype=np.float64)
    if shares.ndim != 1 or len(shares) < 2 or (shares <= 0).any() or abs(shares.sum() - 1) > 1e-9:
        raise ValueError(
            f"`share` must be positive and sum to 1 over two groups or more, got {share}."
        )
    return tuple(shares.tolist())


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


def _signed(rng: np.random.Generator, high: float) -> float:
    """A difference between groups: either sign, small as likely as large."""
    return float(rng.uniform(-high, high))


def _share(rng: np.random.Generator) -> tuple[float, float]:
    p = rng.uniform(0.2, 0.8)
    return (1.0 - p, p)


def _linear_links(rng: np.random.Generator, k: int, unit: float, df: float = np.inf) -> list[Link]:
    """Scores slope·y + shift + noise; the shift is in units of the noise.

    `unit` is the spread of the target, so that the score is as informative in any units.
    """
    noise = unit * rng.uniform(0.4, 1.2)
    return [
        Link(
            intercept=noise * _signed(rng, 1.6),
            slope=rng.uniform(0.3, 1.2),
            sd=noise * np.exp(_signed(rng, 0.4)),
            df=df,
        )
        for _ in range(k)
    ]


def _bivariate_normal(rng: np.random.Generator) -> Scenario:
    shares = _share(rng)
    laws = tuple(_normal(_signed(rng, 1.2), np.exp(_signed(rng, 0.4))) for _ in shares)
    links = tuple(_linear_links(rng, 2, 1.0))
    return Scenario(shares, laws, links, name="bivariate_normal")


def _student_t(rng: np.random.Generator) -> Scenario:
    shares = _share(rng)
    df = rng.uniform(3.0, 6.0)
    laws = tuple(StudentT(df, _signed(rng, 1.2), np.exp(_signed(rng, 0.4))) for _ in shares)
    links = tuple(_linear_links(rng, 2, 1.0, df=rng.uniform(3.0, 6.0)))
    return Scenario(shares, laws, links, name="student_t")


def _bimodal(rng: np.random.Generator) -> Scenario:
    shares = _share(rng)
    laws = tuple(_two_peaks(rng, _signed(rng, 0.8), 1.0) for _ in shares)
    noise = rng.uniform(0.4, 0.9)
    links = tuple(
        Link(
            intercept=noise * _signed(rng, 1.4),
            slope=rng.uniform(-0.3, 0.4),
            sd=noise * np.exp(_signed(rng, 0.3)),
            bend=rng.uniform(0.5, 1.5),
            bend_rate=rng.uniform(1.0, 2.5),
            bend_at=_signed(rng, 0.7),
        )
        for _ in shares
    )
    return Scenario(shares, laws, links, name="bimodal")


def _gamma(rng: np.random.Generator) -> Scenario:
    shares = _share(rng)
    laws = tuple(Gamma(rng.uniform(1.2, 4.0), rng.uniform(0.5, 1.5)) for _ in shares)
    links = tuple(_skewed_link(rng) for _ in shares)
    return Scenario(shares, laws, links, name="gamma")


def _skewed_link(rng: np.random.Generator) -> Link:
    return Link(
        intercept=_signed(rng, 0.8),
        slope=rng.uniform(0.4, 1.4),
        sd=rng.uniform(0.3, 0.7),
        spread=rng.uniform(0.1, 0.5),
    )


def _zero_inflated(rng: np.random.Generator) -> Scenario:
    shares = _share(rng)
    laws = tuple(
        ZeroInflated(rng.uniform(0.2, 0.8), Gamma(rng.uniform(1.2, 4.0), rng.uniform(0.5, 1.5)))
        for _ in shares
    )
    links = tuple(_skewed_link(rng) for _ in shares)
    return Scenario(shares, laws, links, name="zero_inflated")


def _rounded(rng: np.random.Generator) -> Scenario:
    shares = _share(rng)
    values = np.linspace(-2.85, 2.85, 20)
    laws = tuple(
        Atoms.rounded_normal(_signed(rng, 1.2), np.exp(_signed(rng, 0.4)), values) for _ in shares
    )
    return Scenario(shares, laws, tuple(_linear_links(rng, 2, 1.0)), name="rounded")


def _four_groups(rng: np.random.Generator) -> Scenario:
    shares = np.sort(rng.dirichlet((50.0, 28.0, 15.0, 7.0)))[::-1]
    shares = np.maximum(shares, 0.03)
    shares = shares / shares.sum()
    laws = tuple(_normal(_signed(rng, 1.2), np.exp(_signed(rng, 0.4))) for _ in shares)
    return Scenario(
        tuple(shares.tolist()), laws, tuple(_linear_links(rng, 4, 1.0)), name="four_groups"
    )


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
