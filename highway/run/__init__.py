"""Run one role in this process, or all roles of a topology: start, report, drain and restart them.

``role`` runs the pipeline of one role, and ``report`` sends its reports to its launcher. ``supervise`` runs all roles (``replica`` is one
replica, ``child`` its process) with a launcher. It depends only on the protocol in ``launcher``; ``launchers`` has one module for each kind
of place. May use: topology, observe, engine, process, wire. Begin with ``supervise``.
"""
