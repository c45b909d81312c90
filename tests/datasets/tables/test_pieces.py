"""Pieces that several threads want at the same time, within a budget."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from waiting import wait_until

from highway import Pipeline, Stage
from highway.datasets.tables.pieces import Pieces


class Decoder:
    """Counts what it decodes; each piece waits until its event is set."""

    def __init__(self, count, size=1):
        self.may_go = [threading.Event() for _ in range(count)]
        self.begun, self.size = [], size

    def __call__(self, number):
        self.begun.append(number)
        assert self.may_go[number].wait(30)
        return f"piece {number}", self.size


def test_what_several_threads_want_is_decoded_once_and_each_begins_with_another():
    decode = Decoder(4)
    pieces = Pieces(100)
    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(lambda: dict(pieces.each(range(4), decode))) for _ in range(4)]
        wait_until(lambda: len(decode.begun) == 4)
        for event in reversed(decode.may_go):
            event.set()
        assert [one.result() for one in found] == [{number: f"piece {number}" for number in range(4)}] * 4
    assert sorted(decode.begun) == [0, 1, 2, 3]


def test_what_was_not_used_for_longest_is_forgotten_first_and_decoded_again():
    decode = Decoder(5, size=10)
    for event in decode.may_go:
        event.set()
    pieces = Pieces(30)
    for number in (0, 1, 2, 0, 3, 0, 2):  # 3 takes the place of 1
        assert list(pieces.each([number], decode)) == [(number, f"piece {number}")]
    assert decode.begun == [0, 1, 2, 3] and pieces.again == 0
    list(pieces.each([1], decode))  # in the place of 3
    assert list(pieces.each([0, 2, 3], decode)) and decode.begun == [0, 1, 2, 3, 1, 3] and pieces.again == 2


def test_a_piece_that_is_larger_than_the_budget_is_kept_alone():
    decode = Decoder(2, size=1000)
    for event in decode.may_go:
        event.set()
    pieces = Pieces(10)
    for number in (0, 0, 1, 1, 0):
        list(pieces.each([number], decode))
    assert decode.begun == [0, 1, 0]


def test_a_piece_whose_rows_were_all_taken_is_removed_if_a_quarter_of_the_budget_is_taken():
    decode = Decoder(4, size=10)
    for event in decode.may_go:
        event.set()
    pieces = Pieces(80)

    def take(number, rows=2):
        list(pieces.each([number], decode))
        pieces.take(number, rows, 2)

    take(0), take(1)  # they stay: 20 of 80
    take(0), take(1)
    assert decode.begun == [0, 1]
    take(2, 1), take(2, 1)  # in the place of 0
    take(3)  # in the place of 1
    take(2, 1), take(3, 1)
    take(0), take(0)  # one row of 2 and 3 is left, so 0 does not stay
    take(2, 1), take(3, 1)
    assert decode.begun == [0, 1, 2, 3, 0, 0] and pieces.again == 0


def test_what_takes_no_memory_stays_while_others_are_forgotten():
    decode = Decoder(4)
    for event in decode.may_go:
        event.set()
    pieces = Pieces(10)
    for number in (0, 2, 1, 3, 1, 0, 2):
        list(pieces.each([number], lambda number: (decode(number)[0], 10 * (number % 2))))
    assert decode.begun == [0, 2, 1, 3, 1]


def test_what_takes_no_memory_is_never_forgotten():
    decode = Decoder(50, size=0)
    for event in decode.may_go:
        event.set()
    pieces = Pieces(1)
    for _ in range(2):
        assert len(list(pieces.each(range(50), decode))) == 50
    assert len(decode.begun) == 50


def test_an_error_reaches_each_thread_that_wants_the_piece_and_it_is_tried_again():
    calls = []

    def decode(number):
        calls.append(number)
        if len(calls) < 3:
            raise ValueError(f"call {len(calls)}")
        return "piece", 1

    pieces = Pieces(10)
    for call in (1, 2):
        with pytest.raises(ValueError, match=f"call {call}"):
            list(pieces.each([0], decode))
    assert list(pieces.each([0], decode)) == [(0, "piece")] and calls == [0, 0, 0]


def test_a_thread_that_waits_for_another_is_cancelled(monkeypatch):
    monkeypatch.setattr("highway.engine.threads.STOP_TIMEOUT", 300.0)
    decode = Decoder(1)
    pieces = Pieces(10)
    other = threading.Thread(target=lambda: list(pieces.each([0], decode)))
    other.start()
    wait_until(lambda: decode.begun == [0])
    waits = threading.Event()

    def read(item):
        waits.set()
        return next(pieces.each([0], decode))

    pipeline = Pipeline([range(3), Stage(read, name="read")])
    with pytest.raises(TimeoutError):
        pipeline.dequeue(timeout=0.01)
    assert waits.wait(30)
    stopping = threading.Thread(target=pipeline.stop)
    stopping.start()
    stopping.join(60)  # long before it would be called stuck
    has_stopped = not stopping.is_alive()
    decode.may_go[0].set()
    other.join()
    stopping.join()
    assert has_stopped and decode.begun == [0]
