"""Fair regression: measure and train real-valued scores that do not depend on group membership."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any as _Any

__version__ = "0.1.0"

# Public name -> the module that holds it. Names resolve on first use, so that `import evenhand`
# costs nothing and an extra that is not installed never breaks the core.
_HOME = {
    "Cells": "measures.cells",
    "audit_table": "tables.audit_table",
    "Continuous": "data.bands",
    "FairRegressor": "training.recommended",
    "FairGLM": "training.glm",
    "FairRidge": "training.linear",
    "FairnessRegularizer": "training.penalty",
    "Drivers": "auditing.drivers",
    "Monitor": "auditing.monitoring",
    "AuditSet": "auditing.result",
    "FairPostprocessor": "training.postprocess",
    "FairnessPath": "training.path",
    "Fourier": "estimators.references",
    "KNN": "estimators.references",
    "LSPC": "estimators.lspc",
    "Logistic": "estimators.logistic",
    "SeparationWarning": "training.glm",
    "Proxy": "data.groups",
    "TableEncoder": "data.encoding",
    "Tolerance": "auditing.tolerance",
    "Adaptive": "estimators.adaptive",
    "Audit": "auditing.result",
    "alternatives": "training.frontier",
    "audit": "auditing.audits",
    "Criterion": "data.criteria",
    "Variable": "data.criteria",
    "bands": "data.bands",
    "drivers": "auditing.drivers",
    "monitor": "tables.monitor",
    "load": "training.model_files",
    "save": "training.model_files",
    "fairness_path": "training.frontier",
    "independence": "measures.measures",
    "register_criterion": "data.criteria",
    "rows_needed": "auditing.planning",
    "separation": "measures.measures",
    "sufficiency": "measures.measures",
}
_MODULES = ("boosting", "datasets", "distributed", "onnx", "report", "tables")

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
