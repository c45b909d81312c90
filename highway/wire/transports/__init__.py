"""How messages travel: ``table`` lists the transports, ``protocol`` is their interface, ``zmq`` and ``shm`` are the implementations.

``memory`` manages the memory of received messages.

May use: engine (cancel), and of the wire ``url`` and ``address``.
"""
