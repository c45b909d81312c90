"""One role in this process, and all roles of a topology: start, report, drain, restart.

``role`` runs the pipeline of one role, and ``report`` sends its reports to its launcher. ``supervise`` runs all roles (``replica`` is one
replica, ``child`` its process) with a launcher. It depends only on the protocol in ``launcher``; ``launchers`` has one module for each kind
of place. May use: topology, observe, engine, process, wire. Begin with ``supervise``.
"""
