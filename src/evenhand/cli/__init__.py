"""The command line: parse, call, render."""

from .app import app, main

__all__ = ["app", "main"]
