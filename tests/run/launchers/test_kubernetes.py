"""``highway launch --on kubernetes --render``: manifests that a reader can read, that the schemas take, and whose commands highway runs.

None of them was applied to a cluster: there is none here. What needs the schemas is run by ``tox -e launchers-kubernetes``.
"""

import argparse
import copy
import re
from pathlib import Path

import pytest
import yaml
from manifest_lints import lint

from highway.cli import main
from highway.cli.launch import add_arguments as add_launch_arguments
from highway.cli.run import add_arguments
from highway.topology import load_checked
from highway.topology.checking import link_ends

ROOT = Path(__file__).parents[3]
FEED = ROOT / "tests/run/launchers/kubernetes/feed.yaml"
GOLDEN = FEED.with_suffix("")
OPTIONS = ["--image", "registry.example.org/highway:1", "--claim", "imagenet:/data"]
VERSIONS = ["1.29", "1.33", "1.37"]
FILES = [FEED, ROOT / "pipelines/quickstart.yaml", ROOT / "pipelines/imagenet.yaml", ROOT / "pipelines/ranks.yaml"]

ROLES = """
links: {{raw: {{from: numbers, to: worker, port: 5555}}, done: {{from: worker, to: trainer, port: 5556, bind: to}}}}
roles:
  numbers: [Noise: {{shape: [2, 2], count: 1}}, ZMQSink: {{link: raw}}]
  worker: {{{worker}, stages: [ZMQSource: {{link: raw}}, Identity, ZMQSink: {{link: done}}]}}
  trainer: [ZMQSource: {{link: done}}, Benchmark: 9]
"""


@pytest.fixture
def render(tmp_path, monkeypatch):
    """Render a file, or a text, and return the objects by kind and name."""
    monkeypatch.chdir(tmp_path)

    def render(file, *options):
        if not isinstance(file, Path):
            (tmp_path / "t.yaml").write_text(file)
            file = tmp_path / "t.yaml"
        assert main(["launch", str(file), "--on", "kubernetes", "--render", "out", *options]) == 0
        resources = yaml.safe_load((tmp_path / "out/kustomization.yaml").read_text())["resources"]
        assert sorted([*resources, "kustomization.yaml"]) == sorted(path.name for path in (tmp_path / "out").iterdir())
        objects = [each for name in resources for each in yaml.safe_load_all((tmp_path / "out" / name).read_text())]
        return {(each["kind"], each["metadata"]["name"]): each for each in objects}

    return render


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Return what is said of a text that cannot be rendered."""
    monkeypatch.chdir(tmp_path)

    def refused(text, *options):
        (tmp_path / "t.yaml").write_text(text)
        assert main(["launch", "t.yaml", "--on", "kubernetes", "--render", "out", *options]) == 2
        assert not (tmp_path / "out").exists()
        return capsys.readouterr().err.removeprefix("highway: ").rstrip("\n")

    return refused


def workload(objects, name):
    (found,) = (each for (kind, own), each in objects.items() if own == name and "template" in each.get("spec", {}))
    return found


def container(objects, name):
    return workload(objects, name)["spec"]["template"]["spec"]["containers"][0]


def test_the_manifests_are_those_of_the_golden_set(render, tmp_path):
    """A change that is meant: run the command at the top of feed.yaml, and read the difference."""
    render(FEED, *OPTIONS)
    rendered, golden = ({path.name: path.read_text() for path in folder.iterdir()} for folder in (tmp_path / "out", GOLDEN))
    assert rendered == golden


def test_the_command_that_makes_the_golden_set_stands_in_its_file():
    words = re.sub(r"\n#|\\", " ", FEED.read_text().split("highway launch ")[1].split("\n\n")[0]).split()
    assert words == [str(FEED.relative_to(ROOT)), "--on", "kubernetes", "--render", str(GOLDEN.relative_to(ROOT)), *OPTIONS]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_the_schemas_of_three_versions_take_what_is_rendered(render, file, version):
    validator = pytest.importorskip("kubernetes_validate", reason="no kubernetes-validate: tox -e launchers-kubernetes has it")
    objects = render(file, *OPTIONS)
    assert len(objects) > 5
    for (kind, _), each in objects.items():
        if kind != "PodMonitor":  # of the Prometheus Operator, whose schema is not among those of Kubernetes
            validator.validate(each, version, strict=True)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_the_lints_find_nothing(render, file):
    assert lint([*render(file, *OPTIONS).values()]) == []


def _other_labels(pod):
    pod["metadata"]["labels"] = {"app": "other"}


def _bad_quantity(pod):
    pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "four"}}


def _bad_policy(pod):
    pod["spec"]["restartPolicy"] = "OnFailure"


def _no_volume(pod):
    del pod["spec"]["volumes"][0]


MISTAKES = [
    (_other_labels, "selects"),
    (_bad_quantity, "limits cpu: 'four'"),
    (_bad_policy, "restartPolicy OnFailure"),
    (_no_volume, "topology"),
]


@pytest.mark.parametrize(("spoil", "said"), MISTAKES, ids=lambda value: getattr(value, "__name__", ""))
def test_the_lints_find_what_the_schemas_let_pass(render, spoil, said):
    objects = copy.deepcopy(render(FEED, *OPTIONS))
    spoil(workload(objects, "feed-reader")["spec"]["template"])
    assert any(said in sentence for sentence in lint([*objects.values()]))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_highway_takes_the_commands_and_the_merged_files_of_all_pods(render, tmp_path, file):
    objects = render(file)
    maps = [each["data"] for (kind, _), each in objects.items() if kind == "ConfigMap"]
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    for each in objects.values():
        if "template" in each.get("spec", {}):
            spec = each["spec"]["template"]["spec"]
            run, *arguments = spec["containers"][0]["args"]
            options = parser.parse_args([word.replace("$(REPLICA)", "0") for word in arguments])
            assert run == "run" and [Path(name).name for name in options.files] == list(maps[0])
            assert spec["terminationGracePeriodSeconds"] > options.drain_timeout + 20
    for name, text in maps[0].items():
        (tmp_path / name).write_text(text)
    merged, plain = load_checked([tmp_path / name for name in maps[0]]), load_checked(file)
    for role in merged.roles.values():
        for process in role.processes if not role.external else ():
            ours, theirs = (_plain(each.process_spec(role.name, process.replica).stages) for each in (merged, plain))
            assert ours == theirs


def _plain(value):
    """Return a value without what depends on where processes run, on how many of them there are at least, and on the name of the file."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items() if key not in ("url", "tap", "senders", "receivers", "topology")}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def urls(topology, role, replica=0):
    return [end.link.urls for end in link_ends(topology, [topology.roles[role].processes[replica]])]


