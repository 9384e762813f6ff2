"""FairRidgeCV: the fairness weight chosen by cross-validation, as one estimator."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ..groups.frequency import repeat_rows
from ..groups.validation import check_index, refuse_unreal
from ..models.linear import FairRidge
from ..models.scoring import ScoresWithGroups
from ..models.tables import ReadsTables
from .fitting import fairness_path


class FairRidgeCV(ReadsTables, ScoresWithGroups, RegressorMixin, BaseEstimator):
    """The most accurate :class:`FairRidge` whose held-out unfairness is at most `max_unfairness`.

    Fits a path of fairness weights with :func:`fairness_path`, chooses a point by
    :meth:`FairnessPath.select` and refits it on all rows.

    Parameters
    ----------
    criterion : {"independence", "separation", "sufficiency"}
        What the score must not reveal.
    max_unfairness : float
        Largest held-out normalized information allowed, in [0, 1].
    alpha, classifier, basis, kappa, score_map, group_features, group_alpha, fit_intercept,
    max_iter, tol, start
        As in :class:`FairRidge`.
    fairness_weights, cv, n_points, measure_with, n_jobs, random_state
        As in :func:`fairness_path`.
    certify : bool
        Hold the upper confidence bound, not the estimate, to `max_unfairness`.
    confidence_level : float
        Of that bound.
    on_unreachable : {"raise", "best"}
        Where no weight meets the request: raise, or warn and keep the fairest.

    Attributes
    ----------
    best_estimator_ : FairRidge
    fairness_weight_ : float
    unfairness_ : float
        Held-out value of the criterion at that weight.
    path_ : FairnessPath
    coef_, intercept_, n_iter_
        Of `best_estimator_`.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 1000)
    >>> X = rng.normal(size=(1000, 3)) + a[:, None] * [1.0, 0.0, 0.0]
    >>> y = X @ [1.0, 1.0, 0.5] + rng.normal(size=1000)
    >>> model = eh.FairRidgeCV(max_unfairness=0.05, n_points=6, random_state=0)
    >>> bool(model.fit(X, y, sensitive_features=a).unfairness_ <= 0.05)
    True
    """

    def __init__(
        self,
        criterion: str = "independence",
        max_unfairness: float = 0.05,
        alpha: float = 1e-3,
        *,
        classifier: str = "logistic",
        basis: str = "quadratic",
        kappa: float | str = "auto",
        score_map: str = "auto",
        group_features: str | None = None,
        group_alpha: float | str = "auto",
        fit_intercept: bool = True,
        max_iter: int = 200,
        tol: float = 1e-6,
        start: str = "auto",
        fairness_weights: Any = "auto",
        cv: Any = 5,
        n_points: int = 20,
        measure_with: Any = "auto",
        certify: bool = False,
        confidence_level: float = 0.95,
        on_unreachable: str = "raise",
        n_jobs: int | None = None,
        random_state: Any = None,
    ):
        self.criterion = criterion
        self.max_unfairness = max_unfairness
        self.alpha = alpha
        self.classifier = classifier
        self.basis = basis
        self.kappa = kappa
        self.score_map = score_map
        self.group_features = group_features
        self.group_alpha = group_alpha
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.start = start
        self.fairness_weights = fairness_weights
        self.cv = cv
        self.n_points = n_points
        self.measure_with = measure_with
        self.certify = certify
        self.confidence_level = confidence_level
        self.on_unreachable = on_unreachable
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None,
        frequency: Any = None, cluster: Any = None,
    ) -> FairRidgeCV:  # fmt: skip
        """Fit the path, choose a point and refit it.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix
            Features; categories and missing values of a frame as for :class:`FairRidge`.
        y : (n,) array
            Target.
        sensitive_features : array, series, frame or Proxy
            Group of each row; required.
        sample_weight : (n,) array, optional
            For fitting and for all measures.
        frequency : (n,) array, optional
            Number of people that each row of an aggregated table stands for; a row of frequency 3
            equals three rows.
        cluster : (n,) array, optional
            Label of the cluster of each row, as in :func:`fairness_path`.
        """
        X, y, sensitive_features, sample_weight, cluster = repeat_rows(
            frequency, X=X, y=y, sensitive_features=sensitive_features,
            sample_weight=sample_weight, cluster=cluster,
        )  # fmt: skip
        names = FairRidge().get_params()
        shared = {n: v for n, v in self.get_params(deep=False).items() if n in names}
        refuse_unreal(X=X, y=y)
        check_index(
            X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight,
            cluster=cluster,
        )  # fmt: skip
        X, y = self._read_training(X, y)
        self.path_ = fairness_path(
            FairRidge(**shared), X, y, sensitive_features=sensitive_features,
            sample_weight=sample_weight, cluster=cluster, fairness_weights=self.fairness_weights,
            cv=self.cv, n_points=self.n_points, measure_with=self.measure_with,
            confidence_level=self.confidence_level, n_jobs=self.n_jobs,
            random_state=self.random_state,
        )  # fmt: skip
        self.best_estimator_ = self.path_.select(
            max_unfairness=self.max_unfairness,
            certify=self.certify,
            on_unreachable=self.on_unreachable,
        )
        chosen = self.path_.selected
        assert chosen is not None
        self.fairness_weight_ = chosen.fairness_weight
        self.unfairness_ = chosen.measure(self.criterion).value
        self.coef_ = self.best_estimator_.coef_
        self.intercept_ = self.best_estimator_.intercept_
        self.n_iter_ = self.best_estimator_.n_iter_
        return self

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """Scores of the chosen model.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix
            Features.
        sensitive_features : array, series, frame or Proxy, optional
            Needed, and used, only with ``group_features="attribute"``.
        """
        check_is_fitted(self)
        refuse_unreal(X=X)
        check_index(X=X, sensitive_features=sensitive_features)
        X = self._read_features(X)
        return self.best_estimator_.predict(X, sensitive_features=sensitive_features)
