"""``Cache``: keeps what comes out of the first epoch, and serves the epochs after it without asking what stands before it."""

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

    The first epoch passes unchanged. A later run uses a finished cache in a folder again if it was made from the same files, with the same
    parameters and code (:mod:`highway.engine.hashing` lists the code that counts), and with the same seed if random numbers were drawn.
    Otherwise the cache is made again. Random numbers before the cache are drawn once: put crops and flips after it.

    An unfinished cache is discarded. While one process writes, other processes with the same folder continue without a cache, and use it
    from the epoch after it is finished. If the samples do not fit, a warning is logged once and every epoch is decoded.

    **Ranks.** If a reader is the first stage, each rank reads the same samples in every epoch: its samples of epoch 0, which depend on the
    seed and the number of ranks only. Each epoch has the same order whether it is read or served. So all ranks together read the same
    samples as without a cache, also if the cache of one rank is full or lacks samples. Other sources, such as ``Mix`` of several readers,
    give a rank other samples in each epoch. On several ranks their cache must be complete after the first epoch.

    **Samples that cannot be read.** Samples that ``on_error="skip"`` has skipped are tried again in the next epoch, in this run or the
    next. A sample that fails in two epochs is not tried again. In the batches of a reader the next sample of the rank takes its place, in
    each epoch another one; single samples are skipped. The counter ``skipped`` of the stage ``Cache.epochs`` counts them in each epoch.
    Each sample is checked when it is first read from the cache. Damaged samples are made again by the stages before, with a warning.

    **Resume.** A run that is interrupted while it writes the cache begins that epoch again, and fills the cache. If the cache served, the
    run resumes at once from a folder; a cache in memory is filled first, by an epoch that is not passed on. If the samples do not fit, the
    run resumes in the middle of any epoch. A run that writes a cache in a folder gives no state if a stage before it has
    ``on_error="skip"``, unless these stages are a reader (not with ``shuffle="blocks"``) and maps that skip nothing and draw no random
    numbers.

    Args:
        path: Folder for the cache alone; it is made if need be. Ranks that share it have a folder each in it, such as ``rank-0-of-4``;
            folders of another number of ranks stay there until you remove them. Without a path the cache is in memory, for this run.
        budget: Bytes that it may take. By default nine tenths of what is free on the disk, or half of the memory that is left; of that its
            part, if there are other ranks on this machine (``LOCAL_WORLD_SIZE``; without that, all of them).
        batch_size: If samples come in and batches are to go out: of how many, the last of an epoch maybe smaller. ``None``: what goes out
            is like what comes in.
        stack: Whether fields go out as arrays with a batch axis. ``False``: fields with axes of their own, such as images, go out as
            lists of arrays, which may differ in shape and are read-only. For batches only.
        shuffle: Whether each epoch but the first has an order of its own; else all have that in which the samples came.
        seed: What the orders derive from, at least 0; ``None``: the pipeline's seed.
        epochs: Passes that go out. ``None``: as many as the reader before it makes, or without end if there is none that says.
        key: Stands for what the cache was made from, if that cannot be seen from the stages before it.
        batched: Whether batches come in, whose rows are the samples; batches of the same size go out. ``False``: samples come in, and go
            out as they came, tuples, lists, dicts or bare values, with the types of their fields; arrays are read-only. ``None``: it sees
            that from the stages before it (:class:`Batch`, readers, :class:`Unbatch`, ...), or from the first item: it is a batch if it
            has as many keys as rows, at least 2, and a sample if its fields share no batch axis and it has at most one key.

    Yields:
        Tuples, lists or dicts as they came in. Passports carry the epoch, the number in it of the batch or sample, and the samples' keys.

    A sample that goes out as it came may hold arrays of numbers, numpy's and Python's own numbers, ``str``, ``bytes``, ``None``, and lists
    and dicts of plain numbers and texts.

    >>> from highway import Pipeline
    >>> samples = [{"id": 1, "boxes": [[4, 2]]}, {"id": 2, "boxes": []}]
    >>> with Pipeline([samples, Cache(shuffle=False, epochs=2)]) as pipeline:
    ...     [list(pipeline), list(pipeline)] == [samples, samples]
    True

    Raises:
        ConfigError: a parameter is out of its range; or (when it runs) ``key`` is needed, the folder holds other files, or it cannot be
            seen whether batches or samples come in; or a source that gives a rank other samples in each epoch has not filled the cache in
            the first.
        DamagedError: samples are damaged, and what stands before the cache does not make them again as they were.
        OSError: the folder cannot be made or written to, for other reasons than a lack of space.
        ItemError: a field cannot be kept, or not as it came.
        ValueError: the samples differ in their fields or the types of those, or in shape and are to be stacked.
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
        """What comes in, as far as it was said."""
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
        """Return what takes the place of this stage and of all ``stages`` before it.

        So they are known, which gives the cache its key and its number of epochs, and the source need not start if it is finished.
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
