"""The linear copy of a table: encoded, or scaled where it is sparse."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import evenhand as eh
from evenhand.training.stack import LinearCopy


def test_a_table_is_encoded():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=90), "town": np.array(list("abc"))[np.arange(90) % 3]})
    X.loc[::7, "x"] = np.nan
    copy = LinearCopy.fit(X)
    encoder = eh.TableEncoder().fit(X)
    np.testing.assert_array_equal(copy.transform(X), encoder.transform(X))
    assert copy.names == tuple(encoder.get_feature_names_out())
    assert copy.names == ("x", "x=(missing)", "town=b", "town=c")


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix])
def test_sparse_columns_are_scaled(kind):
    dense = np.random.default_rng(0).poisson(0.3, (50, 4)) * [1.0, 5.0, 0.1, 0.0]
    copy = LinearCopy.fit(kind(dense))
    found = copy.transform(kind(dense))
    assert sparse.issparse(found)
    spread = np.where(dense.std(axis=0) > 0, dense.std(axis=0), 1.0)
    np.testing.assert_allclose(found.toarray(), dense / spread, rtol=1e-12)
    np.testing.assert_allclose(copy.transform(dense).toarray(), dense / spread, rtol=1e-12)
    assert copy.names == ("x0", "x1", "x2", "x3")
    with pytest.raises(ValueError, match="must have 4 columns, as it had in fit; got 3"):
        copy.transform(kind(dense[:, :3]))


def test_a_sparse_matrix_is_scored_by_a_model_of_arrays():
    dense = np.random.default_rng(0).normal(size=(40, 2))
    copy = LinearCopy.fit(dense)
    np.testing.assert_allclose(copy.transform(sparse.csr_array(dense)), copy.transform(dense))
