"""A score as a price: deviance explained, actual over expected, by group and by band of the score.

    D²  = 1 − Σ ω d(y, e·s) / Σ ω d(y, e·r₀)        e exposure, s rate, r₀ the best constant rate
    A/E = Σ ω y / Σ ω e·s                            of a group, or of a group within a band
    log-ratio gap = log s̄_k − log s̄_r                s̄ = Σ ω e·s / Σ ω e, and the same of y

Bands are fifths of the score by exposure, the same for all groups. Var(log A/E) is the sum over
rows, or clusters, of (ω(y/A − e·s/E))².
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import stdtrit

from .._core.arrays import Rows, Vector
from .._core.frames import json_safe, to_frame
from .._core.validation import InputError
from .._core.views import Shown, view
from ..data.groups import Groups
from ..data.sample import Sample
from ..data.weights import cluster_groups
from ..measures.losses import Loss, get_loss
from ..measures.measures import critical_value, standard_error
from .group_tables import AuditedRows, GroupMoments
from .impact import impact_table

LOSSES = ("poisson", "gamma", "tweedie", "normal")
BANDS = 5


@dataclass(frozen=True)
class Pricing(Shown):
    """What an actuary asks of a score; see :func:`audit` with `loss` or `exposure`.

    Attributes
    ----------
    loss : str
        Whose deviance is measured, "" where none was asked for; `power` is its variance power.
    deviance, null_deviance : float
        Mean deviance of a row under the score, and under the best constant; infinite where a
        prediction is one that the loss has no place for.
    d2, d2_stderr, d2_interval
        Share of the deviance that the score explains.
    n_not_positive : int
        Predictions of zero or less, for which a deviance other than the normal one is not defined.
    has_exposure : bool
        Whether amounts are totals over an exposure, and scores rates.
    reference : str
        The group that log-ratio gaps are against.
    actual_expected : (float, float, float)
        Of all rows, with its interval.
    confidence_level : float
    """

    loss: str
    power: float
    deviance: float
    null_deviance: float
    d2: float
    d2_stderr: float
    d2_interval: tuple[float, float]
    n_not_positive: int
    has_exposure: bool
    reference: str
    actual_expected: tuple[float, float, float]
    confidence_level: float
    _groups: dict[str, list[Any]]
    _bands: dict[str, list[Any]]

    @property
    def groups(self) -> Any:
        """One row per group: exposure, actual, expected, their ratio, gaps (a data frame)."""
        return to_frame(self._groups)

    @property
    def bands(self) -> Any:
        """One row per group and band of the score (a data frame)."""
        return to_frame(self._bands)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values that JSON can hold."""
        held = {name: value for name, value in vars(self).items() if name[0] != "_"}
        return json_safe({**held, "groups": self._groups, "bands": self._bands})

    def plot(self) -> Any:
        """A Matplotlib figure: actual over expected in each band, one line a group."""
        return view("plot_pricing")(self)


def read_loss(loss: Any, power: Any, y: Any) -> Loss | None:
    """The loss by its name; None where none is asked for."""
    if loss is None:
        return None
    if loss not in LOSSES:
        raise InputError("loss", f"be None or one of {', '.join(LOSSES)}, got {loss!r}")
    if y is None:
        raise InputError("loss", "be None without a target: there is nothing to compare with")
    # Only means are compared, so that the link does not matter; exposures ask for this one.
    named = get_loss(loss, "log", power)
    named.check_target(y, "y_true", "loss")
    return named


def price(
    rows: Sample, loss: Loss | None, confidence_level: float, reference: Any = "largest"
) -> Pricing:
    """The numbers of :class:`Pricing`.

    Parameters
    ----------
    rows : Sample
        Those with a known group, the weights of people, and targets per unit of exposure.
    loss : Loss or None
    confidence_level : float
    reference : label or "largest"
    """
    groups = rows.groups
    # Of no claims at all a Poisson count has an interval, if rows count alike.
    exact = loss is not None and loss.name == "poisson" and groups.cluster is groups.weight is None
    ledger = _Ledger(rows, groups, confidence_level, exact)
    everyone = replace(ledger, groups=_everyone(groups)).columns(*ledger.one_band)
    explained = _explained(ledger, loss)
    deviance = explained.pop("_rows")
    reference, columns = _group_table(ledger, reference, deviance)
    return Pricing(
        loss="" if loss is None else loss.name,
        power=math.nan if loss is None else float(getattr(loss, "power", math.nan)),
        **explained,
        has_exposure=rows.exposure is not None,
        actual_expected=tuple(
            everyone[f"actual_expected{end}"][0] for end in ("", "_low", "_high")
        ),
        confidence_level=confidence_level,
        reference=reference,
        _groups=columns,
        _bands=_band_table(ledger),
    )


