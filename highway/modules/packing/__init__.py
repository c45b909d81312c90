"""Pack sequences of different lengths into rows of one length. ``pack`` and ``concat_then_split`` both use ``sequences``."""
