"""The exceptions of highway.

::

    HighwayError
    ├── EndOfStream      (EOFError)    there are no more items: the normal end, or stop()
    ├── PipelineError    (TypeError)   stages that do not fit together, or a pipeline used against its shape
    ├── ConfigError      (ValueError)  a topology file, URL or parameter that cannot be used as written
    │   └── ParameterError (TypeError)  an unknown parameter, or an invalid value
    ├── ItemError        (TypeError, ValueError)  an item that a link or a file cannot take
    ├── FrameError       (ValueError)  received bytes that are not a message
    ├── DatasetError     (ValueError)  samples that a dataset cannot return, or that have changed
    ├── ImageError       (ValueError)  an image file that cannot be used
    ├── ShardError       (ValueError)  a shard that cannot be used
    ├── DamagedError                   samples of a cache that differ from those written
    ├── CacheFullError   (OSError)     samples that do not fit into a cache
    ├── LinkError        (OSError)     a socket that cannot be bound, reached or used
    ├── StoreError       (OSError)     an object store that does not answer, or answers wrongly
    ├── RemoteError      (RuntimeError) a child process that died, or its error, if the type cannot be created here
    └── StuckError       (RuntimeError) a pipeline that did not stop

    Cancelled            (BaseException) unwinds a stage whose items are not needed any more

If the code of a stage raises an error, the consumer gets this error itself, with notes that name the place.
"""

from highway import distribution

distribution.check()  # here, because every module that can be imported alone imports this one


class HighwayError(Exception):
    """Base class of highway's own errors.

    >>> try:
    ...     Pipeline([range(3), "text"])
    ... except HighwayError as error:
    ...     print(type(error).__name__)
    PipelineError
    """


class EndOfStream(HighwayError, EOFError):
    """There are no more items: the source has ended, or the pipeline was stopped.

    >>> with Pipeline([["a"]]) as pipeline:
    ...     item = pipeline.dequeue()
    ...     try:
    ...         pipeline.dequeue()
    ...     except EndOfStream:
    ...         print("the epoch has ended")
    the epoch has ended
    """


class PipelineError(HighwayError, TypeError):
    """Stages that do not fit together, or a pipeline used against its shape.

    >>> try:
    ...     Pipeline([range(3), range(3)])
    ... except PipelineError:
    ...     print("only the first stage can be a source")
    only the first stage can be a source
    """


class ConfigError(HighwayError, ValueError):
    """A topology file, a URL or a parameter that cannot be used as written.

    >>> try:
    ...     Take(-1)
    ... except ConfigError as error:
    ...     print(error)
    Take: n=-1; expected at least 0
    """


class ParameterError(ConfigError, TypeError):
    """An unknown parameter, or an invalid value; names the class, the value and the expected form."""


class ItemError(HighwayError, TypeError, ValueError):
    """An item that a link or a file cannot take, because of its type or its size; names the field and the way out."""


class FrameError(HighwayError, ValueError):
    """Received bytes that are not a message; names the expected form and the place.

    >>> from highway import tenbin
    >>> try:
    ...     tenbin.decode_buffer(b"not tenbin")
    ... except FrameError:
    ...     print("not a message")
    not a message
    """


class DatasetError(HighwayError, ValueError):
    """A dataset that has changed, has fewer samples than its length, or has no usable samples."""


class ImageError(HighwayError, ValueError):
    """An image file that cannot be used: not an image, damaged, truncated, too large or too small; names the fault."""


class ShardError(HighwayError, ValueError):
    """A shard that is not a tar archive, is damaged or truncated, or has a sample that cannot be used; names the sample and the place."""


class DamagedError(HighwayError):
    """Samples of a cache that do not match their checksums, or cannot be read.

    Args:
        rows: The numbers of the samples in the cache.
    """

    def __init__(self, message: str, rows: list[int]) -> None:
        super().__init__(message)
        self.rows = rows


class CacheFullError(HighwayError, OSError):
    """The samples do not fit: into the budget, or onto the disk."""


class LinkError(HighwayError, OSError):
    """A socket that cannot be bound, reached or used.

    >>> try:
    ...     Connection("zpull+ipc://no/such/folder/socket")
    ... except LinkError as error:
    ...     print(isinstance(error, OSError))
    True
    """


class StoreError(HighwayError, OSError):
    """An object store that does not answer, or answers wrongly, even after retries; names the object, never a credential."""


class RemoteError(HighwayError, RuntimeError):
    """A child process died, or raised an error whose type cannot be created in this process; names the process and the cause.

    >>> import os
    >>> with Pipeline([[1], Processes([os._exit], num_processes=1)]) as pipeline:
    ...     try:
    ...         pipeline.dequeue()
    ...     except RemoteError as error:
    ...         print(type(error).__name__)
    RemoteError
    """


class StuckError(HighwayError, RuntimeError):
    """A pipeline did not stop; its process can only exit without waiting for its threads."""


class Cancelled(BaseException):
    """Unwinds a stage whose items are not needed any more.

    A ``BaseException``, so that ``except Exception`` in a stage does not catch it. Never seen by the consumer of a pipeline.

    >>> log = []
    >>> class Waiting:
    ...     def __iter__(self):
    ...         yield "item"
    ...         try:
    ...             while True:
    ...                 check_cancelled()
    ...         except Cancelled:
    ...             log.append("cleaned up")
    ...             raise
    >>> with Pipeline([Waiting()]) as pipeline:
    ...     item = pipeline.dequeue()
    >>> log
    ['cleaned up']
    """
