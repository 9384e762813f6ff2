"""φ → ρ(a|z): probabilistic classifiers of the group, one file each."""

from .logistic import Logistic
from .lspc import LSPC

__all__ = ["LSPC", "Logistic"]
