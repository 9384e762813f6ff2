"""A fitter → a path of fitters, held out; selection, certificates, and the recommended model."""

from .fitting import fairness_path
from .path import FairnessPath, Unreachable
from .readings import PathPoint

__all__ = ["FairnessPath", "PathPoint", "Unreachable", "fairness_path"]
