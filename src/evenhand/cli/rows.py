"""Files → the columns a command needs, by their role."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Vector
from .._core.files import TableError, arrow_kind, is_text_type, value_type
from .._core.provenance import file_facts, last_changed, stamp
from .._core.validation import InputError, quote
from ..data.bands import Bands, Continuous, measurement
from ..data.encoding import Column, encode, fit_columns
from ..data.groups import Proxy
from ..data.labels import check_written, whole
from ..data.sample import repeat_rows
from ..report.words import clean, short_names
from ..tables.readers import Source, called, open_table, read_table
from .options import Columns, Edges, Limits, Measuring, Pricing, as_number, parse_bands
from .terminal import note

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class TableRows:
    """Columns of a file that a command needs, by their role.

    Attributes
    ----------
    source : Source
    named : Columns
        The options that name them.
    table : pyarrow Table
        All columns that were read, of the rows that are used.
    dropped : int
        Rows left out because a number was missing.
    features : list of Column
        For training.
    """

    source: Source
    named: Columns
    table: pa.Table
    dropped: int = 0
    features: list[Column] = field(default_factory=list)

    @cached_property
    def numbers(self) -> dict[str, Vector]:
        """Role → numbers, of "target", "weight", "frequency", "exposure" and "given"."""
        return {role: self._read(name, role) for role, name in self.named.numbers.items()}

    @cached_property
    def scores(self) -> dict[str, Vector]:
        """Scores by the name of their model, which is that of their column."""
        return {name: self._read(name, "prediction") for name in self.named.listed("prediction")}

    def _read(self, name: str, role: str) -> Vector:
        return numbers(self.table, name, self.source.path, role)

    @property
    def y(self) -> Vector | None:
        """The target."""
        return self.numbers.get("target")

    @cached_property
    def X(self) -> Vector:
        """The features as numbers."""
        return encode(self.table, self.features)[0]

    @cached_property
    def _cut(self) -> tuple[pa.Table, dict[str, Bands]]:
        """The sensitive columns, some of them cut into bands, and the bands."""
        import pyarrow as pa

        imputed, least = list(dict.fromkeys(self.named.probability)), self.named.least_group
        if least is not None and (imputed or self.named.continuous):
            raise TableError("--least-group needs a group for each row: probabilities and "
                             "measurements have none.")  # fmt: skip
        if imputed:
            return pa.table({name: self._read(name, "probability") for name in imputed}), {}
        bands = parse_bands(self.named)
        groups, made = cut(self.table.select(list(dict.fromkeys(self.named.sensitive))), bands)
        whole = [name for name, edges in bands.items() if edges is None]
        check_levels(groups.drop_columns(whole), as_written=self.source.kind == "csv")
        groups = plain_text(groups, keep=[*made, *whole])
        return (groups if least is None else self._without_small(groups, least)), made

    def _without_small(self, groups: pa.Table, least: int) -> pa.Table:
        """The groups with those of few people as not known, in which no result shows them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = list(zip(*(column.to_pylist() for column in groups.columns), strict=True))
        people = self.numbers.get("frequency", np.ones(len(rows)))
        sizes: Counter[Any] = Counter()
        for row, count in zip(rows, people, strict=True):
            sizes[row] += count
        small = {row for row in sizes if sizes[row] < least and {*row} != {None}}
        if small:
            count = sum(sizes[row] for row in small)
            note(f"{count:,.0f} people of {len(small)} groups of fewer than {least} are left out.")
        keep = pa.array([row not in small for row in rows])
        return pa.table({n: pc.if_else(keep, groups.column(n), None) for n in groups.column_names})

    @property
    def groups(self) -> pa.Table:
        """The sensitive columns, or a probability for each group in place of labels."""
        return self._cut[0]

    @property
    def bands(self) -> dict[str, Bands]:
        """Those of the sensitive columns that are cut."""
        return self._cut[1]

    @property
    def sensitive(self) -> list[str]:
        """Names of the sensitive columns."""
        return self.groups.column_names

    @cached_property
    def given(self) -> dict[str, Any]:
        """What audits and models are given of the rows, beside target and scores."""
        who: Any = self.groups
        if self.named.continuous:
            who = Continuous(who.column(0), who.column_names[0])
        elif self.named.probability:
            who = Proxy(who, assume=getattr(self.named, "assume", None))
        cluster, controls = self.named.cluster, list(dict.fromkeys(self.named.control))
        return {
            "sensitive_features": who,
            "sample_weight": self.numbers.get("weight"),
            "exposure": self.numbers.get("exposure"),
            "controls": self.table.select(controls) if controls else None,
            "cluster": None
            if cluster is None
            else np.array(self.table.column(cluster).to_pylist(), dtype=object),
        }

    def audit(self, scores: Any, measuring: Measuring, pricing: Pricing, **more: Any) -> Any:
        """An audit of one score, or of several by name."""
        from ..auditing.audits import audit, counted_by

        result = audit(self.y, scores, **self.given, **self._how(measuring, pricing), **more)
        named = {"sample_weight": self.named.weight, "frequency": self.named.frequency}

        def name(one: Any) -> Any:
            return replace(one, counted_by=counted_by(named)) if one.counted_by else one

        if isinstance(result, Mapping):
            return replace(result, audits={key: name(one) for key, one in result.items()})
        return name(result)

    def alternatives(self, measuring: Measuring, pricing: Pricing, limits: Limits) -> Any:
        """A record of all scores, as alternatives to one another."""
        from ..training.frontier import alternatives

        given = {name: column for name, column in self.given.items() if name != "controls"}
        return alternatives(
            self.y, self.scores, **given, **self._how(measuring, pricing), floor=limits.floor,
            limit=limits.limit, criterion=limits.criterion,
        )  # fmt: skip

    def _how(self, measuring: Measuring, pricing: Pricing) -> dict[str, Any]:
        return {
            "frequency": self.numbers.get("frequency"), "loss": pricing.loss,
            "power": pricing.power, "estimator": measuring.estimator,
            "confidence_level": measuring.confidence, "random_state": measuring.seed,
        }  # fmt: skip

    @cached_property
    def files(self) -> list[dict[str, Any]]:
        """Name, size and hash of the file that was read."""
        return [file_facts(self.source.path)]

    def provenance(self) -> dict[str, Any]:
        """For JSON: version, time and files."""
        return {**stamp(), "files": self.files}

    def source_facts(self) -> dict[str, Any]:
        """For the report."""
        facts = {"File": f"{self.source.path.name} ({self.source.describe()})"}
        name, changed = clean(self.source.path.name)[:60], last_changed(self.source.path)
        if changed is not None:  # of a pipe nothing is known
            facts[f"SHA-256 of {name}"] = self.files[0]["sha256"]
            facts[f"{name} last changed"] = f"{changed:%Y-%m-%d %H:%M UTC}"
        facts["Target"] = clean(self.named.target or "none")
        if self.scores:
            facts["Prediction"] = ", ".join(short_names(list(self.scores), 60))
        rate = "; the target is a total over it, the score a rate"
        heads = {"weight": "Weights", "frequency": "Frequencies", "exposure": "Exposure"}
        for role, head in heads.items():
            if role in self.numbers:
                zero = int((self.numbers[role] == 0).sum())
                more = rate if role == "exposure" else f", zero in {zero:,} rows" if zero else ""
                facts[head] = f"column {clean(self.named.numbers[role])}{more}"
        if self.named.control:
            facts["Controls"] = ", ".join(short_names(dict.fromkeys(self.named.control), 60))
        if self.named.probability:
            facts["Groups"] = "inferred: " + ", ".join(short_names(self.sensitive, 60))
        if self.named.continuous:
            facts["Attribute"] = f"{clean(self.sensitive[0])[:60]}, as a measurement"
        for name, bands in self.bands.items():
            facts[f"Bands of {clean(name)[:60]}"] = "; ".join(bands.labels)
        if self.dropped:
            missing = "target, score, weight, frequency or cluster"
            facts["Rows left out"] = f"{self.dropped:,} for lack of a {missing}"
        return facts


