"""Fair regression: measure and train real-valued scores that do not depend on group membership."""

from importlib import import_module as _import_module
from typing import Any as _Any

__version__ = "0.1.0"

# Public name -> the module that holds it. Names resolve on first use, so that `import evenhand`
# costs nothing and an extra that is not installed never breaks the core.
_HOME = {
    "FairRegressor": "recommended",
    "FairRidge": "linear",
    "FairnessRegularizer": "regularizer",
    "AuditSet": "auditing",
    "FairPostprocessor": "postprocess",
    "FairRidgeCV": "frontier",
    "FairnessPath": "frontier",
    "Fourier": "classifiers.fourier",
    "KNN": "neighbors",
    "LSPC": "classifiers",
    "Logistic": "classifiers",
    "Proxy": "proxy",
    "Adaptive": "classifiers.adaptive",
    "Audit": "auditing",
    "audit": "auditing",
    "bands": "banding",
    "fairness_path": "frontier",
    "independence": "information",
    "separation": "information",
    "sufficiency": "information",
}
_MODULES = ("baselines", "datasets", "report")

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
