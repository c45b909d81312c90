"""Hash any value that a component contains, and the component's code.

Each hash has two parts (:class:`Hashed`). *Values* are the objects that the program passes to a component: arguments, attributes, defaults
and closure variables. *Code* is the content of source files: functions, class attributes, and values that functions read from their module.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import PurePath
from typing import Any, cast

import numpy as np

from highway.engine.component import Traits, fingerprint_of, shape_by_method
from highway.engine.hashing.bounded import Bounded, Hashed, UnknownValueError, summed
from highway.engine.hashing.code import Names, attributes_of, closed_over, functions_of, is_users, name_and_version, names_of, text_of
from highway.engine.hashing.objects import (
    FLAT,
    LEAVES,
    as_array,
    attributes_changed,
    attributes_held,
    is_changed,
    is_hidden,
    is_inert,
    is_module,
    is_tensor,
    is_trained,
    is_unknown,
    left_out,
    names_of_module,
    pickled,
    seed_of,
    slots_of,
)
from highway.errors import HighwayError


class Hasher(Bounded):
    """Hashes values. Each object is hashed once per component, in its current form.

    Args:
        strict: ``True``: a value that cannot be hashed is an error, and the weights of a trainable model are hashed. ``False``: if a value
            cannot be hashed, only its type is hashed, and the weights of a trainable model are skipped.
        seed: The value that replaces ``seed=None`` of components: the seed of the pipeline.

    Attributes:
        data: The methods ``fingerprint`` and ``identity`` of the hashed values. The owner of the hasher calls them later.
        unseen: The values that could not be hashed. A value to which code refers is listed by its name, any other value by its type.
    """

    def __init__(self, strict: bool, seed: int | None = None) -> None:
        self._strict, self._seed = strict, seed
        self.data: list[Callable[[], str]] = []
        self.unseen: list[str] = []
        super().__init__()
        self._known: dict[int, tuple[Hashed, Any]] = {}  # by id, with the object, because a new object can get the id of a freed one
        self._known_code: dict[int, tuple[bytes, Any]] = {}
        self._declared: tuple[Any, Traits | None] = None, None
        self._reading: set[tuple[int, Any]] = set()

    def parameters(self, op: Any, traits: Traits | None = None) -> Iterator[tuple[str, Hashed]]:
        """Yield the parts of a component, by name: its parameters, or the closure variables of its function.

        ``traits`` holds the traits of the component, if the caller has read them.

        Raises:
            UnknownValueError: the hasher is strict, and a value cannot be hashed.
        """
        self.begin()
        self._known, self._known_code = {}, {}  # so that the hash does not depend on values that were hashed before
        self._path[id(op)], self._declared = 0, (op, traits)
        parts = self._parts(op, whole=True)
        yield from (("", self._leaf(op)),) if parts is None else parts
        while self._later:
            value = self._later.pop()
            if isinstance(value, (type, types.FunctionType)):
                yield "nested", Hashed(b"", self._class(value).code if isinstance(value, type) else self._code(value).code)
            else:
                yield "nested", self.of(value)

    def of(self, value: Any) -> Hashed:
        """Return the hash of a value.

        Raises:
            UnknownValueError: the hasher is strict, and the value cannot be hashed.
        """
        kind = type(value)
        if kind is int:
            return Hashed(b"i%x" % value if value >= 0 else b"i-%x" % -value)
        if kind in (str, bytes):
            return self.text(value)
        if kind in FLAT or kind is range:
            return Hashed(repr(value).encode())
        key = id(value)
        if key in self._known:
            return self._known[key][0]
        if key in self._path:
            return Hashed(b"cycle %d" % self._path[key])
        self._objects_left -= 1
        if self._objects_left < 0:
            return Hashed(kind.__qualname__.encode())
        if self.is_too_deep(value):
            return Hashed(b"nested")
        self._path[key] = len(self._path)
        try:
            parts = self._parts(value)
            found = self._leaf(value) if parts is None else summed(type(value).__qualname__, parts)
        finally:
            del self._path[key]
        self._known[key] = found, value
        return found

    # --- values with named parts ---

    def _parts(self, value: Any, whole: bool = False) -> Iterator[tuple[str, Hashed]] | None:
        """Return the named parts of a value, or ``None`` if it has none. ``whole``: whether the value is the component of a stage."""
        if isinstance(value, functools.partial):
            return self._partial(value)
        if isinstance(value, types.MethodType):
            return self._method(value)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, LEAVES) or is_inert(value) or is_hidden(value):
            return None
        if isinstance(value, types.MappingProxyType):
            return iter([("", self.of(value.copy()))])
        if type(value).__module__ == "functools" and hasattr(value, "__wrapped__"):  # cache, lru_cache
            return self._partial(functools.partial(value.__wrapped__))
        if "stages" in getattr(value, "__dict__", ()) and Traits.of(value).stamped is not None:  # a pipeline
            return iter([("seed", self.of(value.seed)), ("stages", self.of(value.stages))])
        if self._note_data(value, whole) and type(value).__module__.partition(".")[0] != "highway":
            return iter([("class", Hashed(type(value).__qualname__.encode()))])
        if not is_users(type(value)) and isinstance(text := getattr(value, "_fingerprint", None), str):  # a table of Hugging Face
            return iter([("fingerprint", self.text(text))])
        if (seed := seed_of(value)) is not None:
            return iter([("seed", self.of(seed)), ("kind", self._class(type(getattr(value, "bit_generator", value))))])
        if is_module(value):
            return self._module(value)
        if dataclasses.is_dataclass(value):
            return self._object(value, whole)
        if isinstance(value, (list, tuple, dict, set, frozenset)) or as_array(value) is not None or is_tensor(value):
            return None
        is_own, state = pickled(value)
        if is_own:
            return None if state is None else self._state(value, state)
        return self._object(value, whole) if hasattr(value, "__dict__") or slots_of(type(value)) else None

    def _partial(self, value: functools.partial[Any]) -> Iterator[tuple[str, Hashed]]:
        yield "function", self.of(value.func)
        for place, part in enumerate(value.args):
            yield f"argument {place}", self.of(part)
        for name, part in value.keywords.items():
            yield name, self.of(part)

    def _function(self, value: types.FunctionType) -> Iterator[tuple[str, Hashed]]:
        yield "function", self._code(value)
        for place, part in enumerate(value.__defaults__ or ()):
            yield f"default {place}", self.of(part)
        for name, part in (value.__kwdefaults__ or {}).items():
            yield name, self.of(part)
        for name, part in sorted(vars(value).items()):
            if name != "__wrapped__":
                yield name, self.of(part)
        yield from self._closed_over(value)

    def _method(self, value: types.MethodType) -> Iterator[tuple[str, Hashed]]:
        """Yield the parts of a method: the class of its object, the function, and the attributes of the object that the method reads."""
        yield "class", self._class(type(value.__self__))
        yield from self._of_method(value.__self__, value.__func__)

    def _of_method(self, owner: Any, function: Any) -> Iterator[tuple[str, Hashed]]:
        if not isinstance(function, types.FunctionType) or not function.__code__.co_argcount or not is_users(function):
            yield "self", self.of(owner)
            yield "function", self.of(function)
            return
        yield from self._function(function)
        if (mark := (id(owner), function.__code__)) not in self._reading:
            self._reading.add(mark)
            try:
                yield from self._read(function.__code__.co_varnames[0], owner, names_of(function.__code__))
            finally:
                self._reading.discard(mark)

    def _read(self, name: str, value: Any, names: Names) -> Iterator[tuple[str, Hashed]]:
        """Yield the parts of a named value that a function reads: attributes, or the whole value. Record values that it changes."""
        if is_changed(names, (name,), value):
            self.note_changing(name, value)
            return
        read = sorted(chain[1:] for chain in names.read if chain[0] == name)
        if not read or () in read or not (hasattr(value, "__dict__") or isinstance(value, types.ModuleType)):
            yield name, self.of(value)
            return
        for rest in read:
            yield from self._attribute((name,), value, rest, names)

    def _attribute(self, path: tuple[str, ...], value: Any, names: tuple[str, ...], changed: Names) -> Iterator[tuple[str, Hashed]]:
        """Yield the parts of a value that a function reads through a chain of attributes, such as ``self.options.scale``."""
        own = {} if isinstance(value, type) else getattr(value, "__dict__", {})
        (first, *rest), path = names, (*path, names[0])
        if first in own:
            if is_changed(changed, path, own[first]):
                self.note_changing(".".join(path), own[first])
                return
            if rest and (hasattr(own[first], "__dict__") or isinstance(own[first], types.ModuleType)):
                yield from self._attribute(path, own[first], tuple(rest), changed)
            else:
                yield ".".join(path), self.of(own[first])
            return
        functions = (part for base in type(value).__mro__ for name, part in functions_of(base) if name == first)
        if is_users(type(value)) and (function := next(functions, None)) is not None:
            yield ".".join(path), summed("", self._of_method(value, function))
        elif is_users(type(value)) and any(name == first for base in type(value).__mro__ for name, _ in attributes_of(base)):
            yield ".".join(path[:-1]), self._class(type(value))  # the class's code includes the attribute
        else:
            yield ".".join(path[:-1]), self.of(value)

    def _object(self, value: Any, whole: bool) -> Iterator[tuple[str, Hashed]]:
        cls = type(value)
        yield from self._of_class(value)
        skipped = left_out(cls, whole)  # type: ignore[arg-type]  # mypy: a class is not hashable
        for name, part in attributes_held(value):
            if name not in skipped and name.lstrip("_") not in skipped:
                part = self._seed if name == "seed" and part is None else part
                if not name.startswith("_") or (part is not None and (self._strict or not is_unknown(part))):
                    yield name, self.of(part)

    def _module(self, value: Any) -> Iterator[tuple[str, Hashed]]:
        """Yield the parts of a torch module. Unless the hasher is strict, skip the weights and buffers of a trainable module."""
        yield from self._of_class(value)
        if (original := getattr(value, "_orig_mod", None)) is not None:  # of torch.compile
            yield from self._module(original)
            return
        if isinstance(source := getattr(value, "code", None), str):  # of torch.jit
            yield "code", self.text(source)
        else:
            own = names_of_module(type(value))  # type: ignore[arg-type]  # mypy: a class is not hashable
            yield from ((name, self.of(part)) for name, part in attributes_held(value) if name not in own)
        for name, part in value.named_children():
            yield name, self.of(part)
        if self._strict or not is_trained(value):
            changes = value.training and getattr(value, "track_running_stats", False)  # BatchNorm counts its inputs
            for parts in (value.named_parameters(recurse=False), () if changes else value.named_buffers(recurse=False)):
                yield from ((name, self.of(part)) for name, part in parts)

    def _state(self, value: Any, state: tuple[Any, ...]) -> Iterator[tuple[str, Hashed]]:
        yield from self._closed_over(type(value))
        yield "class", self._class(type(value))
        for place, part in enumerate(state):
            yield f"state {place}", self.of(list(part) if isinstance(part, Iterator) else part)

    def _note_data(self, value: Any, whole: bool) -> bool:
        """Record the methods of a value that identify its data. Return whether the value has a fingerprint."""
        if isinstance(value, type) or not any(hasattr(type(value), name) for name in ("fingerprint", "__highway__", "stages")):
            return False
        op, traits = self._declared
        traits = traits if value is op and traits is not None else Traits.of(value)
        fingerprint = traits.fingerprint or fingerprint_of(value)
        if not whole and dataclasses.is_dataclass(value) and shape_by_method(value) == "composite":
            with contextlib.suppress(HighwayError):  # the error of an invalid composite is raised when the pipeline runs
                self.data += [
                    own for part in cast(Any, value).stages() if (own := Traits.of(getattr(part, "op", part)).identity) is not None
                ]
        if (own := fingerprint or traits.identity) is not None:
            self.data.append(own)
        return fingerprint is not None

    # --- values without named parts ---

    def _leaf(self, value: Any) -> Hashed:
        kind = type(value).__qualname__
        if isinstance(value, enum.Enum):
            return summed(kind, [(value.name, self.of(value.value))])
        if isinstance(value, PurePath):
            return self.text(str(value), "path")
        if isinstance(value, type):
            return summed("type", [*self._closed_over(value), (value.__qualname__, self._class(value))])
        if isinstance(value, np.dtype):
            return self.text(f"dtype {value!r}")
        if isinstance(value, (types.ModuleType, types.BuiltinFunctionType, np.ufunc)):
            owner = getattr(value, "__self__", None)  # of "text".join
            bound = [] if isinstance(owner, types.ModuleType | None) else [("self", self.of(owner))]
            return summed(kind, [*bound, ("name", Hashed(value.__name__.encode(), name_and_version(value).encode()))])
        if isinstance(value, (list, tuple)):
            own: Any = list if isinstance(value, list) else tuple  # methods of a derived class, such as a dataset, can raise errors
            length = own.__len__(value)
            entries = self.entries(lambda step: own.__getitem__(value, slice(None, None, step)), length)
            return summed(f"{kind} {length}", [("", entries), *self._own(value)])
        if isinstance(value, dict):
            pairs = self.entries(lambda step: list(islice(dict.items(value), None, None, step)), dict.__len__(value))
            return summed(f"{kind} {dict.__len__(value)}", [("", pairs), *self._own(value)])
        if isinstance(value, (set, frozenset)):
            return summed(f"{kind} {len(value)}", [("", self.set_of(value))])
        if is_tensor(value) and ((value.requires_grad and not self._strict) or as_array(value) is None):  # trained, or on another device
            return self.text(f"{kind} {value.dtype} {tuple(value.shape)}")
        if (array := as_array(value)) is not None:
            return self.array(kind, array)
        if is_unknown(value):
            if self._strict:
                raise UnknownValueError(f"{value!r:.200}")
            self.unseen.append(kind)
        return summed(kind, [("class", self._class(type(value)))])

    def _own(self, value: Any) -> Iterator[tuple[str, Hashed]]:
        """Yield the attributes of an object whose class is derived from list or dict."""
        if type(value).__module__ != "builtins":
            yield from self._of_class(value)
            yield from ((name, self.of(part)) for name, part in attributes_held(value) if not name.startswith("_"))

    # --- code ---

    def _of_class(self, value: Any) -> Iterator[tuple[str, Hashed]]:
        """Yield the values that the methods of an object close over, and then its class. Record attributes that the methods change."""
        yield from self._closed_over(type(value))
        yield "class", self._class(type(value))
        for name, part in attributes_changed(value):
            self.note_changing(f"{type(value).__name__}.{name}", part)

    def _closed_over(self, owner: types.FunctionType | type) -> Iterator[tuple[str, Hashed]]:
        for name, held, names in closed_over(owner):
            yield from self._read(name, held, names)

    def _class(self, cls: type) -> Hashed:
        """Return the hash of a class. Its value is the name. The methods and attributes of all user classes count as code."""
        return Hashed(cls.__qualname__.encode(), self._as_code(cls, self._class_parts))

    def _class_parts(self, cls: type) -> Iterator[tuple[str, Hashed]]:
        for base in filter(is_users, cls.__mro__):
            for name, part in chain(functions_of(base), attributes_of(base)):
                yield name, self._referred(f"{base.__name__}.{name}", part)

    def _code(self, function: types.FunctionType) -> Hashed:
        """Return the hash of a function. Its value is the name. The source and the module-level names that it reads count as code."""
        return Hashed(function.__name__.encode(), self._as_code(function, self._function_parts))

    def _function_parts(self, function: types.FunctionType) -> Iterator[tuple[str, Hashed]]:
        yield "source", Hashed(text_of(function.__code__).encode(errors="surrogatepass"))
        code = function.__code__
        names = {chain[0] for chain in names_of(code).read} - {*code.co_freevars, *code.co_varnames}
        for name in sorted(names & function.__globals__.keys()):
            yield from self._global(name, function.__globals__[name], code)

    def _as_code(self, value: Any, parts: Callable[[Any], Iterable[tuple[str, Hashed]]]) -> bytes:
        if not is_users(value):
            package = str(getattr(value, "__module__", "")).partition(".")[0]
            return b"" if package in ("builtins", "highway") else name_and_version(value).encode()
        key = id(value), "code"
        if key in self._path:
            return b"cycle"
        if id(value) in self._known_code:
            return self._known_code[id(value)][0]
        if self.is_too_deep(value):
            return b"nested"
        self._path[key] = len(self._path)
        try:
            values, code = summed("", parts(value))
        finally:
            del self._path[key]
        self._known_code[id(value)] = values + code, value
        return values + code

    def _global(self, name: str, value: Any, code: types.CodeType) -> Iterator[tuple[str, Hashed]]:
        """Yield the parts of a module-level name that code reads."""
        read = sorted(chain[1:] for chain in names_of(code).read if chain[0] == name)
        if isinstance(value, types.ModuleType):
            yield name, Hashed(name_and_version(value).encode())
            for names in read if is_users(value) else ():
                if names and names[0] in vars(value):
                    found = vars(value)[names[0]]
                    if isinstance(found, types.ModuleType):
                        yield from self._global(f"{name}.{names[0]}", found, code)
                    yield f"{name}.{names[0]}", self._referred(f"{name}.{names[0]}", found)
        else:
            yield name, self._referred(name, value, code)

    def _referred(self, name: str, value: Any, code: types.CodeType | None = None) -> Hashed:
        """Return the hash of a value that code refers to. If the value is unknown or changes at run time, hash only its type."""
        kind = Hashed(type(value).__qualname__.encode())
        if isinstance(value, dict) and type(value) is not dict:  # a Counter, a defaultdict
            return kind
        count = len(self.unseen)
        try:
            found = self.of(value) if code is None else summed("", self._read(name, value, names_of(code)))
            del self.unseen[count:]
            return found
        except (UnknownValueError, RecursionError):
            self.unseen.append(name)
            return kind
