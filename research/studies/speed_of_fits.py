"""Time of fits and single evaluations against their floors and peers.

`performance` has a part for each floor or peer. `published`: one fair fit against Algorithm 1 as
published (raw features, JAX autodiff, SciPy L-BFGS), same objective, same data, compilation apart.
`paths`: what a path of 20 fairness weights costs, in single fits. `convex`: the penalties of Berk
et al. over all pairs, as published, and in linear time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

import evenhand as eh
from common import ALPHA, CRITERIA, Setting, growth, standardized, timed
from evenhand.training.frontier import spread_weights
from loaders import load_communities, load_law_school
from rivals import BerkRegressor

Row = dict[str, Any]


def make(n: int, d: int, seed: int = 0):
    """Features of which half carry the group, a target, and two groups of 30 % and 70 %."""
    rng = np.random.default_rng(seed)
    a = (rng.random(n) < 0.3).astype(int)
    X = rng.standard_normal((n, d))
    for j in range(d // 2):
        X[:, j] += 0.3 * a
    y = X @ rng.normal(size=d) / np.sqrt(d) + 0.3 * a + 0.5 * rng.standard_normal(n)
    return X, y, a


def row(study: str, what: str, value: float, goal: str, **more) -> dict:
    return {"study": study, "what": what, "value": value, "goal": goal, **more}


def ridge() -> list[dict]:
    """One fit against scikit-learn's Ridge on the same rows."""
    from sklearn.linear_model import Ridge

    n, d = 10**6, 50
    X, y, a = make(n, d)
    models = {
        "logistic": (eh.FairRidge("separation"), "<= 3"),
        "lspc": (eh.FairRidge("separation", classifier="lspc"), "<= 2.5"),
    }
    for model, _ in models.values():
        model.fit(X[:5000], y[:5000], sensitive_features=a[:5000])
    floor, times = [], {name: [] for name in models}
    for _ in range(5):  # interleaved, so that a slow moment of the machine hits all alike
        floor.append(timed(lambda: Ridge(alpha=n * 1e-3, solver="cholesky").fit(X, y), 1)[0])
        for name, (model, _) in models.items():
            fit = lambda model=model: model.fit(X, y, sensitive_features=a)  # noqa: E731
            times[name].append(timed(fit, 1)[0])
    base = median(floor)
    out = []
    for name, (model, goal) in models.items():
        out.append(
            row(
                "ridge",
                f"FairRidge ({name}) / Ridge(cholesky), n=1e6, d=50",
                median(times[name]) / base,
                goal,
                seconds=median(times[name]),
                peer_seconds=base,
                evaluations=model.n_evaluations_,
            )
        )
    return out


def value() -> list[dict]:
    """One value and gradient against a jitted JAX transcription."""
    import jax
    import jax.numpy as jnp

    from rivals import algorithm1_jax

    n = 10**6
    _, y, a = make(n, 2)
    s = y + np.random.default_rng(1).standard_normal(n)
    membership = np.eye(2)[a]
    with algorithm1_jax._x64():
        data = [jnp.asarray(v) for v in (s, y, membership, np.ones(n))]
        compiled = jax.jit(
            jax.value_and_grad(
                lambda s, y, a, w: algorithm1_jax._regularizer(
                    s, y, a, w, "separation", "quadratic", 1e-3, 30.0
                )
            )
        )
        jax.block_until_ready(compiled(*data))
        peer, _, (peer_value, _) = timed(lambda: jax.block_until_ready(compiled(*data)), 7)
    out = []
    for classifier in ("lspc", "logistic"):
        bound = eh.FairnessRegularizer("separation", classifier).bind(y, sensitive_features=a)
        bound.value_and_grad(s)
        shift = np.random.default_rng(2).standard_normal(n) * 0.02
        # A small move each time, as in a fit, so that a warm start is neither useless nor perfect.
        moves = iter([s + k * shift for k in range(1, 8)])
        seconds, _, _ = timed(lambda: bound.value_and_grad(next(moves)), 7)
        out.append(
            row(
                "value",
                f"JAX (jit, LSPC) / ours ({classifier}), value and gradient, n=1e6",
                peer / seconds,
                ">= 15",
                seconds=seconds,
                peer_seconds=peer,
                note=f"values at the start {float(peer_value):.12g}",
            )
        )
    return out


