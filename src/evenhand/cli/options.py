"""Options that several commands share, and the groups in which commands take them.

A group is a dataclass whose annotated fields are options; `terminal.command` lays them out for the
parser and hands the command one object for each group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .._core.files import check_free
from ..data.criteria import CRITERIA, WITH_CONTROLS


class Judge(StrEnum):
    by_value = "value"
    by_upper = "upper"
    by_lower = "lower"


class Favorable(StrEnum):
    high = "high"
    low = "low"


class GroupFeatures(StrEnum):
    none = "none"
    posterior = "posterior"
    attribute = "attribute"


def _known_criterion(name: str) -> str:
    known = [*CRITERIA, *WITH_CONTROLS]
    if name not in known:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(known)}.")
    return name


Target = Annotated[
    str, typer.Option("--target", "-y", help="Column with the true outcome (numbers).")
]
MaybeTarget = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-y",
        help="Column with the true outcome (numbers). Without it only independence is measured.",
    ),
]
_SENSITIVE = typer.Option(
    "--sensitive",
    "-a",
    help="Column with the group of each row; empty cells mean 'not known'. Give it several "
    "times to compare the groups formed by several columns together.",
)
Sensitive = Annotated[list[str], _SENSITIVE]
Probability = Annotated[
    list[str],
    typer.Option(
        "--probability",
        help="Column with the probability that a row belongs to the group of that name, in place "
        "of --sensitive where groups were imputed. Give it once for each group; they must add up "
        "to 1 in each row, and an empty cell means 'not known'.",
    ),
]
Band = Annotated[
    list[str],
    typer.Option(
        "--band",
        metavar="COLUMN:EDGES",
        help="Cut a --sensitive column of numbers or dates into bands, such as age:25,65 for under "
        "25, 25 to 64, 65 and over. May be given several times.",
    ),
]
Continuous = Annotated[
    bool,
    typer.Option(
        "--continuous",
        help="The --sensitive column is a measurement, such as age or income: ask about the number "
        "itself, not about groups.",
    ),
]
Weight = Annotated[
    str | None, typer.Option("--weight", "-w", help="Column with the weight of each row.")
]
Frequency = Annotated[
    str | None,
    typer.Option(
        "--frequency",
        help="Column with the number of people that each row of an aggregated table stands for.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Column that says which rows belong together (a person over years, a ZIP code, a "
        "school) and so are not independent.",
    ),
]
Control = Annotated[
    list[str],
    typer.Option(
        "--control",
        "-c",
        help="Column with a legitimate factor: people with the same ones are compared, in units of "
        "the score first. May be given several times.",
    ),
]
Separator = Annotated[
    str | None,
    typer.Option("--separator", help="Of a CSV file, where it is not found out by itself."),
]
DropMissing = Annotated[
    bool,
    typer.Option(
        "--drop-missing",
        help="Leave out rows without a target, prediction, weight, frequency or cluster, and say "
        "so.",
    ),
]
Html = Annotated[
    Path | None, typer.Option("--html", help="Write a report to hand on: one file, no network.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to the output.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite files that exist.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Estimator = Annotated[
    str,
    typer.Option("--estimator", help="How to estimate: auto, logistic, lspc, fourier or knn."),
]
Confidence = Annotated[float, typer.Option("--confidence", help="Of all intervals.")]
Seed = Annotated[
    int,
    typer.Option("--seed", min=0, max=2**32 - 1, help="The same seed gives the same numbers."),
]
FailAbove = Annotated[
    list[str],
    typer.Option(
        "--fail-above",
        metavar="CRITERION=LIMIT",
        help="Exit with code 1 if the criterion exceeds the limit, such as separation=0.05. Of "
        "several --sensitive columns each is judged by itself too, and the worst group against the "
        "rest. May be given several times.",
    ),
]
JudgeBy = Annotated[
    Judge,
    typer.Option(
        "--judge-by",
        help="What --fail-above compares with the limit: the value, or an end of its interval.",
    ),
]
Exposure = Annotated[
    str | None,
    typer.Option(
        "--exposure",
        help="Column with the time at risk; the target is a total over it, the score a rate.",
    ),
]
DevianceLoss = Annotated[
    str | None,
    typer.Option(
        "--loss",
        metavar="[poisson|gamma|tweedie|normal]",
        help="Measure the deviance that the score explains, and actual over expected by group and "
        "by band of the score.",
    ),
]
Power = Annotated[float, typer.Option("--power", help="Variance power of tweedie.")]
Title = Annotated[str | None, typer.Option("--title", help="Heading of the report.")]
Owner = Annotated[
    str | None, typer.Option("--owner", help="Who answers for the score or asks; for the report.")
]
Purpose = Annotated[
    str | None, typer.Option("--purpose", help="What the score decides; for the report.")
]
ModelName = Annotated[
    str | None, typer.Option("--model-name", help="The model and its version; for the report.")
]
Period = Annotated[
    str | None, typer.Option("--period", help="The time that the data are from; for the report.")
]
Note = Annotated[
    str | None, typer.Option("--note", help="Anything else a reader should know; for the report.")
]
Criterion = Annotated[
    str,
    typer.Option(
        "--criterion",
        "-c",
        help="The sense of fairness to train for; conditional needs --control.",
        metavar=f"[{'|'.join([*CRITERIA, *WITH_CONTROLS])}]",
        callback=_known_criterion,
    ),
]
ToleranceFile = Annotated[
    Path | None,
    typer.Option(
        "--tolerance",
        help="File that says what is tolerated (see 'evenhand tolerance'): pass, exit code 0; "
        "fail, 1; not enough data, 4.",
    ),
]
FavorableSide = Annotated[
    Favorable | None,
    typer.Option("--favorable", help="Whether a high or a low score is good for a person."),
]
At = Annotated[
    list[str],
    typer.Option(
        "--at", help="Cutoff of impact and odds ratios: median or a quantile. May be repeated."
    ),
]
ENGINES = ("duckdb", "polars", "spark")


def _engine(name: str | None) -> str | None:
    if name is None or name in ENGINES or name.startswith("ibis:"):
        return name
    raise typer.BadParameter(f"must be {', '.join(ENGINES)} or ibis:URL, got {name!r}.")


EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="Count in an engine, with memory for cells and not for rows; duckdb for several files "
        "or a pattern. With ibis: and the address of a database, such as "
        "ibis:postgres://user@host/database, the FILE is the name of a table there.",
        metavar=f"[{'|'.join(ENGINES)}|ibis:URL]",
        callback=_engine,
    ),
]
OneFile = Annotated[Path, typer.Argument(help="CSV, TSV, Parquet or Feather, compressed or not.")]
AuditedFiles = Annotated[
    list[str],
    typer.Argument(
        help="CSV, TSV, Parquet or Feather, compressed or not. Or, counted where they are: several "
        "files, a pattern in quotes, duckdb:FILE/TABLE, a table of the database of --engine "
        "ibis:URL; or files of 'evenhand cells', which need no other option."
    ),
]


# ------------------------------------------------------------------------------------------------
# Groups of options.


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Columns of a file by their role, and how the file is read."""

    sensitive: Sensitive = field()
    target: MaybeTarget = None
    weight: Weight = None
    frequency: Frequency = None
    cluster: Cluster = None
    control: Control = field(default_factory=list)
    exposure: Exposure = None
    band: Band = field(default_factory=list)
    continuous: Continuous = False
    drop_missing: DropMissing = False
    separator: Separator = None

    # Roles that only some commands have an option for.
    prediction: str | list[str] | None = None
    probability: Sequence[str] = ()
    drop: Sequence[str] = ()
    key: str | None = None
    given: str | None = None

    @property
    def predictions(self) -> list[str]:
        """Columns with a score."""
        if isinstance(self.prediction, list):
            return self.prediction
        return [] if self.prediction is None else [self.prediction]

    @property
    def numbers(self) -> dict[str, str]:
        """Role → column, of those that hold numbers; scores apart."""
        roles = ("target", "weight", "frequency", "exposure", "given")
        named = {role: getattr(self, role) for role in roles}
        return {role: name for role, name in named.items() if name is not None}


