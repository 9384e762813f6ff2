"""What each command does between its options and its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import _files
from ._terminal import note, say, show_audit, show_path, show_set, show_table
from .criteria import CRITERIA
from .encoding import Column, encode, fit_columns
from .portable import from_fair_ridge, load_model
from .report.curves import clean, number, short_names
from .tabular import (
    Source,
    TableError,
    numbers,
    open_table,
    read_table,
    sorted_categories,
    write_table,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from .auditing import Audit, AuditSet
    from .frontier import FairnessPath

Vector = NDArray[np.float64]
OUTPUTS = ("report.html", "path.csv", "model.json")


@dataclass
class Rows:
    """Columns of a file that a command needs, by their role.

    Attributes
    ----------
    source : Source
    y, weight : (n,) arrays or None
    groups : pyarrow Table
        The sensitive columns.
    scores : dict of name → (n,) array
    target, sensitive : names
    dropped : int
        Rows left out because a number was missing.
    table : pyarrow Table or None
        The features, for training.
    """

    source: Source
    y: Vector | None
    weight: Vector | None
    groups: pa.Table
    target: str | None
    sensitive: list[str]
    scores: dict[str, Vector] = field(default_factory=dict)
    dropped: int = 0
    table: pa.Table | None = None
    columns: list[Column] = field(default_factory=list)
    X: Vector | None = None

    def source_facts(self) -> dict[str, Any]:
        """For the report."""
        facts: dict[str, Any] = {
            "File": f"{self.source.path.name} ({self.source.describe()})",
            "Target": clean(self.target) if self.target else "none",
        }
        if self.scores:
            facts["Prediction"] = ", ".join(short_names(list(self.scores), 60))
        if self.weight is not None:
            facts["Weights"] = "given"
        if self.dropped:
            facts["Rows left out"] = f"{self.dropped:,} for lack of a target, score or weight"
        return facts


def check_free(path: Path | None, force: bool) -> None:
    """Refuse before the work, not after it."""
    if path is not None:
        _files.check_free(path, force)


def check_folder(out: Path, force: bool) -> dict[str, Path]:
    """Paths of the outputs in a folder, which is made if need be."""
    if out.exists() and not out.is_dir():
        raise TableError(f"--out must be a folder, and {str(out)!r} is a file.")
    paths = {name: out / name for name in OUTPUTS}
    taken = [name for name, path in paths.items() if path.exists()]
    if taken and not force:
        raise TableError(
            f"{str(out)!r} already holds {', '.join(taken)}. Hint: choose another folder, or "
            "overwrite with --force."
        )
    out.mkdir(parents=True, exist_ok=True)
    if force:
        # A model of an earlier run must not stand beside the report of this one.
        paths["model.json"].unlink(missing_ok=True)
    return paths


def parse_limits(options: Sequence[str], has_target: bool) -> dict[str, float]:
    """``separation=0.05`` → {"separation": 0.05}."""
    limits: dict[str, float] = {}
    for text in options:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or name not in CRITERIA:
            raise TableError(
                f"--fail-above must be CRITERION=LIMIT with one of {', '.join(CRITERIA)}, got "
                f"{text!r}. Hint: --fail-above separation=0.05"
            )
        try:
            limits[name] = float(value)
        except ValueError:
            limits[name] = float("nan")
        if not 0 <= limits[name] <= 1:
            raise TableError(
                f"--fail-above must have a limit between 0 and 1, got {value!r} for {name}."
            )
        if CRITERIA[name].needs_target and not has_target:
            raise TableError(f"--fail-above {name} needs --target: it compares true outcomes.")
    return limits


def check_limits(
    found: Audit | AuditSet, limits: Mapping[str, float], judge_by: str
) -> list[dict[str, Any]]:
    """One entry per limit and audit."""
    checks = []
    for name, audit in _audits(found).items():
        for criterion, limit in limits.items():
            m = getattr(audit, criterion)
            judged = {"value": m.value, "lower": m.interval[0], "upper": m.interval[1]}[judge_by]
            checks.append(
                {
                    "audit": name,
                    "criterion": criterion,
                    "limit": limit,
                    "judged_by": judge_by,
                    "judged": judged,
                    "passed": bool(judged <= limit),
                }
            )
    return checks


def _audits(found: Audit | AuditSet) -> dict[str, Audit]:
    from .auditing import AuditSet

    return dict(found) if isinstance(found, AuditSet) else {"": found}


def load_scores(
    file: Path, predictions: Sequence[str], target: str | None, sensitive: Sequence[str],
    weight: str | None, separator: str | None, drop_missing: bool, key: str | None = None,
) -> Rows:  # fmt: skip
    """The columns an audit needs, and nothing else."""
    source = open_table(file, separator)
    roles = {"--target": target, "--weight": weight, "--id": key}
    wanted = [source.resolve(name, option) for option, name in roles.items() if name is not None]
    wanted += [source.resolve(name, "--prediction") for name in predictions]
    sensitive = list(dict.fromkeys(source.resolve(name, "--sensitive") for name in sensitive))
    table = read_table(source, [*wanted, *sensitive])
    return _rows(source, table, target, weight, predictions, sensitive, drop_missing)


def _rows(
    source: Source, table: pa.Table, target: str | None, weight: str | None,
    predictions: Sequence[str], sensitive: list[str], drop_missing: bool,
) -> Rows:  # fmt: skip
    used = {}
    if target is not None:
        used["target"] = (target, numbers(table, target, source.path, "target"))
    if weight is not None:
        used["weight"] = (weight, numbers(table, weight, source.path, "weight"))
    for name in predictions:
        used[f"prediction {name}"] = (name, numbers(table, name, source.path, "prediction"))
    absent = np.zeros(table.num_rows, dtype=bool)
    for what, (name, values) in used.items():
        gaps = np.isnan(values)
        if gaps.any() and not drop_missing:
            raise TableError(
                f"The {what.split()[0]}, column {clean(name)[:60]!r}, is missing in "
                f"{int(gaps.sum()):,} of {len(gaps):,} rows, the first being row "
                f"{int(gaps.argmax()) + 1}. Hint: leave these rows out with --drop-missing."
            )
        absent |= gaps
    for name in sensitive:
        if table.column(name).null_count == table.num_rows:
            raise TableError(
                f"--sensitive {clean(name)[:60]!r} has no values at all, so there are no groups."
            )
    keep = slice(None)
    if absent.any():
        if absent.all():
            raise TableError("No row is left once those with missing numbers are left out.")
        keep = ~absent  # type: ignore[assignment]
        table = table.filter(keep)
        note(f"{int(absent.sum()):,} rows without a target, score or weight are left out.")
    pick = {what: values[keep] for what, (_, values) in used.items()}
    return Rows(
        source, pick.get("target"), pick.get("weight"), sorted_categories(table.select(sensitive)), target, sensitive,
        {name: pick[f"prediction {name}"] for name in predictions}, int(absent.sum()), table,
    )  # fmt: skip


def run_audit(
    rows: Rows, prediction: str, each: bool, estimator: str, confidence: float, seed: int
) -> Any:
    """An Audit, or an AuditSet with `each`."""
    from .auditing import audit

    return audit(
        rows.y, rows.scores[prediction], sensitive_features=rows.groups,
        sample_weight=rows.weight, estimator=estimator, confidence_level=confidence,
        random_state=seed, per_attribute=each and len(rows.sensitive) > 1,
    )  # fmt: skip


def write_audit(found: Any, path: Path, facts: dict[str, Any], force: bool) -> None:
    """The HTML report of an audit or of several."""
    from .auditing import AuditSet
    from .report.html import audit_page, audit_set_page, write_page

    make = audit_set_page if isinstance(found, AuditSet) else audit_page
    write_page(make(found, source=facts), path, force)


def show_found(found: Any, title: str) -> None:
    """Print an audit, or several."""
    for name, audit in _audits(found).items():
        show_audit(audit, f"{title}, {name}" if name else title)
        say("")


def show_checks(checks: Sequence[Mapping[str, Any]]) -> None:
    """Print which limits are met."""
    for check in checks:
        sign = "✓ within" if check["passed"] else "✕ above"
        where = f" ({check['audit']})" if check["audit"] else ""
        say(
            f"{check['criterion']}{where}: {check['judged_by']} {check['judged']:.4f} {sign} the "
            f"limit {check['limit']:g}",
            "green" if check["passed"] else "bold red",
        )


def load_models(
    files: Sequence[Path], predictions: Sequence[str], target: str | None,
    sensitive: Sequence[str], weight: str | None, key: str | None, separator: str | None,
) -> tuple[Rows, dict[str, Vector]]:  # fmt: skip
    """Scores of each model on the rows of the first file."""
    if len(files) > 1 and len(predictions) > 1:
        raise TableError(
            "Give either several files with one --prediction column, or one file with several."
        )
    if len(files) * len(predictions) < 2:
        raise TableError(
            "There is one model only. Hint: give a second file, or a second --prediction column; "
            "for one model use 'evenhand audit'."
        )
    first = load_scores(files[0], predictions, target, sensitive, weight, separator, False, key)
    if len(files) == 1:
        return first, first.scores
    name = predictions[0]
    scores = {}
    for path, label in zip(files, _model_names(files), strict=True):
        if path == files[0]:
            scores[label] = first.scores[name]
        else:
            scores[label] = _matched(first, path, name, target, key, separator)
    first.scores = scores
    return first, scores


def _model_names(files: Sequence[Path]) -> tuple[str, ...]:
    names = [path.name.split(".")[0] or path.name for path in files]
    if len(set(names)) < len(names):
        names = [str(path) for path in files]
    return short_names(names, 60)


def _matched(
    first: Rows, path: Path, prediction: str, target: str | None, key: str | None,
    separator: str | None,
) -> Vector:  # fmt: skip
    """The scores of another file, in the order of the first one's rows."""
    source = open_table(path, separator)
    columns = [source.resolve(prediction, "--prediction")]
    columns += [source.resolve(key, "--id")] if key else []
    columns += [target] if target in source.names and target is not None else []
    table = read_table(source, columns)
    scores = numbers(table, prediction, path, "prediction")
    if np.isnan(scores).any():
        raise TableError(f"The prediction is missing in some rows of {str(path)!r}.")
    assert first.table is not None
    n = first.table.num_rows
    if key is not None:
        mine, theirs = (t.column(key).to_pylist() for t in (first.table, table))
        place = {value: row for row, value in enumerate(theirs)}
        if len(place) < len(theirs) or len(set(mine)) < len(mine):
            raise TableError(f"--id {key!r} must name each row once; some values are repeated.")
        absent = [value for value in mine if value not in place]
        if absent:
            raise TableError(
                f"{len(absent):,} rows of the first file are not in {str(path)!r}, such as {key} "
                f"{absent[0]!r}."
            )
        order = np.array([place[value] for value in mine])
    elif len(scores) != n:
        raise TableError(
            f"{str(path)!r} has {len(scores):,} rows and the first file {n:,}: they must be the "
            "same rows. Hint: match them by a column with --id."
        )
    else:
        order = np.arange(n)
    if target in table.column_names and first.y is not None and target is not None:
        theirs_y = numbers(table, target, path, "target")[order]
        if not np.allclose(theirs_y, first.y, rtol=1e-6, atol=0, equal_nan=True):
            raise TableError(
                f"The targets in {str(path)!r} are not those of the first file, so the rows "
                "differ. Hint: if only their order does, match them by a column with --id."
            )
    return scores[order]


