"""What a test of exact fairness found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TestResult:
    """A test that a criterion holds exactly.

    Attributes
    ----------
    statistic : float
        Quadratic form of the covariances between groups and the smooth test functions; its null
        mean is about `dof`.
    dof : int
        Degrees of freedom.
    p_value : float
        Probability of evidence this strong, of the smooth functions or of the scan, if the
        criterion held exactly; NaN if untestable.
    method : str
        How it was computed, in words, and which of the two decided.
    """

    __test__ = False  # not a test case, whatever pytest thinks of the name

    statistic: float
    dof: int
    p_value: float
    method: str
