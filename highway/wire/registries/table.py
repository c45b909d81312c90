"""The table of all kinds of rendezvous. No other code compares their names.

A *rendezvous* stores the addresses of the links of a run, so that processes find each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from highway.wire.registries.folder import FolderRendezvous
from highway.wire.registries.protocol import Rendezvous
from highway.wire.registries.ray import RayRendezvous
from highway.wire.registries.relay import RelayRendezvous


@dataclass(frozen=True)
class RendezvousKind:
    """A kind of rendezvous.

    Args:
        name: The text before the colon.
        open: Function that returns the rendezvous for the text after the colon: the place of the rendezvous.
        shown: The form and a description, for users; empty if only launchers use this kind.
        places_are_runs: Whether a place is the name of a run. The default place is then the name of the topology's run.
    """

    name: str
    open: Callable[[str], Rendezvous]
    shown: str = ""
    places_are_runs: bool = False


KINDS: Mapping[str, RendezvousKind] = {
    each.name: each
    for each in (
        RendezvousKind("folder", FolderRendezvous, "folder:PATH, a folder that all hosts of the run see,"),
        RendezvousKind("ray", RayRendezvous, "ray:RUN, a run in a Ray cluster", places_are_runs=True),
        RendezvousKind("relay", RelayRendezvous),
    )
}
"""Name -> kind of rendezvous."""
