"""Is the score independent of the group among people with the same legitimate factors?

Two answers side by side: in money, the gap of mean scores that the controls do not explain
(`adjusted_gap`), and in information, I(S;A|C) (`conditional_information`). Money comes first: a
score that is a function of controls and group gives the group away at a difference of one cent.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..groups.controls import Control, Controls, refuse_none
from ..groups.sensitive import Groups, GroupWarning
from ..groups.tables import to_frame
from ..information.balancing import control_features, fit_chain
from ..information.estimation import EntropyEstimator
from ..information.measures import Measure
from .adjusted_gap import LEAST_COUNTERPARTS, AdjustedGap, Estimate, adjusted_gaps
from .conditional_information import (
    FUNCTION_SHARE,
    information_given,
    left_by_group_and_controls,
)

Vector = NDArray[np.float64]
ESTIMAND = (
    "the mean, over the members of the group that have a counterpart, of their score less the "
    "expected score of members of the reference with the same controls"
)
# A share of members without counterparts that deserves a warning.
MANY_ALONE = 0.1


@dataclass(frozen=True)
class Conditional:
    """What an audit with controls found.

    Attributes
    ----------
    gaps : tuple of AdjustedGap
        Each group against the reference, in units of the score.
    information : Measure
        I(S;A|C) / H(A|C); the p-value is of S ⟂ A | C.
    controls : tuple of str
        Names of those used.
    left_out : dict of str → str
        Why others are not used.
    reference : str
        The group that the others are compared with.
    is_function : bool
        Whether the score is (nearly) a function of controls and group. Then the information
        says that the group can be told, not how large the difference is: read the gaps.
    unexplained : float
        Share of the variance of the score that controls and group leave.
    no_counterpart : float
        Share of all rows outside the reference with hardly any counterpart in it.
    outcome, summary, test : str
        The model of the reference's scores, how the controls entered the information, and how
        the p-value was computed.
    estimand : str
        What is averaged over whom.
    confidence_level : float
    """

    gaps: tuple[AdjustedGap, ...]
    information: Measure
    controls: tuple[str, ...]
    left_out: dict[str, str]
    reference: str
    is_function: bool
    unexplained: float
    no_counterpart: float
    outcome: str
    summary: str
    test: str
    confidence_level: float
    estimand: str = ESTIMAND

    def gap(self, group: Any = None) -> AdjustedGap:
        """The gap of one group; of the only one where there are two.

        Parameters
        ----------
        group : label, optional
        """
        if group is None and len(self.gaps) == 1:
            return self.gaps[0]
        for found in self.gaps:
            if found.group == str(group):
                return found
        names = ", ".join(repr(found.group) for found in self.gaps)
        raise KeyError(f"no gap of {group!r} against {self.reference!r}; there are {names}")

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per group: raw, explained and adjusted gap with errors and intervals.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
        """
        return to_frame(self.columns(), backend)

    def columns(self) -> dict[str, list[Any]]:
        """The columns of :meth:`to_frame`."""
        columns: dict[str, list[Any]] = {
            name: [getattr(gap, name) for gap in self.gaps]
            for name in ("group", "reference", "n", "n_compared")
        }
        for part in ("raw", "explained", "adjusted"):
            for name in (part, f"{part}_percent"):
                found: list[Estimate] = [getattr(gap, name) for gap in self.gaps]
                columns[name] = [e.value for e in found]
                columns[f"{name}_stderr"] = [e.stderr for e in found]
                columns[f"{name}_low"] = [e.interval[0] for e in found]
                columns[f"{name}_high"] = [e.interval[1] for e in found]
        columns["ratio_percent"] = [gap.ratio_percent.value for gap in self.gaps]
        columns["p_value"] = [gap.adjusted.p_value for gap in self.gaps]
        columns["p_adjusted"] = [gap.p_adjusted for gap in self.gaps]
        columns["no_counterpart"] = [gap.no_counterpart for gap in self.gaps]
        return columns

    def to_dict(self) -> dict[str, Any]:
        """Everything by name."""
        out = dict(vars(self))
        out["gaps"] = [gap.to_dict() for gap in self.gaps]
        out["information"] = self.information.to_dict()
        return out

    def __str__(self) -> str:
        from ..report.controls import describe_conditional

        return describe_conditional(self)


