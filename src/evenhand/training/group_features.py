"""Group features: what a linear score lacks to treat groups differently where fairness asks it.

With s₀ the (standardized) ridge prediction and p_k the membership of group k, append p_k and
p_k·s₀ for all groups but the first: 2(K − 1) columns, no new machinery. p_k is the recorded
attribute ("attribute") or its probability given the features ("posterior").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh
from sklearn import config_context
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils.validation import has_fit_parameter

from .._core.arrays import Matrix, Vector
from .._core.validation import InputError
from ..data.groups import Groups, resolve_groups
from .design import whiten

if TYPE_CHECKING:
    from .problem import Problem, RidgeProblem, TrainingRows

# ------------------------------------------------------------------------------------------------
# Membership p_k of each row in each group: recorded, or as probable given the features.


def refuse_measured(kind: str | None, groups: Groups) -> None:
    """Refuse bands of a measurement as the recorded group: those of other rows begin elsewhere."""
    if kind == "attribute" and groups.measured is not None:
        raise InputError(
            "group_features", "be None or 'posterior' with a Continuous attribute, got "
            "'attribute': a model that knows the group at prediction needs bands that stay where "
            "they are", hint="cut the attribute with evenhand.bands, in fit and in predict.",
        )  # fmt: skip


@dataclass(frozen=True)
class Membership:
    """How a model knows the group of a row that it scores.

    Attributes
    ----------
    kind : {"posterior", "attribute"}
        By P(a|x) of a fitted classifier, or as recorded.
    labels : tuple
        The K groups.
    shares : (K,) array
        Used for a row whose group is not known.
    name : str
        What the attribute is called; of a crossing, its columns in their order.
    """

    kind: str
    labels: tuple[Any, ...]
    shares: NDArray[np.float64]
    name: str

    def members(self, X: Any, sensitive_features: Any, n_rows: int, classifier: Any) -> Matrix:
        """(n, K) memberships; `sensitive_features` is needed, and used, for "attribute" only.

        Parameters
        ----------
        X : (n, d) array or frame
            As the classifier takes it.
        sensitive_features : array, series, frame, Proxy or Groups
        n_rows : int
            n.
        classifier : fitted classifier of the group numbers, or None for "attribute"
        """
        if self.kind == "posterior":
            return classifier.predict_proba(X)
        if sensitive_features is None:
            raise InputError(
                "sensitive_features", "be given to predict when group_features='attribute': the "
                "score depends on the group",
                hint="use group_features='posterior' for a model that does not need it.",
            )  # fmt: skip
        groups = resolve_groups(sensitive_features, n_rows=n_rows, require_two=False, warn=False)
        # Flags of two columns would be taken for one another.
        columns, order = (text.split(" × ") for text in (groups.name, self.name))
        if columns != order and sorted(columns) == sorted(order):
            raise InputError("sensitive_features", f"have the column order {order}", columns)
        unseen = [label for label in groups.labels if label not in self.labels]
        if unseen:
            raise InputError(
                "sensitive_features", f"{unseen[0]!r}, which was not among the groups seen in "
                f"fit: {', '.join(map(repr, self.labels))}", verb="holds",
                hint="set it to missing to use the average over groups.",
            )  # fmt: skip
        out = np.tile(self.shares, (n_rows, 1))
        rows = np.zeros((groups.n_known, len(self.labels)))
        rows[:, [self.labels.index(label) for label in groups.labels]] = groups.membership()
        out[slice(None) if groups.known is None else groups.known] = rows
        return out


# ------------------------------------------------------------------------------------------------
# P(a|x) by any classifier, for models that act on the probability of a group.


Rows = NDArray[np.intp]


def fit_group_classifier(classifier: Any, X: Any, groups: Groups, rows: Rows | None = None) -> Any:
    """A classifier of the group numbers, fitted on some rows of X.

    Parameters
    ----------
    classifier : classifier or None
        Cloned; None means logistic regression on scaled features.
    X : (n, d) array or frame
        As `classifier_input` returns it.
    groups : Groups
        Of all n rows.
    rows : (m,) array, optional
        Row numbers, all when left out; those of unknown group among them are left out.
    """
    known, labels, weight = _labeled(groups if rows is None else groups.take(rows))
    if rows is not None or groups.known is not None or groups.codes is None:
        X = _safe_indexing(X, known if rows is None else rows[known])
    if classifier is None:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler(with_mean=not sparse.issparse(X))
        model = Pipeline([("scale", scaler), ("classify", LogisticRegression(max_iter=1000))])
        with config_context(enable_metadata_routing=False):
            return model.fit(X, labels, classify__sample_weight=weight)
    model = clone(classifier)
    if weight is not None and not has_fit_parameter(model, "sample_weight"):
        raise ValueError(
            "`group_classifier` must accept `sample_weight` in fit, for weights and for proxies; "
            f"{type(model).__name__} does not."
        )
    return model.fit(X, labels, **({} if weight is None else {"sample_weight": weight}))


def out_of_fold_groups(
    classifier: Any, X: Any, groups: Groups, folds: list[Any]
) -> tuple[Any, Matrix]:
    """A classifier fitted to all rows, and P(a|x) of each row by one that did not see it."""
    p = np.empty((groups.n_rows, groups.n_groups))
    for train, test in folds:
        model = fit_group_classifier(classifier, X, groups, train)
        p[test] = model.predict_proba(_safe_indexing(X, test))
    return fit_group_classifier(classifier, X, groups, np.arange(groups.n_rows)), p


def classifier_input(classifier: Any, X: Any, numbers: Any = None) -> Any:
    """X for a classifier of the user's own; `numbers`, or X checked, for the default one."""
    if classifier is not None:
        return X
    if numbers is not None:
        return numbers
    try:
        return check_array(X, accept_sparse="csr", dtype=np.float64)
    except ValueError as error:
        raise InputError(
            "X", f"be finite numbers for the default group classifier: {error} Hint: pass "
            "group_classifier=..., such as a pipeline that encodes categories, or use "
            "group_features='attribute'",
        ) from None  # fmt: skip


