"""The endpoint's HTTP server with clients that are slow, many or hostile."""

import contextlib
import errno
import os
import resource
import socket
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from waiting import wait_until

from highway.observe import server as module
from highway.observe.server import CONNECTIONS, LARGEST, LIFETIME, Server, open_port
from highway.topology.spec import MetricsSpec


@pytest.fixture
def serve():
    """A function that starts a server, which answers ``hello``, and at /much what it is given."""
    with contextlib.ExitStack() as stack:

        def start(much=b""):
            def answer(environ, start):
                body = much if environ["PATH_INFO"] == "/much" else b"hello"
                start("200 OK", [("Content-Length", str(len(body)))])
                return [body]

            server = Server(open_port(MetricsSpec(0)), answer)
            pool = stack.enter_context(ThreadPoolExecutor(1))
            served = pool.submit(server.serve)
            stack.callback(served.result, timeout=30)
            stack.callback(server.stop)
            return server

        yield start


@pytest.fixture
def server(serve):
    return serve()


def ask(server, timeout=30.0):
    """Return what is answered, over a connection of its own."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{server.port}/", timeout=timeout) as answer:
        return answer.read()


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def test_it_answers(server):
    assert ask(server) == ask(server) == b"hello"


def test_who_says_nothing_is_sent_away(server, monkeypatch):
    with connect(server) as silent, monkeypatch.context() as patched:  # who asks afterwards has its time
        patched.setattr(server.adj, "channel_timeout", 0.2)
        assert silent.recv(1) == b""
    assert ask(server) == b"hello"


def test_a_byte_now_and_then_keeps_no_connection(server, monkeypatch):
    with connect(server) as slow, monkeypatch.context() as patched:
        patched.setattr(module, "LIFETIME", 1.0)
        slow.settimeout(0.05)
        began = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError, EOFError)):
            while True:
                assert time.monotonic() - began < 60
                slow.sendall(b"G")
                try:
                    if slow.recv(1) == b"":
                        raise EOFError
                except TimeoutError:
                    pass
    assert ask(server) == b"hello"


@pytest.mark.parametrize("why", ["it lasted too long", "there were too many"])
def test_a_new_connection_is_not_closed_for_the_one_whose_descriptor_it_gets(monkeypatch, why):
    server = Server(open_port(MetricsSpec(0)), lambda environ, start: [start("200 OK", []), b"hello"][1:])
    with connect(server) as old:
        while not server.active_channels:
            server.turn()
        if why == "it lasted too long":
            next(iter(server.active_channels.values())).creation_time -= LIFETIME
            server.next_channel_cleanup = 0
        else:
            monkeypatch.setattr(module, "CONNECTIONS", 1)
        old.sendall(b"G")
        with connect(server) as new:
            server.turn()
            new.sendall(b"GET / HTTP/1.0\r\n\r\n")
            new.setblocking(False)
            answer = b""
            for _ in range(60):
                server.turn()
                with contextlib.suppress(BlockingIOError):
                    answer = new.recv(1000)
                    break
            assert answer.startswith(b"HTTP/1.0 200 OK")
    server.stop()
    server.serve()


def test_who_asks_is_answered_however_many_others_hold_connections_and_say_nothing(server, monkeypatch):
    monkeypatch.setattr(server.adj, "channel_timeout", 1000)  # so that none is closed for its silence
    monkeypatch.setattr(module, "LIFETIME", 1000)
    held = [connect(server) for _ in range(2 * CONNECTIONS)]
    try:
        assert ask(server) == b"hello"
        assert len(server.active_channels) <= CONNECTIONS
    finally:
        for one in held:
            one.close()


def test_a_request_that_is_too_large_is_refused(server):
    with connect(server) as client:
        # no more than it reads, since what is left when it closes the connection would have that reset
        client.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * LARGEST + b"\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.0 431 ")
    assert ask(server) == b"hello"


def test_without_descriptors_it_waits_and_then_goes_on(server, monkeypatch):
    turns, readable = [], server.readable
    monkeypatch.setattr(server, "readable", lambda: turns.append(None) or readable())  # asked in each turn of its loop
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    with socket.socket() as client:
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 8, hard))
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE
        client.settimeout(30)
        try:
            client.connect(("127.0.0.1", server.port))  # the system accepts it; the server cannot take it over
            wait_until(lambda: server.paused_until)
            before, began = len(turns), time.monotonic()
            time.sleep(0.5)  # a time over which to count, not to wait for something
            turned, seconds = len(turns) - before, time.monotonic() - began
        finally:
            for descriptor in taken:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert turned < 10 * (1 + seconds)  # it looks about once in a second
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.0 200 OK")
    assert ask(server) == b"hello"


def test_who_asks_many_times_at_once_for_much_and_reads_nothing_is_sent_away(serve):
    server = serve(bytes(20 << 20))  # more than is kept for a client
    greedy = [connect(server) for _ in range(4)]
    try:
        for client in greedy:
            client.sendall(b"GET /much HTTP/1.1\r\n\r\n" * 3)
        assert ask(server) == b"hello"
        wait_until(lambda: not server.active_channels)
    finally:
        for client in greedy:
            client.close()


def test_who_reads_nothing_of_an_answer_is_sent_away_after_a_while(serve, monkeypatch):
    server = serve(bytes(20 << 20))
    with connect(server) as client:
        client.sendall(b"GET /much HTTP/1.1\r\n\r\n")
        assert client.recv(1)
        monkeypatch.setattr(module, "LIFETIME", 1.0)
        wait_until(lambda: not server.active_channels)
