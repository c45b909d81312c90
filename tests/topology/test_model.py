"""Topology files: what is read from them, the pipelines that come out, and what is said of mistakes."""

import os

import pytest

from highway import Pipeline
from highway.cli.check import sentences
from highway.engine.stage import Origin, Stage
from highway.errors import ConfigError
from highway.topology import check, load

STAGES = """
from dataclasses import dataclass

@dataclass
class Numbers:
    count: int
    def __iter__(self):
        return iter(range(self.count))

@dataclass
class Add:
    number: int = 1
    def __call__(self, n):
        return n + self.number

class Roll:
    def __call__(self, n, rng):
        return int(rng.integers(1_000_000))

"""


@pytest.fixture
def topology(tmp_path, monkeypatch):
    """Return a function that loads a topology from text."""
    (tmp_path / "stages_under_test.py").write_text(STAGES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def loaded(text, **variables):
        (tmp_path / "t.yaml").write_text(text.replace("$M", "stages_under_test"))
        return load("t.yaml", variables, plugins=["stages_under_test"])

    return loaded


def items(pipeline):
    with pipeline:
        return list(pipeline)


def origins(pipeline):
    with pipeline:
        return [passport.origin for _, passport in pipeline.stamped()]


def message_of(function, *arguments, **keywords):
    with pytest.raises(ConfigError) as raised:
        function(*arguments, **keywords)
    return str(raised.value)


COUNT = """
vars:
  count: 3
  more: 10
roles:
  short:
    - $M:Numbers: ${count}
    - $M:Add: {number: "${more}"}
      num_workers: 2
  long:
    replicas: 2
    stages:
      - $M:Numbers: ${count}
      - $M:Add: ${replica}
      - $M:Add
"""


def test_a_role_is_a_list_of_stages_or_a_mapping_with_stages(topology):
    roles = topology(COUNT)
    assert items(roles.pipeline("short")) == [10, 11, 12]
    assert [stage.num_workers for stage in roles.stages("short")] == [None, 2]
    assert (roles.roles["short"].replicas, roles.roles["long"].replicas) == (1, 2)
    assert items(roles.pipeline("long", 0)) == [1, 2, 3]


def test_each_replica_has_its_number_in_variables_and_passports(topology):
    assert items(topology(COUNT).pipeline("long", 1)) == [2, 3, 4]
    roles = topology("roles: {r: {replicas: 3, stages: [$M:Numbers: 1]}}")
    assert origins(roles.pipeline("r", 2)) == [Origin(os.uname().nodename, "r", 2)]
    assert origins(roles.pipeline("r", 2, host="gpu1")) == [Origin("gpu1", "r", 2)]


def test_given_variables_take_the_place_of_the_files(topology):
    assert items(topology(COUNT, count=2, more=0).pipeline("short")) == [0, 1]


def test_the_seed_of_the_file_is_that_of_its_pipelines(topology):
    text = "seed: {}\nroles: {{r: [$M:Numbers: 2, $M:Roll]}}"
    first, again, other = (items(topology(text.format(seed)).pipeline("r")) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("isolated", [False, True])
def test_a_script_takes_a_role_from_a_file(isolated, tmp_path):
    (tmp_path / "t.yaml").write_text(
        "vars: {size: 2}\nroles: {r: [ImageFileReader: {data_dir: 'highway:photos/val', batch_size: '${size}', shape: [8, 9], epochs: 1}]}"
    )
    with Pipeline.from_yaml(tmp_path / "t.yaml", role="r", isolated=isolated, size=3) as pipeline:
        images, labels = pipeline.dequeue()
        assert images.flags.writeable  # from another process, too: its memory is lent until the images are gone
    assert (images.shape, labels.shape) == ((3, 8, 9, 3), (3,))


def test_checking_needs_no_data_and_returns_all_that_is_wrong(topology):
    roles = topology(
        "roles:\n"
        "  a:\n"
        "    - ImageFileReader: {data_dir: /nowhere, batch_size: 1, shape: [8, 8]}\n"
        "    - $M:Add: x\n"
        "    - $M:Ad\n"
        "  b:\n"
        "    - $M:Numbers: 1\n"
        "    - $M:Numbers: 1\n"
        "  c: [$M:Numbers: 1]\n"
    )
    errors = [str(error) for error in check(roles)]
    assert len(errors) == 3
    assert errors[0].startswith("t.yaml:4: roles.a[1].stages_under_test:Add: expected int, got str 'x'")
    assert errors[1].startswith("t.yaml:5: roles.a[2]: stages_under_test has no class or function 'Ad'")
    assert errors[2].startswith("t.yaml:6: roles.b: ")
    assert "only the first stage can be" in errors[2]
    assert message_of(roles.stages, "a") == errors[0]
    assert message_of(roles.pipeline, "b") == errors[2]
    assert roles.stages("c")[0] == Stage(roles.stages("c")[0].op)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.yaml: expected a mapping with the key roles, got null"),
        ("- a", "t.yaml:1: expected a mapping with the key roles, got a list of 1"),
        ("vars: {}", "t.yaml:1: the key 'roles' is missing"),
        ("roles: {}", "t.yaml:1: roles: there are no roles"),
        ("roles: []", "t.yaml:1: roles: expected mapping, got a list of 0"),
        ("roles:\n  r:", "t.yaml:2: roles.r: expected a list of stages, or a mapping with the key stages; got null"),
        ("roles:\n  r:\n    stage: []", "t.yaml:3: roles.r.stage: unknown key 'stage'; did you mean stages?"),
        (
            "roles:\n  r:\n    isolated: true",
            "t.yaml:3: roles.r.isolated: a role already has its own process, so remove this key; a training script that runs a "
            "role writes Pipeline.from_yaml(..., isolated=True)",
        ),
        ("roles:\n  r: {replicas: 2}", "t.yaml:2: roles.r: the key 'stages' is missing (only an external role may have none)"),
        ("roles:\n  r:\n    replicas: 0\n    stages: []", "t.yaml:3: roles.r.replicas: expected int >= 1, got int 0"),
        ("role:\n  r: []", "t.yaml:1: role: unknown key 'role'; did you mean roles?"),
        ("roles: {r: []}\nseed: x", "t.yaml:2: seed: expected int, got str 'x'"),
        ("roles: {r: []}\nvars: [a]", "t.yaml:2: vars: expected mapping, got a list of 1"),
        (
            "roles: {r: {replicas: '${n}', stages: []}}",
            "t.yaml:1: roles.r.replicas: unknown variable 'n'; define it under vars, as  vars: {n: ...},  or write a default: ${n:default}",
        ),
    ],
)
def test_a_file_of_another_form_is_refused_with_its_line(topology, text, message):
    assert message_of(topology, text) == message


