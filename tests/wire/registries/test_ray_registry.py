"""The registry of addresses of a run on Ray, without Ray; tests/run/launchers/test_ray_launcher.py has it in a cluster."""

import sys
from types import SimpleNamespace

import pytest

from highway import Pipeline
from highway.errors import ConfigError
from highway.wire.registries.ray import NEVER, AddressBook, RayRendezvous


@pytest.fixture
def ray(monkeypatch):
    """Ray with a single actor, which is ``ray.book`` and here."""

    class Actor:
        def __getattr__(self, name):
            return SimpleNamespace(remote=getattr(ray.book, name))

    ray = SimpleNamespace(
        book=AddressBook(),
        is_initialized=lambda: True,
        util=SimpleNamespace(get_node_ip_address=lambda: "10.0.0.1"),
        get_actor=lambda *name: Actor(),
        get=lambda answer, timeout: answer,
        exceptions=SimpleNamespace(RayError=RuntimeError),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


def test_each_address_is_told_to_each_once(ray):
    one, two = RayRendezvous("run"), RayRendezvous("run")
    one.publish({"a": "tcp://1", "b": "tcp://2"})
    assert two.find(["a", "c"]) == {"a": "tcp://1"}
    known = ray.book.changes(NEVER)[0]
    one.publish({"a": "tcp://1"})
    assert ray.book.changes(known)[2] == {}
    one.publish({"a": "tcp://3"})
    assert ray.book.changes(known)[2] == {"a": "tcp://3"}
    assert two.find(["a", "b"]) == {"a": "tcp://3", "b": "tcp://2"}


def test_what_a_registry_that_began_anew_does_not_know_is_not_found(ray):
    one = RayRendezvous("run")
    one.publish({"a": "tcp://1", "b": "tcp://2"})
    assert one.find(["a", "b"]) == {"a": "tcp://1", "b": "tcp://2"}
    ray.book = AddressBook()
    assert one.find(["a", "b"]) == {}  # so that who has published it does so again
    one.publish({"b": "tcp://2"})
    assert one.find(["a", "b"]) == {"b": "tcp://2"}


def test_a_registry_that_began_anew_after_the_clock_was_set_back_is_heard_all_the_same(ray, monkeypatch):
    times = iter([2_000_000_000 * 10**9, 1_000_000_000 * 10**9])
    monkeypatch.setattr("time.time_ns", lambda: next(times))
    ray.book, one = AddressBook(), RayRendezvous("run")
    one.publish({"a": "tcp://1"})
    assert one.find(["a"]) == {"a": "tcp://1"}
    ray.book = AddressBook()
    assert one.find(["a"]) == {}
    one.publish({"a": "tcp://2"})
    assert one.find(["a"]) == {"a": "tcp://2"}


def test_without_ray_it_is_said_what_to_install(monkeypatch, write):
    monkeypatch.setitem(sys.modules, "ray", None)
    path = write("roles: {a: [Noise]}")
    with pytest.raises(ConfigError, match=r"^Ray is not installed here; run `pip install ray`$"):
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
