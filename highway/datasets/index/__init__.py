"""Indexes of files. ``file`` is the format of index files, ``scanning`` computes indexes, and ``of_files`` finds, builds and keeps them."""