def test_pods_find_each_other_by_the_names_of_the_service(render, tmp_path):
    data = render(FEED)["ConfigMap", "feed"]["data"]
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    topology = load_checked([tmp_path / name for name in data])
    assert urls(topology, "reader", 1) == [("zrpush://0.0.0.0:5555",)]
    assert urls(topology, "worker") == [
        ("zrpull://feed-reader-0.feed:5555", "zrpull://feed-reader-1.feed:5555"),
        ("zpush://feed-trainer-0.feed:5557",),
    ]
    assert urls(topology, "trainer") == [("zpull://0.0.0.0:5557",)]


@pytest.mark.parametrize(
    ("worker", "kind", "expected"),
    [
        ("restart: never", "Job", {"backoffLimitPerIndex": 0, "maxFailedIndexes": 0}),
        ("restart: on-failure", "Job", {"backoffLimitPerIndex": 10, "maxFailedIndexes": 0}),
        ("restart: {when: on-failure, at_most: 2}, replicas: 3", "Job", {"backoffLimitPerIndex": 2, "completions": 3, "parallelism": 3}),
        ("restart: always, replicas: 3", "StatefulSet", {"replicas": 3, "serviceName": "t", "podManagementPolicy": "Parallel"}),
        ("restart: on-failure, autoscale: {min: 1, max: 4}, replicas: 2", "Deployment", {"replicas": 2}),
    ],
)
def test_when_a_role_is_started_again_says_what_kind_of_object_starts_its_pods(render, worker, kind, expected):
    found = workload(render(ROLES.format(worker=worker)), "t-worker")
    assert found["kind"] == kind
    assert {key: found["spec"].get(key) for key in expected} == expected


def test_only_a_role_that_may_be_started_again_is_so_after_an_eviction(render):
    rules = {when: workload(render(ROLES.format(worker=f"restart: {when}")), "t-worker")["spec"] for when in ("never", "on-failure")}
    assert "podFailurePolicy" not in rules["never"]
    assert [rule["action"] for rule in rules["on-failure"]["podFailurePolicy"]["rules"]] == ["Ignore", "FailJob"]


