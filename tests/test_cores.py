"""How many cores this process may use."""

import os

from highway.cores import available_cores


def test_affinity_limits_the_cores(tmp_path):
    assert available_cores(tmp_path) == len(os.sched_getaffinity(0))


def test_a_quota_of_version_2_limits_the_cores(tmp_path):
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert available_cores(tmp_path) == 1


def test_no_quota_is_no_limit(tmp_path):
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert available_cores(tmp_path) == len(os.sched_getaffinity(0))


def test_a_quota_of_version_1_limits_the_cores(tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("100000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert available_cores(tmp_path) == 1
