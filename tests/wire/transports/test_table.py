"""The table of transports says of each what its ends do."""

import os
import pickle
import subprocess
import sys
from typing import get_args

import pytest

from highway.wire import rendezvous
from highway.wire.codec import CODECS, CodecName
from highway.wire.registries.folder import FolderRendezvous
from highway.wire.transports.opening import opener_of
from highway.wire.transports.table import TRANSPORTS, BetweenProcesses
from highway.wire.url import parse


def test_names_in_topologies_are_those_of_the_tables():
    assert get_args(BetweenProcesses) == tuple(name for name, each in TRANSPORTS.items() if not each.within_process and not each.is_named)
    assert get_args(CodecName) == tuple(CODECS)


@pytest.mark.parametrize("name", TRANSPORTS)
def test_both_ends_open_by_the_table_and_say_who_is_there_unless_they_are_in_one_process(name, ipc, tmp_path, request):
    request.addfinalizer(rendezvous.use(FolderRendezvous(tmp_path), "127.0.0.1").close)
    location = {"host:port": "127.0.0.1:0", "path": ipc(), "name": f"table-{os.getpid()}-{id(ipc)}"}
    link = parse(f"zrpush+{name}://{location[TRANSPORTS[name].location]}", "send")
    sender = opener_of(link.transport).open_sender(link)
    receiver = None
    try:
        end = parse(f"zrpull+{sender.bound[0]}", "receive")
        assert pickle.loads(pickle.dumps(end)) == end
        receiver = opener_of(end.transport).open_receiver(end)
        assert (sender.peers() is None) == (receiver.peers() is None) == link.transport.within_process
    finally:
        for opened in filter(None, (sender, receiver)):
            opened.close(0)


def test_what_reads_urls_imports_no_sockets():
    code = "import sys; from highway.wire.url import parse; parse('zsub://h:1', 'receive'); sys.exit('zmq' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