def run_compare(
    rows: Rows, scores: Mapping[str, Vector], estimator: str, confidence: float, seed: int
) -> Any:
    """An AuditSet, one audit per model."""
    from .auditing import audit

    return audit(
        rows.y, dict(scores), sensitive_features=rows.groups, sample_weight=rows.weight,
        estimator=estimator, confidence_level=confidence, random_state=seed,
    )  # fmt: skip


def show_compare(found: AuditSet) -> None:
    """Measures side by side, then who gains and who loses."""
    from .report.sections import gains_of

    first = next(iter(found))
    show_set(found)
    for name in list(found)[1:]:
        table = gains_of(found[first], found[name])
        say(f"\nChange of scores from {first} to {name}:", "bold")
        rows = [
            [
                group,
                number(table["mean"][k], 3),
                f"{number(table['q05'][k], 3)} to {number(table['q95'][k], 3)}",
                f"{100 * table['gain'][k]:.0f}%",
                f"{100 * table['loss'][k]:.0f}%",
            ]
            for k, group in enumerate(short_names(table["group"], 40))
        ]
        show_table(["group", "mean change", "middle 90%", "rises", "falls"], rows)


def load_training(
    file: Path, target: str, sensitive: Sequence[str], weight: str | None, drop: Sequence[str],
    separator: str | None, drop_missing: bool,
) -> Rows:  # fmt: skip
    """Target, groups and every other column as a feature."""
    source = open_table(file, separator)
    source.resolve(target, "--target")
    if weight is not None:
        source.resolve(weight, "--weight")
    sensitive = list(dict.fromkeys(source.resolve(name, "--sensitive") for name in sensitive))
    if target in sensitive:
        raise TableError(f"--target and --sensitive both name {target!r}.")
    for name in drop:
        if name not in source.names:
            source.resolve(name, "--drop")
    features = [n for n in source.names if n not in {target, weight, *sensitive, *drop}]
    for name in features:
        if features.count(name) > 1:
            raise TableError(
                f"{str(file)!r} has {features.count(name)} columns named {clean(name)[:60]!r}. "
                "Hint: rename one of them, or leave them out with --drop."
            )
    if not features:
        raise TableError(f"{str(file)!r} has no column left to use as a feature.")
    table = read_table(source, [target, *sensitive, *([weight] if weight else []), *features])
    rows = _rows(source, table, target, weight, [], sensitive, drop_missing)
    assert rows.table is not None
    rows.columns = fit_columns(rows.table, features)
    rows.columns += [Column(n, "left out", reason="it is sensitive") for n in sensitive]
    rows.columns += [
        Column(n, "left out", reason="--drop says so") for n in dict.fromkeys(drop)
        if n not in (target, weight, *sensitive)
    ]  # fmt: skip
    rows.X, _ = encode(rows.table, rows.columns)
    if not rows.X.shape[1]:
        raise TableError(
            "No column can be used as a feature: "
            + " ".join(c.describe() for c in rows.columns[:5])
        )
    return rows


