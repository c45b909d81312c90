"""Links between processes: URLs, codecs, the two ends of a link, and the transports below them.

Begin with ``url``: the settings of one end. ``sender`` and ``receiver`` are the two ends: senders number messages and announce the end of a
stream, and receivers check both. ``codec`` converts items to frames and back, and ``transports`` carry the frames. ``connection`` is an end
for a training loop.

May use: engine (stage, batch, cancel) and parameters; ``conversion`` imports ``adapters`` if a converter is given by name.
"""
