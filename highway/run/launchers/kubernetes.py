"""Kubernetes: render a topology as manifests for ``kubectl apply -k``. highway itself never contacts a cluster.

Each process has its own pod. Pods find each other by the names that a headless service gives them, and by the ports in the topology file.
A second topology file contains these names. highway merges it over the user's file. Kubernetes restarts a pod even after a normal end,
unless the pod belongs to a Job. Therefore, the kind of object depends on the role:

- A role with ``autoscale`` is a Deployment with a HorizontalPodAutoscaler. A pod whose role has ended remains until the user
  deletes the Deployment.
- A role with ``restart: always`` is a StatefulSet.
- Any other role is an Indexed Job, which replaces a failed pod as often as the file allows.
"""

from __future__ import annotations

import argparse
import math
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import highway
from highway.errors import ConfigError
from highway.run.engines import Option, RenderingEngine
from highway.run.launcher import STOP_SECONDS, file_arguments
from highway.run.scaling import LOAD
from highway.topology import Topology, document
from highway.topology.checking import link_ends
from highway.topology.plan import Plan, Role, names, port_range
from highway.topology.spec import parse_metrics
from highway.wire.address import is_loopback

LONGEST = 50  # maximum characters of a name: Kubernetes appends up to 13, and allows 63 in host names and values of labels

_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def label(text: str) -> str:
    """Convert a text to a name for Kubernetes: lower-case letters, digits and hyphens, starting with a letter."""
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return found if found[:1].isalpha() else f"highway-{found}".rstrip("-")


def problems(topology: Topology) -> Iterator[ConfigError]:
    """Yield an error for each feature of a topology that Kubernetes does not support."""
    ours = [role for role in topology.roles.values() if not role.external]
    if not ours:
        yield ConfigError(f"{topology.path}: all roles are external, so there is nothing to start")
    yield from _unreachable(topology.plan)
    yield from _within_one_host(topology, ours)
    yield from _bad_names(topology.plan, ours)
    for role in ours:
        yield from _bad_labels(topology.plan, role)
        yield from _cannot_scale(topology, role)


def _unreachable(plan: Plan) -> Iterator[ConfigError]:
    for link, spec in plan.links.items():
        if all(plan.roles[name].external for side in ("from", "to") for name in names(spec, side)):
            continue
        if not spec.over.has_port:
            message = f"a link over {spec.transport} works only within one host, but each process has its own pod; use tcp with a port"
            yield (plan.location / "links" / link / "transport").error(message)
            continue
        for role in (plan.roles[name] for name in names(spec, spec.bind)):
            if role.external and (not role.hosts or any(is_loopback(plan.hosts[host].address) for host in role.hosts)):
                opens = f"this external role opens the port of the link {link}, but pods do not know its address"
                other = "to" if spec.bind == "from" else "from"
                message = f"{opens}; set hosts of the role to addresses that pods can reach, or set bind: {other} for the link"
                yield (plan.location / "roles" / role.name).error(message)


def _within_one_host(topology: Topology, roles: Sequence[Role]) -> Iterator[ConfigError]:
    """Yield an error for each URL in stages that other pods cannot reach."""
    for end in link_ends(topology, [role.processes[0] for role in roles]):
        for transport, location in zip(end.link.transports, end.link.locations, strict=True):
            if not end.name and (not transport.has_port or is_loopback(location.rpartition(":")[0] or "localhost")):
                message = "works only within one host, but each process has its own pod; use a link over tcp at both ends"
                yield end.location.error(f"{end.link} {message}")


def _bad_names(plan: Plan, roles: Sequence[Role]) -> Iterator[ConfigError]:
    called: dict[str, str] = {}
    for role in roles:
        location, name = plan.location / "roles" / role.name, f"{label(plan.name)}-{label(role.name)}"
        if len(name) > LONGEST:
            yield location.error(
                f"the pods of this role would be called {name}-0, which is too long; use a shorter name for the role or the file"
            )
        if name in called:
            yield location.error(
                f"the pods of this role would be called {name}-0, like the pods of {called[name]}; rename one of the two roles"
            )
        called[name] = role.name


def _bad_labels(plan: Plan, role: Role) -> Iterator[ConfigError]:
    for key, value in role.resources.labels.items():
        if not (_KEY.fullmatch(key) and _VALUE.fullmatch(value)):
            allowed = "up to 63 letters, digits, '-', '_' and '.'; the key can begin with a domain and '/'"
            location = plan.location / "roles" / role.name / "resources" / "labels" / key
            yield location.error(f"{value!r} cannot be the label of a node; expected {allowed}")


