"""Hosts and links: the URLs that come of them, and what is wrong with a file before anything runs."""

import hashlib
import os
import socket

import pytest

from highway.errors import ConfigError
from highway.run.preflight import preflight
from highway.topology import check, load
from highway.topology.checking import link_ends
from highway.topology.limits import loss, memory
from highway.topology.plan import Process
from highway.topology.registry import Registry
from highway.wire.url import parse

SOURCE, SINK = "Noise: {shape: [2], count: 3}", "DumpImages: out"

THREE = """
hosts:
  a: 10.0.0.1
  b: 10.0.0.2
  c: {address: 10.0.0.3, listen: 0.0.0.0}
links:
  raw: {from: reader, to: worker, port: 5555}
  done: {from: worker, to: trainer, port: 5556-5557, bind: to, budget_mb: 8}
roles:
  reader: {hosts: a, stages: [Noise: {shape: [2], count: 3}, ZMQSink: {link: raw}]}
  worker: {hosts: [a, b], replicas: 3, stages: [ZMQSource: {link: raw}, ZMQSink: {link: done}]}
  trainer: {hosts: c, stages: [ZMQSource: {link: done}]}
"""


@pytest.fixture
def topology(tmp_path, monkeypatch):
    """Return a function that loads a topology from texts."""
    monkeypatch.chdir(tmp_path)

    def loaded(*texts):
        names = [f"t{number or ''}.yaml" for number in range(len(texts))]
        for name, text in zip(names, texts, strict=True):
            (tmp_path / name).write_text(text)
        return load(names)

    return loaded


def errors(topology):
    return [str(error) for error in check(topology)]


SCALES = THREE.replace("hosts: [a, b], replicas: 3,", "hosts: [a, b], replicas: 2, autoscale: {min: 1, max: 4},")


def test_a_role_that_scales_has_numbers_for_all_that_it_may_have_and_begins_with_some(topology):
    found = topology(SCALES)
    role, plan = found.roles["worker"], found.plan
    assert check(found) == []
    assert (role.least, role.replicas, role.most) == (1, 2, 4)
    assert [process.replica for process in found.processes() if process.role == "worker"] == [0, 1]
    assert role.processes[3] == Process("worker", 3, "b")
    assert found.key("worker").replicas == 4
    assert (plan.count("raw", "to"), plan.count("raw", "to", "a"), plan.expected("raw", "to")) == (2, 2, 1)
    assert memory(plan, "c") == {"done": 4 * 8}


def test_others_wait_for_the_replicas_that_stay_and_the_rest_say_that_they_do_not(topology):
    plan = topology(SCALES).plan
    assert plan.link_parameters("raw", "reader", 0, "send")["receivers"] == 1
    assert plan.link_parameters("done", "trainer", 0, "receive")["senders"] == 1
    assert [plan.link_parameters("done", "worker", number, "send").get("extra") for number in range(4)] == [None, True, True, True]
    fixed = topology(THREE).plan
    assert [fixed.link_parameters("done", "worker", number, "send").get("extra") for number in range(3)] == [None] * 3
    assert fixed.link_parameters("done", "trainer", 0, "receive")["senders"] == 3


def test_replicas_that_may_come_have_ports_of_their_own_for_viewers(topology):
    text = SCALES.replace("bind: to, budget_mb: 8", "bind: to, tap: 7900-7901")
    assert errors(topology(text)) == []
    narrow = errors(topology(text.replace("7900-7901", "7900")))
    assert len(narrow) == 1 and "2 replicas of worker each open a port on a; set a range of ports such as 7900-7901" in narrow[0]


def test_the_binding_end_of_a_link_opens_a_port_and_the_other_connects(topology):
    plan = topology(THREE).plan
    assert check(topology(THREE)) == []
    assert plan.urls("raw", "reader", 0, "send") == ["zrpush://10.0.0.1:5555"]
    assert plan.urls("raw", "worker", 2, "receive") == ["zrpull://10.0.0.1:5555"]
    assert plan.urls("done", "worker", 0, "send") == ["zpush://10.0.0.3:5556"]
    assert plan.urls("done", "trainer", 0, "receive") == ["zpull://0.0.0.0:5556"]


