"""Hosts of a test's own: network namespaces with an address each, on a bridge in one more."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from waiting import wait_until

_numbers = itertools.count()


def missing() -> str:
    """Return what keeps namespaces from being made here, or ``""``."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    for tool in ("ip", "bridge", "tc", "ss", "iptables"):
        if shutil.which(tool) is None:
            return f"no command '{tool}': install iproute2 and iptables"
    name = f"hw{os.getpid()}try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return f"no network namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


def _do(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"


@dataclass(frozen=True)
class Hosts:
    """Some hosts in a network.

    Args:
        addresses: The address of each, by name.
        prefix: What the names of the namespaces begin with.
    """

    addresses: Mapping[str, str]
    prefix: str

    def popen(self, host: str, arguments: Sequence[str], **options: object) -> subprocess.Popen[str]:
        """Start a command on a host."""
        return subprocess.Popen([*self.on(host), *arguments], text=True, **options)

    def on(self, host: str) -> list[str]:
        """Return the words before a command that is to run on a host."""
        return ["ip", "netns", "exec", self.namespace(host)]

    def host_of(self, pid: int) -> str:
        """Return the host on which a process runs; empty if it is gone, or on none of these."""
        found = subprocess.run(["ip", "netns", "identify", str(pid)], capture_output=True, text=True).stdout.strip()
        return found.removeprefix(f"{self.prefix}-")

    def cut(self, host: str) -> None:
        """Have the bridge drop what goes to and comes from a host; nobody is told."""
        self._port(host, "disabled")

    def heal(self, host: str) -> None:
        """Undo :meth:`cut`."""
        self._port(host, "forwarding")

    def processes(self, host: str) -> list[int]:
        """Return the processes on a host."""
        found = subprocess.run(["ip", "netns", "pids", self.namespace(host)], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def peers(self, host: str, pid: int | None = None) -> set[tuple[str, str]]:
        """Return the addresses and ports with which a process, or any, exchanges bytes over TCP.

        Connections over which bytes go one way alone do not count: over these, receivers confirm what they have taken.
        """
        found = subprocess.run([*self.on(host), "ss", "-tnpiOH", "state", "established"], capture_output=True, text=True)
        lines = [line for line in found.stdout.splitlines() if "bytes_sent:" in line and "bytes_received:" in line]
        others = [line.split()[3].rpartition(":") for line in lines if pid is None or f"pid={pid}," in line]
        return {(address, port) for address, _, port in others}

    @contextlib.contextmanager
    def refusing(self, host: str, peers: Iterable[tuple[str, str]]) -> Iterator[None]:
        """Have the connections of a host to these addresses and ports break, and new ones refused."""
        peers = set(peers)
        outgoing = [f"OUTPUT -p tcp -d {address} --dport {port} -j REJECT --reject-with tcp-reset" for address, port in peers]
        incoming = [f"INPUT -p tcp -s {address} --sport {port} -j REJECT --reject-with tcp-reset" for address, port in peers]
        self._rules("-A", host, outgoing)
        # What comes in is still taken, since a connection ends here when it is to be acknowledged: who only receives sends nothing else.
        wait_until(lambda: not self.peers(host) & peers, 60)
        self._rules("-A", host, incoming)
        yield
        self._rules("-D", host, outgoing + incoming)

    def _rules(self, action: str, host: str, rules: Iterable[str]) -> None:
        for rule in rules:
            _do(f"ip netns exec {self.namespace(host)} iptables {action} {rule}")

    def lose(self, host: str, share: float) -> None:
        """Drop this share of the packets that come to a host."""
        _do(f"ip netns exec {self.namespace(host)} iptables -A INPUT -m statistic --mode random --probability {share} -j DROP")

    def slow(self, host: str, rate: str) -> None:
        """Limit what a host sends, such as to ``"20mbit"``; what is above waits, up to half a second."""
        _do(f"ip netns exec {self.namespace(host)} tc qdisc add dev eth0 root tbf rate {rate} burst 32kbit latency 500ms")

    def namespace(self, host: str) -> str:
        return f"{self.prefix}-{host}"

    def _port(self, host: str, state: str) -> None:
        number = {"disabled": 0, "forwarding": 3}[state]
        _do(f"ip netns exec {self.prefix} bridge link set dev {host} state {number}")


@contextlib.contextmanager
def network(names: Sequence[str]) -> Iterator[Hosts]:
    """Make hosts, and at the end undo them."""
    prefix = f"hw{os.getpid()}n{next(_numbers)}"
    hosts = Hosts({name: f"10.77.0.{number}" for number, name in enumerate(names, 1)}, prefix)
    try:
        _do(f"ip netns add {prefix}")
        _do(f"ip -n {prefix} link add br0 type bridge")
        _do(f"ip -n {prefix} link set br0 up")
        for name, address in hosts.addresses.items():
            space = f"{prefix}-{name}"
            _do(f"ip netns add {space}")
            _do(f"ip -n {prefix} link add {name} type veth peer name eth0 netns {space}")
            _do(f"ip -n {prefix} link set {name} master br0 up")
            _do(f"ip -n {space} address add {address}/24 dev eth0")
            _do(f"ip -n {space} link set lo up")
            _do(f"ip -n {space} link set eth0 up")
        yield hosts
    finally:
        for space in [prefix, *(f"{prefix}-{name}" for name in names)]:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