def _cannot_scale(topology: Topology, role: Role) -> Iterator[ConfigError]:
    if role.autoscale is None:
        return
    location = topology.plan.location / "roles" / role.name / "autoscale"
    if role.restart.when == "never":
        yield location.error("Kubernetes restarts the pods of a role with autoscale after each failure; set restart: on-failure")
    if topology.variables.mentions("replica", [role.stages, role.env]):
        yield location.error(
            "the pods of a role with autoscale have no numbers, but the stages or env of this role use ${replica}; "
            "remove autoscale or ${replica}"
        )


FILES = "/etc/highway"  # path of the topology files in pods
USER = 1000  # user ID in the Dockerfile's image
METRICS_PORT = 9400  # if a link uses this port, metrics use the next free port

Object = dict[str, Any]

_FIELDS = {  # by kind of object: the field of a pod with the index of the pod
    "StatefulSet": "metadata.labels['apps.kubernetes.io/pod-index']",
    "Job": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
}
_LOCKED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
_FOLDERS: Mapping[str, Object] = {  # writable folders: the current directory, temporary files, and shared memory
    "/work": {"name": "work", "emptyDir": {}},
    "/tmp": {"name": "tmp", "emptyDir": {}},
    "/dev/shm": {"name": "shm", "emptyDir": {"medium": "Memory"}},
}


def _render(topology: Topology, options: argparse.Namespace) -> Mapping[str, str]:
    """Return the manifests by file name: common objects, the objects of each role, and the ``kustomization.yaml`` that lists the files.

    Raises:
        ConfigError: the files are too large for a ConfigMap, the port for metrics is not fixed, or the path of a claim is taken.
    """
    app = _App(topology, options)
    files = {"config-map": [app.config_map()], "service": [app.service()], "network-policy": [app.network_policy()]}
    files |= {f"role-{label(role.name)}": list(app.workload(role)) for role in app.roles} | {"pod-monitor": [app.pod_monitor()]}
    listed = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [f"{file}.yaml" for file in files]}
    return {f"{file}.yaml": document.write(objects) for file, objects in [*files.items(), ("kustomization", [listed])]}


