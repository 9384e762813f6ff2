"""Small defects planted in the code, one at a time: which are noticed by the old tests alone?

A mutant is the package with one operator, constant, comparison or result changed. The tests of
today, as `make test` runs them, go first; those of the revision named by the variable BASE, by
default the commit before the last, are asked only about mutants that survive. A mutant that only
the old tests notice is protection that was lost. Both suites run on today's package: old tests
that do not pass on it without a mutant are left out, and named in the facts of the table.

The tests nearest to the modules run once under a tracer, which says what lines each of them runs.
Then one process that has loaded everything forks for each mutant: the child gives the functions of
the module the changed code, and runs the tests of that line until one fails. So a mutant costs the
tests that can notice it, and no start of Python. Run the tests once before: kernels that are not in
Numba's cache compile many times slower under the tracer.

MUTANTS is how many are drawn, 300 by default. A child may take ten times the CPU time of the same
tests without a mutant; more is an endless loop. With SURVIVORS=1 none is drawn: tests that are new
since the table was made are asked about those that survived, and the rows of the others stay.
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
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import _lru_cache_wrapper
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
SEED = 23
# Modules below src/evenhand, and the test files nearest to each, the most likely to notice first.
_CELLS = ("measures/test_cells", "auditing/test_audit_cells", "tables/test_cell_files",
          "tables/test_samples", "data/test_copies")  # fmt: skip
_TERM = ("training/test_regularizer", "training/test_curvature", "training/test_term_options",
         "training/test_other_criteria", "training/test_score_maps", "test_boosting")  # fmt: skip
TARGETS = {
    "measures/measures.py": ("measures/test_measures", "measures/test_information",
                             "measures/test_measured_input", "data/test_criteria"),
    "measures/entropies.py": ("measures/test_information", "measures/test_measures"),
    "measures/effective.py": ("measures/test_effective", "measures/test_measures",
                              "data/test_copies"),
    "measures/exact_tests.py": ("measures/test_significance", "measures/test_fine_structure"),
    "measures/covariances.py": ("measures/test_unit_covariance", "measures/test_significance",
                                "measures/test_cluster_measures"),
    "measures/balancing.py": ("measures/test_balancing", "auditing/test_conditional"),
    "measures/losses.py": ("measures/test_losses", "training/test_glm"),
    "measures/edges.py": _CELLS, "measures/cells.py": _CELLS, "measures/cell_rows.py": _CELLS,
    "measures/cell_files.py": ("tables/test_cell_files", "tables/test_faults"),
    "training/penalty.py": _TERM,
    "auditing/tolerance.py": ("auditing/test_tolerance", "cli/test_cli_verdicts"),
    "auditing/planning.py": ("auditing/test_planning",),
    "auditing/verdict.py": ("auditing/test_verdict", "auditing/test_gate",
                            "auditing/test_tolerance", "auditing/test_impact",
                            "cli/test_cli_verdicts"),
}  # fmt: skip

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
        # Modules that tests import by themselves would come unchanged.
        import_module("evenhand." + self.module.removesuffix(".py").replace("/", "."))
        codes: dict[tuple[str, int], CodeType] = {}
        waiting = [self.compile()]
        while waiting:
            code = waiting.pop()
            codes[code.co_qualname, code.co_firstlineno] = code
            waiting += [part for part in code.co_consts if isinstance(part, CodeType)]
        path = str(PACKAGE / self.module)
        for function in gc.get_objects():
            if not isinstance(function, FunctionType):
                continue
            old = function.__code__
            # Several lambdas may share a line; those of a function come with its code.
            if old.co_filename == path and old.co_name != "<lambda>":
                function.__code__ = codes[old.co_qualname, old.co_firstlineno]


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
    """So many mutants over all targets, the same ones for the same code; or the survivors."""
    if os.environ.get("SURVIVORS"):
        return [mutant for row in read_rows() for mutant in [_find_again(row)] if mutant]
    pool: list[Mutant] = []
    for module in TARGETS:
        path = PACKAGE / module
        if path.is_file():
            pool += list_mutants(module, path.read_text(encoding="utf-8"))
    return random.Random(SEED).sample(pool, min(count, len(pool)))


def read_rows() -> list[dict[str, str]]:
    """The rows of the table, with their stamps."""
    from evidence import read_table

    return read_table("mutants", stamped=True)


def _find_again(row: dict[str, str]) -> Mutant | None:
    """The mutant of a row that survived, in the code of today; None if it did not, or is gone."""
    if row["outcome"] != "survives":
        return None
    source = (PACKAGE / row["module"]).read_text(encoding="utf-8")
    alike = [
        mutant
        for mutant in list_mutants(row["module"], source)
        if _describe(mutant) == {name: row[name] for name in ("operator", "before", "after")}
    ]
    return min(alike, key=lambda m: abs(m.node.lineno - int(row["line"])), default=None)


def _name_new_tests() -> list[str]:
    """Names of the tests that have come since the table was made."""
    since = next(row["commit"].rstrip("+") for row in read_rows() if row["outcome"] == "survives")
    command = ["git", "diff", "-U0", since, "--", "tests"]
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(set(re.findall(r"^\+ *def (test_\w+)", text, re.MULTILINE)))


def _describe(mutant: Mutant) -> dict[str, str]:
    before, after = (ast.unparse(n).splitlines()[0] for n in (mutant.node, mutant.new))
    return {"operator": mutant.operator, "before": before, "after": after}


# Tests --------------------------------------------------------------------------------------------

# CPU seconds of tests, without a mutant, after which no further one is asked about it.
ENOUGH = 8.0
# Seconds after which a child that only waits is ended.
FOREVER = 1800


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Trace:
    """A plugin of pytest: lines of the targets and CPU time of each test, and which tests fail.

    A fixture of a module runs in the first test that asks for it, and counts for all of them.
    """

    def __init__(self) -> None:
        self.modules = {str(PACKAGE / module): module for module in TARGETS}
        self.lines: dict[str, set[tuple[str, int]]] = {}
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self.open: list[str] = []

    def _call(self, frame: Any, event: str, argument: Any) -> Any:
        module = self.modules.get(frame.f_code.co_filename)
        if module is None or not self.open:
            return None
        lines = self.lines[self.open[-1]]

        def note(frame: Any, event: str, argument: Any) -> Any:
            lines.add((module, frame.f_lineno))
            return note

        return note

    def _follow(self, name: str) -> Iterator[None]:
        self.lines.setdefault(name, set())
        self.open.append(name)
        began = _seconds()
        threading.settrace(self._call)
        sys.settrace(self._call)
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

    def __init__(self, mutants: dict[int, Mutant], enough: float, out: Path) -> None:
        self.mutants, self.enough, self.out = mutants, enough, out

    def pytest_runtestloop(self, session: Any) -> bool:
        session.config._tmp_path_factory.getbasetemp()
        _warm_up()
        items = {item.nodeid: item for item in session.items}
        plain, _ = self._fork(lambda: _trace_all(session))
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
                chosen, total = _choose(able, mutant.module, plain["seconds"], self.enough)
                row = {"number": number, "able": len(able), "asked": len(chosen), "by": ""}
                if chosen:
                    limit, asked = int(10 * total + 20), [items[name] for name in chosen]
                    found, seconds = self._fork(lambda: _try_out(mutant, asked), limit)
                    row |= {"by": found, "seconds": seconds}
                file.write(json.dumps(row) + "\n")
                file.flush()
        return True

    @staticmethod
    def _fork(job: Callable[[], Any], limit: int = 3600) -> tuple[Any, float]:
        """What a job returns in a process of its own, and its CPU seconds."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
                signal.alarm(FOREVER)
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

    One case of each function before the second of any, near files before others, short tests
    before long ones, until there are enough; then file by file, since fixtures belong to files.
    """
    near = [f"tests/{name}.py" for name in TARGETS[module]]

    def place(name: str) -> int:
        file = name.partition("::")[0]
        return near.index(file) if file in near else len(near)

    turns: dict[str, int] = {}
    ranked = []
    for name in sorted(able, key=seconds.__getitem__):
        function = name.partition("[")[0]
        turns[function] = turns.get(function, 0) + 1
        ranked.append((turns[function], place(name) == len(near), seconds[name], name))
    chosen, total = [], 0.0
    for *_, cost, name in sorted(ranked):
        if total < enough:
            chosen.append(name)
            total += cost
    return sorted(chosen, key=lambda name: (place(name), name.partition("::")[0])), total


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
        config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if until():
            break


def _trace_all(session: Any) -> dict[str, Any]:
    watch = Trace()
    _run_items(session.items, watch, lambda: False)
    return {"lines": watch.lines, "seconds": watch.seconds, "failed": watch.failed}


class _Failures:
    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.names.append(report.nodeid)


def _try_out(mutant: Mutant, items: list[Any]) -> str:
    """The test that fails while the mutant is there; empty if none does."""
    mutant.plant()
    watch = _Failures()
    _run_items(items, watch, lambda: bool(watch.names))
    return watch.names[0] if watch.names else ""


def serve(arguments: Sequence[str]) -> int:
    """`mutants.py COUNT ENOUGH OUT NUMBERS`, in the folder whose tests are to run."""
    count, enough, out, numbers = arguments
    drawn = draw_mutants(int(count))
    mutants = {number: drawn[number] for number in json.loads(numbers)}
    modules = dict.fromkeys(mutant.module for mutant in mutants.values())
    near = dict.fromkeys(f"tests/{name}.py" for module in modules for name in TARGETS[module])
    files = [name for name in near if Path(name).is_file()]
    words = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "markers=slow",
             "-m", "not slow"]  # fmt: skip
    # Old tests of modules that are gone cannot be collected, and say nothing.
    words += ["--continue-on-collection-errors"]
    if os.environ.get("SURVIVORS"):
        words += ["-k", " or ".join(_name_new_tests())]
    pytest.main([*words, *files], plugins=[Server(mutants, float(enough), Path(out))])
    return 0 if Path(out).is_file() else 1


def ask(
    folder: Path, count: int, numbers: Sequence[int], enough: float = ENOUGH
) -> tuple[list[str], dict[int, Row]]:
    """Tests of a revision that are left out, and what its other tests say of the mutants."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "rows"
        paths = (ROOT / "src", folder / "research")
        one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "NUMBA", "EVENHAND")}
        environment = {**os.environ, **one, "PYTHONPATH": os.pathsep.join(map(str, paths)),
                       "HYPOTHESIS_STORAGE_DIRECTORY": scratch}  # fmt: skip
        subprocess.run(
            [sys.executable, __file__, str(count), str(enough), str(out), json.dumps(numbers)],
            cwd=folder, check=True, env=environment,
        )  # fmt: skip
        facts, *rows = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    return facts["left_out"], {row["number"]: row for row in rows}


