"""One role in this process, and all roles of a topology: start, report, drain, start again.

``role`` runs the pipeline of one role, ``report`` is what it tells its launcher. ``supervise`` runs all roles (``replica`` is one of them,
``child`` its process) by a launcher, of which it knows the protocol in ``launcher`` only; ``launchers`` holds one for each kind of place.
May use: topology, observe, engine, process, wire. Begin with ``supervise``.
"""
