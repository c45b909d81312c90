"""The stream that writes and serves a cache in one pipeline."""

from __future__ import annotations

import contextlib
import logging
import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from highway.datasets.cache_files.claim import expect_caches_only
from highway.datasets.cache_files.fields import Arrays, arrays_as_they_came, arrays_of
from highway.datasets.cache_files.file import CacheFile, DiskFile
from highway.datasets.cache_files.file import samples_of as as_they_came
from highway.datasets.cache_files.folder import CacheFolder, FolderWriter
from highway.engine import cancel
from highway.engine.component import Makes, NotNowError, Position, Traits, not_now
from highway.engine.context import Context, here
from highway.engine.stage import Items, Stage, Stamped
from highway.errors import CacheFullError, Cancelled, ConfigError, DamagedError, PipelineError
from highway.modules.caching.epoch import Epochs, Keyed, Passing, Progress, Stacker
from highway.modules.caching.fingerprint import chance, fingerprint, samples_of, share_of
from highway.modules.caching.input import comes_in_batches, described, maker_of
from highway.modules.caching.options import CacheOptions
from highway.modules.caching.places import Places
from highway.modules.caching.repair import repair
from highway.modules.caching.serving import Serving
from highway.modules.caching.share import fixed_plan_of, is_exact, plan_of
from highway.parameters.ranges import HOW
from highway.process.memory import available_memory, free_disk
from highway.process.ranks import ranks_here
from highway.reading.plan import RowRanges

log = logging.getLogger("highway")


