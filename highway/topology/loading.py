"""Load a topology from files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from highway.errors import ConfigError
from highway.parameters.location import Location, did_you_mean, show
from highway.topology import document
from highway.topology.checking import check, check_names
from highway.topology.components import Components
from highway.topology.model import Topology
from highway.topology.plan import Plan, Role
from highway.topology.registry import Registry
from highway.topology.spec import FileSpec, HostSpec, MetricsSpec, RestartSpec, RoleSpec
from highway.topology.variables import Variables


def file_tree() -> str:
    """Return a text that identifies the file tree of this process; empty if the file tree is unknown.

    If two processes have equal texts, the same path means the same file in both processes. The text depends on the name and the boot ID of
    the machine, and on the mount namespace and the root folder of the process.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        mounts, root = os.stat("/proc/self/ns/mnt"), os.stat("/")
    except OSError:
        return ""
    parts = f"{boot} {os.uname().nodename} {mounts.st_ino} {root.st_dev} {root.st_ino}"
    return hashlib.blake2s(parts.encode(), digest_size=8).hexdigest()


LONGEST_PATH = 180  # maximum bytes of the path in an identity, because an end of a link announces at most 255 bytes
MOST = 20  # maximum number of errors in a message, because the first errors often cause the later errors


def load_checked(
    path: str | Path | Sequence[str | Path],
    variables: Mapping[str, Any] | None = None,
    plugins: Collection[str] = (),
    look_only: bool = False,
) -> Topology:
    """Read a topology with :func:`load`, and raise an error if :func:`check` finds errors.

    Args:
        path: As for :func:`load`.
        variables: As for :func:`load`.
        plugins: As for :func:`load`.
        look_only: As for :func:`load`.

    Raises:
        ConfigError: the topology has errors. The message lists the errors.

    >>> with open("noise.yaml", "w") as file:
    ...     text = file.write("roles: {source: [{Noise: {shape: [2], count: -1}}]}")
    >>> load_checked("noise.yaml")
    Traceback (most recent call last):
    highway.errors.ConfigError: noise.yaml:1: roles.source[0].Noise.count: expected at least 0, or null for no limit, got int -1
    """
    topology = load(path, variables, plugins, look_only)
    if errors := check(topology):
        more = [f"and {len(errors) - MOST:,} more"] if len(errors) > MOST else []
        raise ConfigError("\n".join([*map(str, errors[:MOST]), *more]))
    return topology


def load(
    path: str | Path | Sequence[str | Path],
    variables: Mapping[str, Any] | None = None,
    plugins: Collection[str] = (),
    look_only: bool = False,
) -> Topology:
    """Read a topology from one or more YAML files.

    Args:
        path: The YAML file, or several files. Several files are merged by key. If two files have the same key, two mappings are merged. Any
            other value comes from the later file.
        variables: Names and values of variables. These values replace the values in the file's ``vars``.
        plugins: Modules whose classes the file is allowed to name as ``package.module:Class``.
        look_only: ``True``: import only the modules in ``plugins``. No other code that the file names runs. Stages with components of other
            modules are skipped, and their roles cannot run. ``False``: the file can also name modules of installed plug-ins.

    Raises:
        ConfigError: a file is invalid, ``variables`` has an unknown name, or a plug-in cannot be imported. Errors in stages are found by
            :func:`highway.topology.check`.

    >>> with open("noise.yaml", "w") as file:
    ...     text = file.write("vars: {n: 3}\\nroles: {source: [{Noise: {shape: [2], count: '${n}'}}]}")
    >>> topology = load("noise.yaml", {"n": 5})
    >>> with topology.pipeline("source") as pipeline:
    ...     print(len(list(pipeline)))
    5
    """
    components = Components(plugins, look_only)
    components.import_plugins()
    registry = Registry(components)
    paths = [path] if isinstance(path, (str, Path)) else path
    raw, root = document.read_all(paths)
    if not isinstance(raw, dict):
        raise root.error(f"expected a mapping with the key roles, got {show(raw)}")
    given = registry.convert(raw.get("vars", {}), dict[str, Any], root / "vars")
    for name in variables or {}:
        if name not in given:
            raise ConfigError(f"{paths[-1]}: vars has no variable {name!r} to set{did_you_mean(name, given)}")
    values = Variables({**given, **(variables or {})}, root / "vars")
    filled = {key: value if key in ("vars", "roles") else values.fill(value, root / key) for key, value in raw.items()}
    spec: FileSpec = registry.convert(filled, FileSpec, root)
    if not spec.roles:
        raise (root / "roles").error("there are no roles")
    roles = {name: _role(name, role, values, registry, root / "roles" / name) for name, role in spec.roles.items()}
    hosts = {name: host if isinstance(host, HostSpec) else HostSpec(host) for name, host in spec.hosts.items()}
    metrics = MetricsSpec(spec.metrics) if isinstance(spec.metrics, (int, str)) else spec.metrics
    path = str(Path(paths[-1]).resolve())
    plan = Plan(Path(paths[-1]).stem, roles, hosts, spec.links, root, metrics, path=path, identity=_identity(Path(paths[0]).resolve()))
    check_names(plan)
    return Topology(str(paths[-1]), plan, spec.seed, values, registry)


