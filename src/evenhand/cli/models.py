"""The commands `frontier`, `alternatives`, `pack`, `predict` and `demo`."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from .._core import files as _files
from .._core.installing import install_hint
from .._core.provenance import stamp
from .._core.validation import InputError
from ..data.criteria import CRITERIA, INDEPENDENCE, WITH_CONTROLS
from ..report.view import View
from ..tables.readers import Source, TableError, is_text, open_table, read_table, write_table
from ..training.model_files import TableModel, load_table_model
from . import options as group
from .audits import judged, read_rules, show_verdict, with_dropped
from .options import option
from .rows import TableRows, load_models, load_scores, load_training
from .terminal import command, deliver, fail, leave, note, run_facts, say, show_result, show_view

if TYPE_CHECKING:
    import pyarrow as pa

    from ..training.path import FairnessPath


# ------------------------------------------------------------------------------------------------
# What --model can be.


# Slow and shallow, which needs no tuning on tables of any usual size.
TREES, RATE, DEPTH = 300, 0.05, 4
# Module, class and options of the regressors that a stack stands on.
_BASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "xgboost": ("xgboost", "XGBRegressor", {"n_jobs": 1}),
    "lightgbm": ("lightgbm", "LGBMRegressor", {"n_jobs": 1, "verbose": -1}),
    "hgb": ("sklearn.ensemble", "HistGradientBoostingRegressor", {"early_stopping": False}),
}


def _stack(name: str, criterion: str, options: Mapping[str, Any]) -> Any:
    """Boosted trees with a fair linear model on top."""
    from ..training.postprocess import FairPostprocessor

    module, kind, own = _BASES[name]
    try:
        make = getattr(import_module(module), kind)
    except ImportError:
        raise TableError(
            f"--model {name} needs the package {name}, which is not installed. Hint: "
            f"{install_hint('[boosting]')}, or --model hgb, which needs nothing more."
        ) from None
    trees = "max_iter" if name == "hgb" else "n_estimators"
    seed = options["seed"]
    base = make(learning_rate=RATE, max_depth=DEPTH, random_state=seed, **{trees: TREES}, **own)
    return FairPostprocessor(
        base, criterion, passthrough=True, group_features=options["group_features"],
        random_state=seed,
    )  # fmt: skip


def _linear(family: str, criterion: str, options: Mapping[str, Any]) -> Any:
    from ..training.glm import FairGLM
    from ..training.linear import FairRidge

    shared = {name: options[name] for name in ("alpha", "group_features")}
    if not family:
        return FairRidge(criterion, **shared)
    powers = {name: options[name] for name in ("power", "quantile")}
    return FairGLM(family, criterion, **shared, **powers)


_FAMILIES = ("normal", "poisson", "gamma", "inverse_gaussian", "tweedie", "binomial", "quantile")
# (criterion, options) → an estimator with a `fairness_weight`. Options are alpha, group_features,
# power, quantile and seed.
MODELS: dict[str, Callable[[str, Mapping[str, Any]], Any]] = {
    "ridge": partial(_linear, ""),
    **{f"glm-{family.replace('_', '-')}": partial(_linear, family) for family in _FAMILIES},
    **{name: partial(_stack, name) for name in _BASES},
}


class Fitting(group.Powered, group.Seeded):
    """Which models are fitted."""

    criterion: str = option(
        "The sense of fairness to train for; conditional needs --control.",
        choices=ChainMap(WITH_CONTROLS, CRITERIA),  # which users may add to
        default=INDEPENDENCE.name,
    )
    model: str = option(
        "The kind of model; xgboost, lightgbm and hgb are boosted trees with a fair linear model "
        "on top, which --alpha does not concern.",
        choices=MODELS,
        default="ridge",
    )
    quantile: float = option("Quantile to predict, for glm-quantile.", default=0.5)
    group_features: str = option(
        "Let the model treat groups differently where fairness asks for it: by their probability "
        "given the features, or by the attribute itself (then needed to predict).",
        choices=("none", "posterior", "attribute"),
        default="none",
    )
    alpha: float = option("Penalty on the coefficients.", default=1e-3)
    points: int = option("Models on the frontier.", default=20)
    folds: int = option("Folds for held-out measures.", default=5)
    confidence: float = option("Confidence level of all intervals.", default=0.95)

    def build(self) -> Any:
        """The estimator, unfitted."""
        kind = None if self.group_features == "none" else self.group_features
        return MODELS[self.model](self.criterion, {**asdict(self), "group_features": kind})


class Request(group.Group):
    """Which model of the frontier is chosen."""

    max_unfairness: float | None = option("Choose the most accurate model below this.", "-m")
    min_accuracy: float | None = option(
        "Choose the fairest model of at least this R² (D², for models of a deviance)."
    )
    certify: bool = option("Make the limit hold on new people; else many exceed it.", default=False)

    @property
    def given(self) -> bool:
        return self.max_unfairness is not None or self.min_accuracy is not None

    def check(self) -> None:
        """Refuse a request that makes no sense before the work, not after it."""
        from ..training.path import check_request

        if self.given:
            check_request(self.max_unfairness, self.min_accuracy, "raise")
        if self.certify and not self.given:
            raise TableError("--certify needs --max-unfairness or --min-accuracy.")


OUTPUTS = ("report.html", "path.csv", "model.json")


def check_folder(
    out: Path, force: bool, names: Sequence[str] = OUTPUTS, argument: str = "--out"
) -> dict[str, Path]:
    """Paths of the outputs in a folder, which need not exist yet."""
    if out.exists() and not out.is_dir():
        raise TableError(f"{argument} must be a folder, and {str(out)!r} is a file.")
    paths = {name: out / name for name in names}
    taken = [name for name, path in paths.items() if _files.check_regular(path)]
    if taken and not force:
        raise TableError(
            f"{str(out)!r} already holds {', '.join(taken)}. Hint: choose another folder, or "
            "overwrite with --force."
        )
    return paths


class Folder(group.Writing):
    """Where results go."""

    out: Path = option(
        "Folder for report.html, path.csv and model.json.", "-o", default=group.REQUIRED
    )


@command
def frontier(
    file: group.OneFile, columns: group.TrainingColumns, fitting: Fitting, request: Request,
    about: group.About, writing: Folder, tolerated: group.Tolerated,
) -> None:  # fmt: skip
    """Fit models from no fairness term to as fair as possible, and choose one.

    Every other column is a feature, except the sensitive ones and the cluster. Text becomes one
    column per level. All numbers are measured on rows the models were not fitted to.

    For example: evenhand frontier train.csv --target y --sensitive race --criterion separation
    --max-unfairness 0.01 --certify --out fair/

    Then: evenhand predict fair/model.json new.csv --out scored.csv

    For claims: evenhand frontier policies.csv --model glm-poisson --target claims --exposure years
    --sensitive sex --max-unfairness 0.01 --certify --out fair/

    With boosted trees: evenhand frontier train.csv --model xgboost --target y --sensitive race
    --group-features posterior --out fair/
    """
    from ..auditing.figures import audits_of

    outputs = check_folder(writing.out, writing.force)
    request.check()
    rules = read_rules(group.Judging(**asdict(tolerated)), has_target=True)
    estimator = fitting.build()
    data = load_training(file, columns)
    writing.out.mkdir(parents=True, exist_ok=True)
    path = run_path(data, estimator, fitting)
    chosen, problem = choose(path, request)
    write_path(
        path, chosen, data, outputs, run_facts(fitting.seed, tolerated.tolerance),
        about=asdict(about), tolerance=rules.rule, favorable=rules.favorable,
    )  # fmt: skip
    show_frontier(path, chosen, problem, outputs)
    outcomes = ["pass" if problem is None else "fail"]
    if rules.rule is not None and path.selected is not None:
        (audit,) = audits_of(path, [path.selected])
        verdict = audit.verdict(rules.rule)
        outcomes.append(verdict.outcome)
        say("")
        show_verdict(verdict)
    if problem is not None:
        fail(problem)
    leave(*outcomes)


def run_path(rows: TableRows, model: Any, fitting: Fitting) -> FairnessPath:
    """Held-out measures along the frontier."""
    from ..training.frontier import fairness_path

    return fairness_path(
        model, rows.X, rows.y, **rows.given, given=rows.numbers.get("given"),
        n_points=fitting.points, cv=fitting.folds, confidence_level=fitting.confidence,
        random_state=fitting.seed,
    )  # fmt: skip


def choose(path: FairnessPath, request: Request) -> tuple[Any, str | None]:
    """The fitted model of the request, or None and why there is none."""
    from ..training.path import Unreachable

    if not request.given:
        return None, None
    try:
        return path.select(**asdict(request)), None
    except Unreachable as error:
        text = str(error).split(" Hint:")[0]
        return None, text + " Hint: relax the limit, or try --group-features posterior."


def write_path(
    path: FairnessPath, chosen: Any, rows: TableRows, outputs: Mapping[str, Path],
    more: Mapping[str, Any], **asked: Any,
) -> None:  # fmt: skip
    """Report, CSV of the path and, if one was chosen, the model.

    `more` are facts for the report, `asked` who asks, the tolerance and the favorable side.
    """
    from ..report.markup import csv_text
    from ..report.path_views import path_page

    notes = [c.describe() for c in rows.features]
    page = path_page(path, source={**rows.source_facts(), **more}, notes=notes, **asked)
    if chosen is None:
        # A model of an earlier run must not stand beside the report of this one.
        outputs["model.json"].unlink(missing_ok=True)
    else:
        model = TableModel(
            chosen, tuple(rows.features), str(rows.named.target), tuple(rows.sensitive),
            tuple(rows.bands), tuple(rows.bands.values()),
        )  # fmt: skip
        try:
            model.save(outputs["model.json"], force=True, about=_about(path, rows))
        except InputError as error:  # a loss or a model of the user's own, which is code
            outputs["model.json"].unlink(missing_ok=True)
            note(f"No model.json: {error}")
    _files.write_text(outputs["path.csv"], csv_text(path._columns()), force=True)
    _files.write_text(outputs["report.html"], page, force=True)


def _about(path: FairnessPath, rows: TableRows) -> dict[str, Any]:
    point, request = path.selected, path.request
    assert point is not None
    assert request is not None
    measures = {name: m.value for name, m in point.measures.items()}
    return {
        **stamp(), "file": rows.files[0], "rows": path.n_rows, "criterion": path.criterion,
        "asked": request.to_dict(), "fairness_weight": point.fairness_weight,
        "held_out": {path.accuracy.key: point.accuracy, **measures},
    }  # fmt: skip


def show_frontier(
    path: FairnessPath, chosen: Any, problem: str | None, outputs: Mapping[str, Path]
) -> None:
    """The path, the choice and where things are."""
    show_result(path)
    if chosen is not None:
        point = path.selected
        assert point is not None
        m = point.measure(path.criterion)
        say(
            f"\nChosen: fairness weight {point.fairness_weight:.4g}, {path.accuracy.symbol} "
            f"{point.accuracy:.4f} (without fairness {path.points[0].accuracy:.4f}), "
            f"{path.criterion} {m.shown:.4f} ({m.interval[0]:.4f} to {m.interval[1]:.4f})",
            "bold",
        )
        assert path.request is not None
        say(f"Asked for: {path.request.limits()}, {path.request.judge()}")
    elif problem is None:
        say("\nNo model was chosen. Hint: choose one with --max-unfairness or --min-accuracy.")
    for name, path_ in outputs.items():
        if name != "model.json" or path_.exists():
            say(f"{name.split('.')[0].capitalize()}: {path_}")


@command
def alternatives(
    file: group.OneFile, columns: group.ModelColumns, limits: group.Limits,
    pricing: group.Pricing, about: group.About, measuring: group.Measuring, output: group.Output,
) -> None:  # fmt: skip
    """Write down a search for less discriminatory alternatives: which model is chosen, and why.

    Candidates are scores on the same rows, which their models should not have been fitted to. With
    --limit the most accurate is chosen that meets both limits, without it the fairest above
    --floor. Exit code 1: no candidate meets them.

    For example: evenhand alternatives scores.csv --target y --sensitive race --prediction current
    --prediction fairer --floor 0.3 --limit 0.02 --html record.html
    """
    if columns.control:
        raise TableError("--control must be left out: alternatives are compared without controls.")
    rows = load_models(file, columns)
    result = rows.alternatives(measuring, pricing, limits)
    facts = {**rows.source_facts(), **run_facts(measuring.seed)}
    deliver(result, output, about=asdict(about), source=facts)
    leave("pass" if result.met else "fail")


@command
def pack(
    folder: Annotated[Path, typer.Argument(help="Folder for the documents.")],
    file: group.OneFile, columns: group.ModelColumns, pricing: group.Pricing,
    tolerated: group.Tolerated, limits: group.Limits, about: group.About,
    measuring: group.Measuring, writing: group.Writing,
) -> None:  # fmt: skip
    """Lay an audit out under the headings that supervisors ask for, as Markdown.

    EIOPA's documentation annex, Annex IV of the EU AI Act, the NAIC exhibits, and a model card.
    What a person has to write is marked "To be written". The first --prediction is the score that
    is documented; others are alternatives to it, and need --floor or --limit.

    For example: evenhand pack evidence/ scores.csv -y y -s current -s fairer -a race --tolerance
    limits.toml --limit 0.02
    """
    from ..report.pack import PACK, write_pack

    check_folder(folder, writing.force, PACK, "FOLDER")
    rules = read_rules(group.Judging(**asdict(tolerated)), columns.target is not None)
    rows = load_scores(file, columns)
    audit = rows.audit(rows.scores[columns.prediction[0]], measuring, pricing)
    results = {"audit": audit}
    verdict = judged(with_dropped({"": audit}, rows.dropped), rules, rows.dropped).get("")
    if verdict is not None:
        results["verdict"] = verdict
        show_verdict(verdict)
    if rules.favorable is not None:
        results["impact"] = audit.impact(rules.reference, rules.cutoffs, rules.favorable)
    if len(rows.scores) > 1:
        results["alternatives"] = rows.alternatives(measuring, pricing, limits)
    facts = {**rows.source_facts(), **run_facts(measuring.seed, rules.tolerance)}
    written = write_pack(folder, results, about=asdict(about), source=facts, force=writing.force)
    for path, count in written.items():
        say(f"{path}: {count} passages to be written")
    leave(*([] if verdict is None else [verdict.outcome]))


class Scored(group.Writing):
    """The table of scores."""

    out: Path = option(
        "Table to write: .csv, .tsv, .parquet, .feather.", "-o", default=group.REQUIRED
    )
    column: str = option("Name of the column with the scores.", default="prediction")
    separator: str | None = option(group.SEPARATOR)


@command
def predict(
    model: Annotated[Path, typer.Argument(help="model.json, or the folder that holds it.")],
    file: Annotated[Path, typer.Argument(help="Rows to score: CSV, TSV, Parquet or Feather.")],
    scored: Scored,
) -> None:
    """Score new rows with a model that 'evenhand frontier' chose.

    All columns of the file are copied unchanged and the score is added, with the separator, the
    decimal point and the encoding of the file.

    For example: evenhand predict fair/model.json new.csv --out scored.csv
    """
    import pyarrow as pa

    scored.check_free(scored.out)
    fitted = load_table_model(model)
    source, column = open_table(file, scored.separator), scored.column
    if column in source.names:
        raise TableError(
            f"{str(file)!r} has a column {column!r} already. Hint: name the scores with --column."
        )
    for name in fitted.needs:
        source.resolve(name, "The model")
    typed = read_table(source, fitted.needs, text=fitted.text)
    with np.errstate(all="ignore"):
        scores, unseen = fitted.score_table(typed)
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise TableError(
            f"The model gives row {row + 1} of {str(file)!r} no finite score. Hint: look for "
            "values far from those it was fitted to; if there are none, the model is damaged."
        )
    if len(set(source.names)) < len(source.names):
        raise TableError(
            f"{str(file)!r} has columns of the same name, so not all of it could be copied. Hint: "
            "rename them."
        )
    # Text is copied as text, so that "007" and "1.50" come out as they went in.
    table = read_table(source, source.names, as_text=is_text(scored.out))
    table = table.append_column(column, pa.array(scores))
    _save(table, scored.out, scored.force, source)
    for name, count in unseen.items():
        note(
            f"{count:,} rows have a value of {name!r} that was not there in training; they are "
            "scored like its most frequent one."
        )
    say(f"{len(scores):,} rows scored: {scored.out}")


def _save(table: pa.Table, path: Path, force: bool, like: Source | None = None) -> None:
    _files.write_file(path, lambda temporary: write_table(table, temporary, like), force)


class DemoFolder(group.Writing):
    """Where the demo writes."""

    out: Path = option("Folder to write to.", "-o", default=Path("evenhand-demo"))


_DEMO = {
    "title": "Grades of 4,137 students: the price of fairness",
    "purpose": "a demonstration: grades in college, from what was known at entry",
    "model_name": "fair linear regression",
}


@command
def demo(writing: DemoFolder) -> None:
    """Tell the whole story on the grades of 4,137 students, and write a report of it."""
    import pyarrow as pa

    from ..auditing.audits import audit
    from ..datasets import load_gpa2

    out, force = writing.out, writing.force
    outputs = check_folder(out, force, (*OUTPUTS, "students.csv", "scores.csv"))
    data = load_gpa2()
    out.mkdir(parents=True, exist_ok=True)
    columns = {name: pa.array(c) for name, c in zip(data.feature_names, data.X.T, strict=True)}
    known = {data.target_name: pa.array(data.y), data.sensitive_name: data.sensitive.tolist()}
    _save(pa.table(columns | known), out / "students.csv", force)
    say("1. The question: are a model's predictions of 4,137 grades fair to every race?\n")
    roles = group.TrainingColumns(target="colgpa", sensitive=["race"])
    rows = load_training(out / "students.csv", roles)
    # Enough for the picture, at half the time of 20 models.
    fitting = Fitting(points=10)
    path = run_path(rows, fitting.build(), fitting)
    first = path.points[0]
    limit = float(f"{0.5 * max(first.measure('independence').value, 0.0):.1g}")
    chosen = path.select(max_unfairness=limit, on_unreachable="best")
    assert path.selected is not None
    write_path(path, chosen, rows, outputs, run_facts(fitting.seed), about=_DEMO, favorable="high")
    models = {"ordinary": first.scores, "fair": path.selected.scores}
    _save(pa.table(known | models), out / "scores.csv", force)
    for view in _tell(audit(rows.y, first.scores, **rows.given, random_state=0), path, limit):
        show_view(view)
        say("")
    say(f"6. The page to open in a browser, to print or to sign: {out / 'report.html'}", "bold")
    say("   In the same folder: path.csv, model.json, students.csv, scores.csv.\n   Next, try:\n")
    say(f"  evenhand audit {out / 'scores.csv'} -y colgpa -s fair -a race")
    say(f"  evenhand predict {out} {out / 'students.csv'} -o scored.csv")


def _tell(before: Any, path: FairnessPath, limit: float) -> list[View]:
    """Return the story of the demo: what was found, for whom, at what price, and what got worse."""
    from ..auditing.figures import audits_of, criterion_changes, residual_changes
    from ..report.audit_views import gains_view
    from ..report.gap_views import money_sentences
    from ..report.path_views import worse_words
    from ..report.words import judge_criterion

    first, point = path.points[0], path.selected
    assert point is not None
    (after,) = audits_of(path, [point])
    at_first, at_last = (each.measure("independence").shown for each in (first, point))
    cost = (
        f"We ask for the most accurate model with independence of at most {limit:g}, out of "
        f"{len(path)}. It explains {100 * point.accuracy:.1f}% of the variance of the grades on "
        f"students it has not seen, where the ordinary model explains {100 * first.accuracy:.1f}%. "
        f"Independence goes from {at_first:.3f} to {at_last:.3f}. On other students a model "
        "chosen like this may well exceed its limit a little. With certify=True (on the command "
        "line --certify) it hardly ever does, at a price in accuracy."
    )
    worse = worse_words(criterion_changes(before, after), residual_changes(before, after))
    gains = gains_view({"ordinary": before, "fair": after}, "high")
    return [
        View(
            "2. What the audit found", *(judge_criterion(before, name) for name in before.measures)
        ),
        View("3. What it means for people", *money_sentences(before, "high")),
        View("4. What fairness costs", cost),
        View("5. What got worse, and who gains", worse, *gains.parts),
    ]
