"""Which features carry a disparity.

    part of feature j = gap(s) − gap(s with the path of feature j closed)

and likewise for the normalized information of each criterion. A path is closed by giving everybody
the same distribution of the feature, whatever the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ..groups.clusters import check_cluster
from ..groups.progress import progress
from ..groups.sensitive import Groups, resolve_groups
from ..groups.tables import json_safe, to_frame
from ..groups.validation import check_column, check_confidence_level, check_seed
from ..groups.weights import check_weight
from ..information.criteria import Criterion, get_criterion
from ..information.entropies import Entropies, estimate_entropies, get_estimator
from ..information.measures import standard_error
from .closing import DriverRows, close_paths
from .feature_columns import FeatureTable, copies, stand_in, told_by

Vector = NDArray[np.float64]
CLOSINGS = {
    "shared": "everybody gets the same values of the feature",
    "refit": "the model is fitted again without the feature, on folds",
}
# A single feature that explains so much of the target is likely to be the target.
LEAK = 0.95


@dataclass(frozen=True)
class Part:
    """How much of a number goes away when a feature's path is closed, with its error."""

    value: float
    stderr: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Driver:
    """One feature.

    Attributes
    ----------
    feature : str
    stands_in : Part
        I(X_j;A)/H(A): how well the feature alone tells the group.
    gaps : dict of group → Part
        Part of the group's mean score less that of the reference.
    criteria : dict of criterion → Part
        Part of the normalized information; negative where the feature hides a disparity.
    leak : float
        Share of the variance of the target's ranks that the feature explains by itself; NaN
        without a target.
    """

    feature: str
    stands_in: Part
    gaps: dict[str, Part]
    criteria: dict[str, Part]
    leak: float = float("nan")

    @property
    def is_leak(self) -> bool:
        """Whether the feature all but is the target."""
        return self.leak > LEAK


@dataclass(frozen=True)
class Drivers:
    """The result of :func:`drivers`.

    Attributes
    ----------
    drivers : tuple of Driver
        In the order of how much of the widest gap they carry.
    reference : str
        The group that gaps are taken from.
    widest : str
        The group with the widest gap.
    gaps : dict of group → Part
        The gaps themselves.
    criteria : dict of criterion → Part
        The measures themselves.
    close : str
        How paths were closed.
    surrogate_r2 : float
        Share of the score's variance that the features explain, where no model was given; else NaN.
    """

    drivers: tuple[Driver, ...]
    reference: str
    widest: str
    gaps: dict[str, Part]
    criteria: dict[str, Part]
    close: str
    sensitive_name: str = "group"
    surrogate_r2: float = float("nan")
    confidence_level: float = 0.95
    notes: tuple[str, ...] = field(default_factory=tuple)

    def __getitem__(self, feature: str) -> Driver:
        for driver in self.drivers:
            if driver.feature == feature:
                return driver
        there = ", ".join(repr(d.feature) for d in self.drivers[:20])
        raise KeyError(f"no feature named {feature!r}; there are {there}")

    def __len__(self) -> int:
        return len(self.drivers)

    @property
    def remainder(self) -> float:
        """The widest gap less the sum of its parts; what features do together, counted neither."""
        whole = self.gaps[self.widest].value
        left = whole - sum(d.gaps[self.widest].value for d in self.drivers)
        return 0.0 if abs(left) < 1e-12 * abs(whole) else left  # but for rounding

    @property
    def leaks(self) -> list[str]:
        """Features that all but are the target."""
        return [driver.feature for driver in self.drivers if driver.is_leak]

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per feature: how it stands in for the group, and its parts of the widest gap
        and of each criterion.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
        """
        columns: dict[str, list[Any]] = {"feature": [d.feature for d in self.drivers]}

        def add(name: str, parts: list[Part]) -> None:
            columns[name] = [p.value for p in parts]
            columns[f"{name}_low"] = [p.interval[0] for p in parts]
            columns[f"{name}_high"] = [p.interval[1] for p in parts]

        add("stands_in", [d.stands_in for d in self.drivers])
        add("gap", [d.gaps[self.widest] for d in self.drivers])
        for name in self.criteria:
            add(name, [d.criteria[name] for d in self.drivers])
        columns["leak"] = [d.leak for d in self.drivers]
        return to_frame(columns, backend)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values that JSON can hold."""

        def plain(parts: dict[str, Part]) -> dict[str, Any]:
            return {name: vars(part) for name, part in parts.items()}

        return json_safe(
            {
                "format": "evenhand.drivers",
                "version": 1,
                "sensitive": self.sensitive_name,
                "reference": self.reference,
                "widest": self.widest,
                "close": self.close,
                "confidence_level": self.confidence_level,
                "surrogate_r2": self.surrogate_r2,
                "gaps": plain(self.gaps),
                "criteria": plain(self.criteria),
                "remainder": self.remainder,
                "drivers": [
                    {
                        "feature": d.feature,
                        "stands_in": vars(d.stands_in),
                        "gaps": plain(d.gaps),
                        "criteria": plain(d.criteria),
                        "leak": d.leak,
                    }
                    for d in self.drivers
                ],
                "notes": list(self.notes),
            }
        )

    def __str__(self) -> str:
        from ..report.drivers import describe_drivers

        return describe_drivers(self)

    def plot(self, n: int = 15) -> Any:
        """A Matplotlib figure: parts of the gap and of the criteria, the `n` largest."""
        from ..report.drivers import plot_drivers

        return plot_drivers(self, n)

    def to_html(self, path: Any, *, force: bool = False) -> Any:
        """Write the picture and the table as one self-contained page.

        Parameters
        ----------
        path : str or Path
        force : bool
            Overwrite an existing file.
        """
        from ..report.drivers import write_drivers_page

        return write_drivers_page(self, path, force)


