"""The keys of a topology file: their types, defaults and meaning. The loader, the JSON schema and the reference use these definitions."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from highway.errors import ConfigError
from highway.wire.codec import CodecName
from highway.wire.options import PeerKind
from highway.wire.transports.table import TRANSPORTS, BetweenProcesses, Transport

Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
Replicas = Annotated[int, Meta(ge=1, le=1000)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Ports = Annotated[str, Meta(pattern=r"^\d{1,5}-\d{1,5}$")]

_METRICS = re.compile(r"(?:(?P<host>\[[^\]]+\]|[^:\[\]]+):)?(?P<first>\d{1,5})(?:-(?P<last>\d{1,5}))?")


class HostSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A host: a machine on which processes run."""

    address: Annotated[Text, Meta(description="Name or IP address at which other hosts reach this host.")]
    listen: Annotated[
        str, Meta(description="Address that processes bind on this host, such as 0.0.0.0 for all interfaces. Default: `address`.")
    ] = ""
    memory_mb: (
        Annotated[
            float,
            Meta(gt=0, description="Maximum megabytes of all link buffers on this host together. `highway check` adds up the buffers."),
        ]
        | None
    ) = None


class LinkSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A link between roles."""

    from_: Annotated[Text | list[Text], Meta(description="Role or roles that send. Each has a stage `ZMQSink: {link: NAME}`.")] = (
        msgspec.field(name="from")
    )
    to: Annotated[Text | list[Text], Meta(description="Role or roles that receive. Each has a stage `ZMQSource: {link: NAME}`.")]
    port: Annotated[
        Port | Ports | None, Meta(description="Port of a tcp link, or a range such as 5555-5558 if several processes on one host bind.")
    ] = None
    tap: Annotated[
        Port | Ports | None,
        Meta(description="Port or range at which viewers on other machines can attach. Viewers on the sender's machine need no port."),
    ] = None
    kind: Annotated[
        Literal["push", "publish"], Meta(description="push: each item goes to one receiver. publish: each receiver gets every item.")
    ] = "push"
    bind: Annotated[
        Literal["from", "to"],
        Meta(description="Side that opens the ports. The other side connects, and further processes of that side can join."),
    ] = "from"
    transport: Annotated[BetweenProcesses, Meta(description="How messages travel. ipc and shm work only between roles on one host.")] = (
        "tcp"
    )
    codec: Annotated[CodecName, Meta(description="Format of the messages.")] = "tensorcom"
    budget_mb: Annotated[
        float, Meta(gt=0, description="Maximum megabytes of waiting messages at each end of a connection. With shm: only at the sender.")
    ] = 64.0
    receivers: (
        Annotated[
            int,
            Meta(
                ge=0,
                description="Number of receivers that must connect before a sender sends. Default: all replicas of `to`, or their `min`.",
            ),
        ]
        | None
    ) = None
    senders: (
        Annotated[
            int,
            Meta(
                ge=0,
                description="Number of senders that must end before a receiver ends. Default: all replicas of `from`, or their `min`.",
            ),
        ]
        | None
    ) = None
    peers: Annotated[
        PeerKind | None,
        Meta(
            description="highway: only programs that announce that they are highway can connect. any: all programs can connect, such as "
            "stock tensorcom. Default: any if the link publishes or one of its roles is external, otherwise highway."
        ),
    ] = None
    delivery: Annotated[
        Literal["at-most-once"], Meta(description="Guarantee: no item comes twice. `highway check` lists the possible losses.")
    ] = "at-most-once"

    @property
    def fans_out(self) -> bool:
        """Whether each receiver gets every item. If false, each item goes to one receiver."""
        return self.kind == "publish"

    @property
    def over(self) -> Transport:
        """The transport of the link's messages."""
        return TRANSPORTS[self.transport]


When = Literal["never", "on-failure", "always"]


class RestartSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """When the process of a replica is restarted."""

    when: Annotated[
        When,
        Meta(description="never: a failure ends the run. on-failure: restart after a failure. always: restart even after a normal end."),
    ] = "on-failure"
    at_most: Annotated[Count, Meta(description="Maximum consecutive restarts. A failure after these restarts ends the run.")] = 10
    delay_s: Annotated[
        float, Meta(gt=0, description="Seconds before the first restart. The seconds double before each consecutive restart.")
    ] = 0.5
    max_delay_s: Annotated[
        float,
        Meta(gt=0, description="Maximum seconds before a restart. If a process has run for this time, the count of restarts begins again."),
    ] = 30.0


class ResourcesSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Resources that a process needs, for engines that choose hosts. `highway run` does not check them."""

    cpus: Annotated[float, Meta(gt=0, description="Number of cores. Default: chosen by the engine.")] | None = None
    gpus: Annotated[int, Meta(ge=0, description="Number of GPUs.")] = 0
    memory_mb: Annotated[float, Meta(gt=0, description="Megabytes of memory. Default: chosen by the engine.")] | None = None
    labels: Annotated[dict[str, str], Meta(description="Labels that the host must have, in the form of the engine.")] = {}


class AutoscaleSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Limits of a role's number of replicas. An engine starts and drains replicas depending on how busy they are."""

    min: Annotated[Count, Meta(description="Minimum number of replicas.")]
    max: Annotated[Replicas, Meta(description="Maximum number of replicas.")]
    grow_s: Annotated[
        float, Meta(gt=0, le=3600, description="Seconds for which the replicas must be too busy before one more replica is started.")
    ] = 5.0
    shrink_s: Annotated[
        float, Meta(gt=0, le=3600, description="Seconds for which fewer replicas must be enough before one replica is drained.")
    ] = 60.0


class RoleSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A role: a pipeline, and where it runs."""

    stages: Annotated[list[Any], Meta(description="The stages, beginning with the source.")] = []
    hosts: Annotated[Text | list[Text], Meta(description="Host or hosts of the replicas, assigned in turn.")] = []
    replicas: Annotated[Replicas, Meta(description="Number of processes. Default: one for each host of the role.")] | None = None
    env: Annotated[
        dict[str, str], Meta(description="Environment variables of the processes. ${replica} is the number of the process.")
    ] = {}
    restart: Annotated[
        When | RestartSpec,
        Meta(description="When a process is restarted: never, on-failure or always, or a mapping with further settings."),
    ] = "never"
    resources: Annotated[ResourcesSpec, Meta(description="Resources that each process needs, for engines that choose hosts.")] = (
        ResourcesSpec()
    )
    autoscale: Annotated[
        AutoscaleSpec | None,
        Meta(description="Limits of the number of replicas, which can then change during a run. Only for roles that receive and send."),
    ] = None
    external: Annotated[
        bool, Meta(description="Whether another program, such as a training script, starts the role instead of `highway run`.")
    ] = False


class MetricsSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The address at which each `highway run` reports its state over HTTP."""

    port: Annotated[Port | Ports, Meta(description="Port, or a range such as 9400-9409. Each run uses the first free port of the range.")]
    listen: Annotated[Text, Meta(description="Address to bind, such as 0.0.0.0 for all interfaces.")] = "127.0.0.1"


class FileSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A topology."""

    roles: Annotated[dict[str, Any], Meta(description="The roles by name. A list instead of a mapping has the stages of the role.")]
    vars: Annotated[dict[str, Any], Meta(description="Variables by name. ${name} is replaced by the value.")] = {}
    hosts: Annotated[
        dict[str, Text | HostSpec], Meta(description="The hosts by name. A text instead of a mapping is the address of the host.")
    ] = {}
    links: Annotated[dict[str, LinkSpec], Meta(description="The links between roles by name.")] = {}
    seed: Annotated[int, Meta(ge=0, description="Seed of all random numbers, except for components that have their own seed.")] = 0
    metrics: (
        Annotated[
            Port | Ports | MetricsSpec, Meta(description="HTTP address at which each run reports its state. A number or range is the port.")
        ]
        | None
    ) = None


def parse_metrics(text: str, default: MetricsSpec | None = None, option: str = "--metrics") -> MetricsSpec:
    """Parse the value of ``--metrics [HOST:]PORT``, or of the option ``option``. PORT can be a range, or 0 for any free port.

    If the value has no HOST, the host is the address of ``default``, which is the setting in the file.

    Raises:
        ConfigError: the text is invalid.
    """
    found = _METRICS.fullmatch(text)
    first, last = (int(found["first"]), int(found["last"] or found["first"])) if found else (1, 0)
    if found is None or not first <= last <= 65535:
        raise ConfigError(f"{option} {text}: expected a port, such as 9400, a range, or an address before it: 0.0.0.0:9400-9409")
    listen = found["host"] or (default.listen if default else MetricsSpec(0).listen)
    return MetricsSpec(f"{first}-{last}", listen.strip("[]"))
