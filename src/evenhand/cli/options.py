"""Options in the groups in which commands take them.

A `Group` is a dataclass whose fields are made by `option`; `terminal.command` lays them out for the
parser and hands the command one object for each group.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, dataclass_transform

import typer

from .._core.files import TableError, check_free
from .._core.validation import quote
from ..data.criteria import CRITERIA, INDEPENDENCE

REQUIRED = MISSING


def option(
    text: str, *flags: str, default: Any = None, choices: Collection[str] = (), **more: Any
) -> Any:
    """Return a field that is an option, under the name of the field and the `flags`.

    Parameters
    ----------
    text : str
        What ``--help`` says.
    *flags : str
        Short names, or a long one that is not the field's.
    default : Any
        `REQUIRED` where there is none.
    choices : collection of str
        All that it may be, where that is known.
    **more : Any
        Further arguments of ``typer.Option``.
    """
    if choices:
        more["metavar"] = f"[{'|'.join(choices)}]"
    metadata = {"flags": flags, "choices": choices, "more": {"help": text, **more}}
    if isinstance(default, list):
        return field(default_factory=list, metadata=metadata)
    return field(default=default, metadata=metadata)


def long_name(f: Field[Any]) -> str:
    """Return the long name of an option, such as "--drop-missing"."""
    own = [flag for flag in f.metadata["flags"] if flag.startswith("--")]
    return own[0] if own else "--" + f.name.rstrip("_").replace("_", "-")


def check_choices(group: Any) -> None:
    """Refuse what an option of a group may not be."""
    for f in fields(group):
        choices, value = f.metadata.get("choices"), getattr(group, f.name)
        if choices and value is not None and value not in choices:
            raise TableError(f"{long_name(f)} must be one of {', '.join(choices)}, got {value!r}.")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Group:
    """Options that a command takes as one object: a frozen dataclass, as all its subclasses are."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


OneFile = Annotated[Path, typer.Argument(help="CSV, TSV, Parquet or Feather, compressed or not.")]
AuditedFiles = Annotated[
    list[str],
    typer.Argument(
        help="CSV, TSV, Parquet or Feather, compressed or not. Or, counted where they are: several "
        "files, a pattern in quotes; or files of 'evenhand cells', which need no other option."
    ),
]
# What several groups say of the same option.
_SENSITIVE = (
    "Column with the group of each row; empty cells mean 'not known'. Give it several times to "
    "compare the groups formed by several columns together."
)
CLUSTER = (
    "Column that says which rows belong together (a person over years, a ZIP code, a school) and "
    "so are not independent."
)
_FREQUENCY = "Column with the number of people that each row of an aggregated table stands for."
SEPARATOR = "Separator of a CSV file, if it is not recognized."
_SCORE = "Column with the score."
_BAND = (
    "Cut a --sensitive column of numbers or dates into bands, such as age:25,65 for under 25, 25 "
    "to 64, 65 and over. May be given again."
)


# ------------------------------------------------------------------------------------------------
# Columns.


class Roles(Group):
    """What every table that is looked at has, or may have."""

    sensitive: list[str] = option(_SENSITIVE, "-a", default=REQUIRED)
    target: str | None = option(
        "Column with the true outcome (numbers). Without it only independence is measured.", "-y"
    )
    weight: str | None = option("Column with the weight of each row.", "-w")
    missing: list[str] = option(
        "Label that means 'not known' in --sensitive columns, such as NA; otherwise it is a group. "
        "May be given again.",
        default=[],
    )

    def listed(self, role: str) -> list[str]:
        """The columns of a role."""
        name = getattr(self, role)
        return [] if name is None else [name] if isinstance(name, str) else list(name)


class Columns(Roles):
    """Columns of a file by their role, and how the file is read."""

    frequency: str | None = option(_FREQUENCY)
    cluster: str | None = option(CLUSTER)
    control: list[str] = option(
        "Column with a legitimate factor: people with the same ones are compared, in units of the "
        "score first. May be given again.",
        "-c",
        default=[],
    )
    exposure: str | None = option(
        "Column with the time at risk; the target is a total over it, the score a rate."
    )
    band: list[str] = option(_BAND, metavar="COLUMN:EDGES", default=[])
    continuous: bool = option(
        "The --sensitive column is a measurement, such as age or income: ask about the number "
        "itself, not about groups.",
        default=False,
    )
    least_group: int | None = option(
        "Leave out groups of fewer people than this, so that no result shows them.", min=2
    )
    drop_missing: bool = option(
        "Leave out rows without a target, prediction, weight, frequency or cluster; a note counts "
        "them.",
        default=False,
    )
    separator: str | None = option(SEPARATOR)

    # Roles that only some commands have an option for.
    prediction: str | list[str] | None = None
    probability: Sequence[str] = ()
    drop: Sequence[str] = ()
    given: str | None = None

    @property
    def numbers(self) -> dict[str, str]:
        """Role → column, of those that hold numbers; scores apart."""
        roles = ("target", "weight", "frequency", "exposure", "given")
        return {role: name for role in roles for name in self.listed(role)}


