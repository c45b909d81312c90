"""URLs of links."""

import tracemalloc

import pytest

from highway import ConfigError
from highway.parameters.braces import expand_braces
from highway.wire.options import LinkOptions
from highway.wire.url import SCHEMES, kind_of, parse

DIRECTION = {"push": "send", "pub": "send", "pull": "receive", "sub": "receive"}


@pytest.mark.parametrize(
    ("scheme", "kind", "binds"),
    [
        ("zpush", "push", False),
        ("zpull", "pull", True),
        ("zpub", "pub", True),
        ("zsub", "sub", False),
        ("zrpush", "push", True),
        ("zrpull", "pull", False),
        ("zrpub", "pub", False),
        ("zrsub", "sub", True),
    ],
)
def test_the_scheme_fixes_the_socket_and_who_binds(scheme, kind, binds):
    link = parse(f"{scheme}://127.0.0.1:7880", DIRECTION[kind])
    assert (link.kind, link.bind, link.transport.name, link.locations) == (kind, binds, "tcp", ("127.0.0.1:7880",))
    assert len(SCHEMES) == 8


@pytest.mark.parametrize(
    ("direction", "bind", "kind", "binds"),
    [
        ("send", None, "push", True),
        ("send", False, "push", False),
        ("receive", None, "pull", False),
        ("receive", True, "pull", True),
    ],
)
def test_a_plain_url_is_push_and_pull_and_the_sender_binds_unless_told(direction, bind, kind, binds):
    link = parse("tcp://source:5555", direction, bind)
    assert (link.kind, link.bind, link.locations) == (kind, binds, ("source:5555",))


@pytest.mark.parametrize(
    ("url", "transport", "location"),
    [
        ("zsub+tcp://host:1", "tcp", "host:1"),
        ("zsub+ipc://mypath", "ipc", "mypath"),
        ("zsub+ipc:///tmp/a/b", "ipc", "/tmp/a/b"),
        ("zsub+inproc://name", "inproc", "name"),
        ("zsub://[::1]:7880", "tcp", "[::1]:7880"),
        ("zrsub://*:*", "tcp", "*:0"),
        ("zrsub://127.0.0.1:0", "tcp", "127.0.0.1:0"),
        ("zrsub://:7880", "tcp", "127.0.0.1:7880"),
        ("zsub://host:7880/", "tcp", "host:7880"),
    ],
)
def test_transports_and_locations(url, transport, location):
    link = parse(url, "receive")
    assert (link.transport.name, link.locations) == (transport, (location,))


def test_options_and_topic_are_read():
    link = parse("zsub://h:1?codec=msgpack&hwm_mb=6.5&linger_ms=20&max_mb=2&senders=3&end=0#images", "receive")
    assert link.options == LinkOptions(codec="msgpack", budget_mb=6.5, linger_ms=20, max_mb=2.0, senders=3, end=False)
    assert link.topic == "images"


def test_the_query_goes_before_the_defaults():
    assert parse("zsub://h:1?hwm_mb=6.5", "receive").options == LinkOptions(budget_mb=6.5)  # its name before
    assert (parse("zsub://h:1", "receive").budget_mb, parse("zpull+shm://h", "receive").budget_mb) == (64, 256)
    defaults = LinkOptions(codec="msgpack", senders=2)
    assert parse("zpull://h:1?senders=5", "receive", defaults=defaults).options == LinkOptions(codec="msgpack", senders=5)


def test_several_urls_share_a_socket():
    link = parse(["zsub://a:788{0..2}", "zsub://b:1"], "receive")
    assert link.locations == ("a:7880", "a:7881", "a:7882", "b:1")
    assert str(link) == "zsub://a:7880, zsub://a:7881, zsub://a:7882, zsub://b:1"


