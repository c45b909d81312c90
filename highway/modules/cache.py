"""``Cache`` keeps the samples of the first epoch, so that later epochs need not run the stages before the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

from highway.engine.component import Makes, Position, Traits, no_state
from highway.engine.context import Context
from highway.engine.source import has_state, remake_of
from highway.engine.stage import Items, Stage, Stamped, unique
from highway.errors import ConfigError
from highway.modules.caching.run import CacheRun
from highway.modules.caching.serving import Reading
from highway.modules.inner_sources import in_place, length_of_epoch, ranks_of_all
from highway.parameters.checks import checked
from highway.parameters.ranges import ENDS, Count, Predicate, Seed
from highway.reading.plan import RowRanges
from highway.reading.share import CacheOrder
from highway.stores.url import is_url

_AT_EPOCH = "at epoch"  # marks a state at the beginning of an epoch; the cache might be complete then


@dataclass
class Gate:
    """The source before a cache.

    If a run starts or resumes at the beginning of an epoch, the gate opens the cache. If the cache is complete, the gate yields no items.
    """

    stands_for: Iterable[Any]
    run: CacheRun

    def __highway__(self) -> Traits:
        source = Traits.of(self.stands_for)
        at_epoch = (
            source.at_epoch if source.items_of_rank is not None else None
        )  # the ranks of a reader keep to the samples of their caches
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
                f"state_dict: {self.run} is being filled from stages with on_error='skip', so a resumed run may serve other samples or "
                "another order; call state_dict() in a run that begins with the complete cache, or remove path= (for a cache in memory) "
                "or on_error='skip'"
            )
        return in_place(self.stands_for, context, begun[1] if begins and begun else begun)


def _at_epoch(of_source: Callable[[int], Any], epoch: int) -> list[Any]:
    return [_AT_EPOCH, of_source(epoch)]


def _is_folder(path: str) -> bool:
    return bool(path) and not is_url(path)


@checked
@dataclass
class Cache:
    """Keep the samples of the first epoch, and serve every later epoch from the cache.

    In the first epoch, the items pass unchanged; with ``batch_size``, their samples are combined into batches. Later runs use a cache in a
    folder again if the files, the parameters and the code of the stages before the cache have not changed. If one of these stages draws
    random numbers, the seed must not change either. After a change, the cache is built again. Put random crops and flips after the cache,
    because stages before the cache draw random numbers only once.

    An unfinished cache is discarded. While one process writes the cache, other processes with the same folder run without a cache. At the
    beginning of each epoch, these processes check whether the cache is complete. If it is complete, they use it. If the samples do not fit
    into the budget, highway logs a warning once, and every epoch runs all stages.

    **Ranks.** If the first stage is a reader, each rank reads the samples of its epoch 0 in every epoch. The samples of a rank depend only
    on the seed and the number of ranks. The order of an epoch is the same with and without a complete cache. Therefore, the ranks together
    read all samples, even if the samples of one rank do not fit into its budget, or its cache lacks skipped samples. Other sources, such
    as ``Mix``, give a rank different samples in each epoch. If such a source runs on several ranks, the cache must be complete after the
    first epoch. Otherwise, the run raises ``ConfigError``.

    **Samples that cannot be read.** If ``on_error="skip"`` has skipped samples, the cache tries these samples again in the next epoch. A
    sample that fails twice is not tried again. In batches of a reader, the next sample of the epoch replaces this sample. The counter
    ``skipped`` of the stage ``Cache.epochs`` counts the missing samples of each epoch. The cache checks each sample when it is first read.
    If samples are damaged, highway logs a warning, and the stages before the cache create the samples again.

    **Resume.** If a run is interrupted while it writes the cache, the resumed run begins this epoch again and fills the cache. If a cache
    in a folder is complete, a run resumes at once. If the cache is in memory, the resumed run first reads an epoch to fill the cache, and
    does not yield this epoch. If the samples do not fit into the budget, a run can resume in the middle of any epoch.

    If a stage before the cache has ``on_error="skip"``, ``state_dict()`` raises an error while the run writes a cache in a folder. It
    raises no error if all of these conditions are met:

    - The first stage is a reader without ``shuffle="blocks"``.
    - All other stages before the cache are maps.
    - The maps do not have ``on_error="skip"``. They neither skip items nor draw random numbers.

    Args:
        path: A folder that contains only the cache. It is created if necessary. Each rank uses a subfolder, such as ``rank-0-of-4``. If you
            change the number of ranks, remove the old subfolders yourself. With ``None``, the cache is in memory, and only for this run.
        budget: Maximum size in bytes. By default nine tenths of the free disk space, or half of the free memory, divided by the number of
            ranks on this machine.
        batch_size: Number of samples per output batch, if the inputs are samples. The last batch of an epoch can be smaller. With ``None``,
            outputs are batches if inputs are batches, and samples if inputs are samples.
        stack: For batches: whether output fields are arrays with a batch axis. With ``False``, fields that have axes, such as images, are
            lists of read-only arrays, which can differ in shape.
        shuffle: Whether each epoch has its own order. With ``False``, all epochs have the order of the first epoch.
        seed: Seed of the orders, at least 0. ``None``: the pipeline's seed.
        epochs: Number of epochs to yield. ``None``: the number of epochs of the reader before the cache, or unlimited.
        key: A text that identifies the data. Required if highway cannot identify the data by the stages before the cache.
        batched: Whether the inputs are batches. With ``True``, output batches have the size of the input batches. With ``False``, the
            inputs are samples. Without ``batch_size``, each output is then a sample of the same type, with read-only arrays. ``None``:
            highway derives this from the stages before the cache, such as :class:`Batch`, readers or :class:`Unbatch`, or from the keys and
            fields of the first item.

    Yields:
        Tuples, lists or dicts like the inputs. The passport (the metadata of an item) has the epoch, the index within the epoch, and the
        keys of the samples.

    Single samples can contain arrays of numbers, NumPy and Python numbers, ``str``, ``bytes``, ``None``, and lists and dicts of plain
    numbers and texts.

    >>> from highway import Pipeline
    >>> samples = [{"id": 1, "boxes": [[4, 2]]}, {"id": 2, "boxes": []}]
    >>> with Pipeline([samples, Cache(shuffle=False, epochs=2)]) as pipeline:
    ...     [list(pipeline), list(pipeline)] == [samples, samples]
    True

    Raises:
        ConfigError: a parameter is out of its range. When the cache runs: ``key`` or ``batched`` is required; the folder has files that do
            not belong to a cache; or the cache is incomplete after the first epoch of a source that gives a rank different samples in each
            epoch.
        DamagedError: samples are damaged, and the stages before the cache do not create the same samples again.
        OSError: the folder cannot be created or written to. A full disk is not an error.
        ItemError: the cache cannot hold a field, or cannot restore the field exactly.
        ValueError: the samples differ in their fields or field types; or they are stacked and differ in shape.
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
                f"Cache: batched=True is for batches as input, but batch_size={self.batch_size} is for samples as input; remove one of them"
            )
        if self.batched is False and self.batch_size is None and not self.stack:
            raise ConfigError("Cache: stack=False is for batches, but with batched=False the cache yields samples; remove one of them")

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

        The cache needs the stages before it for its key and its number of epochs. :class:`Gate` skips the source if the cache is complete.
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
