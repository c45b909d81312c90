"""Errors, interrupts and ends of ``DataLoader``: as torch's where torch has them, and with words that help where torch's have none."""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from against_torch import Numbered, Raising, compare  # noqa: E402
from torch.utils import data  # noqa: E402
from waiting import wait_until  # noqa: E402

from highway.adapters.torch import DataLoader  # noqa: E402

WORKERS = pytest.mark.parametrize("num_workers", [0, 2])

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine with fewer cores


class Refused(Exception):
    """An error whose constructor takes more than a message, as those of many libraries do."""

    def __init__(self, path, code):
        super().__init__(path, code)
        self.code = code


ERRORS = [
    KeyError("no such file"),
    ValueError("bad"),
    OSError(2, "No such file", "a.jpg"),
    IndexError("out of range"),
    EOFError(),
    Refused("a", 3),
]


@pytest.mark.slow
@WORKERS
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_has_the_type_and_the_place_that_it_has_in_torch_and_the_next_batches_follow(error, num_workers):
    def run(loader):
        batches, seen = iter(loader(Raising(8, 5, error), 2, num_workers=num_workers)), []
        for _ in range(5):
            try:
                seen.append(next(batches).tolist())
            except StopIteration:
                seen.append("end")
            except Exception as raised:
                seen.append(type(raised).__name__)
        return seen

    assert compare(run)[2] != [4, 5]


def refuse(number):
    raise OSError("no licence left")


def text(error):
    """Return an error's message and notes; torch puts the notes of a worker's error into its message."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def message(loader, **options):
    """Return the text of the error that ends a loop. Free what its frames hold, because torch's workers would wait for the collector."""
    try:
        list(loader(**options))
    except Exception as error:
        traceback.clear_frames(error.__traceback__)
        return text(error)


@WORKERS
def test_an_error_names_its_sample(num_workers):
    found = message(DataLoader, dataset=Raising(12, 5, KeyError("no such file")), batch_size=2, num_workers=num_workers)
    assert "no such file" in found
    assert "highway: raised for sample 5 of Raising" in found


@pytest.mark.parametrize("worker_init_fn", [None, refuse])
def test_the_workers_end_as_soon_as_the_error_is_handled(worker_init_fn):
    gc.disable()
    try:
        with pytest.raises((KeyError, OSError)):
            list(DataLoader(Raising(12, 5, KeyError("bad")), 2, num_workers=2, worker_init_fn=worker_init_fn))
        assert multiprocessing.active_children() == []
    finally:
        gc.enable()


class Odd(Numbered):
    """Samples that do not go together."""

    def __getitem__(self, number):
        return torch.zeros(3 - number % 2)


@WORKERS
def test_an_error_of_the_collation_names_its_samples(num_workers):
    theirs, ours = (message(loader, dataset=Odd(8), batch_size=4, num_workers=num_workers) for loader in (data.DataLoader, DataLoader))
    assert theirs.splitlines()[-1] in ours
    assert "highway: raised when samples 0, 1, 2, 3 were combined into a batch" in ours


@WORKERS
def test_an_error_of_the_sampler_comes_where_it_comes_in_torch(num_workers):
    def numbers():
        yield from range(4)
        raise ZeroDivisionError("the index is damaged")

    def run(loader):
        seen = []
        with pytest.raises(ZeroDivisionError, match="the index is damaged"):
            for batch in loader(Numbered(8), 2, sampler=numbers(), num_workers=num_workers, prefetch_factor=1 if num_workers else None):
                seen.append(batch[1])
        return seen

    compare(run)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_error_of_the_workers_start_has_the_type_that_it_has_in_torch(num_workers):
    def run(loader):
        with pytest.raises(OSError, match="no licence left") as caught:
            list(loader(Numbered(8), 2, num_workers=num_workers, worker_init_fn=refuse))
        traceback.clear_frames(caught.tb)
        del caught

    compare(run)


def test_an_error_of_the_workers_start_comes_before_the_first_batch():
    def refuse(number):
        if number == 1:
            raise OSError("no licence left")

    with pytest.raises(OSError, match="no licence left"):
        iter(DataLoader(Numbered(8), 2, num_workers=2, worker_init_fn=refuse))
    assert len(list(DataLoader(Numbered(2), 2, num_workers=2, worker_init_fn=refuse))) == 1  # the second worker has no batch


