"""The rows of a table, read once: scores, targets, groups, weights, clusters, exposure, controls.

Everything inside the package takes a :class:`Sample`; what users hand in is checked here.

A row of frequency f equals f rows. That is not a weight of f: a weight says how much one person
counts, and leaves the number of people as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.dependencies import is_pandas_like_dataframe, is_pandas_like_series
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from .._core.arrays import Rows, Vector
from .._core.validation import InputError, check_column, check_index, read_native
from .bands import Continuous
from .copies import find_copies
from .encoding import Controls, read_controls
from .groups import Groups, Proxy, resolve_groups
from .weights import (
    check_cluster,
    check_exposure,
    check_weight,
    mean_one,
    refuse_few_weighted,
    renumber,
    weighted_rows,
)

# People that rows may be repeated for. Beyond that the copies take more memory than most machines
# have to spare for them.
MAX_PEOPLE = 5_000_000
_COPIES_OR_PEOPLE = (
    "`frequency` must count different people: nearly all who share a score and a target here are "
    "of one group, as copies of a row are. Hint: leave `frequency` out if they are copies; if they "
    'are people, estimator="logistic" measures them and takes no exact value for a sign of the '
    "group."
)


@dataclass(frozen=True)
class Sample:
    """Columns of n rows, checked and of one length; None where there is no such column.

    Attributes
    ----------
    groups : Groups or None
        Who belongs to which group, with weights of mean 1 and clusters over the rows of known
        group.
    scores, target : (n,) arrays or None
    weight : (n,) array or None
        As handed in, for losses; the scale counts.
    frequency : (n,) array or None
        People that each row stands for, where these are rows made of counts. Frequencies that
        users hand in repeat rows instead.
    cluster : (n,) intp array or None
        Number of the cluster of each row, 0 … G − 1.
    exposure : (n,) array or None
    controls : Controls or None
    others : mapping
        Further columns and tables by their argument's name, such as features: as they were handed
        in, except for rows that were repeated or taken.
    """

    groups: Any = None
    scores: Any = None
    target: Any = None
    weight: Vector | None = None
    frequency: Vector | None = None
    cluster: Rows | None = None
    exposure: Vector | None = None
    controls: Controls | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(
        cls, y_true: Any = None, y_pred: Any = None, *, sensitive_features: Any = None,
        sample_weight: Any = None, frequency: Any = None, cluster: Any = None,
        exposure: Any = None, controls: Any = None, names: Mapping[str, str] | None = None,
        groups_optional: bool = False, require_two: bool = True, keep_labels: bool = False,
        **others: Any,
    ) -> Sample:  # fmt: skip
        """Check what a user handed in: kinds, lengths, finite numbers, and pandas indices.

        Parameters
        ----------
        y_true, y_pred, sensitive_features, sample_weight, frequency, cluster, exposure, controls
            As for :func:`evenhand.audit`; rows are repeated by `frequency`.
        names : mapping, optional
            What the user calls "y_true" and "y_pred", for messages: {"y_true": "y"}.
        groups_optional : bool
            Take None for `sensitive_features`: the sample then has no groups.
        require_two : bool
            Refuse a single group.
        keep_labels : bool
            Keep `sensitive_features` among `others`, for estimators that are handed them.
        **others : Any
            Columns or tables whose rows belong to the others'; kept in `others`.
        """
        called = {"y_true": "y_true", "y_pred": "y_pred", **(names or {})}
        handed = {
            **others, called["y_true"]: y_true, called["y_pred"]: y_pred,
            "sensitive_features": sensitive_features, "sample_weight": sample_weight,
            "cluster": cluster, "controls": controls, "exposure": exposure,
        }  # fmt: skip
        handed = dict(zip(handed, repeat_rows(frequency, **handed), strict=True))
        check_index(**handed)
        columns: dict[str, Vector] = {}
        n = None
        for role in ("y_pred", "y_true"):
            values = handed[called[role]]
            if values is not None:
                columns[role] = check_column(values, called[role], n)
                n = len(columns[role])
        if n is None:
            n = next((count_rows(v, role) for role, v in handed.items() if v is not None), 0)
        controls, exposure = handed["controls"], handed["exposure"]
        if exposure is not None and "y_true" not in columns:
            raise InputError(
                "exposure", f"be None without `{called['y_true']}`: it is what the amounts are "
                "totals over",
            )  # fmt: skip
        read = None if controls is None else read_controls(controls, n)
        size = None if exposure is None else check_exposure(exposure, n)
        weight = check_weight(handed["sample_weight"], n)
        clusters = check_cluster(handed["cluster"], n)
        groups, labels = None, handed["sensitive_features"]
        if labels is not None or not groups_optional:
            groups = resolve_groups(
                labels, n_rows=n, sample_weight=weight, cluster=clusters, require_two=require_two
            )
        return cls(
            groups, columns.get("y_pred"), columns.get("y_true"), weight, None, clusters, size,
            read, {name: handed[name] for name in [*others, *["sensitive_features"] * keep_labels]},
        )  # fmt: skip

    @property
    def n_rows(self) -> int:
        columns = (self.scores, self.target, self.weight, self.cluster)
        first = next((c for c in columns if c is not None), None)
        if first is not None:
            return len(first)
        assert self.groups is not None
        return self.groups.n_rows

    @property
    def variables(self) -> dict[str, Vector]:
        """Score and target by the names they have in criteria, without what is not there."""
        columns = {"s": self.scores, "y": self.target}
        return {name: column for name, column in columns.items() if column is not None}

    def regroup(self, sensitive_features: Any, **how: Any) -> Sample:
        """The same rows in other groups; `how` is that of :func:`resolve_groups`."""
        groups = resolve_groups(
            sensitive_features, n_rows=self.n_rows, sample_weight=self.weight,
            cluster=self.cluster, **how,
        )  # fmt: skip
        return replace(self, groups=groups)

    def take(self, rows: NDArray[Any]) -> Sample:
        """Some of the rows, by number or by a mask; a group may end up empty."""
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        taken = {
            name: None if column is None else column[rows]
            for name in ("scores", "target", "weight", "frequency", "exposure")
            for column in [getattr(self, name)]
        }
        return replace(
            self,
            **taken,
            groups=None if self.groups is None else self.groups.take(rows),
            cluster=None if self.cluster is None else renumber(self.cluster[rows]),
            controls=None if self.controls is None else self.controls.take(rows),
            others={name: take_rows(values, rows) for name, values in self.others.items()},
        )

    def weighted(self) -> Sample:
        """Without rows of weight 0, which count as absent; fewer than 5 others are refused."""
        rows = weighted_rows(self.weight)
        if rows is None:
            return self
        kept = self.take(rows)
        if kept.groups is not None:
            refuse_few_weighted(kept.groups.n_known, self.n_rows)
        return kept

    def distinct(
        self, frequent: bool = False, estimator: Any = None, people: bool = False
    ) -> tuple[Sample, int]:
        """Copies of rows as one row, with the weight of all, and how many rows that leaves out.

        Parameters
        ----------
        frequent : bool
            Rows were repeated by `frequency`, so that equal ones are said to be different people.
            An estimator that is smooth takes them for that; for others, which can take an exact
            value for a sign of the group, a table that looks like copies is refused.
        estimator : EntropyEstimator, optional
        people : bool
            With the mean weight of the copies instead, as who is copied most often shall not count
            most where people are judged. A bootstrap's rows count as often as they are drawn.
        """
        columns = [column for column in (self.scores, self.target) if column is not None]
        groups = self.groups
        if self.cluster is not None or groups is None or not columns:
            return self, 0  # rows of one cluster are left out together, copies among them
        if frequent and getattr(estimator, "is_smooth", False):
            return self, 0
        place = find_copies(columns, groups.numbers())
        if place is None:
            return self, 0
        # People who share a measurement to the last digit are copies, whatever was said.
        if frequent and groups.measured is None:
            raise ValueError(_COPIES_OR_PEOPLE)
        first = np.unique(place, return_index=True)[1]
        kept = self.take(first)
        weight = np.bincount(place, self.weight).astype(np.float64, copy=False)
        if people:
            weight = weight / np.bincount(place)
        if (weight != weight[0]).any():
            kept = replace(kept, weight=weight, groups=kept.groups.reweigh(weight))
        return kept, len(place) - len(first)

    def known(self) -> Sample:
        """The rows whose group is known."""
        groups = self.groups
        assert groups is not None
        if groups.known is None:
            return self
        rows = replace(self, groups=None).take(groups.known)
        return replace(rows, groups=replace(groups, known=None, n_rows=groups.n_known))

    def by_exposure(self) -> Sample:
        """Units of exposure for rows, in the weights of the groups; the rows are known ones."""
        if self.exposure is None:
            return self
        weight = self.exposure * (1.0 if self.groups.weight is None else self.groups.weight)
        return replace(self, groups=replace(self.groups, weight=mean_one(weight)))

    def per_unit(self) -> Sample:
        """Targets per unit of exposure, where they are totals over one."""
        if self.target is None or self.exposure is None:
            return self
        return replace(self, target=self.target / self.exposure)


# ------------------------------------------------------------------------------------------------
# Rows of anything that users hand in: how many, and some of them.


def count_rows(values: Any, name: str = "values") -> int:
    """Number of rows of a column, a table or any form of `sensitive_features`; 0 of None."""
    if values is None:
        return 0
    if isinstance(values, dict):
        lengths = {count_rows(part, name) for part in values.values()} or {0}
        if len(lengths) > 1:
            raise InputError(name, f"hold columns of one length, got {sorted(lengths)}")
        return lengths.pop()
    try:
        return values.n_rows if isinstance(values, Groups) else int(_num_samples(values))
    except TypeError:
        raise InputError(name, f"hold one value per row, got {type(values).__name__}") from None


def take_rows(values: Any, rows: Rows, keep_index: bool = True, name: str = "values") -> Any:
    """Rows of a column, a table, a sparse matrix or any form of `sensitive_features`.

    `keep_index` is for pandas: labels that are repeated say nothing about where a row belongs.
    """
    if values is None:
        return None
    if isinstance(values, dict):
        return {key: take_rows(part, rows, keep_index, name) for key, part in values.items()}
    arrow = type(values).__module__.startswith("pyarrow")
    if arrow or isinstance(values, Groups | Controls):
        return values.take(rows)
    if isinstance(values, Proxy | Continuous):
        return values[rows]
    native = read_native(values, name)
    if isinstance(native, nw.DataFrame | nw.Series):
        taken = native[rows].to_native()
        if keep_index or not (is_pandas_like_series(taken) or is_pandas_like_dataframe(taken)):
            return taken
        return taken.reset_index(drop=True)
    return _safe_indexing(values, rows)


# ------------------------------------------------------------------------------------------------
# Frequencies: how many people a row of an aggregated table stands for.


def check_frequency(frequency: Any, n_rows: int) -> NDArray[np.int64]:
    """Validate frequencies: whole numbers, none below 0, not all of them 0.

    Parameters
    ----------
    frequency : (n,) array, series or one-column frame
    n_rows : int
        The length it must have.
    """
    counts = check_column(frequency, "frequency", n_rows)
    if (counts < 0).any():
        raise InputError("frequency", f"be nonnegative, got {counts.min()}")
    whole = np.rint(counts)
    if (whole != counts).any():
        bad = counts[np.flatnonzero(whole != counts)[0]]
        raise InputError(
            "frequency", f"be whole numbers, got {bad}",
            hint="numbers of people go here; what a person counts for, such as a sampling weight, "
            "is a weight.",
        )  # fmt: skip
    if not whole.any():
        raise InputError("frequency", "not be zero in every row")
    with np.errstate(over="ignore"):
        total = whole.sum(dtype=np.float64)
    if total >= 2.0**53:
        raise InputError("frequency", f"add up to fewer than 2^53 people, got {total:.3g}")
    return whole.astype(np.int64)


def too_many(frequency: Any) -> bool:
    """Whether there are more people than rows may be repeated for."""
    if frequency is None:
        return False
    return int(check_frequency(frequency, count_rows(frequency, "frequency")).sum()) > MAX_PEOPLE


def repeat_rows(frequency: Any, **columns: Any) -> tuple[Any, ...]:
    """Every column with each row repeated as often as its frequency says; as they are for None.

    Parameters
    ----------
    frequency : (n,) array or None
    **columns : Any
        By the names of the arguments, for messages. None and single numbers stay as they are.
    """
    if frequency is None:
        return tuple(columns.values())
    check_index(frequency=frequency, **columns)
    used = {k: v for k, v in columns.items() if v is not None and not _is_single(v)}
    lengths = {name: count_rows(values, name) for name, values in used.items()}
    counts = check_frequency(frequency, next(iter(lengths.values())))
    for name, length in lengths.items():
        if length != len(counts):
            raise InputError(name, f"have one entry per row: got {length} for {len(counts)}")
    total = int(counts.sum())
    if total > MAX_PEOPLE:
        raise InputError(
            "frequency", f"add up to at most {MAX_PEOPLE:,} people here, where each becomes a row "
            f"of its own, got {total:,}",
            hint="evenhand.audit(evenhand.Cells.from_rows(...)) measures any number of people; a "
            "fit can be made on a sample, with frequencies drawn by "
            "numpy.random.Generator.binomial.",
        )  # fmt: skip
    rows = np.repeat(np.arange(len(counts), dtype=np.intp), counts)
    return tuple(
        take_rows(v, rows, False, name) if name in used else v for name, v in columns.items()
    )


def _is_single(values: Any) -> bool:
    return isinstance(values, int | float) or (isinstance(values, np.ndarray) and not values.ndim)
