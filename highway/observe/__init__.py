"""Collect and aggregate the statistics of running processes, and serve them over HTTP.

A *replica* is one process of a role (a kind of process in a topology). ``state`` is the state of one replica, and ``poll`` collects the
states of all replicas. ``accounts`` and ``traffic`` count the messages of links. ``metrics`` names statistics for Prometheus, and
``server`` answers requests. ``profile`` measures stages one at a time, ``calibration`` holds the results, and ``sizing`` computes the
threads, processes and hosts for a rate. May use: topology, engine, wire, process. Begin with ``state``.
"""