class AuditColumns(Columns):
    """Of one score."""

    sensitive: list[str] = option(_SENSITIVE, "-a", default=[])
    prediction: str | None = option("Column with the score to be audited.", "-s")
    probability: list[str] = option(
        "Column with the probability that a row belongs to the group of that name, in place of "
        "--sensitive where groups were inferred. Give it for each group; they must add up to 1 "
        "in each row, and an empty cell means 'not known'.",
        default=[],
    )
    assume: str | None = option(
        "What the score depends on, where groups were inferred: on their probabilities alone "
        "(guess), or on the group alone. Without it inferred groups meet no limit.",
        choices=("guess", "group"),
    )


class ModelColumns(Columns):
    """Of several scores on the same rows."""

    prediction: list[str] = option(
        "Column with the score of one model. Give it for each.", "-s", default=REQUIRED
    )


class TrainingColumns(Columns):
    """Target and groups; all others are features."""

    target: str = option("Column with the true outcome (numbers).", "-y", default=REQUIRED)
    given: str | None = option(
        "Column that separation conditions on in place of the target: a legitimate measure of "
        "risk. It is not a feature."
    )
    drop: list[str] = option("Column that is no feature. May be given again.", default=[])
    control: list[str] = option(
        "Column with a legitimate factor, for --criterion conditional. It stays a feature unless "
        "--drop names it. May be given again.",
        "-c",
        default=[],
    )


class CountedColumns(Roles):
    """Of a table that is counted into cells."""

    sensitive: list[str] = option(_SENSITIVE, "-a", default=[])
    prediction: str | None = option(_SCORE, "-s")
    frequency: str | None = option(_FREQUENCY)


class CellColumns(CountedColumns):
    """The same, where they must be named."""

    sensitive: list[str] = option(_SENSITIVE, "-a", default=REQUIRED)
    prediction: str = option(_SCORE, "-s", default=REQUIRED)
    band: list[str] = option(_BAND, metavar="COLUMN:EDGES", default=[])


# ------------------------------------------------------------------------------------------------
# What is done with them.


class Stated(Group):
    """What a report is about; its periods are those that are watched."""

    title: str | None = option("Heading of the report.")
    owner: str | None = option("Who is responsible for the score; for the report.")
    purpose: str | None = option("What the score decides; for the report.")
    model_name: str | None = option("The model and its version; for the report.")
    unit: str | None = option("Currency or unit of the score; for the report.")
    held_out: str | None = option("Whether these rows were held out from training; for the report.")
    limits_by: str | None = option("Who set the limits, and when; for the report.")
    note: str | None = option("Anything else a reader should know; for the report.")


class About(Stated):
    """What a report is about."""

    period: str | None = option("When the data were collected; for the report.")


class Seeded(Group):
    """Random numbers that can be had again."""

    seed: int = option("The same seed gives the same numbers.", default=0, min=0, max=2**32 - 1)


class Measuring(Seeded):
    """How measures are taken."""

    estimator: str = option(
        "How to estimate: auto, logistic, lspc, fourier or knn.", default="auto"
    )
    confidence: float = option("Confidence level of all intervals.", default=0.95)


class Powered(Group):
    """The variance of a deviance."""

    power: float = option("Variance power of tweedie.", default=1.5)


class Pricing(Powered):
    """A score as a price."""

    loss: str | None = option(
        "Measure the deviance that the score explains, and actual over expected by group and by "
        "band of the score.",
        metavar="[poisson|gamma|tweedie|normal]",
    )


class Favoring(Group):
    """Who gains by a high score."""

    favorable: str | None = option(
        "Whether a high or a low score is good for a person.", choices=("high", "low")
    )


class Cutoffs(Favoring):
    """Sides and places of a score."""

    at: list[str] = option(
        "Cutoff of impact and odds ratios: median or a quantile. May be given again.", default=[]
    )


class Tolerated(Favoring):
    """What a model must meet."""

    tolerance: Path | None = option(
        "File that says what is tolerated (see 'evenhand tolerance'): pass, exit code 0; fail, 1; "
        "not enough data, 4."
    )


class Gate(Tolerated):
    """Limits that decide about the exit code."""

    fail_above: list[str] = option(
        "Exit with code 1 if the criterion exceeds the limit, such as separation=0.05. Of several "
        "--sensitive columns each is judged by itself too, and the worst group against the rest. "
        "May be given again.",
        metavar="CRITERION=LIMIT",
        default=[],
    )
    judge_by: str = option(
        "What --fail-above compares with the limit: the value, or an end of its interval.",
        choices=("value", "upper", "lower"),
        default="value",
    )