def _identity(file: Path) -> str:
    """Return a text that identifies a file, so that two processes can compare their files.

    The text has four words: (1) the digest of the file tree, (2) the digest of the path, (3) the digest of the folder's inode and the
    file's name, (4) the end of the path. Two files count as different if their first words are equal, but both their second words and their
    third words differ. Therefore, changes of the file, and a move or replacement of its folder, do not make it a different file. It is also
    the same file if its folder is mounted at two places. Files of different file trees cannot be compared.

    Returns:
        The text. Empty for a pipe, or if the file tree is unknown.
    """
    tree = file_tree()
    if not (tree and file.is_file()):
        return ""
    folder = os.stat(file.parent)
    names = (os.fsencode(file), b"%d %d %b" % (folder.st_dev, folder.st_ino, os.fsencode(file.name)))
    digests = (hashlib.blake2s(name, digest_size=8).hexdigest() for name in names)
    return " ".join([tree, *digests, os.fsencode(file)[-LONGEST_PATH:].decode(errors="ignore")])


def _role(name: str, raw: Any, values: Variables, registry: Registry, location: Location) -> Role:
    """Return a role. Variables are replaced, except in ``stages`` and ``env``, because their values can differ between processes."""
    if isinstance(raw, list):
        return Role(name, raw, location)
    if not isinstance(raw, dict):
        raise location.error(f"expected a list of stages, or a mapping with the key stages; got {show(raw)}")
    if "isolated" in raw:
        raise (location / "isolated").error(
            "a role already has its own process, so remove this key; a training script that runs a role writes "
            "Pipeline.from_yaml(..., isolated=True)"
        )
    filled = {key: value if key in ("stages", "env") else values.fill(value, location / key) for key, value in raw.items()}
    if "env" in raw:  # only to check the environment
        filled["env"] = values.of_process(name, "0").fill(raw["env"], location / "env")
    spec: RoleSpec = registry.convert(filled, RoleSpec, location)
    if not (spec.external or "stages" in raw):
        raise location.error("the key 'stages' is missing (only an external role may have none)")
    hosts = (spec.hosts,) if isinstance(spec.hosts, str) else tuple(spec.hosts)
    restart = spec.restart if isinstance(spec.restart, RestartSpec) else RestartSpec(spec.restart)
    if restart.max_delay_s < restart.delay_s:
        raise (location / "restart" / "max_delay_s").error(f"{restart.max_delay_s:g} is less than delay_s, {restart.delay_s:g}")
    scale = spec.autoscale
    replicas = spec.replicas or max(1, len(hosts), scale.min if scale else 1)
    if scale and scale.min > scale.max:
        raise (location / "autoscale").error(f"min is {scale.min}, but max is {scale.max}")
    if scale and not scale.min <= replicas <= scale.max:
        raise (location / "autoscale").error(f"the role starts with {replicas} replicas; expected {scale.min} to {scale.max}")
    own = (replicas, hosts, raw.get("env", {}), spec.external, restart, spec.resources, scale)
    return Role(name, spec.stages, location / "stages", *own)
