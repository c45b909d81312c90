"""Processes that this one starts for work of its own, and what is pickled for them. Uses wire/, and what that may use.

A room of its own, since a child imports it before anything else: what it needs is little, and quick to import. Begin with ``process``;
``remote`` and ``maps`` are the two sides of maps in a process, with ``objects`` between them; ``isolated`` and ``isolated_child`` are
those of an isolated pipeline.
"""
