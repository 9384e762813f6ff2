"""Files → the columns a command needs, by their role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Vector
from .._core.provenance import file_facts, last_changed, stamp
from ..data.bands import Bands, Continuous
from ..data.encoding import Column, encode, fit_columns
from ..data.groups import Proxy
from ..data.sample import repeat_rows
from ..report.words import clean, short_names
from ..tables.readers import Source, TableError, open_table, read_table
from .columns import Edges, check_levels, cut, numbers, parse_bands, plain_text
from .options import Columns, Measuring, Pricing
from .terminal import note

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class TableRows:
    """Columns of a file that a command needs, by their role.

    Attributes
    ----------
    source : Source
    named : Columns
        The options that name them.
    table : pyarrow Table
        All columns that were read.
    groups : pyarrow Table
        The sensitive columns, or a probability for each group in place of labels.
    numbers : dict of role → (n,) array
        Of "target", "weight", "frequency", "exposure" and "given", those that are named.
    scores : dict of name → (n,) array
    cluster : (n,) array of labels or None
    bands : dict of name → Bands
        Of the sensitive columns that are cut.
    dropped : int
        Rows left out because a number was missing.
    others : list of Path
        Further files that scores were read from.
    features : list of Column
        For training, with their matrix X.
    """

    source: Source
    named: Columns
    table: pa.Table
    groups: pa.Table
    numbers: dict[str, Vector]
    scores: dict[str, Vector] = field(default_factory=dict)
    cluster: NDArray[np.object_] | None = None
    bands: dict[str, Bands] = field(default_factory=dict)
    dropped: int = 0
    others: list[Path] = field(default_factory=list)
    features: list[Column] = field(default_factory=list)
    X: Vector | None = None

    @property
    def y(self) -> Vector | None:
        return self.numbers.get("target")

    @property
    def weight(self) -> Vector | None:
        return self.numbers.get("weight")

    @property
    def frequency(self) -> Vector | None:
        return self.numbers.get("frequency")

    @property
    def sensitive(self) -> list[str]:
        return self.groups.column_names

    @property
    def who(self) -> Any:
        """The groups or the measurement, as audits and models take them."""
        if self.named.continuous:
            return Continuous(self.groups.column(0), self.groups.column_names[0])
        return Proxy(self.groups) if self.named.probability else self.groups

    @property
    def controls(self) -> pa.Table | None:
        """The legitimate factors; None where none are named."""
        names = list(dict.fromkeys(self.named.control))
        return self.table.select(names) if names else None

    def audit(self, scores: Any, measuring: Measuring, pricing: Pricing, **more: Any) -> Any:
        """An audit of one score, or of several by name."""
        from ..auditing.audits import audit

        return audit(
            self.y, scores, sensitive_features=self.who, sample_weight=self.weight,
            frequency=self.frequency, cluster=self.cluster, controls=self.controls,
            exposure=self.numbers.get("exposure"), loss=pricing.loss, power=pricing.power,
            estimator=measuring.estimator, confidence_level=measuring.confidence,
            random_state=measuring.seed, **more,
        )  # fmt: skip

    @property
    def paths(self) -> list[Path]:
        return [self.source.path, *self.others]

    @cached_property
    def files(self) -> list[dict[str, Any]]:
        """Name, size and hash of every file that was read."""
        return [file_facts(path) for path in self.paths]

    def provenance(self) -> dict[str, Any]:
        """For JSON: version, time and files."""
        return {**stamp(), "files": self.files}

    def source_facts(self) -> dict[str, Any]:
        """For the report."""
        facts: dict[str, Any] = {
            "File": f"{self.source.path.name} ({self.source.describe()})",
            **{
                f"SHA-256 of {clean(f['name'])[:60]}": f["sha256"]
                for f in self.files
                if f["sha256"]
            },
            **{
                f"{clean(path.name)[:60]} last changed": f"{changed:%Y-%m-%d %H:%M UTC}"
                for path in self.paths
                if (changed := last_changed(path)) is not None
            },
            "Target": clean(self.named.target) if self.named.target else "none",
        }
        if self.scores:
            facts["Prediction"] = ", ".join(short_names(list(self.scores), 60))
        if self.weight is not None:
            facts["Weights"] = "given"
        if self.frequency is not None:
            facts["Frequencies"] = "given"
        if "exposure" in self.numbers:
            facts["Exposure"] = "given; the target is a total over it, the score a rate"
        if self.controls is not None:
            facts["Controls"] = ", ".join(short_names(self.controls.column_names, 60))
        if self.named.probability:
            facts["Groups"] = "imputed: " + ", ".join(short_names(self.sensitive, 60))
        if self.named.continuous:
            facts["Attribute"] = f"{clean(self.sensitive[0])[:60]}, as a measurement"
        for name, found in self.bands.items():
            facts[f"Bands of {clean(name)[:60]}"] = "; ".join(found.labels)
        if self.dropped:
            missing = "target, score, weight, frequency or cluster"
            facts["Rows left out"] = f"{self.dropped:,} for lack of a {missing}"
        return facts


def load_scores(file: Path, columns: Columns) -> TableRows:
    """Scores, target, groups and whatever else is named; `--drop-missing` leaves out gaps."""
    return _without_gaps(_read_scores(file, columns))


def _read_scores(file: Path, columns: Columns) -> TableRows:
    bands = parse_bands(columns)
    source = open_table(file, columns.separator)
    numbers = _resolve(source, columns)
    numbers += [source.resolve(name, "--prediction") for name in columns.predictions]
    imputed = list(dict.fromkeys(source.resolve(n, "--probability") for n in columns.probability))
    numbers += imputed
    key = [source.resolve(columns.key, "--id")] if columns.key is not None else []
    labels = list(dict.fromkeys([*columns.sensitive, *_cluster(columns)]))
    # Groups named 1 and 01 are two, unless the column is also read for its numbers.
    text = [name for name in labels if name not in (*numbers, *key) and name not in bands]
    table = read_table(source, [*numbers, *key, *labels, *columns.control], text=text)
    rows = _rows(source, table, columns, bands)
    return _with_probabilities(rows, imputed) if imputed else rows


def _cluster(columns: Columns) -> list[str]:
    return [] if columns.cluster is None else [columns.cluster]


def _resolve(source: Source, columns: Columns) -> list[str]:
    """The columns of numbers; all that are named are checked to be there."""
    for role, name in columns.numbers.items():
        source.resolve(name, f"--{role}")
    for name in columns.sensitive:
        source.resolve(name, "--sensitive")
    for name in _cluster(columns):
        source.resolve(name, "--cluster")
    for name in columns.control:
        source.resolve(name, "--control")
    return list(columns.numbers.values())


def _with_probabilities(rows: TableRows, names: list[str]) -> TableRows:
    """A column of numbers for each group; gaps stay, and mean that the group is not known."""
    import pyarrow as pa

    if len(names) < 2:
        raise TableError(
            "--probability must be given once for each group, at least twice. Hint: for two groups "
            "give a column of each."
        )
    path = rows.source.path
    columns = {name: numbers(rows.table, name, path, "probability") for name in names}
    return replace(rows, groups=pa.table(columns))


def _rows(
    source: Source, table: pa.Table, columns: Columns, bands: Mapping[str, Edges]
) -> TableRows:
    sensitive = list(dict.fromkeys(columns.sensitive))
    used = {role: numbers(table, name, source.path, role) for role, name in columns.numbers.items()}
    scores = {name: numbers(table, name, source.path, "prediction") for name in columns.predictions}
    clusters = None
    if columns.cluster is not None:
        clusters = np.array(table.column(columns.cluster).to_pylist(), dtype=object)
    rows = TableRows(source, columns, table, table.select(sensitive), used, scores, clusters)
    if not columns.drop_missing:
        _refuse_gaps(rows)
    for name in sensitive:
        if table.column(name).null_count == table.num_rows:
            raise TableError(
                f"--sensitive {clean(name)[:60]!r} has no values at all, so there are no groups."
            )
    groups, rows.bands = cut(rows.groups, bands)
    continuous = [name for name, edges in bands.items() if edges is None]
    check_levels(groups.drop_columns(continuous), as_written=source.kind == "csv")
    rows.groups = plain_text(groups, keep=[*rows.bands, *continuous])
    return rows


def _gaps(rows: TableRows) -> dict[tuple[str, str], NDArray[np.bool_]]:
    """(role, column) → rows in which it is missing."""
    gaps = {(role, rows.named.numbers[role]): np.isnan(v) for role, v in rows.numbers.items()}
    gaps |= {("prediction", name): np.isnan(values) for name, values in rows.scores.items()}
    if rows.cluster is not None:
        blank = [label is None for label in rows.cluster]
        gaps["cluster", str(rows.named.cluster)] = np.array(blank, dtype=bool)
    return gaps


def _refuse_gaps(rows: TableRows) -> None:
    for (role, name), gaps in _gaps(rows).items():
        if gaps.any():
            raise TableError(
                f"The {role}, column {clean(name)[:60]!r}, is missing in {int(gaps.sum()):,} of "
                f"{len(gaps):,} rows, the first being row {int(gaps.argmax()) + 1}. Hint: leave "
                "these rows out with --drop-missing."
            )


def _without_gaps(rows: TableRows) -> TableRows:
    """Only the rows where no number is missing, with a note if that is not all of them."""
    missing = list(_gaps(rows).values())
    absent = np.any(missing, axis=0) if missing else np.zeros(1, dtype=bool)
    if not absent.any():
        return rows
    if absent.all():
        raise TableError("No row is left once those with missing numbers are left out.")
    also = "".join(f"{role}, " for role in ("exposure", "given") if role in rows.numbers)
    note(
        f"{int(absent.sum()):,} rows without a target, score, weight, {also}frequency or cluster "
        "are left out."
    )
    keep = ~absent
    return replace(
        rows,
        numbers={role: values[keep] for role, values in rows.numbers.items()},
        groups=rows.groups.filter(keep),
        scores={name: values[keep] for name, values in rows.scores.items()},
        dropped=int(absent.sum()),
        cluster=None if rows.cluster is None else rows.cluster[keep],
        table=rows.table.filter(keep),
    )


def _repeated(rows: TableRows) -> TableRows:
    """Each row as often as its frequency says."""
    if rows.frequency is None:
        return rows
    others = {role: values for role, values in rows.numbers.items() if role != "frequency"}
    groups, cluster, table, *more = repeat_rows(
        rows.frequency, groups=rows.groups, cluster=rows.cluster, table=rows.table, **others
    )
    numbers = {**rows.numbers, **dict(zip(others, more, strict=True))}
    return replace(rows, groups=groups, cluster=cluster, table=table, numbers=numbers)


def load_models(files: Sequence[Path], columns: Columns) -> TableRows:
    """Scores of each model on the rows of the first file."""
    predictions = columns.predictions
    if len(files) > 1 and len(predictions) > 1:
        raise TableError(
            "Give either several files with one --prediction column, or one file with several."
        )
    if len(files) * len(predictions) < 2:
        raise TableError(
            "There is one model only. Hint: give a second file, or a second --prediction column; "
            "for one model use 'evenhand audit'."
        )
    _check_distinct([str(path) for path in files], [str(path.resolve()) for path in files])
    _check_distinct([f"--prediction {clean(name)[:60]}" for name in predictions], predictions)
    first = _read_scores(files[0], columns)
    if len(files) > 1:
        names = _model_names(files)
        scores = {names[0]: first.scores[predictions[0]]}
        scores |= {
            name: _matched(first, path) for path, name in zip(files[1:], names[1:], strict=True)
        }
        first = replace(first, scores=scores, others=list(files[1:]))
    return _without_gaps(first)


def _check_distinct(shown: Sequence[str], names: Sequence[str]) -> None:
    for k, name in enumerate(names):
        if name in names[:k]:
            raise TableError(
                f"{shown[k]!r} is given twice, so that a model would be compared with itself. Hint:"
                " give each model once; for one model use 'evenhand audit'."
            )


def _model_names(files: Sequence[Path]) -> tuple[str, ...]:
    names = [path.name.split(".")[0] or path.name for path in files]
    if len(set(names)) < len(names):
        names = [str(path) for path in files]
    return short_names(names, 60)


def _matched(first: TableRows, path: Path) -> Vector:
    """The scores of another file, in the order of the first one's rows."""
    named = first.named
    prediction, target, key = named.predictions[0], named.target, named.key
    source = open_table(path, named.separator)
    columns = [source.resolve(prediction, "--prediction")]
    columns += [source.resolve(key, "--id")] if key else []
    columns += [target] if target in source.names and target is not None else []
    table = read_table(source, columns)
    scores = numbers(table, prediction, path, "prediction")
    gaps = np.isnan(scores)
    if gaps.any() and not named.drop_missing:
        raise TableError(
            f"The prediction is missing in {int(gaps.sum()):,} of {len(gaps):,} rows of "
            f"{str(path)!r}. Hint: leave these rows out with --drop-missing."
        )
    n = first.table.num_rows
    if key is None and len(scores) != n:
        raise TableError(
            f"{str(path)!r} has {len(scores):,} rows and the first file {n:,}: they must be the "
            "same rows. Hint: match them by a column with --id."
        )
    order = np.arange(n) if key is None else _order(first.table, table, key, path)
    if target in table.column_names and first.y is not None and target is not None:
        theirs = numbers(table, target, path, "target")[order]
        if not np.allclose(theirs, first.y, rtol=1e-6, atol=0, equal_nan=True):
            raise TableError(
                f"The targets in {str(path)!r} are not those of the first file, so the rows "
                "differ. Hint: if only their order does, match them by a column with --id."
            )
    return scores[order]


