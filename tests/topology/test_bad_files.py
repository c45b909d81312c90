"""Files and arguments that cannot work: each is one clear message and exit code 2, and nothing is started."""

import socket
import sys
from typing import NamedTuple

import pytest

from highway.cli import main

NOISE = "{Noise: {shape: [2, 2], count: 1}}"
SEND, TAKE = f"[{NOISE}, {{ZMQSink: {{link: l}}}}]", "[{ZMQSource: {link: l}}]"
NOWHERE = "x" * 64  # longer than a part of a name may be, so that nobody is asked for it
LINK = "links: {l: {from: a, to: b, port: 5555}}"


class Case(NamedTuple):
    """A file, the arguments of ``highway run`` behind it, and what the message has to say."""

    text: str
    arguments: str
    words: list[str]


def laughs(first, line):
    """Return nine lines, each of which stands for ten times what the one before stands for."""
    return "\n".join([first, *(line.format(ten=", ".join([f"{{old}}{n}"] * 10), n=n + 1) for n in range(1, 9))])


ALIASES = laughs("a1: &a1 [x, x, x]", "a{n}: &a{n} [{ten}]").replace("{old}", "*a")
VARIABLES = "vars:\n" + laughs("  a1: xxxxxxxxxx", '  a{n}: "{ten}"').replace("{old}1", "${a1}")
for number in range(2, 9):
    VARIABLES = VARIABLES.replace(f"{{old}}{number}", f"${{a{number}}}")

