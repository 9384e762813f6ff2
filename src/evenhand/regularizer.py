"""Scores → value and gradient: the seam every fitter uses.

    L_ind = mean log ρ(a|s),  L_sep = mean log ρ(a|s,y),  L_suf = L_sep − L_ind
    Ĩ_ind = (H(A) + L_ind) / H(A)
    Ĩ_sep = (H(A|Y) + L_sep) / H(A|Y)
    Ĩ_suf = L_suf / H(A)

The normalizers are constants in training; sufficiency's own, H(A|S), moves with the model, so
H(A) stands in for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._kernels import Rows, make_rows, with_score
from .basis import get_basis
from .classifiers.logistic import LogisticTerm
from .classifiers.lspc import LSPCTerm
from .criteria import Criterion, get_criterion
from .sensitive import Groups, count_rows, resolve_groups
from .validation import check_column

CLASSIFIERS = {"logistic": LogisticTerm, "lspc": LSPCTerm}
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
    ):
        self.criterion = get_criterion(criterion)
        if not isinstance(classifier, str) or classifier not in CLASSIFIERS:
            raise ValueError(
                f"`classifier` must be one of {', '.join(CLASSIFIERS)}, got {classifier!r}."
            )
        self.classifier = classifier
        self.basis = basis
        get_basis(basis, 1)

    def __repr__(self) -> str:
        return f"FairnessRegularizer({self.criterion.name!r}, {self.classifier!r}, {self.basis!r})"

    def bind(
        self, y_true: Any, *, sensitive_features: Any, sample_weight: Any = None
    ) -> BoundRegularizer:
        """Fix everything but the scores.

        Parameters
        ----------
        y_true : (n,) array
            Targets. May be None for independence when `sensitive_features` has a length.
        sensitive_features : array, series, frame, Proxy or Groups
        sample_weight : (n,) array, optional
        """
        if isinstance(sensitive_features, Groups):
            if sample_weight is not None:
                raise ValueError(
                    "`sample_weight` must be None with Groups, which hold their own weights."
                )
            groups = sensitive_features
        else:
            if y_true is None:
                n = count_rows(sensitive_features)
            else:
                n = len(check_column(y_true, "y_true"))
            groups = resolve_groups(sensitive_features, n_rows=n, sample_weight=sample_weight)
        y = None
        if self.criterion.needs_target:
            y = check_column(y_true, "y_true", groups.n_rows)
        return BoundRegularizer(self, y, groups)


class BoundRegularizer:
    """A :class:`FairnessRegularizer` with target, groups and weights fixed.

    Rows whose group is not known have gradient zero. Calls warm-start one another, so one
    instance serves one optimization at a time.

    Attributes
    ----------
    groups : Groups
    normalizer : float
        What the information is divided by, in nats.
    """

    def __init__(
        self, regularizer: FairnessRegularizer, y: NDArray[np.float64] | None, groups: Groups
    ):
        self.criterion: Criterion = regularizer.criterion
        self.groups = groups
        self._regularizer, self._y = regularizer, y
        self.classifier = regularizer.classifier
        term = CLASSIFIERS[regularizer.classifier]
        known_y = None if y is None else np.ascontiguousarray(groups.take_known(y))
        self._rows = {("s",): make_rows(groups), ("s", "y"): make_rows(groups, known_y)}
        # Signed terms: + L(joint) and, where `given` moves with the score, − L(given).
        signed = [(1.0, self.criterion.joint)]
        self._offset = groups.entropy
        self.normalizer = groups.entropy
        if self.criterion.given == ("s",):
            signed.append((-1.0, ("s",)))
            self._offset = 0.0
        elif self.criterion.given == ("y",):
            assert known_y is not None
            rows = with_score(make_rows(groups), known_y)
            self._offset = -term(get_basis(regularizer.basis, 1)).value(rows)
            self.normalizer = self._offset
        if self.normalizer <= LEAST_UNCERTAINTY * groups.entropy:
            raise ValueError(
                "`y_true` determines the group completely, so no score can add to it: "
                f"{self.criterion.name} is not defined. Hint: drop the leaking target or use "
                "criterion='independence'."
            )
        self._terms = [
            (sign, condition, term(get_basis(regularizer.basis, len(condition))))
            for sign, condition in signed
        ]

    def take(self, rows: NDArray[np.intp]) -> BoundRegularizer:
        """The same term over some of the rows."""
        y = None if self._y is None else self._y[rows]
        return BoundRegularizer(self._regularizer, y, self.groups.take(rows))

    def warm_start(self, other: BoundRegularizer) -> None:
        """Begin the next evaluation from another term's classifiers."""
        for (_, _, mine), (_, _, theirs) in zip(self._terms, other._terms, strict=True):
            mine.warm_start(theirs)

    def _score_rows(self, s: NDArray[np.float64]) -> dict[tuple[str, ...], Rows]:
        s = np.ascontiguousarray(self.groups.take_known(s))
        rows = {}
        for _, condition, _ in self._terms:
            rows[condition] = with_score(self._rows[condition], s)
        return rows

    def value(self, y_pred: Any) -> float:
        """Ĩ of the scores."""
        rows = self._score_rows(check_column(y_pred, "y_pred", self.groups.n_rows))
        total = self._offset
        for sign, condition, term in self._terms:
            if condition != ("s",) or rows[condition].center[1] != 0.0:
                total += sign * term.value(rows[condition])
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
        rows = self._score_rows(s)
        first = next(iter(rows.values()))
        if first.center[1] == 0.0:
            # Constant scores have no spread to divide by; any direction is as good as another.
            return scale * self.value(s), np.zeros(self.groups.n_rows)
        scale /= self.normalizer
        total, gradient = self._offset, None
        for sign, condition, term in self._terms:
            value, part = term.value_and_grad(rows[condition], scale * sign, rough)
            total += sign * value
            if gradient is None:
                gradient = part
            else:
                gradient += part
        assert gradient is not None
        return scale * total, self.groups.put_known(gradient)
