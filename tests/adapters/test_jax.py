"""Which of JAX's processes this is; with JAX itself run by ``tox -e datasets``."""

import json
import os
import socket
import sys

import pytest

from highway.errors import ConfigError

READ = """
import json, sys
import jax

rank, processes, address = sys.argv[1:]
if processes != "1":
    jax.distributed.initialize(address, int(processes), int(rank), coordinator_bind_address=address)

from highway import Pipeline
from highway.adapters.jax import ranks
from highway.modules import Reader

with Pipeline([Reader(range(10), 2, shuffle=False, epochs=1, **ranks())]) as pipeline:
    print(json.dumps([ranks(), [batch.tolist() for batch in pipeline]]))
"""


def test_without_jax_the_import_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "highway.adapters.jax", raising=False)
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ConfigError, match=r"^highway\.adapters\.jax needs jax: pip install jax"):
        import highway.adapters.jax  # noqa: F401


@pytest.fixture
def read(popen, own_address):
    """Read in processes that know each other by JAX."""
    pytest.importorskip("jax", reason="jax is not installed: this is run by tox -e datasets")

    def read(processes):
        with socket.create_server((own_address, 0)) as free:
            address = f"{own_address}:{free.getsockname()[1]}"
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", READ]
        running = [popen([*command, str(rank), str(processes), address], env=environment) for rank in range(processes)]
        outputs = [process.communicate(timeout=100) for process in running]
        assert [process.returncode for process in running] == [0] * processes, outputs
        return [json.loads(out.splitlines()[-1]) for out, _ in outputs]

    return read


def test_a_process_alone_reads_all(read):
    assert read(1) == [[{"rank": 0, "world_size": 1}, [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]]]


def test_each_process_of_jax_reads_its_share(read):
    first, second = read(2)
    assert first == [{"rank": 0, "world_size": 2}, [[0, 2], [4, 6], [8]]]
    assert second == [{"rank": 1, "world_size": 2}, [[1, 3], [5, 7], [9]]]
