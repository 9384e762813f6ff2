"""A path against a measurement, and its page."""

from __future__ import annotations

import numpy as np

import evenhand as eh


def test_a_path_measures_the_attribute_itself_and_writes_its_page(tmp_path):
    rng = np.random.default_rng(0)
    age = rng.uniform(18, 80, 400)
    X = np.column_stack([age + 5 * rng.normal(size=400), rng.normal(size=400)])
    y = 0.05 * X[:, 0] + X[:, 1] + rng.normal(size=400)
    age[:5] = np.nan
    path = eh.fairness_path(
        eh.FairRidge(), X, y, sensitive_features=eh.Continuous(age, "age"),
        fairness_weights=[0, 10], cv=3, random_state=0,
    )  # fmt: skip
    first, last = (point.measures["independence"] for point in path.points)
    assert first.of == "measurement"
    assert first.n == 395
    assert last.value < 0.5 * first.value
    path.select(max_unfairness=max(last.value, 0.0) + 0.01)
    assert "age" in path.to_html(tmp_path / "path.html").read_text()
