"""What 10,391 older Americans spend on prescription drugs."""

from __future__ import annotations

import numpy as np

from evenhand.datasets import Dataset

from . import _fetch
from ._tables import make, read_text, to_numbers

_FILE = _fetch.DataFile(
    name="meps.csv.bz2",
    sha256="fab43451a7b9e1924a6eabcbd8b78850773f46e23ad167180dd76af862e70c78",
    n_bytes=1_402_672,
    url=None,
    source="the Python package `linearmodels`, data set meps.",
    package=("linearmodels", "linearmodels/datasets/meps/meps.csv.bz2"),
    install="pip install linearmodels",
)

_FEATURES = (
    "age", "age2", "educyr", "income", "ssiratio", "poverty", "lowincome", "midincome", "private",
    "hi_empunion", "firmsz", "multlc", "marry", "msa", "vegood", "good", "fair", "poor",
    "priolist", "totchr",
)  # fmt: skip

_DESCRIPTION = """\
Log of the yearly spending on prescription drugs of 10,391 Americans of 65 and older, from age,
income, insurance, and health. Groups: female 6,024, male 4,367; or other 8,621, black 1,036,
hispanic 734 (26 people who are both count as black). Left out: `drugexp`, of which the target is
the logarithm; `linc`, missing for the 302 people without a positive income; `blhisp`, `vgh` and
`fph`, made from other columns. Traps: only people who spent anything are in the file, so that the
model is one of spending given any; age is cut at 91; `income` is in thousands and can be
negative, and `ssiratio` with it."""

_PROVENANCE = f"""\
Data set `meps` of the Python package `linearmodels` (license NCSA; none of the data is stated),
from the Medical Expenditure Panel Survey. SHA-256 of the unpacked file {_FILE.sha256}."""

_CITATION = (
    "Cameron, A. C. and Trivedi, P. K. (2010). Microeconometrics Using Stata, revised edition. "
    "Stata Press. Chapter 6."
)


def load_meps(*, sensitive: str = "sex", include_sensitive: bool = False) -> Dataset:
    """Load log drug spending of 10,391 older Americans, with sex or race.

    Needs the package `linearmodels`; nothing is downloaded, and the package, which ships the
    file, is not imported.

    Parameters
    ----------
    sensitive : {"sex", "race"}
        Which groups; the other attribute stays among the features.
    include_sensitive : bool
        Add the groups to X as well.

    Returns
    -------
    Dataset
        Target `ldrugexp`; groups "female" (6,024) and "male" (4,367), or "other" (8,621), "black"
        (1,036) and "hispanic" (734).
    """
    _fetch.check_option("sensitive", sensitive, ("sex", "race"))
    table = {name: to_numbers(text) for name, text in read_text(_fetch.read(_FILE)).items()}
    levels: tuple[str, ...]
    if sensitive == "sex":
        groups, levels = np.where(table["female"] == 1, "female", "male"), ("female", "male")
        others: tuple[str, ...] = ("black", "hisp")
    else:
        race = [table["black"] == 1, table["hisp"] == 1]
        groups = np.select(race, ["black", "hispanic"], "other")
        levels, others = ("other", "black", "hispanic"), ("female",)
    return make(
        {name: table[name] for name in (*_FEATURES, *others)},
        groups,
        levels,
        y=table["ldrugexp"],
        target_name="ldrugexp",
        sensitive_name=sensitive,
        include_sensitive=include_sensitive,
        description=_DESCRIPTION,
        provenance=_PROVENANCE,
        citation=_CITATION,
    )
