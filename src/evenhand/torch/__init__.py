"""PyTorch: the fairness term as a loss for networks."""

from __future__ import annotations

from .._core.installing import install_hint

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(
        f"`evenhand.torch` needs PyTorch, which is not installed. Hint: {install_hint('[torch]')}"
    ) from None

from .loss import FairnessLoss

__all__ = ["FairnessLoss"]