def test_on_one_machine_each_host_is_a_loopback_address_of_its_own(topology):
    plan = topology(THREE).on_this_machine().plan
    assert plan.urls("raw", "worker", 0, "receive") == ["zrpull://127.0.0.1:5555"]
    assert plan.urls("done", "worker", 0, "send") == ["zpush://127.0.0.3:5556"]
    assert plan.urls("done", "trainer", 0, "receive") == ["zpull://127.0.0.3:5556"]


def test_replicas_take_hosts_in_turn(topology):
    plan = topology(THREE).plan
    assert [plan.roles["worker"].host(replica) for replica in range(3)] == ["a", "b", "a"]
    assert [(end.role, end.replica) for end in plan.processes("a")] == [("reader", 0), ("worker", 0), ("worker", 2)]


def test_several_binding_replicas_take_the_ports_of_a_range_and_the_others_connect_to_all(topology):
    text = THREE.replace("raw: {from: reader, to: worker, port: 5555}", "raw: {from: reader, to: worker, port: 5555, bind: to}")
    assert errors(topology(text)) == [
        "t.yaml:7: links.raw.port: 2 replicas of worker each open a port on a; set a range of ports such as 5555-5556"
    ]
    plan = topology(text.replace("port: 5555,", "port: 5555-5559,")).plan
    assert plan.urls("raw", "reader", 0, "send") == [f"zpush://{at}" for at in ("10.0.0.1:5555", "10.0.0.2:5555", "10.0.0.1:5556")]
    assert plan.urls("raw", "worker", 2, "receive") == ["zpull://10.0.0.1:5556"]


def test_the_ends_of_a_link_are_given_what_the_link_says(topology):
    loaded = topology(THREE)
    sender, receiver = loaded.stages("worker")[-1].op.link, loaded.stages("trainer")[0].op.link
    assert (sender.options.codec, sender.options.budget_mb, sender.options.receivers) == ("tensorcom", 8.0, 1)
    assert (receiver.options.budget_mb, receiver.options.senders, receiver.options.tap) == (8.0, 3, "")


def taps(plan, link, role, replicas=1):
    """Return what the processes that send on a link are told to open for viewers."""
    return [plan.link_parameters(link, role, replica, "send")["tap"] for replica in range(replicas)]


def test_each_sender_has_a_tap_of_its_own_which_depends_on_the_file_and_the_link_but_not_on_who_is_where(topology, tmp_path):
    plan = topology(THREE).plan
    found = taps(plan, "done", "worker", 3)
    assert [tap.rpartition("-")[2] for tap in found] == ["0", "1", "2"]
    assert all(tap.startswith(f"ipc://@highway-tap-{os.getuid()}-") for tap in found)
    assert found == taps(topology(THREE).on_this_machine().plan, "done", "worker", 3)
    assert taps(plan, "raw", "reader")[0] not in found
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "t.yaml").write_text(THREE)
    assert taps(load("other/t.yaml").plan, "done", "worker")[0] not in found


def test_a_tap_with_a_port_is_at_the_sender_and_its_replicas_take_the_range_in_turn(topology):
    text = THREE.replace("bind: to,", "bind: to, tap: 7900-7901,").replace("b: 10.0.0.2", 'b: {address: "fd00::2", listen: "::"}')
    assert check(topology(text)) == []
    assert taps(topology(text).plan, "done", "worker", 3) == ["tcp://10.0.0.1:7900", "tcp://[::]:7900", "tcp://10.0.0.1:7901"]
    assert topology(text).plan.tap("done", Process("worker", 1, "b")) == "tcp://[fd00::2]:7900"
    assert taps(topology(text).on_this_machine().plan, "done", "worker", 2) == ["tcp://127.0.0.1:7900", "tcp://127.0.0.2:7900"]


