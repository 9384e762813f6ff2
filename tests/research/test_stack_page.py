"""The table of docs/stack.md is that of the committed CSV, and the CSV shows what the page says."""

import csv
from pathlib import Path

import numpy as np
import pytest

from studies import models_stack

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lines():
    with (ROOT / "research" / "results" / "models_stack.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_shows_the_csv(lines):
    page = (ROOT / "docs" / "stack.md").read_text(encoding="utf-8")
    shown = page.split(models_stack.BEGIN)[1].split(models_stack.END)[0].strip()
    assert shown == models_stack.table(lines)


def test_without_fairness_the_stack_is_not_behind_the_booster(lines):
    mine = [x for x in lines if x["method"] == models_stack.STACK and x["bound"] == "none"]
    assert len(mine) == 8
    assert min(float(x["r2"]) - float(x["booster_r2"]) for x in mine) > -0.002


def test_at_a_bound_by_straight_lines():
    u, r2 = np.array([0.2, 0.1, 0.0]), np.array([0.9, 0.8, 0.4])
    assert models_stack.at_bound(u, r2, 0.15) == pytest.approx(0.85)
    assert models_stack.at_bound(u, r2, 0.1) == pytest.approx(0.8)
    assert models_stack.at_bound(u + 0.1, r2, 0.05) == ""
