"""Find out which processes of a device mesh or process group divide the data, and which processes get the same batches."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from highway.errors import ConfigError
from highway.process.ranks import PeerRanks, ReaderRanks, local_rank

_counts: Counter[tuple[int, ...]] = Counter()  # the number of calls of peers() for each group of ranks
_RUN = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")  # variables that identify a run


def ranks(mesh: DeviceMesh | dist.ProcessGroup, data: str | Sequence[str] = ()) -> ReaderRanks:
    """Return the data parallel rank of this process and the number of data parallel ranks, as arguments for a reader.

    ::

        mesh = init_device_mesh("cuda", (8, 4), mesh_dim_names=("dp", "tp"))
        reader = Reader(dataset, 64, **ranks(mesh, "dp"))

    Each data parallel rank reads its own part of the data. Processes that differ only in the other dimensions of the mesh (tensor, context
    or pipeline parallel) have the same data parallel rank, so they read the same batches.

    Args:
        mesh: A mesh whose dimensions have names; or a process group whose processes divide the data, such as Megatron's
            ``parallel_state.get_data_parallel_group()``.
        data: The names of the dimensions of the mesh along which the data is divided, such as ``"dp"`` or ``("replicate", "shard")``.
            Required with a mesh.

    Raises:
        ConfigError: the mesh has no such dimension, or this process is not part of the mesh or group.

    >>> import torch
    >>> torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    >>> mesh = torch.distributed.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    >>> ranks(mesh, "dp")
    {'rank': 0, 'world_size': 1}
    >>> torch.distributed.destroy_process_group()
    """
    if not isinstance(mesh, DeviceMesh):
        members = members_of(mesh, "ranks")
        return {"rank": members.index(dist.get_rank()), "world_size": len(members)}
    rank, world_size = 0, 1
    coordinate = _coordinate(mesh, "ranks")
    for number in _dimensions(mesh, data, "ranks"):
        size = mesh.size(number)
        rank, world_size = rank * size + coordinate[number], world_size * size
    return {"rank": rank, "world_size": world_size}


def peers(mesh: DeviceMesh | dist.ProcessGroup, data: str | Sequence[str] = ()) -> PeerRanks:
    """Return the processes of this host that get the same batches as this process, for ``Pipeline(..., peers=...)``.

    ::

        pipeline = Pipeline([Reader(dataset, 64, **ranks(mesh, "dp"))], peers=peers(mesh, "dp"))

    The first of these processes reads and decodes the batches, and passes them to the other processes in shared memory. All these processes
    must create the same pipelines in the same order.

    Args:
        mesh: The mesh; or the group of the processes that get the same batches, such as Megatron's
            ``parallel_state.get_model_parallel_group()`` or ``get_tensor_and_context_parallel_group()``.
        data: The names of the dimensions of the mesh along which the data is divided. Required with a mesh.

    Raises:
        ConfigError: for the reasons listed in :func:`ranks`; or ``LOCAL_RANK`` and ``LOCAL_WORLD_SIZE`` are not set. torchrun sets both.

    >>> import torch
    >>> torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    >>> mesh = torch.distributed.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    >>> peers(mesh, "dp").ranks
    (0,)
    >>> torch.distributed.destroy_process_group()
    """
    if isinstance(mesh, DeviceMesh):
        coordinate, shared = _coordinate(mesh, "peers"), _dimensions(mesh, data, "peers")
        place = tuple(coordinate[number] if number in shared else slice(None) for number in range(mesh.ndim))
        members = mesh.mesh[place].flatten().tolist()
    else:
        members = members_of(mesh, "peers")
    rank = dist.get_rank()
    if len(members) > 1:
        number, here = local_rank()
        members = [member for member in sorted(members) if 0 <= member - rank + number < here]
    _counts[together := tuple(members)] += 1
    run = [os.environ.get(name, "") for name in _RUN]
    name = hashlib.sha256(repr((run, together, _counts[together])).encode()).hexdigest()[:32]
    return PeerRanks(rank, together, f"peers-{name}")


def _dimensions(mesh: DeviceMesh, data: str | Sequence[str], caller: str) -> list[int]:
    """Return the indexes of the dimensions with these names, in the order of the mesh."""
    wanted = [data] if isinstance(data, str) else list(data)
    if (names := mesh.mesh_dim_names) is None:
        raise ConfigError(f"{caller}: the dimensions of the mesh have no names; create it with init_device_mesh(..., mesh_dim_names=...)")
    if not wanted or (unknown := [name for name in wanted if name not in names]):
        given = f"data={unknown[0]!r} is not a dimension of the mesh" if wanted else "data= is missing"
        raise ConfigError(
            f"{caller}: {given}; pass the dimensions along which the data is divided, one or more of: {', '.join(map(repr, names))}"
        )
    return [number for number, name in enumerate(names) if name in wanted]


def _coordinate(mesh: DeviceMesh, caller: str) -> Sequence[int]:
    coordinate: Sequence[int] | None = mesh.get_coordinate()
    if coordinate is None:
        raise ConfigError(
            f"{caller}: rank {dist.get_rank()} of {dist.get_world_size()} is not part of the mesh of {mesh.mesh.numel()} ranks "
            f"{mesh.mesh.flatten().tolist()}; create a mesh with all ranks, or read only on the ranks of the mesh"
        )
    return coordinate


def members_of(group: dist.ProcessGroup, caller: str) -> list[int]:
    """Return the ranks of a group, in the order of the group."""
    if not isinstance(group, dist.ProcessGroup):  # torch returns a placeholder to processes that are not in the group
        raise ConfigError(
            f"{caller}: {group!r} is neither a DeviceMesh nor a process group that contains this process; pass the mesh, or the group of "
            "this process"
        )
    return list(dist.get_process_group_ranks(group))
