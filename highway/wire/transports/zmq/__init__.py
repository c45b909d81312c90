"""Sockets of ZeroMQ, and all code that imports ZeroMQ. Begin with ``socket``."""

from highway.wire.transports.zmq.context import start_threads
from highway.wire.transports.zmq.socket import ZMQReceiver as open_receiver
from highway.wire.transports.zmq.socket import ZMQSender as open_sender

__all__ = ["open_receiver", "open_sender", "start_threads"]
