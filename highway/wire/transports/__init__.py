"""Transports carry messages. ``table`` lists them, ``protocol`` is their interface, and ``zmq`` and ``shm`` are the implementations.

``memory`` manages the memory of received messages.

May use: engine (cancel), and of the wire ``url`` and ``address``.
"""