def bandwidth() -> list[dict]:
    """One value and gradient at n = 1e7 against reading its three columns three times."""
    n = 10**7
    rng = np.random.default_rng(0)
    y = rng.standard_normal(n)
    a = (rng.random(n) < 0.3).astype(np.int8)
    s = y + rng.standard_normal(n) + 0.2 * a
    target = np.empty_like(s)
    # A copy moves twice its bytes.
    copy = min(timed(lambda: np.copyto(target, s), 5)[0] for _ in range(3))
    speed = 2 * s.nbytes / copy
    floor = 3 * (8 + 8 + 1) * n / speed
    out = []
    for classifier in ("lspc", "logistic"):
        bound = eh.FairnessRegularizer("separation", classifier).bind(y, sensitive_features=a)
        bound.value_and_grad(s)
        moves = iter([s + k * 0.02 * y for k in range(1, 6)])
        seconds, _, _ = timed(lambda bound=bound: bound.value_and_grad(next(moves)), 5)
        out.append(
            row(
                "bandwidth",
                f"value and gradient ({classifier}), n=1e7 / reading s, y, a thrice",
                seconds / floor,
                "<= 4",
                seconds=seconds,
                peer_seconds=floor,
                note=f"copy bandwidth {speed / 1e9:.1f} GB/s, {1e9 * seconds / n:.1f} ns a row",
            )
        )
    return out


def roofline() -> list[dict]:
    """Each pass of an evaluation on one thread: bytes, operations and time a row.

    Operations are counted in the compiled code. The floor is the larger of moving the bytes at
    copy bandwidth and of the operations at the pace of a matrix product on the same core; a
    division counts as one operation there and takes many.
    """
    from numba import njit
    from threadpoolctl import threadpool_limits

    from evenhand._core.threads import CHUNK
    from evenhand.data.groups import resolve_groups
    from evenhand.kernels import chunks, make_rows, with_score
    from evenhand.kernels.basis import get_basis
    from evenhand.kernels.passes import _columns, _likes

    n = 2 * 10**6 // CHUNK * CHUNK
    _, y, a = make(n, 2)
    s = y + np.random.default_rng(1).standard_normal(n)
    rows = with_score(make_rows(resolve_groups(a, n_rows=n), y), s)
    basis = get_basis("quadratic", 2)
    d, m, low = basis.n_terms, basis.n_moments, basis.n_slopes
    weights = 0.1 * np.random.default_rng(2).normal(size=(2, d))
    weights[:, 0] += 0.5
    columns, slopes, gradient = _columns(rows), basis.slopes(weights), np.empty(n)
    common, out, none = np.ones(len(basis.raised)), np.zeros(64), (0.0, 0.0, 0.0)
    free = (columns, weights[1:], slopes[1:], none)
    passes = {
        "LSPC, moments": (chunks.gram_chunk, (columns, 2, _likes(d, m)), (out,), 17),
        "LSPC, loss and gradient": (
            chunks.lspc_chunk, (columns, weights, slopes, 30.0, _likes(d, low)), (out, gradient), 25
        ),
        "LSPC, through the solution": (
            chunks.backprop_chunk,
            (columns, slopes, common, 1.0, _likes(low, len(common))), (gradient,), 33),
        "logistic, loss and Hessian": (
            chunks.pair_logistic_chunk, (*free, _likes(d, m, low)), (out, None), 17),
        "logistic, loss and gradient": (
            chunks.pair_logistic_chunk, (*free, _likes(d, 0, low)), (out, gradient), 25),
    }  # fmt: skip
    target = np.empty_like(s)
    bandwidth = 2 * s.nbytes / min(timed(lambda: np.copyto(target, s), 3)[0] for _ in range(5))
    square = np.random.default_rng(3).normal(size=(512, 512))
    with threadpool_limits(1):
        product = min(timed(lambda: square @ square, 3)[0] for _ in range(10))
    pace = 2 * 512**3 / product
    out_rows = []
    for name, (kernel, arguments, outputs, size) in passes.items():
        # Compiled anew: code from the cache cannot be listed.
        again = njit(nogil=True, error_model="numpy")(kernel.py_func)
        again(0, CHUNK, *arguments, *outputs)
        operations = _operations(next(iter(again.inspect_llvm().values())))

        def whole(again=again, arguments=arguments, outputs=outputs):
            for start in range(0, n, CHUNK):
                again(start, start + CHUNK, *arguments, *outputs)

        seconds = min(timed(whole, 3)[0] for _ in range(5)) / n
        times = {"memory": size / bandwidth, "arithmetic": operations / pace}
        bound = max(times, key=lambda kind: times[kind])
        note = (
            f"{size} bytes and {operations} operations a row; floor {1e9 * times[bound]:.2f} ns "
            f"({bound}); {size / seconds / 1e9:.1f} of {bandwidth / 1e9:.1f} GB/s, "
            f"{operations / seconds / 1e9:.1f} of {pace / 1e9:.1f} GFLOP/s"
        )
        what = f"{name}: nanoseconds a row, one thread"
        out_rows.append(row("roofline", what, 1e9 * seconds, "", note=note))
    return out_rows