def test_unknown_names_are_refused_and_the_known_ones_suggested(topology):
    assert message_of(topology, COUNT, cout=1) == "t.yaml: vars has no variable 'cout' to set; did you mean count?"
    assert message_of(topology(COUNT).role, "shrt") == "t.yaml: no role 'shrt'; did you mean short?"
    assert message_of(topology(COUNT).pipeline, "x") == "t.yaml: no role 'x'; expected one of long, short"


def test_an_empty_role_is_no_pipeline(topology):
    assert message_of(topology("roles:\n  r: []").pipeline, "r") == "t.yaml:2: roles.r: a pipeline needs at least one stage, a source"


def test_a_training_script_takes_a_role_with_its_replica_and_plugins(tmp_path, monkeypatch):
    (tmp_path / "my_stages.py").write_text("class Twice:\n    def __call__(self, n):\n        return 2 * n\n")
    (tmp_path / "t.yaml").write_text(
        "vars: {size: 1}\nroles: {r: {replicas: 2, stages: [Noise: {shape: ['${size}', '${replica}'], count: 1}, 'my_stages:Twice']}}"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with Pipeline.from_yaml(str(tmp_path / "t.yaml"), "r", replica=1, plugins=["my_stages"], size=3) as pipeline:
        assert [(len(item), passport.origin.replica) for item, passport in pipeline.stamped()] == [(2, 1)]
    with pytest.raises(ConfigError, match="allow the module with"):
        Pipeline.from_yaml(str(tmp_path / "t.yaml"), "r")


def test_a_training_script_takes_a_role_from_several_files(tmp_path):
    (tmp_path / "t.yaml").write_text("vars: {size: 1}\nroles: {r: [Noise: {shape: ['${size}'], count: 1}]}")
    (tmp_path / "over.yaml").write_text("vars: {size: 3}")
    with Pipeline.from_yaml([tmp_path / "t.yaml", tmp_path / "over.yaml"], "r") as pipeline:
        assert [item[0].shape for item in pipeline] == [(3,)]


@pytest.mark.parametrize(
    ("stages", "needs"),
    [
        ("[{Reader: {dataset: {Npy: x.npy}}}, {Shuffle: 9}, {Batch: 8}]", "needs the states of all ranks, because Shuffle holds items"),
        (
            "[{Reader: {dataset: {Npy: x.npy}}}, {Identity: {}, drops: true}]",
            "needs the states of all ranks, because Identity drops or skips items",
        ),
        (
            "[{Reader: {dataset: {Npy: x.npy}}}, {Identity: {}, ordered: false}]",
            "needs the states of all ranks, because Identity keeps no order",
        ),
        (
            "[{Reader: {dataset: {Npy: x.npy}, batch_size: 8}}, Unbatch]",
            "needs the states of all ranks, because Unbatch splits batches",
        ),
        (
            "[{Reader: {dataset: {Npy: x.npy}, batch_size: 8}}, Identity, Unbatch]",
            "is possible only between epochs, because Unbatch keeps parts of items, or data of one rank only",
        ),
        (
            "[{Reader: {dataset: {Npy: x.npy}, shuffle: blocks}}, {Batch: 8}]",
            "is possible only between epochs, because shuffle='blocks' assigns separate blocks to each rank",
        ),
        ("[{Reader: {dataset: {Npy: x.npy}}}, {Take: 9}]", "is impossible, because Take carries data from one epoch to the next"),
        (
            "[{Concat: [{Reader: {dataset: {Npy: x.npy}}}, {Reader: {dataset: {Npy: x.npy}, shuffle: blocks}}]}]",
            "is possible only between epochs, because shuffle='blocks' assigns separate blocks to each rank",
        ),
        ("[{Concat: [{Reader: {dataset: {Npy: x.npy}}}, {Reader: {dataset: {Npy: x.npy}}}]}]", ""),
        (
            "[{Zip: [{Reader: {dataset: {Npy: x.npy}}}, {Reader: {dataset: {Npy: x.npy}}}]}, {Batch: 8}]",
            "needs the states of all ranks, because Batch holds items",
        ),
        (
            "[{Concat: [{Reader: {dataset: {Npy: x.npy}}}, {Noise: {shape: [2], count: 9}}]}, {Batch: 8}]",
            "is possible only between epochs, because Concat (sources[1] is not a reader) keeps parts of items, or data of one rank only",
        ),
        (
            "[{Mix: {sources: [{Reader: {dataset: {Npy: x.npy}}}, {Reader: {dataset: {Npy: x.npy}}}], stop: first}}]",
            "is impossible, because Mix has a position that fits only its rank",
        ),
        ("[{Reader: {dataset: {Npy: x.npy}, batch_size: 8}}, Identity]", ""),
        ("[{Reader: {dataset: {Npy: x.npy}}}, {Batch: 8}, {ContactSheet: out.png}]", ""),  # a sink
        ("[{Reader: {dataset: {Npy: x.npy}}}, {Batch: 8}, {Benchmark: 9}]", ""),  # a stage without a state
    ],
)
def test_a_check_says_what_a_resume_on_another_number_of_ranks_needs(topology, stages, needs):
    found = topology(f"roles: {{train: {stages}}}")
    assert check(found) == []
    said = [line for line in sentences(found) if "another number of ranks" in line]
    assert said == ([f"  resume on another number of ranks {needs}"] if needs else [])
