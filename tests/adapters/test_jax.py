"""Which of JAX's processes this is, and arrays on its devices; with JAX itself run by ``tox -e datasets`` and ``adapters-tf``."""

import json
import os
import socket
import subprocess
import sys
import textwrap

import pytest

from highway.errors import ConfigError

READ = """
import json, sys
import jax

rank, processes, address = sys.argv[1:]
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
    """Run a script in processes that know each other by JAX, and return what each prints last."""
    pytest.importorskip("jax", reason="jax is not installed: this is run by tox -e datasets")

    def read(processes, script=READ):
        with socket.create_server((own_address, 0)) as free:
            address = f"{own_address}:{free.getsockname()[1]}"
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", script]
        running = [popen([*command, str(rank), str(processes), address], env=environment) for rank in range(processes)]
        outputs = [process.communicate(timeout=200) for process in running]
        assert [process.returncode for process in running] == [0] * processes, outputs
        return [json.loads(out.splitlines()[-1]) for out, _ in outputs]

    return read


def test_a_process_alone_reads_all(run):
    assert run("""
        from highway.adapters.jax import ranks
        from highway.modules import Reader
        with Pipeline([Reader(range(10), 2, shuffle=False, epochs=1, **ranks())]) as pipeline:
            print(ranks(), [batch.tolist() for batch in pipeline])
    """) == ["{'rank': 0, 'world_size': 1} [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]"]


def test_each_process_of_jax_reads_its_share(read):
    first, second = read(2)
    assert first == [{"rank": 0, "world_size": 2}, [[0, 2], [4, 6], [8]]]
    assert second == [{"rank": 1, "world_size": 2}, [[1, 3], [5, 7], [9]]]


TOGETHER = (
    READ[: READ.index("with Pipeline")]
    + """
import logging
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from highway import DROP, PipelineError, Stage
from highway.adapters.jax import to_device
from highway.modules import Batch

rank, logged, results = int(rank), [], {}
handler = logging.Handler()
handler.emit = lambda record: logged.append(record.getMessage())
logging.getLogger("highway").addHandler(handler)
rows = NamedSharding(Mesh(jax.devices(), "rows"), PartitionSpec("rows"))


def kept(counts):
    def keep(number):
        return number if number // 3 < counts[rank] else DROP

    return Pipeline([Reader(range(900), shuffle=False, epochs=2, **ranks()), Stage(keep, drops=True), Batch(2, drop_last=True)], seed=1)


@jax.jit
def total(batch):
    return jnp.sum(batch)


def loop(batches):
    return [(batch.addressable_data(0).tolist(), int(total(batch))) for batch in batches]


def failure(batches):
    try:
        return loop(batches)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


with kept([10, 7, 14]) as train:
    results["uneven"] = [loop(to_device(train, rows, end_together=True)), train.epoch, loop(to_device(train, rows, end_together=True))]
results["logged"] = list(logged)
with kept([10, 0, 14]) as train:
    results["zero"] = [loop(to_device(train, rows, end_together=True)), train.epoch]
with kept([10, 7, 14]) as train:
    for batch in to_device(train, rows, end_together=True):
        state = train.state_dict()
        break
with kept([10, 7, 14]) as train:
    train.load_state_dict(state)
    results["resumed"] = loop(to_device(train, rows, end_together=True))


def bad():
    yield np.zeros(2)
    if rank == 1:
        raise ValueError("bad")
    yield np.zeros(2)


results["bad"] = failure(to_device(Pipeline([bad]), rows, end_together=True))
print(json.dumps(results))
"""
)


def test_processes_with_different_numbers_of_batches_end_together(read):
    found = read(3, TOGETHER)
    for rank, results in enumerate(found):
        steps = [range(first, first + 6) for first in (0, 6, 12)]
        expected = [[list(step[rank::3]), sum(step)] for step in steps]
        assert results["uneven"] == [expected, 1, expected]
        left_out = {0: 2, 2: 4}.get(rank)
        text = f"to_device: rank 1 has ended its epoch after 3 batches; rank {rank} drops its last {left_out} batches"
        assert results["logged"] == ([text] * 2 if left_out else [])
        assert results["zero"] == [[], 1]
        assert results["resumed"] == expected[1:]
        if rank == 1:
            assert results["bad"] == "ValueError: bad"
        else:
            assert "because the loader of rank 1 raised an error; see the log of that rank" in results["bad"]


EXIT = """
import atexit
atexit.register(lambda: wait())  # registered first, so called last
import time


class Late:
    "Releases the GIL while Python exits."

    def __init__(self):
        self.sleep = time.sleep

    def __del__(self):
        self.sleep(0.1)


def wait():
    end = time.monotonic() + 2 * (rank == "0")
    while time.monotonic() < end:  # the other process ends
        pass
""" + (
    READ[: READ.index("with Pipeline")]
    + """
