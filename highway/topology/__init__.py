"""One YAML file that describes the whole system: read and check it, run a role of it here, launch its roles.

A process that a launcher has started needs the components of its role and no file: what reads one is imported when it is asked for.
"""

from highway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
