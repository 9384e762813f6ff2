"""Columns of a table → numbers for a model, in a way that can be written down; controls.

Numbers are centered and scaled, with the median and an indicator where they are missing;
categories become one column per level, "missing" being a level of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .._core.arrays import Mask, Matrix, Vector
from .._core.validation import (
    InputError,
    check_length,
    check_names,
    check_positive_integer,
    frame_columns,
    quote,
    read_native,
    refuse_masked,
)
from .columns import missing_rows, read_values, split_columns
from .labels import whole

# A level seen in fewer rows cannot be told from noise; rarer ones share "other".
MIN_LEVEL_ROWS = 10
MAX_LEVELS = 40
# More different numbers than this, written as text, are measurements rather than codes.
MAX_CODES = 20
MISSING, OTHER = "(missing)", "(other)"


class ColumnError(ValueError):
    """A column cannot be turned into numbers; the message says what to do."""


class UnseenLevelWarning(UserWarning):
    """A category holds levels that were not there in training."""


@dataclass(frozen=True)
class Column:
    """How one column of the table is turned into columns of X.

    Attributes
    ----------
    name : str
    kind : {"number", "category", "left out"}
    fill, center, scale : float
        Of a number: the value where it is missing, and its standardization.
    missing : bool
        Whether "missing" has a column of its own.
    levels : tuple of str
        Of a category; the first has no column, the others are compared with it.
    other : bool
        Whether rare levels share a column.
    reason : str
        Why a column is left out.
    """

    name: str
    kind: str
    fill: float = 0.0
    center: float = 0.0
    scale: float = 1.0
    missing: bool = False
    levels: tuple[str, ...] = ()
    other: bool = False
    reason: str = ""

    @property
    def features(self) -> list[str]:
        """Names of the columns of X it becomes."""
        if self.kind == "number":
            return [self.name, *([f"{self.name}={MISSING}"] if self.missing else [])]
        if self.kind == "left out":
            return []
        extra = [OTHER] * self.other + [MISSING] * self.missing
        return [f"{self.name}={level}" for level in (*self.levels[1:], *extra)]

    def describe(self) -> str:
        """One sentence for the report."""
        name = quote(self.name)
        if self.kind == "left out":
            return f"{name} is not used: {self.reason}."
        if self.kind == "number":
            gaps = f"; missing values are set to the median, {self.fill:.6g}, and marked"
            gaps = gaps if self.missing else ""
            return f"{name} is used as a number, in standard deviations ({self.scale:.4g}){gaps}."
        extra = [f"{len(self.levels)} levels, compared with {quote(self.levels[0])}"]
        if self.other:
            extra.append("rare levels are taken together")
        if self.missing:
            extra.append("missing is a level of its own")
        return f"{name} is used as a category: {'; '.join(extra)}."


@dataclass(eq=False, repr=False, kw_only=True)
class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn a table of numbers, dates, categories and missing values into a matrix.

    A number becomes (x − mean)/spread, with the median in place of missing values and, where there
    are any, an indicator of them. Dates count in days. A category becomes an indicator of each
    level but the most frequent; rare levels share one, and so do missing values. Columns that say
    nothing (one value, no values), that rise with every row like a row number, or that hold a text
    of their own in most rows like a name are left out; `columns_` says why.

    Parameters
    ----------
    standardize : bool
        Whether numbers are centered and scaled; False leaves them in their units.
    min_level_rows : int
        A level seen in fewer rows than this shares a column with the other rare ones.
    max_levels : int
        Columns of one category at most.

    Attributes
    ----------
    columns_ : tuple of Column
        How each column is used; ``describe()`` says it in words.
    n_features_in_ : int
    feature_names_in_ : (d,) array
        Of frames.

    See Also
    --------
    evenhand.FairRidge
    evenhand.FairGLM
    evenhand.load

    Examples
    --------
    >>> import pandas as pd, evenhand as eh
    >>> people = pd.DataFrame({"age": [20.0, 30.0, None, 50.0], "fuel": list("aaba")})
    >>> encoder = eh.TableEncoder(min_level_rows=1).fit(people)
    >>> list(encoder.get_feature_names_out())
    ['age', 'age=(missing)', 'fuel=b']
    >>> encoder.transform(people).shape
    (4, 3)
    """

    standardize: bool = True
    min_level_rows: int = MIN_LEVEL_ROWS
    max_levels: int = MAX_LEVELS

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Decide how each column is used.

        Parameters
        ----------
        X : (n, d) frame or array
        y : ignored
        """
        for name in ("min_level_rows", "max_levels"):
            check_positive_integer(name, getattr(self, name))
        table, named = _read(X)
        self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = len(table)
        if named:
            self.feature_names_in_ = np.array(list(table), dtype=object)
        self.columns_ = tuple(
            fit_column(column, name, self.standardize, self.min_level_rows, self.max_levels)
            for name, column in table.items()
        )
        return self

    def transform(self, X: Any) -> Matrix:
        """The matrix, one column for each of `get_feature_names_out`.

        Levels that were not there in training count as "other" where there is such a column, and
        are warned of where there is none; the row then stands with the most frequent level.

        Parameters
        ----------
        X : (n, d) frame or array
        """
        check_is_fitted(self)
        table, named = _read(X)
        if not named and len(table) != self.n_features_in_:
            raise ValueError(
                f"X has {len(table)} features, but TableEncoder is expecting "
                f"{self.n_features_in_} features as input."
            )
        if not (named and hasattr(self, "feature_names_in_")):
            names = (column.name for column in self.columns_)
            table = dict(zip(names, table.values(), strict=False))
        encoded, unseen = encode(table, self.columns_)
        for name, count in unseen.items():
            warnings.warn(
                f"{count:,} rows of {quote(name)} hold a level that was not there in training and "
                "count as its most frequent one. Hint: fit on a table that holds all levels.",
                UnseenLevelWarning,
                stacklevel=2,
            )
        return encoded

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns that `transform` returns."""
        check_is_fitted(self)
        names = [name for column in self.columns_ for name in column.features]
        return np.array(names, dtype=object)

    def describe(self) -> str:
        """How each column is used, a line each."""
        check_is_fitted(self)
        return "\n".join(column.describe() for column in self.columns_)


