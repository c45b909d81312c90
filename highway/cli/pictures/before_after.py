"""``highway show --transforms``: draw images before and after the transforms in a file of transforms or a topology."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import default_rng
from PIL import Image

from highway.cli.pictures.examples import FIELDS, Example, classes, from_files, packaged, tile
from highway.engine.batch import collate, split
from highway.errors import ConfigError
from highway.images.grid import Tile, draw_grid
from highway.modules import Albumentations, Augmentations, CopyPaste, CutMix, MixUp, Mosaic, TorchvisionV2
from highway.parameters.location import Location, show
from highway.topology import document, load
from highway.topology.components import Components
from highway.topology.registry import Registry
from highway.transforms import TransformLike

_SINGLE = (Augmentations, Albumentations, TorchvisionV2)  # stages that change one image at a time
STAGES = tuple(stage.__name__ for stage in (*_SINGLE, MixUp, CutMix, Mosaic, CopyPaste))
"""Names of the stages whose effect is shown. Other stages of a pipeline are skipped."""

COUNT = 5  # default number of transformed copies of each image


def draw(
    path: str,
    images: Sequence[str] = (),
    count: int = COUNT,
    seed: int = 0,
    size: int = 128,
    role: str | None = None,
    variables: Mapping[str, Any] | None = None,
    plugins: Sequence[str] = (),
) -> Image.Image:
    """Return a picture with a row for each image: the original, and ``count`` transformed copies.

    Args:
        path: A YAML file: transforms as in ``Augmentations: [...]``, stages, or a topology.
        images: Image files. Default: photographs in the package, with their objects.
        count: Number of transformed copies of each image.
        seed: Seed of all random numbers.
        size: Length of the longer side of each image in pixels.
        role: The role of a topology to show, if several roles have transforms.
        variables: New values for variables of the topology.
        plugins: Modules whose classes the file is allowed to name.

    Raises:
        ConfigError: the file or an image is invalid. The message names the place.
    """
    stages = stages_of(path, role, variables or {}, plugins)
    examples, names = (from_files(images), []) if images else (packaged(), classes())
    partners = packaged() if images and not all(isinstance(stage, _SINGLE) for stage in stages) else {}
    rows: list[list[Tile]] = [[tile(example, size, name, _shape(example), names)] for name, example in examples.items()]
    together = {**examples, **{name: example for name, example in partners.items() if name not in examples}}
    for number in range(count):
        done = applied(stages, together, (seed, number))
        for row, (text, example) in zip(rows, done, strict=False):  # further examples, with which images are mixed, have no row
            row.append(tile(example, size, _shape(example), text, names))
    return draw_grid([one for row in rows for one in row], count + 1, size, f"Before and after the transforms of {path}")


def applied(stages: Sequence[Any], examples: Mapping[str, Example], seed: tuple[int, ...]) -> list[tuple[str, Example]]:
    """Return the examples after the stages, each with a caption. The caption names the images that were mixed into the example."""
    items, names = list(examples.values()), list(examples)
    shares = np.eye(len(items), dtype=np.float32)  # shares[result, original]: the share of an original image in a result
    for place, stage in enumerate(stages):
        if isinstance(stage, (MixUp, CutMix)):
            mixing = dataclasses.replace(stage, num_classes=None, field="image", labels="shares")
            batch = {"image": [item["image"] for item in items], "shares": shares}
            mixed = mixing(batch, default_rng((*seed, place)))
            items, shares = split({"image": mixed["image"]}), mixed["shares"]
            continue
        here = _here(stage, "boxes" in items[0])
        if isinstance(stage, _SINGLE):
            for row, item in enumerate(items):
                try:
                    items[row] = here(item, default_rng((*seed, place, row)))
                except Exception as error:
                    error.add_note(
                        f"of the image {names[row]}, which has {_shape(item)} pixels (height x width) at this stage; --image "
                        f"selects other images"
                    )
                    raise
        else:
            items = split(here(collate(items, as_lists=True), default_rng((*seed, place))))
    if not any(isinstance(stage, (MixUp, CutMix)) for stage in stages):
        return [("", item) for item in items]
    parts = [[f"{name} {share:.2f}" for name, share in zip(names, of, strict=True) if share] for of in shares.tolist()]
    return list(zip(map(", ".join, parts), items, strict=True))


def _here(stage: Any, has_objects: bool) -> Any:
    """Return a copy of a stage with the field names of the examples. ``has_objects``: whether the examples still have boxes."""
    known = {field.name: field for field in dataclasses.fields(stage)}
    given = {name: value for name, value in FIELDS.items() if name in known}
    if isinstance(stage, CopyPaste):  # CopyPaste finds the masks by the boxes, so the masks need no name
        given["with_boxes"] = [field for field in FIELDS["with_boxes"] if field != "mask"]
    elif not has_objects:
        given = {name: "image" if name == "field" else [] if isinstance(value, list) else None for name, value in given.items()}
    if getattr(stage, "swap_points", ()):  # swap_points is for the user's points, which the examples do not have
        given["swap_points"] = [(0, 1)] if has_objects else []
    return dataclasses.replace(stage, **given)


def stages_of(path: str, role: str | None, variables: Mapping[str, Any], plugins: Sequence[str]) -> list[Any]:
    raw, root = document.read(path)
    if isinstance(raw, dict) and "roles" in raw:
        return _of_topology(path, role, variables, plugins)
    if role is not None or variables:
        raise ConfigError(f"{path}: not a topology, because it has no key roles; remove {'--role' if role is not None else '--set'}")
    components = Components(plugins)
    components.import_plugins()
    registry = Registry(components)
    if found := [registry.build_stage(spec, location).op for spec, location in _found(raw, root)]:
        return found
    if not isinstance(raw, list):
        raise root.error(f"expected a list of transforms, as in  Augmentations: [...],  or a topology; got {show(raw)}")
    transforms = registry.convert(raw, list[TransformLike | tuple[TransformLike, ...]], root)
    return [Augmentations(transforms, boxes="boxes")]


def _of_topology(path: str, name: str | None, variables: Mapping[str, Any], plugins: Sequence[str]) -> list[Any]:
    topology = load(path, variables, plugins)
    roles = topology.roles.values() if name is None else [topology.role(name)]
    found = {role.name: specs for role in roles if (specs := list(_found(role.stages, role.location)))}
    if len(found) != 1:
        there = f"the roles {' and '.join(found)} have transforms; select one role, such as --role {next(iter(found), '')}"
        none = f"{'the role ' + name if name else 'no role'} has {'none' if name else 'one'} of the stages {', '.join(STAGES)}"
        raise ConfigError(f"{path}: {there if found else none}")
    ((role_name, specs),) = found.items()
    values = topology.variables.of_process(role_name, 0, topology.environment(role_name))
    return [topology.registry.build_stage(values.fill(spec, location), location).op for spec, location in specs]


def _found(spec: Any, location: Location) -> Iterator[tuple[Any, Location]]:
    """Yield the stages whose effect is shown, at any depth, and their locations."""
    if isinstance(spec, list):
        for index, part in enumerate(spec):
            yield from _found(part, location / index)
    elif isinstance(spec, dict):
        for key, part in spec.items():
            if key in STAGES:
                yield {key: part}, location
            else:
                yield from _found(part, location / key)
    elif isinstance(spec, str) and spec in STAGES:
        yield spec, location


def _shape(example: Example) -> str:
    image = example["image"]
    height, width, *_ = image.shape
    return f"{height}x{width}" + (f" {image.dtype}" if image.dtype != np.uint8 else "")