def _operations(code: str) -> int:
    """Floating-point operations a row: those of the scalar loop that takes the rows left over."""
    operation = re.compile(r"= f(add|sub|mul|div)( \w+)* double")
    blocks = re.split(r"^[\w.$\"-]+:.*$", code, flags=re.MULTILINE)
    return max(len(operation.findall(block)) for block in blocks)


def growing() -> list[dict]:
    """Growth of the fit time with n, d = 20."""
    sizes, times = [10**4, 10**5, 10**6, 10**7], []
    X, y, a = make(sizes[-1], 20)
    eh.FairRidge("separation").fit(X[:2000], y[:2000], sensitive_features=a[:2000])
    rows = []
    for n in sizes:
        model = eh.FairRidge("separation")
        fit = lambda n=n, model=model: model.fit(X[:n], y[:n], sensitive_features=a[:n])  # noqa: E731
        seconds, spread, _ = timed(fit, 7 if n < 10**6 else 3)
        times.append(seconds)
        rows.append(
            row("growth", f"FairRidge fit, n={n:.0e}, d=20 (seconds)", seconds, "", spread=spread)
        )
    tracemalloc.start()
    eh.FairRidge("separation").fit(X, y, sensitive_features=a)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    vectors = peak / (8 * sizes[-1])
    rows.append(row("growth", "exponent, n=1e4 to 1e7", growth(sizes, times), "<= 1.05"))
    rows.append(row("growth", "extra memory at n=1e7, d=20 (vectors of length n)", vectors, "<= 8"))
    return rows


def fairlearn() -> list[dict]:
    """A ten-point path against fairlearn's grid search with bounded group loss."""
    from fairlearn.reductions import BoundedGroupLoss, GridSearch, SquareLoss
    from sklearn.linear_model import LinearRegression

    n, d = 10**5, 10
    X, y, a = make(n, d)
    loss = SquareLoss(y.min(), y.max())

    def peer():
        search = GridSearch(
            LinearRegression(), BoundedGroupLoss(loss, upper_bound=0.1), grid_size=10
        )
        return search.fit(X, y, sensitive_features=a)

    def ours():
        fit = eh.FairRidge("separation").path_fitter(X, y, sensitive_features=a)
        return [fit(weight) for weight in np.geomspace(0.05, 50, 10)]

    ours()
    seconds, _, _ = timed(ours, 3)
    peer_seconds, _, _ = timed(peer, 3)
    return [
        row(
            "fairlearn",
            "fairlearn GridSearch, 10 points / our 10-point path, n=1e5",
            peer_seconds / seconds,
            ">= 50",
            seconds=seconds,
            peer_seconds=peer_seconds,
        )
    ]


def first() -> list[dict]:
    """The first call of a program, with an empty and with a filled cache of compiled code."""
    program = (
        "import time, numpy as np, evenhand as eh, sklearn.linear_model, scipy.linalg\n"
        "rng = np.random.default_rng(0); X = rng.normal(size=(500, 5))\n"
        "a = rng.integers(0, 2, 500)\n"
        "y = X.sum(axis=1) + a; began = time.perf_counter()\n"
        "eh.FairRidge('separation').fit(X, y, sensitive_features=a)\n"
        "first = time.perf_counter(); eh.FairRidge('separation').fit(X, y, sensitive_features=a)\n"
        "print(first - began, time.perf_counter() - first)"
    )
    out = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        for what, goal in (("empty", "<= 10"), ("filled", "<= 0.3")):
            began = time.perf_counter()
            text = subprocess.run(
                [sys.executable, "-c", program], env=environment, check=True, capture_output=True,
                text=True,
            ).stdout  # fmt: skip
            total = time.perf_counter() - began
            first_call, second = map(float, text.split())
            out.append(
                row(
                    "first",
                    f"first fit less the second, {what} cache (seconds)",
                    first_call - second,
                    goal,
                    seconds=first_call,
                    note=f"process {total:.2f} s",
                )
            )
    return out


