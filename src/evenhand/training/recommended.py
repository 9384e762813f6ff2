"""FairRegressor: the recommended model, which chooses features, map and strength itself.

Every candidate of `_candidates` is fitted on folds; the one of highest held-out R² under the bound
(or of highest R² − fairness_weight·Ĩ) is refitted on all rows.
"""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Real
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._core.arrays import Rows
from .._core.frames import to_frame
from .._core.progress import progress
from .._core.validation import InputError, check_choice, check_index, check_nonnegative
from ..data.columns import split_columns
from ..data.criteria import Criterion, get_criterion
from ..data.folds import make_folds
from ..data.groups import Groups
from ..data.sample import Sample, repeat_rows
from ..measures.effective import check_effective_size
from ..measures.entropies import get_estimator
from ..measures.losses import R2, Accuracy, get_loss
from ..measures.measures import Measure
from .design import ReadsTables
from .frontier import check_varies
from .glm import FairGLM
from .held_out import Curve, Place
from .linear import FairRidge, ScoresWithGroups, refuse_missing_groups
from .model_files import Saves
from .postprocess import FairPostprocessor

# Rows that the choice is made on; the chosen model is fitted on all of them.
CHOICE_ROWS = 20_000
# Least rows of a group in that sample, where there are as many.
_LEAST_OF_A_GROUP = 200
# A held-out accuracy this much higher is worth a richer model; less is chance on any rows.
MARGIN = 2e-4
# Of the bound that `certify` judges by.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Candidate:
    """One way to be fair.

    Attributes
    ----------
    name : str
    words : str
        What it does, for people.
    kind : {None, "posterior", "attribute"}
        How groups enter.
    map : {None, "affine", "transport"}
        Map of the ridge score; None for a model on the features.
    """

    name: str
    words: str
    kind: str | None = None
    map: str | None = None

    def build(self, criterion: str, alpha: float, loss: Any, random_state: Any) -> Any:
        """The estimator, with a `fairness_weight`."""
        if self.map is not None:
            return FairPostprocessor(
                FairRidge(criterion, 0.0, alpha), criterion, group_features=self.kind,
                map=self.map, random_state=random_state,
            )  # fmt: skip
        if loss is None:
            return FairRidge(criterion, alpha=alpha, group_features=self.kind)
        return FairGLM(loss, criterion, alpha=alpha, group_features=self.kind)

    def suits(self, criterion: Criterion, loss: Any) -> bool:
        """Maps are fitted by squares; transport gives all groups one distribution of scores."""
        return self.map is None or (
            loss is None and (self.map != "transport" or criterion.equalizes_scores)
        )