@pytest.mark.slow
def test_a_worker_that_ends_at_its_start_is_named():
    batches = iter(DataLoader(Numbered(8), 2, num_workers=1, worker_init_fn=lambda number: os._exit(0)))
    with pytest.raises(RuntimeError, match="exited with code 0; it held 2 batches"):
        next(batches)


@pytest.mark.slow
def test_a_batch_that_does_not_come_in_time_is_the_error_that_it_is_in_torch():
    def run(loader):
        gate = multiprocessing.Event()

        class Gated(Numbered):
            def __getitem__(self, number):
                gate.wait(30)
                return number

        batches = iter(loader(Gated(2), 2, num_workers=1, timeout=0.05))
        with pytest.raises(RuntimeError) as caught:
            next(batches)
        gate.set()
        return str(caught.value)

    assert compare(run) == "DataLoader timed out after 0.05 seconds"


class Interrupting(Numbered):
    """Interrupts the training process once, as soon as it waits for sample 4."""

    def __init__(self, parent, entered, interrupted):
        super().__init__(10)
        self.parent, self.entered, self.interrupted = parent, entered, interrupted

    def __getitem__(self, number):
        if number == 4 and not self.interrupted.is_set():
            if os.getpid() != self.parent:
                assert self.entered.wait(30)
                for _ in range(1000):  # most probably it waits in next() then; it holds wherever it is
                    if Path(f"/proc/{self.parent}/stat").read_text().rpartition(")")[2].split()[0] == "S":
                        break
            self.interrupted.set()
            os.kill(self.parent, signal.SIGINT)
        return number


@pytest.mark.slow
@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
def test_after_ctrl_c_inside_next_another_next_continues(num_workers, persistent):
    if persistent and not num_workers:
        pytest.skip("needs workers")
    entered, interrupted = multiprocessing.Event(), multiprocessing.Event()
    dataset = Interrupting(os.getpid(), entered, interrupted)
    loader = DataLoader(dataset, 2, num_workers=num_workers, persistent_workers=persistent)
    batches = iter(loader)
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyboardInterrupt):
        entered.set()
        next(batches)
        interrupted.wait(30)  # if the batch came just before
    assert [batch.tolist() for batch in batches] == [[4, 5], [6, 7], [8, 9]]
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def interrupted_once(number):
    """Interrupt the process in which a batch is received, for the first batch that calls this."""
    if not interrupted_once.__dict__.setdefault("done", []):
        interrupted_once.done.append(number)
        os.kill(os.getpid(), signal.SIGINT)
    return number


class Received:
    """A batch whose receiver is interrupted while it unpickles the batch."""

    def __init__(self, batch):
        self.batch = batch

    def __reduce__(self):
        return interrupted_once, (self.batch,)


def test_a_batch_that_is_being_received_when_ctrl_c_comes_is_not_lost():
    batches = iter(DataLoader(range(6), 2, num_workers=1, collate_fn=Received))
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert list(batches) == [[0, 1], [2, 3], [4, 5]]


class InterruptedSampler(data.Sampler):
    """Draws an order, and is interrupted once while it gives it."""

    def __init__(self, interrupts):
        self.interrupts = interrupts

    def __iter__(self):
        for place, number in enumerate(torch.randperm(12).tolist()):
            if place == 6 and self.interrupts:
                self.interrupts = False
                raise KeyboardInterrupt
            yield number


@pytest.mark.slow
@WORKERS
def test_after_ctrl_c_inside_a_sampler_the_epoch_is_that_of_an_uninterrupted_run(num_workers):
    runs = []
    for interrupts in (False, True):
        torch.manual_seed(3)
        options = {"prefetch_factor": 1} if num_workers else {}
        batches, seen = iter(DataLoader(range(12), 2, sampler=InterruptedSampler(interrupts), num_workers=num_workers, **options)), []
        for _ in range(8):
            try:
                seen.append(next(batches).tolist())
            except (KeyboardInterrupt, StopIteration) as raised:
                seen.append(type(raised).__name__)
        runs.append(seen)
    assert "KeyboardInterrupt" in runs[1]
    assert [batch for batch in runs[1] if batch != "KeyboardInterrupt"] == runs[0][:7]


