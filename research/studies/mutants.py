"""Small defects planted in the code, one at a time: which of them do the tests notice?

A mutant is the package with one operator, constant, comparison or result changed. A sample of them
is drawn from each of five rooms, as many from one as from another, by a seed that stays in the
table. Its outcome is that of the tests there were when it was drawn, and stays too: a score on
mutants that tests were written for says little. What tests notice later stands beside it.

The tests, as `make test` runs them, run once with a mark at each statement, which says what lines
each test runs; that is kept for the next sample of the same code. Then one process that has loaded
everything forks for each mutant: the child gives the functions of the module the changed code, and
runs the tests of that line until one fails. So a mutant costs the tests that can notice it, and no
start of Python.

SEED is that of a sample, and MUTANTS how many each room gives, 32 by default; samples of other
seeds stay in the table. With BASE the tests of an older revision are asked about mutants that
survive: one that only they notice is protection that was lost. With SURVIVORS=REVISION none is
drawn: tests that are new or changed since that revision are asked about all that survived, and only
the column `later` changes.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import pickle
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import _lru_cache_wrapper, partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from common import Setting

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "evenhand"
Row = dict[str, Any]
SEED = int(os.environ.get("SEED", "29"))
ROOMS = ("measures", "estimators", "training", "auditing", "tables")
# What `make test` runs and what can notice a mutant of these rooms. Left out, though they might
# notice more: networks, browsers and pages, and files that start the threads of Polars when they
# are collected, which do not outlive a fork.
TESTS = (
    *(f"tests/{room}" for room in ROOMS), "tests/cli",
    *(f"tests/data/test_{name}.py" for name in ("continuous", "controls", "copies", "criteria",
                                               "frequency", "index", "sample")),
    *(f"tests/report/test_{name}.py" for name in ("html", "plots", "signed", "view")),
    "tests/distributed/test_shards.py", "tests/test_boosting.py", "tests/test_torture.py",
)  # fmt: skip

# What becomes what --------------------------------------------------------------------------------

_COMPARED: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.GtE, ast.LtE), ast.LtE: (ast.Gt, ast.Lt), ast.Gt: (ast.LtE, ast.GtE),
    ast.GtE: (ast.Lt, ast.Gt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_COMPUTED: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip


def change(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """All mutants of one expression or statement, each with the name of its operator."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other, name in zip(
            _COMPARED.get(type(node.ops[0]), ()), ("comparison", "boundary"), strict=False
        ):
            yield name, ast.Compare(node.left, [other()], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        yield "arithmetic", ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield (
            "logic",
            ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values),
        )
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "sign" if isinstance(node.op, ast.USub) else "not", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        value = node.value
        yield "constant", ast.Constant(not value if isinstance(value, bool) else 2 * value + 1)
    elif isinstance(node, ast.Return) and not (
        node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
    ):
        # Names stay in use, so that the function closes over the same variables.
        yield "result", ast.Return(ast.BoolOp(ast.And(), [ast.Constant(None), node.value]))


def _is_about_numbers(node: ast.AST) -> bool:
    """Whether it computes: not a message, a type, a default that only says what may be passed."""
    skipped = (ast.Raise, ast.JoinedStr, ast.arg, ast.AnnAssign, ast.Import, ast.ImportFrom)
    return not isinstance(node, skipped)


class _Replace(ast.NodeTransformer):
    def __init__(self, place: int, new: ast.AST) -> None:
        self.place, self.new, self.count = place, new, -1

    def visit(self, node: ast.AST) -> Any:
        self.count += 1
        return self.new if self.count == self.place else self.generic_visit(node)


@dataclass(frozen=True)
class Mutant:
    """One change of one module: at which of its nodes, and what becomes of that.

    `lines` are those of the innermost statement, without the statements inside of it.
    """

    module: str
    operator: str
    place: int
    node: ast.AST
    new: ast.AST
    lines: range

    def compile(self) -> CodeType:
        """Return the code of the whole module with the change."""
        path = PACKAGE / self.module
        tree = _Replace(self.place, self.new).visit(ast.parse(path.read_text(encoding="utf-8")))
        return compile(ast.fix_missing_locations(tree), str(path), "exec")

    def plant(self) -> None:
        """Give the functions of the module, wherever they are referred to, the changed code."""
        _plant(self.module, self.compile())


