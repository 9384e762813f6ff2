"""FairGLM: a generalized linear model whose scores carry little information about the group.

minimize  [ mean ω d(y, μ) + α‖θ‖² ] / D₀ + fairness_weight · Ĩ(score),   g(μ) = η = Xθ + b + offset

d is the deviance of the family and D₀ that of the best constant, so that one point of D² is worth
1/fairness_weight points of normalized information.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from types import MethodType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from .._core.arrays import Matrix, Vector
from .._core.frames import json_safe, to_frame
from .._core.validation import InputError, check_choice, check_column, check_confidence_level
from .._core.views import Tabled
from ..data.weights import check_exposure, scale_to_count, weighted_mean, weighted_sum
from ..measures.losses import Accuracy, Loss, get_loss
from .design import FeatureMatrix, Scratch
from .group_features import Slopes
from .linear import FairLinear
from .model_files import TOTALS
from .problem import NEWTON_TOL, GLMProblem, Problem, TrainingRows, prepare_glm
from .solver import PathSolver

SCORES = ("mean", "link")
# Share of rows with a target of zero from which separation is all but independence.
MOSTLY_ZERO = 0.8
# Columns up to which errors of coefficients are worth their matrix.
MOST_COLUMNS = 300


class SeparationWarning(UserWarning):
    """Separation given a target that is mostly zeros says little more than independence.

    See Also
    --------
    evenhand.FairGLM

    Examples
    --------
    >>> import evenhand as eh
    >>> issubclass(eh.SeparationWarning, UserWarning)
    True
    """


class _ScoreMethod:
    """`score`, a method that leaves room in the instance for the parameter of the same name.

    The parameter is part of the public contract and the method part of scikit-learn's: reading
    gives the method, writing sets the parameter, and `get_params` tells them apart.
    """

    def __init__(self, function: Callable[..., float]):
        self.function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type) -> Any:
        return self.function if instance is None else MethodType(self.function, instance)

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)["score"] = value


@dataclass(frozen=True)
class Relativities(Tabled):
    """What each level of each factor does to the mean: the result of `FairGLM.relativities`.

    Attributes
    ----------
    columns : dict of lists
        factor, level, coef, stderr, relativity, low, high; levels that others are compared with
        have no row of their own.
    totals : dict
        Deviance, explained share, sum of means and outcomes over them, of the best constant, the
        model without fairness and this one.
    family, link, symbol : str
    confidence_level : float
    """

    columns: dict[str, list[Any]]
    totals: dict[str, dict[str, float]]
    family: str
    link: str
    symbol: str
    confidence_level: float

    def deviance(self, backend: str | None = None) -> Any:
        """The deviance table, one row per model."""
        rows = {name: [of[name] for of in self.totals.values()] for name in TOTALS}
        return to_frame({"model": [*self.totals], **rows}, backend)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values that JSON can hold."""
        return json_safe({"format": "evenhand.relativities", "version": 1, **vars(self)})


def _names(model: FairGLM) -> list[tuple[str, str]]:
    """Factor and level of intercept, coefficients and group features."""
    out = [("intercept", "")]
    if model.encoder_ is not None:
        for column in model.encoder_.columns_:
            for name in column.features:
                level = name.removeprefix(column.name).removeprefix("=")
                if column.kind == "category":
                    level = f"{level} (to {column.levels[0]})"
                out.append((column.name, level or f"+{column.scale:.4g}"))
    else:
        own = [f"x{j}" for j in range(len(model.coef_))]
        out += [(str(name), "+1") for name in getattr(model, "feature_names_in_", own)]
    if model._group_features is not None:
        labels = [str(label) for label in model._group_features.labels[1:]]
        out += [("group", label) for label in labels]
        out += [("group × score", label) for label in labels]
    return out


