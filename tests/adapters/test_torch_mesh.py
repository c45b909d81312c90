"""Ranks of device meshes and process groups: tensor parallel peers get the same batches, and data parallel ranks share the data."""

import json
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from highway import ConfigError, Pipeline  # noqa: E402
from highway.adapters.torch import peers, ranks  # noqa: E402
from highway.modules import Reader  # noqa: E402


@pytest.fixture
def world(monkeypatch):
    """A job of four processes of which this one is rank 2, without the others."""
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  # registers it

    monkeypatch.setenv("LOCAL_RANK", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    dist.init_process_group("fake", store=dist.HashStore(), rank=2, world_size=4)
    yield
    dist.destroy_process_group()


def mesh_of(*shape, names):
    return dist.init_device_mesh("cpu", shape, mesh_dim_names=names)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("shape", "names", "data", "rank", "size", "same"),
    [
        ((2, 2), ("dp", "tp"), "dp", 1, 2, (2, 3)),
        ((2, 2), ("tp", "dp"), "dp", 0, 2, (0, 2)),
        ((4,), ("dp",), ["dp"], 2, 4, (2,)),
        ((4,), ("tp",), (), None, None, None),
        ((2, 1, 2), ("replicate", "shard", "cp"), ("shard", "replicate"), 1, 2, (2, 3)),
        ((2, 2), ("replicate", "shard"), ("replicate", "shard"), 2, 4, (2,)),
        ((2, 1, 2), ("pp", "dp", "tp"), "dp", 0, 1, (0, 1, 2, 3)),
    ],
)
def test_only_the_named_dimensions_share_the_data(shape, names, data, rank, size, same):
    mesh = mesh_of(*shape, names=names)
    if rank is None:
        with pytest.raises(
            ConfigError, match="ranks: data= is missing; pass the dimensions along which the data is divided, one or more of: 'tp'"
        ):
            ranks(mesh, data)
        return
    assert ranks(mesh, data) == {"rank": rank, "world_size": size}
    assert peers(mesh, data).ranks == same


@pytest.mark.usefixtures("world")
def test_process_groups_as_megatron_has_them():
    data, model = dist.new_group([0, 2]), dist.new_group([2, 3])
    assert ranks(data) == {"rank": 1, "world_size": 2}
    assert peers(model).ranks == (2, 3)
    with pytest.raises(
        ConfigError,
        match=r"ranks: .* is neither a DeviceMesh nor a process group that contains this process; pass the "
        r"mesh",
    ):
        ranks(dist.new_group([0, 1]))


@pytest.mark.usefixtures("world")
def test_peers_are_processes_of_one_host(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    mesh = mesh_of(1, 4, names=("dp", "tp"))
    assert peers(mesh, "dp").ranks == (2, 3)
    monkeypatch.delenv("LOCAL_RANK")
    with pytest.raises(
        ConfigError, match="LOCAL_RANK are not in the environment, so the ranks on this host are unknown; start with torchrun"
    ):
        peers(mesh, "dp")


@pytest.mark.usefixtures("world")
def test_each_pair_of_pipelines_has_a_link_of_its_own():
    mesh = mesh_of(2, 2, names=("dp", "tp"))
    assert peers(mesh, "dp").name != peers(mesh, "dp").name


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("function", [ranks, peers])
def test_bad_input_is_named_with_the_way_out(function):
    name = function.__name__
    with pytest.raises(ConfigError, match=f"{name}: data='data' is not a dimension of the mesh; pass the dimensions .*: 'dp', 'tp'"):
        function(mesh_of(2, 2, names=("dp", "tp")), "data")
    with pytest.raises(ConfigError, match=f"{name}: the dimensions of the mesh have no names; create it with init_device_mesh"):
        function(dist.device_mesh.DeviceMesh("cpu", [0, 1, 2, 3]), "dp")
    small = dist.device_mesh.DeviceMesh("cpu", [0, 1], mesh_dim_names=("dp",))
    with pytest.raises(ConfigError, match=rf"{name}: rank 2 of 4 is not part of the mesh of 2 ranks \[0, 1\]; create a mesh with all"):
        function(small, "dp")
    with pytest.raises(ConfigError, match=f"{name}: 'cuda' is neither a DeviceMesh nor a process group"):
        function("cuda")


SCRIPT = """
    import json, os, sys
    import torch.distributed as dist
    from highway import Pipeline, RemoteError
    from highway.adapters.torch import peers, ranks, to_device
    from highway.modules import Reader

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    reads = []


    class Numbers:
        def __len__(self):
            return 80

        def __getitem__(self, number):
            reads.append(number)
            return number


    def pipeline():
        return Pipeline([Reader(Numbers(), 4, epochs=2, **ranks(mesh, "dp"))], seed=1, peers=peers(mesh, "dp"))


    with pipeline() as train:
        batches, took = [], 0
        for batch in to_device(train, "cpu"):
            batches.append(batch.tolist())
            if len(batches) == 4:
                states = [None] * 4
                dist.all_gather_object(states, train.state_dict())
                break
    with pipeline() as train:
        train.load_state_dict(states[2 * mesh.get_local_rank("dp") + 1])  # the state of the tensor parallel rank that did not read
        batches += [batch.tolist() for batch in train]
    found = [None] * 4
    dist.all_gather_object(found, (batches, len(reads), states[rank] == states[rank ^ 1]))
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_tensor_parallel_ranks_read_once_and_go_on_from_the_state_of_any(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--standalone", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    first, same_as_first, second, same_as_second = json.loads(done.stdout)
    assert first[0] == same_as_first[0]
    assert second[0] == same_as_second[0]
    assert sorted(number for batches in (first[0], second[0]) for batch in batches for number in batch) == list(range(80))
    assert first[1] >= 40
    assert same_as_first[1] == same_as_second[1] == 0
    assert all(same for *_, same in (first, same_as_first, second, same_as_second))
    with Pipeline([Reader(range(80), 4, epochs=2, rank=0, world_size=2)], seed=1) as alone:
        assert first[0] == [batch.tolist() for batch in alone]