def run_path(
    rows: Rows, criterion: str, alpha: float, group_features: str | None, points: int,
    folds: int, confidence: float, seed: int,
) -> FairnessPath:  # fmt: skip
    """Held-out measures along the frontier."""
    from .frontier import fairness_path
    from .linear import FairRidge

    model = FairRidge(criterion, alpha=alpha, group_features=group_features)
    return fairness_path(
        model, rows.X, rows.y, sensitive_features=rows.groups, sample_weight=rows.weight,
        n_points=points, cv=folds, confidence_level=confidence, random_state=seed,
    )  # fmt: skip


def choose(path: FairnessPath, wanted: Mapping[str, Any]) -> tuple[Any, str | None]:
    """The fitted model of the request, or None and why there is none."""
    from .frontier import Unreachable

    if wanted["max_unfairness"] is None and wanted["min_r2"] is None:
        if wanted["certify"]:
            raise TableError("--certify needs --max-unfairness or --min-r2.")
        return None, None
    try:
        return path.select(**wanted), None
    except Unreachable as error:
        text = str(error).split(" Hint:")[0]
        return None, text + " Hint: relax the limit, or try --group-features posterior."


def write_path(path: FairnessPath, chosen: Any, rows: Rows, outputs: Mapping[str, Path]) -> None:
    """Report, CSV of the path and, if one was chosen, the model."""
    from .report.frontier_page import path_page
    from .report.markup import csv_text

    features = None if chosen is None else _features(path, chosen, rows)
    notes = [c.describe() for c in rows.columns]
    page = path_page(path, source=rows.source_facts(), features=features, notes=notes)
    if chosen is not None:
        model = from_fair_ridge(
            chosen, rows.columns, str(rows.target), rows.sensitive, _about(path, rows)
        )
        model.save(outputs["model.json"], force=True)
    _files.write_text(outputs["path.csv"], csv_text(path._columns()), force=True)
    _files.write_text(outputs["report.html"], page, force=True)