class Judging(Gate, Cutoffs):
    """What is judged, and by what."""

    impact: bool = option("Compare each group with a reference; needs --favorable.", default=False)
    reference: str | None = option("Group for --impact and --control; the largest if left out.")
    each: bool = option("Audit each --sensitive column by itself as well.", default=False)

    # What the file and the texts of options say, once they are read.
    rule: Any = None
    cutoffs: tuple[float, ...] = (0.5,)
    limits: dict[str, float] = field(default_factory=dict)


class Limits(Group):
    """What an alternative must meet."""

    criterion: str = option(
        "The sense of fairness that --limit is about.", choices=CRITERIA, default=INDEPENDENCE.name
    )
    floor: float | None = option("Least accuracy (R², or D² of a deviance) that is enough.")
    limit: float | None = option("Largest unfairness that is allowed.")


class Counting(Group):
    """Where rows are counted."""

    engine: str | None = option(
        "Count in an engine, with memory for cells and not for rows: duckdb, as several files or "
        "a pattern always are.",
        metavar="[duckdb]",
    )

    def __post_init__(self) -> None:
        if self.engine not in (None, "duckdb"):
            raise TableError(
                f"--engine must be duckdb, got {self.engine!r}. Hint: hand the table of a database "
                "to evenhand.audit_table in Python, as a DuckDB relation or an Ibis table."
            )


class Writing(Group):
    """Whether files are overwritten, and errors shown whole."""

    force: bool = option("Overwrite files that exist.", "-f", default=False)
    debug: bool = option("Show the traceback of an error.", default=False)

    def check_free(self, path: Path | None) -> None:
        """Refuse before the work, not after it."""
        if path is not None:
            check_free(path, self.force)


class Output(Writing):
    """A page, JSON, or words on the terminal."""

    html: Path | None = option("Write a report: one HTML file that needs no network.")
    json_: bool = option("Print JSON, and nothing else, to the output.", default=False)

    def __post_init__(self) -> None:
        self.check_free(self.html)


# ------------------------------------------------------------------------------------------------
# What options say.


# None: a measurement that is not cut.
Edges = list[float] | list[str] | None


def parse_bands(columns: Roles) -> dict[str, Edges]:
    """``age:25,65`` → {"age": [25.0, 65.0]}; edges that are no numbers are dates.

    {"age": None} where age is asked about as it is, with --continuous.
    """
    sensitive, band = columns.sensitive, getattr(columns, "band", [])
    if getattr(columns, "continuous", False):
        if band or len(sensitive) != 1:
            also = "--band as well" if band else f"{len(sensitive)} columns"
            raise TableError(
                f"--continuous asks about one --sensitive column that is not cut, got {also}. "
                "Hint: audit one measurement at a time, or cut it with --band instead."
            )
        if getattr(columns, "control", []):
            raise TableError(
                "--control needs groups, and --continuous asks about a measurement. Hint: cut it "
                f"with --band instead, such as --band {sensitive[0]}:25,65."
            )
        return {sensitive[0]: None}
    bands: dict[str, Edges] = {}
    for text in band:
        name, sign, listed = text.rpartition(":")
        parts = [part.strip() for part in listed.split(",")]
        if not sign or not name or not all(parts):
            raise TableError(
                f"--band must be COLUMN:EDGE,EDGE,..., got {text!r}. Hint: --band age:25,65"
            )
        if name not in sensitive:
            raise TableError(
                f"--band names {quote(name)}, which is not one of the --sensitive columns "
                f"({', '.join(map(quote, sensitive))})."
            )
        if name in bands:
            raise TableError(f"--band names {quote(name)} twice. Hint: list all its edges once.")
        try:
            bands[name] = [float(part) for part in parts]
        except ValueError:
            bands[name] = parts
    return bands


def parse_limits(
    option: str, texts: Sequence[str], has_target: bool = True, more: Sequence[str] = ()
) -> dict[str, float]:
    """``separation=0.05`` → {"separation": 0.05}; `more` are names beside criteria."""
    limits: dict[str, float] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or name not in (*CRITERIA, *more):
            raise TableError(
                f"{option} must be CRITERION=LIMIT with one of {', '.join([*CRITERIA, *more])}, "
                f"got {text!r}. Hint: {option} separation=0.05"
            )
        if name in limits:
            raise TableError(f"{option} names {name} twice. Hint: give one limit for each.")
        limits[name] = as_number(value, float("nan"))
        if not 0 <= limits[name] <= 1:
            raise TableError(
                f"{option} must have a limit between 0 and 1, got {value!r} for {name}."
            )
        if name in CRITERIA and "y" in CRITERIA[name].needs and not has_target:
            raise TableError(f"{option} {name} needs --target: it compares true outcomes.")
    return limits


def as_number(text: str, otherwise: Any) -> Any:
    """Return the number that a text is, or something else."""
    try:
        return float(text)
    except ValueError:
        return otherwise
