"""What is said without the library of ArrayRecord; tests/oracles reads and writes such files."""

import sys

import pytest

from highway.datasets import ArrayRecord
from highway.errors import ConfigError


def test_without_its_library_the_command_is_said(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "array_record.python.array_record_module", None)
    with pytest.raises(ConfigError, match=r"ArrayRecord needs the package array_record: pip install .*\[arrayrecord\]'"):
        len(ArrayRecord(str(tmp_path / "a")))
