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
from numpy.typing import NDArray
from scipy.special import stdtrit

from .._core.arrays import Vector
from .._core.frames import json_safe, to_frame
from .._core.views import view
from ..data.groups import Groups
from ..data.sample import Sample
from ..data.weights import mean_one
from ..measures.losses import Loss, get_loss
from ..measures.measures import critical_value, standard_error
from .group_tables import AuditedRows, GroupMoments
from .impact import impact_table

LOSSES = ("poisson", "gamma", "tweedie", "normal")
BANDS = 5


@dataclass(frozen=True)
class Pricing:
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

    def __str__(self) -> str:
        return view("describe_pricing")(self)


def read_loss(loss: Any, power: Any, y: Any) -> Loss | None:
    """The loss by its name; None where none is asked for."""
    if loss is None:
        return None
    if loss not in LOSSES:
        raise ValueError(f"`loss` must be None or one of {', '.join(LOSSES)}, got {loss!r}.")
    if y is None:
        raise ValueError("`loss` must be None without `y_true`: there is nothing to compare with.")
    # Only means are compared, so that the link does not matter; exposures ask for this one.
    found = get_loss(loss, "log", power)
    try:
        found.check_target(y)
    except ValueError as error:
        text = str(error).replace("`y` must", "`y_true` must").replace("family=", "loss=")
        raise ValueError(text) from None
    return found


def exposed(groups: Groups, exposure: Vector | None) -> Groups:
    """The same groups with units of exposure for rows; `exposure` is over all rows."""
    if exposure is None:
        return groups
    known = groups.take_known(exposure)
    weight = known if groups.weight is None else groups.weight * known
    return replace(groups, weight=mean_one(weight))


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
    rate, s, groups, exposure = rows.target, rows.scores, rows.groups, rows.exposure
    assert rate is not None
    weight = np.ones(len(s)) if groups.weight is None else groups.weight
    size = np.ones(len(s)) if exposure is None else exposure
    actual, expected = rate * size, s * size
    found = _explained(rate, s, weight, size, groups, loss, confidence_level)
    deviance = found.pop("_rows")
    whole = _cells(_everyone(groups), weight, np.zeros(len(s), dtype=np.intp), 1, actual, expected)
    exact = loss is not None and loss.name == "poisson" and groups.cluster is None
    ends = _with_ends(whole, confidence_level, exact and groups.weight is None)
    units = groups if exposure is None else replace(groups, weight=mean_one(weight * size))
    return Pricing(
        loss="" if loss is None else loss.name,
        power=math.nan if loss is None else float(getattr(loss, "power", math.nan)),
        **found,
        has_exposure=exposure is not None,
        actual_expected=(float(ends["value"][0]), float(ends["low"][0]), float(ends["high"][0])),
        confidence_level=confidence_level,
        **_tables(
            units, groups, weight, size, actual, expected, deviance, rate, s, confidence_level,
            reference, exact and groups.weight is None,
        ),
    )  # fmt: skip


def _explained(
    rate: Vector, s: Vector, weight: Vector, size: Vector, groups: Groups, loss: Loss | None,
    level: float,
) -> dict[str, Any]:  # fmt: skip
    """Deviances and D² with its error; D² is not defined where a prediction has no deviance."""
    nothing = {
        "deviance": math.nan, "null_deviance": math.nan, "d2": math.nan, "d2_stderr": math.nan,
        "d2_interval": (math.nan, math.nan), "n_not_positive": 0, "_rows": None,
    }  # fmt: skip
    if loss is None:
        return nothing
    y, by_loss = loss.per_unit(rate * size, weight, size)
    rows = by_loss * loss.deviance(y, s)
    null = by_loss * loss.deviance(y, np.asarray(loss.null_mean(y, by_loss), dtype=np.float64))
    total = float(weight.sum())
    bad = int(np.count_nonzero(s <= 0)) if loss.lower == 0 else 0
    found = {
        "deviance": float(rows.sum()) / total,
        "null_deviance": float(null.sum()) / total,
        "n_not_positive": bad,
        "_rows": rows,
    }
    if not np.isfinite(rows).all() or not null.sum() > 0:
        return nothing | found
    value, psi = loss.accuracy.influence(y, s, by_loss)
    error = standard_error(psi, by_loss, groups.cluster)
    half = critical_value(level, psi, replace(_everyone(groups), weight=by_loss)) * error
    return found | {"d2": value, "d2_stderr": error, "d2_interval": (value - half, value + half)}


