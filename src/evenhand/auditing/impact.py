"""The supervisor's table: each group against a reference, in the numbers that practice asks for.

    standardized mean difference   (s̄_k − s̄_r) / √((σ_k² + σ_r²)/2)
    difference and ratio of means  s̄_k − s̄_r,  s̄_k / s̄_r
    actual over expected           Σy / Σs of the group
    impact ratio                   P_k(favorable) / P_r(favorable), beyond a cutoff
    odds ratio                     the same of the odds

Each is a smooth function of group means (:mod:`.group_moments`), so one covariance serves all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from .._core.arrays import Matrix, Vector
from .._core.frames import json_safe, tabulate, to_frame
from .._core.views import Shown
from .group_tables import SIDES, AuditedRows, Cutoff, GroupMoments
from .influence import find_reference, holm, simultaneous_quantile, two_sided

# ------------------------------------------------------------------------------------------------
# Groups against a reference: the numbers, their covariance, and what many of them ask for.
#
# Each number is a smooth function g of the means of its group and of the reference, so that by the
# delta method Cov = G Σ Gᵀ with G its slopes and Σ the covariance of the means.


# Numbers of the table, in its order: whether at cutoffs, on a log scale, and in words.
STATISTICS = {
    "smd": "standardized mean difference",
    "mean_difference": "difference of means",
    "mean_ratio": "ratio of means",
    "actual_expected": "actual over expected",
    "actual_expected_ratio": "actual over expected, against the reference",
    "impact_ratio": "impact ratio",
    "odds_ratio": "odds ratio",
}
# Clauses of a tolerance on the gaps that legitimate factors leave, by the gap they are on.
ADJUSTED = {"adjusted_gap": "adjusted", "adjusted_percent": "adjusted_percent"}
AT_CUTOFF = ("impact_ratio", "odds_ratio")
NEED_TARGET = ("actual_expected", "actual_expected_ratio")
ON_LOG = ("mean_ratio", "actual_expected", "actual_expected_ratio", "impact_ratio", "odds_ratio")


@dataclass(frozen=True)
class Contrasts:
    """One number of every group: estimates, their covariance, shown values, degrees of freedom."""

    estimate: Vector
    covariance: Matrix
    shown: Vector
    freedom: Vector


def _log(x: Any) -> Any:
    return np.log(np.where(np.real(x) >= 0.0, x, np.nan))


def _odds(x: Any) -> Any:
    return _log(x) - _log(1.0 - x)


# The means that a number is made of, and the number of those of a group, x, and of the reference,
# r. Formulas take complex numbers too, so that slopes come from a step along the imaginary axis.
_FORMULAS: dict[str, tuple[tuple[str, ...], Callable[[Any, Any], Any]]] = {
    "smd": (("score", "spread"), lambda x, r: (x[0] - r[0]) / np.sqrt((x[1] + r[1]) / 2)),
    "mean_difference": (("score",), lambda x, r: x[0] - r[0]),
    "mean_ratio": (("score",), lambda x, r: _log(x[0]) - _log(r[0])),
    "actual_expected": (("target", "score"), lambda x, r: _log(x[0]) - _log(x[1])),
    "actual_expected_ratio": (
        ("target", "score"),
        lambda x, r: (_log(x[0]) - _log(x[1])) - (_log(r[0]) - _log(r[1])),
    ),
    "impact_ratio": (("rate",), lambda x, r: _log(x[0]) - _log(r[0])),
    "odds_ratio": (("rate",), lambda x, r: _odds(x[0]) - _odds(r[0])),
}
_STEP = 1e-30


def contrasts(
    m: GroupMoments, statistic: str, ref: int, cutoff: Cutoff | None, favorable: str
) -> Contrasts:
    """Estimates and covariance by the delta method, gradients G: Cov = G Σ Gᵀ.

    Degrees of freedom are Welch's: (V_k + V_r)² / (V_k²/(n_k − 1) + V_r²/(n_r − 1)) with the part
    of each of the two groups, and no more than there are units in all less one.
    """
    K = len(m.labels)
    used, formula = _FORMULAS[statistic]
    places = [m.names.index((cutoff, favorable) if name == "rate" else name) for name in used]
    shown = x = m.mean[places]
    sigma = m.covariance[np.ix_(places, range(K), places, range(K))].copy()
    if statistic in AT_CUTOFF:
        x, sigma = _off_the_edge(x, sigma, m.size)
    steps = 1j * _STEP * np.eye(len(places))[:, :, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate, raw = formula(x, x[:, [ref]]), formula(shown, shown[:, [ref]])
        own = np.array([formula(x + step, x[:, [ref]]).imag for step in steps]) / _STEP
        other = np.array([np.imag(formula(x, x[:, [ref]] + step)) for step in steps]) / _STEP
        other = np.broadcast_to(other, own.shape)
        gradient = np.zeros((K, len(places), K))
        gradient[range(K), :, range(K)] += own.T
        gradient[:, :, ref] += other.T
        flat = gradient.reshape(K, -1)
        covariance = flat @ np.nan_to_num(sigma.reshape(flat.shape[1], -1), nan=0.0) @ flat.T
        # A group of one row has no variance to be known by, nor has what is compared with it.
        bad = np.isnan(np.einsum("jkjk->k", sigma))
        lost = bad | (bad[ref] & other.any())
        covariance[lost] = covariance[:, lost] = np.nan
        parts = np.einsum("jk,jkmk,mk->k", np.nan_to_num(own), sigma, np.nan_to_num(own))
        base = np.nan_to_num(other)
        base = np.einsum("jk,jm,mk->k", base, sigma[:, ref, :, ref], base)
        freedom = np.maximum(m.size - 1.0, 1.0)
        doubt = parts**2 / freedom + base**2 / freedom[ref]
        freedom = np.where(doubt > 0, (parts + base) ** 2 / doubt, freedom)
        freedom = np.clip(freedom, 1.0, max(m.n_units - 1.0, 1.0))
    return Contrasts(estimate, covariance, raw, np.nan_to_num(freedom, nan=1.0))


def _off_the_edge(x: Matrix, sigma: Matrix, size: Vector) -> tuple[Matrix, Matrix]:
    """Rates of 0 and 1 as half a row of n + 1, which has a logarithm and an error."""
    edge = np.flatnonzero((x[0] <= 0.0) | (x[0] >= 1.0))
    if len(edge):
        x = x.copy()
        x[0, edge] = (size[edge] * x[0, edge] + 0.5) / (size[edge] + 1.0)
        sigma[0, edge, 0, edge] = x[0, edge] * (1.0 - x[0, edge]) / np.maximum(size[edge], 1.0)
    return x, sigma


# Groups of a smaller share are listed apart.
SMALLEST = 0.02


@dataclass(frozen=True)
class ImpactNumber:
    """One number of one group against the reference.

    Attributes
    ----------
    group, statistic : str
    at : str
        The cutoff ("median", "0.2"), or "".
    value, low, high : float
        With an interval that is simultaneous over the groups; NaN where not defined.
    p_value : float
        That the true value is the even one (0 of a difference, 1 of a ratio), by Holm's rule over
        the groups.
    apart : bool
        The group is small: its interval and p-value are its own, without regard to other groups.
    estimate, stderr, freedom : float
        Estimate (the logarithm of a ratio), its standard error and its degrees of freedom.
    """

    group: str
    statistic: str
    at: str
    value: float
    low: float
    high: float
    p_value: float
    apart: bool
    estimate: float
    stderr: float
    freedom: float

    @property
    def defined(self) -> bool:
        return math.isfinite(self.estimate) and math.isfinite(self.stderr)

    @property
    def differs(self) -> int:
        """Sign of a difference from the even value that the interval is sure of, else 0."""
        even = 1.0 if self.statistic in ON_LOG else 0.0
        return 1 if self.low > even else -1 if self.high < even else 0

    def interval(self, confidence_level: float) -> tuple[float, float]:
        """Of this number alone."""
        margin = float(stdtrit(self.freedom, 0.5 + confidence_level / 2)) * self.stderr
        ends = self.estimate - margin, self.estimate + margin
        return tuple(map(_exp, ends)) if self.statistic in ON_LOG else ends  # type: ignore[return-value]

    def errors_from(self, limit: float) -> float:
        """How many standard errors the estimate lies above a limit in units of the value."""
        if self.statistic in ON_LOG:
            limit = math.log(limit) if limit > 0 else -math.inf
        gap = self.estimate - limit
        return gap / self.stderr if self.stderr > 0 else math.copysign(math.inf, gap)


@dataclass(frozen=True)
class Impact(Shown):
    """The result of :meth:`Audit.impact`.

    Attributes
    ----------
    numbers : tuple of ImpactNumber
        By group, in the order of the table.
    groups : dict of str → dict
        Share, rows, mean score and share of favorable scores at each cutoff of each group.
    reference : str
        The group that the others are compared with.
    favorable : {"high", "low"}
    cutoffs : dict of str → float
        The score at each cutoff.
    apart : tuple of str
        Groups of a share below `smallest`.
    sensitive_name, n_clusters, confidence_level, smallest
    """

    numbers: tuple[ImpactNumber, ...]
    groups: dict[str, dict[str, Any]]
    reference: str
    favorable: str
    cutoffs: dict[str, float]
    apart: tuple[str, ...]
    sensitive_name: str
    n_clusters: int | None
    confidence_level: float
    smallest: float

    def get(self, statistic: str, group: str, at: str | None = None) -> ImpactNumber:
        """One number of the table; `at` may be left out where there is one cutoff."""
        for number in self.numbers:
            if (number.statistic, number.group) == (statistic, group) and at in (None, number.at):
                return number
        names = ", ".join(dict.fromkeys(n.statistic for n in self.numbers))
        raise KeyError(
            f"no {statistic!r} of {group!r}{'' if at is None else f' at {at}'}; there are {names} "
            f"of {', '.join(dict.fromkeys(n.group for n in self.numbers))}"
        )

    def standing(self, group: str) -> str:
        """Whether the group is "better off" or "worse off" than the reference, by mean scores."""
        if group == self.reference:
            return "reference"
        sign = self.get("mean_difference", group).differs
        if not sign:
            return "no clear difference"
        return "better off" if (sign > 0) == (self.favorable == "high") else "worse off"

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per group and number.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
        """
        return to_frame(self._columns(), backend)

    def _columns(self) -> dict[str, list[Any]]:
        keys = ("group", "statistic", "at", "value", "low", "high", "p_value", "stderr", "apart")
        return tabulate(self.numbers, *keys)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values that JSON can hold (undefined numbers are None)."""
        held = {key: value for key, value in vars(self).items() if key != "numbers"}
        return json_safe(
            {
                "format": "evenhand.impact",
                "version": 1,
                **held,
                "standing": {group: self.standing(group) for group in self.groups},
                "numbers": [dict(vars(number)) for number in self.numbers],
            }
        )


def impact_table(
    rows: AuditedRows | GroupMoments,
    *,
    reference: str = "largest",
    at: Sequence[Any] = ("median",),
    favorable: str = "high",
    cutoffs: Sequence[float] = (),
    smallest: float = SMALLEST,
    confidence_level: float = 0.95,
    sensitive_name: str = "group",
) -> Impact:
    """The table of :meth:`Audit.impact`, from the rows of an audit."""
    check_favorable(favorable)
    wanted = [*read_cutoffs(at), *(_known_cutoff(c) for c in _listed(cutoffs, "cutoffs"))]
    smallest = check_smallest(smallest)
    m = rows.moments(wanted, favorable)
    ref = _reference(m, reference, favorable, wanted)
    K = len(m.labels)
    small = m.share < smallest
    family = [k for k in range(K) if k != ref and not small[k]]
    numbers: dict[int, list[ImpactNumber]] = {k: [] for k in range(K)}
    for statistic in STATISTICS:
        if statistic in NEED_TARGET and not m.has_target:
            continue
        for cutoff in wanted if statistic in AT_CUTOFF else [None]:
            own = statistic == "actual_expected"
            each = contrasts(m, statistic, ref, cutoff, favorable)
            name = "" if cutoff is None else cutoff.name
            among = sorted([*family, ref]) if own else family
            for k, number in _with_intervals(m, each, statistic, name, among, confidence_level):
                if k != ref or own:
                    numbers[k].append(number)
    groups = {
        label: {
            "share": float(m.share[k]),
            "rows": float(m.count[k]),
            "size": float(m.size[k]),
            "mean_score": float(m.mean[m.names.index("score"), k]),
            "rates": {c.name: float(m.mean[m.names.index((c, favorable)), k]) for c in wanted},
        }
        for k, label in enumerate(m.labels)
    }
    return Impact(
        tuple(n for k in range(K) for n in numbers[k]), groups, m.labels[ref], favorable,
        {c.name: m.cutoffs[c] for c in wanted},
        tuple(label for k, label in enumerate(m.labels) if small[k]),
        sensitive_name, m.n_clusters, confidence_level, smallest,
    )  # fmt: skip


def _with_intervals(
    m: GroupMoments, c: Contrasts, statistic: str, at: str, family: list[int], level: float
) -> list[tuple[int, ImpactNumber]]:
    error = np.sqrt(np.diag(c.covariance))
    known = [k for k in family if math.isfinite(c.estimate[k]) and error[k] > 0]
    z = 0.0
    if known:
        spread = error[known]
        correlation = c.covariance[np.ix_(known, known)] / np.outer(spread, spread)
        z = simultaneous_quantile(correlation, level)
    alone = float(ndtri(0.5 + level / 2))
    plain = np.array(
        [two_sided(c.estimate[k], error[k], c.freedom[k]) for k in range(len(m.labels))]
    )
    adjusted = plain.copy()
    adjusted[family] = holm(plain[family])
    back = _exp if statistic in ON_LOG else float
    out = []
    for k, label in enumerate(m.labels):
        # The tail of the normal quantile, beyond Student's t of this number's own freedom.
        tail = float(ndtr(-(z if k in known else alone)))
        margin = -float(stdtrit(c.freedom[k], tail)) * error[k]
        center, value = float(c.estimate[k]), back(float(c.shown[k]))
        defined = math.isfinite(center) and math.isfinite(margin)
        out.append(
            (
                k,
                ImpactNumber(
                    label, statistic, at, value,
                    # A rate of 0 is moved off the edge for its error; the interval holds it still.
                    min(back(center - margin), value) if defined else math.nan,
                    max(back(center + margin), value) if defined else math.nan,
                    float(adjusted[k]), k not in family, center, float(error[k]),
                    float(c.freedom[k]),
                ),
            )
        )  # fmt: skip
    return out


def read_cutoffs(at: Any) -> list[Cutoff]:
    """ "median" and quantiles between 0 and 1, as cutoffs."""
    cutoffs = []
    for value in _listed(at, "at"):
        if value == "median":
            value = 0.5
        number = as_number(value)
        if not 0.0 < number < 1.0:
            raise ValueError(
                f'`at` must hold "median" or quantiles between 0 and 1, got {value!r}. Hint: a '
                "cutoff in units of the score goes into `cutoffs`."
            )
        cutoffs.append(Cutoff(quantile=number))
    return list(dict.fromkeys(cutoffs))


def check_favorable(favorable: Any) -> str:
    """One of "high" and "low"."""
    if favorable not in SIDES:
        raise ValueError(
            f'`favorable` must be "high" (a grade, a credit score) or "low" (a premium, a risk), '
            f"got {favorable!r}."
        )
    return str(favorable)


def check_smallest(smallest: Any) -> float:
    """A share from 0 to less than 1."""
    number = as_number(smallest)
    if not 0.0 <= number < 1.0:
        raise ValueError(f"`smallest` must be a share from 0 to less than 1, got {smallest!r}.")
    return number


def _known_cutoff(value: Any) -> Cutoff:
    number = as_number(value)
    if not math.isfinite(number):
        raise ValueError(f"`cutoffs` must hold finite scores, got {value!r}.")
    return Cutoff(value=number)


def _listed(value: Any, name: str) -> list[Any]:
    if isinstance(value, str | int | float):
        return [value]
    try:
        return list(value)
    except TypeError:
        raise ValueError(f"`{name}` must be a list, got {value!r}.") from None


def as_number(value: Any) -> float:
    """A number as a float; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return math.nan
    return float(value)


def _reference(m: GroupMoments, name: Any, favorable: str, wanted: Sequence[Cutoff]) -> int:
    if name != "best" or name in m.labels:
        return find_reference(name, m.labels, m.share, ", 'best'")
    key: Any = (wanted[0], favorable) if wanted else "score"
    sign = -1.0 if not wanted and favorable == "low" else 1.0
    able = m.share >= min(SMALLEST, m.share.max())
    return int(np.argmax(np.where(able, sign * m.mean[m.names.index(key)], -np.inf)))


def _exp(x: float) -> float:
    return math.inf if x >= 700.0 else math.exp(x)
