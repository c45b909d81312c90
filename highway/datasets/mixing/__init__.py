"""Several datasets as one, mixed by weights: which of them stands at each position, and their samples by number.

Begin with ``mixed``.
"""
