"""Rows → an Audit: measures, tests, group tables and disparities of one score."""

from .audits import audit
from .result import Audit, AuditSet

__all__ = ["Audit", "AuditSet", "audit"]
