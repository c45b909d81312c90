"""A systemd unit that runs what a topology places on a machine. What the settings mean: systemd.service(5), systemd.unit(5)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from highway.errors import ConfigError

HOSTNAME = "%H"  # systemd puts the machine's name in its place when it starts the unit
STOP_SECONDS = 30  # that systemd waits after the drain before it kills: longer than a run takes to stop by itself, whatever its stages do
RESTART_SECONDS = 5
FILES = 65536  # descriptors: each slot of a link in shared memory takes two, each connection one

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"})


def unit(description: str, command: Sequence[str], directory: str, user: str | None, drain_timeout: float) -> str:
    """Return the text of a unit.

    Args:
        description: What ``systemctl status`` calls it.
        command: The program, as an absolute path, and its arguments. The argument :data:`HOSTNAME` stands for the machine's name.
        directory: Where the program runs.
        user: Who runs it, or ``None`` for a unit of a user's own systemd.
        drain_timeout: Seconds for which the program, when it is stopped, lets what is in flight arrive.

    Raises:
        ConfigError: there is a line break or the like in one of the words.
    """
    for text in (description, directory, *command):
        if not text.isprintable():
            raise ConfigError(f"{text!r} cannot stand in a unit: it has a line break or another control character in it")
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
        "# `systemctl stop` asks highway alone, which drains its processes in order; whoever is left when the time is over is killed.",
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


def _plain(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """Return a word as it stands in a command line of systemd, which is not that of a shell."""
    if word == HOSTNAME:
        return word
    escaped = word.translate(_ESCAPES)
    return escaped if word and not set(word) & set(" \"';\\") else f'"{escaped}"'
