"""One YAML file that describes the whole system: read and check it, run a role of it here, launch its roles.

A process that a launcher has started needs the components of its role and no file: what reads one is imported when it is asked for.
"""

from typing import TYPE_CHECKING

from highway.lazy import import_when_asked

if TYPE_CHECKING:
    from highway.topology.checking import check
    from highway.topology.loading import load, load_checked
    from highway.topology.model import Topology

__all__ = ["Topology", "check", "load", "load_checked"]

import_when_asked(__name__, {"checking": "check", "loading": "load load_checked", "model": "Topology"})
