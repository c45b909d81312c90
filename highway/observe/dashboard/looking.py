"""Take batches to show, from a link's tap or from a pipeline of this process. Each batch is drawn once, for all browsers.

A *tap* is an address at which programs can read copies of the messages of a link.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from highway.engine import Pipeline
from highway.engine.batch import fields, get, names, rebuild
from highway.engine.stage import Passport, Stamped
from highway.errors import EndOfStream, HighwayError
from highway.images.grid import Tile
from highway.images.items import image_field
from highway.images.pictures import tiles
from highway.observe.summary import FieldSummary, shape_text
from highway.observe.viewers import viewer_urls
from highway.topology.plan import Plan
from highway.wire.receiver import LinkReceiver
from highway.wire.url import parse

EVERY = 2.0  # minimum seconds between two batches from one place
PATIENCE = 3.0  # maximum seconds to wait for a batch
ROWS = 16  # maximum number of images to show
SIZE = 144  # length of an image's longer side in pixels
MOST = 1 << 21  # maximum number of a field's elements to read

Take = Callable[[], tuple[Any, Passport, Mapping[str, str]]]
"""A function that returns a batch, its passport (metadata), and the full shapes of truncated fields.

The page shows the function's errors.
"""


class ShownBatch(NamedTuple):
    """A batch on the page. ``picture`` shows the images side by side, each in a square of :data:`SIZE` pixels."""

    number: int = 0
    time: float = 0.0
    note: str = "Waiting for a batch."
    fields: list[dict[str, Any]] = []  # noqa: RUF012  # never changed
    texts: list[tuple[str, str]] = []  # noqa: RUF012
    picture: bytes = b""


class Looker:
    """Takes batches from *places* (links or pipelines), on request, and at most one batch every :data:`EVERY` seconds from each place."""

    def __init__(self, places: Mapping[str, Take]) -> None:
        self._places = list(places.values())
        self._seen = [ShownBatch() for _ in places]
        self._asked = [float("-inf")] * len(self._places)
        self._pool = ThreadPoolExecutor(1, "highway-look")

    def look(self, place: int) -> ShownBatch:
        """Return the last batch from a place, and take a new batch for the next request.

        Raises:
            IndexError: the place does not exist.
        """
        if place < 0:
            raise IndexError
        now = time.monotonic()
        if now - self._asked[place] >= EVERY:
            self._asked[place] = now
            with contextlib.suppress(RuntimeError):  # the page is being closed
                self._pool.submit(self._take, place)
        return self._seen[place]

    def close(self) -> None:
        """Take no more batches, and wait for the batch that is being taken."""
        self._pool.shutdown(cancel_futures=True)

    def _take(self, place: int) -> None:
        before = self._seen[place]
        try:
            seen = _seen(before.number + 1, *self._places[place]())
        except TimeoutError:
            seen = before._replace(note="No batch has arrived in the last seconds.")
        except EndOfStream:
            seen = before._replace(note="The stream has ended.")
        except HighwayError as error:
            seen = before._replace(note=str(error))
        except Exception as error:  # the page must work, whatever a batch holds
            seen = before._replace(note=f"This batch cannot be shown: {type(error).__name__}: {error}")
        self._seen[place] = seen
        self._asked[place] = time.monotonic()


def at_link(plan: Plan, link: str) -> Take:
    """Return a function that takes a batch from the tap of a link. Reading a tap does not affect the run."""

    def take() -> tuple[Any, Passport, Mapping[str, str]]:
        with LinkReceiver(parse(viewer_urls(plan, link), "receive"), {}) as receiver:
            message = receiver.recv(PATIENCE)
            return message.item, (message.envelope and message.envelope.passport) or Passport(), {}

    return take


def at_pipeline(pipeline: Pipeline) -> Take:
    """Return a function that takes a pipeline's next batch. The function copies the first rows, because the consumer owns the batch."""

    def take() -> tuple[Any, Passport, Mapping[str, str]]:
        copied: SimpleQueue[tuple[Any, Passport, Mapping[str, str]]] = SimpleQueue()

        def look(stamped: Stamped) -> None:
            pipeline.hand_over.look = None
            item, passport = stamped
            shapes = {str(name): shape_text(np.shape(get(item, name))) for name in names(item) if hasattr(get(item, name), "shape")}
            is_sample = bool(names(item)) and getattr(get(item, image_field(item)), "ndim", 0) == 3
            copied.put((rebuild(item, [_first(value, None if is_sample else ROWS) for value in fields(item)]), passport, shapes))

        pipeline.hand_over.look = look
        try:
            return copied.get(timeout=PATIENCE)
        except Empty:
            pipeline.hand_over.look = None
            raise TimeoutError from None

    return take


def _first(value: Any, rows: int | None) -> Any:
    return np.array(value[:rows] if np.ndim(value) else value) if isinstance(value, np.ndarray) else value


def _seen(number: int, item: Any, passport: Passport, shapes: Mapping[str, str]) -> ShownBatch:
    shown = list(_tiles(item, passport))
    strip = Image.new("RGB", (SIZE * max(1, len(shown)), SIZE), (128, 128, 128))
    for place, tile in enumerate(shown):
        strip.paste(tile.image, (place * SIZE + (SIZE - tile.image.width) // 2, (SIZE - tile.image.height) // 2))
    png = io.BytesIO()
    strip.save(png, "png", compress_level=1)
    about = [_field(str(name), value, shapes.get(str(name), "")) for name, value in zip(names(item), fields(item), strict=True)]
    texts = [(tile.label, tile.key) for tile in shown] or [("", key) for key in list(passport.keys or ())[:ROWS]]
    return ShownBatch(number, time.time(), "", about, texts, png.getvalue() if shown else b"")


def _tiles(item: Any, passport: Passport) -> Iterator[Tile]:
    """Yield the images of a batch or a sample. Without images, yield nothing."""
    for unbatched in (False, True):
        try:
            if unbatched and not _may_be_image(get(item, image_field(item)), passport):
                return
            for row, (tile, *_) in enumerate(tiles(item, passport, SIZE, unbatched)):
                if row == ROWS:
                    return
                yield tile
            return
        except (ValueError, TypeError, KeyError, OSError):  # no images, or unsupported images
            continue


def _may_be_image(value: Any, passport: Passport) -> bool:
    """Return whether a field without a batch of images can be one image. Otherwise, the field is a table of numbers."""
    is_image = isinstance(value, bytes) or getattr(value, "ndim", 0) == 3 or getattr(value, "dtype", None) == np.uint8
    return is_image and len(passport.keys or ()) <= 1


def _field(name: str, value: Any, shape: str) -> dict[str, Any]:
    """Return the description of a field: dtype, shape, and for numbers the statistics of the finite values and the share of NaN."""
    about: dict[str, Any] = {"name": name, "dtype": type(value).__name__, "shape": shape}
    if isinstance(value, (bytes, str)):
        return about | {"shape": f"{len(value)} long"}
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different shapes
        return about | {"shape": f"{len(value)} rows of several shapes"}
    about |= {"dtype": str(array.dtype), "shape": shape or shape_text(array.shape)}
    if array.dtype.kind in "biuf" and array.size:
        summary = FieldSummary()
        summary.add(array.reshape(-1)[:MOST], batched=False)
        numbers = {"min": summary.min, "max": summary.max, "mean": summary.moments.mean, "nan": summary.nan / summary.size}
        about |= {key: number if np.isfinite(number) else None for key, number in numbers.items()}
    return about
