"""A property for resources, such as open files. Each process opens the resource on the first access."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")

MOST_OPEN = 100  # maximum number of files that a dataset keeps open; the usual limit of a process is 1024 open files


class opened(Generic[T]):  # lower case, because it is used like ``property``
    """A property that calls its method on the first access, and then returns the stored result.

    A forked child process calls the method again. A copied or unpickled object also calls the method again. Otherwise, two processes or
    objects would share the position of an open file.

    >>> class Lines:
    ...     def __init__(self, path): self.path = path
    ...     @opened
    ...     def _file(self): return open(self.path)
    """

    def __init__(self, method: Callable[[Any], T]) -> None:
        self._method, self._name = method, f"opened {method.__name__}"
        functools.update_wrapper(self, method)  # type: ignore[arg-type]

    @overload
    def __get__(self, instance: None, owner: type) -> opened[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:
            return self
        held = instance.__dict__.get(self._name)
        if held is None or held.owner() is not instance:  # the instance is a copy, and its __dict__ was copied, too
            held = _held_by(instance, self._name)
        return held.get(lambda: self._method(instance))


_locks: dict[int, threading.Lock] = {}  # one lock per process, because another thread might hold the lock at a fork


def _held_by(instance: object, name: str) -> _Held:
    with _locks.setdefault(os.getpid(), threading.Lock()):  # atomic
        held: _Held | None = instance.__dict__.get(name)
        if held is None or held.owner() is not instance:
            held = instance.__dict__[name] = _Held(instance)
        return held


class _Held:
    """The result of the method for one object. The result is valid only in the process that called the method."""

    def __init__(self, owner: object) -> None:
        self.owner = weakref.ref(owner)
        self._process = 0
        self._locks: dict[int, threading.Lock] = {}  # one lock per process, because another thread might hold the lock at a fork
        self._value: Any = None

    def get(self, opening: Callable[[], Any]) -> Any:
        process = os.getpid()
        if self._process != process:
            with self._locks.setdefault(process, threading.Lock()):  # atomic
                if self._process != process:
                    self._value = opening()
                    self._process = process
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # an unpickled copy opens its own resource
