"""Algorithm 1 as published: raw features, automatic differentiation in JAX, SciPy L-BFGS.

The peer that the fitters are timed against, and the direct transcription that the analytic LSPC
gradients are tested against. Nothing here is clever on purpose: Φ is built, one linear solve gives
the classifier, JAX differentiates through all of it.

    minimize over θ, b   [ mean w (y − s)² + alpha‖θ‖² ] / Var(y) + fairness_weight · Ĩ(s),
    s = Xθ + b

with Ĩ the normalized criterion on LSPC and constant normalizers: H(A) for independence and
sufficiency, LSPC's H(A|Y) for separation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

CRITERIA = ("independence", "separation", "sufficiency")
BASES = ("linear", "quadratic")
KAPPA = 1e-3


def _x64() -> Any:
    """A context in which JAX computes in float64, whatever the process default is."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64()


def _standardize(v: jax.Array, w: jax.Array) -> jax.Array:
    """Weighted mean 0 and variance 1; a constant becomes 0, with gradient 0."""
    centered = v - jnp.average(v, weights=w)
    variance = jnp.average(centered**2, weights=w)
    # Rounding leaves a "constant" score a spread of a few ulps of its size.
    constant = variance <= (4 * jnp.finfo(v.dtype).eps * jnp.max(jnp.abs(v))) ** 2
    return jnp.where(constant, 0.0, centered / jnp.sqrt(jnp.where(constant, 1.0, variance)))


def _design(columns: list[jax.Array], basis: str) -> jax.Array:
    """Φ: [1, z], and for the quadratic basis all products z_i z_j, i ≤ j."""
    terms = [jnp.ones_like(columns[0]), *columns]
    if basis == "quadratic":
        terms += [u * v for i, u in enumerate(columns) for v in columns[i:]]
    return jnp.stack(terms, axis=1)


def _mean_log_rho(
    columns: list[jax.Array],
    membership: jax.Array,
    w: jax.Array,
    basis: str,
    kappa: float,
    beta: float,
) -> jax.Array:
    """(1/n) Σ_i w_i Σ_k membership_ik log ρ_k(z_i), which is −H(A|Z)."""
    phi = _design([_standardize(c, w) for c in columns], basis)
    gram = phi.T @ (w[:, None] * phi) + kappa * jnp.eye(phi.shape[1])
    weights = jnp.linalg.solve(gram, phi.T @ (w[:, None] * membership))
    positive = jax.nn.softplus(beta * (phi @ weights)) / beta
    log_rho = jnp.log(positive) - jnp.log(positive.sum(axis=1, keepdims=True))
    return jnp.average((membership * log_rho).sum(axis=1), weights=w)


def _regularizer(
    s: jax.Array,
    y: jax.Array,
    membership: jax.Array,
    w: jax.Array,
    criterion: str,
    basis: str,
    kappa: float,
    beta: float,
) -> jax.Array:
    """The normalized criterion Ĩ."""
    shares = jnp.average(membership, axis=0, weights=w)
    entropy = -(shares * jnp.log(shares)).sum()
    lspc = (membership, w, basis, kappa, beta)
    if criterion == "independence":
        return (entropy + _mean_log_rho([s], *lspc)) / entropy
    joint = _mean_log_rho([s, y], *lspc)
    if criterion == "separation":
        given = -_mean_log_rho([y], *lspc)
        return (given + joint) / given
    return (joint - _mean_log_rho([s], *lspc)) / entropy


def _check(criterion: str, basis: str) -> None:
    if criterion not in CRITERIA:
        raise ValueError(f"`criterion` must be one of {', '.join(CRITERIA)}, got {criterion!r}.")
    if basis not in BASES:
        raise ValueError(f"`basis` must be one of {', '.join(BASES)}, got {basis!r}.")


