"""Pack sequences of different lengths into rows of one length: ``pack``, ``concat_then_split``, and their common ``sequences``."""
