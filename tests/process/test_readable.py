"""Waiting for descriptors."""

import os
import socket

import pytest

from highway.process.readable import readable


@pytest.mark.usefixtures("many_descriptors")
def test_descriptors_above_1023_are_waited_for():
    reading, writing = os.pipe()
    left, right = socket.socketpair()
    with open(reading, "rb") as pipe, left, right:
        assert pipe.fileno() > 1023
        assert readable([pipe, left], 0.01) == []
        right.send(b"x")
        assert readable([pipe, left, reading]) == [left]
        os.close(writing)
        assert readable([pipe, left]) == [pipe, left]
