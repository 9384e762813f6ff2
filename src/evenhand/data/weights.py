"""How rows count: weights, exposures, and clusters of rows that belong together."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._core.arrays import Array, Rows
from .._core.shards import here
from .._core.validation import InputError, as_array, check_column, check_length
from .columns import missing_rows, split_columns
from .labels import number_labels

# From fewer effective rows nothing can be said.
LEAST = 5.0


def check_weight(sample_weight: ArrayLike | None, n_rows: int) -> Array | None:
    """Validate sample weights; None stays None.

    They keep their scale unless it is one at which sums of them or of their squares leave the range
    of floats; then the largest is made 1.
    """
    if sample_weight is None:
        return None
    shape = as_array(sample_weight, "sample_weight").shape
    if len(shape) > 1:
        # scikit-learn's common checks expect this wording.
        raise ValueError(f"Sample weights must be 1D array or scalar, got shape {shape}.")
    if not shape:
        sample_weight = np.full(n_rows, sample_weight)
    weight = check_column(sample_weight, "sample_weight", n_rows)
    if (weight < 0).any():
        raise InputError("sample_weight", f"be nonnegative, got {weight.min()}")
    largest = here().largest(float(weight.max(initial=0.0)))
    if not largest:
        raise InputError("sample_weight", "not be zero in every row")
    return weight if 1e-100 < largest < 1e100 else weight / largest


def weighted_rows(weight: Array | None) -> Rows | None:
    """The rows to measure: those of positive weight, or None where that is every row.

    A row without weight must count for nothing, and ranks, neighbors and folds see rows, not
    weights.
    """
    if weight is None or weight.all():
        return None
    return np.flatnonzero(weight)


def mean_one(weight: Array | None) -> Array | None:
    """Weights in proportion, scaled to mean 1; None for none."""
    if weight is None or not (len(weight) or here().is_shard):
        return None
    # A sum of very small ones has no reciprocal.
    largest = here().largest(float(weight.max(initial=0.0)))
    if not largest:
        return weight
    return scale_to_count(weight / largest)


def scale_to_count(weight: Array) -> Array:
    """Weights times n/Σw, for those whose sum is a float like any other."""
    count, total = here().add(float(len(weight)), float(weight.sum()))
    return weight * (count / total)


def refuse_few_weighted(kept: int, n_rows: int) -> None:
    """Refuse fewer than 5 rows of positive weight: what a weight of 0 leaves out nobody sees."""
    if kept < LEAST:
        raise InputError(
            "sample_weight", f"be positive in at least {LEAST:g} rows with a known group, got "
            f"{kept} of {n_rows:,}: from so few nothing can be said",
            hint="a row of weight 0 counts as absent; look for weights that are zero and should "
            "not be.",
        )  # fmt: skip


def check_exposure(exposure: Any, n_rows: int) -> Array:
    """A positive column."""
    exposure = check_column(exposure, "exposure", n_rows)
    if not (exposure > 0).all():
        row = int((exposure <= 0).argmax())
        raise InputError(
            "exposure", f"be positive, got {exposure[row]:g} in row {row}",
            hint="leave out rows that were never at risk.",
        )  # fmt: skip
    return exposure


# ------------------------------------------------------------------------------------------------
# Rows that belong together: a person over years, a ZIP code, a school.
#
# Rows of one cluster are not independent, so what leaves rows out leaves whole clusters out, sums
# of squares run over clusters, and sample sizes count clusters.


def check_cluster(cluster: Any, n_rows: int) -> Rows | None:
    """Cluster number of each row, 0 … G − 1; None for None and where every row is its own cluster.

    Parameters
    ----------
    cluster : (n,) array or series of labels, or None
    n_rows : int
        The length it must have.
    """
    if cluster is None:
        return None
    columns = split_columns(cluster, "cluster", "column")
    if len(columns) != 1:
        raise InputError(
            "cluster", f"be one column, got {len(columns)}",
            hint="join them into one label per row first.",
        )  # fmt: skip
    ((_, column),) = columns
    check_length("cluster", len(column), n_rows)
    missing = missing_rows(column)
    if missing.any():
        raise InputError(
            "cluster", f"be known in every row: {int(missing.sum())} of {n_rows} are missing",
            hint="give a row that belongs to no other a label of its own.",
        )  # fmt: skip
    codes = _number(column)
    count = int(codes.max()) + 1 if n_rows else 0
    if count == 1 and n_rows > 1:
        raise InputError(
            "cluster", "hold at least two clusters, got one: from a single cluster nothing can be "
            "said about others", hint="leave it out only if its rows are independent.",
        )  # fmt: skip
    return None if count == n_rows else codes


def _number(column: Any) -> Rows:
    """Numbers of labels: numbers are sorted, everything else is compared as Python objects are."""
    if isinstance(column, nw.Series):
        numeric = column.dtype.is_numeric() or column.dtype == nw.Boolean
        column = column.to_numpy() if numeric else np.array(column.to_list(), dtype=object)
    if column.dtype.kind != "O":
        return np.unique(column, return_inverse=True)[1].astype(np.intp, copy=False)
    return number_labels(column.tolist(), "cluster")[0]


def renumber(cluster: Rows | None) -> Rows | None:
    """Numbers 0 … G − 1 again after rows were taken; None where no two rows share one."""
    if cluster is None or not len(cluster):
        return None
    present = np.bincount(cluster) > 0
    if present.sum() == len(cluster):
        return None
    return (np.cumsum(present) - 1)[cluster]


def cluster_folds(cluster: Rows, strata: Rows, n_folds: int, random_state: Any = None) -> Rows:
    """Fold of each row: whole clusters, spread so that each stratum is shared out evenly.

    Large clusters are placed first, each where its strata are least represented so far. Equal ones
    come in random order.

    Parameters
    ----------
    cluster : (n,) array of numbers 0 … G − 1
    strata : (n,) array of numbers 0 … K − 1
    n_folds : int
        At most G.
    random_state : int, RandomState or None
    """
    from sklearn.utils import check_random_state

    from ..kernels.sums import deal_clusters

    names, strata = np.unique(strata, return_inverse=True)
    counts = np.zeros((int(cluster.max()) + 1, len(names)))
    np.add.at(counts, (cluster, strata), 1.0)
    # By first row, so that names of clusters do not matter.
    order = by_first_row(cluster)[check_random_state(random_state).permutation(len(counts))]
    order = order[np.argsort(-counts[order].sum(axis=1), kind="stable")]
    return deal_clusters(counts / counts.sum(axis=0), order, n_folds)[cluster]


def deal_by_size(cluster: Rows, most: int) -> Rows:
    """Fold of each row: clusters dealt out to at most `most` folds, largest first."""
    size = np.bincount(cluster)
    if len(size) <= most:
        return cluster
    # Back and forth over the folds, so that none gets all the large ones.
    lap, step = np.divmod(np.arange(len(size)), most)
    fold = np.where(lap % 2, most - 1 - step, step)
    return _deal(cluster, np.argsort(-size, kind="stable"), fold)


def deal_by_first_row(cluster: Rows, most: int) -> Rows:
    """Fold of each row: clusters dealt out to at most `most` folds in turn, as their rows come."""
    order = by_first_row(cluster)
    return _deal(cluster, order, np.arange(len(order)) % most)


def _deal(cluster: Rows, order: Rows, fold: Rows) -> Rows:
    """Fold of each row, from those of the clusters in some order."""
    out = np.empty_like(order)
    out[order] = fold
    return out[cluster]


def by_first_row(cluster: Rows) -> Rows:
    """The clusters in the order in which their first rows come."""
    first = np.full(int(cluster.max()) + 1, len(cluster))
    np.minimum.at(first, cluster, np.arange(len(cluster)))
    return np.argsort(first)


def cluster_sums(cluster: Rows, values: Array) -> Array:
    """(G,): Σ of n values over the rows of each cluster."""
    return np.bincount(cluster, values).astype(np.float64, copy=False)


def cluster_groups(cluster: Rows, membership: Array) -> Array:
    """(G, K): Σ of (n, K) memberships, weighted or not, over the rows of each cluster."""
    if not membership.shape[1]:  # controls that leave no basis
        return np.empty((int(cluster.max()) + 1, 0))
    return np.column_stack([cluster_sums(cluster, column) for column in membership.T])


def degrees_of_freedom(squares: Array, mass: Array) -> float:
    """(ΣV_k)² / Σ V_k²/(G_k − 1): how well a sum of squares over clusters is known.

    Satterthwaite's rule, with V_k the part of the clusters that mostly hold group k and G_k their
    effective number, (ΣW)²/ΣW². A few clusters that decide the sum leave few degrees of freedom,
    however many others there are.

    Parameters
    ----------
    squares : (G,) array
        The squares summed.
    mass : (G, K) array
        Weight of each group in each cluster.
    """
    main, weight = mass.argmax(axis=1), mass.sum(axis=1)
    part = np.bincount(main, squares / (squares.max(initial=0.0) or 1.0))  # in no unit
    with np.errstate(invalid="ignore", divide="ignore"):
        count = np.bincount(main, weight) ** 2 / np.bincount(main, weight**2)
        doubt = np.where(part > 0, part**2 / np.maximum(count - 1.0, 1.0), 0.0).sum()
        return float(max(part.sum() ** 2 / doubt, 1.0)) if doubt > 0 else float(len(squares) - 1)


# ------------------------------------------------------------------------------------------------
# Sums over all rows, those on other workers included.


def weighted_sum(values: Array, weight: Array | None = None) -> float:
    """Σ w·value."""
    return float(here().add(float(values.sum() if weight is None else weight @ values)))


def weighted_mean(values: Array, weight: Array | None = None) -> float:
    """Σ w·value / Σ w."""
    return here().average(values, weight)


def are_equal(values: NDArray[Any]) -> bool:
    """Whether all values are the same; False where there are none."""
    sums = here()
    return sums.least(values.min(initial=np.inf)) == sums.largest(values.max(initial=-np.inf))