def load_scores(file: Path, columns: Columns) -> TableRows:
    """Scores, target, groups and whatever else is named; `--drop-missing` leaves out gaps."""
    bands, source = parse_bands(columns), _open(file, columns)
    imputed = list(dict.fromkeys(columns.probability))
    if len(imputed) == 1:
        raise TableError(
            "--probability must be given once for each group, at least twice. Hint: for two groups "
            "give a column of each."
        )
    used = [*columns.numbers.values(), *columns.listed("prediction"), *imputed]
    labels = list(dict.fromkeys([*columns.sensitive, *columns.listed("cluster")]))
    # Groups named 1 and 01 are two, unless the column is also read for its numbers.
    text = [name for name in labels if name not in used and name not in bands]
    wanted = [*used, *labels, *columns.control]
    table = read_table(source, wanted, text=text, missing=columns.missing)
    return _without_gaps(TableRows(source, columns, table))


def _open(file: Path, columns: Columns) -> Source:
    """The file; all columns that are named are checked to be there."""
    source = open_table(file, columns.separator)
    others = ("sensitive", "cluster", "control", "prediction", "probability")
    for role in (*columns.numbers, *others):
        for name in columns.listed(role):
            source.resolve(name, f"--{role}")
    return source


def _without_gaps(rows: TableRows) -> TableRows:
    """Only the rows where nothing is missing, which are all of them without --drop-missing."""
    named, table = rows.named, rows.table
    gaps = {(role, named.numbers[role]): np.isnan(v) for role, v in rows.numbers.items()}
    gaps |= {("prediction", name): np.isnan(v) for name, v in rows.scores.items()}
    gaps |= {("cluster", n): table.column(n).is_null().to_numpy() for n in named.listed("cluster")}
    for (role, name), absent in gaps.items() if not named.drop_missing else ():
        if absent.any():
            raise TableError(
                f"The {role}, column {clean(name)[:60]!r}, is missing in {int(absent.sum()):,} of "
                f"{len(absent):,} rows, the first being row {int(absent.argmax()) + 1}. Hint: "
                "leave these rows out with --drop-missing."
            )
    for name in named.sensitive:
        if table.column(name).null_count == table.num_rows:
            raise TableError(
                f"--sensitive {clean(name)[:60]!r} has no values at all, so there are no groups."
            )
    absent = np.any(list(gaps.values()), axis=0) if gaps else np.zeros(1, dtype=bool)
    if not absent.any():
        return rows
    if absent.all():
        raise TableError("No row is left once those with missing numbers are left out.")
    also = "".join(f"{role}, " for role in ("exposure", "given") if role in rows.numbers)
    note(
        f"{int(absent.sum()):,} rows without a target, score, weight, {also}frequency or cluster "
        "are left out."
    )
    return replace(rows, table=table.filter(~absent), dropped=int(absent.sum()))


