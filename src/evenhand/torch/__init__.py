"""PyTorch: the fairness term as a loss for networks."""

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

__all__ = ["FairnessLoss"]


def __getattr__(name: str) -> _Any:
    if name == "FairnessLoss":
        from .loss import FairnessLoss

        return FairnessLoss
    raise AttributeError(f"module 'evenhand.torch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
