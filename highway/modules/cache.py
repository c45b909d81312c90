"""``Cache``: keeps the outputs of the first epoch, and serves the later epochs without running the stages before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from highway.engine.component import Makes, Traits
from highway.engine.stage import Items, Stage, Stamped, unique
from highway.errors import ConfigError
from highway.modules.caching.gate import Gate
from highway.modules.caching.run import CacheRun
from highway.modules.caching.serving import Reading
from highway.parameters.checks import checked
from highway.parameters.ranges import ENDS, Count, Predicate, Seed
from highway.reading.plan import CacheOrder, RowRanges
from highway.stores.url import is_url


def _is_folder(path: str) -> bool:
    return bool(path) and not is_url(path)


@checked
@dataclass
class Cache:
    """Keep the samples of the first epoch, and serve every later epoch from the cache.

    The first epoch passes unchanged. A later run uses a complete cache in a folder again if the files, the parameters and the code have not
    changed (:mod:`highway.engine.hashing` lists the code that counts). If random numbers were drawn, the seed must also be the same.
    Otherwise the cache is built again. Random numbers before the cache are drawn once, so put crops and flips after it.

    An unfinished cache is discarded. While one process writes, other processes with the same folder continue without a cache, and use it
    from their first epoch after it is complete. If the samples do not fit, a warning is logged once and every epoch is decoded.

    **Ranks.** If a reader is the first stage, each rank reads the same samples in every epoch: its samples of epoch 0, which depend on the
    seed and the number of ranks only. Each epoch has the same order with and without a complete cache. Therefore all ranks together read
    the same samples as without a cache, even if the cache of one rank is full or lacks samples. Other sources, such as ``Mix`` of several
    readers, give a rank other samples in each epoch. On several ranks their cache must be complete after the first epoch.

    **Samples that cannot be read.** Samples that ``on_error="skip"`` has skipped are tried again in the next epoch, in this run or the next
    run. A sample that fails in two epochs is not tried again. In batches of a reader, the next sample of the rank's order replaces it; this
    is a different sample in each epoch. A missing single sample is skipped. The counter ``skipped`` of the stage ``Cache.epochs`` counts
    the missing samples of each epoch. Each sample is checked when it is first read from the cache. Damaged samples are created again by the
    stages before the cache, with a warning.

    **Resume.** A run that is interrupted while it writes the cache begins that epoch again, and fills the cache. If the cache served
    samples and is in a folder, the run resumes at once. If the cache was in memory, the run first reads an epoch to fill the cache, and
    does not yield this epoch. If the samples do not fit, the run resumes in the middle of any epoch. While a run writes a cache in a
    folder, ``state_dict()`` raises an error if a stage before the cache has ``on_error="skip"``. There is one exception: only a
    reader (without ``shuffle="blocks"``) and maps are before the cache, and the maps skip no items and draw no random numbers.

    Args:
        path: Folder that only the cache uses. It is created if necessary. Ranks that share it use a subfolder each, such as
            ``rank-0-of-4``. Folders of other numbers of ranks stay there until you remove them. ``None``: the cache is in memory, for this
            run.
        budget: Maximum size in bytes. By default nine tenths of the free disk space, or half of the free memory, divided by the number of
            ranks on this machine (``LOCAL_WORLD_SIZE``, or if that is not set, all ranks).
        batch_size: Samples per output batch, if the inputs are samples. The last batch of an epoch may be smaller. ``None``: outputs have
            the form of the inputs.
        stack: Whether output fields are arrays with a batch axis. ``False``: fields that have axes, such as images, are lists of arrays,
            which may differ in shape and are read-only. For batches only.
        shuffle: Whether each epoch after the first has its own order. If not, all epochs have the order of the first epoch.
        seed: Seed of the orders, at least 0. ``None``: the pipeline's seed.
        epochs: Number of epochs to yield. ``None``: the epochs of the reader before it, or unlimited if no stage declares a number.
        key: Identifies the data of the cache, if the stages before it do not determine them.
        batched: Whether the inputs are batches, whose rows are the samples; output batches then have the same size. ``False``: inputs are
            samples, and outputs are the same tuples, lists, dicts or bare values, with the types of their fields; arrays are read-only.
            ``None``: derived from the stages before it (:class:`Batch`, readers, :class:`Unbatch`, ...), or from the first item: an item
            with at least 2 rows and one key for each row is a batch; an item with at most one key, whose fields share no batch axis, is a
            sample.

    Yields:
        Tuples, lists or dicts like the inputs. Passports hold the epoch, the index of the batch or sample in it, and the samples' keys.

    A sample that is not batched may hold arrays of numbers, NumPy and Python numbers, ``str``, ``bytes``, ``None``, and lists and dicts of
    plain numbers and texts.

    >>> from highway import Pipeline
    >>> samples = [{"id": 1, "boxes": [[4, 2]]}, {"id": 2, "boxes": []}]
    >>> with Pipeline([samples, Cache(shuffle=False, epochs=2)]) as pipeline:
    ...     [list(pipeline), list(pipeline)] == [samples, samples]
    True

    Raises:
        ConfigError: a parameter is out of its range; or, when the cache runs: ``key`` is needed, the folder holds other files, inputs
            cannot be identified as batches or samples, or the cache is incomplete after the first epoch of a source that gives a rank other
            samples in each epoch.
        DamagedError: samples are damaged, and the stages before the cache do not create the same samples again.
        OSError: the folder cannot be created or written to, for other reasons than a lack of space.
        ItemError: the cache cannot hold a field, or cannot restore it exactly.
        ValueError: the samples differ in their fields or field types, or in shape if they are stacked.
    """

    path: Annotated[str | None, Predicate(_is_folder, "a folder on this machine, or None to keep the cache in memory")] = None
    budget: Count | None = None
    batch_size: Count | None = None
    stack: bool = True
    shuffle: bool = True
    seed: Seed | None = None
    epochs: Annotated[Count | None, ENDS] = None
    key: str = ""
    batched: bool | None = None

    def __post_init__(self) -> None:
        if self.batched and self.batch_size is not None:
            raise ConfigError(
                f"Cache: batched=True takes batches, but batch_size={self.batch_size} takes samples, of which it makes some; "
                "leave one of them out"
            )
        if self.batched is False and self.batch_size is None and not self.stack:
            raise ConfigError("Cache: stack=False is for batches, but with batched=False samples go out; leave one of them out")

    @property
    def takes(self) -> Makes | None:
        """The type of the inputs, if a parameter defines it."""
        if self.batched is None and self.batch_size is None:
            return None
        return "batches" if self.batched else "samples"

    def stream(self, items: Items) -> Iterator[Stamped]:
        run = CacheRun(self, [])
        reading = Reading(self.stack, run.repair)
        for item, passport in run.stream(items):
            yield Stamped(reading(item), passport)

    def __highway__(self) -> Traits:
        return Traits(after=self._after)

    def _after(self, stages: Sequence[Stage]) -> list[Stage]:
        """Return the stages that replace this stage and all ``stages`` before it.

        The cache then knows these stages, which determine its key and its number of epochs. The source does not start if the cache is
        complete.
        """
        source, *rest = unique(stages)
        if isinstance(source.op, RowRanges):
            plan = RowRanges(source.op.stands_for)
            plan.cache = CacheOrder(self.seed, self.shuffle)
            source = replace(source, op=plan)
        run = CacheRun(self, [source, *rest])
        if run.gated:
            source = replace(source, op=Gate(source.op, run), name=source.label)
        return [source, *rest, Stage(run, name="Cache.epochs"), Stage(Reading(self.stack, run.repair), name="Cache")]
