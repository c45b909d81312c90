"""``highway launch`` as a user meets it: what it says of engines, files and options, and the quickstart on this machine."""

import json

import pytest
import yaml
from topologies import HOME

from highway.run.engines import RenderingEngine
from highway.run.launchers.table import ENGINES

pytestmark = pytest.mark.usefixtures("folder")

FEED = """
hosts: {storage: 10.0.0.1, gpu: 10.0.0.2}
links: {raw: {from: numbers, to: trainer, port: 5555}}
roles:
  numbers: {hosts: storage, stages: [Noise: {shape: [2, 2], count: 3}, ZMQSink: {link: raw}]}
  trainer: {hosts: gpu, stages: [ZMQSource: {link: raw}, Benchmark: 9]}
"""
LINKS = "links: {raw: {from: numbers, to: worker, port: 5555}, done: {from: worker, to: trainer, port: 5556, bind: to}}"
ROLES = f"""{LINKS}
roles:
  numbers: [Noise: {{shape: [2, 2], count: 3}}, ZMQSink: {{link: raw}}]
  worker: {{OWN, stages: [ZMQSource: {{link: raw}}, Identity, ZMQSink: {{link: done}}]}}
  trainer: [ZMQSource: {{link: done}}, Benchmark: 9]
"""


@pytest.fixture
def write(write):
    """Write a topology, as ``t.yaml`` if not said otherwise."""
    return lambda text, name="t.yaml": write(text, name)


def test_help_says_where_roles_can_run(ask):
    code, out, _ = ask("launch", "--help")
    assert code == 0
    text = " ".join(out.split())
    assert all(f"{engine.name}: {engine.what}" in text for engine in ENGINES.values())


def test_an_engine_that_there_is_not_is_refused_with_those_that_there_are(ask, write):
    code, _, error = ask("launch", write(FEED), "--on", "nomad")
    assert code == 2
    assert f"argument --on: invalid choice: 'nomad' (choose from {', '.join(map(repr, ENGINES))})" in error


@pytest.mark.parametrize(
    ("option", "value", "of"),
    [("--cluster", "10.0.0.1:6379", "ray"), ("--folder", "runs", "slurm"), ("--claim", "sets:/data", "kubernetes")],
)
def test_an_option_of_another_engine_is_refused(ask, write, option, value, of):
    code, _, error = ask("launch", write(FEED), "--on", "local", option, value)
    assert code == 2 and error == f"highway: {option} is an option of --on {of}; remove it, or use another engine than local\n"


def test_where_to_run_has_to_be_said(ask, write):
    code, _, error = ask("launch", write(FEED))
    assert code == 2 and "the following arguments are required: --on" in error


@pytest.mark.parametrize("engine", [engine.name for engine in ENGINES.values() if isinstance(engine, RenderingEngine)])
def test_an_engine_that_writes_files_asks_where(ask, write, engine):
    said = f"highway: --on {engine} writes files; pass --render DIR, the folder for the files, or --dry-run to print them\n"
    assert ask("launch", write(FEED), "--on", engine) == (2, "", said)


def test_check_says_what_an_engine_cannot_do(ask, write):
    shm = FEED.replace("port: 5555", "transport: shm").replace("hosts: gpu", "hosts: storage")
    assert ask("check", write(shm))[0] == 0
    said = "a link over shm works only within one host, but each process has its own pod; use tcp with a port"
    assert ask("check", "t.yaml", "--on", "kubernetes") == (2, "", f"highway: t.yaml:3: links.raw.transport: {said}\n")
    assert ask("check", write(FEED), "--on", "kubernetes")[1].endswith("\nt.yaml: no errors, also for kubernetes\n")


def test_a_dry_run_shows_files_and_writes_none(ask, write, folder):
    code, out, _ = ask("launch", write(FEED), "--on", "kubernetes", "--dry-run", "--render", "out")
    assert code == 0 and not (folder / "out").exists()
    assert {each["kind"] for each in yaml.safe_load_all(out.replace("\n# ", "\n---\n# ")) if each} >= {"ConfigMap", "Service", "Job"}


def test_the_units_of_all_hosts_are_written(ask, write, folder):
    code, out, _ = ask("launch", write(FEED), "--on", "systemd", "--render", "units", "--metrics", "9400")
    assert code == 0
    assert out.split() == ["units/storage/highway-t.service", "units/gpu/highway-t.service"]
    for host in ("storage", "gpu"):
        (command,) = (line for line in (folder / f"units/{host}/highway-t.service").read_text().splitlines() if "ExecStart" in line)
        assert command.endswith(f" run {folder}/t.yaml --metrics=9400 --host {host}")


def test_a_file_without_hosts_has_one_unit(ask, write):
    assert (
        ask("launch", write("roles: {r: [Noise: {shape: [2], count: 1}]}"), "--on", "systemd", "--render", ".")[1] == "highway-t.service\n"
    )


