"""Fair regression: measure and train real-valued scores that do not depend on group membership."""

from importlib import import_module as _import_module
from typing import Any as _Any

__version__ = "0.1.0"

# Public name -> the module that holds it. Names resolve on first use, so that `import evenhand`
# costs nothing and an extra that is not installed never breaks the core.
_HOME = {
    "Cells": "information.cells",
    "audit_table": "engines.tables",
    "Continuous": "groups.continuous",
    "FairRegressor": "frontier.recommended",
    "FairGLM": "models.glm",
    "FairRidge": "models.linear",
    "FairnessRegularizer": "penalty.regularizer",
    "Drivers": "auditing.drivers",
    "Monitor": "auditing.monitoring",
    "AuditSet": "auditing.result",
    "FairPostprocessor": "models.postprocess",
    "FairnessPath": "frontier.path",
    "Fourier": "information.classifiers.fourier",
    "KNN": "information.neighbors",
    "LSPC": "information.classifiers",
    "Logistic": "information.classifiers",
    "SeparationWarning": "models.glm",
    "Proxy": "groups.proxy",
    "TableEncoder": "groups.encoding",
    "Tolerance": "auditing.tolerance",
    "Adaptive": "information.classifiers.adaptive",
    "Audit": "auditing.result",
    "audit": "auditing.audits",
    "Criterion": "information.criteria",
    "Variable": "information.criteria",
    "bands": "groups.banding",
    "drivers": "auditing.drivers",
    "monitor": "engines.watching",
    "fairness_path": "frontier.fitting",
    "independence": "information.single",
    "register_criterion": "information.criteria",
    "rows_needed": "auditing.planning",
    "separation": "information.single",
    "sufficiency": "information.single",
}
_MODULES = ("boosting", "datasets", "distributed", "engines", "report")

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> _Any:
    if name in _HOME:
        value = getattr(_import_module(f"evenhand.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return _import_module(f"evenhand.{name}")
    raise AttributeError(f"module 'evenhand' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
