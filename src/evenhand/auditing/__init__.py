"""Rows → an Audit: measures, tests, group tables and disparities of one score."""

from __future__ import annotations

from .audits import audit
from .result import Audit, AuditSet

__all__ = ["Audit", "AuditSet", "audit"]