def _claim(text: str) -> tuple[str, str]:
    name, _, path = text.partition(":")
    if not (
        re.fullmatch(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", name) and re.fullmatch(r"/[^:]*[^:/]", path) and posixpath.normpath(path) == path
    ):
        raise ValueError
    return name, path


_claim.__name__ = "claim, NAME:/PATH,"  # argparse's messages show this name

_CLAIM = "a PersistentVolumeClaim, and the path at which all pods mount it, such as datasets:/data"
ENGINE = RenderingEngine(
    name="kubernetes",
    what="pods of Kubernetes: the manifests are written",
    problems=problems,
    render=_render,
    options=[
        Option("image", {"default": f"highway:{highway.__version__}", "help": "the container image (default: %(default)s)"}),
        Option("claim", {"metavar": "NAME:PATH", "action": "append", "type": _claim, "default": [], "help": _CLAIM}),
    ],
)


class _App:
    """A topology as objects of Kubernetes."""

    def __init__(self, topology: Topology, options: argparse.Namespace) -> None:
        self.options, self.plan = options, topology.plan
        self.name = label(topology.plan.name)
        self.roles = [role for role in topology.roles.values() if not role.external]
        self.labels = {"app.kubernetes.io/name": "highway", "app.kubernetes.io/instance": self.name}
        self.link_ports = sorted({port for role in topology.roles.values() for port in self._ports(role)})
        spec = parse_metrics(options.metrics, self.plan.metrics) if options.metrics else self.plan.metrics
        free = (port for port in range(METRICS_PORT, 65536) if port not in self.link_ports)
        self.metrics_port = port_range(spec.port)[0] if spec else next(free)
        if not self.metrics_port:
            raise ConfigError(
                f"--metrics {options.metrics}: Prometheus must know the port of a pod; pass a fixed port, such as {METRICS_PORT}"
            )

    def config_map(self) -> Object:
        """Return the ConfigMap with the topology files, by their names in pods."""
        data = {**{key: Path(file).read_text("utf-8-sig") for key, file in self._files.items()}, f"{self.name}.yaml": self._addresses()}
        if (size := sum(len(text.encode()) for text in data.values())) > 1_000_000:
            raise ConfigError(
                f"the topology has {size:,} bytes, but a ConfigMap can have at most 1,000,000; move long values into files of the image"
            )
        return {**self._head("v1", "ConfigMap", self.name), "data": data}

    def service(self) -> Object:
        """Return the service that gives pods their names. Pods have names before they are ready, because pods wait for each other."""
        ports = [{"name": "metrics", "port": self.metrics_port}]
        spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": self.labels, "ports": ports}
        return {**self._head("v1", "Service", self.name), "spec": spec}

    def network_policy(self) -> Object:
        """Return the access rules: only pods of this topology can reach the ports of links; all pods can reach the read-only metrics."""
        own = {"from": [{"podSelector": {"matchLabels": self.labels}}], "ports": [{"port": port} for port in self.link_ports]}
        ingress = [own] if self.link_ports else []
        ingress.append({"from": [{"namespaceSelector": {}}], "ports": [{"port": self.metrics_port}]})
        spec = {"podSelector": {"matchLabels": self.labels}, "policyTypes": ["Ingress"], "ingress": ingress}
        return {**self._head("networking.k8s.io/v1", "NetworkPolicy", self.name), "spec": spec}

    def pod_monitor(self) -> Object:
        """Return the object that makes the Prometheus Operator scrape the pods' metrics."""
        spec = {"selector": {"matchLabels": self.labels}, "podMetricsEndpoints": [{"port": "metrics"}]}
        return {**self._head("monitoring.coreos.com/v1", "PodMonitor", self.name), "spec": spec}

    def workload(self, role: Role) -> Iterator[Object]:
        """Yield the objects that start the pods of a role."""
        name, labels = self._name(role), self._labels(role)
        kind = "Deployment" if role.autoscale else "StatefulSet" if role.restart.when == "always" else "Job"
        template = {"metadata": {"labels": labels}, "spec": self._pod(role, kind)}
        if kind == "Job":
            yield {**self._head("batch/v1", kind, name, labels), "spec": {**_retries(role), "template": template}}
            return
        spec: Object = {"replicas": role.replicas, "selector": {"matchLabels": labels}}
        if kind == "StatefulSet":
            spec |= {"serviceName": self.name, "podManagementPolicy": "Parallel"}
        yield {**self._head("apps/v1", kind, name, labels), "spec": {**spec, "template": template}}
        if scale := role.autoscale:
            target = {"type": "AverageValue", "averageValue": f"{round(1000 * LOAD)}m"}
            metrics = [{"type": "Pods", "pods": {"metric": {"name": "highway_role_load"}, "target": target}}]
            of = {"apiVersion": "apps/v1", "kind": kind, "name": name}
            after = {"scaleUp": scale.grow_s, "scaleDown": scale.shrink_s}
            behavior = {way: {"stabilizationWindowSeconds": math.ceil(seconds)} for way, seconds in after.items()}
            spec = {"scaleTargetRef": of, "minReplicas": scale.min, "maxReplicas": scale.max, "metrics": metrics, "behavior": behavior}
            yield {**self._head("autoscaling/v2", "HorizontalPodAutoscaler", name, labels), "spec": spec}

    def _pod(self, role: Role, kind: str) -> Object:
        ports = [{"name": "metrics", "containerPort": self.metrics_port}, *({"containerPort": port} for port in self._ports(role))]
        field = _FIELDS.get(kind)
        volumes = {FILES: {"name": "topology", "configMap": {"name": self.name}}, **_FOLDERS}
        taken = {FILES: "the topology", "/dev/shm": "the memory of links and of workers", "/tmp": "temporary files of their own"}
        for number, (claim, path) in enumerate(self.options.claim):
            if path in taken:
                raise ConfigError(f"--claim {claim}:{path}: this path already contains {taken[path]} in the pods; choose another path")
            taken[path] = f"the claim {claim}"
            volumes[path] = {"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": claim}}
        container = {
            "name": "highway",
            "image": self.options.image,
            "args": [word.replace("$", "$$") for word in self._command(role, kind)] + (["--replica=$(REPLICA)"] if field else []),
            "env": [{"name": "REPLICA", "valueFrom": {"fieldRef": {"fieldPath": field}}}] if field else [],
            "workingDir": "/work",
            "ports": ports,
            "readinessProbe": {"httpGet": {"path": "/health", "port": "metrics"}},
            "resources": _resources(role),
            "securityContext": _LOCKED,
            "volumeMounts": [{"name": volume["name"], "mountPath": path} for path, volume in volumes.items()],
        }
        spec = {
            "restartPolicy": "Never" if kind == "Job" else "Always",
            "subdomain": self.name if kind == "Job" else None,
            "terminationGracePeriodSeconds": math.ceil(self.options.drain_timeout) + STOP_SECONDS,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "nodeSelector": role.resources.labels,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_filled(container)],
            "volumes": list(volumes.values()),
        }
        return _filled(spec)

    def _command(self, role: Role, kind: str) -> Sequence[str]:
        options, files = self.options, [f"{FILES}/{file}" for file in (*self._files, f"{self.name}.yaml")]
        told = [
            f"--role={role.name}",
            "--any-order",
            f"--metrics=0.0.0.0:{self.metrics_port}",
            f"--drain-timeout={options.drain_timeout:g}",
        ]
        stays = kind == "Deployment" and role.restart.when != "always"
        return ["run", *files, *file_arguments(options), *told, *(["--json"] if options.json else []), *(["--stay"] if stays else [])]

    @cached_property
    def _files(self) -> Mapping[str, str]:
        """The paths of the user's topology files, by their names in pods."""
        files = [str(file) for file in self.options.files]
        return {f"{number}-{re.sub(r'[^A-Za-z0-9._-]', '_', Path(file).name)}": file for number, file in enumerate(files, 1)}

    def _addresses(self) -> str:
        """Return the text of the topology file in which the hosts are the names of the pods."""
        hosts: Object = {}
        roles: Object = {}
        for role in self.roles:
            pods = [f"{self._name(role)}-{number}" for number in range(0 if role.autoscale else role.replicas)]
            hosts |= {pod: {"address": f"{pod}.{self.name}", "listen": "0.0.0.0"} for pod in pods}
            is_list = len(role.location.path) == 2  # ``role: [stages]``: merging replaces this list by a mapping, so repeat the stages
            own = {"hosts": pods, "replicas": role.autoscale.min if role.autoscale else role.replicas}
            roles[role.name] = {**own, **({"stages": role.stages} if is_list else {})}
        return document.write([{"hosts": hosts, "roles": roles}])

    def _ports(self, role: Role) -> Sequence[int]:
        """Return the ports that a pod of a role opens for links. Each pod has its own address, and uses the first port of each range."""
        links = self.plan.links.values()
        bound = [spec.port for spec in links if spec.over.has_port and role.name in names(spec, spec.bind)]
        return [port_range(port)[0] for port in [*bound, *(spec.tap for spec in links if role.name in names(spec, "from"))] if port]

    def _name(self, role: Role) -> str:
        return f"{self.name}-{label(role.name)}"

    def _labels(self, role: Role) -> Mapping[str, str]:
        return {**self.labels, "app.kubernetes.io/component": label(role.name)}

    def _head(self, version: str, kind: str, name: str, labels: Mapping[str, str] | None = None) -> Object:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels or self.labels}}