@pytest.mark.parametrize(
    ("tap", "message"),
    [
        ("7900", "t.yaml:8: links.done.tap: 2 replicas of worker each open a port on a; set a range of ports such as 7900-7901"),
        (
            "5555-5556",
            "t.yaml:8: links.done.tap: the tap of the link done opens port 5555 on a, but the link raw uses it too; change one",
        ),
        ("7901-7900", "t.yaml:8: links.done.tap: expected a port, or a range such as 7900-7903, within 1 to 65535; got '7901-7900'"),
        ("9401-9402", "t.yaml:13: metrics: the link done uses port 9401; choose other ports, such as 9400-9409"),
    ],
)
def test_ports_of_taps_are_checked_like_those_of_links(topology, tap, message):
    text = THREE.replace("bind: to,", f"bind: to, tap: {tap},")
    try:
        found = errors(topology(f"{text}metrics: 9392-9401\n"))
    except ConfigError as error:
        found = [str(error)]
    assert found == [message]


@pytest.mark.parametrize(
    ("keys", "sender", "receiver"),
    [
        ("kind: publish, port: 1", "zpub://127.0.0.1:1", "zsub://127.0.0.1:1"),
        ("kind: publish, port: 1, bind: to", "zrpub://127.0.0.1:1", "zrsub://127.0.0.1:1"),
        ("transport: shm", "zrpush+shm://highway-{uid}-t-l-0-{digest}", "zrpull+shm://highway-{uid}-t-l-0-{digest}"),
        ("transport: ipc, bind: to", "zpush+ipc:///tmp/highway-{uid}/t-l-0-{digest}", "zpull+ipc:///tmp/highway-{uid}/t-l-0-{digest}"),
    ],
)
def test_kinds_transports_and_directions_have_their_schemes(topology, keys, sender, receiver):
    text = f"links: {{l: {{from: a, to: b, {keys}}}}}\nroles: {{a: [{SOURCE}, ZMQSink: {{link: l}}], b: [ZMQSource: {{link: l}}]}}"
    plan = topology(text).plan
    known = {"uid": os.getuid(), "digest": hashlib.blake2s(f"{plan.path}\0l-0".encode(), digest_size=8).hexdigest()}
    assert check(topology(text)) == []
    assert plan.urls("l", "a", 0, "send") == [sender.format(**known)]
    assert plan.urls("l", "b", 0, "receive") == [receiver.format(**known)]


@pytest.mark.parametrize("transport", ["ipc", "shm"])
def test_the_socket_of_a_link_has_a_short_path_whatever_tmpdir_and_the_file_are_called(tmp_path, monkeypatch, transport):
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("long" * 40)))
    found = []
    for name in ("t" * 200, "t" * 201, "a {b,c} #d? ü"):
        path = tmp_path / f"{name}.yaml"
        roles = f"roles: {{a: [{SOURCE}, ZMQSink: {{link: l}}], b: [ZMQSource: {{link: l}}]}}"
        path.write_text(f"links: {{l: {{from: a, to: b, transport: {transport}}}}}\n{roles}")
        assert errors(load(path)) == []
        (url,) = load(path).plan.urls("l", "a", 0, "send")
        found.append(parse(url, "send").locations)
    assert len(set(found)) == 3
    assert max(len(location) for (location,) in found) < 80


@pytest.mark.parametrize("transport", ["ipc", "shm"])
def test_files_with_the_same_name_in_different_folders_share_no_link(tmp_path, transport):
    roles = f"roles: {{a: [{SOURCE}, ZMQSink: {{link: l}}], b: [ZMQSource: {{link: l}}]}}"
    text, plans = f"links: {{l: {{from: a, to: b, transport: {transport}}}}}\n{roles}", []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.yaml").write_text(text)
        plans.append(load(tmp_path / folder / "t.yaml").plan)
    ends = [[parse(*plan.urls("l", *end), end[2]).locations for end in (("a", 0, "send"), ("b", 0, "receive"))] for plan in plans]
    assert [sender == receiver for sender, receiver in ends] == [True, True]
    assert ends[0] != ends[1]


