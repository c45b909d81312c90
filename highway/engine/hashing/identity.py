"""The identity of a pipeline: hashes of each stage's parameters, code and data. Each state contains the identity.

Parameters and code are hashed when a pipeline begins, before a stage can change its own attributes. Data are hashed when the first state is
saved or loaded. If parameters or data differ when a state is loaded, an error names the parameters. If only code differs, a warning is
logged, because users fix bugs in the middle of a run. :mod:`highway.engine.hashing.values` defines which values count as parameters, and
which values count as code.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from highway.engine.hashing import Hashed, Hasher
from highway.engine.running import RunningStage
from highway.errors import PipelineError

log = logging.getLogger("highway")

_SOURCES = 64  # maximum number of a stage's fingerprints that are read, evenly spaced
MIXTURE = ".mixture"  # "Reader.mixture" in allow_changed means that the reader can have another mixture
_DATASETS = ("dataset", "data_dir")  # parameters of readers
_DATA = "its data (files are compared by path, size and time)"


class Identities:
    """The hashes of a pipeline's stages, computed when this object is created.

    Args:
        stages: The stages.
    """

    def __init__(self, stages: Sequence[RunningStage]) -> None:
        hasher = Hasher(strict=False)
        self._stages: dict[str, dict[str, Any]] = {}
        self._data: dict[str, list[Callable[[], str]]] = {}
        self._failure: tuple[str, Exception] | None = None
        known: list[Any] = []  # several stages can belong to one reader
        for running in stages:
            stage, op = running.stage, running.layers[-1]
            parts = [("class", Hashed(" ".join(type(layer).__qualname__ for layer in running.layers).encode()))]
            parts += [("ordered", hasher.of(stage.ordered))] if running.shape == "map" else []
            unseen: list[str] = []
            try:
                traits = running.traits if op is stage.op else None
                for name, found in () if any(op is other for other in known) else hasher.parameters(op, traits):
                    parts.append((name, found))
                    unseen += [f"{name or 'itself'} ({kind})" for kind in hasher.unseen]
                    hasher.unseen.clear()
            except Exception as error:  # from a user's class: raise it only when a state needs the hash
                self._failure = self._failure or (stage.name, error)
            known.append(op)
            values: dict[str, bytes] = {}
            for part, (value, _) in parts:
                values[part] = values.get(part, b"") + value
            parameters = {name: _short(value, 4) for name, value in values.items()}
            code = b"".join(part.code for _, part in parts)
            self._stages[stage.name] = {"parameters": parameters, "code": _short(code, 6) if code else ""}
            if unseen:
                self._stages[stage.name]["unseen"] = unseen
            if changing := hasher.hashes_of_changing():
                self._stages[stage.name]["changing"] = {name: _short(value, 4) for name, value in changing.items()}
                hasher.unseen.clear()
            own = running.traits.identity
            self._data[stage.name] = [*([own] if own is not None else []), *hasher.data]
            hasher.data = []

    def identities(self, data: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
        """Return the hashes of each stage, by the stage's name, in a form that JSON can hold.

        Args:
            data: The result of :meth:`data` in the process that runs the stages, if only that process has the data.

        Raises:
            PipelineError: an object raised an error while it was hashed.
        """
        if self._failure is not None:
            name, error = self._failure
            raise PipelineError(
                f"state_dict: the parameters of {name} cannot be hashed: {type(error).__name__}: {error}; define a method fingerprint() of "
                "the object that returns a text which changes with the parameters"
            ) from error
        data = self.data() if data is None else data
        return {name: {**stage, "data": data[name]} for name, stage in self._stages.items()}

    def data(self) -> dict[str, str]:
        """Return the hash of each stage's data, by the stage's name; empty for a stage that reads no data or does not report them."""
        return {name: _short(" ".join(_said(own)).encode(), 6) if own else "" for name, own in self._data.items()}


def _said(own: Sequence[Callable[[], str]]) -> Iterator[str]:
    step = -(-len(own) // _SOURCES)
    for say in [*own[::step], *(own[-1:] if step > 1 else ())]:
        yield say()


def _short(data: bytes, size: int) -> str:
    return hashlib.blake2b(data, digest_size=size).hexdigest()


def expect_stages(saved: list[str], current: list[str]) -> None:
    """Raise PipelineError if the names or the order of the stages have changed since the state was saved.

    ``allow_changed`` cannot allow this, because only the same stages can make the waiting items again.
    """
    if saved != current:
        way_out = "use the old order"
        if old := next((name for name in saved if name not in current), None):
            way_out = (
                f"if {old} has a new name, set the old name with Stage(..., name={old!r}). If you removed the map {old}, put "
                f"Stage(Identity(), name={old!r}) in its place, and list {old!r} in allow_changed"
            )
        elif new := next((name for name in current if name not in saved), None):
            way_out = f"if you added the map {new}, call it inside an existing map, and list the name of that map in allow_changed"
        raise PipelineError(
            f"load_state_dict: the state was saved by {' -> '.join(saved)}, but this pipeline is {' -> '.join(current)}; a state needs the "
            f"same stages: {way_out}. Otherwise start again without the state"
        )


def expect_same(saved: Mapping[str, Mapping[str, Any]], current: Mapping[str, Mapping[str, Any]], allow_changed: Collection[str]) -> None:
    """Compare the stages in a state with the stages that load it.

    Args:
        saved: The identities in the state.
        current: The identities of this pipeline, which has the same stages.
        allow_changed: Names of stages that are allowed to differ, or of single parameters, such as ``"Shuffle.buffer_size"``. The changes
            are logged. The name of a composite allows changes of all its stages.

    Raises:
        PipelineError: parameters or data of a stage differ, and ``allow_changed`` does not allow this; or ``allow_changed`` has an unknown
            name.
    """
    groups = {name: _group(name, current) for name in current}
    parameters = {f"{groups[name]}.{parameter}" for name, stage in current.items() for parameter in [*stage["parameters"], _DATA]}
    if unknown := [name for name in allow_changed if name not in parameters and not any(is_named(stage, [name]) for stage in current)]:
        stages = ", ".join(dict.fromkeys(groups.values()))
        raise PipelineError(
            f"load_state_dict: allow_changed contains {', '.join(map(repr, unknown))}, which is not a stage or parameter; the stages are "
            f"{stages}"
        )
    changed: dict[str, dict[str, None]] = {}
    for name, stage in current.items():
        found = dict.fromkeys(_changes(saved[name], stage))
        if found and (is_named(name, allow_changed) or all(f"{groups[name]}.{parameter}" in allow_changed for parameter in found)):
            log.warning("load_state_dict: %s has changed (%s), which allow_changed accepts", name, ", ".join(found))
        elif found:
            changed.setdefault(groups[name], {}).update(found)
        if not found and saved[name]["code"] != stage["code"]:
            log.warning(
                "load_state_dict: the code of %s, or a value that this code reads from its class or module, has changed since the state "
                "was saved. The rest of the run may differ; if this is a problem, resume with the old code",
                name,
            )
        was = saved[name].get("changing", {})
        if others := [part for part, value in stage.get("changing", {}).items() if was.get(part, value) != value]:
            log.warning(
                "load_state_dict: %s of %s has changed since the state was saved. This is harmless if the stage only counts or caches "
                "there. If this is a parameter, the rest of the run may differ; to make highway refuse such a state, give the attribute "
                "the name of a parameter of the constructor",
                ", ".join(others),
                name,
            )
        if unseen := stage.get("unseen"):
            log.warning(
                "load_state_dict: highway cannot tell whether %s of %s has changed since the state was saved. If it has, the rest of "
                "the run may differ. Give the object a method fingerprint(); its text must change if the value changes",
                ", ".join(unseen),
                name,
            )
    if changed:
        what = "; ".join(f"{name}: {', '.join(found)}" for name, found in changed.items())
        raise PipelineError(
            f"load_state_dict: {', '.join(changed)} had other parameters or other data when the state was saved ({what}); use the same "
            "parameters and data, start again without the state, or accept the changes. The rest of the run can then differ: "
            f"load_state_dict(state, allow_changed={list(changed)})" + _exact_way_out(changed)
        )


def accepted(names: Collection[str], current: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return ``names``. Replace ``"Reader.mixture"`` by the reader's data and the parameters that can hold a mixture."""
    found = [name for name in names if not name.endswith(MIXTURE)]
    for reader in [name.removesuffix(MIXTURE) for name in names if name.endswith(MIXTURE)]:
        known = {_DATA, *(parameter for name, stage in current.items() if is_named(name, [reader]) for parameter in stage["parameters"])}
        found += [f"{reader}.{parameter}" for parameter in (*_DATASETS, _DATA) if parameter in known]
    return found


