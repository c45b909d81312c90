"""How messages travel: ``table`` says what each transport is, ``protocol`` what all offer, ``zmq`` and ``shm`` are the two that there are.
``memory`` sees to the memory of what arrives.

May use: engine (cancel), and of the wire ``url`` and ``address``.
"""
