"""A fitter → a path of fitters, held out; selection, certificates, and the recommended model."""

from .path import FairnessPath, Unreachable, fairness_path
from .readings import PathPoint
from .ridge_cv import FairRidgeCV

__all__ = ["FairRidgeCV", "FairnessPath", "PathPoint", "Unreachable", "fairness_path"]
