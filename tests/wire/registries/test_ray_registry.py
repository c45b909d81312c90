"""The registry of addresses of a run on Ray, without Ray; tests/run/launchers/test_ray_launcher.py has it in a cluster."""

import sys

import pytest

from highway import Pipeline
from highway.errors import ConfigError
from highway.wire.registries.ray import NEVER, AddressBook, RayRendezvous


class Played:
    """A rendezvous whose registry is here."""

    def __new__(cls, book):
        found = RayRendezvous.__new__(RayRendezvous)
        found._since, found._known = NEVER, {}
        found.book = book
        found._ask = lambda method, argument: getattr(found.book, method)(argument)
        return found


def test_each_address_is_told_to_each_once():
    book = AddressBook()
    one, two = Played(book), Played(book)
    one.publish({"a": "tcp://1", "b": "tcp://2"})
    assert two.find(["a", "c"]) == {"a": "tcp://1"}
    one.publish({"a": "tcp://1"})
    assert book.changes(two._since)[2] == {}
    one.publish({"a": "tcp://3"})
    assert book.changes(two._since)[2] == {"a": "tcp://3"}
    assert two.find(["a", "b"]) == {"a": "tcp://3", "b": "tcp://2"}


def test_what_a_registry_that_began_anew_does_not_know_is_not_found():
    one = Played(AddressBook())
    one.publish({"a": "tcp://1", "b": "tcp://2"})
    assert one.find(["a", "b"]) == {"a": "tcp://1", "b": "tcp://2"}
    one.book = AddressBook()
    assert one.find(["a", "b"]) == {}  # so that who has published it does so again
    one.publish({"b": "tcp://2"})
    assert one.find(["a", "b"]) == {"b": "tcp://2"}


def test_a_registry_that_began_anew_after_the_clock_was_set_back_is_heard_all_the_same(monkeypatch):
    times = iter([2_000_000_000 * 10**9, 1_000_000_000 * 10**9])
    monkeypatch.setattr("time.time_ns", lambda: next(times))
    one = Played(AddressBook())
    one.publish({"a": "tcp://1"})
    assert one.find(["a"]) == {"a": "tcp://1"}
    one.book = AddressBook()
    assert one.find(["a"]) == {}
    one.publish({"a": "tcp://2"})
    assert one.find(["a"]) == {"a": "tcp://2"}


def test_without_ray_it_is_said_what_to_install(monkeypatch, write):
    monkeypatch.setitem(sys.modules, "ray", None)
    path = write("roles: {a: [Noise]}")
    with pytest.raises(ConfigError, match=r"^Ray is not installed here: pip install ray$"):
        Pipeline.from_yaml(path, role="a", on="ray")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"on": "rai"},
            r"^rendezvous rai: expected folder:PATH, a folder that all hosts of the run see, or ray:RUN, a run in a Ray cluster$",
        ),
        (
            {"on": "ray", "isolated": True},
            r"^on='ray': an isolated pipeline only connects to the hosts of the file; remove on= or isolated=True$",
        ),
    ],
)
def test_what_cannot_be_joined_is_said(write, arguments, message):
    with pytest.raises(ConfigError, match=message):
        Pipeline.from_yaml(write("roles: {a: [Noise]}"), role="a", **arguments)
