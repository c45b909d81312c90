"""How messages travel: ``zmq`` for tcp, ipc and inproc, ``shm`` for two processes of a host. ``protocol`` says what both are.

May use: engine (cancel), and of the wire ``url`` and ``address``.
"""