def test_later_files_replace_and_add_by_key(topology):
    merged = topology(THREE, "hosts: {a: 192.168.0.1}\nroles: {worker: {replicas: 1}, more: [Noise: [2]]}\nlinks: {done: {port: 7}}")
    assert (merged.plan.hosts["a"].address, merged.plan.hosts["b"].address) == ("192.168.0.1", "10.0.0.2")
    assert (merged.roles["worker"].replicas, list(merged.roles)) == (1, ["reader", "worker", "trainer", "more"])
    assert errors(topology(THREE, "roles:\n  worker:\n    stages:\n    - Nois\n")) == [
        "t1.yaml:4: roles.worker.stages[0]: unknown component 'Nois'; did you mean Noise?"
    ]
    with pytest.raises(ConfigError, match=r"^t.yaml:8: links.done.bind: got str 'up'"):
        topology(THREE.replace("bind: to", "bind: up"), "roles: {worker: {replicas: 1}}")


def changed(old, new):
    assert old in THREE
    return THREE.replace(old, new)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed("hosts: c", "hosts: d"), "t.yaml:12: roles.trainer.hosts: unknown host 'd'; expected one of a, b, c"),
        (changed("from: reader", "from: redaer"), "t.yaml:7: links.raw.from: unknown role 'redaer'; did you mean reader?"),
        (
            changed("from: reader, to: worker", "from: worker, to: worker"),
            "t.yaml:7: links.raw.to: worker cannot be at both ends of a link",
        ),
        (changed("port: 5555}", "prot: 5555}"), "t.yaml:7: links.raw.prot: unknown key 'prot'; did you mean port?"),
        (changed("port: 5555}", "kind: push}"), "t.yaml:7: links.raw: a tcp link needs a port"),
        (changed("5556-5557", "5557-5556"), "t.yaml:8: links.done.port: expected a port, or a range such as 5555-5558, within 1 to 65535"),
        (changed("5556-5557", "high"), "t.yaml:8: links.done.port: expected str matching regex"),
        (changed("port: 5555}", "port: 70000}"), "t.yaml:7: links.raw.port: expected int <= 65535, got int 70000"),
        (changed("port: 5555}", "transport: shm, kind: publish}"), "t.yaml:7: links.raw.transport: shm links can only push"),
        (
            changed("bind: to", "delivery: exactly-once"),
            "t.yaml:8: links.done.delivery: got str 'exactly-once'; expected one of at-most-once",
        ),
        (changed("a: 10.0.0.1", "a: {adress: 10.0.0.1}"), "t.yaml:3: hosts.a.adress: unknown key 'adress'; did you mean address?"),
        (changed("a: 10.0.0.1", "a: 5"), "t.yaml:3: hosts.a: expected str, got int 5"),
    ],
)
def test_a_file_whose_parts_do_not_name_each_other_is_refused(topology, text, message):
    with pytest.raises(ConfigError) as raised:
        topology(text)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            changed("ZMQSource: {link: done}", SOURCE),
            "t.yaml:8: links.done.to: the role trainer must receive on the link done, but has no stage ZMQSource: {link: done}",
        ),
        (
            changed("ZMQSink: {link: raw}", SINK),
            "t.yaml:7: links.raw.from: the role reader must send on the link raw, but has no stage ZMQSink",
        ),
        (
            changed("ZMQSink: {link: raw}", "ZMQSink: {link: rwa}"),
            "t.yaml:10: roles.reader.stages[1].ZMQSink.link: no link 'rwa'; did you mean raw?",
        ),
        (
            changed("ZMQSink: {link: raw}", "ZMQSink: {link: done}"),
            "t.yaml:10: roles.reader.stages[1].ZMQSink.link: the link done goes from worker to trainer, so reader cannot send on it",
        ),
        (
            changed("ZMQSink: {link: raw}", "ZMQSink: {link: raw, bind: true}"),
            "t.yaml:10: roles.reader.stages[1].ZMQSink.bind: the link already defines bind",
        ),
        (
            changed("ZMQSink: {link: raw}", "ZMQSink: {link: [raw]}"),
            "t.yaml:10: roles.reader.stages[1].ZMQSink.link: expected the name of a link",
        ),
        (
            changed("hosts: a,", "replicas: 1,"),
            "t.yaml:10: roles.reader: reader opens the port of the link raw, so the other roles must know its address",
        ),
        (
            changed("a: 10.0.0.1", "a: localhost"),
            "t.yaml:3: hosts.a: each machine reaches only itself at localhost, but b must reach a over the link raw",
        ),
        (
            changed("port: 5555}", "transport: ipc}"),
            "t.yaml:7: links.raw.transport: a link over ipc needs one host, but its roles are on a and b",
        ),
        (
            changed("port: 5556-5557, bind: to", "port: 5555-5558"),
            "t.yaml:8: links.done.port: the link done opens port 5555 on a, but the link raw uses it too; change one",
        ),
        (
            changed("{address: 10.0.0.3, listen: 0.0.0.0}", "{address: 10.0.0.3, memory_mb: 20}"),
            "t.yaml:5: hosts.c: the buffers of the links can use 24 MB (done 24), but memory_mb is 20; lower the budget_mb of these links",
        ),
        (
            changed("[ZMQSource: {link: done}]", "[ZMQSource: {link: done}, ZMQSink: 'tcp://*:5556']"),
            "t.yaml:12: roles.trainer.stages[1]: trainer's tcp://*:5556 opens port 5556 on c, but the link done uses it too; change one",
        ),
        (
            f"roles: {{a: {{replicas: 2, stages: [{SOURCE}, ZMQSink: 'tcp://*:1']}}}}",
            "t.yaml:1: roles.a.stages[1]: a's tcp://*:1 opens port 1, in several replicas; use a link with a range of ports",
        ),
        (
            f"roles: {{a: [{SOURCE}, ZMQSink: {{url: 'tcp://h:1', bind: false}}], b: [ZMQSource: 'tcp://h:1']}}",
            "t.yaml:1: roles.a[1]: a and b connect to tcp://h:1, but none of them binds it; give one of them bind: true",
        ),
        (
            f"roles: {{a: [{SOURCE}, ZMQSink: 'zpub://h:1'], b: [ZMQSource: 'tcp://h:1']}}",
            "t.yaml:1: roles.a[1]: a and b use tcp://h:1 as pub and pull, which cannot be combined",
        ),
    ],
)
def test_links_that_cannot_work_are_found(topology, text, message):
    (found,) = errors(topology(text))
    assert found.startswith(message)


