import numpy as np
import pytest

from distributions import FAMILIES, Scenario, null_scenario, random_scenario
from distributions._laws import Link, NormalMixture
from evenhand.data.criteria import CRITERIA
from evenhand.data.groups import Proxy, resolve_groups

CONDITIONS = [("s",), ("y",), ("s", "y")]
NULLS = [f"null_{name}" for name in CRITERIA]


def draw(name, seed):
    if name.startswith("null_"):
        return null_scenario(name.removeprefix("null_"), seed, share=0.2)
    return random_scenario(name, seed)


def first_grid(name, scenario):
    """Nodes and weights for the first variable that share nothing with the code under test."""
    if name == "rounded":
        values = np.asarray(scenario.laws[0].values)
        return values, np.ones_like(values)
    if name == "student_t":
        x = np.linspace(-9, 9, 1501)
        return np.sinh(x), np.cosh(x) * (x[1] - x[0])
    if name in ("gamma", "zero_inflated"):
        # A power of the step makes u^(shape − 1) smooth at zero.
        x = np.linspace(0, 80 ** (1 / 4), 1501)[1:]
        u, w = x**4, 4 * x**3 * (x[1] - x[0])
        if name == "zero_inflated":
            u, w = np.append(u, 0.0), np.append(w, 1.0)
        return u, w
    u = np.linspace(-14, 14, 1501)
    return u, np.full(len(u), u[1] - u[0])


def brute_force(name, scenario):
    """All entropies from one dense table of the joint density."""
    u, wu = first_grid(name, scenario)
    top = 60.0 if name in ("gamma", "zero_inflated") else 25.0
    if name == "student_t":
        x = np.linspace(-10, 10, 1501)
    else:
        x = np.linspace(-np.arcsinh(top * 2), np.arcsinh(top * 8), 1501)
    v, wv = np.sinh(x) / 2, np.cosh(x) / 2 * (x[1] - x[0])
    table = np.stack(
        [
            p
            * (np.exp(law.log_density(u)) * wu)[:, None]
            * np.exp(link.log_noise((v - link.location(u)[:, None]) / link.scale(u)[:, None]))
            / link.scale(u)[:, None]
            * wv
            for p, law, link in zip(scenario.shares, scenario.laws, scenario.links, strict=True)
        ]
    )
    table /= table.sum()

    def entropy(p):
        total = p.sum(axis=0)
        p, total = np.broadcast_arrays(p, total)
        used = p > 1e-200
        return (p[used] * (np.log(total[used]) - np.log(p[used]))).sum()

    first, second = entropy(table.sum(axis=2)), entropy(table.sum(axis=1))
    y, s = (first, second) if scenario.first == "y" else (second, first)
    return [s, y, entropy(table)]


@pytest.mark.parametrize("name", [*FAMILIES, *NULLS])
def test_truth_agrees_with_a_dense_table(name):
    for seed in (0, 1):
        scenario = draw(name, seed)
        found = [scenario.truth.entropies[z] for z in CONDITIONS]
        np.testing.assert_allclose(found, brute_force(name, scenario), atol=1e-5)


@pytest.mark.parametrize("name", [*FAMILIES, *NULLS])
def test_truth_agrees_with_samples(name):
    n = 100_000
    scenario = draw(name, 11)
    y, s, a = scenario.sample(n, 12)
    assert y.shape == s.shape == a.shape == (n,)
    np.testing.assert_allclose(np.bincount(a) / n, scenario.shares, atol=0.01)
    for z, log_p in scenario.log_posteriors(y, s).items():
        np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1, atol=1e-12)
        loss = -log_p[np.arange(n), a]
        assert loss.mean() == pytest.approx(
            scenario.truth.entropies[z], abs=4 * loss.std() / np.sqrt(n)
        )


