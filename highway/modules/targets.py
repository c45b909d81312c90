"""Find the images of an item and their boxes, points and masks by the names of their fields, and check them.

A *target* is one image with its annotations: boxes, points, a mask, and the rows of other fields that belong to its boxes or points. A
target is a dict from *roles* to values. The roles are ``"image"``, ``"boxes"``, ``"points"``, ``"mask"``, and one role for each other
field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from highway.engine.batch import Field, Item, get, names, replace, stacked
from highway.engine.randomness import of_rows
from highway.images.items import MOST_CHANNELS, TARGETS, checked_image, entries, expect_no_targets, image_field, is_batch, short
from highway.process.aligned import aligned

Target = dict[str, Any]
Change = Callable[[Target, np.ndarray | None, Any], Target]
Rng = Generator | None

WITHOUT_BOXES = "an empty list unless boxes= is set to the field of the boxes"
"""The value of the parameter ``with_boxes`` that a component without ``boxes`` expects."""
_WITH_BOXES, _WITH_POINTS = "with_boxes", "with_points"


class Targets:
    """Finds the targets of an item.

    Args:
        owner: Name of the component in errors.
        field: The field of the images. ``None``: the default field.
        boxes: The field of the boxes, or ``None``.
        points: The field of the points, or ``None``.
        mask: The field of the masks, or ``None``.
        with_boxes: Fields with one row per box.
        with_points: Fields with one entry per point. A field can be in both ``with_boxes`` and ``with_points``.
        more: A dict from ``"image"``, ``"points"`` or ``"mask"`` to additional fields of this type. Each field gets its own role.
        follow: Which of ``"boxes"``, ``"points"`` and ``"mask"`` must move with the pixels. If the first item has such an annotation, but
            the parameter for it is ``None``, an error is raised.
        all_named: Whether the parameters name all fields with one row per box. If ``False``, and the first item with boxes has another such
            field, an error is raised.
    """

    def __init__(
        self,
        owner: str,
        field: Field | None,
        boxes: Field | None,
        points: Field | None,
        mask: Field | None,
        with_boxes: Sequence[Field],
        with_points: Sequence[Field] = (),
        follow: Collection[str] = TARGETS,
        all_named: bool = False,
        more: Mapping[str, Sequence[Field]] | None = None,
    ) -> None:
        self._more = {f"{kind} {field!r}": (kind, field) for kind, fields in (more or {}).items() for field in fields}
        self._checks_images = field is None
        self._checks_rows = boxes is not None and not all_named
        self._owner, self._image = owner, field
        self._others = {"boxes": boxes, "points": points, "mask": mask}
        self._unnamed = [kind for kind in follow if self._others[kind] is None]
        self._rows = {"boxes"} | {role for role in ("points", "mask") if self._others[role] in with_boxes}
        besides = dict.fromkeys(field for field in (*with_boxes, *with_points) if field not in self._others.values())
        self._besides = {f"{_WITH_BOXES if field in with_boxes else _WITH_POINTS} {field!r}": field for field in besides}
        self._with_points = {"points"} | {role for role, field in self._besides.items() if field in with_points}

    def fields(self, item: Item) -> dict[str, Field]:
        """Return the field of each role.

        Raises:
            ValueError: the item has no fields; or the first item has annotations or images that no parameter names.
        """
        image = image_field(item) if self._image is None else self._image
        where = {"image": image, **{role: field for role, field in self._others.items() if field is not None}, **self._besides}
        where |= {role: field for role, (_, field) in self._more.items()}
        if self._unnamed or self._checks_rows or self._checks_images:
            self._expect_all_named(item, where)
        return where

    def _expect_all_named(self, item: Item, where: Mapping[str, Field]) -> None:
        """Raise ValueError if the first item has annotations, images, or fields with one row per box that no parameter names."""
        if self._checks_images:
            self._expect_one_image(item, where)
            self._checks_images = False
        if self._unnamed:
            advice = "pass {parameter}={field!r} so that they are transformed, too"
            if expect_no_targets(item, self._owner, advice, set(where.values()), self._unnamed):
                self._unnamed = []
        if self._checks_rows:
            in_batch = is_batch(get(item, where["image"]), self._owner)
            counts = _counts(get(item, where["boxes"]), in_batch)
            if counts is None or not any(counts):
                return
            others = [name for name in names(item) if name not in where.values()]
            if rows := [name for name in others if _counts(get(item, name), in_batch) == counts]:
                raise ValueError(
                    f"{self._owner}: this stage can remove boxes, and the number of rows in {', '.join(map(repr, rows))} equals the number "
                    f"of boxes; pass with_boxes={rows} to remove these rows with the boxes, or with_boxes=[] to keep them"
                )
            inner = (
                f"{path} in {name!r}"
                for name in others
                for path, _, value in entries(get(item, name))
                if _counts(value, in_batch) == counts
            )
            if place := next(inner, ""):
                raise ValueError(
                    f"{self._owner}: this stage can remove boxes, and the number of rows in {place} equals the number of boxes; in a map "
                    "before this stage, move these rows to a separate field, and add it to with_boxes; or pass with_boxes=[] to keep them"
                )
            self._checks_rows = False

    def _expect_one_image(self, item: Item, where: Mapping[str, Field]) -> None:
        """Raise ValueError if a tuple contains other images that no parameter names."""
        image = get(item, where["image"])
        shape = image.shape if isinstance(image, np.ndarray) and image.ndim in (3, 4) and 0 < image.shape[-1] <= MOST_CHANNELS else ()
        rest = [name for name in names(item) if isinstance(name, int) and name not in where.values()]
        if others := [name for name in rest if shape and getattr(get(item, name), "shape", None) == shape]:
            raise ValueError(
                f"{self._owner}: the fields {[where['image'], *others]} contain images of shape {shape}, but only the first would change; "
                f"pass field={where['image']!r} to confirm this"
                + f", or field={[where['image'], *others]} to transform all of them in the same way"
                * (self._owner == "Augmentations")
            )

    def kind_of(self, role: str) -> str:
        """Return the type of a role from ``more``: ``"image"``, ``"points"`` or ``"mask"``. Return an empty string for all other roles."""
        return self._more[role][0] if role in self._more else ""

    def goes_with_boxes(self, role: str) -> bool:
        """Return whether a role has one row per box."""
        return role in self._rows or role.startswith(_WITH_BOXES)

    def role_of(self, field: Field) -> str:
        """Return the role of a field that belongs to boxes or points."""
        return next(role for role, one in self._besides.items() if one == field)

    def goes_with_points(self, role: str) -> bool:
        """Return whether a role has one entry per point."""
        return role in self._with_points

    def checked(self, given: Target) -> Target:
        """Check that the image and annotations of a target are valid and fit together. Return the target with float32 boxes and points.

        Raises:
            ValueError: the target is not valid.
        """
        image = checked_image(given["image"], self._owner)
        target = {**given, "image": image}
        for role, columns in (("boxes", 4), ("points", 2)):
            if role in target:
                target[role] = _coordinates(columns, target[role], self._owner)
        if "mask" in target:
            target["mask"] = _mask(target["mask"], image, self._owner)
        for role, (kind, _) in self._more.items():
            target[role] = self._checked_more(kind, role, target[role], image)
        if "points" in target:
            shape = target["points"].shape[:-1]
            for role, value in target.items() if shape[0] else ():
                if self.goes_with_points(role) and np.shape(value)[: len(shape)] != shape:
                    raise ValueError(
                        f"{self._owner}: points have the shape {(*shape, 2)}, but {role} has the shape {np.shape(value)}; expected {shape}"
                    )
        if "boxes" in target:
            count = len(target["boxes"])
            for role, value in target.items():
                if self.goes_with_boxes(role) and (rows := _count(value, role, self._owner)) != count:
                    raise ValueError(f"{self._owner}: the image has {count} boxes, but {role} has {rows} rows; expected one for each box")
        return target

    def _checked_more(self, kind: str, role: str, value: Any, image: np.ndarray) -> np.ndarray:
        if kind == "points":
            return _coordinates(2, value, self._owner)
        if kind == "mask":
            return _mask(value, image, self._owner)
        other = checked_image(value, self._owner)
        if other.shape[:2] != image.shape[:2]:
            raise ValueError(f"{self._owner}: {role} is {other.shape}, but the first image {image.shape}; expected equal height and width")
        return other

    def expect_counts(self, given: Target) -> int:
        """Return the number of images of a batch.

        Raises:
            ValueError: two fields differ in their number of images.
        """
        count = len(given["image"])
        for role, values in given.items():
            if (values_for := _count(values, role, self._owner)) != count:
                raise ValueError(f"{self._owner}: the batch has {count} images, but {role} has values for {values_for}")
        return count

    def expect_no_counts(self, item: Item, fields: Iterable[Field]) -> None:
        """Raise ValueError if an item has counts or offsets for one of ``fields``. They would be wrong after a change of the rows."""
        for field in fields:
            beside = [name for what in ("count", "offsets") if (name := f"{field}_{what}") in names(item)]
            if beside:
                raise ValueError(
                    f"{self._owner}: {beside[0]!r} contains the number of rows of {field!r}, but this stage changes this number. Make the "
                    f"batch with Batch(..., ragged='list'), and pad after {self._owner}. To split a padded batch, use Unbatch(ragged='pad')"
                )

    def each(
        self, item: Item, change: Change, rng: Rng, loses_rows: Callable[[str], bool], transforms: Sequence[object], as_list: bool = False
    ) -> Item:
        """Return a new item in which ``change`` has transformed each target.

        Args:
            item: A sample, or a batch.
            change: A function that returns the new target. Its arguments are the target, an array or ``None``, and the random generator of
                the target. The array is the row of the image in the output batch. ``change`` can write the new image into this array.
            rng: The random generator of the item, or ``None``.
            loses_rows: A function that returns whether ``change`` can remove rows of a role. In a batch, the fields of such roles become
                lists.
            transforms: The transforms, for error messages.
            as_list: Whether the images of a batch and their annotations become lists.

        Raises:
            ValueError: the new images of a batch differ in shape or dtype, and ``as_list`` is false.
        """
        where = self.fields(item)
        given = {role: get(item, field) for role, field in where.items()}
        self.expect_no_counts(item, [field for role, field in where.items() if loses_rows(role)])
        if is_batch(given["image"], self._owner):
            done = self._list(given, change, rng) if as_list else self._batch(given, change, rng, loses_rows, transforms)
        else:
            done = change(given, None, rng)
        return replace(item, {where[role]: value for role, value in done.items()})

    def _batch(self, given: Target, change: Change, rng: Rng, loses_rows: Callable[[str], bool], transforms: Sequence[object]) -> Target:
        count = self.expect_counts(given)
        of_row = of_rows(rng, count)
        if count == 0:
            return {}
        rows: dict[str, list[np.ndarray]] = {role: [] for role in given if role != "image"}
        images = None
        for row in range(count):
            target = None if images is None else images[row]
            done = _changed(given, row, change, target, of_row(row))
            image = done.pop("image")
            if images is None or target is None:
                images = aligned((count, *image.shape), image.dtype)
                target = images[row]
            if image is not target:
                self.expect_same(image, target, row, transforms)
                target[...] = image
            for role, value in done.items():
                rows[role].append(value)
        return {"image": images} | {role: values if loses_rows(role) else like(given[role], values) for role, values in rows.items()}

    def _list(self, given: Target, change: Change, rng: Rng) -> Target:
        of_row = of_rows(rng, count := self.expect_counts(given))
        done = [_changed(given, row, change, None, of_row(row)) for row in range(count)]
        return {role: [target[role] for target in done] for role in given}

    def expect_same(self, image: np.ndarray, target: np.ndarray, row: int, transforms: Sequence[object]) -> None:
        """Raise ValueError if an image of a batch differs in shape or dtype from the first image."""
        if image.shape != target.shape or image.dtype != target.dtype:
            raise ValueError(
                f"{self._owner}: after {' > '.join(map(str, transforms)) or 'no transforms'} image 0 of the batch is {target.shape} "
                f"{target.dtype} and image {row} is {image.shape} {image.dtype}; all images of a batch need the same shape and dtype: end "
                "with a transform that makes them equal, such as Resize, CenterCrop or RandomResizedCrop, or augment before "
                f"batching{'; or pass as_list=True to get a list' * (self._owner == 'Augmentations')}"
            )

    def several(self, item: Item) -> tuple[dict[str, Field], list[Target]]:
        """Return the field of each role, and the targets of a batch.

        Raises:
            ValueError: the item is not a batch, or has only one image; the images differ in dtype or channels; or annotations do not fit
                the images.
        """
        where = self.fields(item)
        given = {role: get(item, field) for role, field in where.items()}
        expect_batch(given["image"], self._owner)
        self.expect_no_counts(item, [field for role, field in where.items() if self.goes_with_boxes(role) or role == "points"])
        count = self.expect_counts(given)
        expect_partners(count, self._owner)
        targets = [_changed(given, row, lambda target, *_: self.checked(target), None, None) for row in range(count)]
        for row, target in enumerate(targets):
            one, first = target["image"], targets[0]["image"]
            if one.dtype != first.dtype or one.shape[2:] != first.shape[2:]:
                raise ValueError(
                    f"{self._owner}: image 0 of the batch is {first.shape} {first.dtype} and image {row} is {one.shape} {one.dtype}; "
                    "images that are combined need the same dtype and number of channels"
                )
        return where, targets


def _changed(given: Target, row: int, change: Change, out: np.ndarray | None, rng: Rng) -> Target:
    try:
        return change({role: values[row] for role, values in given.items()}, out, rng)
    except Exception as error:
        error.add_note(f"image {row} of a batch of {len(given['image'])}")
        raise


def expect_batch(images: Any, owner: str) -> None:
    """Raise ValueError if the image field does not contain a batch."""
    if not is_batch(images, owner):
        raise ValueError(
            f"{owner}: the image field contains one image, {images.shape}; {owner} combines the images of a batch: put it after Batch(..., "
            "as_list=True), and add Unbatch after it to get single images"
        )


def expect_partners(count: int, owner: str) -> None:
    if count == 1:
        raise ValueError(f"{owner}: the batch has only one image, but needs at least two; use drop_last=True to drop such a batch")


def like(given: Any, values: list[np.ndarray]) -> Any:
    """Convert a list with one value per image to the type of ``given``: an array, an object array or a list."""
    if not isinstance(given, np.ndarray):
        return values
    if given.dtype != object:
        return stacked(values)
    result = np.empty(len(values), object)
    result[:] = values
    return result


def rows_where(values: Any, which: np.ndarray) -> Any:
    """Return the selected rows of an array or a list. ``which`` contains bools or indexes."""
    if isinstance(values, np.ndarray):
        return values[which]
    return [values[row] for row in (np.flatnonzero(which) if which.dtype == bool else which).tolist()]


def unshared(value: np.ndarray, given: Any) -> np.ndarray:
    """Return ``value``, or a copy if ``value`` can share memory with ``given``."""
    return value.copy() if np.may_share_memory(value, given) else value


def joined(parts: Sequence[Any], role: str, owner: str) -> Any:
    """Concatenate the rows of several targets. Return an array, or a list if one of the non-empty parts is a list.

    Raises:
        ValueError: the parts are arrays, and their rows differ in shape.
    """
    filled = [part for part in parts if len(part)] or parts[:1]
    if not all(isinstance(part, np.ndarray) for part in filled):
        return [row for part in filled for row in part]
    if len(shapes := {part.shape[1:] for part in filled}) > 1:
        shown = " and ".join(sorted(str(("*", *shape)).replace("'", "") for shape in shapes))
        raise ValueError(f"{owner}: {role} of combined images have the shapes {shown}; all axes except the first must be equal")
    return np.concatenate(filled)


def _counts(values: Any, in_batch: bool) -> list[int] | None:
    """Return the number of rows of a field for each image of a batch, or ``None`` if the field has no rows."""
    parts = [values]
    if in_batch:
        parts = list(values) if isinstance(values, (list, tuple)) or (isinstance(values, np.ndarray) and values.ndim) else [None]
    has_rows = all(isinstance(part, (list, tuple)) or (isinstance(part, np.ndarray) and part.ndim) for part in parts)
    return list(map(len, parts)) if has_rows else None


def _count(values: Any, role: str, owner: str) -> int:
    """Return the number of rows of a field. Raise ValueError if the field is a single value."""
    try:
        return len(values)
    except TypeError:
        raise ValueError(f"{owner}: {role} is {short(values)}; expected an array or a list") from None


def _coordinates(columns: int, value: Any, owner: str) -> np.ndarray:
    """Return boxes (4 columns) or points (2 columns) as a new float32 array."""
    what = "boxes are numbers, (N, 4)" if columns == 4 else "points are numbers, (N, 2) or (N, K, 2),"
    try:
        array = np.array(value, np.float32)  # a copy
    except (TypeError, ValueError) as error:
        raise ValueError(f"{owner}: {what} for each image; got {short(value)}") from error
    if array.size == 0:
        return array if columns == 2 and array.ndim == 3 and array.shape[2] == 2 else array.reshape(0, columns)
    if array.ndim != 2 + (columns == 2 and array.ndim == 3) or array.shape[-1] != columns:
        raise ValueError(f"{owner}: {what} for each image; got {short(value)}")
    if columns == 4 and not ((array[:, 2:] >= array[:, :2]).all() and np.isfinite(array).all()):
        good = np.isfinite(array).all(axis=1) & (array[:, 2:] >= array[:, :2]).all(axis=1)
        wrong = int(good.argmin())
        raise ValueError(
            f"{owner}: box {wrong} of the image is {array[wrong].tolist()}; expected x1, y1, x2, y2 with x1 <= x2 and y1 <= y2 (if the "
            "boxes are x, y, width, height: x2 = x + width, y2 = y + height)"
        )
    return array


def _mask(value: Any, image: np.ndarray, owner: str) -> np.ndarray:
    mask = np.asarray(value)
    has_channels = mask.ndim == 3 and mask.shape[:2] == image.shape[:2]
    if (mask.shape[-2:] != image.shape[:2] and not has_channels) or mask.ndim > 3:
        size = f"{image.shape[0]}, {image.shape[1]}"
        raise ValueError(f"{owner}: the mask is {mask.shape}, but its image is {image.shape}; expected ({size}), or (N, {size})")
    return mask
