"""Run one role in this process, or run all roles of a topology: start, watch, drain and restart their processes.

A *role* is a pipeline in a topology file. Each of its processes is a *replica*. To *drain* a process is to end its source and deliver the
items in flight.

Begin with ``supervise``, which runs all roles of a topology. ``replica`` is one replica of a role, and ``child`` is the process of a
replica. ``role`` runs the pipeline of one role in this process, and ``report`` sends reports about the role to the launcher. ``supervise``
uses launchers only through the protocol in ``launcher``. ``launchers`` has the modules of each engine. May use: topology, observe, engine,
process, wire.
"""