@dataclass(frozen=True)
class _Ledger:
    """What was charged and what happened, to be added up by group and band."""

    rows: Sample
    groups: Groups
    level: float
    exact: bool

    @cached_property
    def size(self) -> Vector:
        """Exposure, or ones."""
        return np.ones(self.rows.n_rows) if self.rows.exposure is None else self.rows.exposure

    @cached_property
    def amounts(self) -> tuple[Vector, Vector]:
        """Actual and expected."""
        assert self.rows.target is not None
        return self.rows.target * self.size, self.rows.scores * self.size

    @property
    def one_band(self) -> tuple[Rows, int]:
        return np.zeros(self.rows.n_rows, dtype=np.intp), 1

    def sums(self, x: Vector, band: Rows, n_bands: int) -> Vector:
        """Σ x by group and band, (K, B)."""
        shape = (self.groups.n_groups, n_bands)
        if self.groups.codes is not None:
            cell = self.groups.codes * n_bands + band
            return np.bincount(cell, x, shape[0] * n_bands).astype(np.float64).reshape(shape)
        out = np.zeros(shape)
        for b in range(n_bands):
            at = band == b
            out[:, b] = x[at] @ self.groups.membership()[at]
        return out

    def columns(self, band: Rows, n_bands: int) -> dict[str, list[Any]]:
        """Rows, exposure, actual, expected and A/E with its ends, by group and band.

        Intervals are on the log scale; where nothing happened, that of a Poisson count.
        """
        weight = self.groups.row_weight
        actual, expected = (weight * x for x in self.amounts)
        n = self.sums(np.ones(len(weight)), band, n_bands)
        a, e = (self.sums(x, band, n_bands) for x in (actual, expected))
        variance, units = self._variance(a, e, n, band, n_bands)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.where((e > 0) & (a >= 0), a / e, np.nan)
            freedom = np.maximum(units - 1.0, 1.0)
            half = stdtrit(freedom, 0.5 + self.level / 2) * np.sqrt(variance)
            low, high = value * np.exp(-half), value * np.exp(half)
        none = value == 0
        low[none] = 0.0
        high[none] = -math.log((1 - self.level) / 2) / e[none] if self.exact else np.nan
        spent = self.sums(weight * self.size, band, n_bands)
        table = {
            "n": n, "exposure": spent, "actual": a, "expected": e, "actual_expected": value,
            "actual_expected_low": low, "actual_expected_high": high,
        }  # fmt: skip
        return {name: values.ravel().tolist() for name, values in table.items()}

    def _variance(
        self, a: Vector, e: Vector, count: Vector, band: Rows, n_bands: int
    ) -> tuple[Vector, Vector]:
        """Variance of log A/E and independent units, by group and band."""
        groups, weight, (actual, expected) = self.groups, self.groups.row_weight, self.amounts
        variance, units, code = np.zeros(a.shape), count.copy(), groups.codes
        with np.errstate(divide="ignore", invalid="ignore"):
            if code is not None:
                psi = weight * (actual / a[code, band] - expected / e[code, band])
                if groups.cluster is None:
                    variance = self.sums(psi * psi, band, n_bands)
                else:
                    from scipy.sparse import coo_array

                    place = (groups.cluster, code * n_bands + band)
                    sums = coo_array((psi, place), shape=(groups.n_units, a.size)).tocsc()
                    sums.sum_duplicates()
                    units = np.diff(sums.indptr).astype(np.float64).reshape(a.shape)
                    variance = np.asarray(sums.multiply(sums).sum(axis=0)).reshape(a.shape)
            else:
                for b in range(n_bands):
                    at = np.flatnonzero(band == b)
                    ratio = actual[at, None] / a[:, b] - expected[at, None] / e[:, b]
                    moves = weight[at, None] * groups.membership()[at] * ratio
                    if groups.cluster is not None:
                        moves = cluster_groups(groups.cluster[at], moves)
                    variance[:, b] = np.square(moves).sum(axis=0)
            return variance * np.where(units > 1, units / (units - 1), np.nan), units