IN_A_TERMINAL = """
    import os, signal, sys
    from highway.adapters.torch import DataLoader

    class Interrupting:
        def __len__(self):
            return 8

        def __getitem__(self, number):
            if number == 4 and not os.path.exists(sys.argv[1]):
                open(sys.argv[1], "w").close()
                os.killpg(0, signal.SIGINT)  # as a terminal and a notebook do: every process of the group is interrupted
            return number

    batches = iter(DataLoader(Interrupting(), 2, num_workers=int(sys.argv[2])))
    seen = []
    while True:
        try:
            seen.append(next(batches).tolist())
        except KeyboardInterrupt:
            seen.append("interrupted")
        except StopIteration:
            break
    assert "interrupted" in seen
    print([batch for batch in seen if batch != "interrupted"])
"""


def run_script(code, *arguments, before=None, **options):
    """Run a script in another process; return its exit code and what it printed."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    result = subprocess.run([*(before or ()), *command], capture_output=True, text=True, timeout=120, **options)
    return result.returncode, result.stdout, result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
def test_ctrl_c_in_a_terminal_interrupts_next_and_the_workers_go_on(num_workers, tmp_path):
    code, out, err = run_script(IN_A_TERMINAL, tmp_path / "interrupted", num_workers, start_new_session=True)
    assert (code, out, err) == (0, "[[0, 1], [2, 3], [4, 5], [6, 7]]\n", "")


class Dying(Numbered):
    """Its worker dies at sample 5."""

    def __init__(self, dies):
        super().__init__(12)
        self.dies = dies

    def __getitem__(self, number):
        if number == 5:
            self.dies()
        return number


def forked(run, *arguments):
    """Run a function in a copy of this process, and return what it has sent."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(sender.send, *arguments))
    process.start()
    sender.close()
    seen = []
    with receiver, contextlib.suppress(EOFError):
        while True:
            seen.append(receiver.recv())
    process.join()
    process.close()
    return seen


def run_two_epochs(send, dataset):
    """Send the results of six calls in each epoch."""
    loader = DataLoader(dataset, 2, num_workers=1, persistent_workers=True)
    for _ in range(2):
        batches = iter(loader)
        for _ in range(6):
            try:
                send(next(batches).tolist())
            except RuntimeError as error:
                send(str(error))


def by_signal(number):
    return lambda: os.kill(os.getpid(), number)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dies", "named"),
    [
        (by_signal(signal.SIGKILL), "was killed by SIGKILL"),
        (by_signal(signal.SIGTERM), "was killed by SIGTERM"),
        (lambda: os._exit(3), "exited with code 3"),
    ],
    ids=["SIGKILL", "SIGTERM", "exit"],
)
def test_a_worker_that_dies_is_an_error_that_names_worker_signal_and_samples_at_each_later_call(dies, named):
    """In another process: torch's handler of SIGCHLD raises wherever the main thread is, so that fewer batches may come."""
    seen = forked(run_two_epochs, Dying(dies))
    assert len(seen) == 12
    for epoch in (seen[:6], seen[6:]):
        assert [batch for batch in epoch if isinstance(batch, list)] in ([], [[0, 1]], [[2, 3]], [[0, 1], [2, 3]])
        for error in epoch[-3:]:
            assert "Worker 0 (pid " in error and named in error and "4, 5" in error, epoch


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
def test_a_loop_that_is_left_frees_its_workers_and_threads_at_once(persistent):
    threads, children = threading.active_count(), multiprocessing.active_children()
    gc.disable()
    try:
        loaders = []
        for _ in range(12):
            loader = DataLoader(Numbered(40), 2, num_workers=1, persistent_workers=persistent)
            for _ in loader:
                break
            if persistent:
                del loader
            else:
                loaders.append(loader)
        wait_until(lambda: multiprocessing.active_children() == children)  # without the collector, however slow the machine is
        wait_until(lambda: threading.active_count() == threads)  # a queue's thread ends a moment after its queue
    finally:
        gc.enable()


