import contextlib
import itertools
import threading

import pytest

from highway import Pipeline
from highway.modules import ZMQSink

SCHEMES = {"push": ("zrpush", "zrpull"), "publish": ("zpub", "zsub")}


@pytest.fixture
def send(tmp_path):
    """Send items from other threads: ``send(items)`` returns the URL from which a tool receives all of them, and then the end."""
    numbers = itertools.count()
    with contextlib.ExitStack() as stack:

        def start(items, how="push"):
            sender, receiver = SCHEMES[how]
            path = f"ipc://{tmp_path}/{next(numbers)}"
            pipeline = Pipeline([items, ZMQSink(f"{sender}+{path}", receivers=1)])
            thread = threading.Thread(target=pipeline.run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(pipeline.stop)
            return f"{receiver}+{path}"

        yield start
