"""Commands after the first audit: drivers of a disparity, and change over time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._core.progress import waiting
from ..tables.readers import Source, open_table, read_table
from .models import check_free
from .options import (
    Cluster,
    Debug,
    Force,
    Frequency,
    Html,
    Json,
    MaybeSensitive,
    MaybeTarget,
    Seed,
    Sensitive,
    Separator,
    Weight,
)
from .tables import Asked, AuditedFiles, EngineName
from .terminal import LIMIT_MISSED, NOT_ENOUGH_DATA, command, say, show_result

if TYPE_CHECKING:
    from ..auditing.monitoring import Monitor


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
    prediction: Annotated[
        str | None,
        typer.Option("--prediction", "-s", help="Column with the score; or see --model."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", help="model.json of 'evenhand frontier', in place of a score."),
    ] = None,
    target: MaybeTarget = None,
    weight: Weight = None,
    cluster: Cluster = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="Column that is no feature; repeatable.")
    ] = None,
    html: Html = None,
    json_: Json = False,
    seed: Seed = 0,
    separator: Separator = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Find the features that carry a disparity of a score.

    With a --model these are its features. With a score alone every other column is one, and a
    surrogate of the score is fitted to them; it says how much of the score they explain.

    For example: evenhand drivers scores.csv --prediction premium --sensitive region --target loss

    Or: evenhand drivers policies.csv --model fair/model.json --sensitive region --html drivers.html
    """
    from ..auditing.drivers import drivers as find

    if (prediction is None) == (model is None):
        raise typer.BadParameter("Give either --prediction or --model.")
    check_free(html, force)
    source = open_table(file, separator)
    names = _resolve(source, prediction=prediction, target=target, weight=weight, cluster=cluster)
    groups = [source.resolve(name, "--sensitive") for name in sensitive]
    if model is not None:
        scorer = _Scorer(model)
        features = [source.resolve(name, "The model") for name in scorer.model.needs]
        text = scorer.model.text
    else:
        left = {*filter(None, names.values()), *groups}
        left |= {source.resolve(name, "--drop") for name in drop or []}
        features, text = [name for name in source.names if name not in left], []
    if not features:
        raise ValueError(f"{str(file)!r} has no column left to use as a feature.")
    wanted = [*filter(None, names.values()), *groups, *features]
    table = read_table(source, list(dict.fromkeys(wanted)), text=text)

    def column(name: str | None) -> Any:
        return None if name is None else table.column(name).to_numpy(zero_copy_only=False)

    with waiting("Closing paths"):
        found = find(
            column(names["prediction"]) if model is None else scorer,
            table.select(features),
            sensitive_features=table.select(groups),
            y_true=column(names["target"]),
            sample_weight=column(names["weight"]),
            cluster=column(names["cluster"]),
            random_state=seed,
        )
    if json_:
        print(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    else:
        show_result(found)
    if html is not None:
        found.to_html(html, force=force)
        if not json_:
            say(f"Page: {html}")


def _show_monitor(found: Monitor) -> None:
    from ..measures.measures import VIOLATED

    show_result(found, "bold red" if found.judged == VIOLATED else "")


class _Scorer:
    """A model of a file, as a regressor of tables."""

    def __init__(self, path: Path) -> None:
        from ..tables.model_files import load_model

        self.model = load_model(path)

    def predict(self, table: Any) -> Any:
        return self.model.predict(table)[0]


def monitor(
    files: AuditedFiles,
    sensitive: MaybeSensitive = None,
    prediction: Annotated[
        str | None, typer.Option("--prediction", "-s", help="Column with the score.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", help="Column with the date of each row.")
    ] = None,
    period: Annotated[
        list[str] | None,
        typer.Option(
            "--period",
            help="day, week, month, quarter, year, or as-is; month for tables. For files of cells "
            "also the name of the period of each, in the order of the files; repeatable.",
        ),
    ] = None,
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
    engine: EngineName = None,
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

    Of counts alone: evenhand monitor 2024-01.cells 2024-02.cells 2024-03.cells
    """
    from ..measures.measures import OPEN, VIOLATED
    from ..tables.monitor import monitor as watch

    columns = {"sensitive": sensitive, "prediction": prediction, "target": target,
               "weight": weight, "frequency": frequency, "time": time}  # fmt: skip
    asked = Asked(list(files), engine, columns, {"separator": separator})
    asked.check()
    limits = _limits(limit or [])
    wanted: dict[str, Any] = {
        "criteria": list(dict.fromkeys([*(criterion or []), *limits])) or ["independence"],
        "limits": limits,
        "level": level,
    }
    check_free(html, force)
    if asked.are_cells:
        series, unit = _cell_series(asked.files, period or [])
        with waiting("Measuring"):
            found = watch(series, period=unit, **wanted)
    else:
        table, names = _table(asked, separator)
        with waiting("Counting and measuring"):
            found = watch(table, period=_unit(period or ["month"]), **names, **wanted)
    if json_:
        print(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    else:
        _show_monitor(found)
    if html is not None:
        found.to_html(html, force=force)
        if not json_:
            say(f"Page: {html}")
    if found.judged == VIOLATED:
        raise typer.Exit(LIMIT_MISSED)
    if found.judged == OPEN:
        raise typer.Exit(NOT_ENOUGH_DATA)


def _cell_series(files: list[str], periods: list[str]) -> tuple[Any, str]:
    """Cells by period, and what they are to be gathered into."""
    from ..auditing.monitoring import PERIODS
    from ..tables.monitor import read_series

    if len(periods) == 1 and periods[0] in PERIODS:
        return read_series(_expanded(files)), periods[0]
    if periods in ([], ["as-is"]):
        return read_series(_expanded(files)), "auto"
    return read_series(files, periods), "auto"


def _expanded(files: list[str]) -> list[str]:
    """Patterns that the shell has left as they are, in place."""
    from ..tables.monitor import matching

    return [path for file in files for path in matching(file)]


def _table(asked: Asked, separator: str | None) -> tuple[Any, dict[str, Any]]:
    """Rows of one file, or what an engine is to count; and the names of columns."""
    given = asked.columns
    if given["time"] is None:
        raise typer.BadParameter("Missing option '--time'.")
    names = {"time": given["time"], "y_true": given["target"], "y_pred": given["prediction"],
             "sample_weight": given["weight"], "frequency": given["frequency"]}  # fmt: skip
    groups = list(given["sensitive"])
    if asked.counted:
        files = asked.files
        table = files[0] if len(files) == 1 else files
        return table, {**names, "sensitive_features": groups, "engine": asked.engine}
    source = open_table(Path(asked.files[0]), separator)
    found = _resolve(
        source, time=names["time"], prediction=names["y_pred"], target=names["y_true"],
        weight=names["sample_weight"], frequency=names["frequency"],
    )  # fmt: skip
    groups = [source.resolve(name, "--sensitive") for name in groups]
    names = dict(zip(("time", "y_pred", "y_true", "sample_weight", "frequency"), found.values(),
                     strict=True))  # fmt: skip
    table = read_table(source, list(dict.fromkeys([*filter(None, names.values()), *groups])))
    return table, {**names, "sensitive_features": groups}


def _unit(periods: list[str]) -> str | None:
    if len(periods) > 1:
        raise typer.BadParameter("--period must be given once for tables.")
    return None if periods[0] == "as-is" else periods[0]


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
