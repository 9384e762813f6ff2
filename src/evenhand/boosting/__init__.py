"""Objectives and metrics of XGBoost and LightGBM with the fairness term in them.

For experts: what is fair on the rows of training is less so on others. The stack,
`FairPostprocessor` on scores that are out of fold, is the better way to a fair booster.
"""

from .metrics import FairnessMetric, metric
from .objectives import FairnessObjective, objective

__all__ = ["FairnessMetric", "FairnessObjective", "metric", "objective"]
