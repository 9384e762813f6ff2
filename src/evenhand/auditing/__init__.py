"""Rows → an Audit: measures, tests, group tables and disparities of one score."""

from .audits import Audit, AuditSet, audit

__all__ = ["Audit", "AuditSet", "audit"]
