"""What a call of the loss is handed, checked once; and what is remembered of the call before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Inputs:
    """Tensors of one length on one device; `source` are those of the user, to know them again."""

    groups: Tensor
    target: Tensor | None
    weight: Tensor | None
    dtype: torch.dtype
    device: torch.device
    source: tuple[Tensor | None, ...]


class Memory:
    """What does not depend on the scores, for as long as the same tensors come in.

    Attributes
    ----------
    bound : BoundRegularizer or None
        Of the batch before, to start from.
    mean : tensor or None
        Of the scores before, to shift by.
    inputs : Inputs or None
        Checked already: each look at a value waits for a GPU.
    """

    def __init__(self) -> None:
        self.bound: Any = None
        self.mean: Tensor | None = None
        self.inputs: Inputs | None = None
        self._source: tuple[Tensor | None, ...] | None = None
        self._stamp: Any = None
        self._kept: Any = None

    def knows(self, source: tuple[Tensor | None, ...]) -> bool:
        """Whether these are the very tensors of the call before, and unchanged."""
        return (
            self._source is not None
            and all(a is b for a, b in zip(self._source, source, strict=True))
            and self._stamp is not None
            and self._stamp == _stamp(source)
        )

    def recall(self, inputs: Inputs, backend: str, make: Callable[[], Any]) -> Any:
        """What was made of the same tensors for the same backend, or what is made of them now."""
        key = (backend, inputs.dtype)
        if self.knows(inputs.source) and self._kept is not None and self._kept[0] == key:
            return self._kept[1]
        made = make()
        self._source, self._stamp = inputs.source, _stamp(inputs.source)
        self._kept, self.inputs = (key, made), inputs
        return made


def _stamp(source: tuple[Tensor | None, ...]) -> tuple[int, ...] | None:
    """Versions of the tensors; None where they keep no count of changes."""
    given = [tensor for tensor in source if tensor is not None]
    if any(tensor.is_inference() for tensor in given):
        return None
    return tuple(tensor._version for tensor in given)


def check_inputs(
    loss: Any, scores: Any, groups: Any, y: Any, given: Any, sample_weight: Any
) -> Inputs:
    """Shapes, types, devices and ranges."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        raise ValueError(f"`scores` must be a tensor of floats, got {_describe(scores)}.")
    if scores.ndim != 1 and not (scores.ndim == 2 and scores.shape[1] == 1):
        raise ValueError(
            f"`scores` must have shape (n,) or (n, 1), got {tuple(scores.shape)}. Hint: one score "
            "per row; train a loss of its own for each output."
        )
    n, device = len(scores), scores.device
    source = (groups, y if given is None else given, sample_weight)
    seen = loss._memory.inputs
    if (
        seen is not None and seen.dtype == scores.dtype and seen.device == device
        and len(seen.groups) == n and loss._memory.knows(source)
    ):  # fmt: skip
        return seen
    condition = y if given is None else given
    name = "y" if given is None else "given"
    if loss.needs_target and condition is None:
        raise ValueError(f"`y` must be given for {loss.criterion.name}, got None.")
    if not loss.needs_target:
        if given is not None:
            raise ValueError(
                f"`given` must be None for {loss.criterion.name}, which conditions on nothing."
            )
        condition = None
    if condition is not None:
        condition = _column(condition, name, n, device)
    if sample_weight is not None:
        sample_weight = _column(sample_weight, "sample_weight", n, device)
    groups = _check_groups(groups, loss.n_groups, n, device)
    _check_values(groups, sample_weight, loss.n_groups)
    return Inputs(groups, condition, sample_weight, scores.dtype, device, source)


def _check_groups(groups: Any, n_groups: int, n: int, device: torch.device) -> Tensor:
    if not isinstance(groups, Tensor):
        raise ValueError(f"`groups` must be a tensor, got {_describe(groups)}.")
    if groups.ndim == 2 and groups.is_floating_point():
        if groups.shape != (n, n_groups):
            raise ValueError(
                f"`groups` as probabilities must have shape ({n}, {n_groups}), got "
                f"{tuple(groups.shape)}."
            )
        out = groups
    else:
        if groups.is_floating_point() or groups.is_complex():
            raise ValueError(
                f"`groups` must be integers, got {_describe(groups)}. Hint: groups.long(), with -1 "
                "where the group is not known."
            )
        out = _column(groups, "groups", n, device)
        out = out.long() if out.dtype == torch.bool else out
    if out.device != device:
        raise ValueError(f"`groups` must be on {device} as the scores are, got {out.device}.")
    return out


def _check_values(groups: Tensor, weight: Tensor | None, n_groups: int) -> None:
    if groups.ndim == 2:
        off = (groups.sum(dim=1) - 1.0).abs() > 1e-3  # False for rows of NaN
        if bool((groups < 0).any() | off.any()):
            raise ValueError("`groups` as probabilities must be nonnegative, and add up to 1.")
    elif len(groups) and int(groups.max()) >= n_groups:
        raise ValueError(
            f"`groups` must lie below n_groups={n_groups}, got {int(groups.max())}. Hint: number "
            "the groups 0, 1, …; -1 is a group that is not known."
        )
    if weight is not None and not bool((torch.isfinite(weight) & (weight >= 0)).all()):
        raise ValueError("`sample_weight` must be finite and nonnegative.")


def _column(values: Any, name: str, n: int, device: torch.device) -> Tensor:
    if not isinstance(values, Tensor):
        raise ValueError(f"`{name}` must be a tensor, got {_describe(values)}.")
    flat = values.detach()
    if flat.ndim == 2 and flat.shape[1] == 1:
        flat = flat[:, 0]
    if flat.shape != (n,):
        raise ValueError(f"`{name}` must have shape ({n},), got {tuple(values.shape)}.")
    if flat.device != device:
        raise ValueError(f"`{name}` must be on {device} as the scores are, got {flat.device}.")
    return flat


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype}"
    return type(value).__name__
