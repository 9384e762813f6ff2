import numpy as np
import pytest
from scipy import stats

from distributions._laws import (
    Atoms,
    Gamma,
    Link,
    NormalMixture,
    StudentT,
    ZeroInflated,
    gauss_legendre,
)

POINTS = np.array([-3.0, -0.2, 0.0, 0.4, 2.5, 40.0])


def test_densities_match_scipy():
    mixture = NormalMixture((0.3, 0.7), (-1.0, 2.0), (0.5, 1.5))
    expected = 0.3 * stats.norm(-1, 0.5).pdf(POINTS) + 0.7 * stats.norm(2, 1.5).pdf(POINTS)
    np.testing.assert_allclose(np.exp(mixture.log_density(POINTS)), expected, rtol=1e-10)
    np.testing.assert_allclose(
        StudentT(3.5, 1.0, 2.0).log_density(POINTS), stats.t(3.5, 1, 2).logpdf(POINTS)
    )
    inside = POINTS[POINTS > 0]
    np.testing.assert_allclose(
        Gamma(1.7, 0.6).log_density(inside), stats.gamma(1.7, scale=0.6).logpdf(inside)
    )
    assert np.isneginf(Gamma(1.7, 0.6).log_density(POINTS[POINTS <= 0])).all()


@pytest.mark.parametrize(
    "law",
    [
        NormalMixture((0.3, 0.7), (-1.0, 2.0), (0.5, 1.5)),
        StudentT(3.0, 1.0, 2.0),
        Gamma(1.2, 0.6),
        Gamma(4.0, 2.0),
        ZeroInflated(0.35, Gamma(2.0, 1.0)),
        Atoms.rounded_normal(0.3, 1.1, np.linspace(-2, 2, 20)),
    ],
)
def test_nodes_hold_the_whole_mass_and_samples_follow_it(law):
    u, w = gauss_legendre(law.panels)
    density = np.exp(law.log_density(u)) * w
    atoms = np.exp(law.log_density(law.atoms))
    assert density.sum() + atoms.sum() == pytest.approx(1, abs=1e-8)
    draws = law.sample(np.random.default_rng(0), 40_000)
    at = np.median(draws) + 0.01
    below = density[u <= at].sum() + atoms[law.atoms <= at].sum()
    assert (draws <= at).mean() == pytest.approx(below, abs=0.02)


def test_rounded_normal_is_the_normal_moved_to_the_nearest_value():
    values = np.array([-1.0, 0.0, 2.0])
    law = Atoms.rounded_normal(0.5, 2.0, values)
    cdf = stats.norm(0.5, 2.0).cdf
    expected = [cdf(-0.5), cdf(1.0) - cdf(-0.5), 1 - cdf(1.0)]
    np.testing.assert_allclose(law.masses, expected)
    np.testing.assert_allclose(np.exp(law.log_density(values)), expected)
    assert np.isneginf(law.log_density(np.array([0.1, 5.0]))).all()


@pytest.mark.parametrize("df", [np.inf, 3.0])
def test_link_noise_nodes_integrate_the_noise(df):
    link = Link(0.0, 1.0, 1.0, df=df)
    e, w = link.noise_nodes()
    noise = stats.norm() if np.isinf(df) else stats.t(df)
    assert w @ np.tanh(e - 1) == pytest.approx(noise.expect(lambda x: np.tanh(x - 1)), abs=1e-7)
    assert w @ (e**2 / (1 + e**2)) == pytest.approx(
        noise.expect(lambda x: x**2 / (1 + x**2)), abs=1e-7
    )


def test_link_location_and_scale():
    link = Link(1.0, 2.0, 0.3, bend=0.5, bend_rate=2.0, bend_at=0.1, spread=0.4)
    u = np.array([-1.0, 0.5])
    np.testing.assert_allclose(link.location(u), 1 + 2 * u + 0.5 * np.tanh(2 * (u - 0.1)))
    np.testing.assert_allclose(link.scale(u), np.sqrt(0.09 + 0.16 * u**2))
    rng = np.random.default_rng(0)
    v = link.sample(rng, np.full(20_000, 0.5))
    assert v.mean() == pytest.approx(link.location(u)[1], abs=0.02)
    assert v.std() == pytest.approx(link.scale(u)[1], abs=0.02)
