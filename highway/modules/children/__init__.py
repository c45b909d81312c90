"""The children of ``Processes``: what runs in one, and what is pickled for it.

Begin with ``child``.
"""
