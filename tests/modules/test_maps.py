import numpy as np
import pytest

from highway import DROP, Pipeline, Stage
from highway.errors import ConfigError
from highway.modules import Identity, Map, Rename, Select


def test_a_function_is_applied_to_the_item_or_to_one_field():
    assert Map(len)([1, 2, 3]) == 3
    assert Map(str, 1)(("a", 7, "c")) == ("a", "7", "c")
    assert Map(str, "n")({"a": "b", "n": 7}) == {"a": "b", "n": "7"}


def test_the_received_item_is_not_changed():
    item = {"n": 7}
    Map(str, "n")(item)
    Rename({"n": "m"})(item)
    assert item == {"n": 7}


def test_a_function_that_takes_rng_gets_that_of_the_item():
    def draw(item, rng):
        return int(rng.integers(2**62))

    runs = []
    for _ in range(2):
        with Pipeline([range(5), Map(draw)], seed=4) as pipeline:
            runs.append(list(pipeline))
    assert runs[0] == runs[1] and len(set(runs[0])) == 5


def test_drop_leaves_out_the_item_even_from_a_field():
    with Pipeline([[(0, 1), (1, 2), (2, 3)], Stage(Map(lambda n: DROP if n == 1 else n, 0), drops=True)]) as pipeline:
        assert list(pipeline) == [(0, 1), (2, 3)]


@pytest.mark.parametrize("field", [None, 0])
def test_none_is_an_error_that_names_drop(field):
    with pytest.raises(TypeError, match=r"returned None; return a value, or return DROP"):
        Map(lambda _: None, field)((1,))


def test_select_keeps_fields_in_the_order_given_and_the_kind():
    image, label = np.zeros(2), 3
    assert Select([1, 0])((image, label)) == (label, image)
    assert Select(1)((image, label)) == (label,)
    assert list(Select(["label", "image"])({"image": image, "label": label, "key": "x"})) == ["label", "image"]


def test_select_names_the_field_that_is_not_there():
    with pytest.raises(KeyError, match=r"no field 'labels'; the item has 'image', 'label'"):
        Select(["labels"])({"image": 1, "label": 2})


def test_rename_keeps_other_fields_and_their_order():
    assert list(Rename({"b": "z"})({"a": 1, "b": 2, "c": 3}).items()) == [("a", 1), ("z", 2), ("c", 3)]
    assert Rename({"a": "b", "b": "a"})({"a": 1, "b": 2}) == {"b": 1, "a": 2}


def test_rename_makes_a_dict_of_a_tuple():
    assert Rename({0: "image", 1: "label"})((5, 6)) == {"image": 5, "label": 6}


@pytest.mark.parametrize(
    ("names", "item", "error", "message"),
    [
        ({0: "image"}, (5, 6), ValueError, "field 1 of a tuple of 2 has no new name"),
        ({"x": "y"}, {"a": 1}, KeyError, "no field 'x'; the item has 'a'"),
        ({"a": "b"}, {"a": 1, "b": 2}, ValueError, "renames a field to the name of another field"),
        ({2: "c", 0: "a", 1: "b"}, (5, 6), KeyError, "no field 2"),
    ],
)
def test_rename_says_what_does_not_fit(names, item, error, message):
    with pytest.raises(error, match=message):
        Rename(names)(item)


def test_rename_to_one_name_twice_is_refused():
    with pytest.raises(ConfigError, match="gives the same name to several fields"):
        Rename({"a": "x", "b": "x"})


def test_identity_changes_nothing():
    item = object()
    assert Identity()(item) is item
