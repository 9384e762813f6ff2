"""Every accepted form of group membership, and every refusal."""

import copy
import pickle
import warnings
from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import evenhand as eh
from evenhand import Proxy
from evenhand.data.groups import GroupWarning, resolve_groups
from evenhand.data.sample import count_rows
from evenhand.data.weights import check_weight

TEXT = ["f", "m", "f", "m", "m"] * 3
CODES = [0, 1, 0, 1, 1] * 3
GAPS = ["f", "m", None] * 5
GAP_CODES = [0, 1] * 5


def resolve(values, n=None, **options):
    return resolve_groups(values, n_rows=count_rows(values) if n is None else n, **options)


@pytest.mark.parametrize(
    "values",
    [
        TEXT,
        tuple(TEXT),
        np.array(TEXT),
        np.array(TEXT, dtype=object),
        np.array(TEXT, dtype=np.dtypes.StringDType()),
        np.array(TEXT)[:, None],
        pd.Series(TEXT),
        pd.Series(TEXT, dtype=object),
        pd.Series(TEXT, dtype="string"),
        pd.Series(TEXT, dtype="category"),
        pd.Series(TEXT, index=range(100, 115)),
        pd.Categorical(TEXT),
        pd.Index(TEXT),
        pd.DataFrame({"sex": TEXT}),
        pl.Series(TEXT),
        pl.Series(TEXT, dtype=pl.Categorical),
        pl.Series(TEXT, dtype=pl.Enum(["f", "m"])),
        pl.DataFrame({"sex": TEXT}),
        pa.array(TEXT),
        pa.array(TEXT).dictionary_encode(),
        pa.chunked_array([TEXT[:4], TEXT[4:]]),
        pa.table({"sex": TEXT}),
        {"sex": TEXT},
    ],
    ids=lambda v: f"{type(v).__module__}.{type(v).__name__}",
)
def test_text_in_every_container(values):
    groups = resolve(values)
    assert groups.labels == ("f", "m")
    assert groups.codes.tolist() == CODES
    assert groups.known is None
    assert (groups.n_groups, groups.n_known, groups.n_unknown) == (2, 15, 0)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([3, 7, 3, 7, 7], (3, 7)),
        (np.array([3, 7, 3, 7, 7], dtype=np.uint8), (3, 7)),
        (np.array([-100, 100, -100, 100, 100], dtype=np.int8), (-100, 100)),
        (np.array([10_001, 94_110, 10_001, 94_110, 94_110]), (10_001, 94_110)),
        (np.array([2**63, 2**63 + 5, 2**63, 2**63 + 5, 2**63 + 5], dtype=np.uint64),
         (2**63, 2**63 + 5)),
        ([False, True, False, True, True], (False, True)),
        (np.array([0.0, 2.5, 0.0, 2.5, 2.5]), (0, 2.5)),
        (np.array([1.0, 2.0, 1.0, 2.0, 2.0], dtype=np.float32), (1, 2)),
        (pd.Series([3, 7, 3, 7, 7], dtype="Int64"), (3, 7)),
        (pd.Series([3, 7, 3, 7, 7], dtype="category"), (3, 7)),
        (pl.Series([3, 7, 3, 7, 7], dtype=pl.Int8), (3, 7)),
        (pl.Series([False, True, False, True, True]), (False, True)),
        ([1, "a", 1, "a", "a"], (1, "a")),
        (np.array([b"x", b"y", b"x", b"y", b"y"]), (b"x", b"y")),
        (np.array(["2020", "2021", "2020", "2021", "2021"], dtype="M8[ns]"),
         (datetime(2020, 1, 1), datetime(2021, 1, 1))),
    ],
)  # fmt: skip
def test_labels_of_every_type(values, labels):
    groups = resolve(values)
    assert groups.labels == labels
    assert groups.codes.tolist() == [0, 1, 0, 1, 1]
    assert groups.codes.dtype == np.intp


