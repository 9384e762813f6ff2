"""Losses: the deviance d(y, μ(η)) of each row, its slope and curvature in the predictor η.

    squared            (y − μ)²
    poisson            2[y log(y/μ) − y + μ]
    gamma              2[log(μ/y) + y/μ − 1]
    power p            2[y^(2−p)/((1−p)(2−p)) − y μ^(1−p)/(1−p) + μ^(2−p)/(2−p)]
    binomial           2[y log(y/μ) + (1−y) log((1−y)/(1−μ))]
    quantile τ         (τ − 1{y < η})(y − η), its corner rounded over a width h in training

Pointwise only: weights and the chain rule through the features are elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit, xlogy

from .._core.arrays import Vector
from .._core.validation import InputError, is_number
from ..data.weights import weighted_mean

# ------------------------------------------------------------------------------------------------
# Links between a linear predictor η and a mean μ, with two derivatives of μ(η).


@dataclass(frozen=True, repr=False)
class Link:
    """η = g(μ).

    Attributes
    ----------
    name : str
    of_mean, inverse : callable
        g(μ) and μ(η).
    slopes : callable
        η → μ′(η) and μ″(η).
    positive : bool
        Whether η must be positive; the mean falls as η grows there.
    """

    name: str
    of_mean: Callable[[Vector], Vector]
    inverse: Callable[[Vector], Vector]
    slopes: Callable[[Vector], tuple[Vector, Vector]]
    positive: bool = False

    def __call__(self, mean: Vector) -> Vector:
        """g(μ)."""
        return self.of_mean(mean)

    def __reduce__(self) -> Any:
        return _find_link, (self.name,)

    def __repr__(self) -> str:
        return f"<link {self.name}>"


def _exp(eta: Vector) -> Vector:
    # A positive mean stays positive, and finite, however far a row lies from all others.
    info = np.finfo(eta.dtype)
    return np.exp(np.clip(eta, np.log(info.tiny) + 1.0, np.log(info.max) - 1.0))


def _logistic_slopes(eta: Vector) -> tuple[Vector, Vector]:
    mean = expit(eta)
    slope = mean * (1.0 - mean)
    return slope, slope * (1.0 - 2.0 * mean)


# The last two are canonical for gamma and for the inverse Gaussian.
LINKS: dict[str, Link] = {
    link.name: link
    for link in (
        Link(
            "identity", lambda mean: mean, lambda eta: eta,
            lambda eta: (np.ones_like(eta), np.zeros_like(eta)),
        ),
        Link("log", np.log, _exp, lambda eta: (_exp(eta), _exp(eta))),
        Link("logit", logit, expit, _logistic_slopes),
        Link(
            "inverse", lambda mean: 1.0 / mean, lambda eta: 1.0 / eta,
            lambda eta: (-(eta**-2), 2.0 * eta**-3), positive=True,
        ),
        Link(
            "inverse_squared", lambda mean: mean**-2, lambda eta: eta**-0.5,
            lambda eta: (-0.5 * eta**-1.5, 0.75 * eta**-2.5), positive=True,
        ),
    )
}  # fmt: skip


def _find_link(name: str) -> Link:
    return LINKS[name]


# ------------------------------------------------------------------------------------------------
# How much of a target scores explain: 1 − Σ ω d(y, s) / Σ ω d(y, m₀), m₀ the best constant.
#
# With squares for d it is R², with the deviance of a family D². To first order it is a mean over
# rows, so each row's influence gives its standard error.


@dataclass(frozen=True)
class Accuracy:
    """The share of the (weighted) deviance that scores explain.

    Attributes
    ----------
    key : str
        Name of its column in tables, such as "r2".
    symbol : str
        What people read, such as "R²".
    unit : str
        What is explained, in words.
    loss : Loss
        Whose deviance d(y, s) it is.
    """

    key: str
    symbol: str
    unit: str
    loss: Loss

    def influence(self, y: Vector, score: Vector, weight: Vector | None) -> tuple[float, Vector]:
        """The value, and each row's influence on it.

        The constant m₀ moves with the rows too, but at its minimum that changes nothing to first
        order. A constant target leaves nothing to explain: 1 where the scores equal it, else 0, as
        scikit-learn has it.
        """
        if np.ptp(y) == 0:
            return float((self.loss.deviance(y, score) == 0).all()), np.zeros(len(y))
        null = np.asarray(self.loss.null_mean(y, weight), dtype=np.float64)
        squares = self.loss.deviance(y, null)
        errors = self.loss.deviance(y, score)
        total = float(np.average(squares, weights=weight))
        share = float(np.average(errors, weights=weight)) / total
        return 1.0 - share, (share * squares - errors) / total

    def value(self, y: Vector, score: Vector, weight: Vector | None = None) -> float:
        """The value alone."""
        return self.influence(y, score, weight)[0]


class Loss(ABC):
    """A loss as models and accuracies see it; subclass it to bring your own.

    Attributes
    ----------
    name : str
    link : Link
        Between the mean and the linear predictor.
    lower, upper : float
        The least and the largest target allowed.
    open_lower : bool
        Whether `lower` itself is excluded.
    positive : bool
        Whether predictions are positive by the link.
    width_from_residuals : bool
        Whether `fixed` is to be asked again with the residuals of a first fit.
    """

    name: str = "loss"
    link: Link = LINKS["identity"]
    lower, upper = -np.inf, np.inf
    open_lower = False
    width_from_residuals = False

    @abstractmethod
    def deviance(self, y: Vector, mean: Vector) -> Vector:
        """d(y, μ) of each row, zero where they agree."""

    @abstractmethod
    def evaluate(self, y: Vector, eta: Vector) -> tuple[Vector, Vector]:
        """d(y, μ(η)) of each row without `saturated`, and its derivative in η."""

    @abstractmethod
    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """∂²d/∂η² of each row, or its expectation where that could be negative."""

    def saturated(self, y: Vector) -> Vector:
        """The part of d(y, μ) that does not depend on μ, which `evaluate` leaves out."""
        return np.zeros_like(y)

    def null_mean(self, y: Vector, weight: Vector | None) -> float:
        """The constant of least Σ ω d(y, μ): the mean, for every deviance of a family."""
        return weighted_mean(y, weight)

    def fixed(
        self, residual: Vector, weight: Vector | None, n_features: int, again: bool = False
    ) -> Loss:
        """The loss with whatever it takes from the data settled; itself for most.

        Parameters
        ----------
        residual : (n,) array
            y less its mean at first; less the plain fit when asked `again`.
        weight : (n,) array or None
        n_features : int
        again : bool
        """
        return self

    def stages(self) -> list[Loss]:
        """Easier losses to be minimized one after another, this one last."""
        return [self]

    def per_unit(self, y: Vector, weight: Vector | None, exposure: Vector) -> tuple[Vector, Vector]:
        """Rates and weights whose loss at a rate r is that of totals y at the mean r·exposure."""
        raise InputError(
            "exposure", f"be None for {self.name} with link={self.link.name!r}, got exposures",
            hint="it multiplies the mean, which takes a power family and link='log'; a number of "
            "trials or of rows is a weight.",
        )  # fmt: skip

    @property
    def positive(self) -> bool:
        return self.link.name in ("log", "inverse", "inverse_squared")

    @property
    def accuracy(self) -> Accuracy:
        """The share of the null deviance that is explained."""
        return Accuracy("d2", "D²", "deviance", self)

    def check_target(self, y: Vector, name: str = "y", option: str = "family") -> None:
        """Refuse targets that the loss is not defined for.

        Parameters
        ----------
        y : (n,) array
        name, option : str
            What the target and the choice of a loss are called, for messages.
        """
        bad = (y < self.lower) | (y > self.upper)
        if self.open_lower:
            bad |= y == self.lower
        if not bad.any():
            return
        row = int(bad.argmax())
        if self.upper < np.inf:
            wanted, hint = f"lie between {self.lower:g} and {self.upper:g}", "for counts of k in m "
            hint += "trials take y = k/m and sample_weight = m"
        elif self.open_lower:
            wanted = "be positive"
            hint = f"leave out rows without a claim, or use {option}='tweedie', which allows zeros"
        else:
            wanted, hint = "not be negative", f"use {option}='normal', which allows any target"
        raise InputError(
            name, f"{wanted} for the {self.name} loss, got {y[row]:g} in row {row}", hint=f"{hint}."
        )

    def __repr__(self) -> str:
        return f"<{self.name} loss, link {self.link.name}>"


class PowerLoss(Loss):
    """The deviance of variance μ^p: normal (0), Poisson (1), Tweedie, gamma (2), inverse Gaussian.

    Parameters
    ----------
    name : str
    power : float
        p: 0, or at least 1.
    link : Link
    """

    def __init__(self, name: str, power: float, link: Link):
        self.name, self.power, self.link = name, float(power), link
        self.lower = 0.0 if power > 0 else -np.inf
        self.open_lower = power >= 2

    @property
    def accuracy(self) -> Accuracy:
        if self.power == 0:
            return Accuracy("r2", "R²", "variance", self)
        return super().accuracy

    def deviance(self, y: Vector, mean: Vector) -> Vector:
        if self.power == 0:
            return np.square(y - mean)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            # A mean of zero or below is infinitely wrong, but for Poisson where nothing happened.
            value = self._partial(y, mean) + self.saturated(y)
        return np.maximum(np.where(mean > 0, value, np.inf), 0.0)

    def _partial(self, y: Vector, mean: Vector) -> Vector:
        p = self.power
        if p == 1:
            return 2.0 * (mean - xlogy(y, mean))
        if p == 2:
            return 2.0 * (np.log(mean) + y / mean)
        return 2.0 * (mean ** (2 - p) / (2 - p) - y * mean ** (1 - p) / (1 - p))

    def saturated(self, y: Vector) -> Vector:
        p = self.power
        if p == 0:
            return y * y
        if p == 1:
            return 2.0 * (xlogy(y, y) - y)
        if p == 2:
            return -2.0 * (np.log(y) + 1.0)
        return 2.0 * y ** (2 - p) / ((1 - p) * (2 - p))

    def evaluate(self, y: Vector, eta: Vector) -> tuple[Vector, Vector]:
        p = self.power
        with np.errstate(over="ignore", invalid="ignore"):
            if p == 0 and self.link.name == "identity":
                return eta * (eta - 2.0 * y), 2.0 * (eta - y)
            if self.link.name == "log":
                if p == 1:
                    mean = np.exp(eta)
                    return 2.0 * (mean - y * eta), 2.0 * (mean - y)
                if p == 2:
                    ratio = y * np.exp(-eta)
                    return 2.0 * (eta + ratio), 2.0 * (1.0 - ratio)
                a, b = np.exp((2 - p) * eta), y * np.exp((1 - p) * eta)
                return 2.0 * (a / (2 - p) - b / (1 - p)), 2.0 * (a - b)
            if self.link.positive:
                # Beyond the domain the value is infinite, and a search turns back.
                eta = np.where(eta > 0, eta, np.nan)
            mean = self.link.inverse(eta)
            slope, _ = self.link.slopes(eta)
            return self._partial(y, mean), 2.0 * (mean - y) * mean**-p * slope

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        p = self.power
        if self.link.name == "log":
            a = np.exp((2 - p) * eta)
            if 1 <= p <= 2:
                return 2.0 * ((2 - p) * a + (p - 1) * y * np.exp((1 - p) * eta))
            return 2.0 * a
        if p == 0 and self.link.name == "identity":
            return np.full_like(eta, 2.0)
        slope, _ = self.link.slopes(eta)
        return 2.0 * self.link.inverse(eta) ** -p * slope * slope

    def per_unit(self, y: Vector, weight: Vector | None, exposure: Vector) -> tuple[Vector, Vector]:
        """d(y, e·r) = e^(2−p)·d(y/e, r)."""
        if self.link.name != "log":
            return super().per_unit(y, weight, exposure)
        scale = exposure ** (2.0 - self.power)
        return y / exposure, scale if weight is None else weight * scale


class BinomialLoss(Loss):
    """Twice the log loss of a proportion, link logit."""

    name = "binomial"
    link = LINKS["logit"]
    lower, upper = 0.0, 1.0

    def deviance(self, y: Vector, mean: Vector) -> Vector:
        with np.errstate(divide="ignore", invalid="ignore"):
            value = self.saturated(y) - 2.0 * (xlogy(y, mean) + xlogy(1.0 - y, 1.0 - mean))
        return np.where((mean >= 0) & (mean <= 1), value, np.inf)

    def saturated(self, y: Vector) -> Vector:
        return 2.0 * (xlogy(y, y) + xlogy(1.0 - y, 1.0 - y))

    def evaluate(self, y: Vector, eta: Vector) -> tuple[Vector, Vector]:
        return 2.0 * (np.logaddexp(0.0, eta) - y * eta), 2.0 * (expit(eta) - y)

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        mean = expit(eta)
        return 2.0 * mean * (1.0 - mean)


class QuantileLoss(Loss):
    """The pinball loss of a quantile; in training ρ(r) = τr + h·log(1 + e^(−r/h)), r = y − η.

    Parameters
    ----------
    quantile : float
        τ.
    width : float or None
        h; None until `fixed` takes it from the data, by the rule of smoothed quantile regression
        (He et al. 2021): √(τ(1−τ))·((d + log n)/n)^0.4 spreads of the residuals, and no less than
        a twentieth, at which the bias is below the sampling error. The logistic kernel is 1.8
        times as wide as the normal one of that rule.
    """

    width_from_residuals = True

    def __init__(self, quantile: float, width: Any = None):
        self.name, self.quantile, self.width = "quantile", float(quantile), width

    def deviance(self, y: Vector, mean: Vector) -> Vector:
        r = y - mean
        return np.maximum(self.quantile * r, (self.quantile - 1.0) * r)

    def null_mean(self, y: Vector, weight: Vector | None) -> float:
        order = np.argsort(y, kind="stable")
        share = np.cumsum(np.ones(len(y)) if weight is None else weight[order])
        return float(y[order][int(np.searchsorted(share, self.quantile * share[-1]))])

    def fixed(
        self, residual: Vector, weight: Vector | None, n_features: int, again: bool = False
    ) -> Loss:
        if self.width is not None and not again:
            return self
        n, tau = len(residual), self.quantile
        rule = np.sqrt(tau * (1 - tau)) * ((n_features + np.log(max(n, 2))) / n) ** 0.4
        # By quartiles, as quantiles are asked for where tails are heavy.
        ends = [QuantileLoss(q).null_mean(residual, weight) for q in (0.25, 0.75)]
        spread = (ends[1] - ends[0]) / 1.35 or float(np.ptp(residual)) or 1.0
        return QuantileLoss(tau, max(0.05, float(rule)) / 1.8 * spread)

    def stages(self) -> list[Loss]:
        """From a wide corner to the final one, where Newton steps from afar would fail."""
        return [QuantileLoss(self.quantile, self.width * factor) for factor in (16.0, 4.0, 1.0)]

    def evaluate(self, y: Vector, eta: Vector) -> tuple[Vector, Vector]:
        z = (eta - y) / self.width
        value = self.width * (np.logaddexp(0.0, z) - self.quantile * z)
        return value, expit(z) - self.quantile

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        share = expit((eta - y) / self.width)
        return share * (1.0 - share) / self.width


# Beyond it amounts a few times the mean count for nothing; 3 is the inverse Gaussian.
MOST_POWER = 3.0
# Family → variance power, canonical link (other than log for Tweedie, and not offered), default.
_POWERS: dict[str, tuple[float | None, str | None, str]] = {
    "normal": (0.0, "identity", "identity"),
    "poisson": (1.0, "log", "log"),
    "gamma": (2.0, "inverse", "log"),
    "inverse_gaussian": (3.0, "inverse_squared", "log"),
    "tweedie": (None, None, "log"),
}
FAMILIES = (*_POWERS, "binomial", "quantile")
SQUARED = PowerLoss("squared", 0.0, LINKS["identity"])
R2 = SQUARED.accuracy


def accuracy_of(estimator: Any) -> Accuracy:
    """The accuracy that an estimator names, R² for one that names none."""
    accuracy = getattr(estimator, "accuracy", None)
    return accuracy if isinstance(accuracy, Accuracy) else R2


def get_loss(
    family: Any, link: str | None = None, power: float = 1.5, quantile: float = 0.5
) -> Loss:
    """The loss of a family by name, or a :class:`Loss` as it is.

    Parameters
    ----------
    family : str or Loss
    link : str, optional
        "canonical", or the name of one; the family's default when left out.
    power : float
        Of "tweedie".
    quantile : float
        Of "quantile".
    """
    if isinstance(family, Loss):
        if link is not None:
            raise ValueError(f"`link` must be None for a loss that has its own, got {link!r}.")
        return family
    name = family.replace(" ", "_").replace("-", "_").lower() if isinstance(family, str) else ""
    if name not in FAMILIES:
        raise ValueError(
            f"`family` must be one of {', '.join(FAMILIES)}, or a Loss, got {family!r}."
        )
    if name == "binomial":
        _check_link(name, link, ("canonical", "logit"))
        return BinomialLoss()
    if name == "quantile":
        _check_link(name, link, ("canonical", "identity"))
        if not is_number(quantile) or not 0 < float(quantile) < 1:
            raise InputError("quantile", f"lie between 0 and 1, got {quantile!r}")
        return QuantileLoss(quantile)
    p, canonical, default = _POWERS[name]
    if p is None:
        if not is_number(power) or not 1 <= float(power) <= MOST_POWER:
            raise InputError(
                "power", f"be a number between 1 and {MOST_POWER:g}, got {power!r}",
                hint="between 1 (Poisson) and 2 (gamma) the target may be zero or positive, as a "
                "pure premium is.",
            )  # fmt: skip
        p = float(power)
    allowed = ("log",) if canonical is None else ("canonical", canonical, "log")
    _check_link(name, link, tuple(dict.fromkeys(allowed)))
    chosen = {None: default, "canonical": canonical}.get(link, link)
    return PowerLoss(name.replace("_", " "), p, LINKS[str(chosen)])


def _check_link(family: str, link: Any, allowed: tuple[str, ...]) -> None:
    if link is not None and link not in allowed:
        raise ValueError(
            f"`link` must be None or one of {', '.join(allowed)} for family={family!r}, got "
            f"{link!r}."
        )
