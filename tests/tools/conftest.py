import contextlib
import threading

import pytest

from highway import Pipeline
from highway.modules import ZMQSink


@pytest.fixture
def send(tmp_path):
    """Send items from other threads: ``send(items)`` returns the URL from which a tool receives all of them, and then the end."""
    with contextlib.ExitStack() as stack:

        def start(items):
            path = f"ipc://{tmp_path}/{len(stack._exit_callbacks)}"
            pipeline = Pipeline([items, ZMQSink(f"zrpush+{path}")])
            thread = threading.Thread(target=pipeline.run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(pipeline.stop)
            return f"zrpull+{path}"

        yield start
