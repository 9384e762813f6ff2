"""The diagonal bound of the curvature over many rows, without a factor of n × r numbers.

    d(s, y, a) = ω·‖B(s, y, a)‖·λmax(Σ_j B_jB_jᵀ/‖B_j‖)

A row of B depends on its score, its target and its group alone, up to its weight. Some rows give
the sums, a table over bins of score and target gives the norms, and each row looks its own up: two
passes over the rows instead of a hundred.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core import shards
from .._core.arrays import Array
from ..estimators.logistic import every, every_from
from ..estimators.spline_term import TARGET_MIDDLES, SplineTerm
from ..kernels import Rows
from .bound import BoundRegularizer, Scores
from .curvature import diagonal_bound, own_parts, taken_by_moments, weights_root

# Rows from which a table pays, and rows that give the sums.
LEAST_ROWS, SAMPLE_ROWS = 50_000, 20_000
# Bins of score and target, and with many groups.
BINS, FEWER_BINS, MANY_GROUPS = (128, 24), (64, 8), 8
# Scores beyond so many spreads share the bin at the end.
REACH = 5.0
# Rows that are looked up at a time, in the cache.
ROW_BLOCK = 16_384


class RowBound:
    """Ĩ, its gradient, and d of :func:`diagonal_bound`, evaluation after evaluation.

    Parameters
    ----------
    bound : BoundRegularizer
        From `FairnessRegularizer.bind`.
    least_rows : int
        Known rows from which d comes from a table; it is then right to the width of a bin and to
        what a sample of rows knows of a sum over all.
    refresh : int
        Evaluations that one look at the table serves; in between d follows the spread of the
        scores, as 1/Var(s).
    """

    def __init__(self, bound: Any, least_rows: int = LEAST_ROWS, refresh: int = 1) -> None:
        self._bound, self._refresh = bound, refresh
        self.forget()
        # Probabilities of groups, rows that stand for several people, scores in their own units and
        # functions of score and target have no table.
        self._tabulated = (
            isinstance(bound, BoundRegularizer)
            and bound.scale_free
            and bound.groups.codes is not None
            and bound.groups.n_total >= least_rows
        )
        if not self._tabulated:
            return
        rows = bound.joint_rows
        n_scores, n_targets = BINS if rows.n_groups <= MANY_GROUPS else FEWER_BINS
        self._place = rows.codes.astype(np.int32)
        self._targets = np.zeros(0)
        if len(bound.criterion.joint) > 1 and isinstance(bound.joint_term, SplineTerm):
            self._targets = TARGET_MIDDLES
            self._place += rows.n_groups * bound.joint_term.cell_of(rows).astype(np.int32)
        elif len(bound.criterion.joint) > 1:
            stride = max(bound.groups.n_total // SAMPLE_ROWS, 1)
            some = rows.y[-shards.first_row(len(rows.y)) % stride :: stride]
            some = np.concatenate(shards.gather_objects(some))
            cuts = np.quantile(some, np.arange(1, 2 * n_targets) / (2 * n_targets))
            self._targets = cuts[::2]
            self._place += rows.n_groups * np.searchsorted(cuts[1::2], rows.y).astype(np.int32)
        self._cells = rows.n_groups * max(len(self._targets), 1)
        self._z = REACH * ((2.0 * np.arange(n_scores) + 1.0) / n_scores - 1.0)

    def forget(self) -> None:
        """Look again next time: the scores will be others."""
        self._age, self._kept, self._inverse = 0, np.zeros(0, dtype=np.float32), 0.0

    def evaluate(
        self, s: Array, scale: float = 1.0, rough: bool = False
    ) -> tuple[float, Array, NDArray[Any]]:
        """scale·Ĩ, its gradient and scale·d, for scores that are known to be finite float64.

        From a table, d is in float32.
        """
        bound = self._bound
        if not self._tabulated:
            value, gradient, factor = bound.value_grad_curvature(s)
            return scale * value, scale * gradient, scale * diagonal_bound(factor)
        scores = bound.read(s)
        value, gradient = bound.evaluate_read(s, scores, scale, rough)
        if scores.constant:
            return value, gradient, np.zeros(len(s))
        inverse = scores.center[1]
        if self._age % self._refresh == 0:
            self._kept, self._inverse = bound.groups.put_known(self._look_up(scores)), inverse
        self._age += 1
        return value, gradient, self._kept * np.float32(scale * (inverse / self._inverse) ** 2)

    def _look_up(self, scores: Scores) -> NDArray[np.float32]:
        table = self._table(scores).astype(np.float32)
        mean, inverse = scores.center
        n_scores, out = len(self._z), np.empty(len(scores.known), dtype=np.float32)
        ratio = n_scores / (2.0 * REACH)
        for start in range(0, len(out), ROW_BLOCK):
            block = slice(start, start + ROW_BLOCK)
            at = (scores.known[block] - mean) * (inverse * ratio)
            at += REACH * ratio
            np.clip(at, 0, n_scores - 1, out=at)
            place = at.astype(np.int32)
            place *= self._cells
            place += self._place[block]
            np.take(table, place, out=out[block], mode="clip")
        weight = self._bound.groups.weight
        return out if weight is None else out * weight.astype(np.float32)

    def _table(self, scores: Scores) -> Array:
        """d of a row of weight 1 in each bin of the score, of the target, and group: flat."""
        bound = self._bound
        term, rows = bound.joint_term, scores.rows[bound.criterion.joint]
        mean, inverse = scores.center
        n, stride = rows.n, max(rows.n // SAMPLE_ROWS, 1)
        some = every(rows, stride)
        share = some.n / n
        z = (scores.known[every_from(rows, stride) :: stride] - mean) * inverse
        root = share * weights_root(term, some, inverse, share)
        own, plain, along = own_parts(term, some, z, scores.slope(some.s), root)
        own -= taken_by_moments(some.weight, z, plain, along)
        norms = np.linalg.norm(own, axis=1)
        keep = norms > 0
        own = own[keep] / np.sqrt(norms[keep, None])
        size = float(np.linalg.eigvalsh(shards.add(own.T @ own))[-1]) / share
        at = self._cell_rows(rows, scores)
        z = np.repeat(self._z, self._cells)
        own, _, _ = own_parts(term, at, z, scores.slope(at.s), root)
        own -= taken_by_moments(at.weight, z, plain, along)
        return size / bound.normalizer * np.linalg.norm(own, axis=1)

    def _cell_rows(self, rows: Rows, scores: Scores) -> Rows:
        n_scores, n_groups = len(self._z), rows.n_groups
        n_targets = max(len(self._targets), 1)
        seen = scores.seen(self._z)
        y = np.tile(np.repeat(self._targets, n_groups), n_scores)
        codes = np.tile(np.arange(n_groups), n_scores * n_targets).astype(rows.codes.dtype)
        return rows._replace(
            s=np.repeat(seen, self._cells), y=y, codes=codes, weight=rows.weight[:0], whole=0
        )
