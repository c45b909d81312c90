"""The exceptions of highway.

::

    HighwayError
    ├── EndOfStream      (EOFError)    there are no more items: the source has ended, or stop() was called
    ├── PipelineError    (TypeError)   stages that do not fit together, or a method that this pipeline does not support
    ├── ConfigError      (ValueError)  a topology file, URL or parameter that cannot be used as written
    │   └── ParameterError (TypeError)  an unknown parameter, or an invalid value
    ├── ItemError        (TypeError, ValueError)  an item that cannot be sent over a link or written to a file
    ├── FrameError       (ValueError)  received bytes that are not a message
    ├── DatasetError     (ValueError)  samples that a dataset cannot return, or that have changed
    ├── ImageError       (ValueError)  an image file that cannot be used
    ├── ShardError       (ValueError)  a shard that cannot be used
    ├── DamagedError                   samples in a cache that do not match their checksums, or cannot be read
    ├── CacheFullError   (OSError)     samples that do not fit into a cache
    ├── LinkError        (OSError)     a socket that cannot be bound, reached or used
    ├── StoreError       (OSError)     an object store that does not answer, or sends an invalid answer
    ├── RemoteError      (RuntimeError) a child process that died, or raised an error whose type cannot be created here
    └── StuckError       (RuntimeError) a pipeline that did not stop

    Cancelled            (BaseException) ends the code of a stage whose items are no longer needed

If the code of a stage raises an error, the loop over the pipeline raises the same error. A note names the stage.
"""

from highway import distribution

distribution.check()  # here, because each module of highway imports this module first


class HighwayError(Exception):
    """Base class of the errors of highway.

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
    """The stages do not fit together, or the pipeline does not support a method. For example, a pipeline with a sink has no ``dequeue()``.

    >>> try:
    ...     Pipeline([range(3), range(3)])
    ... except PipelineError:
    ...     print("only the first stage can be a source")
    only the first stage can be a source
    """


class ConfigError(HighwayError, ValueError):
    """A topology file, a URL or a parameter is not valid.

    >>> try:
    ...     Take(-1)
    ... except ConfigError as error:
    ...     print(error)
    Take: n=-1; expected at least 0
    """


class ParameterError(ConfigError, TypeError):
    """A parameter is unknown, or its value is not valid. The message contains the class, the value and the expected form."""


class ItemError(HighwayError, TypeError, ValueError):
    """An item cannot be sent or written to a file, because of its type or size. The message contains the field and a solution."""


class FrameError(HighwayError, ValueError):
    """Received bytes are not a valid message. The text of the error contains the position and the expected bytes.

    >>> from highway import tenbin
    >>> try:
    ...     tenbin.decode_buffer(b"not tenbin")
    ... except FrameError:
    ...     print("not a message")
    not a message
    """


class DatasetError(HighwayError, ValueError):
    """A dataset has changed, has fewer samples than its length, or has no usable samples."""


class ImageError(HighwayError, ValueError):
    """An image file cannot be used: the file is not an image, is damaged or truncated, or the image is too large or too small."""


class ShardError(HighwayError, ValueError):
    """A shard is not a tar archive, is damaged or truncated, or contains an invalid sample. The message names the sample."""


class DamagedError(HighwayError):
    """Samples in a cache do not match their checksums, or cannot be read.

    Args:
        message: The text of the error.
        rows: Indexes of the damaged samples in the cache.
    """

    def __init__(self, message: str, rows: list[int]) -> None:
        super().__init__(message)
        self.rows = rows


class CacheFullError(HighwayError, OSError):
    """The samples do not fit into the budget of a cache, or the disk is full."""


class LinkError(HighwayError, OSError):
    """A socket cannot be bound, connected or used.

    >>> try:
    ...     Connection("zpull+ipc://no/such/folder/socket")
    ... except LinkError as error:
    ...     print(isinstance(error, OSError))
    True
    """


class StoreError(HighwayError, OSError):
    """An object store does not answer, or sends an invalid answer, even after retries. The message never contains a credential."""


class RemoteError(HighwayError, RuntimeError):
    """A child process died, or raised an error whose type cannot be created in this process.

    >>> import os
    >>> with Pipeline([[1], Processes([os._exit], num_processes=1)]) as pipeline:
    ...     try:
    ...         pipeline.dequeue()
    ...     except RemoteError as error:
    ...         print(type(error).__name__)
    RemoteError
    """


class StuckError(HighwayError, RuntimeError):
    """A pipeline did not stop. The process must exit without waiting for the threads of the pipeline."""


class Cancelled(BaseException):
    """Ends the code of a stage whose items are no longer needed.

    ``Cancelled`` is a ``BaseException``, so ``except Exception`` in a stage does not catch it. A loop over a pipeline never raises
    ``Cancelled``.

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
