"""FairPostprocessor: the score of any regressor, mapped so that it tells little about the group.

s' = Σ_k p_k · m_k(s₀) with p_k the recorded group or its probability given the features, and the
maps m_k chosen by FairRidge's objective: FairRidge on the features [s₀, p_k, p_k·s₀] for affine
maps, and on [s₀, Σ_k p_k·g_k(s₀), p_k·s₀] where g_k moves each group to the barycenter of all.
With `passthrough` the features of the regressor are among them: the stack.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone, is_regressor
from sklearn.frozen import FrozenEstimator
from sklearn.utils import indexable
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from .._core.arrays import Vector
from .._core.validation import (
    InputError,
    check_choice,
    check_column,
    check_index,
    check_nonnegative,
    check_squares,
    read_native,
    refuse_masked,
)
from ..data.criteria import get_criterion
from ..data.encoding import needs_encoding
from ..data.folds import make_folds
from ..data.groups import Groups
from ..data.sample import Sample
from . import stack
from .group_features import (
    MAPS,
    Membership,
    ScoreMaps,
    Transport,
    classifier_input,
    out_of_fold_groups,
    refuse_measured,
)
from .linear import FairRidge, ScoresWithGroups, check_kind, refuse_missing_groups
from .model_files import Saves

# ------------------------------------------------------------------------------------------------
# What the maps of a post-processor are made of: what is allowed, and what "auto" stands for.


def choose_map(model: Any) -> str:
    """The kind of map of a :class:`FairPostprocessor`.

    Held out, transport by attribute was the better map under every bound on independence, and not
    under those on separation. By an unsure posterior it would have to overshoot. In a stack it was
    the only one that got below the strictest bounds on both.
    """
    if model.map != "auto":
        return model.map
    if model.passthrough:
        return "spline" if model.group_features is None else "transport"
    equal = get_criterion(model.criterion).equalizes_scores
    return "transport" if equal and model.group_features == "attribute" else "affine"


# Quantiles of the base score where a spline map may bend.
BENDS = (0.1, 0.3, 0.5, 0.7, 0.9)


@dataclass(eq=False, repr=False)
class FairPostprocessor(Saves, ScoresWithGroups, RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """A fair map of the score s₀ of any regressor: s' = Σ_k p_k·m_k(s₀), or the stack on it.

    The maps minimize ``mean w(y − s')²/Var(y) + fairness_weight·Ĩ``, the objective of
    :class:`FairRidge`, and leave the regressor itself as it is. With ``passthrough=True`` the
    features X are among their columns, s' = Xθ + m(s₀) + Σ_k p_k·(o_k + c_k·s₀): fairness can then
    also be had by weighing single features less, which costs less accuracy.

    Parameters
    ----------
    estimator : regressor
        Fitted or not. An unfitted one is cloned and fitted; the maps are then trained on its
        out-of-fold scores, so that they do not trust it more than new rows would. For a fitted one,
        hand `fit` rows that it was not fitted on. It is handed X as it is, so that a booster treats
        categories and missing values its own way.
    criterion : {"independence", "separation", "sufficiency"}
        What the score must not reveal.
    fairness_weight : float
        1 means that one point of R² is worth one point of normalized information.
    passthrough : bool
        The stack: X is among the columns, as a copy in numbers (standardized; missing numbers set
        to the median and marked; one column for each level of a category).
    group_features : {"posterior", "attribute"} or None
        "attribute" gives each recorded group its own map: the fairest result for the accuracy,
        but it treats two people who differ only in group differently on purpose, which the law of
        many places forbids for some decisions (credit, insurance, hiring); and `predict` then
        needs everybody's group. "posterior" maps by the probability of each group given
        the features: nobody is asked for their group when scored, yet it still acts on an estimate
        of it, so it answers the practical problem of a missing attribute and not the ethical
        question of whether groups may be treated differently. None applies one map to everybody,
        which treats all alike and, being invertible, cannot make the score any fairer: it only
        recalibrates (with `passthrough` it can be fairer by its use of X).
    map : {"auto", "affine", "spline", "transport"}
        "affine": m_k is a straight line. "transport", for independence: a line plus a share of the
        map g_k that moves the scores of group k to the barycenter of all groups. It matches whole
        distributions, so it removes what lines leave where those differ in shape; the interpolated
        barycenter is one of these maps. Scores
        with many ties cannot be matched exactly, and with "posterior" it helps only where the
        features nearly tell the group. "spline": a curve of straight pieces with bends at fixed
        quantiles of s₀. It helps where the base is wrong by more than shift and scale (a linear
        base of a curved truth); it does not help a flexible base. Where "spline" or "transport"
        would fall it is mixed with a simpler map that does not. "auto" is "transport" for
        independence by attribute, and "affine" otherwise. With `passthrough` the same columns are
        beside X, but a spline bends
        alike in all groups, nothing keeps the score from falling where s₀ rises, and "auto" is
        "transport" (without group features "spline").
    alpha : float
        Penalty on the coefficients of the (standardized) features of the maps.
    passthrough_alpha : "auto" or nonnegative float
        Penalty on the coefficients of X, with `passthrough`. "auto" takes the one of least
        generalized cross-validation error at ``fairness_weight=0``: the score is then s₀ plus
        what X can be trusted to add.
    group_alpha : "auto" or nonnegative float
        γ of a penalty γ·Σ_k ‖slope_k − mean slope‖², see :class:`FairRidge`.
    classifier, basis, kappa, score_map, max_iter, tol
        As in :class:`FairRidge`.
    group_classifier : classifier, optional
        P(a|x) for "posterior": anything with `predict_proba`. Logistic regression on the scaled
        features when left out, which needs numeric features (with `passthrough` it has their copy
        in numbers).
    cv : int, splitter or list of (train, test)
        Folds for out-of-fold scores and group probabilities.
    prefit : bool or "auto"
        Whether `estimator` is fitted; "auto" finds out. A fitted one survives `clone`, so that no
        fold refits it. True also says that it has not seen the rows handed in here; without that
        word :func:`fairness_path` refuses a fitted one, as it could not call its numbers held out.
    random_state : int, optional
        For the folds.

    Attributes
    ----------
    estimator_ : regressor
        The fitted base; with `passthrough` the mean of those in its `estimators_`.
    group_classifier_ : classifier or None
    regressor_ : FairRidge
        The model of the maps.
    columns_ : tuple of str
        Names of the columns of `regressor_`, with `passthrough`.
    passthrough_alpha_ : float
        The penalty on those of X, with `passthrough`.
    map_ : {"affine", "spline", "transport"}
        The kind of map that was fitted.
    offsets_, slopes_ : (K,) and (K, 1 + bends) arrays
        m_k(z) = offset_k + z·slope_k0 + Σ_j max(z − bend_j, 0)·slope_kj at the standardized
        score z = (s₀ − `center_`) / `scale_`; `bends_` is empty without a spline. For "transport"
        m_k(z) = offset_k + z·slope_k0 + g_k(z)·slope_k1. Not there with `passthrough`.
    transport_ : Transport or None
        g_k for "transport".
    blend_ : float
        Share of the fitted map in a spline (the rest is the straight one) or in "transport" (the
        rest is the barycenter's alone); below 1 where it would have fallen.
    unfairness_ : float
        Ĩ on the training rows, at their out-of-fold scores (interpolated where `blend_` < 1).
    n_iter_ : int
        Of `regressor_`.
    n_features_in_, feature_names_in_
        Where the base has them.

    See Also
    --------
    evenhand.FairRegressor
    evenhand.FairRidge
    evenhand.fairness_path

    References
    ----------
    Chzhen, E., Denis, C., Hebiri, M., Oneto, L. and Pontil, M. (2020). Fair Regression with
    Wasserstein Barycenters. NeurIPS.

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 500)
    >>> X = rng.normal(size=(500, 3)) + a[:, None] * [1.0, 0.0, 0.0]
    >>> y = X @ [1.0, 1.0, 0.5] + rng.normal(size=500)
    >>> forest = RandomForestRegressor(n_estimators=20, random_state=0)
    >>> fair = eh.FairPostprocessor(forest, "independence", fairness_weight=20, random_state=0)
    >>> bool(fair.fit(X, y, sensitive_features=a).unfairness_ < 0.02)
    True
    """

    takes_groups = True  # that were read before, in place of their labels

    estimator: Any
    criterion: str = "independence"
    fairness_weight: float = 1.0
    _: KW_ONLY
    passthrough: bool = False
    group_features: str | None = "posterior"
    map: str = "auto"
    alpha: float = 1e-6
    passthrough_alpha: float | str = "auto"
    group_alpha: float | str = "auto"
    classifier: str = "logistic"
    basis: str = "auto"
    kappa: float | str = "auto"
    score_map: str = "auto"
    group_classifier: Any = None
    cv: Any = 5
    prefit: bool | str = "auto"
    max_iter: int = 200
    tol: float = 1e-6
    random_state: Any = None

    def __sklearn_clone__(self) -> FairPostprocessor:
        # A plain clone would forget the fit of a fitted base, which is the point of handing one in.
        params = {name: clone(v, safe=False) for name, v in self.get_params(deep=False).items()}
        if self._is_prefit():
            params["estimator"] = self.estimator
        out = type(self)(**params)
        if hasattr(self, "_metadata_request"):
            out._metadata_request = deepcopy(self._metadata_request)
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            tags.input_tags = deepcopy(self.estimator.__sklearn_tags__().input_tags)
        return tags

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None,
        frequency: Any = None, cluster: Any = None,
    ) -> FairPostprocessor:  # fmt: skip
        """Fit the base where needed, then the maps.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix
            Features, passed to the base as they are.
        y : (n,) array
            Target.
        sensitive_features : array, series, frame or Proxy
            Group of each row. Required unless ``fairness_weight=0``. Rows with a missing group
            count for accuracy and not for fairness.
        sample_weight : (n,) array, optional
            For the base, which must support it, and for the maps.
        frequency : (n,) array, optional
            Number of people that each row of an aggregated table stands for; a row of frequency 3
            equals three rows.
        cluster : (n,) array, optional
            Label of the person, place or school that each row belongs to: rows of one are scored
            out of fold together.

        Returns
        -------
        self
        """
        Z, y, groups, weight = self._start(
            X, y, sensitive_features, sample_weight, cluster, frequency
        )
        extra = {"sensitive_features": groups, "sample_weight": weight}
        model = self._ridge(self._used_weight(self.fairness_weight))
        columns = self._maps.simple_columns()
        simple = None if columns is None else clone(model).fit(Z[:, columns], y, **extra)
        start = model._start(Z, y, groups, weight, self._penalty)
        return self._finish(model._finish(start), simple)

    def path_fitter(
        self, X: Any, y: Any, *, sensitive_features: Any, sample_weight: Any = None,
        cluster: Any = None,
    ) -> Callable[[float], FairPostprocessor]:  # fmt: skip
        """fairness_weight → fitted model, sharing the base and its scores."""
        model = clone(self)
        # Checks that depend on the weight belong to the points, not to the set-up they share.
        model.set_params(fairness_weight=0.0)
        Z, y, groups, weight = model._start(X, y, sensitive_features, sample_weight, cluster)
        extra = {"sensitive_features": groups, "sample_weight": weight}
        ridge, columns = model._ridge(0.0), model._maps.simple_columns()
        fitter, simple = ridge.path_fitter(Z, y, **extra, slopes=model._penalty), None
        if columns is not None:
            simple = ridge.path_fitter(Z[:, columns], y, **extra)

        def fit(fairness_weight: float) -> FairPostprocessor:
            point = copy(model).set_params(fairness_weight=fairness_weight)
            used = model._used_weight(fairness_weight)
            return point._finish(fitter(used), None if simple is None else simple(used))

        return fit

    def _used_weight(self, fairness_weight: float) -> float:
        # One map for everybody cannot make the score fairer; the only way out would be a constant.
        return 0.0 if self.group_features is None and not self.passthrough else fairness_weight

    def _ridge(self, fairness_weight: float) -> FairRidge:
        return FairRidge(
            self.criterion, fairness_weight, self.alpha, classifier=self.classifier,
            basis=self.basis, group_alpha=self.group_alpha, kappa=self.kappa,
            score_map=self.score_map, max_iter=self.max_iter, tol=self.tol,
        )  # fmt: skip

    def _start(
        self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any, cluster: Any,
        frequency: Any = None,
    ) -> tuple[Vector, Vector, Groups | None, Vector | None]:  # fmt: skip
        """Base scores and group probabilities; features of the maps, target, groups and weights."""
        self._check_parameters()
        refuse_masked(read_native(X, "X"), "X")
        (X,) = indexable(X)  # folds are rows, which not every sparse format can give
        rows = Sample.read(
            y, names={"y_true": "y"}, sensitive_features=sensitive_features,
            sample_weight=sample_weight, frequency=frequency, cluster=cluster,
            groups_optional=True, X=X,
        )  # fmt: skip
        X, weight, groups = rows.others["X"], rows.weight, rows.groups
        y = check_column(rows.target, "y")
        check_squares(y, "y")
        check_consistent_length(X, y)
        refuse_missing_groups(groups is None and self.fairness_weight > 0)
        if groups is not None and self._used_weight(self.fairness_weight) < self.fairness_weight:
            warnings.warn(
                "One map for everybody cannot change what a score tells about the group, so "
                "`fairness_weight` has no effect with group_features=None. Hint: use 'posterior' "
                "or 'attribute'.",
                UserWarning,
                stacklevel=3,
            )
        folds = self._make_folds(X, y, groups, rows.cluster)
        score = self._fit_base(X, y, weight, folds)
        self.center_ = float(np.average(score, weights=weight))
        spread = float(np.sqrt(np.average((score - self.center_) ** 2, weights=weight)))
        self.scale_ = spread if spread > 1e-12 * abs(self.center_) else 1.0
        z = (score - self.center_) / self.scale_
        self.map_ = choose_map(self)
        self.bends_ = np.unique(np.quantile(z, BENDS)) if self.map_ == "spline" else np.empty(0)
        numbers = self._fit_copy(X)
        self._membership: Membership | None = None
        self.group_classifier_, self.transport_, p = None, None, None
        if groups is not None and self.group_features is not None:
            p = self._fit_membership(X, numbers, groups, folds)
            if self.map_ == "transport":
                members = groups.membership() * groups.row_weight[:, None]
                self.transport_ = Transport.fit(groups.take_known(z), members)
        elif self.map_ == "transport":
            self.map_ = "affine"  # no groups to move
        labels = ("all",) if groups is None or p is None else groups.label_names
        return self._make_columns(numbers, z, p, labels), y, groups, weight

    def _make_columns(
        self, numbers: Any, z: Vector, p: Vector | None, labels: tuple[str, ...]
    ) -> Any:
        """Columns of the linear model of the maps, and the penalty on them."""
        self._maps = ScoreMaps(len(labels), self.bends_, self.transport_, self.passthrough)
        self._penalty: Any = self._maps.slopes()
        columns = self._maps.features(z, p)
        if not self.passthrough:
            return columns
        names = self._maps.names(labels)
        self.columns_ = (*map(str, self._copy.get_feature_names_out()), *names)
        self._penalty = stack.StackPenalty(len(names), self._penalty, self.passthrough_alpha)
        return stack.join_columns(numbers, columns)

    def _make_folds(self, X: Any, y: Vector, groups: Groups | None, clusters: Any) -> list[Any]:
        """Folds for base scores and group probabilities; none where neither is fitted."""
        if groups is None and self._is_prefit():
            return []
        # Without groups any folds will do; they are made as if all rows were of one.
        one = Groups(("all",), np.zeros(len(y), dtype=np.intp), None, None, None, len(y))
        return make_folds(self.cv, X, y, groups or one, self.random_state, clusters)

    def _fit_base(self, X: Any, y: Vector, weight: Vector | None, folds: list[Any]) -> Vector:
        """Scores of the base, out of fold where it is fitted here."""
        if self._is_prefit():
            if self.passthrough and self.prefit == "auto":
                warnings.warn(
                    f"The {type(self.estimator).__name__} is fitted already. If these rows are "
                    "those it was fitted on, its scores are better here than on new ones and the "
                    "stack trusts them too much, and no measure of it is held out. Hint: hand fit "
                    "other rows and say so with prefit=True, or refit it with prefit=False.",
                    UserWarning,
                    stacklevel=3,
                )
            self.estimator_, score = self.estimator, stack.predict_base(self.estimator, X)
        else:
            self.estimator_, score = stack.fit_out_of_fold(
                self.estimator, X, y, weight, folds, self.passthrough
            )
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        names = stack.column_names(X)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        return score

    def _fit_copy(self, X: Any) -> Any:
        """X in numbers, for the stack and for the default classifier of the group."""
        self._copy: Any = None
        # That classifier takes what the regressor takes.
        by_default = self.group_features == "posterior" and self.group_classifier is None
        if self.passthrough or (by_default and needs_encoding(X, arrays=True)):
            self._copy = stack.fit_copy(X)
        return self._numbers(X)

    def _numbers(self, X: Any) -> Any:
        return None if self._copy is None else stack.copy_numbers(self._copy, X)

    def _fit_membership(self, X: Any, numbers: Any, groups: Groups, folds: list[Any]) -> Vector:
        """p of the training rows, out of fold for "posterior"."""
        kind = self.group_features
        assert kind is not None
        refuse_measured(kind, groups)
        self._membership = Membership(kind, groups.labels, groups.shares, groups.name)
        if kind == "attribute":
            return self._membership.members(X, groups, groups.n_rows, None)
        X = classifier_input(self.group_classifier, X, numbers)
        self.group_classifier_, p = out_of_fold_groups(self.group_classifier, X, groups, folds)
        return p

    def _finish(self, ridge: FairRidge, simple: FairRidge | None) -> FairPostprocessor:
        """The maps from the fitted coefficients."""
        self.regressor_, self.n_iter_ = ridge, ridge.n_iter_
        self.unfairness_ = ridge.unfairness_
        if self.passthrough:
            self.passthrough_alpha_ = self._penalty.chosen
            return self
        self.offsets_, self.slopes_ = self._maps.unpack(ridge.intercept_, ridge.coef_)
        self.blend_ = 1.0
        if simple is not None:
            offsets, slopes = self._maps.unpack(simple.intercept_, simple.coef_)
            self.blend_ = t = self._maps.blend(slopes, self.slopes_)
            self.offsets_ = (1.0 - t) * offsets + t * self.offsets_
            self.slopes_ = t * self.slopes_
            self.slopes_[:, : slopes.shape[1]] += (1.0 - t) * slopes
            self.unfairness_ = (1.0 - t) * simple.unfairness_ + t * ridge.unfairness_
        return self

    def predict(self, X: Any, *, sensitive_features: Any = None) -> Vector:
        """Fair scores s'.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix
            Features.
        sensitive_features : array, series, frame or Proxy, optional
            Needed, and used, only with ``group_features="attribute"``.

        Returns
        -------
        (n,) array
        """
        check_is_fitted(self, "regressor_")
        check_index(X=X, sensitive_features=sensitive_features)
        refuse_masked(X, "X")
        X = stack.order_columns(X, getattr(self, "feature_names_in_", None))
        score = stack.predict_base(self.estimator_, X)
        z = (score - self.center_) / self.scale_
        numbers = self._numbers(X)
        p = None
        if self._membership is not None:
            if self.group_features == "posterior":
                X = classifier_input(self.group_classifier, X, numbers)
            p = self._membership.members(X, sensitive_features, len(score), self.group_classifier_)
        if self.passthrough:
            return self.regressor_.predict(stack.join_columns(numbers, self._maps.features(z, p)))
        if p is None:
            p = np.ones((len(score), 1))
        return self._maps.evaluate(z, p, self.offsets_, self.slopes_)

    def _is_prefit(self) -> bool:
        return stack.is_fitted(self.estimator) if self.prefit == "auto" else bool(self.prefit)

    def _fitted_before(self) -> bool:
        """Whether the base keeps a fit that folds do not undo, also of a frozen part of it."""
        parts = [self.estimator]
        if hasattr(self.estimator, "get_params"):
            parts += self.estimator.get_params().values()
        frozen = any(isinstance(part, FrozenEstimator) and is_regressor(part) for part in parts)
        return frozen or self._is_prefit()

    def _check_parameters(self) -> None:
        stack.check_regressor(self.estimator, self.prefit)
        if not isinstance(self.passthrough, bool | np.bool_):
            raise InputError("passthrough", f"be True or False, got {self.passthrough!r}")
        check_choice("map", self.map, ("auto", *MAPS))
        check_kind(self.group_features)
        check_nonnegative(
            "passthrough_alpha", self.passthrough_alpha, "0 leaves the features free.", auto=True
        )
        if self.map == "transport" and self.group_features is None:
            raise ValueError(
                "`map` must be 'affine' or 'spline' with group_features=None, got 'transport': it "
                "moves groups together, and one map for everybody knows none."
            )
        self._ridge(self.fairness_weight)._check_parameters()


__all__ = ["FairPostprocessor"]