def fit_columns(table: Any, names: Sequence[str]) -> list[Column]:
    """Decide how each column of those names is used."""
    held = dict(frame_columns(nw.from_native(table, eager_only=True)))
    return [fit_column(held[name], name, True, MIN_LEVEL_ROWS, MAX_LEVELS) for name in names]


def needs_encoding(X: Any, arrays: bool = False) -> bool:
    """Whether X is a frame that holds something else than numbers, or missing values.

    With `arrays` an array may be such a table, too; for linear models a NaN in one is an error, as
    elsewhere.
    """
    frame = read_native(X, "X")
    if not isinstance(frame, nw.DataFrame):
        array = X if isinstance(X, np.ndarray) and arrays else np.zeros(0)
        return array.dtype.kind not in "fiub" or bool(np.isnan(array.astype(float)).any())
    return any(
        not (column.dtype.is_numeric() or column.dtype == nw.Boolean) or missing_rows(column).any()
        for _, column in frame_columns(frame)
    )


def _read(X: Any) -> tuple[dict[str, Any], bool]:
    """Columns by name, and whether the names are the user's."""
    frame = read_native(X, "X")
    if isinstance(frame, nw.DataFrame):
        table = dict(frame_columns(frame))
        if len(frame) < 1 or not table:
            raise ValueError(
                f"X must have rows and columns, found array with {len(frame)} sample(s) and "
                f"{len(table)} feature(s), while a minimum of 1 is required."
            )
        return table, True
    from sklearn.utils.validation import check_array

    refuse_masked(X, "X")
    array = check_array(X, dtype=None, ensure_all_finite="allow-nan")
    return {f"x{j}": array[:, j] for j in range(array.shape[1])}, False


