"""Compiled passes against their NumPy twins, and for any number of threads."""

import threading

import numpy as np
import numpy_twins as reference
import pytest
from grids import pairwise
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from evenhand._core import threads
from evenhand.data.groups import Groups
from evenhand.estimators._leave_out import leave_out_rows
from evenhand.kernels import make_rows, passes, standardizer, with_score
from evenhand.kernels.basis import get_basis

FINISH = (0.7, 0.1, -0.2)
SIZES = (1, 2, 7, 255, 256, 257, threads.CHUNK + 1)


def draw(n, n_groups, n_variables, soft, weighted, seed=0):
    """Random rows and a random generator to go on with."""
    rng = np.random.default_rng([seed, n, n_groups])
    codes = rng.integers(0, n_groups, n)
    table = rng.dirichlet(np.ones(n_groups), n) if soft else None
    weight = rng.uniform(0.1, 3.0, n) if weighted else None
    groups = Groups(
        tuple(range(n_groups)), None if soft else codes, table, weight, None, n,
    )  # fmt: skip
    groups.__dict__["shares"] = np.full(n_groups, 1 / n_groups)
    s = 3.0 + 2.0 * rng.normal(size=n)
    y = rng.normal(size=n) if n_variables == 2 else None
    return with_score(make_rows(groups, y), s), rng


def close(found, expected, scale=None):
    """To 1e-12 of the size of the sums, which is what a reordered sum can promise."""
    if expected is None:
        assert found is None
        return
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    if scale is None:
        scale = np.abs(expected).max(initial=0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * max(scale, 1e-300))


def check_all(n, n_groups, name, n_variables, soft, weighted, seed=0):
    rows, rng = draw(n, n_groups, n_variables, soft, weighted, seed)
    basis = get_basis(name, n_variables)

    close(
        passes.moments(rows.s, rows.weight)[1:],
        reference.mean_variance(rows.s, rows.weight),
    )
    found, expected = passes.gram(rows, basis), reference.gram(rows, basis)
    for f, e in zip(found, expected, strict=True):
        close(f, e, scale=100 * n)

    weights = 0.4 * rng.normal(size=(n_groups, basis.n_terms))
    for want in (False, True):
        found = passes.lspc_pass(rows, basis, weights, 30.0, want)
        expected = reference.lspc_pass(rows, basis, weights, 30.0, want)
        # 1/softplus may be large, and sums of it cancel.
        _, residual, _ = expected
        close(found[0], expected[0], scale=n)
        close(found[1], residual, scale=np.abs(residual).max(initial=1.0) * n)
        close(found[2], expected[2])

    by_label = rng.normal(size=(n_groups, basis.n_slopes))
    common = rng.normal(size=len(basis.raised))
    start = rng.normal(size=n)
    twins = start.copy(), start.copy()
    passes.lspc_backprop(rows, basis, by_label, common, 0.7, twins[0])
    reference.lspc_backprop(rows, basis, by_label, common, 0.7, twins[1])
    close(*twins)

    free = weights[1:]
    for hessian in (False, True):
        for finish in (None, FINISH):
            found = passes.logistic_pass(rows, basis, free, hessian, finish)
            expected = reference.logistic_pass(rows, basis, free, hessian, finish)
            close(found[0], expected[0], scale=n)
            close(found[1], expected[1], scale=n)
            close(found[2], expected[2], scale=100 * n)
            close(found[3], expected[3])

    f = n_groups - 1
    whole = rng.normal(size=(f * basis.n_terms,) * 2)
    whole = (whole @ whole.T / (100 * f * n)).reshape(f, basis.n_terms, f, basis.n_terms)
    blocks = basis.collapse(np.stack([whole[k, :, o] for k in range(f) for o in range(k + 1)]))
    found = leave_out_rows(rows, basis, free, whole.reshape(2 * (f * basis.n_terms,)))
    expected = reference.logistic_row_losses(rows, basis, free, blocks)
    for f, e in zip(found, expected, strict=True):
        close(f, e, scale=10.0)


def test_no_rows_are_sums_of_zero():
    rows, _ = draw(0, 3, 2, False, True)
    basis = get_basis("quadratic", 2)
    weights = np.ones((3, basis.n_terms))
    assert passes.moments(rows.s, rows.weight) == (0.0, 0.0, 0.0)
    moments, cross = passes.gram(rows, basis)
    assert moments.tolist() == [0.0] * basis.n_moments
    assert cross.tolist() == np.zeros((3, basis.n_terms)).tolist()
    loss, residual, gradient = passes.lspc_pass(rows, basis, weights, 30.0, True)
    assert (loss, residual.any(), gradient.shape) == (0.0, False, (0,))
    loss, score, hessian, gradient = passes.logistic_pass(rows, basis, weights[1:], True, FINISH)
    assert (loss, score.any(), hessian.any(), gradient.shape) == (0.0, False, False, (0,))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_twins_agree_at_every_size(n, n_groups):
    check_all(n, n_groups, "quadratic", 2, False, n_groups == 3)