import numpy as np
from highway.adapters.jax import to_device

list(to_device(np.zeros((2, 1)), end_together=True))
error = None
if rank == "0":  # the other process runs no second loop
    try:
        list(to_device(np.zeros((2, 1)), end_together=True, end_timeout=1))
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
print(json.dumps(error), flush=True)
late = Late()
sys.setswitchinterval(1000)  # other threads get the GIL only while the main thread waits
"""
)


def test_a_process_that_waits_longer_than_end_timeout_names_the_batch_and_can_exit(read):
    """The exchange still runs when Python exits. It fails when the other process has ended."""
    error, _ = read(2, EXIT)
    assert error == (
        "PipelineError: to_device: end_together: rank 0 of 2 has waited for 1 s (end_timeout) at batch 0 of loop 1 to learn whether all "
        "ranks have this batch; find the cause in the logs of the other ranks, or pass a greater end_timeout"
    )


@pytest.fixture(scope="module")
def interpreter():
    """A process in which JAX has four devices. It runs each script that it receives, and sends back what the script prints."""
    pytest.importorskip("jax", reason="jax is not installed: this is run by tox -e adapters-tf")
    flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-W", "error", "-c", IMPORTS + SERVE]
    process = subprocess.Popen(command, env=os.environ | flags, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        yield process
        process.stdin.close()


@pytest.fixture
def run(interpreter):
    """Run lines in the process in which JAX has four devices, and return what they print."""

    def run(lines):
        print(json.dumps(textwrap.dedent(lines)), file=interpreter.stdin, flush=True)
        printed, error = json.loads(interpreter.stdout.readline())
        assert error is None, error
        return printed.splitlines()

    return run


SERVE = """
import contextlib, io, json, sys, traceback

for line in sys.stdin:
    printed, error = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(printed):
            exec(json.loads(line), globals().copy())
    except BaseException:
        error = traceback.format_exc()
    sys.stdout.write(json.dumps([printed.getvalue(), error]) + chr(10))
    sys.stdout.flush()
"""

IMPORTS = """
import gc, itertools, threading, time
from functools import partial
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from highway import Pipeline
from highway.adapters.jax import to_device
from highway.modules import Batch, Processes, Repeat
from highway.process.aligned import aligned

def error_of(items, *arguments):
    try:
        with to_device(items, *arguments) as arrays:
            return [type(array) for array in arrays]
    except Exception as error:
        return f"{type(error).__name__}: {error} {getattr(error, '__notes__', '')}"

