"""The public names as type checkers and editors see them; `__init__.py` loads them on first use."""

from ..auditing.figures import feature_information as feature_information
from .page import About as About
from .plots import plot_audit as plot_audit
from .plots import plot_densities as plot_densities
from .plots import plot_gains as plot_gains
