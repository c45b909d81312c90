"""Same-host links as pipelines use them: by URL, with the codecs, the passports and the end of every other link."""

import contextlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from highway import ConfigError, Passport, Pipeline, Stamped
from highway.modules import ZMQSink, ZMQSource
from highway.wire.connection import Connection
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender
from highway.wire.url import parse

SEND = """
import sys
import numpy as np
from highway import Pipeline
from highway.modules import ZMQSink
numbers = range(int(sys.argv[2]))
batches = [{"image": np.full((4, 50, 50, 3), n, np.uint8), "label of it": np.arange(4, dtype=np.int32) + n} for n in numbers]
Pipeline([batches, ZMQSink(sys.argv[1], receivers=1)]).run()
"""


def start(code, *args):
    return subprocess.Popen([sys.executable, "-c", code, *args])


@pytest.mark.parametrize(("push", "pull"), [("zpush+shm", "zpull+shm"), ("zrpush+shm", "zrpull+shm"), ("shm", "shm")])
def test_a_pipeline_goes_on_in_another_process_by_nothing_but_the_url(name, push, pull):
    process = start(SEND, f"{push}://{name}", "20")
    batches = list(Pipeline([ZMQSource(f"{pull}://{name}")]))
    assert process.wait(timeout=200) == 0
    assert len(batches) == 20
    for number, batch in enumerate(batches):
        assert list(batch) == ["image", "label of it"]
        assert np.array_equal(batch["image"], np.full((4, 50, 50, 3), number, np.uint8))
        assert np.array_equal(batch["label of it"], np.arange(4, dtype=np.int32) + number)


@pytest.mark.parametrize("codec", ["tensorcom", "tenbin", "msgpack"])
def test_each_codec_crosses(name, codec):
    pull, push = parse(f"zpull+shm://{name}?codec={codec}", "receive"), parse(f"zpush+shm://{name}?codec={codec}", "send")
    with LinkReceiver(pull, {}) as receiver, LinkSender(push) as sender:
        meet(sender, receiver)
        sender.send((np.arange(5, dtype=np.int32),), Passport(2, 7))
        message = receiver.recv(timeout=60)
    assert np.array_equal(message.item[0], np.arange(5))
    assert codec == "msgpack" or message.envelope.passport[:2] == (2, 7)


def meet(sender, receiver):
    while not (sender.transport_end.peers().live and receiver.transport_end.peers().live):
        sender.transport_end.look(0.01)
        receiver.transport_end.look(0.01)


def test_passports_travel(name):
    stamped = [Stamped(np.zeros(1, np.uint8), Passport(3, number, keys=(f"{number}.jpg",))) for number in range(5)]
    receiving = Pipeline([ZMQSource(f"zpull+shm://{name}")])
    sending = Pipeline([iter(stamped), ZMQSink(f"zpush+shm://{name}")])
    with sending, receiving, ThreadPoolExecutor(1) as pool:
        pool.submit(sending.run)
        assert [(p.epoch, p.index, p.keys) for _, p in receiving.stamped()] == [(3, number, (f"{number}.jpg",)) for number in range(5)]


