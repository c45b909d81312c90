"""Batches from worker processes travel in shared memory that is filled again, and nobody can tell."""

import ctypes
import gc
import io
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from against_torch import compare  # noqa: E402
from test_torch_faults import forked  # noqa: E402
from torch.utils import data  # noqa: E402

from highway.adapters.torch import DataLoader  # noqa: E402
from highway.adapters.torch.slots import receivers  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # on a machine with fewer cores
    pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by descriptors on Linux"),
]

WIDTH = 5000
MANY = 40  # batches: many more than there are slots in an ordinary loop


class Filled(data.Dataset):
    """Arrays that hold the number of their sample everywhere, and the number."""

    def __init__(self, length=4 * MANY):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, number):
        return np.full(WIDTH, number, np.float32), number


def as_arrays(samples):
    return np.stack([row for row, _ in samples]), np.array([number for _, number in samples])


def memory_of(values):
    """Return the inode of the file that tensors or arrays are in, or 0 if they are in none."""
    address = values.data_ptr() if isinstance(values, torch.Tensor) else values.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, _, rest = line.partition("-")
        if int(first, 16) <= address < int(rest.split()[0], 16):
            return int(line.split()[4])
    return 0


def expected(number, width=WIDTH):
    return np.repeat(np.arange(4 * number, 4 * number + 4, dtype=np.float32)[:, None], width, 1)


def test_memory_of_batches_that_are_gone_is_used_again():
    batches = [(memory_of(rows), memory_of(numbers)) for rows, numbers in DataLoader(Filled(), 4, num_workers=2)]
    assert all(map(all, batches))
    assert len(set(sum(batches, ()))) <= 2 * 2 * 6, "labels and images of a worker have about six slots each"


def test_large_arrays_of_an_own_collation_travel_in_shared_memory_too():
    files = set()
    for number, (rows, numbers) in enumerate(DataLoader(Filled(), 4, num_workers=1, collate_fn=as_arrays)):
        np.testing.assert_array_equal(rows, expected(number))
        assert rows.flags.writeable and rows.base is not None and numbers.tolist() == list(range(4 * number, 4 * number + 4))
        files.add(memory_of(rows))
    assert 0 not in files and len(files) <= 6


ARRAYS = {
    "big endian": np.arange(60_000, dtype=">i4").reshape(3, 20_000),
    "columns first": np.asfortranarray(np.arange(60_000.0).reshape(3, 20_000)),
    "texts": np.array(["a", "bcd"] * 5000),
    "objects": np.array([1, "a", None] * 9000, dtype=object),
    "records": np.zeros(5000, dtype=[("x", "f8"), ("y", "u2")]),
    "dates": np.arange("2026-01-01", "2099-01-01", dtype="datetime64[D]"),
    "strided": np.arange(60_000)[::2],
    "scalar": np.array(3.0),
}


def test_arrays_of_all_kinds_come_as_in_torch():
    def run(loader):
        seen = {}
        for name, *arrays in loader(list(ARRAYS), num_workers=1, collate_fn=lambda names: [names[0], *[ARRAYS[names[0]]] * 2]):
            first, second = arrays
            seen[name] = [first, str(first.dtype), first.flags.f_contiguous, first.flags.writeable, first is second]
        return seen

    compare(run)


HOLDERS = {
    "the tensor": lambda rows: rows,
    "a row": lambda rows: rows[1:2],
    "a strided view": lambda rows: rows[:, ::7],
    "an array": lambda rows: rows.numpy(),
    "a view of an array": lambda rows: rows.numpy()[2:, ::3],
    "bytes": lambda rows: memoryview(rows.numpy()),
    "by DLPack": np.from_dlpack,
    "detached": lambda rows: rows.detach().view(-1).view(torch.int32),
    "the storage": lambda rows: rows.untyped_storage(),
    "the typed storage": lambda rows: rows.storage(),
    "a graph": lambda rows: (torch.ones(WIDTH, requires_grad=True) * rows).sum(1).grad_fn,
    "a cycle": lambda rows: (lambda cycle: cycle.append(cycle) or cycle)([rows]),
    "tensors of a storage": lambda rows: torch.empty(0).set_(rows.untyped_storage()),
}