def _labeled(groups: Groups) -> tuple[Rows, NDArray[np.intp], Matrix | None]:
    """Row numbers, group numbers and weights: rows of known group, each once for each group.

    Soft labels are repeated rows, weighted by the probability of each group.
    """
    known = np.arange(groups.n_rows) if groups.known is None else np.flatnonzero(groups.known)
    weight = groups.weight
    if groups.codes is not None:
        return known, groups.codes, weight
    assert groups.probabilities is not None
    k = groups.n_groups
    soft = groups.probabilities.T.ravel()
    labels = np.repeat(np.arange(k), groups.n_known)
    return np.tile(known, k), labels, soft if weight is None else soft * np.tile(weight, k)


@dataclass(frozen=True)
class GroupFeatures(Membership):
    """Fitted map from a row to its 2(K − 1) group features.

    Attributes
    ----------
    kind, labels, shares, name
        As in :class:`Membership`.
    center, scale : float
        Mean and spread of s₀ on the training rows.
    posterior : classifier or None
        P(a|x), for "posterior".
    """

    center: float
    scale: float
    posterior: Any

    @classmethod
    def fit(
        cls, kind: str, X: Any, score: Vector, groups: Groups, weight: Vector | None
    ) -> GroupFeatures:
        """Fit on the training rows, of which `score` is the ridge prediction s₀."""
        refuse_measured(kind, groups)
        center = float(np.average(score, weights=weight))
        scale = float(np.sqrt(np.average((score - center) ** 2, weights=weight))) or 1.0
        posterior = fit_group_classifier(None, X, groups) if kind == "posterior" else None
        return cls(kind, groups.labels, groups.shares, groups.name, center, scale, posterior)

    def transform(self, X: Any, score: Vector, sensitive_features: Any = None) -> Vector:
        """(n, 2(K − 1)) features; `sensitive_features` is needed for "attribute" only."""
        p = self.members(X, sensitive_features, len(score), self.posterior)[:, 1:]
        return np.hstack([p, p * ((score - self.center) / self.scale)[:, None]])


# ------------------------------------------------------------------------------------------------
# Slopes that differ by group, drawn together: γ·Σ_k (b_k − b̄)² with γ by leave-one-out.
#
# b_k is the slope of group k and b̄ their plain mean, so that it does not matter which group the
# columns leave out. In a ridge regression on free columns f (penalty α) and slope columns q,
#
#     yᵢ − ŷ₋ᵢ = rᵢ / (1 − hᵢ),   r = r₀ − q̃ g,   g = (M + γR)⁻¹ m,
#     hᵢ = (ωᵢ/n)·[1 + fᵢᵀC⁻¹fᵢ + q̃ᵢᵀ(M + γR)⁻¹q̃ᵢ]
#
# with C = fᵀΩf/n + αI, q̃ the slope columns less what the free ones say of them, and M and m the
# moments of the slopes that the free columns leave: one pass over the rows serves every γ.