@dataclass
class CacheRun:
    """The stream of a cache: it writes the samples of the first epoch to the cache, and serves later epochs from the cache.

    Args:
        cache: The parameters of the cache.
        before: The stages before the cache. Empty if they are unknown.
    """

    cache: CacheOptions
    before: Annotated[list[Stage], HOW]  # not part of the hash of this stage, because these stages have their own hashes
    file: CacheFile | None = field(default=None, init=False)
    # A cache without the samples that were skipped. This run tries to create these samples again.
    _old: CacheFile | None = field(default=None, init=False)
    _folder: CacheFolder | None = field(default=None, init=False)
    _full: bool = field(default=False, init=False)
    _batched: bool | None = field(default=None, init=False)
    _repairing: dict[str, object] = field(default_factory=dict, init=False)
    _repaired: bool = field(default=False, init=False)
    _counters: dict[str, Any] = field(default_factory=dict, init=False)
    _ended: bool = field(default=False, init=False)
    _next_epoch: int = field(default=0, init=False)  # the epoch after the last epoch that was passed on

    def __highway__(self) -> Traits:
        epochs = Traits(length=self._length, numbers_epochs=True, epochs=self.epochs, whole_epochs=True, repeats=True, remakes_in_run=True)
        return replace(epochs, makes=self._makes, state=Position, remake=self._remake, at_epoch=lambda epoch: [epoch, 0, "begin"])

    @property
    def gated(self) -> bool:
        """Whether a ``Gate`` (in :mod:`highway.modules.cache`) wraps the source before the cache. The gate opens the cache."""
        return bool(self.before) and hasattr(self.before[0].op, "__iter__")

    @property
    def plan(self) -> RowRanges | None:
        """The plan of the reader, which determines its order. ``None`` without a reader, or if another stage than maps follows it."""
        return plan_of(self.before)

    @property
    def refuses_states(self) -> bool:
        """Whether no state can be saved while this run fills the cache: a resumed run could skip other samples."""
        return bool(self.cache.path) and not is_exact(self.before) and any(stage.on_error == "skip" for stage in self.before)

    @property
    def _makes(self) -> Makes | None:
        """The type of the outputs, batches or samples, for a second cache in the pipeline. ``None``: unknown before the first item."""
        if self.cache.batch_size is not None:
            return "batches"
        maker = maker_of(self.before)
        return self.cache.takes or (maker.traits.makes if maker else None)

    @property
    def epochs(self) -> int | None:
        """The number of epochs, by the parameter or the stages before the cache. ``None`` if it is unlimited or unknown."""
        made = [stage.traits for number, stage in enumerate(self.before) if number == 0 or stage.traits.repeats]
        return self.cache.epochs or (made[-1].epochs if made else None)

    def _length(self, items: int) -> int:

        return items if self.cache.batch_size is None else -(-items // self.cache.batch_size)

    def open(self, seed: int) -> bool:
        """Open the cache if it was completed with this seed and no samples are missing. Return whether the cache is open."""
        if self._folder is None:
            self._folder = self._own_folder(self.cache.path, seed) if self.cache.path else CacheFolder("", "")
        found = self._folder.open()
        if found is not None and not found.settled:
            log.warning("%s: samples are missing, because on_error='skip' has skipped them; highway decodes an epoch to try again", self)
            self._old = found
        elif found is not None:
            self.file = found
        return self.file is not None

    def _own_folder(self, path: str, seed: int) -> CacheFolder:
        """Return the folder of this rank's cache. If there are several ranks, each rank has a subfolder."""
        fingerprint, share = self._fingerprint(seed), share_of(self.before)
        if not share.name:
            return CacheFolder(path, fingerprint)
        expect_caches_only(path)
        return CacheFolder(os.path.join(path, share.name), fingerprint)

    def _fingerprint(self, seed: int) -> str:
        cache = self.cache
        if not cache.key and not self.before:
            raise ConfigError(f"Cache: path={cache.path!r} needs key=, a text that you change when the stages before the cache change")
        if cache.key:
            made = " ".join(filter(None, [cache.key, share_of(self.before).name, chance(self.before, seed)]))
        else:
            made = fingerprint(self.before, seed)
        kinds = {True: "batches", False: "whole samples", None: "as they come"}
        share = " of a fixed share" if fixed_plan_of(self.before) and share_of(self.before).name else ""
        return f"{made} {'samples' if cache.batch_size is not None else kinds[cache.batched]}{share}"

    def stream(self, items: Items) -> Iterator[Stamped]:
        self._counters = items.context.counters(self)
        self._counters.update(samples=0, bytes=0, state="new")
        source, position = Epochs(items, self.epochs), items.context.state_of(self)
        epoch, index, state, *made_in = position.value or (0, 0, "")
        position.value = not_now
        if state in ("full", "passing"):
            self._full = state == "full"
            yield from self._pass_the_rest(source, position, epoch, index)
        if state == "begin":
            source.epoch = self._next_epoch = epoch
        if self.gated and state in ("", "serving", "begin"):
            source.peek()  # this makes the gate open the cache, if it is complete
        elif not self._full:
            self.open(items.context.seed)
        served = state == "serving"
        while self.file is None and not (served and (self._full or source.epoch >= epoch)) and (first := source.peek()) is not None:
            for stamped in self._pass(source, position, first):
                if not served:  # after a resume, the loop has had these items; they are read to fill the cache
                    yield stamped
        self.file = self.file or self._old
        if self.file is not None:
            self._counters.update(samples=len(self.file), bytes=self.file.nbytes, state="serving")
            if not served:
                epoch, index = source.epoch, 0
            elif made_in not in ([], [self.file.made_in]) and not is_exact(self.before):
                before, now = (f"{samples} samples of epoch {made}" for samples, made in (*made_in, self.file.made_in))
                raise PipelineError(
                    f"load_state_dict: {self} had {before} when the state was saved, but now has {now}. on_error='skip' has skipped other "
                    "samples this time; start again without the state"
                )
            yield from self._serving(self.file, items.context).epochs(epoch, index, self.epochs, items.context, position)
        elif served and not items.context.draining:
            why = "the samples do not fit; raise budget or free space" if self._full else "the earlier epochs have not filled the cache"
            why = f"{self} is not complete, and cannot serve epoch {epoch}: {why}, or start again without the state"
            raise PipelineError(f"load_state_dict: the state was saved with a complete cache, but {why}")
        self._ended = True

    def _remake(self, came: list[Stamped], part: list[int] | None) -> Stamped:
        """Create an item again. ``part`` is its epoch and index in the complete cache. If it is ``None``, use the inputs ``came``."""
        if part is None:
            return self._passing(self.cache.batch_size is None, []).made(came)
        while self.file is None:
            if self._ended:
                raise Cancelled
            cancel.wait(0.01)  # another stage opens the file, and only a resumed run waits here
        return next(self._serving(self.file, here()).epoch(*part))

    def _serving(self, file: CacheFile, context: Context) -> Serving:
        def count(samples: int) -> None:
            self._counters["skipped"] = self._counters.get("skipped", 0) + samples

        return Serving(file, self.cache, *self._ranks, context.seed_or(self.cache.seed), count)

    @property
    def _ranks(self) -> tuple[int, int]:
        """The rank and world size that determine the indexes of the outputs. They are 0 and 1 if the rank counts only its own outputs."""
        return (0, 1) if self.plan is None or self.cache.batch_size else share_of(self.before)

    def _passing(self, batched: bool, waiting: list[Stamped], index: int = 0) -> Passing:
        return Passing(batched, self.cache.batch_size, Stacker(self.cache.stack), waiting, index)

    def _pass_the_rest(self, source: Epochs, position: Position, epoch: int, index: int) -> Iterator[Stamped]:
        """Pass on the remaining items of an epoch, without writing them to the cache."""
        passing = self._passing(False, source.waiting, index)
        source.epoch = epoch
        position.value = lambda: [source.epoch, passing.index, "full" if self._full else "passing"]
        passing.batched = (first := source.peek()) is not None and self._is_batched(first)
        for outputs, *_ in passing.epoch(source.of(epoch)):
            yield from outputs
        self._next_epoch = epoch + 1

    def _pass(self, source: Epochs, position: Position, first: Stamped) -> Iterator[Stamped]:
        """Pass the items of an epoch on, and write them to the cache.

        If the items do not fit, or if another process writes the cache, only pass them on. If another process has completed the cache,
        return without outputs. While the cache is written, this stream has no state, so a resumed run repeats the epoch.

        Raises:
            ConfigError: the source gives this rank different samples in each epoch, and the cache of this rank is not complete after the
                first epoch. The ranks together could then read some samples twice, and others never.
        """
        if source.epoch and share_of(self.before).world_size > 1 and fixed_plan_of(self.before) is None:
            raise ConfigError(
                f"{self} is not complete after the first epoch ({self._why_incomplete()}), and {self.before[0].label} gives this rank "
                "other samples in each epoch. The ranks together might read some samples twice and others never: raise budget= and skip "
                "no samples, or use a reader as the first stage"
            )
        if (plan := fixed_plan_of(self.before)) is not None:
            plan.forget_bad(source.epoch)
        passing = self._passing(self._is_batched(first), source.waiting)
        arrays = self._arrays(passing.batched)
        with contextlib.nullcontext() if self._full or self._folder is None else self._folder.writer(self._budget()) as writer:
            if writer is None and not self._full and self.open(source.context.seed):
                return

            def save() -> list[Any]:
                if writer is not None or self._old is not None:
                    raise NotNowError
                return [source.epoch, passing.index, "full" if self._full else "passing"]

            position.value = save
            places = Places(self.plan, source.context) if writer is not None and self.plan is not None else None
            came = (array("q"), array("q"))  # for each item, its index and its number of samples
            self._counters["state"] = "full" if self._full else "another process writes" if writer is None else "writing"
            epoch = source.epoch
            progress = Progress(str(self), samples_of(self.before) if writer is not None else None)
            for outputs, passport, samples in passing.epoch(source.of(epoch)):
                if samples and writer is not None:
                    came[0].append(passport.index)
                    came[1].append(len(samples))
                if samples and places is not None and writer is not None:
                    samples = [samples[number] for number in places.kept(passport, len(samples), len(writer))]
                if writer is not None and self._written(writer, samples, arrays):
                    self._counters.update(samples=len(writer), bytes=writer.nbytes, first_epoch=progress.at(len(writer)))
                else:
                    writer = None
                yield from outputs
            self._counters.pop("first_epoch", None)
            if writer is not None and len(writer) and not source.context.draining:
                self._seal(writer, passing.batch_size, epoch, source.left_out, places, arrays, np.array(came, np.int64))
            elif self._old is not None:
                self.file = self._old
            self._next_epoch = epoch + 1

    def _is_batched(self, first: Stamped) -> bool:
        """Return whether the inputs are batches, by the parameter ``batched`` or by the first item.

        Raises:
            ConfigError: it is unclear whether the item is a batch; or the item is a sample, but ``stack=False`` needs batches.
        """
        if self._batched is None:
            takes = self.cache.takes
            self._batched = takes == "batches" if takes else comes_in_batches(first, maker_of(self.before))
        if not self._batched and self.cache.batch_size is None and not self.cache.stack:
            raise ConfigError(
                f"Cache: stack=False is for batches, but the first item, {described(first.item)}, is one sample; remove stack=False, or "
                "pass batch_size= to make batches of samples"
            )
        return self._batched

    def _arrays(self, batched: bool) -> Arrays:
        """Return the function that converts a sample to the arrays in the cache."""
        return arrays_of if batched or self.cache.batch_size is not None else arrays_as_they_came

    def _written(self, writer: FolderWriter, samples: list[Keyed], arrays: Arrays) -> bool:
        """Write samples, and return whether they fit."""
        try:
            for sample, keys, position in samples:
                writer.add(sample, keys, arrays, position)
        except CacheFullError as error:
            self._give_up(writer, str(error))
            return False
        return True

    def _items(self, came: np.ndarray, samples: int) -> dict[str, np.ndarray]:
        """Return ``{"items": array}`` for the index file of the cache. The array has the index and the number of samples of each item.

        Return an empty dict if the cache does not need the array, or if the array does not match the samples.
        """
        rank, world_size = self._ranks
        numbers, counts = came
        in_order = (numbers == rank + world_size * np.arange(len(numbers))).all()
        of_one_size = (counts[:-1] == counts[0]).all() and counts[-1] <= counts[0]
        is_same = (in_order and of_one_size) or self.cache.batch_size is not None
        return {} if is_same or counts.sum() != samples else {"items": came}

    def _seal(
        self, writer: FolderWriter, batch_size: int, epoch: int, left_out: int, places: Places | None, arrays: Arrays, came: np.ndarray
    ) -> None:
        """Complete the cache. If samples were skipped, try again, unless this try read no more samples than the previous try."""
        tried, self._old = self._old, None
        whole_epoch = epoch > self._next_epoch  # whether all items of an earlier epoch were dropped
        if places is not None and (whole_epoch or (left_out and is_exact(self.before) and not places.is_planned)):
            assert self._folder is not None
            self._folder.discard()
            what = "all items of an epoch" if whole_epoch else "batches or rows, and the reader skips samples"
            self._give_up(writer, f"a map skips {what}", "skip items after the cache")
            return
        places = places if places is not None and places.known else None
        index: dict[str, np.ndarray] = {}
        try:
            if places is not None:
                if tried is not None:
                    self._add_from(tried, writer, places, arrays)
                left_out, index = 0 if places.complete else left_out, places.index()
            if epoch and places is None:
                index = {"epoch": np.array([epoch])}
            elif epoch == 0 and (places is None or not places.is_planned):
                index |= self._items(came, len(writer))
            if epoch == 0 and is_exact(self.before) and self.before[0].traits.epochs != 1:
                tried = None  # ignore the cache of an earlier run, so that this run also tries again in epoch 1
            made = writer.seal(batch_size, left_out, tried, index)
        except CacheFullError as error:
            self._old = tried
            self._give_up(writer, str(error))
            return
        if made.settled:
            self.file = made
        else:
            self._old = made
        if left_out:
            way_out = "remove the cache to decode them again" if self.file else "highway decodes another epoch to try again"
            log.warning("%s: samples are missing, because on_error='skip' has skipped them (%d errors so far); %s", self, left_out, way_out)

    def _add_from(self, tried: CacheFile, writer: FolderWriter, places: Places, arrays: Arrays) -> None:
        """Append the samples that an earlier try has and this epoch lacks."""
        for row, place in places.lacking(tried):
            with contextlib.suppress(DamagedError):
                writer.add(as_they_came(tried, [row])[0], tried.keys([row]), arrays, *tried.positions([row]))
                places.add(place, len(writer) - 1)

    def repair(self, file: CacheFile, error: DamagedError) -> None:
        """Create damaged samples again, while other threads wait. If this fails, discard the cache and raise the error."""
        me = object()
        while self._repairing.setdefault("", me) is not me:  # atomic
            cancel.wait(0.05)  # polls, because waiting for a lock cannot be cancelled
        try:
            if self._repaired and _is_whole(file, error.rows):  # another thread has repaired the samples meanwhile
                return
            assert isinstance(file, DiskFile)  # a cache in memory is never damaged
            self._counters["state"] = "repairing"
            repair(file, self.before, self._arrays(file.batch_size > 0), error)
            self._repaired = True
            self._counters["state"] = "serving"
        except DamagedError:
            if self._folder is not None:
                self._folder.discard()
            raise
        finally:
            del self._repairing[""]

    def _give_up(self, writer: FolderWriter, why: str, way_out: str = "raise budget, free space, or cache less") -> None:
        """Stop writing. Continue without a cache, or with the cache of an earlier try."""
        self._full = self._old is None
        self._counters["state"] = "full"
        log.warning(
            "Cache: %s. highway discards the %d samples in %s, and %s; %s",
            why,
            len(writer),
            self.cache.path or "memory",
            "decodes every epoch" if self._full else "uses the existing cache, without the missing samples",
            way_out,
        )
        writer.close()

    def _why_incomplete(self) -> str:
        if self._full:
            return "the samples do not fit"
        return "another process is writing it" if self._old is None and self.cache.path else "samples were skipped"

    def _budget(self) -> int:
        if self.cache.budget is not None:
            return self.cache.budget
        budget = free_disk(self.cache.path) * 9 // 10 if self.cache.path else available_memory() // 2
        return budget // ranks_here(share_of(self.before).world_size)

    def __str__(self) -> str:
        return f"cache {self.cache.path or 'in memory'}"


def _is_whole(file: CacheFile, rows: list[int]) -> bool:
    try:
        file.columns(rows)
    except DamagedError:
        return False
    return True