def content(held):
    if isinstance(held, torch.UntypedStorage):
        return bytes(held)
    if isinstance(held, torch.storage.TypedStorage):
        return held.tolist()
    if isinstance(held, list):
        return held[0].tolist()
    if isinstance(held, (torch.Tensor, np.ndarray, memoryview)):
        return np.asarray(held).tolist()
    return held.next_functions[0][0]._saved_other.tolist()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("persistent", [False, True])
def test_memory_that_something_refers_to_is_never_filled_again(persistent):
    loader = DataLoader(Filled(4 * MANY), 4, num_workers=1, persistent_workers=persistent)
    held, then = {}, {}
    for _ in range(2):
        for (rows, _), name in zip(loader, [*HOLDERS, *["none"] * MANY], strict=False):
            if name in HOLDERS and name not in held:
                held[name] = HOLDERS[name](rows)
                then[name] = content(held[name])
            del rows
    assert {name: content(one) == then[name] for name, one in held.items()} == dict.fromkeys(HOLDERS, True)
    loader.close()


def test_all_batches_can_be_kept():
    seen = list(DataLoader(Filled(4 * 100), 4, num_workers=1))
    for number, (rows, numbers) in enumerate(seen):
        np.testing.assert_array_equal(rows, expected(number))
        assert numbers.tolist() == list(range(4 * number, 4 * number + 4))


def test_arrays_that_are_kept_are_not_filled_again():
    seen = [rows[1:, ::5] for rows, _ in DataLoader(Filled(), 4, num_workers=1, collate_fn=as_arrays)]
    for number, rows in enumerate(seen):
        np.testing.assert_array_equal(rows, expected(number)[1:, ::5])


def test_a_batch_outlives_the_loop_and_the_loader():
    loader = DataLoader(Filled(), 4, num_workers=1, persistent_workers=True)
    batches = iter(loader)
    first, second = next(batches)[0], next(batches)[0]
    loader.close()
    del loader, batches
    again = iter(DataLoader(Filled(), 4, num_workers=1))
    for _ in range(10):
        next(again)
    np.testing.assert_array_equal(first, expected(0))
    np.testing.assert_array_equal(second, expected(1))


class Killing(Filled):
    """Kills its worker at a sample."""

    def __getitem__(self, number):
        if number == 12:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(number)


def hold_until_the_worker_is_killed(send):
    held = []
    try:
        for rows, _ in DataLoader(Killing(), 4, num_workers=1, prefetch_factor=1):
            held.append(rows)
    except RuntimeError:
        send([np.array_equal(rows, expected(number)) for number, rows in enumerate(held)])


def test_a_batch_outlives_a_worker_that_is_killed():
    """In another process: torch's handler of SIGCHLD raises wherever the main thread is."""
    ((*first, last),) = forked(hold_until_the_worker_is_killed)
    assert len(first) <= 2 and all([*first, last])


def test_a_forked_process_keeps_the_batches_that_it_had():
    context = multiprocessing.get_context("fork")
    gate, (receiver, sender) = context.Event(), context.Pipe(duplex=False)
    held = []

    def check():
        gate.wait(60)
        sender.send(bool(np.array_equal(held[0], expected(1))))

    batches = iter(DataLoader(Filled(), 4, num_workers=1))
    next(batches)
    held.append(next(batches)[0])
    process = context.Process(target=check)
    process.start()
    held.clear()
    for _ in range(20):
        next(batches)
    gate.set()
    assert receiver.recv()
    process.join()
    receiver.close(), sender.close()


