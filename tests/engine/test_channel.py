"""Channel: bounded, ordered, closable from both ends."""

import threading

import pytest
from waiting import wait_until

from highway.engine.channel import Channel, Together
from highway.engine.stage import DROP
from highway.engine.stats import BLOCKED, BUSY, STARVED, Meter
from highway.errors import Cancelled, EndOfStream


def in_thread(function):
    """Run ``function`` in a thread; return a function that waits for it and gives its result or the exception it raised."""
    outcome = []

    def body():
        try:
            outcome.append((function(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=body, daemon=True)
    thread.start()

    def join():
        thread.join(30)
        assert not thread.is_alive(), "still blocked"
        return outcome[0]

    return join


def is_blocked(*meters):
    """Return whether all writers with these meters wait."""
    return all(meter.state == BLOCKED for meter in meters)


def test_items_leave_in_the_order_of_their_slots_not_of_their_filling():
    channel = Channel(3)
    slots = []
    for _ in range(3):
        channel.acquire()
        slots.append(channel.reserve())
    for number in (2, 0, 1):
        channel.fill(slots[number], number)
    assert [channel.get() for _ in range(3)] == [0, 1, 2]


def test_a_reader_waits_for_the_first_slot_though_later_ones_are_filled():
    channel = Channel(2)
    channel.acquire()
    first = channel.reserve()
    channel.put("second")
    with pytest.raises(TimeoutError):
        channel.get(timeout=0.01)
    channel.fill(first, "first")
    assert [channel.get(), channel.get()] == ["first", "second"]


def test_dropped_slots_vanish_and_give_their_room_back():
    channel = Channel(1)
    for _ in range(5):
        channel.put(DROP)
    channel.put("kept")
    assert channel.get() == "kept"
    assert len(channel) == 0


def test_a_slot_that_is_dropped_behind_a_finished_item_vanishes_too():
    channel = Channel(3)
    channel.put("first")
    channel.acquire()
    channel.fill(channel.reserve(), DROP)
    channel.put("last")
    assert [channel.get(), channel.get(), len(channel)] == ["first", "last", 0]


def test_every_waiting_reader_gets_an_item():
    channel = Channel(2)
    readers = [in_thread(channel.get) for _ in range(2)]
    channel.acquire()
    first = channel.reserve()
    channel.put(1)
    channel.fill(first, 0)
    assert sorted(join()[0] for join in readers) == [0, 1]


def test_a_writer_waits_for_room():
    channel = Channel(1)
    channel.put(0)
    join = in_thread(lambda: channel.put(1))
    assert channel.get() == 0
    assert join() == (None, None)
    assert channel.get() == 1


@pytest.mark.parametrize(("capacity", "writers", "takes"), [(1, 1, 1), (2, 1, 1), (3, 1, 2), (6, 1, 3), (6, 2, 1)])
def test_a_writer_alone_is_woken_when_half_of_the_queue_is_free(capacity, writers, takes):
    channel = Channel(capacity, writers)
    for number in range(capacity):
        channel.put(number)
    meters = [Meter() for _ in range(writers)]
    threads = [threading.Thread(target=channel.put, args=("more",), kwargs={"meter": meter}, daemon=True) for meter in meters]
    for thread in threads:
        thread.start()
    wait_until(lambda: is_blocked(*meters))
    for _ in range(takes - 1):
        channel.get()
    threads[0].join(0.05)  # time for one that is woken too early
    assert is_blocked(*meters) and len(channel) == capacity - (takes - 1)
    channel.get()
    wait_until(lambda: len(channel) == capacity - takes + 1)
    while len(channel):
        channel.get()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


def test_some_are_as_many_as_there_are_and_leave_in_order():
    channel = Channel(4)
    assert channel.acquire_some(3) == 3
    assert channel.acquire_some(3) == 1
    assert channel.acquire_some(3) == 0
    slots = [channel.reserve() for _ in range(3)]
    channel.release(1)
    assert channel.get_some(5) == []
    for number, value in ((1, DROP), (0, "first"), (2, "third")):
        channel.fill(slots[number], value)
    assert channel.get_some(1) == ["first"]
    assert channel.get_some(5) == ["third"]
    assert channel.acquire_some(5) == 4


def test_a_channel_that_grows_wakes_a_writer_and_one_that_shrinks_waits_until_as_many_have_left():
    channel = Channel(1)
    channel.put("first")
    join = in_thread(lambda: channel.put("second"))
    channel.grow(1)
    assert join() == (None, None)
    assert channel.capacity == 2
    channel.grow(-1)
    assert channel.acquire_some(1) == 0
    assert channel.get_some(2) == ["first", "second"]
    assert channel.acquire_some(2) == 1


def test_small_items_wait_besides_the_others():
    channel, meter = Channel(2, extra=3), Meter()
    for number in range(5):
        channel.put(number, more=3)
    join = in_thread(lambda: channel.put("more", more=3, meter=meter))
    wait_until(lambda: is_blocked(meter))
    assert (len(channel), channel.capacity) == (5, 5)
    assert [channel.get() for _ in range(5)] == list(range(5))
    assert join() == (None, None) and channel.get() == "more"


@pytest.mark.parametrize("writers", [1, 2])
def test_more_than_the_capacity_wait_only_if_the_next_is_small(writers):
    channel, meter = Channel(2, writers, extra=3), Meter()
    assert channel.capacity == 2
    for number in range(4):
        channel.put(number, more=3 if number > 1 else 0)
    join = in_thread(lambda: channel.put(4, more=0, meter=meter))
    wait_until(lambda: is_blocked(meter))
    assert (channel.capacity, len(channel)) == (5, 4)
    assert [channel.get(), channel.get()] == [0, 1]
    wait_until(lambda: is_blocked(meter))
    assert len(channel) == 2  # there would be room for small ones
    assert [channel.get() for _ in range(3)] == [2, 3, 4]
    assert join() == (None, None) and len(channel) == 0


def test_a_channel_lets_no_more_wait_than_it_was_told_whatever_items_allow():
    channel = Channel(1, extra=1)
    channel.put("a", more=32)
    channel.put("b", more=32)
    assert (len(channel), channel.capacity, channel.acquire_some(1)) == (2, 2, 0)


def test_a_marker_between_small_items_waits_besides_the_others_too():
    channel = Channel(1, extra=4)
    for number in range(3):
        channel.put(number, more=4)
    channel.put("marker")
    channel.acquire()
    assert len(channel) == 4


def test_a_worker_that_waits_goes_on_when_another_one_turns_out_to_have_made_a_small_item():
    channel, meter = Channel(1, writers=2, extra=1), Meter()
    channel.acquire()
    slot = channel.reserve()
    join = in_thread(lambda: channel.acquire(meter))
    wait_until(lambda: is_blocked(meter))
    channel.fill(slot, "small", more=1)
    assert join() == (None, None)


def test_close_lets_the_rest_out_and_then_ends_for_every_reader():
    channel = Channel(2)
    channel.put(0)
    channel.close()
    assert channel.get() == 0
    for _ in range(2):
        with pytest.raises(EndOfStream):
            channel.get()


def test_close_wakes_all_waiting_readers():
    channel = Channel(1)
    readers = [in_thread(channel.get) for _ in range(3)]
    channel.close()
    assert [type(join()[1]) for join in readers] == [EndOfStream] * 3


def test_a_closed_channel_ends_when_its_last_slot_is_dropped():
    channel = Channel(1)
    channel.acquire()
    slot = channel.reserve()
    channel.close()
    readers = [in_thread(channel.get) for _ in range(2)]
    channel.fill(slot, DROP)
    assert [type(join()[1]) for join in readers] == [EndOfStream] * 2


def test_cancel_wakes_readers_and_writers_and_keeps_nothing():
    empty, full = Channel(1), Channel(1)
    full.put(object())
    reader, writer = in_thread(empty.get), in_thread(lambda: full.put(1))
    empty.cancel()
    full.cancel()
    assert isinstance(reader()[1], Cancelled)
    assert isinstance(writer()[1], Cancelled)
    assert len(full) == 0


@pytest.mark.parametrize("late", [lambda channel: channel.append(0), lambda channel: channel.reserve(), lambda channel: channel.put(0)])
def test_nothing_is_kept_of_what_comes_after_cancel(late):
    channel = Channel(1)
    channel.acquire()
    channel.cancel()
    with pytest.raises(Cancelled):
        late(channel)
    assert len(channel) == 0


def test_a_worker_is_blocked_or_starved_while_it_waits_and_else_busy():
    channel, meter = Channel(1), Meter()
    meter.enter(BUSY)
    channel.put(0, meter=meter)
    assert channel.get(meter=meter) == 0
    channel.acquire(meter)
    assert meter.seconds[BLOCKED] == meter.seconds[STARVED] == 0.0
    for wait in (lambda: channel.acquire(meter), lambda: channel.put(0, meter=meter)):
        join = in_thread(wait)
        wait_until(lambda: meter.state == BLOCKED)
        channel.release(1)
        assert join() == (None, None) and meter.state == BUSY
    assert channel.get() == 0
    join = in_thread(lambda: channel.get(meter=meter))
    wait_until(lambda: meter.state == STARVED)
    channel.close()
    assert isinstance(join()[1], EndOfStream) and meter.state == BUSY


def test_items_that_are_handed_on_together_count_one_by_one_and_leave_as_the_reader_asks():
    channel = Channel(4, writers=2)
    channel.acquire()
    slot = channel.reserve()
    channel.put(3)
    channel.fill(slot, Together([0, 1, 2]))
    assert len(channel) == 4 and channel.acquire_some(9) == 0
    assert channel.get() == 0 and len(channel) == 3 and channel.acquire_some(9) == 1
    channel.release(1)
    assert [channel.get() for _ in range(3)] == [1, 2, 3]
    channel.put(Together([4, 5]))
    assert channel.get(together=True) == [4, 5] and len(channel) == 0 and channel.acquire_some(9) == 4


def test_each_writer_that_waits_is_woken_when_several_items_leave_together():
    channel = Channel(2, writers=2)
    channel.put(Together([0, 1, 2]))
    meters = {3: Meter(), 4: Meter()}
    writers = [in_thread(lambda number=number: channel.put(number, meter=meters[number])) for number in meters]
    wait_until(lambda: is_blocked(*meters.values()))
    assert channel.get(together=True) == [0, 1, 2]
    assert [join() for join in writers] == [(None, None), (None, None)]
    assert sorted([channel.get(), channel.get()]) == [3, 4]
