"""Mix several datasets into one dataset by weights.

Begin with ``mixed``.
"""
