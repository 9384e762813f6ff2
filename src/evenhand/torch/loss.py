"""FairnessLoss: the normalized information of a criterion as a loss for networks.

    Ĩ(s) = (H(A|given) − H(A|joint)) / H(A|given),   ∂Ĩ/∂s in closed form (envelope theorem)

The value and gradient of :class:`evenhand.FairnessRegularizer` with the logistic classifier, as a
node of PyTorch's graph.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .._core.arrays import Array
from .._core.installing import install_hint
from .._core.validation import InputError, check_choice, is_number
from ..data.criteria import get_criterion
from ..estimators.logistic import KAPPA
from ..kernels.basis import get_basis
from .passes import (
    Batch,
    Classifier,
    HostPasses,
    NoDescent,
    Optimum,
    Passes,
    bounded,
    make_batch,
    standardizer,
)

CLASSIFIERS = ("batch", "running")
SCORE_MAPS = ("auto", "tanh", "raw")
BACKENDS = ("auto", "kernels", "triton")
# Scores that the Triton kernels take.
SHORT = (torch.float32, torch.bfloat16, torch.float16)
# As in `training.penalty`.
LIMIT = 1.5
LEAST_UNCERTAINTY = 1e-3

# upstream gradient of the value → gradient of the scores
Pull = Callable[[Tensor], Tensor]


# Groups, target or None and weight or None: checked tensors of one length on one device.
Inputs: TypeAlias = "tuple[Tensor, Tensor | None, Tensor | None]"  # where torch may be a mock


class Memory:
    """What does not depend on the scores, for as long as the same tensors come in."""

    def __init__(self) -> None:
        self._source: tuple[Any, ...] = ()
        self._key: Any = None
        self._made: dict[str, Any] = {}

    def open(self, scores: Tensor, *source: Any) -> None:
        """Forget what was made, unless these are the very tensors of the call before, unchanged."""
        tensors = [tensor for tensor in source if isinstance(tensor, Tensor)]
        key = None
        if not any(tensor.is_inference() for tensor in tensors):  # which count no changes
            versions = [tensor._version for tensor in tensors]
            key = (scores.dtype, scores.device, len(scores), [id(x) for x in source], versions)
        if key is None or key != self._key:
            self._made = {}
        # Kept alive, so that no other tensor can be taken for one of them.
        self._key, self._source = key, source

    def recall(self, name: str, make: Callable[[], Any]) -> Any:
        """What was made of these tensors, or what is made of them now."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]


def check_inputs(
    loss: Any, scores: Tensor, groups: Any, y: Any, given: Any, sample_weight: Any
) -> Inputs:
    """Shapes, types, devices and ranges; each look at a value waits for a GPU."""
    n, device = len(scores), scores.device
    condition, name = (y, "y") if given is None else (given, "given")
    if loss.needs_target and condition is None:
        raise InputError("y", f"be given for {loss.criterion.name}", None)
    if not loss.needs_target and given is not None:
        raise InputError("given", f"be None for {loss.criterion.name}, which conditions on nothing")
    weight = None
    target = _column(condition, name, n, device) if loss.needs_target else None
    if sample_weight is not None:
        weight = _column(sample_weight, "sample_weight", n, device)
        if not bool((torch.isfinite(weight) & (weight >= 0)).all()):
            raise InputError("sample_weight", "be finite and nonnegative")
    return _check_groups(groups, loss.n_groups, n, device), target, weight


def _check_scores(scores: Any) -> None:
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        raise InputError("scores", "be a tensor of floats", _describe(scores))
    if scores.ndim != 1 and not (scores.ndim == 2 and scores.shape[1] == 1):
        hint = "one score per row; train a loss of its own for each output."
        raise InputError("scores", "have shape (n,) or (n, 1)", tuple(scores.shape), hint)


