"""Run torch's tests of its DataLoader and torchdata's of its StatefulDataLoader with highway's loader: `tox -e torch-suite -- FOLDER`.

Each file of the folder that imports one of the two loaders is copied, and the copy imports highway's loader under the same name. The tests
that are expected to fail are listed with their reasons in docs/howto/dataloader.md. Any other failure is an error, and so is a test of this
list that passes.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "dataloader.md"
WHERE_FROM = """Give the folder that holds the tests of torch and torchdata; they are not part of highway:

  test/test_dataloader.py              of https://github.com/pytorch/pytorch, at the tag of the installed torch
  test/stateful_dataloader/test_*.py   of https://github.com/meta-pytorch/data, at the tag of the installed torchdata

Then run: tox -e torch-suite -- FOLDER
With their own loaders, to compare: tox -e torch-suite -- FOLDER --theirs"""
LOADERS = {"torch.utils.data": "DataLoader", "torchdata.stateful_dataloader": "StatefulDataLoader"}
PYTEST = ("-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", "--junitxml=report.xml")
ROW = re.compile(r"^\| `(?P<test>\w+::\w+)` \| (?P<whose>theirs too|ours) \| (?P<reason>.+) \|$", re.M)


def with_our_loader(source: str) -> str | None:
    """Return the source of a test module with highway's loader in place of the loader that it imports, or None if it imports neither."""
    lines = source.splitlines(keepends=True)
    replaced = False
    for node in reversed(ast.parse(source).body):
        name = LOADERS.get(node.module or "") if isinstance(node, ast.ImportFrom) else None
        if name and any(alias.name == name and alias.asname is None for alias in node.names):
            lines.insert(node.end_lineno, f"from highway.adapters.torch import DataLoader as {name}\n")
            replaced = True
    return "".join(lines) if replaced else None


def copy(folder: Path, to: Path, theirs: bool) -> list[str]:
    """Write the test modules of a folder, with their loader or ours, to another folder, and return the names of the files."""
    names = []
    for path in sorted(folder.rglob("*test_*.py")):
        source = path.read_text()
        if (changed := with_our_loader(source)) is not None:
            (to / path.name).write_text(source if theirs else changed)
            names.append(path.name)
    return names


def failures(report: Path) -> dict[str, bool]:
    """Return whether each test that was not skipped has failed, by ``Class::test``."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is None:
            test = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
            found[test] = found.get(test, False) or case.find("failure") is not None or case.find("error") is not None
    return found


def compare(found: dict[str, bool], expected: dict[str, str]) -> list[str]:
    """Return a line for each test whose result is not the expected result."""
    new = [f"new failure: {test}" for test, failed in found.items() if failed and test not in expected]
    return new + [f"passes, and is listed: {test} ({expected[test]})" for test, failed in found.items() if not failed and test in expected]


def expected_failures(page: Path, theirs: bool) -> dict[str, str]:
    """Return the tests that are expected to fail, and why."""
    return {row["test"]: row["reason"] for row in ROW.finditer(page.read_text()) if not theirs or row["whose"] == "theirs too"}


def main(arguments: Iterable[str]) -> str | None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="holds the tests of torch and torchdata")
    parser.add_argument("--theirs", action="store_true", help="run the tests with their own loaders")
    parser.add_argument("--expected", type=Path, default=PAGE, help="the page that lists the expected failures")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one test")
    options, of_pytest = parser.parse_known_args(list(arguments))
    if options.folder is None:
        return WHERE_FROM
    with tempfile.TemporaryDirectory(prefix="hw-suite-") as temporary:
        names = copy(options.folder, Path(temporary), options.theirs)
        if not names:
            return f"{options.folder}: no test module here imports torch's DataLoader or torchdata's StatefulDataLoader\n\n{WHERE_FROM}"
        Path(temporary, "pytest.ini").write_text("[pytest]\n")
        command = [sys.executable, "-m", "pytest", *PYTEST, f"--timeout={options.timeout}", *of_pytest, *names]
        code = subprocess.run(command, cwd=temporary).returncode
        report = Path(temporary, "report.xml")
        if not report.exists() or code not in (0, 1):
            return f"pytest ended with code {code}"
        found = failures(report)
    wrong = compare(found, expected_failures(options.expected, options.theirs))
    print(f"{sum(found.values())} of {len(found)} tests failed; {len(wrong)} results are not the expected results", flush=True)
    return "\n".join(wrong) or None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