# Simple ones first: of two that are level the earlier is chosen. Maps are fitted to out-of-fold
# scores, which helps where the ridge overfits.
LEAGUES = {
    "blind": (
        Candidate("linear", "one linear score for all"),
        Candidate("posterior", "a linear score that may differ by the probability of each group "
                  "given the features", "posterior"),
        Candidate("posterior, transport", "the ridge score, moved toward the barycenter of the "
                  "groups by their probabilities", "posterior", "transport"),
    ),
    "known": (
        Candidate("attribute", "a linear score that may differ by group", "attribute"),
        Candidate("attribute, lines", "the ridge score, moved along a straight line for each group",
                  "attribute", "affine"),
        Candidate("attribute, transport", "the ridge score, each group moved toward the barycenter "
                  "of all", "attribute", "transport"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Tried:
    """How a candidate fared on the inner folds.

    Attributes
    ----------
    name, words : str
        Which one, and what it does.
    fairness_weight : float
        Where it meets the request.
    r2 : float
        Held-out R² there.
    unfairness : float
        Held-out normalized information there.
    reached : bool
        Whether it meets the bound at any strength.
    behind, behind_stderr : float
        How far its R² (or its objective) is below that of the chosen one, and the standard error
        of the difference over rows.
    """

    name: str
    words: str
    fairness_weight: float
    r2: float
    unfairness: float
    reached: bool
    behind: float
    behind_stderr: float


@dataclass(eq=False, repr=False)
class FairRegressor(ReadsTables, Saves, ScoresWithGroups, RegressorMixin, BaseEstimator):
    """The recommended fair model: features, map and strength chosen on inner folds.

    With `max_unfairness` the most accurate candidate whose held-out normalized information is at
    most that; with `fairness_weight` the candidate of largest held-out
    ``R² − fairness_weight·Ĩ``. What was chosen and why is in `explanation_`.

    Parameters
    ----------
    criterion : {"independence", "separation", "sufficiency"}
        What the score must not reveal.
    max_unfairness : float or dict of attribute to float, optional
        Largest held-out normalized information, in [0, 1]. Met on average: on new people a third to
        a half of such models exceed it, unless `certify`. With several attributes, columns of
        `sensitive_features`, ``{"sex": 0.01, "race": 0.02}`` limits each of them, and all are met
        together; models are trained on the crossed groups.
    fairness_weight : float, optional
        Points of R² that one point of normalized information is worth. With neither, 1.
    attribute : {"blind", "known"}
        "blind": nobody's group is needed to score them. "known": the score may use the recorded
        group, which `predict` then needs; that is fairer for the accuracy, treats two people who
        differ only in group differently on purpose, and is not allowed for every decision.
    certify : bool
        Judge `max_unfairness` by the upper end of a one-sided 95% confidence interval, which holds
        for all candidates at once, rather than by the estimate: at most one model in twenty then
        exceeds it on new people. That costs accuracy, the more the fewer the rows.
    loss : str or Loss, optional
        A family of :class:`FairGLM` in place of squares: "poisson", "gamma", "tweedie", "binomial",
        "quantile". The accuracy is then its D². Maps of scores are fitted by squares, and are not
        among the candidates.
    alpha : float
        Ridge penalty, as in :class:`FairRidge`, on standardized columns.
    cv : int, splitter or list of (train, test)
        Inner folds.
    measure_with : str or instance
        Estimator of information that the candidates are judged by.
    on_unreachable : {"raise", "best"}
        Where no candidate meets `max_unfairness`: raise, or warn and keep the fairest.
    n_jobs : int, optional
        Folds fitted at a time.
    random_state : int, optional
        For folds, and for the sample of rows beyond 20,000 that the choice is made on.

    Attributes
    ----------
    scaler_ : StandardScaler
        Columns are scaled before anything else, so that units do not matter.
    estimator_ : FairRidge, FairGLM or FairPostprocessor
        The chosen model, fitted on all (scaled) rows.
    choice_ : str
        Its name.
    explanation_ : str
        What was chosen, and how far behind the others are.
    tried_ : tuple of Tried
        All candidates, best first.
    fairness_weight_ : float
    r2_, unfairness_ : float
        Held out on the inner folds, R² being D² with a `loss`. Having picked the best of a few,
        they flatter it slightly.
    unfairness_bound_ : float
        What was compared with `max_unfairness`: with `certify` the upper end of the interval.
    measure_ : Measure
        The same unfairness with its interval; of the attribute that is nearest to its limit where
        there are several. `unfairness_` is then the share of that limit.
    unseen_ : float
        How much more `measure_with` sees in the training rows than the fairness term of the fit,
        at most 20,000 rows; NaN where the two do not measure the same. `explanation_` says so where
        it is more than chance.
    measures_ : dict of str to Measure
        With several limits, by attribute.
    n_features_in_, feature_names_in_

    See Also
    --------
    evenhand.FairRidge
    evenhand.FairGLM
    evenhand.FairPostprocessor
    evenhand.fairness_path

    References
    ----------
    Steinberg, D., Reid, A., O'Callaghan, S., Lattimore, F., McCalman, L. and Caetano, T. (2020).
    Fast Fair Regression via Efficient Approximations of Mutual Information.

    Agarwal, A., Dudík, M. and Wu, Z. S. (2019). Fair Regression: Quantitative Definitions and
    Reduction-Based Algorithms. ICML.

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 1000)
    >>> X = rng.normal(size=(1000, 3)) + a[:, None] * [1.0, 0.0, 0.0]
    >>> y = X @ [1.0, 1.0, 0.5] + rng.normal(size=1000)
    >>> model = eh.FairRegressor("independence", max_unfairness=0.05, random_state=0)
    >>> bool(model.fit(X, y, sensitive_features=a).unfairness_ <= 0.05)
    True

    A limit for each of several attributes, met together:

    >>> people = {"sex": a, "region": rng.choice(["north", "south"], 1000)}
    >>> limits = {"sex": 0.05, "region": 0.02}
    >>> both = eh.FairRegressor("independence", max_unfairness=limits, random_state=0)
    >>> measures = both.fit(X, y, sensitive_features=people).measures_
    >>> all(measures[name].value <= limit for name, limit in limits.items())
    True
    """

    criterion: str = "independence"
    _: KW_ONLY
    max_unfairness: float | dict[str, float] | None = None
    fairness_weight: float | None = None
    attribute: str = "blind"
    certify: bool = False
    loss: Any = None
    alpha: float = 1e-3
    cv: Any = 5
    measure_with: Any = "auto"
    on_unreachable: str = "raise"
    n_jobs: int | None = None
    random_state: Any = None

    @property
    def accuracy(self) -> Accuracy:
        """R², or D² of `loss`: how paths, reports and tables measure this model."""
        return R2 if self.loss is None else get_loss(self.loss).accuracy

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None,
        frequency: Any = None, cluster: Any = None,
    ) -> FairRegressor:  # fmt: skip
        """Try the candidates on inner folds, choose one and fit it on all rows.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix
            Features; categories and missing values of a frame as for :class:`FairRidge`.
        y : (n,) array
            Target.
        sensitive_features : array, series, frame or Proxy
            Group of each row. Required unless ``fairness_weight=0``. Rows with a missing group
            count for accuracy and not for fairness.
        sample_weight : (n,) array, optional
            For fitting and for all measures.
        frequency : (n,) array, optional
            Number of people that each row of an aggregated table stands for; a row of frequency 3
            equals three rows.
        cluster : (n,) array, optional
            Label of the person, place or school that each row belongs to: rows of one go to one
            fold, and errors are summed over them.
        """
        X, y, sensitive_features, sample_weight, cluster = repeat_rows(
            frequency, X=X, y=y, sensitive_features=sensitive_features,
            sample_weight=sample_weight, cluster=cluster,
        )  # fmt: skip
        return self._choose(*self._prepare(X, y, sensitive_features, sample_weight, cluster))

    def _prepare(
        self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any = None,
        cluster: Any = None,
    ) -> tuple[Sample, list[Curve]]:  # fmt: skip
        """All rows, and the curves of the candidates; no curves where nobody asks for fairness."""
        criterion = self._check_parameters()
        check_index(
            X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight,
            cluster=cluster,
        )  # fmt: skip
        X, y = self._read_training(X, y)
        rows = Sample.read(
            y, names={"y_true": "y"}, sensitive_features=sensitive_features,
            sample_weight=sample_weight, cluster=cluster, groups_optional=True, keep_labels=True,
        )  # fmt: skip
        # Unlike FairRidge, whose penalty is in the units it is given: nobody chooses those here.
        self.scaler_ = StandardScaler(with_mean=not sparse.issparse(X)).fit(X, None, rows.weight)
        rows = replace(rows, others={**rows.others, "X": self.scaler_.transform(X)})
        if rows.groups is None:
            refuse_missing_groups(self.fairness_weight != 0)
            return rows, []
        check_varies(y)
        groups, weight = rows.groups, rows.weight
        check_effective_size(groups if weight is None else groups.take(np.flatnonzero(weight)))
        return rows, self._curves(rows, criterion)

    def _curves(self, rows: Sample, criterion: Criterion) -> list[Curve]:
        """The candidates, on all rows or on some where those are many."""
        chosen = _sample(rows.groups, rows.cluster, self.random_state)
        rows = rows if chosen is None else rows.take(chosen)
        X, seed = rows.others["X"], self.random_state
        folds = make_folds(self.cv, X, rows.target, rows.groups, seed, rows.cluster)
        estimator = get_estimator(self.measure_with, seed, "measure_with")
        tried = [c for c in LEAGUES[self.attribute] if c.suits(criterion, self.loss)]
        limits = self._limits(rows)
        # All bounds hold at once, so that the best of several may be taken.
        count = len(tried) * max(len(limits), 1)
        level = 1.0 - (1.0 - CONFIDENCE) / count if self.certify else 0.5
        return [
            Curve(
                c, c.build(criterion.name, self.alpha, self.loss, seed), rows, folds, criterion,
                estimator, self.n_jobs, level, limits,
            )
            for c in tried
        ]  # fmt: skip

    def _limits(self, rows: Sample) -> dict[str, tuple[Groups, float]]:
        """Groups and limit of each attribute that has one of its own; empty for one limit."""
        if not isinstance(self.max_unfairness, dict):
            return {}
        labels = rows.others["sensitive_features"]
        names = [str(n) for n, _ in split_columns(labels, "sensitive_features", "attribute")]
        unknown = [name for name in self.max_unfairness if name not in names]
        if unknown or rows.groups.codes is None:
            raise InputError(
                "max_unfairness", f"name columns of `sensitive_features` ({', '.join(names)}), got "
                f"{unknown[0] if unknown else 'limits for probabilities'}",
            )  # fmt: skip
        return {
            name: (_attribute(rows.groups, names.index(name), len(names)), float(limit))
            for name, limit in self.max_unfairness.items()
        }

    def _choose(self, rows: Sample, curves: list[Curve]) -> FairRegressor:
        """Choose for what is asked, and fit the choice on all rows."""
        if not curves:
            model = LEAGUES["blind"][0].build(self.criterion, self.alpha, self.loss, None)
            model.set_params(fairness_weight=0.0)
            self.choice_, self.fairness_weight_ = "linear", 0.0
            self.explanation_ = "A plain linear model: fairness_weight=0 asks for no fairness."
            self.tried_: tuple[Tried, ...] = ()
            self.measure_: Measure | None = None
            self.measures_: dict[str, Measure] = {}
            self.r2_ = self.unfairness_ = self.unfairness_bound_ = self.unseen_ = float("nan")
            self.estimator_ = model.fit(rows.others["X"], rows.target, sample_weight=rows.weight)
            return self
        asked = 1.0 if self.fairness_weight is None else float(self.fairness_weight)
        # What `Place.judged` must not exceed: where each attribute has a limit, a share of it.
        bound = 1.0 if isinstance(self.max_unfairness, dict) else self.max_unfairness
        places, gain = [], []
        with progress(len(curves), "candidates") as advance:
            for curve in curves:
                place, reached = (curve.at(asked), True) if bound is None else curve.meet(bound)
                places.append((place, reached))
                gained = place.accuracy if reached else -1e6 * (1.0 + place.judged)
                gain.append(gained - asked * place.unfairness if bound is None else gained)
                advance()
        best = next(j for j, g in enumerate(gain) if g >= max(gain) - MARGIN)
        curve, (place, reached) = curves[best], places[best]
        if bound is not None:
            place = curve.best_within(bound)
            if not reached:
                self._refuse(curve.candidate, place)
        self.choice_ = curve.candidate.name
        self.fairness_weight_ = place.fairness_weight
        self.r2_, self.unfairness_ = place.accuracy, place.unfairness
        self.unfairness_bound_ = place.judged
        self.measures_ = place.measures
        limits = self.max_unfairness if isinstance(self.max_unfairness, dict) else {"": 1.0}
        worst = max(limits, key=lambda name: self.measures_[name].value / limits[name])
        self.measure_ = self.measures_[worst]
        self.tried_ = _table(curves, places, gain, best)
        self.explanation_ = self._explain(curve.candidate)
        self.estimator_ = curve.refit(place.fairness_weight, rows)
        self.unseen_, error = curve.unseen(self.estimator_)
        if self.unseen_ > 3.0 * error:
            self.explanation_ += (
                f"\nOn the training rows the audit sees {self.unseen_:.4f} more than the term that "
                "the model was trained against."
            )
        return self

    def _refuse(self, candidate: Candidate, place: Place) -> None:
        limit = self.max_unfairness
        words = ", ".join(f"{name} {value:g}" for name, value in limit.items()) if isinstance(
            limit, dict) else f"{limit:g}"  # fmt: skip
        message = (
            f"No candidate has held-out {get_criterion(self.criterion).name} ≤ "
            f"{words}{' for certain' if self.certify else ''}. The closest is "
            f"{candidate.name!r} with {place.judged:.4f} at {self.accuracy.symbol} "
            f"{place.accuracy:.4f} (fairness_weight="
            f"{place.fairness_weight:g}). Hint: relax the bound, gather more rows"
            + (", or attribute='known'" if self.attribute == "blind" else "")
            + "; on_unreachable='best' returns this model with a warning."
        )
        if self.on_unreachable == "raise":
            raise ValueError(message)
        warnings.warn(message, UserWarning, stacklevel=4)

    def _explain(self, chosen: Candidate) -> str:
        sure = f", at most {self.unfairness_bound_:.4f} with {CONFIDENCE:.0%} confidence"
        sure = sure if self.certify else ""
        held = f"Held out: {self.accuracy.symbol} {self.r2_:.4f}"
        name, weight = get_criterion(self.criterion).name, f"{self.fairness_weight_:.4g}"
        lines = [
            *wrap(f"Chosen: {self.choice_} ({chosen.words}).", 80),
            *wrap(f"{held}, {name} {self.unfairness_:.4f} (fairness_weight {weight}){sure}.", 80),
        ]
        if isinstance(self.max_unfairness, dict):
            lines[1:] = [
                f"{held} (fairness_weight {weight}); {name} of",
                *(f"  {of} {self.measures_[of].value:.4f}, limit {limit:g}"
                  for of, limit in self.max_unfairness.items()),
            ]  # fmt: skip
        for other in self.tried_[1:]:
            if other.reached:
                ahead = f"{-other.behind:+.4f}".replace("-", "−")
                lines.append(f"  {other.name}: {ahead} (standard error {other.behind_stderr:.4f})")
            else:
                lines.append(f"  {other.name}: does not get below {other.unfairness:.4f}")
        if self.max_unfairness is not None and not self.certify:
            # 32 to 50 % and at most 2 % of fits in research/results/certify.csv
            lines += wrap(
                "The limit holds on average. In simulations a third to a half of such models "
                "exceeded it on new people; with certify=True at most 2 in 100 did.", 80
            )  # fmt: skip
        return "\n".join(lines)

    def to_frame(self, backend: str | None = None) -> Any:
        """All candidates, best first, one row each.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
        """
        check_is_fitted(self)
        names = ("name", "fairness_weight", "r2", "unfairness", "reached", "behind",
                 "behind_stderr")  # fmt: skip
        return to_frame({n: [getattr(t, n) for t in self.tried_] for n in names}, backend)

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """Scores of the chosen model.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix
            Features.
        sensitive_features : array, series, frame or Proxy, optional
            Needed, and used, only with ``attribute="known"``.
        """
        check_is_fitted(self)
        check_index(X=X, sensitive_features=sensitive_features)
        X = self._read_features(X)
        X = self.scaler_.transform(X)
        return self.estimator_.predict(X, sensitive_features=sensitive_features)

    def _check_parameters(self) -> Criterion:
        criterion = get_criterion(self.criterion)
        check_choice("attribute", self.attribute, LEAGUES)
        if self.max_unfairness is not None and self.fairness_weight is not None:
            raise ValueError(
                "`max_unfairness` and `fairness_weight` must not both be given, got "
                f"{self.max_unfairness!r} and {self.fairness_weight!r}. Hint: the first asks for "
                "a level of fairness, the second for a rate of exchange."
            )
        bound = self.max_unfairness
        limits = list(bound.values()) if isinstance(bound, dict) else [bound]
        good = all(isinstance(limit, Real) and 0 < float(limit) <= 1 for limit in limits)
        if bound is not None and not (good and limits):
            raise InputError(
                "max_unfairness", f"lie between 0 and 1, and above 0, got {bound!r}",
                hint="exactly 0 cannot be shown by any number of rows.",
            )  # fmt: skip
        if self.certify and bound is None:
            raise ValueError(
                "`certify` must be False without `max_unfairness`, got True. Hint: it says how the "
                "bound is judged."
            )
        if self.fairness_weight is not None:
            check_nonnegative("fairness_weight", self.fairness_weight)
        check_choice("on_unreachable", self.on_unreachable, ("raise", "best"))
        return criterion


def _attribute(groups: Groups, place: int, count: int) -> Groups:
    """One of the attributes that were crossed."""
    if count == 1:
        return groups
    values = list(dict.fromkeys(label[place] for label in groups.labels))
    codes = np.array([values.index(label[place]) for label in groups.labels], dtype=np.intp)
    return replace(groups, labels=tuple(values), codes=codes[groups.codes])


def _table(
    curves: list[Curve], places: list[tuple[Place, bool]], gain: list[float], best: int
) -> tuple[Tried, ...]:
    out = [
        Tried(
            curve.candidate.name, curve.candidate.words, place.fairness_weight, place.accuracy,
            place.unfairness, reached, gain[best] - g if reached else float("nan"),
            curve.difference_error(places[best][0], place),
        )
        for curve, (place, reached), g in zip(curves, places, gain, strict=True)
    ]  # fmt: skip
    return tuple(out[j] for j in sorted(range(len(out)), key=lambda j: (j != best, -gain[j])))


def _sample(groups: Groups, clusters: Rows | None, random_state: Any) -> Rows | None:
    """Rows to choose on: whole clusters, enough of every group; None for all of them."""
    n = groups.n_rows
    if n <= CHOICE_ROWS:
        return None
    rarest = float(groups.counts.min()) / n
    wanted = max(CHOICE_ROWS, int(np.ceil(_LEAST_OF_A_GROUP / max(rarest, 1.0 / n))))
    if wanted >= n:
        return None
    rng = check_random_state(random_state)
    if clusters is None:
        return np.sort(rng.permutation(n)[:wanted])
    order = rng.permutation(int(clusters.max()) + 1)
    sizes = np.bincount(clusters, minlength=len(order))[order]
    kept = order[: int(np.searchsorted(np.cumsum(sizes), wanted)) + 1]
    return np.flatnonzero(np.isin(clusters, kept))