def _exact_way_out(changed: Mapping[str, Mapping[str, None]]) -> str:
    """Return advice on how to resume exactly, if only one stage's batch size or dataset has changed; otherwise, an empty text."""
    (name, parameters), *others = changed.items()
    only = "" if others or len(parameters) > 1 else next(iter(parameters))
    if only.endswith("batch_size"):
        return f". If this is the reader, allow_changed=['{name}.{only}'] reads the rest of the epoch exactly, with the new size"
    if not others and set(parameters) <= {*_DATASETS, _DATA} and only != _DATA:
        return f". If both datasets are a MixedDataset with names=, allow_changed=['{name}{MIXTURE}'] loses and repeats no sample"
    return ""


def is_named(stage: str, names: Collection[str]) -> bool:
    """Return whether ``names`` contains a stage, or a composite that contains the stage."""
    return any(stage == name or stage.startswith(f"{name}.") for name in names)


def _group(name: str, names: Collection[str]) -> str:
    """Return the name of the composite that a stage is part of. For any other stage, return its own name."""
    composite = name.rpartition(".")[0]
    return composite if composite and sum(is_named(other, [composite]) for other in names) > 1 else name


def _changes(saved: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    here, there = current["parameters"], saved["parameters"]
    yield from (name or "value" for name in dict.fromkeys([*here, *there]) if here.get(name) != there.get(name))
    if current["data"] != saved["data"]:
        yield _DATA
