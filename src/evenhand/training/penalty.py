"""Scores → value, gradient and curvature: the seam every fitter uses.

    L_ind = mean log ρ(a|s),  L_sep = mean log ρ(a|s,y),  L_suf = L_sep − L_ind
    Ĩ_ind = (H(A) + L_ind) / H(A)
    Ĩ_sep = (H(A|Y) + L_sep) / H(A|Y)
    Ĩ_suf = L_suf / H(A)

and so for any criterion of one variable that moves with the score and at most one other: the score
itself, or a function of it and the target, whose derivative the gradient is multiplied by. The
normalizers are constants in training; one that moves with the model, as sufficiency's H(A|S), has
H(A) to stand in for it.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Matrix, Vector
from .._core.validation import InputError, check_choice, check_column, check_index, is_number
from ..data.criteria import TARGET, Criterion, Variable, get_criterion
from ..data.groups import Groups, resolve_groups
from ..data.sample import check_frequency, count_rows
from ..data.weights import check_weight
from ..estimators.logistic import KAPPA, LogisticTerm
from ..estimators.lspc import LSPCTerm
from ..estimators.spline_term import LIMIT, ROUGHNESS, ROUGHNESS_GIVEN, SplineTerm
from ..kernels import Rows, get_kernels, make_rows, standardizer
from ..kernels.basis import DEGREES, get_basis
from .curvature import low_rank_factor

SPLINE = "spline"
# H(A | given) below this share of H(A): what is given gives the group away.
LEAST_UNCERTAINTY = 1e-3
CLASSIFIERS = ("logistic", "lspc")
SCORE_MAPS = ("auto", "tanh", "raw")
# κ per row of "lspc" under "auto".
LSPC_SHARE = 0.3

# ------------------------------------------------------------------------------------------------
# Scores as the classifiers inside the fairness term see them.


class Scores(NamedTuple):
    """What a classifier reads, and the way back for a gradient.

    Attributes
    ----------
    rows : dict of Rows
        By what is conditioned on; `s` is bounded, or as it was given.
    constant : bool
        Whether all scores are the same.
    back : callable or None
        From ∂/∂t to ∂/∂s, in place; None where t = c·tanh(z/c) is not used.
    known : (m,) array
        What moves with the score, mostly itself, of rows whose group is known.
    center : tuple
        Its mean and reciprocal spread.
    chain : (m,) array or None
        Its derivative in the score; None where it is the score.
    """

    rows: dict[tuple[str, ...], Rows]
    constant: bool
    bounded: bool
    known: Vector
    center: tuple[float, float]
    chain: Vector | None = None


# ------------------------------------------------------------------------------------------------
# Checks of the numbers that the fairness term takes.


def check_trainable(criterion: Criterion) -> Variable:
    """The one variable of a criterion that moves with the score, or why there is no such term."""
    moving = [criterion.variable(name) for name in criterion.joint if criterion.moves((name,))]
    if len(moving) != 1 or len(criterion.joint) > 2 or len(criterion.needs) > 1:
        raise InputError(
            "criterion", "be about one variable that moves with the score and at most one other "
            f"to be trained for, got {criterion.name!r} of {criterion.words(criterion.joint)}",
            hint="audits and paths measure it all the same.",
        )  # fmt: skip
    (variable,) = moving
    if variable.of and variable.slope is None:
        raise InputError(
            "criterion", "know how its variables follow the score to be trained for, got "
            f"{criterion.name!r}",
            hint=f"Variable({variable.name!r}, ..., slope=...) with the derivative in the score.",
        )  # fmt: skip
    return variable


def check_kappa(kappa: Any, classifier: str) -> None:
    """Refuse a penalty that the classifier cannot use."""
    if isinstance(kappa, str) and kappa in ("auto", "published"):
        if kappa == "published" and classifier != "lspc":
            raise ValueError(
                "`kappa` must be a number or 'auto', got 'published'. Hint: that is for "
                "classifier='lspc'."
            )
        return
    if not is_number(kappa, 0.0):
        raise ValueError(
            f"`kappa` must be a nonnegative number, 'auto' or 'published', got {kappa!r}."
        )
    if classifier == "logistic" and float(kappa) == 0:
        raise ValueError(
            "`kappa` must be positive with classifier='logistic', which keeps groups that a score "
            "tells apart without error finite, got 0."
        )


@dataclass(eq=False, repr=False)
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

    regularizer: FairnessRegularizer
    y: Vector | None
    groups: Groups
    kappa: Any = None
    fixed: float | None = None
    target_name: str = "y_true"

    def __repr__(self) -> str:
        return f"{self.regularizer!r}.bind({self.groups.n_rows:,} rows)"

    def __post_init__(self) -> None:
        regularizer, groups, y = self.regularizer, self.groups, self.y
        self.criterion: Criterion = regularizer.criterion
        if self.kappa is None:
            self.kappa = regularizer.penalty(groups.n_total)
        self._moving = check_trainable(self.criterion)
        self._standardized = regularizer.kappa != "published"
        # In units of the data the size of the scores counts; otherwise Ĩ does not see it.
        self.scale_free = self._standardized and not self._moving.of
        self._plain_y = None if y is None else np.ascontiguousarray(groups.take_known(y))
        self._rows = self._fix_rows()
        # Signed terms: + L(joint) and, where `given` moves with the score, − L(given).
        signed = [(1.0, self.criterion.joint)]
        self._offset = self.normalizer = groups.entropy
        if self.criterion.moves(self.criterion.given):
            signed.append((-1.0, self.criterion.given))
            self._offset = 0.0
        elif self.criterion.given:
            alone, both = self._rows[1], self._rows[2]
            center = np.r_[both.center[2:], 0.0, 1.0]
            if regularizer.chosen_basis == SPLINE:
                self._offset = -self._make_term(2).value_given(both)
            else:
                self._offset = -self._make_term(1).value(alone._replace(s=both.y, center=center))
            self.normalizer = self._offset
        if self.fixed is not None:
            self.normalizer = self.fixed
        elif self.normalizer <= LEAST_UNCERTAINTY * groups.entropy:
            raise InputError(
                self.target_name, "the group completely, so no score can add to it: "
                f"{self.criterion.name} is not defined", verb="determines",
                hint="drop the leaking target or use criterion='independence'.",
            )  # fmt: skip
        self._terms = [
            (sign, condition, self._make_term(len(condition))) for sign, condition in signed
        ]

    def _make_term(self, n_variables: int) -> Any:
        """A classifier of the group given so many variables."""
        chosen = self.regularizer.chosen_basis
        if chosen == SPLINE:
            # Of some rows the penalty is in proportion to theirs.
            share = self.kappa / self.regularizer.penalty(self.groups.n_total)
            given = n_variables == 2 and not self.criterion.moves(self.criterion.given)
            roughness = ROUGHNESS_GIVEN if given else ROUGHNESS
            return SplineTerm(n_variables, self.kappa, share * roughness)
        basis = get_basis(chosen, n_variables)
        if self.regularizer.classifier == "lspc":
            return LSPCTerm(basis, self.kappa, free=self.regularizer.kappa == "auto")
        return LogisticTerm(basis, self.kappa)

    def _fix_rows(self) -> dict[int, Rows]:
        """All that classifiers of one and of two variables read, except the scores."""
        y = self._plain_y
        for variable in map(self.criterion.variable, self.criterion.joint):
            if variable.value is not None and not variable.moves:
                y = np.ascontiguousarray(variable.value(y), dtype=np.float64)
        alone, both = make_rows(self.groups), make_rows(self.groups, y)
        if not self._standardized:
            both = both._replace(center=alone.center)
        elif y is not None and self.regularizer.is_bounded and both.center[3] != 0.0:
            y = get_kernels().bound_scores(y, *both.center[2:], LIMIT)
            both = both._replace(y=y, center=alone.center)
        return {1: alone, 2: both}

    def take(self, rows: NDArray[np.intp]) -> BoundRegularizer:
        """The same term over some of the rows, with its penalty in proportion."""
        y = None if self.y is None else self.y[rows]
        groups = self.groups.take(rows)
        share = groups.n_total / self.groups.n_total if self._standardized else 1.0
        return replace(self, y=y, groups=groups, kappa=share * self.kappa)

    def simplified(self) -> BoundRegularizer:
        """The same term, in the same units, with a quadratic in place of splines."""
        if self.regularizer.chosen_basis != SPLINE:
            return self
        quadratic = replace(self.regularizer, basis="quadratic")
        return replace(self, regularizer=quadratic, fixed=self.normalizer)

    def warm_start(self, other: BoundRegularizer) -> None:
        """Begin the next evaluation from another term's classifiers."""
        for (_, _, mine), (_, _, theirs) in zip(self._terms, other._terms, strict=True):
            mine.warm_start(theirs)

    def read(self, s: Vector) -> Scores:
        """Scores as the classifiers see them."""
        s = np.ascontiguousarray(self.groups.take_known(s))
        chain = None
        if self._moving.of:
            # The variable that moves with the score, and its derivative.
            assert self._moving.value is not None
            assert self._moving.slope is not None
            parts = [s if name == "s" else self._plain_y for name in self._moving.of]
            s = np.ascontiguousarray(self._moving.value(*parts), dtype=np.float64)
            chain = np.broadcast_to(self._moving.slope(*parts), s.shape)
        center = standardizer(s, self._rows[1].weight) if self._standardized else (0.0, 1.0)
        seen, inside, moves = s, center, self._standardized
        bounded = self.regularizer.is_bounded and center[1] != 0.0
        if bounded:
            seen = get_kernels().bound_scores(s, *center, LIMIT)
            inside, moves = (0.0, 1.0), False
        rows = {}
        for _, condition, _ in self._terms:
            fixed = self._rows[len(condition)]
            whole = np.array([*inside, *fixed.center[2:]])
            rows[condition] = fixed._replace(s=seen, center=whole, moves=moves)
        return Scores(rows, center[1] == 0.0, bounded, s, center, chain)

    def value(self, y_pred: Any) -> float:
        """Ĩ of the scores."""
        scores = self.read(check_column(y_pred, "y_pred", self.groups.n_rows))
        if scores.constant and not self.criterion.moves(self.criterion.given):
            return 0.0
        total = self._offset
        for sign, condition, term in self._terms:
            if len(condition) > 1 or not scores.constant:
                total += sign * term.value(scores.rows[condition])
            else:
                total -= sign * self.groups.entropy  # a constant score says nothing
        return total / self.normalizer

    def value_and_grad(self, y_pred: Any) -> tuple[float, Vector]:
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
        self, s: Vector, scale: float = 1.0, rough: bool = False, scores: Scores | None = None
    ) -> tuple[float, Vector]:
        """scale·Ĩ and its gradient, for scores that are known to be finite float64.

        With `rough` the gradient may be off in its fourth digit, where that saves a pass.
        """
        scores = self.read(s) if scores is None else scores
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
        if scores.bounded:
            seen = self._rows[1]._replace(s=scores.rows[self.criterion.joint].s)
            get_kernels().unbound_gradient(seen, scores.known, *scores.center, LIMIT, gradient)
        if scores.chain is not None:
            gradient *= scores.chain
        return scale * total, self.groups.put_known(gradient)

    def value_grad_curvature(self, y_pred: Any) -> tuple[float, Vector, Matrix]:
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
            target, for "quadratic"; 12 and 45 for "spline"). Zero in rows whose group is not known.

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
        scores = self.read(s)
        value, gradient = self.evaluate(s, scores=scores)
        term, rows = self._terms[0][2], scores.rows[self.criterion.joint]
        mean, inverse = scores.center
        if scores.constant:
            width = term.basis.n_terms * (self.groups.n_groups - 1)
            return value, gradient, np.zeros((self.groups.n_rows, width))
        z = (scores.known - mean) * inverse
        # dt/dz at t; None where classifiers see z.
        slope = 1.0 - (rows.s / LIMIT) ** 2 if scores.bounded else None
        factor = low_rank_factor(term, rows, z, slope, inverse, self._standardized)
        if scores.chain is not None:
            factor *= scores.chain[:, None]
        factor /= np.sqrt(self.normalizer)
        return value, gradient, self.groups.put_known(factor)


