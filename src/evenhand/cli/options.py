"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..data.criteria import CRITERIA, WITH_CONTROLS


class Judge(StrEnum):
    by_value = "value"
    by_upper = "upper"
    by_lower = "lower"


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
MaybeSensitive = Annotated[list[str] | None, _SENSITIVE]
Probability = Annotated[
    list[str] | None,
    typer.Option(
        "--probability",
        help="Column with the probability that a row belongs to the group of that name, in place "
        "of --sensitive where groups were imputed. Give it once for each group; they must add up "
        "to 1 in each row, and an empty cell means 'not known'.",
    ),
]
Band = Annotated[
    list[str] | None,
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
    list[str] | None,
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
    list[str] | None,
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
