"""``Cache`` keeps the samples of the first epoch, so that later epochs do not run the stages before the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from highway.engine.component import Position, Traits, no_state
from highway.engine.context import Context
from highway.engine.source import has_state, remake_of
from highway.engine.stage import Items, Stage, Stamped, unique
from highway.errors import ConfigError
from highway.modules.caching.options import CacheOptions
from highway.modules.caching.run import CacheRun
from highway.modules.caching.serving import Reading
from highway.modules.inner_sources import in_place, length_of_epoch, ranks_of_all
from highway.parameters.checks import checked
from highway.reading.plan import RowRanges
from highway.reading.share import CacheOrder

_AT_EPOCH = "at epoch"  # marks a state at the beginning of an epoch. A run that resumes from such a state can use a complete cache


@dataclass
class Gate:
    """A wrapper for the source before a cache.

    If a run starts or resumes at the beginning of an epoch, the gate opens the cache. If the cache is complete, the gate yields no items.
    Otherwise, it yields the items of the source.
    """

    stands_for: Iterable[Any]
    run: CacheRun

    def __highway__(self) -> Traits:
        source = Traits.of(self.stands_for)
        at_epoch = (
            source.at_epoch if source.items_of_rank is not None else None
        )  # before a cache, a rank of a reader reads the same samples in each epoch
        return replace(
            source,
            stands_for=self.stands_for,
            state=Position,
            remake=remake_of(self.stands_for, source),
            length=lambda: length_of_epoch(self.stands_for),
            ranks=lambda: ranks_of_all([self.stands_for]),
            stamped=None,
            deal_anew=None,
            deal_rest=None,
            items_of_rank=None,
            resume=None,
            at_epoch=None if at_epoch is None else partial(_at_epoch, at_epoch),
        )

    def __iter__(self, context: Context) -> Iterator[Any]:
        begun = context.state_of(self).value
        begins = begun is None or (isinstance(begun, list) and begun[:1] == [_AT_EPOCH])
        if begins and self.run.open(context.seed):
            return iter(())
        if not has_state(self.stands_for, Traits.of(self.stands_for)):
            context.refusal = no_state(self.run.before[0].label)
        elif self.run.refuses_states:
            context.refusal = (
                f"state_dict: {self.run} is still being filled, and after a resume, on_error='skip' may skip other samples. Call "
                "state_dict() in a run that begins with the complete cache, or remove on_error='skip' or path= (for a cache in memory)"
            )
        return in_place(self.stands_for, context, begun[1] if begins and begun else begun)


def _at_epoch(of_source: Callable[[int], Any], epoch: int) -> list[Any]:
    return [_AT_EPOCH, of_source(epoch)]


@checked
@dataclass
class Cache(CacheOptions):
    """Keep the samples of the first epoch, and serve every later epoch from the cache.

    In the first epoch, the cache passes the items on unchanged. With ``batch_size``, it combines the samples into batches. A later run uses
    a cache in a folder again if the files, the parameters and the code of the stages before the cache have not changed. If one of these
    stages draws random numbers, the seed must not have changed either. After a change, the cache is built again. Put random crops and flips
    after the cache, because stages before the cache draw random numbers only once.

    If a run ends while it writes the cache, the unfinished cache is discarded. While one process writes the cache, other processes with the
    same folder run without a cache. At the beginning of each epoch, these processes use the cache if it is complete. If the samples do not
    fit into ``budget``, highway logs a warning once, and every epoch runs all stages.

    **Ranks.** If the first stage is a reader, each rank reads its samples of epoch 0 in every epoch. The order of an epoch is the same with
    and without a complete cache. All ranks together read all samples in each epoch, even if the samples of one rank do not fit into
    ``budget``. Other sources, such as ``Mix``, give a rank different samples in each epoch. If such a source runs on several ranks, each
    rank needs a complete cache after the first epoch. Without it, some samples would be read twice and others never, so the run raises
    ``ConfigError``.

    **Samples that cannot be read.** If samples are skipped because of ``on_error="skip"``, the next epoch tries to read these samples
    again. A sample that fails twice is not tried again. If a reader yields batches, the next sample of the epoch replaces a skipped sample.
    The counter ``skipped`` of the stage ``Cache.epochs`` counts the missing samples of each epoch. The cache verifies the checksum of each
    sample when the sample is first read from the cache. If samples of the cache are damaged, highway logs a warning, and the stages before
    the cache create these samples again.

    **Resume.** If a run is interrupted while it writes the cache, the resumed run repeats this epoch from its beginning. If a cache in a
    folder is complete, a run resumes at once. A cache in memory is lost, so the resumed run first reads an epoch to fill the cache again.
    It does not yield the items of this epoch. If the samples do not fit into the budget, a run can resume in the middle of any epoch.

    If a stage before the cache has ``on_error="skip"``, ``state_dict()`` raises an error while the run writes a cache in a folder.
    Without this error, a resumed run could find a complete cache with another order. ``state_dict()`` does not raise this error if all of
    these conditions are true:

    - The first stage is a reader without ``shuffle="blocks"``.
    - All other stages before the cache are maps, which return one output for each input.
    - The maps do not have ``on_error="skip"``, drop no items, and draw no random numbers.

    Args:
        path: A folder that contains only the cache. It is created if it does not exist. If there are several ranks, each rank uses a
            subfolder, such as ``rank-0-of-4``. If you change the number of ranks, remove the old subfolders yourself. With ``None``, the
            cache is in memory, and is lost at the end of the run.
        budget: Maximum size in bytes. The default for a folder is nine tenths of the free disk space. The default for a cache in memory is
            half of the free memory. Both are divided by the number of ranks on this machine.
        batch_size: Number of samples per output batch, if the inputs are samples. The last batch of an epoch can be smaller. With ``None``,
            the outputs are batches if the inputs are batches. Otherwise, the outputs are samples.
        stack: Whether the fields of output batches are arrays with a batch axis. With ``False``, fields whose values have axes, such as
            images, are lists of read-only arrays. These arrays can differ in shape.
        shuffle: Whether each epoch has a different order. With ``False``, all epochs have the order of the first epoch.
        seed: Seed of the orders, at least 0. ``None``: the pipeline's seed.
        epochs: Number of epochs to yield. ``None``: as many epochs as the stages before the cache have, or unlimited if that is unknown.
        key: A text that identifies the cached data. Change it when the data changes. It is required if highway cannot detect whether the
            stages before the cache have changed.
        batched: Whether the inputs are batches. With ``True``, output batches have the size of the input batches. With ``False`` and
            without ``batch_size``, each output is a sample of the same type as the input, with read-only arrays. With ``None``, stages
            before the cache determine this, such as readers, :class:`Batch` or :class:`Unbatch`. If there is no such stage, the keys and
            fields of the first item determine it.

    Yields:
        Tuples, lists or dicts like the inputs. The passport (the metadata of an item) contains the epoch, the index within the epoch, and
        the keys of the samples.

        If the outputs are samples, they can contain arrays of numbers, numbers, ``str``, ``bytes``, ``None``, and lists and dicts of plain
        numbers and texts.

    >>> from highway import Pipeline
    >>> samples = [{"id": 1, "boxes": [[4, 2]]}, {"id": 2, "boxes": []}]
    >>> with Pipeline([samples, Cache(shuffle=False, epochs=2)]) as pipeline:
    ...     [list(pipeline), list(pipeline)] == [samples, samples]
    True

    Raises:
        ConfigError: a parameter is out of its range (on construction).
        ConfigError: ``key`` or ``batched`` is required, or the folder contains files that do not belong to a cache (when running).
        ConfigError: the source gives a rank different samples in each epoch, and the cache is not complete after the first epoch (when
            running).
        DamagedError: samples of the cache are damaged, and the stages before the cache do not create the same samples again.
        OSError: the folder cannot be created or written to. A full disk is not an error.
        ItemError: the cache cannot store a field, or cannot restore it exactly.
        ValueError: the samples differ in their fields or field types; or they are stacked and differ in shape.
    """

    def __post_init__(self) -> None:
        if self.batched and self.batch_size is not None:
            raise ConfigError(
                f"Cache: batched=True means that the input is batches, but batch_size={self.batch_size} is for samples; remove one of them"
            )
        if self.batched is False and self.batch_size is None and not self.stack:
            raise ConfigError("Cache: stack=False applies to batches, but batched=False makes the cache yield samples; remove one of them")

    def stream(self, items: Items) -> Iterator[Stamped]:
        run = CacheRun(self, [])
        reading = Reading(self.stack, run.repair)
        for item, passport in run.stream(items):
            yield Stamped(reading(item), passport)

    def __highway__(self) -> Traits:
        return Traits(after=self._after)

    def _after(self, stages: Sequence[Stage]) -> list[Stage]:
        """Return the stages that replace this stage and all ``stages`` before it.

        The cache needs these stages for its key and its number of epochs. :class:`Gate` skips the source if the cache is complete.
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