def fit_column(
    column: Any, name: str, standardize: bool, rare: int, most: int, codes: bool = False
) -> Column:
    """Decide how a column is used; `codes`: numbers as text are categories, as ZIPs are, and whole
    numbers that rise with every row are used: a control is one in a sorted table too.
    """
    absent = missing_rows(column)
    if absent.all():
        return Column(name, "left out", reason="it has no values")
    values = read_numbers(column, name, absent)
    if values is not None:
        known = values[~absent]
        if np.ptp(known) == 0 and not absent.any():
            return Column(name, "left out", reason="it has the same value in every row")
        if not codes and _counts_rows(values, column):
            return Column(name, "left out", reason="it rises with every row, like a row number")
        fill = float(np.median(known))
        filled = np.where(absent, fill, values)
        center, scale = (
            (float(filled.mean()), float(filled.std()) or 1.0) if standardize else (0.0, 1.0)
        )
        return Column(name, "number", fill, center, scale, bool(absent.any()))
    text = read_texts(column, absent)
    levels, counts = np.unique(text[~absent].astype(str), return_counts=True)
    # A user who calls a column a category means it.
    declared = isinstance(column, nw.Series) and column.dtype in (nw.Categorical, nw.Enum)
    if not codes and len(levels) > MAX_CODES and not declared and _are_numbers(levels):
        raise ColumnError(
            f"Column {quote(name)} holds numbers as text, such as {str(levels[0])!r} and "
            f"{str(levels[1])!r}, "
            f"which would become {len(levels)} categories. Hint: make numbers of them "
            "(pandas.to_numeric), or a categorical column if they are codes."
        )
    if len(levels) > max(20, 0.5 * len(text)):
        return Column(
            name, "left out",
            reason=f"it has {len(levels)} different texts in {len(text)} rows, like a name",
        )  # fmt: skip
    order = np.lexsort((levels, -counts))
    kept = [k for k in order if counts[k] >= min(rare, counts.max())][:most]
    if len(kept) == 1 and len(levels) == 1 and not absent.any():
        return Column(name, "left out", reason="it has the same value in every row")
    return Column(
        name, "category", missing=bool(absent.any()),
        levels=tuple(str(levels[k]) for k in kept), other=len(kept) < len(levels),
    )  # fmt: skip


def _are_numbers(levels: NDArray[np.str_]) -> bool:
    """Whether texts are numbers, and not codes such as 01234."""
    try:
        levels.astype(np.float64)
    except ValueError:
        return False
    return not any(len(v) > 1 and v[0] == "0" and v[1].isdigit() for v in levels)


def _counts_rows(values: Matrix, column: Any) -> bool:
    """Whole numbers that rise with every row: a row number or an identifier, not a measurement."""
    dtype = column.dtype
    whole = dtype.kind in "iu" if isinstance(column, np.ndarray) else dtype.is_integer()
    return len(values) > 20 and whole and bool((np.diff(values) > 0).all())


