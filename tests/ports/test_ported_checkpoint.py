"""The program of docs/howto/dataloader-programs.md that saves a loader in a distributed checkpoint, on two ranks."""

import json

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from loader_runs import OURS, plain, run, start_server  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def server():
    start_server(__name__)


class Draws(torch.utils.data.Dataset):
    def __len__(self):
        return 21

    def __getitem__(self, number):
        return number, torch.rand(()).item()


class StateOfEachRank:
    def __init__(self, loader, rank):
        self.loader, self.key = loader, f"rank {rank}"

    def state_dict(self):
        return {self.key: json.dumps(self.loader.state_dict())}

    def load_state_dict(self, state):
        self.loader.load_state_dict(json.loads(state[self.key]))


def read(folder, resumes):
    """Read one epoch, with a checkpoint after three batches, or resume from the checkpoint."""
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank() + 10 * resumes)
    loader = OURS(Draws(), 2, shuffle=True, num_workers=2, shard=True)
    state = {"loader": StateOfEachRank(loader, dist.get_rank())}
    if resumes:
        dcp.load(state, checkpoint_id=folder)
    seen = []
    for batch in loader:
        seen.append(plain(batch))
        if len(seen) == 3 and not resumes:
            dcp.save(state, checkpoint_id=folder)
    return seen


@pytest.mark.slow
def test_each_rank_resumes_from_its_own_state(tmp_path):
    whole = run(read, str(tmp_path), False, ranks=2)
    assert run(read, str(tmp_path), True, ranks=2) == [seen[3:] for seen in whole]
    assert whole[0] != whole[1]
