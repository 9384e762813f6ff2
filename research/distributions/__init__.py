"""Joint distributions of target, score and group whose information is known exactly."""

from .rough import ROUGH_FAMILIES, RoughScenario, rough_scenario
from .smooth import (
    FAMILIES,
    Oracle,
    Scenario,
    Truth,
    bivariate_normal_scenario,
    null_scenario,
    random_scenario,
)

__all__ = [
    "FAMILIES",
    "ROUGH_FAMILIES",
    "Oracle",
    "RoughScenario",
    "Scenario",
    "Truth",
    "bivariate_normal_scenario",
    "null_scenario",
    "random_scenario",
    "rough_scenario",
]