def _retries(role: Role) -> Object:
    """Return the settings of a Job: the number of pods, and how often a failed pod is replaced. An eviction does not count as a failure."""
    again = role.restart.when != "never"
    wrong = {"action": "FailJob", "onExitCodes": {"containerName": "highway", "operator": "In", "values": [2]}}
    evicted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return {
        "completionMode": "Indexed",
        "completions": role.replicas,
        "parallelism": role.replicas,
        "backoffLimitPerIndex": role.restart.at_most if again else 0,
        "maxFailedIndexes": 0,
        "podReplacementPolicy": "Failed",
        **({"podFailurePolicy": {"rules": [evicted, wrong]}} if again else {}),
    }


def _resources(role: Role) -> Object:
    """Return the resource requests and limits of a pod. The process in the pod gets the number of its cores from the limits."""
    needs = role.resources
    cores = math.ceil(1000 * (needs.cpus or 0))
    given = {"cpu": f"{cores}m" if cores % 1000 else str(cores // 1000), "memory": f"{math.ceil(needs.memory_mb or 0)}M"}
    asked = {name: given[name] for name, need in (("cpu", needs.cpus), ("memory", needs.memory_mb)) if need}
    gpus = {"nvidia.com/gpu": str(needs.gpus)} if needs.gpus else {}
    return _filled({"requests": asked, "limits": {**asked, **gpus}})


def _filled(mapping: Mapping[str, Any]) -> Object:
    return {key: value for key, value in mapping.items() if value not in (None, {}, [])}
