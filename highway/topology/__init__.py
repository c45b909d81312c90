"""Topologies: read and check the YAML file that describes a system, and run its roles.

A process that a launcher has started needs only the components of its role and no file. So modules are imported when they are first needed.
"""

from highway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
