"""The linear copy of a table: encoded, or scaled where it is sparse."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import evenhand as eh
from evenhand.training.stack import copy_numbers, fit_copy


def test_a_table_is_encoded():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=90), "town": np.array(list("abc"))[np.arange(90) % 3]})
    X.loc[::7, "x"] = np.nan
    copy = fit_copy(X)
    encoder = eh.TableEncoder().fit(X)
    np.testing.assert_array_equal(copy_numbers(copy, X), encoder.transform(X))
    assert tuple(copy.get_feature_names_out()) == tuple(encoder.get_feature_names_out())
    assert tuple(copy.get_feature_names_out()) == ("x", "x=(missing)", "town=b", "town=c")


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix])
def test_sparse_columns_are_scaled(kind):
    dense = np.random.default_rng(0).poisson(0.3, (50, 4)) * [1.0, 5.0, 0.1, 0.0]
    copy = fit_copy(kind(dense))
    found = copy_numbers(copy, kind(dense))
    assert sparse.issparse(found)
    spread = np.where(dense.std(axis=0) > 0, dense.std(axis=0), 1.0)
    np.testing.assert_allclose(found.toarray(), dense / spread, rtol=1e-12)
    np.testing.assert_allclose(copy_numbers(copy, dense).toarray(), dense / spread, rtol=1e-12)
    assert tuple(copy.get_feature_names_out()) == ("x0", "x1", "x2", "x3")
    with pytest.raises(ValueError, match="X has 3 features, but StandardScaler is expecting 4"):
        copy_numbers(copy, kind(dense[:, :3]))


def test_a_sparse_matrix_is_scored_by_a_model_of_arrays():
    dense = np.random.default_rng(0).normal(size=(40, 2))
    copy = fit_copy(dense)
    np.testing.assert_allclose(
        copy_numbers(copy, sparse.csr_array(dense)), copy_numbers(copy, dense)
    )