PARTS = {
    "ridge": ridge, "value": value, "bandwidth": bandwidth, "roofline": roofline, "growth": growing,
    "fairlearn": fairlearn, "first": first,
}  # fmt: skip


def performance(setting: Setting) -> Iterator[Row]:
    """All parts; a quick run has the two that are small."""
    for part, function in PARTS.items():
        if setting.wants(part) and (not setting.quick or part in ("fairlearn", "first")):
            yield from function()


# Algorithm 1 --------------------------------------------------------------------------------------


def published(setting: Setting) -> Iterator[Row]:
    """Seconds, evaluations and objective, ours and the peer's.

    The peer starts at random, as its default. The logistic rows minimize another objective.
    """
    from rivals import algorithm1_jax

    problems = {"communities": load_communities, "law_school": load_law_school}
    for name, load in list(problems.items())[: setting.choose(None, 1)]:
        data = load()
        X, y, groups = standardized(data.X), data.y, data.sensitive
        membership = (groups[:, None] == np.unique(groups)).astype(float)
        for criterion in setting.choose(("separation", "independence", "sufficiency"), CRITERIA):
            for weight in setting.choose((0.3, 1.0, 3.0), (1.0,)):
                ours = {}
                for classifier in ("lspc", "logistic"):
                    model = eh.FairRidge(criterion, weight, ALPHA, classifier=classifier)
                    model.fit(X, y, sensitive_features=groups)  # compile first
                    ours[classifier] = timed(
                        lambda model=model: model.fit(X, y, sensitive_features=groups), 7
                    )
                peer = algorithm1_jax.fit(
                    X, y, membership, criterion=criterion, basis="quadratic",
                    fairness_weight=weight, alpha=ALPHA,
                )  # fmt: skip
                for classifier, (seconds, spread, model) in ours.items():
                    yield {
                        "data": name, "n": len(y), "d": X.shape[1], "criterion": criterion,
                        "fairness_weight": weight, "classifier": classifier, "seconds": seconds,
                        "spread": spread, "evaluations": model.n_evaluations_,
                        "objective": model.objective_, "peer_seconds": peer.fit_time,
                        "peer_compile_seconds": peer.compile_time,
                        "peer_evaluations": peer.evaluations,
                        "peer_objective": peer.objective if classifier == "lspc" else "",
                        "ratio": peer.fit_time / seconds,
                    }  # fmt: skip


# Paths --------------------------------------------------------------------------------------------

POINTS = 20


