"""The bases of the adaptive estimator: splines of the scores of cells, in several coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Array
from ..data.criteria import Condition, word_for
from ._cells import Cells, rescore
from ._spline_basis import N_SPLINES, cubic, product_terms, smooth, splines

Index = NDArray[np.intp]

# Most parameters of one fit, over all groups.
_MAX_PARAMETERS = 420
# Rows beyond which products of higher degree and rougher fits are worth their time.
LARGE_ROWS = 1500


@dataclass(frozen=True)
class SplineDesign:
    """Columns of one basis; `roughness` is zero for the terms that are not smoothed."""

    name: str
    columns: Array
    roughness: Array
    degree: Index
    _last: list[tuple[NDArray[np.bool_], Array]] = field(default_factory=list, repr=False)

    def take(self, keep: NDArray[np.bool_]) -> Array:
        """Some of the columns, contiguous; the same ones as last time are not copied again."""
        if keep.all():
            return self.columns
        if not self._last or not np.array_equal(self._last[0][0], keep):
            self._last[:] = [(keep, np.compress(keep, self.columns, axis=1))]
        return self._last[0][1]


def designs(cells: Cells, names: Condition) -> list[Callable[[], SplineDesign]]:
    """The bases for one or two variables, each made when it is called for."""
    words = [word_for(name) for name in names]
    if len(names) == 1:
        (u,), (atom,) = cells.coordinates, cells.atoms
        degree = np.arange(N_SPLINES)
        name = f"splines of {words[0]}"
        return [lambda: _assemble(name, splines(u), cubic(degree), degree, [(atom, None)])]
    s, y = cells.coordinates
    weight = cells.counts.sum(axis=1)

    def build(
        name: str, first: Array, second: Array, beside: tuple[Array, Array], additive: bool = False
    ) -> SplineDesign:
        from ..kernels.splines import products

        terms = product_terms(bool(weight.sum() > LARGE_ROWS))
        if additive:
            alone = (np.minimum(*terms[:2]) == 0) | (terms[2] <= 2)
            terms = tuple(v[alone] for v in terms)
        left, right, degree, roughness = terms
        columns = products(splines(first), splines(second), left, right)
        atoms = [(a, b) for a, b in zip(cells.atoms, beside, strict=True)]
        return _assemble(name, columns, roughness, degree, atoms)

    def axes() -> SplineDesign:
        return build(f"splines of {words[0]} and {words[1]}", s, y, (y, s))

    def sum_of_axes() -> SplineDesign:
        return build(f"splines of {words[0]} plus those of {words[1]}", s, y, (y, s), additive=True)

    def residual_of_first() -> SplineDesign:
        e = rescore(s - smooth(y, s, weight), weight)
        return build(f"splines of {words[1]} and residual {words[0]}", y, e, (y, e))

    def residual_of_second() -> SplineDesign:
        e = rescore(y - smooth(s, y, weight), weight)
        return build(f"splines of {words[0]} and residual {words[1]}", s, e, (e, s))

    if cells.counts.shape[1] > 6:
        return [axes, residual_of_first]
    return [axes, sum_of_axes, residual_of_first, residual_of_second]


def _assemble(
    name: str,
    columns: Array,
    roughness: Array,
    degree: Index,
    atoms: Sequence[tuple[Index, Array | None]],
) -> SplineDesign:
    """Add the terms of point masses: each its own level, and its own slope along the other."""
    extra, rough = [], []
    for atom, beside in atoms:
        count = int(atom.max(initial=-1)) + 1
        lift = 1.0 if count > 3 else 0.01
        ones = np.ones((len(atom), 1))
        smooth = ones if beside is None else splines(beside)[:, : 5 if count <= 3 else 2]
        for j in range(count):
            extra.append((atom == j)[:, None] * smooth)
            rough.append(lift + cubic(np.arange(smooth.shape[1])))
    if extra:
        columns = np.concatenate([columns, *extra], axis=1)
        roughness = np.concatenate([roughness, *rough])
        degree = np.concatenate([degree, np.full(len(roughness) - len(degree), 3)])
    return SplineDesign(name, columns, roughness, degree)


def trim(design: SplineDesign, n_groups: int) -> SplineDesign:
    """Keep the smoothest columns where many groups would make the Newton system large."""
    room = max(3, _MAX_PARAMETERS // (n_groups - 1))
    if len(design.roughness) <= room:
        return design
    order = np.lexsort((design.degree, design.roughness))[:room]
    order.sort()
    columns = np.ascontiguousarray(design.columns[:, order])
    return SplineDesign(design.name, columns, design.roughness[order], design.degree[order])
