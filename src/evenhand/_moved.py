"""Where modules are now that stood at the root of the package before there were rooms.

Pickles of fitted models name the module of each class; they still load.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    "_audit_input": "auditing.input",
    "_audit_sample": "auditing.sample",
    "_candidates": "frontier.candidates",
    "_categories": "groups.categories",
    "_clusters": "groups.clusters",
    "_commands": "cli.commands",
    "_design": "models.design",
    "_design_effect": "information.design_effect",
    "_draws": "information.draws",
    "_files": "report.writing",
    "_fine_structure": "information.fine_structure",
    "_group_classifier": "models.group_classifier",
    "_model_schema": "files.model_schema",
    "_null_covariance": "information.null_covariance",
    "_one_against_rest": "auditing.one_against_rest",
    "_path_checks": "frontier.checks",
    "_path_fit": "frontier.held_out",
    "_path_measure": "frontier.readings",
    "_path_plot": "frontier.plot",
    "_path_search": "frontier.search",
    "_path_select": "frontier.select",
    "_provenance": "report.provenance",
    "_ranks": "information.ranks",
    "_ridge": "models.ridge",
    "_ridge_cv": "frontier.ridge_cv",
    "_score_maps": "models.score_maps",
    "_scoring": "models.scoring",
    "_slopes": "models.slopes",
    "_solver": "models.solver",
    "_transport": "models.transport",
    "_unit_covariance": "information.unit_covariance",
    "banding": "groups.banding",
    "basis": "information.basis",
    "classifiers": "information.classifiers",
    "criteria": "information.criteria",
    "disparities": "auditing.disparities",
    "effective": "information.effective",
    "encoding": "groups.encoding",
    "estimation": "information.estimation",
    "group_features": "models.group_features",
    "linear": "models.linear",
    "measures": "information.measures",
    "neighbors": "information.neighbors",
    "portable": "files.portable",
    "postprocess": "models.postprocess",
    "proxy": "groups.proxy",
    "recommended": "frontier.recommended",
    "regularizer": "penalty.regularizer",
    "sensitive": "groups.sensitive",
    "significance": "information.significance",
    "tables": "groups.tables",
    "tabular": "files.tabular",
    "validation": "groups.validation",
    "weights": "groups.weights",
}


class _Alias(Loader):
    def __init__(self, target: str):
        self.target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self.target)
        self.own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has been run under its own name, which it keeps."""
        module.__spec__ = self.own


class MovedFinder(MetaPathFinder):
    """Finds ``evenhand.old`` and ``evenhand.old.part`` under their new names."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        old, _, part = rest.partition(".")
        if package != __package__ or old not in MOVED:
            return None
        name = ".".join(filter(None, (package, MOVED[old], part)))
        return ModuleSpec(fullname, _Alias(name))


def install() -> None:
    """Add the finder, before those that would run a part of a moved package a second time."""
    if not any(isinstance(finder, MovedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedFinder())
