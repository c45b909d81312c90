"""The table of all kinds of rendezvous. No other code compares their names."""

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
        open: Returns the rendezvous for the text after the colon, its place.
        shown: The form and a description, for users; empty if only launchers use it.
        places_are_runs: Whether a place is the name of a run. If a topology gives no place, the name of its run is the place.
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
