"""Lists of labels: text files with the name and the label of one image per line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError
from highway.stores.file import open_text
from highway.stores.url import shown


class LabelList(NamedTuple):
    """The content of a list of labels.

    Args:
        keys: The names of the images.
        labels: The label of each image.
        classes: The names of the labels, indexed by label. Empty if the labels have no names.
        words: The descriptions of the labels, indexed by label. Empty if the labels have no descriptions.
    """

    keys: list[str]
    labels: list[int]
    classes: list[str]
    words: list[str]


def read_labels(path: str, class_names: str | None) -> LabelList:
    """Read the list of labels at ``path``. ``class_names`` is the path of a file with the names of the classes, or ``None``.

    Raises:
        OSError: one of the files cannot be read.
        DatasetError: a line is not valid. The message names the file and the line.
    """
    classes, words = read_classes(class_names) if class_names else ([], [])
    found: dict[str, str] = {}
    numbers = {name: number for number, name in enumerate(classes)}
    numbered = by_folder = False
    for line, text in lines_of(path):
        name, label = _first_two(text) if "\t" in text else _last_two(text)
        key = name.lstrip("/").removeprefix("./")
        where = f"{shown(path)}, line {line}: {text!r}"
        if not found:
            by_folder = not label and "/" in key
        if by_folder and not label:
            label = key.rpartition("/")[0].rpartition("/")[2]
        elif by_folder:
            raise DatasetError(f"{where}; expected only a path, as in the earlier lines")
        if not key or not label:
            raise DatasetError(f"{where}; expected a name and a label, such as 'ILSVRC2012_val_00000001.JPEG 65'")
        if key in found:
            raise DatasetError(f"{where}; {key!r} is also in an earlier line; remove one of these lines")
        if not found:
            numbered = _is_number(label) and label not in numbers and not by_folder
        if numbered and not (_is_number(label) and int(label) < (len(classes) or 2**31)):
            expected = (
                f"a number below {len(classes)}, the classes in {shown(class_names or '')}"
                if classes
                else "a number, as in the earlier lines"
            )
            raise DatasetError(f"{where}; expected as label {expected}")
        if not numbered and classes and label not in numbers:
            raise DatasetError(f"{where}; {label!r} is not in {shown(class_names or '')}; add it to this file, or pass another file")
        found[key] = label
    if not found:
        raise DatasetError(f"{shown(path)}: the file has no lines; expected a name and a label in each line")
    if not classes and not numbered:
        classes = sorted(set(found.values()))
        numbers = {name: number for number, name in enumerate(classes)}
    return LabelList(list(found), [int(label) if numbered else numbers[label] for label in found.values()], classes, words)


def read_classes(path: str) -> tuple[list[str], list[str]]:
    """Read a file with the names of classes. Return the names, and the descriptions of the classes.

    Raises:
        OSError: the file cannot be read.
        DatasetError: a line is not valid, or the file has no lines.
    """
    found: dict[str, str] = {}
    for line, text in lines_of(path):
        name, words = _first_two(text)
        if name in found:
            raise DatasetError(f"{shown(path)}, line {line}: {text!r}; {name!r} is also in an earlier line; remove one of these lines")
        found[name] = words
    if not found:
        raise DatasetError(f"{shown(path)}: the file has no lines; expected the name of a class in each line")
    # In Places365, the second column contains the label numbers, not descriptions.
    words_only = any(found.values()) and list(found.values()) != [str(number) for number in range(len(found))]
    return list(found), list(found.values()) if words_only else []


def lines_of(path: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and text of each line that is not blank.

    Raises:
        DatasetError: the file is not UTF-8 text.
        FileNotFoundError: there is no such file.
    """
    try:
        with open_text(path) as file:
            for number, line in enumerate(file, start=1):
                check_cancelled()
                if text := line.strip():
                    yield number, text
    except UnicodeDecodeError as error:
        raise DatasetError(f"{shown(path)}: the file is not UTF-8 text: {error}") from error


def _first_two(text: str) -> tuple[str, str]:
    first, *others = text.split("\t") if "\t" in text else text.split(None, 1)
    return first.strip(), others[0].strip() if others else ""


def _last_two(text: str) -> tuple[str, str]:
    *first, last = text.rsplit(None, 1)
    return (first[0], last) if first else (last, "")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
