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
from ..data.bands import Bands
from ..data.continuous import Continuous
from ..data.encoding import Column, encode, fit_columns
from ..data.groups import Proxy
from ..data.sample import repeat_rows
from ..report.formats import clean, short_names
from ..tables.readers import Source, TableError, open_table, read_table
from .columns import Edges, check_levels, cut, numbers, plain_text
from .terminal import note

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class TableRows:
    """Columns of a file that a command needs, by their role.

    Attributes
    ----------
    source : Source
    y, weight, frequency : (n,) arrays or None
    groups : pyarrow Table
        The sensitive columns.
    scores : dict of name → (n,) array
    target, sensitive : names
    cluster : (n,) array of labels or None
    dropped : int
        Rows left out because a number was missing.
    bands : dict of name → Bands
        Of the sensitive columns that are cut.
    others : list of Path
        Further files that scores were read from.
    table : pyarrow Table or None
        The features, for training.
    more : dict of role → (n,) array
        Further columns of numbers that a model takes, such as "exposure".
    controls : list of names
        Columns of `table` that are legitimate factors.
    imputed : bool
        Whether `groups` holds a probability for each group in place of labels.
    continuous : bool
        Whether the one sensitive column is a measurement that is not cut.
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
    cluster: NDArray[np.object_] | None = None
    bands: dict[str, Bands] = field(default_factory=dict)
    others: list[Path] = field(default_factory=list)
    frequency: Vector | None = None
    more: dict[str, Any] = field(default_factory=dict)
    controls: list[str] = field(default_factory=list)
    imputed: bool = False
    continuous: bool = False

    @property
    def who(self) -> Any:
        """The groups or the measurement, as audits and models take them."""
        if self.continuous:
            return Continuous(self.groups.column(0), self.groups.column_names[0])
        return Proxy(self.groups) if self.imputed else self.groups

    @property
    def control_columns(self) -> pa.Table | None:
        """The legitimate factors; None where none are named."""
        if not self.controls:
            return None
        assert self.table is not None
        return self.table.select(self.controls)

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
            "Target": clean(self.target) if self.target else "none",
        }
        if self.scores:
            facts["Prediction"] = ", ".join(short_names(list(self.scores), 60))
        if self.weight is not None:
            facts["Weights"] = "given"
        if self.frequency is not None:
            facts["Frequencies"] = "given"
        if "exposure" in self.more:
            facts["Exposure"] = "given; the target is a total over it, the score a rate"
        if self.controls:
            facts["Controls"] = ", ".join(short_names(self.controls, 60))
        if self.imputed:
            facts["Groups"] = "imputed: " + ", ".join(short_names(self.sensitive, 60))
        if self.continuous:
            facts["Attribute"] = f"{clean(self.sensitive[0])[:60]}, as a measurement"
        for name, found in self.bands.items():
            facts[f"Bands of {clean(name)[:60]}"] = "; ".join(found.labels)
        if self.dropped:
            missing = "target, score, weight, frequency or cluster"
            facts["Rows left out"] = f"{self.dropped:,} for lack of a {missing}"
        return facts


def load_scores(
    file: Path, predictions: Sequence[str], target: str | None, sensitive: Sequence[str],
    weight: str | None, frequency: str | None, cluster: str | None, separator: str | None,
    drop_missing: bool, bands: Mapping[str, Edges] | None = None, controls: Sequence[str] = (),
    more: Mapping[str, str] | None = None, probabilities: Sequence[str] = (),
) -> TableRows:  # fmt: skip
    """The columns an audit needs, and nothing else; `more` are columns by their role."""
    arguments = (
        predictions, target, sensitive, weight, frequency, cluster, separator, drop_missing, None,
        bands, controls, more, probabilities,
    )  # fmt: skip
    return _without_gaps(_all_scores(file, *arguments))


def _all_scores(
    file: Path, predictions: Sequence[str], target: str | None, sensitive: Sequence[str],
    weight: str | None, frequency: str | None, cluster: str | None, separator: str | None,
    drop_missing: bool, key: str | None, bands: Mapping[str, Edges] | None,
    controls: Sequence[str] = (), more: Mapping[str, str] | None = None,
    probabilities: Sequence[str] = (),
) -> TableRows:  # fmt: skip
    source = open_table(file, separator)
    roles = {"--target": target, "--weight": weight, "--frequency": frequency, "--id": key}
    roles |= {f"--{role}": name for role, name in (more or {}).items()}
    wanted = [source.resolve(name, option) for option, name in roles.items() if name is not None]
    wanted += [source.resolve(name, "--prediction") for name in predictions]
    imputed = list(dict.fromkeys(source.resolve(name, "--probability") for name in probabilities))
    wanted += imputed
    sensitive = list(dict.fromkeys(source.resolve(name, "--sensitive") for name in sensitive))
    labels = [*sensitive, *_cluster_column(source, cluster)]
    # Groups named 1 and 01 are two, unless the column is also read for its numbers.
    names = [name for name in labels if name not in wanted and name not in (bands or {})]
    controls = list(dict.fromkeys(source.resolve(name, "--control") for name in controls))
    table = read_table(source, list(dict.fromkeys([*wanted, *labels, *controls])), text=names)
    found = _rows(
        source, table, target, weight, frequency, predictions, sensitive, drop_missing, cluster,
        bands, more,
    )  # fmt: skip
    found = replace(found, controls=controls)
    return _with_probabilities(found, imputed) if imputed else found


def _with_probabilities(rows: TableRows, names: list[str]) -> TableRows:
    """A column of numbers for each group; gaps stay, and mean that the group is not known."""
    import pyarrow as pa

    if len(names) < 2:
        raise TableError(
            "--probability must be given once for each group, at least twice. Hint: for two groups "
            "give a column of each."
        )
    assert rows.table is not None
    columns = {name: numbers(rows.table, name, rows.source.path, "probability") for name in names}
    return replace(rows, groups=pa.table(columns), sensitive=names, imputed=True)


def _cluster_column(source: Source, cluster: str | None) -> list[str]:
    return [] if cluster is None else [source.resolve(cluster, "--cluster")]


def _rows(
    source: Source, table: pa.Table, target: str | None, weight: str | None,
    frequency: str | None, predictions: Sequence[str], sensitive: list[str], drop_missing: bool,
    cluster: str | None = None, bands: Mapping[str, Edges] | None = None,
    more: Mapping[str, str] | None = None,
) -> TableRows:  # fmt: skip
    used = {}
    if target is not None:
        used["target"] = (target, numbers(table, target, source.path, "target"))
    if weight is not None:
        used["weight"] = (weight, numbers(table, weight, source.path, "weight"))
    if frequency is not None:
        used["frequency"] = (frequency, numbers(table, frequency, source.path, "frequency"))
    for what, name in (more or {}).items():
        used[what] = (name, numbers(table, name, source.path, what))
    for name in predictions:
        used[f"prediction {name}"] = (name, numbers(table, name, source.path, "prediction"))
    gaps_in = {what: (name, np.isnan(values)) for what, (name, values) in used.items()}
    clusters = None
    if cluster is not None:
        clusters = np.array(table.column(cluster).to_pylist(), dtype=object)
        gaps_in["cluster"] = (cluster, _blank(clusters))
    for what, (name, gaps) in gaps_in.items():
        if gaps.any() and not drop_missing:
            raise TableError(
                f"The {what.split()[0]}, column {clean(name)[:60]!r}, is missing in "
                f"{int(gaps.sum()):,} of {len(gaps):,} rows, the first being row "
                f"{int(gaps.argmax()) + 1}. Hint: leave these rows out with --drop-missing."
            )
    for name in sensitive:
        if table.column(name).null_count == table.num_rows:
            raise TableError(
                f"--sensitive {clean(name)[:60]!r} has no values at all, so there are no groups."
            )
    found = {what: values for what, (_, values) in used.items()}
    groups, made = cut(table.select(sensitive), bands or {})
    continuous = [name for name, edges in (bands or {}).items() if edges is None]
    check_levels(groups.drop_columns(continuous), as_written=source.kind == "csv")
    keep = [*made, *continuous]
    return TableRows(
        source, found.get("target"), found.get("weight"), plain_text(groups, keep=keep),
        target, sensitive, {name: found[f"prediction {name}"] for name in predictions}, table=table,
        cluster=clusters, bands=made, frequency=found.get("frequency"),
        more={what: found[what] for what in more or {}}, continuous=bool(continuous),
    )  # fmt: skip


def _blank(labels: NDArray[np.object_]) -> NDArray[np.bool_]:
    return np.array([label is None for label in labels], dtype=bool)


def _without_gaps(rows: TableRows) -> TableRows:
    """Only the rows where no number is missing, with a note if that is not all of them."""
    used = [rows.y, rows.weight, rows.frequency, *rows.scores.values(), *rows.more.values()]
    missing = [np.isnan(values) for values in used if values is not None]
    if rows.cluster is not None:
        missing.append(_blank(rows.cluster))
    absent = np.any(missing, axis=0)
    if not absent.any():
        return rows
    if absent.all():
        raise TableError("No row is left once those with missing numbers are left out.")
    also = "".join(f"{what}, " for what in rows.more)
    note(
        f"{int(absent.sum()):,} rows without a target, score, weight, {also}frequency or cluster "
        "are left out."
    )
    keep = ~absent
    assert rows.table is not None
    return replace(
        rows,
        y=None if rows.y is None else rows.y[keep],
        weight=None if rows.weight is None else rows.weight[keep],
        frequency=None if rows.frequency is None else rows.frequency[keep],
        groups=rows.groups.filter(keep),
        scores={name: values[keep] for name, values in rows.scores.items()},
        more={what: values[keep] for what, values in rows.more.items()},
        dropped=int(absent.sum()),
        cluster=None if rows.cluster is None else rows.cluster[keep],
        table=rows.table.filter(keep),
    )


def _repeated(rows: TableRows) -> TableRows:
    """Each row as often as its frequency says."""
    if rows.frequency is None:
        return rows
    y, weight, groups, cluster, table, *more = repeat_rows(
        rows.frequency, y=rows.y, weight=rows.weight, groups=rows.groups, cluster=rows.cluster,
        table=rows.table, **rows.more,
    )  # fmt: skip
    named = dict(zip(rows.more, more, strict=True))
    return replace(
        rows, y=y, weight=weight, groups=groups, cluster=cluster, table=table, more=named
    )


def load_models(
    files: Sequence[Path], predictions: Sequence[str], target: str | None,
    sensitive: Sequence[str], weight: str | None, frequency: str | None, cluster: str | None,
    key: str | None, separator: str | None, drop_missing: bool,
    bands: Mapping[str, Edges] | None = None, controls: Sequence[str] = (),
    more: Mapping[str, str] | None = None,
) -> tuple[TableRows, dict[str, Vector]]:  # fmt: skip
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
    _check_distinct([str(path) for path in files], [str(path.resolve()) for path in files])
    _check_distinct([f"--prediction {clean(name)[:60]}" for name in predictions], predictions)
    arguments = (target, sensitive, weight, frequency, cluster, separator, drop_missing, key, bands)
    first = _all_scores(files[0], predictions, *arguments, controls, more)
    if len(files) > 1:
        name = predictions[0]
        scores = {}
        for path, label in zip(files, _model_names(files), strict=True):
            if path == files[0]:
                scores[label] = first.scores[name]
            else:
                scores[label] = _matched(first, path, name, target, key, separator, drop_missing)
        first = replace(first, scores=scores, others=list(files[1:]))
    first = _without_gaps(first)
    return first, first.scores


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


def _matched(
    first: TableRows, path: Path, prediction: str, target: str | None, key: str | None,
    separator: str | None, drop_missing: bool,
) -> Vector:  # fmt: skip
    """The scores of another file, in the order of the first one's rows."""
    source = open_table(path, separator)
    columns = [source.resolve(prediction, "--prediction")]
    columns += [source.resolve(key, "--id")] if key else []
    columns += [target] if target in source.names and target is not None else []
    table = read_table(source, columns)
    scores = numbers(table, prediction, path, "prediction")
    gaps = np.isnan(scores)
    if gaps.any() and not drop_missing:
        raise TableError(
            f"The prediction is missing in {int(gaps.sum()):,} of {len(gaps):,} rows of "
            f"{str(path)!r}. Hint: leave these rows out with --drop-missing."
        )
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


