"""Where a fit stands, in a small file of text, so that one that was cut off goes on from there.

The file is only ever a place to begin: what is minimized, and when it is done, is read from the
rows again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from .._core.arrays import Vector
from .solver import Memory, PathSolver

FORMAT, VERSION = "evenhand checkpoint", 1
# How long to go on may change from one run to the next.
FREE = ("max_iter", "tol")
# Plain solutions of the same rows differ by rounding, and by what the order of sums makes of it.
SAME = 1e-5


class Checkpoint:
    """A file that is written after every iteration, whole or not at all.

    Parameters
    ----------
    path : path
        Read where it is there already, and written over.
    model : estimator
        Whose parameters must be those that the file was written with.
    """

    def __init__(self, path: Any, model: Any):
        from .._core.files import check_free

        if not isinstance(path, str | Path):
            raise ValueError(f"`checkpoint` must be a path, got {type(path).__name__}.")
        self.path = check_free(path, force=True)
        self._found: dict[str, Any] | None = None
        self._head: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "model": type(model).__name__,
            "parameters": {
                name: value if isinstance(value, str | int | float | None) else repr(value)
                for name, value in model.get_params(deep=False).items()
                if name not in FREE
            },
        }
        if self.path.exists():
            self._found = self._load()

    @property
    def plain(self) -> Vector | None:
        """Parameters of the plain solution, as far as an earlier run has got."""
        return None if self._found is None else _vector(self._found["data"]["plain"])

    def attach(self, solver: PathSolver, data: Mapping[str, Any]) -> None:
        """Let a solver begin where the file stands, and write down where it gets.

        Parameters
        ----------
        solver : PathSolver
        data : mapping
            What tells its rows from others: whole numbers and texts, which must be equal, and
            lists of floats, which must be close.
        """
        if self._found is not None:
            self._compare(data)
            for name, value in self._found["solved"].items():
                solver.solved[float(name)] = (_vector(value["v"]), float(value["term"]))
            for name, value in self._found["searches"].items():
                memory = _memory(value)
                solver.reached[float(name)] = (_vector(value["v"]), memory)
                if float(name) in solver.solved:
                    solver.memories[float(name)] = memory
        self._head["data"] = dict(data)
        searches: dict[str, Any] = dict(self._found["searches"]) if self._found else {}

        def write(fairness_weight: float, v: Vector, memory: Memory) -> None:
            searches[repr(fairness_weight)] = {
                "v": v.tolist(),
                "steps": [step.tolist() for step, _, _ in memory.pairs],
                "changes": [change.tolist() for _, change, _ in memory.pairs],
            }
            solved = {
                repr(weight): {"v": at.tolist(), "term": float(term)}
                for weight, (at, term) in solver.solved.items()
            }
            self._write({**self._head, "solved": solved, "searches": searches})

        self._write({**self._head, "solved": {}, "searches": searches})
        solver.write = write

    def _write(self, content: dict[str, Any]) -> None:
        from .._core.files import write_text

        write_text(self.path, json.dumps(content), force=True)

    def _load(self) -> dict[str, Any]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            if found["format"] != FORMAT:
                raise ValueError("its format is another one")
            if found["version"] != VERSION:
                raise ValueError(f"its version is {found['version']}, and {VERSION} is understood")
            _vector(found["data"]["plain"])
            for value in (*found["solved"].values(), *found["searches"].values()):
                _vector(value["v"])
            for value in found["searches"].values():
                _memory(value)
            for name in (*found["solved"], *found["searches"]):
                float(name)
            parameters = dict(found["parameters"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"`checkpoint` must be a file that a fit has written, and {str(self.path)!r} is "
                f"not one ({type(error).__name__}: {error}). Hint: delete it to begin anew, or "
                "name another."
            ) from None
        if found["model"] != self._head["model"]:
            self._refuse("of a", found["model"], self._head["model"])
        mine = self._head["parameters"]
        for name in dict.fromkeys([*mine, *parameters]):
            if mine.get(name) != parameters.get(name):
                self._refuse(f"with {name}", repr(parameters.get(name)), repr(mine.get(name)))
        return found

    def _compare(self, data: Mapping[str, Any]) -> None:
        assert self._found is not None
        theirs = self._found["data"]
        for name, mine in data.items():
            other = theirs.get(name)
            if isinstance(mine, list) and all(isinstance(value, float) for value in mine):
                a, b = np.array(mine), np.array(other, dtype=np.float64)
                same = a.shape == b.shape and bool(
                    (np.abs(a - b) <= SAME * max(np.abs(a).max(initial=0.0), 1e-300)).all()
                )
                if not same:
                    self._refuse(f"on rows with another {name}", "", "")
            elif other != mine:
                self._refuse(f"on rows whose {name} were", _short(other), _short(mine))

    def _refuse(self, what: str, theirs: str, mine: str) -> None:
        text = f"{what} {theirs}".rstrip() + (f", and now it is {mine}" if mine else "")
        raise ValueError(
            f"`checkpoint` must be of the same model and the same rows: {str(self.path)!r} was "
            f"written {text}. Hint: delete it to begin anew, or name another."
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:59] + "…"


def _vector(values: Any) -> Vector:
    if not isinstance(values, list) or not all(
        isinstance(v, int | float) and isfinite(v) for v in values
    ):
        raise ValueError("a list of numbers was expected")
    return np.array(values, dtype=np.float64)


def _memory(search: Mapping[str, Any]) -> Memory:
    memory, size = Memory(), len(search["v"])
    for step, change in zip(search["steps"], search["changes"], strict=True):
        if len(step) != size or len(change) != size:
            raise ValueError("lists of one length were expected")
        memory.add(_vector(step), _vector(change))
    return memory