rows = NamedSharding(Mesh(jax.devices(), "rows"), PartitionSpec("rows"))
"""


def test_epochs_arrive_on_the_device_as_they_are(run):
    assert run("""
        samples = [{"x": np.full((2, 3), n, np.float32), "y": (n, "abc"[n % 3] == "a")} for n in range(10)]
        with Pipeline([samples, lambda sample: {"x": sample["x"], "y": np.array(sample["y"])}, Batch(4), Repeat(times=2)]) as pipeline:
            arrays = to_device(pipeline)
            print(len(arrays))
            for epoch in range(2):
                batches = list(arrays)
                print([(batch["x"].shape, batch["x"].devices() == {jax.devices()[0]}) for batch in batches])
            print(np.concatenate([batch["x"][:, 0, 0] for batch in batches]).tolist())
            print([type(batch["y"]).__name__ for batch in batches], batches[0]["y"].dtype)
    """) == [
        "3",
        *["[((4, 2, 3), True), ((4, 2, 3), True), ((2, 2, 3), True)]"] * 2,
        "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]",
        "['ArrayImpl', 'ArrayImpl', 'ArrayImpl'] int32",
    ]


def test_in_the_loop_over_epochs_a_state_counts_what_the_loop_has_received(run):
    """The same lines are those of PyTorch: docs/howto/frameworks.md."""
    assert (
        run("""
        from highway.modules import Reader
        make = lambda: Pipeline([Reader([(n,) for n in range(24)], 4, epochs=3)], seed=3)
        with make() as whole, make() as pipeline:
            expected = [[rows.tolist() for rows, in whole] for _ in range(3)]
            got, states = [], []
            for epoch in range(3):
                with to_device(pipeline) as arrays:
                    for batch, in arrays:
                        got.append(batch.tolist())
                        states.append(pipeline.state_dict())
            print(got == list(itertools.chain(*expected)))
        for count in (1, 9, 17):
            with make() as resumed:
                resumed.load_state_dict(states[count - 1])
                print([batch.tolist() for batch, in to_device(resumed)] == expected[count // 6][count % 6:])
        with make() as pipeline:
            for batch, in to_device(pipeline):
                break
            print([batch.tolist() for batch, in to_device(pipeline)] == expected[1])
    """)
        == ["True"] * 5
    )


def test_rows_go_to_the_devices_of_the_sharding(run):
    assert run("""
        batch = np.arange(32, dtype=np.float32).reshape(8, 4)
        [(array, labels)] = to_device([(batch, batch[:, 0])], rows)
        print([shard.data.shape for shard in array.addressable_shards], labels.sharding == rows)
        print(np.array_equal(array, batch))
        [array] = to_device([batch], jax.devices()[2])
        print(array.devices() == {jax.devices()[2]})
        [array] = to_device([batch], NamedSharding(Mesh(np.reshape(jax.devices(), (2, 2)), ("a", "b")), PartitionSpec("a", "b")))
        print([shard.data.shape for shard in array.addressable_shards])
        [number] = to_device([np.float32(3)], NamedSharding(rows.mesh, PartitionSpec()))
        print(number)
    """) == [
        "[(2, 4), (2, 4), (2, 4), (2, 4)] True",
        "True",
        "True",
        "[(4, 2), (4, 2), (4, 2), (4, 2)]",
        "3.0",
    ]


def test_rows_that_do_not_divide_are_said_with_their_field(run):
    [said] = run("print(error_of([{'x': np.zeros((8, 2))}, {'x': np.zeros((63, 2))}], rows))")
    assert said.startswith(
        "ValueError: to_device: item['x'] has 63 rows, which cannot be divided evenly among the 4 parts of the sharding in this"
    )
    assert "'highway: raised when batch 1 of the loop was copied to the device'" in said


def test_wide_numbers_are_narrowed_only_if_they_fit(run):
    fits, narrowed, wide, unsigned, kept = run("""
        print(error_of([np.array([2**31 - 1, -(2**31)])]))
        print(*(array.dtype for array in to_device([np.array([3]), np.array([0.5])])))
        print(error_of([(np.zeros(2), np.array([2**31, 0]))]))
        print(error_of([np.array([2**32], np.uint64)]))
        jax.config.update("jax_enable_x64", True)
        [number] = to_device([np.array([2**40])])
        print(number)
        jax.config.update("jax_enable_x64", False)
    """)
    assert (narrowed, kept) == ("int32 float32", "[1099511627776]")
    assert fits == "[<class 'jaxlib._jax.ArrayImpl'>]"
    assert wide.startswith(
        "OverflowError: to_device: item[1] contains 2147483648, which does not fit into int32, but JAX converts int64 to int32; call"
    )
    assert unsigned.startswith("OverflowError: to_device: item contains 4294967296, which does not fit into uint32")


def test_what_is_no_number_is_an_error_that_names_the_field(run):
    [said] = run("print(error_of([{'name': np.array(['a', 'b'])}]))")
    assert said.startswith(
        "TypeError: to_device: item['name'] is an array of <U1, a dtype that JAX does not support; convert it, or remove it with Select"
    )


def test_aligned_batches_are_not_copied_and_nobody_writes_into_them(run):
    assert run("""
        def make():
            batch = aligned((64, 1000), np.float32)
            batch[:] = 1
            return batch
        batch = make()
        [array] = to_device([batch])
        print(array.unsafe_buffer_pointer() == batch.ctypes.data)
        double = jax.jit(lambda x: x * 2, donate_argnums=0)
        print(float(double(array)[0, 0]), batch.min(), batch.max())
    """) == ["True", "2.0 1.0 1.0"]


def test_memory_that_became_an_array_is_not_used_again(run):
    """Neither that of batches, nor shared memory, which a sender uses again when all views of it are gone."""
    assert run("""
        batch = partial(np.full, (64, 1000), dtype=np.uint8)
        for isolated in (False, True):
            with Pipeline([range(60), batch, Batch(1)], isolated=isolated, budget_mb=16) as pipeline:
                arrays = list(to_device(pipeline))
            gc.collect()
            print([int(array[0, 0, 0]) for array in arrays] == [int(array[-1, -1, -1]) for array in arrays] == list(range(60)))
    """) == ["True", "True"]


def test_errors_are_the_original_ones(run):
    [said] = run("""
        def fail(n):
            raise KeyError(n)
        with Pipeline([range(3), fail]) as pipeline:
            print(error_of(pipeline))
    """)
    assert said.startswith("KeyError: 0 [\"highway: in stage 'fail', at epoch 0, item 0\"")


def test_dropped_in_the_middle_it_leaves_nothing(run):
    assert run("""
        def main():
            for array in to_device(Pipeline([itertools.count(), Processes([np.float32], 1), Batch(4)])):
                break
            left = iter(to_device(Pipeline([itertools.count()])))
            next(left)
        main()
        gc.collect()
        deadline = time.monotonic() + 30  # a collection on a thread of the pipeline does not wait for the threads to end
        while (left := [thread.name for thread in threading.enumerate()]) != ["MainThread"] and time.monotonic() < deadline:
            time.sleep(0.01)
        print(left)
    """) == ["['MainThread']"]
