"""What an estimator of information gives back: one entropy contribution per row.

Every estimator, classifier or not, answers the same question: for each condition Z asked for,
per-row terms whose weighted mean is H(A|Z). Means give the entropies, their covariance the
standard errors, so nothing else needs to know how an estimate was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .._core.validation import InputError
from ..data.criteria import Condition
from ..data.groups import Groups


@dataclass(frozen=True)
class RowLosses:
    """Per-row terms of one conditional entropy, over the m rows with a known group.

    Attributes
    ----------
    value : (m,) array
        Terms whose weighted mean is the estimate of H(A|Z) in nats.
    influence : (m,) array
        Terms whose spread gives its sampling error; often the same array.
    chosen : str
        What was used, in words ("quadratic logistic, 6 terms"), for the result to show.
    terms : float
        Effective number of fitted parameters, whose noise adds terms/(2n²) to the variance; 0
        where that does not apply.
    between : float
        Variance, in nats², of the estimates by the different bases that this one averages, and of a
        correction for what none of them resolves; 0 where there is one basis and no correction.
    merged : int
        Rows taken for copies of others.
    left_out : float
        Leaving one of n equal rows out has raised the estimate by left_out/(2n): what matters
        where a row stands for several people, of whom only one should have been left out.
    """

    value: NDArray[np.float64]
    influence: NDArray[np.float64]
    chosen: str
    terms: float = 0.0
    between: float = 0.0
    merged: int = 0
    left_out: float = 0.0


def largest_loss(groups: Groups) -> float:
    """log(n_eff / smallest share): the loss of the rarest group by the shares at odds of 1 : n_eff.

    One row (or cluster) far from all others, or heavier than all, decides its own prediction, and
    without it the prediction there can be certain and wrong. A classifier that mixes in the shares
    at that rate never loses more.
    """
    least = groups.shares[groups.shares > 0].min()
    return float(np.log(max(groups.n_effective, 1.0)) - np.log(least))


def refuse_many_variables(conditions: Iterable[Condition], estimator: str) -> None:
    """Refuse more than two variables at once, where an estimator has no way with them."""
    for condition in conditions:
        if len(condition) > 2:
            raise InputError(
                "estimator", "be 'fourier' or one of your own for a criterion of more than two "
                f"variables ({', '.join(condition)}), got {estimator!r}",
            )  # fmt: skip


@runtime_checkable
class EntropyEstimator(Protocol):
    """The seam between measures and estimators."""

    def row_losses(
        self, variables: Mapping[str, NDArray[np.float64]], conditions: Sequence[Condition],
        groups: Groups,
    ) -> dict[Condition, RowLosses]:  # fmt: skip
        """Estimate H(A|Z) for every condition asked for.

        Parameters
        ----------
        variables : mapping
            By name, such as ``"s"`` and ``"y"``: finite (m,) float64 arrays, known rows only, in
            the user's units.
        conditions : sequence of tuples
            Each a tuple of names: ``("s",)``, ``("y",)``, ``("s", "y")`` or others.
        groups : Groups
            Codes or probabilities and weights of the same m rows.
        """
        ...
