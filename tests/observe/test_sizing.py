import pytest

from highway.observe.calibration import Calibration, RoleCost, StageCost
from highway.observe.sizing import HostSize, Used, demands, lookups, possible, size, together
from highway.parameters.location import Location
from highway.topology.plan import Plan, Role
from highway.topology.spec import AutoscaleSpec, HostSpec, LinkSpec, ResourcesSpec

HOST = HostSize(cores=10)


def role(name, replicas=1, hosts=(), **rest):
    return Role(name, [], Location(), replicas, hosts, **rest)


def plan(*roles, **links):
    return Plan("p", {each.name: each for each in roles}, {"a": HostSpec("a"), "b": HostSpec("b")}, links, Location())


def link(source, target, **rest):
    return LinkSpec(source, target, **{"port": 5555, **rest})


def calibration(**roles):
    return Calibration(roles, cores=2, process_mb=100.0)


def cost(*stages, **rest):
    """The cost of a role whose items have ten samples."""
    return RoleCost(stages, **{"samples": 10.0, **rest})


def chain(**links):
    """A reader, a worker and a trainer."""
    raw, done = (link("reader", "worker", **links), link("worker", "trainer", bind="to", **links))
    return plan(role("reader"), role("worker", 2), role("trainer"), raw=raw, done=done)


def free(**rest):
    return cost(StageCost("Any", "source"), **rest)


def by_role(sizes):
    return {each.role: each for each in sizes}


def test_threads_are_those_that_the_busy_seconds_take():
    given = calibration(worker=cost(StageCost("Source", "source"), StageCost("Sleep", "map", seconds=0.1)))
    (found,) = size(plan(role("worker")), given, HOST, rate=450)  # 45 items: 4.5 threads that are busy, of which each works 0.9
    assert (found.replicas, found.hosts, found.threads) == (1, 1, {"Source": 1, "Sleep": 5})


def test_processes_are_those_that_the_one_thread_of_a_stage_takes():
    given = calibration(reader=cost(StageCost("Source", "source", seconds=0.01), StageCost("Map", "map", seconds=0.1)))
    (found,) = size(plan(role("reader")), given, HOST, rate=2000)
    assert found.replicas == 3 and found.threads == {"Source": 1, "Map": 8}
    assert found.fullest == Used("the one thread of Source", pytest.approx(2 / 3))


def test_processes_are_those_that_the_gil_takes():
    given = calibration(worker=cost(StageCost("Source", "source"), StageCost("Map", "map", seconds=0.01, cpu=0.01, held=0.009)))
    (found,) = size(plan(role("worker")), given, HostSize(cores=64), rate=2000)
    assert found.replicas == 2 and found.hosts == 1
    assert found.fullest == Used("the GIL of a process", pytest.approx(0.9))


@pytest.mark.parametrize(
    ("host", "hosts", "what"),
    [
        (HostSize(cores=10), 2, "cores"),
        (HostSize(cores=100, disk_mb=50), 3, "disk"),
        (HostSize(cores=100, memory_mb=150), 1, "memory"),
        (HostSize(cores=100), 1, "the GIL of a process"),
    ],
)
def test_hosts_are_those_that_what_they_have_takes(host, hosts, what):
    stage = StageCost("Map", "map", seconds=0.1, cpu=0.1, held=0.005, read=1e6)
    (found,) = size(plan(role("worker")), calibration(worker=cost(StageCost("Source", "source"), stage)), host, rate=1000)
    assert found.hosts == hosts and found.fullest.what == what


def test_the_network_is_that_of_the_messages_in_and_out():
    given = calibration(reader=free(message=1.25e6), worker=free(message=2.5e6), trainer=free())
    sizes = by_role(size(chain(), given, HostSize(cores=10, gbit=25), rate=1000))
    assert [sizes[name].host["network out"] for name in ("reader", "worker", "trainer")] == [1.0, 2.0, 0.0]
    assert [sizes[name].host["network in"] for name in ("reader", "worker", "trainer")] == [0.0, 1.0, 2.0]
    assert sizes["trainer"].fullest == Used("network in", pytest.approx(2 / 25))