def synthetic(n: int, d: int = 20) -> tuple[Any, Any, Any]:
    """Two groups that differ in five of the features; a linear target."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, n)
    X = rng.standard_normal((n, d))
    X[:, :5] += 0.6 * a[:, None]
    coef = np.abs(rng.standard_normal(d))
    return X, X @ coef + 2.0 * rng.standard_normal(n), a


def time_path(
    model: eh.FairRidge, X: Any, y: Any, a: Any
) -> tuple[float, dict[float, eh.FairRidge]]:
    """CPU seconds and the models by weight."""
    began = time.process_time()
    fitter = model.path_fitter(X, y, sensitive_features=a)
    models: dict[float, eh.FairRidge] = {}

    def evaluate(weight: float) -> tuple[float, float]:
        fitted = models[weight] = fitter(weight)
        # The ridge part of the objective stands in for 1 − R².
        loss = fitted.objective_ - weight * fitted.unfairness_
        return fitted.unfairness_, 1.0 - loss

    kept = spread_weights(evaluate, POINTS)
    return time.process_time() - began, {weight: models[weight] for weight in kept}


def time_cold(
    criterion: str, weights: Any, X: Any, y: Any, a: Any
) -> tuple[float, list[eh.FairRidge]]:
    """Mean CPU seconds of single fits, and the models."""
    began = time.process_time()
    models = [eh.FairRidge(criterion, w).fit(X, y, sensitive_features=a) for w in weights]
    return (time.process_time() - began) / len(models), models


def compare_path(name: str, criterion: str, X: Any, y: Any, a: Any, repeats: int) -> Row:
    """Time of the path over the mean of cold fits at the same weights, and over a default fit.

    Set-up and search are included. The gaps say how far points of the path, which are solved to a
    looser tolerance, lie from the cold fits.
    """
    model = eh.FairRidge(criterion)
    _, warm = time_path(model, X, y, a)  # compiles, and finds the weights for the cold fits
    weights = [w for w in warm if w > 0]
    ratios, defaults = [], []
    for _ in range(repeats):
        seconds, warm = time_path(model, X, y, a)
        one, singles = time_cold(criterion, weights, X, y, a)
        default, _ = time_cold(criterion, [1.0] * 3, X, y, a)
        ratios.append(seconds / one)
        defaults.append(seconds / default)
    variance = np.var(y)

    def r2(m: eh.FairRidge) -> float:
        return 1.0 - float(np.mean((y - m.predict(X)) ** 2)) / variance

    pairs = [(warm[w], single) for w, single in zip(weights, singles, strict=True)]
    return {
        "data": name, "n": len(y), "d": X.shape[1], "criterion": criterion, "points": len(warm),
        "ratio": float(np.median(ratios)), "ratio_default": float(np.median(defaults)),
        "cold_ms": float(1e3 * one),
        "evaluations_path": sum(m.n_evaluations_ for m in warm.values()),
        "evaluations_cold": float(np.mean([m.n_evaluations_ for m in singles])),
        "r2_gap": float(max(abs(r2(p) - r2(q)) for p, q in pairs)),
        "unfairness_gap": float(max(abs(p.unfairness_ - q.unfairness_) for p, q in pairs)),
    }  # fmt: skip


def paths(setting: Setting) -> Iterator[Row]:
    """CPU seconds, medians of interleaved repeats in one process."""
    problems = {}
    if not setting.quick:
        for name, load in (("communities", load_communities), ("lsac", load_law_school)):
            data = load()
            problems[name] = (data.X, data.y, data.sensitive)
    problems["synthetic"] = synthetic(setting.choose(100_000, 2_000))
    for name, data in problems.items():
        for criterion in CRITERIA:
            yield compare_path(name, criterion, *data, setting.choose(5, 1))


# Convex penalties ---------------------------------------------------------------------------------

N_FEATURES = 10
SIZES = {
    "pairs": [1_000, 2_000, 5_000, 10_000, 20_000],
    "linear": [1_000, 2_000, 5_000, 10_000, 20_000, 100_000, 300_000, 1_000_000],
}


def make_convex(n: int) -> tuple[Any, Any, Any]:
    """Two groups that differ in one feature; a target with a range of about 20 units."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, n)
    X = rng.standard_normal((n, N_FEATURES))
    X[:, 0] += a
    return X, X @ rng.standard_normal(N_FEATURES) + rng.standard_normal(n), a


def convex(setting: Setting) -> Iterator[Row]:
    """Best of three fits, its growth over the upper half of the sizes, and how far both agree."""
    for penalty in ("group", "individual"):
        coefs: dict[int, Any] = {}
        for method in ("pairs", "linear"):
            sizes, rows = setting.choose(SIZES[method], [200, 400]), []
            for n in sizes:
                X, y, a = make_convex(n)
                times = []
                for _ in range(3):
                    model = BerkRegressor(penalty=penalty, method=method)
                    times.append(timed(lambda: model.fit(X, y, sensitive_features=a), 1)[0])
                known = coefs.setdefault(n, model.coef_)
                gap = np.abs(model.coef_ - known).max() / np.abs(known).max()
                rows.append({"penalty": penalty, "method": method, "n": n, "seconds": min(times),
                             "coef_gap": float(gap) if method == "linear" else ""})  # fmt: skip
            half = len(sizes) // 2
            exponent = growth(sizes[half:], [row["seconds"] for row in rows[half:]])
            yield from ({**row, "growth_exponent": exponent} for row in rows)