@pytest.mark.parametrize(("when", "stays"), [("on-failure", True), ("always", False)])
def test_a_pod_that_scales_stays_when_its_role_has_ended_since_kubernetes_would_start_it_again(render, when, stays):
    objects = render(ROLES.format(worker=f"restart: {when}, autoscale: {{min: 1, max: 4}}"))
    assert ("--stay" in container(objects, "t-worker")["args"]) is stays
    assert "--stay" not in container(objects, "t-trainer")["args"]


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ("cpus: 2", {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}),
        ("cpus: 0.0001, memory_mb: 0.5", {"requests": {"cpu": "1m", "memory": "1M"}, "limits": {"cpu": "1m", "memory": "1M"}}),
        (
            "cpus: 1.5, memory_mb: 2500000.2",
            {"requests": {"cpu": "1500m", "memory": "2500001M"}, "limits": {"cpu": "1500m", "memory": "2500001M"}},
        ),
        ("gpus: 8", {"limits": {"nvidia.com/gpu": "8"}}),
        ("gpus: 0", None),
    ],
)
def test_what_a_role_needs_is_what_its_pods_ask_for(render, needs, expected):
    objects = render(ROLES.format(worker=f"resources: {{{needs}, labels: {{a/b: c}}}}"))
    assert container(objects, "t-worker").get("resources") == expected
    assert workload(objects, "t-worker")["spec"]["template"]["spec"]["nodeSelector"] == {"a/b": "c"}


def test_the_options_of_the_command_reach_the_pods(render):
    text = "vars: {a: 1}\n" + ROLES.format(worker="replicas: 1")
    objects = render(text, "--set", "a=$(HOME) $x", "--plugin", "json", "--drain-timeout", "59.5", "--metrics", "7000-7009", "--json")
    arguments = container(objects, "t-numbers")["args"]
    assert {"--set=a=$$(HOME) $$x", "--plugin=json", "--drain-timeout=59.5", "--metrics=0.0.0.0:7000", "--json"} <= set(arguments)
    assert container(objects, "t-numbers")["ports"] == [{"name": "metrics", "containerPort": 7000}, {"containerPort": 5555}]
    assert workload(objects, "t-numbers")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 90


def test_the_port_for_metrics_is_that_of_the_file_or_one_that_no_link_has(render):
    text = ROLES.format(worker="replicas: 1")
    assert "--metrics=0.0.0.0:9401" in container(render(text.replace("5555", "9400")), "t-worker")["args"]
    assert "--metrics=0.0.0.0:9500" in container(render(f"metrics: 9500-9509{text}"), "t-worker")["args"]


@pytest.mark.parametrize("path", ["/data", "/etc/highway", "/dev/shm", "/tmp"])
def test_two_volumes_at_one_path_are_refused(write, ask, path):
    given = [write(ROLES.format(worker="replicas: 1")), "--on", "kubernetes", "--dry-run", "--claim", "a:/data", "--claim", f"b:{path}"]
    code, out, error = ask("launch", *given)
    assert (code, out) == (2, "")
    assert f"--claim b:{path}: this path already contains" in error


def test_a_claim_takes_the_place_of_a_folder_that_is_lost_with_the_pod(render):
    pod = workload(render(ROLES.format(worker="replicas: 1"), "--claim", "results:/work"), "t-trainer")["spec"]["template"]["spec"]
    (mount,) = (mount for mount in pod["containers"][0]["volumeMounts"] if mount["mountPath"] == "/work")
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == mount["name"])
    assert volume["persistentVolumeClaim"] == {"claimName": "results"}


def test_several_files_are_merged_in_the_pods_as_here(render, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "base.yaml").write_text(ROLES.format(worker="replicas: 1"))
    (tmp_path / "other/base.yaml").write_text("roles: {worker: {replicas: 3}}")
    main(["launch", "base.yaml", "other/base.yaml", "--on", "kubernetes", "--render", "out"])
    data = yaml.safe_load((tmp_path / "out/config-map.yaml").read_text())["data"]
    assert list(data) == ["1-base.yaml", "2-base.yaml", "base.yaml"]
    assert yaml.safe_load((tmp_path / "out/role-worker.yaml").read_text())["spec"]["completions"] == 3


def test_names_become_such_as_kubernetes_takes(render, tmp_path):
    (tmp_path / "2 Feeds.yaml").write_text("roles: {My_Role: [Noise: {shape: [2, 2], count: 1}]}")
    objects = render(tmp_path / "2 Feeds.yaml")
    assert ("Service", "highway-2-feeds") in objects and ("Job", "highway-2-feeds-my-role") in objects
    assert list(objects["ConfigMap", "highway-2-feeds"]["data"]) == ["1-2_Feeds.yaml", "highway-2-feeds.yaml"]


