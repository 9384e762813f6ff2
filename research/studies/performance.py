"""Fits and single evaluations against their floors and peers; rows of docs/performance.md.

Each study is one function and one group of rows in results/performance.csv; `--only` runs some.

    python research/run.py performance
    [--only ridge value bandwidth roofline growth fairlearn first]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tracemalloc
from statistics import median

import numpy as np

import evenhand as eh
from common import RESULTS, growth, timed, write


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
    print(f"{study:10s} {what:60s} {value:10.3g}   goal {goal}", flush=True)
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

    from evenhand.data.groups import resolve_groups
    from evenhand.kernels import blocks, make_rows, pairs, with_score
    from evenhand.kernels.basis import get_basis
    from evenhand.kernels.compiled import _columns_or_none, _zeros
    from evenhand.kernels.threads import CHUNK

    n = 2 * 10**6 // CHUNK * CHUNK
    _, y, a = make(n, 2)
    s = y + np.random.default_rng(1).standard_normal(n)
    rows = with_score(make_rows(resolve_groups(a, n_rows=n), y), s)
    basis = get_basis("quadratic", 2)
    d, m, low = (_zeros(k) for k in (basis.n_terms, basis.n_moments, basis.n_slopes))
    weights = 0.1 * np.random.default_rng(2).normal(size=(2, len(d)))
    weights[:, 0] += 0.5
    columns, slopes, gradient = _columns_or_none(rows), basis.slopes(weights), np.empty(n)
    common, out, none = np.ones(len(basis.raised)), np.zeros(64), np.zeros(3)
    passes = {
        "mean and spread of the scores": (
            blocks.moments_chunk, (s, None, 0.0), (out,), 8),
        "LSPC, moments": (pairs.gram_chunk, (*columns, d, m), (out,), 17),
        "LSPC, loss and gradient": (
            pairs.lspc_chunk, (*columns, weights, slopes, 30.0, d, low), (out, gradient), 25),
        "LSPC, through the solution": (
            pairs.backprop_chunk,
            (*columns, slopes[1], common, 1.0, low, _zeros(len(common))), (gradient,), 33),
        "logistic, loss and Hessian": (
            pairs.logistic_chunk, (*columns, weights, slopes, none, d, m, low), (out, None), 17),
        "logistic, loss and gradient": (
            pairs.logistic_chunk, (*columns, weights, slopes, none, d, (), low), (out, gradient), 25
        ),
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
    rows.append(row("memory", "extra memory at n=1e7, d=20 (vectors of length n)", vectors, "<= 8"))
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


STUDIES = {
    "ridge": ridge, "value": value, "bandwidth": bandwidth, "roofline": roofline, "growth": growing,
    "fairlearn": fairlearn, "first": first,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    chosen = parser.parse_args().only
    rows = _earlier(chosen)
    for name in chosen:
        rows += STUDIES[name]()
    print(write("performance", rows, ["jax"]))


def _earlier(chosen: list[str]) -> list[dict]:
    """Rows of studies that are not run again."""
    import csv

    path = RESULTS / "performance.csv"
    if not path.exists() or set(chosen) == set(STUDIES):
        return []
    redone = {*chosen, *(["memory"] if "growth" in chosen else [])}
    with path.open() as file:
        kept = [r for r in csv.DictReader(file) if r["study"] not in redone]
    return [{k: v for k, v in r.items() if k != "setting"} for r in kept]


if __name__ == "__main__":
    main()
