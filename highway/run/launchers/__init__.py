"""Places where processes run: one module for each kind of place, each with a :class:`highway.run.launcher.Launcher`.

``local`` starts them on this machine. May use: topology, process, wire.
"""
