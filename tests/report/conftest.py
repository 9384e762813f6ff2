"""An audit and a path whose every label is out to break the page."""

import pytest
from report_helpers import make_rows

import evenhand as eh


@pytest.fixture(scope="session")
def hostile():
    """(X, y, a) with hostile labels."""
    return make_rows()


@pytest.fixture(scope="session")
def hostile_audit(hostile):
    X, y, a = hostile
    return eh.audit(
        y,
        X[:, 0],
        sensitive_features={"</title><script>alert(3)</script>": a},
        estimator="logistic",
    )


@pytest.fixture(scope="session")
def audit():
    X, y, a = make_rows(600, ("north", "south", "west"))
    return eh.audit(y, X[:, 0], sensitive_features={"region": a}, estimator="logistic")


def make_path(X, y, a, name, n_points=5):
    path = eh.fairness_path(
        eh.FairRidge(), X, y, sensitive_features={name: a}, fairness_weights=[0.2, 1.0, 5.0, 20.0],
        cv=2, measure_with="logistic", random_state=0,
    )  # fmt: skip
    path.select(max_unfairness=0.5 * path.points[0].independence.value)
    return path


@pytest.fixture(scope="session")
def path():
    X, y, a = make_rows(600, ("north", "south", "west"))
    return make_path(X, y, a, "region")


@pytest.fixture(scope="session")
def hostile_path(hostile):
    return make_path(*hostile, "</title><script>alert(3)</script>")
