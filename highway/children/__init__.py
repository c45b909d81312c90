"""Child processes, and the pickling of their tasks and items. May use wire/, and its dependencies.

It is a room of its own, because a child imports it first, so its imports must be few and quick. Begin with ``process``. ``remote``
(parent) and ``maps`` (child) run maps in a process, and ``objects`` carries their items. ``isolated`` (parent) and ``isolated_child``
(child) run a whole pipeline in a process. ``peers`` passes the items of one process on to others, and ``receiving`` is the part of a run
that gets its items from another process.
"""
