"""Find what the result of a function depends on: its source, and the names that it reads.

The hash of a user's function contains its source, without comments and layout. For some code, the source is unknown or uncertain: code that
was typed in or generated, two lambdas in one line, and code in a file that has changed since highway was imported. The hash then contains
the bytecode. For code in C and in installed packages, the hash contains the name and the version of the package.
"""

from __future__ import annotations

import ast
import dis
import linecache
import os
import sys
import sysconfig
import time
import types
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from highway.distribution import version_of

_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_IMPORTED_AT = time.time()
_SCRIPTS = ("__main__", "__mp_main__")  # the names of the main module, here and in child processes


def is_users(value: Any) -> bool:
    """Return whether a function, class or module belongs to the user: not to highway, an installed package, or C code."""
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
    module = sys.modules.get(name)
    if name.partition(".")[0] in ("highway", "builtins"):
        return False
    if module is None:  # exec created the function, or its module no longer exists
        return isinstance(value, (type, types.FunctionType))
    file = getattr(module, "__file__", None)
    return name in _SCRIPTS if not isinstance(file, str) else not _is_installed(file)


@cache
def _is_installed(file: str) -> bool:
    path = Path(file).resolve()
    return str(path).startswith(_INSTALLED) or not {"site-packages", "dist-packages"}.isdisjoint(path.parts)


def name_and_version(value: Any) -> str:
    """Return the name of a function, class or module, and the version of its package."""
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
    name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
    return f"{name} {'' if module in _SCRIPTS else _version(str(module).partition('.')[0])}"


@cache
def _version(package: str) -> str:
    if package in sys.stdlib_module_names or package in ("", "highway"):
        return ""
    found = getattr(sys.modules.get(package), "__version__", None)
    return found if isinstance(found, str) else version_of(package)


def text_of(code: types.CodeType) -> str:
    """Return the source of a function, without comments and layout, or its bytecode if there is no source."""
    try:
        found = _functions(code.co_filename, _written_at(code.co_filename)).get((code.co_firstlineno, code.co_name), [])
    except (OSError, SyntaxError, ValueError, RecursionError):
        found = []
    return found[0] if len(found) == 1 else " ".join(_bytecode(code))


def _written_at(file: str) -> int:
    if os.path.exists(file):
        status = os.stat(file)
        if status.st_mtime >= _IMPORTED_AT:
            raise OSError(f"{file} may have changed since it was imported")
        return status.st_mtime_ns
    return 0


@lru_cache(maxsize=256)
def _functions(file: str, _: int) -> dict[tuple[int, str], list[str]]:
    """Return the functions of a file by their first line and name."""
    found = defaultdict(list)
    for node in ast.walk(ast.parse("".join(linecache.getlines(file)))):
        if isinstance(node, ast.Lambda):
            found[node.lineno, "<lambda>"].append(ast.unparse(node))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found[first, node.name].append(ast.unparse(node))
    return dict(found)