# Each combination is a compilation of eight kernels.
OPTIONS = pairwise(
    name=["linear", "quadratic", "degree3"], n_variables=[1, 2], n_groups=[2, 3, 5],
    soft=[False, True], weighted=[False, True],
)  # fmt: skip


@OPTIONS
def test_twins_agree_with_every_option(name, n_variables, n_groups, soft, weighted):
    check_all(311, n_groups, name, n_variables, soft, weighted)


@settings(max_examples=15)
@given(
    n=st.integers(1, 2000),
    more=st.integers(0, 3),
    option=st.sampled_from(OPTIONS.args[1]),
    seed=st.integers(0, 10_000),
)
def test_twins_agree_on_random_rows(n, more, option, seed):
    name, n_variables, n_groups, soft, weighted = option
    # Two groups have kernels of their own.
    check_all(n, n_groups + more * (n_groups > 2), name, n_variables, soft, weighted, seed)


def test_more_than_256_groups():
    rows, rng = draw(1200, 300, 1, False, True)
    assert rows.codes.dtype == np.int64
    basis = get_basis("linear", 1)
    for f, e in zip(passes.gram(rows, basis), reference.gram(rows, basis), strict=True):
        close(f, e, scale=1200)
    weights = 0.4 * rng.normal(size=(300, basis.n_terms))
    found = passes.lspc_pass(rows, basis, weights, 30.0, True)
    close(found[2], reference.lspc_pass(rows, basis, weights, 30.0, True)[2])


def test_extreme_scores_stay_finite():
    """A softplus that underflows must not turn into an infinite gradient."""
    rows, _ = draw(500, 2, 1, False, False)
    basis = get_basis("linear", 1)
    weights = np.array([[0.0, 100.0], [1.0, -100.0]])
    loss, residual, gradient = passes.lspc_pass(rows, basis, weights, 30.0, True)
    assert np.isfinite(loss)
    assert np.isfinite(residual).all()
    assert np.isfinite(gradient).all()
    close(loss, reference.lspc_pass(rows, basis, weights, 30.0, False)[0])
    free = np.array([[0.0, 1e6]])
    loss, score, hessian, gradient = passes.logistic_pass(rows, basis, free, True, FINISH)
    for part in (loss, score, hessian, gradient):
        assert np.isfinite(part).all()
    close(loss, reference.logistic_pass(rows, basis, free, False)[0])


def _everything(n_groups):
    rows, rng = draw(100_001, n_groups, 2, False, True)
    basis = get_basis("quadratic", 2)
    weights = 0.4 * rng.normal(size=(n_groups, basis.n_terms))
    start = rng.normal(size=len(rows.s))
    out = [*passes.moments(rows.s, rows.weight), *passes.gram(rows, basis)]
    out += passes.lspc_pass(rows, basis, weights, 30.0, True)
    common = rng.normal(size=len(basis.raised))
    passes.lspc_backprop(rows, basis, basis.slopes(weights), common, 0.7, start)
    out.append(start)
    out += passes.logistic_pass(rows, basis, weights[1:], True, FINISH)
    return out


@pytest.mark.parametrize("n_groups", [2, 3])
def test_results_do_not_depend_on_the_number_of_threads(n_groups, monkeypatch):
    results = []
    for count in ("1", "2", "3"):
        monkeypatch.setenv("EVENHAND_NUM_THREADS", count)
        results.append(_everything(n_groups))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_setting_is_obeyed(monkeypatch):
    used = set()

    def kernel(start, stop, out):
        used.add(threading.current_thread().name)
        barrier.wait(timeout=600)
        out[0] += stop - start

    barrier = threading.Barrier(3)
    monkeypatch.setenv("EVENHAND_NUM_THREADS", "3")
    total = threads.run_chunks(kernel, 6 * threads.CHUNK, 1, ())
    assert total[0] == 6 * threads.CHUNK
    assert len(used) == 3
    barrier = threading.Barrier(1)
    used.clear()
    monkeypatch.setenv("EVENHAND_NUM_THREADS", "1")
    threads.run_chunks(kernel, 6 * threads.CHUNK, 1, ())
    assert used == {threading.current_thread().name}


def test_an_error_in_a_thread_is_raised(monkeypatch):
    def kernel(start, stop, out):
        raise RuntimeError("in a thread")

    monkeypatch.setenv("EVENHAND_NUM_THREADS", "2")
    with pytest.raises(RuntimeError, match="in a thread"):
        threads.run_chunks(kernel, 6 * threads.CHUNK, 1, ())


