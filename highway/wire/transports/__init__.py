"""Transports send and receive messages. ``table`` lists the transports, and ``protocol`` is their interface.

``zmq`` and ``shm`` are the implementations. ``memory`` manages the memory of received messages.

May use: engine (cancel), and ``url`` and ``address`` of the package ``wire``.
"""
