"""systemd: write a unit for each host of a topology. systemd.service(5) and systemd.unit(5) document the settings in a unit."""

from __future__ import annotations

import argparse
import math
import os
import pwd
import re
import sys
import sysconfig
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from highway.errors import ConfigError
from highway.run.engines import RenderingEngine
from highway.run.launcher import DRAIN, STOP_SECONDS, file_arguments
from highway.topology import Topology

HOSTNAME = "%H"  # systemd replaces this text by the machine's name when it starts the unit
RESTART_SECONDS = 5
FILES = 65536  # maximum open descriptors: each slot of a shared-memory link needs two, and each connection one

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"})


def _problems(topology: Topology) -> Iterator[ConfigError]:
    """Yield an error for each role that no unit would run: a role without hosts in a file with hosts."""
    plan = topology.plan
    for role in plan.roles.values():
        if plan.hosts and not (role.hosts or role.external):
            yield (plan.location / "roles" / role.name).error("no unit would run this role, because it has no hosts; set hosts")


def _render(topology: Topology, options: argparse.Namespace) -> Mapping[str, str]:
    """Return a unit for each host with processes, ``HOST/highway-TOPOLOGY.service``, or a single unit if the file has no hosts.

    The units run this process's ``highway`` program, in this process's current directory and as this process's user."""
    name = re.sub(r"[^\w.-]", "_", f"highway-{topology.plan.name}.service", flags=re.ASCII)
    hosts = dict.fromkeys(process.host for process in topology.processes())
    passed = [f"--metrics={options.metrics}"] if options.metrics else []
    passed += ["--json"] if options.json else []
    return {os.path.join(urllib.parse.quote(host, safe=""), name): unit_of(topology, options, host, passed) for host in hosts}


ENGINE = RenderingEngine(name="systemd", what="services of systemd on each host: the units are written", problems=_problems, render=_render)


def unit_of(topology: Topology, options: argparse.Namespace, host: str, passed: Sequence[str] = (), for_system: bool = True) -> str:
    """Return the unit that runs the processes of a topology on a host.

    Args:
        topology: The topology.
        options: The options of this command. They include the topology files and the options for ``highway run``.
        host: A host of the file. :data:`HOSTNAME`: the host with the machine's name. Empty: the file has no hosts.
        passed: Further arguments of ``highway run``.
        for_system: ``True``: the unit is for the systemd of the system. ``False``: for the systemd of a user.

    Raises:
        ConfigError: as for :func:`unit`.
    """
    drain = [f"--drain-timeout={options.drain_timeout:g}"] if options.drain_timeout != DRAIN else []
    files = [str(Path(file).absolute()) for file in options.files]
    command = [*_highway(), "run", *files, *file_arguments(options), *drain, *passed, *(["--host", host] if host else [])]
    return unit(f"highway: {topology.plan.name}", command, os.getcwd(), _user() if for_system else None, options.drain_timeout)


def unit(description: str, command: Sequence[str], directory: str, user: str | None, drain_timeout: float) -> str:
    """Return the text of a unit.

    Args:
        description: The description of the unit in ``systemctl status``.
        command: The absolute path of the program, and the arguments. The argument :data:`HOSTNAME` becomes the machine's name.
        directory: Current directory of the program.
        user: User who runs the program. ``None``: the unit is for the systemd of a user.
        drain_timeout: Seconds for items in flight to arrive when systemd stops the program.

    Raises:
        ConfigError: a text contains a line break or another control character; or ``description`` or ``directory`` begins or ends with a
            space, or ends with a backslash.
    """
    for text in (description, directory, *command):
        if not text.isprintable():
            raise ConfigError(f"{text!r} cannot be part of a unit: it contains a line break or another control character")
    for text in (description, directory):  # systemd takes these values literally, without quotes
        if text.endswith("\\") or text != text.strip():
            raise ConfigError(f"{text!r} cannot be part of a unit: it begins or ends with a space, or ends with a backslash; rename it")
    after = [] if user is None else ["Wants=network-online.target", "After=network-online.target"]
    lines = [
        "[Unit]",
        f"Description={_plain(description)}",
        *after,
        "",
        "[Service]",
        "Type=exec",
        *([] if user is None else [f"User={user}"]),
        f"WorkingDirectory={_plain(directory)}",
        f"ExecStart={' '.join(map(_quoted, command))}",
        "# `systemctl stop` signals only highway, which drains its processes in order. After the timeout, systemd kills what still runs.",
        "KillMode=mixed",
        "KillSignal=SIGTERM",
        f"TimeoutStopSec={math.ceil(drain_timeout) + STOP_SECONDS}",
        "SuccessExitStatus=143",
        "Restart=on-failure",
        f"RestartSec={RESTART_SECONDS}",
        f"LimitNOFILE={FILES}",
        "",
        "[Install]",
        f"WantedBy={'default' if user is None else 'multi-user'}.target",
    ]
    return "".join(f"{line}\n" for line in lines)


def _highway() -> list[str]:
    """Return the command that runs this installation of highway: the script, or ``python -m highway`` if there is no script."""
    script = Path(sysconfig.get_path("scripts"), "highway")
    return [str(script)] if script.exists() else [sys.executable, "-m", "highway"]


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # the user has no name, as in some containers
        return str(os.getuid())


def _plain(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """Quote a word for a command line of systemd, whose syntax differs from the syntax of a shell."""
    if word == HOSTNAME:
        return word
    escaped = word.translate(_ESCAPES)
    return escaped if word and not set(word) & set(" \"';\\") else f'"{escaped}"'