def test_several_network_interfaces_carry_more():
    given = calibration(reader=free(message=12.5e6), worker=free(message=12.5e6), trainer=free())
    one, two = (by_role(size(chain(), given, HostSize(cores=10, gbit=10, nics=nics), rate=1000)) for nics in (1, 2))
    assert (one["trainer"].hosts, two["trainer"].hosts) == (2, 1)  # 10 Gbit/s are all of one, and half of two


def test_what_stays_on_a_host_passes_no_network_and_shares_its_cores():
    busy = StageCost("Map", "map", seconds=0.03, cpu=0.03)
    given = calibration(reader=cost(StageCost("Source", "source"), busy, message=1e6), worker=cost(busy, message=1e6), trainer=free())
    sizes = by_role(size(chain(transport="shm"), given, HostSize(cores=10, gbit=1), rate=1000))
    assert {name: each.hosts for name, each in sizes.items()} == {"reader": 1, "worker": 1, "trainer": 1}
    assert {each.host["network out"] for each in sizes.values()} == {0.0}
    assert all(Used("cores", pytest.approx(0.6)) in each.used for each in sizes.values())


def test_what_must_be_on_one_host_and_takes_more_than_it_has_is_short():
    busy = StageCost("Map", "map", seconds=0.03, cpu=0.03, held=0.02)
    given = calibration(reader=free(message=1e6), worker=cost(StageCost("Source", "source"), busy, message=1e6), trainer=free())
    sizes = by_role(size(chain(transport="ipc"), given, HOST, rate=5000))
    assert sizes["worker"].hosts == 1 and sizes["worker"].replicas > 10
    assert [each.fullest for each in sizes.values()] == [Used("cores", pytest.approx(1.5))] * 3


def test_memory_is_that_of_the_process_its_queues_and_the_budgets_of_its_connections():
    source = StageCost("Any", "source", nbytes=10e6, waiting=2)  # three places of 10 MB
    given = calibration(reader=free(message=1e6), worker=cost(source, message=1e6), trainer=free())
    sizes = by_role(size(chain(budget_mb=64), given, HOST, rate=10))
    assert sizes["worker"].host["memory"] == 100 + 30 + 64 + 64
    large = calibration(reader=free(message=100e6), worker=free(message=1e6), trainer=free())
    assert by_role(size(chain(budget_mb=64), large, HOST, rate=10))["reader"].host["memory"] == 100 + 200  # two messages


def test_a_host_has_as_many_processes_as_gpus_for_them():
    trainers = plan(role("reader"), role("trainer", 16, resources=ResourcesSpec(gpus=2)), raw=link("reader", "trainer"))
    given = calibration(reader=free(), trainer=free())
    assert [by_role(size(trainers, given, HostSize(10, gpus=gpus), 10))["trainer"].hosts for gpus in (None, 8, 3)] == [1, 4, 16]


def test_a_rendezvous_is_asked_for_each_end_that_binds():
    given = calibration(reader=free(), worker=free(), trainer=free())
    many = plan(
        role("reader", 3), role("worker", 2), role("trainer", 5), raw=link("reader", "worker"), done=link("worker", "trainer", bind="to")
    )
    sizes = size(many, given, HOST, 10)
    assert lookups(many, sizes) == (3 + 1 + 5, 3 + 3 + 5 + 5)  # one worker does: it looks for three readers, and five trainers
    assert lookups(chain(transport="ipc"), size(chain(transport="ipc"), given, HOST, 10)) == (0, 0)


def test_memory_that_one_process_exceeds_is_short():
    given = calibration(reader=free(message=1e6), worker=free(message=1e6), trainer=free())
    sizes = by_role(size(chain(budget_mb=1000), given, HostSize(cores=10, memory_mb=500), rate=10))
    assert sizes["reader"].fullest == Used("memory", pytest.approx(2.2))


