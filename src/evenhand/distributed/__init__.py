"""Training where the rows are: on the workers of a Dask or Spark cluster.

One program runs on every worker over its own rows and exchanges small sums through XGBoost's
`collective`; any number of workers gives the model of one process.
"""

from __future__ import annotations

from .fitting import fit
from .workers import WorkerLostError

__all__ = ["WorkerLostError", "fit"]