@dataclass(frozen=True, kw_only=True)
class AuditColumns(Columns):
    """Of one score."""

    sensitive: Sensitive = field(default_factory=list)
    prediction: Annotated[
        str | None, typer.Option("--prediction", "-s", help="Column with the score to be audited.")
    ] = None
    probability: Probability = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ModelColumns(Columns):
    """Of several scores on the same rows."""

    prediction: Annotated[
        list[str],
        typer.Option("--prediction", "-s", help="Column with the score; several for one file."),
    ] = field()
    key: Annotated[
        str | None,
        typer.Option("--id", help="Column that names the rows, where files differ in order."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TrainingColumns(Columns):
    """Target and groups; all others are features."""

    target: Target = field()
    given: Annotated[
        str | None,
        typer.Option(
            "--given",
            help="Column that separation conditions on in place of the target: a legitimate "
            "measure of risk. It is not a feature.",
        ),
    ] = None
    drop: Annotated[
        list[str],
        typer.Option("--drop", help="Column not to be used as a feature. May be repeated."),
    ] = field(default_factory=list)
    control: Annotated[
        list[str],
        typer.Option(
            "--control",
            help="Column with a legitimate factor, for --criterion conditional. It stays a feature "
            "unless --drop names it. May be given several times.",
        ),
    ] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class DriverColumns:
    """Of a score whose features are looked at."""

    sensitive: Sensitive = field()
    target: MaybeTarget = None
    weight: Weight = None
    cluster: Cluster = None
    drop: Annotated[
        list[str], typer.Option("--drop", help="Column that is no feature; repeatable.")
    ] = field(default_factory=list)
    separator: Separator = None


@dataclass(frozen=True, kw_only=True)
class CountedColumns:
    """Of a table that is counted into cells."""

    sensitive: Sensitive = field(default_factory=list)
    prediction: Annotated[
        str | None, typer.Option("--prediction", "-s", help="Column with the score.")
    ] = None
    target: MaybeTarget = None
    weight: Weight = None
    frequency: Frequency = None


@dataclass(frozen=True, kw_only=True)
class CellColumns(CountedColumns):
    """The same, where they must be named."""

    sensitive: Sensitive = field()
    prediction: Annotated[
        str, typer.Option("--prediction", "-s", help="Column with the score.")
    ] = field()


@dataclass(frozen=True, kw_only=True)
class About:
    """What a report is about."""

    title: Title = None
    owner: Owner = None
    purpose: Purpose = None
    model_name: ModelName = None
    period: Period = None
    note: Note = None


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """How measures are taken."""

    estimator: Estimator = "auto"
    confidence: Confidence = 0.95
    seed: Seed = 0


@dataclass(frozen=True, kw_only=True)
class Pricing:
    """A score as a price."""

    loss: DevianceLoss = None
    power: Power = 1.5


@dataclass(frozen=True, kw_only=True)
class Judging:
    """What is judged, and by what."""

    fail_above: FailAbove = field(default_factory=list)
    judge_by: JudgeBy = Judge.by_value
    tolerance: ToleranceFile = None
    impact: Annotated[
        bool,
        typer.Option("--impact", help="Compare each group with a reference; needs --favorable."),
    ] = False
    favorable: FavorableSide = None
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference", help="Group for --impact and --control; the largest if left out."
        ),
    ] = None
    at: At = field(default_factory=list)
    each: Annotated[
        bool, typer.Option("--each", help="Audit each --sensitive column by itself as well.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Writing:
    """Whether files are overwritten, and errors shown whole."""

    force: Force = False
    debug: Debug = False

    def check_free(self, path: Path | None) -> None:
        """Refuse before the work, not after it."""
        if path is not None:
            check_free(path, self.force)


@dataclass(frozen=True, kw_only=True)
class Output(Writing):
    """A page, JSON, or words on the terminal."""

    html: Html = None
    json_: Json = False

    def __post_init__(self) -> None:
        self.check_free(self.html)
