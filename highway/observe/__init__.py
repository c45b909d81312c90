"""Collect and aggregate the statistics of running processes, and serve them over HTTP.

``state`` is the state of one process, and ``poll`` collects the states of all processes. ``accounts`` and ``traffic`` aggregate links.
``metrics`` names statistics for Prometheus, and ``server`` answers requests. ``profile`` measures stages one at a time, ``calibration``
holds the results, and ``sizing`` computes the threads, processes and hosts for a rate. May use: topology, engine, wire, process. Begin
with ``state``.
"""
