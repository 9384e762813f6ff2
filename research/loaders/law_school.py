"""Law students of 1991: the LSAC National Longitudinal Bar Passage Study."""

from __future__ import annotations

import csv
import io

import numpy as np
from numpy.typing import NDArray

from evenhand.datasets import Dataset

from . import _fetch
from ._tables import one_hot

_FILE = _fetch.DataFile(
    name="lsac.csv.gz",
    sha256="aa02772e678cfde1a50c5ab64e049f6c840b96f5919ab894d3222a9009eeb55b",
    n_bytes=3_944_453,
    url=None,
    source=(
        "the LSAC National Longitudinal Bar Passage Study as re-released for Sander (2004), "
        "27,478 students and 36 columns; no public address with this checksum is known."
    ),
)

# Complete in these, 20,800 students remain: the rows of Agarwal et al. (2019) and of R's fairml.
_PUBLISHED = (
    "race",
    "cluster",
    "lsat",
    "ugpa",
    "zfygpa",
    "zgpa",
    "bar1",
    "fulltime",
    "fam_inc",
    "age",
    "gender",
)
_ENTRY = ("lsat", "ugpa", "fulltime", "fam_inc", "age", "male")
_LATER = ("zfygpa", "zgpa", "bar1")
_CLUSTERS: tuple[str, ...] = ("1", "2", "3", "4", "5", "6")
_FIVE = ("white", "black", "hispanic", "asian", "other")
_BINARY = ("white", "nonwhite")
_ENTRY_YEAR = 91

_TARGETS = {
    "ugpa": "undergraduate grade point average (0 to 4)",
    "zfygpa": "standardized first-year law school grade point average",
    "zgpa": "standardized overall law school grade point average",
}

_DESCRIPTION = """\
{target} of {n} law students who entered US schools in 1991. Features: {features}. Rows: {rows}.
Groups: {groups}. {race_columns} Left out as leaking the target: index604, indxgrp and indxgrp2
(made from ugpa), the decile columns (made from zfygpa and zgpa){gpas}. Left out as broken: the
dummy `hisp`, 1 for American Indian students only, in place of which groups come from `race1`; and
`bar1_yr`, which holds no year. {age}"""

_PROVENANCE = f"""\
LSAC National Longitudinal Bar Passage Study (Wightman, 1998), as re-released with derived
variables for Sander (2004). SHA-256 of the unpacked file {_FILE.sha256}. License unknown: research
use only, not redistributed with this package."""

_CITATION = (
    "Wightman, L. F. (1998). LSAC National Longitudinal Bar Passage Study. LSAC Research Report "
    "Series. Sander, R. H. (2004). A systemic analysis of affirmative action in American law "
    "schools. Stanford Law Review 57, 367-483."
)


