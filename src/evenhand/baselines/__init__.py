"""The methods that evenhand is compared with, behind the same interface."""

from .berk import BerkRegressor

__all__ = ["BerkRegressor"]
