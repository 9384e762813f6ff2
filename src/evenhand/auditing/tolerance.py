"""What is tolerated, written down before the data are seen: limits with a digest, in a file."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._core.frames import json_safe
from .._core.validation import InputError, as_number
from ..data.criteria import CRITERIA, WITH_CONTROLS
from .impact import (
    ADJUSTED,
    AT_CUTOFF,
    NEED_TARGET,
    ON_LOG,
    SMALLEST,
    WORDS,
    check_favorable,
    check_smallest,
    read_cutoffs,
)

FORMAT = "evenhand.tolerance"
VERSION = 1
# The largest rise of a criterion over time, which a monitor judges.
DRIFT = "drift"
_SETTINGS = ("level", "reference", "favorable", "at", "cutoffs", "smallest")
# Clauses that one number will do for: a largest distance, and a largest absolute value.
_LARGEST, _ABSOLUTE = ("kolmogorov_smirnov", "wasserstein"), ("dsm",)


def clause_names() -> list[str]:
    """All clauses there are: criteria, numbers of groups, adjusted gaps."""
    return [*CRITERIA, *WITH_CONTROLS, DRIFT, *WORDS, *ADJUSTED]


def of_information(clause: str) -> bool:
    """Whether a clause is a limit on normalized information."""
    return clause in CRITERIA or clause in WITH_CONTROLS or clause == DRIFT


@dataclass(frozen=True, init=False)
class Tolerance:
    """Limits within which a score is called fair; see :meth:`Audit.verdict`.

    Small and immutable. Its `digest` names it, so that it can be agreed on and published before
    anybody has seen the data.

    Parameters
    ----------
    level : float
        Of the tests behind a verdict: the chance of a wrong pass, and of a wrong fail.
    reference : str
        The group that others are compared with, or "largest".
    favorable : {"high", "low"}, optional
        Whether a person is better off with a high score or a low one; needed by `impact_ratio` and
        `odds_ratio`.
    at : list of "median" and quantiles
        Cutoffs of these two.
    cutoffs : list of float
        Cutoffs of these two in units of the score.
    smallest : float
        Groups of a smaller share of the rows are judged together.
    **clauses : number, or (low, high)
        For `independence`, `separation`, `sufficiency` and `conditional` (independence among people
        with the same `controls`) the largest normalized information, above 0 and below 1. `drift`
        is the largest rise of a criterion over time, which :func:`monitor` judges. For
        `smd`, `mean_difference`, `mean_ratio`, `actual_expected`, `actual_expected_ratio`,
        `impact_ratio` and `odds_ratio` the range of every group's number, and for `adjusted_gap`
        and `adjusted_percent` that of the gap which the `controls` of the audit leave, in units of
        the score and in percent; None leaves an end open. A range also for `mean_residual`,
        `calibration_slope`, `mae_ratio` and `rmse_ratio` (against the reference) and for `dsm`, the
        mean of s/σ_s − y/σ_y in the group less that of all rows, where one number limits the
        absolute value. For `kolmogorov_smirnov` and `wasserstein` the largest distance of the
        group's scores from those of all others.

    See Also
    --------
    evenhand.audit
    evenhand.rows_needed

    References
    ----------
    Schuirmann, D. J. (1987). A Comparison of the Two One-Sided Tests Procedure and the Power
    Approach. Journal of Pharmacokinetics and Biopharmaceutics 15.

    Holm, S. (1979). A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal
    of Statistics 6.

    Examples
    --------
    >>> import evenhand as eh
    >>> tolerance = eh.Tolerance(independence=0.01, mean_ratio=(0.95, 1.05))
    >>> tolerance["mean_ratio"]
    (0.95, 1.05)
    >>> tolerance.digest[:12]
    '8c10e36bf0d5'
    """

    clauses: tuple[tuple[str, tuple[float, float]], ...]
    level: float
    reference: str
    favorable: str | None
    at: tuple[float, ...]
    cutoffs: tuple[float, ...]
    smallest: float

    def __init__(
        self,
        *,
        level: float = 0.05,
        reference: str = "largest",
        favorable: str | None = None,
        at: Any = ("median",),
        cutoffs: Any = (),
        smallest: float = SMALLEST,
        **clauses: Any,
    ) -> None:
        ranges = _ranges(clauses)
        if favorable is not None:
            favorable = check_favorable(favorable)
        rates = [name for name in AT_CUTOFF if name in ranges]
        if rates and favorable is None:
            raise InputError(
                "favorable", f'be given for {" and ".join(rates)}: "high" if a person is better '
                'off with a high score, "low" if with a low one (a premium, a risk)',
            )  # fmt: skip
        if not isinstance(reference, str) or not reference:
            raise InputError("reference", 'be "largest" or a group', repr(reference))
        wanted = read_cutoffs(at, cutoffs)
        if rates and not wanted:
            raise InputError("at", f"hold a cutoff for {rates[0]}, got none")
        values = {
            "clauses": tuple(ranges.items()), "level": check_level(level), "reference": reference,
            "favorable": favorable,
            "at": tuple(c.quantile for c in wanted if c.quantile is not None),
            "cutoffs": tuple(c.value for c in wanted if c.value is not None),
            "smallest": check_smallest(smallest),
        }  # fmt: skip
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __getitem__(self, clause: str) -> tuple[float, float]:
        return dict(self.clauses)[clause]

    def __contains__(self, clause: object) -> bool:
        return clause in dict(self.clauses)

    @property
    def needs_target(self) -> list[str]:
        """The clauses that compare true outcomes."""
        return [
            name
            for name, _ in self.clauses
            if name in NEED_TARGET or (name in CRITERIA and "y" in CRITERIA[name].needs)
        ]

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical form: keys sorted, numbers as floats, no spaces."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values that JSON can hold; an open end is None."""
        settings = {name: json_safe(getattr(self, name)) for name in _SETTINGS}
        if not self.cutoffs:
            del settings["cutoffs"]
        limits = {
            name: ends[1] if of_information(name) else json_safe(ends)
            for name, ends in self.clauses
        }
        return {"format": FORMAT, "version": VERSION, **settings, "clauses": limits}

    @classmethod
    def from_dict(cls, data: Any) -> Tolerance:
        """The tolerance that :meth:`to_dict` came from; unknown entries are refused.

        Parameters
        ----------
        data : mapping
        """
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            got = data.get("format") if isinstance(data, Mapping) else type(data).__name__
            raise ValueError(
                f"A tolerance must say format = {FORMAT!r}, got {got!r}. Hint: write one with "
                "Tolerance.to_file, or 'evenhand tolerance'."
            )
        if data.get("version") != VERSION:
            raise ValueError(
                f"A tolerance must be of version {VERSION}, got {data.get('version')!r}."
            )
        clauses = data.get("clauses")
        if not isinstance(clauses, Mapping):
            raise ValueError(
                f"`clauses` of a tolerance must be a table of limits by name, got {clauses!r}."
            )
        extra = [key for key in data if key not in ("format", "version", "clauses", *_SETTINGS)]
        extra += [name for name in clauses if name not in clause_names()]
        if extra:
            raise ValueError(_unknown(str(extra[0])))
        given = {key: data[key] for key in _SETTINGS if key in data}
        return cls(**given, **clauses)

    def to_file(self, path: Any, *, force: bool = False) -> Path:
        """Write it as JSON or TOML, by the ending of the name.

        Parameters
        ----------
        path : str or Path
            Ending in .json or .toml.
        force : bool
            Overwrite an existing file.
        """
        from .._core.files import write_text

        path = _checked(path)
        is_json = path.suffix == ".json"
        text = json.dumps(self.to_dict(), indent=2) + "\n" if is_json else _toml(self)
        return write_text(path, text, force)

    @classmethod
    def from_file(cls, path: Any) -> Tolerance:
        """Read what :meth:`to_file` wrote, or what was written by hand in that form.

        Parameters
        ----------
        path : str or Path
        """
        path = _checked(path)
        try:
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".json":
                data = json.loads(text, object_pairs_hook=distinct_entries)
            else:
                import tomllib

                data = tomllib.loads(text)
        except ValueError as error:
            kind = path.suffix[1:].upper()
            raise ValueError(f"{path.name} must be {kind}, which it is not: {error}.") from None
        try:
            return cls.from_dict(data)
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None

    def __str__(self) -> str:
        parts = []
        for name, (low, high) in self.clauses:
            words = WORDS.get(name, name)
            parts.append(f"{words} {range_text(name, low, high)}")
        return f"{'; '.join(parts)} (level {100 * self.level:g}%, sha256 {self.digest[:12]})"


