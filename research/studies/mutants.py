"""Small defects planted in the code, one at a time: which are noticed by the old tests alone?

A mutant is the package with one operator, constant, comparison or result changed. The tests of
today, as `make test` runs them, go first; those of the revision named by the variable BASE, by
default the commit before the last, are asked only about mutants that survive. A mutant that only
the old tests notice is protection that was lost. Both suites run on today's package: old tests
that do not pass on it without a mutant are left out, and named in the facts of the table.

MUTANTS is how many are drawn, 300 by default. A run may take ten times the CPU time of the same
tests without a mutant; more is an endless loop.
"""

from __future__ import annotations

import ast
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import Setting
from evidence import ROOT
from studies.revisions import two_revisions

SEED = 23
# Modules below src/evenhand, and the test files nearest to each, the most likely to notice first.
_CELLS = ("measures/test_cells", "auditing/test_audit_cells", "tables/test_cell_files")
_TERM = ("training/test_regularizer", "training/test_curvature", "training/test_term_options",
         "training/test_other_criteria", "training/test_score_maps", "test_boosting")  # fmt: skip
TARGETS = {
    "measures/measures.py": ("measures/test_measures", "measures/test_information",
                             "measures/test_measured_input", "data/test_criteria"),
    "measures/entropies.py": ("measures/test_information", "measures/test_measures"),
    "measures/effective.py": ("measures/test_effective", "measures/test_measures"),
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
    "auditing/verdict.py": ("auditing/test_verdict", "auditing/test_tolerance",
                            "auditing/test_impact", "cli/test_cli_verdicts"),
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
        yield "result", ast.Return(ast.Constant(None))


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
    """One change of one module: at which of its nodes, and what becomes of that."""

    module: str
    operator: str
    place: int
    node: ast.AST
    new: ast.AST

    def write(self, source: str) -> str:
        """The whole module with the change."""
        return ast.unparse(
            ast.fix_missing_locations(_Replace(self.place, self.new).visit(ast.parse(source)))
        )


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

    # In the order in which `_Replace` visits.
    def visit(node: ast.AST) -> Iterator[ast.AST]:
        yield node
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    for place, node in enumerate(visit(tree)):
        if id(node) not in inside or id(node) in skipped:
            continue
        for operator, new in change(node):
            yield Mutant(module, operator, place, node, ast.copy_location(new, node))


def draw_mutants(count: int) -> list[Mutant]:
    """So many mutants over all targets, the same ones for the same code."""
    package, pool = ROOT / "src" / "evenhand", []
    for module in TARGETS:
        pool += list_mutants(module, (package / module).read_text(encoding="utf-8"))
    return random.Random(SEED).sample(pool, min(count, len(pool)))


# Tests --------------------------------------------------------------------------------------------


class Suite:
    """The tests of one revision, on a copy of today's package whose modules may be changed."""

    def __init__(self, folder: Path, package: Path) -> None:
        self.folder, self.package = folder, package
        self.seconds: dict[tuple[str, ...], int] = {}
        self.left_out: list[str] = []

    def name_tests(self, tests: tuple[str, ...]) -> list[str]:
        """Arguments that name the test files this revision has, less what is left out."""
        names = [f"tests/{name}.py" for name in tests]
        names = [n for n in names if (self.folder / n).exists() and n not in self.left_out]
        return [*names, *(f"--deselect={name}" for name in self.left_out)]

    def run(
        self, tests: tuple[str, ...], limit: int = 3600, *more: str
    ) -> tuple[list[str], float]:  # fmt: skip
        """Names of what failed, and seconds of CPU time."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *more, "-p", "no:cacheprovider", "-p",
             "no:randomly", "-o", "markers=slow", "-m", "not slow", *self.name_tests(tests)],
            cwd=self.folder, check=False, capture_output=True, text=True, env=self._environment(),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if done.returncode == 0:
            return [], seconds
        lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
        failed = [rest[0].split(" - ")[0] for word, *rest in lines if word in ("FAILED", "ERROR")]
        return failed or [f"exit code {done.returncode}"], seconds

    def _environment(self) -> dict[str, str]:
        paths = (self.package, self.folder / "research")
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)),
                "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip

    def prepare(self, tests: tuple[str, ...]) -> None:
        """Leave out what fails without a mutant, and learn how long the rest takes."""
        failed, seconds = self.run(tests)
        while failed:
            if not (self.folder / failed[0].split("::")[0]).is_file():
                raise RuntimeError(f"The tests of {self.folder} do not run: {failed[0]}")
            self.left_out += failed
            failed, seconds = self.run(tests)
        self.seconds[tests] = 10 * int(seconds + 10)

    def notices(self, tests: tuple[str, ...], module: Path, mutant: Mutant) -> str:
        """The test that fails while the module is the mutant; empty if none does."""
        if tests not in self.seconds:
            self.prepare(tests)
        source, times = module.read_text(), module.stat()
        module.write_text(mutant.write(source))
        try:
            failed, _ = self.run(tests, self.seconds[tests], "-x")
            return failed[0] if failed else ""
        finally:
            module.write_text(source)
            os.utime(module, ns=(times.st_atime_ns, times.st_mtime_ns))


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """One row for each mutant: what it is, and which of the two suites notices it."""
    with two_revisions() as (base, head, source, _), tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "src"
        # With the kernels that are compiled already.
        shutil.copytree(ROOT / "src", package)
        new, old = Suite(ROOT, package), Suite(source, package)
        count = int(os.environ.get("MUTANTS", setting.choose(300, 4)))
        for mutant in draw_mutants(count):
            if not setting.wants(mutant.module):
                continue
            tests = TARGETS[mutant.module]
            module = package / "evenhand" / mutant.module
            by_new = new.notices(tests, module, mutant)
            by_old = "" if by_new else old.notices(tests, module, mutant)
            before, after = (ast.unparse(n).splitlines()[0] for n in (mutant.node, mutant.new))
            yield {
                "module": mutant.module, "line": mutant.node.lineno, "operator": mutant.operator,
                "before": before, "after": after, "new_tests": by_new, "old_tests": by_old,
                "outcome": "noticed" if by_new else "old alone" if by_old else "survives",
            }  # fmt: skip
        setting.facts.update(
            base=base, head=head,
            left_out=old.left_out, left_out_of_new=new.left_out,
        )  # fmt: skip
