"""The lock for the random generators of torch."""

import threading

torch_generators = threading.RLock()
"""Hold this lock while torch reads, sets or temporarily changes the state of a generator.

In ``get_state``, torch holds the mutex of the generator while it creates a tensor. This can start a garbage collection, which can release
the GIL. If a second thread then calls ``get_state`` of the same generator, this thread waits for the mutex and keeps the GIL: a deadlock.
The lock also prevents a thread from reading a state that another thread has set temporarily.
"""
