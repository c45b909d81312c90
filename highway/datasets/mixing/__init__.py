"""Mix several datasets into one by weights: select the dataset of each position, and read its samples.

Begin with ``mixed``.
"""
