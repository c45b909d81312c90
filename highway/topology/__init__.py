"""One YAML file that describes the whole system: read and check it, run a role of it here, launch its roles."""

from highway.topology.model import Role, Topology, load

__all__ = ["Role", "Topology", "load"]
