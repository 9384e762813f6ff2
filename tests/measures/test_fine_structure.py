"""The scan for fine structure: closed forms, families no smooth function sees, degenerate input."""

import numpy as np
import pytest
from exact import exact_fairness_p_value
from scipy.special import expit

from evenhand.data.groups import resolve_groups
from evenhand.estimators.ranks import Ranks
from evenhand.kernels.contrasts import scan_levels
from evenhand.measures import covariances as _fine_structure
from evenhand.measures import exact_tests as significance
from evenhand.measures.covariances import Members, level_rank, scan_p_value

BOTH = ("separation", "sufficiency")


def run(criterion, s, y, a, **options):
    groups = resolve_groups(a, n_rows=len(a), **options)
    return exact_fairness_p_value(criterion, {"s": s, "y": y}, groups)


def flip(rng, odd, high=0.9, low=0.1):
    return (rng.random(len(odd)) < np.where(odd, high, low)).astype(int)


def small_grid(seed, n=300, n_cells=12, depth=4):
    rng = np.random.default_rng(seed)
    cell = np.sort(rng.integers(n_cells, size=n)).astype(np.int32)
    bins = rng.integers(2**depth, size=n)
    a = (rng.random(n) < 0.4).astype(float)
    order = np.lexsort([bins, cell])
    return cell[order], bins[order], a[order]


def by_loop(cell, bins, a, block, depth, j, k, height):
    """Σ D²/V and Σ κ₄/V² of one level, one rectangle at a time."""
    q = count = extra = 0.0
    for b in range(2**k):
        for parent in range(2 ** (j - 1)):
            inside = (block[cell] >> (height - k) == b) & (bins >> (depth - j + 1) == parent)
            left = inside & ((bins >> (depth - j)) % 2 == 0)
            if not left.any() or (inside == left).all():
                continue
            h = left - inside * (left.sum() / inside.sum())
            d = v = fourth = 0.0
            for c in np.unique(cell):
                rows = cell == c
                spread = np.var(a[rows])
                d += np.sum((a[rows] - a[rows].mean()) * h[rows])
                v += spread * rows.sum() * np.var(h[rows], ddof=1)
                scale = rows.sum() / (rows.sum() - 1)
                fourth += scale * spread * (1 - 6 * spread) * np.sum(h[rows] ** 4)
            if v >= 1:
                q, count, extra = q + d**2 / v, count + 1, extra + fourth / v**2
    return q, count, extra


