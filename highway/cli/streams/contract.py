"""Data contracts. A contract is a JSON file that describes the batches of a link. Later batches are compared with the contract.

``{"highway": "contract", "version": 1, "batched": true, "samples": 320, "fields": {"0": {"dtypes": ["uint8"], "shapes": [[224, 224, 3]],
"min": 0, "max": 255, "mean": 113.2, "std": 70.1, "nan": 0, "inf": 0, "count": 48168960}}}``. A number that is not known is ``null``.
``"shapes"`` is ``null`` if the batches had too many different shapes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from highway.errors import ConfigError
from highway.observe.summary import FieldSummary, Summary, shape_text

VERSION = 1
_NUMBERS = ("min", "max", "mean", "std", "nan", "inf", "count")
_TINY = 1e-6  # relative error that rounding can cause


class Check(NamedTuple):
    """The result for one property: whether the property matches the contract, and a text with field, value and expected value."""

    ok: bool
    text: str


def to_contract(summary: Summary) -> dict[str, Any]:
    """Return a summary as plain values."""
    return {
        "highway": "contract",
        "version": VERSION,
        "batched": summary.batched,
        "samples": summary.samples,
        "fields": {name: _field(seen) for name, seen in summary.fields.items()},
    }


def load(path: str) -> dict[str, Any]:
    """Read a contract.

    Raises:
        ConfigError: the file does not exist, or is not a contract.
    """
    try:
        with open(path, encoding="utf-8") as file:
            contract = json.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; `tensorstat --save {path}` writes one") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(contract, dict) or contract.get("highway") != "contract" or contract.get("version") != VERSION:
        raise ConfigError(f"{path}: no contract of version {VERSION}; `tensorstat --save {path}` writes one")
    for name, expected in _checked(contract, "fields", dict, path).items():
        for key in ("dtypes", "shapes"):
            _checked(expected, key, list, f"{path}: field {name}")
        for key in _NUMBERS:
            _checked(expected, key, (int, float, type(None)), f"{path}: field {name}")
    _checked(contract, "batched", bool, path)
    return contract


def compare(summary: Summary, contract: dict[str, Any], tolerance: float) -> list[Check]:
    """Compare a summary of batches with a contract.

    The batches must have the fields of the contract, and no other fields. Dtypes and sample shapes must be in the contract's lists. If
    the list of shapes is ``null``, shapes are not compared. Values can exceed the contract's range by ``tolerance`` times the width of the
    range. The mean and the standard deviation can differ by ``tolerance`` times the contract's standard deviation. The shares of NaN and
    infinity can be at most ``1 + tolerance`` times the shares in the contract.
    """
    found, expected = summary.fields, contract["fields"]
    checks = [Check(False, f"field {name}: missing; the stream has {', '.join(found)}") for name in expected if name not in found]
    for name, seen in found.items():
        if name in expected:
            checks += [Check(ok, f"field {name}: {text}") for ok, text in _differences(seen, expected[name], tolerance)]
        else:
            checks.append(Check(False, f"field {name}: not in the contract, which has {', '.join(expected)}"))
    return checks


def _field(seen: FieldSummary) -> dict[str, Any]:
    numbers = {"min": seen.min, "max": seen.max, "mean": seen.moments.mean, "std": seen.moments.std}
    return {
        "dtypes": sorted(seen.dtypes),
        "shapes": None if seen.more_shapes else sorted(map(list, seen.shapes)),
        **{name: value if seen.moments.count else None for name, value in numbers.items()},
        "nan": seen.nan,
        "inf": seen.inf,
        "count": seen.size,
    }


def _differences(seen: FieldSummary, expected: dict[str, Any], tolerance: float) -> Iterator[Check]:
    dtypes = set(expected["dtypes"])
    yield Check(seen.dtypes <= dtypes, f"dtype {_list(seen.dtypes)}; expected {_list(dtypes)}")
    if expected["shapes"] is not None:
        shapes = {tuple(shape) for shape in expected["shapes"]}
        ok = seen.shapes <= shapes and not seen.more_shapes
        yield Check(ok, f"sample shape {_list(map(shape_text, seen.shapes))}; expected {_list(map(shape_text, shapes))}")
    for kind in ("nan", "inf"):
        share, allowed = getattr(seen, kind) / max(seen.size, 1), expected[kind] / max(expected["count"], 1) * (1 + tolerance)
        yield Check(share <= allowed, f"{kind} {100 * share:.4g}% of the values; expected at most {100 * allowed:.4g}%")
    if expected["mean"] is None or not seen.moments.count:
        same = (expected["mean"] is None) == (not seen.moments.count)
        yield Check(same, f"{seen.moments.count} finite values; expected {'none' if expected['mean'] is None else 'some'}")
        return
    low, high, mean, std = (float(expected[key]) for key in ("min", "max", "mean", "std"))
    rounding = _TINY * max(abs(low), abs(high))
    beyond, near = tolerance * (high - low) + rounding, tolerance * std + rounding
    yield Check(seen.min >= low - beyond, f"min {seen.min:.5g}; expected at least {low - beyond:.5g}")
    yield Check(seen.max <= high + beyond, f"max {seen.max:.5g}; expected at most {high + beyond:.5g}")
    for name, value, target in (("mean", seen.moments.mean, mean), ("std", seen.moments.std, std)):
        yield Check(abs(value - target) <= near, f"{name} {value:.5g}; expected {target:.5g} ± {near:.3g}")


def _checked(values: Any, key: str, kind: Any, place: str) -> Any:
    value = values.get(key) if isinstance(values, dict) else None
    if not isinstance(value, kind) and not (key == "shapes" and value is None):
        raise ConfigError(f"{place}: {key} is {value!r}; `tensorstat --save` writes a contract that fits")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{place}: {key} is {value!r}; expected a finite number or null")
    return value


def _list(names: Any) -> str:
    return " ".join(sorted(names)) or "none"