def load_models(file: Path, columns: Columns) -> TableRows:
    """Scores of each model on the same rows."""
    predictions = columns.listed("prediction")
    if len(predictions) < 2:
        raise TableError(
            "There is one model only. Hint: give a second --prediction column; for one model use "
            "'evenhand audit'."
        )
    for k, name in enumerate(predictions):
        if name in predictions[:k]:
            raise TableError(
                f"'--prediction {clean(name)[:60]}' is given twice, so that a model would be "
                "compared with itself. Hint: give each model once; for one model use 'evenhand "
                "audit'."
            )
    return load_scores(file, columns)


def load_training(file: Path, columns: Columns) -> TableRows:
    """Target, groups and every other column as a feature."""
    bands, source = parse_bands(columns), _open(file, columns)
    others, cluster = list(columns.numbers.values()), columns.listed("cluster")
    if columns.target in columns.sensitive:
        raise TableError(f"--target and --sensitive both name {columns.target!r}.")
    for name in columns.drop:
        if name not in source.names:
            source.resolve(name, "--drop")
    features = _feature_names(source, [*others, *columns.sensitive, *cluster, *columns.drop])
    wanted = [*others, *columns.sensitive, *cluster, *features, *columns.control]
    text = [n for n in (*cluster, *columns.sensitive) if n not in others and n not in bands]
    table = read_table(source, wanted, text=text, missing=columns.missing)
    rows = _without_gaps(TableRows(source, columns, table))
    (table,) = repeat_rows(rows.numbers.get("frequency"), table=rows.table)
    why = dict.fromkeys([*columns.sensitive, *cluster, *columns.drop], "--drop says so")
    why |= dict.fromkeys(cluster, "--cluster names it")
    why |= dict.fromkeys(columns.sensitive, "it is sensitive")
    left_out = [Column(n, "left out", reason=r) for n, r in why.items() if n not in others]
    rows = replace(rows, table=table, features=[*fit_columns(table, features), *left_out])
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