def load_law_school(
    *,
    target: str = "ugpa",
    race: str = "binary",
    columns: str = "entry",
    rows: str = "published",
    age: str = "entry",
    include_sensitive: bool = True,
) -> Dataset:
    """Load the law students of the LSAC study: a grade point average and race.

    The file is looked for in the folder named by ``EVENHAND_DATA``, then in the cache. It cannot
    be downloaded: no public address with its checksum is known.

    Parameters
    ----------
    target : {"ugpa", "zfygpa", "zgpa"}
        Undergraduate (0 to 4; two values are 0), first-year law school or overall law school
        grade point average, the last two standardized. Agarwal et al. (2019) use ``ugpa / 4``.
    race : {"binary", "five"}
        ``"binary"``: "white" and "nonwhite". ``"five"``: "white", "black", "hispanic", "asian",
        "other".
    columns : {"entry", "agarwal"}
        ``"entry"``: what is known when studies begin (LSAT, undergraduate grade unless it is the
        target, full time, family income, age, sex, school cluster). ``"agarwal"``: also
        first-year and overall grade and first bar result, as Agarwal et al. do for ``"ugpa"``;
        refused for the other targets, which those columns give away.
    rows : {"published", "complete"}
        ``"published"``: the 20,800 students of the literature, complete in all eleven columns of
        Agarwal et al., who therefore sat the bar exam. ``"complete"``: all who are complete in
        the columns asked for.
    age : {"entry", "published"}
        ``"entry"``: 1991 less the year of birth. ``"published"``: the file's own column, which is
        broken (it runs from −69 to −3) but part of published results.
    include_sensitive : bool
        Keep race in X, as published setups do: one column for two groups, else one per group.

    Returns
    -------
    Dataset
        Features, the chosen grade and race.
    """
    _fetch.check_option("target", target, tuple(_TARGETS))
    _fetch.check_option("race", race, ("binary", "five"))
    _fetch.check_option("columns", columns, ("entry", "agarwal"))
    _fetch.check_option("rows", rows, ("published", "complete"))
    _fetch.check_option("age", age, ("entry", "published"))
    if columns == "agarwal" and target != "ugpa":
        raise ValueError(
            f"`columns` must be 'entry' for the target {target!r}, got 'agarwal': its columns "
            "zfygpa and zgpa predict each other. Hint: load_law_school("
            f"target={target!r}, columns='entry')."
        )
    table = _read_table()
    names = tuple(name for name in _ENTRY if name != target)
    if columns == "agarwal":
        names += _LATER
    values = {name: _numbers(table, name, age) for name in (*names, target)}
    groups, levels = _race(table, race)
    cluster = table["cluster"]
    keep = (groups != "") & (cluster != "")
    for column in values.values():
        keep &= ~np.isnan(column)
    if rows == "published":
        for name in _PUBLISHED:
            keep &= table[name] != ""
    groups = groups[keep]
    blocks = [np.column_stack([values[name][keep] for name in names])]
    coded = [(cluster[keep], _CLUSTERS, "cluster")]
    if include_sensitive:
        coded.append((groups, levels, "race"))
    for labels, its_levels, name in coded:
        block, added = one_hot(labels, its_levels, name)
        blocks.append(block)
        names += added
    return Dataset(
        X=np.hstack(blocks),
        y=values[target][keep],
        sensitive=groups,
        feature_names=names,
        target_name=target,
        sensitive_name="race",
        description=_describe(target, groups, names, columns, rows, age, include_sensitive),
        provenance=_PROVENANCE,
        citation=_CITATION,
    )


def _read_table() -> dict[str, NDArray[np.str_]]:
    """The columns in use as text; missing, an empty field or a blank in the file, is ''."""
    reader = csv.reader(io.StringIO(_fetch.read(_FILE).decode("utf-8")))
    header = next(reader)
    columns = zip(*reader, strict=True)
    return {
        name: np.char.strip(np.array(column, dtype=np.str_))
        for name, column in zip(header, columns, strict=True)
        if name in _PUBLISHED or name in ("dob_yr", "race1")
    }


def _numbers(table: dict[str, NDArray[np.str_]], name: str, age: str) -> NDArray[np.float64]:
    if name == "age" and age == "entry":
        return _ENTRY_YEAR - _floats(table["dob_yr"])
    if name == "male":
        return _indicator(table["gender"], "male")
    if name == "bar1":
        return _indicator(table["bar1"], "P")
    if name == "fulltime":  # 1 full time, 2 part time
        return _indicator(table["fulltime"], "1")
    return _floats(table[name])


def _floats(text: NDArray[np.str_]) -> NDArray[np.float64]:
    return np.where(text == "", "nan", text).astype(np.float64)


def _indicator(text: NDArray[np.str_], level: str) -> NDArray[np.float64]:
    return np.where(text == "", np.nan, text == level)


def _race(
    table: dict[str, NDArray[np.str_]], race: str
) -> tuple[NDArray[np.str_], tuple[str, ...]]:
    labels = np.where(table["race1"] == "hisp", "hispanic", table["race1"])
    if race == "five":
        return labels, _FIVE
    binary = np.where(labels == "white", "white", "nonwhite")
    return np.where(labels == "", "", binary), _BINARY


def _describe(
    target: str,
    groups: NDArray[np.str_],
    names: tuple[str, ...],
    columns: str,
    rows: str,
    age: str,
    include_sensitive: bool,
) -> str:
    labels, counts = np.unique(groups, return_counts=True)
    return _DESCRIPTION.format(
        target=_TARGETS[target].capitalize(),
        n=f"{len(groups):,}",
        features=", ".join(names),
        rows=(
            "complete in the eleven columns of Agarwal et al. (2019)"
            if rows == "published"
            else "complete in the columns used"
        ),
        groups=", ".join(f"{k} {c:,}" for k, c in zip(labels, counts, strict=True)),
        race_columns=f"Race is {'' if include_sensitive else 'not '}among the features.",
        gpas="" if columns == "agarwal" else ", and grades and bar results of later years",
        age=(
            "Age is 1991 less the year of birth; the file's own column is broken."
            if age == "entry"
            else "Age is the file's own column, which is broken: it runs from -69 to -3."
        ),
    )
