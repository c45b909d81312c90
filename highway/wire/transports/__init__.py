"""Transports carry messages. ``table`` lists them, ``protocol`` is their interface, and ``zmq`` and ``shm`` are the implementations.

``memory`` manages the memory of received messages.

May use: engine (cancel), and ``url`` and ``address`` of the package ``wire``.
"""
