"""The resources of this process, such as cores, memory and disk, and how the process handles Ctrl-C.

May use: no other package of highway. Begin with ``cores``.
"""