@pytest.mark.parametrize(
    "values",
    [
        GAPS,
        ["f", "m", float("nan")] * 5,
        np.array(GAPS, dtype=object),
        np.ma.array(["f", "m", "f"] * 5, mask=[0, 0, 1] * 5),
        pd.Series(GAPS),
        pd.Series(GAPS, dtype=object),
        pd.Series(GAPS, dtype="string"),
        pd.Series(GAPS, dtype="category"),
        pl.Series(GAPS),
        pl.Series(GAPS, dtype=pl.Categorical),
        pa.array(GAPS),
        np.array([0.0, 1.0, np.nan] * 5),
        [0, 1, None] * 5,
        np.ma.array([0, 1, 7] * 5, mask=[0, 0, 1] * 5),
        np.array(["f", "m", np.nan] * 5, dtype=np.dtypes.StringDType(na_object=np.nan)),
        pd.Series([0, 1, None] * 5, dtype="Int64"),
        pd.Series([0.0, 1.0, None] * 5, dtype="Float64"),
        pd.Series([False, True, None] * 5, dtype="boolean"),
        pl.Series([0, 1, None] * 5),
        pl.Series([0.0, 1.0, None] * 4 + [0.0, 1.0, float("nan")]),
        pl.Series([False, True, None] * 5),
        pa.array([0, 1, None] * 5),
        np.array(["2020", "2021", "NaT"] * 5, dtype="M8[D]"),
        pd.Series(pd.to_datetime(["2020", "2021", None] * 5)),
    ],
    ids=lambda v: f"{type(v).__module__}.{type(v).__name__} {getattr(v, 'dtype', '')}",
)
def test_missing_is_unknown(values):
    groups = resolve(values)
    assert groups.codes.tolist() == GAP_CODES
    assert groups.known.tolist() == [True, True, False] * 5
    assert (groups.n_known, groups.n_unknown) == (10, 5)


def test_known_rows_are_taken_and_put_back():
    groups = resolve(GAPS)
    values = np.arange(15.0)
    taken = groups.take_known(values)
    assert taken.tolist() == [0, 1, 3, 4, 6, 7, 9, 10, 12, 13]
    assert groups.put_known(taken).tolist() == [v if v % 3 < 2 else 0 for v in range(15)]
    whole = resolve(TEXT)
    assert whole.take_known(values) is values
    assert whole.put_known(values) is values


FIRST, SECOND = ["a", "b", "a", "b"] * 3, [1, 1, 2, 2] * 3
CROSSED = (("a", 1), ("a", 2), ("b", 1), ("b", 2))


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (pd.DataFrame({"x": FIRST, "y": SECOND}), "x × y"),
        (pd.DataFrame({0: FIRST, 1: SECOND}), "0 × 1"),
        (pl.DataFrame({"x": FIRST, "y": SECOND}), "x × y"),
        (pa.table({"x": FIRST, "y": SECOND}), "x × y"),
        ({"x": FIRST, "y": SECOND}, "x × y"),
        ({"x": np.array(FIRST), "y": pl.Series(SECOND)}, "x × y"),
        (np.array([FIRST, SECOND], dtype=object).T, "attribute 0 × attribute 1"),
        ([list(pair) for pair in zip(FIRST, SECOND, strict=True)], "attribute 0 × attribute 1"),
    ],
)
def test_columns_are_crossed(values, name):
    groups = resolve(values)
    assert groups.labels == CROSSED
    assert groups.codes.tolist() == [0, 2, 1, 3] * 3
    assert groups.name == name
    assert groups.label_names == ("a × 1", "a × 2", "b × 1", "b × 2")


def test_crossing_drops_empty_cells_in_silence_and_spreads_missing():
    frame = pd.DataFrame({"x": ["a", "b", "b", None] * 2, "y": [1, 1, 2, 2] * 2})
    groups = resolve(frame)
    assert groups.labels == (("a", 1), ("b", 1), ("b", 2))
    assert groups.n_unknown == 2