@cache
def value_and_grad(
    criterion: str, basis: str, kappa: float = KAPPA, beta: float = 30.0
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """The pure JAX function (s, y, onehot, w) -> Ĩ and its gradient in s.

    Call it under float64, or use :func:`regularizer_value_and_grad`, which sees to that.
    """
    _check(criterion, basis)

    def value(s: jax.Array, y: jax.Array, onehot: jax.Array, w: jax.Array) -> jax.Array:
        return _regularizer(s, y, onehot, w, criterion, basis, kappa, beta)

    return jax.jit(jax.value_and_grad(value))


def regularizer_value_and_grad(
    s: ArrayLike,
    y: ArrayLike,
    membership: ArrayLike,
    weight: ArrayLike | None,
    criterion: str,
    basis: str,
    kappa: float = KAPPA,
    beta: float = 30.0,
) -> tuple[float, NDArray[np.float64]]:
    """Ĩ and ∂Ĩ/∂s by automatic differentiation, in float64.

    Parameters
    ----------
    s, y : (n,) arrays
        Scores and targets, in any units.
    membership : (n, K) array
        One-hot groups, or membership probabilities.
    weight : (n,) array or None
        Sample weights; scaled to mean 1.
    criterion : {"independence", "separation", "sufficiency"}
        Which information is penalized.
    basis : {"linear", "quadratic"}
        Basis φ of the classifier.
    kappa, beta : float
        Ridge term of LSPC, added to ΦᵀΦ, and sharpness of the softplus.
    """
    weight = _mean_one(weight, len(np.asarray(s)))
    with _x64():
        arrays = [jnp.asarray(np.asarray(v, dtype=np.float64)) for v in (s, y, membership, weight)]
        value, grad = value_and_grad(criterion, basis, float(kappa), float(beta))(*arrays)
        return float(value), np.asarray(grad)


@dataclass(frozen=True)
class Fit:
    """What :func:`fit` found.

    `theta` and `intercept` are in the units of the X given, and `objective` is the full fitted
    objective at them. Times are in seconds; `fit_time` excludes `compile_time`.
    """

    theta: NDArray[np.float64]
    intercept: float
    objective: float
    evaluations: int
    iterations: int
    converged: bool
    message: str
    compile_time: float
    fit_time: float


def fit(
    X: ArrayLike,
    y: ArrayLike,
    membership: ArrayLike,
    *,
    criterion: str,
    basis: str,
    fairness_weight: float,
    alpha: float,
    kappa: float = KAPPA,
    beta: float = 30.0,
    weight: ArrayLike | None = None,
    max_iter: int = 2000,
    init: str | ArrayLike = "random",
    random_state: int = 0,
    gtol: float = 1e-5,
    ftol: float = 2.2e-9,
) -> Fit:
    """Minimize the fitted objective over [θ, b] as Algorithm 1 does.

    The columns of X are used as they are. At θ = 0 the score is constant, hence perfectly fair,
    and a large `fairness_weight` can hold the search there; so the default start is random
    (standard normal, scaled so that the scores have about the spread of y, intercept mean(y)).

    Parameters
    ----------
    X : (n, d) dense array
        Features.
    y : (n,) array
        Targets.
    membership : (n, K) array
        One-hot groups, or membership probabilities.
    criterion, basis, kappa, beta, weight :
        As for :func:`regularizer_value_and_grad`.
    fairness_weight, alpha : float
        Strengths of the fairness term and of the ridge term.
    max_iter : int
        L-BFGS iterations at most.
    init : {"random", "zero"} or (d + 1,) array
        The start; an array is [θ, b].
    random_state : int
        Seed of the random start.
    gtol, ftol : float
        L-BFGS-B stops when no entry of the gradient exceeds `gtol`, or when the relative gain of
        a step is under `ftol`. The paper states neither; these are SciPy's own defaults, so the
        peer is not made slow by a stricter stop than its users would have.
    """
    _check(criterion, basis)
    X = np.asarray(X, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    n, d = X.shape
    w = _mean_one(weight, n)
    mean = np.average(y, weights=w)
    variance = float(np.average((y - mean) ** 2, weights=w))
    start = _start(init, X, mean, variance, random_state)

    with _x64():
        data = [jnp.asarray(v) for v in (X, y, np.asarray(membership, dtype=np.float64), w)]

        def loss(
            params: jax.Array, X: jax.Array, y: jax.Array, a: jax.Array, w: jax.Array
        ) -> jax.Array:
            theta, b = params[:-1], params[-1]
            s = X @ theta + b
            base = jnp.average((y - s) ** 2, weights=w) + alpha * (theta @ theta)
            fairness = _regularizer(s, y, a, w, criterion, basis, kappa, beta)
            return base / variance + fairness_weight * fairness

        began = time.perf_counter()
        compiled = jax.jit(jax.value_and_grad(loss)).lower(jnp.asarray(start), *data).compile()
        compile_time = time.perf_counter() - began

        def objective(params: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            value, grad = compiled(jnp.asarray(params), *data)
            return float(value), np.asarray(grad)

        began = time.perf_counter()
        result = optimize.minimize(
            objective,
            start,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter, "maxfun": 10 * max_iter, "gtol": gtol, "ftol": ftol},
        )
        fit_time = time.perf_counter() - began
    return Fit(
        theta=result.x[:d],
        intercept=float(result.x[d]),
        objective=float(result.fun),
        evaluations=int(result.nfev),
        iterations=int(result.nit),
        converged=bool(result.success),
        message=str(result.message),
        compile_time=compile_time,
        fit_time=fit_time,
    )


def _start(
    init: str | ArrayLike, X: NDArray[np.float64], mean: float, variance: float, random_state: int
) -> NDArray[np.float64]:
    d = X.shape[1]
    if not isinstance(init, str):
        return np.asarray(init, dtype=np.float64)
    if init == "zero":
        return np.zeros(d + 1)
    if init != "random":
        raise ValueError(f"`init` must be 'random', 'zero' or an array, got {init!r}.")
    theta = np.random.default_rng(random_state).standard_normal(d)
    theta *= np.sqrt(variance) / max(float(np.std(X @ theta)), 1e-12)
    return np.append(theta, mean - float((X @ theta).mean()))


def _mean_one(weight: ArrayLike | None, n: int) -> NDArray[np.float64]:
    if weight is None:
        return np.ones(n)
    w = np.asarray(weight, dtype=np.float64)
    return w * (n / w.sum())
