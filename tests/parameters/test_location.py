"""Places name files, lines and paths."""

from highway.errors import ConfigError
from highway.parameters.location import Location, did_you_mean, show


def test_a_place_reads_like_a_path():
    assert str(Location() / "roles" / "worker" / "stages" / 1 / "FlipX" / "p") == "roles.worker.stages[1].FlipX.p"


def test_a_place_takes_the_line_of_the_nearest_value_above():
    marks = {(): "a.yaml", ("roles",): "a.yaml:3", ("roles", "worker", 1): "a.yaml:7"}
    assert (Location(marks=marks) / "roles" / "worker" / 1 / "FlipX").mark == "a.yaml:7"
    assert (Location(marks=marks) / "roles" / "worker" / 2).mark == "a.yaml:3"
    assert (Location(marks=marks) / "vars").mark == "a.yaml"


def test_an_error_begins_with_its_place():
    error = (Location(marks={("seed",): "a.yaml:2"}) / "seed").error("expected int")
    assert isinstance(error, ConfigError)
    assert str(error) == "a.yaml:2: seed: expected int"
    assert str(Location().error("expected int")) == "expected int"


def test_a_close_word_is_suggested_and_a_short_list_shown():
    assert did_you_mean("Augmentation", ["Augmentations", "Noise"]) == "; did you mean Augmentations?"
    assert did_you_mean("noise", ["Augmentations", "Noise"]) == "; did you mean Noise?"
    assert did_you_mean("xyz", ["b", "a"]) == "; expected one of a, b"
    assert did_you_mean("xyz", []) == "; there are none"
    assert did_you_mean("xyz", map(str, range(17))) == ""


def test_values_are_shown_with_their_type_and_not_at_length():
    assert show("a") == "str 'a'"
    assert show(None) == "null"
    assert show([1, 2]) == "a list of 2"
    assert show({}) == "a mapping of 0"
    assert len(show("x" * 1000)) < 70


def test_a_word_in_another_case_is_meant_before_one_that_is_nearly_it():
    assert did_you_mean("flipx", ["Clip", "FlipX", "FlipY"]) == "; did you mean FlipX?"
    assert did_you_mean("FLIPXX", ["Clip", "FlipX"]) == "; did you mean FlipX?"
