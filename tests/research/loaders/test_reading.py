"""What loaders share."""

import numpy as np

from loaders._tables import one_hot, read_text, to_numbers


def test_one_hot_leaves_out_the_complement_of_two():
    labels = np.array(["a", "b", "c", "a"])
    columns, names = one_hot(labels, ("a", "b", "c"), "g")
    assert names == ("g=a", "g=b", "g=c")
    np.testing.assert_array_equal(columns, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]])
    columns, names = one_hot(labels[:2], ("a", "b"), "g")
    assert names == ("g=a",)
    np.testing.assert_array_equal(columns, [[1], [0]])


def test_text_columns_keep_missing_values_apart():
    text = read_text(b"a,b\n1,\n2.5,x\n")
    assert text["b"].tolist() == ["", "x"]
    np.testing.assert_array_equal(to_numbers(text["a"]), [1.0, 2.5])
    np.testing.assert_array_equal(to_numbers(np.array(["", "3"])), [np.nan, 3.0])
