"""Pack sequences of different lengths into rows of equal length."""