# Rows per extra slope up to which "auto" looks. A slope costs a share 1/n of the unexplained
# variance, which beyond is less than anybody could measure.
MAX_ROWS = 20_000
# γ as a multiple of what the rows say of a slope on average, up to `Slopes.most`.
GRID = (0.0, *(2.0**k for k in range(-7, 3)))
# A row that the rest cannot predict at all (alone in its group) says nothing about slopes.
ALONE = 1e-6


@dataclass(frozen=True)
class Slopes:
    """The last (K − 1)·width columns of a design: slopes of all groups but the first.

    Attributes
    ----------
    n_groups : int
        K.
    width : int
        Slopes of each group; those of one group are next to each other.
    most : float
        Largest γ of "auto", as a multiple of what the rows say of a slope on average. Fairness may
        need slopes that accuracy does not, and pays γ for them too.
    """

    n_groups: int
    width: int = 1
    most: float = 4.0

    @property
    def size(self) -> int:
        """How many columns."""
        return (self.n_groups - 1) * self.width

    def penalty(self) -> Matrix:
        """R with bᵀRb = Σ_k (b_k − b̄)², the first group's slope being zero in these columns."""
        k = self.n_groups
        alike: Matrix = np.eye(k - 1) - 1.0 / k
        return np.kron(alike, np.eye(self.width)).astype(np.float64, copy=False)

    def shrink(
        self, problem: Problem, rows: TrainingRows, group_alpha: float | str
    ) -> tuple[Problem, float]:
        """The problem with its slopes penalized, and γ.

        "auto" leaves rows out of the least squares problem that a Newton step at the plain solution
        solves.
        """
        if isinstance(group_alpha, str):
            ridge, target, weight, unit = problem.least_squares(rows)
            group_alpha = 0.0
            # γ of least Σ ωᵢ(yᵢ − ŷ₋ᵢ)², or zero where there are rows enough.
            if 0 < ridge.design.n <= MAX_ROWS * self.size:
                typical, error = self.left_out_error(ridge, target, weight)
                grid = [typical * step for step in GRID if step <= self.most]
                group_alpha = unit * grid[int(np.argmin([error(gamma) for gamma in grid]))]
        if group_alpha == 0 or self.size == 0:
            return problem, float(group_alpha)
        penalty = problem.penalty.copy()
        penalty[-self.size :, -self.size :] += group_alpha * self.penalty()
        return problem.penalized(penalty), float(group_alpha)

    def left_out_error(
        self, problem: RidgeProblem, y: Vector, weight: Vector | None
    ) -> tuple[float, Callable[[float], float]]:
        """What the rows say of a slope on average, and γ → Σ ωᵢ(yᵢ − ŷ₋ᵢ)²."""
        residual, leverage, slopes, moment, target = self._left(problem, y)
        omega = np.ones(len(residual)) if weight is None else weight
        # M = Σ λ v vᵀ in the metric of R.
        values, vectors = eigh(moment, self.penalty())
        rotated, target, share = slopes @ vectors, vectors.T @ target, omega / len(residual)

        def room(gamma: float) -> tuple[Vector, Vector]:
            inverse = 1.0 / np.maximum(values + gamma, 1e-12 * values.max())
            return inverse, 1.0 - share * (leverage + np.square(rotated) @ inverse)

        used = room(0.0)[1] > ALONE

        def error(gamma: float) -> float:
            inverse, left = room(gamma)
            errors = (residual - rotated @ (inverse * target))[used] / left[used]
            return float(omega[used] @ np.square(errors))

        return float(values.clip(0.0).mean()), error

    def _left(self, problem: RidgeProblem, y: Vector) -> tuple[Vector, Vector, Matrix, Matrix, Any]:
        """What the free columns leave: residuals, leverages, slope columns, M and m."""
        gram, cross, design = problem.moments.gram, problem.moments.cross, problem.design
        n, k = design.n, design.d - self.size
        whitened = whiten(gram[:k, :k], problem.penalty[:k, :k])
        theta = whitened @ (whitened.T @ cross[:k])
        said = whitened @ (whitened.T @ gram[:k, k:])
        # With an intercept all is about the means; it then costs 1/n of every row's weight.
        plain = problem.plain
        residual, leverage = y - plain.level, np.full(n, float(problem.fit_intercept))
        slopes = np.empty((n, self.size))
        for rows, block in design.blocks():
            block = block - plain.center
            free = block[:, :k]
            residual[rows] -= free @ theta
            leverage[rows] += np.square(free @ whitened).sum(axis=1)
            slopes[rows] = block[:, k:] - free @ said
        moment = gram[k:, k:] + problem.penalty[k:, k:] - gram[k:, :k] @ said
        return residual, leverage, slopes, moment, cross[k:] - said.T @ cross[:k]


