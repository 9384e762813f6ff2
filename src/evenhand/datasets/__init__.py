"""Data sets with provenance, and synthetic scores whose unfairness is known exactly."""

from ._bundle import Dataset
from ._fetch import DataFileError
from .communities import load_communities
from .gpa2 import load_gpa2
from .illinois import load_illinois_quotes
from .law_school import load_law_school
from .rough import ROUGH_FAMILIES, RoughScenario, rough_scenario
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
    "ROUGH_FAMILIES",
    "DataFileError",
    "Dataset",
    "Oracle",
    "RoughScenario",
    "Scenario",
    "SyntheticData",
    "Truth",
    "bivariate_normal_scenario",
    "load_communities",
    "load_gpa2",
    "load_illinois_quotes",
    "load_law_school",
    "make_bivariate_normal",
    "null_scenario",
    "random_scenario",
    "rough_scenario",
]
