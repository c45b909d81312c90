"""``highway dashboard`` joins a run that has started, and the servers of images show their publishers. Run by ``tox -e slow``."""

import json
import signal
import socket
import urllib.request

import pytest
from waiting import wait_until

from highway.data import photos

FEED = """
links:
  raw: {from: reader, to: worker, transport: ipc}
  done: {from: worker, to: trainer, transport: ipc, bind: to}
roles:
  reader: [$Numbers: {every: 0.005}, ZMQSink: {link: raw}]
  worker: {replicas: 2, stages: [ZMQSource: {link: raw}, $Pass, ZMQSink: {link: done}]}
  trainer: [ZMQSource: {link: done}, Benchmark: 100]
"""


def fetch(url, path):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url + path, timeout=60) as answer:
        return json.loads(answer.read())


def shown(url, ready):
    """Return the document of a page, once it is as expected."""
    return wait_until(lambda: (found := fetch(url, "now.json")).get("roles") and ready(found) and found, 100, 0.2)


def counted(stats):
    return {(state["role"], state["replica"]): state["stats"]["stages"][-1]["items"] for state in stats["states"] if state["stats"]}


@pytest.mark.slow
@pytest.mark.parametrize("by", ["file", "address"])
def test_a_run_that_has_started_is_joined_and_left(by, write, start):
    path = write(FEED)
    run = start("run", path, "--plugin=mine", "--metrics=0")
    metrics = run.error.until(r"^metrics at (http://127.0.0.1:(\d+))/metrics$")
    run.pids(2)
    page = start("dashboard", *([path, "--plugin=mine", "--local", f"--metrics={metrics[2]}"] if by == "file" else [metrics[1]]))
    url = page.until(r"^dashboard at (http://127.0.0.1:\d+/)$")[1]
    before = counted(fetch(metrics[1], "/stats"))

    def is_later(found):  # a page that nobody has looked at may be five seconds old
        rows = {row[1]: row[5] for row in found["replicas"]}
        return all(before.get((role, 0), 0) <= rows.get(role, -1) for role in ("reader", "trainer"))

    found = shown(url, lambda found: found["phases"] == {"running": 4} and found["wait"]["of"] == "trainer" and is_later(found))
    rows = {row[1]: row[5] for row in found["replicas"]}
    after = counted(fetch(metrics[1], "/stats"))
    assert {"reader", "worker[0]", "worker[1]", "trainer"} == rows.keys()
    assert all(rows[role] <= after[role, 0] for role in ("reader", "trainer"))
    ends = {(link["source"], link["target"]) for link in found["links"]}
    assert ends == {("reader", "worker"), ("worker", "trainer")}
    about = fetch(url, "about.json")
    assert about["note"].startswith("Logs are on the page of the run itself")
    assert (about["places"], bool(about["check"])) == ((["raw", "done"], True) if by == "file" else ([], False))
    page.process.send_signal(signal.SIGINT)
    code, _, error = page.end()
    assert (code, error) == (0, "")
    now = counted(fetch(metrics[1], "/stats"))
    wait_until(lambda: counted(fetch(metrics[1], "/stats"))["trainer", 0] > now["trainer", 0], 100, 0.1)  # it has not noticed
    run.process.send_signal(signal.SIGINT)
    assert run.end()[0] == 130


@pytest.mark.slow
def test_a_server_of_images_shows_its_publishers_and_their_batches(start, tmp_path):
    url = f"ipc://{tmp_path}/s"
    server = start("serve-dir", "-d", photos(), "-b", "8", "-P", "2", f"zpush+{url}", "--dashboard")
    page = server.until(r"^dashboard at (http://127.0.0.1:\d+/)$")[1]
    trainer = start("stat", f"zpull+{url}", "--count=1000000")
    found = shown(page, lambda found: all(role["rate"] for role in found["roles"]))
    assert [role["name"] for role in found["roles"]] == [f"zpush+{url} (0)", f"zpush+{url} (1)"], "those of one address are told apart"
    assert all(role["stages"][0]["name"].startswith("ImageFileReader") for role in found["roles"])
    batch = wait_until(lambda: (seen := fetch(page, "look.json?place=0"))["picture"] and seen, 100, 0.2)
    assert [field["dtype"] for field in batch["fields"]] == ["uint8", "int32"]
    assert len(batch["texts"]) == 8 and all(key.endswith(".jpg") for _, key in batch["texts"])
    for process in (trainer, server):
        process.process.send_signal(signal.SIGINT)
    assert server.end()[0] in (0, 130)


def test_a_taken_port_is_an_error_that_names_it_and_the_option_before_anything_starts(write, ask):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, error = ask("run", write(FEED), "--plugin=mine", f"--dashboard={port}")
    assert (
        (code, out) == (2, "")
        and error.startswith(f"highway: dashboard: port {port} is used by another process")
        and "--dashboard" in error
    )
