"""Folds that test every row once: stratified by group, with clusters whole."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from .._core.arrays import Rows, Vector
from .._core.validation import InputError
from .groups import Groups
from .weights import cluster_folds


def make_folds(
    cv: Any, X: Any, y: Vector, groups: Groups, random_state: Any, cluster: Rows | None = None
) -> list[tuple[Rows, Rows]]:
    """Folds that test every row once; an integer `cv` is stratified by group.

    `cluster` (n,) numbers the clusters of all rows; none is on both sides of a fold.
    """
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        if cv < 2:
            raise InputError("cv", f"be at least 2 folds or a splitter, got {cv!r}")
        return _stratified(int(cv), len(y), groups, random_state, cluster)
    splitter = hasattr(cv, "split") and not isinstance(cv, str)
    splits = _split(cv, X, y, cluster) if splitter else cv
    try:
        folds = [(np.asarray(train), np.asarray(test)) for train, test in splits]
    except (TypeError, ValueError):
        raise InputError(
            "cv", "be a number of folds, a scikit-learn splitter or a list of (train, test) row "
            f"numbers, got {cv!r}",
        ) from None  # fmt: skip
    tested = np.sort(np.concatenate([test for _, test in folds])) if folds else np.empty(0)
    if not np.array_equal(tested, np.arange(len(y))):
        raise InputError(
            "cv", f"test every row exactly once: its {len(folds)} folds test {len(tested)} rows "
            f"of {len(y)}",
            hint="use KFold or StratifiedKFold rather than ShuffleSplit or repeats.",
        )  # fmt: skip
    for train, test in folds:
        torn = () if cluster is None else np.intersect1d(cluster[train], cluster[test])
        if len(torn):
            raise InputError(
                "cv", f"keep clusters whole: {len(torn)} have rows on both sides of a fold",
                hint="give a number of folds, or scikit-learn's GroupKFold.",
            )  # fmt: skip
    return folds


def _stratified(
    cv: int, n: int, groups: Groups, random_state: Any, cluster: Rows | None
) -> list[tuple[Rows, Rows]]:
    """Folds by group."""
    strata = np.full(n, -1)
    known = slice(None) if groups.known is None else groups.known
    strata[known] = groups.codes if groups.codes is not None else _rounded(groups, cv)
    if cluster is not None:
        return _cluster_folds(cv, strata, groups, cluster, random_state)
    counts = np.unique(strata[strata >= 0], return_counts=True)[1]
    if counts.min() < cv and groups.codes is not None:
        small = groups.label_names[int(groups.counts.argmin())]
        raise InputError(
            "cv", f"be at most the number of rows of the smallest group: got {cv} for {small!r} "
            f"with {int(counts.min())} rows",
            hint="merge small groups, or set their rows to missing.",
        )  # fmt: skip
    if 0 < (strata == -1).sum() < cv:  # too few to stratify; they go with the first group
        strata[strata == -1] = 0
    stratified = StratifiedKFold(cv, shuffle=True, random_state=random_state)
    return list(stratified.split(np.zeros(n), strata))


def _split(cv: Any, X: Any, y: Vector, cluster: Rows | None) -> Any:
    if cluster is None:
        return cv.split(X, y)
    with warnings.catch_warnings():
        # GroupKFold must be told; KFold says that it does not listen.
        warnings.filterwarnings("ignore", "The groups parameter is ignored", UserWarning)
        return list(cv.split(X, y, cluster))


def _cluster_folds(
    cv: int, strata: Rows, groups: Groups, cluster: Rows, random_state: Any
) -> list[tuple[Rows, Rows]]:
    total = int(cluster.max()) + 1
    if total < cv:
        raise InputError(
            "cv", f"be at most the number of clusters: got {cv} for {total}", hint="fewer folds."
        )
    if groups.codes is not None:
        pairs = np.unique(np.column_stack([strata, cluster])[strata >= 0], axis=0)
        counts = np.bincount(pairs[:, 0], minlength=groups.n_groups)
        if counts.min() < cv:
            small = groups.label_names[int(counts.argmin())]
            raise InputError(
                "cv", "be at most the number of clusters of the group that is in fewest: got "
                f"{cv} for {small!r} in {counts.min()}",
                hint="fewer folds, merge small groups, or set their rows to missing.",
            )  # fmt: skip
    fold = cluster_folds(cluster, strata, cv, random_state)
    return [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(cv)]


def _rounded(groups: Groups, cv: int) -> Rows:
    """The likeliest group of each row; one too rare to stratify by goes with the largest."""
    assert groups.probabilities is not None
    likeliest = groups.probabilities.argmax(axis=1)
    counts = np.bincount(likeliest, minlength=groups.n_groups)
    likeliest[counts[likeliest] < cv] = counts.argmax()
    return likeliest
