"""Pass batches to and from Ray Data: ``pip install 'ray[data]'``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np

try:
    import ray.data
    from ray.data.block import BlockAccessor, BlockMetadata
    from ray.data.datasource import Datasource, ReadTask
except ImportError as error:
    from highway.errors import ConfigError

    raise ConfigError("highway.adapters.ray needs Ray Data: pip install 'ray[data]'") from error

from highway.engine import batch, cancel
from highway.engine.component import Traits
from highway.engine.context import Context, here
from highway.engine.pipeline import Pipeline
from highway.engine.stage import Passport, Stamped
from highway.errors import PipelineError
from highway.parameters.ranges import ENDS


def to_ray_dataset(pipeline: Pipeline | Sequence[Pipeline]) -> ray.data.Dataset:
    """Return a Ray Dataset that contains the rows of a pipeline's batches. The pipeline runs in a Ray task, when Ray reads the dataset.

    ::

        dataset = to_ray_dataset([Pipeline([Reader(data, 64, rank=rank, world_size=4, epochs=1)]) for rank in range(4)])

    Each pipeline runs in its own task. Whenever the dataset is read, the pipeline starts from its beginning. The pipeline must be finite
    (``epochs=1``) and picklable. If batches are dicts, the columns have the names of the fields. If batches are tuples, the columns are
    named ``"0"``, ``"1"``, ...

    Args:
        pipeline: A pipeline that has not started, or a list of such pipelines, for example one for each rank.

    Raises:
        PipelineError: a pipeline has already started, or cannot be pickled; or an item is not a batch (when read).
        Exception: the error of a stage (when read). It is a ``RayTaskError``, and also an instance of the type of the original error.

    >>> import ray
    >>> context = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    >>> ray.data.DataContext.get_current().enable_progress_bars = False
    >>> dataset = to_ray_dataset(Pipeline([Reader([{"x": 1}, {"x": 2}], 2, shuffle=False, epochs=1)]))
    >>> [int(row["x"]) for row in dataset.take_all()]
    [1, 2]
    >>> ray.shutdown()
    """
    return ray.data.read_datasource(_PipelineDatasource(list(pipeline) if isinstance(pipeline, Sequence) else [pipeline]))


class _PipelineDatasource(Datasource):
    """Reads pipelines, each in its own task."""

    def __init__(self, pipelines: list[Pipeline]) -> None:
        super().__init__()
        self.arguments = [one.__reduce__()[1] for one in pipelines]

    def estimate_inmemory_data_size(self) -> None:
        """Return ``None``: the size is unknown."""

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None) -> list[ReadTask]:
        metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        return [ReadTask(partial(_blocks, arguments), metadata, per_task_row_limit=per_task_row_limit) for arguments in self.arguments]


def _blocks(arguments: tuple[Any, ...]) -> Iterator[Any]:
    """Run a pipeline, and yield its batches as blocks."""
    with Pipeline(*arguments) as pipeline:
        for item in pipeline:
            yield BlockAccessor.batch_to_block(_columns(item))


def _columns(item: Any) -> dict[str, Any]:
    columns = {str(name): np.asarray(value) for name, value in zip(batch.names(item), batch.fields(item), strict=True)}
    lengths = {name: len(value) if value.ndim else None for name, value in columns.items()}
    if None in lengths.values() or len(set(lengths.values())) != 1:
        raise PipelineError(
            f"to_ray_dataset: an item must be a batch, whose fields all have the same number of rows; the fields have {lengths} rows; add "
            "Batch()"
        )
    return columns


@dataclass
class RaySource:
    """Read batches of rows from a Ray Dataset. Each pass over the dataset is an epoch.

    Ray reads the data again for each pass. Ray does not report its position in the data. Therefore, ``state_dict()`` of the pipeline raises
    an error in the middle of a pass. For data with random access, use a :class:`~highway.modules.Reader`, which supports states at any
    item.

    Args:
        dataset: A ``ray.data.Dataset``, or a shard from ``ray.train.get_dataset_shard``.
        batch_size: Number of rows in a batch. ``None``: each block of Ray becomes a batch.
        epochs: Number of passes over the dataset, or ``None`` to repeat indefinitely.
        drop_last: Whether to drop the last batch of a pass if it has fewer rows.

    Yields:
        Dicts from column names to arrays. If the values of a column are arrays, the array of the column is a read-only view of Ray's object
        store.

    Raises:
        PipelineError: a pass has no rows (when running).

    >>> import ray
    >>> context = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    >>> ray.data.DataContext.get_current().enable_progress_bars = False
    >>> table = ray.data.from_items([{"x": 1}, {"x": 2}])
    >>> [sorted(batch["x"].tolist()) for batch in Pipeline([RaySource(table, 2, epochs=1)])]
    [[1, 2]]
    >>> ray.shutdown()
    """

    dataset: Any
    batch_size: int | None
    epochs: Annotated[int | None, ENDS] = 1
    drop_last: bool = False

    def __highway__(self) -> Traits:
        return Traits(makes="batches", numbers_epochs=True, epochs=self.epochs)

    def __iter__(self, context: Context | None = None) -> Iterator[Stamped]:
        context = context or here()
        epoch = 0
        while self.epochs is None or epoch < self.epochs:
            index = -1
            rows = self.dataset.iter_batches(batch_size=self.batch_size, batch_format="numpy", drop_last=self.drop_last)
            for index, columns in enumerate(rows):
                if context.is_skipped(epoch):
                    break
                cancel.check_cancelled()
                yield Stamped(columns, Passport(epoch, index))
            if index < 0:
                raise PipelineError(f"RaySource: the dataset has no rows in epoch {epoch}")
            epoch += 1