def test_braces_stay_when_they_are_not_to_be_expanded():
    assert parse("zsub+ipc://a{b,c}", "receive", braces=False).locations == ("a{b,c}",)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("a", ["a"]),
        ("a{b,c}d", ["abd", "acd"]),
        ("{0..3}", ["0", "1", "2", "3"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{08..11}", ["08", "09", "10", "11"]),
        ("{a,b}{1..2}", ["a1", "a2", "b1", "b2"]),
        ("x{a,b{1,2}}", ["xa", "xb1", "xb2"]),
        ("x{,y}", ["x", "xy"]),
        ("{x}", ["{x}"]),
    ],
)
def test_braces_expand_as_in_a_shell(text, expanded):
    assert expand_braces(text) == expanded


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("zpsh://a:1", "unknown scheme 'zpsh'; did you mean zpush?"),
        ("qqqq://a:1", "expected one of inproc, ipc"),
        ("zpush+tpc://a:1", "unknown transport 'tpc'; did you mean tcp?"),
        ("tcp+ipc://a", "remove '+ipc'"),
        ("zpush://host", "expected host:port after '://', such as 127.0.0.1:5555"),
        ("zpush://host:http", "expected host:port"),
        ("zpush://host:65536", "port 65536; expected 0 to 65535"),
        ("zpush://*:1", "only the end that binds can use"),
        ("zpush://host:0", "only the end that binds can use"),
        ("zpush+ipc://", "expected a path after"),
        ("zpush+inproc://", "expected a name after"),
        ("zpush://h:1?hwm=3", "unknown option 'hwm'; did you mean hwm_mb?"),
        ("zpush://h:1?hwm_mb=-3", "hwm_mb='-3'; expected a number above 0"),
        ("zpush://h:1?hwm_mb=nan", "expected a number above 0"),
        ("zpush://h:1?linger_ms=1.5", "linger_ms='1.5'; expected a whole number"),
        ("zpush://h:1?end=maybe", "end='maybe'; expected 0 or 1"),
        ("zpush://h:1#topic", "a push socket has no topics"),
        ("zpull://h:1", "zpull can only receive; to send, use one of zpush, zpub, zrpush, zrpub"),
        ("zpush://h:{1..x}", "is not a range; expected, for example, {0..3}"),
        ("zpush://h:{1..99999999}", "has 99,999,999 numbers"),
        ("nonsense", "'nonsense' is not a URL; expected KIND[+TRANSPORT]://location"),
        ("", "'' is not a URL"),
    ],
)
def test_a_url_that_cannot_be_used_says_what_is_expected(url, says):
    with pytest.raises(ConfigError) as caught:
        parse(url, "send")
    assert says in str(caught.value)
    assert url in str(caught.value)


def test_bind_against_the_scheme_names_the_scheme_that_does_it():
    with pytest.raises(ConfigError, match=r"bind=True, but zpush always connects; remove bind=, or use zrpush, which binds"):
        parse("zpush://h:1", "send", bind=True)


def test_urls_that_differ_in_kind_cannot_share_a_socket():
    with pytest.raises(ConfigError, match="cannot share a socket"):
        parse(["zsub://h:1", "zrpull://h:2"], "receive")


def test_ipc_and_tcp_share_a_socket():
    link = parse(["ipc:///tmp/x", "zpull://127.0.0.1:5555"], "receive", bind=True)
    assert (link.kind, link.bind) == ("pull", True)
    assert (link.addresses, link.locations) == (("ipc:///tmp/x", "tcp://127.0.0.1:5555"), ("/tmp/x", "127.0.0.1:5555"))
    assert link.addresses == ("ipc:///tmp/x", "tcp://127.0.0.1:5555")


@pytest.mark.parametrize(
    ("transport", "why"),
    [
        ("shm", "shm is shared memory, which ZeroMQ sockets cannot read; use ipc instead, or use a separate source or sink for each URL"),
        ("inproc", "over inproc, ZeroMQ does not report connections, so the end of the stream would be missed; use ipc instead"),
    ],
)
@pytest.mark.parametrize("comes_first", [True, False])
def test_other_transports_share_none_and_the_error_says_why(transport, why, comes_first):
    urls = [f"{transport}://name", "tcp://127.0.0.1:5555"]
    shown = urls[::-1] if comes_first else urls
    with pytest.raises(ConfigError) as caught:
        parse(urls if comes_first else urls[::-1], "receive", bind=True)
    assert str(caught.value).startswith(f"'{shown[0]}' and '{shown[1]}' cannot share a socket: {why}")


def test_no_url_at_all_is_an_error():
    with pytest.raises(ConfigError, match="no URL was given"):
        parse([], "send")


def test_the_kind_of_a_plain_url_is_not_known():
    assert kind_of("zsub+ipc://x") == "sub"
    with pytest.raises(ConfigError, match=r"such as zsub\+tcp or zpush\+tcp"):
        kind_of("tcp://h:1")


@pytest.mark.slow
def test_braces_that_stand_for_too_many_urls_are_refused_before_they_fill_the_memory():
    tracemalloc.start()
    try:
        for text in ("tcp://h" + "{0..9}" * 9 + ":1", "tcp://h" + "{a,a}" * 40 + ":1"):
            with pytest.raises(ConfigError, match="its braces expand to more than 10,000 texts"):
                parse(text, "receive")
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