def _everyone(groups: Groups) -> Groups:
    one = np.zeros(groups.n_known, dtype=np.intp)
    return Groups(
        ("all",), one, None, groups.weight, None, groups.n_known, cluster=groups.cluster
    )  # fmt: skip


def _cells(
    groups: Groups, weight: Vector, band: NDArray[np.intp], n_bands: int, actual: Vector,
    expected: Vector,
) -> dict[str, Vector]:  # fmt: skip
    """Sums by group and band, (K, B) each, with the variance of log A/E and independent units."""
    K, code, soft = groups.n_groups, groups.codes, groups.probabilities
    shape = (K, n_bands)
    a = _sums(groups, band, n_bands, weight * actual)
    e = _sums(groups, band, n_bands, weight * expected)
    count = _sums(groups, band, n_bands, np.ones(len(weight)))
    variance, units = np.zeros(shape), count.copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        if code is not None:
            psi = weight * (actual / a[code, band] - expected / e[code, band])
            if groups.cluster is None:
                variance = _sums(groups, band, n_bands, psi * psi)
            else:
                from scipy.sparse import coo_array

                cell = code * n_bands + band
                sums = coo_array(
                    (psi, (groups.cluster, cell)), shape=(groups.n_units, K * n_bands)
                ).tocsc()
                sums.sum_duplicates()
                units = np.diff(sums.indptr).astype(np.float64).reshape(shape)
                variance = np.asarray(sums.multiply(sums).sum(axis=0)).reshape(shape)
        else:
            assert soft is not None
            for b in range(n_bands):
                at = np.flatnonzero(band == b)
                moves = (weight[at, None] * soft[at]) * (
                    actual[at, None] / a[:, b] - expected[at, None] / e[:, b]
                )
                if groups.cluster is not None:
                    from ..data.clusters import cluster_groups

                    moves = cluster_groups(groups.cluster[at], moves)
                variance[:, b] = np.square(moves).sum(axis=0)
        variance = variance * np.where(units > 1, units / (units - 1), np.nan)
    return {"n": count, "actual": a, "expected": e, "variance": variance, "units": units}


def _sums(groups: Groups, band: NDArray[np.intp], n_bands: int, x: Vector) -> Vector:
    """Σ x by group and band, (K, B)."""
    shape = (groups.n_groups, n_bands)
    if groups.codes is not None:
        cell = groups.codes * n_bands + band
        return np.bincount(cell, x, shape[0] * n_bands).astype(np.float64).reshape(shape)
    assert groups.probabilities is not None
    out = np.zeros(shape)
    for b in range(n_bands):
        at = band == b
        out[:, b] = x[at] @ groups.probabilities[at]
    return out


def _with_ends(cells: dict[str, Vector], level: float, exact: bool) -> dict[str, Vector]:
    """A/E with an interval on the log scale; of no claims at all, that of a Poisson count."""
    a, e = cells["actual"].ravel(), cells["expected"].ravel()
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where((e > 0) & (a >= 0), a / e, np.nan)
        freedom = np.maximum(cells["units"].ravel() - 1.0, 1.0)
        half = stdtrit(freedom, 0.5 + level / 2) * np.sqrt(cells["variance"].ravel())
        low, high = value * np.exp(-half), value * np.exp(half)
    none = value == 0
    low[none] = 0.0
    high[none] = -math.log((1 - level) / 2) / e[none] if exact else np.nan
    return {"value": value, "low": low, "high": high}


