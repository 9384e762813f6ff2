"""What the site says about the package: public names in their order, and where a name is defined.

No Sphinx in here, so that the tests can use it without.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
# The order of the reference. A public name that is not here comes last, under "More".
SECTIONS = {
    "Audit": ("audit", "Audit", "AuditSet", "independence", "separation", "sufficiency"),
    "Verdict": ("Tolerance", "rows_needed"),
    "Explain and watch": ("drivers", "Drivers", "monitor", "Monitor"),
    "Counts in place of rows": ("Cells", "audit_table"),
    "Who belongs where": ("bands", "Continuous", "Proxy"),
    "Models": (
        "FairRegressor", "FairRidge", "FairGLM", "SeparationWarning", "FairPostprocessor",
        "TableEncoder", "load", "save",
    ),
    "Frontier": ("fairness_path", "FairnessPath", "alternatives"),
    "Estimators of information": ("Adaptive", "Logistic", "LSPC", "Fourier", "KNN"),
    "For those who build models": ("FairnessRegularizer",),
    "Criteria of your own": ("Criterion", "Variable", "register_criterion"),
}  # fmt: skip
# Not to be imported by users, but handed to them.
RESULTS = (
    "Measure", "Difference", "Disparities", "OneAgainstRest", "Impact", "ImpactNumber", "ByGroup",
    "Verdict", "ClauseResult", "Conditional", "AdjustedGap", "Imputation", "Pricing",
    "Relativities", "Alternatives", "About", "PathPoint", "Unreachable", "Tried",
    "BoundRegularizer", "Edges", "RowLosses", "EntropyEstimator",
)  # fmt: skip
EXECUTED = re.compile(r"^```\{executed\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMPUTED_BY = re.compile(r"^```\{computed-by\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# "page?" in a toctree: there if the page is.
OPTIONAL = re.compile(r"^([\w/-]+)\?\n", re.MULTILINE)


@cache
def definitions() -> dict[str, list[str]]:
    """Name of each function, class and method ("Class.method") → modules that define it."""
    found: dict[str, list[str]] = {}
    for file in sorted((SOURCE / "evenhand").rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        if {"cli", "_commands"} & {*parts}:  # which has options named after what they choose
            continue
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.setdefault(node.name, []).append(module)
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef):
                        found.setdefault(f"{node.name}.{inner.name}", []).append(module)
    return found


def locate(name: str) -> tuple[str, str]:
    """("class", "function" or "method", full name) of a name that one module alone defines.

    Pages name functions and not files, so that they survive a move from one file to another.
    """
    modules = definitions().get(name, [])
    if len(modules) != 1:
        where = f"defined in {', '.join(modules)}" if modules else "not defined"
        raise LookupError(f"`{name}` must be defined in one module of evenhand; it is {where}.")
    kind = "method" if "." in name else "class" if name[0].isupper() else "function"
    return kind, f"{modules[0]}.{name}"


def public_names() -> dict[str, tuple[str, ...]]:
    """Heading → public names of the package's root under it."""
    import evenhand

    names = [
        name
        for name in evenhand.__all__
        if not name.startswith("__") and not inspect.ismodule(getattr(evenhand, name))
    ]
    stale = [name for listed in SECTIONS.values() for name in listed if name not in names]
    if stale:
        raise LookupError(f"Names in `SECTIONS` must be public; {', '.join(stale)} is not.")
    listed = {name for section in SECTIONS.values() for name in section}
    more = tuple(name for name in names if name not in listed)
    return {**SECTIONS, **({"More": more} if more else {})}
