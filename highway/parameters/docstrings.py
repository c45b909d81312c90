"""Format docstrings as texts for a terminal: add inherited parameters, and remove Sphinx markup."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from highway.columns import wrapped
from highway.parameters.hints import readable_parameters, written

_ROLE = re.compile(r":\w+:`~?([^`]*)`|``([^`]*)``")
_ARGS = re.compile(r"^Args:\n((?:[ ]+.*\n?|\n)*)", re.M)
_PARAMETER = re.compile(r"^    (\**\w+(?:, \**\w+)*): ", re.M)  # one name, or several names with one description
_ENTRY = re.compile(r"\s+\**\w+(?:, \**\w+)*: |\s*- ")  # the first line of a parameter or of a bullet
_VERBATIM = re.compile(r">>> |.*\S {2,}\S|\|")  # the first line of an example or a table
_LATER = re.compile(r"^(Yields|Returns|Raises):$|^>>> ", re.M)  # sections after the parameters


def describe(found: Callable[..., Any]) -> str:
    """Return the complete docstring of a class or function, without Sphinx markup."""
    return plain(complete(found)).strip()


def complete(found: Callable[..., Any], typed: bool = False) -> str:
    """Return the docstring of a class or function, with all parameters in the ``Args:`` section, in the order of the signature.

    If a class does not describe a parameter, the description in a base class is used.

    Args:
        found: The class or function.
        typed: Whether to add the type and range after the name of each parameter.
    """
    text = inspect.getdoc(found) or ""
    explained = parameters(found)
    signature = readable_parameters(found)
    names = [name for name in signature if name in explained]
    text = _ARGS.sub("", text)
    if names:
        later = _LATER.search(text)
        end = later.start() if later else len(text)
        section = "".join(_with_type(explained[name], signature[name]) if typed else explained[name] for name in names)
        text = f"{text[:end].rstrip()}\n\nArgs:\n{section}\n{text[end:]}"
    return re.sub(r"\n{3,}", "\n\n", text)


def _with_type(entry: str, parameter: inspect.Parameter) -> str:
    """Return an entry of ``Args:`` with the type of the parameter after the name."""
    if parameter.annotation is parameter.empty:
        return entry
    return _PARAMETER.sub(lambda name: f"{name[0][:-2]} ({written(parameter.annotation)}): ", entry, count=1)


def parameters(found: Callable[..., Any]) -> dict[str, str]:
    """Return a dict from parameters to their indented entries in ``Args:``, for a function, or for a class and its base classes."""
    entries: dict[str, str] = {}
    for owner in inspect.getmro(found) if inspect.isclass(found) else (found,):
        section = _ARGS.search(inspect.cleandoc(owner.__doc__ or ""))
        if section is None:
            continue
        names = list(_PARAMETER.finditer(section[1]))
        for name, following in zip(names, [*names[1:], None]):
            text = section[1][name.end(1) : following.start() if following else None].rstrip()
            for one in name[1].split(", "):
                entries.setdefault(one.lstrip("*"), f"    {one}{text}\n")
    return entries


def filled(text: str, width: int) -> str:
    """Break the paragraphs of a docstring into lines of at most ``width`` characters. Examples and tables keep their lines.

    >>> print(filled("Do this\\nnow.\\n\\nArgs:\\n    p: Probability\\n        of a flip.", 20))
    Do this now.
    <BLANKLINE>
    Args:
        p: Probability
            of a flip.
    """
    paragraphs: list[list[str]] = []
    for line in text.splitlines():
        last = paragraphs[-1] if paragraphs else []
        is_verbatim = bool(last) and _VERBATIM.match(last[0]) is not None
        depth, first = _depth(line), _depth(last[0]) if last else 0
        goes_on = depth == first or bool(last and depth > first and _ENTRY.match(last[0]))
        if line and last and last[0] and (is_verbatim or (goes_on and not _ENTRY.match(line) and not _VERBATIM.match(line))):
            last.append(line)
        else:
            paragraphs.append([line])
    return "\n".join("\n".join(lines) if _VERBATIM.match(lines[0]) else _fill(lines, width) for lines in paragraphs)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _fill(lines: list[str], width: int) -> str:
    """Break one paragraph into lines of at most ``width`` characters. In a parameter or bullet, later lines are indented."""
    first = _depth(lines[0])
    later = _depth(lines[1]) if lines[1:] else first + 4 * bool(_ENTRY.match(lines[0]))
    return wrapped(" " * first + " ".join(line.strip() for line in lines), width, " " * later)


def plain(text: str) -> str:
    """Return a text without the markup of Sphinx.

    >>> plain("as for :class:`~highway.modules.Cache`, and ``p`` beside it")
    'as for `highway.modules.Cache`, and `p` beside it'
    """
    return _ROLE.sub(lambda found: f"`{found[1] or found[2]}`", text)
