"""Checks of arrays that users hand in, with messages that say what to do."""

from __future__ import annotations

import difflib
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from os import PathLike
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.dependencies import is_pandas_like_dataframe, is_pandas_like_series
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray

from .shards import here


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line outside this package that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("evenhand."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class InputError(ValueError):
    """An argument that cannot be used: "`alpha` must be ≥ 0, got -1. Hint: …".

    The command line says the same in the words of its options.

    Attributes
    ----------
    argument : str
    expected : str
        What follows "must".
    got, hint : str
        Left out of the message where empty.
    where : str
        Which one of that name, such as "of a Continuous".
    verb : str
        In place of "must", such as "cannot".
    """

    def __init__(
        self, argument: str, expected: str, got: Any = "", hint: str = "", where: str = "",
        verb: str = "must",
    ) -> None:  # fmt: skip
        super().__init__(argument, expected, got, hint, where, verb)
        self.argument, self.expected, self.got, self.hint, self.where, self.verb = self.args

    def __str__(self) -> str:
        return self.worded(f"`{self.argument}` {self.where}".rstrip(), self.hint)

    def worded(self, name: str, hint: str = "") -> str:
        """The message with another name for the argument, and another hint or none."""
        got = f", got {self.got}" if str(self.got) else ""
        text = f"{name} {self.verb} {self.expected}{got}".rstrip(".")
        return f"{text}." + (f" Hint: {hint}" if hint else "")


def read_native(values: Any, name: str) -> Any:
    """A frame or column of any library as narwhals sees it; anything else as it is.

    Parameters
    ----------
    values : Any
    name : str
        The argument's name, for messages.
    """
    if type(values) is np.ndarray:  # which narwhals takes 15 µs to see
        return values
    try:
        return nw.from_native(values, eager_only=True, allow_series=True, pass_through=True)
    except DuplicateError as error:
        raise InputError(
            name, f"have distinct column names. {' '.join(str(error).split())}",
            hint="rename or drop the repeated ones.",
        ) from None  # fmt: skip


def frame_columns(frame: nw.DataFrame[Any]) -> list[tuple[str, Any]]:
    """Names and columns. Not by name: pandas allows numbers as names, which would mean rows."""
    return [(str(column.name), column) for column in frame.iter_columns()]


def quote(name: Any) -> str:
    """A name for messages: on one line, and not too long."""
    # Line ends would break a message in two; spaces around a name are what is wrong with it.
    text = re.sub(r"\s", " ", str(name))
    return repr(text if len(text) <= 60 else text[:59] + "…")


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name most like `name`, if any is."""
    folded: dict[str, str] = {}
    for candidate in names:
        folded.setdefault(candidate.casefold().strip()[:200], candidate)
    close = difflib.get_close_matches(name.casefold().strip()[:200], folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def name_others(name: str, names: Iterable[str], what: str = "Its columns are") -> str:
    """What to say where there is no such name: the nearest one, and all there are."""
    names = list(names)
    close = nearest(name, names)
    hint = f" Did you mean {quote(close)}?" if close is not None else ""
    more = f" and {len(names) - 30} more" if len(names) > 30 else ""
    return f"{hint} {what} {', '.join(map(quote, names[:30]))}{more}" if names else hint


def is_number(value: Any, least: float = -np.inf) -> bool:
    """Whether a value is a finite real number of at least `least`; True and False are none."""
    number = as_number(value)
    return math.isfinite(number) and number >= least


def as_number(value: Any) -> float:
    """A number as a float; NaN for anything else, and for integers beyond all floats."""
    try:
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan


def as_array(values: Any, name: str) -> NDArray[Any]:
    """`np.asarray`, which lists of unequal length and other things that are no column defy."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        raise InputError(name, f"hold one value per row, got {type(values).__name__}") from None


def check_nonnegative(name: str, value: Any, hint: str = "", auto: bool = False) -> None:
    """Refuse anything but a finite number of at least 0, or "auto" where it is allowed."""
    if not (is_number(value, 0.0) or (auto and isinstance(value, str) and value == "auto")):
        kind = "'auto' or a nonnegative number" if auto else "a nonnegative number"
        raise InputError(name, f"be {kind}", repr(value), hint)


def check_positive_integer(name: str, value: Any) -> None:
    """Refuse anything but a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(name, f"be a positive integer, got {value!r}")


def is_one_of(value: Any, choices: Iterable[str]) -> bool:
    """Whether a value is one of some words; arrays cannot even be asked."""
    return isinstance(value, str) and value in choices


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse what is not one of the names that an argument may be."""
    if not is_one_of(value, choices):
        raise InputError(name, f"be one of {', '.join(choices)}, got {value!r}")


def check_confidence_level(confidence_level: Any) -> float:
    """A number strictly between 0 and 1."""
    if not 0 < as_number(confidence_level) < 1:
        raise InputError(
            "confidence_level", "lie between 0 and 1", repr(confidence_level),
            "a number such as 0.95.",
        )  # fmt: skip
    return float(confidence_level)


def check_seed(random_state: Any) -> int:
    """A seed below 2³², which every generator accepts; 0 for None, so that results repeat."""
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    try:
        if isinstance(random_state, bool | np.bool_):
            raise TypeError
        if isinstance(random_state, Integral) and 0 <= int(random_state) < 2**32:
            return int(random_state)
        return int(np.random.default_rng(random_state).integers(2**32))
    except (TypeError, ValueError):
        raise InputError(
            "random_state", "be a nonnegative integer, a NumPy generator or None",
            repr(random_state), "an integer such as 0 gives the same numbers each time.",
        ) from None  # fmt: skip


def check_names(names: Iterable[Any], argument: str, text: Callable[[Any], str] = str) -> None:
    """Results are kept by the text of a name: 1 and "1" would overwrite each other."""
    seen: dict[str, Any] = {}
    for name in names:
        if text(name) in seen:
            raise InputError(
                argument, f"have names that differ as text, got {seen[text(name)]!r} and {name!r}",
                hint="rename one of them.",
            )  # fmt: skip
        seen[text(name)] = name


def as_floats(array: NDArray[Any]) -> NDArray[np.float64]:
    """`array.astype(float64)`, which NumPy also does for dates and complex numbers: TypeError."""
    if array.dtype.kind in "mMcV":
        raise TypeError(f"{array.dtype} is not a real number.")
    try:
        return array.astype(np.float64)
    except OverflowError as error:  # of integers beyond all floats
        raise ValueError(error) from None


def refuse_masked(values: Any, name: str) -> None:
    """NumPy forgets the mask in most of what it does, and the hidden values come back."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(
            name, f"not hold masked values, got {int(np.ma.getmaskarray(values).sum())}",
            hint="drop or impute these rows first.",
        )  # fmt: skip


def refuse_dates(values: Any, name: str) -> None:
    """Dates, durations and complex numbers become floats without a word; that is never meant."""
    native = read_native(values, name)
    if isinstance(native, nw.DataFrame | nw.Series):
        columns = native.iter_columns() if isinstance(native, nw.DataFrame) else [native]
        found = [str(c.dtype) for c in columns if c.dtype.is_temporal()]
    else:
        dtype = getattr(values, "dtype", None)
        dtype = dtype if isinstance(dtype, np.dtype) else as_array(values, name).dtype
        found = [str(dtype)] if dtype.kind in "mMcV" else []
    if found:
        # scikit-learn's common checks expect the second sentence.
        what = " Complex data not supported." if found[0].startswith("complex") else ""
        raise InputError(
            name, f"be real numbers, got values of type {found[0]}.{what}",
            hint="make numbers of them first, such as days since a fixed day or absolute values.",
        )  # fmt: skip


def refuse_unreal(**arguments: Any) -> None:
    """Refuse what scikit-learn would read as floats though it is none: masks, dates, complex."""
    for name, values in arguments.items():
        refuse_masked(values, name)
        refuse_dates(values, name)


def check_index(**columns: Any) -> None:
    """Refuse names in place of rows, and rows whose pandas indices say that they do not match.

    Rows are matched by place, as scikit-learn does. That is wrong without a word where two indices
    hold the same labels in another order, or where labels are shared in part. A default index (0 to
    n − 1) beside any other set of labels is a column that has been renumbered or predicted anew,
    and labels that have nothing in common cannot contradict each other: both pass.

    Parameters
    ----------
    **columns : Any
        By the names of the arguments, for messages; those without an index are not looked at.
    """
    seen: list[tuple[str, Any]] = []
    for name, values in columns.items():
        if isinstance(values, str | PathLike):
            raise InputError(
                name, f"hold one value or line per row, got the name {str(values)!r}",
                hint="pass the columns themselves. Files and names of columns are taken by "
                "`audit_table`, `monitor`, and `fit` of FairRidge and FairGLM.",
            )  # fmt: skip
        for index in _indices(values):
            for other, before in seen:
                if not _agree(before, index):
                    raise InputError(
                        name, f"have its rows in the order of `{other}`: their pandas indices "
                        "hold the same labels in different places",
                        hint=f"bring them into one order with {name}.loc[{other}.index]; if the "
                        "rows do belong together as they stand, drop the index with "
                        f"{name}.to_numpy().",
                    )  # fmt: skip
            if all(index is not before for _, before in seen):
                seen.append((name, index))


def _indices(values: Any) -> list[Any]:
    """Indices of a pandas-like column, or of several in a dict, a Proxy or a Continuous."""
    if isinstance(values, dict):
        return [index for column in values.values() for index in _indices(column)]
    inner = getattr(values, "probabilities", None)  # a Proxy
    if type(values).__name__ == "Continuous":
        inner = values.values
    values = values if inner is None else inner
    if is_pandas_like_series(values) or is_pandas_like_dataframe(values):
        return [values.index]
    return []


def _agree(a: Any, b: Any) -> bool:
    if len(a) != len(b) or a is b or a.equals(b):
        return True  # lengths have messages of their own
    if getattr(a, "nlevels", 1) != getattr(b, "nlevels", 1):
        return True
    if any(_is_default(index) for index in (a, b)):
        return not (a.isin(b).all() and b.isin(a).all())
    return not a.isin(b).any()


def _is_default(index: Any) -> bool:
    """Whether an index is 0 … n − 1, however it is stored."""
    if getattr(index, "nlevels", 1) > 1 or getattr(index.dtype, "kind", "") not in "iu":
        return False
    return bool((np.asarray(index) == np.arange(len(index))).all())


def check_length(name: str, length: int, n_rows: int) -> None:
    """Refuse a column of another length than the rows have."""
    if length != n_rows:
        raise InputError(name, f"have one entry per row: got {length} for {n_rows} rows")


def check_squares(values: NDArray[np.float64], name: str) -> None:
    """Refuse numbers whose squares, or sums of these, are beyond all floats."""
    largest = np.abs(values).max(initial=0.0)
    if largest > 1e150:
        message = f"be small enough to square, got values up to {largest:.1e}"
        raise InputError(name, message, hint="divide it by a constant.")


def check_column(values: Any, name: str, n_rows: int | None = None) -> NDArray[np.float64]:
    """A finite 1-D float64 array from any numeric column.

    Parameters
    ----------
    values : array, series or one-column frame
    name : str
        The argument's name, for messages.
    n_rows : int, optional
        The length it must have.
    """
    if values is None:
        raise InputError(name, "be given, got None")
    native = read_native(values, name)
    if isinstance(native, nw.DataFrame | nw.Series):
        values = native.to_numpy()
    refuse_masked(values, name)
    array = as_array(values, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(
            name, f"be 1-D, got shape {array.shape}", hint="pass one column at a time."
        )
    if array.dtype.kind not in "iufb":
        try:
            array = as_floats(array)
        except (TypeError, ValueError):
            sample = f" such as {array[:1].tolist()[0]!r}" if len(array) else ""
            raise InputError(
                name, f"be numbers, got values of type {array.dtype}{sample}",
                hint="check that it is the right column; numbers kept as text can be converted "
                "with pandas.to_numeric.",
            ) from None  # fmt: skip
    array = np.ascontiguousarray(array, dtype=np.float64)
    if not array.flags.writeable:
        # Frames hand out read-only columns, for which Numba would compile every kernel again.
        array = array.copy()
    if n_rows is not None:
        check_length(name, len(array), n_rows)
    if not len(array) and not here().is_shard:
        raise InputError(name, "hold at least one row, got none")
    _refuse_infinite(array, name)
    return array


def _refuse_infinite(array: NDArray[np.float64], name: str) -> None:
    # A sum is finite unless an entry is not (or overflows): one pass, nothing allocated.
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(array.sum())
    if not finite and not np.isfinite(array).all():
        bad = np.flatnonzero(~np.isfinite(array))
        what = "NaN" if np.isnan(array[bad]).any() else "infinity"
        raise InputError(
            name, f"be finite: {len(bad)} of {len(array)} rows are {what}, the first at row "
            f"{bad[0]}", hint="drop or impute these rows first.",
        )  # fmt: skip
