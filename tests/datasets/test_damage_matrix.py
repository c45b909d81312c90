"""Every format by every kind of damage: reading a damaged file gives what the table in docs/howto/formats.md says."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import damaged_files
import pytest
from damaged_files import FORMATS, KINDS_OF_DAMAGE

from highway.datasets.formats import formats
from highway.distribution import version_of

TESTS = Path(__file__).parents[1]
CASES = 8  # of each kind of damage
SECONDS = 600  # after which a format counts as one that never returns; all cases take a few seconds
ALLOWED = {"error": {"same", "error"}, "values": {"same", "error", "values"}, "samples": {"same", "error", "values", "samples"}}
BY_CLASS = {row.dataset.rpartition(":")[2]: row for row in formats().values() if row.dataset.startswith("highway.")}


def classes_in(name):
    """Return the words in the name of a row, among which are the classes that read its files."""
    return re.findall(r"\w+", name)


def documented():
    """Return the table in the docs: by format and kind of damage, the word in the cell."""
    lines = (TESTS.parent / "docs/howto/formats.md").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| files |"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first : lines.index("", first)]]
    return {row[0].replace("`", ""): dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}


def test_the_table_in_the_docs_has_every_format_and_kind_of_damage():
    table = documented()
    assert list(table) == list(FORMATS)
    for row in table.values():
        assert list(row) == list(KINDS_OF_DAMAGE) and ALLOWED.keys() >= set(row.values())


def test_every_format_has_a_row():
    missing = BY_CLASS.keys() - {word for name in FORMATS for word in classes_in(name)}
    assert not missing, f"{missing}: add a line to FORMATS in damaged_files.py, and a row under Damage in docs/howto/formats.md"


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_gives_what_the_docs_say(tmp_path, name):
    for extra in (BY_CLASS[word].extra for word in classes_in(name) if word in BY_CLASS):
        if extra and not version_of(extra.package):
            pytest.skip(f"{extra.package} is not installed")
    command = [sys.executable, damaged_files.__file__, name, "0", str(CASES), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    with open(tmp_path / "outcomes", "w+") as out, open(tmp_path / "errors", "w+") as errors:
        try:
            code = subprocess.run(command, stdout=out, stderr=errors, env=environment, timeout=SECONDS).returncode
        except subprocess.TimeoutExpired:
            code = f"none after {SECONDS} s"
        out.seek(0), errors.seek(0)
        lines = [json.loads(line) for line in out]
        assert code == 0, f"exit code {code} in the case {lines[-1:]}: {errors.read()[-2000:]}"
    cases, outcomes = lines[::2], lines[1::2]
    assert Counter(kind for kind, _ in cases) == dict.fromkeys(KINDS_OF_DAMAGE, CASES)
    expected = documented()[name]
    wrong = [(case, *found) for case, found in zip(cases, outcomes, strict=True) if found[0] not in ALLOWED[expected[case[0]]]]
    assert not wrong
