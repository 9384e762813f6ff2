"""The classifiers behind LSPC and Logistic, fitted to one or two columns of numbers."""

import numpy as np
from scipy.special import softmax

from evenhand import LSPC
from evenhand.data.groups import Groups
from evenhand.estimators.logistic import newton
from evenhand.estimators.lspc import solve
from evenhand.kernels import make_rows, numpy_passes, with_score
from evenhand.kernels.basis import get_basis


class Fitted:
    """Weights (K, D), scores φ·w and probabilities, (n, K) each, of the rows fitted to.

    Weights of rows count as they are, not scaled to mean 1: an integer weight is a repeated row.
    """

    def __init__(self, model, X, labels, sample_weight=None):
        self.classes, codes = np.unique(labels, return_inverse=True)
        used, weight = np.ones(len(X), dtype=bool), None
        if sample_weight is not None:
            used = np.asarray(sample_weight) > 0
            weight = np.asarray(sample_weight, dtype=np.float64)[used]
        X, codes = np.ascontiguousarray(X[used].T), codes[used]
        groups = Groups(tuple(self.classes), codes, None, weight, None, len(codes))
        rows = with_score(make_rows(groups, *X[1:]), X[0])
        basis = get_basis(model.basis, len(X))
        if isinstance(model, LSPC):
            self.weights = solve(rows, basis, model.kappa)[0]
        else:
            fit = newton(rows, basis, model.kappa, max_iter=model.max_iter)
            self.n_iter = fit.n_iter
            self.weights = np.vstack([np.zeros(basis.n_terms), fit.weights])
        mean, scale = rows.center[::2][: len(X)], rows.center[1::2][: len(X)]
        self.scores = basis((X.T - mean) * scale) @ self.weights.T
        if isinstance(model, LSPC):
            sp = numpy_passes.softplus(self.scores, model.beta)
            self.probabilities = sp / sp.sum(axis=1, keepdims=True)
        else:
            self.probabilities = softmax(self.scores, axis=1)
