"""Features one at a time: a table with one column closed, and what a column says by itself."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import rankdata
from sklearn.model_selection import cross_val_predict

from ..groups.clusters import cluster_sums
from ..groups.encoding import TableEncoder
from ..groups.sensitive import Groups
from ..groups.validation import frame_columns, read_native
from ..information.criteria import INDEPENDENCE
from ..information.entropies import estimate_entropies
from ..information.estimation import EntropyEstimator
from ..information.measures import standard_error

Vector = NDArray[np.float64]
Rows = NDArray[np.intp]


class FeatureTable:
    """A frame, array or sparse matrix whose columns can be replaced one at a time."""

    def __init__(self, X: Any):
        frame = read_native(X, "X")
        self._frame = frame if isinstance(frame, nw.DataFrame) else None
        if self._frame is not None:
            self.X = X
            self._columns = dict(frame_columns(self._frame))
            self.names = list(self._columns)
            self.n = len(self._frame)
            return
        self.X = X.tocsc() if sparse.issparse(X) else np.asarray(X)
        if self.X.ndim != 2:
            raise ValueError(
                f"`X` must be a table with one column per feature, got {self.X.ndim} dimension(s)."
                " Hint: pass a frame, or an array of shape (n, d)."
            )
        self.n = self.X.shape[0]
        self.names = [f"x{j}" for j in range(self.X.shape[1])]

    def values(self, name: str) -> Any:
        """One column: as narwhals sees it, or a dense array."""
        if self._frame is not None:
            return self._columns[name]
        column = self.X[:, self.names.index(name)]
        return column.toarray().ravel() if sparse.issparse(column) else column

    def evenly(self, name: str, count: int) -> Rows:
        """Rows spread evenly over the column in its order, so that their values stand for it."""
        column = self.values(name)
        if isinstance(column, np.ndarray) and column.dtype.kind in "fiub":
            key = column
        elif not isinstance(column, np.ndarray) and column.dtype.is_numeric():
            key = np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
        else:
            key = _levels(column)
        order = np.argsort(key, kind="stable")
        count = min(count, self.n)
        return order[((np.arange(count) + 0.5) * self.n / count).astype(np.intp)]

    def constants(self, name: str, rows: Rows) -> Any:
        """The table with one column as it is in one row, for all rows; once for each, below."""
        tables = [self._with(name, np.full(self.n, row)) for row in rows]
        if len(tables) == 1:
            return tables[0]
        if self._frame is not None:
            frames = [nw.from_native(table, eager_only=True) for table in tables]
            return nw.concat(frames, how="vertical").to_native()
        if sparse.issparse(self.X):
            return sparse.vstack(tables, format="csr")
        return np.concatenate(tables)

    def without(self, name: str) -> Any:
        """The table without one column."""
        if self._frame is not None:
            return self._frame.drop(self._columns[name].name).to_native()
        keep = [j for j, other in enumerate(self.names) if other != name]
        return self.X[:, keep]

    def _with(self, name: str, rows: Rows) -> Any:
        j = self.names.index(name)
        if self._frame is None:
            if sparse.issparse(self.X):
                column = sparse.csc_matrix(self.values(name)[rows][:, None])
                parts = [self.X[:, :j], column, self.X[:, j + 1 :]]
                return sparse.hstack([p for p in parts if p.shape[1]], format="csr")
            table = self.X.copy()
            table[:, j] = table[rows, j]
            return table
        if self._frame.implementation.is_pandas_like():
            # Not through narwhals, which matches rows by their index.
            native = self._frame.to_native().copy()
            column = native.iloc[:, j]
            taken = type(column)(column.array.take(rows), index=native.index, name=column.name)
            native.isetitem(j, taken)
            return native
        column = self._columns[name]
        return self._frame.with_columns(column[rows].alias(column.name)).to_native()


def stand_in(
    column: Any, name: str, groups: Groups, estimator: EntropyEstimator
) -> tuple[float, float]:
    """I(X_j;A)/H(A), left out row by row, and its standard error: how well X_j stands for A."""
    encoder = TableEncoder(min_level_rows=1, max_levels=10**9).fit(_table(column, name))
    (spec,) = encoder.columns_
    if spec.kind == "number" and not spec.missing:
        x = groups.take_known(encoder.transform(_table(column, name))[:, 0])
        found = estimate_entropies(
            [INDEPENDENCE], {"s": groups.put_known(x)}, groups, estimator
        )  # fmt: skip
        psi = found.influence(INDEPENDENCE)
        return found.normalized(INDEPENDENCE), standard_error(psi, groups.weight, groups.cluster)
    if spec.kind == "left out" and "different texts" not in spec.reason:
        return 0.0, 0.0
    return _levels_information(groups.take_known(_levels(column)), groups)


def _levels(column: Any) -> Rows:
    """Numbers of the distinct values, missing ones being one more."""
    values = list(column) if isinstance(column, np.ndarray) else column.to_list()
    text = np.array(["" if v is None or v != v else f"={v}" for v in values])
    return np.unique(text, return_inverse=True)[1]


def _levels_information(level: Rows, groups: Groups) -> tuple[float, float]:
    """1 − H(A|level)/H(A), each row (or cluster) predicted from the others of its level.

    ρ_k = (n_lk + P(k)) / (n_l + 1) over the others, the shares P counting for one row.
    """
    member = groups.membership()
    weight = np.ones(len(level)) if groups.weight is None else groups.weight
    own = member * weight[:, None]
    n_levels = int(level.max()) + 1
    total = np.zeros((n_levels, groups.n_groups))
    np.add.at(total, level, own)
    if groups.cluster is not None:
        # What the row's own cluster has in its level.
        pair = np.unique(level * groups.n_units + groups.cluster, return_inverse=True)[1]
        within = np.column_stack([cluster_sums(pair, column) for column in own.T])
        own = within[pair]
    counts = np.maximum(total[level] - own, 0.0)
    rho = (counts + groups.shares) / (counts.sum(axis=1) + 1.0)[:, None]
    loss = -(member * np.log(rho)).sum(axis=1)
    base = -(member @ np.log(groups.shares))
    left = float(np.average(loss, weights=groups.weight)) / groups.entropy
    psi = (base * left - loss) / groups.entropy
    return max(1.0 - left, -0.1), standard_error(psi, groups.weight, groups.cluster)


def told_by(column: Any, name: str, y: Vector, weight: Vector | None) -> float:
    """Share of the variance of y's ranks that one column explains, held out.

    Near 1, it is the target in disguise. Of ranks, since a few large values of a skewed target
    are most of its variance, and hard to meet even by its own logarithm.
    """
    from sklearn.tree import DecisionTreeRegressor

    y = rankdata(y)
    encoder = TableEncoder(min_level_rows=1).fit(_table(column, name))
    if encoder.columns_[0].kind == "left out" or len(y) < 50:
        return 0.0
    Z = encoder.transform(_table(column, name))
    model = DecisionTreeRegressor(max_leaf_nodes=64, min_samples_leaf=5, random_state=0)
    rows = np.random.default_rng(0).permutation(len(y))[:20_000]
    predicted = cross_val_predict(model, Z[rows], y[rows], cv=3)
    w = None if weight is None else weight[rows]
    spread = np.average((y[rows] - np.average(y[rows], weights=w)) ** 2, weights=w)
    error = np.average((y[rows] - predicted) ** 2, weights=w)
    return float(1.0 - error / spread) if spread > 0 else 0.0


def copies(table: FeatureTable) -> list[tuple[str, str]]:
    """Features that put all rows in the same order, or in the opposite one, as one before them."""
    seen: dict[bytes, str] = {}
    found = []
    for name in table.names:
        column = table.values(name)
        if isinstance(column, np.ndarray) and column.dtype.kind in "fiub":
            key: Any = column
        elif not isinstance(column, np.ndarray) and column.dtype.is_numeric():
            key = np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
        else:
            # Names of levels say nothing about order: they are numbered as they come.
            _, first, level = np.unique(_levels(column), return_index=True, return_inverse=True)
            key = np.argsort(np.argsort(first))[level]
        values = np.asarray(key, dtype=np.float64)
        gaps = np.isnan(values)
        if len(np.unique(values[~gaps])) < 2:
            continue
        ranks = [rankdata(np.where(gaps, -np.inf, sign * values), "dense") for sign in (1, -1)]
        keys = [r.astype(np.int64).tobytes() for r in ranks]
        before = next((seen[k] for k in keys if k in seen), None)
        if before is None:
            seen[keys[0]] = name
        else:
            found.append((name, before))
    return found


def _table(column: Any, name: str) -> Any:
    return column[:, None] if isinstance(column, np.ndarray) else column.alias(name).to_frame()
