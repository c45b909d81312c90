"""``${name}`` in topologies."""

import pytest

from highway.errors import ConfigError
from highway.parameters.location import Location
from highway.topology.variables import Variables


def fill(value, own=None, **values):
    return Variables(values, Location() / "vars", own or {}).fill(value, Location() / "at")


def test_a_value_that_is_one_reference_keeps_the_type():
    assert fill("${a}", a=3) == 3
    assert fill({"x": ["${a}"]}, a=[1, 2]) == {"x": [[1, 2]]}
    assert fill("${a}", a=None) is None


def test_within_text_the_text_is_put_in():
    assert fill("tcp://${host}:${port}", host="trainer", port=5555) == "tcp://trainer:5555"
    assert fill("${a} ${b}", a=True, b=0.5) == "true 0.5"


def test_variables_may_refer_to_others():
    assert fill("${url}", url="tcp://${host}:1", host="${name}", name="a") == "tcp://a:1"
    assert fill("${shape}", shape=["${side}", "${side}"], side=8) == [8, 8]


def test_a_default_stands_in_for_what_is_missing_and_has_the_type_it_would_have_in_the_file():
    assert fill("${a:5}") == 5
    assert fill("${a:5}", a=6) == 6
    assert fill("${a:}") is None
    assert fill("${a:127.0.0.1:80}") == "127.0.0.1:80"
    assert fill("${a:out/x.png}") == "out/x.png"


def test_the_environment_is_read_by_name(monkeypatch):
    monkeypatch.setenv("HIGHWAY_TEST", "7")
    monkeypatch.delenv("HIGHWAY_NOT_SET", raising=False)
    assert fill("${env:HIGHWAY_TEST}") == 7
    assert fill("no. ${env:HIGHWAY_TEST}") == "no. 7"
    assert fill("${env:HIGHWAY_NOT_SET:a:b}") == "a:b"
    with pytest.raises(ConfigError, match="the environment has no HIGHWAY_NOT_SET; set it, or write a default"):
        fill("${env:HIGHWAY_NOT_SET}")


def test_two_dollars_make_a_plain_one():
    assert fill("$${a} costs $5", a=1) == "${a} costs $5"
    assert fill("$${a}", a=1) == "${a}"


def test_braces_of_urls_are_no_references():
    assert fill("tcp://a:788{0..3}") == "tcp://a:788{0..3}"


def test_own_variables_come_first():
    assert fill("${role}-${replica}", own={"role": "worker", "replica": 1}) == "worker-1"


@pytest.mark.parametrize(
    ("value", "values", "message"),
    [
        ("${epoch}", {"epochs": 1}, "at: unknown variable 'epoch'; did you mean epochs?"),
        ("${a}", {}, "at: unknown variable 'a'; define it under vars, as  vars: {a: ...},  or write a default: ${a:default}"),
        ("${a b}", {}, "at: '${' does not begin a reference"),
        ("${a", {}, "at: '${' does not begin a reference"),
        ("x${a}", {"a": [1]}, "at: ${a} is a list of 1, which cannot be part of a text"),
        ("x${a}", {"a": None}, "at: ${a} is null, which cannot be part of a text"),
        (["${a}"], {"a": "${b}", "b": ["${a}"]}, "vars.b[0]: the definition of the variable a contains this variable itself: a -> b -> a"),
        ("1", {"env": 1}, "vars.env: a variable cannot be named env"),
        ("1", {"replica": 1}, "vars.replica: a variable cannot be named replica"),
    ],
)
def test_mistakes_are_named_with_their_place(value, values, message):
    with pytest.raises(ConfigError) as raised:
        fill(value, **values)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("kind", ["text", "list"])
def test_variables_that_repeat_each_other_do_not_grow_without_bound(kind):
    values = {"a0": "x" * 10}
    for n in range(1, 12):
        values[f"a{n}"] = f"${{a{n - 1}}}" * 10 if kind == "text" else [f"${{a{n - 1}}}"] * 10
    with pytest.raises(ConfigError, match="more than 1,000,000 values and characters after"):
        fill("${a11}", **values)