def _features(path: FairnessPath, chosen: Any, rows: Rows) -> dict[str, list[Any]]:
    from .report.plots import feature_information

    assert path._handle is not None
    assert path._data is not None
    assert rows.X is not None
    plain = path._handle.fit(0.0, path._data)
    names = [name for column in rows.columns for name in column.features]
    found = feature_information(
        rows.X, sensitive_features=rows.groups, sample_weight=rows.weight, names=names
    )
    spread = rows.X.std(axis=0)
    found["before"] = (plain.coef_ * spread).tolist()
    found["after"] = (chosen.coef_ * spread).tolist()
    return found


def _about(path: FairnessPath, rows: Rows) -> dict[str, Any]:
    from . import __version__

    point = path.selected
    assert point is not None
    return {
        "evenhand": __version__,
        "file": rows.source.path.name,
        "rows": path.n_rows,
        "criterion": path.criterion,
        "fairness_weight": point.fairness_weight,
        "held_out": {"r2": point.r2, **{name: point.measure(name).value for name in CRITERIA}},
    }


def show_frontier(
    path: FairnessPath, chosen: Any, problem: str | None, outputs: Mapping[str, Path]
) -> None:
    """The path, the choice and where things are."""
    show_path(path)
    if chosen is not None:
        point = path.selected
        assert point is not None
        m = point.measure(path.criterion)
        say(
            f"\nChosen: fairness weight {point.fairness_weight:.4g}, R² {point.r2:.4f} (without "
            f"fairness {path.points[0].r2:.4f}), {path.criterion} {m.value:.4f} "
            f"({m.interval[0]:.4f} to {m.interval[1]:.4f})",
            "bold",
        )
    elif problem is None:
        say("\nNo model was chosen. Hint: choose one with --max-unfairness or --min-r2.")
    for name, path_ in outputs.items():
        if name != "model.json" or chosen is not None:
            say(f"{name.split('.')[0].capitalize()}: {path_}")


