"""The command line: parse, call, render."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from ..data.criteria import INDEPENDENCE
from . import after_audit as watching
from . import audits, models, rows, tables, using
from . import audits as verdicts
from . import columns as levels
from .options import (
    Band,
    Cluster,
    Confidence,
    Continuous,
    Control,
    Criterion,
    Debug,
    DevianceLoss,
    DropMissing,
    Estimator,
    Exposure,
    FailAbove,
    Force,
    Frequency,
    GroupFeatures,
    Html,
    Json,
    Judge,
    JudgeBy,
    MaybeSensitive,
    MaybeTarget,
    ModelName,
    Note,
    Owner,
    Period,
    Power,
    Probability,
    Purpose,
    Seed,
    Sensitive,
    Separator,
    Target,
    Title,
    Weight,
)

try:
    import pyarrow  # noqa: F401
    import typer

    from .terminal import command, fail, say
except ModuleNotFoundError as error:
    sys.exit(
        f"Error: the command line needs the package {error.name}, which is not installed. "
        "Hint: pip install 'evenhand[cli]'."
    )


app = typer.Typer(
    name="evenhand",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Is this score fair to these groups, what would it cost to make it fairer, and which model "
        "is that?\n\nStart with 'evenhand demo', then 'evenhand audit' on a table of your own.\n\n"
        "Exit codes: 0 all is well; 1 a limit that you set is not met; 2 the input or the options "
        "cannot be used; 3 a defect of evenhand; 4 not enough data to tell whether the tolerance "
        "is met."
    ),
)


def _version(shown: bool) -> None:
    if shown:
        from .. import __version__

        typer.echo(f"evenhand {__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print it and exit."),
    ] = False,
) -> None:
    """Leave the work to the commands."""


@app.command()
@command
def audit(
    files: tables.AuditedFiles,
    sensitive: MaybeSensitive = None,
    prediction: Annotated[
        str | None, typer.Option("--prediction", "-s", help="Column with the score to be audited.")
    ] = None,
    target: MaybeTarget = None,
    weight: Weight = None,
    frequency: Frequency = None,
    cluster: Cluster = None,
    control: Control = None,
    exposure: Exposure = None,
    loss: DevianceLoss = None,
    power: Power = 1.5,
    band: Band = None,
    probability: Probability = None,
    continuous: Continuous = False,
    html: Html = None,
    title: Title = None,
    owner: Owner = None,
    purpose: Purpose = None,
    model_name: ModelName = None,
    period: Period = None,
    remark: Note = None,
    json_: Json = False,
    fail_above: FailAbove = None,
    judge_by: JudgeBy = Judge.by_value,
    tolerance: verdicts.ToleranceFile = None,
    impact: verdicts.WithImpact = False,
    favorable: verdicts.FavorableSide = None,
    reference: verdicts.Reference = None,
    at: verdicts.At = None,
    each: Annotated[
        bool, typer.Option("--each", help="Audit each --sensitive column by itself as well.")
    ] = False,
    drop_missing: DropMissing = False,
    estimator: Estimator = "auto",
    confidence: Confidence = 0.95,
    seed: Seed = 0,
    separator: Separator = None,
    engine: tables.EngineName = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Measure the fairness of the scores in a file, with intervals.

    Three senses of fairness are measured, each from 0 (fair) to 1: independence (scores look the
    same in every group), separation (people with the same outcome are scored alike) and sufficiency
    (the same score means the same outcome).

    For example: evenhand audit scores.csv --target y --prediction s --sensitive race --html
    report.html

    In a pipeline that must stop when a score drifts: evenhand audit scores.csv -y y -s s -a race
    --fail-above separation=0.05

    Of tables beyond memory: evenhand audit "data/*.parquet" -y y -s s -a race

    Of prices: evenhand audit policies.csv -y claims -s rate -a sex --exposure years --loss poisson

    Of groups imputed from surname and address: evenhand audit loans.csv -s rate --probability white
    --probability black --probability other
    """
    if probability and sensitive:
        raise typer.BadParameter("--probability is in place of --sensitive: give one of them.")
    table = tables.Asked(
        files, engine,
        {"sensitive": sensitive or probability, "prediction": prediction, "target": target,
         "weight": weight, "frequency": frequency},
        {"cluster": cluster, "band": band, "drop_missing": drop_missing, "separator": separator,
         "exposure": exposure, "loss": loss, "probability": probability, "continuous": continuous},
        control or [],
    )  # fmt: skip
    has_target = table.has_target()
    limits = audits.parse_limits(fail_above or [], has_target)
    asked = verdicts.read_asked(
        tolerance, impact, favorable and favorable.value, reference, at or [], has_target
    )
    models.check_free(html, force)
    data: rows.TableRows | tables.CellSource
    if table.counted:
        cells, data = table.cells()
        found = tables.with_controls(
            tables.audit_cells(cells, each, estimator, confidence, seed), table, cells.edges,
            estimator=estimator, confidence_level=confidence, random_state=seed,
            reference=reference or "largest",
        )  # fmt: skip
    else:
        assert prediction is not None
        labels = sensitive or []
        data = rows.load_scores(
            Path(files[0]), [prediction], target, labels, weight, frequency, cluster, separator,
            drop_missing, levels.parse_bands(band or [], labels, continuous, control),
            control or (), {} if exposure is None else {"exposure": exposure}, probability or (),
        )  # fmt: skip
        found = audits.run_audit(
            data, prediction, each, estimator, confidence, seed, reference, loss, power
        )
    checks = audits.check_limits(found, limits, judge_by.value)
    each_audit = audits.audits_of(found)
    judged = verdicts.judged(each_audit, asked)
    compared = verdicts.impacts(each_audit, asked)
    if html is not None:
        about = audits.about(title, owner, purpose, model_name, period, remark)
        audits.write_audit(
            found, html, data.source_facts(), force, judged, compared, asked.favorable, about
        )
    if json_:
        whole = {**found.to_dict(), "checks": checks, "provenance": data.provenance()}
        whole |= verdicts.to_dict(judged, compared)
        print(json.dumps(whole, indent=2, allow_nan=False))
    else:
        for name, verdict in judged.items():
            verdicts.show_verdict(verdict, name)
        audits.show_found(found, ", ".join(files))
        for groups in compared.values():
            verdicts.show_result(groups)
        audits.show_checks(checks)
        if html is not None:
            say(f"Report: {html}")
    code = verdicts.exit_code(judged, all(check["passed"] for check in checks))
    if code:
        raise typer.Exit(code)


