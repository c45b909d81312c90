"""Indexes of data files. ``file`` reads and writes index files, ``scanning`` computes indexes, and ``of_files`` finds or creates them."""
