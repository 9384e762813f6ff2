"""Run a study by name: python research/run.py NAME [its options]."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    name = sys.argv.pop(1)
    import_module(f"studies.{name}").main()


if __name__ == "__main__":
    main()
