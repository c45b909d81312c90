"""One role in this process, and all roles of a topology: start, report, drain, start again.

``role`` runs the pipeline of one role, ``supervise`` all roles that belong here (``replica`` is one of them, ``child`` its process).
May use: topology, observe, engine, wire. Begin with ``supervise``.
"""