def test_contrasts_have_the_variance_of_permutations():
    depth, height, n_cells = 4, 2, 12
    cell, bins, a = small_grid(0, n_cells=n_cells, depth=depth)
    size = np.bincount(cell).astype(float)
    share = np.bincount(cell, a) / size
    block = (np.arange(n_cells) * 4 // n_cells).astype(np.int64)
    spread = share * (1 - share) * size / (size - 1)
    fourth = spread * (1 - 6 * share * (1 - share))
    # Two groups at once, each the mirror image of the other.
    soft, shares = np.column_stack([a, 1.0 - a]), np.column_stack([share, 1.0 - share])
    moments = np.stack([shares, *(np.column_stack([v, v]) for v in (spread, fourth))])
    rows = cell, bins
    grid = moments, block, depth, height
    found, mirrored = scan_levels(*rows, soft, *grid, np.full(2, 1e9), 1.0)
    np.testing.assert_allclose(mirrored, found, rtol=1e-10)
    for j in range(1, depth + 1):
        for k in range(height + 1):
            expected = by_loop(cell, bins, a, block, depth, j, k, height)
            np.testing.assert_allclose(found[j - 1, k, :3], expected, rtol=1e-10)
    # Levels of more rectangles than allowed are left out, and no others.
    codes = 1 - a.astype(np.intp)
    few, many = scan_levels(*rows, codes, *grid, np.array([4.0, 1e9]), 1.0)
    allowed = np.array([[2 ** (j + k) <= 4 for k in range(3)] for j in range(4)])
    np.testing.assert_allclose(few[allowed], found[allowed], rtol=1e-12)
    assert not few[~allowed].any()
    np.testing.assert_allclose(many, found, rtol=1e-12)


def test_codes_and_certain_probabilities_agree(monkeypatch):
    rng = np.random.default_rng(1)
    n = 3000
    x, a = rng.random(n), rng.integers(3, size=n)
    x = np.where(rng.random(n) < 0.1, (x + 0.1 * a) / 1.2, x)
    cell = np.sort(rng.integers(100, size=n)).astype(np.int32)
    members = Members(a.astype(np.intp), None, 3)
    at_once = scan_p_value([x], cell, members)
    assert 1e-12 < at_once < 0.5
    monkeypatch.setattr(_fine_structure, "GROUPS_AT_A_TIME", 2)
    assert scan_p_value([x], cell, members) == pytest.approx(at_once, rel=1e-9)
    certain = Members(None, np.eye(3)[a][:, :2], 3)
    assert scan_p_value([x], cell, certain) == pytest.approx(at_once, rel=0.3)
    order = np.random.default_rng(2).permutation(n)
    shuffled = Members(a[order].astype(np.intp), None, 3)
    assert scan_p_value([x[order]], cell[order], shuffled) == pytest.approx(at_once, rel=1e-9)


def rough(kind, rng, n):
    s, y = rng.normal(size=(2, n))
    if kind == "sign":
        return s, y, flip(rng, s * y > 0)
    if kind.startswith("checkerboard"):
        k, (s, y) = int(kind[-1]), rng.random((2, n))
        return s, y, flip(rng, (np.floor(k * s) + np.floor(k * y)) % 2 == 0)
    if kind == "ring":
        return s, y, flip(rng, np.abs(np.hypot(s, y) - 1.15) < 0.35)
    if kind == "band":
        s, y = 2.26 * s, 2.26 * y
        return s, y, flip(rng, np.abs(s - y) < 0.2)
    if kind == "periods":
        y, a = rng.random(n), rng.integers(2, size=n)
        return y + 0.5 * np.sin(30 * np.pi * y) * (2 * a - 1) + 0.3 * rng.normal(size=n), y, a
    if kind == "parity":
        s, y = rng.integers(10, size=(2, n)).astype(float)
        return s, y, flip(rng, (s + y) % 2 == 0)
    assert kind == "close"
    return y + 1e-7 * s, y, flip(rng, s > 0)


KINDS = ("sign", "checkerboard 3", "checkerboard 6", "ring", "band", "periods", "parity", "close")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("criterion", BOTH)
def test_power_against_rough_dependence(criterion, kind):
    for seed in range(5):
        s, y, a = rough(kind, np.random.default_rng([3, seed]), 2000)
        result = run(criterion, s, y, a)
        assert result.p_value < 1e-6
        if kind != "close":
            assert result.method.endswith("; with a scan, decided by fine structure")
        # Independence holds in all but one of these, nearly.
        assert run("independence", s, y, a).p_value > 1e-6 or kind in ("ring", "checkerboard 3")


@pytest.mark.parametrize("criterion", ["independence", "separation"])
def test_every_tenth_value(criterion):
    rng = np.random.default_rng(0)
    y = rng.normal(size=2000)
    s = np.round(50 + 15 * (y + rng.normal(size=2000)))
    a = flip(rng, s % 10 == 0)
    assert run(criterion, s, y, a).p_value < 1e-6
    assert run("sufficiency", s, y, a).p_value > 0.01


def test_smooth_shifts_decide_where_they_are_what_there_is():
    rng = np.random.default_rng(0)
    a = rng.integers(2, size=1000)
    result = run("independence", rng.normal(size=1000) + 0.3 * a, None, a)
    assert result.p_value < 1e-3
    assert result.method.endswith("; with a scan, decided by smooth shifts and spreads")


def test_the_scan_by_itself_keeps_its_level():
    count = 0
    for seed in range(300):
        rng = np.random.default_rng([8, seed])
        z = np.sort(rng.normal(size=600))
        a = (rng.random(600) < expit(2 * z)).astype(np.intp)
        cell, _ = Ranks(z).cells()
        count += scan_p_value([rng.random(600)], cell, Members(a, None, 2)) < 0.05
    assert 1 <= count <= 27  # Binomial(300, 0.05) exceeds 27 once in two thousand times


@pytest.mark.parametrize("criterion", BOTH)
def test_a_steep_condition_is_not_taken_for_structure(criterion):
    # The tested variable as it is follows the condition closely; only its rank given it is used.
    low = 0
    for seed in range(60):
        rng = np.random.default_rng([9, seed])
        z = rng.normal(size=800)
        t = z + 0.02 * rng.normal(size=800)
        a = (rng.random(800) < expit(4 * z)).astype(int)
        s, y = (z, t) if criterion == "sufficiency" else (t, z)
        low += run(criterion, s, y, a).p_value < 0.05
    assert low <= 10


def test_a_variable_that_follows_the_condition_is_not_level():
    rng = np.random.default_rng(0)
    given = Ranks(rng.normal(size=500))
    cell, n_cells = given.cells()
    noise = Ranks(rng.normal(size=500))
    arguments = (given.normal, cell, n_cells, False)
    level = level_rank(noise, *arguments)
    used = ~np.isnan(level)
    assert used.mean() > 0.5
    np.testing.assert_array_equal(level[used], noise.rank[used])
    assert level_rank(given, *arguments) is None
    assert level_rank(given, given.normal, cell, n_cells, True) is given.rank
    assert level_rank(Ranks(np.ones(500)), *arguments) is None


def test_many_rows_are_sampled_and_the_sample_is_the_same_each_time(monkeypatch):
    s, y, a = rough("checkerboard 4", np.random.default_rng(0), 12_000)
    whole = run("separation", s, y, a)
    monkeypatch.setattr(_fine_structure, "MAX_ROWS", 3000)
    part = run("separation", s, y, a)
    assert part == run("separation", s, y, a)
    assert whole.p_value < part.p_value < 1e-20


def test_rounding_is_no_structure():
    rng = np.random.default_rng(0)
    y = rng.normal(size=500)
    a = rng.integers(2, size=500)
    s = (y * 3.0) / 3.0
    assert (s != y).any()
    result = run("separation", s, y, a)
    assert (result.p_value, result.method) == (1.0, "holds: s is a function of y")
    huge = np.where(y > 1, 1e308, -1e308) * rng.random(500)
    assert 0 < run("separation", huge, -huge + y, a).p_value <= 1


def test_two_rows_a_bin_are_nothing_to_scan():
    members = Members(np.array([0, 1, 1, 1], dtype=np.intp), None, 2)
    assert np.isnan(scan_p_value([np.arange(4) / 4], np.zeros(4, dtype=np.int32), members))
    p, words = significance._combine(0.2, float("nan"))
    assert (p, words) == (0.2, "; smooth shifts and spreads only")
    p, words = significance._combine(0.2, 1e-5)
    assert p == pytest.approx(1e-5 / significance.FINE_SHARE, rel=1e-3)
    assert words == "; with a scan, decided by fine structure"
    # The scan has no say where it has seen nothing.
    p, words = significance._combine(0.8, 0.02)
    assert p == pytest.approx(0.8, abs=0.02)
    assert words == "; with a scan, decided by smooth shifts and spreads"
    assert significance._combine(1.0, 1.0)[0] == pytest.approx(1.0)
