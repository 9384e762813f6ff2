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
from typing import Any

import numpy as np
from scipy.special import fdtrc, stdtrit

from .._core.arrays import Rows, Vector
from .._core.frames import json_safe, to_frame
from .._core.validation import InputError, is_one_of
from .._core.views import Shown
from ..data.groups import Groups
from ..data.sample import Sample
from ..measures.covariances import root_inverse
from ..measures.exact_tests import SINGULAR
from ..measures.losses import Loss, get_loss
from ..measures.measures import critical_value, standard_error
from .group_tables import AuditedRows
from .impact import SMALLEST, Comparison
from .influence import GroupRows, find_reference

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
    homogeneity : dict of {"groups", "bands"} → float
        p-value of the hypothesis that actual over expected is the same in all groups, and in all
        bands of the score.
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
    homogeneity: dict[str, float]
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


def read_loss(loss: Any, power: Any, y: Any) -> Loss:
    """The loss by its name."""
    if not is_one_of(loss, LOSSES):
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
    ledger = _Ledger(rows, confidence_level, exact)
    one_band = np.zeros(rows.n_rows, dtype=np.intp)
    everyone = _split(groups, one_band, 1, together=True)
    band, edges = _band_of(rows.scores, groups.row_weight * ledger.size)
    bands = _split(groups, band, len(edges) - 1, together=True)
    overall = ledger.columns(everyone)
    explained = _explained(ledger, loss, everyone)
    reference, columns = _group_table(ledger, reference, explained.pop("_rows"))
    return Pricing(
        loss="" if loss is None else loss.name,
        power=math.nan if loss is None else float(getattr(loss, "power", math.nan)),
        **explained,
        has_exposure=rows.exposure is not None,
        actual_expected=tuple(overall[f"actual_expected{end}"][0] for end in ("", "_low", "_high")),
        homogeneity={"groups": ledger.homogeneity(groups), "bands": ledger.homogeneity(bands)},
        confidence_level=confidence_level,
        reference=reference,
        _groups=columns,
        _bands=_band_table(ledger, band, edges),
    )


class _Ledger:
    """What was charged and what happened, to be added up by group and band."""

    def __init__(self, rows: Sample, level: float, exact: bool):
        self.rows, self.level, self.exact = rows, level, exact
        self.size = np.ones(rows.n_rows) if rows.exposure is None else rows.exposure
        # Actual and expected.
        self.amounts = rows.target * self.size, rows.scores * self.size

    def columns(self, groups: Groups) -> dict[str, list[Any]]:
        """Rows, exposure, actual, expected and A/E with its ends, by group.

        Intervals are on the log scale; where nothing happened, that of a Poisson count.
        """
        members = GroupRows(groups)
        a, e = (members.add(x) for x in self.amounts)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = members.mean(self.amounts[0]) / members.mean(self.amounts[1])
            value = np.where((e > 0) & (a >= 0), a / e, np.nan)
            freedom = np.maximum(members.size - 1.0, 1.0)
            half = stdtrit(freedom, 0.5 + self.level / 2) * ratio.stderr / np.abs(ratio.value)
            low, high = value * np.exp(-half), value * np.exp(half)
        none = value == 0
        low[none] = 0.0
        high[none] = -math.log((1 - self.level) / 2) / e[none] if self.exact else np.nan
        table = {
            "n": groups.counts, "exposure": members.add(self.size), "actual": a, "expected": e,
            "actual_expected": value, "actual_expected_low": low, "actual_expected_high": high,
        }  # fmt: skip
        return {name: values.tolist() for name, values in table.items()}

    def homogeneity(self, groups: Groups) -> float:
        """p-value of A_k = c·E_k for all groups, c = ΣA/ΣE, from what each row or cluster adds.

        U_k = Σ ω(y − c·e·s) of group k sums to 0 over groups; a unit adds its own part of it less
        the share E_k/ΣE of all it has. U'Cov⁺U follows Hotelling's distribution. No logarithm is
        taken, so that a group without claims counts like any other.
        """
        members = GroupRows(groups)
        # In units whose squares are finite; c has those of both.
        actual, expected = (v / (np.abs(v).max() or 1.0) for v in self.amounts)
        a, e = members.add(actual), members.add(expected)
        if not e.sum() > 0:
            return math.nan
        apart = actual - a.sum() / e.sum() * expected
        units = members.by_unit(apart if groups.codes is not None else apart[:, None])
        covariance = np.nan_to_num(members.covariance([units])[0, :, 0, :])
        covariance *= np.outer(members.total, members.total)
        project = np.eye(len(e)) - e / e.sum()
        root = root_inverse(project.T @ covariance @ project, SINGULAR)
        n, dof = groups.n_effective, root.shape[1]
        if not 0 < dof < n - 1:
            return math.nan
        statistic = float(np.square((a - a.sum() / e.sum() * e) @ root).sum())
        return float(fdtrc(dof, n - dof, statistic * (n - dof) / (dof * (n - 1))))


