"""Sockets of ZeroMQ, and all that imports it. Begin with ``socket``."""
