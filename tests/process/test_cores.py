"""How many cores and how much memory this process may use, on machines that are folders with the kernel's files."""

import os

import pytest

from highway.process.cgroup import cpu_quota, free_memory
from highway.process.cores import available_cores
from highway.process.memory import available_memory

ALL = len(os.sched_getaffinity(0))
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 25 0:28 / /sys/fs/cgroup/memory rw shared:6 - cgroup cgroup rw,memory\n"
)


@pytest.fixture
def machine(tmp_path):
    """Return a function that lays out a machine: its mounts, the groups of the process, and files by their paths."""

    def lay_out(mounts, groups, files):
        for path, text in {"proc/self/mountinfo": mounts, "proc/self/cgroup": groups, **files}.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return tmp_path

    return lay_out


def cpu(**quotas):
    return {f"sys/fs/cgroup/{path.replace('__', '/')}/cpu.max": f"{quota} 100000\n" for path, quota in quotas.items()}


def memory(path, limit, used, cached=0, high="max"):
    stat = f"anon {used - cached}\nfile {cached}\ninactive_file {cached}\n"
    files = {"max": limit, "high": high, "current": used, "stat": stat}
    return {f"sys/fs/cgroup/{path}/memory.{name}": f"{text}\n" for name, text in files.items()}


def test_affinity_limits_the_cores(tmp_path):
    assert available_cores(tmp_path) == ALL


def test_the_quota_of_the_processs_own_group_limits_the_cores(machine):
    root = machine(
        V2,
        "0::/system.slice/job.service\n",
        cpu(system__slice="max") | {"sys/fs/cgroup/system.slice/job.service/cpu.max": "50000 100000\n"},
    )
    assert (cpu_quota(root), available_cores(root)) == (0.5, 1)


@pytest.mark.parametrize(("outer", "inner", "expected"), [(150_000, 300_000, 1.5), (400_000, 50_000, 0.5), ("max", "max", None)])
def test_the_tightest_quota_on_the_way_to_the_root_counts(machine, outer, inner, expected):
    root = machine(V2, "0::/slurm/job_1/step_0/task_0\n", cpu(slurm__job_1=outer, slurm__job_1__step_0__task_0=inner))
    assert cpu_quota(root) == expected


def test_the_group_of_another_does_not_count(machine):
    assert cpu_quota(machine(V2, "0::/mine\n", cpu(mine="max", other=1000))) is None


def test_quotas_of_version_1_are_read_where_their_controller_is(machine):
    folder = "sys/fs/cgroup/cpu,cpuacct/kubepods/pod1"
    files = {f"{folder}/cpu.cfs_quota_us": "150000\n", f"{folder}/cpu.cfs_period_us": "100000\n"}
    groups = "5:memory:/other\n4:cpu,cpuacct:/kubepods/pod1/container\n0::/system.slice\n"
    assert cpu_quota(machine(V1, groups, files)) == 1.5
    assert cpu_quota(machine(V1, "4:cpu,cpuacct:/\n", files)) is None
    assert cpu_quota(machine(V1, groups, {**files, f"{folder}/cpu.cfs_quota_us": "-1\n"})) is None


@pytest.mark.parametrize("group", ["/docker/abc", "/docker/abc/../abc", "/", "/elsewhere"])
def test_in_a_container_the_groups_of_the_machine_are_found_below_the_mount(machine, group):
    mounts = V2.replace(" / /sys", " /docker/abc /sys")
    assert cpu_quota(machine(mounts, f"0::{group}\n", {"sys/fs/cgroup/cpu.max": "200000 100000\n"})) == 2


def test_the_page_cache_is_not_used_memory(machine):
    root = machine(V2, "0::/a/b\n", memory("a/b", "max", 10_000) | memory("a", 10_000, 9_000, cached=6_000))
    assert free_memory(root) == 7_000


def test_the_group_with_the_least_memory_left_counts(machine):
    root = machine(V2, "0::/a/b\n", memory("a", 10_000, 9_500) | memory("a/b", 2_000, 100))
    assert free_memory(root) == 500
    assert free_memory(machine(V2, "0::/a/b\n", memory("a", 10_000, 9_500, high=9_600))) == 100
    assert free_memory(machine(V2, "0::/a/b\n", memory("a", 10_000, 12_000))) == 0


def test_memory_of_version_1_is_read_where_its_controller_is(machine):
    folder = "sys/fs/cgroup/memory/user"
    files = {"limit_in_bytes": "5000", "usage_in_bytes": "3000", "stat": "inactive_file 1\ntotal_inactive_file 500\n"}
    root = machine(V1, "5:memory:/user/me\n", {f"{folder}/memory.{name}": text for name, text in files.items()})
    assert free_memory(root) == 2500


def test_the_machine_may_have_less_than_the_group_may_use(machine):
    files = memory("a", 1_000_000, 1000) | {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    3 kB\n"}
    assert available_memory(machine(V2, "0::/a\n", files)) == 3 * 1024
    assert available_memory(machine(V2, "0::/a\n", memory("a", 3000, 1000))) == 2000


def test_without_groups_this_machine_says_what_it_has(tmp_path):
    assert (cpu_quota(tmp_path), free_memory(tmp_path)) == (None, None)
    assert 10**6 < available_memory() < 10**14