def read_numbers(column: Any, name: str, absent: Mask) -> Matrix | None:
    """The column as floats if that is what it is, dates as days; None for text."""
    if isinstance(column, nw.Series):
        dtype = column.dtype
        if dtype == nw.Categorical and column.implementation.is_pyarrow():
            # Parquet keeps repeated numbers as a dictionary; nobody has called them categories.
            if column.cat.get_categories().dtype.is_numeric():
                column = column.cast(nw.Float64)
        elif isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
            column = column.dt.convert_time_zone("UTC")
        if column.dtype in (nw.String, nw.Categorical, nw.Enum):
            return None
    values = read_values(column, absent)
    if values.dtype.kind == "M":
        values = np.floor(values.astype(np.int64) / 1e6) / 86400.0
    elif values.dtype.kind not in "bf" and not absent.all():
        kinds = {type(value) for value in values[~absent].tolist()}
        if any(issubclass(kind, str | bytes) for kind in kinds):
            return None
        raise ColumnError(
            f"Column {quote(name)} holds values of type {min(kind.__name__ for kind in kinds)}, "
            "which no model can use. Hint: leave it out (--drop on the command line)."
        )
    numbers = np.full(len(values), np.nan)
    numbers[~absent] = values[~absent]
    if np.isinf(numbers).any():
        raise ColumnError(
            f"Column {quote(name)} must be finite: row {int(np.isinf(numbers).argmax()) + 1} is "
            "infinite. Hint: mend it, or leave the column out (--drop on the command line)."
        )
    return numbers


def read_texts(column: Any, absent: Mask) -> NDArray[Any]:
    values = list(column) if isinstance(column, np.ndarray) else column.to_list()
    # One gap in a file makes 1.0 of every code 1.
    return np.array([None if gap else str(whole(v)) for v, gap in zip(values, absent, strict=True)])


def encode(table: Any, columns: Sequence[Column]) -> tuple[Matrix, dict[str, int]]:
    """(n, d) matrix X, and how many rows have a level that was not there in training, by column.

    Parameters
    ----------
    table : frame, or dict of columns by name
    columns : sequence of Column
    """
    if not isinstance(table, dict):
        table = dict(frame_columns(nw.from_native(table, eager_only=True)))
    parts: list[Matrix] = []
    unseen: dict[str, int] = {}
    n = len(next(iter(table.values()))) if table else 0
    for spec in columns:
        if spec.kind == "left out":
            continue
        if spec.name not in table:
            there = ", ".join(map(quote, list(table)[:20]))
            raise ColumnError(
                f"Column {quote(spec.name)} was there in training and is missing now; there are "
                f"{there}. Hint: pass a table of the same form."
            )
        new, count = _encode_column(table[spec.name], spec)
        parts += new
        if count:
            unseen[spec.name] = count
    return (np.column_stack(parts) if parts else np.empty((n, 0))), unseen


def _encode_column(column: Any, spec: Column) -> tuple[list[Matrix], int]:
    """Columns of X, and rows whose level was not there in training and has no column."""
    absent = missing_rows(column)
    marks = [absent.astype(np.float64)] if spec.missing else []
    if spec.kind == "number":
        values = read_numbers(column, spec.name, absent)
        if values is None:
            raise ColumnError(
                f"Column {quote(spec.name)} held numbers in training and holds text now. "
                "Hint: score a table of the same form."
            )
        if absent.any() and not spec.missing:
            raise ColumnError(
                f"Column {quote(spec.name)} has no value in row {absent.argmax() + 1}, and had one "
                "in every row of training. Hint: fill it in, or fit on a table with gaps."
            )
        return [(np.where(absent, spec.fill, values) - spec.center) / spec.scale, *marks], 0
    # Numbers stand for categories that are written as numbers, such as codes in another file.
    text = read_texts(column, absent)
    hits = [text == level for level in spec.levels]
    new = ~np.logical_or.reduce([absent, *hits])
    if spec.other:
        hits.append(new)
    return [hit.astype(np.float64) for hit in hits[1:]] + marks, 0 if spec.other else int(new.sum())


# ------------------------------------------------------------------------------------------------
# Legitimate factors: columns of any kind, as models of score and group given them see them.
#
# A number stays a number, with the median where it is missing and a mark of that; dates count in
# days; anything else is a category of any number of levels, of which "missing" is one. A number
# with few values is a category too.


# With so few values no curve has to be guessed between them.
FEW_VALUES = 10
CONSTANT = "it has the same value in every row"