def send_batches_on(send, sender, worker):
    """Send two batches to a process, read others, and send what that process then has, and what else was read."""
    context = torch.multiprocessing.get_context("fork")
    queue, received, gate = context.Queue(), context.Event(), context.Event()

    def check():
        held = queue.get(), queue.get()
        received.set()
        gate.wait(60)
        send([rows[:, 0].tolist() for rows in held])

    torch.multiprocessing.set_sharing_strategy(sender)
    process = context.Process(target=check)
    process.start()
    torch.multiprocessing.set_sharing_strategy(worker)
    batches = iter(DataLoader(Filled(), 4, num_workers=1))
    first = next(batches)[0]
    torch.multiprocessing.set_sharing_strategy(sender)
    queue.put(first)
    queue.put(next(batches)[0])
    received.wait(60)
    del first
    later = [next(batches)[0][0, 0].item() for _ in range(20)]
    gate.set()
    process.join()
    process.close()
    send(later)


@pytest.mark.parametrize(
    ("sender", "worker"), [("file_descriptor", "file_descriptor"), ("file_system", "file_descriptor"), ("file_descriptor", "file_system")]
)
def test_another_process_keeps_the_batches_that_were_sent_to_it(sender, worker):
    """In a forked process, which alone has another sharing strategy."""
    kept, later = forked(send_batches_on, sender, worker)
    assert kept == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert later == list(range(8, 88, 4))


class Keeping:
    """A collation that keeps its batches in the worker, and adds to a batch whether the kept ones are unchanged."""

    def __init__(self):
        self.kept = []

    def __call__(self, samples):
        rows, _ = data.default_collate(samples)
        if len(self.kept) < 5:
            self.kept.append(rows)
        return rows, all(np.array_equal(kept, expected(number)) for number, kept in enumerate(self.kept))


def test_a_batch_that_the_worker_keeps_is_not_filled_again():
    assert all(unchanged for _, unchanged in DataLoader(Filled(), 4, num_workers=1, collate_fn=Keeping()))


class Resending(Filled):
    """A worker that sends each collated batch three times."""

    def __getitem__(self, number):
        if number % 3 == 0:
            self.batch = data.default_collate([super().__getitem__(number)] * 4)
        return self.batch


def test_a_batch_that_is_sent_several_times_stays_as_it_is():
    for number, (rows, numbers) in enumerate(DataLoader(Resending(90), None, num_workers=1, prefetch_factor=8)):
        assert rows[:, ::999].unique().tolist() == numbers.unique().tolist() == [number - number % 3]


def test_tensors_look_as_they_do_in_torch():
    def run(loader):
        seen = []
        for rows, numbers in loader(Filled(10), 4, num_workers=1):
            for tensor in (rows, numbers):
                storage, file = tensor.untyped_storage(), io.BytesIO()
                torch.save(tensor, file)
                address = tensor.data_ptr()
                with pytest.raises(RuntimeError) as refused:
                    storage.resize_(10_000_000)
                seen += [str(tensor.dtype), tensor.is_shared(), tensor.is_contiguous(), tensor.requires_grad, tensor.is_pinned()]
                seen += [storage.nbytes(), tensor.storage_offset(), tensor._version, len(file.getvalue()), str(refused.value)]
                seen += [tensor.share_memory_().data_ptr() == address, type(tensor).__name__, list(tensor.stride())]
                seen.append(tensor.add_(1))
        return seen

    compare(run)


