"""Mix several datasets into one dataset, in which each dataset has a weight.

Begin with ``mixed``.
"""
