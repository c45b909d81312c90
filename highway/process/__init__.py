"""What this process may use, and how it is interrupted: cores, memory, Ctrl-C.

May use: nothing of highway. Begin with ``cores``.
"""