def audit_given(
    s: Vector, groups: Groups, controls: Controls, entropies: EntropyEstimator,
    reference: Any = "largest", *, seed: int, warn: bool = True, stacklevel: int = 4, **how: Any,
) -> Conditional:  # fmt: skip
    """Judge scores among people with the same controls.

    Parameters
    ----------
    s : (n,) array
        Scores of all rows.
    groups : Groups
    controls : Controls
        Of all rows.
    entropies : EntropyEstimator
    reference : label or "largest"
        The group that others are compared with.
    seed : int
        Of folds and trees.
    warn : bool
        Warn of members without counterparts.
    how
        Of :func:`measure`: `confidence_level`, `estimator` (its name), `n_boot`.
    """
    if groups.known is not None:
        s, controls = s[groups.known], controls.take(groups.known)
        rows = Groups(
            groups.labels, groups.codes, groups.probabilities, groups.weight, None,
            groups.n_known, groups.name, groups.cluster,
        )  # fmt: skip
    else:
        rows = groups
    _check(controls, s, rows)
    at = find_reference(reference, rows)
    features = control_features(controls, rows, seed)
    gaps, outcome = adjusted_gaps(s, rows, features, at, how["confidence_level"])
    if not any(gap.n_compared for gap in gaps):
        raise ValueError(
            f"`controls` must leave the group open, but {_list(controls.names)} determine"
            f"{'s' if len(controls.names) == 1 else ''} it: no member of another group has a "
            f"counterpart with the same controls in {rows.label_names[at]!r}. Hint: drop the "
            "control that stands for the group, or leave `controls` out."
        )
    weight = np.ones(rows.n_known) if rows.weight is None else rows.weight
    expected = features.regress(s, weight).value
    chain = fit_chain(rows, features)
    information, test, summary = information_given(
        s, rows, features, chain, expected, entropies, random_state=seed, seed=seed, **how
    )
    probabilities = chain.probabilities(rows.n_groups)
    left = left_by_group_and_controls(s, expected, probabilities, rows)
    others = np.delete(rows.shares, at)
    alone = float(others @ [gap.no_counterpart for gap in gaps] / others.sum())
    if warn:
        _warn_alone(gaps, stacklevel)
    return Conditional(
        tuple(gaps), information, controls.names, controls.left_out, rows.label_names[at],
        left < FUNCTION_SHARE, left, alone, outcome.chosen, summary, test.method,
        how["confidence_level"],
    )  # fmt: skip


def find_reference(reference: Any, groups: Groups) -> int:
    """Number of the group that others are compared with."""
    if isinstance(reference, str) and reference == "largest":
        return int(np.argmax(groups.shares))
    for k, (label, name) in enumerate(zip(groups.labels, groups.label_names, strict=True)):
        if reference in (label, name):
            return k
    names = ", ".join(map(repr, groups.label_names[:10]))
    raise ValueError(f"`reference` must be 'largest' or one of {names}, got {reference!r}.")


def _check(controls: Controls, s: Vector, groups: Groups) -> None:
    refuse_none(controls)
    for column in controls.columns:
        if column.values is not None and np.array_equal(column.values, s) and np.ptp(s) > 0:
            raise ValueError(
                f"`controls` must not hold the score itself: column {column.name!r} equals "
                "`y_pred` in every row, and among people with the same score nothing can differ. "
                "Hint: drop it."
            )
        if _determines(column, groups):
            raise ValueError(
                f"`controls` must leave the group open, but {column.name!r} determines it: each of "
                "its values is found in one group only. Hint: drop it; a factor that stands for "
                "the group is no legitimate one."
            )


def _determines(column: Control, groups: Groups) -> bool:
    """Whether each level of a column, as it enters the models, is of one group."""
    if column.codes is None or groups.codes is None:
        return False
    table = np.zeros((len(column.levels), groups.n_groups))
    np.add.at(table, (column.codes, groups.codes), 1.0)
    return bool(((table > 0).sum(axis=1) <= 1).all())


def _warn_alone(gaps: list[AdjustedGap], stacklevel: int) -> None:
    alone = [gap for gap in gaps if gap.no_counterpart > MANY_ALONE or gap.note]
    if not alone:
        return
    first = alone[0]
    if first.note:
        what = f"{first.group!r} is not compared: {first.note}"
    else:
        what = (
            f"{100 * first.no_counterpart:.0f}% of {first.group!r} have hardly any counterpart in "
            f"{first.reference!r} (fewer than {100 * LEAST_COUNTERPARTS:g} in 100 with the same "
            "controls) and are left out of the adjusted gap"
        )
    more = f"; so with {len(alone) - 1} more" if len(alone) > 1 else ""
    warnings.warn(
        f"`controls`: {what}{more}. Hint: use fewer controls, or merge groups.",
        GroupWarning,
        stacklevel=stacklevel,
    )


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:10]))
