"""The current frames of threads."""

import subprocess
import sys
import threading

from highway.process.threads import frame_of

SCRIPT = """
import gc, sys, threading
from highway.process.threads import frame_of

collecting = []
sys.addaudithook(lambda event, _: collecting.append(gc.isenabled()) if event == "sys._current_frames" else None)
assert frame_of(threading.main_thread()) is not None and gc.isenabled()
gc.disable()
assert frame_of(threading.main_thread()) is not None and not gc.isenabled()
assert collecting == [False, False], collecting
"""


def test_no_garbage_is_collected_while_frames_are_read_because_this_could_lead_to_a_deadlock():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=60)


def test_the_frame_of_a_thread_is_where_it_is():
    gate, waits = threading.Event(), threading.Event()

    def wait_here():
        waits.set()
        gate.wait()

    thread = threading.Thread(target=wait_here)
    assert frame_of(thread) is None
    thread.start()
    waits.wait()
    frame, names = frame_of(thread), set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    assert "wait_here" in names
    gate.set()
    thread.join()
    assert frame_of(thread) is None
