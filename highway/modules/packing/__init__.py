"""Sequences of different lengths in rows of one length: ``pack``, ``concat_then_split``, and their common part ``sequences``."""
