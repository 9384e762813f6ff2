"""The classifiers inside the loss: refitted in each batch, or kept across batches.

batch    W = argmin over the rows of the batch, from the weights of the batch before
running  H ← (1 − m)·H + m·H_batch,  W ← W + m·H⁻¹·score
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core.arrays import Array
from ..estimators._newton import penalty, solve
from ..kernels.basis import Basis
from .newton import NoDescent, Settled, settle

# Halvings of a running step that makes the batch itself look worse.
_HALVINGS = 5


@dataclass
class Classifier:
    """One classifier of the group, and what it remembers.

    Attributes
    ----------
    sign : float
        Of its L in the information; 0 for one that only serves a normalizer.
    basis : Basis
    kappa : float
    weights : (K − 1, D) array or None
    present : tuple of int
        Groups that the weights are of.
    hessian : array or None
        Per row, of "running".
    count : int
        Batches seen by "running".
    """

    sign: float
    basis: Basis
    kappa: float
    weights: Array | None = None
    present: tuple[int, ...] = ()
    hessian: Array | None = None
    count: int = 0

    def refit(self, passes: Any, batch: Any) -> Settled:
        """The optimum over the batch, from that of the batch before."""
        start = self.weights if self.present == batch.present else None
        if start is None:
            sample = getattr(passes, "sample", lambda: None)()
            if sample is not None:
                start = settle(sample, self.kappa, batch.shares).weights
        found = settle(passes, self.kappa, batch.shares, start)
        self.weights, self.present = found.weights, batch.present
        return found

    def follow(self, passes: Any, batch: Any, momentum: float, learn: bool) -> Settled:
        """A step toward the optimum over the batch, by a share that falls to `momentum`."""
        if self.weights is None:
            found = self.refit(passes, batch)
            if learn:
                self.hessian, self.count = found.curvature.hessian / passes.n_known, 1
            return found
        n, (sums, curvature) = passes.n_known, passes.both(self.weights)
        if learn and self.hessian is not None:
            self.count += 1
            share = max(momentum, 1.0 / self.count)
            self.hessian = (1.0 - share) * self.hessian + share * curvature.hessian / n
            _, slope, form = penalty(self.weights)
            score = sums.score - self.kappa * slope
            step = share * solve(n * self.hessian + self.kappa * form, score)
            before = sums.loss
            for _ in range(_HALVINGS):
                sums = passes.first(self.weights + step)
                if sums.loss <= before:
                    break
                step = 0.5 * step
            if sums.loss <= before:
                self.weights = self.weights + step
            else:
                sums = passes.first(self.weights)
        value = -(sums.loss + 0.5 * self.kappa * penalty(self.weights)[0]) / n
        if not np.isfinite(value):
            raise NoDescent
        return Settled(value, self.weights, sums.chain, curvature)

    def forget(self) -> None:
        """Back to knowing nothing."""
        self.weights, self.present, self.hessian, self.count = None, (), None, 0

    def state(self) -> dict[str, Any]:
        """What `running` keeps, as plain lists for a checkpoint."""
        return {
            "weights": None if self.weights is None else self.weights.tolist(),
            "present": list(self.present),
            "hessian": None if self.hessian is None else self.hessian.tolist(),
            "count": self.count,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take up a state."""
        self.weights, self.hessian = (
            None if state[name] is None else np.array(state[name])
            for name in ("weights", "hessian")
        )
        self.present, self.count = tuple(state["present"]), int(state["count"])
