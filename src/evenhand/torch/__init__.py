"""PyTorch: the fairness term as a loss for networks, and a network in scikit-learn's style."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any as _Any

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(
        "`evenhand.torch` needs PyTorch, which is not installed. Hint: "
        "pip install 'evenhand[torch]'"
    ) from None

__all__ = ["FairMLPRegressor", "FairnessLoss"]


_HOMES = {"FairMLPRegressor": "network", "FairnessLoss": "loss"}


def __getattr__(name: str) -> _Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evenhand.torch' has no attribute {name!r}")
    return getattr(_import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