@dataclass(eq=False, repr=False)
class FairnessRegularizer:
    """The normalized information of a criterion as a differentiable function of the scores.

    Parameters
    ----------
    criterion : {"independence", "separation", "sufficiency"} or Criterion
    classifier : {"logistic", "lspc"}
        The classifier of the group inside. "lspc" is the published method; "logistic" is closer
        to the true information at a similar cost.
    basis : {"auto", "spline", "quadratic", "linear", "degree3"}
        φ of the (standardized) score and target. "spline": twelve cubic splines of the score, times
        a quadratic of the target, penalized so that few rows see a quadratic; with it a fit is fair
        to whatever an audit sees at that resolution, where one against a quadratic may hide in what
        a quadratic cannot see. "auto" is "spline" where it is defined, for "logistic" on bounded
        scores, and "quadratic" elsewhere.
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

    See Also
    --------
    evenhand.FairRidge
    evenhand.independence

    References
    ----------
    Steinberg, D., Reid, A., O'Callaghan, S., Lattimore, F., McCalman, L. and Caetano, T. (2020).
    Fast Fair Regression via Efficient Approximations of Mutual Information.

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

    criterion: Any = "independence"
    classifier: str = "logistic"
    basis: str = "auto"
    _: KW_ONLY
    kappa: float | str = "auto"
    score_map: str = "auto"

    def __post_init__(self) -> None:
        self.criterion = get_criterion(self.criterion)
        check_trainable(self.criterion)
        check_choice("classifier", self.classifier, CLASSIFIERS)
        check_choice("basis", self.basis, ("auto", SPLINE, *DEGREES))
        check_kappa(self.kappa, self.classifier)
        check_choice("score_map", self.score_map, SCORE_MAPS)
        if self.kappa == "published" and self.score_map == "tanh":
            raise ValueError(
                "`score_map` must be 'raw' with kappa='published', which leaves the score as it "
                "is, got 'tanh'."
            )
        if self.basis == SPLINE and not self._has_splines:
            raise ValueError(
                "`basis` must be 'auto' or a polynomial with classifier='lspc' or score_map='raw', "
                "got 'spline'. Hint: splines are for classifier='logistic' on bounded scores."
            )

    def __repr__(self) -> str:
        named = "".join(
            f", {name}={getattr(self, name)!r}"
            for name in ("kappa", "score_map")
            if getattr(self, name) != "auto"
        )
        return (
            f"FairnessRegularizer({self.criterion.name!r}, {self.classifier!r}, "
            f"{self.chosen_basis!r}{named})"
        )

    @property
    def is_bounded(self) -> bool:
        """Whether the classifiers see t = c·tanh(z/c) instead of z."""
        if self.score_map == "auto":
            return self.classifier == "logistic" or self.kappa == "auto"
        return self.score_map == "tanh"

    @property
    def _has_splines(self) -> bool:
        return self.classifier == "logistic" and self.is_bounded

    @property
    def chosen_basis(self) -> str:
        """What "auto" stands for."""
        if self.basis != "auto":
            return self.basis
        return SPLINE if self._has_splines else "quadratic"

    def penalty(self, n_rows: int) -> float:
        """κ for so many rows."""
        if self.kappa == "published":
            return 1.0
        if self.kappa == "auto":
            return LSPC_SHARE * n_rows if self.classifier == "lspc" else KAPPA
        return float(self.kappa)

    def bind(
        self, y_true: Any, *, sensitive_features: Any, sample_weight: Any = None,
        frequency: Any = None, given: Any = None,
    ) -> BoundRegularizer:  # fmt: skip
        """Fix everything but the scores.

        Parameters
        ----------
        y_true : (n,) array
            Targets. May be None for independence when `sensitive_features` has a length.
        sensitive_features : array, series, frame, Proxy or Groups
        sample_weight : (n,) array, optional
        frequency : (n,) array, optional
            Number of people that each row of an aggregated table stands for; scores and gradients
            still have one entry per row.
        given : (n,) array, optional
            What separation and sufficiency condition on in place of `y_true`, such as a legitimate
            measure of risk where the target is mostly zeros; for other criteria the column that
            they need.
        """
        if given is not None and not self.criterion.needs:
            raise InputError(
                "given", f"be None with criterion={self.criterion.name!r}, which conditions on "
                "nothing",
                hint="criterion='separation' asks whether the scores depend on the group among "
                "rows with the same value of it.",
            )  # fmt: skip
        groups = _read_groups(y_true, sensitive_features, sample_weight, given, frequency)
        name = "y_true" if given is None else "given"
        y = None
        if given is None and self.criterion.needs not in ((), TARGET):
            raise InputError(
                "given", f"hold the column {self.criterion.needs[0]!r} with "
                f"criterion={self.criterion.name!r}, got None",
            )  # fmt: skip
        if self.criterion.needs:
            y = check_column(y_true if given is None else given, name, groups.n_rows)
        kappa = None
        if frequency is not None:
            # Weights of mean 1 a row stand for people of mean 1, whose sum the penalty is beside.
            people = float(groups.take_known(check_frequency(frequency, groups.n_rows)).sum())
            kappa = self.penalty(int(people)) * groups.n_known / people
        return BoundRegularizer(self, y, groups, kappa, target_name=name)


def _read_groups(
    y_true: Any, sensitive_features: Any, sample_weight: Any, given: Any, frequency: Any
) -> Groups:
    """Groups with the weights of their rows, as many as there are targets."""
    check_index(
        y_true=y_true, given=given, sensitive_features=sensitive_features,
        sample_weight=sample_weight, frequency=frequency,
    )  # fmt: skip
    if y_true is not None:
        n = len(check_column(y_true, "y_true"))
    elif given is not None:
        n = count_rows(given, "given")
    else:
        n = count_rows(sensitive_features, "sensitive_features")
    weight = check_weight(sample_weight, n)
    if isinstance(sensitive_features, Groups):
        if weight is not None:
            raise InputError("sample_weight", "be None with Groups, which hold their own weights")
        own = sensitive_features.weight
        weight = None if own is None else sensitive_features.put_known(own)
    if frequency is not None:
        counts = check_frequency(frequency, n).astype(np.float64)
        weight = counts if weight is None else weight * counts
    return resolve_groups(sensitive_features, n_rows=n, sample_weight=weight)