SHM = ROLES.format(worker="replicas: 1").replace("port: 5555", "transport: shm")
EXTERNAL = ROLES.format(worker="replicas: 1").replace("trainer: [", "trainer: {external: true, stages: [").replace("9]", "9]}")


REFUSED = {
    "shm": (
        SHM,
        "2: links.raw.transport: a link over shm works only within one host, but each process has its own pod; use tcp with a port",
    ),
    "url": (
        "roles: {r: [Noise: {shape: [2, 2]}, ZMQSink: 'zrpush://127.0.0.1:5555']}",
        "1: roles.r[1]: zrpush://127.0.0.1:5555 works only within one host, but each process has its own pod; "
        "use a link over tcp at both ends",
    ),
    "external": (
        EXTERNAL,
        "6: roles.trainer: this external role opens the port of the link done, but pods do not know its address; "
        "set hosts of the role to addresses that pods can reach, or set bind: from for the link",
    ),
    "never": (
        ROLES.format(worker="autoscale: {min: 1, max: 4}"),
        "5: roles.worker.autoscale: Kubernetes restarts the pods of a role with autoscale after each failure; set restart: on-failure",
    ),
    "replica": (
        ROLES.format(worker='restart: always, autoscale: {min: 1, max: 4}, env: {CUDA_VISIBLE_DEVICES: "${replica}"}'),
        "5: roles.worker.autoscale: the pods of a role with autoscale have no numbers, but the stages or env of this role use "
        "${replica}; remove autoscale or ${replica}",
    ),
    "label": (
        ROLES.format(worker="resources: {labels: {disk: fast one}}"),
        "5: roles.worker.resources.labels.disk: 'fast one' cannot be the label of a node; "
        "expected up to 63 letters, digits, '-', '_' and '.'; the key can begin with a domain and '/'",
    ),
    "clash": (
        "roles: {a_b: [Noise: {shape: [2]}], a.b: [Noise: {shape: [2]}]}",
        "1: roles.a.b: the pods of this role would be called t-a-b-0, like the pods of a_b; rename one of the two roles",
    ),
    "long": (
        f"roles: {{{'r' * 60}: [Noise: {{shape: [2]}}]}}",
        f"1: roles.{'r' * 60}: the pods of this role would be called t-{'r' * 60}-0, which is too long; use a shorter name for the role "
        f"or the file",
    ),
    "nothing": ("roles: {r: {external: true, stages: []}}", " all roles are external, so there is nothing to start"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_what_kubernetes_cannot_do_is_said_before_anything_is_written(refused, text, said):
    assert refused(text) == f"t.yaml:{said}"


@pytest.mark.slow
def test_a_topology_that_does_not_fit_into_a_config_map_is_refused(refused):
    said = refused(f"roles: {{r: [Noise: {{shape: [2]}}]}} # {'x' * 999_904}")
    assert said == "the topology has 1,000,100 bytes, but a ConfigMap can have at most 1,000,000; move long values into files of the image"


def test_a_port_for_metrics_that_is_not_fixed_is_refused(refused):
    said = refused("roles: {r: [Noise: {shape: [2]}]}", "--metrics", "0")
    assert said == "--metrics 0: Prometheus must know the port of a pod; pass a fixed port, such as 9400"


def test_the_image_of_the_dockerfile_is_what_the_manifests_expect(render):
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    template = workload(render(FEED), "feed-trainer")["spec"]["template"]["spec"]
    user, group = template["securityContext"]["runAsUser"], template["securityContext"]["runAsGroup"]
    assert f"USER {user}:{group}" in lines, "a number, since Kubernetes cannot tell whether a name is root's"
    assert f"WORKDIR {template['containers'][0]['workingDir']}" in lines
    assert 'ENTRYPOINT ["tini", "--", "highway"]' in lines and "command" not in template["containers"][0]


def test_the_manifests_of_the_page_on_kubernetes_are_yaml_whose_command_highway_takes():
    page = (ROOT / "docs/howto/kubernetes.md").read_text()
    blocks = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)]
    (job,) = (block for block in blocks if block.get("kind") == "RayJob")
    highway, launch, *arguments = job["spec"]["entrypoint"].split()
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_launch_arguments(parser)
    assert (highway, launch, parser.parse_args(arguments).on) == ("highway", "launch", "ray")
    groups = [job["spec"]["rayClusterSpec"]["headGroupSpec"], *job["spec"]["rayClusterSpec"]["workerGroupSpecs"]]
    assert len({group["template"]["spec"]["containers"][0]["image"] for group in groups}) == 1