def _bytecode(code: types.CodeType) -> Iterator[str]:
    """Yield texts that change when the code changes."""
    yield f"{code.co_argcount} {code.co_kwonlyargcount} {code.co_flags} {code.co_names} {code.co_varnames} {code.co_code.hex()}"
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _bytecode(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


class Names(NamedTuple):
    """The names and attributes that a function uses, as chains. ``("self", "scale")`` is the chain for ``self.scale``.

    Args:
        read: Chains that the function reads. ``("self",)`` means that the function uses the whole object, such as an argument of a call.
        assigned: Attributes and outer variables that the function assigns.
        filled: Containers that the function changes in place, by assigning an entry or by a method such as ``append``.
    """

    read: frozenset[tuple[str, ...]]
    assigned: frozenset[tuple[str, ...]]
    filled: frozenset[tuple[str, ...]]


@lru_cache(maxsize=4096)
def names_of(code: types.CodeType) -> Names:
    """Return the names and attributes that a function and its inner functions use."""
    steps = list(dis.get_instructions(code))
    ends: dict[int, tuple[str, ...]] = {}  # chains of names, by the step at which the chain ends
    read: set[tuple[str, ...]] = set()
    assigned: set[tuple[str, ...]] = set()
    filled: set[tuple[str, ...]] = set()
    copied: tuple[str, ...] = ()
    for number, step in enumerate(steps):
        name, chain = step.opname, ends.get(number - 1, ())
        if name in ("LOAD_ATTR", "LOAD_METHOD") and chain:
            ends[number] = (*chain, step.argval)
            continue
        if name == "COPY" and chain and steps[number + 1].opname != "COPY":  # self.count += 1
            ends[number] = copied = chain
            continue
        if chain and name not in ("STORE_ATTR", "DELETE_ATTR"):
            read.add(chain)
        if name.startswith(("LOAD_FAST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "STORE_FAST_LOAD_FAST")):
            *others, last = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            read.update((other,) for other in others if name.startswith("LOAD_FAST"))
            ends[number] = (last,)
        elif name in ("STORE_DEREF", "STORE_GLOBAL"):
            assigned.add((step.argval,))
        elif name == "STORE_ATTR":
            assigned.add((*(copied if steps[number - 1].opname == "SWAP" else chain), step.argval))
        elif name in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            filled.add(ends.get(_before(steps, number), ()))
        elif name == "COPY" and steps[number - 1].opname == "COPY":  # counts[key] += 1
            filled.add(ends.get(_before(steps, number - 1), ()))
    filled |= {chain[:-1] for chain in read if chain[-1] in _FILLING}
    inner = [names_of(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return _merged([Names(frozenset(read), frozenset(assigned), frozenset(filled)), *inner])


def _merged(several: Sequence[Names]) -> Names:
    return Names(*(frozenset().union(*parts) for parts in zip(*several, strict=True)))


_FILLING = {"append", "appendleft", "extend", "insert", "add", "update", "setdefault", "pop", "popleft", "popitem", "remove", "discard"}


def _before(steps: list[dis.Instruction], number: int) -> int:
    """Return the index of the step before the steps that compute the value on top of the stack."""
    depth = 0
    while number > 0 and depth < 1:
        number -= 1
        depth += dis.stack_effect(steps[number].opcode, steps[number].arg, jump=False)
    return number - 1


def changed_while_running(cls: type) -> Names:
    """Return the attributes of ``self`` that methods assign or fill while a pipeline runs, directly or through methods that they call."""
    methods = defaultdict[str, list[types.FunctionType]](list)  # includes methods of base classes, which super() calls
    for base in cls.__mro__:
        for name, function in functions_of(base):
            methods[name].append(function)
    found, waiting = set[str](), [name for name in _RUNNING if name in methods]
    assigned, filled = set[tuple[str, ...]](), set[tuple[str, ...]]()
    while waiting:
        found.add(name := waiting.pop())
        called = set[str]()
        for function in methods[name]:
            own, names = function.__code__.co_varnames[:1], names_of(function.__code__)
            assigned |= {chain[1:] for chain in names.assigned if chain[:1] == own}
            filled |= {chain[1:] for chain in names.filled if chain[:1] == own}
            called |= {chain[1] for chain in names.read if chain[:1] == own and len(chain) > 1}
        waiting += [name for name in called & methods.keys() if name not in found]
    return Names(frozenset(), frozenset(assigned), frozenset(filled))


_RUNNING = (
    "__call__",
    "__iter__",
    "__next__",
    "__getitem__",
    "__getitems__",
    "__len__",
    "stream",
    "consume",
    "forward",
    "remake",
    *("set_epoch", "transform", "encode", "decode"),
)  # methods that a pipeline calls; all other methods count only if one of these methods calls them


def functions_of(cls: type) -> Iterator[tuple[str, types.FunctionType]]:
    """Yield the methods and property functions of a class, by name. Skip functions that a decorator generated."""
    for name, value in vars(cls).items():
        for part in (value, *(getattr(value, one, None) for one in ("fget", "fset", "__func__", "func", "__wrapped__"))):
            if isinstance(part, types.FunctionType) and part.__code__.co_filename != "<string>":
                yield name, part


@cache
def _closing_functions(cls: type) -> list[types.FunctionType]:
    """Return the user's functions in a class and its base classes, if the functions close over variables."""
    functions = (function for base in cls.__mro__ if is_users(base) for _, function in functions_of(base))
    return [function for function in functions if function.__closure__ and not _is_installed(function.__code__.co_filename)]


def closed_over(owner: types.FunctionType | type) -> Iterator[tuple[str, Any, Names]]:
    """Yield the closure variables of a function, or of a class's methods: the name, the value, and the names that the functions use."""
    cells: dict[int, tuple[str, types.CellType, Names]] = {}
    for function in _closing_functions(owner) if isinstance(owner, type) else [owner]:
        names = names_of(function.__code__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            cells[id(cell)] = name, cell, _merged([names, *(found[2] for found in [cells.get(id(cell))] if found)])
    for name, cell, names in cells.values():
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        if name != "__class__":
            yield name, value, names


def attributes_of(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the class attributes that are neither functions nor properties, by name."""
    for name, value in vars(cls).items():
        if not (hasattr(type(value), "__get__") or (name.startswith("__") and name.endswith("__")) or name == "_abc_impl"):
            yield name, value
