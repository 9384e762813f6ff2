from importlib import metadata

import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


@pytest.fixture
def reference_score():
    """Mean R² of ridge (alpha 1) on standardized features, five shuffled folds, seed 0."""

    def score(data):
        model = make_pipeline(StandardScaler(), Ridge(alpha=1.0))
        folds = KFold(5, shuffle=True, random_state=0)
        return cross_val_score(model, data.X, data.y, cv=folds).mean()

    return score


@pytest.fixture
def needs_package(skip_unless_ci):
    """Skip a test of a file that an optional package ships; in CI, which must have it, fail."""

    def check(name):
        try:
            metadata.distribution(name)
        except metadata.PackageNotFoundError:
            reason = f"the package {name}, which ships the file, is not installed"
            skip_unless_ci(reason)

    return check