@pytest.mark.parametrize(
    ("name", "shown"), [(1, "1"), (0, "0"), (("a", 2), "('a', 2)"), ("", "group")]
)
def test_series_with_any_name(name, shown):
    assert resolve(pd.Series(TEXT, name=name)).name == shown


def test_order_of_categories_is_kept():
    values = pd.Series(pd.Categorical(TEXT, categories=["m", "f"]))
    assert resolve(values).labels == ("m", "f")


def test_intervals_of_a_binned_column_are_groups():
    groups = resolve(pd.qcut(np.arange(12.0), 3))
    assert groups.n_groups == 3
    assert groups.counts.tolist() == [4, 4, 4]


def test_shares_entropy_and_effective_size():
    groups = resolve([0, 0, 1, 1], sample_weight=[1.0, 1.0, 3.0, 3.0])
    assert groups.weight.tolist() == [0.5, 0.5, 1.5, 1.5]
    assert groups.shares.tolist() == [0.25, 0.75]
    assert groups.counts.tolist() == [2, 2]
    assert groups.entropy == pytest.approx(-0.25 * np.log(0.25) - 0.75 * np.log(0.75))
    assert groups.n_effective == pytest.approx(16 / 5)
    assert resolve([0, 0, 1, 1]).n_effective == 4
    assert groups.membership().tolist() == [[1, 0], [1, 0], [0, 1], [0, 1]]


def test_weights_have_mean_one_over_the_known_rows():
    groups = resolve([0, 0, 1, 1, None, None], sample_weight=[1, 1, 1, 5, 100, 100])
    assert groups.weight.tolist() == [0.5, 0.5, 0.5, 2.5]


def test_group_without_weight_is_left_out():
    with pytest.warns(GroupWarning, match="2 has no rows with positive weight and is left out"):
        groups = resolve([0, 0, 2, 2, 5, 5], sample_weight=[1, 1, 0, 0, 1, 1])
    assert groups.labels == (0, 5)
    assert groups.known.tolist() == [True, True, False, False, True, True]
    assert groups.codes.tolist() == [0, 0, 1, 1]


def test_labels_of_types_that_do_not_compare_have_an_order():
    """NumPy's numbers compare with a tuple as arrays do, which is no answer."""
    values = np.empty(15, dtype=object)
    values[:] = [np.int64(1), (1, 2), np.int64(0)] * 5
    first, again = resolve(values), resolve(values[::-1])
    assert first.labels == again.labels
    assert set(first.labels) == {0, 1, (1, 2)}
    assert [first.labels[code] for code in first.codes[:3]] == [1, (1, 2), 0]


def test_declared_category_without_rows_warns():
    values = pd.Series(pd.Categorical(TEXT, categories=["f", "m", "x"]))
    with pytest.warns(GroupWarning, match="'x' has no rows with positive weight"):
        assert resolve(values).labels == ("f", "m")


def test_single_row_warns():
    with pytest.warns(GroupWarning, match=r"'b', 'c' has a single row.*Hint: merge"):
        resolve(["a", "a", "b", "c"])


def test_warnings_can_be_left_out():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resolve(["a", "a", "b"], warn=False)
        resolve(pd.Categorical(["a", "a", "b"], categories=["a", "b", "c"]), warn=False)
        resolve(Proxy([[0.5, 0.5, 0.0]] * 3), warn=False)


def test_proxy_forms_agree():
    p = np.array([0.2, 0.5, 1.0])
    table = np.column_stack([1 - p, p])
    expected = resolve(Proxy(table, ["a", "b"]))
    for proxy in (
        Proxy(p, classes=["a", "b"]),
        Proxy(pd.Series(p), classes=("a", "b")),
        Proxy(table.tolist(), ["a", "b"]),
        Proxy(pd.DataFrame(table, columns=["a", "b"])),
        Proxy(pl.DataFrame({"a": 1 - p, "b": p})),
        Proxy(pa.table({"a": 1 - p, "b": p})),
    ):
        groups = resolve(proxy)
        assert groups.labels == ("a", "b")
        assert groups.codes is None
        np.testing.assert_array_equal(groups.probabilities, expected.probabilities)
    np.testing.assert_allclose(expected.counts, [1.3, 1.7])
    np.testing.assert_allclose(expected.shares, [1.3 / 3, 1.7 / 3])
    assert Proxy(table)._labels == (0, 1)


