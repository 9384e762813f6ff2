"""How results show themselves: by functions of `report`, the room above, loaded on first use."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

# A function of `report` -> the module that holds it.
VIEWS = {
    "describe_conditional": "control_views",
    "describe_drivers": "driver_views",
    "plot_drivers": "driver_views",
    "write_drivers_page": "driver_views",
    "path_page": "frontier_page",
    "describe_monitor": "monitor_views",
    "plot_monitor": "monitor_views",
    "write_monitor_page": "monitor_views",
    "audit_page": "page",
    "audit_set_page": "page",
    "compact": "page",
    "compact_set": "page",
    "write_page": "page",
    "plot_audit": "plots",
    "plot_path": "plots",
    "describe_pricing": "price_views",
    "plot_pricing": "price_views",
    "describe": "text",
    "describe_set": "text",
    "describe_impact": "verdict_views",
    "describe_verdict": "verdict_views",
}


def view(name: str) -> Callable[..., Any]:
    """Return a function of `report`, such as ``view("describe")``."""
    return getattr(import_module(f"evenhand.report.{VIEWS[name]}"), name)
