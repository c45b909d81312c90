"""Child processes, and the pickling of their tasks and items. May use: wire and the dependencies of wire.

A child process imports this folder first. The imports in this folder must therefore be few and quick. Begin with ``process``. ``remote``
(in the parent) and ``maps`` (in the child) run maps in a process, and ``objects`` carries their items. ``isolated`` (in the parent) and
``isolated_child`` (in the child) run a whole pipeline in a process. ``peers`` lets several processes get the items of one process.
``receiving`` is the base class of runs that get their items from another process.
"""