def _split(groups: Any, band: Rows, n_bands: int, together: bool = False) -> Groups:
    """Each group in each band as a group of its own, bands of a group next to one another."""
    codes, probabilities, K = groups.codes, groups.probabilities, groups.n_groups
    if together:
        codes, probabilities, K = band, None, 1
    elif probabilities is None:
        codes = groups.codes.astype(np.intp) * n_bands + band
    else:
        inside = band[:, None] == np.arange(n_bands)
        probabilities = (probabilities[:, :, None] * inside[:, None, :]).reshape(len(band), -1)
    labels = tuple(range(K * n_bands))
    return replace(groups, labels=labels, codes=codes, probabilities=probabilities, measured=None)


def _explained(ledger: _Ledger, loss: Loss | None, everyone: Groups) -> dict[str, Any]:
    """Deviances and D² with its error; D² is not defined where a prediction has no deviance."""
    explained: dict[str, Any] = {
        "deviance": math.nan, "null_deviance": math.nan, "d2": math.nan, "d2_stderr": math.nan,
        "d2_interval": (math.nan, math.nan), "n_not_positive": 0, "_rows": None,
    }  # fmt: skip
    if loss is None:
        return explained
    s, weight = ledger.rows.scores, everyone.row_weight
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
        error = standard_error(psi, by_loss, everyone.cluster)
        half = critical_value(ledger.level, psi, replace(everyone, weight=by_loss)) * error
        explained |= {"d2": value, "d2_stderr": error, "d2_interval": (value - half, value + half)}
    return explained


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
    rows, groups = ledger.rows, ledger.rows.groups
    columns: dict[str, list[Any]] = {"group": list(groups.label_names)}
    columns |= ledger.columns(groups)
    spent = np.array(columns["exposure"])
    columns["mean_score"] = (np.array(columns["expected"]) / spent).tolist()
    columns["mean_target"] = (np.array(columns["actual"]) / spent).tolist()
    m = AuditedRows(rows.by_exposure()).moments()
    ref = find_reference(reference, m.labels, m.share)
    compared = Comparison(m, ref, SMALLEST, ledger.level)
    for name in ("score", "target"):
        numbers = compared.numbers(f"mean_{name}_ratio" if name == "target" else "mean_ratio")
        for end, key in (("", "value"), ("_low", "low"), ("_high", "high")):
            values = [_log(getattr(n, key)) for n in numbers]
            columns[f"log_ratio_{name}{end}"] = [*values[:ref], 0.0, *values[ref:]]
    if deviance is not None:
        # Deviances have the weights of rows in them.
        plain = GroupRows(replace(groups, weight=None))
        columns["deviance"] = (plain.add(deviance) / plain.add(groups.row_weight)).tolist()
    return m.labels[ref], columns


def _band_table(ledger: _Ledger, band: Rows, edges: Vector) -> dict[str, list[Any]]:
    """One row per group and band."""
    s, groups = ledger.rows.scores, ledger.rows.groups
    n_bands, K = len(edges) - 1, groups.n_groups
    return {
        "group": [g for g in groups.label_names for _ in range(n_bands)],
        "band": list(range(1, n_bands + 1)) * K,
        "score_low": edges[:-1].tolist() * K,
        "score_high": [float(s[band == b].max()) for b in range(n_bands)] * K,
        **ledger.columns(_split(groups, band, n_bands)),
    }


def _log(value: float) -> float:
    return math.log(value) if value > 0 else math.nan if value != value else -math.inf
