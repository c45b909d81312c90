"""What is looked at of the nodes of a Ray cluster before anything starts, as far as that needs no Ray."""

import pytest

from highway.run.launchers.ray_nodes import matches


@pytest.mark.parametrize(
    ("wanted", "labels"),
    [
        ("rack7", ["rack7"]),
        ("!rack7", ["rack8", "rack9", None]),
        ("in(rack7, rack8)", ["rack7", "rack8"]),
        ("!in(rack7,rack8)", ["rack9", None]),
        ("in(rack7", []),
    ],
)
def test_labels_are_compared_as_ray_does(wanted, labels):
    assert [label for label in ("rack7", "rack8", "rack9", None) if matches(wanted, label)] == labels
