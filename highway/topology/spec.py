"""The keys of a topology file: their types, defaults and meaning, in one place for the loader, the JSON schema and the reference."""

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
    """A machine."""

    address: Annotated[Text, Meta(description="Name or IP address at which the other hosts reach it.")]
    listen: Annotated[str, Meta(description="Address that is bound there, such as 0.0.0.0 for every interface; by default `address`.")] = ""
    memory_mb: Annotated[float, Meta(gt=0, description="What the links' buffers there may take together; `check` adds them up.")] | None = (
        None
    )


class LinkSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A link between roles."""

    from_: Annotated[Text | list[Text], Meta(description="Role, or roles, that send, each with `ZMQSink: {link: NAME}`.")] = msgspec.field(
        name="from"
    )
    to: Annotated[Text | list[Text], Meta(description="Role, or roles, that receive, each with `ZMQSource: {link: NAME}`.")]
    port: Annotated[
        Port | Ports | None, Meta(description="The port of a tcp link, or a range such as 5555-5558 if several processes of one host bind.")
    ] = None
    tap: Annotated[
        Port | Ports | None,
        Meta(description="The port, or range, where viewers on other machines see what is sent; on the sender's own they need none."),
    ] = None
    kind: Annotated[
        Literal["push", "publish"], Meta(description="push: each item goes to one receiver; publish: each receiver gets every item.")
    ] = "push"
    bind: Annotated[Literal["from", "to"], Meta(description="Which side opens the ports; the other connects, and more of it may join.")] = (
        "from"
    )
    transport: Annotated[BetweenProcesses, Meta(description="ipc and shm are for roles on one host.")] = "tcp"
    codec: Annotated[CodecName, Meta(description="How items become bytes.")] = "tensorcom"
    budget_mb: Annotated[
        float, Meta(gt=0, description="Megabytes that may wait at each end of each connection; for shm, at the sender.")
    ] = 64.0
    receivers: (
        Annotated[
            int,
            Meta(
                ge=0,
                description="Receivers that a sender waits for before its first item; by default all replicas of `to`, or its `min`.",
            ),
        ]
        | None
    ) = None
    senders: (
        Annotated[
            int,
            Meta(
                ge=0,
                description="Ends of the stream that a receiver waits for; by default of each replica of `from`, or its `min`.",
            ),
        ]
        | None
    ) = None
    peers: Annotated[
        PeerKind | None,
        Meta(
            description="highway: programs that do not announce that they are highway are refused; any: others may take part, such as "
            "stock tensorcom. By default any if the link publishes or one of its roles is external, else highway."
        ),
    ] = None
    delivery: Annotated[
        Literal["at-most-once"], Meta(description="What is promised: nothing comes twice, and `check` says what may be lost.")
    ] = "at-most-once"

    @property
    def fans_out(self) -> bool:
        """Whether each receiver gets every item; else each item goes to one receiver."""
        return self.kind == "publish"

    @property
    def over(self) -> Transport:
        """The transport of its messages."""
        return TRANSPORTS[self.transport]


When = Literal["never", "on-failure", "always"]


class RestartSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """When the process of a replica is started again."""

    when: Annotated[
        When, Meta(description="never: a failure ends the run; on-failure: when it failed; always: when it ended as it should, too.")
    ] = "on-failure"
    at_most: Annotated[Count, Meta(description="Restarts in a row; the failure after the last one ends the run.")] = 10
    delay_s: Annotated[
        float, Meta(gt=0, description="Seconds before the first restart; before each further one in a row, twice as many.")
    ] = 0.5
    max_delay_s: Annotated[
        float, Meta(gt=0, description="Seconds before a restart, at most; a process that ran as long begins a new row of restarts.")
    ] = 30.0


class ResourcesSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Resources of a process, for engines that choose its host; `highway run` does not check them."""

    cpus: Annotated[float, Meta(gt=0, description="Cores; by default what the engine gives.")] | None = None
    gpus: Annotated[int, Meta(ge=0, description="GPUs.")] = 0
    memory_mb: Annotated[float, Meta(gt=0, description="Megabytes of memory; by default what the engine gives.")] | None = None
    labels: Annotated[dict[str, str], Meta(description="Labels that the host must have, as the engine knows them.")] = {}


class AutoscaleSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The number of replicas that an engine may choose, depending on how busy they are."""

    min: Annotated[Count, Meta(description="Replicas at least.")]
    max: Annotated[Replicas, Meta(description="Replicas at most.")]
    grow_s: Annotated[float, Meta(gt=0, le=3600, description="Seconds of too much work after which one more is started.")] = 5.0
    shrink_s: Annotated[float, Meta(gt=0, le=3600, description="Seconds for which fewer would do before one is drained.")] = 60.0


class RoleSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A pipeline, and where it runs."""

    stages: Annotated[list[Any], Meta(description="The stages, source first.")] = []
    hosts: Annotated[Text | list[Text], Meta(description="Where its replicas run, in turns.")] = []
    replicas: Annotated[Replicas, Meta(description="How many processes run it; by default one for each of its hosts.")] | None = None
    env: Annotated[dict[str, str], Meta(description="Environment variables of its processes; ${replica} is the number of each.")] = {}
    restart: Annotated[
        When | RestartSpec, Meta(description="When a process is started again: never, on-failure or always, or a mapping with the rest.")
    ] = "never"
    resources: Annotated[ResourcesSpec, Meta(description="What each of its processes needs, for engines that choose hosts.")] = (
        ResourcesSpec()
    )
    autoscale: Annotated[AutoscaleSpec | None, Meta(description="Replicas that an engine may choose; for roles that only map.")] = None
    external: Annotated[bool, Meta(description="Whether it is started by others, such as a training script, and not by `highway run`.")] = (
        False
    )


class MetricsSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The address at which each `highway run` reports its state over HTTP."""

    port: Annotated[Port | Ports, Meta(description="A port, or a range such as 9400-9409, of which each run takes the first that is free.")]
    listen: Annotated[Text, Meta(description="The address that is bound, such as 0.0.0.0 for every interface.")] = "127.0.0.1"


class FileSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A topology."""

    roles: Annotated[dict[str, Any], Meta(description="The pipelines, by name; a list is one's stages.")]
    vars: Annotated[dict[str, Any], Meta(description="Variables and their values, for ${name}.")] = {}
    hosts: Annotated[dict[str, Text | HostSpec], Meta(description="The machines, by name; a text is one's address.")] = {}
    links: Annotated[dict[str, LinkSpec], Meta(description="The links between roles, by name.")] = {}
    seed: Annotated[int, Meta(ge=0, description="What all that is random derives from, but for components with a seed of their own.")] = 0
    metrics: (
        Annotated[
            Port | Ports | MetricsSpec, Meta(description="Where each run answers for its state over HTTP; a number or range is the port.")
        ]
        | None
    ) = None


def parse_metrics(text: str, default: MetricsSpec | None = None, option: str = "--metrics") -> MetricsSpec:
    """Parse ``--metrics [HOST:]PORT``, or another option; PORT may be a range, or 0 for any free port.

    If the option gives no address, the address of ``default``, from the file, is used.

    Raises:
        ConfigError: the text is invalid.
    """
    found = _METRICS.fullmatch(text)
    first, last = (int(found["first"]), int(found["last"] or found["first"])) if found else (1, 0)
    if found is None or not first <= last <= 65535:
        raise ConfigError(f"{option} {text}: expected a port, such as 9400, a range, or an address before it: 0.0.0.0:9400-9409")
    listen = found["host"] or (default.listen if default else MetricsSpec(0).listen)
    return MetricsSpec(f"{first}-{last}", listen.strip("[]"))
