"""Commands after the first audit: drivers of a disparity, and change over time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..files.tabular import Source, open_table, read_table
from .commands.terminal import LIMIT_MISSED, NOT_ENOUGH_DATA, command, say
from .options import (
    Debug,
    Force,
    Frequency,
    Html,
    Json,
    MaybeTarget,
    Sensitive,
    Separator,
    Weight,
)

Prediction = Annotated[str, typer.Option("--prediction", "-s", help="Column with the score.")]
File = Annotated[Path, typer.Argument(help="CSV, TSV, Parquet or Feather, compressed or not.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(command(drivers))
    app.command()(command(monitor))


def _resolve(source: Source, **columns: str | None) -> dict[str, str | None]:
    return {
        key: None if name is None else source.resolve(name, f"--{key.replace('_', '-')}")
        for key, name in columns.items()
    }


def drivers(
    file: File,
    sensitive: Sensitive,
    prediction: Prediction,
    target: MaybeTarget = None,
    weight: Weight = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="Column that is no feature; repeatable.")
    ] = None,
    json_: Json = False,
    separator: Separator = None,
    debug: Debug = False,
) -> None:
    """Find the features that carry a disparity of a score.

    Every other column is a feature. As there is no model, a surrogate of the score is fitted to
    them; it says how much of the score they explain.

    For example: evenhand drivers scores.csv --prediction premium --sensitive region --target loss
    """
    from ..auditing.drivers import drivers as find

    source = open_table(file, separator)
    names = _resolve(source, prediction=prediction, target=target, weight=weight)
    groups = [source.resolve(name, "--sensitive") for name in sensitive]
    left = {*filter(None, names.values()), *groups}
    left |= {source.resolve(name, "--drop") for name in drop or []}
    features = [name for name in source.names if name not in left]
    if not features:
        raise ValueError(f"{str(file)!r} has no column left to use as a feature.")
    table = read_table(source, list(dict.fromkeys([*left, *features])))

    def column(name: str | None) -> Any:
        return None if name is None else table.column(name).to_numpy(zero_copy_only=False)

    found = find(
        column(names["prediction"]),
        table.select(features),
        sensitive_features=table.select(groups),
        y_true=column(names["target"]),
        sample_weight=column(names["weight"]),
    )
    say(json.dumps(found.to_dict(), indent=2) if json_ else str(found))


def monitor(
    file: File,
    sensitive: Sensitive,
    prediction: Prediction,
    time: Annotated[str, typer.Option("--time", help="Column with the date of each row.")],
    period: Annotated[
        str, typer.Option("--period", help="day, week, month, quarter, year, or as-is.")
    ] = "month",
    target: MaybeTarget = None,
    weight: Weight = None,
    frequency: Frequency = None,
    criterion: Annotated[
        list[str] | None, typer.Option("--criterion", help="What is watched; repeatable.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", help="Value not to be exceeded, as criterion=0.05; repeatable."),
    ] = None,
    level: Annotated[
        float, typer.Option("--level", help="Chance of a false alarm over all looks.")
    ] = 0.05,
    html: Html = None,
    json_: Json = False,
    separator: Separator = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Measure a score period by period and say whether its fairness has moved.

    Exit codes: 0 steady; 1 an alarm was raised; 4 not enough data.

    For example: evenhand monitor scores.csv --time date --period month --prediction premium
    --sensitive region --html watch.html
    """
    from ..auditing.monitoring import monitor as watch
    from ..information.judging import OPEN, VIOLATED

    source = open_table(file, separator)
    names = _resolve(
        source, time=time, prediction=prediction, target=target, weight=weight,
        frequency=frequency,
    )  # fmt: skip
    groups = [source.resolve(name, "--sensitive") for name in sensitive]
    table = read_table(source, list(dict.fromkeys([*filter(None, names.values()), *groups])))
    limits = _limits(limit or [])
    found = watch(
        table,
        period=None if period == "as-is" else period,
        time=names["time"],
        y_true=names["target"],
        y_pred=names["prediction"],
        sensitive_features=groups,
        sample_weight=names["weight"],
        frequency=names["frequency"],
        criteria=list(dict.fromkeys([*(criterion or []), *limits])) or ["independence"],
        limits=limits,
        level=level,
    )
    say(json.dumps(found.to_dict(), indent=2) if json_ else str(found))
    if html is not None:
        found.to_html(html, force=force)
        if not json_:
            say(f"Page: {html}")
    if found.judged == VIOLATED:
        raise typer.Exit(LIMIT_MISSED)
    if found.judged == OPEN:
        raise typer.Exit(NOT_ENOUGH_DATA)


def _limits(texts: list[str]) -> dict[str, float]:
    out = {}
    for text in texts:
        name, sign, value = text.partition("=")
        try:
            out[name.strip()] = float(value)
        except ValueError:
            sign = ""
        if not sign:
            raise ValueError(f"--limit must be written as independence=0.05, got {text!r}.")
    return out