def test_links_of_explicit_urls_and_of_external_roles_are_right_as_they_stand(topology):
    assert (
        errors(
            topology(f"roles: {{a: [{SOURCE}, ZMQSink: 'tcp://h:1'], b: [ZMQSource: 'tcp://h:1'], c: [ZMQSource: 'zsub://elsewhere:1']}}")
        )
        == []
    )
    text = THREE.replace("trainer: {hosts: c, stages: [ZMQSource: {link: done}]}", "trainer: {hosts: c, external: true}")
    assert errors(topology(text)) == []
    assert [end.role for end in topology(text).plan.processes("c")] == []


def test_memory_is_that_of_every_connection(topology):
    plan = topology(THREE).plan
    assert memory(plan, "a") == {"raw": 3 * 64 + 2 * 64, "done": 2 * 8}
    assert memory(plan, "b") == {"raw": 64, "done": 8}
    assert memory(plan, "c") == {"done": 3 * 8}


def test_what_a_link_may_lose_is_said_in_words(topology):
    plan = topology(THREE).plan
    assert loss(plan, "done") == [
        "if trainer is slow: nothing is lost, worker waits",
        "if trainer is drained: nothing is lost",
        "if trainer is killed: the messages that were sent to it and that it has not passed on are lost, up to 8 MB at each end of a "
        "connection",
        "if worker is killed: its messages that wait to be sent are lost",
        "if the network is cut: the messages in transit are lost",
    ]
    published = topology(changed("bind: to", "kind: publish")).plan
    assert loss(published, "done")[0].startswith("if trainer is not connected, or is late by more than up to 8 MB")