@pytest.mark.parametrize("name", [*FAMILIES, *NULLS])
def test_posterior_given_second_variable_is_its_integral(name):
    scenario = draw(name, 2)
    y, s, _ = scenario.sample(200, 3)
    v = s if scenario.first == "y" else y
    u, w = first_grid(name, scenario)
    joint = np.stack(
        [
            np.exp(link.log_noise((v[:, None] - link.location(u)) / link.scale(u)))
            / link.scale(u)
            @ (p * np.exp(law.log_density(u)) * w)
            for p, law, link in zip(scenario.shares, scenario.laws, scenario.links, strict=True)
        ]
    )
    z = ("s",) if scenario.first == "y" else ("y",)
    found = scenario.log_posteriors(y, s, [z])[z]
    np.testing.assert_allclose(np.exp(found), (joint / joint.sum(axis=0)).T, atol=1e-5)


def test_samples_follow_the_order_of_the_variables():
    laws = (NormalMixture((1.0,), (10.0,), (0.1,)),) * 2
    links = (Link(-5.0, 0.0, 0.1),) * 2
    y, s, _ = Scenario((0.5, 0.5), laws, links, first="y").sample(50, 0)
    assert (y > 9).all()
    assert (s < -4).all()
    y, s, _ = Scenario((0.5, 0.5), laws, links, first="s").sample(50, 0)
    assert (s > 9).all()
    assert (y < -4).all()


def test_far_groups_have_finite_truth():
    laws = tuple(NormalMixture((1.0,), (m,), (1.0,)) for m in (0.0, 60.0))
    truth = Scenario((0.5, 0.5), laws, (Link(0.0, 1.0, 0.5),) * 2).truth
    assert truth.independence == pytest.approx(1.0, abs=1e-9)
    assert all(np.isfinite(h) for h in truth.entropies.values())


def test_oracle_is_an_estimator():
    from evenhand.estimators.estimation import EntropyEstimator

    scenario = random_scenario("four_groups", 0)
    y, s, a = scenario.sample(400, 0)
    groups = resolve_groups(a, n_rows=400)
    oracle = scenario.oracle()
    assert isinstance(oracle, EntropyEstimator)
    losses = oracle.row_losses({"s": s, "y": y}, CONDITIONS, groups)
    exact = scenario.log_posteriors(y, s)
    for z in CONDITIONS:
        np.testing.assert_array_equal(losses[z].value, -exact[z][np.arange(400), a])
        assert losses[z].influence is losses[z].value
        assert losses[z].chosen == "true densities"


def test_oracle_reads_labels_not_positions():
    scenario = random_scenario("four_groups", 0)
    _, s, a = scenario.sample(400, 0)
    rows = a != 1
    groups = resolve_groups(a[rows], n_rows=int(rows.sum()))
    assert groups.labels == (0, 2, 3)
    loss = scenario.oracle().row_losses({"s": s[rows]}, [("s",)], groups)["s",].value
    exact = scenario.log_posteriors(None, s[rows], [("s",)])["s",]
    np.testing.assert_array_equal(loss, -exact[np.arange(len(loss)), a[rows]])


def test_oracle_refuses_a_proxy():
    groups = resolve_groups(Proxy(np.full((5, 2), 0.5)), n_rows=5)
    with pytest.raises(ValueError, match="must be given group codes, got a Proxy"):
        random_scenario("gamma", 0).oracle().row_losses({"s": np.zeros(5)}, [("s",)], groups)


LAWS = (NormalMixture((1.0,), (0.0,), (1.0,)),) * 2
LINKS = (Link(0.0, 1.0, 1.0),) * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((0.5, 0.5), LAWS, LINKS[:1]), "one entry per group.* got 2, 2 and 1"),
        (((1.0,), LAWS[:1], LINKS[:1]), "two groups or more"),
        (((0.5, 0.6), LAWS, LINKS), "`shares` must be positive and sum to 1"),
        (((0.5, 0.5), LAWS, LINKS, "a"), "`first` must be 'y' or 's', got 'a'"),
    ],
)
def test_bad_scenarios_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Scenario(*arguments)


def test_log_posteriors_name_what_is_missing():
    scenario = random_scenario("gamma", 0)
    with pytest.raises(ValueError, match=r"`y` must be given for the condition \('s', 'y'\)"):
        scenario.log_posteriors(None, np.zeros(3), [("s", "y")])
    with pytest.raises(ValueError, match=r"`conditions` must hold .* got \('y', 's'\)"):
        scenario.log_posteriors(np.zeros(3), np.zeros(3), [("y", "s")])