def test_a_role_that_no_units_host_would_run_is_refused(ask, write, folder):
    said = "highway: t.yaml:6: roles.trainer: no unit would run this role, because it has no hosts; set hosts\n"
    text = FEED.replace("{hosts: gpu, stages: [ZMQSource: {link: raw}, Benchmark: 9]}", "[ZMQSource: {link: raw}, Benchmark: 9]")
    assert ask("launch", write(text), "--on", "systemd", "--render", "units") == (2, "", said)
    assert not (folder / "units").exists()


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ("resources: {cpus: 0}", "resources.cpus: expected float > 0.0, got int 0"),
        ("resources: {cpus: many}", "resources.cpus: expected float or null, got str 'many'"),
        ("resources: {gpus: 1.5}", "resources.gpus: expected int, got float 1.5"),
        ("resources: {gpus: -1}", "resources.gpus: expected int >= 0, got int -1"),
        ("resources: {memory: 100}", "resources.memory: unknown key 'memory'; did you mean memory_mb?"),
        ("resources: {labels: [fast]}", "resources.labels: expected mapping, got a list of 1"),
        ("resources: {labels: {disk: 1}}", "resources.labels.disk: expected str, got int 1; put it in quotes to make it text"),
        ("autoscale: 4", "autoscale: expected mapping, got int 4"),
        ("autoscale: {min: 1}", "autoscale: the key 'max' is missing"),
        ("autoscale: {min: 0, max: 4}", "autoscale.min: expected int >= 1, got int 0"),
        ("autoscale: {min: 4, max: 2}", "autoscale: min is 4, but max is 2"),
        ("autoscale: {min: 1, max: 4, grow_s: 0}", "autoscale.grow_s: expected float > 0.0, got int 0"),
        ("autoscale: {min: 1, max: 4, shrink_s: 4000}", "autoscale.shrink_s: expected float <= 3600.0, got int 4000"),
        ("replicas: 9, autoscale: {min: 1, max: 4}", "autoscale: the role starts with 9 replicas; expected 1 to 4"),
    ],
)
def test_what_a_role_needs_and_how_it_scales_is_checked_wherever_it_runs(ask, write, own, said):
    code, _, error = ask("launch", write(ROLES.replace("OWN", own)), "--on", "kubernetes", "--dry-run")
    assert (code, error) == (2, f"highway: t.yaml:4: roles.worker.{said}\n")


@pytest.mark.parametrize(
    ("role", "said"),
    [
        ("numbers", "only a role that receives and sends on links can have autoscale, but numbers does not receive on a link"),
        ("trainer", "only a role that receives and sends on links can have autoscale, but trainer does not send on a link"),
    ],
)
def test_only_roles_that_map_scale(ask, write, role, said):
    text = yaml.safe_load(ROLES.replace("OWN", "replicas: 1"))
    text["roles"][role] = {"stages": text["roles"][role], "autoscale": {"min": 1, "max": 2}}
    code, _, error = ask("launch", write(yaml.safe_dump(text)), "--on", "kubernetes", "--dry-run")
    assert code == 2 and said in error


def test_a_role_that_opens_a_port_does_not_scale(ask, write):
    text = ROLES.replace("bind: to", "bind: from").replace("OWN", "restart: on-failure, autoscale: {min: 1, max: 2}")
    code, _, error = ask("launch", write(text), "--on", "kubernetes", "--dry-run")
    said = "worker binds the link done, so other roles need the address of each replica; bind the link on the other side"
    assert (code, error) == (2, f"highway: t.yaml:4: roles.worker.autoscale: {said}\n")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            "kind: publish",
            "each replica of worker receives every item that the link raw publishes, so more replicas would not be faster; "
            "set kind: push for the link",
        ),
        (
            "codec: msgpack",
            "replicas of worker can start and end during the run, but the codec msgpack of the link raw cannot announce this to the "
            "other end; use another codec",
        ),
    ],
)
def test_a_role_whose_replicas_cannot_come_and_go_does_not_scale(ask, write, raw, said):
    text = ROLES.replace("port: 5555", f"port: 5555, {raw}").replace("OWN", "autoscale: {min: 1, max: 2}")
    assert ask("check", write(text)) == (2, "", f"highway: t.yaml:4: roles.worker.autoscale: {said}\n")


def test_a_folder_that_cannot_be_written_into_is_refused(ask, write, folder):
    (folder / "taken").write_text("")
    said = "highway: --render taken: taken/config-map.yaml cannot be written: File exists\n"
    assert ask("launch", write(FEED), "--on", "kubernetes", "--render", "taken") == (2, "", said)


@pytest.mark.parametrize("claim", ["data", "data:", ":/data", "data:data", "Data:/data", "data:/", "data:/a:ro"])
def test_a_claim_without_a_name_or_a_path_is_refused(ask, write, claim):
    code, _, error = ask("launch", write(FEED), "--on", "kubernetes", "--dry-run", "--claim", claim)
    assert code == 2 and f"argument --claim: invalid claim, NAME:/PATH, value: '{claim}'" in error


@pytest.mark.slow
def test_the_quickstart_runs_on_this_machine_as_by_run(call, write):
    file = write((HOME / "pipelines/quickstart.yaml").read_text(), name=None)  # one of its own, as are the paths of its sockets
    code, out, error = call("launch", file, "--on", "local", "--set", "epochs=2", "--set", "transport=ipc", "--json")
    assert code == 0, error
    found = json.loads(out)
    assert {one["name"] for one in found["replicas"]} == {"reader", "worker[0]", "worker[1]", "trainer"}
    assert [(link["link"], link["missing"]) for link in found["links"]] == [("raw", 0), ("augmented", 0)]
