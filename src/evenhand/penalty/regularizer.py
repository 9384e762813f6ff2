"""Scores → value, gradient and curvature: the seam every fitter uses.

    L_ind = mean log ρ(a|s),  L_sep = mean log ρ(a|s,y),  L_suf = L_sep − L_ind
    Ĩ_ind = (H(A) + L_ind) / H(A)
    Ĩ_sep = (H(A|Y) + L_sep) / H(A|Y)
    Ĩ_suf = L_suf / H(A)

The normalizers are constants in training; sufficiency's own, H(A|S), moves with the model, so
H(A) stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from .._kernels import Rows, get_kernels, make_rows, standardizer
from ..groups.frequency import check_frequency, people_of, repeat_rows
from ..groups.sensitive import Groups, count_rows, resolve_groups
from ..groups.validation import check_column, check_index
from ..information.basis import get_basis
from ..information.classifiers.logistic import KAPPA, LogisticTerm
from ..information.classifiers.lspc import LSPCTerm
from ..information.criteria import Criterion, get_criterion
from .checks import check_kappa, check_normalizer
from .curvature import low_rank_factor
from .repeated import RepeatedRegularizer

CLASSIFIERS = ("logistic", "lspc")
SCORE_MAPS = ("auto", "tanh", "raw")
# The c of t = c·tanh(z/c): at 1 too little of the score is left, at 3 its tails are back.
LIMIT = 1.5
# κ per row of "lspc" under "auto".
LSPC_SHARE = 0.3
# H(A|Y) below this share of H(A) is a target that gives the group away.
LEAST_UNCERTAINTY = 1e-3


class FairnessRegularizer:
    """The normalized information of a criterion as a differentiable function of the scores.

    Parameters
    ----------
    criterion : {"independence", "separation", "sufficiency"}
    classifier : {"logistic", "lspc"}
        The classifier of the group inside. "lspc" is the published method; "logistic" is closer
        to the true information at a similar cost.
    basis : {"quadratic", "linear", "degree3"}
        φ of the (standardized) score and target.
    kappa : "auto", nonnegative float or "published"
        Ridge penalty κ of the classifier: it minimizes a sum over the n rows with known group, each
        weighing 1 on average, plus κ‖w‖² ("lspc", squared errors) or κ‖w‖²/2 ("logistic", log
        losses, intercepts free; here κ must be positive), where w multiplies terms of variables of
        mean 0 and variance 1. Units of the score therefore do not matter. "auto" is 0.001 for
        "logistic" and 0.3·n, intercepts free, for "lspc". A number with "lspc" is the κ of
        :class:`evenhand.LSPC`, on intercepts too. "published", for "lspc" alone, is the original
        method: a penalty of 1 on terms of score and target as they are, neither shifted
        nor scaled, so that units do matter.
    score_map : {"auto", "tanh", "raw"}
        What of the standardized score and target z enters φ. "tanh": t = 1.5·tanh(z/1.5), with
        which no classifier can spend its quadratic terms on the tails. "raw": z itself. "auto" is
        "tanh", or "raw" for "lspc" with a `kappa` other than "auto", as published.

    Notes
    -----
    Why 0.3·n for "lspc": leave-one-out at an unconstrained score asks for next to no penalty, but
    training then moves to scores whose least squares fit fails, in their tails above all, rather
    than to fair ones. A bounded score and a strong penalty prevent that. One that shrinks the
    intercepts too makes the probabilities of the groups add up to a curve instead of 1, which
    training finds as well.

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 200)
    >>> y = rng.normal(size=200) + a
    >>> bound = eh.FairnessRegularizer("separation").bind(y, sensitive_features=a)
    >>> value, grad = bound.value_and_grad(y + rng.normal(size=200))
    >>> grad.shape
    (200,)
    """

    def __init__(
        self,
        criterion: str = "independence",
        classifier: str = "logistic",
        basis: str = "quadratic",
        *,
        kappa: float | str = "auto",
        score_map: str = "auto",
    ):
        self.criterion = get_criterion(criterion)
        if not isinstance(classifier, str) or classifier not in CLASSIFIERS:
            raise ValueError(
                f"`classifier` must be one of {', '.join(CLASSIFIERS)}, got {classifier!r}."
            )
        self.classifier = classifier
        self.basis = basis
        get_basis(basis, 1)
        self.kappa = check_kappa(kappa, classifier)
        if not isinstance(score_map, str) or score_map not in SCORE_MAPS:
            raise ValueError(
                f"`score_map` must be one of {', '.join(SCORE_MAPS)}, got {score_map!r}."
            )
        if kappa == "published" and score_map == "tanh":
            raise ValueError(
                "`score_map` must be 'raw' with kappa='published', which leaves the score as it "
                "is, got 'tanh'."
            )
        self.score_map = score_map

    def __repr__(self) -> str:
        named = "".join(
            f", {name}={getattr(self, name)!r}"
            for name in ("kappa", "score_map")
            if getattr(self, name) != "auto"
        )
        return (
            f"FairnessRegularizer({self.criterion.name!r}, {self.classifier!r}, {self.basis!r}"
            f"{named})"
        )

    @property
    def is_bounded(self) -> bool:
        """Whether the classifiers see t = c·tanh(z/c) instead of z."""
        if self.score_map == "auto":
            return self.classifier == "logistic" or self.kappa == "auto"
        return self.score_map == "tanh"

    def penalty(self, n_rows: int) -> float:
        """κ for so many rows."""
        if self.kappa == "published":
            return 1.0
        if self.kappa == "auto":
            return LSPC_SHARE * n_rows if self.classifier == "lspc" else KAPPA
        return float(self.kappa)

    def bind(
        self,
        y_true: Any,
        *,
        sensitive_features: Any,
        sample_weight: Any = None,
        frequency: Any = None,
        given: Any = None,
        normalizer: float | None = None,
    ) -> BoundRegularizer:
        """Fix everything but the scores.

        Parameters
        ----------
        y_true : (n,) array
            Targets. May be None for independence when `sensitive_features` has a length.
        sensitive_features : array, series, frame, Proxy or Groups
        sample_weight : (n,) array, optional
        frequency : (n,) array, optional
            Number of people that each row of an aggregated table stands for; scores and gradients
            still have one entry a row.
        given : (n,) array, optional
            What separation and sufficiency condition on in place of `y_true`, such as a legitimate
            measure of risk where the target is mostly zeros.
        normalizer : positive float, optional
            What the information is divided by, in nats. By default that of these rows, H(A) or
            H(A|Y); batches of rows share one that is fixed from outside, so that all are weighed
            alike.
        """
        if given is not None and "y" not in self.criterion.needs:
            raise ValueError(
                f"`given` must be None with criterion={self.criterion.name!r}, which conditions on "
                "nothing. Hint: criterion='separation' asks whether the scores depend on the group "
                "among rows with the same `given`."
            )
        if normalizer is not None:
            normalizer = check_normalizer(normalizer)
        if frequency is not None:
            table = y_true if y_true is not None else given
            n = count_rows(sensitive_features) if table is None else len(table)
            rows = people_of(check_frequency(frequency, n))
            y_true, sensitive_features, sample_weight, given = repeat_rows(
                frequency, y_true=y_true, sensitive_features=sensitive_features,
                sample_weight=sample_weight, given=given,
            )  # fmt: skip
            inner = self.bind(
                y_true, sensitive_features=sensitive_features, sample_weight=sample_weight,
                given=given, normalizer=normalizer,
            )  # fmt: skip
            return cast(BoundRegularizer, RepeatedRegularizer(inner, rows, n))
        if isinstance(sensitive_features, Groups):
            if sample_weight is not None:
                raise ValueError(
                    "`sample_weight` must be None with Groups, which hold their own weights."
                )
            groups = sensitive_features
        else:
            check_index(
                y_true=y_true,
                given=given,
                sensitive_features=sensitive_features,
                sample_weight=sample_weight,
            )
            if y_true is None:
                n = count_rows(sensitive_features if given is None else given)
            else:
                n = len(check_column(y_true, "y_true"))
            groups = resolve_groups(sensitive_features, n_rows=n, sample_weight=sample_weight)
        y = None
        if given is not None:
            y = check_column(given, "given", groups.n_rows)
        elif "y" in self.criterion.needs:
            y = check_column(y_true, "y_true", groups.n_rows)
        name = "y_true" if given is None else "given"
        return BoundRegularizer(self, y, groups, normalizer=normalizer, target_name=name)


class BoundRegularizer:
    """A :class:`FairnessRegularizer` with target, groups and weights fixed.

    Rows whose group is not known have gradient zero. Calls warm-start one another, so one
    instance serves one optimization at a time.

    Attributes
    ----------
    groups : Groups
    kappa : float
        The penalty of the classifiers.
    normalizer : float
        What the information is divided by, in nats.
    """

    def __init__(
        self,
        regularizer: FairnessRegularizer,
        y: NDArray[np.float64] | None,
        groups: Groups,
        kappa: float | None = None,
        *,
        normalizer: float | None = None,
        target_name: str = "y_true",
    ):
        self.criterion: Criterion = regularizer.criterion
        self.groups = groups
        self.kappa = regularizer.penalty(groups.n_known) if kappa is None else kappa
        self._regularizer, self._y = regularizer, y
        self._fixed, self._target_name = normalizer, target_name
        self.classifier = regularizer.classifier
        # In units of the data the size of the scores counts; otherwise Ĩ does not see it.
        self.scale_free = regularizer.kappa != "published"

        def term(n_variables: int) -> Any:
            basis = get_basis(regularizer.basis, n_variables)
            if regularizer.classifier == "lspc":
                return LSPCTerm(basis, self.kappa, free=regularizer.kappa == "auto")
            return LogisticTerm(basis, self.kappa)

        known_y = None if y is None else np.ascontiguousarray(groups.take_known(y))
        alone, both = make_rows(groups), make_rows(groups, known_y)
        if not self.scale_free:
            both = both._replace(center=alone.center)
        elif known_y is not None and regularizer.is_bounded and both.center[3] != 0.0:
            known_y = get_kernels().bound_scores(known_y, *both.center[2:], LIMIT)
            both = both._replace(y=known_y, center=alone.center)
        self._rows = {("s",): alone, ("s", "y"): both}
        # Signed terms: + L(joint) and, where `given` moves with the score, − L(given).
        signed = [(1.0, self.criterion.joint)]
        self._offset = groups.entropy
        self.normalizer = groups.entropy
        if self.criterion.given == ("s",):
            signed.append((-1.0, ("s",)))
            self._offset = 0.0
        elif self.criterion.given == ("y",):
            assert known_y is not None
            center = np.r_[both.center[2:], 0.0, 1.0]
            self._offset = -term(1).value(alone._replace(s=known_y, center=center))
            self.normalizer = self._offset
        if normalizer is not None:
            self.normalizer = normalizer
        elif self.normalizer <= LEAST_UNCERTAINTY * groups.entropy:
            raise ValueError(
                f"`{target_name}` determines the group completely, so no score can add to it: "
                f"{self.criterion.name} is not defined. Hint: drop the leaking target or use "
                "criterion='independence'."
            )
        self._terms = [(sign, condition, term(len(condition))) for sign, condition in signed]

    def take(self, rows: NDArray[np.intp]) -> BoundRegularizer:
        """The same term over some of the rows, with its penalty in proportion."""
        y = None if self._y is None else self._y[rows]
        groups = self.groups.take(rows)
        kappa = self.kappa
        if self.scale_free:
            kappa *= groups.n_known / self.groups.n_known
        return BoundRegularizer(
            self._regularizer,
            y,
            groups,
            kappa,
            normalizer=self._fixed,
            target_name=self._target_name,
        )

    def warm_start(self, other: BoundRegularizer) -> None:
        """Begin the next evaluation from another term's classifiers."""
        for (_, _, mine), (_, _, theirs) in zip(self._terms, other._terms, strict=True):
            mine.warm_start(theirs)

    def _read(self, s: NDArray[np.float64]) -> _Scores:
        s = np.ascontiguousarray(self.groups.take_known(s))
        weight = self._rows["s",].weight
        center = standardizer(s, weight) if self.scale_free else (0.0, 1.0)
        seen, inside, moves, back = s, center, self.scale_free, None
        if self._regularizer.is_bounded and center[1] != 0.0:
            kernels = get_kernels()
            seen = kernels.bound_scores(s, *center, LIMIT)
            inside, moves = (0.0, 1.0), False

            def back(gradient: NDArray[np.float64]) -> None:
                kernels.unbound_gradient(s, seen, weight, *center, LIMIT, gradient)

        rows = {}
        for _, condition, _ in self._terms:
            fixed = self._rows[condition]
            whole = np.array([*inside, *fixed.center[2:]])
            rows[condition] = fixed._replace(s=seen, center=whole, moves=moves)
        return _Scores(rows, center[1] == 0.0, back, s, center)

    def value(self, y_pred: Any) -> float:
        """Ĩ of the scores."""
        scores = self._read(check_column(y_pred, "y_pred", self.groups.n_rows))
        if scores.constant and self.criterion.given != ("s",):
            return 0.0
        total = self._offset
        for sign, condition, term in self._terms:
            if condition != ("s",) or not scores.constant:
                total += sign * term.value(scores.rows[condition])
            else:
                total -= sign * self.groups.entropy  # a constant score says nothing
        return total / self.normalizer

    def value_and_grad(self, y_pred: Any) -> tuple[float, NDArray[np.float64]]:
        """Ĩ of the scores and its gradient with respect to each of them.

        Parameters
        ----------
        y_pred : (n,) array

        Returns
        -------
        value : float
        gradient : (n,) float64 array
        """
        return self.evaluate(check_column(y_pred, "y_pred", self.groups.n_rows))

    def evaluate(
        self, s: NDArray[np.float64], scale: float = 1.0, rough: bool = False
    ) -> tuple[float, NDArray[np.float64]]:
        """scale·Ĩ and its gradient, for scores that are known to be finite float64.

        With `rough` the gradient may be off in its fourth digit, where that saves a pass.
        """
        return self._evaluate(s, self._read(s), scale, rough)

    def _evaluate(
        self, s: NDArray[np.float64], scores: _Scores, scale: float = 1.0, rough: bool = False
    ) -> tuple[float, NDArray[np.float64]]:
        if scores.constant:
            # Constant scores have no spread to divide by; any direction is as good as another.
            return scale * self.value(s), np.zeros(self.groups.n_rows)
        scale /= self.normalizer
        total, gradient = self._offset, None
        for sign, condition, term in self._terms:
            value, part = term.value_and_grad(scores.rows[condition], scale * sign, rough)
            total += sign * value
            if gradient is None:
                gradient = part
            else:
                gradient += part
        assert gradient is not None
        if scores.back is not None:
            scores.back(gradient)
        return scale * total, self.groups.put_known(gradient)

    def value_grad_curvature(
        self, y_pred: Any
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Ĩ, its gradient g, and B with ∂²Ĩ ≈ BBᵀ, the curvature of low rank.

        Ĩ is a mean over rows: entries of g and rows of B are of order 1/n. On the scale of a loss
        that is summed over rows take n·g and √n·B.

        Parameters
        ----------
        y_pred : (n,) array

        Returns
        -------
        value : float
        gradient : (n,) float64 array
            Both as of `value_and_grad`.
        factor : (n, r) float64 array
            B, r ≤ D(K − 1) for K groups and D terms of the basis (3 of the score, 6 with the
            target, for "quadratic"). Zero in rows whose group is not known.

        Notes
        -----
        ∂²Ĩ = BBᵀ + rest, where BBᵀ is all that the classifier adds by following the scores and the
        rest is the curvature with the classifier held still. The rest has a part that is never
        positive, −Var_ρ(f′), and one without a sign, residuals times f″ and the curvature of mean
        and spread; f′ and f″ are slopes of the classifier in the score. So BBᵀ is the Hessian
        where the score is fair, and its positive part of Gauss-Newton type elsewhere. For
        sufficiency, a difference of two such terms, B is that of the first: an upper bound of both.
        For "lspc" B takes the Fisher information of the probabilities for the Hessian of the log
        loss, and bounds its curvature up to that exchange.
        """
        s = check_column(y_pred, "y_pred", self.groups.n_rows)
        scores = self._read(s)
        value, gradient = self._evaluate(s, scores)
        _, condition, term = self._terms[0]
        rows, (mean, inverse) = scores.rows[condition], scores.center
        if scores.constant:
            width = term.basis.n_terms * (self.groups.n_groups - 1)
            return value, gradient, np.zeros((self.groups.n_rows, width))
        slope = None if scores.back is None else 1.0 - (rows.s / LIMIT) ** 2
        z = (scores.known - mean) * inverse
        factor = low_rank_factor(term, rows, z, slope, inverse, self.scale_free)
        factor /= np.sqrt(self.normalizer)
        return value, gradient, self.groups.put_known(factor)


class _Scores(NamedTuple):
    """Scores as the classifiers see them, and the way back for a gradient."""

    rows: dict[tuple[str, ...], Rows]
    constant: bool
    back: Callable[[NDArray[np.float64]], None] | None
    known: NDArray[np.float64]
    center: tuple[float, float]