def _explained(ledger: _Ledger, loss: Loss | None) -> dict[str, Any]:
    """Deviances and D² with its error; D² is not defined where a prediction has no deviance."""
    explained: dict[str, Any] = {
        "deviance": math.nan, "null_deviance": math.nan, "d2": math.nan, "d2_stderr": math.nan,
        "d2_interval": (math.nan, math.nan), "n_not_positive": 0, "_rows": None,
    }  # fmt: skip
    if loss is None:
        return explained
    s, groups, weight = ledger.rows.scores, ledger.groups, ledger.groups.row_weight
    y, by_loss = loss.per_unit(ledger.amounts[0], weight, ledger.size)
    rows = by_loss * loss.deviance(y, s)
    null = by_loss * loss.deviance(y, np.asarray(loss.null_mean(y, by_loss), dtype=np.float64))
    total = float(weight.sum())
    explained |= {
        "deviance": float(rows.sum()) / total,
        "null_deviance": float(null.sum()) / total,
        "n_not_positive": int(np.count_nonzero(s <= 0)) if loss.lower == 0 else 0,
        "_rows": rows,
    }
    if np.isfinite(rows).all() and null.sum() > 0:
        value, psi = loss.accuracy.influence(y, s, by_loss)
        error = standard_error(psi, by_loss, groups.cluster)
        half = critical_value(ledger.level, psi, replace(_everyone(groups), weight=by_loss)) * error
        explained |= {"d2": value, "d2_stderr": error, "d2_interval": (value - half, value + half)}
    return explained


def _everyone(groups: Groups) -> Groups:
    one = np.zeros(groups.n_known, dtype=np.intp)
    return replace(groups, labels=("all",), codes=one, probabilities=None, measured=None)


def _band_of(s: Vector, weight: Vector) -> tuple[Rows, Vector]:
    """Band of each row, equal scores together, and the least score of each band and the largest."""
    order = np.argsort(s, kind="stable")
    below = np.cumsum(weight[order])
    places = np.searchsorted(below, below[-1] * np.arange(1, BANDS) / BANDS * (1 - 1e-12))
    cuts = np.unique(s[order[np.minimum(places, len(s) - 1)]])
    band = np.searchsorted(cuts, s, side="left")
    kept, band = np.unique(band, return_inverse=True)
    starts = [float(s[band == b].min()) for b in range(len(kept))]
    return band.astype(np.intp), np.array([*starts, float(s.max())])


def _group_table(
    ledger: _Ledger, reference: Any, deviance: Vector | None
) -> tuple[str, dict[str, list[Any]]]:
    """One row per group, and the group that log-ratio gaps are against."""
    rows, groups = ledger.rows, ledger.groups
    columns: dict[str, list[Any]] = {"group": list(groups.label_names)}
    columns |= ledger.columns(*ledger.one_band)
    spent = np.array(columns["exposure"])
    columns["mean_score"] = (np.array(columns["expected"]) / spent).tolist()
    columns["mean_target"] = (np.array(columns["actual"]) / spent).tolist()
    moments = AuditedRows(rows.by_exposure()).moments((), "high")
    for name, m in (("score", moments), ("target", _swapped(moments))):
        impact = impact_table(m, reference=reference, at=(), confidence_level=ledger.level)
        reference = impact.reference
        numbers = [None if g == reference else impact.get("mean_ratio", g) for g in impact.groups]
        for end, key in (("", "value"), ("_low", "low"), ("_high", "high")):
            columns[f"log_ratio_{name}{end}"] = [
                0.0 if n is None else _log(getattr(n, key)) for n in numbers
            ]
    if deviance is not None:
        by_group, people = (
            ledger.sums(x, *ledger.one_band)[:, 0] for x in (deviance, groups.row_weight)
        )
        columns["deviance"] = (by_group / people).tolist()
    return reference, columns


def _band_table(ledger: _Ledger) -> dict[str, list[Any]]:
    """One row per group and band."""
    s, groups = ledger.rows.scores, ledger.groups
    band, edges = _band_of(s, groups.row_weight * ledger.size)
    n_bands, K = len(edges) - 1, groups.n_groups
    return {
        "group": [g for g in groups.label_names for _ in range(n_bands)],
        "band": list(range(1, n_bands + 1)) * K,
        "score_low": edges[:-1].tolist() * K,
        "score_high": [float(s[band == b].max()) for b in range(n_bands)] * K,
        **ledger.columns(band, n_bands),
    }


def _swapped(moments: GroupMoments) -> GroupMoments:
    """The target in the place of the score, for the same contrasts of it."""
    other = {"score": "target", "target": "score"}
    return replace(moments, names=tuple(other.get(name, name) for name in moments.names))


def _log(value: float) -> float:
    return math.log(value) if value > 0 else math.nan if value != value else -math.inf