def test_proxy_with_unknown_rows_and_weights():
    proxy = Proxy([[0.5, 0.5], [np.nan, np.nan], [1.0, 0.0]])
    groups = resolve(proxy, sample_weight=[1.0, 7.0, 3.0])
    assert groups.known.tolist() == [True, False, True]
    assert groups.weight.tolist() == [0.5, 1.5]
    np.testing.assert_allclose(groups.shares, [0.875, 0.125])
    np.testing.assert_array_equal(groups.membership(), [[0.5, 0.5], [1.0, 0.0]])


def test_proxy_rows_are_scaled_to_one_exactly():
    table = resolve(Proxy([[0.3333, 0.6668], [0.5, 0.5]])).probabilities
    np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-15)


def test_proxy_class_without_mass_is_left_out():
    with pytest.warns(GroupWarning, match="'b' has no rows"):
        groups = resolve(Proxy([[0.5, 0.0, 0.5]] * 3, ["a", "b", "c"]))
    assert groups.labels == ("a", "c")
    assert groups.probabilities.shape == (3, 2)


def test_proxy_is_an_array_of_its_probabilities():
    table = np.array([[0.2, 0.8], [1.0, 0.0]])
    found = np.asarray(Proxy(table))
    np.testing.assert_array_equal(found, table)
    assert np.asarray(Proxy(table), dtype=np.float32).dtype == np.float32