def _plant(module: str, code: CodeType) -> Any:
    """Give all functions of a module, which is returned, the code they have in the code of it."""
    # Modules that tests import by themselves would come unchanged.
    loaded = import_module("evenhand." + module.removesuffix(".py").replace("/", "."))
    codes: dict[tuple[str, int], CodeType] = {}
    waiting = [code]
    while waiting:
        code = waiting.pop()
        codes[code.co_qualname, code.co_firstlineno] = code
        waiting += [part for part in code.co_consts if isinstance(part, CodeType)]
    path = str(PACKAGE / module)
    for function in gc.get_objects():
        if not isinstance(function, FunctionType):
            continue
        old = function.__code__
        # Several lambdas may share a line; those of a function come with its code.
        if old.co_filename == path and old.co_name != "<lambda>":
            function.__code__ = codes[old.co_qualname, old.co_firstlineno]
    return loaded


class _Mark(ast.NodeTransformer):
    """Puts a call that notes the line before each statement inside of functions."""

    def __init__(self) -> None:
        self.inside = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outside, self.inside = self.inside, True
        self.generic_visit(node)
        self.inside = outside
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if self.inside and isinstance(statements, list):
                setattr(node, name, [each for s in statements for each in (_mark_of(s), s)])
        return node


def _mark_of(statement: ast.stmt) -> ast.stmt:
    line = ast.Constant(statement.lineno)
    call = ast.Call(ast.Name("_note_line", ast.Load()), [line], [])
    return ast.copy_location(ast.Expr(call), statement)


def _plant_marks(modules: Sequence[str], note: Callable[[str, int], None]) -> None:
    """Let each statement of these modules say that it runs."""
    for module in modules:
        path = PACKAGE / module
        tree = ast.fix_missing_locations(_Mark().visit(ast.parse(path.read_text(encoding="utf-8"))))
        loaded = _plant(module, compile(tree, str(path), "exec"))
        loaded._note_line = partial(note, module)


def list_mutants(module: str, source: str) -> Iterator[Mutant]:
    """All mutants of a module."""
    tree = ast.parse(source)
    inside = {
        id(child)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for statement in function.body
        for child in ast.walk(statement)
    }
    skipped = {
        id(child)
        for node in ast.walk(tree)
        if not _is_about_numbers(node)
        for child in ast.walk(node)
    }

    # In the order in which `_Replace` visits, each with its innermost statement.
    def visit(node: ast.AST, statement: Any) -> Iterator[tuple[ast.AST, Any]]:
        statement = node if isinstance(node, ast.stmt) else statement
        yield node, statement
        for child in ast.iter_child_nodes(node):
            yield from visit(child, statement)

    for place, (node, statement) in enumerate(visit(tree, None)):
        if id(node) not in inside or id(node) in skipped:
            continue
        body = getattr(statement, "body", None)
        end = body[0].lineno if body else statement.end_lineno + 1
        lines = range(statement.lineno, max(end, statement.lineno + 1))
        for operator, new in change(node):
            yield Mutant(module, operator, place, node, ast.copy_location(new, node), lines)


def draw_mutants(count: int) -> list[Mutant]:
    """So many mutants of each room, the same ones for the same code and seed; or the survivors."""
    if os.environ.get("SURVIVORS"):
        return [mutant for row in read_rows() for mutant in [_find_again(row)] if mutant]
    chance, out = random.Random(SEED), []
    for room in ROOMS:
        pool: list[Mutant] = []
        for path in sorted((PACKAGE / room).glob("*.py")):
            pool += list_mutants(f"{room}/{path.name}", path.read_text(encoding="utf-8"))
        out += chance.sample(pool, min(count, len(pool)))
    return out


def read_rows() -> list[dict[str, str]]:
    """The rows of the table, with their stamps."""
    from evidence import read_table

    return read_table("mutants", stamped=True)


