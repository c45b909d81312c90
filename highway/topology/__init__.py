"""One YAML file that describes the whole system: read and check it, run one of its roles here, launch its roles.

A process that a launcher has started needs only the components of its role and no file. So modules are imported when they are first needed.
"""

from highway.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
