"""Lines of SVMlight as scikit-learn reads and writes them; run by `tox -e oracles`."""

import numpy as np
import pytest

from highway.datasets import SVMLight

sklearn = pytest.importorskip("sklearn.datasets", reason="runs by `tox -e oracles`")


@pytest.mark.parametrize("zero_based", [False, True])
@pytest.mark.parametrize("with_queries", [False, True])
def test_rows_are_those_of_scikit_learn(tmp_path, zero_based, with_queries):
    rng, path = np.random.default_rng(0), str(tmp_path / "a.svm")
    x = rng.normal(size=(200, 50)) * (rng.random((200, 50)) < 0.2)
    y, queries = rng.normal(size=200), rng.integers(0, 5, 200) if with_queries else None
    sklearn.dump_svmlight_file(x, y, path, zero_based=zero_based, query_id=queries, comment="two\nlines")
    expected, labels, *qid = sklearn.load_svmlight_file(path, n_features=50, zero_based=zero_based, query_id=with_queries)
    sparse = SVMLight(path, zero_based=zero_based, dtype="float64")
    values, indices, offsets = sparse.csr()
    np.testing.assert_array_equal(values, expected.data)
    np.testing.assert_array_equal(indices, expected.indices)
    np.testing.assert_array_equal(offsets, expected.indptr)
    np.testing.assert_array_equal([sample["label"] for sample in sparse], labels)
    if with_queries:
        np.testing.assert_array_equal([sample["qid"] for sample in sparse], qid[0])
    dense = SVMLight(path, 50, zero_based, dense=True, dtype="float64")
    np.testing.assert_array_equal([sample["x"] for sample in dense], expected.toarray())