@app.command()
@command
def compare(
    files: Annotated[
        list[Path],
        typer.Argument(help="One file per model, with the same rows; or one file with several "
                       "--prediction columns."),
    ],
    sensitive: Sensitive,
    prediction: Annotated[
        list[str],
        typer.Option("--prediction", "-s", help="Column with the score; several for one file."),
    ],
    target: MaybeTarget = None,
    weight: Weight = None,
    frequency: Frequency = None,
    cluster: Cluster = None,
    control: Control = None,
    exposure: Exposure = None,
    loss: DevianceLoss = None,
    power: Power = 1.5,
    band: Band = None,
    continuous: Continuous = False,
    key: Annotated[
        str | None,
        typer.Option("--id", help="Column that names the rows, where files differ in order."),
    ] = None,
    html: Html = None,
    title: Title = None,
    owner: Owner = None,
    purpose: Purpose = None,
    model_name: ModelName = None,
    period: Period = None,
    remark: Note = None,
    json_: Json = False,
    favorable: verdicts.FavorableSide = None,
    drop_missing: DropMissing = False,
    estimator: Estimator = "auto",
    confidence: Confidence = 0.95,
    seed: Seed = 0,
    separator: Separator = None,
    force: Force = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Compare two or more models on the same rows: measures side by side, who gains, who loses.

    The target, the groups and all else but the scores are taken from the first file.

    For example: evenhand compare old.csv new.csv --target y --prediction s --sensitive race

    Or, with both scores in one file: evenhand compare scores.csv -y y -s old -s new -a race
    """
    models.check_free(html, force)
    side = None if favorable is None else favorable.value
    data, scores = rows.load_models(
        files, prediction, target, sensitive, weight, frequency, cluster, key, separator,
        drop_missing, levels.parse_bands(band or [], sensitive, continuous, control), control or (),
        {} if exposure is None else {"exposure": exposure},
    )  # fmt: skip
    found = audits.run_compare(data, scores, estimator, confidence, seed, loss, power)
    if html is not None:
        about = audits.about(title, owner, purpose, model_name, period, remark)
        audits.write_audit(found, html, data.source_facts(), force, favorable=side, about=about)
    if json_:
        whole = {**found.to_dict(), "provenance": data.provenance()}
        print(json.dumps(whole, indent=2, allow_nan=False))
        return
    audits.show_compare(found, side)
    if html is not None:
        say(f"\nReport: {html}")


@app.command()
@command
def frontier(
    file: Annotated[Path, typer.Argument(help="CSV, TSV, Parquet or Feather, compressed or not.")],
    target: Target,
    sensitive: Sensitive,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for report.html, path.csv and model.json.")
    ],
    criterion: Criterion = INDEPENDENCE.name,
    max_unfairness: Annotated[
        float | None,
        typer.Option("--max-unfairness", "-m", help="Choose the most accurate model below this."),
    ] = None,
    min_r2: Annotated[
        float | None,
        typer.Option("--min-r2", help="Choose the fairest model at least this accurate."),
    ] = None,
    min_accuracy: Annotated[
        float | None,
        typer.Option("--min-accuracy", help="The same by D², for models of a deviance."),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="The kind of model; xgboost, lightgbm and hgb are boosted trees with a fair "
            "linear model on top, which --alpha does not concern.",
            metavar=f"[{'|'.join(models.MODELS)}]",
        ),
    ] = "ridge",
    exposure: Exposure = None,
    given: Annotated[
        str | None,
        typer.Option(
            "--given",
            help="Column that separation conditions on in place of the target: a legitimate "
            "measure of risk. It is not a feature.",
        ),
    ] = None,
    power: Power = 1.5,
    quantile: Annotated[float, typer.Option("--quantile", help="Of glm-quantile.")] = 0.5,
    certify: Annotated[
        bool,
        typer.Option("--certify", help="Judge by bounds that allow for having picked the best."),
    ] = False,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", help="Column not to be used as a feature. May be repeated."),
    ] = None,
    weight: Weight = None,
    frequency: Frequency = None,
    cluster: Cluster = None,
    control: Annotated[
        list[str] | None,
        typer.Option(
            "--control",
            help="Column with a legitimate factor, for --criterion conditional. It stays a feature "
            "unless --drop names it. May be given several times.",
        ),
    ] = None,
    band: Band = None,
    continuous: Continuous = False,
    group_features: Annotated[
        GroupFeatures,
        typer.Option(
            "--group-features",
            help="Let the model treat groups differently where fairness asks for it: by their "
            "probability given the features, or by the attribute itself (then needed to predict).",
        ),
    ] = GroupFeatures.none,
    alpha: Annotated[float, typer.Option("--alpha", help="Penalty on the coefficients.")] = 1e-3,
    title: Title = None,
    owner: Owner = None,
    purpose: Purpose = None,
    model_name: ModelName = None,
    period: Period = None,
    remark: Note = None,
    tolerance: verdicts.ToleranceFile = None,
    favorable: verdicts.FavorableSide = None,
    points: Annotated[int, typer.Option("--points", help="Models on the frontier.")] = 20,
    folds: Annotated[int, typer.Option("--folds", help="Parts for held-out measures.")] = 5,
    drop_missing: DropMissing = False,
    confidence: Confidence = 0.95,
    seed: Seed = 0,
    separator: Separator = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Fit fair models from indifferent to as fair as it gets, and choose one.

    Every other column is a feature, except the sensitive ones and the cluster. Text becomes one
    column per level. All numbers are measured on rows the models were not fitted to.

    For example: evenhand frontier train.csv --target y --sensitive race --criterion separation
    --max-unfairness 0.01 --out fair/

    Then: evenhand predict fair/model.json new.csv --out scored.csv

    For claims: evenhand frontier policies.csv --model glm-poisson --target claims --exposure years
    --sensitive sex --max-unfairness 0.01 --out fair/

    With boosted trees: evenhand frontier train.csv --model xgboost --target y --sensitive race
    --group-features posterior --out fair/
    """
    outputs = models.check_folder(out, force)
    wanted = {
        "max_unfairness": max_unfairness, "min_r2": min_r2, "min_accuracy": min_accuracy,
        "certify": certify,
    }  # fmt: skip
    models.check_wanted(wanted)
    asked = verdicts.read_asked(
        tolerance, False, favorable and favorable.value, None, [], has_target=True
    )
    kind = None if group_features is GroupFeatures.none else group_features.value
    estimator = models.MODELS[models.check_model(model)](
        criterion,
        {
            "alpha": alpha, "group_features": kind, "power": power, "quantile": quantile,
            "seed": seed,
        },
    )  # fmt: skip
    more = {name: found for name, found in (("exposure", exposure), ("given", given)) if found}
    data = rows.load_training(
        file, target, sensitive, weight, frequency, cluster, drop or [], separator, drop_missing,
        levels.parse_bands(band or [], sensitive, continuous, control), more, control or (),
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    path = models.run_path(data, estimator, points, folds, confidence, seed)
    chosen, problem = models.choose(path, wanted)
    about = audits.about(title, owner, purpose, model_name, period, remark)
    models.write_path(
        path, chosen, data, outputs, about=about, tolerance=asked.tolerance,
        favorable=asked.favorable,
    )  # fmt: skip
    models.show_frontier(path, chosen, problem, outputs)
    judged = models.verdict_on(path, asked.tolerance)
    for verdict in judged.values():
        say("")
        verdicts.show_verdict(verdict)
    if problem is not None:
        fail(problem)
    code = verdicts.exit_code(judged, problem is None)
    if code:
        raise typer.Exit(code)


app.command("tolerance")(verdicts.tolerance)
app.command("cells")(tables.cells)


app.command("predict")(using.predict)
app.command("demo")(using.demo)
watching.register(app)


def main() -> Any:
    """Entry point of the command."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets a question mark, not a crash.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    return app()
