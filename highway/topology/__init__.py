"""One YAML file that describes the whole system: read and check it, run a role of it here, launch its roles."""

from highway.topology.check import check
from highway.topology.load import load, load_checked
from highway.topology.model import Topology

__all__ = ["Topology", "check", "load", "load_checked"]
