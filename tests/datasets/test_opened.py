import copy
import os
import pickle
import threading

from forking import in_a_fork

from highway.datasets.opened import opened


class Slow:
    """Opens only when it is told to, but for the main thread."""

    def __init__(self):
        self.begun, self.go = threading.Event(), threading.Event()
        self.times = 0

    @opened
    def process(self):
        self.times += 1
        if threading.current_thread() is not threading.main_thread():
            self.begun.set()
            assert self.go.wait(60)
        return os.getpid()


def test_a_child_that_is_forked_while_another_thread_opens_does_not_wait_for_it():
    slow = Slow()
    thread = threading.Thread(target=lambda: slow.process)
    thread.start()
    assert slow.begun.wait(60)
    status = in_a_fork(lambda: 7 if slow.process == os.getpid() else 1)
    slow.go.set()
    thread.join()
    assert status == 7
    assert slow.process == os.getpid() and slow.times == 1


def test_threads_that_ask_at_once_open_once():
    slow = Slow()
    threads = [threading.Thread(target=lambda: slow.process) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert slow.begun.wait(60)
    slow.go.set()
    for thread in threads:
        thread.join()
    assert slow.process == os.getpid() and slow.times == 1


class Letters:
    def __init__(self, text):
        self.text = text

    @opened
    def letters(self):
        return list(self.text)


def test_a_copy_opens_anew_since_its_parameters_may_be_changed():
    first = Letters("abc")
    letters = first.letters
    for duplicate in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        duplicate.text = "xy"
        assert duplicate.letters == ["x", "y"] and duplicate.letters is duplicate.letters
    assert first.letters is letters


def test_a_copy_of_a_copy_opens_anew_after_the_first_is_gone():
    left = Letters("abc")
    for text in ("xy", "z", "uvw"):
        assert left.letters
        left = copy.copy(left)
        left.text = text
        assert left.letters == list(text)
