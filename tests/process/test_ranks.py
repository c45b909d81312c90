import pytest

from highway.errors import ConfigError
from highway.process.ranks import rank_and_world_size

LAUNCHERS = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)

    def put(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return put


def test_a_process_is_alone_if_nobody_says_otherwise():
    assert rank_and_world_size() == (0, 1)


def test_what_is_said_goes_before_the_environment(environment):
    environment(RANK="1", WORLD_SIZE="2")
    assert rank_and_world_size(3, 4) == (3, 4)


def test_torchrun_says_it(environment):
    environment(RANK="1", WORLD_SIZE="2")
    assert rank_and_world_size() == (1, 2)


def test_torchrun_goes_before_slurm_which_may_have_started_it(environment):
    environment(RANK="5", WORLD_SIZE="8", SLURM_PROCID="1", SLURM_NTASKS="2", SLURM_STEP_ID="0")
    assert rank_and_world_size() == (5, 8)


def test_slurm_says_it_in_a_step_alone_since_a_batch_script_is_no_task(environment):
    environment(SLURM_PROCID="1", SLURM_NTASKS="2")
    assert rank_and_world_size() == (0, 1)
    environment(SLURM_STEP_ID="0")
    assert rank_and_world_size() == (1, 2)


@pytest.mark.parametrize("only", ["RANK", "WORLD_SIZE"])
def test_half_of_the_variables_says_nothing(environment, only):
    environment(**{only: "1"})
    assert rank_and_world_size() == (0, 1)


@pytest.mark.parametrize(("rank", "world_size"), [(1, None), (None, 2)])
def test_half_of_the_parameters_is_an_error(rank, world_size):
    with pytest.raises(ConfigError, match=rf"rank={rank}, world_size={world_size}; pass both or neither"):
        rank_and_world_size(rank, world_size)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK and WORLD_SIZE in the environment: rank 2 of 2; expected a rank from 0 to 1"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK and WORLD_SIZE in the environment: rank -1 of 2; expected a rank from 0 to 1"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "RANK and WORLD_SIZE in the environment: rank 0 of 0; expected at least 1 rank"),
        ({"RANK": "", "WORLD_SIZE": "2"}, "RANK='' in the environment is not a number; correct it, or pass rank and world_size"),
        (
            {"RANK": "0", "WORLD_SIZE": "two"},
            "WORLD_SIZE='two' in the environment is not a number; correct it, or pass rank and world_size",
        ),
        (
            {"SLURM_PROCID": "4", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"},
            "SLURM_PROCID and SLURM_NTASKS in the environment: rank 4 of 4; expected a rank from 0 to 3",
        ),
    ],
)
def test_a_wrong_value_in_the_environment_is_named(environment, variables, message):
    environment(**variables)
    with pytest.raises(ConfigError, match=f"^{message}$"):
        rank_and_world_size()


def test_a_rank_that_there_is_not_is_an_error():
    with pytest.raises(ConfigError, match="rank and world_size: rank 4 of 4; expected a rank from 0 to 3"):
        rank_and_world_size(4, 4)
