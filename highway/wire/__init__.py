"""Links between processes: URLs, codecs, senders, receivers and transports.

A *link* carries items from a sending end to a receiving end.

Begin with ``url``, which parses the settings of one end. ``sender`` numbers the messages, and announces its end. ``receiver``
checks the numbers and the end. ``codec`` converts items to frames and back. ``transports`` send and receive the frames. ``connection`` is
one end of a link for a training loop.

May use: engine (stage, batch, cancel) and parameters; ``conversion`` imports ``adapters`` only if the user gives a converter by name.
"""