def _ask_both(
    setting: Setting, count: int, numbers: list[int]
) -> tuple[dict[int, Row], dict[int, Row]]:
    """What today's tests say of the mutants, and those of BASE of the mutants that survive."""
    from studies.revisions import two_revisions

    with two_revisions() as (base, head, source, _):
        left_out_of_new, new = ask(ROOT, count, numbers)
        left_out, old = ask(source, count, [i for i in numbers if not new[i]["by"]])
        lost = [i for i, row in old.items() if row["by"]]
        if lost:  # to be sure, all of today's tests that can notice it
            new |= ask(ROOT, count, lost, float("inf"))[1]
    setting.facts.update(base=base, head=head, left_out=left_out, left_out_of_new=left_out_of_new)
    return new, old


def run(setting: Setting) -> Iterator[Row]:
    """One row for each mutant: what it is, and which of the two suites notices it."""
    count = int(os.environ.get("MUTANTS", setting.choose(300, 4)))
    mutants = draw_mutants(count)
    numbers = [i for i, mutant in enumerate(mutants) if setting.wants(mutant.module)]
    if os.environ.get("SURVIVORS"):
        from evidence import read_facts

        yield from (row for row in read_rows() if _find_again(row) is None)
        new, old = ask(ROOT, count, numbers)[1], {}
        setting.facts.update(read_facts("mutants"))
    else:
        new, old = _ask_both(setting, count, numbers)
    for i in numbers:
        mutant, by_new, by_old = mutants[i], new[i]["by"], old.get(i, {"by": ""})["by"]
        yield {
            "module": mutant.module, "line": mutant.node.lineno, **_describe(mutant),
            "tests": new[i]["able"], "new_tests": by_new,
            "old_tests": by_old, "cpu_seconds": new[i].get("seconds", 0.0),
            "outcome": "noticed" if by_new else "old alone" if by_old else "survives",
        }  # fmt: skip


if __name__ == "__main__":
    # The tests import modules that have the names of studies.
    sys.path.pop(0)
    sys.exit(serve(sys.argv[1:]))