@dataclass(eq=False, repr=False)
class FairGLM(FairLinear):
    """A generalized linear model with a fairness term.

    Minimizes ``[mean w·d(y, μ) + alpha‖θ‖²]/D₀ + fairness_weight·Ĩ`` with d the deviance of the
    family, D₀ the deviance of the best constant and Ĩ the normalized information of the criterion
    in the score; weights have mean 1 and the intercept is not penalized. At ``fairness_weight=0``
    it equals scikit-learn's ``PoissonRegressor``, ``GammaRegressor`` and ``TweedieRegressor`` at
    the same `alpha`, and at ``alpha=0`` also statsmodels' ``GLM``.

    Parameters
    ----------
    family : str or Loss
        "normal", "poisson", "gamma", "inverse_gaussian", "tweedie", "binomial" (proportions) or
        "quantile", or a :class:`evenhand.measures.losses.Loss` of your own.
    criterion : {"independence", "separation", "sufficiency"}
        What the score must not reveal.
    fairness_weight : float
        1 means that one point of D² is worth one point of normalized information.
    alpha : float
        Penalty on the coefficients.
    link : {None, "canonical", "log", "identity", "logit", "inverse", "inverse_squared"}
        None is the log for families of positive means, and the canonical link for the others. With
        "inverse" and "inverse_squared", canonical for gamma and inverse Gaussian, means beyond the
        largest fitted one are cut off there, as they have no upper limit just before they turn
        negative.
    power : float
        Of the variance of "tweedie": from 1 (Poisson) to 2 (gamma) for pure premiums.
    quantile : float
        Of "quantile", whose corner is rounded in training: see
        :class:`evenhand.measures.losses.QuantileLoss`.
    score : {"mean", "link"}
        What must not reveal the group: the mean μ, which people pay, or the linear predictor.
        Both tell the same; the fairness term sees them through different classifiers.
    classifier, basis, kappa, score_map
        The classifier inside the fairness term, as in :class:`FairRidge`.
    group_features, group_alpha
        Let the score differ by group, as in :class:`FairRidge`; s₀ is the linear predictor.
    fit_intercept : bool
    max_iter : int
        Limit on L-BFGS iterations.
    tol : float
        Stop when the gradient of the objective in whitened coordinates, divided by
        1 + fairness_weight, is below this. The objective is in units of D².
    rebalance : bool
        Shift the intercept, so that the means add up to the outcomes over the training rows, by
        weight and exposure. With the log link of "poisson" they do so anyway while no fairness is
        asked for; those of "gamma" and "tweedie" do not. For log and identity links.

    Attributes
    ----------
    coef_ : (d,) array
        Of the linear predictor. All zero where one score for everybody has the lower objective.
    group_coef_ : (2(K − 1),) array
        Coefficients of the group features; empty without them.
    group_alpha_ : float
    intercept_ : float
    loss_ : Loss
        The family with its link.
    unfairness_ : float
        Ĩ on the training rows (NaN if fitted without `sensitive_features`).
    objective_ : float
        The minimized objective.
    n_iter_, n_evaluations_ : int
        L-BFGS iterations, and evaluations of the fairness term.
    n_newton_ : int
        Newton iterations of the plain fit before, on all rows.
    covariance_ : (1 + d + 2(K − 1), ...) array or None
        Of intercept, `coef_` and `group_coef_`: sandwich errors, which hold whatever the variance
        of the outcome is, for this `fairness_weight`. At large ones they are a first
        approximation. Computed when first asked for, from the rows of the fit, which are kept until
        then. None beyond 300 columns, with more columns than rows, on clusters, and for
        models of a path that were not selected.
    totals_ : dict
        Deviance, explained share and sum of means of the best constant, of the model without
        fairness and of this one.
    n_features_in_, feature_names_in_
    encoder_ : TableEncoder or None
        The encoder of a frame that held text, categories or missing values.

    See Also
    --------
    evenhand.FairRidge
    evenhand.FairRegressor
    evenhand.fairness_path

    References
    ----------
    Nelder, J. A. and Wedderburn, R. W. M. (1972). Generalized Linear Models. Journal of the Royal
    Statistical Society A 135.

    Steinberg, D., Reid, A., O'Callaghan, S., Lattimore, F., McCalman, L. and Caetano, T. (2020).
    Fast Fair Regression via Efficient Approximations of Mutual Information.

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 2000)
    >>> X = rng.normal(size=(2000, 3)) + a[:, None] * [1.0, 0.0, 0.0]
    >>> claims = rng.poisson(np.exp(X @ [0.5, 0.3, 0.2] - 1.0))
    >>> plain = eh.FairGLM("poisson", fairness_weight=0).fit(X, claims, sensitive_features=a)
    >>> fair = eh.FairGLM("poisson", fairness_weight=20).fit(X, claims, sensitive_features=a)
    >>> bool(fair.unfairness_ < 0.2 * plain.unfairness_), bool((fair.predict(X) > 0).all())
    (True, True)

    What a tariff says of each factor:

    >>> fair.relativities().to_frame()["factor"].tolist()
    ['intercept', 'x0', 'x1', 'x2']
    """

    __metadata_request__fit: ClassVar = dict.fromkeys(
        ("sensitive_features", "exposure", "offset", "given", "controls"), True
    )
    __metadata_request__predict: ClassVar = dict.fromkeys(
        ("sensitive_features", "exposure", "offset"), True
    )
    __metadata_request__score: ClassVar = __metadata_request__predict

    family: str | Loss = "poisson"
    criterion: str = "independence"
    fairness_weight: float = 1.0
    alpha: float = 1e-3
    _: KW_ONLY
    link: str | None = None
    power: float = 1.5
    quantile: float = 0.5
    score: str = "mean"  # type: ignore[assignment]
    rebalance: bool = False

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the model by name."""
        return {**super().get_params(deep), "score": vars(self)["score"]}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        with suppress(ValueError):  # `fit` says what is wrong with the family
            tags.target_tags.positive_only = self.loss_.lower >= 0
        return tags

    @property
    def accuracy(self) -> Accuracy:
        """D² of the family: how paths, reports and tables measure this model."""
        return self.loss_.accuracy

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None,
        frequency: Any = None, exposure: Any = None, offset: Any = None, given: Any = None,
        controls: Any = None, features: Any = None, scratch: Any = None,
    ) -> FairGLM:  # fmt: skip
        """Fit the model.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix; or a path, list of paths or Arrow dataset
            Numbers are not copied, and float32 is kept. A frame that holds text, categories or
            missing values goes through a :class:`TableEncoder` (`encoder_`), whose columns are
            standardized. Parquet files (``"data/*.parquet"``, a folder, a list) and datasets are
            read where they are and need not fit into memory; all other arguments are then names of
            columns.
        y : (n,) array, or the name of a column
            Target: counts, amounts, or for "binomial" proportions between 0 and 1.
        sensitive_features : array, series, frame or Proxy
            Group of each row. Required unless ``fairness_weight=0``. Rows with a missing group
            count for accuracy and not for fairness.
        sample_weight : (n,) array, optional
            For "binomial" the number of trials behind a proportion may be among them.
        frequency : (n,) array, optional
            Number of people that each row of an aggregated table stands for; a row of frequency 3
            equals three rows.
        exposure : (n,) array, optional
            Time or amount at risk, with the log link only: y are totals over it, of mean
            exposure·μ, and the score is μ, per unit of exposure. In the loss the same as an offset
            log(exposure), and as ``GLM(..., exposure=)`` of statsmodels; for "poisson" also as
            rates ``y/exposure`` with the exposure as weights.
        offset : (n,) array, optional
            Known part of the linear predictor. It is part of the score.
        given : (n,) array, optional
            What separation conditions on in place of the target: a legitimate measure of the risk.
            Where most targets are zero a target says next to nothing about who is how risky, and
            separation given it says nearly what independence says.
        controls : frame, dict of columns or array, optional
            With ``criterion="conditional"``, the legitimate factors. One numeric control stands for
            itself; otherwise scores are made independent of the group given the log-odds of the
            group given the controls, which is what independence given the controls implies
            (`controls_summary_` says which).
        features, scratch
            As for :class:`FairRidge`.

        Returns
        -------
        self
        """
        return self._fit(
            X, y, frequency, features, scratch,
            sensitive_features=sensitive_features, sample_weight=sample_weight,
            exposure=exposure, offset=offset, given=given, controls=controls,
        )  # fmt: skip

    path_fitter = FairLinear.path_fitter

    def predict(
        self, X: Any, *, sensitive_features: Any = None, exposure: Any = None, offset: Any = None
    ) -> NDArray[Any]:
        """Means μ, per unit of exposure.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix
        sensitive_features : array, series, frame or Proxy, optional
            Needed, and used, only with ``group_features="attribute"``.
        exposure : (n,) array, optional
            Means of totals, exposure·μ, instead.
        offset : (n,) array, optional
            Known part of the linear predictor; none when left out.

        Returns
        -------
        (n,) array
        """
        return self._predict(X, sensitive_features, exposure=exposure, offset=offset)

    def _response(
        self, eta: NDArray[Any], exposure: Any = None, offset: Any = None
    ) -> NDArray[Any]:
        kind = eta.dtype
        if offset is not None:
            eta = (eta + check_column(offset, "offset", len(eta))).astype(kind, copy=False)
        if self.loss_.link.positive:
            eta = np.maximum(eta, np.asarray(self._least_eta, dtype=kind))
        mean = self.loss_.link.inverse(eta)
        if exposure is None:
            return mean
        if self.loss_.link.name != "log":
            self.loss_.per_unit(mean, None, mean)  # which says why not
        return (mean * check_exposure(exposure, len(eta))).astype(kind, copy=False)

    def _score(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None,
        exposure: Any = None, offset: Any = None,
    ) -> float:  # fmt: skip
        """D², the share of the deviance of the best constant that the predictions explain.

        Parameters
        ----------
        X, y, sample_weight, exposure, offset
            As for `fit`.
        sensitive_features : array, series, frame or Proxy, optional
            Needed where `predict` needs it.

        Returns
        -------
        float
        """
        return self._accuracy(
            X, y, sample_weight, exposure, sensitive_features=sensitive_features, offset=offset
        )

    @property
    def loss_(self) -> Loss:
        """The family with its link; no state of its own, as links are functions."""
        return get_loss(self.family, self.link, self.power, self.quantile)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        link = self.loss_.link.name
        check_choice("score", vars(self)["score"], SCORES)
        if self.rebalance and link not in ("log", "identity"):
            raise InputError(
                "rebalance", f"be False with the link {link!r}, whose means cannot "
                "be shifted together, got True", hint="link='log'.",
            )  # fmt: skip

    def _rows(self, y: Vector, weight: Vector | None, columns: Mapping[str, Any]) -> TrainingRows:
        n = len(y)
        exposure, offset, given = (columns.get(name) for name in ("exposure", "offset", "given"))
        self.loss_.check_target(y)
        # By people: a short exposure has a zero as well as a long one.
        separates = self._regularizer().criterion.given == ("y",) and self.fairness_weight > 0
        if given is None and separates:
            _warn_if_mostly_zero(y, weight)
        units = weight
        if exposure is not None:
            exposure = check_exposure(exposure, n)
            units = exposure if weight is None else weight * exposure
            y, weight = self.loss_.per_unit(y, weight, exposure)
            weight = scale_to_count(weight)
        if offset is not None:
            offset = check_column(offset, "offset", n)
        if given is not None:
            given = check_column(given, "given", n)
        return TrainingRows(y, weight, offset, given, units)

    def _prepare(self, design: FeatureMatrix, rows: TrainingRows, n_kept: int) -> GLMProblem:
        return prepare_glm(
            design, self.loss_, rows, alpha=float(self.alpha), fit_intercept=self.fit_intercept,
            of_mean=vars(self)["score"] == "mean", n_kept=n_kept,
        )  # fmt: skip

    def _problem(self, design: FeatureMatrix, rows: TrainingRows, slopes: Slopes | None) -> Problem:
        problem = super()._problem(design, rows, slopes)
        plain = problem.plain
        self.n_newton_ = plain.n_iter
        if plain.gradient_norm > 1e3 * NEWTON_TOL:
            warnings.warn(
                f"The plain fit stopped after {plain.n_iter} Newton steps with a gradient "
                f"of {plain.gradient_norm:.1e}. Hint: coefficients may be without bound, "
                "where a feature tells targets of 0 apart; raise `alpha`.",
                ConvergenceWarning,
                stacklevel=6,
            )
        return problem

    def _keep_more(self, prepared: PathSolver, theta: Vector, on_path: bool) -> Vector:
        problem = prepared.problem
        assert isinstance(problem, GLMProblem)
        if self.rebalance:
            _, actual, total = problem.totals(theta)
            by_ratio = self.loss_.link.name == "log"
            units = problem.design.total if problem.units is None else weighted_sum(problem.units)
            shift = np.log(actual / total) if by_ratio else (actual - total) / units
            theta = np.concatenate([theta[:1] + shift, theta[1:]])
        self._covariance: Matrix | None = None
        self._errors: Any = None
        narrow = problem.rotation is None and problem.design.d <= MOST_COLUMNS
        if narrow and not on_path and not problem.design.sums.is_shard:
            self._errors = partial(problem.covariance, theta, self.fairness_weight, prepared.bound)
        if isinstance(problem.features.X, Scratch):
            self._find_errors()  # the file goes with the fit
        if not on_path:
            self.totals_ = self._totals(problem, theta)
        # Means of 1/η have no limit just before they turn negative; they end where training did.
        self._least_eta = -np.inf
        if self.loss_.link.positive:
            least = problem.scores(theta).min(initial=np.inf)
            self._least_eta = problem.design.sums.least(float(least))
        return theta

    def _find_errors(self) -> Matrix | None:
        """Of intercept, `coef_` and `group_coef_`; computed when first asked for."""
        if self._errors is not None:
            self._covariance, self._errors = self._errors(), None
        return self._covariance

    covariance_ = property(_find_errors)

    def __getstate__(self) -> dict[str, Any]:
        if hasattr(self, "_errors"):
            self._find_errors()  # which need the rows, and these stay here
        return super().__getstate__()

    def _totals(self, problem: GLMProblem, theta: Vector) -> dict[str, dict[str, float]]:
        constant = problem.constant()
        models = {"best constant": constant, "without fairness": problem.theta, "this model": theta}
        out = {}
        for name, at in models.items():
            if at is None:
                continue
            deviance, actual, total = problem.totals(at)
            explained = round(1.0 - deviance / problem.bound.scale, 12) + 0.0
            out[name] = {"deviance": deviance, "explained": explained, "total": total,
                         "actual_to_expected": actual / total if total else np.nan}  # fmt: skip
        return out

    def relativities(self, confidence_level: float = 0.95) -> Relativities:
        """Factors by which each level of each feature multiplies the mean, with intervals.

        exp(coefficient ± z·standard error) of `covariance_`. A category is compared with its
        most frequent level; a number is moved by one standard deviation where it was standardized
        (frames with text or gaps), and by one unit otherwise. With the logit link these are odds
        ratios; other links have coefficients alone.

        Parameters
        ----------
        confidence_level : float
            Of all intervals.

        Returns
        -------
        Relativities
        """
        check_is_fitted(self)
        check_confidence_level(confidence_level)
        covariance = self.covariance_
        if covariance is None:
            raise InputError(
                "relativities", "be asked of a model that was fitted by `fit` to at most "
                f"{MOST_COLUMNS} columns, and fewer than it has rows: this one has no errors",
            )  # fmt: skip
        names = _names(self)
        coef = np.concatenate([[self.intercept_], self.coef_, self.group_coef_])
        error = np.sqrt(np.diag(covariance))
        half = ndtri(0.5 + 0.5 * confidence_level) * error
        ratios = self.loss_.link.name in ("log", "logit")

        def scaled(values: Vector) -> list[float]:
            return (np.exp(values) if ratios else np.full(len(values), np.nan)).tolist()

        columns = {
            "factor": [factor for factor, _ in names], "level": [level for _, level in names],
            "coef": coef.tolist(), "stderr": error.tolist(), "relativity": scaled(coef),
            "low": scaled(coef - half), "high": scaled(coef + half),
        }  # fmt: skip
        return Relativities(columns, self.totals_, self.loss_.name, self.loss_.link.name,
                            self.accuracy.symbol, confidence_level)  # fmt: skip


FairGLM.score = _ScoreMethod(FairGLM._score)  # type: ignore[assignment]
# scikit-learn looks at methods when a class is made, and then `score` was the parameter alone.
FairGLM.__init_subclass__()


def _warn_if_mostly_zero(y: Vector, weight: Vector | None) -> None:
    share = weighted_mean((y == 0).astype(np.float64), weight)
    if share > MOSTLY_ZERO:
        warnings.warn(
            f"{100 * share:.0f}% of the targets are 0, so that separation given the target is all "
            "but independence, and says little about people of the same risk. Hint: pass "
            "given=..., a legitimate measure of the risk, or use criterion='independence'.",
            SeparationWarning,
            stacklevel=6,
        )