# ------------------------------------------------------------------------------------------------
# Maps of each group's scores onto the barycenter of all groups: g_k(s) = Σ_j p_j Q_j(F_k(s)).
#
# F_k is the distribution function and Q_k the quantile function of the scores of group k, p_k its
# share. Moved this way all groups have one distribution, and among such scores these are the
# closest to the
# old ones in squared error.


# Levels at which quantiles are matched. Every row's own rank would carry over the sampling noise of
# small groups; held out, a hundred levels were as fair as that and no less accurate.
N_LEVELS = 100


@dataclass(frozen=True)
class Transport:
    """One rising map per group, of straight pieces through (knots, values).

    Beyond a group's range a score is moved as far as the end of the range is: slope one.
    """

    knots: tuple[Vector, ...]
    values: tuple[Vector, ...]

    @classmethod
    def fit(cls, scores: Vector, membership: NDArray[np.float64]) -> Transport:
        """From scores, (n,), and the weight of each row in each group, (n, K)."""
        order = np.argsort(scores, kind="stable")
        levels = (np.arange(N_LEVELS) + 0.5) / N_LEVELS
        columns = [distribution(scores[order], weight[order]) for weight in membership.T]
        quantiles = [np.interp(levels, rank, support) for support, rank in columns]
        shares = membership.sum(axis=0) / membership.sum()
        target = np.sum([p * mine for p, mine in zip(shares, quantiles, strict=True)], axis=0)
        knots, values = [], []
        for mine in quantiles:
            # Levels that share a score, where many rows tie, go to the mean of their targets.
            knot, which, count = np.unique(mine, return_inverse=True, return_counts=True)
            knots.append(knot)
            values.append(np.bincount(which, target) / count)
        return cls(tuple(knots), tuple(values))

    def __call__(self, scores: Vector) -> NDArray[np.float64]:
        """(n, K): each score as each group's map would move it."""
        moved = []
        for knot, value in zip(self.knots, self.values, strict=True):
            beyond = scores - np.clip(scores, knot[0], knot[-1])
            moved.append(np.interp(scores, knot, value) + beyond)
        return np.column_stack(moved)

    def slopes(self) -> NDArray[np.float64]:
        """(K, 3): slopes of each map's flattest and steepest piece, and beyond its range."""
        out = np.ones((len(self.knots), 3))
        for k, (knot, value) in enumerate(zip(self.knots, self.values, strict=True)):
            if len(knot) > 1:
                pieces = np.diff(value) / np.diff(knot)
                out[k, :2] = pieces.min(), pieces.max()
        return out


def distribution(ordered: Vector, weight: Vector) -> tuple[Vector, Vector]:
    """Sorted distinct scores and their mid-ranks in (0, 1), for rows of positive weight."""
    used = weight > 0
    ordered, weight = ordered[used], weight[used]
    ordered, first = np.unique(ordered, return_index=True)
    weight = np.add.reduceat(weight, first)
    total = np.cumsum(weight)
    return ordered, (total - weight / 2.0) / total[-1]


# ------------------------------------------------------------------------------------------------
# Maps m_k of a (standardized) score z that differ by group, as columns of a linear model.
#
#     affine     m_k(z) = o_k + z·c_k                          on [z, p_k, p_k·z]
#     spline     m_k(z) = o_k + z·c_k0 + Σ_j max(z − b_j, 0)·c_kj   on [B(z), p_k, p_k·B(z)]
#     transport  m_k(z) = o + z·c_k + g_k(z)·c                 on [z, Σ_k p_k·g_k(z), p_k·z]


MAPS = ("affine", "spline", "transport")


