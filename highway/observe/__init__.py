"""Figures of what runs: asked for, added up, and told over HTTP.

``state`` is what one process tells, ``poll`` asks all of them, ``accounts`` and ``traffic`` add up links, ``metrics`` names it all for
Prometheus, ``server`` answers. ``profile`` measures stages one at a time, ``calibration`` is what comes of it, and ``sizing`` what a rate
takes then. May use: topology, engine, wire, process. Begin with ``state``.
"""