def _check_groups(groups: Any, n_groups: int, n: int, device: torch.device) -> Tensor:
    if isinstance(groups, Tensor) and (groups.is_floating_point() or groups.is_complex()):
        hint = "groups.long(), with -1 where the group is not known."
        raise InputError("groups", "be integers", _describe(groups), hint)
    out = _column(groups, "groups", n, device)
    out = out.long() if out.dtype == torch.bool else out
    if n and int(out.max()) >= n_groups:
        hint = "number the groups 0, 1, …; -1 is a group that is not known."
        raise InputError("groups", f"lie below n_groups={n_groups}", int(out.max()), hint)
    return out


def _column(values: Any, name: str, n: int, device: torch.device) -> Tensor:
    """A column of n rows."""
    if not isinstance(values, Tensor):
        raise InputError(name, "be a tensor", _describe(values))
    flat = values.detach()
    if flat.ndim == 2 and flat.shape[1] == 1:
        flat = flat[:, 0]
    if flat.shape != (n,):
        raise InputError(name, f"have shape {(n,)}", tuple(values.shape))
    if flat.device != device:
        raise InputError(name, f"be on {device} as the scores are", flat.device)
    return flat


def _describe(value: Any) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__


class _Information(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, evaluate: Any) -> Tensor:
        value, ctx.pull = evaluate(scores.detach())
        dtype = scores.dtype if scores.dtype == torch.float64 else torch.float32
        # Filled on the device: a tensor made here would be waited for.
        return torch.full((), value, dtype=dtype, device=scores.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        return ctx.pull(upstream), None


def _check_options(
    n_groups: Any, classifier: Any, kappa: Any, score_map: Any, momentum: Any
) -> None:
    if not isinstance(n_groups, Integral) or n_groups < 2:
        raise InputError("n_groups", "be an integer of at least 2", repr(n_groups))
    check_choice("classifier", classifier, CLASSIFIERS)
    check_choice("score_map", score_map, SCORE_MAPS)
    if kappa != "auto" and not (is_number(kappa, 0.0) and kappa > 0):
        raise InputError("kappa", "be a positive number or 'auto'", repr(kappa))
    if not (is_number(momentum) and 0 < momentum <= 1):
        raise InputError("momentum", "lie in (0, 1]", repr(momentum))


class FairnessLoss(nn.Module):
    """How much of the uncertainty about the group the scores of a batch remove, Ĩ ∈ [0, 1].

    ``loss = ((y - s) ** 2).mean() / y.var() + fairness_weight * fairness(s, groups, y)`` is the
    objective of :class:`evenhand.FairRidge` for any network.

    Parameters
    ----------
    criterion : {"independence", "separation", "sufficiency"}, default "independence"
    n_groups : int, default 2
        Groups there are in all; a batch need not hold each of them.
    classifier : {"batch", "running"}, default "batch"
        "batch" refits the classifier of the group in each batch, to the optimum. "running" keeps
        it and moves it a step at a time: less noise in small batches, and a value that is not too
        high in them, but a gradient against a classifier that lags behind.
    basis : {"quadratic", "linear", "degree3"}, default "quadratic"
        φ of the standardized score and target.
    kappa : "auto" or positive float, default "auto"
        Ridge penalty of the classifier on a sum over rows; "auto" is 0.001.
    score_map : {"auto", "tanh", "raw"}, default "auto"
        What the classifier sees of standardized score and target z: 1.5·tanh(z/1.5) ("auto") or z.
    momentum : float, default 0.1
        Share of the newest batch in the running classifier.
    backend : {"auto", "kernels", "triton"}, default "auto"
        "triton" are fused kernels for float32 and shorter, on a GPU; "kernels" those of
        :class:`evenhand.FairnessRegularizer`, on the CPU in float64, where tensors of other devices
        are copied to. "auto" takes the first where it can.

    See Also
    --------
    evenhand.FairnessRegularizer
    evenhand.FairPostprocessor

    Notes
    -----
    A batch in which nothing can be compared, because it has rows of one group only or because its
    target tells the groups apart without the score, has value 0 and gradient 0: a training loop
    goes on. Scores that are not finite give NaN, as PyTorch's own losses do, and gradients of NaN,
    which `GradScaler` looks for.

    The value does not depend on shift or scale of the scores. Use it in float32 under autocast;
    sums are accurate to 1e-5 whatever the precision of the scores.

    Examples
    --------
    >>> import torch
    >>> from evenhand.torch import FairnessLoss
    >>> groups = torch.arange(200) % 2
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch...>
    >>> scores = (torch.randn(200) + groups).requires_grad_()
    >>> value = FairnessLoss("independence", n_groups=2)(scores, groups)
    >>> value.backward()
    >>> scores.grad.shape
    torch.Size([200])
    """

    _shares: Array | None

    def __init__(
        self,
        criterion: str = "independence",
        n_groups: int = 2,
        classifier: str = "batch",
        basis: str = "quadratic",
        *,
        kappa: float | str = "auto",
        score_map: str = "auto",
        momentum: float = 0.1,
        backend: str = "auto",
    ):
        super().__init__()
        self.criterion = get_criterion(criterion)
        if self.criterion.joint not in (("s",), ("s", "y")):
            raise InputError(
                "criterion", "speak of score and target alone, as independence, separation and "
                "sufficiency do", repr(self.criterion.name),
                "condition on another column with 'separation' and given=...",
            )  # fmt: skip
        _check_options(n_groups, classifier, kappa, score_map, momentum)
        check_choice("backend", backend, BACKENDS)
        self.n_groups, self.classifier, self.basis = int(n_groups), classifier, basis
        self.kappa = KAPPA if kappa == "auto" else float(kappa)
        self.score_map, self.momentum, self.backend = score_map, float(momentum), backend
        self._limit = None if score_map == "raw" else LIMIT
        self._memory, self._shares = Memory(), None
        self.reset()

    @property
    def needs_target(self) -> bool:
        """Whether the criterion speaks of a target."""
        return "y" in self.criterion.joint

    def extra_repr(self) -> str:
        return f"{self.criterion.name!r}, n_groups={self.n_groups}, classifier={self.classifier!r}"

    def forward(
        self, scores: Tensor, groups: Tensor, y: Tensor | None = None, given: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Ĩ of the scores of a batch.

        Parameters
        ----------
        scores : (n,) or (n, 1) float tensor
        groups : (n,) integer tensor
            0 … n_groups − 1; −1 where the group is not known. Such rows do not count.
        y : (n,) tensor
            Target; needed for separation and sufficiency. If groups, target and weights are the
            very tensors of the call before, what depends on them alone is not computed again.
        given : (n,) tensor, optional
            Condition on this instead of `y`.
        sample_weight : (n,) tensor, optional

        Returns
        -------
        () tensor
            In float32, or float64 for scores in float64.
        """
        _check_scores(scores)
        tensors = (groups, y, given, sample_weight)
        self._memory.open(scores, *tensors)
        inputs = self._memory.recall("inputs", lambda: check_inputs(self, scores, *tensors))
        backend = self._choose(scores.dtype, scores.device)
        return _Information.apply(
            scores.reshape(-1), lambda flat: self._evaluate(flat, inputs, backend)
        )

    def _choose(self, dtype: torch.dtype, device: torch.device) -> str:
        """The backend for scores of this type on this device."""
        can_fuse = dtype in SHORT
        if self.backend == "triton" and not can_fuse:
            raise InputError("backend", "be 'auto' or 'kernels' for float64 scores", "'triton'")
        if self.backend != "auto":
            return self.backend
        if not can_fuse or device.type != "cuda":
            return "kernels"
        try:
            from . import fused  # noqa: F401
        except ImportError:
            warnings.warn(
                "The package triton is not installed, so the fairness loss runs on the CPU, many "
                f"times slower. Hint: {install_hint('triton')}, or backend='kernels' to silence "
                "this.",
                RuntimeWarning,
                stacklevel=4,
            )
            return "kernels"
        return "triton"

    def _evaluate(self, scores: Tensor, inputs: Inputs, backend: str) -> tuple[float, Pull]:
        """The value, and what pulls a gradient back to the scores."""
        batch, offset, normalizer = self._memory.recall("fixed", lambda: self._fix(inputs, backend))
        if normalizer is None:
            return 0.0, lambda upstream: torch.zeros_like(scores)
        kept = scores.contiguous() if backend == "triton" else scores.cpu()
        try:
            center, fitted = standardizer(kept, batch), []
            for term in self._terms:
                passes = self._passes(backend)(term.basis, kept, center, self._limit, batch)
                fitted.append((term.sign, passes, self._advance(term, passes)))
        except NoDescent:
            return float("nan"), lambda upstream: torch.full_like(scores, float("nan"))
        total = offset + sum(sign * optimum.value for sign, _, optimum in fitted)
        scale = 1.0 / (normalizer * batch.n_known)

        def pull(upstream: Tensor) -> Tensor:
            out: Tensor | None = None
            upstream = upstream.to(kept.device)
            for sign, passes, optimum in fitted:
                out = passes.gradient(optimum.weights, sign * scale, upstream, out)
            assert out is not None
            return out.to(scores.device, scores.dtype)

        return total / normalizer, pull

    def _advance(self, term: Classifier, passes: Passes) -> Optimum:
        if self.classifier == "batch":
            return term.refit(passes)
        return term.follow(passes, self.momentum, self.training)

    def _fix(self, inputs: Inputs, backend: str) -> tuple[Batch, float, float | None]:
        """All that does not depend on the scores: the batch, what L is added to, the normalizer."""
        dtype = torch.float32 if backend == "triton" else torch.float64
        running = self.classifier == "running"
        groups, target, weight = inputs
        if backend == "kernels":
            groups = groups.cpu()
            target, weight = (None if c is None else c.cpu() for c in (target, weight))
        batch = make_batch(groups, self.n_groups, weight, dtype, keep_all=running)
        if batch.n_groups < 2 or not batch.n_known or np.count_nonzero(batch.shares) < 2:
            return batch, 0.0, None
        if running:
            batch = replace(batch, shares=self._running_shares(batch))
        entropy = batch.entropy
        if target is None:
            return batch, entropy, entropy
        mean, inverse = standardizer(target, batch)
        seen = bounded((target.to(dtype) - mean) * inverse, self._limit)
        batch = replace(batch, target=seen)
        if self.criterion.given == ("s",):
            return batch, 0.0, entropy
        try:
            passes = self._passes(backend)(self._given.basis, seen, (0.0, 1.0), None, batch)
            left = -self._advance(self._given, passes).value
        except NoDescent:
            return batch, float("nan"), float("nan")
        return batch, left, left if left > LEAST_UNCERTAINTY * entropy else None

    def _passes(self, backend: str) -> type[Passes]:
        if backend == "kernels":
            return HostPasses
        from .fused import FusedPasses

        return FusedPasses

    def _running_shares(self, batch: Batch) -> Array:
        """Shares of the groups over the batches; each begins with half a row."""
        k, n = self.n_groups, batch.n_known
        new = (batch.shares * n + 0.5) / (n + 0.5 * k)
        if self._shares is None:
            self._shares = new
        elif self.training:
            share = max(self.momentum, 1.0 / (self._terms[0].count + 1))
            self._shares = (1.0 - share) * self._shares + share * new
        return self._shares

    def reset(self) -> None:
        """Forget the classifiers: the next batch is as the first."""
        one, two = get_basis(self.basis, 1), get_basis(self.basis, 2)
        self._terms = [Classifier(1.0, two if self.needs_target else one, self.kappa)]
        if self.criterion.given == ("s",):
            self._terms.append(Classifier(-1.0, one, self.kappa))
        self._given = Classifier(0.0, one, self.kappa)
        self._shares = None

    def __getstate__(self) -> dict[str, Any]:
        # What is remembered of the last batch is no part of the module.
        return {**self.__dict__, "_memory": Memory()}