HELD = """
    import sys
    import torch
    from highway.adapters.torch import DataLoader

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, number):
            return torch.full((3, 64, 64), number, dtype=torch.float32), number

    if __name__ == "__main__":
        loader = DataLoader(Images(), 4, True, num_workers=1, **eval(sys.argv[1]))
        batches = iter(loader)
        held = [next(batches) for _ in range(5)]
        again = iter(loader)
        more = next(again)  # the worker has begun: torch prints an error if one is ended before
        print("end")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"persistent_workers": True},
        {"multiprocessing_context": "spawn"},
        {"workers": "threads"},
        {"workers": "threads", "isolated": True},
    ],
    ids=str,
)
def test_batches_that_are_held_when_the_script_ends_print_nothing(options, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(HELD))
    result = subprocess.run([sys.executable, script, repr(options)], capture_output=True, text=True, timeout=180)
    assert (result.returncode, result.stdout, result.stderr) == (0, "end\n", "")


STARTED = """
    import random, sys
    import torch
    from torch.utils import data
    from highway.adapters.torch import DataLoader

    class Augmented(data.Dataset):
        def __len__(self):
            return 9

        def __getitem__(self, number):
            return number, random.random(), torch.rand(2).tolist(), data.get_worker_info().seed

    if __name__ == "__main__":
        seen = []
        for loader in (data.DataLoader, DataLoader):
            torch.manual_seed(3)
            options = {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": sys.argv[1]}
            batches = loader(Augmented(), 4, True, collate_fn=list, **options)
            seen.append([list(batches), list(batches), torch.rand(2).tolist()])
        assert seen[0] == seen[1], seen
        print(len(seen[0][1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_are_not_forked_give_the_batches_of_torch(method, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(STARTED))
    result = subprocess.run([sys.executable, script, method], capture_output=True, text=True, timeout=240)
    assert (result.returncode, result.stdout, result.stderr) == (0, "3\n", "")


FEW = """
    import sys
    import torch
    from highway.adapters.torch import DataLoader

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return 4000

        def __getitem__(self, number):
            return torch.zeros(int(sys.argv[1]))

    held = []
    try:
        for batch in DataLoader(Images(), 4, num_workers=2, collate_fn=eval(sys.argv[2])):
            held.append(batch)
    except Exception as error:
        print(type(error).__name__, error, *getattr(error, "__notes__", []))
    held.clear()
"""


@pytest.mark.slow
def test_too_few_descriptors_are_an_error_that_says_what_to_do():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    code, out, err = run_script(FEW, 10, None, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, limit)))
    assert code == 0, err
    assert out.startswith(("RuntimeError", "OSError")), out + err
    assert "ulimit -n" in out


def test_a_batch_that_cannot_be_sent_from_a_worker_is_an_error_and_no_endless_wait():
    """torch prints the error, and waits."""
    batches = iter(DataLoader(range(4), 2, num_workers=1, collate_fn=lambda samples: (lambda: samples) if 2 in samples else samples))
    assert next(batches) == [0, 1]
    with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
        next(batches)


class Zeros(Numbered):
    """Samples of 400 kB."""

    def __getitem__(self, number):
        return torch.zeros(100_000)


def send_through_4_mb(send, collate):
    """Read batches of 1.6 MB with a /dev/shm of 4 MB that only this process sees, and send the error."""
    libc, new_namespace, private, recursive = ctypes.CDLL(None), 0x20000, 0x40000, 0x4000
    if (
        libc.unshare(new_namespace)
        or libc.mount(b"none", b"/", None, private | recursive, None)
        or libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=4m")
    ):
        return
    try:
        send(f"{len(list(DataLoader(Zeros(40), 4, num_workers=2, collate_fn=collate)))} batches")
    except Exception as error:
        send(f"{type(error).__name__} {text(error)}")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/dev/shm is of Linux")
@pytest.mark.parametrize("collate", [None, torch.stack], ids=["in the worker", "when it is sent"])
def test_too_little_shared_memory_is_an_error_that_says_what_to_do(collate):
    """In torch's collation the worker puts the batch there, and after another collation the thread that sends it."""
    printed = forked(send_through_4_mb, collate)
    if not printed:
        pytest.skip("only root can mount a small /dev/shm")
    assert printed[0].startswith(("RuntimeError", "OSError")), printed
    assert "/dev/shm" in printed[0] and "--shm-size" in printed[0], printed