def range_text(clause: str, low: float, high: float) -> str:
    """A range in words."""
    if of_information(clause) or low == -math.inf:
        return f"at most {high:g}"
    return f"at least {low:g}" if high == math.inf else f"{low:g} to {high:g}"


def check_level(level: Any) -> float:
    """A level of a test, above 0 and below a half."""
    if not 0.0 < as_number(level) < 0.5:
        raise InputError("level", f"be between 0 and 0.5, got {level!r}")
    return float(level)


def distinct_entries(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Names and values as a dict; two values for one name are refused.

    Parameters
    ----------
    pairs : iterable of (str, value)
        Such as the clauses of a command line, or the entries of a file.
    """
    out: dict[str, Any] = {}
    for name, value in pairs:
        if name in out:
            raise InputError(
                name, f"have one limit, got {out[name]!r} and {value!r}",
                hint="keep the one that was agreed on.",
            )  # fmt: skip
        out[name] = value
    return out


def _unknown(name: str) -> str:
    there = clause_names()
    close = difflib.get_close_matches(name, [*there, *_SETTINGS], 1)
    hint = f" Hint: did you mean {close[0]!r}?" if close else ""
    return (
        f"A tolerance has no clause {name!r}; there are {', '.join(there)}, and the settings "
        f"{', '.join(_SETTINGS)}.{hint}"
    )


def _ranges(clauses: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Limits by clause, in the order of all clauses there are."""
    given = {name: value for name, value in clauses.items() if value is not None}
    unknown = [name for name in clauses if name not in clause_names()]
    if unknown:
        raise ValueError(_unknown(unknown[0]))
    if not given:
        raise ValueError(
            "`Tolerance` must hold at least one clause, got none; there are "
            f"{', '.join(clause_names())}. Hint: eh.Tolerance(independence=0.01)."
        )
    return {name: _range(name, given[name]) for name in clause_names() if name in given}


def _range(name: str, value: Any) -> tuple[float, float]:
    if of_information(name):
        limit = as_number(value)
        if not 0.0 < limit < 1.0:
            raise InputError(
                name, f"be one number above 0 and below 1, got {value!r}",
                hint="no data can show that a criterion holds exactly; 0.01 is a small violation.",
            )  # fmt: skip
        return 0.0, limit
    if name == "kolmogorov_smirnov" and as_number(value) >= 1.0:
        raise InputError(name, "be below 1, which no distance exceeds", repr(value))
    if name in _LARGEST + _ABSOLUTE and as_number(value) > 0.0:
        value = (None if name in _LARGEST else -value, value)
    listed = isinstance(value, list | tuple | np.ndarray)
    if not listed or len(value) != 2:
        raise InputError(name, f"be two numbers, (low, high), got {value!r}")
    least = 0.0 if name in ON_LOG else -math.inf
    low, high = (
        end if item is None else as_number(item)
        for item, end in zip(value, (-math.inf, math.inf), strict=True)
    )
    if math.isnan(low) or math.isnan(high):
        raise InputError(name, f"be two numbers, (low, high), got {value!r}")
    if not low < high or (low == -math.inf and high == math.inf):
        raise InputError(
            name, f"run from a lower to a higher number, at most one of them open, got {value!r}"
        )
    if high <= least or (math.isfinite(low) and low < least):
        raise InputError(name, "lie above 0", repr(value), verb="is a ratio and must")
    return (-math.inf if name in ON_LOG and low <= 0.0 else low), high


def _checked(path: Any) -> Path:
    path = Path(path)
    if path.suffix not in (".json", ".toml"):
        raise ValueError(f"A tolerance file must end in .json or .toml, got {path.name!r}.")
    return path


def _toml(tolerance: Tolerance) -> str:
    """Settings and clauses; a JSON text is also one of TOML, and so are Python's floats."""
    settings = {k: v for k, v in tolerance.to_dict().items() if k != "clauses" and v is not None}
    lines = [f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in settings.items()]
    lines += ["", "[clauses]"]
    for name, (low, high) in tolerance.clauses:
        limits = repr(high) if of_information(name) else f"[{low!r}, {high!r}]"
        lines.append(f"{name} = {limits}")
    return "\n".join(lines) + "\n"
