"""What a component's signature says of its parameters: checked in Python as in YAML, and named where they are wrong.

May use: the errors. Begin with ``checks``.
"""