def _band_of(s: Vector, weight: Vector) -> tuple[NDArray[np.intp], Vector]:
    """Band of each row, equal scores together, and the least score of each band and the largest."""
    order = np.argsort(s, kind="stable")
    below = np.cumsum(weight[order])
    places = np.searchsorted(below, below[-1] * np.arange(1, BANDS) / BANDS * (1 - 1e-12))
    cuts = np.unique(s[order[np.minimum(places, len(s) - 1)]])
    band = np.searchsorted(cuts, s, side="left")
    kept, band = np.unique(band, return_inverse=True)
    starts = [float(s[band == b].min()) for b in range(len(kept))]
    return band.astype(np.intp), np.array([*starts, float(s.max())])


def _tables(
    units: Groups, groups: Groups, weight: Vector, size: Vector, actual: Vector, expected: Vector,
    deviance: Vector | None, rate: Vector, s: Vector, level: float, reference: Any, exact: bool,
) -> dict[str, Any]:  # fmt: skip
    one = np.zeros(len(s), dtype=np.intp)
    labels = list(groups.label_names)
    by_group = _cells(groups, weight, one, 1, actual, expected)
    ends = _with_ends(by_group, level, exact)
    spent = _sums(groups, one, 1, weight * size)[:, 0]
    moments = AuditedRows(Sample(units, s, rate)).moments((), "high")
    gaps = {"score": moments, "target": _swapped(moments)}
    impacts = {
        name: impact_table(m, reference=reference, at=(), confidence_level=level)
        for name, m in gaps.items()
    }
    ref = impacts["score"].reference
    columns: dict[str, list[Any]] = {
        "group": labels,
        "n": by_group["n"][:, 0].tolist(),
        "exposure": spent.tolist(),
        "actual": by_group["actual"][:, 0].tolist(),
        "expected": by_group["expected"][:, 0].tolist(),
        "actual_expected": ends["value"].tolist(),
        "actual_expected_low": ends["low"].tolist(),
        "actual_expected_high": ends["high"].tolist(),
        "mean_score": (by_group["expected"][:, 0] / spent).tolist(),
        "mean_target": (by_group["actual"][:, 0] / spent).tolist(),
    }
    for name, found in impacts.items():
        numbers = [None if g == ref else found.get("mean_ratio", g) for g in labels]
        for end, key in (("", "value"), ("_low", "low"), ("_high", "high")):
            columns[f"log_ratio_{name}{end}"] = [
                0.0 if n is None else _log(getattr(n, key)) for n in numbers
            ]
    if deviance is not None:
        people = _sums(groups, one, 1, weight)[:, 0]
        columns["deviance"] = (_sums(groups, one, 1, deviance)[:, 0] / people).tolist()
    band, edges = _band_of(s, weight * size)
    n_bands = len(edges) - 1
    cells = _cells(groups, weight, band, n_bands, actual, expected)
    both = _with_ends(cells, level, exact)
    spent = _sums(groups, band, n_bands, weight * size).ravel()
    K = len(labels)
    bands: dict[str, list[Any]] = {
        "group": [g for g in labels for _ in range(n_bands)],
        "band": list(range(1, n_bands + 1)) * K,
        "score_low": edges[:-1].tolist() * K,
        "score_high": [float(s[band == b].max()) for b in range(n_bands)] * K,
        "n": cells["n"].ravel().tolist(),
        "exposure": spent.tolist(),
        "actual": cells["actual"].ravel().tolist(),
        "expected": cells["expected"].ravel().tolist(),
        "actual_expected": both["value"].tolist(),
        "actual_expected_low": both["low"].tolist(),
        "actual_expected_high": both["high"].tolist(),
    }
    return {"reference": ref, "_groups": columns, "_bands": bands}


def _swapped(moments: GroupMoments) -> GroupMoments:
    """The target in the place of the score, for the same contrasts of it."""
    other = {"score": "target", "target": "score"}
    return replace(moments, names=tuple(other.get(name, name) for name in moments.names))


def _log(value: float) -> float:
    return math.log(value) if value > 0 else math.nan if value != value else -math.inf
