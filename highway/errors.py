"""The exceptions of highway.

::

    HighwayError
    ├── EndOfStream      (EOFError)    nothing more will come: the normal end, or stop()
    ├── PipelineError    (TypeError)   stages that do not fit together, or a pipeline used against its shape
    ├── ConfigError      (ValueError)  a topology file, URL or parameter that cannot be used as written
    │   └── ParameterError (TypeError)  a parameter that there is not, or a value that it does not take
    ├── ItemError        (TypeError, ValueError)  an item that a link or a file cannot take as it is
    ├── FrameError       (ValueError)  received bytes that are not a message
    ├── DatasetError     (ValueError)  samples that a dataset cannot give, or not as it said
    ├── ImageError       (ValueError)  an image file that cannot be used
    ├── ShardError       (ValueError)  a shard that cannot be used
    ├── DamagedError                   samples of a cache that are not what was written
    ├── CacheFullError   (OSError)     samples that do not fit into a cache
    ├── LinkError        (OSError)     a socket that cannot be bound, reached or used
    ├── StoreError       (OSError)     an object store that does not answer, or not as it should
    ├── RemoteError      (RuntimeError) a child process that died, or its error, of a type that cannot be made here
    └── StuckError       (RuntimeError) a pipeline that did not stop

    Cancelled            (BaseException) unwinds a stage whose items nobody wants any more

An error that a stage raises is none of these: it reaches the consumer as the object that was raised, with notes that name the place.
"""

from highway import distribution

distribution.check()  # here, since every module that can be imported alone imports this one


class HighwayError(Exception):
    """Base of the errors that highway raises of its own."""


class EndOfStream(HighwayError, EOFError):
    """Nothing more will come: the source has ended, or the pipeline was stopped."""


class PipelineError(HighwayError, TypeError):
    """Stages that do not fit together, or a pipeline used against its shape."""


class ConfigError(HighwayError, ValueError):
    """A topology file, a URL or a parameter that cannot be used as written."""


class ParameterError(ConfigError, TypeError):
    """A parameter that there is not, or a value that it does not take; names the class, the value and what was expected."""


class ItemError(HighwayError, TypeError, ValueError):
    """An item that a link or a file cannot take as it is, because of its type or its size; names the field and the way out."""


class FrameError(HighwayError, ValueError):
    """Received bytes that are not a message; says what was expected, and where."""


class DatasetError(HighwayError, ValueError):
    """A dataset that is not what it said: it has changed, has fewer samples than its length, or none that can be used."""


class ImageError(HighwayError, ValueError):
    """An image file that cannot be used: no image, damaged, cut short, too large or too small; says what is wrong with it."""


class ShardError(HighwayError, ValueError):
    """A shard that is no tar archive, is damaged or cut short, or holds a sample that cannot be used; says which, and where."""


class DamagedError(HighwayError):
    """Samples of a cache that do not fit their checksums, or cannot be read.

    Args:
        rows: Their numbers in the cache.
    """

    def __init__(self, message: str, rows: list[int]) -> None:
        super().__init__(message)
        self.rows = rows


class CacheFullError(HighwayError, OSError):
    """The samples do not fit: into the budget, or onto the disk."""


class LinkError(HighwayError, OSError):
    """A socket that cannot be bound, reached or used."""


class StoreError(HighwayError, OSError):
    """An object store that does not answer, or not as it should, however often it was asked; names the object, never a credential."""


class RemoteError(HighwayError, RuntimeError):
    """A child process died, or raised an error whose type cannot be made in this process; names it, and the way it went."""


class StuckError(HighwayError, RuntimeError):
    """A pipeline did not stop; its process can only be ended without waiting for its threads."""


class Cancelled(BaseException):
    """Unwinds a stage whose items nobody wants any more.

    A ``BaseException``, so that ``except Exception`` in a stage does not catch it. Never seen by the consumer of a pipeline.
    """