def _find_again(row: dict[str, str]) -> Mutant | None:
    """The mutant of a row that survived, in the code of today; None if it did not, or is gone."""
    path = PACKAGE / row["module"]
    if row["outcome"] != "survives" or not path.is_file():
        return None
    source = path.read_text(encoding="utf-8")
    alike = [
        mutant
        for mutant in list_mutants(row["module"], source)
        if _describe(mutant) == {name: row[name] for name in ("operator", "before", "after")}
    ]
    return min(alike, key=lambda m: abs(m.node.lineno - int(row["line"])), default=None)


def _name_new_tests() -> list[str]:
    """Names of the tests that have come or changed since a revision."""
    command = ["git", "diff", "-U0", os.environ["SURVIVORS"], "--", "tests"]
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted({*re.findall(r"^(?:\+|@@.*@@) *def (test_\w+)", text, re.MULTILINE)})


def _describe(mutant: Mutant) -> dict[str, str]:
    before, after = (ast.unparse(n).splitlines()[0] for n in (mutant.node, mutant.new))
    return {"operator": mutant.operator, "before": before, "after": after}


# Tests --------------------------------------------------------------------------------------------

# CPU seconds of tests, without a mutant, after which no further one is asked about it: at first,
# and where none of these notices it.
ENOUGH, THOROUGH = 5.0, 12.0
# Seconds after which a child that only waits is ended.
FOREVER = 900


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Trace:
    """A plugin of pytest: lines and CPU time of each test, and which tests fail.

    A fixture of a module runs in the first test that asks for it, and counts for all of them.
    """

    def __init__(self) -> None:
        self.lines: dict[str, set[tuple[str, int]]] = {}
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self.open: list[str] = []

    def note(self, module: str, line: int) -> None:
        if self.open:
            self.lines[self.open[-1]].add((module, line))

    def _follow(self, name: str) -> Iterator[None]:
        self.lines.setdefault(name, set())
        self.open.append(name)
        began = _seconds()
        try:
            return (yield)
        finally:
            self.open.pop()
            self.seconds[name] = self.seconds.get(name, 0.0) + _seconds() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        return (yield from self._follow(item.nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        return (yield from self._follow(_name_fixture(fixturedef)))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)


def _name_fixture(fixture: Any) -> str:
    return f"fixture {fixture.baseid}::{fixture.argname}"


class Server:
    """A plugin of pytest: what `make test` would say of each mutant, from one warm process."""

    def __init__(self, mutants: dict[int, Mutant], out: Path, kept: Path) -> None:
        self.mutants, self.out, self.kept = mutants, out, kept

    def pytest_runtestloop(self, session: Any) -> bool:
        session.config._tmp_path_factory.getbasetemp()
        _warm_up()
        items = {item.nodeid: item for item in session.items}
        plain = self._trace(session)
        lines = {
            name: plain["lines"][name].union(
                *(
                    plain["lines"].get(_name_fixture(each), set())
                    for several in item._fixtureinfo.name2fixturedefs.values()
                    for each in several
                )
            )
            for name, item in items.items()
            if name not in plain["failed"]
        }
        with self.out.open("w", encoding="utf-8") as file:
            file.write(json.dumps({"left_out": plain["failed"]}) + "\n")
            for number, mutant in self.mutants.items():
                places = {(mutant.module, line) for line in mutant.lines}
                able = [name for name, seen in lines.items() if seen & places]
                row = {"number": number, "able": len(able), "by": "", "seconds": 0.0}
                for enough in (ENOUGH, THOROUGH):
                    chosen, total = _choose(able, mutant.module, plain["seconds"], enough)
                    able = [name for name in able if name not in chosen]
                    limit = int(4 * total + 20)
                    while chosen and not row["by"]:
                        asked = [items[name] for name in chosen]
                        by, seconds = self._fork(lambda: _try_out(mutant, asked), limit)
                        row["seconds"] += seconds
                        if not by:
                            break
                        # A test may fail for itself after a fork, in this order; so may its file.
                        before = asked[: chosen.index(by) + 1] if by in chosen else asked
                        if by != self._fork(lambda: _try_out(None, before), limit)[0]:
                            row["by"] = by
                        else:
                            unsteady = by.partition("::")[0]
                            lines = {n: v for n, v in lines.items() if not n.startswith(unsteady)}
                            able, chosen = (
                                [n for n in names if not n.startswith(unsteady)]
                                for names in (able, chosen)
                            )
                file.write(json.dumps(row) + "\n")
                file.flush()
        return True

    def _trace(self, session: Any) -> dict[str, Any]:
        """Lines, seconds and failures of all tests; files that were traced before are not again."""
        plain: dict[str, Any] = {"files": {}, "lines": {}, "seconds": {}, "failed": []}
        if self.kept.is_file():
            plain = pickle.loads(self.kept.read_bytes())
        files: dict[str, list[Any]] = {}
        for item in session.items:
            files.setdefault(item.nodeid.partition("::")[0], []).append(item)
        hashes = {name: sha256(Path(name).read_bytes()).hexdigest() for name in files}
        items = [
            item for name in files if plain["files"].get(name) != hashes[name]
            for item in files[name]
        ]  # fmt: skip
        if items:
            new, _ = self._fork(lambda: _trace_all(items), forever=7200)
            for part in ("lines", "seconds"):
                plain[part] |= new[part]
            again = {item.nodeid for item in items}
            plain["failed"] = [*(n for n in plain["failed"] if n not in again), *new["failed"]]
            plain["files"] |= hashes
            self.kept.parent.mkdir(parents=True, exist_ok=True)
            self.kept.write_bytes(pickle.dumps(plain))
        return plain

    @staticmethod
    def _fork(
        job: Callable[[], Any], limit: int = 7200, forever: int = FOREVER
    ) -> tuple[Any, float]:
        """What a job returns in a process of its own, and its CPU seconds."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
                signal.alarm(forever)
                silent = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silent, 1)
                os.dup2(silent, 2)
                with os.fdopen(writing, "wb") as file:
                    pickle.dump(job(), file)
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            content = file.read()
        _, _, used = os.wait4(child, 0)
        result = pickle.loads(content) if content else "ended by the system, or too long"
        return result, used.ru_utime + used.ru_stime


def _choose(
    able: list[str], module: str, seconds: dict[str, float], enough: float
) -> tuple[list[str], float]:
    """Tests to ask about a mutant, and their CPU seconds without one.

    One case of each function before the second of any, the room's own tests before others, short
    tests before long ones, until there are enough; then file by file, for fixtures belong to files.
    """
    near = f"tests/{module.partition('/')[0]}/"
    turns: dict[str, int] = {}
    ranked = []
    for name in sorted(able, key=seconds.__getitem__):
        function = name.partition("[")[0]
        turns[function] = turns.get(function, 0) + 1
        ranked.append((turns[function], not name.startswith(near), seconds[name], name))
    chosen, total = [], 0.0
    for *_, cost, name in sorted(ranked):
        if total < enough:
            chosen.append(name)
            total += cost
    return sorted(chosen, key=lambda n: (not n.startswith(near), n.partition("::")[0])), total


def _warm_up() -> None:
    """Load kernels from their cache, and forget what Python functions keep."""
    import numpy as np

    import evenhand as eh

    rng = np.random.default_rng(0)
    a = np.arange(300) % 3
    X = rng.normal(size=(300, 3)) + a[:, None]
    y = X.sum(axis=1) + rng.normal(size=300)
    for groups in (a, a % 2):
        eh.audit(y, X[:, 0], sensitive_features=groups)
        eh.audit(y, X[:, 0], sensitive_features=groups, estimator="logistic")
        eh.FairRidge("separation").fit(X, y, sensitive_features=groups)
    for thing in gc.get_objects():
        if isinstance(thing, _lru_cache_wrapper):
            thing.cache_clear()


def _run_items(items: Sequence[Any], watch: Any, until: Callable[[], bool]) -> None:
    config = items[0].config
    config.pluginmanager.register(watch)
    for item, after in zip(items, [*items[1:], None], strict=True):
        # Tests of commands leave streams behind that are closed.
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if until():
            break


def _trace_all(items: Sequence[Any]) -> dict[str, Any]:
    watch = Trace()
    rooms = [f"{room}/{path.name}" for room in ROOMS for path in (PACKAGE / room).glob("*.py")]
    _plant_marks(rooms, watch.note)
    _run_items(items, watch, lambda: False)
    return {"lines": watch.lines, "seconds": watch.seconds, "failed": watch.failed}


class _Failures:
    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.names.append(report.nodeid)


def _try_out(mutant: Mutant | None, items: list[Any]) -> str:
    """The test that fails while the mutant is there, if there is one; empty if none does."""
    if mutant is not None:
        mutant.plant()
    watch = _Failures()
    _run_items(items, watch, lambda: bool(watch.names))
    return watch.names[0] if watch.names else ""


def serve(arguments: Sequence[str]) -> int:
    """`mutants.py COUNT OUT KEPT NUMBERS`, in the folder whose tests are to run."""
    count, out, kept, numbers = arguments
    drawn = draw_mutants(int(count))
    mutants = {number: drawn[number] for number in json.loads(numbers)}
    files = [name for name in TESTS if Path(name).exists()]
    words = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]
    # Old tests of modules that are gone cannot be collected, and say nothing.
    words += ["--continue-on-collection-errors"]
    if os.environ.get("SURVIVORS"):
        words += ["-k", " or ".join(_name_new_tests())]
        kept = f"{out}-lines"
    pytest.main([*words, *files], plugins=[Server(mutants, Path(out), Path(kept))])
    return 0 if Path(out).is_file() else 1


def ask(
    folder: Path, count: int, numbers: Sequence[int], kept: Path
) -> tuple[list[str], dict[int, Row]]:
    """Tests of a revision that are left out, and what its other tests say of the mutants.

    `kept` is the file for what its tests run.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "rows"
        paths = (ROOT / "src", folder / "research")
        one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "NUMBA", "EVENHAND")}
        environment = {**os.environ, **one, "PYTHONPATH": os.pathsep.join(map(str, paths)),
                       "HYPOTHESIS_STORAGE_DIRECTORY": scratch}  # fmt: skip
        subprocess.run(
            [sys.executable, __file__, str(count), str(out), str(kept), json.dumps(numbers)],
            cwd=folder, check=True, env=environment,
        )  # fmt: skip
        facts, *rows = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    return facts["left_out"], {row["number"]: row for row in rows}