def load_training(
    file: Path, target: str, sensitive: Sequence[str], weight: str | None,
    frequency: str | None, cluster: str | None, drop: Sequence[str], separator: str | None,
    drop_missing: bool, bands: Mapping[str, Edges] | None = None,
    more: Mapping[str, str] | None = None, controls: Sequence[str] = (),
) -> TableRows:  # fmt: skip
    """Target, groups and every other column as a feature; `more` are columns by their role."""
    more = more or {}
    source = open_table(file, separator)
    source.resolve(target, "--target")
    if weight is not None:
        source.resolve(weight, "--weight")
    if frequency is not None:
        source.resolve(frequency, "--frequency")
    for role, name in more.items():
        source.resolve(name, f"--{role}")
    sensitive = list(dict.fromkeys(source.resolve(name, "--sensitive") for name in sensitive))
    if target in sensitive:
        raise TableError(f"--target and --sensitive both name {target!r}.")
    for name in drop:
        if name not in source.names:
            source.resolve(name, "--drop")
    controls = list(dict.fromkeys(source.resolve(name, "--control") for name in controls))
    labels = _cluster_column(source, cluster)
    taken = {target, weight, frequency, *more.values(), *sensitive, *labels, *drop}
    features = [n for n in source.names if n not in taken]
    for name in features:
        if features.count(name) > 1:
            raise TableError(
                f"{str(file)!r} has {features.count(name)} columns named {clean(name)[:60]!r}. "
                "Hint: rename one of them, or leave them out with --drop."
            )
    if not features:
        raise TableError(f"{str(file)!r} has no column left to use as a feature.")
    others = [*(name for name in (weight, frequency, *more.values()) if name), *labels]
    wanted = list(dict.fromkeys([target, *sensitive, *others, *features, *controls]))
    text = [name for name in labels if name not in (target, weight, frequency, *sensitive)]
    table = read_table(source, wanted, text=text)
    rows = _rows(
        source, table, target, weight, frequency, [], sensitive, drop_missing, cluster, bands, more
    )  # fmt: skip
    rows = replace(_repeated(_without_gaps(rows)), controls=controls)
    assert rows.table is not None
    rows.columns = fit_columns(rows.table, features)
    rows.columns += [Column(n, "left out", reason="it is sensitive") for n in sensitive]
    rows.columns += [
        Column(n, "left out", reason="--cluster names it") for n in labels if n not in sensitive
    ]
    rows.columns += [
        Column(n, "left out", reason="--drop says so") for n in dict.fromkeys(drop)
        if n not in (target, weight, frequency, *more.values(), *sensitive, *labels)
    ]  # fmt: skip
    rows.X, _ = encode(rows.table, rows.columns)
    if not rows.X.shape[1]:
        raise TableError(
            "No column can be used as a feature: "
            + " ".join(c.describe() for c in rows.columns[:5])
        )
    return rows
