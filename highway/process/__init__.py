"""The resources of this process (cores, memory, disk), and how it handles Ctrl-C.

May use: nothing of highway. Begin with ``cores``.
"""
