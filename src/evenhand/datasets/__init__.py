"""Data sets with provenance, and synthetic scores whose unfairness is known exactly."""

from .synthetic import (
    FAMILIES,
    Oracle,
    Scenario,
    SyntheticData,
    Truth,
    bivariate_normal_scenario,
    make_bivariate_normal,
    null_scenario,
    random_scenario,
)

__all__ = [
    "FAMILIES",
    "Oracle",
    "Scenario",
    "SyntheticData",
    "Truth",
    "bivariate_normal_scenario",
    "make_bivariate_normal",
    "null_scenario",
    "random_scenario",
]