def _order(first: pa.Table, other: pa.Table, key: str, path: Path) -> NDArray[np.intp]:
    """Where the rows of the first file are in another one."""
    mine, theirs = (table.column(key).to_pylist() for table in (first, other))
    place = {value: row for row, value in enumerate(theirs)}
    if len(place) < len(theirs) or len(set(mine)) < len(mine):
        raise TableError(f"--id {key!r} must name each row once; some values are repeated.")
    absent = [value for value in mine if value not in place]
    if absent:
        raise TableError(
            f"{len(absent):,} rows of the first file are not in {str(path)!r}, such as {key} "
            f"{absent[0]!r}."
        )
    return np.array([place[value] for value in mine])


def load_training(file: Path, columns: Columns) -> TableRows:
    """Target, groups and every other column as a feature."""
    bands = parse_bands(columns)
    source = open_table(file, columns.separator)
    others = _resolve(source, columns)
    if columns.target in columns.sensitive:
        raise TableError(f"--target and --sensitive both name {columns.target!r}.")
    for name in columns.drop:
        if name not in source.names:
            source.resolve(name, "--drop")
    cluster = _cluster(columns)
    features = _feature_names(source, [*others, *columns.sensitive, *cluster, *columns.drop])
    wanted = [*others, *columns.sensitive, *cluster, *features, *columns.control]
    text = [name for name in cluster if name not in (*others, *columns.sensitive)]
    rows = _rows(source, read_table(source, wanted, text=text), columns, bands)
    rows = _repeated(_without_gaps(rows))
    why = dict.fromkeys(columns.drop, "--drop says so")
    why |= dict.fromkeys(cluster, "--cluster names it")
    why |= dict.fromkeys(columns.sensitive, "it is sensitive")
    rows.features = fit_columns(rows.table, features)
    rows.features += [
        Column(name, "left out", reason=why[name])
        for name in dict.fromkeys([*columns.sensitive, *cluster, *columns.drop])
        if name not in others
    ]
    rows.X, _ = encode(rows.table, rows.features)
    if not rows.X.shape[1]:
        raise TableError(
            "No column can be used as a feature: "
            + " ".join(c.describe() for c in rows.features[:5])
        )
    return rows


def _feature_names(source: Source, taken: Sequence[str]) -> list[str]:
    features = [name for name in source.names if name not in taken]
    for name in features:
        if features.count(name) > 1:
            raise TableError(
                f"{str(source.path)!r} has {features.count(name)} columns named "
                f"{clean(name)[:60]!r}. Hint: rename one of them, or leave them out with --drop."
            )
    if not features:
        raise TableError(f"{str(source.path)!r} has no column left to use as a feature.")
    return features