@dataclass(frozen=True)
class Control:
    """One column, over all n rows.

    Attributes
    ----------
    name : str
    values : (n,) float array or None
        Of a number, NaN where it is missing.
    codes : (n,) intp array or None
        Of a category, and of a number with few values.
    levels : tuple of str
        Of the codes.
    """

    name: str
    values: Vector | None
    codes: NDArray[np.intp] | None
    levels: tuple[str, ...] = ()

    @property
    def is_number(self) -> bool:
        return self.values is not None

    @property
    def is_constant(self) -> bool:
        if self.values is not None:
            missing = np.isnan(self.values)
            known = self.values[~missing]
            return not len(known) or (known.min() == known.max() and not missing.any())
        assert self.codes is not None
        return bool((self.codes == self.codes[0]).all())

    def take(self, rows: Any) -> Control:
        """Some of the rows."""
        values = None if self.values is None else self.values[rows]
        codes = None if self.codes is None else self.codes[rows]
        return Control(self.name, values, codes, self.levels)


@dataclass(frozen=True)
class Controls:
    """The columns that are used, and why others are not, a sentence by name."""

    columns: tuple[Control, ...]
    left_out: dict[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def single(self) -> Vector | None:
        """The values of one numeric control without gaps; None where there is more than that."""
        if len(self.columns) != 1:
            return None
        (column,) = self.columns
        if column.values is None or np.isnan(column.values).any():
            return None
        return column.values

    def take(self, rows: Any) -> Controls:
        """Some of the rows; a column may become constant there and is left out then."""
        taken = [column.take(rows) for column in self.columns]
        kept = tuple(column for column in taken if not column.is_constant)
        gone = {column.name: CONSTANT for column in taken if column.is_constant}
        return Controls(kept, {**self.left_out, **gone})


def read_controls(controls: Any, n_rows: int) -> Controls:
    """Read a frame, dict, array or column of controls.

    Parameters
    ----------
    controls : frame, dict of columns, (n,) or (n, p) array, or series
        Text, categories, booleans, dates and numbers; gaps are allowed.
    n_rows : int
        Number of rows expected.
    """
    if isinstance(controls, Controls):
        return controls  # rows of a fold, read before they were taken
    columns: list[Control] = []
    left_out: dict[str, str] = {}
    split = split_columns(controls, "controls", "control")
    check_names([name for name, _ in split], "controls")
    for name, column in ((name or "control", column) for name, column in split):
        check_length("controls", len(column), n_rows)
        found = _read_control(name, column)
        if isinstance(found, str):
            left_out[name] = found
        else:
            columns.append(found)
    read = Controls(tuple(columns), left_out)
    refuse_none(read)
    return read


def refuse_none(controls: Controls) -> None:
    """Refuse controls of which none can be used."""
    if not controls.columns:
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in controls.left_out.items())
        what = f"hold a column that can be used, got none ({reasons})"
        raise InputError(
            "controls", what if reasons else "have at least one column, got none",
            hint="leave controls out to judge the score as it is.",
        )  # fmt: skip


def _read_control(name: str, column: Any) -> Control | str:
    """A control, or why there is none."""
    absent = missing_rows(column)
    try:
        spec = fit_column(column, name, False, MIN_LEVEL_ROWS, MAX_LEVELS, codes=True)
    except ColumnError as error:
        raise InputError("controls", f"be usable: {error}") from None
    if spec.kind == "left out":
        return spec.reason
    if spec.kind == "number":
        values = read_numbers(column, name, absent)
        assert values is not None
        distinct, inverse = np.unique(values, return_inverse=True)  # NaNs are one value
        if len(distinct) > FEW_VALUES:
            return Control(name, values, None)
        levels = tuple(MISSING if v != v else f"{v:g}" for v in distinct)
        return Control(name, values, inverse.astype(np.intp), levels)
    text = np.where(absent, MISSING, read_texts(column, absent)).astype(str)
    found, inverse = np.unique(text, return_inverse=True)
    return Control(name, None, inverse.astype(np.intp), tuple(map(str, found)))