CASES = {
    "unknown host of a role": Case(
        f"hosts: {{gpu1: 127.0.0.1}}\nroles: {{a: {{hosts: gpu2, stages: [{NOISE}]}}}}",
        "",
        ["t.yaml:2: roles.a.hosts: unknown host 'gpu2'; did you mean gpu1?"],
    ),
    "a host that is nowhere in the file": Case(
        f"hosts: {{gpu1: 127.0.0.1}}\nroles: {{a: {{hosts: gpu1, stages: [{NOISE}]}}}}",
        "--host node17",
        ["t.yaml: no host 'node17'; expected one of gpu1"],
    ),
    "a host of a file without hosts": Case(f"roles: {{a: [{NOISE}]}}", "--host node17", ["t.yaml: no host 'node17'; there are none"]),
    "a host without roles": Case(
        f"hosts: {{gpu1: 127.0.0.1, idle: 127.0.0.1}}\nroles: {{a: {{hosts: gpu1, stages: [{NOISE}]}}}}",
        "--host idle",
        ["t.yaml: nothing runs on idle; its roles are on gpu1"],
    ),
    "a crop that sees boxes for a reader": Case(
        "roles:\n  a:\n    - ImageReader: {data_dir: 'highway:photos/val', batch_size: 2, crop: RandomIoUCrop}",
        "",
        [
            "t.yaml:3: roles.a[0].ImageReader.crop: RandomIoUCrop is not a BoxCrop; ",
            "but a reader selects crops before it decodes: put the crop into Augm",
        ],
    ),
    "a transform that sees boxes where there are none": Case(
        f"roles:\n  a:\n    - {NOISE}\n    - Augmentations: [FlipX, [FlipY, SanitizeBoxes]]",
        "",
        ["t.yaml:4: roles.a[1].Augmentations: ", "needs the boxes of an image; set the field of the boxes: boxes='boxes'"],
    ),
    "a transform in a nested list that is not there": Case(
        f"roles:\n  a:\n    - {NOISE}\n    - Augmentations:\n      - FlipX\n      - OneOf: [[], [FlipY, {{Rotat: 5}}]]",
        "",
        ["t.yaml:6: roles.a[1].Augmentations[1].OneOf[1][1].Rotat: unknown component 'Rotat'; did you mean Rotate?"],
    ),
    "unknown role": Case(f"roles: {{reader: [{NOISE}]}}", "--role raeder", ["t.yaml: no role 'raeder'; did you mean reader?"]),
    "a link to a role that is not there": Case(
        f"{LINK}\nroles: {{a: {SEND}}}", "", ["t.yaml:1: links.l.to: unknown role 'b'; expected one of a"]
    ),
    "a link without a consumer": Case(
        f"{LINK}\nroles: {{a: {SEND}, b: [{NOISE}]}}",
        "",
        [
            "t.yaml:1: links.l.to: the role b must receive on the link l, but has no stage ZMQSource: {link: l}; add this stage, "
            "or remove b here"
        ],
    ),
    "a link without a producer": Case(
        f"{LINK}\nroles: {{a: [{NOISE}], b: {TAKE}}}",
        "",
        [
            "t.yaml:1: links.l.from: the role a must send on the link l, but has no stage ZMQSink: {link: l}; add this stage, "
            "or remove a here"
        ],
    ),
    "unknown link": Case(f"roles: {{a: {SEND}}}", "", ["t.yaml:1: roles.a[1].ZMQSink.link: no link 'l'; there are none"]),
    "two links with one port": Case(
        f"links: {{l: {{from: a, to: b, port: 5555}}, m: {{from: c, to: b, port: 5555}}}}\n"
        f"roles: {{a: {SEND}, b: [{{Mix: {{sources: [{{ZMQSource: {{link: l}}}}, {{ZMQSource: {{link: m}}}}]}}}}], "
        f"c: [{NOISE}, {{ZMQSink: {{link: m}}}}]}}",
        "",
        ["t.yaml:1: links.m.port: the link m opens port 5555, but the link l uses it too; change one"],
    ),
    "two roles that bind one port": Case(
        f"roles: {{a: [{NOISE}, {{ZMQSink: 'tcp://127.0.0.1:5555'}}], b: [{NOISE}, {{ZMQSink: 'tcp://127.0.0.1:5555'}}]}}",
        "",
        ["t.yaml:1: roles.b[1]: b's tcp://127.0.0.1:5555 opens port 5555, but a's tcp://127.0.0.1:5555 uses it too; change one"],
    ),
    "replicas that bind one port": Case(
        f"{LINK}\nroles: {{a: {{replicas: 2, stages: {SEND}}}, b: {TAKE}}}",
        "",
        ["t.yaml:1: links.l.port: 2 replicas of a each open a port; set a range of ports such as 5555-5556"],
    ),
    "a port beyond the last": Case(
        f"{LINK.replace('5555', '65535-65536')}\nroles: {{a: {SEND}, b: {TAKE}}}", "", ["t.yaml:1: links.l.port: ", "within 1 to 65535"]
    ),
    "an address that does not resolve": Case(
        f"hosts: {{x: {NOWHERE}, y: 127.0.0.1}}\n{LINK}\nroles: {{a: {{hosts: x, stages: {SEND}}}, b: {{hosts: y, stages: {TAKE}}}}}",
        "--host y",
        [f"t.yaml:3: roles.b.stages[0]: b: this machine finds no address for the name {NOWHERE}", "use an IP address"],
    ),
    "an address of another machine": Case(
        f"hosts: {{x: 192.0.2.1, y: 192.0.2.2}}\n{LINK}\nroles: {{a: {{hosts: x, stages: {SEND}}}, b: {{hosts: y, stages: {TAKE}}}}}",
        "--host x",
        ["t.yaml:3: roles.a.stages[1]: a: 192.0.2.1 is not an address of this machine; check that this is the host that the file means"],
    ),
    "a replica out of range": Case(
        f"roles: {{a: {{replicas: 2, stages: [{NOISE}]}}}}",
        "--role a --replica 2",
        ["--replica 2: the role a has 2 processes, numbered 0 to 1"],
    ),
    "a replica below the range": Case(
        f"roles: {{a: [{NOISE}]}}", "--role a --replica -1", ["--replica -1: the role a has one process, number 0"]
    ),
    "more replicas than any machine has": Case(
        f"roles: {{a: {{replicas: 1000000000, stages: [{NOISE}]}}}}", "", ["t.yaml:1: roles.a.replicas: expected int <= 1000"]
    ),
    "a billion laughs by aliases": Case(
        f"{ALIASES}\nroles: {{a: *a9}}", "", ["t.yaml:1: more than 100,000 values; do aliases (*name) repeat other aliases?"]
    ),
    "a billion laughs by variables": Case(
        f"{VARIABLES}\nroles: {{a: [{{Noise: {{shape: '${{a9}}'}}}}]}}", "", ["t.yaml:", "the file has more than 1,000,000 values"]
    ),
    "an alias within what it names": Case(
        "roles: &a {a: *a}", "", ["t.yaml:1: nested deeper than 50 levels; does an alias (*name) contain"]
    ),
    "deep lists": Case("roles: " + "[" * 60 + "]" * 60, "", ["t.yaml:1: nested deeper than 50 levels"]),
    "lists deeper than Python's stack": Case("roles: " + "[" * 100_000, "", ["t.yaml: nested deeper than 50 levels"]),
    "mappings deeper than Python's stack": Case("roles: " + "{a: " * 20_000, "", ["t.yaml: nested deeper than 50 levels"]),
    "half a character": Case('roles: {a: "\\ud800"}', "", ["t.yaml:1: ", "not a character"]),
    "a number without end": Case(f"seed: {'9' * 5000}\nroles: {{a: [{NOISE}]}}", "", ["t.yaml:1: '9999", "...' is not a valid int"]),
    "a tag that makes an object": Case("roles: !!python/object/apply:os.system ['true']", "", ["t.yaml:1: the tag !!python/object/apply"]),
    "no YAML": Case("roles: [", "", ["t.yaml:1: not YAML"]),
    "an empty file": Case("", "", ["t.yaml: expected a mapping with the key roles"]),
    "a plug-in that is not there": Case(
        f"roles: {{a: [{NOISE}]}}",
        "--plugin highway_no_such_plugin",
        ["the plug-in highway_no_such_plugin cannot be imported: ModuleNotFoundError: No module named 'highway_no_such_plugin'"],
    ),
    "a plug-in that fails": Case(
        f"roles: {{a: [{NOISE}]}}",
        "--plugin highway_bad_plugin",
        ["the plug-in highway_bad_plugin cannot be imported: ZeroDivisionError: division by zero (", "highway_bad_plugin.py:2)"],
    ),
    "a plug-in that ends the program": Case(
        f"roles: {{a: [{NOISE}]}}",
        "--plugin highway_leaving_plugin",
        ["the plug-in highway_leaving_plugin cannot be imported: SystemExit: 0 (", "highway_leaving_plugin.py:1)"],
    ),
    "a plug-in that is not allowed": Case(
        "roles: {a: ['os.path:join']}",
        "",
        ["t.yaml:1: roles.a[0]", "in a module that is not allowed here; allow the module with `--plugin os.path`"],
    ),
    "a map in place of a source": Case(
        "roles: {a: [Identity]}", "", ["t.yaml:1: roles.a: the first stage must be a source", "but Identity is a map"]
    ),
    "a reader in the middle": Case(
        f"roles: {{a: [{NOISE}, {{ImageFileReader: {{data_dir: d, batch_size: 1, shape: [8, 8]}}}}]}}",
        "",
        ["t.yaml:1: roles.a: ImageFileReader.row_ranges is an iterable, so it is a source; only the first stage can be a source"],
    ),
}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a file; return the exit code and what was printed."""
    (tmp_path / "highway_bad_plugin.py").write_text("\n1 / 0\n")
    (tmp_path / "highway_leaving_plugin.py").write_text("raise SystemExit(0)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # --plugin adds the current directory

    def run(text, *arguments):
        (tmp_path / "t.yaml").write_text(text)
        return main(["run", "t.yaml", *arguments]), *capsys.readouterr()

    return run


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_cannot_work_is_one_message_and_exit_code_2_before_anything_starts(run, case):
    code, out, error = run(case.text, *case.arguments.split())
    assert (code, out) == (2, ""), "a role that had been started would have left its summary"
    assert error.startswith(f"highway: {case.words[0]}"), error
    assert [word for word in case.words if word not in error] == [], error
    assert error.count("\n") == 1 and len(error) < 400


def test_a_port_that_is_taken_is_named_before_anything_starts(run, own_address):
    with socket.create_server((own_address, 0)) as taken:
        port = taken.getsockname()[1]
        code, out, error = run(f"roles: {{a: [{NOISE}, {{ZMQSink: 'tcp://{own_address}:{port}'}}], b: [{NOISE}]}}")
    assert (code, out) == (2, "")
    assert error.startswith(f"highway: t.yaml:1: roles.a[1]: a: port {port} of {own_address} is used by another process; `ss "), error


def test_of_many_mistakes_the_first_are_listed(run):
    code, _, error = run("roles: {" + ", ".join(f"r{number}: []" for number in range(500)) + "}")
    lines = error.splitlines()
    assert (code, len(lines), lines[-1]) == (2, 21, "and 480 more")


def test_a_file_without_mistakes_is_started(run):
    """The other tests show that nothing was started by what is not printed; this one, that it would have been."""
    code, out, _ = run(f"roles: {{a: [{NOISE}], b: [{NOISE}]}}")
    assert code == 0
    assert "\na: 1 items in " in out and "\nb: 1 items in " in out
