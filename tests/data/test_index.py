"""pandas indices that contradict each other are refused by everything that matches rows."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

import evenhand as eh
import rivals
from evenhand._core.validation import check_index

RNG = np.random.default_rng(0)
N = 200
FRAME = pd.DataFrame({"x": RNG.normal(size=N), "z": RNG.normal(size=N), "a": np.arange(N) % 2})
FRAME["y"] = FRAME["x"] + FRAME["a"] + RNG.normal(size=N)
X, Y, A = FRAME[["x", "z"]], FRAME["y"], FRAME["a"]
SHUFFLED = A.sample(frac=1, random_state=0)
WEIGHT = pd.Series(np.ones(N)).sample(frac=1, random_state=0)

FITTED = eh.FairRidge(group_features="attribute").fit(X, Y, sensitive_features=A)
CALLS = {
    "independence": lambda a: eh.independence(None, Y, sensitive_features=a, estimator="lspc"),
    "separation": lambda a: eh.separation(Y, X["x"], sensitive_features=a, estimator="lspc"),
    "audit": lambda a: eh.audit(Y, X["x"], sensitive_features=a, estimator="lspc"),
    "drivers": lambda a: eh.drivers(
        FITTED.predict(X, sensitive_features=A), X, sensitive_features=a
    ),
    "audit of models": lambda a: eh.audit(Y, X, sensitive_features=a, estimator="lspc"),
    "FairRidge": lambda a: eh.FairRidge().fit(X, Y, sensitive_features=a),
    "FairRidge.predict": lambda a: FITTED.predict(X, sensitive_features=a),
    "FairRegressor": lambda a: eh.FairRegressor(fairness_weight=1.0).fit(
        X, Y, sensitive_features=a
    ),
    "FairPostprocessor": lambda a: eh.FairPostprocessor(LinearRegression()).fit(
        X, Y, sensitive_features=a
    ),
    "fairness_path": lambda a: eh.fairness_path(
        eh.FairRidge(), X, Y, sensitive_features=a, n_points=2, measure_with="lspc"
    ),
    "bind": lambda a: eh.FairnessRegularizer().bind(Y, sensitive_features=a),
    "BerkRegressor": lambda a: rivals.BerkRegressor().fit(X, Y, sensitive_features=a),
    "WassersteinBarycenter": lambda a: rivals.WassersteinBarycenter(LinearRegression()).fit(
        X, Y, sensitive_features=a
    ),
    "EntropicUnaware": lambda a: rivals.EntropicUnaware(LinearRegression()).fit(
        X, Y, sensitive_features=a
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_same_labels_in_another_order_are_refused(name):
    words = (
        r"`sensitive_features` must have its rows in the order of `(X|y|y_true|y_pred)`: their "
        r"pandas indices hold the same labels in different places\. Hint: .*sensitive_features\.loc"
        r"\[.*\.index\]; if .* drop the index with sensitive_features\.to_numpy\(\)\."
    )
    with pytest.raises(ValueError, match=words):
        CALLS[name](SHUFFLED)
    CALLS[name](SHUFFLED.loc[Y.index])
    CALLS[name](SHUFFLED.to_numpy())
    CALLS[name](pl.Series(SHUFFLED.to_numpy()))


def test_every_argument_is_looked_at():
    frame = pd.DataFrame({"a": A, "b": A}).sample(frac=1, random_state=1)
    table = pd.DataFrame({0: 1.0 - A, 1: A * 1.0}).sample(frac=1, random_state=1)
    for a in (frame, {"a": SHUFFLED}, eh.Proxy(table)):
        with pytest.raises(
            ValueError, match="`sensitive_features` must have its rows in the order"
        ):
            eh.audit(Y, X["x"], sensitive_features=a)
    with pytest.raises(ValueError, match="`sample_weight` must have its rows in the order of `y_t"):
        eh.audit(Y, X["x"], sensitive_features=A, sample_weight=WEIGHT)
    with pytest.raises(ValueError, match="`cluster` must have its rows in the order of `y_true`"):
        eh.audit(Y, X["x"], sensitive_features=A, cluster=WEIGHT)
    with pytest.raises(ValueError, match="`y_pred` must have its rows in the order of `y_true`"):
        eh.audit(Y, {"m": X["x"].sample(frac=1, random_state=0)}, sensitive_features=A)
    # Not used, so not looked at.
    eh.independence(Y.sample(frac=1, random_state=0), Y, sensitive_features=A, estimator="lspc")


def labels(*values):
    return pd.Series(np.arange(len(values)), index=list(values))


DEFAULT = labels(0, 1, 2, 3)


@pytest.mark.parametrize(
    ("first", "second", "agree"),
    [
        (DEFAULT, labels(0, 1, 2, 3), True),
        (DEFAULT, labels(3, 2, 1, 0), False),
        # After train_test_split one side may have been renumbered, or predicted anew.
        (DEFAULT, labels(7, 2, 9, 0), True),
        (labels(7, 2, 9, 0), DEFAULT, True),
        (labels(7, 2, 9, 0), labels(2, 7, 9, 0), False),
        (labels(7, 2, 9, 0), labels(7, 2, 9, 1), False),
        (labels(7, 2, 9, 5), labels(14, 12, 19, 10), True),
        (labels(*"abcd"), labels(*"bacd"), False),
        (labels(*"abcd"), labels(*"wxyz"), True),
        (labels(*"abcd"), DEFAULT, True),
        (labels(0, 1, 0, 1), labels(0, 1, 0, 1), True),
        (labels(0, 1, 0, 1), labels(1, 1, 0, 0), False),
        (labels(*zip("aabb", [0, 1, 0, 1], strict=True)), DEFAULT, True),
        (labels(*"abcd"), labels(*"abc"), True),  # lengths are refused elsewhere
    ],
)
def test_which_indices_agree(first, second, agree):
    if agree:
        check_index(y=first, s=second)
    else:
        with pytest.raises(ValueError, match="`s` must have its rows in the order of `y`"):
            check_index(y=first, s=second)


def test_two_levels_of_labels():
    index = pd.MultiIndex.from_tuples([("a", 0), ("a", 1), ("b", 0)])
    first = pd.Series([1, 2, 3], index=index)
    check_index(y=first, s=first.copy())
    with pytest.raises(ValueError, match="`s` must have its rows"):
        check_index(y=first, s=first[::-1])


def test_the_third_column_is_compared_with_the_second():
    with pytest.raises(ValueError, match="`a` must have its rows in the order of `s`"):
        check_index(y=DEFAULT, s=labels(7, 2, 9, 0), a=labels(2, 7, 9, 0))


def test_the_usual_split_passes():
    X_train, X_test, y_train, y_test, a_train, a_test = train_test_split(X, Y, A, random_state=0)
    model = eh.FairRidge().fit(X_train, y_train, sensitive_features=a_train)
    score = pd.Series(model.predict(X_test))
    eh.audit(y_test, score, sensitive_features=a_test, estimator="lspc")
    eh.audit(y_test.reset_index(drop=True), score, sensitive_features=a_test, estimator="lspc")