# ------------------------------------------------------------------------------------------------
# Columns of a table as numbers, labels or bands.


def numbers(table: pa.Table, name: str, path: Path, what: str) -> NDArray[np.float64]:
    """A column as floats, NaN where missing; an error where it holds anything else.

    Parameters
    ----------
    table : pyarrow Table
        As from :func:`read_table`.
    name : str
        The column.
    path : Path
        For messages.
    what : str
        What the column is used as, for messages.
    """
    import pyarrow as pa

    column = table.column(name)
    where = f"The {what}, column {quote(name)} of {called(path)},"
    kind = arrow_kind(column.type)
    if column.null_count == len(column):
        raise TableError(f"{where} has no values at all.")
    if kind == "text":
        raise TableError(f"{where} {_not_numbers(column.to_pylist())}")
    if kind not in ("numbers", "bool"):
        raise TableError(f"{where} must hold numbers, not values of type {kind}.")
    values = column.cast(pa.float64(), safe=False).to_numpy()
    infinite = np.isinf(values)
    if infinite.any():
        raise TableError(
            f"{where} must be finite: {int(infinite.sum())} of {len(values)} values are infinite, "
            f"the first in row {int(infinite.argmax()) + 1}."
        )
    return values


def _not_numbers(values: list[str | None]) -> str:
    rows = enumerate(values, 1)
    bad = [(row, v) for row, v in rows if v is not None and as_number(v, None) is None]
    if not bad:
        return "holds numbers stored as text. Hint: convert it to numbers."
    return (
        f"must hold numbers: {len(bad)} of {len(values)} values do not, the first in row "
        f"{bad[0][0]}: {quote(bad[0][1])}. Hint: name another column, or mend or empty these "
        "cells; rows with empty ones can be left out with --drop-missing."
    )


def plain_text(table: pa.Table, keep: Container[str] = ()) -> pa.Table:
    """Dictionary columns as plain text, whose groups come in alphabetical order.

    Those named in `keep` stay: bands have an order of their own.
    """
    import pyarrow as pa

    columns = {}
    for name in table.column_names:
        column = table.column(name)
        kind = value_type(column.type)
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if number or pa.types.is_boolean(kind) or name in keep:
            columns[name] = column
            continue
        try:
            columns[name] = column.cast(pa.string())
        except pa.ArrowException as error:
            raise TableError(
                f"--sensitive {quote(name)} must hold labels, not values of type {kind}."
            ) from error
    return pa.table(columns)


def cut(table: pa.Table, bands: Mapping[str, Edges]) -> tuple[pa.Table, dict[str, Bands]]:
    """The table with some columns cut into bands, and the bands.

    A measurement that is not cut must be one, and stays.
    """
    import pyarrow as pa

    made = {}
    for name, edges in bands.items():
        column = table.column(name)
        try:
            if edges is None:
                Continuous(column)
                continue
            values = measurement(column)
            made[name] = Bands.make(edges, values)
        except InputError as error:
            text = error.worded({"values": "its cells", "edges": "the edges"}[error.argument])
            what = "--continuous cannot take" if edges is None else "--band cannot cut"
            raise TableError(
                f"{what} {quote(name)}: {text} Hint: cells that are no numbers must be empty, and "
                "dates written as 1990-12-31."
            ) from error
        codes = pa.array(made[name].codes(values).astype("int32"), mask=values != values)
        labels = pa.array(made[name].labels)
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.DictionaryArray.from_arrays(codes, labels))
    return table, made


def check_levels(table: pa.Table, as_written: bool) -> None:
    """Refuse numbers and dates with many distinct values, which are measurements.

    Parameters
    ----------
    table : pyarrow Table
        The sensitive columns.
    as_written : bool
        Whether text may be a number or a date that nobody has declared to be text (CSV).
    """
    for name in table.column_names:
        column = table.column(name)
        if as_written or not is_text_type(column.type):
            levels = [whole(v) for v in column.unique().to_pylist() if v is not None and v == v]
            check_written(levels, table.num_rows, name)