def drivers(
    model_or_scores: Any,
    X: Any,
    *,
    sensitive_features: Any,
    y_true: Any = None,
    sample_weight: Any = None,
    cluster: Any = None,
    close: str = "shared",
    criteria: Sequence[str] | None = None,
    reference: str = "largest",
    n_values: int = 16,
    cv: int = 5,
    estimator: Any = "auto",
    confidence_level: float = 0.95,
    random_state: Any = None,
) -> Drivers:
    """Find the features that carry a disparity.

    For each feature: how well it alone stands in for the group, I(X_j;A)/H(A), and how much of the
    gap between mean scores, and of each criterion, goes away when its path is closed.

    Parameters
    ----------
    model_or_scores : fitted regressor, or (n,) array
        Anything with ``predict``. For scores alone a boosted surrogate of them is fitted to X, and
        `surrogate_r2` says how much of them it explains.
    X : (n, d) frame, array or sparse matrix
        What the model takes; text and missing values pass through to it. Best of rows that the
        model was not fitted to: what a flexible model has learned by heart gives parts to features
        that have no path.
    sensitive_features : array, series, frame or Proxy
    y_true : (n,) array, optional
        Targets: for criteria that need them, for leaks, and for ``close="refit"``.
    sample_weight, cluster : (n,) arrays, optional
        As for :func:`audit`.
    close : {"shared", "refit"}
        "shared": everybody gets the same `n_values` values of the feature, spread evenly over all
        rows in its order, and the score is the mean over them. "refit": the model is fitted again
        without the feature; other features may then step in for it. Both scores are from folds.
    criteria : sequence of str, optional
        By default independence, and with a target separation.
    reference : str
        Group that gaps are taken from: "largest", or a label.
    n_values : int
    cv : int
        Folds of "refit".
    estimator, confidence_level, random_state
        As for :func:`audit`.

    Returns
    -------
    Drivers

    Notes
    -----
    With a model that adds up (a linear one) the parts of a gap add up to the gap. With any other
    they need not: two features that only together make a difference are each counted with it, and
    two that stand in for each other are each counted without it. Parts of an information do not
    add up at all. Closing a path is a statement about the model and not about the world: what
    would happen if the feature itself were changed is another question.

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 1000)
    >>> X = rng.normal(size=(1000, 3)) + a[:, None] * [1.0, 0.0, 0.0]
    >>> model = LinearRegression().fit(X, X @ [1.0, 1.0, 0.0] + rng.normal(size=1000))
    >>> eh.drivers(model, X, sensitive_features=a).drivers[0].feature
    'x0'
    """
    if close not in CLOSINGS:
        raise ValueError(f"`close` must be one of {', '.join(CLOSINGS)}, got {close!r}.")
    if isinstance(n_values, bool) or not isinstance(n_values, int | np.integer) or n_values < 1:
        raise ValueError(f"`n_values` must be a positive integer, got {n_values!r}.")
    level, seed = check_confidence_level(confidence_level), check_seed(random_state)
    table = FeatureTable(X)
    y = None if y_true is None else check_column(y_true, "y_true", table.n)
    weight = check_weight(sample_weight, table.n)
    groups = resolve_groups(
        sensitive_features, n_rows=table.n, sample_weight=weight, cluster=cluster
    )  # fmt: skip
    if groups.measured is not None:
        raise ValueError(
            "`sensitive_features` must be groups for drivers, got a Continuous. Hint: cut it with "
            "evenhand.bands."
        )
    ref = _reference(groups, reference)
    wanted = _criteria(criteria, y)
    data = DriverRows(table, y, groups, sensitive_features, weight, check_cluster(cluster, table.n))
    closing = close_paths(model_or_scores, data, close, int(n_values), cv, seed)
    how = get_estimator(estimator, seed)
    z = float(ndtri(0.5 + level / 2))

    def entropies(s: Vector) -> Entropies:
        variables = {"s": s} if y is None else {"s": s, "y": y}
        return estimate_entropies(wanted, variables, groups, how)

    whole = entropies(closing.score)
    others = [k for k in range(groups.n_groups) if k != ref]
    names = groups.label_names

    def gap_parts(values: Vector) -> dict[str, Part]:
        found = _gaps(groups.take_known(values), groups, ref)
        return {names[k]: _part(*found[k], z) for k in others}

    found = []
    with progress(len(table.names), "drivers") as advance:
        for name in table.names:
            column = table.values(name)
            moved = closing.score - closing.without(name)
            # A mean of equal scores is off by its rounding.
            moved[np.abs(moved) <= 1e-13 * np.abs(closing.score).max()] = 0.0
            after = entropies(closing.score - moved)
            parts = {}
            for criterion in wanted:
                psi = whole.influence(criterion) - after.influence(criterion)
                value = whole.normalized(criterion) - after.normalized(criterion)
                error = standard_error(psi, groups.weight, groups.cluster)
                parts[criterion.name] = _part(value, error, z)
            leak = float("nan") if y is None else told_by(column, name, y, weight)
            found.append(
                Driver(
                    feature=name,
                    stands_in=_part(*stand_in(column, name, groups, how), z, least=0.0),
                    gaps=gap_parts(moved),
                    criteria=parts,
                    leak=leak,
                )
            )
            advance()
    gaps = gap_parts(closing.score)
    widest = max(gaps, key=lambda name: abs(gaps[name].value))
    found.sort(key=lambda driver: -abs(driver.gaps[widest].value))
    measured = {}
    for criterion in wanted:
        psi = whole.influence(criterion)
        error = standard_error(psi, groups.weight, groups.cluster)
        measured[criterion.name] = _part(whole.normalized(criterion), error, z, least=0.0)
    return Drivers(
        drivers=tuple(found),
        reference=names[ref],
        widest=widest,
        gaps=gaps,
        criteria=measured,
        close=close,
        sensitive_name=groups.name,
        surrogate_r2=closing.surrogate_r2,
        confidence_level=level,
        notes=(*closing.notes, *_copy_notes(table)),
    )


