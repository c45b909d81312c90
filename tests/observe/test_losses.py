"""What links lose is counted while they run, as soon as a process has ended, whatever is under way."""

from highway.observe.latest import WINDOW, Losses
from highway.observe.snapshot import Ends, Loss
from highway.observe.state import ReplicaState
from highway.wire.tally import Counts

ENDS = {"reader": Ends(sends="raw"), "worker": Ends("raw")}


class Links:
    """A link of a reader and a worker, looked at four times per second."""

    def __init__(self, ends=ENDS):
        self.now = 0.0
        self.losses = Losses(ends, {"raw"}, lambda: self.now)

    def look(self, sent, received, phase="running", restarts=0, seconds=0.25, reader="running"):
        self.now += seconds
        worker = ReplicaState("worker", phase=phase, restarts=restarts, counts=Counts(received=received))
        return self.losses.count([ReplicaState("reader", phase=reader, counts=Counts(sent=sent)), worker])["raw"]


def test_what_is_under_way_is_not_lost():
    links = Links()
    assert [links.look(100 * n + n % 3, 100 * n - 20) for n in range(1, 40)][-1] == Loss(20, 0)


def test_what_a_killed_receiver_takes_with_it_is_lost_though_others_are_under_way():
    links = Links()
    for n in range(1, 20):
        links.look(100 * n + 40 + n % 3, 100 * n)  # about 40 are always under way
    links.look(2040, 2000, "waiting")
    for n in range(21, 40):
        loss = links.look(100 * n + 40 + 7 + n % 3, 100 * n, restarts=1)  # and 7 were lost
    assert loss.lost == 7
    assert links.look(5000, 4993, "ended", 1, reader="ended") == Loss(7, 7)


def test_at_the_end_the_number_is_exact():
    links = Links()
    links.look(100, 50)
    assert links.look(200, 190, "failed", reader="ended") == Loss(10, 10)


def test_a_process_that_ends_in_order_loses_nothing():
    links = Links()
    for n in range(1, 20):
        links.look(100 * n + 40, 100 * n)
    for _ in range(20):
        loss = links.look(2000, 2000, "ended")
    assert loss == Loss(0, 0)


def test_it_takes_some_seconds_until_a_loss_is_counted():
    links = Links()
    links.look(100, 100)
    assert links.look(110, 105, "waiting").lost == 0
    assert links.look(110, 105, restarts=1, seconds=WINDOW / 2).lost == 0
    assert links.look(110, 105, restarts=1, seconds=WINDOW / 2).lost == 5
    assert links.look(120, 115, restarts=1, seconds=100).lost == 5


def test_links_that_publish_are_left_to_the_gaps_that_their_receivers_count():
    assert Losses({**ENDS, "reader": Ends(sends="raw", publishes=True)}, {"raw"}).count([]) == {}


def test_what_a_receiver_outside_the_run_takes_is_no_loss():
    now = [0.0]
    losses = Losses(ENDS, {"raw"}, lambda: now[0])
    for n in range(1, 60):
        now[0] += 0.25
        reader = ReplicaState("reader", phase="running" if n < 50 else "ended", counts=Counts(sent=100 * n, receivers=2))
        worker = ReplicaState("worker", phase="waiting" if n == 20 else "running" if n < 55 else "ended", counts=Counts(received=60 * n))
        loss = losses.count([reader, worker])["raw"]
    assert loss == Loss(0, 0)
