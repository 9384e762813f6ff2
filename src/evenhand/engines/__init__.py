"""Audits where the data are: in files, a database, a cluster. One table of counts comes back."""

from .tables import audit_table, cells_of

__all__ = ["audit_table", "cells_of"]