def test_several_receivers_share_a_stream_and_each_hears_its_end(name):
    process = start(SEND.replace("receivers=1", "receivers=3"), f"zrpush+shm://{name}", "30")
    receivers = [Pipeline([ZMQSource(f"zrpull+shm://{name}")]) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        batches = list(pool.map(list, receivers))
    assert process.wait(timeout=200) == 0
    assert sorted(batch["label of it"][0] for part in batches for batch in part) == list(range(30))


def test_several_senders_reach_one_receiver_which_ends_after_the_last(name):
    processes = [start(SEND, f"zpush+shm://{name}", "10") for _ in range(3)]
    batches = list(Pipeline([ZMQSource(f"zpull+shm://{name}", senders=3)]))
    assert [process.wait(timeout=200) for process in processes] == [0, 0, 0]
    assert sorted(batch["label of it"][0] for batch in batches) == sorted(list(range(10)) * 3)


def test_expanded_urls_share_one_end(name):
    processes = [start(SEND, f"zrpush+shm://{name}{letter}", "5") for letter in "ab"]
    batches = list(Pipeline([ZMQSource(f"zrpull+shm://{name}{{a,b}}")]))
    assert [process.wait(timeout=200) for process in processes] == [0, 0]
    assert len(batches) == 10


def test_a_batch_that_is_kept_in_a_forked_child_does_not_give_back_the_parents(name):
    code = """
import os, sys
import numpy as np
from highway.wire.transports.shm import ShmReceiver, ShmSender
receiver, sender = ShmReceiver("r"), ShmSender("s")
receiver.connections.listen(sys.argv[1])
sender.connections.connect(sys.argv[1])
while not (sender.connections.peers and receiver.connections.peers):
    receiver.look(0.01), sender.look(0.01)
sender.send([np.full(1000, 1, np.uint8)])
frames = receiver.recv()
pid = os.fork()
if pid == 0:
    del frames
    receiver.close()
    os._exit(0)
os.waitpid(pid, 0)
for number in range(2, 5):
    sender.send([np.full(1000, number, np.uint8)])
    assert bytes(receiver.recv()[0]) == bytes([number]) * 1000
print(frames[0][0])
"""
    done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, timeout=200)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_link_belongs_to_the_process_that_opened_it(name):
    code = """
import os, sys
from highway.errors import LinkError
from highway.wire.transports.shm import ShmReceiver
receiver = ShmReceiver("zpull+shm://a")
if os.fork() == 0:
    try:
        receiver.recv(timeout=1)
    except LinkError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, timeout=200)
    assert "zpull+shm://a was opened in process" in done.stdout


@pytest.mark.parametrize("url", ["zpub+shm://a", "zrpub+shm://a"])
def test_publishing_is_refused_with_the_way_out(url):
    with pytest.raises(ConfigError, match=r"the transport shm supports only push and pull; use zpush\+shm and zpull\+shm, or z.*pub\+ipc"):
        parse(url, "send")


def test_a_batch_beyond_the_budget_names_the_option(name):
    batch = np.zeros(3_000_000, np.uint8)
    with pytest.raises(OSError, match=r"3\.0 MB; expected at most half of budget_mb=4: set budget_mb=7 for the link or in the URL"):
        Pipeline([[batch], ZMQSink(f"zpush+shm://{name}?budget_mb=4")]).run()


def test_nothing_in_dev_shm_and_no_socket_file(name):
    before = used_of_dev_shm()
    push, pull = parse(f"zrpush+shm://{name}", "send"), parse(f"zrpull+shm://{name}", "receive")
    with LinkSender(push) as sender, LinkReceiver(pull, {}) as receiver:
        assert sender.bound == [f"shm://{name}"]
        meet(sender, receiver)
        sender.send((np.zeros(1000, np.uint8),))
        held = receiver.recv(timeout=60)
        assert used_of_dev_shm() <= before
        with open("/proc/net/unix", errors="replace") as sockets:
            assert {line.split()[-1] for line in sockets if name in line} == {f"@highway/{os.getuid()}/{name}"}  # @ begins what is no file
    assert held.item[0].nbytes == 1000


def used_of_dev_shm():
    """Return what this process has open or mapped there: others put there what they like."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the list itself
            found.add(os.readlink(f"/proc/self/fd/{fd}"))
    with open("/proc/self/maps") as maps:
        found |= {line[line.index("/") :] for line in maps if "/" in line}
    return {path for path in found if path.startswith("/dev/shm")}


@pytest.mark.parametrize(("push", "pull"), [("zpush", "zpull"), ("zrpush", "zrpull")])
def test_one_thread_can_have_both_ends(name, push, pull):
    first, second = (f"{push}+shm://{name}", f"{pull}+shm://{name}")
    with Connection(second if push == "zpush" else first) as one, Connection(first if push == "zpush" else second) as other:
        sender, receiver = (other, one) if push == "zpush" else (one, other)
        for number in range(3):
            sender.send([np.full(1000, number, np.uint8)], timeout=60)
            assert receiver.recv(timeout=60)[0][0] == number


def test_a_sender_waits_for_receivers_of_its_own_thread(name):
    with Connection(f"zpull+shm://{name}") as receiver, Connection(f"zpush+shm://{name}?receivers=1") as sender:
        sender.send([np.zeros(3, np.uint8)], timeout=60)
        assert receiver.recv(timeout=60)[0].shape == (3,)
