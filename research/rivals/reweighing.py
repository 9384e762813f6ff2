"""FairReweighing: rows are weighed until group and target are independent, then any model fits."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import indexable
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from evenhand._core.validation import check_column, check_index
from evenhand.data.groups import Groups, resolve_groups
from evenhand.data.weights import check_weight
from evenhand.training.linear import ScoresWithGroups, refuse_missing_groups
from evenhand.training.stack import weight_argument

from ._base import Array, check_choice, check_nonnegative

DENSITIES = ("kernel", "neighbor")
BLOCK = 2_000


class FairReweighing(ScoresWithGroups, MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    r"""Any regressor, fitted to rows of weight p(a)·p(y) / p(a, y).

    In the weighted sample the target does not tell the group. A score that depends on the group
    through the target alone then satisfies separation, which is what the method is for.

    Parameters
    ----------
    estimator : regressor
        Cloned and fitted with `sample_weight`.
    density : {"kernel", "neighbor"}
        How the three densities are estimated, see :func:`balance_weights`.
    width : float
        Bandwidth of the kernel, or radius of the neighborhood.
    strength : float
        Exponent of the weights: 0 leaves all rows alike, 1 is the published method.

    Attributes
    ----------
    estimator_ : regressor
    weight_ : (n,) array
        The weights, times `sample_weight`, of mean 1. A row of unknown group keeps its own.
    labels_ : tuple
        The groups.

    References
    ----------
    Xi, Yu (2025), "FairReweighing: Density Estimation-Based Reweighing Framework for Improving
    Separation in Fair Regression".
    """

    def __init__(
        self,
        estimator: Any,
        *,
        density: str = "kernel",
        width: float = 0.2,
        strength: float = 1.0,
    ) -> None:
        self.estimator = estimator
        self.density = density
        self.width = width
        self.strength = strength

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> FairReweighing:
        """Fit the regressor to the weighted rows.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features, passed to the estimator.
        y : (n,) array
            Target.
        sensitive_features : array, series, frame or Proxy
            Groups; required.
        sample_weight : (n,) array, optional
            Nonnegative weights; they count in the densities too.
        """
        check_nonnegative(self.strength, "strength")
        refuse_missing_groups(sensitive_features is None)
        check_index(X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight)
        y = check_column(y, "y")
        (X,) = indexable(X)
        check_consistent_length(X, y)
        weight = check_weight(sample_weight, len(y))
        groups = resolve_groups(sensitive_features, n_rows=len(y), sample_weight=weight)
        self.labels_ = groups.labels
        balance = balance_weights(y, groups, self.density, self.width) ** float(self.strength)
        total = balance if weight is None else balance * weight
        self.weight_ = total * (len(y) / total.sum())
        extra = weight_argument(self.estimator, self.weight_)
        self.estimator_ = clone(self.estimator).fit(X, y, **extra)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def predict(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """Scores of the fitted estimator; the group is not used.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
        sensitive_features : ignored
        """
        check_is_fitted(self, "estimator_")
        return check_column(self.estimator_.predict(X), "scores")


def balance_weights(y: Array, groups: Groups, density: str = "kernel", width: float = 0.2) -> Array:
    r"""Return p(a)·p(y) / p(a, y) of each row, with mean 1; 1 where the group is unknown.

    As published, y and the indicators of all groups but the first are measured in standard
    deviations, and a density at a row is the mean over all rows, itself among them, of

    * "kernel": :math:`\exp(-d^2 / 2h^2)`, d the distance to that row and h the width,
    * "neighbor": whether d < h.

    Parameters
    ----------
    y : (n,) array
    groups : Groups
    density : {"kernel", "neighbor"}
    width : float
        h.
    """
    check_choice(density, "density", DENSITIES)
    if not isinstance(width, Real) or isinstance(width, bool) or not 0 < float(width) < np.inf:
        raise ValueError(f"`width` must be a finite positive number, got {width!r}.")
    value = groups.take_known(y)
    weight = np.ones(len(value)) if groups.weight is None else groups.weight
    weight = weight / weight.sum()
    mean = weight @ value
    spread = float(np.sqrt(weight @ np.square(value - mean)))
    z = (value - mean) / (spread if spread > 0 else 1.0)
    member = groups.membership()
    share = groups.shares
    # Squared distance of two groups: of their standardized indicators.
    indicator = (np.eye(len(share)) / np.sqrt(share * (1.0 - share)))[:, 1:]
    apart = np.square(indicator[:, None] - indicator).sum(axis=-1)
    mass = member * weight[:, None]
    if density == "kernel":
        close = np.exp(-apart / (2.0 * width**2))
        near = _sum_kernel(z, mass, width)
        total, joint = near.sum(axis=1), near @ close
    else:
        close = (apart < width**2).astype(float)
        whole = np.full((1, len(share)), float(width))
        total = _sum_ball(z, mass, whole)[:, 0]
        joint = _sum_ball(z, mass, np.sqrt(np.maximum(width**2 - apart, 0.0)))
    # A row of a proxy is of several groups in part: numerator and denominator are averages.
    ratio = (member @ (close @ share)) * total / np.maximum((member * joint).sum(axis=1), 1e-300)
    out = np.ones(len(y))
    out[slice(None) if groups.known is None else groups.known] = ratio / ratio.mean()
    return out


def _sum_kernel(z: Array, mass: Array, width: float) -> Array:
    """Σ_j exp(−(z_i − z_j)²/2h²)·mass_jk, (n, K)."""
    out = np.empty_like(mass)
    for start in range(0, len(z), BLOCK):
        rows = slice(start, start + BLOCK)
        out[rows] = np.exp(-0.5 * np.square((z[rows, None] - z) / width)) @ mass
    return out


def _sum_ball(z: Array, mass: Array, reach: Array) -> Array:
    """Σ_jk [|z_i − z_j| < reach_lk]·mass_jk, (n, L); nothing where the reach is 0."""
    order = np.argsort(z, kind="stable")
    line = z[order]
    below = np.vstack([np.zeros(mass.shape[1]), np.cumsum(mass[order], axis=0)])
    out = np.zeros((len(z), len(reach)))
    for (i, k), r in np.ndenumerate(reach):
        if r > 0:
            end, start = np.searchsorted(line, z + r, "left"), np.searchsorted(line, z - r, "right")
            out[:, i] += below[end, k] - below[start, k]
    return out
