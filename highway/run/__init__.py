"""Run one role in this process, or run all roles of a topology: start, watch, drain and restart their processes.

Begin with ``supervise``. ``role`` runs the pipeline of one role in this process, and ``report`` sends reports about the role to the
launcher. ``supervise`` runs all roles of a topology: ``replica`` is one replica, and ``child`` is the process of a replica. ``supervise``
depends only on the protocol in ``launcher``. ``launchers`` has one module for each engine. May use: topology, observe, engine, process,
wire.
"""