def test_a_port_that_is_taken_and_an_address_that_is_not_here_are_found_before_the_start(topology, own_address):
    with socket.create_server((own_address, 0)) as taken:  # where nobody else takes the port as soon as it is free
        port = taken.getsockname()[1]
        text = (
            f"hosts: {{h: {own_address}}}\nlinks: {{l: {{from: a, to: b, port: {port}}}}}\n"
            f"roles: {{a: {{hosts: h, stages: [{SOURCE}, ZMQSink: {{link: l}}]}}, b: {{hosts: h, stages: [ZMQSource: {{link: l}}]}}}}"
        )
        busy = topology(text)
        preflight(link_ends(busy, busy.plan.processes()[1:]))
        with pytest.raises(ConfigError, match=rf"^t.yaml:3: roles.a.stages\[1\]: a: port {port} of {own_address} is used by another"):
            preflight(link_ends(busy, busy.plan.processes()))
    preflight(link_ends(busy, busy.plan.processes()))
    three = topology(THREE.replace("10.0.0.1", "192.0.2.1"))
    with pytest.raises(ConfigError, match=r"192.0.2.1 is not an address of this machine; check that this is the host that the file means"):
        preflight(link_ends(three, three.plan.processes("a")))
    unknown = topology(THREE.replace("10.0.0.3", "x" * 64))  # too long for any name, so nobody is asked
    with pytest.raises(ConfigError, match=r"worker: this machine finds no address for the name x+"):
        preflight(link_ends(unknown, unknown.plan.processes("b")))


def test_of_a_large_topology_each_stage_is_built_for_few_replicas_when_it_is_checked(topology, monkeypatch):
    built, build_stage = [], Registry.build_stage
    monkeypatch.setattr(Registry, "build_stage", lambda *arguments: built.append(arguments) or build_stage(*arguments))
    links = "".join(f"  l{n}: {{from: r{n - 1}, to: r{n}, transport: shm}}\n" for n in range(1, 200))
    ends = [(f"ZMQSource: {{link: l{n}}}", f"ZMQSink: {{link: l{n + 1}}}") for n in range(200)]
    ends[0], ends[-1] = (SOURCE, ends[0][1]), (ends[-1][0], SINK)
    roles = "".join(f"  r{n}: {{replicas: 1000, stages: [{{{first}}}, Identity, {{{last}}}]}}\n" for n, (first, last) in enumerate(ends))
    assert errors(topology(f"links:\n{links}roles:\n{roles}")) == []
    assert 600 <= len(built) <= 2 * 600, "of 600,000 stages of all replicas"


def test_replicas_that_differ_are_all_checked(topology):
    text = "roles: {r: {replicas: 3, stages: [Noise: {shape: [2], count: 3}, Augmentations: [{FlipX: '${p}'}]]}}\nvars: {p: '${replica}'}"
    assert errors(topology(text)) == [
        "t.yaml:1: roles.r.stages[1].Augmentations[0].FlipX: expected a probability from 0 to 1, got float 2.0"
    ]


@pytest.mark.parametrize(
    ("link", "trainer", "expected"),
    [
        ("", "", "highway"),
        (", kind: publish", "", "any"),  # anybody may subscribe
        ("", "external: true, ", "any"),  # a stock peer may take its place
        (", peers: any", "", "any"),
        (", kind: publish, peers: highway", "external: true, ", "highway"),
    ],
)
def test_both_ends_of_a_link_know_whether_other_programs_may_take_part(topology, link, trainer, expected):
    text = THREE.replace("budget_mb: 8", f"budget_mb: 8{link}").replace("{hosts: c,", f"{{hosts: c, {trainer}").replace("    bind: to,", "")
    found = topology(text)
    assert {
        stage["peers"]
        for role in ("worker", "trainer")
        for each in found.process_spec(role).stages
        for stage in each.values()
        if isinstance(stage, dict) and "5556" in str(stage.get("url"))
    } == {expected}


@pytest.mark.parametrize(("bind", "expected"), [("from", "any"), ("to", "highway")])
def test_a_script_that_takes_a_role_reaches_the_others_whatever_they_take_it_for(topology, bind, expected):
    text = "roles: {a: {stages: [{NOISE}, ZMQSink: {link: x}]}, b: {stages: [ZMQSource: {link: x}]}}".replace("{NOISE}", "Noise: [2]")
    found = topology(f"links: {{x: {{from: a, to: b, port: 5555, bind: {bind}}}}}\n{text}")
    source = found.process_spec("b", is_known=False).stages[0]["ZMQSource"]
    assert source["peers"] == expected
    assert found.process_spec("b").stages[0]["ZMQSource"]["peers"] == "highway"
