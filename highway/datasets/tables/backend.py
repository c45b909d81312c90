"""pyarrow, or the sentence that says how it is installed."""

from highway.distribution import pip_install
from highway.errors import ConfigError

try:
    import pyarrow as pa
    from pyarrow import ipc
    from pyarrow import parquet as pq
except ImportError as error:
    raise ConfigError(f"Parquet and Arrow files need pyarrow: {pip_install('arrow')}") from error

__all__ = ["UNREADABLE", "ipc", "pa", "pq"]

UNREADABLE = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError)  # what pyarrow raises for a file that is not as it should be
