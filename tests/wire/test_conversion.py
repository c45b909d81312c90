"""The functions that a connection applies to what comes."""

from highway.wire.conversion import transform_with


def test_functions_go_round():
    double = lambda x: 2 * x  # noqa: E731
    assert transform_with([1, 2, 3], [double, None]) == [2, 2, 6]
    assert transform_with([1, 2], []) == [1, 2]
    assert transform_with([1], [double, None]) == [2]
