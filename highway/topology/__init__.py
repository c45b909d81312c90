"""Topologies: read and check the YAML file that describes a system, and run the roles in the file.

A *role* is a pipeline. A *replica* is one of its processes. A *link* connects roles.

A process that a launcher has started reads no file, and needs only the components of its role. Therefore, this package imports its modules
on first use.
"""

from highway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
