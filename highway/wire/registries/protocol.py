"""The protocol of a rendezvous, and the form of its addresses."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Protocol

LONGEST = 300  # maximum characters of an address


class Rendezvous(Protocol):
    """A place where the processes of a run publish addresses by name. The methods can block. Call the methods on one thread.

    Attributes:
        host: Address of this host for other hosts, if the rendezvous knows a better address than this host's name.
    """

    host: str

    def publish(self, addresses: Mapping[str, str]) -> None:
        """Publish the address, as ``tcp://host:port``, of each name of this process. Raises OSError if the rendezvous is unreachable."""

    def find(self, names: Collection[str]) -> Mapping[str, str]:
        """Return the addresses of the known names. Raises the errors of :meth:`publish`."""


def is_address(text: object) -> bool:
    """Return whether a text is an address to which links can connect: ``tcp://host:port``.

    >>> is_address("tcp://10.0.0.1:5555"), is_address("tcp://[::1]:5555"), is_address("10.0.0.1"), is_address("tcp://a:99999")
    (True, True, False, False)
    """
    found = re.fullmatch(r"tcp://(?:[\w.-]+|\[[\w:.%-]+\]):(\d{1,5})", text, re.ASCII) if isinstance(text, str) else None
    return found is not None and len(found[0]) <= LONGEST and 0 < int(found[1]) < 65536