@dataclass(frozen=True)
class ScoreMaps:
    """The family of maps; its members are given by offsets, (K,), and slopes, (K, width).

    Attributes
    ----------
    n_groups : int
        K; 1 for one map for everybody.
    bends : (J,) array
        Where a spline may bend; empty for the others.
    transport : Transport or None
        g_k, for transport.
    stacked : bool
        Whether the columns stand beside X, in the stack: groups then differ in straight lines only,
        and may have both a shift and a transport.
    """

    n_groups: int
    bends: Vector
    transport: Transport | None
    stacked: bool = False

    def features(self, z: Vector, p: Matrix | None) -> Matrix:
        """Columns of the linear model; p, (n, K), are memberships, None for one map.

        Transport has no shift by group: with one, the search was fair in the eyes of a quadratic
        classifier by straight maps, and lost what transport gains.
        """
        columns = self._columns(z)
        if p is None:
            return columns
        others, moved = p[:, 1:], []
        if self.transport is not None:
            moved = [(self.transport(z) * p).sum(axis=1, keepdims=True)]
        if self.stacked:
            return np.hstack([columns, others, *moved, others * z[:, None]])
        by_group = (p[:, [k]] * columns for k in range(1, p.shape[1]))
        return np.hstack([columns, *(moved or [others]), *by_group])

    def names(self, labels: Sequence[str]) -> list[str]:
        """Of the columns beside X."""
        return [
            "score",
            *(f"score beyond {bend:.2f}" for bend in self.bends),
            *(f"P({label})" for label in labels[1:]),
            *(["score at the barycenter"] if self.transport is not None else []),
            *(f"P({label})·score" for label in labels[1:]),
        ]

    def slopes(self) -> Slopes | None:
        """The columns of `features` whose coefficients are slopes by group; None for one map."""
        if self.n_groups == 1:
            return None
        # Offsets apart, slopes are all that such a map can be fair by; held out, a larger penalty
        # cost more where groups differ in spread than it saved where rows are few.
        width = 1 if self.stacked else 1 + len(self.bends)
        return Slopes(self.n_groups, width, most=1.0)

    def simple_columns(self) -> list[int] | None:
        """Columns of `features` for maps that never fall in places; None where all are such.

        Those of the affine map for a spline, the barycenter's alone for transport.
        """
        if self.stacked:
            return None
        if self.transport is not None:
            return [1]
        if not len(self.bends):
            return None
        width, more = 1 + len(self.bends), self.n_groups - 1
        return [0, *range(width, width + more), *(width + more + k * width for k in range(more))]

    def unpack(self, intercept: float, coef: Vector) -> tuple[Vector, Matrix]:
        """Offsets and slopes from coefficients of `features`, or of its simple columns."""
        groups = self.n_groups
        if self.transport is not None:
            base, moved, *more = coef if len(coef) > 1 else [0.0, coef[0], *[0.0] * (groups - 1)]
            slopes = np.array([[base + extra, moved] for extra in (0.0, *more)])
            return np.full(groups, float(intercept)), slopes
        width = (len(coef) - groups + 1) // groups
        base, shift, slope = np.split(coef, [width, width + groups - 1])
        offsets = intercept + np.concatenate([[0.0], shift])
        return offsets, base + np.vstack([np.zeros(width), slope.reshape(groups - 1, width)])

    def evaluate(self, z: Vector, p: Matrix, offsets: Vector, slopes: Matrix) -> Vector:
        """Σ_k p_k·m_k(z)."""
        columns = self._columns(z)
        maps = offsets + columns @ slopes[:, : columns.shape[1]].T
        if self.transport is not None:
            maps += self.transport(z) * slopes[:, 1]
        return (maps * p).sum(axis=1)

    def blend(self, simple: Matrix, fitted: Matrix) -> float:
        """Largest t ≤ 1 for which (1 − t)·simple + t·fitted falls nowhere.

        Mixing with a simpler solution, rather than flattening pieces by isotonic regression, stays
        between two minima of the objective; flattening was seen to undo the fairness.
        """
        bent = self._steepness(fitted)
        falling = bent < 0
        if not falling.any():
            return 1.0
        level = np.broadcast_to(self._steepness(simple), bent.shape)
        room = np.clip(level[falling], 0.0, None)
        return float((room / (room - bent[falling])).min())

    def _columns(self, z: Vector) -> Matrix:
        return np.column_stack([z, *(np.maximum(z - bend, 0.0) for bend in self.bends)])

    def _steepness(self, slopes: Matrix) -> Matrix:
        """(K, pieces): how steep each piece is; of transport only the extremes."""
        if self.transport is not None:
            return slopes[:, :1] + slopes[:, 1:] * self.transport.slopes()
        return np.cumsum(slopes, axis=1)
