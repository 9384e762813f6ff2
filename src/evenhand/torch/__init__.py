"""PyTorch: the fairness term as a loss for networks, and a network in scikit-learn's style."""

from __future__ import annotations

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


def __getattr__(name: str) -> _Any:
    if name == "FairnessLoss":
        from .loss import FairnessLoss

        return FairnessLoss
    if name == "FairMLPRegressor":
        from .network import FairMLPRegressor

        return FairMLPRegressor
    raise AttributeError(f"module 'evenhand.torch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
