"""Collect and aggregate the statistics of running processes, and serve them over HTTP.

``state`` is the state of one process, ``poll`` collects the states of all of them, ``accounts`` and ``traffic`` aggregate links,
``metrics`` names statistics for Prometheus, ``server`` answers requests. ``profile`` measures stages one at a time, ``calibration`` holds
the results, and ``sizing`` estimates what a rate requires. May use: topology, engine, wire, process. Begin with ``state``.
"""
