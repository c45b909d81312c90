"""Figures of what runs: asked for, added up, and told over HTTP.

``state`` is what one process tells, ``poll`` asks all of them, ``accounts`` and ``traffic`` add up links, ``metrics`` names it all for
Prometheus, ``server`` answers. May use: topology, engine, wire. Begin with ``state``.
"""
