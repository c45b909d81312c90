"""The engines in which the processes of a topology run: one module or group of modules for each engine. ``table`` has the list of engines.

``local``, ``ray`` and ``slurm`` have a :class:`highway.run.launcher.Launcher`. ``kubernetes`` and ``systemd`` write files for the tools of
the engine. May use: topology, process, wire.
"""
