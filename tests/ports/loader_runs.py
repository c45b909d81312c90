"""Run programs that load data in processes of their own: alone, or as the ranks of a group that talks through gloo.

A program is a function in a module. It takes the class of the loader, and returns what it has seen as plain Python objects.
"""

import multiprocessing
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist

from highway.adapters.torch import DataLoader

LIMIT = 250  # seconds of one run
CONTEXT = multiprocessing.get_context("forkserver")
OURS, THEIRS = DataLoader, torch.utils.data.DataLoader


def start_server(module: str) -> None:
    """Start the process whose forks run programs: it imports the module of the programs once, and what optimizers import at first use."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        CONTEXT.set_forkserver_preload([module, "torch._dynamo"])
        run(len, ())
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def run(program: Callable[..., Any], *arguments: Any, ranks: int = 1) -> list[Any]:
    """Return what ``program(*arguments)`` returns on each rank.

    Raises:
        AssertionError: The program raises on a rank, or takes longer than ``LIMIT``.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if ranks > 1 else None
    receivers: list[Connection] = []
    processes = []
    results: dict[Connection, Any] = {}
    try:
        for rank in range(ranks):
            receiver, sender = CONTEXT.Pipe(duplex=False)
            environment = {} if store is None else group_of(rank, ranks, store.port)
            processes.append(CONTEXT.Process(target=run_rank, args=(program, arguments, environment, sender)))
            processes[-1].start()
            sender.close()
            receivers.append(receiver)
        while len(results) < ranks:
            ready = wait(set(receivers) - set(results), LIMIT)
            assert ready, f"{program.__name__} takes longer than {LIMIT} s"
            for receiver in ready:
                succeeded, result = pickle.loads(receiver.recv_bytes())
                assert succeeded, f"rank {receivers.index(receiver)} of {ranks}:\n{result}"
                results[receiver] = result
        for process in processes:
            process.join(LIMIT)
            assert process.exitcode == 0
    finally:
        for process in processes:
            process.kill()
            process.join()
            process.close()
        for receiver in receivers:
            receiver.close()
    return [results[receiver] for receiver in receivers]


def group_of(rank: int, ranks: int, port: int) -> dict[str, str]:
    """Return the environment that torchrun gives to a rank of one host."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
    numbers |= {"TORCHELASTIC_RESTART_COUNT": 0, "GROUP_RANK": 0}
    return {name: str(number) for name, number in numbers.items()} | {
        "MASTER_ADDR": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def run_rank(program: Callable[..., Any], arguments: tuple[Any, ...], environment: dict[str, str], sender: Connection) -> None:
    """Send ``(True, what the program returns)``, or ``(False, the traceback)``."""
    multiprocessing.set_start_method("fork", force=True)  # that of a program; the server's children would start a server for workers
    os.environ.update(environment)
    torch.set_num_threads(1)
    try:
        result = True, program(*arguments)
    except BaseException:
        result = False, traceback.format_exc()
    sender.send_bytes(pickle.dumps(result))
    if dist.is_initialized():
        dist.destroy_process_group()


def package(loader: type) -> str:
    """Return ``"highway"`` or ``"torch"``."""
    return "highway" if issubclass(loader, OURS) else "torch"


def watched(loader: type) -> type:
    """Return a subclass whose ``ran`` lists the package of the loader for each loop: ``"highway"`` or ``"torch"``."""

    class Watched(loader):
        def __iter__(self):
            self.ran.append(package(loader))
            return super().__iter__()

    Watched.ran = []
    return Watched


def plain(value: Any) -> Any:
    """Return tensors, and containers of tensors, as Python objects, with each tensor's dtype."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