def score_file(
    model_path: Path, file: Path, out: Path, column: str, separator: str | None, force: bool
) -> tuple[int, dict[str, int]]:
    """Copy a table with a column of scores added."""
    import pyarrow as pa

    model = load_model(model_path)
    source = open_table(file, separator)
    if column in source.names:
        raise TableError(
            f"{str(file)!r} has a column {column!r} already. Hint: name the scores with --column."
        )
    for name in model.needs:
        source.resolve(name, "The model")
    typed = read_table(source, model.needs)
    scores, unseen = model.predict(typed)
    if len(set(source.names)) < len(source.names):
        raise TableError(
            f"{str(file)!r} has columns of the same name, so not all of it could be copied. Hint: "
            "rename them."
        )
    # Copied as text, so that "007" and "1.50" come out as they went in.
    table = read_table(source, source.names, as_text=True)
    table = table.append_column(column, pa.array(scores))
    _files.write_file(out, lambda path: write_table(table, path), force)
    return len(scores), unseen


def run_demo(out: Path, force: bool) -> None:
    """Audit, frontier, choice and report on the grades of 4,137 students."""
    import pyarrow as pa

    from .auditing import audit
    from .datasets import load_gpa2

    outputs = check_folder(out, force)
    for name in ("students.csv", "scores.csv"):
        check_free(out / name, force)
    data = load_gpa2()
    students = pa.table(
        {
            **{n: pa.array(c) for n, c in zip(data.feature_names, data.X.T, strict=True)},
            data.target_name: pa.array(data.y),
            data.sensitive_name: pa.array(data.sensitive.tolist()),
        }
    )
    _files.write_file(out / "students.csv", lambda p: write_table(students, p), force)
    say("1. The data: grades of 4,137 college students, to be predicted from what was known when ")
    say("   they entered. Are the predictions fair to students of every race?\n")
    rows = load_training(out / "students.csv", "colgpa", ["race"], None, [], None, False)
    path = run_path(rows, "independence", 1e-3, None, 20, 5, 0.95, 0)
    first = path.points[0].scores
    say("2. Audit of an ordinary linear model, on students it has not seen:\n")
    before = audit(rows.y, first, sensitive_features=rows.groups, random_state=0)
    show_audit(before, "Ordinary model")  # type: ignore[arg-type]
    say("\n3. The frontier: what would it cost to make predictions independent of race?")
    chosen, problem = choose(path, {"max_unfairness": 0.005, "min_r2": None, "certify": False})
    write_path(path, chosen, rows, outputs)
    scores = students.select([data.target_name, data.sensitive_name])
    assert path.selected is not None, problem
    scores = scores.append_column("ordinary", pa.array(first))
    scores = scores.append_column("fair", pa.array(path.selected.scores))
    _files.write_file(out / "scores.csv", lambda p: write_table(scores, p), force)
    show_frontier(path, chosen, problem, {})
    say("\n4. Who gains and who loses with the chosen model:")
    both = audit(
        rows.y, {"ordinary": first, "fair": path.selected.scores},
        sensitive_features=rows.groups, random_state=0,
    )  # fmt: skip
    show_compare(both)  # type: ignore[arg-type]
    say(f"\nWritten to {out}: report.html, path.csv, model.json, students.csv, scores.csv.", "bold")
    say(f"Open {out / 'report.html'} in a browser. Next, try:\n")
    say(f"  evenhand audit {out / 'scores.csv'} --target colgpa --prediction fair --sensitive race")
    say(f"  evenhand predict {out / 'model.json'} {out / 'students.csv'} --out scored.csv")
