"""The public names as type checkers and editors see them; `__init__.py` loads them on first use."""

from .loss import FairnessLoss as FairnessLoss
from .network import FairMLPRegressor as FairMLPRegressor
