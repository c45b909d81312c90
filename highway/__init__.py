"""Feed deep-learning training: read, decode, augment and move batches, on one machine or many.

>>> from highway import Pipeline
>>> list(Pipeline([range(3), lambda n: n * n]))
[0, 1, 4]
"""

__version__ = "0.1.0"
__distribution__ = "highway-data"  # before the imports, because highway.distribution reads it

import sys
from typing import TYPE_CHECKING, Any

from highway.engine import Pipeline
from highway.engine.cancel import check_cancelled
from highway.engine.component import Traits
from highway.engine.context import Context
from highway.engine.stage import DROP, Items, Lineage, Origin, Passport, Stage, Stamped
from highway.engine.stats import PipelineStats, StageStats
from highway.errors import Cancelled, ConfigError, EndOfStream, FrameError, HighwayError, LinkError, PipelineError, RemoteError
from highway.renamed import Finder, raise_missing
from highway.safe_text import guard_log

if TYPE_CHECKING:
    from highway.datasets.opening import open as open
    from highway.wire.connection import Connection

sys.meta_path.append(Finder)
guard_log(__name__)
guard_log("highway.mistakes")

__all__ = [
    "DROP",
    "Cancelled",
    "ConfigError",
    "Connection",
    "Context",
    "EndOfStream",
    "FrameError",
    "HighwayError",
    "Items",
    "Lineage",
    "LinkError",
    "Origin",
    "Passport",
    "Pipeline",
    "PipelineError",
    "PipelineStats",
    "RemoteError",
    "Stage",
    "StageStats",
    "Stamped",
    "Traits",
    "check_cancelled",
]


def __getattr__(name: str) -> Any:
    """Import ``Connection`` and ``open`` on first use, because most pipelines need neither sockets nor dataset formats.

    ``open`` is not in ``__all__``: otherwise, ``from highway import *`` would hide Python's ``open``.
    """
    if name == "open":
        from highway.datasets.opening import open

        return open
    if name == "Connection":
        from highway.wire.connection import Connection

        return Connection
    raise_missing(__name__, name)
