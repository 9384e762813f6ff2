"""What changes from one model to another: criteria, residuals, scores, and what features tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np

from .._core.validation import check_column, check_index, read_native
from ..data.groups import Proxy, resolve_groups
from ..measures.functions import independence
from .group_tables import AuditedRows

if TYPE_CHECKING:
    from .result import Audit


WORSE, OVERLAP = "worse", "worse; the intervals overlap"
# Changes that would not show in the tables are none.
_LEAST = 5e-4


def criterion_changes(before: Audit, after: Audit) -> dict[str, list[Any]]:
    """Every criterion before and after, with a remark where it is worse."""
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("criterion", "before", "before_low", "before_high", "after", "after_low",
                     "after_high", "remark")
    }  # fmt: skip
    for name, old in before.measures.items():
        new = after.measures[name]
        overlap = old.interval[0] <= new.interval[1] and new.interval[0] <= old.interval[1]
        worse = new.shown - old.shown > _LEAST
        values = [name, old.shown, *old.interval, new.shown, *new.interval]
        values.append((OVERLAP if overlap else WORSE) if worse else "")
        for key, value in zip(columns, values, strict=True):
            columns[key].append(value)
    return columns


def residual_changes(before: Audit, after: Audit) -> dict[str, list[Any]]:
    """Outcome minus score of each group before and after; further from 0 is worse.

    The change is that of the mean score of the same people, whose error is far smaller than that of
    either residual: a remark is made where it is more than chance.
    """
    old, new = before._groups.columns, after._groups.columns
    columns: dict[str, list[Any]] = {"group": list(old["group"])}
    for when, source in (("before", old), ("after", new)):
        for end in ("", "_low", "_high"):
            columns[f"{when}{end}"] = list(source[f"mean_residual{end}"])
    error = _change_errors(before, after)
    columns["remark"] = [
        WORSE if abs(x) < abs(y) and not abs(y - x) <= 1.96 * e else ""
        for x, y, e in zip(columns["before"], columns["after"], error, strict=True)
    ]
    return columns


def _change_errors(before: Audit, after: Audit) -> list[float]:
    """Standard error of the mean change of score of each group."""
    first, second = before._rows, after._rows
    assert isinstance(first, AuditedRows)
    assert isinstance(second, AuditedRows)
    moments = first.change(second).moments((), "high")
    return np.sqrt(np.einsum("kk->k", moments.covariance[0, :, 0, :])).tolist()


def gains(
    before: Any, after: Any, sensitive_features: Any, sample_weight: Any = None
) -> dict[str, list[Any]]:
    """Columns group, n, mean, q05, q25, q50, q75, q95 of the change, and shares up and down."""
    check_index(
        before=before, after=after, sensitive_features=sensitive_features,
        sample_weight=sample_weight,
    )  # fmt: skip
    first = check_column(before, "before")
    change = check_column(after, "after", len(first)) - first
    groups = resolve_groups(
        sensitive_features, n_rows=len(first), sample_weight=sample_weight, require_two=False
    )
    change = groups.take_known(change)
    weight = groups.membership()
    if groups.weight is not None:
        weight = weight * groups.weight[:, None]
    order = np.argsort(change, kind="stable")
    # Changes far below the spread of the scores are rounding, not gains.
    tiny = 1e-9 * max(float(np.abs(first).max()), float(np.abs(change).max()), 1e-300)
    out: dict[str, list[Any]] = {"group": list(groups.label_names), "n": groups.counts.tolist()}
    for k in range(groups.n_groups):
        w = weight[:, k] / weight[:, k].sum()
        place = np.cumsum(w[order]) - 0.5 * w[order]
        q = np.interp([0.05, 0.25, 0.5, 0.75, 0.95], place, change[order])
        row = dict(zip(("q05", "q25", "q50", "q75", "q95"), q.tolist(), strict=True))
        row |= {"mean": float(w @ change), "gain": float(w @ (change > tiny))}
        row["loss"] = float(w @ (change < -tiny))
        for key, value in row.items():
            out.setdefault(key, []).append(value)
    return out


def gains_of(before: Audit, after: Audit, favorable: str | None = None) -> dict[str, list[Any]]:
    """Change of each person's score between two audits of the same rows, by group.

    "gain" is the share of those whose score rises, or falls if a low one is favorable.
    """
    pair = (before._sample, after._sample)
    if pair[0]["membership"] is None:
        # Numbers, not labels: two groups may print alike, and an empty label reads as missing. As
        # text of one length, which sorts like numbers and may be many.
        groups: Any = np.char.zfill(pair[0]["codes"].astype(str), 4)
    else:
        groups = Proxy(pair[0]["membership"])
    table = gains(pair[0]["s"], pair[1]["s"], groups, pair[0]["weight"])
    table["group"] = [before.labels[int(k)] for k in table["group"]]
    table["n"] = list(before._groups.columns["n"])
    if favorable == "low":
        table["gain"], table["loss"] = table["loss"], table["gain"]
    return table


def feature_information(
    X: Any, *, sensitive_features: Any, sample_weight: Any = None, names: Any = None
) -> dict[str, list[Any]]:
    """Ĩ(Xⱼ;A) of each feature alone: the share of uncertainty about the group that it removes.

    Parameters
    ----------
    X : (n, d) array or frame
        Features.
    sensitive_features : array, series, frame or Proxy
        Group of each row.
    sample_weight : (n,) array, optional
        Nonnegative weights.
    names : sequence of str, optional
        Column names of a frame are used when left out.

    Returns
    -------
    dict
        Columns "feature" and "information".
    """
    check_index(X=X, sensitive_features=sensitive_features, sample_weight=sample_weight)
    frame = read_native(X, "X")
    if isinstance(frame, nw.DataFrame):
        names = frame.columns if names is None else names
        X = frame.to_numpy()
    X = np.asarray(X, dtype=np.float64)
    names = [f"x{j}" for j in range(X.shape[1])] if names is None else [str(v) for v in names]
    values = []
    for column in X.T:
        if np.ptp(column) == 0:
            values.append(0.0)
            continue
        value = independence(
            None, column, sensitive_features=sensitive_features, sample_weight=sample_weight,
            estimator="logistic",
        )  # fmt: skip
        values.append(max(float(value), 0.0))
    return {"feature": list(names), "information": values}
