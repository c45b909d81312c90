"""YAML text to plain values: what scalars mean, where they stand, and what is refused."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from highway.errors import ConfigError
from highway.topology.document import parse, read, write

NINE = "[" + ",".join("x" * 9) + "]"


def value(text):
    return parse(text, "t.yaml")[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("007", 7),
        ("0o17", 15),
        ("0xff", 255),
        ("-3", -3),
        ("1e-3", 0.001),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("~", None),
        ("", None),
        ("null", None),
        ("'5'", "5"),
        ("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5555"),
        ("[1, a, {b: 2}]", [1, "a", {"b": 2}]),
        ("!!str 5", "5"),
    ],
)
def test_scalars_mean_what_they_mean_in_yaml_1_2(text, expected):
    found = value(text)
    assert (type(found), found) == (type(expected), expected)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["C"]))
)
TREES = st.recursive(SCALARS, lambda t: st.lists(t, max_size=3) | st.dictionaries(st.text("abc"), t, max_size=3), max_leaves=8)


@given(TREES)
def test_json_is_read_as_json(tree):
    assert value(json.dumps(tree, ensure_ascii=False)) == tree


def test_every_value_knows_its_line():
    _, root = parse("vars:\n  a: 1\nroles:\n  r:\n    - A\n    -\n      B:\n        c: 1\n", "t.yaml")
    assert (root / "vars" / "a").mark == "t.yaml:2"
    assert (root / "roles" / "r" / 0).mark == "t.yaml:5"
    assert (root / "roles" / "r" / 1 / "B").mark == "t.yaml:7"
    assert (root / "roles" / "r" / 1 / "B" / "c").mark == "t.yaml:8"


def test_aliases_and_merging_work():
    text = "base: &base {a: 1, b: 2}\nother: &other {b: 3, c: 4}\nx: {<<: *base, b: 5}\ny: {<<: [*base, *other]}\nz: *base"
    found = value(text)
    assert found["x"] == {"a": 1, "b": 5}
    assert found["y"] == {"a": 1, "b": 2, "c": 4}
    assert found["z"] == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [\n", "t.yaml:2: not YAML: .*expected the node content"),
        ("roles:\n\tr: 1", r"t.yaml:2: not YAML: .*'\\t'"),
        ("a: b: c", "t.yaml:1: not YAML: mapping values are not allowed here .column 5."),
        ("a: *b", "t.yaml:1: not YAML: found undefined alias 'b'"),
        ("a: 1\n---\nb: 2", "t.yaml:2: not YAML: .*another document"),
        ("a: \0", "t.yaml: not YAML: unacceptable character"),
        ("a: !!python/object/apply:os.system ['true']", "t.yaml:1: the tag !!python/object/apply:os.system is not supported"),
        ("a: !mine 1", "t.yaml:1: the tag !mine is not supported"),
        ("a: !!binary aGk=", "t.yaml:1: the tag !!binary is not supported"),
        ("a: !!int x", "t.yaml:1: 'x' is not a valid int"),
        ("a: 1\nb: 2\na: 3", "t.yaml:3: 'a' is written twice in one mapping, first on line 1"),
        ("? [a]\n: 1", "t.yaml:1: a list or mapping cannot be a key"),
        ("a: {<<: 5}", "t.yaml:1: << merges mappings, but this value is not a mapping"),
        ("a: &a [*a]", "t.yaml:1: nested deeper than 50 levels; does an alias"),
        ("a: &a {<<: *a}", "t.yaml:1: nested deeper than 50 levels; does an alias"),
        ("[" * 5000 + "]" * 5000, "t.yaml: nested deeper than 50 levels"),
    ],
)
def test_what_is_refused_is_named_with_its_line(text, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        parse(text, "t.yaml")


def test_a_billion_laughs_are_refused_before_they_are_laughed():
    lines = [f"a0: &a0 {NINE}"] + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    with pytest.raises(ConfigError, match="more than 100,000 values"):
        parse("\n".join(lines), "bomb.yaml")


def test_a_long_file_is_refused_unread(tmp_path):
    (tmp_path / "long.yaml").write_bytes(b"#" * 1_000_001)
    with pytest.raises(ConfigError, match="the file is larger than 1,000,000 bytes"):
        read(tmp_path / "long.yaml")


def test_a_missing_file_is_named_and_a_similar_one_suggested(tmp_path):
    (tmp_path / "quickstart.yaml").write_text("a: 1")
    with pytest.raises(ConfigError, match=r"quickstart.yml: there is no such file; did you mean .*quickstart.yaml\?$"):
        read(tmp_path / "quickstart.yml")
    with pytest.raises(ConfigError, match=r"there is no such file$"):
        read(tmp_path / "nowhere" / "a.yaml")


def test_what_is_no_text_file_is_refused(tmp_path):
    (tmp_path / "photo.yaml").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(ConfigError, match=r"photo.yaml: the file is not UTF-8 text \(byte 0\)"):
        read(tmp_path / "photo.yaml")
    with pytest.raises(ConfigError, match="Is a directory"):
        read(tmp_path)


def test_a_byte_order_mark_is_ignored(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfa: 1")
    assert read(tmp_path / "a.yaml")[0] == {"a": 1}


TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.from_regex(r"[-+.0-9eEoxX_:~ynNY]{1,6}", fullmatch=True)
NUMBERS = st.booleans() | st.integers() | st.floats(allow_nan=False)
VALUES = st.recursive(
    st.none() | NUMBERS | TEXTS, lambda part: st.lists(part, max_size=3) | st.dictionaries(TEXTS, part, max_size=3), max_leaves=8
)


@given(VALUES)
def test_what_is_written_means_the_same_to_readers_of_both_versions_of_yaml(given):
    text = write([given])
    assert value(text) == given, "as YAML 1.2, and as highway reads it"
    assert yaml.safe_load(text) == given, "as YAML 1.1"


@pytest.mark.parametrize("text", ["1e3", "0o17", "1E5", "yes", "12:30", "~", "0x1f", "", "007", ".5e1"])
def test_a_text_that_one_of_them_takes_for_something_else_gets_quotes(text):
    assert write([{"a": text}]) == f"a: '{text}'\n"


def test_lines_are_written_as_lines_and_what_is_used_twice_is_written_twice():
    twice = {"b": 1}
    assert write([{"a": "x\ny\n", "first": twice, "second": twice}]) == "a: |\n  x\n  y\nfirst:\n  b: 1\nsecond:\n  b: 1\n"