def test_proxy_is_indexed_copied_and_pickled():
    proxy = Proxy([[0.5, 0.5], [0.2, 0.8], [1.0, 0.0]], ["a", "b"])
    assert len(proxy) == 3
    assert proxy.shape == (3, 2)
    part = proxy[np.array([2, 0])]
    assert part._labels == ("a", "b")
    assert part._table.tolist() == [[1.0, 0.0], [0.5, 0.5]]
    for twin in (copy.deepcopy(proxy), pickle.loads(pickle.dumps(proxy))):
        np.testing.assert_array_equal(twin._table, proxy._table)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Proxy([["a", "b"]]), "must be numbers, got an array of dtype .*Hint: for known"),
        (lambda: Proxy([0.1, 0.9]), r"must be 2-D, one column per class, got shape \(2,\)"),
        (lambda: Proxy([[0.5, 0.5]], ["a"]), "got 1 classes for 2 columns"),
        (lambda: Proxy([[0.5, 0.5]], ["a", "a"]), r"must be distinct, got \['a', 'a'\]"),
        (lambda: Proxy([[1.0, 0.0], [0.5, 0.6]]), r"row 1 is \[0.5, 0.6\]\. Hint: use NaN"),
        (lambda: Proxy([[np.nan, 1.0], [1.5, -0.5]]), r"row 1 is \[1.5, -0.5\]"),
        (lambda: Proxy([[np.inf, 0.0]]), r"row 0 is \[inf, 0.0\]"),
    ],
)
def test_proxy_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("values", "n", "message"),
    [
        (None, 3, "must be given: got None. Hint: pass one group label per row"),
        ("sex", 3, r"must be 1-D .* or 2-D .*, got shape \(\)"),
        (np.zeros((2, 2, 2)), 2, r"got shape \(2, 2, 2\)"),
        ([0, 1], 3, "must have one entry per row: got 2 for 3 rows"),
        ({"a": np.zeros((3, 2)), "b": [0, 1, 0]}, 3, r"\(column 'a'\) must be 1-D.* got 2 columns"),
        ({"a": Proxy([[0.5, 0.5]] * 3)}, 3, r"\(column 'a'\) must be 1-D.*Proxy must stand alone"),
        (pd.DataFrame([[0, 1]] * 3, columns=["q", "q"]), 3, "distinct column names.*'q' 2 times"),
        (Proxy([[0.5, 0.5]]), 3, "must have one entry per row: got 1 for 3 rows"),
        ({"a": [0, 1, 0], "b": [0, 1]}, 3, "got 2 for 3 rows"),
        ({}, 3, "must have at least one column, got none"),
        (pd.DataFrame(index=range(3)), 3, "must have at least one column, got none"),
        (np.empty((3, 0)), 3, "must have at least one column, got none"),
        ([1, 1, 1], 3, "at least two groups to compare, found only '1' in 3 rows.*stratify"),
        ([True, True, None], 3, "found only 'True' in 2 rows"),
        (np.array([True, True]), 2, "found only 'True' in 2 rows"),
        ([None, None], 2, "found no known group in 0 rows"),
        (pd.Series([None, None], dtype="Int64"), 2, "found no known group in 0 rows"),
        (np.array([[1], {2: 3}], dtype=object), 2, "must hold labels .* element of type list"),
        (pd.Series([[1], [2]]), 2, "must hold labels .* element of type list"),
        (np.fromiter([np.zeros(2), 1], dtype=object), 2, "element of type ndarray"),
        (np.arange(30) + 0.5, 30, r"fractions with 30 distinct values.* Hint: cut it into bands"),
        (pl.Series(np.arange(30) / 7), 30, "fractions with 30 distinct values, from 0 to 4.14286"),
        ([v / 2 for v in range(30)] + [None], 31, "fractions with 30 distinct values"),
        (pd.DataFrame({"sex": [0, 1] * 15, "age": np.arange(30) / 2}), 30, r"\(column 'age'\)"),
        ([f"id{i}" for i in range(40)], 40, "40 distinct values in 40 rows, .* an identifier"),
        (pl.Series([f"id{i}" for i in range(40)]), 40, "looks like an identifier"),
        (np.arange(40), 40, "looks like an identifier"),
        (np.array([1, "1", 2], dtype=object), 3, "differ as text, got 1 and '1'"),
        ({"a": ["x × y", "x"], "b": ["z", "y × z"]}, 2, r"\('x', 'y × z'\) and \('x × y', 'z'\)"),
        (Proxy(np.full((3, 3), 1 / 3), [1, "1", 2]), 3, "differ as text, got 1 and '1'"),
    ],
)  # fmt: skip
def test_refusals(values, n, message):
    with pytest.raises(ValueError, match=r"`sensitive_features`.*" + message):
        resolve_groups(values, n_rows=n)


def test_single_group_is_allowed_on_request():
    assert resolve(["a", "a"], require_two=False).labels == ("a",)


AGES = np.arange(670) % 67 + 18
DAYS = np.datetime64("2020-01-01") + np.arange(1400) % 700


@pytest.mark.parametrize(
    "ages",
    [
        AGES, AGES.astype(np.int8), AGES * 1.0, AGES.tolist(), [*AGES.tolist(), None],
        AGES.astype(object), pd.Series(AGES), pd.Series([*AGES, None]), pl.Series(AGES),
        pd.Series([*AGES, None], dtype="Int64"), pl.Series([*AGES.tolist(), None]), pa.array(AGES),
    ],
)  # fmt: skip
def test_an_age_is_refused_with_the_way_to_band_it(ages):
    words = (
        r"must be categories, got whole numbers with 67 distinct values, from 18 to 84; more than "
        r"50 are taken for a measurement\. Hint: cut it into bands, such as "
        r"evenhand\.bands\(values, \[40, 62\]\); .* codes of true groups as text or categories"
    )
    with pytest.raises(ValueError, match=words):
        resolve_groups(ages, n_rows=len(ages))
    assert resolve_groups(eh.bands(ages, [40, 62]), n_rows=len(ages)).n_groups == 3


