"""Tables of results: one writer that stamps each row, one reader, and how old a table is.

Every row carries the commit, the date, the load of the machine and the versions it was made with,
so that a table of which some parts were measured again says so row by row.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from numbers import Integral, Real
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS = HERE / "results"
STAMP = ("commit", "date", "load", "versions")
PACKAGES = ("evenhand", "numpy", "scipy", "scikit-learn", "numba")
UNKNOWN = "which this copy does not know"
Row = dict[str, Any]


def git(*words: str) -> str:
    """Return what a git command prints about this repository."""
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def make_stamp(packages: Sequence[str] = ()) -> dict[str, str]:
    """Return commit, date, load and versions of this moment.

    A plus after the commit says that code was changed since. The load is that of the last minute,
    in busy cores: times measured at a load near the number of cores are too long.
    """
    changed = git("status", "--porcelain", "--", "src", "research", ":!research/results")
    names = [f"{p} {v}" for p in (*PACKAGES, *packages) if (v := _version(p))]
    names += [f"Python {platform.python_version()}", f"{len(os.sched_getaffinity(0))} cores"]
    return {
        "commit": git("rev-parse", "--short=10", "HEAD") + ("+" if changed else ""),
        "date": datetime.now(UTC).date().isoformat(),
        "load": f"{os.getloadavg()[0]:.1f}",
        "versions": "; ".join(names),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def write_table(
    path: Path, rows: Iterable[Row], stamp: dict[str, str], facts: Row | None = None
) -> Path:
    """Write rows to a CSV file, whole or not at all, and facts about all of them to a JSON file.

    A row that has a stamp already, since it was kept from an earlier run, keeps it. The facts hold
    the checksum of the table, so that a number edited by hand does not go unnoticed.
    """
    rows = [{**stamp, **row} for row in rows]
    columns = list(dict.fromkeys(key for row in rows for key in row if key not in STAMP))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".csv.tmp")
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*columns, *STAMP], lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _short(value) for key, value in row.items()} for row in rows)
    facts = {**(facts or {}), "sha256": hash_file(temporary)}
    noted = path.with_suffix(".json.tmp")
    noted.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
    noted.replace(path.with_suffix(".json"))
    return path


def hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, Real) and not isinstance(value, Integral) else value


def read_table(name: str, folder: Path = RESULTS, stamped: bool = False) -> list[dict[str, str]]:
    """Read the rows of a table as text; without their stamps unless asked for.

    A table that was never made has no rows.
    """
    path = folder / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not stamped:
        rows = [{key: row[key] for key in row if key not in STAMP} for row in rows]
    return rows


def read_numbers(name: str, folder: Path = RESULTS) -> list[Row]:
    """Read the rows of a table with numbers as floats; an empty field is NaN."""
    return [{key: _number(value) for key, value in row.items()} for row in read_table(name, folder)]


def _number(text: str) -> Any:
    if text == "":
        return float("nan")
    try:
        return float(text)
    except ValueError:
        return text


def read_facts(name: str, folder: Path = RESULTS) -> Row:
    """Read what the JSON beside a table says."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def read_stamps(name: str, folder: Path = RESULTS) -> list[dict[str, str]]:
    """Return the different stamps of the rows of a table, oldest first."""
    stamps = {tuple(row[key] for key in STAMP) for row in read_table(name, folder, stamped=True)}
    result = [dict(zip(STAMP, stamp, strict=True)) for stamp in stamps]
    return sorted(result, key=lambda stamp: (stamp["date"], stamp["commit"]))


@cache
def code_of(blob: str) -> str:
    """Return what runs of a file in git, by its hash: Python without comments and docstrings."""
    return "" if set(blob) == {"0"} else read_code(git("cat-file", "blob", blob))


@cache
def read_code(text: str) -> str:
    """Return what runs of a text: its syntax tree without docstrings, or itself if not Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return text
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(ast.Constant(str())), *rest]:
                    node.body = rest
    return ast.dump(tree)


@cache
def last_change(paths: tuple[str, ...], since: str) -> tuple[str, str, str] | None:
    """Return commit, date and file of the last change of what runs under paths since a commit.

    Words in comments and docstrings move no number.
    """
    raw = git("diff", "--raw", "--no-renames", "--no-abbrev", since, "HEAD", "--", *paths)
    for line in raw.splitlines():
        facts, name = line.split("\t")
        old, new = facts.split()[2:4]
        if code_of(old) != code_of(new):
            span = ("--no-merges", "--format=%h %cs", f"{since}..HEAD")
            return *git("log", "-1", *span, "--", name).split(), name
    return None


@cache
def is_edited(paths: tuple[str, ...]) -> bool:
    """Return whether what runs under these paths is changed and not committed."""
    if git("ls-files", "--others", "--exclude-standard", "--", *paths):
        return True
    for name in git("diff", "--name-only", "--no-renames", "HEAD", "--", *paths).splitlines():
        file = ROOT / name
        now = read_code(file.read_text(encoding="utf-8").strip()) if file.exists() else ""
        if now != read_code(git("show", f"HEAD:{name}")):
            return True
    return False


@cache
def fingerprint(paths: tuple[str, ...]) -> str:
    """Return a hash of what runs under paths, as committed: comments and docstrings left out."""
    lines = git("ls-tree", "-r", "HEAD", "--", *paths).splitlines()
    files = sorted((line.split("\t")[1], line.split()[2]) for line in lines)
    code = [f"{name}\0{code_of(blob)}\0" for name, blob in files]
    return hashlib.sha256("".join(code).encode()).hexdigest()[:10]


def find_stale(name: str, sources: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Return commits and dates of a table, each with what it is older than; "" where it is not.

    Without the history, as in a shallow copy of the repository, nothing is known of its age.
    """
    out = []
    for commit, date in dict.fromkeys((s["commit"], s["date"]) for s in read_stamps(name)):
        words = ""
        try:
            changed = last_change(sources, commit.rstrip("+"))
        except (OSError, subprocess.CalledProcessError):
            words, changed = f"measured at {commit}, {UNKNOWN}", None
        if changed:
            words = (
                f"measured at {commit} ({date}), before the last change of {changed[2]} "
                f"({changed[0]}, {changed[1]})"
            )
        elif not words and is_edited(sources):
            words = f"measured at {commit} ({date}), before changes that are not committed"
        out.append((commit, date, words))
    return out or [("", "", "never measured")]


def is_older(name: str, sources: tuple[str, ...]) -> bool | None:
    """Return whether rows of a table are older than the code they measure; None if not known."""
    ages = [words for *_, words in find_stale(name, sources) if words]
    if any(UNKNOWN not in words for words in ages):
        return True
    return None if ages else False