def _ask_old(
    setting: Setting, count: int, numbers: list[int], new: dict[int, Row]
) -> dict[int, Row]:
    """What the tests of BASE say of the mutants that survive today's, if there is a base."""
    if "BASE" not in os.environ:
        return {}
    from studies.revisions import two_revisions

    with two_revisions() as (base, head, source, _):
        survivors = [i for i in numbers if not new[i]["by"]]
        left_out, old = ask(source, count, survivors, setting.cache / f"lines-{base}")
    setting.facts.update(base=base, head=head, left_out=left_out)
    return old


def run(setting: Setting) -> Iterator[Row]:
    """One row for each mutant of all samples: what it is, and which tests notice it."""
    count = int(os.environ.get("MUTANTS", setting.choose(32, 1)))
    mutants = draw_mutants(count)
    numbers = list(range(len(mutants)))
    rows = [] if setting.quick else read_rows()
    if rows:
        from evidence import read_facts

        setting.facts.update(read_facts("mutants"))
    left_out, new = ask(ROOT, count, numbers, setting.cache.resolve() / "lines")
    if os.environ.get("SURVIVORS"):
        later = (new[i]["by"] for i in numbers)
        yield from (
            row if _find_again(row) is None else row | {"later": next(later) or row["later"]}
            for row in rows
        )
        return
    yield from (row for row in rows if row["seed"] != str(SEED))
    old = _ask_old(setting, count, numbers, new)
    setting.facts.setdefault("left_out_of_new", []).extend(left_out)
    for i in numbers:
        mutant, by_new, by_old = mutants[i], new[i]["by"], old.get(i, {"by": ""})["by"]
        yield {
            "seed": SEED, "module": mutant.module, "line": mutant.node.lineno, **_describe(mutant),
            "tests": new[i]["able"], "new_tests": by_new,
            "old_tests": by_old, "cpu_seconds": new[i]["seconds"],
            "outcome": "noticed" if by_new else "old alone" if by_old else "survives",
            "later": "",
        }  # fmt: skip


if __name__ == "__main__":
    # The tests import modules that have the names of studies.
    sys.path.pop(0)
    sys.exit(serve(sys.argv[1:]))
