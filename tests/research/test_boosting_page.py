"""docs/boosting.md: its code runs, and its tables show what it says."""

import re

import numpy as np
import pytest

from evidence import read_table
from pages import DOCS

PAGE = DOCS / "boosting.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page():
    namespace: dict = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), namespace)
    return namespace


@pytest.mark.slow
def test_code_runs(page):
    assert 0 < page["booster"].best_iteration < 199
    valid = page["watched"].value(page["model"].predict(page["X"][page["valid"]]))
    plain = page["lightgbm"].LGBMRegressor(n_estimators=50, verbose=-1)
    plain.fit(page["X"][page["train"]], page["y"][page["train"]])
    assert valid < page["watched"].value(plain.predict(page["X"][page["valid"]]))


def test_what_the_page_says_about_the_gap():
    """Whatever the numbers, an audit of rows held out reads more than training as trained."""
    fair = [
        r for r in read_table("boosting") if r["what"] == "gap" and float(r["fairness_weight"]) > 0
    ]
    seen = np.array([[float(r[k]) for k in ("training", "held_out_audit")] for r in fair])
    assert len(fair) == 12
    assert (seen[:, 1] > seen[:, 0]).all()