@pytest.mark.parametrize(
    "days",
    [
        DAYS, DAYS.tolist(), pd.Series(DAYS), pd.Series(DAYS.tolist()), pl.Series(DAYS),
        pl.Series(DAYS.astype("datetime64[us]")), pa.array(DAYS),
    ],
)  # fmt: skip
def test_a_date_is_refused_with_the_way_to_band_it(days):
    words = r"got dates with 700 .*, from 2020-01-01 to 2021-11-30;.*\[\"2020-08-21\", \"2021-"
    with pytest.raises(ValueError, match=words):
        resolve_groups(days, n_rows=len(days))
    assert resolve_groups(eh.bands(days, ["2020-08-21"]), n_rows=len(days)).n_groups == 2


def test_codes_of_true_groups_pass():
    codes = np.repeat(np.arange(50) * 17 + 100, 4)
    assert resolve(codes).n_groups == 50
    assert resolve(pd.Series([*codes, None])).n_groups == 50  # pandas makes floats of them
    many = np.repeat(np.arange(150), 4)
    assert resolve(many.astype(str)).n_groups == 150
    assert resolve(pd.Series(many, dtype="category")).n_groups == 150
    months = np.repeat(np.arange("2020-01", "2024-01", dtype="datetime64[M]"), 4)
    assert resolve(months).n_groups == 48


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (["a", "b"], "`sample_weight` must be numbers, got values of type"),
        (np.ones((2, 2)), r"Sample weights must be 1D array or scalar, got shape \(2, 2\)"),
        ([1.0], "`sample_weight` must have one entry per row: got 1 for 2 rows"),
        ([1.0, np.nan], "`sample_weight` must be finite"),
        ([1.0, np.inf], "`sample_weight` must be finite"),
        ([1.0, -2.0], r"`sample_weight` must be nonnegative, got -2\.0"),
        ([0.0, 0.0], "`sample_weight` must not be zero in every row"),
    ],
)
def test_weight_refusals(weight, message):
    with pytest.raises(ValueError, match=message):
        check_weight(weight, 2)


def test_scalar_and_absent_weights():
    assert check_weight(None, 3) is None
    assert check_weight(2, 3).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("scale", [5e-324, 1e-320, 1e-200, 1e200, 1.7e308])
def test_weights_of_any_size(scale):
    assert check_weight(scale, 3).tolist() == [1.0, 1.0, 1.0]
    assert resolve([0, 0, 1, 1], sample_weight=np.full(4, scale)).weight.tolist() == [1.0] * 4
    if scale > 1e-300:
        assert check_weight(scale * np.array([0.25, 0.5, 1.0]), 3).tolist() == [0.25, 0.5, 1.0]


def test_part_of_the_rows_may_weigh_next_to_nothing():
    groups = resolve([0, 1, 0, 1], sample_weight=[1.0, 1.0, 1e-320, 1e-320])
    assert groups.take(np.array([2, 3])).weight.tolist() == [1.0, 1.0]


def test_hundreds_of_groups_are_refused_with_their_sizes():
    labels = np.array([f"zip {k}" for k in np.r_[np.repeat(np.arange(301), 10), 0, 0]])
    with pytest.raises(
        ValueError,
        match=r"at most 300 groups, found 301 in 3012 rows; half of them have 10 rows or fewer, "
        r"the five smallest 10, 10, 10, 10, 10\. Hint: merge rare groups",
    ):
        resolve_groups(labels, n_rows=len(labels))
    assert resolve_groups(labels[labels != "zip 300"], n_rows=3002).n_groups == 300
    table = np.random.default_rng(0).dirichlet(np.ones(301), 700)
    with pytest.raises(ValueError, match="at most 300 groups, found 301 in 700 rows"):
        resolve_groups(Proxy(table), n_rows=700)