ODD = [
    [torch.tensor([1 + 2j]).conj()] * 2,
    [torch.ones(3, dtype=torch.bfloat16), torch.zeros(3, dtype=torch.bfloat16)],
    [torch.zeros(0), torch.zeros(0)],
    [torch.ones(2, 3).T, torch.zeros(3, 2)],
    [torch.ones(1).expand(5), torch.zeros(5)],
    [True, False],
    [np.float16(3), np.float16(4)],
    [torch.ones(2), torch.ones(2, dtype=torch.float64)],
    [torch.ones(2, requires_grad=True)] * 2,
    [torch.ones(2), torch.ones(3)],
    [torch.ones(2), 3],
    [torch.eye(2).to_sparse()] * 2,
    [torch.nn.Parameter(torch.ones(2), requires_grad=False)] * 2,
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_odd_samples_come_or_are_refused_as_in_torch():
    def run(loader):
        batches, seen = iter(loader([sample for pair in ODD for sample in pair], 2, num_workers=1)), []
        for _ in ODD:
            try:
                batch = next(batches)
                seen.append([type(batch).__name__, str(batch)])
            except Exception as error:
                lines = [line for line in str(error).splitlines() if line and not line.startswith((" ", "highway: "))]
                seen.append([type(error).__name__, lines[-1]])
        return seen

    compare(run)


class Growing(Filled):
    """Batches of many sizes."""

    def __getitem__(self, number):
        return np.full(1000 + 37 * (number // 4 % 7), number, np.float32)


def test_batches_of_other_sizes_share_memory_that_is_large_enough():
    files = set()
    for number, rows in enumerate(DataLoader(Growing(), 4, num_workers=1)):
        width = 1000 + 37 * (number % 7)
        assert rows.untyped_storage().nbytes() == 16 * width
        np.testing.assert_array_equal(rows, expected(number, width))
        files.add(memory_of(rows))
    assert len(files) <= 12  # 16 to 20 kB: files of two lengths


def send_a_slot_while_others_are_taken(send):
    """A collector of garbage runs in the middle of any loop that makes objects; its finalisers let other threads run."""
    sender = receivers(1)[0].sender
    sender.install()
    sender.note_sending()
    held = [sender.take(WIDTH) for _ in range(10)]
    pairs = [(number, number) for number in range(4000)]  # Python has pairs in reserve, which are no new objects
    takers = []

    def take(phase, info):
        pairs.extend((number, number) for number in range(20))
        if len(takers) < 20:
            takers.append(threading.Thread(target=lambda: held.append(sender.take(WIDTH))))
            takers[-1].start()
            takers[-1].join(0.02)

    gc.callbacks.append(take)
    gc.set_threshold(1)
    ForkingPickler.dumps(held[5])
    gc.callbacks.remove(take)
    for taker in takers:
        taker.join()
    send((len(takers), len({storage.data_ptr() for storage in held}) - 10))


def test_a_worker_may_take_slots_while_its_other_thread_sends_one():
    [(takes, slots)] = forked(send_a_slot_while_others_are_taken)
    assert takes == slots > 0


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_memory_that_a_loop_needed_for_a_while_is_returned():
    batches = iter(DataLoader(Filled(4 * 400), 4, num_workers=1))
    next(batches)
    held = [next(batches) for _ in range(25)]
    with_held = descriptors()
    held.clear()
    for _ in range(300):
        next(batches)
    assert descriptors() <= with_held - 30


def read_with_4_mb(send):
    libc, new_namespace, private, recursive = ctypes.CDLL(None), 0x20000, 0x40000, 0x4000
    if (
        libc.unshare(new_namespace)
        or libc.mount(b"none", b"/", None, private | recursive, None)
        or libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=4m")
    ):
        return
    batches = DataLoader(Wide(), 4, num_workers=1)
    send(sum(bool(np.array_equal(rows[:, ::999], [[number] * 101] * 4)) for number, rows in enumerate(batches)))


class Wide(data.Dataset):
    """Samples of 100 kB, of which each of four in a row is the same."""

    def __len__(self):
        return 4 * MANY

    def __getitem__(self, number):
        return np.full(100_000, number // 4, np.uint8)


def test_a_loop_that_fits_in_a_small_shared_memory_in_torch_fits():
    """Batches of 0.4 MB: two are read ahead, and the loop holds one or two."""
    printed = forked(read_with_4_mb)
    if not printed:
        pytest.skip("only root can mount a small /dev/shm")
    assert printed == [MANY]