@pytest.mark.parametrize("value", ["many", "0", "-1", "1.5"])
def test_a_wrong_setting_is_named(value, monkeypatch):
    monkeypatch.setenv("EVENHAND_NUM_THREADS", value)
    with pytest.raises(ValueError, match="`EVENHAND_NUM_THREADS` must be a positive integer, got"):
        threads.n_threads()


def test_threads_default_to_the_cores_allowed(monkeypatch):
    monkeypatch.delenv("EVENHAND_NUM_THREADS", raising=False)
    assert threads.n_threads() >= 1


def test_blas_gets_its_threads_back_whichever_block_ends_last():
    def blas():
        return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}

    first, second = threads.one_blas_thread(), threads.one_blas_thread()
    with threadpool_limits(2, user_api="blas"):
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas() == {1}
        second.__exit__(None, None, None)
        assert blas() == {2}


@pytest.mark.parametrize("n_groups", [2, 3, 7])
@pytest.mark.parametrize("size", [0.3, 40.0, 3000.0])
def test_losses_by_row_are_those_of_the_twin(n_groups, size):
    """Also where scores are so far apart that their exponentials leave the range of floats."""
    rows, rng = draw(700, n_groups, 2, False, True)
    basis = get_basis("quadratic", 2)
    weights = size * rng.normal(size=(n_groups - 1, basis.n_terms))
    found, expected = np.empty(700), np.empty(700)
    ours = passes.logistic_pass(rows, basis, weights, False, FINISH, found)
    theirs = reference.logistic_pass(rows, basis, weights, False, FINISH, expected)
    far = np.abs(weights @ reference.monomials(rows, basis, basis.n_terms)).max()
    assert far < 100 if size < 1 else far > 200
    close(found, expected)
    for ours_part, theirs_part in zip(ours, theirs, strict=True):
        close(ours_part, theirs_part, scale=700 * size if ours_part is not ours[3] else None)


class TestStandardizer:
    def test_mean_and_reciprocal_spread(self):
        x = np.random.default_rng(0).normal(5.0, 2.0, 1000)
        w = np.random.default_rng(1).uniform(size=1000)
        mean, inverse = standardizer(x, w)
        assert mean == pytest.approx(np.average(x, weights=w), rel=1e-12)
        assert inverse == pytest.approx(np.average((x - mean) ** 2, weights=w) ** -0.5, rel=1e-12)

    @pytest.mark.parametrize("value", [0.0, 3.3, -1e20])
    def test_constant_has_reciprocal_zero(self, value):
        mean, inverse = standardizer(np.full(100, value), np.empty(0))
        assert mean == pytest.approx(value, rel=1e-15)
        assert inverse == 0.0

    def test_rounding_noise_is_no_spread(self):
        x = 0.1 + np.random.default_rng(0).choice([0.0, 1.4e-17], 100)
        assert standardizer(x, np.empty(0))[1] == 0.0

    def test_far_offset_keeps_its_digits(self):
        x = np.random.default_rng(0).normal(size=1000)
        inverse = standardizer(x + 2.0**30, np.empty(0))[1]
        assert inverse == pytest.approx(1 / x.std(), rel=1e-6)

    @pytest.mark.parametrize("far", [1e5, 1e12])
    def test_far_first_row_without_weight_does_not_spoil_the_rest(self, far):
        x = np.random.default_rng(0).normal(size=1000)
        w = np.ones(1000)
        w[0], x[0] = 0.0, far
        assert standardizer(x, w)[1] == pytest.approx(1 / x[1:].std(), rel=1e-12)


class TestBoundedScores:
    @pytest.mark.parametrize("size", [1e-6, 1.0, 1e3])
    def test_map(self, size):
        """From scores so small that 1 − e^−2x has lost its digits to those at the bound."""
        s = size * np.random.default_rng(0).standard_normal(20_000) + 0.3 * size
        found = passes.bound_scores(s, 0.25 * size, 1.0, 1.5)
        expected = reference.bound_scores(s, 0.25 * size, 1.0, 1.5)
        np.testing.assert_allclose(found, expected, rtol=2e-12, atol=1e-300)

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("n", [200, 20_000])
    def test_gradient(self, weighted, n):
        rng = np.random.default_rng(0)
        s, gradient = rng.standard_cauchy(n), rng.standard_normal(n)
        weight = rng.exponential(size=n) if weighted else np.empty(0)
        mean, inverse = standardizer(s, weight)
        t = reference.bound_scores(s, mean, inverse, 1.5)
        found, expected = gradient.copy(), gradient.copy()
        rows = draw(1, 2, 1, False, False)[0]._replace(s=t, weight=weight)
        passes.unbound_gradient(rows, s, mean, inverse, 1.5, found)
        reference.unbound_gradient(s, t, weight, mean, inverse, 1.5, expected)
        size = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13 * size)
