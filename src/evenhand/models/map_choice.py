"""What the maps of a post-processor are made of: what is allowed, and what "auto" stands for."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..information.criteria import get_criterion
from .membership import check_kind
from .score_maps import KINDS
from .stack import check_passthrough_alpha


def choose_map(model: Any) -> str:
    """The kind of map of a :class:`FairPostprocessor`.

    Held out, transport by attribute was the better map under every bound on independence, and not
    under those on separation. By an unsure posterior it would have to overshoot. In a stack it was
    the only one that got below the strictest bounds on both.
    """
    if model.map != "auto":
        return model.map
    if model.passthrough:
        return "spline" if model.group_features is None else "transport"
    equal = get_criterion(model.criterion).equalizes_scores
    return "transport" if equal and model.group_features == "attribute" else "affine"


def choose_basis(model: Any) -> str:
    """The basis of the classifier in the fairness term.

    Held out at separation of at most 0.01, degree 3 was the one to get there with the columns of a
    stack; under bounds on independence it was no better.
    """
    if model.basis != "auto":
        return model.basis
    criterion = get_criterion(model.criterion)
    given = criterion.tested == ("s",) and not criterion.equalizes_scores
    return "degree3" if given and model.passthrough else "quadratic"


def check_shape(model: Any) -> None:
    """Refuse unknown kinds of maps, and those that contradict each other."""
    for name, allowed in (("passthrough", ()), ("ensemble", ("auto",))):
        value = getattr(model, name)
        if not (isinstance(value, bool | np.bool_) or value in allowed):
            words = " or ".join(["True or False", *map(repr, allowed)])
            raise ValueError(f"`{name}` must be {words}, got {value!r}.")
    if model.map not in ("auto", *KINDS):
        kinds = ", ".join(KINDS)
        raise ValueError(f"`map` must be auto or one of {kinds}, got {model.map!r}.")
    check_kind(model.group_features)
    check_passthrough_alpha(model.passthrough_alpha)
    if model.map == "transport" and model.group_features is None:
        raise ValueError(
            "`map` must be 'affine' or 'spline' with group_features=None, got 'transport': it "
            "moves groups together, and one map for everybody knows none."
        )


def warn_no_effect() -> None:
    """Say that one map for everybody cannot be fair."""
    warnings.warn(
        "One map for everybody cannot change what a score tells about the group, so "
        "`fairness_weight` has no effect with group_features=None. Hint: use 'posterior' or "
        "'attribute'.",
        UserWarning,
        stacklevel=4,
    )
