"""FairRidge: a linear model whose predictions carry little information about the group.

minimize  [ mean ω(y − s)² + α‖θ‖² ] / Var(y) + fairness_weight · Ĩ(s),   s = Xθ + b
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from ..measures.losses import R2, Accuracy
from .design import FeatureMatrix
from .group_features import Slopes
from .linear_base import FairLinear
from .problem import RidgeProblem, TrainingRows, prepare_ridge


class FairRidge(FairLinear):
    """Ridge regression with a fairness term.

    Minimizes ``[mean w(y − s)² + alpha‖θ‖²]/Var(y) + fairness_weight·Ĩ`` with Ĩ the normalized
    information of the criterion; weights have mean 1 and the intercept is not penalized. At
    ``fairness_weight=0`` it equals ``Ridge(alpha=n*alpha)`` (but for `group_alpha`).

    Parameters
    ----------
    criterion : {"independence", "separation", "sufficiency", "conditional"}
        What the score must not reveal; see `evenhand.data.criteria`. "conditional" is
        independence among people with the same `controls`, which `fit` then needs.
    fairness_weight : float
        1 means that one point of R² is worth one point of normalized information.
    alpha : float
        Penalty on the coefficients, per row.
    classifier : {"logistic", "lspc"}
        The classifier of the group inside the fairness term; "lspc" is the published method.
    basis : {"auto", "spline", "quadratic", "linear", "degree3"}
        Basis of that classifier. "spline" sees whatever shape of difference between groups the rows
        can show; "quadratic", of the published method, sees shifts and spreads, and models trained
        against it can leave the rest behind. "auto" is "spline", and "quadratic" for "lspc" or
        unbounded scores.
    kappa : "auto", nonnegative float or "published"
        Ridge penalty of that classifier, on a sum over the rows with known group and in units of
        standardized variables. "auto" is 0.001 for "logistic", and for "lspc" 0.3 a row without a
        penalty on intercepts. "published" is that of the original method, 1 in units of the data.
        See :class:`FairnessRegularizer`.
    score_map : {"auto", "tanh", "raw"}
        What that classifier sees of the standardized score and target z: 1.5·tanh(z/1.5), so that
        it cannot spend itself on the tails, or z. "auto" is "tanh", or "raw" for "lspc" with a
        `kappa` other than "auto", as published.
    group_features : None, "posterior" or "attribute"
        Let the score differ by group, through the probability of each group given the features
        ("posterior") or the recorded group ("attribute", which `predict` then needs too). This
        buys accuracy at the same level of fairness. It also means that two people who differ only
        in (apparent) group get different scores, which the law of many places restricts for some
        decisions: ask before choosing it.
    group_alpha : "auto" or nonnegative float
        γ of a penalty ``γ·Σ_k (b_k − b̄)²`` besides `alpha`, with b_k the slope of group k in the
        ridge prediction and b̄ their mean: small groups say little about slopes of their own. "auto"
        takes the γ of least leave-one-out error (closed form, at ``fairness_weight=0``), up to the
        γ that leaves a fifth of a typical slope, as fairness may need slopes that accuracy does
        not; and 0 beyond 20,000 rows per extra slope. Only with `group_features`.
    fit_intercept : bool
    max_iter : int
        Limit on L-BFGS iterations.
    tol : float
        Stop when the gradient of the objective in whitened coordinates, divided by
        1 + fairness_weight, is below this. The objective is in units of R².
    start : {"auto", "ridge", "shrunk"}
        Where the search begins: the ridge solution ("auto"), or a fifth of it. It matters for
        "lspc", whose objective has several minima: the shrunk start can end in lower ones, where
        its least squares fit is wrong rather than the score fair.

    Attributes
    ----------
    coef_ : (d,) array
        All zero where one score for everybody has the lower objective.
    group_coef_ : (2(K − 1),) array
        Coefficients of the group features; empty without them.
    group_alpha_ : float
        γ; 0 without group features.
    intercept_ : float
    unfairness_ : float
        Ĩ on the training rows (NaN if fitted without `sensitive_features`).
    objective_ : float
        The minimized objective.
    n_iter_, n_evaluations_ : int
        L-BFGS iterations, and evaluations of the fairness term; those of the last step where a
        weight beyond 10 is reached from smaller ones.
    controls_summary_ : str
        With `controls`, what stands for them in the fairness term.
    n_features_in_, feature_names_in_
    encoder_ : TableEncoder or None
        What made numbers of a frame that held others.

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 500)
    >>> X = rng.normal(size=(500, 3)) + a[:, None] * [1.0, 0.0, 0.0]
    >>> y = X @ [1.0, 1.0, 0.5] + rng.normal(size=500)
    >>> plain = eh.FairRidge(fairness_weight=0).fit(X, y, sensitive_features=a)
    >>> fair = eh.FairRidge("independence", fairness_weight=20).fit(X, y, sensitive_features=a)
    >>> bool(fair.unfairness_ < 0.2 * plain.unfairness_)
    True
    """

    @property
    def accuracy(self) -> Accuracy:
        """R²: how paths, reports and tables measure this model."""
        return R2

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None,
        frequency: Any = None, controls: Any = None, features: Any = None, scratch: Any = None,
        checkpoint: Any = None,
    ) -> FairRidge:  # fmt: skip
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
        sensitive_features : array, series, frame or Proxy
            Group of each row. Required unless ``fairness_weight=0``. Rows with a missing group
            count for accuracy and not for fairness. Rows are matched by place, and pandas indices
            that contradict each other are refused.
        sample_weight : (n,) array, optional
        frequency : (n,) array, optional
            Number of people that each row of an aggregated table stands for; a row of frequency 3
            equals three rows.
        controls : frame, dict of columns or array, optional
            With ``criterion="conditional"``, the legitimate factors. One numeric control stands for
            itself; otherwise scores are made independent of the group given the log-odds of the
            group given the controls, which is what independence given the controls implies
            (`controls_summary_` says which).
        features : sequence of str, optional
            With files, the columns of X; by default all that no other argument names.
        scratch : path, optional
            With files, the folder of a temporary file as large as the features; by default where
            temporary files are.
        checkpoint : path, optional
            A small file of text that says where the fit stands, written after every iteration. A
            fit that was cut off goes on from there when it is called again in the same way, and a
            file of other rows or parameters (but for `max_iter` and `tol`) is refused.

        Returns
        -------
        self
        """
        return self._fit(
            X, y, frequency, features, scratch, checkpoint,
            sensitive_features=sensitive_features, sample_weight=sample_weight, controls=controls,
        )  # fmt: skip

    def path_fitter(
        self, X: Any, y: Any, *, sensitive_features: Any, sample_weight: Any = None,
        controls: Any = None, slopes: Slopes | None = None,
    ) -> Callable[[float], FairRidge]:  # fmt: skip
        """A function from `fairness_weight` to a fitted model, for many weights on the same rows.

        The set-up is shared and solutions start one another. Solved more loosely than `fit`: a path
        is for measuring, and the model chosen on it is refitted. :func:`fairness_path` uses this
        method of any estimator that defines it beside its `fit`.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight, controls
            As for `fit`.
        slopes : Slopes, optional
            Which of the last columns of X are slopes by group, penalized by `group_alpha`.
        """
        return self._path(X, y, sensitive_features, sample_weight, slopes, controls=controls)

    def _prepare(self, design: FeatureMatrix, rows: TrainingRows, n_kept: int) -> RidgeProblem:
        return prepare_ridge(design, rows.y, rows.weight, self.alpha, self.fit_intercept, n_kept)

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """Scores s = Xθ + b.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix; or a path, list of paths or Arrow dataset
            Files and datasets are read batch by batch; `sensitive_features` then names columns.
        sensitive_features : array, series, frame or Proxy, optional
            Needed, and used, only with ``group_features="attribute"``.

        Returns
        -------
        (n,) array
        """
        return self._predict(X, sensitive_features)
