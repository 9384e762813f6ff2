"""z → φ(z) and dφ/ds: the polynomial bases of the classifiers.

linear     φ(z) = [1, z₁, …, z_p]
quadratic  φ(z) = [1, z₁, …, z_p, all products zᵢzⱼ with i ≤ j]
degree3    the same with all products of three

Terms are monomials in graded order, so the linear basis is a prefix of the quadratic one, and
products of two terms are again monomials: ΦᵀΩΦ is a table of few distinct moments
(15 instead of 36 for the quadratic basis of two variables).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement
from math import comb
from operator import add

import numpy as np
from numpy.typing import NDArray

# Name → degree. One of your own is one more entry.
DEGREES = {"linear": 1, "quadratic": 2, "degree3": 3}


@dataclass(frozen=True)
class Basis:
    """Monomials up to `degree` of `n_variables` variables; the first variable is s."""

    degree: int
    n_variables: int

    @cached_property
    def _monomials(self) -> list[tuple[int, ...]]:
        """Exponents of all monomials up to twice the degree, in graded order."""
        variables = range(self.n_variables)
        return [tuple(picks.count(v) for v in variables) for picks in self._picks(2 * self.degree)]

    @cached_property
    def _index(self) -> dict[tuple[int, ...], int]:
        """Monomial → its number."""
        return {exponents: j for j, exponents in enumerate(self._monomials)}

    def _picks(self, degree: int) -> Iterator[tuple[int, ...]]:
        """The variables that each monomial multiplies, in graded order."""
        for total in range(degree + 1):
            yield from combinations_with_replacement(range(self.n_variables), total)

    def _count(self, degree: int) -> int:
        return comb(self.n_variables + degree, degree)

    @cached_property
    def n_terms(self) -> int:
        """D, the length of φ."""
        return self._count(self.degree)

    @cached_property
    def n_slopes(self) -> int:
        """Number of monomials in dφ/ds: those of one degree less."""
        return self._count(self.degree - 1)

    @cached_property
    def n_moments(self) -> int:
        """Number of distinct products φⱼφₗ."""
        return self._count(2 * self.degree)

    @cached_property
    def products(self) -> NDArray[np.intp]:
        """(D, D): the number of the monomial φⱼφₗ."""
        terms, index = self._monomials[: self.n_terms], self._index
        return np.array([[index[tuple(map(add, a, b))] for b in terms] for a in terms], np.intp)

    @cached_property
    def raised(self) -> NDArray[np.intp]:
        """The number of the monomial s·m for each monomial m below the highest degree."""
        lower = [e for e in self._monomials if sum(e) < 2 * self.degree]
        return np.array([self._index[(e[0] + 1, *e[1:])] for e in lower], dtype=np.intp)

    def totals(
        self, coefficients: NDArray[np.float64], sums: NDArray[np.float64]
    ) -> tuple[float, float]:
        """Σᵢ p(zᵢ) and Σᵢ sᵢ·p(zᵢ) of polynomials, from the sums Σᵢ m(zᵢ) over the same rows.

        Both are summed over leading axes, which may stand for groups.
        """
        length = coefficients.shape[-1]
        plain = float((coefficients * sums[..., :length]).sum())
        return plain, float((coefficients * sums[..., self.raised[:length]]).sum())

    @cached_property
    def factors(self) -> NDArray[np.intp]:
        """(M, 2): each monomial of degree two or more as the product of two earlier ones."""
        out = np.zeros((self.n_moments, 2), dtype=np.intp)
        for j, exponents in enumerate(self._monomials):
            if sum(exponents) >= 2:
                v = next(v for v, e in enumerate(exponents) if e)
                rest = tuple(e - int(u == v) for u, e in enumerate(exponents))
                out[j] = 1 + v, self._index[rest]  # after the 1 come the variables
        return out

    def __call__(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Φ, (n, D), from z, (n, p)."""
        # Not from `factors`, which lists far more than the terms.
        return np.stack([z[:, picks].prod(axis=1) for picks in self._picks(self.degree)], axis=1)

    def slopes(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coefficients of the derivative in s of polynomials given by theirs.

        (K, L) → (K, L'): L counts monomials up to some degree, L' those of one degree less; for
        L = D that is d(φ·w)/ds over the `n_slopes` leading monomials.
        """
        return weights @ self._slope_table(weights.shape[1])

    @lru_cache  # noqa: B019  (bases are few and live as long as the program)
    def _slope_table(self, length: int) -> NDArray[np.float64]:
        used = self._monomials[:length]
        out = np.zeros((length, sum(sum(e) < sum(used[-1]) for e in used)))
        for j, exponents in enumerate(used):
            if exponents[0]:
                lower = (exponents[0] - 1, *exponents[1:])
                out[j, self._index[lower]] = exponents[0]
        return out

    def gram(self, moments: NDArray[np.float64]) -> NDArray[np.float64]:
        """ΦᵀΩΦ, (…, D, D), from the moments Σω·monomial, (…, M)."""
        return moments[..., self.products]

    def collapse(self, form: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coefficients c with φᵀ·form·φ = c·monomials: (…, D, D) → (…, M)."""
        return form.reshape(*form.shape[:-2], -1) @ self._collapse_table

    @cached_property
    def _collapse_table(self) -> NDArray[np.float64]:
        return (self.products.ravel()[:, None] == np.arange(self.n_moments)).astype(float)


def get_basis(name: str, n_variables: int) -> Basis:
    """Look a basis up by name."""
    if not isinstance(name, str) or name not in DEGREES:
        raise ValueError(f"`basis` must be one of {', '.join(DEGREES)}, got {name!r}.")
    return _basis(DEGREES[name], n_variables)


@lru_cache
def _basis(degree: int, n_variables: int) -> Basis:
    return Basis(degree, n_variables)
