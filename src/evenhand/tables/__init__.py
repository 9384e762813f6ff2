"""Tables where they are, in files, a database or a cluster: one plan of counts for all engines."""

from .audit_table import audit_table, cells_of

__all__ = ["audit_table", "cells_of"]