def _copy_notes(table: FeatureTable) -> list[str]:
    return [
        f"{name!r} is a copy of {before!r}: it puts all rows in the same order. A model may lean "
        "on either, so that their parts say something only together."
        for name, before in copies(table)
    ]


def _criteria(criteria: Sequence[str] | None, y: Vector | None) -> list[Criterion]:
    names = criteria
    if names is None:
        names = ["independence"] if y is None else ["independence", "separation"]
    found = [get_criterion(name) for name in names]
    for criterion in found:
        if y is None and criterion.needs:
            raise ValueError(f"`y_true` must be given for {criterion.name}, got None.")
    return found


def _reference(groups: Groups, reference: Any) -> int:
    if reference == "largest" and "largest" not in groups.label_names:
        return int(np.argmax(groups.shares))
    if str(reference) in groups.label_names:
        return groups.label_names.index(str(reference))
    raise ValueError(
        f"`reference` must be 'largest' or one of {', '.join(map(repr, groups.label_names))}, got "
        f"{reference!r}."
    )


def _gaps(values: Vector, groups: Groups, ref: int) -> list[tuple[float, float]]:
    """mean_k − mean_ref of a column, and its error: influences w m_k (v − mean_k)/W_k."""
    mass = groups.membership()
    if groups.weight is not None:
        mass = mass * groups.weight[:, None]
    share = mass / mass.sum(axis=0)
    means = values @ share
    psi = share * (values[:, None] - means) * len(values)
    found = []
    for k in range(groups.n_groups):
        error = standard_error(psi[:, k] - psi[:, ref], None, groups.cluster)
        found.append((float(means[k] - means[ref]), error))
    return found


def _part(value: float, stderr: float, z: float, least: float = -np.inf) -> Part:
    half = z * stderr
    return Part(value, stderr, (max(value - half, least), max(value + half, least)))
