"""Feed deep-learning training: read, decode, augment and move batches, on one machine or many.

>>> from highway import Pipeline
>>> list(Pipeline([range(3), lambda n: n * n]))
[0, 1, 4]
"""

from highway.cancel import check_cancelled
from highway.engine import Pipeline
from highway.errors import (
    Cancelled,
    ConfigError,
    EndOfStream,
    FrameError,
    HighwayError,
    LinkError,
    PipelineError,
    RemoteError,
)
from highway.stage import DROP, Items, Origin, Passport, Stage, Stamped
from highway.stats import PipelineStats, StageStats

__version__ = "0.1.0"

__all__ = [
    "DROP",
    "Cancelled",
    "ConfigError",
    "EndOfStream",
    "FrameError",
    "HighwayError",
    "Items",
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
    "check_cancelled",
]