def test_each_receiver_of_what_is_published_gets_all_of_it():
    published = plan(role("worker"), role("trainer", 4), batches=link("worker", "trainer", kind="publish"))
    given = calibration(worker=free(message=1.25e6), trainer=cost(StageCost("Train", "sink", seconds=0.05)))
    sizes = by_role(size(published, given, HostSize(cores=10, gbit=100), rate=1000))
    assert sizes["worker"].samples == 1000 and sizes["worker"].host["network out"] == 4.0
    assert sizes["trainer"].replicas == 4 and sizes["trainer"].samples == 4000
    assert sizes["trainer"].host["network in"] == 1.0 * 4 / sizes["trainer"].hosts
    assert sizes["trainer"].fullest == Used("the one thread of Train", 5.0)  # more of them would not share it


def test_what_is_left_out_on_the_way_was_read_all_the_same():
    given = calibration(reader=free(), worker=free(taken=4.0), trainer=free())
    assert demands(chain(), given, 100) == {"reader": 400, "worker": 100, "trainer": 100}


def test_two_receiving_roles_of_a_link_share_what_it_carries():
    forked = plan(role("reader", 2), role("a"), role("b"), raw=link("reader", ["a", "b"]))
    assert demands(forked, calibration(), 100) == {"reader": 200, "a": 100, "b": 100}


def test_a_circle_of_roles_ends():
    round_trip = plan(role("a"), role("b"), there=link("a", "b"), back=link("b", "a"))
    assert demands(round_trip, calibration(), 100) == {"a": 0, "b": 0}


def test_more_replicas_than_autoscale_allows_are_short():
    given = calibration(worker=cost(StageCost("Map", "stream", seconds=0.1)))
    found = size(plan(role("worker", autoscale=AutoscaleSpec(1, 2))), given, HOST, rate=270)
    assert found[0].replicas == 3 and Used("autoscale: max 2", 1.5) in found[0].used


def test_all_roles_together_take_what_each_takes():
    busy = cost(StageCost("Any", "source"), StageCost("Map", "map", seconds=0.02, cpu=0.02))
    sizes = size(chain(), calibration(reader=busy, worker=busy, trainer=busy), HOST, rate=1000)
    assert together(sizes, HOST)[0] == Used("cores", pytest.approx(0.6))


def test_a_topology_as_it_is_goes_as_fast_as_what_is_short_first():
    sleep = StageCost("Sleep", "map", seconds=0.02, workers=3)
    given = calibration(reader=free(), worker=cost(StageCost("ZMQSource", "source"), sleep), trainer=free())
    assert possible(chain(), given, HOST) == Used("worker: the 3 threads of Sleep", pytest.approx(2 * 3 / 0.02 * 10))
    busy = StageCost("Busy", "map", seconds=0.02, cpu=0.02, workers=3)
    given = calibration(reader=free(), worker=cost(StageCost("ZMQSource", "source"), busy), trainer=free())
    assert possible(chain(), given, HostSize(cores=2)) == Used("cores", pytest.approx(2 / 0.02 * 10))
    assert possible(chain(), calibration(), HOST) is None


def test_between_roles_of_one_host_there_is_no_network():
    given = calibration(reader=free(message=1e9), worker=free(message=1e9), trainer=cost(StageCost("Train", "sink", seconds=0.1)))
    assert possible(chain(), given, HostSize(cores=10, gbit=1)) == Used("trainer: the one thread of Train", pytest.approx(100))


def test_the_hosts_of_a_file_are_looked_at_one_by_one():
    placed = plan(role("reader", hosts=("a",)), role("trainer", hosts=("b",)), raw=link("reader", "trainer"))
    given = calibration(reader=free(message=1.25e6), trainer=free())
    assert possible(placed, given, HostSize(cores=10, gbit=10)) == Used("network out of a", pytest.approx(10_000))
