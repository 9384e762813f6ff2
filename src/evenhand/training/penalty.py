"""Scores → value, gradient and curvature: the seam every fitter uses.

    L_ind = mean log ρ(a|s),  L_sep = mean log ρ(a|s,y),  L_suf = L_sep − L_ind
    Ĩ_ind = (H(A) + L_ind) / H(A)
    Ĩ_sep = (H(A|Y) + L_sep) / H(A|Y)
    Ĩ_suf = L_suf / H(A)

and so for any criterion of one variable that moves with the score and at most one other. The
normalizers are constants in training; one that moves with the model, as sufficiency's H(A|S), has
H(A) to stand in for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core.validation import InputError, check_choice, check_column, check_index
from ..data.criteria import TARGET, Criterion, get_criterion
from ..data.groups import Groups, resolve_groups
from ..data.sample import check_frequency, count_rows
from ..data.weights import check_weight
from ..estimators.logistic import KAPPA
from ..kernels.basis import DEGREES
from .bound import SPLINE, BoundRegularizer, check_kappa, check_normalizer, check_trainable

CLASSIFIERS = ("logistic", "lspc")
SCORE_MAPS = ("auto", "tanh", "raw")
# κ per row of "lspc" under "auto".
LSPC_SHARE = 0.3


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
        criterion: str | Criterion = "independence",
        classifier: str = "logistic",
        basis: str = "auto",
        *,
        kappa: float | str = "auto",
        score_map: str = "auto",
    ):
        self.criterion = get_criterion(criterion)
        check_trainable(self.criterion)
        check_choice("classifier", classifier, CLASSIFIERS)
        check_choice("basis", basis, ("auto", SPLINE, *DEGREES))
        self.classifier, self.basis = classifier, basis
        self.kappa = check_kappa(kappa, classifier)
        check_choice("score_map", score_map, SCORE_MAPS)
        if kappa == "published" and score_map == "tanh":
            raise ValueError(
                "`score_map` must be 'raw' with kappa='published', which leaves the score as it "
                "is, got 'tanh'."
            )
        self.score_map = score_map
        if basis == SPLINE and not self._has_splines:
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
            measure of risk where the target is mostly zeros; for other criteria the column that
            they need.
        normalizer : positive float, optional
            What the information is divided by, in nats. By default that of these rows, H(A) or
            H(A|Y); batches of rows share one that is fixed from outside, so that all are weighed
            alike.
        """
        if given is not None and not self.criterion.needs:
            raise InputError(
                "given", f"be None with criterion={self.criterion.name!r}, which conditions on "
                "nothing",
                hint="criterion='separation' asks whether the scores depend on the group among "
                "rows with the same value of it.",
            )  # fmt: skip
        if normalizer is not None:
            normalizer = check_normalizer(normalizer)
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
        return BoundRegularizer(self, y, groups, kappa, normalizer=normalizer, target_name=name)


def _read_groups(
    y_true: Any, sensitive_features: Any, sample_weight: Any, given: Any, frequency: Any
) -> Groups:
    """Groups with the weights of their rows, as many as there are targets."""
    check_index(
        y_true=y_true, given=given, sensitive_features=sensitive_features,
        sample_weight=sample_weight, frequency=frequency,
    )  # fmt: skip
    if y_true is None:
        n = count_rows(sensitive_features if given is None else given)
    else:
        n = len(check_column(y_true, "y_true"))
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
